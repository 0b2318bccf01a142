// Plans of points, compiled: their bytes and seconds correct the numbers of other points.
//
//     priced 2,930 ms, 126.1 GB    built 2,915 ms, 126.3 GB    it fits: points like it take 0.995 of
//                                                              their prices

#ifndef BUILDS_H
#define BUILDS_H

#include "priced_points.h"

// The candidate that has the point's plan already, and was compiled; or NULL.
const Candidate *find_tried(const Candidates *all, const Point *p);

// Whether it was.
bool is_tried(const Candidates *all, const Point *p);

// Builds the point's plan.
void build_point(AutoSearch *s, int i, Candidates *all);

// Compiles the best plan with the stages of `place`, too, if its text has stages of auto: units of
// `place` are single products, so they may be more even, or fit without recomputation.
void build_placed(AutoSearch *s, Candidates *all);

// Compiles plans without stages, with states in host memory and recomputation, with saved
// activations there as well, instead of recomputation or beside it: those that take no longer than
// the best plan that fits, or would if they did.
void build_swapped(AutoSearch *s, Candidates *all);

#endif
