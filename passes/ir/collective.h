// What collectives do to layouts: one rule for each.
//
//     all_reduce       P -> B           reduce_scatter   P -> S(dim)
//     all_gather       S(dim) -> B      all_to_all       S(from) -> S(to)
//     local_slice      B -> S(dim)      accumulate       P -> B, over time
//
//     own_share        P -> B, over time, and as_share B -> P: these two change what the value is
//
// A rule is about the axes that the op names, all of them alike, as if they were one: all_gather
// over "dp+tp" joins what both cut.  Along the others the value lies as before.  None of
// the others changes what the value is: the whole tensor, or the sum, is the same before and after.
//
// Axes that cut one dimension are nested, the first of the mesh outermost.  A slice is taken, or
// taken back, inside of all others: rows gathered along an outer axis first would come out of
// order.

#ifndef IR_COLLECTIVE_H
#define IR_COLLECTIVE_H

#include "ir/graph.h"

// How the result of `op` lies, by its rule, along every axis of the mesh.  Reports an operand that
// does not lie as the rule wants it.
bool collective_gives(const Op *op, Sbp *axis, Diag *d);

#endif
