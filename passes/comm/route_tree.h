// From one place to several, together as cheaply as can be: what was brought to one may go on to
// another.
//
//     from a        to b  to c  between them         b: from a        3
//     costs           3     4        1          =>   c: from b        1, not 4
//
// Places may be passed that nobody wants: they are visited where that is worth it.  (With those it
// is a Steiner tree, of which that is the least where there are few places; see route_tree.c.)

#ifndef ROUTE_TREE_H
#define ROUTE_TREE_H

#include "base/arena.h"

enum { ROUTE_TREE_EXACT = 10 }; // places, up to which nothing is cheaper

// What it costs from place `from` to place `to`, from 0; place -1 is where all begins.
typedef double RouteCost(void *context, int from, int to);

// Places 0 to n_wanted - 1 are wanted, those up to n are not.  `parent`: from where each is
// reached, -1 from the beginning, -2 not at all.  Returns the sum.
double route_tree_choose(Arena *scratch, int n_wanted, int n, RouteCost *cost, void *context,
                         int *parent);

#endif
