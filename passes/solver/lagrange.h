// A lower bound of the cost of a core's feasible choices, and prices of its rows.

#ifndef SOLVER_LAGRANGE_H
#define SOLVER_LAGRANGE_H

#include "solver/core.h"

typedef struct Dual {
  const Core *core;
  double *price; // per row, those of the best bound
  double bound;  // the best so far
  int *label;    // of the last pass: near a minimum at the prices, perhaps infeasible
  // The rest is internal to the ascent.
  double *trial, *sum, *best_price;
  int64_t *used;
  double *direction; // of prices
  double *
      *message; // of each link of each variable: the costs that the table has given to its labels
  int *reverse; // of each link: the same table's link at the other end
  int *first;   // of each variable: the number of its first link
  double *paid; // of each label of each variable: its cost at the prices
  int *first_label;
  double *row;
  double factor; // of steps
  int worse;     // steps since the bound was last raised
} Dual;

// The core is of a reduced model: every label has a finite pair with each neighbour.
Dual *dual_new(Arena *a, const Core *c);

// Starts at the prices of another set of rows, by time; ours are a subset.
void dual_take_prices(Dual *d, const int64_t *time, const int64_t *other_time,
                      const double *other_price, int n_others);

// One pass in both directions over all messages, and a step of prices towards `target`, the cost of
// a feasible choice, or infinity.  Returns whether the bound rose.
bool dual_step(Dual *d, double target);

// Restores messages and prices of the best bound; returns the bound, recomputed.
double dual_settle(Dual *d);

// The costs that the table of a link has given to the variable's labels, and to those of the other
// end.
const double *dual_message(const Dual *d, int var, int link);
const double *dual_message_back(const Dual *d, int var, int link);

// The extra cost of each label of a variable over its best label.
void dual_reduced(Dual *d, int var, double *out);

// After dual_settle: sets gone[number of the label] if every choice with that label costs more than
// `target`.  Labels are numbered from d->first_label[variable].  Returns their number.
int dual_exclude(Dual *d, double target, bool *gone);

#endif
