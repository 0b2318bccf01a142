// Enumerates the primitives that may follow a state, with the resulting states.
//
//     a:P b:B  over dimension 0:  all_reduce to a:B b:B, reduce_scatter to a:0.0 b:B, slice to
//                                 a:P b:0.0, split_sum to a:P b:P, permute to a:B b:P, …
//
// Only the innermost places of a dimension can be gathered, and new places are innermost: otherwise
// a device would have several boxes.  An all_to_all moves axes from some dimensions to others;
// within one dimension it would be a permute.  With more axes than PATH_FEW_AXES the less likely
// edges are left out: collectives that arrange axes in other than ascending order, and permutes of
// more than two.

#ifndef PATH_EDGES_H
#define PATH_EDGES_H

#include "path_cost.h"

// Called for every edge; returns false to stop.
typedef bool EdgeVisitor(void *context, const Edge *e, const State *after);

// False if the visitor stopped it.
bool path_edges(const TensorShape *shape, const Group group[2], const State *s, EdgeVisitor *visit,
                void *context);

#endif
