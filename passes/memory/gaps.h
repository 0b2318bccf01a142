// The slab during planning: the blocks of bytes that have an offset, with their live ranges.
//
//     offset   0      64     128    192          a block of 64 bytes, alive from 3 to 4:
//     a        1-9
//     b               2-5                        at 128: a and b conflict, c does not
//     c                      6-8
//
// Two blocks conflict if their live ranges overlap and their meshes share a device. Of the gaps
// that conflicting blocks leave, a block gets the smallest that is large enough, and the first
// among equal ones; else it goes after all of them.
//
// Layers make thousands of blocks, most of which need no look: a tree over time has the bytes of
// all blocks that are alive in a part of the step, and touching blocks are one span of these.

#ifndef GAPS_H
#define GAPS_H

#include "ir/analysis/place.h"

typedef struct Gaps Gaps;

// A block of `bytes` at `offset` during its live range, on the devices of `v`.
typedef struct Taken {
  int64_t offset, bytes;
  Life life;
  const Value *v;
  int64_t again; // > 0: also alive from time 0 to this one
} Taken;

Gaps *gaps_new(Arena *a, Meets meets);
void gaps_add(Gaps *g, const Taken *block);
// The best offset for a block; ignores its own `offset`.
int64_t gaps_best(Gaps *g, const Taken *block);
// The number of spans and blocks that the last gaps_best looked at.
int64_t gaps_looked_at(const Gaps *g);

#endif
