// Depthwise convolutions and their gradients: each channel is a group.
//
//     y[p]  = sum over taps t of  x[q] w[t]     for each channel
//     dx[q] = sum over taps t of dy[p] w[t]
//     dw[t] = sum over p of      dy[p] x[q]
//
// With channels last, vectors go along channels; the weights are transposed first, (taps,
// channels).  With channels first, a thread takes one channel of one image; positions and taps are
// looked up in a table.
//
// No sum depends on the number of threads.

#include "conv_own.h"

enum {
  CHANNELS = 16,  // of a thread in the gradient of w, channels last: a cache line
  POSITIONS = 256 // that are summed before they are added to others
};

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// -- Channels last -----------------------------------------------------------------------------

NNRT_CLONES static void add_products(float *restrict y, const float *restrict x,
                                     const float *restrict w, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i] * w[i];
}

static int data_last(const ConvOwn *s, float *y, const float *x, const float *w, int threads) {
  bool forward = s->direction == FORWARD;
  int64_t channels = s->group, ins = forward ? s->x_positions : s->y_positions,
          outs = forward ? s->y_positions : s->x_positions;
  size_t weights = round_64((size_t)(s->taps * channels) * sizeof(float));
  size_t each = round_64((size_t)s->taps * sizeof(int64_t)),
         bytes = weights + (size_t)threads * each;
  char *scratch = kernel_scratch(bytes);
  if (!scratch) return scratch_failed(bytes);
  float *across = (float *)(void *)scratch;
  for (int64_t c = 0; c < channels; c++)
    for (int64_t t = 0; t < s->taps; t++)
      across[t * channels + c] = w[c * s->taps + t];
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < s->batch * outs; i++) {
    int64_t *source = (int64_t *)(void *)(scratch + weights + (size_t)omp_get_thread_num() * each);
    conv_own_sources(s, i % outs, source);
    const float *image = x + i / outs * ins * channels;
    float *to = y + i * channels;
    memset(to, 0, (size_t)channels * sizeof *to);
    for (int64_t t = 0; t < s->taps; t++)
      if (source[t] >= 0)
        add_products(to, image + source[t] * channels, across + t * channels, channels);
  }
  return NNRT_OK;
}

// dw of the channels from `c` on; sum and part are (taps, CHANNELS).
static void weights_of(const ConvOwn *s, float *dw, const float *x, const float *dy, int64_t c,
                       float *sum, float *part, int64_t *source) {
  int64_t channels = s->group, n = least(CHANNELS, channels - c), all = s->batch * s->y_positions;
  memset(sum, 0, (size_t)(s->taps * CHANNELS) * sizeof *sum);
  for (int64_t i = 0; i < all; i += POSITIONS) {
    memset(part, 0, (size_t)(s->taps * CHANNELS) * sizeof *part);
    for (int64_t p = i; p < least(i + POSITIONS, all); p++) {
      conv_own_sources(s, p % s->y_positions, source);
      const float *image = x + p / s->y_positions * s->x_positions * channels + c;
      for (int64_t t = 0; t < s->taps; t++)
        if (source[t] >= 0)
          add_products(part + t * CHANNELS, image + source[t] * channels, dy + p * channels + c, n);
    }
    for (int64_t j = 0; j < s->taps * CHANNELS; j++)
      sum[j] += part[j];
  }
  for (int64_t k = 0; k < n; k++)
    for (int64_t t = 0; t < s->taps; t++)
      dw[(c + k) * s->taps + t] = sum[t * CHANNELS + k];
}

static int weights_last(const ConvOwn *s, float *dw, const float *x, const float *dy, int threads) {
  size_t sums = round_64((size_t)(s->taps * CHANNELS) * sizeof(float));
  size_t each = 2 * sums + round_64((size_t)s->taps * sizeof(int64_t));
  char *scratch = kernel_scratch((size_t)threads * each);
  if (!scratch) return scratch_failed((size_t)threads * each);
#pragma omp parallel for num_threads(threads)
  for (int64_t c = 0; c < s->group; c += CHANNELS) {
    char *own = scratch + (size_t)omp_get_thread_num() * each;
    weights_of(s, dw, x, dy, c, (float *)(void *)own, (float *)(void *)(own + sums),
               (int64_t *)(void *)(own + 2 * sums));
  }
  return NNRT_OK;
}

// -- Channels first ----------------------------------------------------------------------------

// Returns (positions, taps) of sources in scratch.
static int64_t *table_of(const ConvOwn *s, int64_t positions) {
  int64_t *table = kernel_scratch((size_t)(positions * s->taps) * sizeof *table);
  for (int64_t p = 0; table && p < positions; p++)
    conv_own_sources(s, p, table + p * s->taps);
  return table;
}

static int data_first(const ConvOwn *s, float *y, const float *x, const float *w, int threads) {
  bool forward = s->direction == FORWARD;
  int64_t ins = forward ? s->x_positions : s->y_positions,
          outs = forward ? s->y_positions : s->x_positions;
  const int64_t *table = table_of(s, outs);
  if (!table) return scratch_failed((size_t)(outs * s->taps) * sizeof *table);
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < s->batch * s->group; i++) {
    const float *of = w + i % s->group * s->taps, *plane = x + i * ins;
    for (int64_t p = 0; p < outs; p++) {
      float sum = 0;
      for (int64_t t = 0; t < s->taps; t++) {
        int64_t q = table[p * s->taps + t];
        if (q >= 0) sum += plane[q] * of[t];
      }
      y[i * outs + p] = sum;
    }
  }
  return NNRT_OK;
}

static int weights_first(const ConvOwn *s, float *dw, const float *x, const float *dy,
                         int threads) {
  const int64_t *table = table_of(s, s->y_positions);
  if (!table) return scratch_failed((size_t)(s->y_positions * s->taps) * sizeof *table);
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < s->group * s->taps; i++) {
    int64_t c = i / s->taps, t = i % s->taps;
    float sum = 0;
    for (int64_t b = 0; b < s->batch; b++) {
      const float *plane = x + (b * s->group + c) * s->x_positions;
      const float *of = dy + (b * s->group + c) * s->y_positions;
      for (int64_t from = 0; from < s->y_positions; from += POSITIONS) {
        float part = 0;
        for (int64_t p = from; p < least(from + POSITIONS, s->y_positions); p++) {
          int64_t q = table[p * s->taps + t];
          if (q >= 0) part += plane[q] * of[p];
        }
        sum += part;
      }
    }
    dw[i] = sum;
  }
  return NNRT_OK;
}

int conv_depthwise_run(const ConvOwn *s, float *result, const float *first, const float *second) {
  int threads = s->small ? 1 : omp_get_max_threads();
  bool last = s->channels_last;
  switch (s->direction) {
  case FORWARD:
    return last ? data_last(s, result, first, second, threads)
                : data_first(s, result, first, second, threads);
  case BACK_X:
    return last ? data_last(s, result, second, first, threads)
                : data_first(s, result, second, first, threads);
  case BACK_W: break;
  }
  return last ? weights_last(s, result, first, second, threads)
              : weights_first(s, result, first, second, threads);
}
