// Memory that is freed all at once.
//
// A Module owns an Arena, and so does a pass for its scratch; nothing in the compiler calls free.
// Blocks come zeroed.  Out of memory ends the program in one place, arena.c.  Under
// AddressSanitizer the unallocated bytes are poisoned.

#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *a);

// `size` zeroed bytes, aligned for any type.  A request that overflows aborts.
void *arena_alloc(Arena *a, size_t size);
void *arena_copy(Arena *a, const void *bytes, size_t size);
// Calls `end` with `of` when the arena is freed.
void arena_at_end(Arena *a, void (*end)(void *of), void *of);
size_t arena_used(const Arena *a);

#define arena_array(a, type, n) ((type *)arena_alloc_array((a), (size_t)(n), sizeof(type)))
#define arena_one(a, type)      arena_array(a, type, 1)

void *arena_alloc_array(Arena *a, size_t n, size_t size);

#endif
