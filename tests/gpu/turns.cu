// The kernels of tests/rt/turns.h on a GPU.

#include "turns.h"

#include "device.cuh"

#define KERNEL(name, params, ...)                                                                  \
  static __global__ void name##_there params {                                                     \
    name##_of(__VA_ARGS__);                                                                        \
  }

KERNEL(make, (int64_t * out, const float *x, const int64_t *labels, int64_t rows, int64_t who), out,
       x, labels, rows, who)
KERNEL(mix, (int64_t * out, const int64_t *in), out, in)
KERNEL(sum, (int64_t * sum, const int64_t *out, bool first), sum, out, first)
KERNEL(loss, (float *loss, const int64_t *sum), loss, sum)

int turn_make(int64_t *out, const float *x, const int64_t *labels, int64_t rows, int64_t who) {
  return launch(make_there, 1, 1, 0, out, x, labels, rows, who);
}

int turn_mix(int64_t *out, const int64_t *in) {
  return launch(mix_there, 1, 1, 0, out, in);
}

int turn_sum(int64_t *sum, const int64_t *out, bool first) {
  return launch(sum_there, 1, 1, 0, sum, out, first);
}

int turn_loss(float *loss, const int64_t *sum) {
  return launch(loss_there, 1, 1, 0, loss, sum);
}
