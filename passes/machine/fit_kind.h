// Which segments (segments.h) the blocks of a kind of schedule (schedule/kinds.h) are.
//
//     interleaved:2 on 2 devices    F(0, m)  F(1, m)  F(2, m)  F(3, m)
//     segments                      F0 @s0   F1 @s1   F2 @s0   F3 @s1
//
// A kind says on which of its devices each of its stages is.  It fits where as many stages are on
// sets of devices that are the same and not the same as the kind's.  Stages of the kind that follow
// each other on one device are one of ours, as is the turn of zb-v.

#ifndef FIT_KIND_H
#define FIT_KIND_H

#include "schedule/kinds.h"
#include "segments.h"

typedef struct Fit {
  Arena *arena;
  Diag *d;
  const char *kind;
  bool asked; // the kind was said: what does not fit is an error
  int slices;
  const Segments *segments;
  SchedulePlan *plan; // where it fits, from here on
} Fit;

typedef struct SegmentList {
  int n, *at;
} SegmentList;

// False where it does not fit; having reported why, if it was asked for.
bool fit_kind(Fit *f);
bool fit_declined(const Fit *f, const char *why); // false
int fit_places(const Fit *f);                     // on how many sets of devices forwards are

// Of each of the kind's works the segments, which may be others than those that it was found for.
typedef struct Fitted Fitted;
Fitted *fit_segments(const Fit *f, const Segments *segments);
const SegmentList *fitted_to(const Fitted *f, const Work *work);

#endif
