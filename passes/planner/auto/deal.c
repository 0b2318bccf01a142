// See deal.h.

#include "deal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/vec.h"

// Sums over the units before each, by unit.
typedef struct Sums {
  double *forward, *backward, *weight_grad, *lasting, *sums, *update;
  double *kept;                      // of the level of all units
  double *again[N_RECOMPUTE_LEVELS]; // seconds and bytes beside the level of all units
  double *saved[N_RECOMPUTE_LEVELS];
} Sums;

typedef struct Dealer {
  const DealProblem *p;
  Arena *arena;
  int n, stages; // units; stages of all chunks
  bool split;
  Sums sum;
  double *hops_before, *hops_after; // [stage * (n + 1) + unit]: the least of so many borders
} Dealer;

// -- Units -------------------------------------------------------------------------------------

static const UnitCost *unit_at(const Dealer *d, int unit) {
  return &d->p->units->at[unit];
}

static RecomputeLevel base_level(const DealProblem *p) {
  return p->per_stage_recompute ? RECOMPUTE_none : p->recompute;
}

static double hop_seconds(const UnitCosts *u, int border) {
  return u->hop_start + u->hop_seconds_per_byte * u->at[border - 1].handed;
}

static bool may_border(const Dealer *d, int border) {
  return border == 0 || border == d->n || unit_at(d, border - 1)->may_end;
}

static void sum_units(Dealer *d) {
  Arena *a = d->arena;
  Sums *s = &d->sum;
  double **rows[] = {&s->forward, &s->backward, &s->weight_grad, &s->lasting,
                     &s->sums,    &s->update,   &s->kept};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    *rows[i] = arena_array(a, double, d->n + 1);
  RecomputeLevel base = base_level(d->p);
  for (int u = 0; u < d->n; u++) {
    const UnitCost *x = unit_at(d, u);
    s->forward[u + 1] = s->forward[u] + x->forward;
    s->backward[u + 1] = s->backward[u] + x->backward + (d->split ? 0 : x->weight_grad) +
                         (base == RECOMPUTE_none ? 0 : x->again[base]);
    s->weight_grad[u + 1] = s->weight_grad[u] + (d->split ? x->weight_grad : 0);
    s->lasting[u + 1] = s->lasting[u] + x->lasting;
    s->sums[u + 1] = s->sums[u] + x->sums;
    s->update[u + 1] = s->update[u] + x->update;
    s->kept[u + 1] = s->kept[u] + x->kept[base];
  }
  for (int level = 0; level < N_RECOMPUTE_LEVELS; level++) {
    s->again[level] = arena_array(a, double, d->n + 1);
    s->saved[level] = arena_array(a, double, d->n + 1);
    for (int u = 0; u < d->n && level > (int)base; u++) {
      const UnitCost *x = unit_at(d, u);
      s->again[level][u + 1] = s->again[level][u] + x->again[level];
      s->saved[level][u + 1] =
          s->saved[level][u] + fmax(0, x->kept[RECOMPUTE_none] - x->kept[level]);
    }
  }
}

// The least seconds of s hops at borders up to each, which is the last of them; and from each.
static void sum_hops(Dealer *d) {
  int n = d->n, row = n + 1;
  d->hops_before = arena_array(d->arena, double, (int64_t)(d->stages + 1) * row);
  d->hops_after = arena_array(d->arena, double, (int64_t)(d->stages + 1) * row);
  for (int s = 0; s <= d->stages; s++) {
    double least = INFINITY;
    double *before = &d->hops_before[(int64_t)s * row], *after = &d->hops_after[(int64_t)s * row];
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
}

// -- Memory ------------------------------------------------------------------------------------

// The most bytes beside those that last and those kept, of units of a stage.
typedef struct Working {
  double of[N_RECOMPUTE_LEVELS]; // if units are recomputed at the level
} Working;

static void add_working(const Dealer *d, Working *w, int unit) {
  const UnitCost *x = unit_at(d, unit);
  RecomputeLevel base = base_level(d->p);
  for (int level = (int)base; level < N_RECOMPUTE_LEVELS; level++) {
    // Backward has the recomputed activations of one unit.
    double back = x->working[1] + fmax(0, x->kept[RECOMPUTE_none] - x->kept[level]);
    w->of[level] = fmax(w->of[level], fmax(x->working[0], back));
  }
}

typedef struct Recompute {
  RecomputeLevel level;
  int units;
  double again, saved; // seconds and bytes of a micro-batch
} Recompute;

// The least recomputation with which units first … last - 1 fit.  False: none does.
static bool find_recompute(const Dealer *d, int first, int last, double held, const Working *w,
                           Recompute *out) {
  const Sums *s = &d->sum;
  RecomputeLevel base = base_level(d->p);
  double bytes = s->lasting[last] - s->lasting[first] + held * (s->kept[last] - s->kept[first]);
  double limit = d->p->memory * (1 + 1e-9);
  bool found = bytes + w->of[base] <= limit;
  *out = (Recompute){base, base == RECOMPUTE_none ? 0 : last - first, 0, 0};
  if (found || !d->p->per_stage_recompute) return found;
  for (int level = RECOMPUTE_attention; level < N_RECOMPUTE_LEVELS; level++) {
    double lacks = bytes + w->of[level] - limit;
    const double *saved = s->saved[level];
    // The fewest units that save so much.
    int lo = first + 1, hi = last;
    while (lo < hi) {
      int middle = (lo + hi) / 2;
      if (held * (saved[middle] - saved[first]) >= lacks)
        hi = middle;
      else
        lo = middle + 1;
    }
    double again = s->again[level][lo] - s->again[level][first];
    if (held * (saved[lo] - saved[first]) < lacks || (found && again >= out->again)) continue;
    found = true;
    *out = (Recompute){(RecomputeLevel)level, lo - first, again, saved[lo] - saved[first]};
  }
  return found;
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

// Adds a label unless one is as good, and drops the ones that it is better than.  Earlier labels
// stay first.
static void add_label(Arena *a, Labels *all, const Label *x) {
  for (int i = 0; i < all->n; i++)
    if (better(&all->at[i], x)) return;
  int kept = 0;
  for (int i = 0; i < all->n; i++)
    if (!better(x, &all->at[i])) all->at[kept++] = all->at[i];
  all->n = kept;
  vec_push(a, all, *x);
}

// The ends of a stage with units first … last - 1, if the later ones are those of a label.
static Label end_stage(const Dealer *d, const StageOrders *o, int stage, int first, int last,
                       const Recompute *r, const Label *later) {
  const Sums *s = &d->sum;
  const DealProblem *p = d->p;
  int row = d->n + 1, after = d->stages - 1 - stage;
  double before = d->hops_before[(int64_t)stage * row + first];
  double behind = d->hops_after[(int64_t)after * row + last];
  StageTimes t = {.forward = s->forward[last] - s->forward[first],
                  .backward = s->backward[last] - s->backward[first] + r->again,
                  .weight_grad = s->weight_grad[last] - s->weight_grad[first],
                  .lead = s->forward[first] + before};
  double backs = s->backward[d->n] - s->backward[last] + later->again;
  t.first_back = s->forward[d->n] + before + behind + behind + backs;
  t.round_trip = t.first_back - t.lead + t.backward;
  t.next_back = after ? later->back + hop_seconds(p->units, last) : -INFINITY;
  StageEnds e = stage_ends(o, &t);
  double tied = d->stages > 1 && (stage == 0 || !after) ? p->units->tied_sums : 0;
  double own = e.all + s->sums[last] - s->sums[first] + s->update[last] - s->update[first] + tied;
  return (Label){e.back, fmax(later->ends, own), later->again + r->again, last, 0};
}

// Fills the table with labels that end by `limit`.  Returns the least bound; INFINITY: none does.
static double fill(const Dealer *d, Labels *table, Arena *a, double limit) {
  const Sums *s = &d->sum;
  int n = d->n, row = n + 1, p = d->stages;
  double m = (double)d->p->micro_batches;
  const Label none = {0};
  for (int i = 0; i < (p + 1) * row; i++)
    table[i] = (Labels){0};
  vec_push(a, &table[p * row + n], none);
  for (int stage = p - 1; stage >= 0; stage--) {
    StageOrders o = stage_orders(d->p->kind, d->p->stages, d->p->micro_batches, stage);
    double held = staged_held(d->p->kind, d->p->stages, 1, (int)d->p->micro_batches, stage);
    for (int last = n - (p - 1 - stage); last > stage; last--) {
      const Labels *later = &table[(stage + 1) * row + last];
      Working w = {0};
      if (!later->n || !may_border(d, last)) continue;
      for (int first = last - 1; first >= stage; first--) {
        double work = s->forward[last] + s->backward[last] + s->weight_grad[last] -
                      s->forward[first] - s->backward[first] - s->weight_grad[first];
        double rest = s->forward[first] + s->backward[first] + s->weight_grad[first];
        Recompute r;
        add_working(d, &w, first);
        if (m * work > limit) break;
        if (!stage && first) continue;
        // The stages before have no more time than this one.
        if (!may_border(d, first) || (stage ? m * rest > stage * limit : false)) continue;
        if (!find_recompute(d, first, last, held, &w, &r)) break;
        for (int i = 0; i < later->n; i++) {
          Label x = end_stage(d, &o, stage, first, last, &r, &later->at[i]);
          x.later = i;
          if (x.ends <= limit) add_label(a, &table[stage * row + first], &x);
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

static void write_deal(const Dealer *d, const Labels *table, double bound, Arena *a, Deal *out) {
  int row = d->n + 1, at = 0, first = 0;
  *out = (Deal){.bound = bound, .n = d->stages};
  out->first = arena_array(a, int, d->stages + 1);
  out->level = arena_array(a, RecomputeLevel, d->stages);
  out->recomputed = arena_array(a, int, d->stages);
  out->bytes = arena_array(a, double, d->stages);
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

// -- Stages of a deal --------------------------------------------------------------------------

static Dealer dealer_new(const DealProblem *p, Arena *a) {
  Dealer d = {.p = p, .arena = a, .n = p->units->n, .split = staged_splits(p->kind)};
  d.stages = staged_stages(p->kind, p->stages, p->chunks);
  sum_units(&d);
  return d;
}

// Finds what a stage recomputes, and its bytes.  False: it does not fit.
static bool fit_stage(const Dealer *d, Deal *deal, int stage) {
  const DealProblem *p = d->p;
  int first = deal->first[stage], last = deal->first[stage + 1];
  double held = staged_held(p->kind, p->stages, p->chunks, (int)p->micro_batches, stage);
  Working w = {0};
  Recompute r;
  for (int u = first; u < last; u++)
    add_working(d, &w, u);
  if (!find_recompute(d, first, last, held, &w, &r)) return false;
  deal->level[stage] = r.level;
  deal->recomputed[stage] = r.units;
  deal->bytes[stage] = d->sum.lasting[last] - d->sum.lasting[first] +
                       held * (d->sum.kept[last] - d->sum.kept[first] - r.saved) + w.of[r.level];
  return true;
}

PipelineCost deal_cost(const DealProblem *p, const Deal *d, Arena *a) {
  StageCost *at = arena_array(a, StageCost, d->n);
  for (int i = 0; i < d->n; i++)
    for (int u = d->first[i]; u < d->first[i + 1]; u++) {
      const UnitCost *x = &p->units->at[u];
      RecomputeLevel level = u - d->first[i] < d->recomputed[i] ? d->level[i] : RECOMPUTE_none;
      double back = x->working[1] + fmax(0, x->kept[RECOMPUTE_none] - x->kept[level]);
      at[i].forward += x->forward;
      at[i].backward += x->backward + (level == RECOMPUTE_none ? 0 : x->again[level]);
      at[i].weight_grad += x->weight_grad;
      at[i].kept += x->kept[level];
      at[i].lasting += x->lasting;
      at[i].working = fmax(at[i].working, fmax(x->working[0], back));
      at[i].sums += x->sums;
      at[i].update += x->update;
      if (u == d->first[i + 1] - 1 && i + 1 < d->n) at[i].hop = hop_seconds(p->units, u + 1);
    }
  return (PipelineCost){p->kind,
                        p->stages,
                        p->chunks,
                        p->micro_batches,
                        at,
                        p->units->tied_sums,
                        p->units->joint_update};
}

bool makespan_find(const DealProblem *p, const Deal *d, double *seconds, double *peak) {
  Arena *scratch = arena_new();
  PipelineCost c = deal_cost(p, d, scratch);
  bool ok = makespan_run(&c, seconds, peak);
  arena_free(scratch);
  return ok;
}

// -- The deal ----------------------------------------------------------------------------------

// The table is filled with the labels within a limit, and a larger one only if that leaves none:
// limits as multiples of the mean work of a stage.
static const double limits[] = {1.03, 1.1, 1.25, 1.6, 2.5, INFINITY};
enum { N_LIMITS = sizeof limits / sizeof *limits };

bool deal_find(const DealProblem *p, Arena *a, Deal *out) {
  assert(staged_stages(p->kind, p->stages, p->chunks) == p->stages);
  Arena *scratch = arena_new();
  Dealer d = dealer_new(p, scratch);
  Labels *table = arena_array(scratch, Labels, (int64_t)(d.stages + 1) * (d.n + 1));
  sum_hops(&d);
  const Sums *s = &d.sum;
  double work = s->forward[d.n] + s->backward[d.n] + s->weight_grad[d.n];
  double bound = INFINITY;
  for (int i = 0; i < N_LIMITS && isinf(bound); i++)
    bound = fill(&d, table, scratch, limits[i] * work * (double)p->micro_batches / p->stages);
  bool found = !isinf(bound);
  if (found) {
    write_deal(&d, table, bound, a, out);
    for (int i = 0; i < d.stages; i++)
      fit_stage(&d, out, i);
  }
  arena_free(scratch);
  return found;
}

// -- Improvement -------------------------------------------------------------------------------

// Moves a unit from stage `from` to stage `to`, through the stages between them.  False: a stage
// would have none, end where none may, or not fit.
static bool move_unit(const Dealer *d, Deal *deal, int from, int to) {
  int low = from < to ? from : to, high = from < to ? to : from;
  for (int i = low + 1; i <= high; i++)
    deal->first[i] += from < to ? -1 : 1;
  for (int i = low; i <= high; i++)
    if (deal->first[i] >= deal->first[i + 1] || !may_border(d, deal->first[i]) ||
        !fit_stage(d, deal, i))
      return false;
  return true;
}

static void copy_deal(const Deal *from, Deal *to) {
  size_t n = (size_t)from->n;
  memcpy(to->first, from->first, (n + 1) * sizeof *to->first);
  memcpy(to->level, from->level, n * sizeof *to->level);
  memcpy(to->recomputed, from->recomputed, n * sizeof *to->recomputed);
  memcpy(to->bytes, from->bytes, n * sizeof *to->bytes);
}

double deal_improve(const DealProblem *p, Deal *deal, int timelines, Arena *a) {
  Dealer d = dealer_new(p, a);
  size_t n = (size_t)deal->n;
  Deal next = {.n = deal->n,
               .first = arena_array(a, int, n + 1),
               .level = arena_array(a, RecomputeLevel, n),
               .recomputed = arena_array(a, int, n),
               .bytes = arena_array(a, double, n)};
  double best, peak;
  if (!makespan_find(p, deal, &best, &peak)) return INFINITY;
  // The first move that helps is taken; the moves go on from there, until none of all helps.
  int pairs = deal->n * deal->n, since = 0;
  for (int k = 0; since < pairs && timelines > 0; k = (k + 1) % pairs, since++) {
    double seconds;
    copy_deal(deal, &next);
    if (k / deal->n == k % deal->n || !move_unit(&d, &next, k / deal->n, k % deal->n)) continue;
    timelines--;
    if (!makespan_find(p, &next, &seconds, &peak) || seconds >= best) continue;
    best = seconds;
    copy_deal(&next, deal);
    since = -1;
  }
  return best;
}
