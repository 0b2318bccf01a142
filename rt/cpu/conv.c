// Convolution and its gradients, over one to three spatial dimensions, by the fastest of four ways:
// the library (library.h), products of plain matrices, of 1x1 filters on few positions
// (conv_1x1.c), products per tap of the filter, of small maps with many channels (taps.c), and our
// own kernels of all shapes (conv_own.c).
//
// A convolution of bf16 is the library's, or that of f32 on copies.

#include "conv_1x1.h"
#include "conv_own.h"
#include "library.h"
#include "taps.h"
#include "wide.h"

static bool conv_of(Conv *c, int64_t ndim, const int64_t *x_shape, const int64_t *w_shape,
                    const int64_t *y_shape, const int64_t *strides, const int64_t *pads,
                    const int64_t *dilations, int64_t group, bool channels_last) {
  *c = (Conv){.ndim = ndim, .group = group, .channels_last = channels_last};
  if (ndim < 3 || ndim > MAX_DIMS) {
    nnrt_error(NNRT_UNSUPPORTED, "conv: %lld spatial dimensions, of at most %d",
               (long long)ndim - 2, MAX_DIMS - 2);
    return false;
  }
  for (int64_t i = 0; i < ndim; i++) {
    // oneDNN has channels before the spatial dimensions.
    int64_t from = !channels_last || i == 0 ? i : i == 1 ? ndim - 1 : i - 1;
    c->x[i] = x_shape[from];
    c->y[i] = y_shape[from];
  }
  // Groups are a dimension of their own in front of the weights.
  int64_t at = 0;
  if (group > 1) c->w[at++] = group;
  c->w[at++] = w_shape[0] / group;
  for (int64_t i = 1; i < ndim; i++)
    c->w[at++] = w_shape[i];
  c->w_ndim = at;
  for (int64_t i = 0; i < ndim - 2; i++) {
    c->stride[i] = strides[i];
    // In oneDNN a dilation of 0 is a dense filter.
    c->dilation[i] = dilations[i] - 1;
    c->low[i] = pads[i];
    c->high[i] = pads[ndim - 2 + i];
  }
  return true;
}

// A convolution of bf16 as that of f32 on copies.
typedef struct Copied {
  NnrtPrep base;
  NnrtPrep *wide;   // of f32
  int64_t n[3];     // elements of the result and the two operands
  bool wide_result; // the result is f32
} Copied;

static void copied_free(NnrtPrep *p) {
  nnrt_prep_free(((Copied *)p)->wide);
  free(p);
}

static int f32_run(NnrtPrep *p, float *result, const float *first, const float *second) {
  if (taps_is(p)) return taps_run(p, result, first, second);
  if (conv_own_is(p)) return conv_own_run(p, result, first, second);
  return library_conv_run(p, result, first, second);
}

static void convert(bool narrow, void *to, const void *from, int64_t n) {
  int parts = threads_for(n);
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    Part p = part_of(n, 16, i, parts);
    if (narrow)
      wide_to(NNRT_bf16, (uint16_t *)to + p.from, (const float *)from + p.from, p.to - p.from);
    else
      wide_from(NNRT_bf16, (float *)to + p.from, (const uint16_t *)from + p.from, p.to - p.from);
  }
}

static int copied_run(Copied *c, void *result, const void *first, const void *second) {
  int64_t line = 64 / sizeof(float), at[4] = {0};
  for (int i = 0; i < 3; i++)
    at[i + 1] = at[i] + (c->wide_result && i == 0 ? 0 : (c->n[i] + line - 1) / line * line);
  float *copy = kernel_outer_scratch((size_t)at[3] * sizeof *copy);
  if (!copy) return scratch_failed((size_t)at[3] * sizeof *copy);
  convert(false, copy + at[1], first, c->n[1]);
  convert(false, copy + at[2], second, c->n[2]);
  float *y = c->wide_result ? result : copy;
  int code = f32_run(c->wide, y, copy + at[1], copy + at[2]);
  if (!code && !c->wide_result) convert(true, result, y, c->n[0]);
  return code;
}

static NnrtPrep *f32_prep(const char *name, const Conv *c, Direction direction) {
  if (taps_fit(c, direction)) return taps_prep(name, c, direction);
  return library_has_conv(NNRT_f32, c, direction) ? library_conv_prep(name, NNRT_f32, c, direction)
                                                  : conv_own_prep(name, c, direction);
}

static NnrtPrep *copied_prep(const char *name, const Conv *c, Direction direction) {
  Copied *p = calloc(1, sizeof *p);
  if (!p) {
    nnrt_error(NNRT_MEMORY, "%s: no memory", name);
    return NULL;
  }
  p->base.free = copied_free;
  p->wide = f32_prep(name, c, direction);
  p->wide_result = direction == BACK_W;
  // Operands are in the order x, w, y.
  int64_t n[] = {product(c->x, c->ndim), product(c->w, c->w_ndim), product(c->y, c->ndim)};
  int result = direction == BACK_X ? 0 : direction == BACK_W ? 1 : 2;
  int operand = 1;
  for (int i = 0; i < 3; i++)
    p->n[i == result ? 0 : operand++] = n[i];
  if (p->wide) return &p->base;
  free(p);
  return NULL;
}

// -- The kernels -------------------------------------------------------------------------------

static NnrtPrep *prep(NnrtDtype type, const char *name, const Conv *c, Direction direction) {
  if (conv_1x1_fits(type, c, direction)) return conv_1x1_prep(type, c, direction);
  if (type == NNRT_f32) return f32_prep(name, c, direction);
  return library_has_conv(NNRT_bf16, c, direction)
             ? library_conv_prep(name, NNRT_bf16, c, direction)
             : copied_prep(name, c, direction);
}

static int run(NnrtPrep *p, NnrtDtype type, void *result, const void *first, const void *second) {
  if (conv_1x1_is(p)) return conv_1x1_run(p, result, first, second);
  if (p->free == copied_free) return copied_run((Copied *)p, result, first, second);
  if (type == NNRT_f32) return f32_run(p, result, first, second);
  return library_conv_run(p, result, first, second);
}

#define KERNEL(name, direction, type, R, result, T, first, second)                                 \
  NnrtPrep *nnrt_##name##_prep_##type(                                                             \
      int64_t ndim, const int64_t *x_shape, const int64_t *w_shape, const int64_t *y_shape,        \
      const int64_t *strides, const int64_t *pads, const int64_t *dilations, int64_t group,        \
      bool channels_last) {                                                                        \
    Conv c;                                                                                        \
    if (!conv_of(&c, ndim, x_shape, w_shape, y_shape, strides, pads, dilations, group,             \
                 channels_last))                                                                   \
      return NULL;                                                                                 \
    return prep(NNRT_##type, #name, &c, direction);                                                \
  }                                                                                                \
  int nnrt_##name##_##type(NnrtPrep *p, R *result, const T *first, const T *second) {              \
    return run(p, NNRT_##type, result, first, second);                                             \
  }
#define KERNELS(type, T)                                                                           \
  KERNEL(conv, FORWARD, type, T, y, T, x, w)                                                       \
  KERNEL(conv_back_x, BACK_X, type, T, dx, T, w, dy)                                               \
  KERNEL(conv_back_w, BACK_W, type, float, dw, T, x, dy)

KERNELS(f32, float)
KERNELS(bf16, uint16_t)
