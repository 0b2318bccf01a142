// A bound on what any choice for a core costs, and prices of its rows.

#ifndef SOLVER_LAGRANGE_H
#define SOLVER_LAGRANGE_H

#include "solver/core.h"

typedef struct Dual {
  const Core *core;
  double *price; // of each row, that of the best bound
  double bound;  // the best so far
  int *label;    // of the last pass: near a minimum at the prices, and it need not fit
  // From here on the ascent's own.
  double *trial, *sum, *best_price;
  int64_t *used;
  double *direction; // of prices
  double **message;  // of each link of each variable: what the table has given to its labels
  int *reverse;      // of each link: the same table's link at the other end
  int *first;        // of each variable: the number of its first link
  double *paid;      // of each label of each variable: its cost at the prices
  int *first_label;
  double *row;
  double factor; // of steps
  int worse;     // steps since the bound was last raised
} Dual;

// The core is of a reduced model: every label is possible with some of each neighbour's.
Dual *dual_new(Arena *a, const Core *c);

// Begins at the prices of other rows: those at the same moment, which all of ours are among.
void dual_take_prices(Dual *d, const int64_t *time, const int64_t *other_time,
                      const double *other_price, int n_others);

// One pass there and back over all messages, and a step of prices towards `target`, the cost of
// something that fits, or infinity.  Returns whether the bound was raised.
bool dual_step(Dual *d, double target);

// Makes messages and prices those of the best bound; returns the bound, added up anew.
double dual_settle(Dual *d);

// What the table of a link has given to the variable's labels, and to those of the other end.
const double *dual_message(const Dual *d, int var, int link);
const double *dual_message_back(const Dual *d, int var, int link);

// What each label of a variable costs more than the best of them.
void dual_reduced(Dual *d, int var, double *out);

// After dual_settle: gone[number of the label] where every choice with that label costs more than
// `target`.  Labels are numbered from d->first_label[variable].  Returns how many.
int dual_exclude(Dual *d, double target, bool *gone);

#endif
