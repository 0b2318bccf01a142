// Maps the blocks of a kind of schedule (schedule/kinds.h) to segments (segments.h).
//
//     interleaved:2 on 2 devices    F(0, m)  F(1, m)  F(2, m)  F(3, m)
//     segments                      F0 @s0   F1 @s1   F2 @s0   F3 @s1
//
// A kind assigns each of its stages to a device. It fits if the plan has as many stages, and if any
// two are on the same set of devices exactly when those of the kind are on one device. Consecutive
// stages of the kind on one device are one of ours, as at the turn of zb-v.
//
//     interlaced    E(1, m)  F(0, m) … F(3, m)  E(2, m)  E(3, m)  B(3, m) … B(0, m)  E(4, m)
//     segments      F0 @all  F1 @s0  … F4 @s3   F5 @all  B5 @all  B4 @s3  … B1 @s0   B0 @all
//
//     3f1b          F(0, m, 1)  F(1, m, 1)  F(0, m, 2)  F(1, m, 2)  F(0, m, 3)  F(1, m, 3)  B(1, m) …
//     segments      F0 @s0      F1 @s1      F2 @s0      F3 @s1      F4 @s0      F5 @s1      B5 @s1  …
//
//     chimera       F(0, 0) F(1, 0) B(1, 0) B(0, 0)    F(0, 1) F(1, 1) B(1, 1) B(0, 1)   of 2 devices
//     segments      F0 @s0  F3 @s1  B3 @s1  B0 @s0     F1 @s1  F2 @s0  B2 @s0  B1 @s1    of slice 0
//
//     terapipe:2    F(0, 0) F(1, 0) B(1, 0) B(0, 0)    F(0, 1) F(1, 1) B(1, 1) B(0, 1)   of 2 devices
//     segments      F0 @s0  F2 @s1  B2 @s1  B0 @s0     F1 @s0  F3 @s1  B3 @s1  B1 @s0    of slice 0
//
// With an embedding, a segment on all devices is no stage: it runs before or after the stages. With
// several forwards, each has its own stages, and gradients belong to the last forward's.

#ifndef FIT_KIND_H
#define FIT_KIND_H

#include "schedule/kinds.h"
#include "segments.h"

typedef struct Fit {
  Arena *arena;
  Diag *d;
  const char *kind; // as written in the plan
  const Loc *loc;   // the location of that
  ScheduleKind read;
  bool asked; // requested, for several slices: a misfit is an error, else a warning
  int slices;
  const Graph *g;
  const Segments *segments;
  SchedulePlan *plan; // set by fit_kind if the kind fits
  int embedding;      // its set of devices, or -1
  bool asynchronous;  // the kind updates weights after each micro-batch
  int pieces;         // of each slice, by the kind
  int ways;           // routes: as many as pieces, or 1 or 2
  int *way;           // route by segment, if there are several
} Fit;

typedef struct SegmentList {
  int n, *at;
} SegmentList;

// False if the kind does not fit, after reporting why if it was requested. No kind fits a single
// slice on a single route, in pieces or not: dependences leave devices only the order of the graph,
// forward from the first piece, backward from the last.
bool fit_kind(Fit *f);
// Whether segments are by piece. With one slice they are: gradients of weights are summed over
// pieces within the slice, not after the loop.
bool fit_by_piece(const Fit *f);
bool fit_declined(const Fit *f, const char *why); // reports a misfit and returns false
int fit_places(const Fit *f);                     // the number of sets of devices with stages

// The segments of each of the kind's works. Segments may have been recomputed since the kind fit.
typedef struct Fitted Fitted;
Fitted *fit_segments(Fit *f);
// The segments of a block of the kind, and their slice.
const SegmentList *fitted_to(const Fitted *f, const Blocks *b, int block, int *slice);
// The orders of the kind's blocks, closed over blocks without a segment of ours: a block before
// such a block precedes the blocks after it.
Orders fit_orders(const Fit *f, const Fitted *to);

#endif
