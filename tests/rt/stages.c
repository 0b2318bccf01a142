// The kernels of stages.h on CPUs.

#include "stages_of.h"

int stage_forward(float *h, float *g, const float *x, const float *w, const float *b, Rows rows) {
  forward_of(h, g, x, w, b, rows);
  return 0;
}

int stage_error(float *e, float *squares, const float *h, const int64_t *labels, Rows rows) {
  error_of(e, squares, h, labels, rows);
  return 0;
}

int stage_backward(float *g, const float *e, const float *x, Rows rows) {
  backward_of(g, e, x, rows);
  return 0;
}

int stage_update(float *w, float *b, float *v, float *norm, const float *g, const float *lr) {
  update_of(w, b, v, norm, g, lr);
  return 0;
}

int stage_decay(float *x, int64_t n, const float *lr) {
  decay_of(x, n, lr);
  return 0;
}

int stage_loss(float *loss, const float *sum, const int64_t *bad) {
  loss_of(loss, sum, bad);
  return 0;
}

int lot_give(void *x, void *y, const int64_t *step, Lot lot) {
  give_of(x, y, step, lot);
  return 0;
}

int lot_check(int64_t *bad, const void *y, const NnrtMessage *messages, const int64_t *step,
              Lot lot) {
  int64_t before = *bad;
  check_of(bad, y, messages, step, lot);
  if (*bad == before) return 0;
  return nnrt_error(NNRT_COMM, "move %d of elements of %d bytes: %lld are wrong", lot.move,
                    lot.width, (long long)(*bad - before));
}
