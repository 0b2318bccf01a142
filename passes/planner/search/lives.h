// Which values of a training step need memory of their own, and when: as the passes find it that
// run after shard, of the step as one device would do it.
//
//     %y = linear %x, %w            at 1         2 ─────────────────── 9   linear_back_w reads it then
//     %b = broadcast %bias          nothing      part of a kernel (fuse)
//     %z = add %y, %b               at 2         in the place of %y (plan_memory)
//
// Moments are those of the planned program: op number t runs at 2 t, and what comm brings to other
// ranks is made at 2 t + 1, when t is done.

#ifndef LIVES_H
#define LIVES_H

#include "ir/graph.h"
#include "ir/op.h"

typedef struct Lived {
  uint32_t id;      // of the value in the graph that was asked about, or of what it is made of
  int64_t bytes;    // on one device, for one slice of time
  int64_t from, to; // moments, `to` the last
  bool kept;        // from step to step
} Lived;

// What adding a value up over slices of time takes in each of them, besides making it: an op of its
// own reads it and what was there and writes that, a product that adds only reads what was there.
typedef struct Summed {
  double moved; // bytes for each of the value; 0: it is not added up
  int launches;
} Summed;

typedef struct Lives {
  int n;
  Lived *at;
  bool *there;    // by value id: it is in memory, if only in that of another
  Summed *summed; // by value id
  int64_t *time;  // by op id: when it is done; 0: never
  int64_t update; // when the ops begin that run once per step, after all slices
  int64_t end;
  const struct Timed *timed; // of the same step: microbatch_cut.h
} Lives;

// Of a module that is sharded several times, and is the same each time: what was found before.
typedef struct LifetimeCache {
  Lives *lives;                  // in `arena`; NULL: not yet
  struct SolutionCache *answers; // of searches, by way to factor the ranks (search.h), in
                                 // `lasting`; NULL: none are known
  struct SolutionCache *used;    // those of the way that was taken
  bool others;                   // other answers that are about as good are wanted, too (k_best.c)
  Arena *arena, *lasting;
} LifetimeCache;

// Of the first graph, the training step, compiled for that target; everything in `a`.  NULL where
// the step cannot be made for one device.
Lives *lives_of(const Module *m, Target target, int64_t slices, Arena *a);

#endif
