// The file of an executable, which nnaot writes, or --append of a program linked by hand, and which
// the runtime reads (payload.c).
//
//     | program | zeros | payload | plans | zeros | checksums | NnrtTrailer |
//
//     program    the output of the linker, with zeros up to a multiple of 4096
//     payload    weights, and the model for --export
//     plans      execution plans of libraries, made ahead of time; may be empty
//     checksums  XXH64 of each block of program, payload and plans; at a multiple of 8
//
// A block has 16 KiB, the last block of each of the three parts may be shorter.  Of a part a
// process compares just the blocks that it reads.  The trailer's own checksum covers all bytes
// after the plans, so no bit of the file is without one.  All numbers are little-endian.

#ifndef NNRT_TRAILER_H
#define NNRT_TRAILER_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "xxh64.h"

// The last 40 bytes.
typedef struct NnrtTrailer {
  char magic[8];                // NNRT_TRAILER_MAGIC, without its final 0
  int64_t offset, bytes, plans; // of the payload, its bytes, and bytes of the plans
  uint64_t sum;                 // of all bytes from the end of the plans to this field
} NnrtTrailer;
#define NNRT_TRAILER_MAGIC "nnrtpay2"

enum { NNRT_PAYLOAD_ALIGN = 4096, NNRT_SUM_ALIGN = 8, NNRT_BLOCK = 1 << 14 };

static inline int64_t nnrt_blocks(int64_t bytes) {
  return (bytes + NNRT_BLOCK - 1) / NNRT_BLOCK;
}

// Copies at most `most` bytes, with zeros up to a multiple of `align`, and appends a checksum of
// each block to *io_sums.  Returns the bytes written, zeros included; -1 after an error.
static inline int64_t nnrt_copy_part(FILE *from, int64_t most, int64_t align, FILE *to,
                                     uint64_t **io_sums, int64_t *io_n) {
  uint8_t block[NNRT_BLOCK];
  int64_t bytes = 0, got = NNRT_BLOCK;
  while (got == NNRT_BLOCK && bytes < most) {
    int64_t left = most - bytes, n;
    got = (int64_t)fread(block, 1, left < NNRT_BLOCK ? (size_t)left : NNRT_BLOCK, from);
    for (n = got; n % align; n++)
      block[n] = 0;
    if (n == 0) break;
    // The table has room for a power of two.
    if ((*io_n & (*io_n - 1)) == 0) {
      size_t room = *io_n ? 2 * (size_t)*io_n : 1;
      uint64_t *longer = (uint64_t *)realloc(*io_sums, room * sizeof **io_sums);
      if (!longer) return -1;
      *io_sums = longer;
    }
    (*io_sums)[(*io_n)++] = xxh64(block, n, 0);
    if ((int64_t)fwrite(block, 1, (size_t)n, to) != n) return -1;
    bytes += n;
  }
  return ferror(from) ? -1 : bytes;
}

// Writes an executable of a program, of which at most `most` bytes are read, a payload, and plans,
// which may be NULL.  On failure errno has the reason.
static inline bool nnrt_write_executable(FILE *program, int64_t most, FILE *payload, FILE *plans,
                                         FILE *out) {
  NnrtTrailer end;
  uint64_t *sums = NULL;
  int64_t n = 0;
  memcpy(end.magic, NNRT_TRAILER_MAGIC, sizeof end.magic);
  end.plans = 0;
  end.offset = nnrt_copy_part(program, most, NNRT_PAYLOAD_ALIGN, out, &sums, &n);
  end.bytes = end.offset < 0 ? -1 : nnrt_copy_part(payload, INT64_MAX, 1, out, &sums, &n);
  if (plans && end.bytes >= 0) end.plans = nnrt_copy_part(plans, INT64_MAX, 1, out, &sums, &n);
  bool ok = end.bytes >= 0 && end.plans >= 0;
  // The rest of the file, in memory: its checksum is the last field.
  if (ok) {
    int64_t zeros = -(end.bytes + end.plans) & (NNRT_SUM_ALIGN - 1);
    int64_t bytes = zeros + n * (int64_t)sizeof *sums + (int64_t)sizeof end;
    uint8_t *rest = (uint8_t *)calloc(1, (size_t)bytes);
    ok = rest != NULL;
    if (ok) {
      if (n) memcpy(rest + zeros, sums, (size_t)n * sizeof *sums);
      memcpy(rest + bytes - sizeof end, &end, sizeof end);
      end.sum = xxh64(rest, bytes - (int64_t)sizeof end.sum, 0);
      memcpy(rest + bytes - sizeof end.sum, &end.sum, sizeof end.sum);
      ok = (int64_t)fwrite(rest, 1, (size_t)bytes, out) == bytes;
    }
    free(rest);
  }
  free(sums);
  return ok && fflush(out) == 0 && !ferror(out);
}

#endif
