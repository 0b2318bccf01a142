// LSTM over time, after the product of all inputs with W (ONNX LSTM, equations with peepholes):
//
//     i = f(gx_i + R_i h + P_i c)         o = f(gx_o + R_o h + P_o c')
//     k = f(gx_f + R_f h + P_f c)         g = g(gx_c + R_c h)
//     c' = k c + i g                      h' = o h(c')
//
// with h and c of the step before, c' and h' of this one, and k = 1 - i with `input_forget`.  The
// blocks of gx (t b 4h), of R (4h h) and of the sums are in the order i o k g; P (3h) is i o k.
// `clip` limits the operand of each activation.
//
// The results are y (t b h), the last h and c (b h), and for the gradient the operands of the
// activations (t b 4h) and c (t b h).  lstm_back goes through the steps from the last to the first;
// `before` (t b h) is the h that each step read, so dR is one product over all steps.

#include "ir/ops/recurrent.h"

static const char *const attrs[] = {
    "f",      "g",       "h",      "f_alpha", "f_beta",       "g_alpha",
    "g_beta", "h_alpha", "h_beta", "clip",    "input_forget", "reverse"};
enum { N_ATTRS = sizeof attrs / sizeof *attrs };

// Operands of lstm, and of lstm_back.
enum { GX, R, H0, C0, LENGTHS, P };
enum { SUMS, C, Y, BACK_R, BACK_H0, BACK_C0, BACK_LENGTHS, DY, DH, DC, BACK_P };

// Checks that the operand (3h) is there or left out.
static bool peephole_fits(const Op *op, int p, int64_t h, Diag *d) {
  if (op->n_in > p + 1)
    return diag_error(d, op->loc, "%s: %d operands, takes %d or %d", op_info[op->kind].name,
                      op->n_in, p, p + 1);
  if (op->n_in == p) return true;
  const Type *t = op->in[p].value->type;
  if (t->ndim == 1 && t->dim[0] == 3 * h) return true;
  return diag_error(d, op->loc, "%s: the peepholes are %s; they must have 3 times %lld elements",
                    op_info[op->kind].name, type_text(op->graph->module->arena, t), (long long)h);
}

bool lstm_rule(const Op *op, Dims *dims, Diag *d) {
  Recurrence r = recurrence_of(op, GX, H0, LENGTHS, NULL);
  if (!activations_fit(op, "fgh", d) || !recurrence_fits(op, &r, 4, R, d) ||
      !peephole_fits(op, P, r.h, d))
    return false;
  return dims_parse(
      dims, op,
      op->n_in > P ? "t^ b g^, g^ h^, b h^, b h^, b, p^ -> t^ b h^, b h^, b h^, t^ b g^, t^ b h^"
                   : "t^ b g^, g^ h^, b h^, b h^, b -> t^ b h^, b h^, b h^, t^ b g^, t^ b h^",
      d);
}

bool lstm_back_rule(const Op *op, Dims *dims, Diag *d) {
  if (op->n_in < BACK_P)
    return diag_error(d, op->loc, "lstm_back: %d operands, takes %d or %d", op->n_in, BACK_P,
                      BACK_P + 1);
  Recurrence r = recurrence_of(op, SUMS, BACK_H0, BACK_LENGTHS, NULL);
  if (!activations_fit(op, "fgh", d) || !recurrence_fits(op, &r, 4, BACK_R, d) ||
      !peephole_fits(op, BACK_P, r.h, d))
    return false;
  Einsum e = {0};
  einsum_add(&e, "t^ b g^, t^ b h^, t^ b h^, g^ h^, b h^, b h^, b, t^ b h^, b h^, b h^%s -> ",
             op->n_in > BACK_P ? ", p^" : "");
  einsum_add(&e, "t^ b g^, b h^, b h^, t^ b h^");
  return dims_parse(dims, op, e.text, d);
}

// The c that each step read: c of the step before, with c0 for the first.
static Value *cells_before(Builder *b, const Op *op) {
  Value *c = op->out[4], *c0 = op->in[C0].value;
  int64_t t = c->type->dim[0], rows = c->type->dim[1], h = c->type->dim[2];
  bool reverse = attr_i(op, "reverse");
  Value *first = build_reshape(b, c0, 3, (int64_t[]){1, rows, h});
  if (t == 1) return first;
  Value *rest = build_slice(b, c, 0, reverse ? 1 : 0, t - 1);
  return build_op(b, OP_concat, reverse ? (Value *[]){rest, first} : (Value *[]){first, rest}, 2,
                  ATTRS(a_i("axis", 0)));
}

// dP: the sum over t and b of d(sum) c.  Sums after the length of a row have no adjoint, so the c
// there does not count.
static Value *peephole_adjoint(Builder *b, const Op *op, Value *dgx) {
  Value *before = cells_before(b, op), *c = op->out[4], *part[3];
  int64_t h = c->type->dim[2];
  for (int i = 0; i < 3; i++) {
    Value *d = build_cast(b, build_slice(b, dgx, 2, i * h, h), c->type->dtype);
    // The output gate reads the c of its own step.
    Value *terms = build_op(b, OP_mul, IN(d, i == 1 ? c : before), NO_ATTRS);
    part[i] = build_reduce_sum(b, terms, (int64_t[]){0, 1}, 2, false);
  }
  return build_op(b, OP_concat, part, 3, ATTRS(a_i("axis", 0)));
}

bool lstm_grad(Builder *b, Op *op, Value **dout, Value **din) {
  if (!only_first_results(b, op, dout, 3)) return false;
  Value *in[] = {op->out[3],
                 op->out[4],
                 op->out[0],
                 op->in[R].value,
                 op->in[H0].value,
                 op->in[C0].value,
                 op->in[LENGTHS].value,
                 adjoint_or_zeros(b, dout[0], op->out[0]),
                 adjoint_or_zeros(b, dout[1], op->out[1]),
                 adjoint_or_zeros(b, dout[2], op->out[2]),
                 op->n_in > P ? op->in[P].value : NULL};
  Attr same[N_ATTRS];
  for (int i = 0; i < N_ATTRS; i++)
    same[i] = *op_attr(op, attrs[i]);
  Value *dgx =
      build_op(b, OP_lstm_back, in, op->n_in > P ? BACK_P + 1 : BACK_P, (Attrs){same, N_ATTRS});
  if (!dgx) return false;
  Value *const *out = dgx->def->out;
  din[GX] = dgx;
  din[R] = recurrent_weight_adjoint(b, out[3], dgx, op->in[R].value);
  din[H0] = out[1];
  din[C0] = out[2];
  if (op->n_in > P) din[P] = peephole_adjoint(b, op, dgx);
  return !b->failed;
}

// -- References --------------------------------------------------------------------------------

// Element j of block `gate` of the sums of a row of gates, and of the peepholes.
enum { INPUT, OUTPUT, FORGET, CELL };

static double peephole(const Tensor *p, const Recurrence *r, int gate, int64_t j) {
  return p ? tensor_f(p, gate * r->h + j) : 0;
}

bool lstm_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  Recurrence r = recurrence_of(op, GX, H0, LENGTHS, in);
  if (!recurrence_lengths(op, &r, d)) return false;
  Activation f = activation_of(op, "f"), g = activation_of(op, "g"), h = activation_of(op, "h");
  const Tensor *p = op->n_in > P ? &in[P] : NULL;
  Arena *a = arena_new();
  double *state = arena_array(a, double, r.h), *next = arena_array(a, double, r.h);
  double *cell = arena_array(a, double, r.h);
  for (int64_t row = 0; row < r.b; row++) {
    for (int64_t j = 0; j < r.h; j++) {
      state[j] = tensor_f(&in[H0], row * r.h + j);
      cell[j] = tensor_f(&in[C0], row * r.h + j);
    }
    for (int64_t step = 0; step < r.t; step++) {
      int64_t t = recurrence_time(&r, step), at = t * r.b + row;
      bool active = recurrence_active(&r, t, row);
      for (int64_t j = 0; active && j < r.h; j++) {
        double sum[4];
        for (int k = 0; k < 4; k++)
          sum[k] = tensor_f(&in[GX], at * r.gates + k * r.h + j) +
                   recurrence_product(&r, state, &in[R], k * r.h + j);
        sum[INPUT] += peephole(p, &r, INPUT, j) * cell[j];
        sum[FORGET] += peephole(p, &r, FORGET, j) * cell[j];
        double i = activation_at(&f, sum[INPUT]), k = activation_at(&f, sum[FORGET]);
        if (attr_i(op, "input_forget")) k = 1 - i;
        cell[j] = k * cell[j] + i * activation_at(&g, sum[CELL]);
        // The output gate sees the new cell.
        sum[OUTPUT] += peephole(p, &r, OUTPUT, j) * cell[j];
        next[j] = activation_at(&f, sum[OUTPUT]) * activation_at(&h, cell[j]);
        tensor_set_f(&out[0], at * r.h + j, next[j]);
        for (int k4 = 0; k4 < 4; k4++)
          tensor_set_f(&out[3], at * r.gates + k4 * r.h + j, sum[k4]);
      }
      // All gates read the old state.
      for (int64_t j = 0; j < r.h; j++) {
        if (active) state[j] = next[j];
        tensor_set_f(&out[4], at * r.h + j, cell[j]);
      }
    }
    for (int64_t j = 0; j < r.h; j++) {
      tensor_set_f(&out[1], row * r.h + j, state[j]);
      tensor_set_f(&out[2], row * r.h + j, cell[j]);
    }
  }
  arena_free(a);
  return true;
}

bool lstm_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  Recurrence r = recurrence_of(op, SUMS, BACK_H0, BACK_LENGTHS, in);
  if (!recurrence_lengths(op, &r, d)) return false;
  Activation f = activation_of(op, "f"), g = activation_of(op, "g"), h = activation_of(op, "h");
  const Tensor *p = op->n_in > BACK_P ? &in[BACK_P] : NULL;
  bool coupled = attr_i(op, "input_forget");
  Arena *a = arena_new();
  double *dh = arena_array(a, double, r.h), *dc = arena_array(a, double, r.h);
  for (int64_t row = 0; row < r.b; row++) {
    for (int64_t j = 0; j < r.h; j++) {
      dh[j] = tensor_f(&in[DH], row * r.h + j);
      dc[j] = tensor_f(&in[DC], row * r.h + j);
    }
    for (int64_t step = r.t - 1; step >= 0; step--) {
      int64_t t = recurrence_time(&r, step), at = t * r.b + row;
      if (!recurrence_active(&r, t, row)) continue;
      double *dsum = arena_array(a, double, r.gates);
      for (int64_t j = 0; j < r.h; j++) {
        double sum[4], c = tensor_f(&in[C], at * r.h + j);
        for (int k = 0; k < 4; k++)
          sum[k] = tensor_f(&in[SUMS], at * r.gates + k * r.h + j);
        double before =
            step > 0 ? tensor_f(&in[C], (recurrence_time(&r, step - 1) * r.b + row) * r.h + j)
                     : tensor_f(&in[BACK_C0], row * r.h + j);
        double i = activation_at(&f, sum[INPUT]), o = activation_at(&f, sum[OUTPUT]);
        double k = coupled ? 1 - i : activation_at(&f, sum[FORGET]);
        // h' = o h(c')
        double dy = dh[j] + tensor_f(&in[DY], at * r.h + j);
        double d_o = dy * activation_at(&h, c) * activation_slope(&f, sum[OUTPUT]);
        double d_c = dc[j] + dy * o * activation_slope(&h, c) + d_o * peephole(p, &r, OUTPUT, j);
        // c' = k c + i g; with k = 1 - i, the forget gate's adjoint is the input gate's, negative.
        double d_k = d_c * before, d_i = d_c * activation_at(&g, sum[CELL]);
        if (coupled) d_i -= d_k;
        d_k = coupled ? 0 : d_k * activation_slope(&f, sum[FORGET]);
        d_i *= activation_slope(&f, sum[INPUT]);
        dc[j] = d_c * k + d_i * peephole(p, &r, INPUT, j) + d_k * peephole(p, &r, FORGET, j);
        dsum[INPUT * r.h + j] = d_i;
        dsum[OUTPUT * r.h + j] = d_o;
        dsum[FORGET * r.h + j] = d_k;
        dsum[CELL * r.h + j] = d_c * i * activation_slope(&g, sum[CELL]);
        tensor_set_f(&out[3], at * r.h + j,
                     recurrence_before(&r, &in[Y], &in[BACK_H0], step, row, j));
      }
      // The state before reached all gates.
      for (int64_t j = 0; j < r.h; j++) {
        dh[j] = 0;
        for (int64_t k = 0; k < r.gates; k++)
          dh[j] += dsum[k] * tensor_f(&in[BACK_R], k * r.h + j);
      }
      for (int64_t k = 0; k < r.gates; k++)
        tensor_set_f(&out[0], at * r.gates + k, dsum[k]);
    }
    for (int64_t j = 0; j < r.h; j++) {
      tensor_set_f(&out[1], row * r.h + j, dh[j]);
      tensor_set_f(&out[2], row * r.h + j, dc[j]);
    }
  }
  arena_free(a);
  return true;
}
