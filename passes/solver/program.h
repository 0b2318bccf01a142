// The core as a 0/1 program: for CBC, and as a file to inspect.
//
//     minimise  sum cost(v, i) x(v, i) + sum table(i, j) y(u, i, v, j)
//     choose    sum over i of x(v, i) = 1                      for each variable v
//     table     sum over j of y(u, i, v, j) = x(u, i)          for each table and label, and both
//               sum over i of y(u, i, v, j) = x(v, j)          of its ends
//     memory    sum usage(v, i) x(v, i) <= room                for each row
//
// x are binary.  y are continuous: integral x make them integral.  With equalities for the
// marginals the relaxation is that of the local polytope; with y <= x it would be weaker, and
// slower. Infinite pairs have no y.

#ifndef SOLVER_PROGRAM_H
#define SOLVER_PROGRAM_H

#include "base/vec.h"
#include "solver/lagrange.h"

typedef struct ProgramRow {
  const char *name;
  int first, n; // entries
  double lo, hi;
} ProgramRow;

typedef struct ZeroOne {
  int n_columns, n_binary; // binary ones are first
  double *cost;            // of each column
  const char **name;
  ProgramRow *row;
  int n_rows;
  int *column; // of each entry
  double *value;
  double constant;
  const char *about; // meaning of the columns, for a file
} ZeroOne;

// Builds a program column by column, then row by row: entries belong to the last row.
typedef struct ProgramBuilder {
  Arena *arena;
  Vec(double) costs;
  Vec(const char *) names;
  Vec(ProgramRow) rows;
  Vec(int) columns;
  Vec(double) values;
} ProgramBuilder;

int program_column(ProgramBuilder *b, double cost, const char *name); // returns its number
void program_row(ProgramBuilder *b, const char *name, double lo, double hi);
void program_entry(ProgramBuilder *b, int column, double value);
// `about` explains the names of columns.
ZeroOne *program_end(const ProgramBuilder *b, int n_binary, double constant, const char *about);

// With memory constraints of the rows `wanted` only.  With a dual, costs move between labels and
// tables by its messages: then good choices have small costs.  `names`: for a file.
ZeroOne *program_build(Arena *a, const Core *c, const Dual *d, const bool *wanted, bool names);
// A value for each column.
double *program_values(Arena *a, const Core *c, const ZeroOne *p, const int *label);
// In CPLEX's LP format.
bool program_write(const ZeroOne *p, const char *path);

#endif
