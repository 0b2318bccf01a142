// XXH64, Yann Collet's checksum (xxhash_spec.md).  For nnaot, which writes executables, and the
// runtime, which reads them.

#ifndef NNRT_XXH64_H
#define NNRT_XXH64_H

#include <stdint.h>
#include <string.h>

#define XXH64_P1 0x9E3779B185EBCA87u
#define XXH64_P2 0xC2B2AE3D27D4EB4Fu
#define XXH64_P3 0x165667B19E3779F9u
#define XXH64_P4 0x85EBCA77C2B2AE63u
#define XXH64_P5 0x27D4EB2F165667C5u

static inline uint64_t xxh64_rotate(uint64_t x, int by) {
  return x << by | x >> (64 - by);
}

static inline uint64_t xxh64_read(const uint8_t *p) {
  uint64_t x;
  memcpy(&x, p, 8);
  return x;
}

static inline uint64_t xxh64_mix(uint64_t lane, uint64_t word) {
  return xxh64_rotate(lane + word * XXH64_P2, 31) * XXH64_P1;
}

static inline uint64_t xxh64_merge(uint64_t hash, uint64_t lane) {
  // Each lane is mixed once more, and spread over the whole hash.
  return (hash ^ xxh64_mix(0, lane)) * XXH64_P1 + XXH64_P4;
}

static inline uint64_t xxh64(const void *data, int64_t n, uint64_t seed) {
  const uint8_t *p = data, *end = p + n;
  uint64_t hash;
  // Four independent lanes over stripes of 32 bytes.
  if (n >= 32) {
    uint64_t a = seed + XXH64_P1 + XXH64_P2, b = seed + XXH64_P2, c = seed, d = seed - XXH64_P1;
    for (; end - p >= 32; p += 32) {
      a = xxh64_mix(a, xxh64_read(p));
      b = xxh64_mix(b, xxh64_read(p + 8));
      c = xxh64_mix(c, xxh64_read(p + 16));
      d = xxh64_mix(d, xxh64_read(p + 24));
    }
    hash = xxh64_rotate(a, 1) + xxh64_rotate(b, 7) + xxh64_rotate(c, 12) + xxh64_rotate(d, 18);
    hash = xxh64_merge(xxh64_merge(xxh64_merge(xxh64_merge(hash, a), b), c), d);
  } else {
    hash = seed + XXH64_P5;
  }
  hash += (uint64_t)n;
  // The remainder, and the final avalanche.
  for (; end - p >= 8; p += 8)
    hash = xxh64_rotate(hash ^ xxh64_mix(0, xxh64_read(p)), 27) * XXH64_P1 + XXH64_P4;
  for (; end - p >= 4; p += 4) {
    uint32_t word;
    memcpy(&word, p, 4);
    hash = xxh64_rotate(hash ^ word * XXH64_P1, 23) * XXH64_P2 + XXH64_P3;
  }
  for (; p < end; p++)
    hash = xxh64_rotate(hash ^ *p * XXH64_P5, 11) * XXH64_P1;
  hash = (hash ^ hash >> 33) * XXH64_P2;
  hash = (hash ^ hash >> 29) * XXH64_P3;
  return hash ^ hash >> 32;
}

#endif
