// See gaps.h.
//
// The blocks on a mesh form a binary tree over time. A node has the bytes of all blocks that are
// alive at some time of it (`any`), and of those alive at all its times (`whole`), as spans: bytes
// of touching blocks are one span.
//
//     times 0-31    any                         a live range 12-31 is in `whole` of 16-31 and of
//     0-15  16-31   any, whole                  12-15, and in `any` of all nodes around these
//
// gaps_best takes `any` of the largest nodes within the live range, and `whole` of the nodes around
// them. Their spans are merged in the order of offsets, and the smallest gap that is large enough
// is the result. The saved activations of all layers are adjacent, and so one span of a node; the
// temporaries of all layers have the same few offsets. So the time of a query grows with the tree's
// height, and hardly with the number of layers.

#include "gaps.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

enum { TOP = 63 }; // the largest height: a node has 2^height times

typedef struct Span {
  int64_t begin, end;
} Span;

typedef Vec(Span) Spans; // ascending, with a gap between any two

typedef struct Node {
  Spans any;
  Spans whole;          // without those alive at all times of the parent
  struct Node *half[2]; // NULL: no blocks
} Node;

// The blocks on one mesh.
typedef struct Tree {
  Spans always; // of blocks that are never dead
  Node *root;
  int height;
} Tree;

// Ascending spans that are still to be visited.
typedef struct Source {
  const Span *at, *to;
} Source;

struct Gaps {
  Arena *arena;
  Meets meets;
  Tree *tree;       // by mesh
  Vec(Taken) block; // all, for queries of no bytes
  Vec(Source) source;
  int64_t looked_at;
};

Gaps *gaps_new(Arena *a, Meets meets) {
  Gaps *g = arena_one(a, Gaps);
  g->arena = a;
  g->meets = meets;
  g->tree = arena_array(a, Tree, meets.n);
  return g;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int mesh_of(const Taken *t) {
  return t->v->layout && t->v->layout->mesh ? t->v->layout->mesh->id : 0;
}

static int64_t last_time(int64_t first, int height) {
  return first + (INT64_MAX >> (TOP - height));
}

static int64_t middle_time(int64_t first, int height) {
  return first + ((int64_t)1 << (height - 1));
}

// -- Searching a gap ---------------------------------------------------------------------------

// A walk over spans in the order of offsets: the end of those before, and the best gap so far.
typedef struct Sweep {
  int64_t end, best, size;
} Sweep;

static const Sweep sweep_begin = {0, -1, INT64_MAX};

static void sweep_over(Sweep *s, int64_t bytes, Span span) {
  int64_t gap = span.begin - s->end;
  if (gap >= bytes && gap < s->size) {
    s->best = s->end;
    s->size = gap;
  }
  s->end = larger(s->end, span.end);
}

static int64_t sweep_best(const Sweep *s) {
  return s->best >= 0 ? s->best : s->end;
}

static void take_spans(Gaps *g, const Spans *s) {
  if (s->n) vec_push(g->arena, &g->source, (Source){s->at, s->at + s->n});
}

// Takes the spans of all blocks of a node that are alive in `life`.
static void take_node(Gaps *g, const Node *n, int64_t first, int height, Life life) {
  int64_t last = last_time(first, height);
  if (!n || life.to < first || last < life.from) return;
  if (life.from <= first && last <= life.to) {
    take_spans(g, &n->any);
    return;
  }
  take_spans(g, &n->whole);
  take_node(g, n->half[0], first, height - 1, life);
  take_node(g, n->half[1], middle_time(first, height), height - 1, life);
}

static void take_conflicts(Gaps *g, const Taken *b) {
  g->source.n = 0;
  const bool *met = &g->meets.pair[mesh_of(b) * g->meets.n];
  for (int i = 0; i < g->meets.n; i++) {
    const Tree *t = &g->tree[i];
    if (!met[i]) continue;
    take_spans(g, &t->always);
    take_node(g, t->root, 0, t->height, b->life);
    if (b->again > 0) take_node(g, t->root, 0, t->height, (Life){0, b->again});
  }
}

// Whether a later occurrence of `a` overlaps the live range of `b`.
static bool meets_again(const Taken *a, const Taken *b) {
  return a->again > 0 && (b->again > 0 || b->life.from <= a->again);
}

static int by_offset(const void *x, const void *y) {
  const Taken *a = *(const Taken *const *)x, *b = *(const Taken *const *)y;
  if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
  return (a > b) - (a < b);
}

// The best offset for a block of no bytes: it fits between touching blocks, which spans do not
// tell apart.
static int64_t best_of_none(Gaps *g, const Taken *b) {
  const Taken **order = arena_array(g->arena, const Taken *, g->block.n);
  int n = 0;
  for (int i = 0; i < g->block.n; i++) {
    const Taken *t = &g->block.at[i];
    bool now = t->life.from <= b->life.to && b->life.from <= t->life.to;
    if ((now || meets_again(t, b) || meets_again(b, t)) && values_meet(&g->meets, t->v, b->v))
      order[n++] = t;
  }
  if (n) qsort(order, (size_t)n, sizeof *order, by_offset);
  Sweep s = sweep_begin;
  for (int i = 0; i < n && s.size > 0; i++)
    sweep_over(&s, 0, (Span){order[i]->offset, order[i]->offset + order[i]->bytes});
  g->looked_at += n;
  return sweep_best(&s);
}

int64_t gaps_best(Gaps *g, const Taken *b) {
  Sweep sweep = sweep_begin;
  g->looked_at = 0;
  if (b->bytes == 0) return best_of_none(g, b);
  take_conflicts(g, b);
  int n = g->source.n;
  Source *source = g->source.at;
  while (n > 0 && sweep.size > b->bytes) { // no gap is better than one of its size
    // The source with the lowest span, until the lowest of the others is before it.
    int64_t lowest = INT64_MAX, other = INT64_MAX;
    Source *first = NULL;
    for (int k = 0; k < n;) {
      Source *s = &source[k];
      while (s->at < s->to && s->at->end <= sweep.end)
        s->at++;
      if (s->at == s->to) {
        *s = source[--n];
        continue;
      }
      if (s->at->begin < lowest) {
        other = lowest;
        lowest = s->at->begin;
        first = s;
      } else if (s->at->begin < other) {
        other = s->at->begin;
      }
      k++;
    }
    for (; first && first->at < first->to && first->at->begin <= other && sweep.size > b->bytes;
         first->at++, g->looked_at++)
      sweep_over(&sweep, b->bytes, *first->at);
  }
  return sweep_best(&sweep);
}

int64_t gaps_looked_at(const Gaps *g) {
  return g->looked_at;
}

// -- Adding a block ----------------------------------------------------------------------------

// Adds a span; those that it touches become one with it.
static void spans_add(Arena *a, Spans *s, Span span) {
  // Those before `low` end before it, those from `high` on begin after it.
  int low = 0, high = s->n;
  while (low < high) {
    int middle = (low + high) / 2;
    if (s->at[middle].end < span.begin)
      low = middle + 1;
    else
      high = middle;
  }
  for (; high < s->n && s->at[high].begin <= span.end; high++) {
    if (s->at[high].begin < span.begin) span.begin = s->at[high].begin;
    span.end = larger(span.end, s->at[high].end);
  }
  if (low == high) {
    vec_push(a, s, span);
    memmove(s->at + low + 1, s->at + low, sizeof *s->at * (size_t)(s->n - 1 - low));
  } else {
    memmove(s->at + low + 1, s->at + high, sizeof *s->at * (size_t)(s->n - high));
    s->n -= high - low - 1;
  }
  s->at[low] = span;
}

static void add_to(Arena *a, Node **at, int64_t first, int height, Life life, Span span) {
  if (!*at) *at = arena_one(a, Node);
  Node *n = *at;
  spans_add(a, &n->any, span);
  if (life.from <= first && last_time(first, height) <= life.to) {
    spans_add(a, &n->whole, span);
    return;
  }
  int64_t middle = middle_time(first, height);
  if (life.from < middle) add_to(a, &n->half[0], first, height - 1, life, span);
  if (life.to >= middle) add_to(a, &n->half[1], middle, height - 1, life, span);
}

static void add(Arena *a, Tree *t, Life life, Span span) {
  if (life.from <= 0 && life.to == INT64_MAX) {
    spans_add(a, &t->always, span);
    return;
  }
  // The tree grows until it has the end of the live range.
  for (; last_time(0, t->height) < life.to; t->height++) {
    if (!t->root) continue;
    Node *n = arena_one(a, Node);
    n->half[0] = t->root;
    for (int i = 0; i < t->root->any.n; i++)
      vec_push(a, &n->any, t->root->any.at[i]);
    t->root = n;
  }
  add_to(a, &t->root, 0, t->height, life, span);
}

void gaps_add(Gaps *g, const Taken *b) {
  Tree *t = &g->tree[mesh_of(b)];
  Span span = {b->offset, b->offset + b->bytes};
  vec_push(g->arena, &g->block, *b);
  add(g->arena, t, b->life, span);
  if (b->again) add(g->arena, t, (Life){0, b->again}, span);
}
