// Optimal labels of a block of variables while all others stay fixed, by bucket elimination.

#ifndef SOLVER_BLOCK_H
#define SOLVER_BLOCK_H

#include "solver/core.h"

typedef struct Block Block;

// For up to `most_vars` variables at a time; tables of up to `entries` numbers together.
Block *block_new(Arena *a, const Core *c, int most_vars, int64_t entries);

// Plans the elimination of `var`.  Variables that would need a table of more than `table` entries
// keep their label: the selection is partly random.  Returns the number of free ones.
int block_plan(Block *b, const int *var, int n, const int *label, int64_t table, Dice *r);
double block_work(const Block *b);                   // numbers that block_solve reads
int block_free(const Block *b, const int **out_var); // the free variables of the last plan

// The least cost of the free variables: their own, their tables, and memory at prices with the
// prefix sums `sum` (or NULL).  Writes their labels to `label`.
double block_solve(Block *b, const double *sum, int *label);
// The same cost without prices, for any labels of the free variables.
double block_cost(const Block *b, const int *label);

#endif
