// Draws of small numbers for random cases: the same seed gives the same cases.

#ifndef DRAW_H
#define DRAW_H

#include <stdint.h>

typedef struct Random {
  uint64_t state;
} Random;

// From 0 to n - 1.
static inline int below(Random *r, int n) {
  r->state = r->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((r->state >> 33) % (uint64_t)n);
}

#endif
