// GRU and its gradient:  h' = (1 - z) n + z h,  with n from r (R_n h + b), or from R_n (r h) + b.
//
// In the second form a step has two products, one after the other, in both directions.

#include "recurrent.h"

enum { UPDATE, RESET, NEW };

typedef struct Gru {
  Recurrence base;
  NnrtActivation f, g;
  bool after; // linear_before_reset: the reset applies after the product
} Gru;

static NnrtPrep *gru_new(const char *kernel, const int64_t *y_shape, const char *f, const char *g,
                         const NnrtGru *a) {
  Gru *p = recurrence_new(sizeof *p, kernel, y_shape, a->reverse);
  if (!p) return NULL;
  p->after = a->linear_before_reset;
  if (nnrt_activation(&p->f, kernel, f, a->f_alpha, a->f_beta, a->clip) &&
      nnrt_activation(&p->g, kernel, g, a->g_alpha, a->g_beta, a->clip))
    return &p->base.base;
  free(p);
  return NULL;
}

NnrtPrep *nnrt_gru_prep_f32(const int64_t *y_shape, const char *f, const char *g,
                            const NnrtGru *attrs) {
  return gru_new("gru", y_shape, f, g, attrs);
}

NnrtPrep *nnrt_gru_back_prep_f32(const int64_t *y_shape, const char *f, const char *g,
                                 const NnrtGru *attrs) {
  return gru_new("gru_back", y_shape, f, g, attrs);
}

// A run: tensors by their names in ops.def; the two parts of R are packed.
typedef struct Run {
  const Gru *p;
  Panels gates, new; // R_z and R_r, R_n
  int64_t columns;   // of the saved sums
  float *y, *last, *sums;
  float *dgx, *dh0, *before, *inner;
  const float *gx, *bias, *h0;
  const float *saved, *past, *dy; // sums and y in the gradient
} Run;

static int64_t columns_of(const Gru *p) {
  return (p->after ? 4 : 3) * p->base.h;
}

// -- Passes over h elements ----------------------------------------------------------------------

NNRT_CLONES static void multiply(float *restrict y, const float *restrict x,
                                 const float *restrict z, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = x[i] * z[i];
}

// sum = x + r inner, inner = product + b
NNRT_CLONES static void reset_product(float *restrict sum, float *restrict inner,
                                      const float *restrict x, const float *restrict r,
                                      const float *restrict product, const float *restrict b,
                                      int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    inner[i] = product[i] + b[i];
    sum[i] = x[i] + r[i] * inner[i];
  }
}

// sum = x + product + b
NNRT_CLONES static void add_three(float *restrict sum, const float *restrict x,
                                  const float *restrict product, const float *restrict b,
                                  int64_t n) {
  for (int64_t i = 0; i < n; i++)
    sum[i] = x[i] + (product[i] + b[i]);
}

// h = y = (1 - z) n + z h
NNRT_CLONES static void next_state(float *restrict h, float *restrict y, const float *restrict z,
                                   const float *restrict new, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    h[i] = y[i] = (1 - z[i]) * new[i] + z[i] * h[i];
}

// -- Forward -------------------------------------------------------------------------------------

// The memory of a thread, for each row of its block: products of z and r, product of n, z and r.
typedef struct Memory {
  int64_t gates_row, new_row;
  float *gates, *new, *kept;
} Memory;

static int64_t memory_floats(int64_t h) {
  return RECURRENT_ROWS * (round_lanes(2 * h) + 2 * round_lanes(h)) + round_lanes(6 * h);
}

static Memory memory_of(const Step *s, int64_t h) {
  Memory m = {.gates_row = round_lanes(2 * h), .new_row = round_lanes(h), .gates = s->memory};
  m.new = m.gates + RECURRENT_ROWS *m.gates_row;
  m.kept = m.new + RECURRENT_ROWS *m.new_row;
  return m;
}

static void clear_row(const Run *x, int64_t at) {
  int64_t h = x->p->base.h;
  memset(x->y + at * h, 0, (size_t)h * sizeof(float));
  memset(x->sums + at * x->columns, 0, (size_t)x->columns * sizeof(float));
}

static void forward(const void *cell, const Step *s) {
  const Run *x = cell;
  const Gru *p = x->p;
  int64_t h = p->base.h, n = s->rows.to - s->rows.from;
  Memory m = memory_of(s, h);
  float *states = x->last + s->rows.from * h;
  if (!step_idle(s)) panels_product(&x->gates, m.gates, m.gates_row, states, h, n, false);
  // The gates z and r, in place of their products, and r h.
  for (int64_t row = s->rows.from, i = 0; i < n; i++, row++) {
    int64_t at = s->t * p->base.b + row;
    float *sums = x->sums + at * x->columns, *gate = m.gates + i * m.gates_row;
    if (!step_active(s, row)) {
      clear_row(x, at);
      memset(m.kept + i * h, 0, (size_t)h * sizeof(float));
      continue;
    }
    step_add(sums, x->gx + at * 3 * h, gate, 2 * h);
    activate(&p->f, gate, sums, 2 * h);
    multiply(m.kept + i * h, gate + RESET * h, states + i * h, h);
  }
  if (step_idle(s)) return;
  panels_product(&x->new, m.new, m.new_row, p->after ? states : m.kept, h, n, false);
  for (int64_t row = s->rows.from, i = 0; i < n; i++, row++) {
    int64_t at = s->t * p->base.b + row;
    float *sums = x->sums + at * x->columns, *gate = m.gates + i * m.gates_row;
    float *new = m.new + i *m.new_row;
    const float *gx = x->gx + (at * 3 + NEW) * h;
    if (!step_active(s, row)) continue;
    if (p->after)
      reset_product(sums + NEW * h, sums + 3 * h, gx, gate + RESET * h, new, x->bias, h);
    else
      add_three(sums + NEW * h, gx, new, x->bias, h);
    activate(&p->g, new, sums + NEW * h, h);
    next_state(x->last + row * h, x->y + at * h, gate + UPDATE * h, new, h);
  }
}

int nnrt_gru_f32(NnrtPrep *prep, float *y, float *last, float *sums, const float *gx,
                 const float *weight, const float *bias, const float *h0, const int32_t *lengths) {
  const Gru *p = (const Gru *)prep;
  const Recurrence *r = &p->base;
  int code = recurrence_check(r, lengths), threads = recurrence_threads(r);
  if (code) return code;
  int64_t h = r->h, gates = panels_floats(h, 2 * h), panels = gates + panels_floats(h, h);
  int64_t each = memory_floats(h);
  size_t bytes = (size_t)(panels + threads * each) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
  Run run = {.p = p, .columns = columns_of(p), .y = y, .last = last, .sums = sums, .gx = gx};
  run.bias = bias;
  run.gates = panels_pack(memory, GEMM_f32, weight, h, 2 * h, true, threads);
  run.new = panels_pack(memory + gates, GEMM_f32, weight + 2 * h * h, h, h, true, threads);
  // The last state is the state of every step.
  memcpy(last, h0, (size_t)(r->b * h) * sizeof *last);
  recurrence_run(r, false, lengths, forward, &run, memory + panels, each);
  return NNRT_OK;
}

// -- Gradient ------------------------------------------------------------------------------------

// d_z and d_n before their activations, and the part of the adjoint of h that goes by z alone.
NNRT_CLONES static void back_state(float *restrict d_z, float *restrict d_n, float *restrict next,
                                   const float *restrict dh, const float *restrict dy,
                                   const float *restrict z, const float *restrict new,
                                   const float *restrict before, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    float d = dh[i] + dy[i];
    d_z[i] = d * (before[i] - new[i]);
    d_n[i] = d * (1 - z[i]);
    next[i] = d * z[i];
  }
}

// With the reset after the product.
NNRT_CLONES static void back_reset_after(float *restrict d_r, float *restrict inner,
                                         const float *restrict d_n, const float *restrict product,
                                         const float *restrict r, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    d_r[i] = d_n[i] * product[i];
    inner[i] = d_n[i] * r[i];
  }
}

// With the reset before it: `kept` is the adjoint of r h.
NNRT_CLONES static void back_reset(float *restrict d_r, float *restrict inner, float *restrict next,
                                   const float *restrict kept, const float *restrict r,
                                   const float *restrict before, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    d_r[i] = kept[i] * before[i];
    inner[i] = r[i] * before[i];
    next[i] += kept[i] * r[i];
  }
}

// The row up to d_n; `next` gets the adjoint of the state before, without the products.
static void backward_row(const Run *x, const Step *s, int64_t row, float *next, float *temp) {
  const Gru *p = x->p;
  int64_t h = p->base.h, at = s->t * p->base.b + row;
  const float *sums = x->saved + at * x->columns;
  float *d = x->dgx + at * 3 * h, *before = x->before + at * h, *z = temp, *new = temp + h;
  memcpy(before, step_state(&p->base, s, x->past, x->h0, row), (size_t)h * sizeof(float));
  activate(&p->f, z, sums + UPDATE * h, h);
  activate(&p->g, new, sums + NEW * h, h);
  back_state(d + UPDATE * h, d + NEW * h, next, x->dh0 + row * h, x->dy + at * h, z, new, before,
             h);
  activate_back(&p->f, d + UPDATE * h, sums + UPDATE * h, z, h);
  activate_back(&p->g, d + NEW * h, sums + NEW * h, new, h);
}

// d_r and the rest, after the product of d_n in `kept` if the reset was before R_n.
static void backward_reset(const Run *x, const Step *s, int64_t row, float *next, const float *kept,
                           float *temp) {
  const Gru *p = x->p;
  int64_t h = p->base.h, at = s->t * p->base.b + row;
  const float *sums = x->saved + at * x->columns;
  float *d = x->dgx + at * 3 * h, *inner = x->inner + at * h;
  activate(&p->f, temp, sums + RESET * h, h);
  if (p->after)
    back_reset_after(d + RESET * h, inner, d + NEW * h, sums + 3 * h, temp, h);
  else
    back_reset(d + RESET * h, inner, next, kept, temp, x->before + at * h, h);
  activate_back(&p->f, d + RESET * h, sums + RESET * h, temp, h);
}

static void backward(const void *cell, const Step *s) {
  const Run *x = cell;
  const Gru *p = x->p;
  int64_t h = p->base.h, n = s->rows.to - s->rows.from, first = s->t * p->base.b + s->rows.from;
  Memory m = memory_of(s, h);
  float *temp = m.kept + RECURRENT_ROWS * m.new_row;
  for (int64_t row = s->rows.from, i = 0; i < n; i++, row++) {
    int64_t at = s->t * p->base.b + row;
    if (step_active(s, row)) {
      backward_row(x, s, row, m.new + i *m.new_row, temp);
      continue;
    }
    memset(x->dgx + at * 3 * h, 0, (size_t)(3 * h) * sizeof(float));
    memset(x->before + at * h, 0, (size_t)h * sizeof(float));
    memset(x->inner + at * h, 0, (size_t)h * sizeof(float));
  }
  if (step_idle(s)) return;
  const float *d = x->dgx + first * 3 * h;
  if (!p->after) panels_product(&x->new, m.kept, m.new_row, d + NEW * h, 3 * h, n, false);
  for (int64_t row = s->rows.from, i = 0; i < n; i++, row++)
    if (step_active(s, row))
      backward_reset(x, s, row, m.new + i *m.new_row, m.kept + i * m.new_row, temp);
  // The products with the state itself.
  panels_product(&x->gates, m.kept, m.new_row, d, 3 * h, n, false);
  if (p->after) panels_product(&x->new, m.kept, m.new_row, x->inner + first * h, h, n, true);
  for (int64_t row = s->rows.from, i = 0; i < n; i++, row++)
    if (step_active(s, row))
      step_add(x->dh0 + row * h, m.new + i *m.new_row, m.kept + i * m.new_row, h);
}

int nnrt_gru_back_f32(NnrtPrep *prep, float *dgx, float *dh0, float *before, float *inner,
                      const float *sums, const float *y, const float *weight, const float *h0,
                      const int32_t *lengths, const float *dy, const float *dlast) {
  const Gru *p = (const Gru *)prep;
  const Recurrence *r = &p->base;
  int code = recurrence_check(r, lengths), threads = recurrence_threads(r);
  if (code) return code;
  int64_t h = r->h, gates = panels_floats(2 * h, h), panels = gates + panels_floats(h, h);
  int64_t each = memory_floats(h);
  size_t bytes = (size_t)(panels + threads * each) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
  Run run = {.p = p, .columns = columns_of(p), .dgx = dgx, .dh0 = dh0, .before = before};
  run.inner = inner;
  run.saved = sums;
  run.past = y;
  run.h0 = h0;
  run.dy = dy;
  run.gates = panels_pack(memory, GEMM_f32, weight, 2 * h, h, false, threads);
  run.new = panels_pack(memory + gates, GEMM_f32, weight + 2 * h * h, h, h, false, threads);
  memcpy(dh0, dlast, (size_t)(r->b * h) * sizeof *dh0);
  recurrence_run(r, true, lengths, backward, &run, memory + panels, each);
  return NNRT_OK;
}
