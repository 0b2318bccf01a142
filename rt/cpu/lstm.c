// LSTM and its gradient, with i, o, k and g as in ops.def's order of blocks:
//
//     c' = k c + i g        h' = o h(c')        k = f(…), or 1 - i with input_forget
//
// A row of a step is computed by passes over h elements each, which vectorise for any activation.
// Passes are f32's: of 16-bit tensors a row is converted to a block that stays in the L1 cache. The
// adjoint of the state is f32 from step to step, so 16 bits round operands of products and results.

#include "recurrent.h"

enum { INPUT, OUTPUT, FORGET, CELL };

typedef struct Lstm {
  Recurrence base;
  NnrtActivation f, g, h;
  bool coupled, peepholes;
} Lstm;

static NnrtPrep *lstm_new(GemmType type, const char *kernel, const int64_t *y_shape, bool peepholes,
                          const char *f, const char *g, const char *h, const NnrtLstm *a) {
  Lstm *p = recurrence_new(sizeof *p, kernel, y_shape, a->reverse);
  if (!p) return NULL;
  p->base.type = type;
  p->coupled = a->input_forget;
  p->peepholes = peepholes;
  if (nnrt_activation(&p->f, kernel, f, a->f_alpha, a->f_beta, a->clip) &&
      nnrt_activation(&p->g, kernel, g, a->g_alpha, a->g_beta, a->clip) &&
      nnrt_activation(&p->h, kernel, h, a->h_alpha, a->h_beta, a->clip))
    return &p->base.base;
  free(p);
  return NULL;
}

// -- Rows of tensors -----------------------------------------------------------------------------

// The memory for n elements from number `at` on.
static void *elements(const Recurrence *r, const void *x, int64_t at) {
  return (char *)(uintptr_t)x + at * type_bytes(r->type);
}

static size_t bytes_of(const Recurrence *r, int64_t n) {
  return (size_t)(n * type_bytes(r->type));
}

// Returns n elements from number `at` on as f32: in x itself, or converted in `block`.
static const float *row_read(const Recurrence *r, const void *x, int64_t at, int64_t n,
                             float *block) {
  if (r->type == GEMM_f32) return (const float *)x + at;
  tile_kind()->load(r->type, block, elements(r, x, at), n);
  return block;
}

// Returns the place for elements from number `at` on as f32: in x itself, or `block`, which
// row_write converts.
static float *row_place(const Recurrence *r, void *x, int64_t at, float *block) {
  return r->type == GEMM_f32 ? (float *)x + at : block;
}

static void row_write(const Recurrence *r, void *x, int64_t at, int64_t n, const float *place) {
  if (r->type != GEMM_f32) tile_kind()->store(r->type, elements(r, x, at), place, n);
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

NNRT_CLONES static void multiply(float *restrict y, const float *restrict x,
                                 const float *restrict z, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = x[i] * z[i];
}

// -- Forward -------------------------------------------------------------------------------------

// A run: tensors by their names in ops.def; `weight` is packed.
typedef struct Run {
  const Lstm *p;
  Panels weight;
  void *y, *last, *sums, *dgx, *before;    // results
  float *last_c, *c, *dc0;                 // of f32
  float *dh;                               // the adjoint of the state, from step to step
  const void *gx, *h0, *saved, *past, *dy; // saved and past: sums and y in the gradient
  const float *c0, *cells, *peephole;
} Run;

// The memory of a thread.
typedef struct Memory {
  int64_t product_row;
  float *product; // (rows, product_row)
  float *operand; // (rows, k), converted for products
  float *gate;    // 14 h of a row
} Memory;

// The number of floats of `k` converted elements of each row.
static int64_t operand_floats(const Recurrence *r, int64_t k) {
  return r->type == GEMM_f32 ? 0 : RECURRENT_ROWS * round_lanes(k);
}

// With products of k rows and n columns.
static int64_t memory_floats(const Recurrence *r, int64_t k, int64_t n) {
  return RECURRENT_ROWS * round_lanes(n) + operand_floats(r, k) + round_lanes(14 * r->h);
}

static Memory memory_of(const Recurrence *r, const Step *s, int64_t k, int64_t n) {
  Memory m = {.product_row = round_lanes(n), .product = s->memory};
  m.operand = m.product + RECURRENT_ROWS * m.product_row;
  m.gate = m.operand + operand_floats(r, k);
  return m;
}

// From the products of the state in `gate` (4h), which is overwritten with the gates.  `block`: 9h.
static void forward_row(const Run *x, int64_t at, int64_t row, float *gate, float *block) {
  const Lstm *p = x->p;
  const Recurrence *r = &p->base;
  int64_t h = r->h;
  float *sums = row_place(r, x->sums, at * 4 * h, block), *c = x->last_c + row * h;
  float *y = row_place(r, x->y, at * h, block + 8 * h);
  step_add(sums, row_read(r, x->gx, at * 4 * h, 4 * h, block + 4 * h), gate, 4 * h);
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
  multiply(y, gate + OUTPUT * h, gate + CELL * h, h);
  row_write(r, x->sums, at * 4 * h, 4 * h, sums);
  row_write(r, x->y, at * h, h, y);
  memcpy(elements(r, x->last, row * h), elements(r, x->y, at * h), bytes_of(r, h));
}

static void forward(const void *cell, const Step *s) {
  const Run *x = cell;
  const Recurrence *r = &x->p->base;
  int64_t h = r->h, n = s->rows.to - s->rows.from;
  Memory m = memory_of(r, s, h, 4 * h);
  if (!step_idle(s)) {
    const void *states = elements(r, x->last, s->rows.from * h);
    states = panels_operand(&x->weight, r->type, states, n * h, m.operand);
    panels_product(&x->weight, m.product, m.product_row, states, h, n, false);
  }
  for (int64_t row = s->rows.from; row < s->rows.to; row++) {
    int64_t at = s->t * r->b + row;
    if (step_active(s, row)) {
      forward_row(x, at, row, m.product + (row - s->rows.from) * m.product_row, m.gate);
      continue;
    }
    memset(elements(r, x->y, at * h), 0, bytes_of(r, h));
    memset(elements(r, x->sums, at * 4 * h), 0, bytes_of(r, 4 * h));
    memcpy(x->c + at * h, x->last_c + row * h, (size_t)h * sizeof(float));
  }
}

static int lstm_run(NnrtPrep *prep, void *y, void *last, float *last_c, void *sums, float *c,
                    const void *const *in) {
  const Lstm *p = (const Lstm *)prep;
  const Recurrence *r = &p->base;
  const int32_t *lengths = in[4];
  int code = recurrence_check(r, lengths), threads = recurrence_threads(r);
  if (code) return code;
  int64_t panels = panels_floats(r->h, 4 * r->h), each = memory_floats(r, r->h, 4 * r->h);
  size_t bytes = (size_t)(panels + threads * each) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
  Run run = {.p = p, .y = y, .last = last, .last_c = last_c, .sums = sums, .c = c, .gx = in[0]};
  run.peephole = p->peepholes ? in[5] : NULL;
  run.weight = panels_pack(memory, r->type, in[1], r->h, 4 * r->h, true, threads);
  // The last states are the states of every step.
  memcpy(last, in[2], bytes_of(r, r->b * r->h));
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

// `gate`: memory of 14h.
static void backward_row(const Run *x, const Step *s, int64_t row, float *gate) {
  const Lstm *p = x->p;
  const Recurrence *r = &p->base;
  int64_t h = r->h, at = s->t * r->b + row;
  float *ch = gate + 4 * h, *d_c = gate + 5 * h, *block = gate + 6 * h;
  const float *sums = row_read(r, x->saved, at * 4 * h, 4 * h, block), *c = x->cells + at * h;
  const float *past = s->before < 0 ? x->c0 + row * h : x->cells + (s->before * r->b + row) * h;
  float *d = row_place(r, x->dgx, at * 4 * h, block + 4 * h), *dc = x->dc0 + row * h;
  activate(&p->f, gate + INPUT * h, sums + INPUT * h, h);
  activate(&p->f, gate + OUTPUT * h, sums + OUTPUT * h, h);
  if (p->coupled)
    complement(gate + FORGET * h, gate + INPUT * h, h);
  else
    activate(&p->f, gate + FORGET * h, sums + FORGET * h, h);
  activate(&p->g, gate + CELL * h, sums + CELL * h, h);
  activate(&p->h, ch, c, h);
  // d is not complete yet: its first block holds dy.
  const float *dy = row_read(r, x->dy, at * h, h, d + INPUT * h);
  back_output(d + OUTPUT * h, d_c, x->dh + row * h, dy, gate + OUTPUT * h, ch, h);
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
  row_write(r, x->dgx, at * 4 * h, 4 * h, d);
  memcpy(elements(r, x->before, at * h), step_state(r, s, x->past, x->h0, row), bytes_of(r, h));
}

static void backward(const void *cell, const Step *s) {
  const Run *x = cell;
  const Recurrence *r = &x->p->base;
  int64_t h = r->h, n = s->rows.to - s->rows.from;
  Memory m = memory_of(r, s, 4 * h, h);
  for (int64_t row = s->rows.from; row < s->rows.to; row++) {
    int64_t at = s->t * r->b + row;
    if (step_active(s, row)) {
      backward_row(x, s, row, m.gate);
      continue;
    }
    memset(elements(r, x->dgx, at * 4 * h), 0, bytes_of(r, 4 * h));
    memset(elements(r, x->before, at * h), 0, bytes_of(r, h));
  }
  if (step_idle(s)) return;
  const void *d = elements(r, x->dgx, (s->t * r->b + s->rows.from) * 4 * h);
  d = panels_operand(&x->weight, r->type, d, n * 4 * h, m.operand);
  panels_product(&x->weight, m.product, m.product_row, d, 4 * h, n, false);
  for (int64_t row = s->rows.from; row < s->rows.to; row++)
    if (step_active(s, row))
      memcpy(x->dh + row * h, m.product + (row - s->rows.from) * m.product_row,
             (size_t)h * sizeof(float));
}

static int lstm_run_back(NnrtPrep *prep, void *dgx, void *dh0, float *dc0, void *before,
                         const void *const *in) {
  const Lstm *p = (const Lstm *)prep;
  const Recurrence *r = &p->base;
  const int32_t *lengths = in[6];
  int code = recurrence_check(r, lengths), threads = recurrence_threads(r);
  if (code) return code;
  int64_t panels = panels_floats(4 * r->h, r->h), each = memory_floats(r, 4 * r->h, r->h);
  int64_t states = r->b * r->h, converted = r->type == GEMM_f32 ? 0 : round_lanes(states);
  size_t bytes = (size_t)(panels + converted + threads * each) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
  Run run = {.p = p, .dgx = dgx, .dc0 = dc0, .before = before};
  run.dh = row_place(r, dh0, 0, memory + panels);
  run.saved = in[0];
  run.cells = in[1];
  run.past = in[2];
  run.h0 = in[4];
  run.c0 = in[5];
  run.dy = in[7];
  run.peephole = p->peepholes ? in[10] : NULL;
  run.weight = panels_pack(memory, r->type, in[3], 4 * r->h, r->h, false, threads);
  tile_kind()->load(r->type, run.dh, in[8], states);
  memcpy(dc0, in[9], (size_t)states * sizeof *dc0);
  recurrence_run(r, true, lengths, backward, &run, memory + panels + converted, each);
  row_write(r, dh0, 0, states, run.dh);
  return NNRT_OK;
}

// -- The kernels ---------------------------------------------------------------------------------

#define KERNELS(type, T)                                                                           \
  NnrtPrep *nnrt_lstm_prep_##type(int64_t n, const int64_t *y_shape, const char *f, const char *g, \
                                  const char *h, const NnrtLstm *attrs) {                          \
    return lstm_new(GEMM_##type, "lstm", y_shape, n > 5, f, g, h, attrs);                          \
  }                                                                                                \
  int nnrt_lstm_##type(NnrtPrep *p, T *y, T *last, float *last_c, T *sums, float *c,               \
                       const void *const *in) {                                                    \
    return lstm_run(p, y, last, last_c, sums, c, in);                                              \
  }                                                                                                \
  NnrtPrep *nnrt_lstm_back_prep_##type(int64_t n, const int64_t *y_shape, const char *f,           \
                                       const char *g, const char *h, const NnrtLstm *attrs) {      \
    return lstm_new(GEMM_##type, "lstm_back", y_shape, n > 10, f, g, h, attrs);                    \
  }                                                                                                \
  int nnrt_lstm_back_##type(NnrtPrep *p, T *dgx, T *dh0, float *dc0, T *before,                    \
                            const void *const *in) {                                               \
    return lstm_run_back(p, dgx, dh0, dc0, before, in);                                            \
  }

KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)
