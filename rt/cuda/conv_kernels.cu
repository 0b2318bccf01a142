// The kernels of convolution.  cuDNN's tensor cores need channels last in the weights, too; ours
// are (o, c, window), so they are transposed before, and their gradients after.  Convolutions that
// cuDNN does not support run directly, with a thread per element of the result, or a block per
// weight: right, but not fast.

#include "conv.h"
#include "device.cuh"

namespace {

template <class T>
__global__ void weights_last(T *to, const T *from, int64_t o, int64_t c, int64_t window) {
  for (int64_t i = first_thread(); i < o * c * window; i += all_threads()) {
    int64_t at_c = i % c, at_w = i / c % window, at_o = i / c / window;
    to[i] = from[(at_o * c + at_c) * window + at_w];
  }
}

template <class T>
__global__ void weights_back(float *to, const T *from, int64_t o, int64_t c, int64_t window,
                             bool last) {
  for (int64_t i = first_thread(); i < o * c * window; i += all_threads()) {
    // One index of dw, in our layout, and one of the plan's result.
    int64_t at_w = i % window, at_c = i / window % c, at_o = i / window / c;
    to[i] = load(from + (last ? (at_o * window + at_w) * c + at_c : i));
  }
}

// Whether element i of the padded tensor is an element of the other, and its index there.
__device__ inline bool inside_pad(const ConvPad &e, int64_t i, int64_t *from) {
  // From the innermost dimension outwards.
  int64_t at[3], rest = i / e.inner;
  for (int d = 2; d >= 0; d--) {
    at[d] = rest % e.padded[d] - e.before[d];
    rest /= e.padded[d];
    if (at[d] < 0 || at[d] >= e.size[d]) return false;
  }
  *from = (((rest * e.size[0] + at[0]) * e.size[1] + at[1]) * e.size[2] + at[2]) * e.inner +
          i % e.inner;
  return true;
}

template <class T> __global__ void pad(T *to, const T *from, ConvPad e, int64_t n) {
  for (int64_t i = first_thread(); i < n; i += all_threads()) {
    int64_t j;
    if (inside_pad(e, i, &j))
      to[i] = from[j];
    else
      store(to + i, 0);
  }
}

template <class T> __global__ void crop(T *to, const T *from, ConvPad e, int64_t n) {
  for (int64_t i = first_thread(); i < n; i += all_threads()) {
    int64_t j;
    if (inside_pad(e, i, &j)) to[j] = from[i];
  }
}

// Coordinates in a tensor or a window, row-major.
struct At {
  int64_t d[3];
};
__device__ inline At position_of(int64_t i, const int64_t *size) {
  At at;
  at.d[2] = i % size[2];
  at.d[1] = i / size[2] % size[1];
  at.d[0] = i / size[2] / size[1];
  return at;
}

__device__ inline int64_t offset_of(const int64_t *stride, int64_t n, int64_t c, const At &at) {
  return n * stride[0] + c * stride[1] + at.d[0] * stride[2] + at.d[1] * stride[3] +
         at.d[2] * stride[4];
}

// The coordinates in x that element `w` of the window at `y` reads; false: in the padding.
__device__ inline bool window_reads(const ConvShape &s, const At &y, const At &w, At *x) {
  for (int i = 0; i < 3; i++) {
    x->d[i] = y.d[i] * s.stride[i] - s.low[i] + w.d[i] * s.dilation[i];
    if (x->d[i] < 0 || x->d[i] >= s.x[i]) return false;
  }
  return true;
}

template <class T> __global__ void direct(T *y, const T *x, const T *w, ConvShape s) {
  int64_t plane = s.y[0] * s.y[1] * s.y[2], window = s.w[0] * s.w[1] * s.w[2], c = s.c / s.group;
  for (int64_t i = first_thread(); i < s.n * s.o * plane; i += all_threads()) {
    // Channels of x from `first` on belong to the group of output channel o.
    At at = position_of(i % plane, s.y), from;
    int64_t o = i / plane % s.o, n = i / plane / s.o, first = o / (s.o / s.group) * c;
    float sum = 0;
    // Padding adds nothing.
    for (int64_t k = 0; k < window; k++)
      if (window_reads(s, at, position_of(k, s.w), &from))
        for (int64_t j = 0; j < c; j++)
          sum += load(x + offset_of(s.x_stride, n, first + j, from)) *
                 load(w + (o * c + j) * window + k);
    store(y + offset_of(s.y_stride, n, o, at), sum);
  }
}

template <class T> __global__ void direct_back_x(T *dx, const T *w, const T *dy, ConvShape s) {
  int64_t plane = s.x[0] * s.x[1] * s.x[2], window = s.w[0] * s.w[1] * s.w[2], c = s.c / s.group;
  for (int64_t i = first_thread(); i < s.n * s.c * plane; i += all_threads()) {
    At at = position_of(i % plane, s.x), to;
    // Output channels from `first` on read this channel.
    int64_t channel = i / plane % s.c, n = i / plane / s.c, outs = s.o / s.group;
    int64_t first = channel / c * outs;
    float sum = 0;
    for (int64_t k = 0; k < window; k++) {
      At in = position_of(k, s.w);
      bool read = true; // by the window of `to`
      for (int j = 0; j < 3; j++) {
        // Inverts the forward index: only multiples of the stride are read by a window.
        int64_t from = at.d[j] + s.low[j] - in.d[j] * s.dilation[j];
        to.d[j] = from / s.stride[j];
        read = read && from >= 0 && from % s.stride[j] == 0 && to.d[j] < s.y[j];
      }
      for (int64_t j = 0; read && j < outs; j++)
        sum += load(dy + offset_of(s.y_stride, n, first + j, to)) *
               load(w + ((first + j) * c + channel % c) * window + k);
    }
    store(dx + offset_of(s.x_stride, n, channel, at), sum);
  }
}

template <class T> __global__ void direct_back_w(float *dw, const T *x, const T *dy, ConvShape s) {
  int64_t plane = s.y[0] * s.y[1] * s.y[2], window = s.w[0] * s.w[1] * s.w[2], c = s.c / s.group;
  for (int64_t i = blockIdx.x; i < s.o * c * window; i += gridDim.x) {
    // A block per weight: its threads share the sum over images and positions.
    int64_t k = i % window, o = i / window / c;
    int64_t channel = o / (s.o / s.group) * c + i / window % c;
    At in = position_of(k, s.w), from;
    float sum = 0;
    for (int64_t j = threadIdx.x; j < s.n * plane; j += blockDim.x) {
      At at = position_of(j % plane, s.y);
      if (window_reads(s, at, in, &from))
        sum += load(x + offset_of(s.x_stride, j / plane, channel, from)) *
               load(dy + offset_of(s.y_stride, j / plane, o, at));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) dw[i] = sum;
  }
}

int64_t volume_of(const int64_t *size) {
  return size[0] * size[1] * size[2];
}

} // namespace

int conv_weights_last(NnrtDtype type, void *to, const void *from, int64_t o, int64_t c,
                      int64_t window) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(weights_last<T>, blocks_for(o * c * window), BLOCK, 0, (T *)to, (const T *)from,
                  o, c, window);
  });
}

int conv_weights_back(NnrtDtype type, float *to, const void *from, int64_t o, int64_t c,
                      int64_t window, bool last) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(weights_back<T>, blocks_for(o * c * window), BLOCK, 0, to, (const T *)from, o, c,
                  window, last);
  });
}

int conv_pad(NnrtDtype type, void *to, const void *from, const ConvPad *e) {
  int64_t n = e->outer * volume_of(e->padded) * e->inner;
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(pad<T>, blocks_for(n), BLOCK, 0, (T *)to, (const T *)from, *e, n);
  });
}

int conv_crop(NnrtDtype type, void *to, const void *from, const ConvPad *e) {
  int64_t n = e->outer * volume_of(e->padded) * e->inner;
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(crop<T>, blocks_for(n), BLOCK, 0, (T *)to, (const T *)from, *e, n);
  });
}

int conv_direct(NnrtDtype type, const ConvShape *s, void *y, const void *x, const void *w) {
  int blocks = blocks_for(s->n * s->o * volume_of(s->y));
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(direct<T>, blocks, BLOCK, 0, (T *)y, (const T *)x, (const T *)w, *s);
  });
}

int conv_direct_back_x(NnrtDtype type, const ConvShape *s, void *dx, const void *w,
                       const void *dy) {
  int blocks = blocks_for(s->n * s->c * volume_of(s->x));
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(direct_back_x<T>, blocks, BLOCK, 0, (T *)dx, (const T *)w, (const T *)dy, *s);
  });
}

int conv_direct_back_w(NnrtDtype type, const ConvShape *s, float *dw, const void *x,
                       const void *dy) {
  int blocks = blocks_for(s->o * s->c / s->group * volume_of(s->w) * BLOCK);
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(direct_back_w<T>, blocks, BLOCK, 0, dw, (const T *)x, (const T *)dy, *s);
  });
}
