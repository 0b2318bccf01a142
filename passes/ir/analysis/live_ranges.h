// Live ranges of the slices of a value, on the ranks of a run of a schedule (schedule.h).
//
//     run devices=1 get %h F1 get %h B1 F1 B1         %a is made in F1, and B1 reads it last
//
//     slice 0 of %a      from F1, the second action, to B1, the fourth
//     slice 1            from the fifth to the sixth
//
// Times are actions of the run, and ops within them.  A live range begins at
//
//   - the op that produces the value;
//   - for an input, the first segment of the slice;
//   - for a move that starts ahead, its `get`; on senders, the end of the segment that starts it;
//
// and ends at
//
//   - the last reader;
//   - for the operand of an all_reduce that is not in place, the wait for the sum in the segment;
//   - for the operand of a move that starts ahead, the end of the segment that starts it.
//
// Only values of a single slice have such live ranges: not sums over slices, nor values that are
// the same in all slices and read after the last one.

#ifndef IR_LIVE_RANGES_H
#define IR_LIVE_RANGES_H

#include "ir/schedule.h"

typedef struct LiveRange {
  int64_t from, to; // inclusive
} LiveRange;

typedef struct LiveRanges LiveRanges;

LiveRanges *stays_new(const Graph *g, Arena *a); // of a graph with a schedule
// The live range of each slice; NULL if the value is not on the run's devices or has none.
const LiveRange *live_ranges_of(LiveRanges *s, const Value *v, int run);
// The action of a time; and the time of an op for a slice, in a run that has its segment.
int live_range_action(const LiveRanges *s, int64_t time);
int64_t live_range_time(const LiveRanges *s, const Op *op, int run, int slice);
// The end of the segment of an op.
int64_t live_range_segment_end(const LiveRanges *s, const Op *op, int run, int slice);
// The op time (place.h) within the action, if it is a segment.  A `to` beyond all op times is the
// end of the action.
int64_t live_range_op_time(const LiveRanges *s, int64_t time);
// Whether each slice has a value of its own (see above).
bool value_stays(const Value *v);
// Whether a value that the loop produces, and that is no sum over slices, is also read after the
// loop.
bool value_escapes(const Value *v);

#endif
