// Searches for a short timeline: list scheduling by all rules, the steady state, beam search, and
// local search from the best of these.

#include <math.h>

#include "base/clock.h"
#include "schedule/schedule.h"

static void offer(SearchResult *x, const Timeline *t, double cutoff) {
  double best = x->has ? x->best.makespan : cutoff;
  bool shorter = t->makespan < best * (1 - 1e-9);
  bool as_short = x->has && t->makespan <= best && t->span < x->best.span * (1 - 1e-9);
  if (!shorter && !as_short) return;
  x->has = true;
  x->best = *t;
}

SearchResult schedule_search(Arena *a, const Blocks *b, const Orders *o, double room, double cutoff,
                             SearchLimit limit) {
  SearchResult x = {0};
  double bound = pipeline_bound(a, b->pipeline);
  Timeline t;
  for (int i = 0; i < N_LIST_RULES && (i == 0 || clock_seconds() < limit.end); i++) {
    ListRule rule = list_rules[i];
    rule.room = room;
    if (schedule_list(a, b, o, &rule, &t)) offer(&x, &t, cutoff);
  }
  // As long as the lower bound: no search can be better.
  if (bound >= fmin(cutoff, x.has ? x.best.makespan : INFINITY) * (1 - 1e-9)) {
    x.optimal = true;
    return x;
  }
  // Each search gets the best makespan so far as its cutoff.
  if (schedule_repeat(a, b, o, room, x.has ? x.best.makespan : cutoff, limit.end, &t))
    offer(&x, &t, cutoff);
  SearchResult y = schedule_beam(a, b, o, room, x.has ? x.best.makespan : cutoff, limit);
  if (y.has) offer(&x, &y.best, cutoff);
  limit.work /= 2;
  if (x.has && !o->n) schedule_improve(a, b, room, limit, &x.best);
  x.optimal = y.optimal || (x.has && x.best.makespan <= bound * (1 + 1e-9));
  return x;
}
