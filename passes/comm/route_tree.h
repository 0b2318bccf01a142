// The cheapest tree from one place to several: a value brought to one place may go on to another.
//
//     from a        to b  to c  between them         b: from a        3
//     costs           3     4        1          =>   c: from b        1, not 4
//
// Places that are not wanted may be passed: they are visited if that pays. (With those it is a
// Steiner tree, and the cheapest one if there are few places; see route_tree.c.)

#ifndef ROUTE_TREE_H
#define ROUTE_TREE_H

#include "base/arena.h"

enum { ROUTE_TREE_EXACT = 10 }; // places: up to so many the tree is optimal

// The cost from place `from` to place `to`, from 0; place -1 is the origin.
typedef double RouteCost(void *context, int from, int to);

// Places 0 to n_wanted - 1 are wanted, those up to n are optional. `parent`: the place from which
// each is reached; -1: the origin, -2: not reached. Returns the sum. `least`, if not NULL: a lower
// bound of the cost that takes less time; a cost that no cheapest tree can have is not asked for.
double route_tree_choose(Arena *scratch, int n_wanted, int n, RouteCost *cost, RouteCost *least,
                         void *context, int *parent);

#endif
