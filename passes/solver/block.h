// The best labels of some variables while the others keep theirs, by bucket elimination.

#ifndef SOLVER_BLOCK_H
#define SOLVER_BLOCK_H

#include "solver/core.h"

typedef struct Block Block;

// For up to `most_vars` variables at a time; tables of up to `entries` numbers together.
Block *block_new(Arena *a, const Core *c, int most_vars, int64_t entries);

// Plans the elimination of `var`.  Those that would make a table of more than `table` entries
// necessary keep their label: which ones is partly random.  Returns how many are free.
int block_plan(Block *b, const int *var, int n, const int *label, int64_t table, Dice *r);
double block_work(const Block *b);                   // numbers that solving it looks at
int block_free(const Block *b, const int **out_var); // those of the last plan

// The least sum of what the free ones cost, with each other, the others, and `pay`, at prices whose
// prefix sums are `sum` (or NULL).  Their labels are put into `label`.
double block_solve(Block *b, const double *sum, int *label);
// That sum without prices, of any labels of the free ones.
double block_cost(const Block *b, const int *label);

#endif
