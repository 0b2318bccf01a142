// The layout rules of collectives:
//
//     all_reduce       P -> B           reduce_scatter   P -> S(dim)
//     all_gather       S(dim) -> B      all_to_all       S(from) -> S(to)
//     local_slice      B -> S(dim)      accumulate       P -> B, over time
//
//     take_partial     P -> B, over time
//     as_partial       B -> P, over time
//
// A rule applies to all axes that the op names, as if they were one: all_gather over "dp+tp" joins
// the shards of both.  Along the other axes the layout is unchanged.  Except for take_partial and
// as_partial, collectives preserve the global value: the whole tensor, or the sum, is the same
// before and after.
//
// Three predicates tell ops of trait COMM apart:
//
//     op has trait COMM    every row of collectives.def, and move
//     op_meets_others      those that wait for other ranks, or for other micro-batches (deferred.h)
//     op_is_collective     those that send: the COLLECTIVE rows, and move (cost/collectives.h)
//
// Axes that split one dimension are nested, the first of the mesh outermost.  A shard is taken or
// gathered at the innermost of them: rows gathered along an outer axis first would be out of order.

#ifndef IR_COLLECTIVE_H
#define IR_COLLECTIVE_H

#include "ir/build.h"

// A row of rt/collectives.def.
typedef struct CollectiveRule {
  OpKind op;
  int from, to; // kinds of Sbp
  const char *from_dim,
      *to_dim;      // the attributes with the dimensions of SBP_S; NULL for other kinds
  int over;         // the axes that it may run over
  bool keeps_value; // the global value before and after is the same
} CollectiveRule;

// Returns the rule of an op; NULL if it is neither a collective nor a change of layout.
const CollectiveRule *collective_rule(OpKind kind);

// The layouts of operand and result along the axes of `op`, which has a rule.
void collective_ends(const Op *op, Sbp *from, Sbp *to);

// The layout of the result of `op` along every axis of the mesh, by its rule.  Reports an operand
// without the layout that the rule requires.
bool collective_gives(const Op *op, Sbp *axis, Diag *d);

// The op that takes a layout from one kind to the other along an axis of devices, or of time.
OpKind collective_between(Sbp from, Sbp to, bool time);

// Builds that op over `axes` ("dp+tp").
Value *build_collective(Builder *b, OpKind kind, Value *v, const char *axes, Sbp from, Sbp to);

// Permuted blocks: block i of the result is block sources[i] of operand 0.  As a layout that is the
// operand on a mesh of the same devices, of which the one with block i of the result has block
// sources[i].  Returns that mesh, without a name, for a result on `mesh`; NULL unless one axis
// alone splits the dimension, into these blocks.
Mesh *permuted_mesh(const Op *op, const Mesh *mesh, Arena *a);

#endif
