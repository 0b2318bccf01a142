// The kernels of turns.c: on CPUs in turns_cpu.c, on a GPU in tests/gpu/turns.cu.  Both run the
// functions here that end in _of, in one thread.

#ifndef TESTS_RT_TURNS_H
#define TESTS_RT_TURNS_H

#include "nnrt.h"
#include "nnrt_random.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PART = 24, COLUMNS = 5 }; // elements of a rank's part of a segment; columns of x

// out[i] = a hash of segment, rank and slice (`who`), and of the slice's rows.
int turn_make(int64_t *out, const float *x, const int64_t *labels, int64_t rows, int64_t who);
// out[i] = a hash of out[i] and in[i]
int turn_mix(int64_t *out, const int64_t *in);
// sum += all of out; or = if `first`
int turn_sum(int64_t *sum, const int64_t *out, bool first);
// loss = the low bits of the sum
int turn_loss(float *loss, const int64_t *sum);

M_FN int64_t mixed(int64_t a, int64_t b) {
  return (int64_t)(nnrt_random_mix((uint64_t)a * 3 + (uint64_t)b) >> 24); // sums of them fit
}

M_FN void make_of(int64_t *out, const float *x, const int64_t *labels, int64_t rows, int64_t who) {
  for (int64_t i = 0; i < PART; i++) {
    out[i] = mixed(who, i);
    for (int64_t k = 0; k < rows && x; k++)
      out[i] = mixed(out[i], labels[k] + (int64_t)(1e6f * x[k * COLUMNS + i % COLUMNS]));
  }
}

M_FN void mix_of(int64_t *out, const int64_t *in) {
  for (int64_t i = 0; i < PART; i++)
    out[i] = mixed(out[i], in[i]);
}

M_FN void sum_of(int64_t *sum, const int64_t *out, bool first) {
  int64_t all = first ? 0 : *sum;
  for (int64_t i = 0; i < PART; i++)
    all += out[i];
  *sum = all;
}

M_FN void loss_of(float *loss, const int64_t *sum) {
  *loss = (float)(*sum & 0xffffff);
}

#ifdef __cplusplus
}
#endif

#endif
