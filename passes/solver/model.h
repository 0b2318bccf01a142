// The problem under reduction: variables with labels, tables between them, items that use memory,
// and rows, the times at which memory is constrained.
//
// It starts as the problem itself, one variable per node.  Each step of reduce.c removes labels,
// tables or variables, and notes how to recover them from a choice for the rest (model_recover
// replays the notes backwards).  A variable may end up with the items of several nodes.
//
// A row is a time at which the set of live items is no subset of another time's: other times cannot
// overflow first.  The least usage of an item is subtracted from its usages and from the capacity
// of its rows; so the capacity of a row is the part that depends on choices, and it differs between
// rows.

#ifndef SOLVER_MODEL_H
#define SOLVER_MODEL_H

#include "base/vec.h"
#include "solver/solver.h"

typedef uint16_t Label;

typedef struct Item {
  int lo, hi;     // live at the rows [lo, hi)
  int64_t *usage; // per label of its variable; the least is 0
} Item;

typedef Vec(Item) Items;
typedef Vec(int) Ints;

typedef struct Var {
  int n;        // labels; 0: removed
  double *cost; // per label
  Items items;
  Ints edges;
} Var;

typedef struct Pair {
  int var[2]; // var[0] < 0: removed
  double *at; // row-major: label of var[0], then of var[1]
} Pair;

typedef struct Note Note;

typedef struct Model {
  Arena *arena;
  const struct Model *parent; // the model of which it is a copy, or NULL
  int *origin;                // of each variable: its number in the parent
  Var *var;
  int n_vars;
  Vec(Pair) pairs;
  int64_t *room; // per row; negative: infeasible
  int64_t *time; // a time of the row
  int n_rows;
  double constant; // cost of removed variables
  bool infeasible; // some variable has no label, or a row negative capacity
  int full_row;    // the row with negative capacity, or -1
  Note *notes;     // newest first
  int *hold;       // per variable: its label in a feasible choice that stays possible; or NULL
} Model;

// A table seen from one end: costs of label i with label j of the other end.
typedef struct View {
  const double *at;
  int64_t row, column; // strides
  int other;           // the variable at the other end
  int n;               // its labels
} View;

Model *model_build(Arena *a, const SolverProblem *p);
View model_view(const Model *m, int pair, int var);
static inline double view_at(const View *w, int i, int j) {
  return w->at[i * w->row + j * w->column];
}

// Removal, with a note for recovery.  Arrays are copied.
void model_keep(Model *m, int var, const Label *label, int n);     // label[new]: old label
void model_merge(Model *m, int var, int into, const Label *label); // label[into's]: var's label
// Variable `var` gets label[i * n + j] if the others have i and j; either may be -1.
void model_drop(Model *m, int var, int first, int second, const Label *label);

// The table between two variables, which is added if there is none.
double *model_pair(Model *m, int a, int b, bool *out_flipped);

// Drops rows that cannot overflow or are redundant.
void model_rows(Model *m);

// A copy without removed parts, renumbered; the original must not change during its use.
Model *model_copy(Arena *a, const Model *m);
// Computes a choice for all nodes of the problem from labels of the remaining variables,
// label[var].
void model_recover(const Model *m, const int *label, int *choice);

#endif
