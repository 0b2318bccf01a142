// Arrays that grow, in an arena:
//
//     Vec(int) sizes = {0};
//     vec_push(arena, &sizes, 3);
//     for (int i = 0; i < sizes.n; i++) use(sizes.at[i]);

#ifndef BASE_VEC_H
#define BASE_VEC_H

#include "base/arena.h"

#define Vec(type)                                                                                  \
  struct {                                                                                         \
    type *at;                                                                                      \
    int n, cap;                                                                                    \
  }

#define vec_push(arena, v, ...)                                                                    \
  ((v)->n == (v)->cap ? (void)((v)->at = vec_grow((arena), (v)->at, &(v)->cap, sizeof *(v)->at))   \
                      : (void)0,                                                                   \
   (void)((v)->at[(v)->n++] = (__VA_ARGS__)))

// Returns a copy of `at` with capacity for at least one more element; `*cap` is the new capacity.
void *vec_grow(Arena *a, const void *at, int *cap, size_t size);

#endif
