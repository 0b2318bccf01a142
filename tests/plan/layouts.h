// All R(i)V(j)D(k1,…) of n devices, for the tests of paths.

#ifndef LAYOUTS_H
#define LAYOUTS_H

#include "paths/path.h"

enum { MAX_LAYOUTS = 256 };

typedef struct Layouts {
  int n;
  Placement at[MAX_LAYOUTS];
} Layouts;

static inline void layouts_fill(Layouts *l, Placement p, int ndim, int slot, int left) {
  if (slot == ndim + 1) { // the last number is the rest
    p.part[ndim - 1] = left;
    l->at[l->n++] = p;
    return;
  }
  for (int k = 1; k <= left; k++) {
    if (left % k) continue;
    *(slot == 0 ? &p.copies : slot == 1 ? &p.shares : &p.part[slot - 2]) = k;
    layouts_fill(l, p, ndim, slot + 1, left / k);
  }
}

static inline Layouts layouts_of(int ndim, int n, const int *device) {
  Layouts l = {0};
  layouts_fill(&l, (Placement){.n = n, .device = device}, ndim, 0, n);
  return l;
}

#endif
