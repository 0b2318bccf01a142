// A checksum of memory that many threads, or the threads of a GPU, compute together.
//
//     sum = mix(word 0, 0) + mix(word 1, 1) + …        modulo 2^64, over words of 8 bytes
//
// The order of the additions does not matter.  For each index `mix` is a bijection of words, so a
// change of bits within one word always changes the sum; other changes do, except in one of about
// 2^32 cases.  A remainder of less than 8 bytes is a word that is filled up with zeros.
//
// The file is C and CUDA C.

#ifndef NNRT_WORD_SUM_H
#define NNRT_WORD_SUM_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define WORD_SUM_FN static inline __host__ __device__
#else
#define WORD_SUM_FN static inline
#endif

WORD_SUM_FN uint64_t word_mix(uint64_t word, uint64_t i) {
  // The index is spread over all bits, so that exchanged words are noticed.
  uint64_t x = word ^ (i + 1) * 0x9E3779B97F4A7C15u;
  // The upper half is folded into the lower one before and after: the product carries upwards only.
  x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
  return x ^ x >> 32;
}

// Returns the term of the last `bytes` bytes, less than 8, which are word `i`.
WORD_SUM_FN uint64_t word_mix_rest(const char *at, int64_t bytes, uint64_t i) {
  uint64_t word = 0;
  memcpy(&word, at, (size_t)bytes);
  return bytes ? word_mix(word, i) : 0;
}

#endif
