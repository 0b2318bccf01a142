// The loop over time of recurrent layers, and its products: see recurrent.h.

#include "recurrent.h"

#include "pairs.h"

static void prep_free(NnrtPrep *p) {
  free(p);
}

void *recurrence_new(size_t bytes, const char *kernel, const int64_t *y_shape, bool reverse) {
  Recurrence *r = calloc(1, bytes);
  if (!r) {
    nnrt_error(NNRT_MEMORY, "%s: no memory", kernel);
    return NULL;
  }
  *r = (Recurrence){{prep_free}, y_shape[0], y_shape[1], y_shape[2], reverse, GEMM_f32};
  return r;
}

// -- Steps -------------------------------------------------------------------------------------

int recurrence_threads(const Recurrence *r) {
  int threads = threads_for(r->t * r->b * r->h);
  return r->b < threads ? (int)r->b : threads;
}

// All steps of a block of rows.
static void run_rows(const Recurrence *r, bool back, StepFn *step, const void *cell, Step s) {
  for (int64_t i = 0; i < r->t; i++) {
    int64_t k = back ? r->t - 1 - i : i;
    s.t = r->reverse ? r->t - 1 - k : k;
    s.before = k == 0 ? -1 : r->reverse ? s.t + 1 : s.t - 1;
    step(cell, &s);
  }
}

void recurrence_run(const Recurrence *r, bool back, const int32_t *lengths, StepFn *step,
                    const void *cell, float *memory, int64_t each) {
  int threads = recurrence_threads(r);
#pragma omp parallel for num_threads(threads)
  for (int i = 0; i < threads; i++) {
    Part mine = part_of(r->b, 1, i, threads);
    for (int64_t from = mine.from; from < mine.to; from += RECURRENT_ROWS) {
      int64_t to = from + RECURRENT_ROWS < mine.to ? from + RECURRENT_ROWS : mine.to;
      Step s = {.rows = {from, to}, .lengths = lengths, .memory = memory + i * each};
      run_rows(r, back, step, cell, s);
    }
  }
}

int recurrence_check(const Recurrence *r, const int32_t *lengths) {
  for (int64_t row = 0; row < r->b; row++)
    if (lengths[row] < 0 || lengths[row] > r->t)
      return nnrt_found(FOUND_length, lengths[row], row, 0, r->t + 1);
  return NNRT_OK;
}

NNRT_CLONES void step_add(float *restrict y, const float *restrict x, const float *restrict z,
                          int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = x[i] + z[i];
}

bool step_idle(const Step *s) {
  for (int64_t row = s->rows.from; row < s->rows.to; row++)
    if (step_active(s, row)) return false;
  return true;
}

const void *step_state(const Recurrence *r, const Step *s, const void *y, const void *h0,
                       int64_t row) {
  // In reverse a shorter row begins later.
  bool first = s->before < 0 || s->before >= s->lengths[row];
  int64_t bytes = r->h * type_bytes(r->type);
  return first ? (const char *)h0 + row * bytes
               : (const char *)y + (s->before * r->b + row) * bytes;
}

// -- Products ----------------------------------------------------------------------------------

// The elements of a panel have the type of the operand, in the memory of floats.
static void *panel_at(const Panels *w, int64_t at) {
  return (char *)w->at + at * type_bytes(w->type);
}

// One panel from column `j` on, as f32.
static void pack_panel(float *at, GemmType type, const void *w, int64_t k, int64_t n, int64_t j,
                       bool trans) {
  const char *from = (const char *)w + (trans ? j * k : j) * type_bytes(type);
  TilePack p = {.from = from,
                .lane = trans ? k : 1,
                .step = trans ? 1 : n,
                .lanes = n - j < TILE_LANES ? n - j : TILE_LANES,
                .steps = k,
                .width = TILE_LANES,
                .panel = k * TILE_LANES,
                .padded = true};
  tile_kind()->pack(type, &p, at);
}

Panels panels_pack(float *at, GemmType type, const void *w, int64_t k, int64_t n, bool trans,
                   int threads) {
  bool pairs = type == GEMM_bf16 && k % 2 == 0 && pairs_here();
  Panels p = {pairs ? GEMM_bf16 : GEMM_f32, k, n, at};
#pragma omp parallel for num_threads(threads)
  for (int64_t j = 0; j < n; j += TILE_LANES)
    if (pairs)
      pairs_pack(panel_at(&p, j * k), w, k, n, j, trans);
    else
      pack_panel(panel_at(&p, j * k), type, w, k, n, j, trans);
  return p;
}

const void *panels_operand(const Panels *w, GemmType type, const void *x, int64_t n, float *block) {
  if (w->type == type) return x;
  tile_kind()->load(type, block, x, n);
  return block;
}

void panels_product(const Panels *w, float *y, int64_t y_row, const void *x, int64_t x_row,
                    int64_t rows, bool add) {
  enum { DEPTH = 256 }; // a slice of a panel: 32 KiB of f32
  for (int64_t j = 0; j < w->n; j += TILE_LANES)
    for (int64_t i = 0; i < w->k; i += DEPTH) {
      int64_t steps = w->k - i < DEPTH ? w->k - i : DEPTH;
      const void *b = panel_at(w, j * w->k + i * TILE_LANES);
      if (w->type == GEMM_bf16)
        pairs_product(y + j, y_row, (const uint16_t *)x + i, x_row, b, rows, steps / 2,
                      add || i > 0);
      else
        tile_product(&(TileProduct){.c = y + j,
                                    .c_row = y_row,
                                    .a = (const float *)x + i,
                                    .a_row = x_row,
                                    .a_step = 1,
                                    .b = b,
                                    .b_row = TILE_LANES,
                                    .rows = rows,
                                    .lanes = TILE_LANES,
                                    .steps = steps,
                                    .add = add || i > 0});
    }
}

// -- Activations -------------------------------------------------------------------------------

// A loop without branches for each kind.
#define FOR_KINDS(M)                                                                               \
  M(NNRT_relu)                                                                                     \
  M(NNRT_tanh)                                                                                     \
  M(NNRT_sigmoid)                                                                                  \
  M(NNRT_affine)                                                                                   \
  M(NNRT_leaky_relu)                                                                               \
  M(NNRT_thresholded_relu)                                                                         \
  M(NNRT_scaled_tanh)                                                                              \
  M(NNRT_hard_sigmoid) M(NNRT_elu) M(NNRT_softsign) M(NNRT_softplus)

#define ACTIVATE(of_kind)                                                                          \
  case of_kind:                                                                                    \
    for (int64_t i = 0; i < n; i++)                                                                \
      y[i] = activation_at(of_kind, f, x[i]);                                                      \
    break;
NNRT_CLONES static void activate_rows(NnrtActivation f, float *y, const float *x, int64_t n) {
  switch (f.kind) { FOR_KINDS(ACTIVATE) case NNRT_N_ACTIVATIONS : break; }
}

#define ACTIVATE_BACK(of_kind)                                                                     \
  case of_kind:                                                                                    \
    for (int64_t i = 0; i < n; i++)                                                                \
      dx[i] *= activation_slope_of(of_kind, f, x[i], y[i]);                                        \
    break;
NNRT_CLONES static void slope_rows(NnrtActivation f, float *restrict dx, const float *restrict x,
                                   const float *restrict y, int64_t n) {
  switch (f.kind) { FOR_KINDS(ACTIVATE_BACK) case NNRT_N_ACTIVATIONS : break; }
}

void activate(const NnrtActivation *f, float *y, const float *x, int64_t n) {
  activate_rows(*f, y, x, n);
}

void activate_back(const NnrtActivation *f, float *dx, const float *x, const float *y, int64_t n) {
  slope_rows(*f, dx, x, y, n);
}
