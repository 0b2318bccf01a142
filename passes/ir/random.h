// Random numbers that depend only on the seed, the step, a key (of an op or a weight) and the
// global index of the element.  So they are the same on any number of ranks, after any other
// computation, and after a resume.
//
// The generator is Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3,
// section 3.3): a function from a counter of 128 bits and a key of 64 to 128 random bits.  The
// counter is the step and the block of four elements; the key mixes seed and key.
//
// rt/nnrt_random.h is the same for compiled programs; tests compare the two.

#ifndef IR_RANDOM_H
#define IR_RANDOM_H

#include <math.h>
#include <stdint.h>

// The finaliser of SplitMix64: neighbouring inputs give unrelated outputs.
static inline uint64_t random_mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// Philox4x32-10 itself, for the published test vectors.
static inline void random_philox(const uint32_t counter[4], const uint32_t key[2],
                                 uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

// The bits of elements 4 * block to 4 * block + 3.
static inline void random_block(int64_t seed, int64_t step, int64_t key, int64_t block,
                                uint32_t out[4]) {
  uint64_t b = (uint64_t)block, s = (uint64_t)step;
  uint64_t k = random_mix(random_mix((uint64_t)seed) ^ (uint64_t)key);
  uint32_t counter[4] = {(uint32_t)b, (uint32_t)(b >> 32), (uint32_t)s, (uint32_t)(s >> 32)};
  uint32_t keys[2] = {(uint32_t)k, (uint32_t)(k >> 32)};
  random_philox(counter, keys, out);
}

// A number in [0, 1), a multiple of 2^-24, so exact in float.
static inline double random_uniform_of(uint32_t bits) {
  return (double)(bits >> 8) * 0x1p-24;
}

static inline double random_uniform(int64_t seed, int64_t step, int64_t key, int64_t element) {
  uint32_t out[4];
  random_block(seed, step, key, element / 4, out);
  return random_uniform_of(out[element % 4]);
}

// A normal number with mean 0 and deviation 1, by Box and Muller: two elements from two words.
static inline double random_normal(int64_t seed, int64_t step, int64_t key, int64_t element) {
  uint32_t out[4];
  random_block(seed, step, key, element / 4, out);
  const uint32_t *pair = out + (element % 4 & 2);
  double radius = sqrt(-2 * log(((double)pair[0] + 1) * 0x1p-32)); // of (0, 1]: log is finite
  double angle = 6.28318530717958647693 * ((double)pair[1] * 0x1p-32);
  return radius * (element % 2 ? sin(angle) : cos(angle));
}

// The key of a name: FNV-1a.
static inline int64_t random_key(const char *name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *name; name++)
    hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
  return (int64_t)hash;
}

#endif
