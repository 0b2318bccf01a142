// On how much memory a search should count so that its plan fits, and is the cheapest that does.
//
// A search's estimate of memory (planner/search/memory.h) differs from the needs of plan_memory:
//
//     counted on           seen     needed    of 2.0 MB
//     2.0 MB, as it is      1.9       1.4     fits, but with more it might be cheaper
//     any                   2.4       1.8     fits, and nothing is cheaper: taken
//
//     2.0 MB                1.9       2.1     does not fit
//     1.8                   1.7       1.9     fits
//     1.85                  1.7       1.9     the same
//
// So each plan is made and measured, and the search is asked again: with more, at first with any,
// where its plan would be cheaper with more; with less where its plan does not fit.  Each round
// takes time, so there are few, and together they may work a little more than the first did.
//
//     80 GB, as it is      73.0      73.0     fits, but with more it might be cheaper
//     any                  84.3      84.3     does not fit
//
// Here nothing is to be found between the two: what is seen to need more than 80 GB does need it,
// if it is like either of them.

#ifndef MEMORY_BUDGET_H
#define MEMORY_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

// What came of a round.
typedef struct Round {
  bool nothing; // the search found nothing that fits
  bool bound;   // it may find something cheaper with more memory
  bool fits;    // its plan does
  bool alike;   // it would, but all ranks do the same
  double seen;  // bytes that its plan needs, as the search sees it; 0: not known
  double needs; // what it does need
  double work;  // of the search
} Round;

typedef struct Rounds {
  double have;   // bytes of a device
  double counts; // of the last round
  double fits; // the most that was counted on when the plan did fit, or there was none; 0: none yet
  double over; // the least that was seen of plans that do not fit; 0: none yet
  double ratio; // of what plans need to what was seen, of the last plan
  double least; // the least such ratio
  int64_t left; // work that may be done still
  int n;
} Rounds;

Rounds rounds_begin(double have);
// What to count on next, less than INT64_MAX or that for any; 0: no more is to be found.
int64_t rounds_next(Rounds *r, const Round *last);

#endif
