// The kernels of meshes.c: on CPUs in stages.c, on a GPU in tests/gpu/stages.cu.  Both run the
// functions of stages_of.h, in one thread.

#ifndef TESTS_RT_STAGES_H
#define TESTS_RT_STAGES_H

#include "nnrt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { N = 5 }; // columns of x

// The number of a rank's rows, that of the batch, and whether these are the first of the step.
typedef struct Rows {
  int64_t n, batch;
  bool first;
} Rows;

// A random move, by its number, of elements of `width` bytes, as seen by a rank; its data differs
// in every step.
typedef struct Lot {
  int move, rank, width;
  bool gets; // whether it has a part after
  NnrtMove m;
} Lot;

// h = x w + b
int stage_forward(float *h, float *g, const float *x, const float *w, const float *b, Rows rows);
// e = h - labels, squares += mean e^2
int stage_error(float *e, float *squares, const float *h, const int64_t *labels, Rows rows);
// g += gradients of w and b
int stage_backward(float *g, const float *e, const float *x, Rows rows);
// Updates with momentum, and computes the gradient's norm.
int stage_update(float *w, float *b, float *v, float *norm, const float *g, const float *lr);
int stage_decay(float *x, int64_t n, const float *lr);
// loss = sum, or NaN if any element is bad.
int stage_loss(float *loss, const float *sum, const int64_t *bad);

// x = the rank's data to send, y = bytes of 77
int lot_give(void *x, void *y, const int64_t *step, Lot lot);
// bad += number of elements of y that differ from the messages; those are in the kernels' memory
int lot_check(int64_t *bad, const void *y, const NnrtMessage *messages, const int64_t *step,
              Lot lot);

#ifdef __cplusplus
}
#endif

#endif
