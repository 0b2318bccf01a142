// See repeats_choose.h.
//
// The best family is divided first. If it turns out to be worth less, the next one is examined. All
// families that fit beside the best are tried together, then by halves, as mostly all of them fit;
// each try sorts the whole net.

#include "repeats_choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PIECES = 8 }; // of a family; more of them are no layers

// The nodes saved by storing these once, with a call for each occurrence.
static int64_t tuples_save(const Search *s, const Net *net, const Tuples *t) {
  int n_ops = 0;
  for (int p = 0; p < t->n; p++)
    n_ops += net->node[t->node[p * t->k]].n_ops;
  return n_ops < s->min ? 0 : (int64_t)t->k * t->n - t->n - t->k;
}

void family_weigh(const Search *s, const Net *net, Family *f) {
  int64_t n = 0;
  f->saves = 0;
  for (int i = 0; i < f->piece.n; i++) {
    f->saves += tuples_save(s, net, &f->piece.at[i]);
    n += f->piece.at[i].n;
  }
  f->worth = (double)f->saves * cbrt((double)n);
}

Grouping families_group(const Net *net, const Families *chosen, Arena *a) {
  Grouping to = {0, arena_array(a, int, net->n), arena_array(a, Group, net->n)};
  for (int i = 0; i < net->n; i++)
    to.group[i] = OUTSIDE;
  for (int f = 0; f < chosen->n; f++)
    for (int p = 0; p < chosen->at[f]->piece.n; p++) {
      // Each occurrence of a piece is a group.
      const Tuples *t = &chosen->at[f]->piece.at[p];
      for (int o = 0; o < t->k; o++) {
        for (int q = 0; q < t->n; q++)
          to.group[t->node[q * t->k + o]] = to.n;
        to.info[to.n++] = (Group){.tuples = t, .occurrence = o, .family = f};
      }
    }
  for (int i = 0; i < net->n; i++)
    // Every other node is a group of its own.
    if (to.group[i] == OUTSIDE) {
      to.group[i] = to.n;
      to.info[to.n++] = (Group){.occurrence = i};
    }
  return to;
}

static Tuples some_positions(const Tuples *t, const bool *which, bool want, Arena *a) {
  Tuples some = {t->k, 0, arena_array(a, int, t->n * t->k)};
  for (int p = 0; p < t->n; p++)
    if (which[p] == want)
      memcpy(&some.node[some.n++ * t->k], &t->node[p * t->k], (size_t)t->k * sizeof *t->node);
  return some;
}

// Cuts the piece of this group in two: nodes that can run in its occurrence, and nodes that cannot.
// False if the group is no piece of the family.
static bool cut(Family *f, const Net *net, const Grouping *to, const Group *stuck, const bool *done,
                Arena *a) {
  Tuples *t = NULL;
  for (int i = 0; i < f->piece.n; i++)
    if (&f->piece.at[i] == stuck->tuples) t = &f->piece.at[i];
  if (!t) return false;
  // A node runs if its operands are done, or run in the same occurrence.
  bool *runs = arena_array(a, bool, t->n), *seen = arena_array(a, bool, net->n);
  for (int p = 0; p < t->n; p++) {
    int at = t->node[p * t->k + stuck->occurrence];
    runs[p] = true;
    for (int j = 0; runs[p] && j < net->node[at].n_in; j++) {
      int from = net->node[at].in[j].node;
      runs[p] = from == OUTSIDE || done[to->group[from]] || seen[from];
    }
    seen[at] = runs[p];
  }
  // The two parts are pieces of the family.
  Tuples later = some_positions(t, runs, false, a);
  *t = some_positions(t, runs, true, a);
  vec_push(a, &f->piece, later);
  return true;
}

// A group that waits although one of its nodes is ready.
static const Group *find_stuck(const Net *net, const Grouping *to, const bool *done) {
  for (int i = 0; i < net->n; i++)
    if (!done[to->group[i]] && node_is_ready(net, to->group, i, done))
      return &to->info[to->group[i]];
  BUG("no node can run");
}

// Whether the occurrences of all families can run one after the other. If not, the last family is
// cut, provided that its group is the stuck one.
typedef enum Order { ORDER_is, ORDER_cut, ORDER_none } Order;

static Order try_order(Search *s, const Net *net, const Families *all, Arena *a) {
  if (s->effort < 0) return ORDER_none;
  s->effort -= net->n;
  Arena *scratch = arena_new();
  Grouping to = families_group(net, all, scratch);
  bool *done = arena_array(scratch, bool, to.n);
  Order order = ORDER_is;
  if (!net_order(net, to.group, to.n, arena_array(scratch, int, to.n), done, scratch))
    order = a && cut(all->at[all->n - 1], net, &to, find_stuck(net, &to, done), done, a)
                ? ORDER_cut
                : ORDER_none;
  arena_free(scratch);
  return order;
}

// Cuts the family until its occurrences can run one after the other, beside the chosen ones; keeps
// the pieces that save nodes. False if none is left.
static bool divide(Search *s, const Net *net, Families *chosen, Family *f) {
  Order order = ORDER_cut;
  vec_push(s->scratch, chosen, f);
  while (order == ORDER_cut && f->piece.n <= MAX_PIECES)
    order = try_order(s, net, chosen, s->scratch);
  chosen->n--;
  int n = 0;
  for (int i = 0; order == ORDER_is && i < f->piece.n; i++)
    if (tuples_save(s, net, &f->piece.at[i]) > 0) f->piece.at[n++] = f->piece.at[i];
  f->piece.n = n;
  family_weigh(s, net, f);
  return n > 0;
}

static bool overlaps(const Family *f, const bool *taken) {
  for (int i = 0; i < f->piece.n; i++)
    for (int k = 0; k < f->piece.at[i].n * f->piece.at[i].k; k++)
      if (taken[f->piece.at[i].node[k]]) return true;
  return false;
}

static void take(const Family *f, bool *taken) {
  for (int i = 0; i < f->piece.n; i++)
    for (int k = 0; k < f->piece.at[i].n * f->piece.at[i].k; k++)
      taken[f->piece.at[i].node[k]] = true;
}

static int by_worth(const void *x, const void *y) {
  const Family *p = *(Family *const *)x, *q = *(Family *const *)y;
  if (p->worth != q->worth) return p->worth > q->worth ? -1 : 1;
  return (p->found > q->found) - (p->found < q->found);
}

// Moves a family that lost worth by division down to its rank; true if it moved.
static bool sinks(Families *all, int i) {
  Family *f = all->at[i];
  int k = i;
  for (; k + 1 < all->n && all->at[k + 1]->worth > f->worth; k++)
    all->at[k] = all->at[k + 1];
  all->at[k] = f;
  return k > i;
}

static void shift(Search *s, const Net *net, Growth *growth, Family *f) {
  if (f->shifted) return;
  f->shifted = true;
  f->piece.at[0] = growth_shifted(growth, f->piece.at[0]);
  family_weigh(s, net, f);
}

// Adds the families that can be chosen too: mostly all can, and one try is enough.
static void choose_also(Search *s, const Net *net, Families *chosen, Family *const *more, int n) {
  int before = chosen->n;
  if (n == 1 && divide(s, net, chosen, *more)) vec_push(s->scratch, chosen, *more);
  if (n < 2) return;
  for (int i = 0; i < n; i++)
    vec_push(s->scratch, chosen, more[i]);
  if (try_order(s, net, chosen, NULL) == ORDER_is) return;
  chosen->n = before;
  choose_also(s, net, chosen, more, n / 2);
  choose_also(s, net, chosen, more + n / 2, n - n / 2);
}

// The best family, and those half as good that do not overlap with it: the rest may do better in
// the next round.
Families families_choose(Search *s, const Net *net, Growth *growth, Families *all) {
  Families chosen = {0}, more = {0};
  if (all->n) qsort(all->at, (size_t)all->n, sizeof *all->at, by_worth);
  // The family with the most worth after division is next.
  Family *best = NULL;
  Families none = {0};
  for (int i = 0; i < all->n; i++) {
    Family *f = all->at[i];
    if (f->divided) {
      best = f;
      break;
    }
    shift(s, net, growth, f);
    f->divided = divide(s, net, &none, f);
    if (sinks(all, i))
      i--;
    else if (f->divided) {
      best = f;
      break;
    }
  }
  if (!best) return chosen;
  // Others that do not overlap and have at least half its worth are chosen too.
  bool *taken = arena_array(s->scratch, bool, net->n);
  take(best, taken);
  vec_push(s->scratch, &chosen, best);
  for (int i = 0; i < all->n; i++) {
    Family *f = all->at[i];
    if (2 * f->worth < best->worth || overlaps(f, taken)) continue;
    shift(s, net, growth, f);
    if (overlaps(f, taken)) continue;
    take(f, taken);
    vec_push(s->scratch, &more, f);
  }
  choose_also(s, net, &chosen, more.at, more.n);
  return chosen;
}
