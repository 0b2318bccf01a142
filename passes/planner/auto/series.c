// See series.h.  Each op has a set of the products that it depends on, as bits.

#include "series.h"

enum { BITS = 64 };

// Adds the products that the op depends on to `set`.
static void add_operands(uint64_t *of, int words, const Op *op, uint64_t *set) {
  for (int i = 0; i < op->n_in; i++) {
    const Op *def = op->in[i].value->def;
    for (int k = 0; def && k < words; k++)
      set[k] |= of[(size_t)def->id * (size_t)words + (size_t)k];
  }
}

static bool has_bit(const uint64_t *set, int i) {
  return set[i / BITS] >> (i % BITS) & 1;
}

// Whether the set has all products before this one.
static bool has_all_before(const uint64_t *set, int n) {
  for (int i = 0; i < n; i++)
    if (!has_bit(set, i)) return false;
  return true;
}

int *series_groups(const Graph *g, const Op *const *op, int n, Arena *a) {
  int words = n / BITS + 1, next = 0;
  uint64_t *of = arena_array(a, uint64_t, (size_t)g->n_ops * (size_t)words);
  uint64_t *before = arena_array(a, uint64_t, (size_t)n * (size_t)words);
  for_each_op(at, g) {
    uint64_t *set = of + (size_t)at->id * (size_t)words;
    add_operands(of, words, at, set);
    if (next == n || op[next] != at) continue;
    for (int k = 0; k < words; k++)
      before[(size_t)next * (size_t)words + (size_t)k] = set[k];
    set[next / BITS] |= (uint64_t)1 << (next % BITS);
    next++;
  }
  // From the end: the products that all later ones depend on.
  int *group = arena_array(a, int, (size_t)n + 1);
  uint64_t *all = arena_array(a, uint64_t, (size_t)words);
  for (int k = 0; k < words; k++)
    all[k] = UINT64_MAX;
  int number = 1;
  for (int i = n - 1; i >= 0; i--) {
    const uint64_t *set = before + (size_t)i * (size_t)words;
    bool in_series = has_bit(all, i) && has_all_before(set, i);
    number += in_series;
    group[i] = in_series ? 0 : number;
    for (int k = 0; k < words; k++)
      all[k] &= set[k];
  }
  return group;
}
