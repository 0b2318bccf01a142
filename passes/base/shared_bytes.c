// See shared_bytes.h.

#include "base/shared_bytes.h"

#include <stdint.h>
#include <string.h>

typedef struct Result {
  struct Result *next;
  const char *name;
  const void *bytes;
} Result;

// Stands before the bytes, in an arena of their own.
typedef struct Shared {
  Arena *own;
  int64_t holders; // arenas, and bytes that these are a result of
  Result *results;
  _Alignas(16) char bytes[];
} Shared;

static Shared *shared_of(const void *bytes) {
  return (Shared *)((uintptr_t)bytes - offsetof(Shared, bytes));
}

static void let_go(void *of) {
  Shared *s = of;
  if (--s->holders) return;
  for (const Result *r = s->results; r; r = r->next)
    let_go(shared_of(r->bytes));
  arena_free(s->own);
}

const void *shared_keep(Arena *a, const void *shared) {
  Shared *s = shared_of(shared);
  s->holders++;
  arena_at_end(a, let_go, s);
  return shared;
}

const void *shared_copy(Arena *a, const void *bytes, size_t size) {
  Arena *own = arena_new();
  Shared *s = arena_alloc(own, sizeof *s + size);
  s->own = own;
  memcpy(s->bytes, bytes, size);
  return shared_keep(a, s->bytes);
}

const void *shared_result(const void *shared, const char *name) {
  for (const Result *r = shared_of(shared)->results; r; r = r->next)
    if (!strcmp(r->name, name)) return r->bytes;
  return NULL;
}

void shared_set_result(const void *shared, const char *name, const void *result) {
  Shared *s = shared_of(shared);
  Result *r = arena_one(s->own, Result);
  char *copy = arena_copy(s->own, name, strlen(name) + 1);
  *r = (Result){s->results, copy, result};
  s->results = r;
  shared_of(result)->holders++;
}
