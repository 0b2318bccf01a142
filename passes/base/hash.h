// Hashes of bytes, which find accidents, and no forgeries: FNV-1a is the same on every machine, for
// fingerprints and hash tables; text_hash reads words, for hash tables of many texts.

#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FNV1A_EMPTY UINT64_C(14695981039346656037) // the hash of no bytes

// Continues the hash `h` with n bytes.
static inline uint64_t fnv1a(uint64_t h, const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i++)
    h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
  return h;
}

// Continues the hash `h` with a text.
static inline uint64_t text_hash(uint64_t h, const char *text) {
  size_t n = strlen(text);
  for (uint64_t word; n >= sizeof word; n -= sizeof word, text += sizeof word) {
    memcpy(&word, text, sizeof word);
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 32;
  }
  uint64_t rest = 0;
  memcpy(&rest, text, n);
  h = (h ^ rest) * UINT64_C(0x9e3779b97f4a7c15);
  return h ^ h >> 29;
}

#endif
