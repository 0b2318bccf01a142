// Checksums: XXH64 for our own files, CRC-32C for files that other programs read.
//
// XXH64 is Yann Collet's (xxhash_spec.md), CRC-32C is Castagnoli's polynomial reflected, as in RFC
// 3720 and in TensorFlow's record files.

#include <string.h>

#include "runtime.h"

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int by) {
  return x << by | x >> (64 - by);
}

static uint64_t read64(const uint8_t *p) {
  uint64_t x;
  memcpy(&x, p, 8);
  return x;
}

static uint64_t mix_in(uint64_t lane, uint64_t word) {
  return rotate(lane + word * P2, 31) * P1;
}

static uint64_t merge(uint64_t hash, uint64_t lane) {
  // Each lane is mixed once more, and spread over the whole hash.
  return (hash ^ mix_in(0, lane)) * P1 + P4;
}

uint64_t nnrt_xxh64(const void *data, int64_t n, uint64_t seed) {
  const uint8_t *p = data, *end = p + n;
  uint64_t hash;
  // Four independent lanes over stripes of 32 bytes.
  if (n >= 32) {
    uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
    for (; end - p >= 32; p += 32) {
      a = mix_in(a, read64(p));
      b = mix_in(b, read64(p + 8));
      c = mix_in(c, read64(p + 16));
      d = mix_in(d, read64(p + 24));
    }
    hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    hash = merge(merge(merge(merge(hash, a), b), c), d);
  } else {
    hash = seed + P5;
  }
  hash += (uint64_t)n;
  // The remainder, and the final avalanche.
  for (; end - p >= 8; p += 8)
    hash = rotate(hash ^ mix_in(0, read64(p)), 27) * P1 + P4;
  for (; end - p >= 4; p += 4) {
    uint32_t word;
    memcpy(&word, p, 4);
    hash = rotate(hash ^ word * P1, 23) * P2 + P3;
  }
  for (; p < end; p++)
    hash = rotate(hash ^ *p * P5, 11) * P1;
  hash = (hash ^ hash >> 33) * P2;
  hash = (hash ^ hash >> 29) * P3;
  return hash ^ hash >> 32;
}

uint32_t nnrt_crc32c(uint32_t crc, const void *data, int64_t n) {
  const uint8_t *p = data;
  crc = ~crc;
  for (int64_t i = 0; i < n; i++) {
    crc ^= p[i];
    // Bit by bit, without a table: the records are short.
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (0x82F63B78u & -(crc & 1));
  }
  return ~crc;
}
