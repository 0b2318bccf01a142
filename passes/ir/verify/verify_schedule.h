// Declarations shared by the checks of schedules: verify_schedule.c and verify_waits.c.

#ifndef IR_VERIFY_SCHEDULE_H
#define IR_VERIFY_SCHEDULE_H

#include "ir/schedule.h"

typedef struct SegmentRead {
  int reader, made; // segments
} SegmentRead;

// A graph with its schedule, during verification.
typedef struct Scheduled {
  const Graph *g;
  Arena *arena;
  int n, slices;          // segments; time slices
  const Mesh **mesh;      // by segment, from 1
  Vec(SegmentRead) reads; // of other segments
  Vec(const Op *) ahead;  // moves that start before their segments (move_is_ahead)
  int *ahead_of;          // by id of a move's result: its number in `ahead`, from 1; 0: none
} Scheduled;

bool verify_schedule(const Graph *g, Diag *d);
// 17: no deadlock.
bool verify_waits(Scheduled *s, Diag *d);

#endif
