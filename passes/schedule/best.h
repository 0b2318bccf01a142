// The schedule of a kind, or the best that is found.

#ifndef SCHEDULE_BEST_H
#define SCHEDULE_BEST_H

#include "schedule/kinds.h"

typedef struct ScheduleChoice {
  Arena *arena;
  const ScheduleText *kind; // NULL: search
  const char *constraints;  // a file for the search, or NULL: all kinds of pipelines are tried
  ScheduleAsk ask;
} ScheduleChoice;

typedef struct ScheduleBest {
  SchedulePlan *plan;
  Timeline timeline;
  double bound;    // nothing of this shape, or of any that a search looks at, ends earlier
  bool optimal;    // nothing of these in this room does
  const char *how; // a search's: what found it
} ScheduleBest;

// False, having reported why.
bool schedule_best(const ScheduleChoice *c, ScheduleBest *out, Diag *d);
// Stages of each device.
int schedule_best_chunks(const ScheduleBest *x);
// A line about what a search has found.
const char *schedule_best_text(Arena *a, const ScheduleChoice *c, const ScheduleBest *x);

#endif
