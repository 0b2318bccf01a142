// Blocks: the values of a graph that share bytes, and the live range of each block. plan_memory.c
// assigns the offsets.
//
//     %y = linear %x, %w      block 0, of 96 bytes, taken from op 1 to op 2
//     %r = reshape %y         block 0: a view
//     %z = gelu %r            block 0: %y dies here, and gelu may run in place
//     %p = linear %z, %v      block 1
//
// Values are gathered in the order of the ops:
//
//   a view          shares the block of its operand
//   a new parameter shares the block of the old one, if that is dead; otherwise the backend copies it
//                   there at the end of the step (it sees that the offsets differ)
//   a pack's member is produced in the bucket, if it is dead after the pack
//   a result        takes the block of an operand that dies, if the op may run in place; a move does so
//                   if every device has its part already
//   any other       has a block of its own

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
  int64_t again;        // > 0: also alive in the next step, from time 0 to this
  int slots;            // slices alive together
  bool kept;            // persistent: `offset` is final
  Vec(Value *) member;  // the mesh of the first contains the devices of all
  Vec(const Op *) wait; // reductions that read the block until their segments end
} Block;

typedef Vec(Block *) Blocks;

// The memory of a value: `at` bytes into a block.
typedef struct BlockPlace {
  Block *block; // NULL for constants
  int64_t at;
} BlockPlace;

typedef struct MemoryPlan {
  Module *m;
  Graph *g;
  Arena *scratch;
  Diag *d;
  int64_t align;
  Meets meets;
  Blocks kept; // persistent blocks of all graphs
  Gaps *kept_gaps, *host_gaps;
  Vec(const Table *) before; // parameters of each graph with placed persistent values
  Life *life;                // by value id, like the next three
  BlockPlace *place;
  Op **bucket; // the `pack` of a bucket member, else NULL
  int64_t *bucket_at;
  Value **target;     // the parameter of which a value is the update
  Block **pack_block; // by op id
  LiveRanges *stays;  // NULL without a schedule
  Life *segment;      // op times of each segment
  Blocks block;
  int64_t in_place, unshared, looked_at, kept_longer;
  bool apart;
} MemoryPlan;

// memory_plan_begin places persistent values. memory_plan_find_blocks orders the ops of a graph by
// part (place.h) and makes its blocks, without offsets. It returns false after reporting an order
// that is impossible.
MemoryPlan memory_plan_begin(Module *m, Target target, Arena *scratch, Diag *d);
bool memory_plan_find_blocks(MemoryPlan *p, Graph *g);
int64_t block_bytes(const MemoryPlan *p, const Block *b); // of all its slices

void blocks_make(MemoryPlan *p);

// In a loop with a schedule: the number of live slices of each block and its live range in op times
// (plan_slots.c). slots_begin precedes blocks_make, which reads `stays`.
void slots_begin(MemoryPlan *p);
void slots_find(MemoryPlan *p);

// Extends the live ranges of operands of collectives up to the first reader of the result, where
// that does not add to the peak (plan_in_flight.c).  Returns the number of extended blocks.
int blocks_keep_operands(MemoryPlan *p);

// Extends the live ranges of blocks that deferred updates use in the next step (plan_deferred.c).
void deferred_find(MemoryPlan *p);

static inline int64_t later(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static inline int64_t earlier(int64_t a, int64_t b) {
  return a < b ? a : b;
}

#endif
