// Explains that no plan was chosen, with a cure.
//
//     error: the model fits under none of the plans tried: with the one that needs least, zero3 in
//            96 micro-batches, rank 0 needs 152852 bytes, and its device of 'cpu' has 60000
//     hint: it fits on 4 ranks: -g 4 --plan sp --micro-batches 24
//
// If it is proved that no plan can fit (bounds.h), the first line says so, and few were tried:
//
//     error: no plan of 4 ranks fits: the weights of a rank take at least 87622496256 bytes, and a
//            device of 'h100:1x4' has 84900000000
//
// Or none could be made at all: then it lists the reasons, with the plans of each, and a number of
// ranks for which one could be made. If all have one error, as with a mistake in the model, the
// compilation of any of them reports it.

#include <inttypes.h>
#include <string.h>

#include "auto.h"
#include "candidates.h"
#include "evaluate.h"
#include "least_bytes.h"
#include "sharding/sharding.h"

static const Candidate *smallest(const Candidates *all) {
  const Candidate *best = NULL;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (c->made && (!best || c->needs.peak_bytes < best->needs.peak_bytes)) best = c;
  }
  return best;
}

// Returns the one that was not made and would need least. Variants of a plan may need the same, as
// bounds of stages do not depend on their schedule: then the one with the shortest name.
static const Candidate *smallest_unmade(const Candidates *all) {
  const Candidate *best = NULL;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (c->made || c->least <= 0 || (best && c->least > best->least)) continue;
    if (!best || c->least < best->least || strlen(c->plan) < strlen(best->plan)) best = c;
  }
  return best;
}

// Returns the length of an accidental part of a reason: a number, or the name of an axis.
static size_t chance(const char *text) {
  static const char digits[] = "0123456789", along[] = " along ";
  enum { N = sizeof along - 1 };
  return strncmp(text, along, N) ? strspn(text, digits) : N + strcspn(text + N, " :;,");
}

// Whether two reasons are the same up to accidental parts.
static bool is_same_reason(const char *x, const char *y) {
  while (*x && *y) {
    size_t in_x = chance(x), in_y = chance(y);
    if (!in_x != !in_y || (!in_x && *x != *y)) return false;
    x += in_x ? in_x : 1;
    y += in_y ? in_y : 1;
  }
  return *x == *y;
}

// Whether an earlier candidate has the plan of number i and its reason, in other micro-batches.
static bool is_repeated(const Candidates *all, int i) {
  const Candidate *c = &all->at[i];
  for (int k = 0; k < i; k++)
    if (str_equal(all->at[k].plan, c->plan) && is_same_reason(all->at[k].why, c->why)) return true;
  return false;
}

static int count_plans(const Candidates *all) {
  int n = 0;
  for (int i = 0; i < all->n; i++) {
    bool is_new = true;
    for (int k = 0; k < i && is_new; k++)
      is_new = !str_equal(all->at[k].plan, all->at[i].plan);
    n += is_new;
  }
  return n;
}

// "dp, zero1 and zero3": the plans with the same reason as number `first`, or the first few; NULL
// if an earlier one has that reason.
static const char *same_reason(Arena *a, const Candidates *all, int first) {
  enum { FEW = 8 };
  StrBuf b = {.arena = a};
  const char *why = all->at[first].why;
  int n = 0, listed = 0;
  // All with this reason are counted, and the first few listed.
  for (int i = 0; i < all->n; i++) {
    if (!is_same_reason(all->at[i].why, why)) continue;
    if (i < first) return NULL;
    n += !is_repeated(all, i);
  }
  for (int i = first; i < all->n && listed < FEW; i++) {
    if (!is_same_reason(all->at[i].why, why) || is_repeated(all, i)) continue;
    listed++;
    strbuf_addf(&b, "%s%s", listed == 1 ? "" : listed == n ? " and " : ", ", all->at[i].plan);
  }
  if (n > FEW) strbuf_addf(&b, " and %d more", n - FEW);
  return b.at;
}

// Whether a quick candidate on so many ranks can be made, and fits.
static bool works_on(const Module *model, const ChooseOptions *o, Arena *a, int64_t ranks,
                     Candidate *out) {
  ChooseOptions other = *o;
  other.ranks = ranks;
  if (ranks > cluster_devices(o->cluster)) return false;
  Trials quick = {0};
  candidates_quick(model, &other, a, false, &quick);
  for (int i = 0; i < quick.n; i++) {
    Candidates tried = {0};
    candidate_try(model, &other, a, &tried, quick.at[i].c, NULL);
    *out = tried.at[tried.n - 1];
    if (out->made && out->fits) return true;
  }
  return false;
}

// Hints at the number of ranks nearest to the requested one that can share the work of a quick
// plan.
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
  // No other number does: then one rank may be as fast.
  for (int i = 0; i < all->n; i++)
    if (str_equal(all->at[i].why, all_same)) {
      diag_hint(d, "one rank is as fast: -g 1");
      return;
    }
}

// Reports that none could be made, with the first few reasons.
static bool none_made(const Module *model, const ChooseOptions *o, Arena *a, const Candidates *all,
                      Diag *d) {
  enum { REASONS = 3 };
  int n = 0;
  diag_error(d, NULL, "none of the %d plans tried can be made of this model for %" PRId64 " ranks",
             count_plans(all), o->ranks);
  // A reason is reported once, with its plans.
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

// Returns the work of a step, from which the least bytes of a plan follow if devices are equal; or
// NULL.
static StepWork *work_of(const Module *model, const ChooseOptions *o, Arena *a) {
  return o->cluster->n_kinds ? NULL : auto_find_work(model, o, a);
}

// Whether the plan may fit by its least bytes. `w`: NULL if these are unknown.
static bool may_fit_by_bytes(const StepWork *w, const ChooseOptions *o, Arena *a,
                             const Candidate *c) {
  return !w || least_bytes_of(w, a, c->plan, c->ranks, c->micro_batches).own <= choose_memory(o);
}

// The largest number of micro-batches up to `most`, in which ranks with rows of their own have
// whole ones: the plan needs least in it.
static int64_t most_slices(const ChooseOptions *o, Arena *a, const Candidate *c, int64_t most) {
  bool offloads;
  Candidate base = *c;
  base.plan = plan_without_savers(a, c->plan, &offloads);
  int64_t n = most < MAX_MICRO_BATCHES ? most : MAX_MICRO_BATCHES;
  if (n < 1) return 1; // of unknown rows
  while (n > 1 && (o->batch % n != 0 || !has_whole_rows(o, &base, n)))
    n--;
  return n;
}

static void make_in(const Module *model, const ChooseOptions *o, Arena *a, const Candidate *c,
                    int64_t micro_batches, Candidate *out) {
  *out = (Candidate){.plan = c->plan, .ranks = c->ranks, .micro_batches = micro_batches};
  candidate_make(model, o, a, out, NULL);
}

// Whether a plan that does not fit in several micro-batches may fit in one, without their sums of
// gradients.
static bool may_fit_in_one(const StepWork *w, const ChooseOptions *o, Arena *a,
                           const Candidate *c) {
  if (!w || o->micro_batches || !c->made) return false;
  double several = least_bytes_of(w, a, c->plan, c->ranks, c->micro_batches).own;
  double sums = several - least_bytes_of(w, a, c->plan, c->ranks, 1).own;
  return sums > 0 && (double)c->needs.peak_bytes - sums <= choose_memory(o);
}

// Whether the plan fits: in the most micro-batches, or else in one, or it is given up, as it needs
// more in other numbers. Then the fewest in which it fits are found by bisection. A plan that
// cannot be made in the most is tried in more and more.
static bool fits_in_some(const Module *model, const ChooseOptions *o, const StepWork *w, Arena *a,
                         const Candidate *c, Candidate *out) {
  Candidate most = *c;
  if (!o->micro_batches) most.micro_batches = most_slices(o, a, c, o->batch);
  // Sums of gradients are in several micro-batches only.
  if (!may_fit_by_bytes(w, o, a, &most)) most.micro_batches = c->micro_batches;
  if (!may_fit_by_bytes(w, o, a, &most)) return false;
  make_in(model, o, a, &most, most.micro_batches, out);
  if (!out->made && !out->needs_less) {
    Candidates tried = {0};
    candidate_try(model, o, a, &tried, *c, NULL);
    if (!tried.n) return false;
    *out = tried.at[tried.n - 1];
    return out->fits;
  }
  if (!out->fits && may_fit_in_one(w, o, a, out)) make_in(model, o, a, c, 1, out);
  if (!out->fits) return false;
  for (int64_t low = c->micro_batches; low < out->micro_batches;) {
    Candidate now = {0};
    int64_t middle = (low + out->micro_batches) / 2, n = most_slices(o, a, c, middle);
    if (n >= low) make_in(model, o, a, c, n, &now);
    if (now.fits)
      *out = now;
    else
      low = middle + 1;
  }
  return true;
}

// Whether one of the plans fits: the first of them.
static bool any_of(const Trials *trials, const Module *model, const ChooseOptions *o,
                   const StepWork *w, Arena *a, Candidate *out) {
  for (int i = 0; i < trials->n; i++)
    if (fits_in_some(model, o, w, a, &trials->at[i].c, out)) return true;
  return false;
}

// Whether one of the plans that take little time to make fits, or one that recomputes or offloads
// saved activations, with `last` also one that offloads states.
static bool quick_fits(const Module *model, const ChooseOptions *o, const StepWork *w, bool last,
                       Arena *a, Candidate *out) {
  Trials quick = {0};
  candidates_quick(model, o, a, true, &quick);
  candidates_saving(model, o, a, &quick);
  if (last) candidates_last(model, o, a, &quick);
  return any_of(&quick, model, o, w, a, out);
}

bool choose_quick(const Module *model, const ChooseOptions *o, Arena *a, Candidate *out) {
  return quick_fits(model, o, work_of(model, o, a), true, a, out);
}

// Whether a quick candidate fits with more ranks, with `last` also one that offloads states: a
// hint.
static bool fits_wider(const Module *model, const ChooseOptions *o, bool last, Arena *a, Diag *d) {
  ChooseOptions more = *o;
  const StepWork *w = work_of(model, o, a);
  Candidate c;
  for (more.ranks = 2 * o->ranks; more.ranks <= cluster_devices(o->cluster); more.ranks *= 2) {
    if (!quick_fits(model, &more, w, last, a, &c)) continue;
    diag_hint(d, "it fits on %" PRId64 " ranks: -g %" PRId64 " --plan %s --micro-batches %" PRId64,
              more.ranks, more.ranks, c.plan, c.micro_batches);
    return true;
  }
  return false;
}

// Tries plans in their largest number of micro-batches, in which they need least: too much
// persistent state may have excluded that before. Plans that would not need less than the least so
// far are left out.
static void try_most_slices(const Module *model, const ChooseOptions *o, Arena *a,
                            Candidates *all) {
  Candidates unmade = {0};
  for (int i = 0, n = all->n; i < n; i++) {
    const Candidate c = all->at[i], *least = smallest(all);
    if (!c.made || c.searched || o->micro_batches) continue;
    int64_t kept = c.needs.weight_bytes + c.needs.state_bytes;
    int64_t rest = c.needs.peak_bytes - kept;
    // If the ranks cannot share so few rows, in fewer.
    for (int64_t k = most_slices(o, a, &c, o->batch); k > c.micro_batches;
         k = most_slices(o, a, &c, k / 2)) {
      if (kept + rest * c.micro_batches / k >= least->needs.peak_bytes) break;
      if (find_compiled(all, c.plan, k)) break;
      if (find_compiled(&unmade, c.plan, k)) continue;
      Candidate more;
      make_in(model, o, a, &c, k, &more);
      vec_push(a, more.made ? all : &unmade, more);
      if (more.made) break;
    }
  }
}

const Candidate *choose_nearest(const Module *model, const ChooseOptions *o, Arena *a,
                                Candidates *all) {
  try_most_slices(model, o, a, all);
  return smallest(all);
}

bool choose_failed_alike(const Candidates *all) {
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (c->made || c->needs_less || c->why == all_same || !str_equal(c->why, all->at[0].why))
      return false;
  }
  return all->n > 0;
}

// Reports that no plan can fit, which is proved.
static void none_can_fit(const ChooseOptions *o, const Certificate *certificate, Diag *d) {
  diag_error(d, NULL,
             "no plan of %" PRId64 " ranks fits: the weights of a rank take at least %.0f bytes, "
             "and a device of '%s' has %.0f",
             o->ranks, certificate->lacks, o->cluster->name, o->cluster->memory);
}

bool choose_failed(const Module *model, const ChooseOptions *o, Arena *a, const Candidates *tried,
                   const Certificate *certificate, Diag *d) {
  Candidates all = {0};
  for (int i = 0; i < tried->n; i++)
    vec_push(a, &all, tried->at[i]);
  try_most_slices(model, o, a, &all);
  const Candidate *c = smallest(&all), *unmade = smallest_unmade(&all);
  bool proved = certificate->lacks > 0;
  if (proved) none_can_fit(o, certificate, d);
  if (!c && !unmade && !proved) return none_made(model, o, a, &all, d);
  // None could be made for lack of memory.
  if (!c && proved) {
    fits_wider(model, o, proved, a, d);
    return false;
  }
  if (!c) {
    diag_error(
        d, NULL,
        "the model fits under none of the plans tried, and none can be made: in the one that "
        "needs least, %s in %" PRId64 " micro-batch%s, a rank would need at least %.0f bytes",
        unmade->plan, unmade->least_slices, unmade->least_slices == 1 ? "" : "es", unmade->least);
    diag_note(d, NULL, "%s", unmade->least_why);
    fits_wider(model, o, proved, a, d);
    return false;
  }
  const char *nearest = str_format(
      a,
      "with the one that needs least, %s in %" PRId64 " micro-batch%s, rank %d needs "
      "%" PRId64 " bytes, and its device of '%s' has %.0f",
      c->plan, c->micro_batches, c->micro_batches == 1 ? "" : "es", c->needs.rank,
      c->needs.peak_bytes, o->cluster->name, cluster_device(o->cluster, c->needs.rank).memory);
  if (proved)
    diag_note(d, NULL, "of the plans tried, %s", nearest);
  else
    diag_error(d, NULL, "the model fits under none of the plans tried: %s", nearest);
  diag_note(d, NULL, "%s", needs_text(a, &c->needs));
  if (unmade && unmade->least < (double)c->needs.peak_bytes)
    diag_note(
        d, NULL,
        "with %s in %" PRId64 " micro-batch%s, which was not made, a rank would need at least "
        "%.0f",
        unmade->plan, unmade->least_slices, unmade->least_slices == 1 ? "" : "es", unmade->least);
  // A cure: more ranks, or larger devices.
  if (!fits_wider(model, o, proved, a, d))
    diag_hint(d, "a device would need %" PRId64 " bytes more",
              c->needs.peak_bytes - (int64_t)cluster_device(o->cluster, c->needs.rank).memory);
  return false;
}
