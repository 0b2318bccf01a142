// Weighted sums of taps along an axis, and the adjoint.
//
//     resample       a thread adds the taps of one element of y
//     resample_back  a thread adds, for one element of dx, the elements of dy that read it.  A first
//                    launch finds, for each position along the axis, the range of results with a tap
//                    on it; in a table of interpolation all of the range have one
//
// Sums are in f32, in the order of the table.

#include "device.cuh"

// The table as one value: m results with `taps` taps each, of n elements.
struct Taps {
  const int32_t *first;
  const float *weight;
  int64_t m, taps, n;
};

template <class T>
static __global__ void sum_taps(T *y, const T *x, Taps t, int64_t outer, int64_t inner) {
  for (int64_t i = first_thread(); i < outer * t.m * inner; i += all_threads()) {
    int64_t j = i % inner, o = i / inner % t.m, from = i / inner / t.m * t.n;
    float sum = 0;
    for (int64_t k = 0; k < t.taps; k++) {
      float w = t.weight[o * t.taps + k];
      int64_t at = (int64_t)t.first[o] + k;
      // A tap outside of x adds nothing.
      if (w != 0 && at >= 0 && at < t.n) sum += w * load(x + (from + at) * inner + j);
    }
    store(y + i, sum);
  }
}

// The results low .. high - 1 with a tap on position i; results in between may have none.
struct Range {
  int32_t low, high;
};

static __global__ void find_ranges(Range *range, Taps t) {
  for (int64_t i = first_thread(); i < t.n; i += all_threads()) {
    Range r = {0, 0};
    for (int64_t o = 0; o < t.m; o++) {
      int64_t k = i - t.first[o];
      if (k < 0 || k >= t.taps || t.weight[o * t.taps + k] == 0) continue;
      if (r.high == 0) r.low = (int32_t)o;
      r.high = (int32_t)o + 1;
    }
    range[i] = r;
  }
}

template <class T>
static __global__ void sum_readers(T *dx, const T *dy, Taps t, const Range *range, int64_t outer,
                                   int64_t inner) {
  for (int64_t i = first_thread(); i < outer * t.n * inner; i += all_threads()) {
    int64_t j = i % inner, at = i / inner % t.n, from = i / inner / t.n * t.m;
    Range r = range[at];
    float sum = 0;
    for (int64_t o = r.low; o < r.high; o++) {
      int64_t k = at - t.first[o];
      float w = k < 0 || k >= t.taps ? 0 : t.weight[o * t.taps + k];
      if (w != 0) sum += w * load(dy + (from + o) * inner + j);
    }
    store(dx + i, sum);
  }
}

template <class T> static int resample_of(T *y, const T *x, const Taps &t, const Axis &a) {
  int64_t count = a.outer * t.m * a.inner;
  if (count == 0) return NNRT_OK;
  return launch(sum_taps<T>, blocks_for(count), BLOCK, 0, y, x, t, a.outer, a.inner);
}

template <class T> static int resample_back_of(T *dx, const T *dy, const Taps &t, const Axis &a) {
  int64_t count = a.outer * t.n * a.inner;
  if (t.m > INT32_MAX)
    return nnrt_error(NNRT_UNSUPPORTED, "resample_back: %lld elements along an axis are too many",
                      (long long)t.m);
  if (count == 0) return NNRT_OK;
  Range *range = (Range *)nnrt_gpu_scratch(t.n * (int64_t)sizeof *range);
  if (!range) return NNRT_MEMORY;
  int code = launch(find_ranges, blocks_for(t.n), BLOCK, 0, range, t);
  if (code) return code;
  return launch(sum_readers<T>, blocks_for(count), BLOCK, 0, dx, dy, t, range, a.outer, a.inner);
}

#define RESAMPLES(suffix, C, T)                                                                    \
  int nnrt_resample_##suffix(C *y, const C *x, const int32_t *first, const float *weight,          \
                             int64_t ndim, const int64_t *x_shape, const int64_t *w_shape,         \
                             int64_t axis) {                                                       \
    Axis a = axis_of(ndim, x_shape, axis);                                                         \
    return resample_of<T>((T *)y, (const T *)x, Taps{first, weight, w_shape[0], w_shape[1], a.n},  \
                          a);                                                                      \
  }                                                                                                \
  int nnrt_resample_back_##suffix(C *dx, const int32_t *first, const float *weight, const C *dy,   \
                                  int64_t ndim, const int64_t *x_shape, const int64_t *w_shape,    \
                                  int64_t axis) {                                                  \
    Axis a = axis_of(ndim, x_shape, axis);                                                         \
    return resample_back_of<T>((T *)dx, (const T *)dy,                                             \
                               Taps{first, weight, w_shape[0], w_shape[1], a.n}, a);               \
  }
FOR_FLOATS(RESAMPLES)
