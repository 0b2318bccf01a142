// Checksums: XXH64 for our own files, CRC-32C for files that other programs read.
//
// CRC-32C is Castagnoli's polynomial reflected, as in RFC 3720 and in TensorFlow's record files.

#include "runtime.h"
#include "xxh64.h"

uint64_t nnrt_xxh64(const void *data, int64_t n, uint64_t seed) {
  return xxh64(data, n, seed);
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
