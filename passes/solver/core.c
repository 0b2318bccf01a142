// The reduced model in arrays for the search (core.h).

#include <math.h>
#include <string.h>

#include "solver/core.h"

Core *core_build(Arena *a, const Model *m) {
  Core *c = arena_one(a, Core);
  *c = (Core){.arena = a, .n_rows = m->n_rows, .room = m->room, .constant = m->constant};
  // Removed variables of the model get no number.
  int *at = arena_array(a, int, m->n_vars);
  c->var = arena_array(a, CoreVar, m->n_vars);
  for (int i = 0; i < m->n_vars; i++) {
    const Var *x = &m->var[i];
    if (!x->n) continue;
    at[i] = c->n_vars;
    c->var[c->n_vars++] = (CoreVar){x->n, x->cost, x->items.at, NULL, x->items.n, x->edges.n, i};
    c->n_labels += x->n;
    if (x->n > c->most_labels) c->most_labels = x->n;
  }
  // All variables have numbers now: add the tables as seen from each end.
  for (int i = 0; i < c->n_vars; i++) {
    CoreVar *v = &c->var[i];
    Link *link = arena_array(a, Link, v->n_links);
    const Var *x = &m->var[v->origin];
    for (int k = 0; k < v->n_links; k++) {
      // One row per label of the other end.
      View w = model_view(m, x->edges.at[k], v->origin);
      double *table = arena_array(a, double, (int64_t)v->n *w.n);
      for (int j = 0; j < w.n; j++)
        for (int s = 0; s < v->n; s++)
          table[(int64_t)j * v->n + s] = view_at(&w, s, j);
      link[k] = (Link){at[w.other], table};
    }
    v->link = link;
  }
  return c;
}

int64_t core_entries(const Core *c) {
  int64_t twice = 0;
  for (int v = 0; v < c->n_vars; v++)
    for (int k = 0; k < c->var[v].n_links; k++)
      twice += (int64_t)c->var[v].n * c->var[c->var[v].link[k].other].n;
  return twice / 2;
}

double core_cost(const Core *c, const int *label) {
  double cost = c->constant;
  for (int i = 0; i < c->n_vars; i++) {
    const CoreVar *v = &c->var[i];
    cost += v->cost[label[i]];
    // Each table is linked at both ends, and counts at the first.
    for (int k = 0; k < v->n_links; k++)
      if (v->link[k].other > i)
        cost += v->link[k].at[(int64_t)label[v->link[k].other] * v->n + label[i]];
  }
  return cost;
}

void core_add(const CoreVar *v, int label, int sign, int64_t *difference) {
  for (int k = 0; k < v->n_items; k++) {
    int64_t by = sign * v->item[k].usage[label];
    difference[v->item[k].lo] += by;
    difference[v->item[k].hi] -= by;
  }
}

double core_usage(const Core *c, const int *label, int64_t *used) {
  int64_t sum = 0, *difference = used; // with space for one more row
  memset(used, 0, (size_t)(c->n_rows + 1) * sizeof *used);
  for (int i = 0; i < c->n_vars; i++)
    core_add(&c->var[i], label[i], 1, difference);
  // Differences at the ends of intervals become values per row, in place.
  double over = 0;
  for (int t = 0; t < c->n_rows; t++) {
    used[t] = sum += difference[t];
    if (sum > c->room[t]) over += (double)(sum - c->room[t]);
  }
  return over;
}

void core_pay(const CoreVar *v, const double *sum, double *pay) {
  memset(pay, 0, (size_t)v->n * sizeof *pay);
  for (int k = 0; k < v->n_items; k++) {
    const Item *x = &v->item[k];
    // The sum of prices over the rows of the item.
    double price = sum[x->hi] - sum[x->lo];
    if (price <= 0) continue;
    for (int i = 0; i < v->n; i++)
      pay[i] += price * (double)x->usage[i];
  }
}

uint64_t dice_next(Dice *r) {
  // Splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
  uint64_t x = r->state += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

int dice_below(Dice *r, int n) {
  return (int)(dice_next(r) % (uint64_t)n);
}

double dice_unit(Dice *r) {
  return (double)(dice_next(r) >> 11) * 0x1p-53;
}
