// Shared helpers to match patterns of ops.
//
// A pattern is matched from the op that produces its result, the root, towards operands. Every op
// on the way is noted. In the end the pattern is closed if no op outside reads a result from
// inside, so that all of it becomes dead; a multiple of an operand may stay for other readers.

#ifndef RAISE_H
#define RAISE_H

#include "base/vec.h"
#include "ir/analysis/rewrite.h"

enum { MAX_MATCHED = 96 };

typedef struct Match {
  Op *op[MAX_MATCHED];
  int n;
} Match;

// The producer of `v`, noted, if it is of that kind; otherwise NULL.
Op *match_op(Match *m, const Value *v, OpKind kind);
// The dimensions of the result of a pattern that those of a value inside correspond to, by the
// broadcasts and reshapes between them; -1: a length of 1 is stretched or dropped.
typedef struct Along {
  int dim[MAX_NDIM];
} Along;
Along along_result(void); // of the result itself, and of values in its shape
// The source of `v`, seen through broadcasts and through reshapes that only add or drop dimensions
// of length 1; these ops are noted, and *along follows.
Value *match_through(Match *m, Value *v, Along *along);
// The reduction that `v` is broadcast from, if the broadcast repeats its elements along the reduced
// dimensions of the operand and leaves the others in their places. With equal lengths, shapes alone
// do not tell: a row may be divided by the sum of a column. `along` is that of `v`.
Op *match_reduction(Match *m, Value *v, Along along, OpKind kind);
// Strips factors: `v` is the result times *by.
Value *match_scale(Match *m, Value *v, double *by);
bool match_closed(const Match *m, const Op *root);

bool nearly_equal(double x, double y); // equal within the accuracy of exporters' constants
// Whether `v` is the mean of some x over some axes; returns both, `axes` as flags.
bool match_mean(Match *m, Value *v, Along along, Value **x, bool *axes);
// Likewise *times the mean.
bool match_mean_times(Match *m, Value *v, Along along, Value **x, bool *axes, double *times);

// The factors of a product: `v` = by * factor[0] * factor[1] * ...
typedef struct Factors {
  Value *factor[4];
  int n;
  double by;
} Factors;
bool match_product(Match *m, Value *v, Factors *f);
// The coefficients of `v` as a polynomial in x, of degree 3 at most.
enum { MAX_DEGREE = 3 };
typedef struct Polynomial {
  double at[MAX_DEGREE + 1];
} Polynomial;
bool match_polynomial(Match *m, Value *v, const Value *x, Polynomial *p);

// Whether a constant hides exactly the positions of s beyond i + s - t from position i of t.
typedef enum MaskKind {
  MASK_KEEPS, // true for visible scores
  MASK_DROPS, // true for hidden scores
  MASK_ADDS,  // 0, or a very negative number
} MaskKind;
typedef struct KnownMask {
  const Value *v;
  int64_t t, s;
  MaskKind kind;
  bool causal;
} KnownMask;

enum { HIDDEN = -10000 }; // a score this low is hidden: its exp is 0

// A candidate without a match, and the reason.
typedef struct Missed {
  const Loc *loc;
  const char *why;
} Missed;

typedef struct Raise {
  Builder b;
  Arena *scratch;
  Vec(Missed) missed;   // in the last walk
  Vec(KnownMask) masks; // layers share them, and they are large
} Raise;

bool is_causal_mask(Raise *r, const Value *v, int64_t t, int64_t s, MaskKind kind);

// Replaces the pattern of `root` by one op; false if it does not match.
typedef bool RaiseFn(Raise *r, Op *root);
RaiseFn raise_norm, raise_sigmoid, raise_softplus, raise_gelu, raise_gelu_tanh, raise_swish,
    raise_softmax, raise_log_softmax, raise_attention, raise_grouped_heads, raise_seq_major,
    raise_experts;

#endif
