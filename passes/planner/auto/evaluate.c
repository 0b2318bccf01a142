// Evaluates a candidate of auto: see evaluate.h.

#include "evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "candidates.h"
#include "cost/cost_step.h"
#include "least_bytes.h"
#include "pass.h"
#include "planner/search/lives.h"
#include "planner/search/search.h"
#include "point.h"
#include "prices.h"
#include "redundancy.h"

#define LEAST_WORK 1e6  // of a search, if little is left for all
#define SURE       1.05 // of the memory: the need that a search counts misses by less

const char all_same[] = "all ranks do the same";

const char *first_error(Arena *a, const char *text) {
  static const char word[] = "error: ";
  const char *at = strstr(text, word), *start = at;
  if (!at) return "";
  while (start > text && start[-1] != '\n')
    start--;
  const char *what = at + sizeof word - 1;
  return str_format(a, "%.*s%.*s", (int)(at - start), start, (int)strcspn(what, "\n"), what);
}

// -- Ending early ------------------------------------------------------------------------------

// The same moments show progress: a search may take long.
static bool wants_end(const ChooseOptions *o, bool has_plan) {
  if (o->progress) o->progress(o->context, NULL, o->bound);
  bool ends = o->stop && has_plan && o->stop(o->context);
  ends |= o->abandon && o->abandon(o->context);
  if (ends && o->ended) *o->ended = true;
  return ends;
}

bool choice_ends(const ChooseOptions *o, const Candidates *all) {
  return wants_end(o, any_fits(all));
}

bool choice_is_late(const ChooseOptions *o, const Candidates *all) {
  return o->stop && !any_fits(all) && o->stop(o->context);
}

static bool compilation_ends(void *to) {
  const ChooseOptions *o = to;
  return wants_end(o, o->found && *o->found);
}

Stop choice_stop(const ChooseOptions *o) {
  return (Stop){compilation_ends, (void *)(uintptr_t)o};
}

// -- One candidate -----------------------------------------------------------------------------

// A candidate during compilation, and the recipients of its searches' statistics.
typedef struct Making {
  Candidate *c;
  const PipelineOptions *run; // or NULL
  double *left;               // remaining work of all searches; or NULL
} Making;

// Notes whether a search found that nothing fits, and the least need of a rank; and the factorings
// of the ranks that are about as good.
static void note_searched(void *making, const SearchStats *s) {
  const Making *k = making;
  Candidate *c = k->c;
  if (k->run && k->run->searched) k->run->searched(k->run->searched_to, s);
  if (!s->n) return; // an explanation without a search
  // The next round of the same plan depends on this.
  c->searched = true;
  bool nothing = s->status == SOLVER_infeasible || s->status == SOLVER_time_out;
  c->round.nothing = nothing && !s->slow;
  c->round.bound = s->bound;
  c->round.seen = s->peak;
  c->round.work = s->work;
  if (k->left) *k->left -= c->work_done = s->all_work;
  // The least need of a rank, if no plan was found.
  c->least = s->status == SOLVER_infeasible || s->status == SOLVER_time_out ? s->peak : 0;
  c->least_slices = c->micro_batches;
  c->needs_less = (s->status == SOLVER_infeasible && !s->slow) || c->least > 0;
  c->needed = nothing ? s->needed : 0;
  c->slow = s->status == SOLVER_infeasible && s->slow;
  c->proved = s->ended == SOLVER_done;
  for (int i = 1; i < s->n_factorings; i++)
    if (s->took[i] <= WORTH_TRYING * s->took[0]) c->other[c->n_others++] = s->factoring[i];
}

void kept_free(Kept *k) {
  if (k->m) module_free(k->m);
  if (k->model) module_free(k->model);
  free(k->messages);
  *k = (Kept){0};
}

Module *kept_take(const ChooseOptions *o, Kept *k) {
  const PipelineOptions *run = o->run(o->context);
  o->take(o->context, k->findings);
  Module *m = k->m, *model = k->model;
  k->m = k->model = NULL;
  if (!pipeline_prove(m, model, k->verified, run)) {
    module_free(m);
    m = NULL;
  } else {
    fputs(k->messages, stderr);
  }
  kept_free(k);
  return m;
}

// Compiles a candidate once. Returns whether there is something to measure, which may be no
// candidate. A watched module may be the result, and has the model for its proof.
static bool make_once(const Module *model, const ChooseOptions *o, Arena *a, Candidate *c,
                      bool watched, LifetimeCache *lives, Kept *out) {
  size_t n;
  FILE *f = open_memstream(&out->messages, &n);
  if (!f) BUG("no memory for the plan's decisions");
  Diag *d = diag_new(f);
  // The result is verified and proved later; others report nothing.
  Making making = {c, watched ? o->run(o->context) : NULL, lives->answers ? NULL : o->left};
  PipelineOptions run = {.bisect_limit = -1, .unproved = true};
  if (making.run) run = *making.run;
  if (making.run) run.unproved_model = &out->model;
  // One of several: only the module of the result is verified.
  if (!o->plans) run.verify_each = false;
  run.changes_model = !o->plans && candidate_changes(c);
  run.out = f;
  run.searched = note_searched;
  run.searched_to = &making;
  run.lives = lives;
  run.paths = o->paths;
  const Stop stop = choice_stop(o);
  run.stop = &stop;
  Module *m = out->m = module_clone(model);
  bool ok = pipeline_run(m, o->pipeline(o->context, c), &run, d) && m->phase >= PHASE_planned;
  out->verified = ok && run.verify_each;
  // Its step time, its memory, and the ranks that share the work.
  if (ok) {
    Arena *scratch = arena_new();
    StepCost cost;
    bool priced = step_cost(m, o->cluster, o->target, scratch, &cost);
    c->seconds = priced ? cost.seconds : INFINITY;
    c->step = priced && watched ? step_cost_copy(&cost, m->arena) : NULL;
    c->needs = needs_most(m, o->cluster);
    c->fits = !o->limited || needs_fit(&c->needs, o->cluster);
    c->sharing = ranks_sharing(m);
    arena_free(scratch);
  }
  c->round.alike = ok && c->fits && c->sharing <= 1;
  c->made = ok && (o->plans || o->ranks == 1 || c->sharing > 1);
  diag_free(d);
  fclose(f);
  c->fits &= c->made;
  c->round.fits = c->fits;
  c->round.needs = (double)c->needs.peak_bytes;
  if (!c->made) c->why = c->least_why = ok ? all_same : first_error(a, out->messages);
  c->stopped = !ok && stop_wanted(&stop);
  if (c->stopped) c->why = c->least_why = "the search ended during its compilation";
  return ok;
}

// Compares two rounds. If neither fits the first one stays with its reason, unless the new one
// needs less.
static bool is_better(const Candidate *c, const Candidate *than) {
  if (c->fits != than->fits) return c->fits;
  if (c->fits) return c->seconds < than->seconds;
  return c->made && than->made && c->needs.peak_bytes < than->needs.peak_bytes;
}

// Returns the same candidate without results.
static Candidate same_again(const Candidate *c) {
  Candidate same = {.plan = c->plan, .ranks = c->ranks, .micro_batches = c->micro_batches};
  same.memory = c->memory;
  same.work = c->work;
  same.wanted = c->wanted;
  return same;
}

// Returns answers of about the same cost, of a small model's search (planner/search/k_best.c).
// NULL: the model is not small, the search is not good itself, or no work is left.
static Answer *find_others(const Module *model, const ChooseOptions *o, Arena *a,
                           const Candidate *c, LifetimeCache *lives) {
  const SolutionCache *used = c->searched ? lives->used : NULL;
  if (model->graphs->n_ops > SMALL_OPS || (o->left && *o->left <= 0)) return NULL;
  if (c->worth > 0 && c->seconds > WORTH_TRYING * c->worth) return NULL;
  if (!used || used->all.n != 1 || used->all.at[0].n_nodes > FEW_NODES) return NULL;
  // The search gives them in another compilation.
  Kept made = {0};
  Candidate again = same_again(c);
  lives->others = true;
  make_once(model, o, a, &again, false, lives, &made);
  lives->others = false;
  kept_free(&made);
  return &used->all.at[0];
}

// Compiles each of these answers, and keeps the best. Returns whether one is better.
static bool try_as_good(const Module *model, const ChooseOptions *o, Arena *a, Candidate *c,
                        LifetimeCache *lives) {
  Answer *answer = find_others(model, o, a, c, lives);
  bool any = false;
  for (int i = 0; answer && i < answer->n_others; i++) {
    // The answer is taken as if the search had given it.
    const int *before = answer->choice;
    Kept made = {0};
    Candidate now = same_again(c);
    answer->choice = answer->other[i];
    make_once(model, o, a, &now, false, lives, &made);
    kept_free(&made);
    if (is_better(&now, c)) {
      *c = now;
      any = true;
    } else {
      answer->choice = before;
    }
  }
  return any;
}

// Returns the work that a search of the next round may do: a part of the rest, and always a little.
// 0: no limit.
static int64_t work_of(const ChooseOptions *o, const Rounds *r) {
  enum { FIRST = 3, LATER = 10 }; // parts, as a search has several factorings and solver runs
  double share = o->left ? *o->left / (r->n ? LATER : FIRST) : SEARCH_WORK;
  if (share < LEAST_WORK) share = LEAST_WORK;
  if (r->n) return share < (double)r->left ? (int64_t)share : r->left;
  return share < SEARCH_WORK ? (int64_t)share : 0;
}

// Whether a plan that does not fit is too slow: one with less memory would have to be faster.
static bool is_past(const Candidate *now, const Candidate *best) {
  if (!now->made || now->fits) return false;
  bool slow = now->worth > 0 && now->seconds > NO_GAIN * now->worth;
  return slow || (best->fits && now->seconds >= best->seconds);
}

// Whether another round may be better than the best so far: its search depends on the memory that
// it assumes.
static bool may_improve(const ChooseOptions *o, const Candidate *now, bool ok,
                        const Candidate *best) {
  bool again = now->searched && (ok ? o->limited || !now->made : now->round.nothing && o->limited);
  return again && !now->stopped && !is_past(now, best);
}

// Hands over the module of a plan that fits. `again`: the compilation that was watched had another
// result, so it is compiled once more, with the answers of its searches; if the choice ends
// meanwhile, there is no module.
static void keep_module(const Module *model, const ChooseOptions *o, Arena *a, Candidate *c,
                        bool again, LifetimeCache *lives, Kept *watched, Kept *kept) {
  if (again) {
    Candidate same = same_again(c);
    kept_free(watched);
    make_once(model, o, a, &same, true, lives, watched);
    if (!same.fits && !same.stopped)
      BUG("the plan '%s' fits, but not when it is made again", c->plan);
    c->step = same.step;
    if (same.stopped) {
      kept_free(kept);
      return;
    }
  }
  kept_free(kept);
  *kept = *watched;
  kept->findings = o->keep(o->context);
  kept->seconds = c->seconds;
  *watched = (Kept){0};
}

// Keeps the best of some rounds. Only the first is watched, as each may be the last, and most often
// the first is; if a later one is the best it is compiled again.
void candidate_make(const Module *model, const ChooseOptions *o, Arena *a, Candidate *c,
                    Kept *kept) {
  Rounds rounds = rounds_begin(o->cluster->memory);
  rounds.exact = c->exact;
  const Candidate asked = *c;
  LifetimeCache lives = {.arena = arena_new(), .lasting = a, .slow = c->slow_factorings};
  LifetimeCache *known = arena_one(a, LifetimeCache); // of the best
  Kept first = {0};
  int64_t memory = 0;
  double work_done = 0;
  bool alike = false;
  do {
    // One round: the candidate under the assumed memory, with a part of the work left.
    bool watched = kept && !memory;
    Kept made = {0};
    Candidate now = asked;
    now.memory = memory;
    now.work = work_of(o, &rounds);
    lives.answers = NULL;
    bool ok = make_once(model, o, a, &now, watched, &lives, &made);
    alike |= now.searched && ok && !now.made;
    work_done += now.work_done;
    if (!memory || is_better(&now, c)) {
      *c = now;
      *known =
          (LifetimeCache){.answers = lives.answers, .used = lives.used, .arena = a, .lasting = a};
    }
    // The next assumption of the memory.
    memory = may_improve(o, &now, ok, c) ? rounds_next(&rounds, &now.round) : 0;
    if (watched)
      first = made;
    else
      kept_free(&made);
  } while (memory);
  // Answers of about the same cost, then the compilation that is kept.
  lives.answers = known->answers;
  lives.used = known->used;
  bool other = try_as_good(model, o, a, c, &lives);
  c->alike = alike;
  c->exact = rounds.exact || rounds_exact(&rounds);
  c->work_done = work_done;
  c->known = known;
  if (kept && c->fits)
    keep_module(model, o, a, c, c->memory || other, &lives, &first, kept);
  else
    c->step = NULL;
  kept_free(&first);
  arena_free(lives.arena);
  if (o->found) *o->found |= c->fits && c->ranks == o->ranks;
  if (o->progress) o->progress(o->context, c, o->bound);
}

// Whether the plan certainly does not fit in `n` micro-batches: persistent state stays the same,
// and the rest of its peak shrinks at best in proportion to the rows. Another search may find
// another plan, and the needs of a plan that was not made are unknown.
static bool is_too_much(const ChooseOptions *o, const Candidate *c, int64_t n) {
  if (c->searched || !c->made) return false;
  double kept = (double)(c->needs.weight_bytes + c->needs.state_bytes);
  double rest = (double)c->needs.peak_bytes - kept;
  double memory = cluster_device(o->cluster, c->needs.rank).memory; // of the rank that lacks it
  return kept + rest * (double)c->micro_batches / (double)n > memory;
}

// Whether it does not by its least bytes, whatever a search finds.
static bool lacks_memory(const ChooseOptions *o, Arena *a, const Candidate *c, int64_t n) {
  return o->work && least_bytes_of(o->work, a, c->plan, c->ranks, n).own > choose_memory(o);
}

// Whether a search finds nothing that fits in `n` micro-batches either, as all bytes that it needs
// shrink at best in proportion to the rows.
static bool search_lacks(const ChooseOptions *o, const Candidate *c, int64_t n) {
  return c->exact && c->needed * (double)c->micro_batches / (double)n > SURE * choose_memory(o);
}

// Returns the next number of micro-batches above `n` that may fit; 0: none.
static int64_t next_cut(const ChooseOptions *o, Arena *a, const Candidate *c, int64_t n) {
  if (o->micro_batches || c->fits || !(c->made || c->needs_less)) return 0;
  if (c->searched || !c->made) n = 2 * n - 1;
  for (n++; n <= o->batch && n <= MAX_MICRO_BATCHES; n++)
    if (o->batch % n == 0 && !is_too_much(o, c, n) && !lacks_memory(o, a, c, n) &&
        !search_lacks(o, c, n))
      return n;
  return 0;
}

bool has_whole_rows(const ChooseOptions *o, const Candidate *c, int64_t n) {
  Point p;
  return !plan_numbers(c->plan, c->ranks, n, &p) || o->batch % (point_row_ranks(&p) * n) == 0;
}

// A candidate that could not be made may need less in the last number of micro-batches that was
// tried.
static void note_least(Candidate *first, const Candidate *last) {
  if (last->made || last->least <= 0 || last->least >= first->least) return;
  first->least = last->least;
  first->least_slices = last->least_slices;
  first->least_why = last->least_why;
}

double least_fitting(const Candidates *all) {
  double least = 0;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (c->fits && (least <= 0 || c->seconds < least)) least = c->seconds;
  }
  return least;
}

bool any_fits(const Candidates *all) {
  for (int i = 0; i < all->n; i++)
    if (all->at[i].fits) return true;
  return false;
}

bool any_alike(const Candidates *all) {
  for (int i = 0; i < all->n; i++)
    if (all->at[i].alike) return true;
  return false;
}

static void push_made(Arena *a, Candidates *all, const Candidate *c, Kept *kept) {
  if (kept && c->fits) kept->candidate = all->n;
  vec_push(a, all, *c);
}

// Whether more micro-batches do not help a search that found nothing that fits: another search
// proves that nothing fits in the most of them, and values of fewer rows need no more memory. False
// if no plan of any kind fits: then the one that needs least is wanted.
static bool always_lacks_memory(const Module *model, const ChooseOptions *o, Arena *a,
                                const Candidate *c) {
  if (c->worth <= 0 || !c->searched || c->made || !c->needs_less) return false;
  int64_t most = 0, tried = 0;
  for (int64_t n = next_cut(o, a, c, c->micro_batches); n; n = next_cut(o, a, c, n)) {
    if (!has_whole_rows(o, c, n)) continue;
    most = n;
    tried++;
  }
  if (tried < 2) return false;
  Candidate last = {.plan = c->plan,
                    .ranks = c->ranks,
                    .micro_batches = most,
                    .worth = c->worth,
                    .wanted = c->wanted,
                    .exact = c->exact,
                    .slow_factorings = c->slow_factorings};
  candidate_make(model, o, a, &last, NULL);
  return !last.made && !last.stopped && last.searched && last.needs_less && last.proved &&
         !last.slow;
}

// Some numbers of micro-batches do not divide the rows of a rank.
void candidate_try(const Module *model, const ChooseOptions *o, Arena *a, Candidates *all,
                   Candidate c, Kept *kept) {
  if (choice_ends(o, all)) return;
  int tried = all->n;
  double worth = c.worth = least_fitting(all);
  // Estimates of searches hold for steps of large models.
  bool limits = candidate_searches(&c) && !o->plans && model->graphs->n_ops > SMALL_OPS;
  if (limits) c.wanted = WORTH_TRYING * worth;
  if (limits) c.slow_factorings = arena_array(a, bool, MAX_ATTEMPTS);
  candidate_make(model, o, a, &c, kept);
  push_made(a, all, &c, kept);
  // More micro-batches, as long as one of these may fit.
  if (candidate_adds(&c) && any_fits(all)) return;
  if (always_lacks_memory(model, o, a, &c)) return;
  for (int64_t n = next_cut(o, a, &c, c.micro_batches); n; n = next_cut(o, a, &c, n)) {
    if (choice_ends(o, all)) break;
    if (!has_whole_rows(o, &c, n)) continue;
    Candidate more = {.plan = c.plan, .ranks = c.ranks, .micro_batches = n, .worth = worth};
    more.wanted = c.wanted;
    more.exact = c.exact;
    more.slow_factorings = c.slow_factorings;
    candidate_make(model, o, a, &more, kept);
    if (more.made) push_made(a, all, &more, kept);
    // More micro-batches take no less.
    if (more.slow) break;
    if (more.made || more.needs_less) c = more;
  }
  note_least(&all->at[tried], &c);
}
