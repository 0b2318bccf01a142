// The questions of nnaot-plan, each a file, and what the command line said.

#ifndef TOOLS_QUESTIONS_H
#define TOOLS_QUESTIONS_H

#include "options.h"
#include "schedule/kinds.h"

typedef struct PlanOptions {
  const char *shape, *dtype, *from, *to, *cluster; // rvd
  const char *file, *method, *lp;                  // solve
  double seconds, work;
  int64_t seed;
  const char *kind, *constraints; // schedule
  int64_t stages, micro_batches;
  double f, b, w, comm, memory, embed;
  int64_t chunks;
  int64_t ranks, per_node, steps; // calibrate
  const char *target, *output;
  bool json, verbose;
} PlanOptions;

extern PlanOptions plan_options;

// What the program is to exit with.
int plan_rvd(const Program *program);
int plan_solve(const Program *program);
int plan_schedule(const Program *program);
int plan_calibrate(const Program *program);

void draw_timeline(const SchedulePlan *p, const Timeline *t);

#endif
