// Which ops run before which others that they have nothing to do with: what programs said with
// op_order.
//
//     %a1 = linear …                                 op_order(a2, b1)
//     %b1 = linear …        both large
//     %a2 = reduce_sum %a1                  =>       %a1 = linear …
//     %b2 = reduce_sum %b1                           %a2 = reduce_sum %a1   turn=1
//                                                    %b1 = linear …         turn=2     where %a1 was
//                                                    %b2 = reduce_sum %b1
//
// The list of ops is the order in which a device runs them, so this sorts the list: ops stay in the
// model's order, but that what is to come before an op, and what that needs, is done right before
// it where it is not done yet.
//
// Then it must stay so.  Of each order the ops that nothing else of the same side comes after, or
// before, get a turn (Origin), numbered as they stand; the others follow from what they read and
// make.  The verifier sees that ops stand in the order of their turns after every pass.  Passes
// that put ops together either know of turns (fuse) or are left out where they break them
// (manager/pipeline.c).
//
// Each graph that is an entry has orders of its own, as programs run for each: those of the model's
// ops hold in @eval as well.
//
// Orders that go in a circle are an error.  It names the smallest: as few orders as there are, of
// which each is said before the next by what its ops make, and the first by that of the last.

#ifndef ORDER_H
#define ORDER_H

#include "base/diag.h"
#include "ir/graph.h"

// All of `first` before all of `then`.
typedef struct Order {
  Op **first, **then;
  int n_first, n_then;
  const Loc *line;
} Order;

typedef struct Orders {
  Order *at;
  int n, cap;
} Orders;

// Sorts the graph and gives turns; ids stay as they are.  False, having reported why.
bool order_ops(Graph *g, const Orders *orders, Arena *scratch, Diag *d);

#endif
