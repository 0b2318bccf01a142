// The schedule of a kind, or the best one found.

#ifndef SCHEDULE_BEST_H
#define SCHEDULE_BEST_H

#include "schedule/kinds.h"

typedef struct ScheduleChoice {
  Arena *arena;
  const ScheduleText *kind; // NULL: search
  const char *constraints;  // a file for the search, or NULL: all kinds of pipelines are tried
  ScheduleAsk ask;
  double end; // of searches, of clock_seconds; the first candidate is tried in any case
} ScheduleChoice;

typedef struct ScheduleBest {
  SchedulePlan *plan;
  Timeline timeline;
  double bound;    // lower bound of this shape, or of all that a search covers
  bool optimal;    // proven for these within the memory limit
  const char *how; // of a search: the method that found it
  bool late;       // the search ended with `end`
  int left_out;    // chunks of the smallest shape that was too large to try; 0: none
} ScheduleBest;

// False after an error.
bool schedule_best(const ScheduleChoice *c, ScheduleBest *out, Diag *d);
// The number of stages per device.
int schedule_best_chunks(const ScheduleBest *x);
// A line about the result of a search.
const char *schedule_best_text(Arena *a, const ScheduleChoice *c, const ScheduleBest *x);

#endif
