// Four vectors of four floats, transposed.

#ifndef NNRT_TRANSPOSE_H
#define NNRT_TRANSPOSE_H

typedef float Vec4 __attribute__((vector_size(16), aligned(4), may_alias));

static inline void transpose_4(Vec4 v[4]) {
  Vec4 a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
  Vec4 b = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  Vec4 c = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
  Vec4 d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

#endif
