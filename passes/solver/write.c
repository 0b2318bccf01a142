// Writes a problem as a file for solver_read (problem.c has the format).  The first use of a node
// is part of it, as in the contest's files; the rest are `uses`.

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/whole_file.h"
#include "solver/solver.h"

static const SolverUse none = {NULL, 0, 0};

static const SolverUse *first_use(const SolverNode *v) {
  return v->n_uses ? &v->use[0] : &none;
}

// `at` NULL: zeros.
static void write_numbers(FILE *f, const char *before, const int64_t *at, int64_t n) {
  fprintf(f, "%s[", before);
  for (int64_t i = 0; i < n; i++)
    fprintf(f, "%s%lld", i ? "," : "", at ? (long long)at[i] : 0);
  fputs("]", f);
}

static void write_interval(FILE *f, const char *before, const SolverUse *u) {
  const int64_t ends[] = {u->lo, u->hi};
  write_numbers(f, before, ends, 2);
}

// The field of `uses` to write; a node's first use is not among them.
typedef enum UseList { USE_node, USE_interval, USE_usages } UseList;

static void write_uses(FILE *f, const SolverProblem *p, const char *name, UseList list) {
  bool any = false;
  fprintf(f, "\"%s\": [", name);
  for (int i = 0; i < p->n_nodes; i++)
    for (int k = 1; k < p->node[i].n_uses; k++) {
      const SolverUse *u = &p->node[i].use[k];
      const char *before = any ? "," : "";
      // One pass for each list, all in the same order.
      const int64_t node = i;
      any = true;
      switch (list) {
      case USE_node: write_numbers(f, before, &node, 1); break;
      case USE_interval: write_interval(f, before, u); break;
      case USE_usages: write_numbers(f, before, u->usage, p->node[i].n); break;
      }
    }
  fputs("]", f);
}

bool solver_write(const SolverProblem *p, const char *path, Diag *d) {
  WholeFile w;
  bool ok = whole_file_open(&w, path);
  if (ok) {
    FILE *f = w.f;
    fputs("{\"problem\": {\n", f);
    // Nodes, each with its first use.
    fputs("  \"nodes\": {\"intervals\": [", f);
    for (int i = 0; i < p->n_nodes; i++)
      write_interval(f, i ? "," : "", first_use(&p->node[i]));
    fputs("],\n    \"costs\": [", f);
    for (int i = 0; i < p->n_nodes; i++)
      write_numbers(f, i ? ",\n" : "", p->node[i].cost, p->node[i].n);
    fputs("],\n    \"usages\": [", f);
    for (int i = 0; i < p->n_nodes; i++)
      write_numbers(f, i ? ",\n" : "", first_use(&p->node[i])->usage, p->node[i].n);
    fputs("]},\n", f);
    // Edges: their ends, and their tables.
    fputs("  \"edges\": {\"nodes\": [", f);
    for (int i = 0; i < p->n_edges; i++)
      fprintf(f, "%s[%d,%d]", i ? "," : "", p->edge[i].node[0], p->edge[i].node[1]);
    fputs("],\n    \"costs\": [", f);
    for (int i = 0; i < p->n_edges; i++) {
      const SolverEdge *e = &p->edge[i];
      int64_t n = (int64_t)p->node[e->node[0]].n * p->node[e->node[1]].n;
      write_numbers(f, i ? ",\n" : "", e->cost, n);
    }
    fputs("]}", f);
    // All other uses.
    fputs(",\n  \"uses\": {", f);
    write_uses(f, p, "nodes", USE_node);
    fputs(", ", f);
    write_uses(f, p, "intervals", USE_interval);
    fputs(",\n    ", f);
    write_uses(f, p, "usages", USE_usages);
    fputs("}", f);
    if (p->limit != SOLVER_NO_LIMIT) fprintf(f, ",\n  \"usage_limit\": %lld", (long long)p->limit);
    fputs("}}\n", f);
    ok = whole_file_close(&w, true);
  }
  return ok || diag_error(d, NULL, "cannot write '%s': %s", path, strerror(errno));
}

double solver_choices(const SolverProblem *p) {
  double n = 1;
  for (int i = 0; i < p->n_nodes; i++)
    n *= p->node[i].n;
  return n;
}
