// The problem while it is being made smaller: variables with labels, tables between them, items
// that use memory, and rows, the moments that memory is counted at.
//
// It begins as the problem itself, one variable for each node.  Each step of reduce.c removes
// labels, tables or variables and notes how a choice for what is left says the choice for what went
// (model_recover plays the notes backwards).  A variable may end up with the items of several
// nodes.
//
// Rows are only those moments at which the set of items alive is not part of another's: between two
// of them nothing can go wrong.  An item's usages are counted from its least, which is taken off
// the room of its rows; so a row's room is what is left for choices, and rows differ in it.

#ifndef SOLVER_MODEL_H
#define SOLVER_MODEL_H

#include "base/vec.h"
#include "solver/solver.h"

typedef uint16_t Label;

typedef struct Item {
  int lo, hi;     // alive at the rows [lo, hi)
  int64_t *usage; // of each label of its variable; the least is 0
} Item;

typedef Vec(Item) Items;
typedef Vec(int) Ints;

typedef struct Var {
  int n;        // labels; 0: gone
  double *cost; // of each
  Items items;
  Ints edges;
} Var;

typedef struct Pair {
  int var[2]; // var[0] < 0: gone
  double *at; // row-major: label of var[0], then of var[1]
} Pair;

typedef struct Note Note;

typedef struct Model {
  Arena *arena;
  const struct Model *parent; // what it was copied from, or NULL
  int *origin;                // of each variable: its number there
  Var *var;
  int n_vars;
  Vec(Pair) pairs;
  int64_t *room; // of each row; negative: nothing fits
  int64_t *time; // a moment of the row
  int n_rows;
  double constant; // cost of what went
  bool infeasible; // some variable has no label left, or a row no room
  int full_row;    // the row without room, or -1
  Note *notes;     // newest first
  int *hold; // of each variable the label of a choice that fits, which stays possible; or NULL
} Model;

// A table seen from one of its ends: what label i costs with label j of the other end.
typedef struct View {
  const double *at;
  int64_t row, column; // strides
  int other;           // the variable at the other end
  int n;               // and its labels
} View;

Model *model_build(Arena *a, const SolverProblem *p);
View model_view(const Model *m, int pair, int var);
static inline double view_at(const View *w, int i, int j) {
  return w->at[i * w->row + j * w->column];
}

// What goes, with the note for its recovery.  Arrays are copied.
void model_keep(Model *m, int var, const Label *label, int n);     // label[new] is the old one
void model_merge(Model *m, int var, int into, const Label *label); // label[into's] is var's
// Variable `var` is label[i * n + j] when the others have i and j; either may be -1.
void model_drop(Model *m, int var, int first, int second, const Label *label);

// Adds to the table between two variables, which is made if there is none.
double *model_pair(Model *m, int a, int b, bool *out_flipped);

// Takes constant usage off the room, then drops rows that cannot overflow or are part of others.
void model_rows(Model *m);

// What is left of a model, numbered anew; the model must not change while the copy is used.
Model *model_copy(Arena *a, const Model *m);
// From labels of what is left, label[var], to a choice of all nodes of the problem.
void model_recover(const Model *m, const int *label, int *choice);

#endif
