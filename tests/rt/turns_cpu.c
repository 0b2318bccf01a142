// The kernels of turns.h on CPUs.

#include "turns.h"

int turn_make(int64_t *out, const float *x, const int64_t *labels, int64_t rows, int64_t who) {
  make_of(out, x, labels, rows, who);
  return 0;
}

int turn_mix(int64_t *out, const int64_t *in) {
  mix_of(out, in);
  return 0;
}

int turn_sum(int64_t *sum, const int64_t *out, bool first) {
  sum_of(sum, out, first);
  return 0;
}

int turn_loss(float *loss, const int64_t *sum) {
  loss_of(loss, sum);
  return 0;
}
