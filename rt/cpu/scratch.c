// One block of memory per rank for temporary data of a running kernel: packed panels of matrices,
// reordered tensors, partial sums.  Every call overwrites the one before.  A second block is for
// kernels that run another one.

#include <pthread.h>

#include "kernel.h"

typedef struct Block {
  size_t bytes;
  char *at;
} Block;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key, outer_key;

static void block_free(void *p) {
  Block *b = p;
  free(b->at);
  free(b);
}

static void make_key(void) {
  // Without a key there is no block, and scratch would fail for every caller.
  if (pthread_key_create(&key, block_free) || pthread_key_create(&outer_key, block_free)) abort();
}

static void *block_of(const pthread_key_t *of, size_t bytes) {
  Block *b = pthread_getspecific(*of);
  if (!b) {
    // The first use of this thread.
    b = calloc(1, sizeof *b);
    if (!b) return NULL;
    if (pthread_setspecific(*of, b)) {
      free(b);
      return NULL;
    }
  }
  bytes = round_64(bytes ? bytes : 1);
  if (b->bytes < bytes) {
    free(b->at);
    // Contents are not kept: the block is replaced by a larger one.
    b->at = aligned_alloc(64, bytes);
    b->bytes = b->at ? bytes : 0;
  }
  return b->at;
}

void *kernel_scratch(size_t bytes) {
  pthread_once(&once, make_key);
  return block_of(&key, bytes);
}

void *kernel_outer_scratch(size_t bytes) {
  pthread_once(&once, make_key);
  return block_of(&outer_key, bytes);
}

int scratch_failed(size_t bytes) {
  return nnrt_error(NNRT_MEMORY, "no memory for %zu bytes of scratch", bytes);
}

void nnrt_prep_free(NnrtPrep *p) {
  if (p) p->free(p);
}
