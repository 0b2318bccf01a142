// What kinds of schedules are called: the files of kinds/, and `interleaved:2`, which says how many
// chunks of the model each device has.

#ifndef SCHEDULE_NAMES_H
#define SCHEDULE_NAMES_H

#include "base/arena.h"

enum { SCHEDULE_CHUNKS = 64, SCHEDULE_FORWARDS = 16 };

typedef struct ScheduleText {
  const char *name, *text;
  size_t n;
} ScheduleText;

extern const ScheduleText schedule_texts[]; // made by the build
extern const int n_schedule_texts;

// NULL: there is no such kind.
const ScheduleText *schedule_text(const char *name);
// The kind that "interleaved:2" begins with, and how many chunks it has on each device; without a
// number, 1.  NULL: there is no such kind, or number.
const ScheduleText *schedule_kind(Arena *a, const char *said, int *chunks);
const char *schedule_names(Arena *a); // "1f1b, 3f1b, …"

#endif
