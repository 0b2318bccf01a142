// See repeats.h.  In rounds, until nothing more repeats:
//
//     color     nodes by what is around them, to a few distances (as Weisfeiler and Leman do)
//     grow      every class of nodes of one color is a seed in each occurrence: repeats_grow.c
//     choose    the blocks that leave the fewest ops, where they do not overlap
//     contract  their occurrences to nodes, and search the inside of each block in the same way
//
// The larger blocks come first, where that saves nearly as much: an encoder's layers and a
// decoder's, before what both have in common.  What repeats inside of a block is found there, but
// what is chosen first cuts through what is larger.
//
// A color is only a hint: what is grown from it is exact.  Near, it does not see that the first and
// the last layer are at an end; far, it tells an encoder's layers from a decoder's.
//
// Occurrences must be able to run one after the other.  What grows through a layer's forward ops
// into their gradients cannot: the last layer lies between.  So it is cut where it would have to
// wait, in all occurrences alike, and the pieces are a family.
//
// It takes time linear in the edges, up to sorting: classes that a block found before already
// explains are passed over, what may be chosen is looked at together, and there is a limit on the
// effort, which graphs come near that have hundreds of blocks and no layers.

#include "repeats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/intern.h"
#include "repeats_grow.h"
#include "repeats_net.h"

enum {
  FARTHEST = 5,   // a color sees what is so many edges away
  MAX_PIECES = 8, // of a family; more of them are no layers
  // Steps for each node: growing in a round, and all in all.
  EFFORT_TO_GROW = 40,
  EFFORT = 400,
};

typedef struct Family {
  Vec(Tuples) piece;
  int64_t saves; // nodes; of one that is not divided yet, at most
  double worth;  // by which families are chosen
  int found;     // how many were found before
  bool shifted;  // growth_shifted
  bool divided;  // its occurrences can run one after the other
} Family;

typedef Vec(Family *) Families;

typedef struct Search {
  Arena *scratch, *arena; // of the search, of the result
  Labels *labels;
  int min;
  Vec(Block *) block;
  int n_families;
  int64_t effort; // that is left
} Search;

// What it saves to have these nodes once, with a call for each occurrence.
static int64_t tuples_save(const Search *s, const Net *net, const Tuples *t) {
  int n_ops = 0;
  for (int p = 0; p < t->n; p++)
    n_ops += net->node[t->node[p * t->k]].n_ops;
  return n_ops < s->min ? 0 : (int64_t)t->k * t->n - t->n - t->k;
}

static void weigh(Search *s, const Net *net, Family *f) {
  int64_t n = 0;
  f->saves = 0;
  for (int i = 0; i < f->piece.n; i++) {
    f->saves += tuples_save(s, net, &f->piece.at[i]);
    n += f->piece.at[i].n;
  }
  f->worth = (double)f->saves * cbrt((double)n);
}

// -- Colors ----------------------------------------------------------------------------------

static void first_colors(const Net *net, uint64_t *color) {
  for (int i = 0; i < net->n; i++)
    color[i] = hash_mix(0x51ed2701u, (uint64_t)net->node[i].label);
}

// Mixed so that what differs in few bits differs in many.
static uint64_t mix(uint64_t h, uint64_t x) {
  h = hash_mix(h, x);
  return h ^ h >> 29;
}

// A sum over readers does not depend on their order.
static void farther(const Net *net, const uint64_t *color, uint64_t *to) {
  for (int i = 0; i < net->n; i++) {
    const Node *node = &net->node[i];
    uint64_t h = color[i], readers = 0;
    for (int j = 0; j < node->n_in; j++) {
      Edge e = node->in[j];
      h = mix(h, e.node == OUTSIDE ? 1 : mix(color[e.node], (uint64_t)e.slot + 2));
    }
    for (int r = 0; r < node->n_readers; r++) {
      Reader reader = node->reader[r];
      readers += mix(mix(color[reader.node], (uint64_t)reader.operand), (uint64_t)reader.slot);
    }
    to[i] = mix(h, readers);
  }
}

// -- Seeds -----------------------------------------------------------------------------------

typedef struct Colored {
  uint64_t color;
  int node;
} Colored;

static int by_color(const void *x, const void *y) {
  const Colored *p = x, *q = y;
  if (p->color != q->color) return p->color < q->color ? -1 : 1;
  return (p->node > q->node) - (p->node < q->node);
}

// A class of nodes of one color.
typedef struct Class {
  int *node, n;
} Class;

static int by_size(const void *x, const void *y) {
  const Class *p = x, *q = y;
  if (p->n != q->n) return p->n < q->n ? -1 : 1;
  return (p->node[0] > q->node[0]) - (p->node[0] < q->node[0]);
}

// What was grown so far, and where in that the nodes are.
typedef struct Grown {
  Families families;
  const Family **family; // the best that has the node
  int *position;
  int64_t effort; // that is left in this round
} Grown;

// A class of which a block has nearly as many at one position gives that block once more, or less
// of it.
static bool is_explained(const Grown *grown, const Class *c) {
  const Family *f = grown->family[c->node[0]];
  if (!f || 2 * c->n <= f->piece.at[0].k) return false;
  for (int i = 1; i < c->n; i++)
    if (grown->family[c->node[i]] != f || grown->position[c->node[i]] != grown->position[*c->node])
      return false;
  return true;
}

static void try_class(Search *s, const Net *net, Growth *growth, Grown *grown, const Class *c) {
  if (c->n < 2 || grown->effort < 0 || s->effort < 0 || is_explained(grown, c)) return;
  Tuples t = growth_from(growth, c->node, c->n);
  if (t.n == 0) return;
  Family *f = arena_one(s->scratch, Family);
  f->found = grown->families.n;
  vec_push(s->scratch, &f->piece, t);
  weigh(s, net, f);
  grown->effort -= (int64_t)t.n * t.k;
  s->effort -= (int64_t)t.n * t.k;
  for (int i = 0; i < t.n * t.k; i++) {
    const Family *known = grown->family[t.node[i]];
    if (known && known->worth >= f->worth) continue;
    grown->family[t.node[i]] = f;
    grown->position[t.node[i]] = i / t.k;
  }
  if (f->saves > 0) vec_push(s->scratch, &grown->families, f);
}

static void try_classes(Search *s, const Net *net, const uint64_t *color, Growth *growth,
                        Grown *grown) {
  Colored *sorted = arena_array(s->scratch, Colored, net->n);
  int *node = arena_array(s->scratch, int, net->n), n = 0;
  Vec(Class) classes = {0};
  for (int i = 0; i < net->n; i++)
    if (net->node[i].label != NEVER) sorted[n++] = (Colored){color[i], i};
  qsort(sorted, (size_t)n, sizeof *sorted, by_color);
  for (int i = 0; i < n; i++) {
    node[i] = sorted[i].node;
    if (i == 0 || sorted[i].color != sorted[i - 1].color)
      vec_push(s->scratch, &classes, (Class){&node[i], 0});
    classes.at[classes.n - 1].n++;
  }
  // Small classes first: what is seldom is a better sign of where one is.
  if (classes.n) qsort(classes.at, (size_t)classes.n, sizeof *classes.at, by_size);
  for (int i = 0; i < classes.n; i++)
    try_class(s, net, growth, grown, &classes.at[i]);
}

static Families grow_families(Search *s, const Net *net, Growth **out_growth) {
  Arena *a = s->scratch;
  uint64_t *color = arena_array(a, uint64_t, net->n), *next = arena_array(a, uint64_t, net->n);
  uint64_t *near = arena_array(a, uint64_t, net->n);
  first_colors(net, color);
  farther(net, color, next);
  farther(net, next, near);
  Growth *growth = *out_growth = growth_new(net, near, a);
  Grown grown = {.family = arena_array(a, const Family *, net->n),
                 .position = arena_array(a, int, net->n),
                 .effort = (int64_t)EFFORT_TO_GROW * (net->n + 100)};
  for (int distance = 0; distance <= FARTHEST; distance++) {
    try_classes(s, net, color, growth, &grown);
    farther(net, color, next);
    uint64_t *swap = color;
    color = next;
    next = swap;
  }
  return grown.families;
}

// -- Choice ----------------------------------------------------------------------------------

// Nodes in groups: the occurrences of what was chosen, and every other node.
typedef struct Grouping {
  int n;
  int *group; // by node
  Group *info;
} Grouping;

static void add_groups(Grouping *to, const Tuples *t, int family) {
  for (int i = 0; i < t->k; i++) {
    for (int p = 0; p < t->n; p++)
      to->group[t->node[p * t->k + i]] = to->n;
    to->info[to->n++] = (Group){.tuples = t, .occurrence = i, .family = family};
  }
}

static Grouping grouping(const Net *net, const Families *chosen, Arena *a) {
  Grouping to = {0, arena_array(a, int, net->n), arena_array(a, Group, net->n)};
  for (int i = 0; i < net->n; i++)
    to.group[i] = OUTSIDE;
  for (int f = 0; f < chosen->n; f++)
    for (int p = 0; p < chosen->at[f]->piece.n; p++)
      add_groups(&to, &chosen->at[f]->piece.at[p], f);
  for (int i = 0; i < net->n; i++)
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

static Tuples *piece_of(const Family *f, const Group *g) {
  for (int i = 0; i < f->piece.n; i++)
    if (&f->piece.at[i] == g->tuples) return &f->piece.at[i];
  return NULL;
}

// Cuts the piece of this group in what can run in its occurrence and what cannot; false when the
// group is no piece of the family.
static bool cut(Family *f, const Net *net, const Grouping *to, const Group *stuck, const bool *done,
                Arena *a) {
  Tuples *t = piece_of(f, stuck);
  if (!t) return false;
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
  Tuples later = some_positions(t, runs, false, a);
  *t = some_positions(t, runs, true, a);
  vec_push(a, &f->piece, later);
  return true;
}

// A group that waits, though one of its nodes could run.
static const Group *find_stuck(const Net *net, const Grouping *to, const bool *done) {
  for (int i = 0; i < net->n; i++)
    if (!done[to->group[i]] && node_is_ready(net, to->group, i, done))
      return &to->info[to->group[i]];
  BUG("no node can run");
}

// Whether the occurrences of all can run one after the other; where not, the last is cut, if it is
// that which waits.
typedef enum Order { ORDER_is, ORDER_cut, ORDER_none } Order;

static Order try_order(Search *s, const Net *net, const Families *all, Arena *a) {
  if (s->effort < 0) return ORDER_none;
  s->effort -= net->n;
  Arena *scratch = arena_new();
  Grouping to = grouping(net, all, scratch);
  bool *done = arena_array(scratch, bool, to.n);
  Order order = ORDER_is;
  if (!net_order(net, to.group, to.n, arena_array(scratch, int, to.n), done, scratch))
    order = a && cut(all->at[all->n - 1], net, &to, find_stuck(net, &to, done), done, a)
                ? ORDER_cut
                : ORDER_none;
  arena_free(scratch);
  return order;
}

// Cuts the family until its occurrences can run one after the other, beside what is chosen already;
// keeps the pieces that save something.  False when none is left.
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
  weigh(s, net, f);
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

// Divided, a family may be worth less than it seemed: it goes where it belongs.
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
  weigh(s, net, f);
}

// The family that is worth most when it is divided; NULL when none is worth anything.
static Family *find_best(Search *s, const Net *net, Growth *growth, Families *all) {
  Families none = {0};
  for (int i = 0; i < all->n; i++) {
    Family *f = all->at[i];
    if (f->divided) return f;
    shift(s, net, growth, f);
    f->divided = divide(s, net, &none, f);
    if (sinks(all, i))
      i--;
    else if (f->divided)
      return f;
  }
  return NULL;
}

// Adds those that can be chosen too: mostly all can, and one look is enough.
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

// The best, and what is half as good and does not overlap: the rest may do better next time.
static Families choose(Search *s, const Net *net, Growth *growth, Families *all) {
  Families chosen = {0}, more = {0};
  if (all->n) qsort(all->at, (size_t)all->n, sizeof *all->at, by_worth);
  Family *best = find_best(s, net, growth, all);
  if (!best) return chosen;
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

// -- Blocks ----------------------------------------------------------------------------------

static void search(Search *s, Net *net);

// Their members, when all that repeats inside of them is found.
static void set_members(Block *b, const Net *inside, Arena *a) {
  b->n_members = inside->n;
  for (int w = 0; w < b->n; w++) {
    Occurrence *o = b->at[w];
    o->member = arena_array(a, Member, inside->n);
    for (int p = 0; p < inside->n; p++) {
      Occurrence *inner = inside->node[p].member[w].inner;
      o->member[p] = inside->node[p].member[w];
      if (!inner) continue;
      inner->outer = o;
      inner->position = p;
    }
  }
}

static Block *block_new(Search *s, const Net *net, const Tuples *t, int family) {
  Block *b = arena_one(s->arena, Block);
  *b = (Block){.id = s->block.n, .family = family, .n = net->worlds * t->k};
  b->at = arena_array(s->arena, Occurrence *, b->n);
  for (int w = 0; w < b->n; w++) {
    b->at[w] = arena_one(s->arena, Occurrence);
    *b->at[w] = (Occurrence){.block = b, .index = w};
  }
  vec_push(s->scratch, &s->block, b);
  Net inside = net_inside(net, t, s->scratch);
  for (int p = 0; p < inside.n; p++)
    b->n_ops += inside.node[p].n_ops;
  search(s, &inside);
  set_members(b, &inside, s->arena);
  return b;
}

// What the groups are from now on; `family` is the number of the first family chosen.
static void name_groups(Search *s, const Net *net, Grouping *to, int family) {
  const Tuples *last = NULL;
  Block *b = NULL;
  int label = NEVER;
  for (int g = 0; g < to->n; g++) {
    Group *info = &to->info[g];
    if (!info->tuples) {
      info->label = net->node[info->occurrence].label;
      info->member = net->node[info->occurrence].member;
      continue;
    }
    if (info->tuples != last) {
      b = block_new(s, net, info->tuples, family + info->family);
      label = label_new(s->labels);
      last = info->tuples;
    }
    info->label = label;
    info->member = arena_array(s->scratch, Member, net->worlds);
    for (int w = 0; w < net->worlds; w++)
      info->member[w].inner = b->at[w * info->tuples->k + info->occurrence];
  }
}

static void search(Search *s, Net *net) {
  for (; s->effort > 0; s->effort -= net->n) {
    Growth *growth;
    Families all = grow_families(s, net, &growth), chosen = choose(s, net, growth, &all);
    if (!chosen.n) return;
    Grouping to = grouping(net, &chosen, s->scratch);
    int family = s->n_families;
    s->n_families += chosen.n;
    name_groups(s, net, &to, family);
    int *order = arena_array(s->scratch, int, to.n);
    if (!net_order(net, to.group, to.n, order, arena_array(s->scratch, bool, to.n), s->scratch))
      BUG("occurrences that cannot run one after the other");
    *net = net_contract(net, to.info, to.group, to.n, order, s->scratch);
  }
}

// -- The result ------------------------------------------------------------------------------

static void place_ops(Repeats *r) {
  r->n_after = r->n_order;
  for (int b = 0; b < r->n_blocks; b++) {
    const Block *block = r->block[b];
    r->n_after += block->n_members;
    for (int i = 0; i < block->n; i++)
      for (int p = 0; p < block->n_members; p++) {
        const Op *op = block->at[i]->member[p].op;
        if (op) r->of_op[op->id] = (OpRepeat){block->at[i], p};
      }
  }
}

// In this occurrence or one inside of it, or of another block of its family.
static bool belongs(const Repeats *r, const Op *op, const Occurrence *to) {
  const Occurrence *o = op_of_family(r, op, to->block->family);
  return o && o->index == to->index;
}

// Positions from an occurrence down to an op are compared from the outside in.
static int depth(const Occurrence *o) {
  int n = 0;
  for (; o; o = o->outer)
    n++;
  return n;
}

static OpRepeat outward(OpRepeat at) {
  return (OpRepeat){at.occurrence->outer, at.occurrence->position};
}

static bool is_before(const Repeats *r, const Use *x, const Use *y) {
  OpRepeat p = r->of_op[x->user->id], q = r->of_op[y->user->id];
  int n = depth(p.occurrence), m = depth(q.occurrence), order = x->index - y->index;
  for (; n > m; n--)
    p = outward(p);
  for (; m > n; m--)
    q = outward(q);
  for (; n > 0; n--, p = outward(p), q = outward(q)) {
    int blocks = p.occurrence->block->id - q.occurrence->block->id;
    if (blocks || p.position != q.position) order = blocks ? blocks : p.position - q.position;
  }
  return order < 0;
}

// The innermost occurrence to which all readers belong.
static ParamRepeat place_param(const Repeats *r, const Value *v) {
  const Use *first = NULL;
  Occurrence *o = NULL;
  for_each_use(u, v) {
    if (!u->user) continue;
    if (!first || is_before(r, u, first)) first = u;
  }
  if (first) o = r->of_op[first->user->id].occurrence;
  for (bool all = false; o && !all;) {
    all = true;
    for_each_use(u, v)
      all &= !u->user || belongs(r, u->user, o);
    if (!all) o = o->outer;
  }
  return o ? (ParamRepeat){o, first->user, first->index} : (ParamRepeat){0};
}

Repeats *repeats_find(const Graph *g, int min, const bool *among, Arena *a) {
  Search s = {.scratch = arena_new(), .arena = a, .min = min};
  s.effort = (int64_t)EFFORT * (g->n_ops + 1000);
  s.labels = labels_new((int)g->n_ops, s.scratch);
  Net net = net_of_graph(g, among, s.labels, s.scratch);
  search(&s, &net);
  Repeats *r = arena_one(a, Repeats);
  *r = (Repeats){.n_blocks = s.block.n, .n_order = net.n};
  r->block = arena_array(a, Block *, s.block.n);
  if (s.block.n) memcpy(r->block, s.block.at, (size_t)s.block.n * sizeof(Block *));
  r->order = arena_array(a, Member, net.n);
  for (int i = 0; i < net.n; i++)
    r->order[i] = net.node[i].member[0];
  r->of_op = arena_array(a, OpRepeat, g->n_ops);
  r->of_param = arena_array(a, ParamRepeat, g->n_params);
  place_ops(r);
  for (int i = 0; i < g->n_params; i++)
    r->of_param[i] = place_param(r, g->params[i]);
  arena_free(s.scratch);
  return r;
}

bool ops_correspond(const Repeats *r, const Op *x, const Op *y) {
  OpRepeat p = r->of_op[x->id], q = r->of_op[y->id];
  if (x == y) return true;
  return p.occurrence && q.occurrence && p.occurrence->block == q.occurrence->block &&
         p.position == q.position;
}

Occurrence *op_outermost(const Repeats *r, const Op *op) {
  Occurrence *o = r->of_op[op->id].occurrence;
  while (o && o->outer)
    o = o->outer;
  return o;
}

Occurrence *op_of_family(const Repeats *r, const Op *op, int family) {
  Occurrence *o = r->of_op[op->id].occurrence;
  while (o && o->block->family != family)
    o = o->outer;
  return o;
}

bool op_is_within(const Repeats *r, const Op *op, const Occurrence *in) {
  const Occurrence *o = r->of_op[op->id].occurrence;
  while (o && o != in)
    o = o->outer;
  return o != NULL;
}
