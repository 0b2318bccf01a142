// Bytes that are written once and may be in many arenas, such as the constants of a model in its
// copies: they are freed with the last of these arenas.
//
//     model   ── table of 4 MB ── cut-out     one table, and its form in 16 bits, for both
//                     └ "bf16"
//
// Bytes that were computed from others are kept with these under a name, so that each copy of a
// model finds them.

#ifndef BASE_SHARED_BYTES_H
#define BASE_SHARED_BYTES_H

#include <stddef.h>

#include "base/arena.h"

// Copies bytes into memory that arenas share; `a` is the first of them.
const void *shared_copy(Arena *a, const void *bytes, size_t size);
// Keeps shared bytes until `a` is freed, too.
const void *shared_keep(Arena *a, const void *shared);
// The bytes that were computed from shared ones; NULL: none have that name.
const void *shared_result(const void *shared, const char *name);
void shared_set_result(const void *shared, const char *name, const void *result);

#endif
