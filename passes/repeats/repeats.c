// See repeats.h. In rounds, until nothing more repeats:
//
//     color     nodes by their neighbourhoods, to a few distances (as Weisfeiler and Leman do)
//     grow      every class of nodes of one color is a seed in each occurrence: repeats_grow.c
//     choose    the blocks that leave the fewest ops, without overlap: repeats_choose.c
//     contract  their occurrences to nodes, and search the inside of each block in the same way
//
// Larger blocks come first, if they save nearly as much: the layers of an encoder and of a decoder
// come before their common parts. Repeats inside of a block are found there, but an early choice
// cuts through larger ones.
//
// A color is only a hint: growth from it is exact. At small distances colors do not separate the
// first and the last layer; at large distances they separate the layers of an encoder from those of
// a decoder.
//
// The time is linear in the edges, up to sorting. Classes that a block found before already
// explains are skipped, and candidates are tested together. There is a limit on the effort, which
// graphs with hundreds of blocks and no layers come near.

#include "repeats.h"

#include <stdlib.h>
#include <string.h>

#include "ir/intern.h"
#include "repeats_choose.h"
#include "repeats_net.h"

enum {
  FARTHEST = 5, // the largest distance of a color, in edges
  // Steps per node: for growing in a round, and in total.
  EFFORT_TO_GROW = 40,
  EFFORT = 400,
};

// -- Colors ----------------------------------------------------------------------------------

// A hash in which inputs that differ in few bits differ in many.
static uint64_t mix(uint64_t h, uint64_t x) {
  h = hash_mix(h, x);
  return h ^ h >> 29;
}

// Extends colors by one edge. The sum over readers does not depend on their order.
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

// The families grown so far, and the positions of nodes in them.
typedef struct Grown {
  Families families;
  const Family **family; // by node: the best with the node
  int *position;
  int64_t effort; // remaining in this round
} Grown;

// Whether a block has nearly the whole class at one position: the class would give that block
// again, or part of it.
static bool is_explained(const Grown *grown, const Class *c) {
  const Family *f = grown->family[c->node[0]];
  if (!f || 2 * c->n <= f->piece.at[0].k) return false;
  for (int i = 1; i < c->n; i++)
    if (grown->family[c->node[i]] != f || grown->position[c->node[i]] != grown->position[*c->node])
      return false;
  return true;
}

static void try_class(Search *s, const Net *net, Growth *growth, Grown *grown, const Class *c) {
  // Classes that would give a known block again are skipped.
  if (c->n < 2 || grown->effort < 0 || s->effort < 0 || is_explained(grown, c)) return;
  Tuples t = growth_from(growth, c->node, c->n);
  if (t.n == 0) return;
  Family *f = arena_one(s->scratch, Family);
  f->found = grown->families.n;
  vec_push(s->scratch, &f->piece, t);
  family_weigh(s, net, f);
  // The effort is bounded, by level and in total.
  grown->effort -= (int64_t)t.n * t.k;
  s->effort -= (int64_t)t.n * t.k;
  for (int i = 0; i < t.n * t.k; i++) {
    // Each node knows its best family.
    const Family *known = grown->family[t.node[i]];
    if (known && known->worth >= f->worth) continue;
    grown->family[t.node[i]] = f;
    grown->position[t.node[i]] = i / t.k;
  }
  if (f->saves > 0) vec_push(s->scratch, &grown->families, f);
}

static Families grow_families(Search *s, const Net *net, Growth **out_growth) {
  Arena *a = s->scratch;
  uint64_t *color = arena_array(a, uint64_t, net->n), *next = arena_array(a, uint64_t, net->n);
  uint64_t *near = arena_array(a, uint64_t, net->n);
  // Colors begin with labels, and spread to neighbours.
  for (int i = 0; i < net->n; i++)
    color[i] = hash_mix(0x51ed2701u, (uint64_t)net->node[i].label);
  farther(net, color, next);
  farther(net, next, near);
  Growth *growth = *out_growth = growth_new(net, near, a);
  Grown grown = {.family = arena_array(a, const Family *, net->n),
                 .position = arena_array(a, int, net->n),
                 .effort = (int64_t)EFFORT_TO_GROW * (net->n + 100)};
  for (int distance = 0; distance <= FARTHEST; distance++) {
    // Nodes of one color are a class, and may be the seeds of a block's occurrences.
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
    // Small classes first: a rare node identifies an occurrence better.
    if (classes.n) qsort(classes.at, (size_t)classes.n, sizeof *classes.at, by_size);
    for (int i = 0; i < classes.n; i++)
      try_class(s, net, growth, &grown, &classes.at[i]);
    farther(net, color, next);
    uint64_t *swap = color;
    color = next;
    next = swap;
  }
  return grown.families;
}

// -- Blocks ----------------------------------------------------------------------------------

static void search(Search *s, Net *net);

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
  // The inside of a block is searched for repeats, too.
  for (int p = 0; p < inside.n; p++)
    b->n_ops += inside.node[p].n_ops;
  search(s, &inside);
  // Occurrences have members once all repeats inside of them are found.
  b->n_members = inside.n;
  for (int w = 0; w < b->n; w++) {
    Occurrence *o = b->at[w];
    o->member = arena_array(s->arena, Member, inside.n);
    for (int p = 0; p < inside.n; p++) {
      Occurrence *inner = inside.node[p].member[w].inner;
      o->member[p] = inside.node[p].member[w];
      if (!inner) continue;
      inner->outer = o;
      inner->position = p;
    }
  }
  return b;
}

static void search(Search *s, Net *net) {
  for (; s->effort > 0; s->effort -= net->n) {
    Growth *growth;
    Families all = grow_families(s, net, &growth), chosen = families_choose(s, net, growth, &all);
    if (!chosen.n) return;
    Grouping to = families_group(net, &chosen, s->scratch);
    int family = s->n_families;
    s->n_families += chosen.n;
    // Each group becomes a node with a label and members.
    const Tuples *last = NULL;
    Block *b = NULL;
    int label = NEVER;
    for (int g = 0; g < to.n; g++) {
      Group *info = &to.info[g];
      // A single node keeps its label and members.
      if (!info->tuples) {
        info->label = net->node[info->occurrence].label;
        info->member = net->node[info->occurrence].member;
        continue;
      }
      // Occurrences of one block are adjacent groups.
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
    int *order = arena_array(s->scratch, int, to.n);
    if (!net_order(net, to.group, to.n, order, arena_array(s->scratch, bool, to.n), s->scratch))
      BUG("occurrences that cannot run one after the other");
    *net = net_contract(net, to.info, to.group, to.n, order, s->scratch);
  }
}

// -- The result ------------------------------------------------------------------------------

// The nesting depth of an occurrence. is_before compares positions from the outermost inwards.
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

Repeats *repeats_find(const Graph *g, int min, const bool *among, Arena *a) {
  Search s = {.scratch = arena_new(), .arena = a, .min = min};
  s.effort = (int64_t)EFFORT * (g->n_ops + 1000);
  s.labels = labels_new((int)g->n_ops, s.scratch);
  Net net = net_of_graph(g, among, s.labels, s.scratch);
  search(&s, &net);
  // The nodes that remain are outermost occurrences and single ops.
  Repeats *r = arena_one(a, Repeats);
  *r = (Repeats){.n_blocks = s.block.n, .n_order = net.n};
  r->block = arena_array(a, Block *, s.block.n);
  if (s.block.n) memcpy(r->block, s.block.at, (size_t)s.block.n * sizeof(Block *));
  r->order = arena_array(a, Member, net.n);
  for (int i = 0; i < net.n; i++)
    r->order[i] = net.node[i].member[0];
  r->of_op = arena_array(a, OpRepeat, g->n_ops);
  r->of_param = arena_array(a, ParamRepeat, g->n_params);
  // Each op of a block knows its occurrence and position.
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
  for (int i = 0; i < g->n_params; i++) {
    // A parameter belongs to the innermost occurrence that all its readers belong to.
    const Use *reader = NULL;
    Occurrence *o = NULL;
    for_each_use(u, g->params[i]) {
      if (!u->user) continue;
      if (!reader || is_before(r, u, reader)) reader = u;
    }
    if (reader) o = r->of_op[reader->user->id].occurrence;
    for (bool all = false; o && !all;) {
      all = true;
      for_each_use(u, g->params[i]) {
        // A reader may be in an occurrence of another block of the family.
        const Occurrence *own = u->user ? op_of_family(r, u->user, o->block->family) : o;
        all &= own && own->index == o->index;
      }
      if (!all) o = o->outer;
    }
    r->of_param[i] = o ? (ParamRepeat){o, reader->user, reader->index} : (ParamRepeat){0};
  }
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
