// LSTM and its gradient, with i, o, k and g as in ops.def's order of blocks:
//
//     c' = k c + i g        h' = o h(c')        k = f(…), or 1 - i with input_forget
//
// A row of a step is computed by passes over h elements each, which vectorise for any activation.

#include "recurrent.h"

enum { INPUT, OUTPUT, FORGET, CELL };

typedef struct Lstm {
  Recurrence base;
  NnrtActivation f, g, h;
  bool coupled, peepholes;
} Lstm;

static NnrtPrep *lstm_new(const char *kernel, const int64_t *y_shape, bool peepholes, const char *f,
                          const char *g, const char *h, const NnrtLstm *a) {
  Lstm *p = recurrence_new(sizeof *p, kernel, y_shape, a->reverse);
  if (!p) return NULL;
  p->coupled = a->input_forget;
  p->peepholes = peepholes;
  if (nnrt_activation(&p->f, kernel, f, a->f_alpha, a->f_beta, a->clip) &&
      nnrt_activation(&p->g, kernel, g, a->g_alpha, a->g_beta, a->clip) &&
      nnrt_activation(&p->h, kernel, h, a->h_alpha, a->h_beta, a->clip))
    return &p->base.base;
  free(p);
  return NULL;
}

NnrtPrep *nnrt_lstm_prep_f32(int64_t n, const int64_t *y_shape, const char *f, const char *g,
                             const char *h, const NnrtLstm *attrs) {
  return lstm_new("lstm", y_shape, n > 5, f, g, h, attrs);
}

NnrtPrep *nnrt_lstm_back_prep_f32(int64_t n, const int64_t *y_shape, const char *f, const char *g,
                                  const char *h, const NnrtLstm *attrs) {
  return lstm_new("lstm_back", y_shape, n > 10, f, g, h, attrs);
}

// -- Passes over h elements ----------------------------------------------------------------------

NNRT_CLONES static void add_product(float *restrict y, const float *restrict x,
                                    const float *restrict z, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i] * z[i];
}

// c = k c + i g, also to `kept`
NNRT_CLONES static void next_cell(float *restrict c, float *restrict kept, const float *restrict i,
                                  const float *restrict k, const float *restrict g, int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    c[j] = k[j] * c[j] + i[j] * g[j];
    kept[j] = c[j];
  }
}

NNRT_CLONES static void complement(float *restrict k, const float *restrict i, int64_t n) {
  for (int64_t j = 0; j < n; j++)
    k[j] = 1 - i[j];
}

NNRT_CLONES static void multiply(float *restrict y, float *restrict last, const float *restrict x,
                                 const float *restrict z, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    last[i] = y[i] = x[i] * z[i];
}

// -- Forward -------------------------------------------------------------------------------------

// A run: tensors by their names in ops.def; `weight` is packed.
typedef struct Run {
  const Lstm *p;
  Panels weight;
  float *y, *last, *last_c, *sums, *c; // results of the forward pass
  float *dgx, *dh0, *dc0, *before;     // of the gradient
  const float *gx, *h0, *c0, *peephole;
  const float *saved, *cells, *past, *dy; // sums, c and y in the gradient
} Run;

// From the products of the state in `gate` (4h), which is overwritten with the gates.
static void forward_row(const Run *x, int64_t at, int64_t row, float *gate) {
  const Lstm *p = x->p;
  int64_t h = p->base.h;
  float *sums = x->sums + at * 4 * h, *c = x->last_c + row * h;
  step_add(sums, x->gx + at * 4 * h, gate, 4 * h);
  if (x->peephole) {
    add_product(sums + INPUT * h, x->peephole + INPUT * h, c, h);
    add_product(sums + FORGET * h, x->peephole + FORGET * h, c, h);
  }
  activate(&p->f, gate + INPUT * h, sums + INPUT * h, h);
  if (p->coupled)
    complement(gate + FORGET * h, gate + INPUT * h, h);
  else
    activate(&p->f, gate + FORGET * h, sums + FORGET * h, h);
  activate(&p->g, gate + CELL * h, sums + CELL * h, h);
  next_cell(c, x->c + at * h, gate + INPUT * h, gate + FORGET * h, gate + CELL * h, h);
  // The output gate sees the new cell.
  if (x->peephole) add_product(sums + OUTPUT * h, x->peephole + OUTPUT * h, c, h);
  activate(&p->f, gate + OUTPUT * h, sums + OUTPUT * h, h);
  activate(&p->h, gate + CELL * h, c, h);
  multiply(x->y + at * h, x->last + row * h, gate + OUTPUT * h, gate + CELL * h, h);
}

static void forward(const void *cell, const Step *s) {
  const Run *x = cell;
  const Recurrence *r = &x->p->base;
  int64_t h = r->h, wide = round_lanes(4 * h), n = s->rows.to - s->rows.from;
  if (!step_idle(s))
    panels_product(&x->weight, s->memory, wide, x->last + s->rows.from * h, h, n, false);
  for (int64_t row = s->rows.from; row < s->rows.to; row++) {
    int64_t at = s->t * r->b + row;
    if (step_active(s, row)) {
      forward_row(x, at, row, s->memory + (row - s->rows.from) * wide);
      continue;
    }
    memset(x->y + at * h, 0, (size_t)h * sizeof(float));
    memset(x->sums + at * 4 * h, 0, (size_t)(4 * h) * sizeof(float));
    memcpy(x->c + at * h, x->last_c + row * h, (size_t)h * sizeof(float));
  }
}

int nnrt_lstm_f32(NnrtPrep *prep, float *y, float *last, float *last_c, float *sums, float *c,
                  const void *const *in) {
  const Lstm *p = (const Lstm *)prep;
  const Recurrence *r = &p->base;
  const int32_t *lengths = in[4];
  int code = recurrence_check(r, lengths), threads = recurrence_threads(r);
  if (code) return code;
  int64_t panels = panels_floats(r->h, 4 * r->h), each = RECURRENT_ROWS * round_lanes(4 * r->h);
  size_t bytes = (size_t)(panels + threads * each) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
  Run run = {.p = p, .y = y, .last = last, .last_c = last_c, .sums = sums, .c = c, .gx = in[0]};
  run.peephole = p->peepholes ? in[5] : NULL;
  run.weight = panels_pack(memory, in[1], r->h, 4 * r->h, true, threads);
  // The last states are the states of every step.
  memcpy(last, in[2], (size_t)(r->b * r->h) * sizeof *last);
  memcpy(last_c, in[3], (size_t)(r->b * r->h) * sizeof *last_c);
  recurrence_run(r, false, lengths, forward, &run, memory + panels, each);
  return NNRT_OK;
}

// -- Gradient ------------------------------------------------------------------------------------

// From dy, the adjoint of h', with ch = h(c'): d_o = dy ch, and into d_c the part of c': dy o.
NNRT_CLONES static void back_output(float *restrict d_o, float *restrict d_c,
                                    const float *restrict dh, const float *restrict dy,
                                    const float *restrict o, const float *restrict ch, int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    float d = dh[j] + dy[j];
    d_o[j] = d * ch[j];
    d_c[j] = d * o[j];
  }
}

// From d_c, the adjoint of c': those of i, k and g before their activations.
NNRT_CLONES static void back_cell(float *restrict d_i, float *restrict d_k, float *restrict d_g,
                                  const float *restrict d_c, const float *restrict before,
                                  const float *restrict i, const float *restrict g, bool coupled,
                                  int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    float k = d_c[j] * before[j];
    d_i[j] = d_c[j] * g[j] - (coupled ? k : 0);
    d_k[j] = coupled ? 0 : k;
    d_g[j] = d_c[j] * i[j];
  }
}

NNRT_CLONES static void back_past(float *restrict dc, const float *restrict d_c,
                                  const float *restrict k, int64_t n) {
  for (int64_t j = 0; j < n; j++)
    dc[j] = d_c[j] * k[j];
}

// `gate`: memory of 6h.
static void backward_row(const Run *x, const Step *s, int64_t row, float *gate) {
  const Lstm *p = x->p;
  const Recurrence *r = &p->base;
  int64_t h = r->h, at = s->t * r->b + row;
  const float *sums = x->saved + at * 4 * h, *c = x->cells + at * h;
  const float *past = s->before < 0 ? x->c0 + row * h : x->cells + (s->before * r->b + row) * h;
  float *d = x->dgx + at * 4 * h, *dc = x->dc0 + row * h;
  float *ch = gate + 4 * h, *d_c = gate + 5 * h;
  activate(&p->f, gate + INPUT * h, sums + INPUT * h, h);
  activate(&p->f, gate + OUTPUT * h, sums + OUTPUT * h, h);
  if (p->coupled)
    complement(gate + FORGET * h, gate + INPUT * h, h);
  else
    activate(&p->f, gate + FORGET * h, sums + FORGET * h, h);
  activate(&p->g, gate + CELL * h, sums + CELL * h, h);
  activate(&p->h, ch, c, h);
  back_output(d + OUTPUT * h, d_c, x->dh0 + row * h, x->dy + at * h, gate + OUTPUT * h, ch, h);
  activate_back(&p->f, d + OUTPUT * h, sums + OUTPUT * h, gate + OUTPUT * h, h);
  // All that reached c': by h', by the next step, by the peephole.
  activate_back(&p->h, d_c, c, ch, h);
  step_add(ch, d_c, dc, h);
  if (x->peephole) add_product(ch, d + OUTPUT * h, x->peephole + OUTPUT * h, h);
  back_cell(d + INPUT * h, d + FORGET * h, d + CELL * h, ch, past, gate + INPUT * h,
            gate + CELL * h, p->coupled, h);
  activate_back(&p->f, d + INPUT * h, sums + INPUT * h, gate + INPUT * h, h);
  activate_back(&p->f, d + FORGET * h, sums + FORGET * h, gate + FORGET * h, h);
  activate_back(&p->g, d + CELL * h, sums + CELL * h, gate + CELL * h, h);
  back_past(dc, ch, gate + FORGET * h, h);
  if (x->peephole) {
    add_product(dc, d + INPUT * h, x->peephole + INPUT * h, h);
    add_product(dc, d + FORGET * h, x->peephole + FORGET * h, h);
  }
  memcpy(x->before + at * h, step_state(r, s, x->past, x->h0, row), (size_t)h * sizeof(float));
}

static void backward(const void *cell, const Step *s) {
  const Run *x = cell;
  const Recurrence *r = &x->p->base;
  int64_t h = r->h, wide = round_lanes(h), n = s->rows.to - s->rows.from;
  float *gate = s->memory + RECURRENT_ROWS * wide;
  for (int64_t row = s->rows.from; row < s->rows.to; row++) {
    int64_t at = s->t * r->b + row;
    if (step_active(s, row)) {
      backward_row(x, s, row, gate);
      continue;
    }
    memset(x->dgx + at * 4 * h, 0, (size_t)(4 * h) * sizeof(float));
    memset(x->before + at * h, 0, (size_t)h * sizeof(float));
  }
  if (step_idle(s)) return;
  panels_product(&x->weight, s->memory, wide, x->dgx + (s->t * r->b + s->rows.from) * 4 * h, 4 * h,
                 n, false);
  for (int64_t row = s->rows.from; row < s->rows.to; row++)
    if (step_active(s, row))
      memcpy(x->dh0 + row * h, s->memory + (row - s->rows.from) * wide, (size_t)h * sizeof(float));
}

int nnrt_lstm_back_f32(NnrtPrep *prep, float *dgx, float *dh0, float *dc0, float *before,
                       const void *const *in) {
  const Lstm *p = (const Lstm *)prep;
  const Recurrence *r = &p->base;
  const int32_t *lengths = in[6];
  int code = recurrence_check(r, lengths), threads = recurrence_threads(r);
  if (code) return code;
  int64_t panels = panels_floats(4 * r->h, r->h);
  int64_t each = RECURRENT_ROWS * round_lanes(r->h) + round_lanes(6 * r->h);
  size_t bytes = (size_t)(panels + threads * each) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
  Run run = {.p = p, .dgx = dgx, .dh0 = dh0, .dc0 = dc0, .before = before};
  run.saved = in[0];
  run.cells = in[1];
  run.past = in[2];
  run.h0 = in[4];
  run.c0 = in[5];
  run.dy = in[7];
  run.peephole = p->peepholes ? in[10] : NULL;
  run.weight = panels_pack(memory, in[3], 4 * r->h, r->h, false, threads);
  memcpy(dh0, in[8], (size_t)(r->b * r->h) * sizeof *dh0);
  memcpy(dc0, in[9], (size_t)(r->b * r->h) * sizeof *dc0);
  recurrence_run(r, true, lengths, backward, &run, memory + panels, each);
  return NNRT_OK;
}
