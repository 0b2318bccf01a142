// Bounds of deals to stages of parts of units, as fine as can be: see deal.h.
//
// A stage s does its work w_s in m micro-batches after the first forward of the stages before it,
// and before the last backward of these:
//
//     T >= f_0 + … + f_(s-1)  +  m w_s  +  b_(s-1) + … + b_0
//
// The mean over p stages is a bound as well. It is least if early stages have little work, but then
// later ones have more, and none has more than T / m:
//
//     p T >= m w  +  the sum over s of (p - 1 - s) (f_s + b_s)        w_s <= T / m, and w in all
//
// Backwards with weight gradients that run later are left out: these may fill the wait.

#include <math.h>
#include <stdlib.h>

#include "dealing.h"

static int larger_part_first(const void *x, const void *y) {
  const UnitWaits *a = x, *b = y;
  return a->part > b->part ? -1 : a->part < b->part;
}

// The least of the sum over d of (p - 1 - d) / p of the waits for device d, if no device has more
// than `most` seconds of work: later devices are full, of the units with the largest part of waits.
static double least_waits(const Dealer *d, const UnitWaits *unit, double most) {
  int p = d->p->stages, device = p - 1;
  double room = most, sum = 0;
  for (int u = 0; u < d->n; u++)
    for (double left = 1; left > 0 && device >= 0;) {
      double part = unit[u].work * left <= room ? left : room / unit[u].work;
      sum += part * unit[u].waits * (p - 1 - device) / p;
      room -= part * unit[u].work;
      left -= part;
      if (left <= 0) break;
      device--;
      room = most;
    }
  return sum;
}

double least_with_waits(const Dealer *d, UnitWaits *unit, double mean) {
  double low = mean, high = mean;
  for (int u = 0; u < d->n; u++) {
    unit[u].part = unit[u].work > 0 ? unit[u].waits / unit[u].work : 0;
    high += unit[u].waits;
  }
  qsort(unit, (size_t)d->n, sizeof *unit, larger_part_first);
  // In a step of V seconds no device works more than V / m: the least V that its own bound allows.
  // 40 halvings leave 1e-12 of the range.
  for (int i = 0; i < 40; i++) {
    double middle = (low + high) / 2;
    double waits = least_waits(d, unit, middle / (double)d->p->micro_batches);
    if (middle < mean + waits / d->p->chunks)
      low = middle;
    else
      high = middle;
  }
  return low;
}

double deal_quick(const DealProblem *p) {
  Arena *scratch = arena_new();
  Dealer d = dealer_new(p, scratch);
  double largest = 0;
  for (int u = 0; u < d.n; u++)
    largest = fmax(largest, work_before(&d, u + 1) - work_before(&d, u));
  arena_free(scratch);
  return fmax(deal_least(p).seconds, (double)p->micro_batches * largest);
}

DealLeast deal_least(const DealProblem *p) {
  Arena *scratch = arena_new();
  Dealer d = dealer_new(p, scratch);
  UnitWaits *unit = arena_array(scratch, UnitWaits, d.n);
  double work = (double)p->micro_batches * work_before(&d, d.n);
  double after = d.sum.sums[d.n] + d.sum.update[d.n];
  DealLeast least = {.any_order = (work + after) / p->stages};
  least.seconds = least.any_order;
  for (int u = 0; u < d.n; u++) {
    unit[u].work = work_before(&d, u + 1) - work_before(&d, u);
    unit[u].waits = d.split ? unit_at(&d, u)->forward : unit[u].work;
  }
  if (d.stages == p->stages)
    least.seconds = fmax(least.seconds, least_with_waits(&d, unit, work / p->stages));
  arena_free(scratch);
  return least;
}
