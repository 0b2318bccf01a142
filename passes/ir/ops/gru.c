// GRU over time, after the product of all inputs with W (ONNX GRU):
//
//     z = f(gx_z + R_z h)     r = f(gx_r + R_r h)     h' = (1 - z) n + z h
//     n = g(gx_n + R_n (r h) + b)                     or, with `linear_before_reset`,
//     n = g(gx_n + r (R_n h + b))                     as PyTorch's
//
// with h of the step before.  The blocks of gx (t b 3h) and of R (3h h) are in the order z r n; b
// (h) is the recurrent bias of n.  `clip` limits the operand of each activation.
//
// The results are y (t b h), the last h (b h), and for the gradient the operands of the activations
// (t b 3h), with `linear_before_reset` followed by R_n h + b (t b 4h).  gru_back goes through the
// steps from the last to the first.  Its results for dR are, for all steps, `before`, the h that
// each step read, and `inner`: the adjoint of R_n h + b with `linear_before_reset`, else r h.

#include "ir/ops/recurrent.h"

static const char *const attrs[] = {
    "f", "g", "f_alpha", "f_beta", "g_alpha", "g_beta", "clip", "linear_before_reset", "reverse"};
enum { N_ATTRS = sizeof attrs / sizeof *attrs };

// Operands of gru, and of gru_back.
enum { GX, R, B, H0, LENGTHS };
enum { SUMS, Y, BACK_R, BACK_H0, BACK_LENGTHS, DY, DH };

static bool resets_after(const Op *op) {
  return attr_i(op, "linear_before_reset");
}

// The columns of the saved sums.
static int64_t saved_columns(const Op *op, int64_t h) {
  return (resets_after(op) ? 4 : 3) * h;
}

bool gru_rule(const Op *op, Dims *dims, Diag *d) {
  Recurrence r = recurrence_of(op, GX, H0, LENGTHS, NULL);
  if (!activations_fit(op, "fg", d) || !recurrence_fits(op, &r, 3, R, d)) return false;
  if (!dims_parse(dims, op, "t^ b g^, g^ h^, h^, b h^, b -> t^ b h^, b h^, t^ b s^", d))
    return false;
  dims_size(dims, 's', saved_columns(op, r.h));
  return true;
}

static Recurrence back_recurrence(const Op *op, const Tensor *in) {
  Recurrence r = recurrence_of(op, SUMS, BACK_H0, BACK_LENGTHS, in);
  r.gates = 3 * r.h;
  return r;
}

bool gru_back_rule(const Op *op, Dims *dims, Diag *d) {
  Recurrence r = back_recurrence(op, NULL);
  if (!activations_fit(op, "fg", d) || !recurrence_fits(op, &r, 3, BACK_R, d)) return false;
  if (op->in[SUMS].value->type->dim[2] != saved_columns(op, r.h))
    return diag_error(d, op->loc, "gru_back: the saved sums must have %lld columns",
                      (long long)saved_columns(op, r.h));
  return dims_parse(dims, op,
                    "t^ b s^, t^ b h^, g^ h^, b h^, b, t^ b h^, b h^ -> "
                    "t^ b g^, b h^, t^ b h^, t^ b h^",
                    d);
}

bool gru_grad(Builder *b, Op *op, Value **dout, Value **din) {
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
  Value *dgx = build_op(b, OP_gru_back, in, 7, (Attrs){same, N_ATTRS});
  if (!dgx) return false;
  Value *before = dgx->def->out[2], *inner = dgx->def->out[3];
  Value *weight = op->in[R].value, *bias = op->in[B].value;
  int64_t h = bias->type->dim[0];
  din[GX] = dgx;
  din[H0] = dgx->def->out[1];
  // The gates z and r read h itself; n reads R_n h, or r h.
  Value *dn = build_slice(b, dgx, 2, 2 * h, h);
  Value *product = resets_after(op) ? inner : dn;
  Value *d_zr = recurrent_weight_adjoint(b, before, build_slice(b, dgx, 2, 0, 2 * h), weight);
  Value *d_n = recurrent_weight_adjoint(b, resets_after(op) ? before : inner, product, weight);
  din[R] = build_op(b, OP_concat, IN(d_zr, d_n), ATTRS(a_i("axis", 0)));
  product = build_cast(b, product, bias->type->dtype);
  din[B] = build_reduce_sum(b, product, (int64_t[]){0, 1}, 2, false);
  return !b->failed;
}

// -- References --------------------------------------------------------------------------------

enum { UPDATE, RESET, NEW };

bool gru_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  Recurrence r = recurrence_of(op, GX, H0, LENGTHS, in);
  if (!recurrence_lengths(op, &r, d)) return false;
  Activation f = activation_of(op, "f"), g = activation_of(op, "g");
  bool after = resets_after(op);
  int64_t columns = saved_columns(op, r.h);
  Arena *a = arena_new();
  double *state = arena_array(a, double, r.h), *kept = arena_array(a, double, r.h);
  double *z = arena_array(a, double, r.h), *reset = arena_array(a, double, r.h);
  double *next = arena_array(a, double, r.h);
  for (int64_t row = 0; row < r.b; row++) {
    for (int64_t j = 0; j < r.h; j++)
      state[j] = tensor_f(&in[H0], row * r.h + j);
    for (int64_t step = 0; step < r.t; step++) {
      int64_t t = recurrence_time(&r, step), at = t * r.b + row;
      if (!recurrence_active(&r, t, row)) continue;
      for (int64_t j = 0; j < r.h; j++) {
        double sum[2];
        for (int k = UPDATE; k <= RESET; k++) {
          sum[k] = tensor_f(&in[GX], at * r.gates + k * r.h + j) +
                   recurrence_product(&r, state, &in[R], k * r.h + j);
          tensor_set_f(&out[2], at * columns + k * r.h + j, sum[k]);
        }
        z[j] = activation_at(&f, sum[UPDATE]);
        reset[j] = activation_at(&f, sum[RESET]);
        kept[j] = state[j] * reset[j];
      }
      for (int64_t j = 0; j < r.h; j++) {
        // The reset applies to the state, or to the product with it.
        double inner = recurrence_product(&r, after ? state : kept, &in[R], NEW * r.h + j) +
                       tensor_f(&in[B], j);
        double sum =
            tensor_f(&in[GX], at * r.gates + NEW * r.h + j) + (after ? reset[j] * inner : inner);
        tensor_set_f(&out[2], at * columns + NEW * r.h + j, sum);
        if (after) tensor_set_f(&out[2], at * columns + 3 * r.h + j, inner);
        next[j] = (1 - z[j]) * activation_at(&g, sum) + z[j] * state[j];
        tensor_set_f(&out[0], at * r.h + j, next[j]);
      }
      memcpy(state, next, (size_t)r.h * sizeof *state);
    }
    for (int64_t j = 0; j < r.h; j++)
      tensor_set_f(&out[1], row * r.h + j, state[j]);
  }
  arena_free(a);
  return true;
}

bool gru_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  Recurrence r = back_recurrence(op, in);
  if (!recurrence_lengths(op, &r, d)) return false;
  Activation f = activation_of(op, "f"), g = activation_of(op, "g");
  bool after = resets_after(op);
  int64_t columns = saved_columns(op, r.h);
  Arena *a = arena_new();
  double *dh = arena_array(a, double, r.h), *dsum = arena_array(a, double, r.gates);
  double *dnext = arena_array(a, double, r.h), *dinner = arena_array(a, double, r.h);
  for (int64_t row = 0; row < r.b; row++) {
    for (int64_t j = 0; j < r.h; j++)
      dh[j] = tensor_f(&in[DH], row * r.h + j);
    for (int64_t step = r.t - 1; step >= 0; step--) {
      int64_t t = recurrence_time(&r, step), at = t * r.b + row;
      if (!recurrence_active(&r, t, row)) continue;
      // dn for all j first: every state before reached it.
      for (int64_t j = 0; j < r.h; j++) {
        double dy = dh[j] + tensor_f(&in[DY], at * r.h + j);
        double z = activation_at(&f, tensor_f(&in[SUMS], at * columns + UPDATE * r.h + j));
        double sum = tensor_f(&in[SUMS], at * columns + NEW * r.h + j);
        dsum[NEW * r.h + j] = dy * (1 - z) * activation_slope(&g, sum);
      }
      for (int64_t j = 0; j < r.h; j++) {
        double dy = dh[j] + tensor_f(&in[DY], at * r.h + j);
        double before = recurrence_before(&r, &in[Y], &in[BACK_H0], step, row, j);
        double sum_z = tensor_f(&in[SUMS], at * columns + UPDATE * r.h + j);
        double sum_r = tensor_f(&in[SUMS], at * columns + RESET * r.h + j);
        double n = activation_at(&g, tensor_f(&in[SUMS], at * columns + NEW * r.h + j));
        double z = activation_at(&f, sum_z), reset = activation_at(&f, sum_r), dreset;
        dsum[UPDATE * r.h + j] = dy * (before - n) * activation_slope(&f, sum_z);
        dnext[j] = dy * z;
        if (after) {
          dreset = dsum[NEW * r.h + j] * tensor_f(&in[SUMS], at * columns + 3 * r.h + j);
          dinner[j] = dsum[NEW * r.h + j] * reset;
        } else {
          double dkept = 0;
          for (int64_t k = 0; k < r.h; k++)
            dkept += dsum[NEW * r.h + k] * tensor_f(&in[BACK_R], (NEW * r.h + k) * r.h + j);
          dreset = dkept * before;
          dnext[j] += dkept * reset;
        }
        dsum[RESET * r.h + j] = dreset * activation_slope(&f, sum_r);
        tensor_set_f(&out[2], at * r.h + j, before);
        tensor_set_f(&out[3], at * r.h + j, after ? dinner[j] : reset * before);
      }
      // The products with the state itself: z, r and, with `linear_before_reset`, n.
      for (int64_t j = 0; j < r.h; j++) {
        dh[j] = dnext[j];
        for (int64_t k = 0; k < 2 * r.h; k++)
          dh[j] += dsum[k] * tensor_f(&in[BACK_R], k * r.h + j);
        for (int64_t k = 0; after && k < r.h; k++)
          dh[j] += dinner[k] * tensor_f(&in[BACK_R], (NEW * r.h + k) * r.h + j);
      }
      for (int64_t k = 0; k < r.gates; k++)
        tensor_set_f(&out[0], at * r.gates + k, dsum[k]);
    }
    for (int64_t j = 0; j < r.h; j++)
      tensor_set_f(&out[1], row * r.h + j, dh[j]);
  }
  arena_free(a);
  return true;
}
