// The loops of a fused body: the elements that one pass reads, computes and reduces.
//
//     graph @fused_0 (%0: f32[4,6,8], %1: f32[8]) {    for i0 = 0 .. 24     4*6
//       %2 = broadcast %1 shape=[4,6,8] : f32[4,6,8]     for i1 = 0 .. 8
//       %3 = add %0, %2                 : f32[4,6,8]       %3[8*i0 + i1] = %0[8*i0 + i1] + %1[i1]
//       %4 = reduce_sum %3 axes=[2]     : f32[4,6]         %4[i0] += %3
//       return %3, %4
//     }
//
// Every computed value has one element per point of one index space.  A point is a flat index, so
// reshapes are no-ops.  The index of a broadcast operand is a sum of strides over digits of the
// flat index (Access).  The loops are the fewest that refine the digits of all accesses.  Sums come
// last: over the innermost loops (rows) or over the outermost (columns), the same for all sums of a
// body.
//
// passes/fuse/fuse.c builds such bodies, plan_memory queries the operands that a result may
// overwrite, and the backend prints them as C.

#ifndef IR_LOOPS_H
#define IR_LOOPS_H

#include "ir/graph.h"

enum { MAX_LOOPS = 12 };

// The element of a tensor at flat index i: the sum over k of digit_k(i) * stride[k].  The digits
// are those of a mixed radix number with `extent` as radices, outermost first.
typedef struct Access {
  int n;
  int64_t extent[MAX_LOOPS], stride[MAX_LOOPS];
} Access;

typedef struct Loops {
  int n; // 0: one point
  int64_t extent[MAX_LOOPS];
} Loops;

// The access of a tensor of type `from` through a broadcast to `to`.
Access access_broadcast(const Type *from, const Type *to);
bool access_is_flat(const Access *a);

Loops loops_flat(int64_t count);
// Splits the loops at each stride change of `a`.  If a split is not possible, returns false and
// leaves `l` unchanged.
bool loops_cut(Loops *l, const Access *a);
// Splits the loops so that an inner part of them has `inner` points.
bool loops_cut_at(Loops *l, int64_t inner);
int64_t loops_stride(const Loops *l, int loop, const Access *a);

// The dimensions that a reduce_sum reduces in its operand.
typedef enum SumKind {
  SUM_none,
  SUM_rows,    // the trailing dimensions, possibly all
  SUM_columns, // the leading dimensions
  SUM_other,   // dimensions in the middle: not one pass
} SumKind;
SumKind sum_kind(const Op *reduce, int64_t *n_kept); // n_kept: elements of the result

// The kind of a body value.
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

// Fills `out`; false if `g` is not such a body.
bool body_read(const Graph *g, Body *out, Arena *a);
// Whether result `result` may take the memory of operand `operand`: they have the same length, and
// each element of the operand is read only at the point that writes the same element of the result.
bool body_inplace(const Body *b, int result, int operand);
// Whether both compute the same function, on any devices.
bool body_same(const Graph *a, const Graph *b);
// Whether `op` is elementwise: it has a formula.
bool op_is_elementwise(const Op *op);

#endif
