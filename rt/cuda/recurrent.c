// LSTM, GRU and RNN, and their gradients: the loop over time around the kernels of recurrent.h.
//
//     forward    product = last R'        cell: y, sums, state; last = state in 16 bits or f32
//     backward   cell: dgx, dh = 0        dh += dgx R
//
// States and their adjoints are f32 in scratch, so 16-bit types round only the operands of
// products and the results.  A row after its length has dgx 0, so its dh stays.

#include "recurrent.h"

#include <stdlib.h>

#include "products.h"
#include "runtime.h"

typedef struct Recurrent {
  NnrtPrep base;
  NnrtDtype type;
  int64_t t, b, h;
  bool reverse, peepholes;
  LstmCell lstm;
  GruCell gru;
  NnrtActivation f;
  NnrtGemm *gates, *new;                  // with all of R, or its first two blocks; with R_n
  int64_t floats, products, kept, kernel; // bytes of scratch: states, products, r h; for the gemms
} Recurrent;

static void recurrent_free(NnrtPrep *prep) {
  Recurrent *p = (Recurrent *)prep;
  nnrt_gemm_free(p->gates);
  nnrt_gemm_free(p->new);
  free(p);
}

static Recurrent *recurrent_new(NnrtDtype type, const int64_t *y_shape, bool reverse) {
  Recurrent *p = nnrt_must_alloc(sizeof *p);
  *p = (Recurrent){.base = {recurrent_free},
                   .type = type,
                   .t = y_shape[0],
                   .b = y_shape[1],
                   .h = y_shape[2],
                   .reverse = reverse};
  return p;
}

// The product of n blocks of R with the rows of an operand, `row` elements apart, in f32: (b, n h)
// = x R' with x (b, h), or `back`: (b, h) = x R with x (b, n h), added to what is there by beta 1.
static NnrtGemm *product(const Recurrent *p, int64_t n, int64_t row, bool back, float beta) {
  int64_t wide = n * p->h;
  NnrtGemmSpec s = nnrt_gemm_packed(p->type, NNRT_f32, 1, p->b, back ? p->h : wide,
                                    back ? wide : p->h, false, !back);
  // Steps and blocks begin at multiples of h elements.
  int64_t bytes = (p->h * nnrt_dtype_size(p->type)) | 16;
  s.align = (int)(bytes & -bytes);
  s.lda = row;
  s.beta = beta;
  return nnrt_gemm_new(&s);
}

// Completes the preparation; NULL if a product failed, which is reported.
static NnrtPrep *prepared(Recurrent *p, bool ok, int64_t columns) {
  int64_t state = p->b * p->h * (int64_t)sizeof(float);
  p->floats = round_256(state);
  p->products = round_256(columns * state);
  p->kept = round_256(state);
  NnrtGemm *all[] = {p->gates, p->new};
  for (int i = 0; i < 2; i++)
    if (all[i] && nnrt_gemm_scratch(all[i]) > p->kernel) p->kernel = nnrt_gemm_scratch(all[i]);
  int64_t bytes = p->floats + p->products + p->kept + p->kernel;
  if (ok && (nnrt_gpu()->planning || nnrt_gpu_scratch(bytes))) return &p->base;
  recurrent_free(&p->base);
  return NULL;
}

// The sections of scratch.
typedef struct Scratch {
  float *state, *product;
  void *kept, *gemm;
} Scratch;

static bool scratch_of(const Recurrent *p, Scratch *s) {
  char *at = nnrt_gpu_scratch(p->floats + p->products + p->kept + p->kernel);
  if (!at) return false;
  s->state = (float *)(void *)at;
  s->product = (float *)(void *)(at + p->floats);
  s->kept = at + p->floats + p->products;
  s->gemm = p->kernel ? at + p->floats + p->products + p->kept : NULL;
  return true;
}

static RecurrentStep step_of(const Recurrent *p, int64_t i, bool back, const int32_t *lengths) {
  int64_t k = back ? p->t - 1 - i : i, t = p->reverse ? p->t - 1 - k : k;
  int64_t before = k == 0 ? -1 : p->reverse ? t + 1 : t - 1;
  return (RecurrentStep){t, before, p->t, p->b, p->h, lengths};
}

// Element `i` of an array of the type.
static const void *element(const Recurrent *p, const void *x, int64_t i) {
  return (const char *)x + i * nnrt_dtype_size(p->type);
}

// Copies n elements of the type.
static int copy(const Recurrent *p, void *to, const void *from, int64_t n) {
  return nnrt_copy(to, from, n * nnrt_dtype_size(p->type));
}

// Before a forward loop: the first state, in f32 and as the operand of products.
static int begin(const Recurrent *p, const Scratch *s, void *last, const void *h0,
                 const int32_t *lengths) {
  int code = recurrent_check(lengths, p->b, p->t);
  if (!code) code = copy(p, last, h0, p->b * p->h);
  return code ? code : recurrent_widen(p->type, s->state, h0, p->b * p->h);
}

// -- LSTM ----------------------------------------------------------------------------------------

static NnrtPrep *lstm_prep(NnrtDtype type, bool back, bool peepholes, const int64_t *y_shape,
                           const char *f, const char *g, const char *h, const NnrtLstm *a) {
  const char *name = back ? "lstm_back" : "lstm";
  Recurrent *p = recurrent_new(type, y_shape, a->reverse);
  p->peepholes = peepholes;
  p->lstm.coupled = a->input_forget;
  bool ok = nnrt_activation(&p->lstm.f, name, f, a->f_alpha, a->f_beta, a->clip) &&
            nnrt_activation(&p->lstm.g, name, g, a->g_alpha, a->g_beta, a->clip) &&
            nnrt_activation(&p->lstm.h, name, h, a->h_alpha, a->h_beta, a->clip);
  if (ok) p->gates = back ? product(p, 4, 4 * p->h, true, 1) : product(p, 4, p->h, false, 0);
  return prepared(p, ok && p->gates, 4);
}

static int lstm_run(NnrtPrep *prep, void *y, void *last, float *last_c, void *sums, float *c,
                    const void *const *in) {
  const Recurrent *p = (const Recurrent *)prep;
  const int32_t *lengths = in[4];
  Scratch s;
  if (!scratch_of(p, &s)) return NNRT_MEMORY;
  LstmCell cell = p->lstm;
  cell.peephole = p->peepholes ? in[5] : NULL;
  int code = begin(p, &s, last, in[2], lengths);
  if (!code) code = nnrt_copy(last_c, in[3], p->b * p->h * (int64_t)sizeof *last_c);
  for (int64_t i = 0; !code && i < p->t; i++) {
    RecurrentStep step = step_of(p, i, false, lengths);
    code = nnrt_gemm_run(p->gates, s.product, last, in[1], NULL, NULL, s.gemm);
    if (!code)
      code = lstm_step(p->type, &step, &cell, s.product, in[0], y, sums, c, s.state, last, last_c);
  }
  return code;
}

static int lstm_run_back(NnrtPrep *prep, void *dgx, void *dh0, float *dc0, void *before,
                         const void *const *in) {
  const Recurrent *p = (const Recurrent *)prep;
  const int32_t *lengths = in[6];
  Scratch s;
  if (!scratch_of(p, &s)) return NNRT_MEMORY;
  LstmCell cell = p->lstm;
  cell.peephole = p->peepholes ? in[10] : NULL;
  int64_t n = p->b * p->h;
  int code = recurrent_widen(p->type, s.state, in[8], n);
  if (!code) code = nnrt_copy(dc0, in[9], n * (int64_t)sizeof *dc0);
  for (int64_t i = 0; !code && i < p->t; i++) {
    RecurrentStep step = step_of(p, i, true, lengths);
    code = lstm_step_back(p->type, &step, &cell, in[0], in[1], in[2], in[4], in[5], in[7], dgx,
                          before, s.state, dc0);
    if (!code)
      code = nnrt_gemm_run(p->gates, s.state, element(p, dgx, step.t * 4 * n), in[3], NULL, NULL,
                           s.gemm);
  }
  return code ? code : recurrent_store(p->type, dh0, s.state, n);
}

// -- GRU -----------------------------------------------------------------------------------------

static NnrtPrep *gru_prep(NnrtDtype type, bool back, const int64_t *y_shape, const char *f,
                          const char *g, const NnrtGru *a) {
  const char *name = back ? "gru_back" : "gru";
  Recurrent *p = recurrent_new(type, y_shape, a->reverse);
  p->gru.after = a->linear_before_reset;
  bool ok = nnrt_activation(&p->gru.f, name, f, a->f_alpha, a->f_beta, a->clip) &&
            nnrt_activation(&p->gru.g, name, g, a->g_alpha, a->g_beta, a->clip);
  if (ok) p->gates = back ? product(p, 2, 3 * p->h, true, 1) : product(p, 2, p->h, false, 0);
  // Backward the new state's product reads d_n, or `inner`.
  if (ok && back)
    p->new = p->gru.after ? product(p, 1, p->h, true, 1) : product(p, 1, 3 * p->h, true, 0);
  else if (ok)
    p->new = product(p, 1, p->h, false, 0);
  return prepared(p, ok && p->gates && p->new, 2);
}

static int gru_run(NnrtPrep *prep, void *y, void *last, void *sums, const void *gx,
                   const void *weight, const float *bias, const void *h0, const int32_t *lengths) {
  const Recurrent *p = (const Recurrent *)prep;
  const GruCell *c = &p->gru;
  const void *weight_n = element(p, weight, 2 * p->h * p->h);
  Scratch s;
  if (!scratch_of(p, &s)) return NNRT_MEMORY;
  void *kept = c->after ? NULL : s.kept;
  int code = begin(p, &s, last, h0, lengths);
  for (int64_t i = 0; !code && i < p->t; i++) {
    RecurrentStep step = step_of(p, i, false, lengths);
    code = nnrt_gemm_run(p->gates, s.product, last, weight, NULL, NULL, s.gemm);
    if (!code) code = gru_step_gates(p->type, &step, c, s.product, gx, sums, kept, s.state);
    if (!code)
      code = nnrt_gemm_run(p->new, s.product, kept ? kept : last, weight_n, NULL, NULL, s.gemm);
    if (!code) code = gru_step(p->type, &step, c, s.product, bias, gx, y, sums, s.state, last);
  }
  return code;
}

static int gru_run_back(NnrtPrep *prep, void *dgx, void *dh0, void *before, void *inner,
                        const void *sums, const void *y, const void *weight, const void *h0,
                        const int32_t *lengths, const void *dy, const void *dlast) {
  const Recurrent *p = (const Recurrent *)prep;
  const GruCell *c = &p->gru;
  int64_t n = p->b * p->h;
  const void *weight_n = element(p, weight, 2 * p->h * p->h);
  Scratch s;
  if (!scratch_of(p, &s)) return NNRT_MEMORY;
  int code = recurrent_widen(p->type, s.state, dlast, n);
  for (int64_t i = 0; !code && i < p->t; i++) {
    RecurrentStep step = step_of(p, i, true, lengths);
    const void *d = element(p, dgx, step.t * 3 * n), *d_n = element(p, d, 2 * p->h);
    code = gru_step_back(p->type, &step, c, sums, y, h0, dy, dgx, before, inner, s.state);
    // The reset reads the adjoint of r h, or was part of the cell.
    if (!code && !c->after)
      code = nnrt_gemm_run(p->new, s.product, d_n, weight_n, NULL, NULL, s.gemm);
    if (!code && !c->after)
      code = gru_step_back_reset(p->type, &step, c, sums, s.product, dgx, before, inner, s.state);
    if (!code) code = nnrt_gemm_run(p->gates, s.state, d, weight, NULL, NULL, s.gemm);
    if (!code && c->after)
      code = nnrt_gemm_run(p->new, s.state, element(p, inner, step.t * n), weight_n, NULL, NULL,
                           s.gemm);
  }
  return code ? code : recurrent_store(p->type, dh0, s.state, n);
}

// -- RNN -----------------------------------------------------------------------------------------

static NnrtPrep *rnn_prep(NnrtDtype type, bool back, const int64_t *y_shape, const char *f,
                          const NnrtRnn *a) {
  Recurrent *p = recurrent_new(type, y_shape, a->reverse);
  bool ok = nnrt_activation(&p->f, back ? "rnn_back" : "rnn", f, a->f_alpha, a->f_beta, a->clip);
  if (ok) p->gates = back ? product(p, 1, p->h, true, 1) : product(p, 1, p->h, false, 0);
  return prepared(p, ok && p->gates, 1);
}

static int rnn_run(NnrtPrep *prep, void *y, void *last, void *sums, const void *gx,
                   const void *weight, const void *h0, const int32_t *lengths) {
  const Recurrent *p = (const Recurrent *)prep;
  Scratch s;
  if (!scratch_of(p, &s)) return NNRT_MEMORY;
  int code = begin(p, &s, last, h0, lengths);
  for (int64_t i = 0; !code && i < p->t; i++) {
    RecurrentStep step = step_of(p, i, false, lengths);
    code = nnrt_gemm_run(p->gates, s.product, last, weight, NULL, NULL, s.gemm);
    if (!code) code = rnn_step(p->type, &step, &p->f, s.product, gx, y, sums, s.state, last);
  }
  return code;
}

static int rnn_run_back(NnrtPrep *prep, void *dgx, void *dh0, void *before, const void *sums,
                        const void *y, const void *weight, const void *h0, const int32_t *lengths,
                        const void *dy, const void *dlast) {
  const Recurrent *p = (const Recurrent *)prep;
  int64_t n = p->b * p->h;
  Scratch s;
  if (!scratch_of(p, &s)) return NNRT_MEMORY;
  int code = recurrent_widen(p->type, s.state, dlast, n);
  for (int64_t i = 0; !code && i < p->t; i++) {
    RecurrentStep step = step_of(p, i, true, lengths);
    code = rnn_step_back(p->type, &step, &p->f, sums, y, h0, dy, dgx, before, s.state);
    if (!code)
      code =
          nnrt_gemm_run(p->gates, s.state, element(p, dgx, step.t * n), weight, NULL, NULL, s.gemm);
  }
  return code ? code : recurrent_store(p->type, dh0, s.state, n);
}

// -- The interface -------------------------------------------------------------------------------

#define RECURRENT(type, T)                                                                         \
  NnrtPrep *nnrt_lstm_prep_##type(int64_t n, const int64_t *y_shape, const char *f, const char *g, \
                                  const char *h, const NnrtLstm *attrs) {                          \
    return lstm_prep(NNRT_##type, false, n > 5, y_shape, f, g, h, attrs);                          \
  }                                                                                                \
  int nnrt_lstm_##type(NnrtPrep *p, T *y, T *last, float *last_c, T *sums, float *c,               \
                       const void *const *in) {                                                    \
    return lstm_run(p, y, last, last_c, sums, c, in);                                              \
  }                                                                                                \
  NnrtPrep *nnrt_lstm_back_prep_##type(int64_t n, const int64_t *y_shape, const char *f,           \
                                       const char *g, const char *h, const NnrtLstm *attrs) {      \
    return lstm_prep(NNRT_##type, true, n > 10, y_shape, f, g, h, attrs);                          \
  }                                                                                                \
  int nnrt_lstm_back_##type(NnrtPrep *p, T *dgx, T *dh0, float *dc0, T *before,                    \
                            const void *const *in) {                                               \
    return lstm_run_back(p, dgx, dh0, dc0, before, in);                                            \
  }                                                                                                \
  NnrtPrep *nnrt_gru_prep_##type(const int64_t *y_shape, const char *f, const char *g,             \
                                 const NnrtGru *attrs) {                                           \
    return gru_prep(NNRT_##type, false, y_shape, f, g, attrs);                                     \
  }                                                                                                \
  int nnrt_gru_##type(NnrtPrep *p, T *y, T *last, T *sums, const T *gx, const T *weight,           \
                      const float *bias, const T *h0, const int32_t *lengths) {                    \
    return gru_run(p, y, last, sums, gx, weight, bias, h0, lengths);                               \
  }                                                                                                \
  NnrtPrep *nnrt_gru_back_prep_##type(const int64_t *y_shape, const char *f, const char *g,        \
                                      const NnrtGru *attrs) {                                      \
    return gru_prep(NNRT_##type, true, y_shape, f, g, attrs);                                      \
  }                                                                                                \
  int nnrt_gru_back_##type(NnrtPrep *p, T *dgx, T *dh0, T *before, T *inner, const T *sums,        \
                           const T *y, const T *weight, const T *h0, const int32_t *lengths,       \
                           const T *dy, const T *dlast) {                                          \
    return gru_run_back(p, dgx, dh0, before, inner, sums, y, weight, h0, lengths, dy, dlast);      \
  }                                                                                                \
  NnrtPrep *nnrt_rnn_prep_##type(const int64_t *y_shape, const char *f, const NnrtRnn *attrs) {    \
    return rnn_prep(NNRT_##type, false, y_shape, f, attrs);                                        \
  }                                                                                                \
  int nnrt_rnn_##type(NnrtPrep *p, T *y, T *last, T *sums, const T *gx, const T *weight,           \
                      const T *h0, const int32_t *lengths) {                                       \
    return rnn_run(p, y, last, sums, gx, weight, h0, lengths);                                     \
  }                                                                                                \
  NnrtPrep *nnrt_rnn_back_prep_##type(const int64_t *y_shape, const char *f,                       \
                                      const NnrtRnn *attrs) {                                      \
    return rnn_prep(NNRT_##type, true, y_shape, f, attrs);                                         \
  }                                                                                                \
  int nnrt_rnn_back_##type(NnrtPrep *p, T *dgx, T *dh0, T *before, const T *sums, const T *y,      \
                           const T *weight, const T *h0, const int32_t *lengths, const T *dy,      \
                           const T *dlast) {                                                       \
    return rnn_run_back(p, dgx, dh0, before, sums, y, weight, h0, lengths, dy, dlast);             \
  }
RECURRENT(f32, float)
RECURRENT(bf16, uint16_t)
RECURRENT(f16, uint16_t)
