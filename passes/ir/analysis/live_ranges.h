// From when to when a slice of a value is there, on the ranks of a run of a schedule (schedule.h).
//
//     run devices=1 get %h F1 get %h B1 F1 B1         %a is made in F1, and B1 reads it last
//
//     slice 0 of %a      from F1, the second action, to B1, the fourth
//     slice 1            from the fifth to the sixth
//
// Times are actions of the run, and ops within them.  A value is there
//
//   from   the op that makes it; of an input, the first segment that runs of the slice; of a move that
//          starts ahead, where the run gets it, or from the end of the segment on where it starts
//   to     the last op that reads it, or its wait in the segment, of an all_reduce elsewhere than in
//          its operand; where a move reads that starts ahead, to the end of the segment where it starts
//
// Only what a slice has of its own stays so: not sums over slices, nor what is the same in all of
// them and is read after the last.

#ifndef IR_LIVE_RANGES_H
#define IR_LIVE_RANGES_H

#include "ir/schedule.h"

typedef struct LiveRange {
  int64_t from, to; // both included
} LiveRange;

typedef struct LiveRanges LiveRanges;

LiveRanges *stays_new(const Graph *g, Arena *a); // of a graph with a schedule
// Of each slice; NULL where the value is not on the run's devices or has no stays.
const LiveRange *stays_of(LiveRanges *s, const Value *v, int run);
// The action of a time, and when an op runs of which slice in a run that has its segment.
int stays_action(const LiveRanges *s, int64_t time);
int64_t stays_time(const LiveRanges *s, const Op *op, int run, int slice);
// When the segment of an op ends.
int64_t stays_segment_end(const LiveRanges *s, const Op *op, int run, int slice);
// The op times (place.h) at which the action runs, if it is a segment.  `to` is the end of time
// within the action where it is more than all.
int64_t stays_op_time(const LiveRanges *s, int64_t time);
// Whether each slice has a value of its own: see above.
bool value_stays(const Value *v);
// Whether it is read after the loop, too; that is made in it, and no sum.
bool value_escapes(const Value *v);

#endif
