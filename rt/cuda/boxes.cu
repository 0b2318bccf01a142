// Adds a box of one tensor to a box of another: boxes.h.  shape.cu copies boxes.

#include "../boxes.h"

#include "box.cuh"

template <class T, class I> static __global__ void add_each(T *y, const T *x, BoxOf<I> b, I n) {
  for (I i = (I)first_thread(); i < n; i += (I)all_threads()) {
    int64_t x_at, y_at;
    find_element(b, i, &x_at, &y_at);
    y[y_at] += x[x_at];
  }
}

template <class T> static int add_box(T *y, const T *x, const Box *b) {
  CopyBox c;
  c.ndim = b->ndim;
  // A box has a place in each of the tensors.
  y += nnrt_box_strides(b, b->to_dim, b->to_at, c.y_stride);
  x += nnrt_box_strides(b, b->from_dim, b->from_at, c.x_stride);
  for (int d = 0; d < c.ndim; d++)
    c.shape[d] = b->size[d];
  simplify(&c);
  int64_t n = product(c.shape, c.ndim), far = n;
  if (n == 0) return NNRT_OK;
  for (int d = 0; d < c.ndim; d++) { // a stride must fit into an index, too
    far = far > c.x_stride[d] ? far : c.x_stride[d];
    far = far > c.y_stride[d] ? far : c.y_stride[d];
  }
  return with_index(far, [&](auto index) {
    using I = decltype(index);
    return launch(add_each<T, I>, blocks_for(n), BLOCK, 0, y, x, box_of<I>(c), (I)n);
  });
}

int nnrt_box_add(void *to, const void *from, NnrtDtype t, const Box *b) {
  return t == NNRT_f32 ? add_box((float *)to, (const float *)from, b)
                       : add_box((int64_t *)to, (const int64_t *)from, b);
}
