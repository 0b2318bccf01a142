// What can be done next: every primitive that may follow a state, with the state it leads to.
//
//     a:P b:B  over dimension 0:  all_reduce to a:B b:B, reduce_scatter to a:0.0 b:B, slice to
//                                 a:P b:0.0, split_sum to a:P b:P, permute to a:B b:P, …
//
// Only the innermost places of a dimension can be gathered, and new places are innermost: otherwise
// a device would have several boxes.  An all_to_all takes from some dimensions and gives to others;
// from one to itself would be a permute.  With more axes than PATH_FEW_AXES the less likely are
// left out: collectives that put axes into other than ascending order, and permutes of more than
// two.

#ifndef PATH_EDGES_H
#define PATH_EDGES_H

#include "path_cost.h"

// Is given every edge; returns false to end.
typedef bool EdgeVisitor(void *context, const Edge *e, const State *after);

// false when the visitor ended it.
bool path_edges(const TensorShape *shape, const Group group[2], const State *s, EdgeVisitor *visit,
                void *context);

#endif
