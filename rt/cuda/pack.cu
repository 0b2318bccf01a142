// The bucket: packs operands at multiples of 64 bytes, in one launch.
//
//     operands of 100 and 8 bytes      | 100 bytes of a   28 of 0 | 8 bytes of b   56 of 0 |
//
// The padding is zero, so that sums over a bucket are sums of its members.  For an operand that was
// computed in place only its padding is written.

#include "move.cuh"

enum { PACK_MOST = 100, PACK_STEP = 64, UNIT = 16 };

// Pieces of the bucket.  Each thread writes units of 16 bytes.
struct PackTable {
  const char *from[PACK_MOST];
  char *to[PACK_MOST];
  int64_t bytes[PACK_MOST]; // copied from `from`; the rest of the piece is 0
  int64_t end[PACK_MOST];   // in units; a piece begins at the end of the one before
  int n;
};

static __global__ void pack_pieces(PackTable t, int64_t units) {
  for (int64_t u = first_thread(); u < units; u += all_threads()) {
    // The piece of a unit, by binary search.
    int low = 0, high = t.n - 1;
    while (low < high) {
      int middle = (low + high) / 2;
      if (u < t.end[middle])
        high = middle;
      else
        low = middle + 1;
    }
    int64_t at = (u - (low > 0 ? t.end[low - 1] : 0)) * UNIT, left = t.bytes[low] - at;
    const char *from = t.from[low] + at;
    char *to = t.to[low] + at;
    // The last unit of a piece is padded with 0.
    if (left >= UNIT && ((uintptr_t)from | (uintptr_t)to) % UNIT == 0)
      *(b16 *)to = *(const b16 *)from;
    else
      for (int i = 0; i < UNIT; i++)
        to[i] = i < left ? from[i] : 0;
  }
}

static int pack(void *y, const void *const *in, int64_t width, int64_t n, const int64_t *sizes) {
  char *to = (char *)y;
  PackTable t;
  t.n = 0;
  int64_t units = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t bytes = sizes[i] * width, room = (bytes + PACK_STEP - 1) / PACK_STEP * PACK_STEP;
    // In place: from the last multiple of 64 on, which is copied to itself.
    int64_t skip = in[i] != to ? 0 : bytes % PACK_STEP == 0 ? room : room - PACK_STEP;
    if (skip < room) {
      t.from[t.n] = (const char *)in[i] + skip;
      t.to[t.n] = to + skip;
      t.bytes[t.n] = bytes - skip;
      t.end[t.n++] = units += (room - skip) / UNIT;
    }
    to += room;
    // A launch per PACK_MOST pieces.
    if (units > 0 && (t.n == PACK_MOST || i == n - 1)) {
      int code = launch(pack_pieces, blocks_for(units), BLOCK, 0, t, units);
      if (code) return code;
      t.n = 0;
      units = 0;
    }
  }
  return NNRT_OK;
}

#define PACK(size, T)                                                                              \
  int nnrt_pack_##size(void *y, const void *const *in, int64_t n, const int64_t *sizes) {          \
    return pack(y, in, sizeof(T), n, sizes);                                                       \
  }
FOR_SIZES(PACK)
