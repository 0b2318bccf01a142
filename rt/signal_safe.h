// Functions for signal handlers (crash.c, stacks.c): async-signal-safe, without memory or locks.
// The dynamic linker and the C library have functions for the same that take locks, and a thread
// may hang or crash with such a lock.
//
//     signal_text.c   text without the C library's formats
//     mappings.c      the mapped file at an address, from /proc/self/maps
//     symbols.c       the function at an address, from the tables of loaded libraries

#ifndef NNRT_SIGNAL_SAFE_H
#define NNRT_SIGNAL_SAFE_H

#include <limits.h>

#include "runtime.h"

// ---- signal_text.c

typedef struct SafeText {
  char *at; // [size], not terminated
  size_t n, size;
} SafeText;

// Append; text that does not fit is cut off, and control characters become '?'.
void nnrt_safe_add(SafeText *t, const char *more);
void nnrt_safe_add_number(SafeText *t, long long x);
void nnrt_safe_add_hex(SafeText *t, uintptr_t x); // "0x8a41"
// "rank 1", "no rank" for NULL.
void nnrt_safe_add_rank(SafeText *t, const NnrtRank *r);
// "rank 1 on host7 (pid 4711), its own thread, in 'linear  mlp.onnx:/fc1' of step 12"; `role` is
// the thread's.
void nnrt_safe_add_thread(SafeText *t, const NnrtRank *r, const char *role);
void nnrt_safe_print(const SafeText *t); // to standard error, in one write

// ---- mappings.c

typedef struct Mapping {
  uintptr_t begin, end;
  uintptr_t file;       // address of the file's first byte, as far as it is mapped
  char path[PATH_MAX];  // "": of no file
  bool is_this_program; // of the file of this executable
} Mapping;

// Finds the mapping at an address; false: there is none, or /proc cannot be read.
bool nnrt_mapping_at(uintptr_t at, Mapping *out);

// ---- symbols.c

// Returns the name of the exported function at an address, and its first address; NULL: none.
const char *nnrt_function_at(uintptr_t at, uintptr_t *out_begin);

#endif
