// See ideals.h.
//
// Ideals are found by size, each from those with one unit less. Those of one size are together at
// the end of the list, and a new one is compared with these only. If there are too many, the list
// starts over, and each ideal is extended by its first possible unit only.

#include "ideals.h"

#include <string.h>

enum { MAX_IDEALS = 600 };

// -- Ideals --------------------------------------------------------------------------------------

bool flow_reads(const Flow *f, int unit) {
  for (int k = 0; k < f->n_readers; k++)
    if (f->reader[k] == unit) return true;
  return false;
}

// Finds the units that each unit reads, and those that read it, as sets.
static void find_neighbours(Ideals *t) {
  const Partition *p = t->p;
  t->reads = arena_array(t->arena, UnitWord, p->n_units * t->words);
  t->readers = arena_array(t->arena, UnitWord, p->n_units * t->words);
  for (int i = 0; i < p->n_flows; i++)
    for (int k = 0; k < p->flow[i].n_readers; k++) {
      int from = p->flow[i].from, to = p->flow[i].reader[k];
      t->reads[to * t->words + from / UNIT_WORD] |= (UnitWord)1 << from % UNIT_WORD;
      t->readers[from * t->words + to / UNIT_WORD] |= (UnitWord)1 << to % UNIT_WORD;
    }
}

static bool may_follow(const Ideals *t, const UnitWord *done, int unit) {
  const UnitWord *reads = &t->reads[unit * t->words];
  for (int w = 0; w < t->words; w++)
    if (reads[w] & ~done[w]) return false;
  return !unit_in(done, unit);
}

static bool is_read_in(const Ideals *t, const UnitWord *set, int unit) {
  const UnitWord *readers = &t->readers[unit * t->words];
  for (int w = 0; w < t->words; w++)
    if (readers[w] & set[w]) return true;
  return false;
}

// Adds the set of `n` units, unless it is known.
static void add_ideal(Ideals *t, const UnitWord *set, int n) {
  const Partition *p = t->p;
  // Sets of one size are together at the end of the list.
  for (int i = t->list.n - 1; i >= 0 && t->list.at[i].n == n; i--)
    if (!memcmp(t->list.at[i].has, set, (size_t)t->words * sizeof *set)) return;
  Ideal x = {set, n, -1, -1};
  int n_top = 0, n_next = 0;
  for (int u = 0; u < p->n_units; u++) {
    // The top units are those that no other unit of the set reads.
    if (unit_in(set, u)) {
      if (is_read_in(t, set, u)) continue;
      x.top = u;
      n_top++;
    } else if (may_follow(t, set, u)) {
      x.next = u;
      n_next++;
    }
  }
  // Only a single top unit, or next unit, has its own prices.
  if (n_top > 1) x.top = -1;
  if (n_next > 1) x.next = -1;
  vec_push(t->arena, &t->list, x);
}

// Adds the ideals with one unit more than number i.
static void add_larger(Ideals *t, int i, bool only_next) {
  for (int u = 0; u < t->p->n_units; u++) {
    const Ideal x = t->list.at[i];
    if (!may_follow(t, x.has, u)) continue;
    UnitWord *more = arena_copy(t->arena, x.has, (size_t)t->words * sizeof *more);
    more[u / UNIT_WORD] |= (UnitWord)1 << u % UNIT_WORD;
    add_ideal(t, more, x.n + 1);
    if (only_next) return;
  }
}

Ideals ideals_find(const Partition *p, Arena *a) {
  Ideals t = {.p = p, .arena = a, .words = p->n_units / UNIT_WORD + 1, .complete = true};
  int n = p->n_units, most = n + 1 > MAX_IDEALS ? n + 1 : MAX_IDEALS;
  find_neighbours(&t);
  const UnitWord *none = arena_array(a, UnitWord, t.words);
  add_ideal(&t, none, 0);
  for (int i = 0; i < t.list.n && t.list.n <= most; i++)
    add_larger(&t, i, false);
  if (t.list.n <= most) return t;
  // Too many: one sequence of ideals.
  t.complete = false;
  t.list.n = 1;
  for (int i = 0; i < n; i++)
    add_larger(&t, i, true);
  return t;
}

bool ideal_within(const Ideals *t, const Ideal *a, const Ideal *b) {
  for (int w = 0; w < t->words; w++)
    if (a->has[w] & ~b->has[w]) return false;
  return a->n < b->n;
}

bool flow_has_reader(const Flow *f, const UnitWord *in, const UnitWord *but) {
  for (int k = 0; k < f->n_readers; k++)
    if ((!in || unit_in(in, f->reader[k])) && !unit_in(but, f->reader[k])) return true;
  return false;
}

// -- Runs ----------------------------------------------------------------------------------------

NextRuns next_runs_find(const Partition *p, Arena *a) {
  NextRuns x = {.n = arena_array(a, int, p->n_runs),
                .at = arena_array(a, int, p->n_runs * p->n_runs)};
  for (int g = 0; g < p->n_runs; g++) {
    for (int h = 0; h < p->n_runs; h++)
      if (p->run[h].first == p->run[g].first + p->run[g].n) x.at[g * p->n_runs + x.n[g]++] = h;
    if (x.n[g] > x.most) x.most = x.n[g];
  }
  return x;
}
