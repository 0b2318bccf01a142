// Arenas: a list of chunks, each twice as large as the previous one and filled from the front.
//
//     chunk   [ block ][ block ][ not yet handed out ...  ]
//                                ^ used                   ^ size
//
// Chunks come zeroed from calloc, so blocks are zeroed.  The first block begins a line of the
// cache, and so do all blocks in an arena of structs of one or two lines.  A block larger than the
// next chunk gets a chunk of its own size.  Under AddressSanitizer the unallocated bytes are
// poisoned, and so is a gap after every block, so that an overrun is detected.

#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
enum { GAP = 16 };
#else
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
enum { GAP = 0 };
#endif

enum { ALIGN = 16, LINE = 64, FIRST_CHUNK = 4 << 10, LARGEST_CHUNK = 4 << 20 };

typedef struct Chunk {
  struct Chunk *next; // the previous chunk
  size_t used, size;
  _Alignas(ALIGN) char bytes[];
} Chunk;

typedef struct AtEnd {
  struct AtEnd *next;
  void (*end)(void *of);
  void *of;
} AtEnd;

struct Arena {
  Chunk *chunks; // newest first
  AtEnd *at_end; // newest first, in the chunks
  size_t next_size, used;
};

static _Noreturn void out_of_memory(size_t size) {
  fprintf(stderr, "error: out of memory, asking for %zu bytes\n", size);
  abort();
}

static void *zeroed(size_t size) {
  void *p = calloc(1, size);
  if (!p) out_of_memory(size);
  return p;
}

Arena *arena_new(void) {
  Arena *a = zeroed(sizeof *a);
  a->next_size = FIRST_CHUNK;
  return a;
}

void arena_free(Arena *a) {
  if (!a) return;
  for (const AtEnd *x = a->at_end; x; x = x->next)
    x->end(x->of);
  for (Chunk *c = a->chunks, *next; c; c = next) {
    next = c->next;
    ASAN_UNPOISON_MEMORY_REGION(c->bytes, c->size);
    free(c);
  }
  free(a);
}

void *arena_alloc(Arena *a, size_t size) {
  if (size > SIZE_MAX / 2) out_of_memory(size);
  // The gap after the block stays poisoned.
  size_t step = (size + GAP + ALIGN - 1) / ALIGN * ALIGN;
  Chunk *c = a->chunks;
  // The rest of the newest chunk is too small: a new one.
  if (!c || c->size - c->used < step) {
    size_t chunk = step > a->next_size ? step : a->next_size;
    c = zeroed(sizeof *c + chunk + LINE);
    c->used = -(uintptr_t)c->bytes & (LINE - 1);
    c->size = chunk + LINE;
    c->next = a->chunks;
    a->chunks = c;
    if (a->next_size < LARGEST_CHUNK) a->next_size *= 2;
    ASAN_POISON_MEMORY_REGION(c->bytes, c->size);
  }
  void *block = c->bytes + c->used;
  c->used += step;
  a->used += size;
  ASAN_UNPOISON_MEMORY_REGION(block, size);
  return block;
}

void *arena_alloc_array(Arena *a, size_t n, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes)) out_of_memory(SIZE_MAX);
  return arena_alloc(a, bytes);
}

void *arena_copy(Arena *a, const void *bytes, size_t size) {
  void *block = arena_alloc(a, size);
  if (size > 0) memcpy(block, bytes, size);
  return block;
}

void arena_at_end(Arena *a, void (*end)(void *of), void *of) {
  AtEnd *x = arena_one(a, AtEnd);
  *x = (AtEnd){a->at_end, end, of};
  a->at_end = x;
}

size_t arena_used(const Arena *a) {
  return a->used;
}
