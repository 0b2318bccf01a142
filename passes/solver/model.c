// Builds and edits the model under reduction (model.h), with the notes for recovery.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "solver/model.h"

typedef enum NoteKind { NOTE_keep, NOTE_merge, NOTE_drop } NoteKind;

struct Note {
  Note *next;
  NoteKind kind;
  int var, first, second; // merge: `first` is the target
  int n;                  // labels of `second`
  Label *label;
};

// -- Items -----------------------------------------------------------------------------------

// Subtracts the least usage from all labels, and from the capacity.  Returns whether the item is
// still needed.
static bool settle_item(Model *m, Item *x, int n) {
  int64_t least = x->usage[0], most = x->usage[0];
  for (int i = 1; i < n; i++) {
    if (x->usage[i] < least) least = x->usage[i];
    if (x->usage[i] > most) most = x->usage[i];
  }
  for (int t = x->lo; least && t < x->hi; t++)
    m->room[t] -= least;
  for (int i = 0; least && i < n; i++)
    x->usage[i] -= least;
  return most > least && x->lo < x->hi;
}

static void settle_items(Model *m, Var *v) {
  int n = 0;
  for (int k = 0; k < v->items.n; k++)
    if (settle_item(m, &v->items.at[k], v->n)) v->items.at[n++] = v->items.at[k];
  v->items.n = n;
}

static int item_order(const void *x, const void *y) {
  const Item *a = x, *b = y;
  return a->lo != b->lo ? (a->lo > b->lo) - (a->lo < b->lo) : (a->hi > b->hi) - (a->hi < b->hi);
}

// Adds up items over the same rows.
static void join_items(Var *v) {
  // Items over the same rows are neighbours then.
  if (v->items.n > 1) qsort(v->items.at, (size_t)v->items.n, sizeof *v->items.at, item_order);
  int n = 0;
  for (int k = 0; k < v->items.n; k++) {
    Item *x = &v->items.at[k];
    if (!n || item_order(&v->items.at[n - 1], x)) {
      v->items.at[n++] = *x;
      continue;
    }
    for (int i = 0; i < v->n; i++)
      v->items.at[n - 1].usage[i] += x->usage[i];
  }
  v->items.n = n;
}

// -- Building --------------------------------------------------------------------------------

static double cost_of(int64_t cost) {
  return cost >= SOLVER_INFINITE ? INFINITY : (double)cost;
}

static int moment_order(const void *x, const void *y) {
  int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  return (a > b) - (a < b);
}

static int row_from(const Model *m, int64_t time) { // the first row at `time` or later
  int lo = 0, hi = m->n_rows;
  while (lo < hi) {
    int middle = lo + (hi - lo) / 2;
    if (m->time[middle] < time)
      lo = middle + 1;
    else
      hi = middle;
  }
  return lo;
}

static void build_var(Model *m, int i, const SolverNode *node, int64_t limit) {
  Var *v = &m->var[i];
  v->n = node->n;
  v->cost = arena_array(m->arena, double, node->n);
  for (int s = 0; s < node->n; s++)
    v->cost[s] = cost_of(node->cost[s]);
  for (int k = 0; k < node->n_uses && limit != SOLVER_NO_LIMIT; k++)
    if (node->use[k].lo < node->use[k].hi) {
      // A strategy that exceeds the limit on its own gets infinite cost; its usage is clamped, to
      // keep sums small.
      const SolverUse *use = &node->use[k];
      Item item = {row_from(m, use->lo), row_from(m, use->hi),
                   arena_array(m->arena, int64_t, v->n)};
      for (int s = 0; s < v->n; s++) {
        if (use->usage[s] > limit) v->cost[s] = INFINITY;
        item.usage[s] = use->usage[s] < limit ? use->usage[s] : limit;
      }
      vec_push(m->arena, &v->items, item);
    }
  settle_items(m, v);
}

// Adds an edge's costs to the table of its ends; a self-edge adds node costs.
static void build_edge(Model *m, const SolverProblem *p, const SolverEdge *e) {
  int a = e->node[0], b = e->node[1], n = p->node[a].n, k = p->node[b].n;
  if (a == b) {
    for (int i = 0; i < n; i++)
      m->var[a].cost[i] += cost_of(e->cost[(int64_t)i * n + i]);
    return;
  }
  bool flipped;
  double *table = model_pair(m, a, b, &flipped);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < k; j++)
      table[flipped ? (int64_t)j * n + i : (int64_t)i * k + j] +=
          cost_of(e->cost[(int64_t)i * k + j]);
}

Model *model_build(Arena *a, const SolverProblem *p) {
  Model *m = arena_one(a, Model);
  m->arena = a;
  m->full_row = -1;
  m->n_vars = p->n_nodes;
  m->var = arena_array(a, Var, p->n_nodes);
  if (p->limit != SOLVER_NO_LIMIT) {
    // Rows for all times at which an interval begins; model_rows removes redundant ones.
    int n_uses = 0;
    for (int i = 0; i < p->n_nodes; i++)
      n_uses += p->node[i].n_uses;
    m->time = arena_array(m->arena, int64_t, n_uses + 1);
    for (int i = 0; i < p->n_nodes; i++)
      for (int k = 0; k < p->node[i].n_uses; k++) {
        const SolverUse *u = &p->node[i].use[k];
        if (u->lo < u->hi) m->time[m->n_rows++] = u->lo;
      }
    // Sorted, each once.
    qsort(m->time, (size_t)m->n_rows, sizeof *m->time, moment_order);
    int n = 0;
    for (int i = 0; i < m->n_rows; i++)
      if (!n || m->time[n - 1] != m->time[i]) m->time[n++] = m->time[i];
    m->n_rows = n;
    m->room = arena_array(m->arena, int64_t, n + 1);
    for (int i = 0; i < n; i++)
      m->room[i] = p->limit;
  }
  for (int i = 0; i < p->n_nodes; i++)
    build_var(m, i, &p->node[i], p->limit);
  for (int i = 0; i < p->n_edges; i++)
    build_edge(m, p, &p->edge[i]);
  return m;
}

// -- Tables ----------------------------------------------------------------------------------

View model_view(const Model *m, int pair, int var) {
  const Pair *p = &m->pairs.at[pair];
  int n = m->var[p->var[1]].n;
  if (p->var[0] == var) return (View){p->at, n, 1, p->var[1], n};
  return (View){p->at, 1, n, p->var[0], m->var[p->var[0]].n};
}

double *model_pair(Model *m, int a, int b, bool *out_flipped) {
  // Search at the end with fewer tables.
  Var *v = &m->var[m->var[a].edges.n <= m->var[b].edges.n ? a : b];
  int other = v == &m->var[a] ? b : a;
  for (int i = 0; i < v->edges.n; i++) {
    const Pair *p = &m->pairs.at[v->edges.at[i]];
    if (p->var[0] != other && p->var[1] != other) continue;
    *out_flipped = p->var[0] == b;
    return p->at;
  }
  // A new table, of zeros.
  int64_t size = (int64_t)m->var[a].n * m->var[b].n;
  Pair pair = {{a, b}, arena_array(m->arena, double, size)};
  *out_flipped = false;
  vec_push(m->arena, &m->var[a].edges, m->pairs.n);
  vec_push(m->arena, &m->var[b].edges, m->pairs.n);
  vec_push(m->arena, &m->pairs, pair);
  return pair.at;
}

static void model_unlink(Model *m, int pair) {
  Pair *p = &m->pairs.at[pair];
  for (int k = 0; k < 2; k++) {
    Ints *edges = &m->var[p->var[k]].edges;
    int n = 0;
    for (int i = 0; i < edges->n; i++)
      if (edges->at[i] != pair) edges->at[n++] = edges->at[i];
    edges->n = n;
  }
  p->var[0] = p->var[1] = -1;
}

// -- Removal ---------------------------------------------------------------------------------

static Note *note(Model *m, NoteKind kind, int var, const Label *label, int64_t n) {
  Note *x = arena_one(m->arena, Note);
  *x = (Note){
      m->notes, kind, var, -1, -1, 1, arena_copy(m->arena, label, (size_t)n * sizeof *label)};
  return m->notes = x;
}

// Compacts a table in place: remaining entries move to the front.
static void keep_in_pair(Model *m, Pair *p, int var, const Label *label, int n) {
  int columns = m->var[p->var[1]].n;
  if (p->var[0] == var) {
    for (int i = 0; i < n; i++)
      memmove(p->at + (int64_t)i * columns, p->at + (int64_t)label[i] * columns,
              (size_t)columns * sizeof *p->at);
    return;
  }
  // The columns that are kept move together, row by row.
  double *to = p->at;
  for (int i = 0; i < m->var[p->var[0]].n; i++)
    for (int j = 0; j < n; j++)
      *to++ = p->at[(int64_t)i * columns + label[j]];
}

void model_keep(Model *m, int var, const Label *label, int n) {
  Var *v = &m->var[var];
  if (n == v->n) return;
  // The note maps new labels to old ones; every array below shrinks in the same order.
  note(m, NOTE_keep, var, label, n);
  // The held choice's label is among those that are kept.
  for (int i = 0; m->hold && i < n; i++)
    if (label[i] == m->hold[var]) {
      m->hold[var] = i;
      break;
    }
  for (int k = 0; k < v->edges.n; k++)
    keep_in_pair(m, &m->pairs.at[v->edges.at[k]], var, label, n);
  for (int i = 0; i < n; i++)
    v->cost[i] = v->cost[label[i]];
  for (int k = 0; k < v->items.n; k++)
    for (int i = 0; i < n; i++)
      v->items.at[k].usage[i] = v->items.at[k].usage[label[i]];
  v->n = n;
  if (n)
    settle_items(m, v);
  else
    m->infeasible = true;
}

void model_merge(Model *m, int var, int into, const Label *label) {
  Var *v = &m->var[var], *to = &m->var[into];
  note(m, NOTE_merge, var, label, to->n)->first = into;
  for (int i = 0; i < to->n; i++)
    to->cost[i] += v->cost[label[i]];
  while (v->edges.n) {
    // Each table moves to `into`; the one between the two becomes costs.
    int pair = v->edges.at[0];
    View w = model_view(m, pair, var);
    if (w.other == into) {
      for (int i = 0; i < to->n; i++)
        to->cost[i] += view_at(&w, label[i], i);
    } else {
      bool flipped;
      double *table = model_pair(m, into, w.other, &flipped);
      for (int i = 0; i < to->n; i++)
        for (int j = 0; j < w.n; j++)
          table[flipped ? (int64_t)j * to->n + i : (int64_t)i * w.n + j] +=
              view_at(&w, label[i], j);
    }
    model_unlink(m, pair);
  }
  for (int k = 0; k < v->items.n; k++) {
    Item item = v->items.at[k];
    int64_t *usage = arena_array(m->arena, int64_t, to->n);
    for (int i = 0; i < to->n; i++)
      usage[i] = item.usage[label[i]];
    item.usage = usage;
    if (settle_item(m, &item, to->n)) vec_push(m->arena, &to->items, item);
  }
  // A variable without labels is removed.
  v->n = 0;
  v->items.n = 0;
}

void model_drop(Model *m, int var, int first, int second, const Label *label) {
  int n = second < 0 ? 1 : m->var[second].n;
  Note *x = note(m, NOTE_drop, var, label, (int64_t)n * (first < 0 ? 1 : m->var[first].n));
  x->first = first;
  x->second = second;
  x->n = n;
  Var *v = &m->var[var];
  while (v->edges.n)
    model_unlink(m, v->edges.at[0]);
  v->n = 0;
  v->items.n = 0;
}

static void play_back(const Model *m, int *label) {
  for (const Note *x = m->notes; x; x = x->next) {
    int i = x->first < 0 ? 0 : label[x->first], j = x->second < 0 ? 0 : label[x->second];
    label[x->var] = x->label[x->kind == NOTE_keep ? (int64_t)label[x->var] : (int64_t)i * x->n + j];
  }
}

void model_recover(const Model *m, const int *label, int *choice) {
  Arena *a = arena_new();
  int *now = arena_copy(a, label, (size_t)m->n_vars * sizeof *label);
  play_back(m, now);
  // A part of a branch is a copy: go on in the model it was copied from.
  for (; m->parent; m = m->parent) {
    int *up = arena_array(a, int, m->parent->n_vars);
    for (int v = 0; v < m->n_vars; v++)
      up[m->origin[v]] = now[v];
    now = up;
    play_back(m->parent, now);
  }
  memcpy(choice, now, (size_t)m->n_vars * sizeof *now); // m is the model of the problem now
  arena_free(a);
}

// -- Copies ----------------------------------------------------------------------------------

Model *model_copy(Arena *a, const Model *from) {
  Model *m = arena_one(a, Model);
  *m = (Model){.arena = a,
               .parent = from,
               .n_rows = from->n_rows,
               .constant = from->constant,
               .full_row = -1};
  m->room = arena_copy(a, from->room, (size_t)from->n_rows * sizeof *m->room);
  m->time = arena_copy(a, from->time, (size_t)from->n_rows * sizeof *m->time);
  m->var = arena_array(a, Var, from->n_vars);
  m->origin = arena_array(a, int, from->n_vars);
  // Removed variables and tables get no number in the copy.
  Arena *scratch = arena_new();
  int *number = arena_array(scratch, int, from->n_vars);
  for (int v = 0; v < from->n_vars; v++) {
    number[v] = m->n_vars;
    const Var *old = &from->var[v];
    if (!old->n) continue;
    // Costs and usages change in the copy.
    Var *copy = &m->var[m->n_vars];
    copy->n = old->n;
    copy->cost = arena_copy(a, old->cost, (size_t)old->n * sizeof *copy->cost);
    for (int k = 0; k < old->items.n; k++) {
      Item x = old->items.at[k];
      x.usage = arena_copy(a, x.usage, (size_t)old->n * sizeof *x.usage);
      vec_push(a, &copy->items, x);
    }
    m->origin[m->n_vars++] = v;
  }
  for (int k = 0; k < from->pairs.n; k++) {
    const Pair *p = &from->pairs.at[k];
    if (p->var[0] < 0) continue;
    int x = number[p->var[0]], y = number[p->var[1]];
    size_t size = (size_t)m->var[x].n * (size_t)m->var[y].n;
    vec_push(a, &m->var[x].edges, m->pairs.n);
    vec_push(a, &m->var[y].edges, m->pairs.n);
    vec_push(a, &m->pairs, (Pair){{x, y}, arena_copy(a, p->at, size * sizeof *p->at)});
  }
  arena_free(scratch);
  return m;
}

// -- Rows ------------------------------------------------------------------------------------

typedef struct RowUse {
  int64_t *most;      // upper bound of the usage of live items
  int *begins, *ends; // number of items that have begun, and ended
} RowUse;

static RowUse use_rows(const Model *m, Arena *a) {
  RowUse u = {arena_array(a, int64_t, m->n_rows + 1), arena_array(a, int, m->n_rows + 1),
              arena_array(a, int, m->n_rows + 1)};
  for (int i = 0; i < m->n_vars; i++) {
    const Var *v = &m->var[i];
    for (int k = 0; v->n && k < v->items.n; k++) {
      const Item *x = &v->items.at[k];
      int64_t most = 0;
      for (int s = 0; s < v->n; s++)
        if (x->usage[s] > most) most = x->usage[s];
      u.most[x->lo] += most;
      u.most[x->hi] -= most;
      u.begins[x->lo]++;
      u.ends[x->hi]++;
    }
  }
  // Prefix sums: differences at the ends of intervals become values per row.
  for (int t = 1; t <= m->n_rows; t++) {
    u.most[t] += u.most[t - 1];
    u.begins[t] += u.begins[t - 1];
    u.ends[t] += u.ends[t - 1];
  }
  return u;
}

void model_rows(Model *m) {
  // A negative capacity: not even the least usage of all fits.
  for (int t = 0; t < m->n_rows && !m->infeasible; t++)
    if (m->room[t] < 0) {
      m->infeasible = true;
      m->full_row = t;
    }
  if (m->infeasible) return;
  Arena *a = arena_new();
  RowUse u = use_rows(m, a);
  int *row = arena_array(a, int, m->n_rows + 1), *before = arena_array(a, int, m->n_rows + 2);
  // A row's live items are a subset of an earlier row's if no item began since, and of a later
  // row's if no item ends until then.  It is redundant if that row has no larger capacity.
  int n = 0;
  for (int t = 0; t < m->n_rows; t++) {
    bool part = u.most[t] <= m->room[t];
    while (n && !part) {
      int s = row[n - 1];
      part = u.begins[t] == u.begins[s] && m->room[t] >= m->room[s];
      if (part || u.ends[t] != u.ends[s] || m->room[s] < m->room[t]) break;
      n--;
    }
    if (!part) row[n++] = t;
  }
  // before[t]: needed rows before t, which is the new number of row t, or of the next needed one.
  for (int k = 0; k < n; k++) {
    before[row[k] + 1] = 1;
    m->room[k] = m->room[row[k]];
    m->time[k] = m->time[row[k]];
  }
  for (int t = 0; t < m->n_rows; t++)
    before[t + 1] += before[t];
  // Items that no longer span a row vanish; others may now span the same rows.
  for (int i = 0; i < m->n_vars; i++) {
    Var *v = &m->var[i];
    for (int k = 0; k < v->items.n; k++) {
      v->items.at[k].lo = before[v->items.at[k].lo];
      v->items.at[k].hi = before[v->items.at[k].hi];
    }
    join_items(v);
    settle_items(m, v);
  }
  m->n_rows = n;
  arena_free(a);
}
