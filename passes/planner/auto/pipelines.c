// Stages that may be faster than the best plan so far: see pipelines.h.

#include "pipelines.h"

#include <string.h>

#include "candidates.h"
#include "exclusion.h"
#include "sharding/sharding.h"

#define DRAINED     (1.0 / 3) // of the fill and drain time, at least
#define MAY_IMPROVE 1.5       // times the best: other orders of its blocks may still gain this
#define MAY_SAVE    1.15      // times the best: other plans inside of a stage may still gain this
enum {
  N_NUMBERS = 3, // of stages, with one plan of each tried in other orders
  N_INSIDE = 2,  // further plans of the best number that are tried in other orders
  FILLED = 4     // micro-batches for each stage that keep a pipeline full most of the time
};

// Returns the seconds of the step on one rank; 0: unknown, as devices differ or it cannot be made.
static double alone_seconds(const Module *model, const ChooseOptions *o, Arena *a, int64_t slices) {
  Candidate one = {.plan = "dp", .ranks = 1, .micro_batches = slices};
  if (o->cluster->n_kinds) return 0;
  candidate_make(model, o, a, &one, NULL);
  return one.seconds;
}

static double least_seconds(const ChooseOptions *o, double alone, int64_t stages, int64_t slices) {
  return alone / (double)o->ranks * (1 + DRAINED * (double)(stages - 1) / (double)slices);
}

// Returns number i, in order of seconds, of those in `all` from `first` on that fit, with `built`
// also of those with stages that the search of auto has built; or NULL.
static const Candidate *fastest(const Candidates *all, int first, bool built, int i) {
  const Candidate *last = NULL;
  for (; i >= 0; i--) {
    const Candidate *next = NULL;
    for (int k = 0; k < all->n; k++) {
      const Candidate *c = &all->at[k];
      if (k < first && !(built && c->priced > 0 && candidate_stages(c) > 1)) continue;
      // Of equal ones the first counts first.
      bool after = !last || c->seconds > last->seconds || (c->seconds == last->seconds && c > last);
      if (c->fits && after && (!next || c->seconds < next->seconds)) next = c;
    }
    if (!next) return NULL;
    last = next;
  }
  return last;
}

// Tries each in its own number of micro-batches, and no more if it does not fit; none that the
// search of auto excludes. Returns whether any could be made.
static bool try_each(const Module *model, const ChooseOptions *o, Arena *a, const Trials *trials,
                     AutoSearch *search, Candidates *all) {
  bool any = false;
  for (int i = 0; i < trials->n && !choice_ends(o, all); i++) {
    Candidate c = trials->at[i].c;
    // None is tried twice.
    bool is_tried = false;
    for (int k = 0; k < all->n && !is_tried; k++)
      is_tried = !strcmp(all->at[k].plan, c.plan) && all->at[k].micro_batches == c.micro_batches;
    c.worth = least_fitting(all);
    if (is_tried || (search && auto_excludes(search, &c, c.worth))) continue;
    candidate_make(model, o, a, &c, NULL);
    if (c.made) vec_push(a, all, c);
    any |= c.made;
  }
  return any;
}

static void cut_from(Trials *trials, int first, int64_t slices) {
  for (int i = first; i < trials->n; i++)
    trials->at[i].c.micro_batches = slices;
}

// Returns the least number of micro-batches above `slices` that fills so many stages; 0: none.
static int64_t filling(const ChooseOptions *o, int64_t stages, int64_t slices) {
  if (o->micro_batches) return 0;
  int64_t n = FILLED * stages > slices ? FILLED * stages : slices + 1;
  while (n <= o->batch && n <= MAX_MICRO_BATCHES && o->batch % n != 0)
    n++;
  return n <= o->batch && n <= MAX_MICRO_BATCHES ? n : 0;
}

// Returns the next lower number of micro-batches above `slices` that divides the rows; 0: none.
static int64_t next_less(const ChooseOptions *o, int64_t n, int64_t slices) {
  for (n--; n > slices; n--)
    if (o->batch % n == 0) return n;
  return 0;
}

// Tries so many stages, and uneven ones if devices differ, in so many micro-batches. Returns
// whether the even ones could be made.
static bool try_shape(const Module *model, const ChooseOptions *o, Arena *a, int64_t stages,
                      int64_t slices, bool searched, AutoSearch *search, Candidates *all) {
  Trials even = {0}, uneven = {0};
  candidates_of_stages(o, a, stages, searched, &even);
  candidates_uneven(o, a, &uneven);
  cut_from(&even, 0, slices);
  cut_from(&uneven, 0, slices);
  bool any = try_each(model, o, a, &even, search, all);
  try_each(model, o, a, &uneven, search, all);
  return any;
}

// Whether the search of auto excludes all plans of so many stages, before any is compiled.
static bool is_excluded(const ChooseOptions *o, Arena *a, AutoSearch *search, int64_t stages,
                        int64_t slices, bool searched, double worth) {
  Trials even = {0};
  candidates_of_stages(o, a, stages, searched, &even);
  cut_from(&even, 0, slices);
  bool all = search && !o->cluster->n_kinds;
  for (int i = 0; i < even.n && all; i++)
    all = auto_excludes(search, &even.at[i].c, worth) != NULL;
  return all;
}

// Tries every number of stages that may be worth it, in the micro-batches of the best and in as
// many as fill the pipeline, or, if the ranks of a stage cannot share so few rows, in the most that
// can be made.
static void try_numbers(const Module *model, const ChooseOptions *o, Arena *a, int64_t slices,
                        double worth, AutoSearch *search, Candidates *all) {
  bool searched = any_alike(all);
  double alone = alone_seconds(model, o, a, slices);
  for (int64_t k = 2; k <= o->ranks; k++) {
    if (o->ranks % k != 0) continue;
    if (least_seconds(o, alone, k, slices) < worth &&
        !is_excluded(o, a, search, k, slices, searched, worth))
      try_shape(model, o, a, k, slices, searched, search, all);
    for (int64_t n = filling(o, k, slices); n; n = next_less(o, n, slices)) {
      if (least_seconds(o, alone, k, n) >= worth) break;
      if (is_excluded(o, a, search, k, n, searched, worth)) continue;
      if (least_seconds(o, alone_seconds(model, o, a, n), k, n) >= worth) continue;
      if (try_shape(model, o, a, k, n, searched, search, all)) break;
    }
  }
}

// Tries other orders of the fastest, each with another number of stages.
static void try_orders(const Module *model, const ChooseOptions *o, Arena *a, int first,
                       AutoSearch *search, Candidates *all) {
  Trials orders = {0};
  int64_t known[N_NUMBERS];
  int n = 0;
  const Candidate *c;
  for (int i = 0; n < N_NUMBERS && (c = fastest(all, first, true, i)); i++) {
    int k = 0;
    known[n] = candidate_stages(c);
    while (known[k] != known[n])
      k++;
    if (k < n) continue;
    candidates_scheduled(model, a, c, &orders);
    n++;
  }
  try_each(model, o, a, &orders, search, all);
}

// Tries other plans inside of the stages of `shape`, and other orders of these.
static void try_inside(const Module *model, const ChooseOptions *o, Arena *a,
                       const Candidate *shape, AutoSearch *search, Candidates *all) {
  int others = all->n;
  Trials inside = {0}, orders = {0};
  candidates_all_of_stages(model, o, a, candidate_stages(shape), &inside);
  cut_from(&inside, 0, shape->micro_batches);
  try_each(model, o, a, &inside, search, all);
  for (int i = 0; i < N_INSIDE && fastest(all, others, false, i); i++)
    candidates_scheduled(model, a, fastest(all, others, false, i), &orders);
  try_each(model, o, a, &orders, search, all);
}

void try_pipelines(const Module *model, const ChooseOptions *o, Arena *a, AutoSearch *search,
                   Candidates *all) {
  const Candidate *best = fastest(all, 0, false, 0);
  if (!best || choice_ends(o, all) || (search && auto_covers(search, all))) return;
  double worth = LEAST_GAIN * best->seconds;
  int first = all->n;
  // The search has gone through these.
  bool known = search && auto_has_best(search, all);
  if (!known) try_numbers(model, o, a, best->micro_batches, worth, search, all);
  const Candidate *shape = fastest(all, first, true, 0);
  if (!shape || shape->seconds > MAY_IMPROVE * worth) return;
  try_orders(model, o, a, first, search, all);
  shape = fastest(all, first, true, 0);
  if (!known && shape->seconds <= MAY_SAVE * worth) try_inside(model, o, a, shape, search, all);
}
