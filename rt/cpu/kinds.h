// The kinds of processors for which kernels have versions of their own: by number and width of
// their vector registers.  The includer sets KIND_FILE, and gets that file once for each, with
//
//     NAME    ends the names of its functions: KIND(tile) is tile_v3
//     TARGET  begins its functions
//     WIDTH   floats in a vector register
//     ROWS    of a tile: ROWS x 2 sums, two of b and one of a are in registers
//
// An array of all versions is KIND_LIST(name), and kind_here() the index of this processor's. clang
// compiles that of SSE alone.

#ifndef NNRT_KINDS_H
#define NNRT_KINDS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "nnrt_math.h"

#define KIND_PASTE_(a, b) a##_##b
#define KIND_PASTE(a, b)  KIND_PASTE_(a, b)
#define KIND(name)        KIND_PASTE(name, NAME)
#define KIND_INLINE       TARGET static inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define KINDS_X86 1
#define KIND_LIST(list)                                                                            \
  { list##_base, list##_v3, list##_v4 }
#else
#define KINDS_X86 0
#define KIND_LIST(list)                                                                            \
  { list##_base }
#endif

static inline int kind_here(void) {
#if KINDS_X86
  if (__builtin_cpu_supports("x86-64-v4")) return 2;
  if (__builtin_cpu_supports("x86-64-v3")) return 1;
#endif
  return 0;
}

#endif

#define NAME base
#define TARGET
#define WIDTH 4
#if defined(__aarch64__) // it has 32 registers
#define ROWS 12
#else
#define ROWS 6
#endif
#include KIND_FILE
#undef NAME
#undef TARGET
#undef WIDTH
#undef ROWS

#if KINDS_X86
#define NAME   v3
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define WIDTH  8
#define ROWS   6
#include KIND_FILE
#undef NAME
#undef TARGET
#undef WIDTH
#undef ROWS

#define NAME   v4
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define WIDTH  16
#define ROWS   14
#include KIND_FILE
#undef NAME
#undef TARGET
#undef WIDTH
#undef ROWS
#endif

#undef KIND_FILE
