// The least bound over all deals to devices with one stage each: see deal.h.

#include <math.h>

#include "base/vec.h"
#include "dealing.h"

typedef struct Hops {
  double *before, *after; // [stage * (n + 1) + unit]: the least of so many borders
} Hops;

// The least seconds of s hops at borders up to each, which is the last of them; and from each.
static Hops sum_hops(const Dealer *d) {
  int n = d->n, row = n + 1;
  Hops h = {arena_array(d->arena, double, (int64_t)(d->stages + 1) * row),
            arena_array(d->arena, double, (int64_t)(d->stages + 1) * row)};
  for (int s = 0; s <= d->stages; s++) {
    double least = INFINITY;
    double *before = &h.before[(int64_t)s * row], *after = &h.after[(int64_t)s * row];
    for (int b = 0; b <= n; b++) {
      // Before: s borders, at b the last; the model's beginning is no border.
      if (b > 0 && s > 0) least = fmin(least, before[b - 1 - row]);
      bool is_border = b > 0 && b < n && may_border(d, b);
      before[b] = s ? INFINITY : b == 0 ? 0 : INFINITY;
      if (s && is_border) before[b] = least + hop_seconds(d->p->units, b);
    }
    least = INFINITY;
    for (int b = n; b >= 0; b--) {
      if (b < n && s > 0) least = fmin(least, after[b + 1 - row]);
      bool is_border = b > 0 && b < n && may_border(d, b);
      after[b] = !s && b == n ? 0 : INFINITY;
      if (s && is_border) after[b] = least + hop_seconds(d->p->units, b);
    }
  }
  return h;
}

// -- The table ---------------------------------------------------------------------------------

typedef struct Label {
  double back, ends, again;
  int end;   // the first unit after the stage
  int later; // the label of the next stage, in its state
} Label;

typedef Vec(Label) Labels;

static bool better(const Label *x, const Label *y) {
  return x->back <= y->back && x->ends <= y->ends && x->again <= y->again;
}

// Labels of a state.  More of them become fewer that are as good as two: still a bound.  If
// stages of long models recompute, few labels are no better than another.
enum { MOST_LABELS = 16, FEW_LABELS = 3, LONG = 64 };

static int most_labels(const Dealer *d) {
  return d->p->per_stage_recompute && d->n > LONG ? FEW_LABELS : MOST_LABELS;
}

// Adds a label unless one is as good, and drops the ones that it is better than.  Earlier labels
// stay first.
static void add_label(Arena *a, Labels *all, const Label *x, int most) {
  for (int i = 0; i < all->n; i++)
    if (better(&all->at[i], x)) return;
  int kept = 0;
  for (int i = 0; i < all->n; i++)
    if (!better(x, &all->at[i])) all->at[kept++] = all->at[i];
  all->n = kept;
  if (kept < most) {
    vec_push(a, all, *x);
    return;
  }
  // The one that ends most nearly at the same time takes its part.
  Label *near = &all->at[0];
  for (int i = 1; i < kept; i++)
    if (fabs(all->at[i].back - x->back) < fabs(near->back - x->back)) near = &all->at[i];
  if (x->ends < near->ends) {
    near->end = x->end;
    near->later = x->later;
  }
  near->back = fmin(near->back, x->back);
  near->ends = fmin(near->ends, x->ends);
  near->again = fmin(near->again, x->again);
}

// The ends of a stage with units first … last - 1, if the later ones are those of a label.
static Label end_stage(const Dealer *d, const Hops *h, const StageOrders *o, int stage, int first,
                       int last, const Saving *saving, const Label *later) {
  const Recompute *r = &saving->recompute;
  const Sums *s = &d->sum;
  const DealProblem *p = d->p;
  int row = d->n + 1, after = d->stages - 1 - stage;
  double before = h->before[(int64_t)stage * row + first];
  double behind = h->after[(int64_t)after * row + last];
  double again = r->again + saving->swapped.backward;
  StageTimes t = {.forward = s->forward[last] - s->forward[first] + saving->swapped.forward,
                  .backward = s->backward[last] - s->backward[first] + again,
                  .weight_grad = s->weight_grad[last] - s->weight_grad[first],
                  .lead = s->forward[first] + before};
  double backs = s->backward[d->n] - s->backward[last] + later->again;
  t.first_back = s->forward[d->n] + before + behind + behind + backs;
  t.round_trip = t.first_back - t.lead + t.backward;
  t.next_back = after ? later->back + hop_seconds(p->units, last) : -INFINITY;
  StageEnds e = stage_ends(o, &t);
  double tied = d->stages > 1 && (stage == 0 || !after) ? p->units->tied_sums : 0;
  double own = e.all + s->sums[last] - s->sums[first] + s->update[last] - s->update[first] +
               saving->offloaded.seconds + tied;
  double borders =
      (stage ? hop_seconds(p->units, first) : 0) + (after ? hop_seconds(p->units, last) : 0);
  own = fmax(own, 2 * (double)p->micro_batches * borders);
  return (Label){e.back, fmax(later->ends, own), later->again + again, last, 0};
}

// Fills the table with labels that end by `limit`.  Returns the least bound; INFINITY: none does.
static double fill(const Dealer *d, const Hops *h, Labels *table, Arena *a, double limit) {
  int n = d->n, row = n + 1, p = d->stages;
  double m = (double)d->p->micro_batches;
  int most = most_labels(d);
  const Label none = {0};
  for (int i = 0; i < (p + 1) * row; i++)
    table[i] = (Labels){0};
  vec_push(a, &table[p * row + n], none);
  for (int stage = p - 1; stage >= 0; stage--) {
    StageOrders o = stage_orders(d->p->kind, d->p->stages, d->p->micro_batches, stage);
    StagedHeld held = stage_holds(d->p, stage);
    for (int last = n - (p - 1 - stage); last > stage; last--) {
      const Labels *later = &table[(stage + 1) * row + last];
      Working w = {0};
      if (!later->n || !may_border(d, last)) continue;
      for (int first = last - 1; first >= stage; first--) {
        double rest = work_before(d, first), work = work_before(d, last) - rest;
        Saving saving[MOST_SAVINGS];
        add_working(d, &w, first);
        if (m * work > limit) break;
        if (!stage && first) continue;
        // The stages before have no more time than this one.
        if (!may_border(d, first) || (stage ? m * rest > stage * limit : false)) continue;
        int n_savings = find_savings(d, first, last, held, &w, saving);
        if (!n_savings) break;
        for (int k = 0; k < n_savings; k++)
          for (int i = 0; i < later->n; i++) {
            Label x = end_stage(d, h, &o, stage, first, last, &saving[k], &later->at[i]);
            x.later = i;
            if (x.ends <= limit) add_label(a, &table[stage * row + first], &x, most);
          }
      }
    }
  }
  const Labels *all = &table[0];
  double best = INFINITY;
  for (int i = 0; i < all->n; i++)
    best = fmin(best, all->at[i].ends);
  return best;
}

static void write_deal(const Dealer *d, const Labels *table, double bound, Deal *out) {
  int row = d->n + 1, at = 0, first = 0;
  out->bound = bound;
  while (table[0].at[at].ends > bound)
    at++;
  for (int stage = 0; stage < d->stages; stage++) {
    const Label *x = &table[stage * row + first].at[at];
    out->first[stage] = first;
    first = x->end;
    at = x->later;
  }
  out->first[d->stages] = d->n;
}

// The table is filled with the labels within a limit, and a larger one only if that leaves none:
// limits as multiples of the mean work of a stage.
static const double limits[] = {1.03, 1.1, 1.25, 1.6, 2.5, INFINITY};
enum { N_LIMITS = sizeof limits / sizeof *limits };

// Whether some deal fits: from the last stage on, each takes as many units as fit, as fewer fit,
// too.
static bool any_fits(const Dealer *d) {
  int last = d->n;
  for (int stage = d->stages - 1; stage >= 0 && last > 0; stage--) {
    StagedHeld held = stage_holds(d->p, stage);
    int least = last; // the first unit of the largest stage that fits and may begin there
    Working w = {0};
    Saving saving[MOST_SAVINGS];
    for (int first = last - 1; first >= 0; first--) {
      add_working(d, &w, first);
      if (!find_savings(d, first, last, held, &w, saving)) break;
      if (may_border(d, first)) least = first;
    }
    last = least;
  }
  return last == 0;
}

bool table_deal(const Dealer *d, Deal *out) {
  if (!isinf(d->p->memory) && !any_fits(d)) return false;
  Labels *table = arena_array(d->arena, Labels, (int64_t)(d->stages + 1) * (d->n + 1));
  Hops h = sum_hops(d);
  double mean = work_before(d, d->n) * (double)d->p->micro_batches / d->stages, bound = INFINITY;
  for (int i = 0; i < N_LIMITS && isinf(bound); i++)
    bound = fill(d, &h, table, d->arena, isinf(limits[i]) ? INFINITY : limits[i] * mean);
  if (isinf(bound)) return false;
  write_deal(d, table, bound, out);
  return true;
}
