// The kernels of meshes.c: on processors in stages.c, on a gpu in tests/gpu/stages.cu.  Both do
// what stages_of.h says, all in one thread.

#ifndef TESTS_RT_STAGES_H
#define TESTS_RT_STAGES_H

#include "nnrt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { N = 5 }; // columns of x

// Which rows a rank has of how many, and whether these are the first of the step.
typedef struct Rows {
  int64_t n, batch;
  bool first;
} Rows;

// A move, by its number, of elements of `width` bytes, as a rank sees it; what is given is another
// thing in every step.
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
// Momentum, and the gradient's norm.
int stage_update(float *w, float *b, float *v, float *norm, const float *g, const float *lr);
int stage_decay(float *x, int64_t n, const float *lr);
// loss = sum, or NaN if anything is bad.
int stage_loss(float *loss, const float *sum, const int64_t *bad);

// x = what the rank gives, y = bytes of 77
int lot_give(void *x, void *y, const int64_t *step, Lot lot);
// bad += how many elements of y are not what the messages, where kernels read them, say
int lot_check(int64_t *bad, const void *y, const NnrtMessage *messages, const int64_t *step,
              Lot lot);

#ifdef __cplusplus
}
#endif

#endif
