// Growth of Vec: the capacity doubles; the old array remains allocated in the arena.

#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

void *vec_grow(Arena *a, const void *at, int *cap, size_t size) {
  int old = *cap;
  *cap = old ? 2 * old : 8;
  char *grown = arena_alloc_array(a, (size_t)*cap, size);
  if (old) memcpy(grown, at, (size_t)old * size);
  return grown;
}
