// Boxes of tensors on CPUs: boxes.h.

#include "../boxes.h"

#include "copy.h"

static Copy copy_of(const Box *b, int64_t *to_at, int64_t *from_at) {
  Copy c = {.ndim = b->ndim};
  // A box is a strided tensor within each of the two.
  *to_at = nnrt_box_strides(b, b->to_dim, b->to_at, c.y_stride);
  *from_at = nnrt_box_strides(b, b->from_dim, b->from_at, c.x_stride);
  memcpy(c.shape, b->size, (size_t)b->ndim * sizeof *c.shape);
  return c;
}

int nnrt_box_copy(void *to, const void *from, int64_t width, const Box *b) {
  int64_t to_at, from_at;
  Copy c = copy_of(b, &to_at, &from_at);
  // An empty box may begin past the end of its tensor.
  if (product(c.shape, c.ndim) == 0) return 0;
  copy_box((char *)to + to_at * width, (const char *)from + from_at * width, width, &c);
  return 0;
}

// Adds runs along the last dimension, which is contiguous in both tensors.
#define ADD(type)                                                                                  \
  do {                                                                                             \
    type *y = (type *)to + to_at;                                                                  \
    const type *x = (const type *)from + from_at;                                                  \
    _Pragma("omp parallel for num_threads(threads)") for (int64_t i = 0; i < rows; i++) {          \
      int64_t y_at = 0, x_at = 0, rest = i;                                                        \
      for (int64_t d = c.ndim - 2; d >= 0; d--) {                                                  \
        y_at += rest % c.shape[d] * c.y_stride[d];                                                 \
        x_at += rest % c.shape[d] * c.x_stride[d];                                                 \
        rest /= c.shape[d];                                                                        \
      }                                                                                            \
      for (int64_t j = 0; j < n; j++)                                                              \
        y[y_at + j] += x[x_at + j];                                                                \
    }                                                                                              \
  } while (0)

int nnrt_box_add(void *to, const void *from, NnrtDtype t, const Box *b) {
  int64_t to_at, from_at;
  Copy c = copy_of(b, &to_at, &from_at);
  int64_t rows = product(c.shape, c.ndim - 1), n = c.ndim > 0 ? c.shape[c.ndim - 1] : 1;
  int threads = threads_for(rows * n);
  if (t == NNRT_f32)
    ADD(float);
  else
    ADD(int64_t);
  return 0;
}
