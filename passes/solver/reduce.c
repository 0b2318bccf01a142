// Exact simplification (reduce.h).  Applies these rules until a fixed point:
//
//     dead labels     infinite alone, or with every label of a neighbour, or above the capacity
//     single label    its costs are added to the neighbours', its usage is subtracted from the
//                     capacity
//     elimination     a variable without items and with up to two neighbours: the least over its
//                     labels becomes the cost of a neighbour's label, or of a pair of theirs
//                     (Bertele and Brioschi, Nonserial Dynamic Programming, chapter 2)
//     dominance       a label that another one can replace for all labels of the neighbours: it
//                     uses no less, and costs no less even at the smallest difference (Goldstein,
//                     Efficient rotamer elimination applied to protein side-chains)
//     leaves          with one neighbour: a label that another beats in cost and usage beside a
//                     given label of the neighbour is not chosen there: the pair becomes infinite
//     merging         a variable that is a function of a neighbour is merged into it, with items
//                     and tables
//
// The last two remove most nodes of real problems: an elementwise operation is sharded like its
// operand and has memory of its own, so elimination alone cannot remove it.

#include <math.h>
#include <string.h>

#include "solver/reduce.h"

enum {
  MAX_TABLE = 1 << 18,    // entries of an elimination's result
  MAX_DOMINANCE = 1 << 28 // steps for one variable
};

typedef struct Reducer {
  Model *m;
  Arena *arena;
  int *queue, first, n; // worklist: a ring of variables
  bool *queued;
  Label *label; // scratch, sized for any variable
  bool *gone;
} Reducer;

static void push(Reducer *r, int v) {
  if (r->queued[v] || !r->m->var[v].n) return;
  r->queued[v] = true;
  r->queue[(r->first + r->n++) % r->m->n_vars] = v;
}

static void push_neighbours(Reducer *r, int v) {
  const Var *x = &r->m->var[v];
  for (int k = 0; k < x->edges.n; k++)
    push(r, model_view(r->m, x->edges.at[k], v).other);
}

// -- Removing labels -------------------------------------------------------------------------

static bool keep_others(Reducer *r, int v) { // all but r->gone
  Var *x = &r->m->var[v];
  int n = 0;
  for (int i = 0; i < x->n; i++)
    if (!r->gone[i]) r->label[n++] = (Label)i;
  if (n == x->n) return false;
  model_keep(r->m, v, r->label, n);
  push(r, v);
  push_neighbours(r, v);
  return true;
}

static bool drop_dead(Reducer *r, int v) {
  const Var *x = &r->m->var[v];
  for (int i = 0; i < x->n; i++)
    r->gone[i] = isinf(x->cost[i]);
  // A label that is infinite with every label of some neighbour.
  for (int k = 0; k < x->edges.n; k++) {
    View w = model_view(r->m, x->edges.at[k], v);
    for (int i = 0; i < x->n; i++) {
      bool dead = true;
      for (int j = 0; j < w.n && dead && !r->gone[i]; j++)
        dead = isinf(view_at(&w, i, j));
      r->gone[i] = dead;
    }
  }
  return keep_others(r, v);
}

// Whether label t can replace label s in every choice.
static bool dominates(const Model *m, const Var *x, int v, int t, int s) {
  for (int k = 0; k < x->items.n; k++)
    if (x->items.at[k].usage[t] > x->items.at[k].usage[s]) return false;
  double more = x->cost[s] - x->cost[t]; // lower bound of the extra cost of s
  for (int k = 0; k < x->edges.n; k++) {
    View w = model_view(m, x->edges.at[k], v);
    // The smallest difference over all labels of the neighbour that s may have beside it.
    double least = INFINITY;
    for (int j = 0; j < w.n; j++) {
      double of_s = view_at(&w, s, j), of_t = view_at(&w, t, j);
      if (isinf(of_s)) continue;
      if (isinf(of_t)) return false;
      if (of_s - of_t < least) least = of_s - of_t;
    }
    more += least;
  }
  return more >= 0;
}

static bool drop_dominated(Reducer *r, int v) {
  const Var *x = &r->m->var[v];
  int64_t steps = 1;
  for (int k = 0; k < x->edges.n; k++)
    steps += model_view(r->m, x->edges.at[k], v).n;
  if (steps * x->n * x->n > MAX_DOMINANCE) return false;
  // Each pair of labels that remain; a held label passes to the one that replaces it.
  memset(r->gone, 0, (size_t)x->n);
  for (int s = 0; s < x->n; s++)
    for (int t = 0; t < x->n && !r->gone[s]; t++) {
      if (t == s || r->gone[t] || !dominates(r->m, x, v, t, s)) continue;
      r->gone[s] = true;
      if (r->m->hold && r->m->hold[v] == s) r->m->hold[v] = t;
    }
  return keep_others(r, v);
}

// Removes labels that overflow even if all other variables use their least.
static void drop_too_large(Reducer *r) {
  Model *m = r->m;
  Arena *a = arena_new();
  // Range minimum of the capacity: least[k][t] is the minimum over the 2^k rows from t on.
  const int64_t *least[32] = {m->room};
  for (int k = 1; 1 << k <= m->n_rows; k++) {
    int64_t *at = arena_array(a, int64_t, m->n_rows);
    for (int t = 0; t + (1 << k) <= m->n_rows; t++) {
      int64_t one = least[k - 1][t], two = least[k - 1][t + (1 << (k - 1))];
      at[t] = one < two ? one : two;
    }
    least[k] = at;
  }
  for (int v = 0; v < m->n_vars; v++) {
    Var *x = &m->var[v];
    bool any = false;
    for (int k = 0; k < x->items.n; k++) {
      const Item *item = &x->items.at[k];
      // Two ranges of a power of two cover the item's rows.
      int log = 31 - __builtin_clz((unsigned)(item->hi - item->lo));
      int64_t one = least[log][item->lo], two = least[log][item->hi - (1 << log)];
      int64_t room = one < two ? one : two;
      for (int i = 0; i < x->n; i++)
        if (item->usage[i] > room) x->cost[i] = INFINITY, any = true;
    }
    if (any) push(r, v);
  }
  arena_free(a);
}

// -- Removing variables ----------------------------------------------------------------------

static bool drop_between(Reducer *r, int v) {
  Model *m = r->m;
  const Var *x = &m->var[v];
  View a = model_view(m, x->edges.at[0], v), b = model_view(m, x->edges.at[1], v);
  int64_t size = (int64_t)a.n * b.n;
  if (size > MAX_TABLE) return false;
  Label *label = arena_array(r->arena, Label, size);
  bool flipped;
  double *table = model_pair(m, a.other, b.other, &flipped);
  // For each pair of labels, the best label of the eliminated variable, noted for recovery.
  for (int i = 0; i < a.n; i++)
    for (int j = 0; j < b.n; j++) {
      double least = INFINITY;
      for (int s = 0; s < x->n; s++) {
        double cost = x->cost[s] + view_at(&a, s, i) + view_at(&b, s, j);
        if (cost < least) least = cost, label[(int64_t)i * b.n + j] = (Label)s;
      }
      table[flipped ? (int64_t)j * a.n + i : (int64_t)i * b.n + j] += least;
    }
  push_neighbours(r, v);
  model_drop(m, v, a.other, b.other, label);
  return true;
}

static bool eliminate(Reducer *r, int v) {
  Model *m = r->m;
  Var *x = &m->var[v];
  // A single label: its costs move to the neighbours.
  if (x->n == 1) {
    push_neighbours(r, v);
    m->constant += x->cost[0];
    for (int k = 0; k < x->edges.n; k++) {
      View w = model_view(m, x->edges.at[k], v);
      for (int j = 0; j < w.n; j++)
        m->var[w.other].cost[j] += view_at(&w, 0, j);
    }
    Label label = 0;
    model_drop(m, v, -1, -1, &label);
    return true;
  }
  if (x->items.n || x->edges.n > 2) return false;
  if (x->edges.n == 2) return drop_between(r, v);
  // One neighbour: each of its labels pays for the best label beside it.
  if (x->edges.n == 1) {
    View w = model_view(m, x->edges.at[0], v);
    for (int j = 0; j < w.n; j++) {
      double least = INFINITY;
      r->label[j] = 0;
      for (int i = 0; i < x->n; i++)
        if (x->cost[i] + view_at(&w, i, j) < least) {
          least = x->cost[i] + view_at(&w, i, j);
          r->label[j] = (Label)i;
        }
      m->var[w.other].cost[j] += least;
    }
    push(r, w.other);
    model_drop(m, v, w.other, -1, r->label);
    return true;
  }
  // Independent of all others.
  Label best = 0;
  for (int i = 1; i < x->n; i++)
    if (x->cost[i] < x->cost[best]) best = (Label)i;
  m->constant += x->cost[best];
  model_drop(m, v, -1, -1, &best);
  return true;
}

// -- Leaves and merging ----------------------------------------------------------------------

static bool beats(const Var *x, const View *w, int t, int s, int j) {
  double of_t = x->cost[t] + view_at(w, t, j), of_s = x->cost[s] + view_at(w, s, j);
  if (of_t > of_s) return false;
  bool same = of_t == of_s;
  for (int k = 0; k < x->items.n; k++) {
    int64_t by = x->items.at[k].usage[s] - x->items.at[k].usage[t];
    if (by < 0) return false;
    same = same && !by;
  }
  return !same || t < s; // ties: the first
}

static bool thin_leaf(Reducer *r, int v) {
  Model *m = r->m;
  const Var *x = &m->var[v];
  if (x->edges.n != 1) return false;
  int pair = x->edges.at[0];
  View w = model_view(m, pair, v);
  double *at = m->pairs.at[pair].at;
  bool changed = false;
  for (int j = 0; j < w.n; j++) {
    // Labels that another one beats beside label j of the neighbour.
    for (int s = 0; s < x->n; s++) {
      r->gone[s] = false;
      if (isinf(view_at(&w, s, j))) continue;
      for (int t = 0; t < x->n && !r->gone[s]; t++)
        r->gone[s] = t != s && !isinf(view_at(&w, t, j)) && beats(x, &w, t, s, j);
    }
    // If the held choice uses a removed pair, hold a label that beats it.
    int *hold = m->hold && m->hold[w.other] == j && r->gone[m->hold[v]] ? &m->hold[v] : NULL;
    for (int s = 0; hold && r->gone[*hold] && s < x->n; s++)
      if (!r->gone[s] && !isinf(view_at(&w, s, j)) && beats(x, &w, s, *hold, j)) *hold = s;
    for (int s = 0; s < x->n; s++)
      if (r->gone[s]) at[s * w.row + j * w.column] = INFINITY, changed = true;
  }
  return changed;
}

// Whether each label of the neighbour allows exactly one label of ours, stored in r->label.
static bool follows(Reducer *r, const Var *x, const View *w) {
  for (int j = 0; j < w->n; j++) {
    int n = 0;
    for (int i = 0; i < x->n && n < 2; i++)
      if (!isinf(view_at(w, i, j))) r->label[j] = (Label)i, n++;
    if (n != 1) return false;
  }
  return true;
}

static bool merge(Reducer *r, int v) {
  Model *m = r->m;
  const Var *x = &m->var[v];
  for (int k = 0; k < x->edges.n; k++) {
    View w = model_view(m, x->edges.at[k], v);
    View back = model_view(m, x->edges.at[k], w.other);
    const Var *y = &m->var[w.other];
    int from = v, into = w.other;
    // If each of two variables is a function of the other, the smaller one is merged: fewer tables
    // and items move.
    bool smaller = x->edges.n + x->items.n <= y->edges.n + y->items.n;
    if (!follows(r, x, &w) || (!smaller && follows(r, y, &back))) {
      if (!follows(r, y, &back)) continue;
      from = w.other, into = v;
    }
    follows(r, &m->var[from], from == v ? &w : &back);
    push(r, into);
    push_neighbours(r, from);
    model_merge(m, from, into, r->label);
    return true;
  }
  return false;
}

// -- The fixed point -------------------------------------------------------------------------

static int alive(const Model *m) {
  int n = m->n_rows;
  for (int v = 0; v < m->n_vars; v++)
    n += m->var[v].n;
  return n;
}

void model_reduce(Model *m) {
  Arena *a = arena_new();
  int most = 1;
  for (int v = 0; v < m->n_vars; v++)
    if (m->var[v].n > most) most = m->var[v].n;
  Reducer r = {m,
               a,
               arena_array(a, int, m->n_vars + 1),
               0,
               0,
               arena_array(a, bool, m->n_vars),
               arena_array(a, Label, most),
               arena_array(a, bool, most)};
  for (int v = 0; v < m->n_vars; v++)
    push(&r, v);
  // Removing rows can make labels equivalent, and removing labels can make rows redundant:
  // alternate.
  for (int before = 0, now = alive(m); now != before && !m->infeasible; now = alive(m)) {
    before = now;
    // Apply the rules until the worklist is empty.
    while (r.n && !m->infeasible) {
      int v = r.queue[r.first];
      r.first = (r.first + 1) % m->n_vars;
      r.n--;
      r.queued[v] = false;
      if (!m->var[v].n || drop_dead(&r, v) || eliminate(&r, v) || drop_dominated(&r, v)) continue;
      // Merging needs a function, which a thinned leaf may be.
      bool thinned = thin_leaf(&r, v);
      if (merge(&r, v) || thinned) push(&r, v);
    }
    model_rows(m);
    if (m->infeasible) break;
    drop_too_large(&r);
    // Without items, a variable may be eliminated.
    for (int v = 0; v < m->n_vars; v++)
      if (m->var[v].n && !m->var[v].items.n) push(&r, v);
  }
  arena_free(a);
}
