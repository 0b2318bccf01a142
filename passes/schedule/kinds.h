// Kinds of schedules, and constraints of users: files in Lua, as in kinds/.
//
//     split = true                                       -- what is to be scheduled
//     function device(i, m) … end                        -- which device has stage i for micro-batch m
//     function order()                                   -- what runs before what
//       op_order(F(0, 1), B(0, 0))
//     end
//
// README.md has all that they may say.  A file is run with `devices`, `micro_batches`, `chunks` and
// `memory` set, and says a Shape, orders, and how much room the list may use.

#ifndef SCHEDULE_KINDS_H
#define SCHEDULE_KINDS_H

#include "schedule/names.h"
#include "schedule/schedule.h"

enum {
  SCHEDULE_PLACES = 1 << 17, // devices x micro-batches
  SCHEDULE_BLOCKS = 1 << 20,
};

typedef struct ScheduleAsk {
  int n_devices, n_micro_batches;
  int chunks; // of a device, interleaved; as many as a search may take
  double f, b, w, e, latency;
  double memory; // INFINITY: any
} ScheduleAsk;

typedef struct SchedulePlan {
  const char *name; // "1f1b", or the file's
  const Loc *loc;   // of the file as a whole
  Shape shape;
  Pipeline *pipeline;
  Blocks *blocks;
  Orders orders; // of which there is no circle
  double room;   // as the file says; INFINITY: any
} SchedulePlan;

// What the file says of the program that it is for, whatever the pipeline.
typedef struct ScheduleNature {
  bool asynchronous; // stages update their weights after each backward, instead of once in a step
  int pieces;        // each micro-batch goes through the stages in so many
} ScheduleNature;

// False, having reported why that cannot be read.
bool schedule_nature(Arena *a, const ScheduleKind *kind, ScheduleNature *out, Diag *d);
// Runs the file.  NULL, having reported why.
SchedulePlan *schedule_plan(Arena *a, const ScheduleText *text, const ScheduleAsk *ask, Diag *d);
// The file at `path`.
SchedulePlan *schedule_plan_file(Arena *a, const char *path, const ScheduleAsk *ask, Diag *d);

#endif
