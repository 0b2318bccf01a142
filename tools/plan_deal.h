// The units of nnaot-plan blocks in stages.

#ifndef TOOLS_PLAN_DEAL_H
#define TOOLS_PLAN_DEAL_H

#include <stdint.h>

#include "base/diag.h"
#include "planner/auto/unit_cost.h"

enum { DEAL_PLACES = 1 << 17 }; // stages x micro-batches, as of a schedule

extern const char *const level_name[N_RECOMPUTE_LEVELS];

typedef struct DealAsked {
  int stages;
  const char *schedule;
  int64_t micro_batches; // of a step: of all accumulated batches
  double memory;         // bytes of a device; 0: no limit
  bool recompute;        // a stage that does not fit recomputes as few units as fit
} DealAsked;

bool deal_knows(const char *schedule); // one with a stage per device
// Deals the units, and prints the stages and the seconds of their timeline.
bool deal_print(const UnitCosts *units, const DealAsked *asked, Arena *a, Diag *d);

#endif
