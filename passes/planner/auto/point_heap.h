// The heap of points of the search of auto, by their keys (priced_points.h).
//
//     2,684 ms   pp_zb_h2=32,…      borrowed      is next: it gets a closed form, and is put back
//     2,731 ms   pp_zb_h1=16,…      bound

#ifndef POINT_HEAP_H
#define POINT_HEAP_H

#include "priced_points.h"

void points_push(AutoSearch *s, int point);
// Takes out the point with the least key; there is one.
int points_pop(AutoSearch *s);
// Orders the heap again, as keys changed.
void points_order(AutoSearch *s);

// The time is over, and no plan fits yet: the points are compiled in the order of their estimates.
// Points with recomputation that are added follow theirs.
void points_hurry(AutoSearch *s);
// The place of a point in a hurry: those that fit by estimates are first, then others, and those
// with states in host memory.
double points_hurried(const AutoSearch *s, const Point *at);

#endif
