// Declarations shared by the checks of schedules: verify_schedule.c and verify_waits.c.

#ifndef IR_VERIFY_SCHEDULE_H
#define IR_VERIFY_SCHEDULE_H

#include "ir/schedule.h"

typedef struct SegmentRead {
  int reader, made; // segments
} SegmentRead;

// A graph with its schedule, during verification.
// Numbers grouped by segment: those of segment k are item[at[k]] to item[at[k + 1] - 1], ascending.
typedef struct BySegment {
  int *at, *item;
} BySegment;

typedef struct Scheduled {
  const Graph *g;
  Arena *arena;
  int n, slices;          // segments; time slices
  const Mesh **mesh;      // by segment, from 1
  Vec(SegmentRead) reads; // of other segments
  BySegment reads_of;     // by reader
  Vec(const Op *) ahead;  // moves that start before their segments (move_is_ahead)
  BySegment ahead_in;     // moves of `ahead`, by the segment that they start before
  int *ahead_of;          // by id of a move's result: its number in `ahead`, from 1; 0: none
} Scheduled;

// Groups the numbers 0 to n - 1 by their segments, `segment` of each; those of segment 0 are left
// out.
BySegment group_by_segment(const Scheduled *s, const int *segment, int n);

bool verify_schedule(const Graph *g, Diag *d);
// 17: no deadlock.
bool verify_waits(Scheduled *s, Diag *d);

#endif
