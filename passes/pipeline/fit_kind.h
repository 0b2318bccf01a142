// Which segments (segments.h) the blocks of a kind of schedule (schedule/kinds.h) are.
//
//     interleaved:2 on 2 devices    F(0, m)  F(1, m)  F(2, m)  F(3, m)
//     segments                      F0 @s0   F1 @s1   F2 @s0   F3 @s1
//
// A kind says on which of its devices each of its stages is.  It fits where as many stages are on
// sets of devices that are the same and not the same as the kind's.  Stages of the kind that follow
// each other on one device are one of ours, as is the turn of zb-v.
//
//     interlaced    E(1, m)  F(0, m) … F(3, m)  E(2, m)  E(3, m)  B(3, m) … B(0, m)  E(4, m)
//     segments      F0 @all  F1 @s0  … F4 @s3   F5 @all  B5 @all  B4 @s3  … B1 @s0   B5.2 @all
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
// With an embedding, what is on all devices is no stage: it stands before the stages or behind
// them. With several forwards, there are the stages of each, and gradients are of the last one's.

#ifndef FIT_KIND_H
#define FIT_KIND_H

#include "schedule/kinds.h"
#include "segments.h"

typedef struct Fit {
  Arena *arena;
  Diag *d;
  const char *kind; // as it is said
  const Loc *loc;   // where
  ScheduleKind read;
  bool asked; // the kind was said, of several slices: what does not fit is an error
  int slices;
  const Graph *g;
  const Segments *segments;
  SchedulePlan *plan; // from here on where it fits
  int embedding;      // the set of devices that has it, or -1
  int pieces;         // of each slice, as the kind says
  int ways;           // so many, or 1 or 2
  int *way;           // by segment, where there are several
} Fit;

typedef struct SegmentList {
  int n, *at;
} SegmentList;

// False where it does not fit; having reported why, if it was asked for.  Nor does any where there
// is one slice, and all of it goes the same way, in pieces or not: what devices wait for leaves
// them no other order than the graph's, forward the first piece first, back the last.
bool fit_kind(Fit *f);
// Whether segments are by piece.  Those of one slice are, as gradients of weights are added up over
// pieces in it, and not behind the loop.
bool fit_by_piece(const Fit *f);
bool fit_declined(const Fit *f, const char *why); // false
int fit_places(const Fit *f);                     // on how many sets of devices stages are

// Of each of the kind's works the segments, which may have been found again since it fit.
typedef struct Fitted Fitted;
Fitted *fit_segments(Fit *f);
// Those of a block of the kind, and of which of our slices.
const SegmentList *fitted_to(const Fitted *f, const Blocks *b, int block, int *slice);
// The orders of the kind's blocks, and those that follow where we have nothing of a block: what is
// before it is before what is behind it.
Orders fit_orders(const Fit *f, const Fitted *to);

#endif
