// The kernels of tests/rt/stages.h on a GPU: one thread runs the code of stages_of.h.

#include "stages_of.h"

#include "device.cuh"

#define KERNEL(name, params, ...)                                                                  \
  static __global__ void name##_there params {                                                     \
    name##_of(__VA_ARGS__);                                                                        \
  }

KERNEL(forward, (float *h, float *g, const float *x, const float *w, const float *b, Rows rows), h,
       g, x, w, b, rows)
KERNEL(error, (float *e, float *squares, const float *h, const int64_t *labels, Rows rows), e,
       squares, h, labels, rows)
KERNEL(backward, (float *g, const float *e, const float *x, Rows rows), g, e, x, rows)
KERNEL(update, (float *w, float *b, float *v, float *norm, const float *g, const float *lr), w, b,
       v, norm, g, lr)
KERNEL(decay, (float *x, int64_t n, const float *lr), x, n, lr)
KERNEL(loss, (float *loss, const float *sum, const int64_t *bad), loss, sum, bad)
KERNEL(give, (void *x, void *y, const int64_t *step, Lot lot), x, y, step, lot)
KERNEL(check,
       (int64_t * bad, const void *y, const NnrtMessage *messages, const int64_t *step, Lot lot),
       bad, y, messages, step, lot)

int stage_forward(float *h, float *g, const float *x, const float *w, const float *b, Rows rows) {
  return launch(forward_there, 1, 1, 0, h, g, x, w, b, rows);
}

int stage_error(float *e, float *squares, const float *h, const int64_t *labels, Rows rows) {
  return launch(error_there, 1, 1, 0, e, squares, h, labels, rows);
}

int stage_backward(float *g, const float *e, const float *x, Rows rows) {
  return launch(backward_there, 1, 1, 0, g, e, x, rows);
}

int stage_update(float *w, float *b, float *v, float *norm, const float *g, const float *lr) {
  return launch(update_there, 1, 1, 0, w, b, v, norm, g, lr);
}

int stage_decay(float *x, int64_t n, const float *lr) {
  return launch(decay_there, 1, 1, 0, x, n, lr);
}

int stage_loss(float *loss, const float *sum, const int64_t *bad) {
  return launch(loss_there, 1, 1, 0, loss, sum, bad);
}

int lot_give(void *x, void *y, const int64_t *step, Lot lot) {
  return launch(give_there, 1, 1, 0, x, y, step, lot);
}

int lot_check(int64_t *bad, const void *y, const NnrtMessage *messages, const int64_t *step,
              Lot lot) {
  return launch(check_there, 1, 1, 0, bad, y, messages, step, lot);
}
