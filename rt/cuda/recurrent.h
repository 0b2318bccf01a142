// The steps of recurrent layers as kernels, and what they share with the loop over time.
//
// A step is a product of the states of all rows with the recurrent weight, in f32, and a kernel
// that computes the cell, an element of the state per thread (recurrent.cu).  recurrent.c prepares
// the products and enqueues the steps: two or three launches each, which a CUDA graph replays.
//
// C and CUDA C.

#ifndef NNRT_CUDA_RECURRENT_H
#define NNRT_CUDA_RECURRENT_H

#include "activation.h"
#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// A step at time t.  `before` is the time of the step before; -1 in the first.
typedef struct RecurrentStep {
  int64_t t, before;
  int64_t all, b, h;      // steps, rows, elements of a state
  const int32_t *lengths; // (b)
} RecurrentStep;

// Tensors are of the kernel's type, except float ones.  Those of all steps are whole, (all, b, …);
// `state`, `dh`, `dc` and products are (b, …) in scratch or results.  Absent ones are NULL.

typedef struct LstmCell {
  NnrtActivation f, g, h;
  bool coupled;          // the forget gate is 1 - the input gate
  const float *peephole; // (3 h)
} LstmCell;

// Updates state, `last` (the state in the kernel's type) and cell, from product (b, 4 h).
int lstm_step(NnrtDtype type, const RecurrentStep *s, const LstmCell *c, const float *product,
              const void *gx, void *y, void *sums, float *cells, float *state, void *last,
              float *cell);
// Writes dgx and before, sets dc, and clears dh of rows that are active, for the product with R.
int lstm_step_back(NnrtDtype type, const RecurrentStep *s, const LstmCell *c, const void *sums,
                   const float *cells, const void *y, const void *h0, const float *c0,
                   const void *dy, void *dgx, void *before, float *dh, float *dc);

typedef struct GruCell {
  NnrtActivation f, g;
  bool after; // the reset applies after the product of n
} GruCell;

// The gates z and r from product (b, 2 h): their sums, and `kept` = r h unless `after`.
int gru_step_gates(NnrtDtype type, const RecurrentStep *s, const GruCell *c, const float *product,
                   const void *gx, void *sums, void *kept, const float *state);
// The new state, from product (b, h) and the gates' sums.
int gru_step(NnrtDtype type, const RecurrentStep *s, const GruCell *c, const float *product,
             const float *bias, const void *gx, void *y, void *sums, float *state, void *last);
// d_z and d_n in dgx, and before; dh gets the part that goes by z alone.  With `after` also d_r and
// inner.
int gru_step_back(NnrtDtype type, const RecurrentStep *s, const GruCell *c, const void *sums,
                  const void *y, const void *h0, const void *dy, void *dgx, void *before,
                  void *inner, float *dh);
// Unless `after`: d_r and inner, from the adjoint `kept` of r h (b, h).
int gru_step_back_reset(NnrtDtype type, const RecurrentStep *s, const GruCell *c, const void *sums,
                        const float *kept, void *dgx, const void *before, void *inner, float *dh);

int rnn_step(NnrtDtype type, const RecurrentStep *s, const NnrtActivation *f, const float *product,
             const void *gx, void *y, void *sums, float *state, void *last);
int rnn_step_back(NnrtDtype type, const RecurrentStep *s, const NnrtActivation *f, const void *sums,
                  const void *y, const void *h0, const void *dy, void *dgx, void *before,
                  float *dh);

// Reports lengths (b) that are not from 0 to `all`.
int recurrent_check(const int32_t *lengths, int64_t b, int64_t all);
// to (n), of `type`, = from in f32; and the reverse.
int recurrent_widen(NnrtDtype type, float *to, const void *from, int64_t n);
int recurrent_store(NnrtDtype type, void *to, const float *from, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
