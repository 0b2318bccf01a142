// Kinds of schedules, and users' constraints: files in Lua, as in kinds/.
//
//     split = true                                       -- B and W are separate blocks
//     function device(i, m) … end                        -- the device of stage i for micro-batch m
//     function order()                                   -- pairs of blocks
//       op_order(F(0, 1), B(0, 0))
//     end
//
// README.md documents all settings.  A file runs with `devices`, `micro_batches`, `chunks` and
// `memory` set, and defines a Shape, orders, and the memory limit of list scheduling.

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
  int chunks; // per device, of interleaved; the most that a search tries
  double f, b, w, e, latency;
  double memory; // INFINITY: no limit
} ScheduleAsk;

typedef struct SchedulePlan {
  const char *name; // "1f1b", or the file's
  const Loc *loc;   // of the file as a whole
  Shape shape;
  Pipeline *pipeline;
  Blocks *blocks;
  Orders orders; // without a cycle
  double room;   // from the file; INFINITY: no limit
} SchedulePlan;

// Properties of a kind that do not depend on the pipeline.
typedef struct ScheduleNature {
  bool asynchronous; // stages update their weights after each backward, instead of once in a step
  int pieces;        // per micro-batch
} ScheduleNature;

// Reads these from the kind's file.  False after an error.
bool schedule_nature(Arena *a, const ScheduleKind *kind, ScheduleNature *out, Diag *d);
// Runs the file.  NULL after an error.
SchedulePlan *schedule_plan(Arena *a, const ScheduleText *text, const ScheduleAsk *ask, Diag *d);
// The same for the file at `path`.
SchedulePlan *schedule_plan_file(Arena *a, const char *path, const ScheduleAsk *ask, Diag *d);

#endif
