// What kinds of schedules are called: the files of kinds/, and `search`.  Some have a number behind
// their names:
//
//     interleaved:2    2 chunks of the model on each device
//     terapipe:4       4 pieces of each micro-batch

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

// NULL: there is no such file.
const ScheduleText *schedule_text(const char *name);

typedef struct ScheduleKind {
  const ScheduleText *text; // NULL: search
  int count;                // the number; 1 where there is none
} ScheduleKind;

// Reads what is said, such as "interleaved:2".  Returns NULL, or what is wrong with it.
const char *schedule_kind(Arena *a, const char *said, ScheduleKind *out);

#endif
