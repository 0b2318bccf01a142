// The reduced model in arrays for the search: variables numbered from 0, each with the tables to
// its neighbours as seen from it; and a choice of labels with its cost and usage.

#ifndef SOLVER_CORE_H
#define SOLVER_CORE_H

#include "solver/model.h"

typedef struct Link {
  int other;
  const double *at; // [label of the other][own label]: own labels are contiguous
} Link;

typedef struct CoreVar {
  int n; // labels
  const double *cost;
  const Item *item;
  const Link *link;
  int n_items, n_links;
  int origin; // variable of the model
} CoreVar;

typedef struct Core {
  Arena *arena;
  CoreVar *var;
  int n_vars, n_rows, n_labels, most_labels;
  const int64_t *room; // per row
  double constant;
} Core;

Core *core_build(Arena *a, const Model *m);

int64_t core_entries(const Core *c); // of all tables
// With the constant; infinite if a chosen cost is.
double core_cost(const Core *c, const int *label);
// Computes used[row]; returns the total overflow of all rows.
double core_usage(const Core *c, const int *label, int64_t *used);
// Memory costs of a variable's labels at prices: sum[row] is the sum of the prices of all rows
// before it.
void core_pay(const CoreVar *v, const double *sum, double *pay);
// Adds the usage of one label to the differences between rows.
void core_add(const CoreVar *v, int label, int sign, int64_t *difference);

// Random numbers, equal on all platforms (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators).
typedef struct Dice {
  uint64_t state;
} Dice;

uint64_t dice_next(Dice *r);
int dice_below(Dice *r, int n);
double dice_unit(Dice *r); // in [0, 1)

#endif
