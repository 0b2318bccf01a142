// Helpers of the passes that replace ops by better ones.

#ifndef REWRITE_H
#define REWRITE_H

#include "ir/build.h"
#include "ir/op.h"

// Erases the ops whose results nobody reads.  How many there were.
int drop_dead(Graph *g);
// Erases `op` if nobody reads its results; then, likewise, what made its operands.
void drop_unread(Op *op);

// Every reader of `v` reads `by`, which takes over the name if it has none.  `v` stays, unused.
void replace(Value *v, Value *by);

// The op that makes `v`, if it is of that kind; otherwise NULL.
Op *made_by(const Value *v, OpKind kind);
// True when `v` is the same number everywhere.
bool is_fill(const Value *v, double *value);
// What the bytes of a constant or a fill are; false when `v` is neither.
bool constant_tensor(const Value *v, Tensor *out, Arena *a);

// x, of which `v` is a transpose by `perm`, composed with earlier ones: no transpose of a transpose
// is made.
Value *transposed(Builder *b, Value *v, const int64_t *perm);
bool has_perm(const Op *op, const int64_t *perm); // of a transpose

// The simplifications, by subject.  Each gives what `op`'s result can be replaced by, or NULL.
typedef Value *SimplifyFn(Builder *b, Op *op);
typedef struct SimplifyRule {
  OpKind kind;
  SimplifyFn *fn;
} SimplifyRule;
extern const SimplifyRule arithmetic_rules[], shape_rules[], product_rules[]; // end with fn NULL

// The value that `op`, of one operand or more, reads first.
Value *first_operand(const Op *op);
// `op` of other operands, with its attributes.
Value *build_on(Builder *b, const Op *op, Value *const *in);
bool same_shape(const Type *x, const Type *y);

// Broadcasts and transposes go below the ops that read them, reshapes and slices above:
// simplify_order.c.
SimplifyFn change_order;
// Its rules for reshapes, in simplify_reshape.c: of a reshape, and of an elementwise op that reads
// reshapes of transposes.
SimplifyFn reshape_earlier, reshape_later;
// The reshape that makes `v` of a transpose, which it could not go above; or NULL.
const Op *stuck_reshape(const Value *v);

// Evaluates `op` if all it reads is known; its results become constants.  True when they did.
bool fold_constants(Builder *b, Op *op);
// Lets readers of equal ops share one.  How many became superfluous.
int merge_equal(Graph *g);

#endif
