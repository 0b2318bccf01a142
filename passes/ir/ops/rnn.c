// The plain recurrent layer over time, after the product of all inputs with W (ONNX RNN):
//
//     h' = f(gx + R h)        with h of the step before; `clip` limits the operand of f
//
// The results are y (t b h), the last h (b h), and for the gradient the operand of f (t b h).
// rnn_back goes through the steps from the last to the first; `before` (t b h) is the h that each
// step read, so dR is one product over all steps.

#include "ir/ops/recurrent.h"

static const char *const attrs[] = {"f", "f_alpha", "f_beta", "clip", "reverse"};
enum { N_ATTRS = sizeof attrs / sizeof *attrs };

// Operands of rnn, and of rnn_back.
enum { GX, R, H0, LENGTHS };
enum { SUMS, Y, BACK_R, BACK_H0, BACK_LENGTHS, DY, DH };

bool rnn_rule(const Op *op, Dims *dims, Diag *d) {
  Recurrence r = recurrence_of(op, GX, H0, LENGTHS, NULL);
  return activations_fit(op, "f", d) && recurrence_fits(op, &r, 1, R, d) &&
         dims_parse(dims, op, "t^ b h^, h^ h^, b h^, b -> t^ b h^, b h^, t^ b h^", d);
}

bool rnn_back_rule(const Op *op, Dims *dims, Diag *d) {
  Recurrence r = recurrence_of(op, SUMS, BACK_H0, BACK_LENGTHS, NULL);
  return activations_fit(op, "f", d) && recurrence_fits(op, &r, 1, BACK_R, d) &&
         dims_parse(dims, op,
                    "t^ b h^, t^ b h^, h^ h^, b h^, b, t^ b h^, b h^ -> t^ b h^, b h^, t^ b h^", d);
}

bool rnn_grad(Builder *b, Op *op, Value **dout, Value **din) {
  if (!only_first_results(b, op, dout, 2)) return false;
  Value *in[] = {op->out[2],
                 op->out[0],
                 op->in[R].value,
                 op->in[H0].value,
                 op->in[LENGTHS].value,
                 adjoint_or_zeros(b, dout[0], op->out[0]),
                 adjoint_or_zeros(b, dout[1], op->out[1])};
  Attr same[N_ATTRS];
  for (int i = 0; i < N_ATTRS; i++)
    same[i] = *op_attr(op, attrs[i]);
  Value *dgx = build_op(b, OP_rnn_back, in, 7, (Attrs){same, N_ATTRS});
  if (!dgx) return false;
  din[GX] = dgx;
  din[R] = recurrent_weight_adjoint(b, dgx->def->out[2], dgx, op->in[R].value);
  din[H0] = dgx->def->out[1];
  return !b->failed;
}

bool rnn_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  Recurrence r = recurrence_of(op, GX, H0, LENGTHS, in);
  if (!recurrence_lengths(op, &r, d)) return false;
  Activation f = activation_of(op, "f");
  Arena *a = arena_new();
  double *state = arena_array(a, double, r.h), *next = arena_array(a, double, r.h);
  for (int64_t row = 0; row < r.b; row++) {
    for (int64_t j = 0; j < r.h; j++)
      state[j] = tensor_f(&in[H0], row * r.h + j);
    for (int64_t step = 0; step < r.t; step++) {
      int64_t t = recurrence_time(&r, step), at = (t * r.b + row) * r.h;
      if (!recurrence_active(&r, t, row)) continue;
      for (int64_t j = 0; j < r.h; j++) {
        double sum = tensor_f(&in[GX], at + j) + recurrence_product(&r, state, &in[R], j);
        next[j] = activation_at(&f, sum);
        tensor_set_f(&out[0], at + j, next[j]);
        tensor_set_f(&out[2], at + j, sum);
      }
      memcpy(state, next, (size_t)r.h * sizeof *state);
    }
    for (int64_t j = 0; j < r.h; j++)
      tensor_set_f(&out[1], row * r.h + j, state[j]);
  }
  arena_free(a);
  return true;
}

bool rnn_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  Recurrence r = recurrence_of(op, SUMS, BACK_H0, BACK_LENGTHS, in);
  if (!recurrence_lengths(op, &r, d)) return false;
  Activation f = activation_of(op, "f");
  Arena *a = arena_new();
  double *dh = arena_array(a, double, r.h), *dsum = arena_array(a, double, r.h);
  for (int64_t row = 0; row < r.b; row++) {
    for (int64_t j = 0; j < r.h; j++)
      dh[j] = tensor_f(&in[DH], row * r.h + j);
    for (int64_t step = r.t - 1; step >= 0; step--) {
      int64_t t = recurrence_time(&r, step), at = (t * r.b + row) * r.h;
      if (!recurrence_active(&r, t, row)) continue;
      for (int64_t j = 0; j < r.h; j++) {
        dsum[j] =
            (dh[j] + tensor_f(&in[DY], at + j)) * activation_slope(&f, tensor_f(&in[SUMS], at + j));
        tensor_set_f(&out[0], at + j, dsum[j]);
        tensor_set_f(&out[2], at + j, recurrence_before(&r, &in[Y], &in[BACK_H0], step, row, j));
      }
      for (int64_t j = 0; j < r.h; j++) {
        dh[j] = 0;
        for (int64_t k = 0; k < r.h; k++)
          dh[j] += dsum[k] * tensor_f(&in[BACK_R], k * r.h + j);
      }
    }
    for (int64_t j = 0; j < r.h; j++)
      tensor_set_f(&out[1], row * r.h + j, dh[j]);
  }
  arena_free(a);
  return true;
}
