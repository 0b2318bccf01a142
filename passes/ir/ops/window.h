// Windows that slide over the spatial dimensions of a tensor, for convolution and pooling.
//
// Along one dimension, output position o reads input positions
//
//     o * stride - before + k * dilation      for k = 0 .. kernel-1
//
// of which those outside 0 .. in-1 are padding.  Up to three dimensions; ops with fewer have extra
// leading ones of length 1, so that all loops have three levels.

#ifndef IR_OPS_WINDOW_H
#define IR_OPS_WINDOW_H

#include "ir/ops/einsum.h"

enum { MAX_SPATIAL = 3 };

// The geometry of one op.  x is n c spatial, or n spatial c.  in, out and kernel are (z, y, x), and
// so are the remaining arrays.
typedef struct Window {
  int64_t n, c_in, c_out;
  bool channels_last;
  int64_t in[MAX_SPATIAL], out[MAX_SPATIAL], kernel[MAX_SPATIAL];
  int64_t stride[MAX_SPATIAL], dilation[MAX_SPATIAL];
  int64_t before[MAX_SPATIAL], after[MAX_SPATIAL];
} Window;

// The number of spatial dimensions, ndim - 2; an error if it is not 1 to 3.
bool window_ndim(const Op *op, int ndim, int *n_spatial, Diag *d);

// Takes strides, pads and dilations from the attributes, and the rest from the types of the input
// and the output side; a NULL type leaves its part zero.  The types must have equally many
// dimensions, one that window_ndim allows.  Reports lists of the wrong length and illegal values.
bool window_init(Window *w, const Op *op, const Type *x, const Type *y, const int64_t *kernel,
                 Diag *d);

// The output length along each of the last `n` dimensions; false after an error.
bool window_output(const Window *w, const Op *op, int n, int64_t *out, Diag *d);

// The offset of an element of the input or output side, by batch, channel and position.
static inline int64_t window_at(const Window *w, const int64_t *size, int64_t channels, int64_t n,
                                int64_t c, const int64_t *at) {
  if (w->channels_last)
    return (((n * size[0] + at[0]) * size[1] + at[1]) * size[2] + at[2]) * channels + c;
  return (((n * channels + c) * size[0] + at[0]) * size[1] + at[1]) * size[2] + at[2];
}

// The input position that kernel position `k` reads for output position `o`; false if it is
// padding.
static inline bool window_input(const Window *w, const int64_t *o, const int64_t *k, int64_t *at) {
  for (int i = 0; i < MAX_SPATIAL; i++) {
    at[i] = o[i] * w->stride[i] - w->before[i] + k[i] * w->dilation[i];
    if (at[i] < 0 || at[i] >= w->in[i]) return false;
  }
  return true;
}

// The kernel positions first .. end-1 whose input position along dimension `i` is in low .. high-1,
// for the output position `o`.
static inline void window_range(const Window *w, int i, int64_t o, int64_t low, int64_t high,
                                int64_t *first, int64_t *end) {
  int64_t start = o * w->stride[i] - w->before[i], step = w->dilation[i];
  *first = start >= low ? 0 : (low - start + step - 1) / step;
  *end = start >= high ? 0 : (high - start + step - 1) / step;
  if (*end > w->kernel[i]) *end = w->kernel[i];
  if (*end < *first) *end = *first;
}

#define for_each_position(p, size)                                                                 \
  for (int64_t p[MAX_SPATIAL] = {0}; p[0] < (size)[0]; p[0]++)                                     \
    for (p[1] = 0; p[1] < (size)[1]; p[1]++)                                                       \
      for (p[2] = 0; p[2] < (size)[2]; p[2]++)

// Adds "n c y^ x^" or "n y^ x^ c" to an einsum; `letters` has one for each spatial dimension.
void window_term(Einsum *e, const char *n, const char *c, const char *letters, int n_spatial,
                 bool channels_last);

#endif
