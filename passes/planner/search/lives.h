// Values of a training step that need memory of their own, and their live ranges, as computed by
// the passes after shard for the step on a single device.
//
//     %y = linear %x, %w           at 1        2 ────────────────── 9   linear_back_w reads it then
//     %b = broadcast %bias         nothing     part of a kernel (fuse)
//     %z = add %y, %b              at 2        in the place of %y (plan_memory)
//
// Times are those of the planned program: op number t runs at 2 t, and comm makes its results for
// other ranks at 2 t + 1, when t is done.

#ifndef LIVES_H
#define LIVES_H

#include "ir/graph.h"
#include "ir/op.h"

typedef struct Lived {
  uint32_t id;      // of the value in the given graph, or of the value that it is derived from
  int64_t bytes;    // on a single device, for one time slice
  int64_t from, to; // live range; `to` is the last time
  bool kept;        // persistent state
} Lived;

// Memory traffic of accumulating a value over time slices, per slice, without producing the value.
// A separate op reads the value and the sum and writes the sum; an accumulating product only reads
// the sum.
typedef struct Summed {
  double moved; // bytes per byte of the value; 0: it is not accumulated
  int launches;
} Summed;

typedef struct Lives {
  int n;
  Lived *at;
  bool *there;    // by value id: it is in memory, or in the memory of another value
  Summed *summed; // by value id
  int64_t *time;  // by op id: the time at which it is done; 0: never
  int64_t update; // start of the ops that run once per step, after all slices
  int64_t end;
  const struct Timed *timed; // of the same step: microbatch_cut.h
} Lives;

enum { MAX_ATTEMPTS = 256 }; // of factorings of the ranks, in a module

// Results kept for a module that is sharded several times without changes.
typedef struct LifetimeCache {
  Lives *lives;                  // in `arena`; NULL: not yet
  struct SolutionCache *answers; // of searches, by factoring of the ranks (search.h), in `lasting`;
                                 // NULL: none are known
  struct SolutionCache *used;    // those of the taken factoring
  bool *slow;  // [MAX_ATTEMPTS] factorings with slow plans alone (SearchStats) in as many or
               // fewer micro-batches, and so in more of them; they are not tried again; or NULL
  bool others; // answers of about the same cost are wanted, too (k_best.c)
  Arena *arena, *lasting;
} LifetimeCache;

// Returns the live ranges of the first graph, the training step, compiled for that target; all of
// it in `a`. NULL if the step cannot be compiled for a single device.
Lives *lives_of(const Module *m, Target target, int64_t slices, Arena *a);

#endif
