// See series.h.
//
// All products before one lead to it if each leads to one that is no later: the first product that
// depends on it is no later. And all after it depend on it if each depends on one that is no
// earlier. So the first dependent and the last operand of each product, among the products, say
// which of them are in series.

#include "series.h"

// The number of an op among the products, from 0; -1: it is none.
static int *find_numbers(const Graph *g, const Op *const *op, int n, Arena *a) {
  int *number = arena_array(a, int, g->n_ops);
  for (uint32_t i = 0; i < g->n_ops; i++)
    number[i] = -1;
  for (int i = 0; i < n; i++)
    number[op[i]->id] = i;
  return number;
}

// last[i]: the last product that product i depends on; -1: none.
static int *find_last(const Graph *g, const int *number, int n, Arena *a) {
  int *of = arena_array(a, int, g->n_ops); // the last one before the op
  int *last = arena_array(a, int, (size_t)n + 1);
  for_each_op(op, g) {
    int *own = &of[op->id];
    *own = -1;
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      int before = !def ? -1 : number[def->id] >= 0 ? number[def->id] : of[def->id];
      if (before > *own) *own = before;
    }
    if (number[op->id] >= 0) last[number[op->id]] = *own;
  }
  return last;
}

// first[i]: the first product that depends on product i; n: none.
static int *find_first(const Graph *g, const int *number, int n, Arena *a) {
  int *of = arena_array(a, int, g->n_ops); // the first one after the op
  int *first = arena_array(a, int, (size_t)n + 1);
  for (uint32_t i = 0; i < g->n_ops; i++)
    of[i] = n;
  for (const Op *op = g->last; op; op = op->prev) {
    int after = number[op->id] >= 0 ? number[op->id] : of[op->id];
    if (number[op->id] >= 0) first[number[op->id]] = of[op->id];
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      if (def && after < of[def->id]) of[def->id] = after;
    }
  }
  return first;
}

int *series_groups(const Graph *g, const Op *const *op, int n, Arena *a) {
  const int *number = find_numbers(g, op, n, a);
  const int *last = find_last(g, number, n, a), *first = find_first(g, number, n, a);
  // Whether all products before one lead to it.
  bool *ends = arena_array(a, bool, (size_t)n + 1);
  int latest = 0;
  for (int i = 0; i < n; i++) {
    ends[i] = latest <= i;
    if (first[i] > latest) latest = first[i];
  }
  int *group = arena_array(a, int, (size_t)n + 1);
  int earliest = n, next = 1;
  for (int i = n - 1; i >= 0; i--) {
    bool in_series = ends[i] && earliest >= i;
    next += in_series;
    group[i] = in_series ? 0 : next;
    if (last[i] < earliest) earliest = last[i];
  }
  return group;
}
