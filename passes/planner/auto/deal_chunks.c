// Deals to devices with several stages each, of interleaved and zb-v: see deal.h.
//
// The stages of a device are far from each other in the model, so a table over (stage, units before
// it) does not know a device's work. The deal has stages of nearly equal work, the slowest as fast
// as can be; deal_improve does the rest by timelines. Unequal chunks cost time although devices are
// equal, as every device runs a chunk at the same time as the others.
//
// The bound is of any deal. Some device has the mean of all work, beside its wait; in the deal with
// the least bound, devices share that, too. For interleaved, of v chunks on p devices with T
// seconds of a micro-batch on all of them, device d waits T d / (v p) or more, averaged over the
// chunks of makespan.h, if devices have equal work. The devices that wait may have less; with V the
// time of the step none has more than V / m of a micro-batch, so
//
//     p V >= m T + (the sum over d of (p - 1 - d) T_d) / v       T_d <= V / m, and T in all
//
// for a step that ends on the first device. With sums and updates of the mean device, whose end may
// be sooner, only the wait for the first forward counts: its part of T_d.
//
// Further: some device has at least k + 1 of the k p + 1 largest units, in work and sums; and round
// trips, which are of all units, whoever has them.

#include <math.h>
#include <stdlib.h>

#include "dealing.h"

// -- Bound -------------------------------------------------------------------------------------

static int larger_first(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a > b ? -1 : a < b;
}

// The seconds of the device with the most units, at least: of work in m micro-batches, and after.
static double bound_units(const Dealer *d) {
  int p = d->p->stages;
  double *each = arena_array(d->arena, double, d->n), most = 0, all = 0;
  for (int u = 0; u < d->n; u++) {
    const UnitCost *x = unit_at(d, u);
    each[u] = (work_before(d, u + 1) - work_before(d, u)) * (double)d->p->micro_batches + x->sums +
              x->update;
    all += each[u];
  }
  qsort(each, (size_t)d->n, sizeof *each, larger_first);
  for (int k = 0; k * p < d->n; k++) {
    double sum = 0;
    for (int i = 0; i <= k; i++)
      sum += each[k * p - i];
    most = fmax(most, sum);
  }
  return fmax(most, all / p);
}

static double least_hop(const Dealer *d) {
  double least = INFINITY;
  for (int b = 1; b < d->n; b++)
    if (may_border(d, b)) least = fmin(least, hop_seconds(d->p->units, b));
  return d->p->stages > 1 && !isinf(least) ? least : 0;
}

// The mean over devices of work, wait for the first forward, sums and updates.
static double bound_mean(const Dealer *d) {
  int p = d->p->stages;
  UnitWaits *unit = arena_array(d->arena, UnitWaits, d->n);
  double all = 2 * (p > 1 ? d->p->units->tied_sums : 0), m = (double)d->p->micro_batches;
  for (int u = 0; u < d->n; u++) {
    unit[u].work = work_before(d, u + 1) - work_before(d, u);
    unit[u].waits = unit_at(d, u)->forward;
    all += m * unit[u].work + unit_at(d, u)->sums + unit_at(d, u)->update;
  }
  return least_with_waits(d, unit, all / p + (d->stages - 1) / 2.0 * least_hop(d));
}

static double bound_chunks(const Dealer *d) {
  const Sums *s = &d->sum;
  const UnitCost *first = unit_at(d, 0), *last = unit_at(d, d->n - 1);
  int p = d->p->stages, v = d->p->chunks;
  double m = (double)d->p->micro_batches, all = work_before(d, d->n);
  double hops = (d->stages - 1) * least_hop(d);
  // A round trip ends on the first device, which has at least the first unit.
  double tied = d->p->kind == STAGED_interleaved && p > 1 ? d->p->units->tied_sums : 0;
  double after = first->sums + first->update + tied;
  double round_trip = s->forward[d->n] + s->backward[d->n] + 2 * hops;
  // All transfers of a device, of the one with the most borders.
  double borders = d->p->kind == STAGED_interleaved ? 2 * v - (p == 2) : p > 2 ? 4 : 2;
  double bound = fmax(bound_units(d), 2 * m * borders * least_hop(d));
  if (d->p->kind == STAGED_interleaved) {
    int64_t groups = (d->p->micro_batches + p - 1) / p, trips = (groups + 1) / 2;
    double waits = (m * all + (p - 1) * all / v) / (p * (1 + (p - 1) / (2 * v * m)));
    bound = fmax(bound, fmax(bound_mean(d), waits + hops + after));
    bound = fmax(bound, (double)trips * round_trip + after);
  } else if (p > 1) {
    double own = last->forward + last->backward + last->weight_grad;
    bound = fmax(bound, m * (round_trip + first->weight_grad + own) / (2 * p) + after);
  }
  return bound;
}

// -- Stages of nearly equal work ---------------------------------------------------------------

// Borders, and the work of the slowest of the stages before each.
typedef struct Spread {
  double *slowest; // [stages * (n + 1) + border]
  int *from;       // likewise: the border before
} Spread;

// Of zb-v the stage at the turn counts half, as it is the only one of its device.
static bool is_turn(const Dealer *d, int stage) {
  return d->p->kind == STAGED_zb_v && stage == d->p->stages - 1;
}

// The stages before one, if that at the turn counts as two.
static int stages_before(const Dealer *d, int stage) {
  return stage + (d->p->kind == STAGED_zb_v && stage >= d->p->stages);
}

// Whether stages of work up to the limit may have these units before the border, and those after.
static bool is_near(const Dealer *d, int stage, int border, double limit) {
  double before = work_before(d, border), after = work_before(d, d->n) - before;
  int earlier = stages_before(d, stage), all = stages_before(d, d->stages);
  limit *= 1 + 1e-9;
  return before <= earlier * limit && after <= (all - earlier) * limit;
}

// Finds the least work of the slowest stage, if that is up to the limit, and its borders. False: it
// is more.
static bool spread_within(const Dealer *d, const Spread *s, double limit) {
  int n = d->n, row = n + 1, stages = d->stages;
  for (int i = 0; i < (stages + 1) * row; i++)
    s->slowest[i] = INFINITY;
  s->slowest[0] = 0;
  for (int i = 0; i < stages; i++) {
    const double *before = &s->slowest[i * row];
    for (int b = i + 1; b <= n - (stages - 1 - i); b++) {
      double *own = &s->slowest[(i + 1) * row + b];
      if (!may_border(d, b) || !is_near(d, i + 1, b, limit)) continue;
      for (int a = b - 1; a >= i; a--) {
        double work = (is_turn(d, i) ? 0.5 : 1) * (work_before(d, b) - work_before(d, a));
        if (work >= *own || work > limit) break;
        double slowest = before[a] > work ? before[a] : work;
        if (slowest >= *own) continue;
        *own = slowest;
        s->from[(i + 1) * row + b] = a;
      }
    }
  }
  return s->slowest[stages * row + n] <= limit;
}

// The work of the slowest stage is no less: the mean, or the units between two borders.
static double least_slowest(const Dealer *d) {
  double least = work_before(d, d->n) / stages_before(d, d->stages);
  double part = d->p->kind == STAGED_zb_v ? 0.5 : 1;
  for (int b = 1, last = 0; b <= d->n; b++) {
    if (!may_border(d, b)) continue;
    least = fmax(least, part * (work_before(d, b) - work_before(d, last)));
    last = b;
  }
  return least;
}

// Borders with the least work of the slowest stage.  False: there are too few of them.
static bool spread_units(const Dealer *d, int *first) {
  // Limits as multiples of the least: most deals are within the first two. A larger one costs time,
  // and changes no deal: the least within some limit is the least of all.
  static const double limits[] = {1, 1.05, 1.25, 2, INFINITY};
  int n = d->n, row = n + 1, stages = d->stages;
  Spread s = {arena_array(d->arena, double, (int64_t)(stages + 1) * row),
              arena_array(d->arena, int, (int64_t)(stages + 1) * row)};
  double least = least_slowest(d);
  size_t i = 0;
  while (!spread_within(d, &s, isinf(limits[i]) ? INFINITY : limits[i] * least))
    i++;
  if (isinf(s.slowest[stages * row + n])) return false;
  first[stages] = n;
  for (int k = stages; k > 0; k--)
    first[k - 1] = s.from[k * row + first[k]];
  return true;
}

bool chunks_deal(const Dealer *d, Deal *out) {
  out->bound = bound_chunks(d);
  return spread_units(d, out->first);
}
