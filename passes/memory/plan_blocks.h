// Blocks of bytes: which values of a graph are in one, and when it is taken.  plan_memory.c gives
// them their places.
//
//     %y = linear %x, %w      block 0, of 96 bytes, taken from op 1 to op 2
//     %r = reshape %y         block 0: a view
//     %z = gelu %r            block 0: %y dies here, and gelu may run in place
//     %p = linear %z, %v      block 1
//
// Values are gathered in the order of the ops:
//
//   a view          is in the block of what it is a view of
//   a new parameter is where the old one is, if nobody reads that afterwards; otherwise the backend
//                   copies it there at the end of the step (it sees that the places differ)
//   a pack's member is in the bucket, if nobody reads it once the bucket is packed
//   a result        takes the block of an operand that dies, where the op may run in place; so does
//                   that of a move that finds every part where it must be
//   anything else   has a block of its own

#ifndef PLAN_BLOCKS_H
#define PLAN_BLOCKS_H

#include "base/table.h"
#include "base/vec.h"
#include "gaps.h"
#include "ir/analysis/live_ranges.h"
#include "ir/op.h"

typedef struct Block {
  int64_t bytes, offset;
  Life life;
  int64_t again;        // in the step after it is there from time 0 to this, too; 0: it is not
  int slots;            // of so many slices at once
  bool kept;            // from step to step: `offset` is final
  Vec(Value *) member;  // the first is on all devices that any is on
  Vec(const Op *) wait; // reductions that read it until their segments end
} Block;

typedef Vec(Block *) Blocks;

// Where a value lies: `at` bytes into a block.
typedef struct BlockPlace {
  Block *block; // NULL of constants
  int64_t at;
} BlockPlace;

typedef struct Planner {
  Module *m;
  Graph *g;
  Arena *scratch;
  Diag *d;
  int64_t align;
  Meets meets;
  Blocks kept; // what lasts, of all graphs
  Gaps *kept_gaps, *host_gaps;
  Vec(const Table *) before; // the parameters of each graph of which that is placed
  Life *life;                // by value id, as are the next three
  BlockPlace *place;
  Op **bucket; // of a value that will be packed: by which op
  int64_t *bucket_at;
  Value **target;     // the parameter that a value becomes
  Block **pack_block; // by op id
  LiveRanges *stays;  // of a graph with a schedule, else NULL
  Life *segment;      // of its segments, the times of their ops
  Blocks block;
  int64_t in_place, unshared, looked_at;
  bool apart;
} Planner;

// What lasts from step to step gets its places, and then a graph its blocks, which have none yet:
// its ops are put in the order of their parts (place.h).  False, having reported a turn that cannot
// be.
Planner planner_begin(Module *m, Target target, Arena *scratch, Diag *d);
bool planner_find_blocks(Planner *p, Graph *g);
int64_t block_bytes(const Planner *p, const Block *b); // of all its slices

void blocks_make(Planner *p);

// In a loop with a schedule: how many slices of a block are there together, and when any is, in op
// times (plan_slots.c).  slots_begin comes before blocks_make, which asks `stays`.
void slots_begin(Planner *p);
void slots_find(Planner *p);

// The blocks of deferred updates, which live into the next step (plan_deferred.c).
void owed_find(Planner *p);

static inline int64_t later(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static inline int64_t earlier(int64_t a, int64_t b) {
  return a < b ? a : b;
}

#endif
