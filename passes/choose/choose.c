// What `--plan auto` makes of the plans that candidates.h lists, and what it takes (choose.h).
//
//     8 ranks   dp 9.1 ms   zero1 9.4 ms   sp all ranks do the same   …   search 7.9 ms   one that fits
//     then      search=2x4 7.6 ms      a factoring that `search` found to be about as good
//
// Each is compiled up to its places in memory, with more micro-batches where it does not fit, and
// searches are asked again on more or less memory (rounds.h).

#include "candidates.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/collectives.h"
#include "cost/cost_step.h"
#include "pass.h"
#include "plan/factoring.h"
#include "search/lives.h"
#include "search/search.h"

// -- What each is worth --------------------------------------------------------------------------

static void measure(const Module *m, const ChooseOptions *o, Candidate *c) {
  Arena *a = arena_new();
  StepCost cost;
  c->seconds = step_cost(m, o->cluster, o->target, a, &cost) ? cost.seconds : INFINITY;
  c->needs = needs_most(m, o->cluster);
  c->fits = !o->limited || needs_fit(&c->needs, o->cluster);
  arena_free(a);
}

// Ranks that never send anything all do the same.
static bool shares_work(const Module *m) {
  Arena *a = arena_new();
  Collectives list = {0};
  collectives_find(a, m, &list);
  arena_free(a);
  return list.n > 0;
}

static const char all_same[] = "all ranks do the same";

// The first error of those that were written, as a reason: "mlp.onnx:x: the batch of …", without
// what comes after it.
static const char *first_error(Arena *a, const char *text) {
  static const char word[] = "error: ";
  const char *at = strstr(text, word), *start = at;
  if (!at) return "";
  while (start > text && start[-1] != '\n')
    start--;
  const char *what = at + sizeof word - 1;
  return str_format(a, "%.*s%.*s", (int)(at - start), start, (int)strcspn(what, "\n"), what);
}

// A candidate that is being made, and who else is told of its searches.
typedef struct Making {
  Candidate *c;
  const PipelineOptions *run; // or NULL
} Making;

// Whether a search found that nothing fits, and what a rank needs at least; and which factorings of
// the ranks are about as good.
static void note_searched(void *making, const Searched *s) {
  const Making *k = making;
  Candidate *c = k->c;
  if (k->run && k->run->searched) k->run->searched(k->run->searched_to, s);
  if (!s->n) return; // it explains what was not searched
  c->searched = true;
  c->round.nothing = s->status == SOLVER_infeasible || s->status == SOLVER_time_out;
  c->round.bound = s->bound;
  c->round.seen = s->peak;
  c->round.work = s->work;
  c->least = s->status == SOLVER_infeasible || s->status == SOLVER_time_out ? s->peak : 0;
  c->least_slices = c->micro_batches;
  c->needs_less = s->status == SOLVER_infeasible || c->least > 0;
  for (int i = 1; i < s->n_factorings; i++)
    if (s->took[i] <= WORTH_TRYING * s->took[0]) c->other[c->n_others++] = s->factoring[i];
}

// What was made of a candidate, and what there was to say.
typedef struct Made {
  Module *m;
  char *said;
} Made;

static void unmake(Made *made) {
  if (made->m) module_free(made->m);
  free(made->said);
  *made = (Made){0};
}

// Whether there is something to measure, which may be no candidate.  What is watched may be what is
// used, and is verified and proved.
static bool make_once(const Module *model, const ChooseOptions *o, Arena *a, Candidate *c,
                      bool watched, KnownLives *lives, Made *out) {
  size_t n;
  FILE *f = open_memstream(&out->said, &n);
  if (!f) BUG("no memory for what a plan says");
  Diag *d = diag_new(f);
  Making making = {c, watched ? o->run(o->context) : NULL};
  PipelineOptions run = {.bisect_limit = -1, .unproved = true};
  if (making.run) run = *making.run;
  run.out = f;
  run.searched = note_searched;
  run.searched_to = &making;
  run.lives = lives;
  Module *m = out->m = module_clone(model);
  bool ok = pipeline_run(m, o->pipeline(o->context, c), &run, d) && m->phase >= PHASE_planned;
  c->made = ok && (o->plans || shares_work(m));
  if (ok) measure(m, o, c);
  diag_free(d);
  fclose(f);
  c->fits &= c->made;
  c->round.fits = c->fits;
  c->round.needs = (double)c->needs.peak_bytes;
  if (!c->made) c->why = c->least_why = ok ? all_same : first_error(a, out->said);
  return ok;
}

// Of two rounds; where neither fits the first says why, but for one that needs less.
static bool is_better(const Candidate *c, const Candidate *than) {
  if (c->fits != than->fits) return c->fits;
  if (c->fits) return c->seconds < than->seconds;
  return c->made && than->made && c->needs.peak_bytes < than->needs.peak_bytes;
}

// Once more, watched, with the answers that its searches had.
static void make_again(const Module *model, const ChooseOptions *o, Arena *a, const Candidate *c,
                       KnownLives *lives, Made *out) {
  Candidate same = {.plan = c->plan, .ranks = c->ranks, .micro_batches = c->micro_batches};
  same.memory = c->memory;
  same.work = c->work;
  unmake(out);
  make_once(model, o, a, &same, true, lives, out);
  if (!same.fits) BUG("the plan '%s' fits, but not when it is made again", c->plan);
}

// The best of some rounds.  With `kept`, what was made is there if it fits.  Only the first round
// is watched, as each may be the last, and most often the first is; if a later one is the best it
// is made again.
static void make(const Module *model, const ChooseOptions *o, Arena *a, Candidate *c,
                 Module **kept) {
  Rounds rounds = rounds_begin(o->cluster->memory);
  const Candidate asked = *c;
  KnownLives lives = {.arena = arena_new()};
  Made best = {0};
  struct Answers *answers = NULL; // of the best
  int64_t memory = 0;
  do {
    bool watched = kept && !memory;
    Made made = {0};
    Candidate now = asked;
    now.memory = memory;
    now.work = rounds.left;
    lives.answers = NULL;
    bool ok = make_once(model, o, a, &now, watched, &lives, &made);
    bool again = now.searched && (ok ? o->limited || !now.made : now.round.nothing && o->limited);
    if (!memory || is_better(&now, c)) {
      *c = now;
      answers = lives.answers;
    }
    memory = again ? rounds_next(&rounds, &now.round) : 0;
    if (watched)
      best = made;
    else
      unmake(&made);
  } while (memory);
  lives.answers = answers;
  if (kept && c->fits) {
    if (c->memory) make_again(model, o, a, c, &lives, &best);
    *kept = best.m;
    best.m = NULL;
    fputs(best.said, stderr);
  }
  unmake(&best);
  arena_free(lives.arena);
}

// In how many micro-batches this one may fit, more than `n`: gradients and what is kept for them
// become smaller at best as rows do.  0: in none.
static int64_t next_cut(const ChooseOptions *o, const Candidate *c, int64_t n) {
  if (o->micro_batches || c->fits || !(c->made || c->needs_less)) return 0;
  if (!c->made) n = 2 * n - 1; // nobody knows by how much less
  double kept = (double)(c->needs.weight_bytes + c->needs.state_bytes);
  double rest = (double)c->needs.peak_bytes - kept;
  double memory = cluster_device(o->cluster, c->needs.rank).memory; // of the rank that lacks it
  for (n++; n <= o->batch && n <= MAX_MICRO_BATCHES; n++) {
    double part = (double)c->micro_batches / (double)n;
    bool may_fit = !c->made || kept + rest * part <= memory;
    if (o->batch % n == 0 && may_fit) return n;
  }
  return 0;
}

// One that could not be made may need less in the last number of micro-batches that was tried.
static void note_least(Candidate *first, const Candidate *last) {
  if (last->made || last->least <= 0 || last->least >= first->least) return;
  first->least = last->least;
  first->least_slices = last->least_slices;
  first->least_why = last->least_why;
}

static bool any_fits(const Candidates *all) {
  for (int i = 0; i < all->n; i++)
    if (all->at[i].fits) return true;
  return false;
}

// Also with more micro-batches, where it does not fit.  Some numbers do not divide the rows of a
// rank.
static void try_candidate(const Module *model, const ChooseOptions *o, Arena *a, Candidates *all,
                          Candidate c, Module **kept) {
  int tried = all->n;
  make(model, o, a, &c, kept);
  vec_push(a, all, c);
  if (candidate_adds(&c) && any_fits(all)) return;
  for (int64_t n = next_cut(o, &c, c.micro_batches); n; n = next_cut(o, &c, n)) {
    Candidate more = {.plan = c.plan, .ranks = c.ranks, .micro_batches = n};
    make(model, o, a, &more, kept);
    if (more.made) vec_push(a, all, more);
    if (more.made || more.needs_less) c = more;
  }
  note_least(&all->at[tried], &c);
}

// -- The choice ----------------------------------------------------------------------------------

// The cheapest of those that fit; of equal ones the first.
static int cheapest(const Candidates *all) {
  int best = -1;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (c->fits && (best < 0 || c->seconds < all->at[best].seconds)) best = i;
  }
  return best;
}

// Whether an earlier one came to the same, as searches do that see the same model.
static bool is_known(const Candidates *all, int i) {
  const Candidate *c = &all->at[i];
  for (int k = 0; k < i; k++) {
    const Candidate *x = &all->at[k];
    if (x->made && x->seconds == c->seconds && x->needs.peak_bytes == c->needs.peak_bytes)
      return true;
  }
  return false;
}

// The other factorings of what was tried.
static void try_others(const Module *model, const ChooseOptions *o, Arena *a, Candidates *all) {
  for (int i = 0, n = all->n; i < n; i++) {
    const Candidate c = all->at[i];
    if (!c.fits || candidate_adds(&c) || is_known(all, i)) continue;
    for (int k = 0; k < c.n_others; k++) {
      const char *plan = factoring_text(a, c.plan, c.ranks, c.other[k]);
      Candidate other = {.plan = plan, .ranks = c.ranks, .micro_batches = c.micro_batches};
      make(model, o, a, &other, NULL);
      if (other.made) vec_push(a, all, other);
    }
  }
}

// Whether nothing that was tried before leaves nothing to be won by it.
static bool is_worth_a_try(const Candidates *all, const Trial *t) {
  bool worth = !t->spares;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (str_equal(t->inside, c->plan) && c->why == all_same) return false;
    if (!str_equal(t->spares, c->plan)) continue;
    if (c->fits) return false;
    worth |= c->made;
  }
  return worth;
}

static void try_all(const Module *model, const ChooseOptions *o, Arena *a, const Trials *trials,
                    Candidates *out, Module **kept) {
  for (int i = 0; i < trials->n; i++)
    if (is_worth_a_try(out, &trials->at[i])) try_candidate(model, o, a, out, trials->at[i].c, kept);
}

static bool any_made(const Candidates *all) {
  for (int i = 0; i < all->n; i++)
    if (all->at[i].made) return true;
  return false;
}

// What takes longer is tried where nothing else fits; what needs less memory is no help where the
// model cannot be cut.  What was made of a plan is kept where there is no other plan to compare it
// with: the last that was tried, if any, fits.
int choose_plan(const Module *model, const ChooseOptions *o, Arena *a, Candidates *out,
                Module **made) {
  Trials trials = {0}, anew = {0}, stages = {0};
  *made = NULL;
  candidates_list(model, o, a, &trials);
  Module **kept = o->run && o->plans && trials.n == 1 ? made : NULL;
  try_all(model, o, a, &trials, out, kept);
  if (o->plans) return cheapest(out);
  try_others(model, o, a, out);
  if (!any_fits(out) && any_made(out)) candidates_anew(model, o, a, &anew);
  try_all(model, o, a, &anew, out, NULL);
  if (!any_fits(out)) candidates_stages(model, o, a, &stages);
  try_all(model, o, a, &stages, out, NULL);
  return cheapest(out);
}

static const Candidate *smallest(const Candidates *all) {
  const Candidate *best = NULL;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (c->made && (!best || c->needs.peak_bytes < best->needs.peak_bytes)) best = c;
  }
  return best;
}

// Whether two reasons are one, but for the axis that they are about.
static bool is_same_reason(const char *x, const char *y) {
  static const char along[] = " along ";
  enum { N = sizeof along - 1 };
  while (*x && *x == *y) {
    bool axis = !strncmp(x, along, N) && !strncmp(y, along, N);
    x += axis ? N + strcspn(x + N, " :;,") : 1;
    y += axis ? N + strcspn(y + N, " :;,") : 1;
  }
  return *x == *y;
}

// "dp, zero1 and zero3", those that could not be made for the same reason as number `first`; NULL
// where an earlier one could not either.
static const char *same_reason(Arena *a, const Candidates *all, int first) {
  StrBuf b = {.arena = a};
  const char *why = all->at[first].why;
  int last = first;
  for (int i = 0; i < all->n; i++) {
    if (!is_same_reason(all->at[i].why, why)) continue;
    if (i < first) return NULL;
    last = i;
  }
  for (int i = first; i <= last; i++)
    if (is_same_reason(all->at[i].why, why))
      strbuf_addf(&b, "%s%s", i == first ? "" : i == last ? " and " : ", ", all->at[i].plan);
  return b.at;
}

// One of the quick ones, on as many ranks; it could be made, and fits.
static bool works_on(const Module *model, const ChooseOptions *o, Arena *a, int64_t ranks,
                     Candidate *out) {
  ChooseOptions other = *o;
  other.ranks = ranks;
  if (ranks > cluster_devices(o->cluster)) return false;
  Trials quick = {0};
  candidates_quick(model, &other, a, false, &quick);
  for (int i = 0; i < quick.n; i++) {
    Candidates tried = {0};
    try_candidate(model, &other, a, &tried, quick.at[i].c, NULL);
    *out = tried.at[tried.n - 1];
    if (out->made && out->fits) return true;
  }
  return false;
}

// The number of ranks next to what was asked for that some quick plan shares the work between.
static void hint_nearest(const Module *model, const ChooseOptions *o, Arena *a,
                         const Candidates *all, Diag *d) {
  enum { FARTHEST = 8 };
  for (int64_t far = 1; far <= FARTHEST; far++)
    for (int side = -1; side <= 1; side += 2) {
      Candidate c;
      int64_t ranks = o->ranks + side * far;
      if (ranks < 2 || !works_on(model, o, a, ranks, &c)) continue;
      diag_hint(d,
                "the nearest number of ranks that share the work is %" PRId64 ": -g %" PRId64
                " --plan %s --micro-batches %" PRId64,
                ranks, ranks, c.plan, c.micro_batches);
      return;
    }
  for (int i = 0; i < all->n; i++)
    if (str_equal(all->at[i].why, all_same)) {
      diag_hint(d, "one rank is as fast: -g 1");
      return;
    }
}

// None could be made: what they say, of as many reasons as one reads.
static bool none_made(const Module *model, const ChooseOptions *o, Arena *a, const Candidates *all,
                      Diag *d) {
  enum { REASONS = 3 };
  int n = 0;
  diag_error(d, NULL, "none of the %d plans tried can be made of this model for %" PRId64 " ranks",
             all->n, o->ranks);
  for (int i = 0; i < all->n; i++) {
    const char *plans = same_reason(a, all, i);
    if (plans && n++ < REASONS) diag_note(d, NULL, "%s: %s", plans, all->at[i].why);
  }
  if (n > REASONS)
    diag_note(d, NULL, "and %d more reason%s; --plan NAME says that of a plan", n - REASONS,
              n == REASONS + 1 ? "" : "s");
  if (!o->plans) hint_nearest(model, o, a, all, d);
  return false;
}

// Whether one of the quick ones fits with more ranks.
static bool fits_wider(const Module *model, const ChooseOptions *o, Arena *a, Diag *d) {
  ChooseOptions more = *o;
  for (more.ranks = 2 * o->ranks; more.ranks <= cluster_devices(o->cluster); more.ranks *= 2) {
    Trials quick = {0};
    candidates_quick(model, &more, a, true, &quick);
    for (int i = 0; i < quick.n; i++) {
      Candidates tried = {0};
      try_candidate(model, &more, a, &tried, quick.at[i].c, NULL);
      const Candidate *last = &tried.at[tried.n - 1];
      if (!last->fits) continue;
      diag_hint(d,
                "it fits on %" PRId64 " ranks: -g %" PRId64 " --plan %s --micro-batches %" PRId64,
                more.ranks, more.ranks, last->plan, last->micro_batches);
      return true;
    }
  }
  return false;
}

static const Candidate *smallest_unmade(const Candidates *all) {
  const Candidate *best = NULL;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (!c->made && c->least > 0 && (!best || c->least < best->least)) best = c;
  }
  return best;
}

// No plan could be made for want of memory, and so much a rank would need at least in the one that
// needs least.
static void say_unmade(const Candidate *c, Diag *d) {
  diag_error(d, NULL,
             "the model fits under none of the plans tried, and none can be made: in the one that "
             "needs least, %s in %" PRId64 " micro-batch%s, a rank would need %.0f bytes",
             c->plan, c->least_slices, c->least_slices == 1 ? "" : "es", c->least);
  diag_note(d, NULL, "%s", c->least_why);
}

// `less`: one that could not be made, but would need less; or NULL.
static void say_least(const Candidate *c, const Candidate *less, const ChooseOptions *o, Arena *a,
                      Diag *d) {
  diag_error(
      d, NULL,
      "the model fits under none of the plans tried: with the one that needs least, %s in %" PRId64
      " micro-batch%s, rank %d needs %" PRId64 " bytes, and its device of '%s' has %.0f",
      c->plan, c->micro_batches, c->micro_batches == 1 ? "" : "es", c->needs.rank,
      c->needs.peak_bytes, o->cluster->name, cluster_device(o->cluster, c->needs.rank).memory);
  diag_note(d, NULL, "%s", needs_text(a, &c->needs));
  if (less)
    diag_note(d, NULL,
              "with %s in %" PRId64 " micro-batch%s, which was not made, a rank would need %.0f",
              less->plan, less->least_slices, less->least_slices == 1 ? "" : "es", less->least);
}

bool choose_failed(const Module *model, const ChooseOptions *o, Arena *a, const Candidates *all,
                   Diag *d) {
  const Candidate *c = smallest(all), *unmade = smallest_unmade(all);
  if (!c && !unmade) return none_made(model, o, a, all, d);
  if (c)
    say_least(c, unmade && unmade->least < (double)c->needs.peak_bytes ? unmade : NULL, o, a, d);
  else
    say_unmade(unmade, d);
  if (!fits_wider(model, o, a, d) && c)
    diag_hint(d, "a device would need %" PRId64 " bytes more",
              c->needs.peak_bytes - (int64_t)cluster_device(o->cluster, c->needs.rank).memory);
  return false;
}
