// See heap.h.

#include "heap.h"

#include <stdlib.h> // defines __GLIBC__
#ifdef __GLIBC__
#include <malloc.h>
#endif

void heap_keep(void) {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}
