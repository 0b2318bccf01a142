// Shared by the rules, gradients and references of recurrent layers: lstm.c, gru.c and rnn.c.
//
//     for step in order:                       t = step, or from the end with `reverse`
//       for row of the batch with t < length:  h[t] = cell(gx[t], h of the step before)
//
// A row at or after its length keeps its state, and its y is 0.

#ifndef IR_OPS_RECURRENT_H
#define IR_OPS_RECURRENT_H

#include "ir/ops/einsum.h"
#include "ir/ops/reference.h"

// An activation of ONNX's recurrent operators, with its numbers.
typedef struct Activation {
  const char *name; // "tanh", "leaky_relu"
  double alpha, beta;
  double clip; // its operand is limited to -clip .. clip; 0: no limit
} Activation;

// Reads activation `f`, `g` or `h` of the op.
Activation activation_of(const Op *op, const char *which);
double activation_at(const Activation *f, double x);
// The derivative.  At the limits of `clip` it is that of the activation, beyond them 0.
double activation_slope(const Activation *f, double x);
// Checks that the activations named by the letters of `which`, as "fgh", exist, and that clip is
// not negative.
bool activations_fit(const Op *op, const char *which, Diag *d);

// The loop over time.
typedef struct Recurrence {
  int64_t t, b, h;
  int64_t gates; // columns of gx
  bool reverse;
  const Tensor *lengths;
} Recurrence;

// Of an op with gx (t b gates), or a tensor with as many columns, as operand `gx`, h0 (b h) as
// operand `h0`, and lengths as operand `lengths`; `in` is NULL without a run.
Recurrence recurrence_of(const Op *op, int gx, int h0, int lengths, const Tensor *in);
int64_t recurrence_time(const Recurrence *r, int64_t step); // the t of a step
// The row at time t and its length: whether it computes.
bool recurrence_active(const Recurrence *r, int64_t t, int64_t row);
// Reports a length that is not one of 0 to t.
bool recurrence_lengths(const Op *op, const Recurrence *r, Diag *d);
// The state h before step `step` of a row: y (t b h) at the step before, or h0 (b h).
double recurrence_before(const Recurrence *r, const Tensor *y, const Tensor *h0, int64_t step,
                         int64_t row, int64_t j);
// sum over j of x[j] m[row][j], with m of `h` columns
double recurrence_product(const Recurrence *r, const double *x, const Tensor *m, int64_t row);

// Checks that gx has `gates` blocks of h columns, and r (gates h, h) as many rows.
bool recurrence_fits(const Op *op, const Recurrence *r, int gates, int weight, Diag *d);

// For gradients: dy or dh of a result; zeros like it if the loss does not depend on it.
Value *adjoint_or_zeros(Builder *b, Value *dout, const Value *result);
// dR (n, k) = the sum over t and b of dy (t b n) x (t b k), in the type of `like`.
Value *recurrent_weight_adjoint(Builder *b, Value *x, Value *dy, const Value *like);

#endif
