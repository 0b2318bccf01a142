// FNV-1a: a hash of bytes that is the same on every machine, for fingerprints and hash tables.  It
// finds accidents, and no forgeries.

#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define FNV1A_EMPTY UINT64_C(14695981039346656037) // the hash of no bytes

// Continues the hash `h` with n bytes.
static inline uint64_t fnv1a(uint64_t h, const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i++)
    h = (h ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
  return h;
}

#endif
