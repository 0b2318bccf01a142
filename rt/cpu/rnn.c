// The plain recurrent layer and its gradient: h' = f(gx + R h).

#include "recurrent.h"

typedef struct Rnn {
  Recurrence base;
  NnrtActivation f;
} Rnn;

static NnrtPrep *rnn_new(const char *kernel, const int64_t *y_shape, const char *f,
                         const NnrtRnn *attrs) {
  Rnn *p = recurrence_new(sizeof *p, kernel, y_shape, attrs->reverse);
  if (p && !nnrt_activation(&p->f, kernel, f, attrs->f_alpha, attrs->f_beta, attrs->clip)) {
    free(p);
    return NULL;
  }
  return p ? &p->base.base : NULL;
}

NnrtPrep *nnrt_rnn_prep_f32(const int64_t *y_shape, const char *f, const NnrtRnn *attrs) {
  return rnn_new("rnn", y_shape, f, attrs);
}

NnrtPrep *nnrt_rnn_back_prep_f32(const int64_t *y_shape, const char *f, const NnrtRnn *attrs) {
  return rnn_new("rnn_back", y_shape, f, attrs);
}

// A run: tensors by their names in ops.def; `weight` is packed.
typedef struct Run {
  const Rnn *p;
  Panels weight;
  float *y, *last, *sums;    // of the forward pass
  float *dgx, *dh0, *before; // of the gradient
  const float *gx, *h0, *dy;
  const float *saved, *past; // sums and y
} Run;

static void forward(const void *cell, const Step *s) {
  const Run *x = cell;
  const Recurrence *r = &x->p->base;
  int64_t h = r->h, wide = round_lanes(h), n = s->rows.to - s->rows.from;
  if (!step_idle(s))
    panels_product(&x->weight, s->memory, wide, x->last + s->rows.from * h, h, n, false);
  for (int64_t row = s->rows.from; row < s->rows.to; row++) {
    int64_t at = (s->t * r->b + row) * h;
    if (!step_active(s, row)) {
      memset(x->y + at, 0, (size_t)h * sizeof(float));
      memset(x->sums + at, 0, (size_t)h * sizeof(float));
      continue;
    }
    step_add(x->sums + at, x->gx + at, s->memory + (row - s->rows.from) * wide, h);
    activate(&x->p->f, x->y + at, x->sums + at, h);
    memcpy(x->last + row * h, x->y + at, (size_t)h * sizeof(float));
  }
}

int nnrt_rnn_f32(NnrtPrep *prep, float *y, float *last, float *sums, const float *gx,
                 const float *weight, const float *h0, const int32_t *lengths) {
  const Rnn *p = (const Rnn *)prep;
  const Recurrence *r = &p->base;
  int code = recurrence_check(r, lengths), threads = recurrence_threads(r);
  if (code) return code;
  int64_t panels = panels_floats(r->h, r->h), each = RECURRENT_ROWS * round_lanes(r->h);
  size_t bytes = (size_t)(panels + threads * each) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
  Run run = {.p = p, .y = y, .last = last, .sums = sums, .gx = gx};
  run.weight = panels_pack(memory, GEMM_f32, weight, r->h, r->h, true, threads);
  // The last state is the state of every step.
  memcpy(last, h0, (size_t)(r->b * r->h) * sizeof *last);
  recurrence_run(r, false, lengths, forward, &run, memory + panels, each);
  return NNRT_OK;
}

static void backward(const void *cell, const Step *s) {
  const Run *x = cell;
  const Recurrence *r = &x->p->base;
  int64_t h = r->h, wide = round_lanes(h), n = s->rows.to - s->rows.from;
  for (int64_t row = s->rows.from; row < s->rows.to; row++) {
    int64_t at = (s->t * r->b + row) * h;
    if (!step_active(s, row)) {
      memset(x->dgx + at, 0, (size_t)h * sizeof(float));
      memset(x->before + at, 0, (size_t)h * sizeof(float));
      continue;
    }
    step_add(x->dgx + at, x->dh0 + row * h, x->dy + at, h);
    activate(&x->p->f, s->memory, x->saved + at, h);
    activate_back(&x->p->f, x->dgx + at, x->saved + at, s->memory, h);
    memcpy(x->before + at, step_state(r, s, x->past, x->h0, row), (size_t)h * sizeof(float));
  }
  if (step_idle(s)) return;
  panels_product(&x->weight, s->memory, wide, x->dgx + (s->t * r->b + s->rows.from) * h, h, n,
                 false);
  for (int64_t row = s->rows.from; row < s->rows.to; row++)
    if (step_active(s, row))
      memcpy(x->dh0 + row * h, s->memory + (row - s->rows.from) * wide, (size_t)h * sizeof(float));
}

int nnrt_rnn_back_f32(NnrtPrep *prep, float *dgx, float *dh0, float *before, const float *sums,
                      const float *y, const float *weight, const float *h0, const int32_t *lengths,
                      const float *dy, const float *dlast) {
  const Rnn *p = (const Rnn *)prep;
  const Recurrence *r = &p->base;
  int code = recurrence_check(r, lengths), threads = recurrence_threads(r);
  if (code) return code;
  int64_t panels = panels_floats(r->h, r->h), each = RECURRENT_ROWS * round_lanes(r->h);
  size_t bytes = (size_t)(panels + threads * each) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
  Run run = {.p = p, .dgx = dgx, .dh0 = dh0, .before = before};
  run.saved = sums;
  run.past = y;
  run.h0 = h0;
  run.dy = dy;
  run.weight = panels_pack(memory, GEMM_f32, weight, r->h, r->h, false, threads);
  memcpy(dh0, dlast, (size_t)(r->b * r->h) * sizeof *dh0);
  recurrence_run(r, true, lengths, backward, &run, memory + panels, each);
  return NNRT_OK;
}
