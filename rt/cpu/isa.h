// The instruction sets of kernels, on which ranks agree (isa.c), and the library of kernels as
// ranks see it: oneDNN (dnnl_isa.c), or none (no_library_isa.c).

#ifndef NNRT_ISA_H
#define NNRT_ISA_H

#include "device.h"

// Sets of bits.  Each of the first has the bits of those before it; their numbers are oneDNN's.

enum {
  ISA_SSE41 = 0x1,
  ISA_AVX = 0x3,
  ISA_AVX2 = 0x7,
  ISA_AVX2_VNNI = 0xf,
  ISA_AVX2_VNNI_2 = 0x1f,
  ISA_AVX512 = 0x27,
  ISA_AVX512_VNNI = 0x67,
  ISA_AVX512_BF16 = 0xe7,
  ISA_AVX512_FP16 = 0x1ef,
  ISA_AMX = 0xfef,
  ISA_AMX_FP16 = 0x1fef,
  ISA_OF_LIBRARY = 0xffff, // all of the above
  // The versions of functions marked NNRT_CLONES.
  ISA_CLONES_V3 = 1 << 16,
  ISA_CLONES_V4 = 1 << 17,
  ISA_CLONES = ISA_CLONES_V3 | ISA_CLONES_V4,
  // aarch64, which every processor of that kind has.
  ISA_NEON = 1 << 18
};

// The set that kernels use: nnrt_device_use_isa's, or before it the processor's and the library's.
int64_t isa_in_use(void);

// The instructions of a set for products of bf16.
typedef enum Bf16Products { BF16_none, BF16_vectors, BF16_tiles } Bf16Products;
Bf16Products isa_bf16_products(int64_t set);

// "oneDNN 3.2.0", or NULL: there is no library.
const char *library_name(void);
// The sets that the library's own environment variable leaves.
int library_isa_allowed(void);
// Restricts the library to these sets; before any kernel is prepared.  False: it cannot be.
bool library_isa_use(int set);
// Adds the properties of the library that ranks compare: nnrt_device_terms.
void library_terms(Terms *t);
// Adds the environment variables that change its results: nnrt_device_variables.
void library_variables(Terms *t);

#endif
