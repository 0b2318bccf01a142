// See pipelines.h.

#include "pipelines.h"

#include <string.h>

#include "candidates.h"

#define LEAST_GAIN  0.99      // of the best so far: else it is not worth a try
#define DRAINED     (1.0 / 3) // of the time in which a pipeline fills and drains, at least
#define MAY_IMPROVE 1.5       // times the best: what the order of its blocks may still gain
enum { N_SCHEDULED = 2 };     // plans that are tried in other orders

// Seconds of the step on one rank; 0: not known, as devices differ or it cannot be made.
static double alone_seconds(const Module *model, const ChooseOptions *o, Arena *a, int64_t slices) {
  Candidate one = {.plan = "dp", .ranks = 1, .micro_batches = slices};
  if (o->cluster->n_kinds) return 0;
  candidate_make(model, o, a, &one, NULL);
  return one.seconds;
}

static double least_seconds(const ChooseOptions *o, double alone, int64_t stages, int64_t slices) {
  return alone / (double)o->ranks * (1 + DRAINED * (double)(stages - 1) / (double)slices);
}

// Those of `all` from `first` on, in order of their seconds: the number i, or NULL.
static const Candidate *fastest(const Candidates *all, int first, int i) {
  const Candidate *last = NULL;
  for (; i >= 0; i--) {
    const Candidate *next = NULL;
    for (int k = first; k < all->n; k++) {
      const Candidate *c = &all->at[k];
      bool after = !last || c->seconds > last->seconds || (c->seconds == last->seconds && c > last);
      if (c->fits && after && (!next || c->seconds < next->seconds)) next = c;
    }
    if (!next) return NULL;
    last = next;
  }
  return last;
}

static bool is_tried(const Candidates *all, int first, const char *plan) {
  for (int i = first; i < all->n; i++)
    if (!strcmp(all->at[i].plan, plan)) return true;
  return false;
}

// In as many micro-batches; what then does not fit is none.
static void try_each(const Module *model, const ChooseOptions *o, Arena *a, const Trials *trials,
                     int64_t slices, int first, Candidates *all) {
  for (int i = 0; i < trials->n; i++) {
    Candidate c = trials->at[i].c;
    c.micro_batches = slices;
    if (is_tried(all, first, c.plan)) continue;
    candidate_make(model, o, a, &c, NULL);
    if (c.made) vec_push(a, all, c);
  }
}

void try_pipelines(const Module *model, const ChooseOptions *o, Arena *a, Candidates *all) {
  const Candidate *best = fastest(all, 0, 0);
  if (!best) return;
  int64_t slices = best->micro_batches;
  double worth = LEAST_GAIN * best->seconds, alone = alone_seconds(model, o, a, slices);
  int first = all->n;
  Trials shapes = {0};
  for (int64_t k = 2; k <= o->ranks; k++)
    if (o->ranks % k == 0 && least_seconds(o, alone, k, slices) < worth)
      candidates_of_stages(o, a, k, any_alike(all), &shapes);
  try_each(model, o, a, &shapes, slices, first, all);

  const Candidate *shape = fastest(all, first, 0);
  if (!shape || shape->seconds > MAY_IMPROVE * worth) return;
  Trials inside = {0};
  candidates_all_of_stages(model, o, a, candidate_stages(shape), &inside);
  try_each(model, o, a, &inside, slices, first, all);

  Trials scheduled = {0};
  for (int i = 0; i < N_SCHEDULED && fastest(all, first, i); i++)
    candidates_scheduled(model, a, fastest(all, first, i), &scheduled);
  try_each(model, o, a, &scheduled, slices, first, all);
}
