// The loops of a fused body: which elements one pass over it reads, computes and adds up.
//
//     graph @fused_0 (%0: f32[4,6,8], %1: f32[8]) {    for i0 = 0 .. 24     4*6
//       %2 = broadcast %1 shape=[4,6,8] : f32[4,6,8]     for i1 = 0 .. 8
//       %3 = add %0, %2                 : f32[4,6,8]       %3[8*i0 + i1] = %0[8*i0 + i1] + %1[i1]
//       %4 = reduce_sum %3 axes=[2]     : f32[4,6]         %4[i0] += %3
//       return %3, %4
//     }
//
// Everything that is computed has one element per point of one index space.  A point is a flat
// index, so reshapes mean nothing here; an operand that is broadcast is read at a sum of strides
// over digits of that index (Access), and the loops are the fewest whose digits serve all of them.
// Sums come last: over the innermost loops (rows) or over the outermost (columns), the same ones
// for all sums of a body.
//
// passes/fuse/fuse.c makes such bodies, plan_memory asks which operands a result may overwrite,
// and the backend writes them as C.

#ifndef IR_LOOPS_H
#define IR_LOOPS_H

#include "ir/graph.h"

enum { MAX_LOOPS = 12 };

// Where a tensor is read at flat index i: the sum over k of digit_k(i) * stride[k], where the
// digits are those of a mixed radix number with `extent` as radices, outermost first.
typedef struct Access {
  int n;
  int64_t extent[MAX_LOOPS], stride[MAX_LOOPS];
} Access;

typedef struct Loops {
  int n; // 0: one point
  int64_t extent[MAX_LOOPS];
} Loops;

// A tensor of type `from` read through a broadcast to `to`.
Access access_broadcast(const Type *from, const Type *to);
bool access_is_flat(const Access *a);

Loops loops_flat(int64_t count);
// Cuts the loops where the strides of `a` change.  False, and `l` as it was, when one would have to
// be cut so that no loop is left.
bool loops_cut(Loops *l, const Access *a);
// The same at the loops whose inner part has `inner` points.
bool loops_cut_at(Loops *l, int64_t inner);
int64_t loops_stride(const Loops *l, int loop, const Access *a);

// How a reduce_sum lies in the space of its operand.
typedef enum SumKind {
  SUM_none,
  SUM_rows,    // over the trailing dimensions; over all of them too
  SUM_columns, // over the leading ones
  SUM_other,   // over what lies between: not one pass
} SumKind;
SumKind sum_kind(const Op *reduce, int64_t *n_kept); // results

// What one body value is.
typedef enum BodyKind {
  BODY_operand,  // a parameter, or a view or broadcast of one: read by `access`
  BODY_scalar,   // one number: a fill or constant, viewed or broadcast
  BODY_computed, // an elementwise result, or a view of one
  BODY_sum,      // a reduce_sum
} BodyKind;

typedef struct BodyValue {
  BodyKind kind;
  const Value *source; // the parameter, the fill or constant, the elementwise result, the sum
  Access access;       // of an operand
} BodyValue;

typedef struct Body {
  const Graph *g;
  int64_t count; // points
  Loops loops;
  SumKind sum;
  int64_t n_kept;   // elements of each sum
  BodyValue *value; // by value id
} Body;

// False when `g` is not such a body.
bool body_read(const Graph *g, Body *out, Arena *a);
// Result `result` may take the memory of operand `operand`: each element of the operand is read
// only where the result's is written, and they are equally long.
bool body_inplace(const Body *b, int result, int operand);
// Do both compute the same, on whatever devices?
bool body_same(const Graph *a, const Graph *b);
// Is `op` an elementwise op: one with a formula?
bool op_is_elementwise(const Op *op);

#endif
