// The trials of `--plan auto` with the plans of candidates.h, and the choice (choose.h).
//
//     8 ranks   dp 9.1 ms   zero1 9.4 ms   sp all ranks do the same   …   search 7.9 ms   one that fits
//     then      search=2x4 7.6 ms      a factoring that `search` found to be about as good

#include "choose.h"

#include "auto.h"
#include "candidates.h"
#include "evaluate.h"
#include "exclusion.h"
#include "pipelines.h"
#include "planner/plan/factoring.h"
#include "relief.h"

#define ALL_WORK 2e9        // of all searches of `auto`: about 10 s at most
#define EQUAL    (1 - 1e-6) // times another: of two this close the first is taken, which needs less
enum { QUICK_OPS = 1024 };  // of a model that is compiled in a fraction of a second

// Returns the cheapest of those that fit and share the work among at least so many ranks; of equal
// ones the first.
static int cheapest_of(const Candidates *all, int sharing) {
  int best = -1;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (!c->fits || c->sharing < sharing) continue;
    if (best < 0 || c->seconds < EQUAL * all->at[best].seconds) best = i;
  }
  return best;
}

// Prefers one that takes about as long and shares the work among more ranks.
static int cheapest(const Candidates *all) {
  int best = cheapest_of(all, 0);
  if (best < 0) return best;
  double worth = NO_GAIN * all->at[best].seconds;
  for (int more; (more = cheapest_of(all, all->at[best].sharing + 1)) >= 0; best = more)
    if (all->at[more].seconds > worth) break;
  return best;
}

// Returns the first candidate of that plan; NULL: it could not be made, or was not tried.
static const Candidate *find_made(const Candidates *all, const char *plan) {
  for (int i = 0; i < all->n; i++)
    if (str_equal(all->at[i].plan, plan)) return all->at[i].made ? &all->at[i] : NULL;
  return NULL;
}

// Whether a search of a larger space has proved that no plan in as many micro-batches fits, or is
// as fast as is wanted.
static bool is_searched(const Candidates *all, const Candidate *c) {
  for (int i = 0; i < all->n && candidate_adds(c); i++) {
    const Candidate *x = &all->at[i];
    bool larger = candidate_searches(x) && !candidate_adds(x) && !candidate_changes(x);
    if (!larger || x->ranks != c->ranks || x->micro_batches != c->micro_batches) continue;
    if (!x->made && x->proved && (x->slow || (x->needs_less && x->exact))) return true;
  }
  return false;
}

// Whether no earlier result makes the trial pointless.
static bool is_worth_a_try(const Candidates *all, const Trial *t) {
  bool worth = !t->saves_memory_over;
  if (is_searched(all, &t->c)) return false;
  // Ranks inside make a step longer, and save no memory, or memory that is not lacking.
  const Candidate *some = t->fewer ? find_made(all, t->fewer) : NULL;
  const Candidate *none = find_made(all, t->none);
  if (some && none && !(some->seconds <= none->seconds) &&
      (some->needs.peak_bytes >= none->needs.peak_bytes || (some->fits && none->fits)))
    return false;
  // All ranks would do the same, or the one that it saves memory over fits.
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (str_equal(t->inside, c->plan) && c->why == all_same) return false;
    if (!str_equal(t->saves_memory_over, c->plan)) continue;
    if (c->fits) return false;
    worth |= c->made || c->lacks;
  }
  return worth;
}

// Tries the candidates that may be the best: none of those that the search of auto, if there is
// one, excludes.
static void try_all(const Module *model, const ChooseOptions *o, Arena *a, const Trials *trials,
                    AutoSearch *search, Candidates *out, Kept *kept) {
  for (int i = 0; i < trials->n; i++) {
    Candidate c = trials->at[i].c;
    if (!is_worth_a_try(out, &trials->at[i])) continue;
    const char *why = search ? auto_excludes(search, &c, least_fitting(out)) : NULL;
    if (why) {
      c.why = why;
      c.excluded = true;
      vec_push(a, out, c);
    } else {
      int from = out->n;
      candidate_try(model, o, a, out, c, kept);
      for (int k = from; search && k < out->n; k++)
        auto_note(search, &out->at[k]);
    }
  }
}

// Whether the best plan takes longer than with all its memory: it fits only with the batch in
// several micro-batches, which fill its stages if it has some, or with recomputation. The search of
// auto takes both into account, and candidates of large models take seconds each.
static bool is_cut(const Module *model, const ChooseOptions *o, const Candidate *best) {
  bool cut = !o->micro_batches && best->micro_batches > 1;
  if (best->priced <= 0) return cut;
  if (candidate_stages(best) > 1 || model->graphs->n_ops > QUICK_OPS) return false;
  return o->limited && (cut || plan_has_saver(best->plan));
}

// Whether a plan with less memory may be the best, though it takes longer.
static bool lacks_memory(const Candidates *all, bool cuts) {
  bool any = false;
  for (int i = 0; i < all->n; i++)
    any |= all->at[i].made || all->at[i].lacks;
  return any && (!any_fits(all) || cuts);
}

// Compiles the other factorings of earlier candidates: variants of the searches.
static void try_factorings(const Module *model, const ChooseOptions *o, Arena *a, Candidates *out) {
  for (int i = 0, n = out->n; i < n; i++) {
    const Candidate c = out->at[i];
    if (!c.fits || candidate_adds(&c)) continue;
    // An earlier one may have the same result, like searches that see the same model.
    bool is_known = false;
    for (int k = 0; k < i; k++) {
      const Candidate *x = &out->at[k];
      is_known |= x->made && x->seconds == c.seconds && x->needs.peak_bytes == c.needs.peak_bytes;
    }
    if (is_known) continue;
    for (int k = 0; k < c.n_others && !choice_ends(o, out); k++) {
      const char *plan = factoring_text(a, c.plan, c.ranks, c.other[k]);
      Candidate other = {.plan = plan, .ranks = c.ranks, .micro_batches = c.micro_batches};
      other.worth = least_fitting(out);
      candidate_make(model, o, a, &other, NULL);
      if (other.made) vec_push(a, out, other);
    }
  }
}

// Memory is lacking: recomputation, stages, and offloaded states, in this order, then the same
// savers in plans that were compiled, and plans with stages without sums of gradients. `cuts`: the
// best fits in several micro-batches only.
static void try_savers(const Module *model, const ChooseOptions *o, Arena *a, AutoSearch *search,
                       bool cuts, Candidates *out) {
  Trials freeing = {0}, stages = {0}, last = {0};
  // If the time is over, those that need least come first.
  bool late = choice_is_late(o, out);
  if (late) candidates_last(model, o, a, &last);
  try_all(model, o, a, &last, search, out, NULL);
  if (lacks_memory(out, cuts)) candidates_freeing_activations(model, o, a, &freeing);
  try_all(model, o, a, &freeing, search, out, NULL);
  if (!any_fits(out)) candidates_stages(model, o, a, &stages);
  try_all(model, o, a, &stages, search, out, NULL);
  if (!late && lacks_memory(out, cuts)) {
    candidates_last(model, o, a, &last);
    try_all(model, o, a, &last, search, out, NULL);
  }
  try_relief(model, o, search, a, out);
  if (search) auto_build_without_sums(search, out);
}

// Returns the index of the best; its module, if that was kept, is the result.
static int take_best(const ChooseOptions *o, Candidates *all, Kept *kept, Module **made) {
  int best = cheapest(all);
  for (int i = 0; i < all->n; i++)
    if (i != best || !kept->m || i != kept->candidate) all->at[i].step = NULL;
  if (kept->m && kept->candidate == best) *made = kept_take(o, kept);
  if (!*made && best >= 0) all->at[best].step = NULL;
  kept_free(kept);
  return best;
}

// Whether no plan can be made, for an error of the user's: one rank has it, too.
static bool model_fails(const Module *model, const ChooseOptions *o) {
  Candidate one = {.plan = "dp", .ranks = 1, .micro_batches = 1};
  PipelineOptions run = {.bisect_limit = -1, .unproved = true, .stop_after = "loss"};
  Module *m = module_clone(model);
  bool ok = pipeline_run_quietly(m, o->pipeline(o->context, &one), &run);
  module_free(m);
  return !ok;
}

// Slower plans are tried if nothing else fits as it is; plans with less memory are no help if the
// model cannot be split. The module of a plan is kept if there is no other plan to compare it with:
// the last that was tried, if any, fits; and by the search of auto that of its best plan.
int choose_plan(const Module *model, const ChooseOptions *options, Arena *a, Candidates *out,
                Certificate *certificate, Module **made) {
  double left = ALL_WORK;
  bool ended = false, found = false;
  ChooseOptions limited = *options, *o = &limited;
  o->ended = &ended;
  o->found = &found;
  o->left = o->plans ? NULL : &left;
  Trials trials = {0};
  *made = NULL;
  *certificate = (Certificate){0};
  candidates_list(model, o, a, &trials);
  // A single plan may be the result already: it needs no second compilation.
  Kept kept = {0};
  bool keeps = o->run && o->plans && trials.n == 1;
  // If the search goes first, its prices and bounds exclude others.
  AutoSearch *search = o->plans ? NULL : auto_new(model, o, a);
  if (!search && !o->plans && trials.n && model_fails(model, o)) trials.n = 1;
  if (search) limited.bound = auto_bound(search);
  // Others take fractions of a second, and tell the bytes that they lack.
  if (search && model->graphs->n_ops > QUICK_OPS) limited.work = auto_work(search);
  if (search && auto_goes_first(search)) auto_build(search, out);
  try_all(model, o, a, &trials, search, out, keeps ? &kept : NULL);
  if (o->plans) return take_best(o, out, &kept, made);
  try_factorings(model, o, a, out);
  // If a search prefers that all ranks do the same, fewer of them may share more.
  Trials inside = {0};
  if (any_alike(out)) candidates_inside(o, a, &inside);
  try_all(model, o, a, &inside, search, out, NULL);
  // Those with stages, if they may be faster.
  if (search) auto_build(search, out);
  int best = cheapest(out);
  bool cuts = best >= 0 && is_cut(model, o, &out->at[best]);
  // Pipelines may be faster.
  try_pipelines(model, o, a, search, out);
  try_savers(model, o, a, search, cuts, out);
  if (search) {
    *certificate = auto_certificate(search, out);
    kept = auto_kept(search);
    auto_end(search);
  }
  return take_best(o, out, &kept, made);
}
