// The layout rules of collectives:
//
//     all_reduce       P -> B           reduce_scatter   P -> S(dim)
//     all_gather       S(dim) -> B      all_to_all       S(from) -> S(to)
//     local_slice      B -> S(dim)      accumulate       P -> B, over time
//
//     own_share        P -> B, over time, and as_share B -> P: only these two change the global value
//
// A rule applies to all axes that the op names, as if they were one: all_gather over "dp+tp" joins
// the shards of both.  Along the other axes the layout is unchanged.  Except for own_share and
// as_share, collectives preserve the global value: the whole tensor, or the sum, is the same before
// and after.
//
// Axes that split one dimension are nested, the first of the mesh outermost.  A shard is taken or
// gathered at the innermost of them: rows gathered along an outer axis first would be out of order.

#ifndef IR_COLLECTIVE_H
#define IR_COLLECTIVE_H

#include "ir/graph.h"

// The layout of the result of `op` along every axis of the mesh, by its rule.  Reports an operand
// without the layout that the rule requires.
bool collective_gives(const Op *op, Sbp *axis, Diag *d);

// Whether collectives.def has a rule for ops of this kind.
bool collective_has_rule(OpKind kind);

// The op over devices that takes a layout from one kind to the other along an axis.
OpKind collective_between(Sbp from, Sbp to);

#endif
