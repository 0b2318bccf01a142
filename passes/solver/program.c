// Builds the core as a 0/1 program (program.h).

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/whole_file.h"
#include "solver/program.h"

// -- Column by column ----------------------------------------------------------------------------

int program_column(ProgramBuilder *b, double cost, const char *name) {
  vec_push(b->arena, &b->costs, cost);
  vec_push(b->arena, &b->names, name);
  return b->costs.n - 1;
}

void program_row(ProgramBuilder *b, const char *name, double lo, double hi) {
  vec_push(b->arena, &b->rows, (ProgramRow){name, b->columns.n, 0, lo, hi});
}

void program_entry(ProgramBuilder *b, int column, double value) {
  vec_push(b->arena, &b->columns, column);
  vec_push(b->arena, &b->values, value);
  b->rows.at[b->rows.n - 1].n++;
}

ZeroOne *program_end(const ProgramBuilder *b, int n_binary, double constant, const char *about) {
  ZeroOne *p = arena_one(b->arena, ZeroOne);
  *p = (ZeroOne){.n_columns = b->costs.n,
                 .n_binary = n_binary,
                 .cost = b->costs.at,
                 .name = b->names.at,
                 .row = b->rows.at,
                 .n_rows = b->rows.n,
                 .column = b->columns.at,
                 .value = b->values.at,
                 .constant = constant,
                 .about = about};
  return p;
}

// -- The program of a core -----------------------------------------------------------------------

typedef struct Builder {
  Arena *arena;
  const Core *core;
  const Dual *dual;
  double constant;
  int n_binary;
  bool names;
  int *first; // column of each variable's first label
  ProgramBuilder to;
} Builder;

#define name_of(b, ...) ((b)->names ? str_format((b)->arena, __VA_ARGS__) : NULL)

static void add_table(Builder *b, int v, int k) {
  const Link *link = &b->core->var[v].link[k];
  const CoreVar *x = &b->core->var[v], *y = &b->core->var[link->other];
  Arena *a = arena_new();
  int *column = arena_array(a, int, (int64_t)x->n * y->n);
  for (int j = 0; j < y->n; j++)
    for (int i = 0; i < x->n; i++) {
      // Messages of the dual moved costs from the table to the labels.
      double moved = 0;
      if (b->dual) moved = dual_message(b->dual, v, k)[i] + dual_message_back(b->dual, v, k)[j];
      double cost = link->at[(int64_t)j * x->n + i] - moved;
      column[j * x->n + i] =
          isinf(cost) ? -1
                      : program_column(&b->to, cost,
                                       name_of(b, "y%d_%d_%d_%d", x->origin, i, y->origin, j));
    }
  // The marginals over both ends equal the labels' columns.
  for (int i = 0; i < x->n; i++) {
    program_row(&b->to, name_of(b, "table%d_%d_%d", x->origin, y->origin, i), 0, 0);
    program_entry(&b->to, b->first[v] + i, -1);
    for (int j = 0; j < y->n; j++)
      if (column[j * x->n + i] >= 0) program_entry(&b->to, column[j * x->n + i], 1);
  }
  for (int j = 0; j < y->n; j++) {
    program_row(&b->to, name_of(b, "table%d_%d_%d", y->origin, x->origin, j), 0, 0);
    program_entry(&b->to, b->first[link->other] + j, -1);
    for (int i = 0; i < x->n; i++)
      if (column[j * x->n + i] >= 0) program_entry(&b->to, column[j * x->n + i], 1);
  }
  arena_free(a);
}

ZeroOne *program_build(Arena *a, const Core *c, const Dual *d, const bool *wanted, bool names) {
  Builder b = {.arena = a, .core = c, .dual = d, .to = {.arena = a}, .names = names};
  b.first = arena_array(a, int, c->n_vars + 1);
  b.constant = c->constant;
  // A column per label.  A variable's costs are shifted to a minimum of 0; the constant takes the
  // rest.
  for (int v = 0; v < c->n_vars; v++) {
    const CoreVar *x = &c->var[v];
    Arena *scratch = arena_new();
    double *cost = arena_copy(scratch, x->cost, (size_t)x->n * sizeof *cost), least = INFINITY;
    for (int k = 0; d && k < x->n_links; k++)
      for (int i = 0; i < x->n; i++)
        cost[i] += dual_message(d, v, k)[i];
    for (int i = 0; i < x->n; i++)
      least = fmin(least, cost[i]);
    if (!d) least = 0;
    b.constant += least;
    b.first[v] = b.to.costs.n;
    for (int i = 0; i < x->n; i++)
      program_column(&b.to, cost[i] - least, name_of(&b, "x%d_%d", x->origin, i));
    arena_free(scratch);
  }
  // Each variable has one label.
  b.n_binary = b.to.costs.n;
  for (int v = 0; v < c->n_vars; v++) {
    program_row(&b.to, name_of(&b, "choose%d", c->var[v].origin), 1, 1);
    for (int i = 0; i < c->var[v].n; i++)
      program_entry(&b.to, b.first[v] + i, 1);
  }
  for (int v = 0; v < c->n_vars; v++)
    for (int k = 0; k < c->var[v].n_links; k++)
      if (c->var[v].link[k].other > v) add_table(&b, v, k);
  // Memory: the usage of each label, summed over the items of its variable.
  for (int t = 0; t < c->n_rows; t++) {
    if (!wanted[t]) continue;
    program_row(&b.to, name_of(&b, "memory%d", t), -INFINITY, (double)c->room[t]);
    for (int v = 0; v < c->n_vars; v++) {
      const CoreVar *x = &c->var[v];
      for (int i = 0; i < x->n; i++) {
        double usage = 0;
        for (int k = 0; k < x->n_items; k++)
          if (x->item[k].lo <= t && t < x->item[k].hi) usage += (double)x->item[k].usage[i];
        if (usage > 0) program_entry(&b.to, b.first[v] + i, usage);
      }
    }
  }
  return program_end(&b.to, b.n_binary, b.constant,
                     "x: a label of what exact reduction left; y: two labels of a table");
}

double *program_values(Arena *a, const Core *c, const ZeroOne *p, const int *label) {
  // In the order of program_build's columns.
  double *value = arena_array(a, double, p->n_columns);
  int n = 0;
  for (int v = 0; v < c->n_vars; v++)
    for (int i = 0; i < c->var[v].n; i++)
      value[n++] = label[v] == i;
  for (int v = 0; v < c->n_vars; v++)
    for (int k = 0; k < c->var[v].n_links; k++) {
      const Link *link = &c->var[v].link[k];
      if (link->other < v) continue;
      for (int j = 0; j < c->var[link->other].n; j++)
        for (int i = 0; i < c->var[v].n; i++)
          if (!isinf(link->at[(int64_t)j * c->var[v].n + i]))
            value[n++] = label[v] == i && label[link->other] == j;
    }
  return value;
}

// -- The file --------------------------------------------------------------------------------

bool program_write(const ZeroOne *p, const char *path) {
  WholeFile w;
  if (!whole_file_open(&w, path)) return false;
  FILE *f = w.f;
  // The objective; a file has no constants, so that is a column fixed to 1.
  fprintf(f, "\\ %s\nMinimize\n cost:", p->about);
  fprintf(f, " %.17g constant", p->constant);
  for (int k = 0; k < p->n_columns; k++)
    if (p->cost[k] != 0)
      fprintf(f, "%s%s%.17g %s", k % 8 ? " " : "\n  ", p->cost[k] < 0 ? "- " : "+ ",
              fabs(p->cost[k]), p->name[k]);
  // Rows have no lower limit, or equal limits.
  fprintf(f, "\nSubject To\n");
  for (int k = 0; k < p->n_rows; k++) {
    fprintf(f, " %s:", p->row[k].name);
    for (int i = 0, at = p->row[k].first; i < p->row[k].n; i++, at++)
      fprintf(f, "%s%s%.17g %s", i % 8 ? " " : "\n  ", p->value[at] < 0 ? "- " : "+ ",
              fabs(p->value[at]), p->name[p->column[at]]);
    fprintf(f, " %s %.17g\n", p->row[k].lo == p->row[k].hi ? "=" : "<=", p->row[k].hi);
  }
  // All other columns have the format's own bounds: they are not negative.
  fprintf(f, "Bounds\n constant = 1\nBinary\n");
  for (int k = 0; k < p->n_binary; k++)
    fprintf(f, " %s\n", p->name[k]);
  fprintf(f, "End\n");
  return whole_file_close(&w, true);
}
