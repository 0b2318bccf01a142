// What the checks of schedules share: verify_schedule.c and verify_waits.c.

#ifndef IR_VERIFY_SCHEDULE_H
#define IR_VERIFY_SCHEDULE_H

#include "ir/schedule.h"

typedef struct SegmentRead {
  int reader, made; // segments
} SegmentRead;

// A graph with its schedule, as it is looked at.
typedef struct Scheduled {
  const Graph *g;
  Arena *arena;
  int n, slices;          // segments; of time
  const Mesh **mesh;      // of each segment, from 1
  Vec(SegmentRead) reads; // of another segment
  Vec(const Op *) ahead;  // moves that start before their segments (move_is_ahead)
  int *ahead_of;          // by id of a move's result: which of these, from 1; 0: none
} Scheduled;

bool verify_schedule(const Graph *g, Diag *d);
// 17: whether all can run to their ends.
bool verify_waits(Scheduled *s, Diag *d);

#endif
