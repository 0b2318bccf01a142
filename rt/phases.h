// The phases of a job between processes: messages between this rank and the others, all at once,
// and sums of those that have arrived.
//
// An all_reduce of n ranks splits the tensor into n chunks.  Rank i receives chunk i of all other
// ranks and adds them in rank order; then every rank receives the sums of the other ranks.  Each
// rank sends twice (n-1)/n of the tensor, as in a ring, and the order of the additions is the same
// as in every other transport.  Small tensors are sent whole, in one phase instead of two.
//
//     phase 1   chunk i of x ── to rank i ─→ sum of chunk i          for all i at once
//     phase 2   sum of chunk i ── to all others ─→ y
//
// A reduce_scatter is the first of the two phases, with the parts as chunks; an all_to_all is such
// a phase without additions.  In a phase a rank sends to all others and receives from all at once,
// so it takes one latency, and all links are busy.  Rank i begins with rank i+1: no two ranks begin
// with the same one.

#ifndef NNRT_PHASES_H
#define NNRT_PHASES_H

#include "comm.h"

// A job under way.
typedef struct Work {
  const Job *job;
  Lane *lane;
  int phase;         // 0 or 1
  int pending;       // messages of the phase that have not ended
  bool ended;        // and the job has
  Message *message;  // [n_messages] of the phase
  const void **part; // [ranks of the group] the terms of a sum; NULL: there is none
  int n_messages;
  int64_t end; // of its memory in the scratch of the window
} Work;

// Returns the bytes of memory that nnrt_work_begin needs, for messages and the terms of sums.
int64_t nnrt_work_bytes(const Job *job);
// Adds the messages of the first phase to the lane.  `memory` is the work's until the job has
// ended.
void nnrt_work_begin(Work *w, const Job *job, Lane *lane, char *memory);
// Continues after the last message of a phase: adds, and begins the next phase or ends the job.
void nnrt_work_step(Work *w);
// Whether a second phase of the job has yet to begin.
bool nnrt_work_has_second(const Work *w);
// Whether jobs after this one begin only after its end, because it fills the line: the bytes of two
// such jobs would delay each other's last ones.  Both its phases are on the first channel, since a
// connection of TCP that rests begins slowly again.
bool nnrt_work_is_alone(const Job *job);
// Returns the rank that the job waits for: a sender, if there is one; -1: none.
int nnrt_work_awaits(const Work *w);

#endif
