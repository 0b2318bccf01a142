// The memory that a search should assume so that its plan fits, and is the cheapest that does.
//
// A search's estimate of memory (planner/search/memory.h) differs from the needs of plan_memory:
//
//     assumed              seen     needed    of 2.0 MB
//     2.0 MB, as it is      1.9       1.4     fits, but with more it might be cheaper
//     any                   2.4       1.8     fits, and nothing is cheaper: taken
//
//     2.0 MB                1.9       2.1     does not fit
//     1.8                   1.7       1.9     fits
//     1.85                  1.7       1.9     the same
//
// So each plan is compiled and measured, and the search runs again: with more memory, first without
// a limit, if its plan might be cheaper with more; with less if its plan does not fit. Each round
// takes time, so there are few, and together they may work a little more than the first did.
//
//     80 GB, as it is      73.0      73.0     fits, but with more it might be cheaper
//     any                  84.3      84.3     does not fit
//
// Here nothing is left between the two: a plan with an estimate of more than 80 GB does need more,
// if it is like either of them.

#ifndef MEMORY_BUDGET_H
#define MEMORY_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

// The result of a round.
typedef struct Round {
  bool nothing; // the search found nothing that fits
  bool bound;   // more memory may lead to something cheaper
  bool fits;    // its plan fits
  bool alike;   // it would fit, but all ranks do the same
  double seen;  // bytes that its plan needs, as estimated by the search; 0: unknown
  double needs; // bytes that it does need
  double work;  // of the search
} Round;

typedef struct Rounds {
  double have;   // bytes of a device
  double counts; // assumed in the last round
  double fits;   // largest assumption with a plan that fits, or without a plan; 0: none yet
  double over;   // least estimate of plans that do not fit; 0: none yet
  double ratio;  // need by estimate, of the last plan
  double least;  // the least such ratio
  bool exact; // it is 1 in fewer micro-batches: then nothing fits if the first round finds nothing
  int64_t left; // remaining work
  int n;
} Rounds;

Rounds rounds_begin(double have);
// Returns the memory to assume next; INT64_MAX: any; 0: nothing more can be found.
int64_t rounds_next(Rounds *r, const Round *last);
// Whether a plan was found, and none needs less than its estimate.
bool rounds_exact(const Rounds *r);

#endif
