// The slab while values get their places in it: which blocks of bytes are taken, and when.
//
//     offset   0      64     128    192          a block of 64 bytes, alive from 3 to 4:
//     a        1-9
//     b               2-5                        at 128: a and b are in its way, c is not
//     c                      6-8
//
// Two blocks are in each other's way when both are alive at some time and some device is on the
// meshes of both.  Of the gaps that the blocks in its way leave, a block gets the smallest that it
// fits into, the first of those that are equally small; else it gets what lies behind all of them.
//
// Layers make thousands of blocks, most of which need not be looked at.  Those that live about as
// long stand together, in the order of offsets, in runs of neighbours: what layers keep for their
// gradients in some runs, what only they read in others.  A run is passed at a glance where none of
// its blocks is in the way, and where all of them are and leave no gap that is large enough.

#ifndef GAPS_H
#define GAPS_H

#include "ir/analysis/place.h"

typedef struct Gaps Gaps;

// What takes `bytes` at `offset` while it lives, on the devices of `v`.
typedef struct Taken {
  int64_t offset, bytes;
  Life life;
  const Value *v;
  int64_t again; // it also lives from time 0 to this one; 0: it does not
} Taken;

Gaps *gaps_new(Arena *a, Meets meets);
void gaps_add(Gaps *g, const Taken *block);
// Where a block fits best; its offset is what is asked for.
int64_t gaps_best(Gaps *g, const Taken *block);
// Of the last gaps_best: how many blocks, and runs passed at a glance, were in the way.
int64_t gaps_looked_at(const Gaps *g);

#endif
