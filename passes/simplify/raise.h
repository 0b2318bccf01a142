// Patterns of ops: what the files that raise them share.
//
// A pattern is matched from the op that makes its result, the root, towards operands.  Every op
// met on the way is noted; at the end the pattern is closed if nothing outside it reads what an op
// inside makes, so that all of it can go; a multiple of an operand may stay for others.

#ifndef RAISE_H
#define RAISE_H

#include "base/vec.h"
#include "ir/analysis/rewrite.h"

enum { MAX_MATCHED = 96 };

typedef struct Match {
  Op *op[MAX_MATCHED];
  int n;
} Match;

// The op that makes `v`, noted, if it is of that kind; otherwise NULL.
Op *match_op(Match *m, const Value *v, OpKind kind);
// What `v` is made of by broadcasting, and by reshapes that only add or drop dimensions of
// length 1; those ops are noted.
Value *match_through(Match *m, Value *v);
// Takes factors off: `v` is the result times *by.
Value *match_scale(Match *m, Value *v, double *by);
bool match_closed(const Match *m, const Op *root);

bool about(double x, double y); // equal as far as exporters agree on constants
// Whether `v` is the mean of x over `axes` (sorted); those are given.
bool match_mean(Match *m, Value *v, Value **x, bool *axes);

// Factors of a product: `v` = by * factor[0] * factor[1] * ...
typedef struct Factors {
  Value *factor[4];
  int n;
  double by;
} Factors;
bool match_product(Match *m, Value *v, Factors *f);
// Coefficients of `v` as a polynomial in x of degree 3 at most.
enum { MAX_DEGREE = 3 };
typedef struct Polynomial {
  double at[MAX_DEGREE + 1];
} Polynomial;
bool match_polynomial(Match *m, Value *v, const Value *x, Polynomial *p);

// Whether a constant hides from position i of t exactly what lies beyond i + s - t of s.
typedef enum MaskKind {
  MASK_KEEPS, // true where a score is kept
  MASK_DROPS, // true where it is not
  MASK_ADDS,  // 0, or a very negative number
} MaskKind;
typedef struct KnownMask {
  const Value *v;
  int64_t t, s;
  MaskKind kind;
  bool causal;
} KnownMask;

enum { HIDDEN = -10000 }; // a score this low is none: exp of it is 0

// A candidate that does not match, and the reason.
typedef struct Missed {
  const Loc *loc;
  const char *why;
} Missed;

typedef struct Raise {
  Builder b;
  Arena *scratch;
  Vec(Missed) missed;   // of the last walk
  Vec(KnownMask) masks; // layers share them, and they are large
} Raise;

bool is_causal_mask(Raise *r, const Value *v, int64_t t, int64_t s, MaskKind kind);

// Replace what `root` computes by one op; true when they did.
typedef bool RaiseFn(Raise *r, Op *root);
RaiseFn raise_norm, raise_gelu, raise_gelu_tanh, raise_swish, raise_softmax, raise_attention,
    raise_grouped_heads, raise_seq_major;

#endif
