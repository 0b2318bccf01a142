// Recurrent layers: the loop over time, and products with a recurrent weight.
//
// Rows of the batch are independent, so threads take rows, and a thread computes all steps of some
// of its rows before the next ones.  Nothing waits within the loop:
//
//     recurrence_run   threads > blocks of rows > steps:  step(…, t, rows)
//
// A step multiplies the states of the block's rows with the weight.  The weight is packed once per
// call into panels of TILE_LANES columns, which are read in order, and a slice of which is in the
// L1 cache for all rows of the block.  States of 16 bits and the weight become f32 for that, or
// pairs of bf16 if the processor multiplies those (pairs.h).
//
// A row at or after its length has y 0, and keeps its state.

#ifndef NNRT_RECURRENT_H
#define NNRT_RECURRENT_H

#include "activation.h"
#include "kernel.h"
#include "tile.h"

// The first members of every prepared recurrent kernel.
typedef struct Recurrence {
  NnrtPrep base;
  int64_t t, b, h;
  bool reverse;
  GemmType type; // of y, the weight, h0 and the sums
} Recurrence;

// Returns a zeroed struct of `bytes` that begins with a Recurrence: of y (t b h) of f32.  NULL:
// reported.
void *recurrence_new(size_t bytes, const char *kernel, const int64_t *y_shape, bool reverse);

// A step of some rows.  `before` is the time of the step before; -1 in the first.
typedef struct Step {
  int64_t t, before;
  Part rows;
  const int32_t *lengths;
  float *memory; // of the thread, as requested
} Step;

// The largest number of rows of a step: tiles of every version divide them evenly (tile.h).
enum { RECURRENT_ROWS = 48 };

// Calls `step` for all rows and times: from the last step to the first if `back`.  `cell` is the
// argument of the caller.  Every thread has `each` floats of `memory`.
typedef void StepFn(const void *cell, const Step *step);
int recurrence_threads(const Recurrence *r);
void recurrence_run(const Recurrence *r, bool back, const int32_t *lengths, StepFn *step,
                    const void *cell, float *memory, int64_t each);
// Checks that lengths are from 0 to t; else NNRT_INDEX.
int recurrence_check(const Recurrence *r, const int32_t *lengths);
static inline bool step_active(const Step *s, int64_t row) {
  return s->t < s->lengths[row];
}
bool step_idle(const Step *s); // no row is active
// y = x + z
void step_add(float *restrict y, const float *restrict x, const float *restrict z, int64_t n);
// Row `row` of the state before the step: of y (t b h) at the step before, or of h0 (b h).
const void *step_state(const Recurrence *r, const Step *s, const void *y, const void *h0,
                       int64_t row);

// A matrix w (k, n) packed for products x w.
typedef struct Panels {
  GemmType type; // of the operand x in products: f32, or bf16 in pairs
  int64_t k, n;
  void *at; // panels of (k, TILE_LANES), zeros after the last column
} Panels;

static inline int64_t round_lanes(int64_t n) {
  return (n + TILE_LANES - 1) / TILE_LANES * TILE_LANES;
}
static inline int64_t panels_floats(int64_t k, int64_t n) {
  return k * round_lanes(n);
}
// Packs w (k, n), or its transpose (n, k), at `at`, which has panels_floats.
Panels panels_pack(float *at, GemmType type, const void *w, int64_t k, int64_t n, bool trans,
                   int threads);
// y (rows, round_lanes(n)) = x (rows, k) w, or is increased by it.  x_row and y_row: the distance
// of rows, in elements.
void panels_product(const Panels *w, float *y, int64_t y_row, const void *x, int64_t x_row,
                    int64_t rows, bool add);
// Returns n elements of `type` as the type of x in products: in place, or converted in `block`.
const void *panels_operand(const Panels *w, GemmType type, const void *x, int64_t n, float *block);

// y = f(x), and dx = dx f'(x) with y = f(x), of n elements; in the first y may be x.
void activate(const NnrtActivation *f, float *y, const float *x, int64_t n);
void activate_back(const NnrtActivation *f, float *dx, const float *x, const float *y, int64_t n);

#endif
