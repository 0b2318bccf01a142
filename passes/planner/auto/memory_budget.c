// See memory_budget.h.
//
// After some rounds two bounds are known: the largest assumption with a plan that fits, and the
// least estimate of a plan that does not. The next assumption between them is the device's memory
// divided by the last plan's ratio of need to estimate; if that is not between them, their
// geometric mean.

#include "memory_budget.h"

#include <math.h>

enum { MOST_ROUNDS = 4 };
#define MORE       1.5    // work of all further rounds, times that of the first
#define LEAST_WORK 2e8    // or this
#define FOR_ALIKE  5e6    // or only this, if redundant ranks are the only fault
#define ANY        0x1p62 // bytes: without a limit
#define CLOSE      1.01   // bounds within this factor need no round between them

Rounds rounds_begin(double have) {
  return (Rounds){.have = have, .counts = have, .least = INFINITY};
}

bool rounds_exact(const Rounds *r) {
  return isfinite(r->least) && r->least * CLOSE >= 1;
}

int64_t rounds_next(Rounds *r, const Round *last) {
  if (!last->nothing && last->seen <= 0) return 0;
  if (last->nothing && r->exact) return 0;
  // The first round sets the work of all further ones.
  if (!r->n++)
    r->left = (int64_t)fmax(MORE * last->work, last->alike ? FOR_ALIKE : LEAST_WORK);
  else
    r->left -= (int64_t)last->work;
  // The bounds of the assumed memory, and the ratio of need to estimate.
  if (last->nothing || last->fits)
    r->fits = fmax(r->fits, r->counts);
  else
    r->over = r->over > 0 ? fmin(r->over, last->seen) : last->seen;
  if (!last->nothing) {
    r->ratio = last->needs / last->seen;
    r->least = fmin(r->least, r->ratio);
  }
  bool best = last->fits && !last->bound, hopeless = last->nothing && r->counts >= ANY;
  if (best || hopeless || r->n == MOST_ROUNDS || r->left <= 0) return 0;
  if (!(r->over > 0)) {
    r->counts = ANY;
    return INT64_MAX;
  }
  // The estimate is exact: with the device's memory a plan fits, or none was found; without a limit
  // one does not fit; and no plan needs less than its estimate. Then no plan fits if its estimate
  // exceeds the memory.
  bool is_exact = r->fits >= r->have && r->over > 0 && rounds_exact(r);
  if (r->fits * CLOSE >= r->over || is_exact) return 0;
  // The next assumption is between the bounds.
  double guess = r->have / r->ratio, below = r->over - 1;
  double mean = guess > CLOSE * r->fits && guess < below ? guess : sqrt(r->fits * below);
  r->counts = floor(r->fits > 0 ? mean : guess < below ? guess : below);
  return r->counts >= 1 ? (int64_t)r->counts : 0;
}
