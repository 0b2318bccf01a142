// Depthwise convolutions and their gradients: each channel is a group.
//
//     y[p]  = sum over taps t of  x[q] w[t]     for each channel
//     dx[q] = sum over taps t of dy[p] w[t]
//     dw[t] = sum over p of      dy[p] x[q]
//
// A table of (positions, taps) is made first.  With channels last, vectors go along channels; the
// weights are transposed, (taps, channels).  With channels first, a thread takes one channel of one
// image.
//
// No sum depends on the number of threads.

#include "conv_own.h"
#include "transpose.h"

enum {
  CHANNELS = 16,  // that are summed together, a cache line
  POSITIONS = 256 // that are summed before they are added to others
};

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// Returns scratch that begins with (positions, taps) of sources, and has `more` bytes after it;
// NULL, with an error: no memory.
static int64_t *table_of(const ConvOwn *s, int64_t positions, size_t more) {
  size_t bytes = round_64((size_t)(positions * s->taps) * sizeof(int64_t)) + more;
  int64_t *table = kernel_scratch(bytes);
  if (!table) scratch_failed(bytes);
  for (int64_t p = 0; table && p < positions; p++)
    conv_own_sources(s, p, table + p * s->taps);
  return table;
}

// The memory after the table.
static char *after_table(const ConvOwn *s, int64_t *table, int64_t positions) {
  return (char *)table + round_64((size_t)(positions * s->taps) * sizeof *table);
}

// -- Channels last -----------------------------------------------------------------------------

// Lists the taps of a position that are in the map, and the rows of x that they read.
static int64_t list_taps(const ConvOwn *s, const int64_t *source, int64_t *tap, const float **row,
                         const float *image) {
  int64_t n = 0;
  for (int64_t t = 0; t < s->taps; t++) {
    if (source[t] < 0) continue;
    row[n] = image + source[t] * s->group;
    tap[n++] = t;
  }
  return n;
}

// y = sum of n rows of x times those of w (taps, channels).
NNRT_CLONES static void sum_taps(float *restrict y, const float *const *x, const int64_t *tap,
                                 int64_t n, const float *restrict w, int64_t channels) {
  int64_t c = 0;
  for (; c + CHANNELS <= channels; c += CHANNELS) {
    Vec4 sum[CHANNELS / 4] = {{0}};
    for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 4
      for (int j = 0; j < CHANNELS / 4; j++)
        sum[j] +=
            *(const Vec4 *)(x[i] + c + 4 * j) * *(const Vec4 *)(w + tap[i] * channels + c + 4 * j);
    }
#pragma GCC unroll 4
    for (int j = 0; j < CHANNELS / 4; j++)
      *(Vec4 *)(y + c + 4 * j) = sum[j];
  }
  for (; c < channels; c++) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
      sum += x[i][c] * w[tap[i] * channels + c];
    y[c] = sum;
  }
}

// sum (taps, CHANNELS) += n rows of x, of some channels, times dy.
NNRT_CLONES static void add_taps(float *restrict sum, const float *const *x, const int64_t *tap,
                                 int64_t n, const float *restrict dy, int64_t channels) {
  if (channels == CHANNELS) {
    Vec4 by[CHANNELS / 4];
#pragma GCC unroll 4
    for (int j = 0; j < CHANNELS / 4; j++)
      by[j] = *(const Vec4 *)(dy + 4 * j);
    for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 4
      for (int j = 0; j < CHANNELS / 4; j++)
        *(Vec4 *)(sum + tap[i] * CHANNELS + 4 * j) += *(const Vec4 *)(x[i] + 4 * j) * by[j];
    }
    return;
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < channels; j++)
      sum[tap[i] * CHANNELS + j] += x[i][j] * dy[j];
}

static int data_last(const ConvOwn *s, float *y, const float *x, const float *w, int threads) {
  bool forward = s->direction == FORWARD;
  int64_t channels = s->group, ins = forward ? s->x_positions : s->y_positions,
          outs = forward ? s->y_positions : s->x_positions;
  size_t weights = round_64((size_t)(s->taps * channels) * sizeof(float));
  size_t taps = (size_t)s->taps, each = round_64(taps * (sizeof(int64_t) + sizeof(float *)));
  int64_t *table = table_of(s, outs, weights + (size_t)threads * each);
  if (!table) return NNRT_MEMORY;
  char *scratch = after_table(s, table, outs);
  float *across = (float *)(void *)scratch;
  for (int64_t c = 0; c < channels; c++)
    for (int64_t t = 0; t < s->taps; t++)
      across[t * channels + c] = w[c * s->taps + t];
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < s->batch * outs; i++) {
    char *own = scratch + weights + (size_t)omp_get_thread_num() * each;
    int64_t *tap = (int64_t *)(void *)own;
    const float **row = (const float **)(void *)(own + taps * sizeof *tap);
    int64_t n = list_taps(s, table + i % outs * s->taps, tap, row, x + i / outs * ins * channels);
    sum_taps(y + i * channels, row, tap, n, across, channels);
  }
  return NNRT_OK;
}

// dw of the channels from `c` on; sum and part are (taps, CHANNELS).
static void weights_of(const ConvOwn *s, const int64_t *table, float *dw, const float *x,
                       const float *dy, int64_t c, float *sum, float *part, int64_t *tap,
                       const float **row) {
  int64_t channels = s->group, n = least(CHANNELS, channels - c), all = s->batch * s->y_positions;
  memset(sum, 0, (size_t)(s->taps * CHANNELS) * sizeof *sum);
  for (int64_t i = 0; i < all; i += POSITIONS) {
    memset(part, 0, (size_t)(s->taps * CHANNELS) * sizeof *part);
    for (int64_t p = i; p < least(i + POSITIONS, all); p++) {
      const float *image = x + p / s->y_positions * s->x_positions * channels + c;
      int64_t taps = list_taps(s, table + p % s->y_positions * s->taps, tap, row, image);
      add_taps(part, row, tap, taps, dy + p * channels + c, n);
    }
    for (int64_t j = 0; j < s->taps * CHANNELS; j++)
      sum[j] += part[j];
  }
  for (int64_t k = 0; k < n; k++)
    for (int64_t t = 0; t < s->taps; t++)
      dw[(c + k) * s->taps + t] = sum[t * CHANNELS + k];
}

static int weights_last(const ConvOwn *s, float *dw, const float *x, const float *dy, int threads) {
  size_t taps = (size_t)s->taps, sums = round_64(taps * CHANNELS * sizeof(float));
  size_t each = 2 * sums + round_64(taps * (sizeof(int64_t) + sizeof(float *)));
  int64_t *table = table_of(s, s->y_positions, (size_t)threads * each);
  if (!table) return NNRT_MEMORY;
  char *scratch = after_table(s, table, s->y_positions);
#pragma omp parallel for num_threads(threads)
  for (int64_t c = 0; c < s->group; c += CHANNELS) {
    char *own = scratch + (size_t)omp_get_thread_num() * each, *tap = own + 2 * sums;
    weights_of(s, table, dw, x, dy, c, (float *)(void *)own, (float *)(void *)(own + sums),
               (int64_t *)(void *)tap, (const float **)(void *)(tap + taps * sizeof(int64_t)));
  }
  return NNRT_OK;
}

// -- Channels first ----------------------------------------------------------------------------

static int data_first(const ConvOwn *s, float *y, const float *x, const float *w, int threads) {
  bool forward = s->direction == FORWARD;
  int64_t ins = forward ? s->x_positions : s->y_positions,
          outs = forward ? s->y_positions : s->x_positions;
  const int64_t *table = table_of(s, outs, 0);
  if (!table) return NNRT_MEMORY;
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
  const int64_t *table = table_of(s, s->y_positions, 0);
  if (!table) return NNRT_MEMORY;
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
