// The loop over time of recurrent layers, and its products: see recurrent.h.

#include "recurrent.h"

static void prep_free(NnrtPrep *p) {
  free(p);
}

void *recurrence_new(size_t bytes, const char *kernel, const int64_t *y_shape, bool reverse) {
  Recurrence *r = calloc(1, bytes);
  if (!r) {
    nnrt_error(NNRT_MEMORY, "%s: no memory", kernel);
    return NULL;
  }
  *r = (Recurrence){{prep_free}, y_shape[0], y_shape[1], y_shape[2], reverse};
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

const float *step_state(const Recurrence *r, const Step *s, const float *y, const float *h0,
                        int64_t row) {
  // In reverse a shorter row begins later.
  bool first = s->before < 0 || s->before >= s->lengths[row];
  return first ? h0 + row * r->h : y + (s->before * r->b + row) * r->h;
}

// -- Products ----------------------------------------------------------------------------------

// One panel from column `j` on.
static void pack_panel(float *at, const float *w, int64_t k, int64_t n, int64_t j, bool trans) {
  int64_t columns = n - j < TILE_LANES ? n - j : TILE_LANES;
  for (int64_t i = 0; i < k; i++)
    for (int64_t l = 0; l < TILE_LANES; l++)
      at[i * TILE_LANES + l] = l >= columns ? 0 : trans ? w[(j + l) * k + i] : w[i * n + j + l];
}

Panels panels_pack(float *at, const float *w, int64_t k, int64_t n, bool trans, int threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t j = 0; j < n; j += TILE_LANES)
    pack_panel(at + j * k, w, k, n, j, trans);
  return (Panels){k, n, at};
}

void panels_product(const Panels *w, float *y, int64_t y_row, const float *x, int64_t x_row,
                    int64_t rows, bool add) {
  enum { DEPTH = 256 }; // a slice of a panel: 32 KiB
  for (int64_t j = 0; j < w->n; j += TILE_LANES)
    for (int64_t i = 0; i < w->k; i += DEPTH)
      tile_product(&(TileProduct){.c = y + j,
                                  .c_row = y_row,
                                  .a = x + i,
                                  .a_row = x_row,
                                  .a_step = 1,
                                  .b = w->at + j * w->k + i * TILE_LANES,
                                  .b_row = TILE_LANES,
                                  .rows = rows,
                                  .lanes = TILE_LANES,
                                  .steps = w->k - i < DEPTH ? w->k - i : DEPTH,
                                  .add = add || i > 0});
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
