// A random order of n samples without a list of n samples.
//
// A Feistel network is a permutation of 2k-bit numbers for any round function.  With the smallest k
// such that 2^2k >= n, numbers from n up pass through it again until one is below n ("cycle
// walking", Black and Rogaway, Ciphers with Arbitrary Finite Domains, section 4).  2^2k < 4n, so
// this takes fewer than four passes on average.

#include "runtime.h"

// The finalizer of SplitMix64.
static uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

int64_t nnrt_shuffled(int64_t i, int64_t n, int64_t seed, int64_t epoch) {
  int half = 1;
  while (half < 31 && (int64_t)1 << 2 * half < n)
    half++;
  uint64_t mask = ((uint64_t)1 << half) - 1;
  uint64_t key = mix((uint64_t)seed ^ mix((uint64_t)epoch));
  uint64_t x = (uint64_t)i;
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 6; round++) {
      uint64_t next = left ^ (mix(key ^ mix(right + (round << 32))) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= (uint64_t)n);
  return (int64_t)x;
}
