// The units of nnaot-plan blocks in stages: see plan_deal.h.
//
//     stage 0  units 0-12   66340 MB
//     stage 1  units 13-25  60810 MB
//     in stages 3663 ms, no less than 3612 ms

#include "plan_deal.h"

#include <math.h>
#include <stdio.h>

#include "planner/auto/deal.h"

const char *const level_name[N_RECOMPUTE_LEVELS] = {"none", "attention", "layer"};

bool deal_knows(const char *schedule) {
  StagedKind kind;
  return staged_kind_named(schedule, &kind);
}

bool deal_print(const UnitCosts *units, const DealAsked *asked, Arena *a, Diag *d) {
  enum { TIMELINES = 200 };
  DealProblem p = {.units = units,
                   .stages = asked->stages,
                   .chunks = 1,
                   .micro_batches = asked->micro_batches,
                   .memory = asked->memory > 0 ? asked->memory : INFINITY,
                   .per_stage_recompute = asked->recompute};
  Deal deal;
  if (!staged_kind_named(asked->schedule, &p.kind))
    BUG("the schedule '%s' is none", asked->schedule);
  if (units->n < p.stages)
    return diag_error(d, NULL, "the model has %d units for %d stages", units->n, p.stages);
  if (!deal_find(&p, a, &deal))
    return diag_error(d, NULL, "no deal of the units to %d stages fits into %.4g bytes", p.stages,
                      asked->memory);
  double seconds = deal_improve(&p, &deal, TIMELINES);
  for (int i = 0; i < deal.n; i++) {
    printf("stage %d  units %d-%d  %.4g MB", i, deal.first[i], deal.first[i + 1] - 1,
           deal.bytes[i] / 1e6);
    if (deal.recomputed[i])
      printf("  %d recomputed: %s", deal.recomputed[i], level_name[deal.level[i]]);
    printf("\n");
  }
  printf("in stages %.4g ms, no less than %.4g ms\n", 1e3 * seconds, 1e3 * deal.bound);
  return true;
}
