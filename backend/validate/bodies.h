// A fused body as the module has it, and the formulas of its text.
//
//     graph @fused_0 (%0: f32[4,6], %1: f32[6]) {       every value has an element per point, 24;
//       %2 = broadcast %1 shape=[4,6] : f32[4,6]        %1 is read at digit 6 with stride 1
//       %3 = add %0, %2               : f32[4,6]        const float v3 = u0 + u1;
//       return %3
//     }
//
// A read of an operand is its index as a function of the point: digits of the point's number, each
// with a stride.  Two reads are the same function if their digits are, once neighbours that
// continue each other are one.

#ifndef VALIDATE_BODIES_H
#define VALIDATE_BODIES_H

#include "check.h"

enum { MAX_DIGITS = 24, MAX_READS = 256 };

typedef struct Digits {
  int n;
  int64_t extent[MAX_DIGITS], stride[MAX_DIGITS];
} Digits;

// Adds an inner digit.
void digits_push(Digits *d, int64_t extent, int64_t stride);
bool digits_same(const Digits *a, const Digits *b);

typedef enum FactKind { FACT_operand, FACT_scalar, FACT_computed, FACT_sum } FactKind;

typedef struct Fact {
  FactKind kind;
  const Value *source; // the parameter, scalar, elementwise result or sum
  Digits at;           // of an operand
  CToken name;         // of a computed value, in the text
} Fact;

typedef struct BodyFacts {
  Check *c;
  const Graph *g;
  int64_t count, n_kept; // points; elements of each sum
  bool rows, columns;    // sums over the innermost or the outermost dimensions
  Fact *value;           // by value id
} BodyFacts;

bool facts_read(Check *c, const Graph *g, const Cursor *at, BodyFacts *out);
const Value *facts_result(const BodyFacts *f, int i);
bool facts_is_sum(const BodyFacts *f, int i);

// A name of the text for an operand at the current point: u3, or u3[j].
typedef struct ReadText {
  CToken name;
  bool each;      // with the index [j]
  bool bound;     // a formula has used it, as
  int param;      // this parameter
  Digits at;      // at these digits
  int position;   // among the parameters of the leaf
  int64_t stride; // of the leaf's loop
  CToken pointer; // the parameter of the leaf
  const char *type;
} ReadText;

typedef struct Reads {
  ReadText at[MAX_READS];
  int n;
} Reads;

// Whether the text at the cursor, after `name`, gives a new value a name that no keyword, macro,
// function or other value has: one of the letters and a number.  Loads are u0, u1, …, results of
// formulas v0, v1, …, and parameters of leaves x0, y0, t0, …; loops have i0, i1, … and i, n, at, j.
bool is_numbered(const CToken *name, const char *letters);
bool is_free_name(const BodyFacts *f, const Reads *reads, const CToken *name, char letter);

// Takes "v7 = FORMULA;" of each elementwise op, in the order of the body.
bool take_formulas(BodyFacts *f, Cursor *at, Reads *reads);
// Whether a 16-bit value at a point is a number of its type: not the result of a formula that no
// other reads, which its store rounds.
bool fact_is_exact(const BodyFacts *f, const Value *v);
// Takes a value at the current point.
bool take_value(BodyFacts *f, Cursor *at, const Value *v, Reads *reads);

// The type that elements are computed in, and its name in C; the type of elements in memory; the
// type of accumulators.
DType computed_dtype(DType t);
const char *computed_ctype(const Value *v);
const char *stored_ctype(const Value *v);

bool body_check_c(BodyFacts *f, Unit *unit);
bool body_check_cuda(BodyFacts *f, Unit *unit);

#endif
