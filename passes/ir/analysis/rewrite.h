// Helpers for passes that replace ops by better ones.

#ifndef REWRITE_H
#define REWRITE_H

#include "ir/build.h"
#include "ir/op.h"

// Erases dead ops.  Returns their number.
int drop_dead(Graph *g);
// Erases `op` if it is dead; then, likewise, the producers of its operands.
void drop_unread(Op *op);

// Replaces all uses of `v` by `by`, which takes over the name if it has none.  `v` remains, unused.
void value_replace_uses(Value *v, Value *by);

// The op that defines `v`, if it has that kind; otherwise NULL.
Op *made_by(const Value *v, OpKind kind);
// Whether all elements of `v` are the same number.
bool is_fill(const Value *v, double *value);
// The contents of a constant or a fill; false if `v` is neither.
bool constant_tensor(const Value *v, Tensor *out, Arena *a);

// The transpose of `v` by `perm`.  If `v` is a transpose itself, the two are composed into one.
Value *build_transposed(Builder *b, Value *v, const int64_t *perm);
bool has_perm(const Op *op, const int64_t *perm); // of a transpose

// The simplifications, by subject.  Each returns a replacement for the result of `op`, or NULL.
typedef Value *SimplifyFn(Builder *b, Op *op);
typedef struct SimplifyRule {
  OpKind kind;
  SimplifyFn *fn;
} SimplifyRule;
extern const SimplifyRule arithmetic_rules[], shape_rules[], product_rules[],
    lookup_rules[]; // end with fn NULL

// The first operand of `op`, which has at least one.
Value *first_operand(const Op *op);
// Builds `op` with other operands and the same attributes.
Value *build_on(Builder *b, const Op *op, Value *const *in);
bool same_shape(const Type *x, const Type *y);

// Moves broadcasts and transposes below their readers, reshapes and slices above their operands:
// simplify_order.c.
SimplifyFn change_order;
// The rules for reshapes, in simplify_reshape.c: of a reshape, and of an elementwise op that reads
// reshapes of transposes.
SimplifyFn reshape_earlier, reshape_later;
// The reshape of a transpose that defines `v` and could not move above the transpose; or NULL.
const Op *stuck_reshape(const Value *v);

// Leaves out operands and results of a loop that nothing needs, and lets the body make constants.
// False after an error.
bool simplify_loop(Op *op, Diag *d, bool *changed);

// Evaluates `op` if all its operands are constants, and replaces its results by constants.  Returns
// whether it did.
bool fold_constants(Builder *b, Op *op);
// Merges equal ops.  Returns the number of ops that became dead.
int merge_equal(Graph *g);
// Moves large values of weights alone right before their first reader; returns their number
// (late_lookups.c).
int late_lookups(Graph *g);

#endif
