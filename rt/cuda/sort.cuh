// Sorts keys of 32 bits, each with its place: a radix sort with digits of 8 bits, lowest digit
// first. Equal keys keep their order.
//
// A block sorts SORT_TILE of them.  It counts its occurrences of each digit.  Counts are in order
// of digits, then of blocks, so that their prefix sum is the position of the block's first element
// with that digit.

#ifndef NNRT_CUDA_SORT_CUH
#define NNRT_CUDA_SORT_CUH

#include "device.cuh"

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, SORT_ROUNDS = 8, SORT_TILE = BLOCK * SORT_ROUNDS };
static_assert((int)BLOCK == (int)DIGITS, "each thread has a digit");

static __device__ inline int digit_of(uint32_t key, int shift) {
  return (int)(key >> shift) & (DIGITS - 1);
}

static __global__ void count_digits(uint32_t *counts, const uint32_t *keys, int n, int shift) {
  __shared__ uint32_t count[DIGITS];
  count[threadIdx.x] = 0;
  __syncthreads();
  for (int r = 0; r < SORT_ROUNDS; r++) {
    int i = (int)blockIdx.x * SORT_TILE + r * BLOCK + (int)threadIdx.x;
    if (i < n) atomicAdd(&count[digit_of(keys[i], shift)], 1u);
  }
  __syncthreads();
  // By digit, then by block.
  counts[threadIdx.x * gridDim.x + blockIdx.x] = count[threadIdx.x];
}

// Replaces n counts by their exclusive prefix sum; one block.
static __global__ void sum_counts(uint32_t *counts, int n) {
  __shared__ uint32_t sums[BLOCK];
  int each = (n + BLOCK - 1) / BLOCK, from = (int)threadIdx.x * each;
  int to = from + each < n ? from + each : n;
  // Each thread sums a run of counts, the block scans these sums, and each thread rewrites its run.
  uint32_t sum = 0;
  for (int i = from; i < to; i++)
    sum += counts[i];
  sums[threadIdx.x] = sum;
  // An inclusive scan: each step adds the sum at twice the distance.
  for (int d = 1; d < BLOCK; d *= 2) {
    __syncthreads();
    uint32_t before = (int)threadIdx.x >= d ? sums[(int)threadIdx.x - d] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
  }
  // The sum before this thread's run.
  sum = sums[threadIdx.x] - sum;
  for (int i = from; i < to; i++) {
    uint32_t count = counts[i];
    counts[i] = sum;
    sum += count;
  }
}

static __global__ void move_by_digit(uint32_t *keys_out, uint32_t *places_out, const uint32_t *keys,
                                     const uint32_t *places, const uint32_t *starts, int n,
                                     int shift) {
  enum { WARPS = BLOCK / WARP };
  __shared__ uint32_t next[DIGITS];           // position of the next element, by digit
  __shared__ uint32_t of_warp[WARPS][DIGITS]; // count per warp and digit; then the position
  int t = (int)threadIdx.x, warp = t / WARP, lane = t % WARP;
  // Thread t keeps the position of digit t.
  next[t] = starts[t * gridDim.x + blockIdx.x];
  for (int r = 0; r < SORT_ROUNDS; r++) {
    int i = (int)blockIdx.x * SORT_TILE + r * BLOCK + t;
    bool here = i < n;
    uint32_t key = here ? keys[i] : 0;
    int digit = digit_of(key, shift);
    for (int w = 0; w < WARPS; w++)
      of_warp[w][t] = 0;
    __syncthreads();
    // Lanes with the same digit
    uint32_t same = __ballot_sync(0xffffffffu, here);
    for (int b = 0; b < DIGIT_BITS; b++) {
      uint32_t ones = __ballot_sync(0xffffffffu, digit >> b & 1);
      same &= digit >> b & 1 ? ones : ~ones;
    }
    // The number of lanes before this one with its digit: the order is stable.
    int before = __popc(same & ((1u << lane) - 1));
    if (here && before == 0) of_warp[warp][digit] = (uint32_t)__popc(same);
    __syncthreads();
    // Warps take their positions in order.
    uint32_t at = next[t];
    for (int w = 0; w < WARPS; w++) {
      uint32_t count = of_warp[w][t];
      of_warp[w][t] = at;
      at += count;
    }
    next[t] = at;
    __syncthreads();
    if (here) {
      uint32_t to = of_warp[warp][digit] + (uint32_t)before;
      keys_out[to] = key;
      places_out[to] = places[i];
    }
    __syncthreads();
  }
}

// The lists of a sort, in scratch: keys and places, twice each; counts; `more` bytes of the caller.
struct SortLists {
  uint32_t *keys[2], *places[2], *counts;
  char *more;
};

// False: there is no memory.
static bool sort_lists(int64_t count, int64_t more, SortLists *out) {
  int64_t list = round_256(count * (int64_t)sizeof(uint32_t));
  int64_t blocks = (count + SORT_TILE - 1) / SORT_TILE;
  int64_t counts = round_256(blocks * DIGITS * (int64_t)sizeof(uint32_t));
  char *scratch = (char *)nnrt_gpu_scratch(4 * list + counts + more);
  if (!scratch) return false;
  for (int i = 0; i < 2; i++) {
    out->keys[i] = (uint32_t *)(scratch + i * list);
    out->places[i] = (uint32_t *)(scratch + (2 + i) * list);
  }
  out->counts = (uint32_t *)(scratch + 4 * list);
  out->more = scratch + 4 * list + counts;
  return true;
}

// Sorts keys below n from keys[0] and places[0].  Returns 0 or 1: the result is there, or in
// keys[1] and places[1].
static int sort(const SortLists *l, int count, int64_t n, int *out_where) {
  // A digit per round, as far as the largest key has bits.
  int blocks = (count + SORT_TILE - 1) / SORT_TILE, now = 0;
  for (int shift = 0; shift < 32 && n >> shift > 0; shift += DIGIT_BITS, now = !now) {
    int code = launch(count_digits, blocks, BLOCK, 0, l->counts, l->keys[now], count, shift);
    if (!code) code = launch(sum_counts, 1, BLOCK, 0, l->counts, blocks * DIGITS);
    if (!code)
      code = launch(move_by_digit, blocks, BLOCK, 0, l->keys[!now], l->places[!now], l->keys[now],
                    l->places[now], l->counts, count, shift);
    if (code) return code;
  }
  *out_where = now;
  return NNRT_OK;
}

#endif
