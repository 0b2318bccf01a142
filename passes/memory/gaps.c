// See gaps.h.
//
// gaps_best merges all classes in the order of offsets and remembers the smallest gap that is large
// enough. gaps_add inserts a block into a run and splits a full run in two; the summary of a run is
// recomputed each time.
//
// Runs do not separate short live ranges: the temporaries of all layers have the same few offsets,
// so each run has blocks of every layer. A class therefore has a second index, by birth. A query
// with few births of the class in its live range collects those instead, and sorts them by offset.

#include "gaps.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

enum { RUN = 64, GROUP = 16, N_CLASSES = 40, MIXED = -1 };

// Of neighbours in the order of offsets.
typedef struct Summary {
  int mesh;                // mesh of all blocks, or MIXED
  Life any;                // from the first birth to the last death
  Life all;                // a live range that overlaps this overlaps every block
  int64_t begin, end, gap; // the extent, and the largest inner gap
} Summary;

// Neighbours in the order of offsets. Most runs are skipped by their summary. The summaries are
// adjacent in memory, apart from the blocks.
typedef struct Run {
  Taken *block; // [RUN]
  int n;
  Summary sum;
} Run;

// A block in the index by birth.
typedef struct Born {
  int64_t offset, end;
  Life life;
  int mesh;
  int next; // in the same bucket, from 1; 0: none
} Born;

typedef struct Span {
  int64_t begin, end;
} Span;

// The bytes of all blocks of a class that conflict with a query: touching ones are merged. Valid
// for queries on `mesh` that are born and die in the two ranges, until the class gets a block.
typedef struct Cover {
  Vec(Span) spans;
  bool valid;
  int mesh;
  Life born, dies;
} Cover;

// Blocks that live between 2^k and 2^(k+1) - 1 ops.
typedef struct Class {
  Cover cover;
  bool by_cover; // the cursor: `at` is a span, and not a block
  Vec(Born) born;
  Vec(int) buckets; // by life.from >> (k + 1): the last of `born`, from 1
  Vec(Run) runs;
  Vec(Summary) groups; // of each GROUP runs
  // The cursor of gaps_best: the blocks of `run` from `at` on are still to be visited. The
  // conflicting block or run found last spans `next` to `end`.
  int run, at;
  int64_t next, end;
} Class;

struct Gaps {
  Arena *arena;
  Meets meets;
  Class class[N_CLASSES];
  const bool *met; // by mesh: whether it has devices of the queried block
  Vec(Born) near;  // conflicts with the queried block, from the indices by birth
  int64_t looked_at;
};

Gaps *gaps_new(Arena *a, Meets meets) {
  Gaps *g = arena_one(a, Gaps);
  g->arena = a;
  g->meets = meets;
  return g;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int mesh_of(const Taken *t) {
  return t->v->layout && t->v->layout->mesh ? t->v->layout->mesh->id : 0;
}

// Extends a summary by that of the blocks after these.
static void summary_add(Summary *s, const Summary *next) {
  s->any.from = smaller(s->any.from, next->any.from);
  s->any.to = larger(s->any.to, next->any.to);
  s->all.from = larger(s->all.from, next->all.from);
  s->all.to = smaller(s->all.to, next->all.to);
  if (next->mesh != s->mesh) s->mesh = MIXED;
  s->gap = larger(s->gap, larger(next->gap, next->begin - s->end));
  s->end = larger(s->end, next->end);
}

static void sum_up(Run *r) {
  // `any` is the hull of the live ranges, `all` their intersection.
  for (int i = 0; i < r->n; i++) {
    const Taken *t = &r->block[i];
    Summary one = {mesh_of(t), t->life, t->life, t->offset, t->offset + t->bytes, 0};
    if (i)
      summary_add(&r->sum, &one);
    else
      r->sum = one;
  }
}

static void sum_up_group(Class *c, int group) {
  Summary *s = &c->groups.at[group];
  for (int i = group * GROUP; i < c->runs.n && i < (group + 1) * GROUP; i++) {
    if (i > group * GROUP)
      summary_add(s, &c->runs.at[i].sum);
    else
      *s = c->runs.at[i].sum;
  }
}

// -- Searching a gap ---------------------------------------------------------------------------

// The queried block has two live ranges if it lives again in the next step.
static bool meets(const Life *a, const Taken *b) {
  bool overlap = a->from <= b->life.to && b->life.from <= a->to;
  return overlap || (b->again > 0 && a->from <= b->again);
}

// Whether none of the blocks conflicts.
static bool is_apart(const Gaps *g, const Summary *s, const Taken *b) {
  return !meets(&s->any, b) || (s->mesh != MIXED && !g->met[s->mesh]);
}

// Whether the blocks are one conflict: all do, and every gap between them is too small.
static bool is_one(const Summary *s, const Taken *b) {
  return meets(&s->all, b) && s->mesh != MIXED && s->gap < b->bytes;
}

// Advances to the next conflicting block, run or group of the class; false at the end.
static bool find_next(const Gaps *g, Class *c, const Taken *b) {
  if (c->by_cover) {
    if (c->at == c->cover.spans.n) return false;
    c->next = c->cover.spans.at[c->at].begin;
    c->end = c->cover.spans.at[c->at++].end;
    return true;
  }
  for (; c->run < c->runs.n; c->run++, c->at = 0) {
    // A group is skipped as a whole, or passed as one conflict; so is a run.
    while (c->at == 0 && c->run < c->runs.n && c->run % GROUP == 0) {
      const Summary *s = &c->groups.at[c->run / GROUP];
      bool apart = is_apart(g, s, b);
      if (!apart && !is_one(s, b)) break;
      c->run += GROUP;
      if (apart) continue;
      c->next = s->begin;
      c->end = s->end;
      return true;
    }
    if (c->run >= c->runs.n) return false;
    const Run *r = &c->runs.at[c->run];
    if (c->at == 0 && is_apart(g, &r->sum, b)) continue;
    if (c->at == 0 && is_one(&r->sum, b)) {
      c->next = r->sum.begin;
      c->end = r->sum.end;
      c->at = r->n;
      return true;
    }
    // The next block that is alive together with `b` on a common device.
    for (; c->at < r->n; c->at++) {
      const Taken *t = &r->block[c->at];
      if (meets(&t->life, b) && (r->sum.mesh != MIXED || g->met[mesh_of(t)])) break;
    }
    if (c->at == r->n) continue;
    c->next = r->block[c->at].offset;
    c->end = c->next + r->block[c->at++].bytes;
    return true;
  }
  return false;
}

// Collects the conflicting blocks of class `k` in `near`; false if the index by birth has most of
// the class in the live range of `b`, or cannot tell.
static bool collect_near(Gaps *g, int k, const Taken *b) {
  Class *c = &g->class[k];
  // The last class has live ranges of any length, and `b` may have two.
  if (c->runs.n <= 1 || k == N_CLASSES - 1 || b->again > 0) return false;
  // A block of this class is shorter than a bucket, so it began in the one before, or later.
  int64_t first = larger((b->life.from >> (k + 1)) - 1, 0);
  int64_t last = smaller(b->life.to >> (k + 1), c->buckets.n - 1);
  int left = c->born.n / 4, n = g->near.n;
  if (last - first > left) return false;
  for (int64_t i = first; i <= last; i++)
    for (int at = c->buckets.at[i]; at; at = c->born.at[at - 1].next) {
      const Born *x = &c->born.at[at - 1];
      if (left-- == 0) {
        g->near.n = n;
        return false;
      }
      if (meets(&x->life, b) && g->met[x->mesh]) vec_push(g->arena, &g->near, *x);
    }
  return true;
}

static bool is_in(int64_t at, const Life *range) {
  return range->from <= at && at <= range->to;
}

// Whether `b` lives longer than the blocks of class `k`; then the cover of the class has its
// conflicts.
static bool find_cover(Gaps *g, int k, const Taken *b) {
  Class *c = &g->class[k];
  Cover *cover = &c->cover;
  // A block of no bytes fits between touching blocks, and `b` may have two live ranges.
  bool longer = k < N_CLASSES - 1 && b->life.to - b->life.from >= (int64_t)2 << k;
  if (c->runs.n <= 1 || !longer || b->bytes == 0 || b->again > 0) return false;
  if (cover->valid && cover->mesh == mesh_of(b) && is_in(b->life.from, &cover->born) &&
      is_in(b->life.to, &cover->dies))
    return true;
  *cover = (Cover){.spans = cover->spans, .valid = true, .mesh = mesh_of(b)};
  cover->spans.n = 0;
  cover->born = cover->dies = (Life){INT64_MIN, INT64_MAX};
  for (int i = 0; i < c->runs.n; i++) {
    const Run *r = &c->runs.at[i];
    bool mixed = r->sum.mesh == MIXED;
    if (!mixed && !g->met[r->sum.mesh]) continue;
    for (int j = 0; j < r->n; j++) {
      const Taken *t = &r->block[j];
      if (mixed && !g->met[mesh_of(t)]) continue;
      // Other queries conflict with the same blocks if none of these comparisons changes.
      if (t->life.from > b->life.to) {
        cover->dies.to = smaller(cover->dies.to, t->life.from - 1);
        continue;
      }
      if (t->life.to < b->life.from) {
        cover->born.from = larger(cover->born.from, t->life.to + 1);
        continue;
      }
      cover->dies.from = larger(cover->dies.from, t->life.from);
      cover->born.to = smaller(cover->born.to, t->life.to);
      Span *last = cover->spans.n ? &cover->spans.at[cover->spans.n - 1] : NULL;
      if (last && t->offset <= last->end)
        last->end = larger(last->end, t->offset + t->bytes);
      else
        vec_push(g->arena, &cover->spans, (Span){t->offset, t->offset + t->bytes});
    }
  }
  return true;
}

static int by_offset(const void *x, const void *y) {
  const Born *a = x, *b = y;
  return (a->offset > b->offset) - (a->offset < b->offset);
}

int64_t gaps_best(Gaps *g, const Taken *b) {
  Class *open[N_CLASSES];
  int n = 0;
  int64_t end = 0, best = -1, size = INT64_MAX;
  g->looked_at = g->near.n = 0;
  g->met = &g->meets.pair[mesh_of(b) * g->meets.n];
  // Each class with a conflicting block enters the merge, by its runs or with blocks in `near`.
  for (int k = 0; k < N_CLASSES; k++) {
    if (collect_near(g, k, b)) continue;
    g->class[k].run = g->class[k].at = 0;
    g->class[k].by_cover = find_cover(g, k, b);
    if (find_next(g, &g->class[k], b)) open[n++] = &g->class[k];
  }
  if (g->near.n > 1) qsort(g->near.at, (size_t)g->near.n, sizeof *g->near.at, by_offset);
  for (int at = 0; n > 0 || at < g->near.n;) {
    // The source with the lowest conflicting block, until the lowest of the others is before it.
    int64_t lowest = at < g->near.n ? g->near.at[at].offset : INT64_MAX, other = INT64_MAX;
    int first = -1; // in `open`, or -1: `near`
    for (int k = 0; k < n; k++) {
      int64_t next = open[k]->next;
      if (next < lowest) {
        other = lowest;
        lowest = next;
        first = k;
      } else if (next < other) {
        other = next;
      }
    }
    // `end` is the end of all blocks before the next one.
    do {
      int64_t gap = lowest - end;
      if (gap >= b->bytes && gap < size) {
        best = end;
        size = gap;
        if (gap == b->bytes) return best; // no gap after it is better
      }
      end = larger(end, first < 0 ? g->near.at[at].end : open[first]->end);
      g->looked_at++;
      if (first < 0 ? ++at == g->near.n : !find_next(g, open[first], b)) {
        if (first >= 0) open[first] = open[--n];
        break;
      }
      lowest = first < 0 ? g->near.at[at].offset : open[first]->next;
    } while (lowest <= other);
  }
  return best >= 0 ? best : end;
}

int64_t gaps_looked_at(const Gaps *g) {
  return g->looked_at;
}

// -- Adding a block ----------------------------------------------------------------------------

// The last run that begins at or before the offset, or the first.
static int run_at(const Class *c, int64_t offset) {
  int low = 0, high = c->runs.n - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (c->runs.at[middle].sum.begin <= offset)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

static Run *insert_run(Gaps *g, Class *c, int at) {
  vec_push(g->arena, &c->runs, (Run){0});
  Run *r = &c->runs.at[at];
  memmove(r + 1, r, sizeof *r * (size_t)(c->runs.n - 1 - at));
  *r = (Run){.block = arena_array(g->arena, Taken, RUN)};
  if (c->groups.n * GROUP < c->runs.n) vec_push(g->arena, &c->groups, (Summary){0});
  return r;
}

static void add_born(Gaps *g, int k, const Taken *b) {
  Class *c = &g->class[k];
  if (k == N_CLASSES - 1) return;
  int64_t bucket = b->life.from >> (k + 1);
  while (c->buckets.n <= bucket)
    vec_push(g->arena, &c->buckets, 0);
  Born born = {b->offset, b->offset + b->bytes, b->life, mesh_of(b), c->buckets.at[bucket]};
  vec_push(g->arena, &c->born, born);
  c->buckets.at[bucket] = c->born.n;
}

static void add(Gaps *g, const Taken *b) {
  // The class is the logarithm of the block's lifetime.
  int k = 0;
  for (int64_t length = b->life.to - b->life.from; length > 1 && k < N_CLASSES - 1; length /= 2)
    k++;
  Class *c = &g->class[k];
  add_born(g, k, b);
  c->cover.valid = false;
  if (!c->runs.n) insert_run(g, c, 0);
  int at = run_at(c, b->offset);
  if (c->runs.at[at].n == RUN) {
    // The second half of a full run moves into a new run.
    Run *next = insert_run(g, c, at + 1), *r = &c->runs.at[at];
    next->n = r->n / 2;
    r->n -= next->n;
    memcpy(next->block, r->block + r->n, sizeof *r->block * (size_t)next->n);
    sum_up(r);
    sum_up(next);
    for (int group = at / GROUP; group < c->groups.n; group++)
      sum_up_group(c, group);
    at = run_at(c, b->offset);
  }
  Run *r = &c->runs.at[at];
  int i = r->n;
  while (i > 0 && r->block[i - 1].offset > b->offset)
    i--;
  // Persistent blocks are adjacent: a block that extends the one before it merges with it.
  Taken *before = i > 0 ? &r->block[i - 1] : NULL;
  if (before && before->offset + before->bytes == b->offset && before->life.from == b->life.from &&
      before->life.to == b->life.to && mesh_of(before) == mesh_of(b)) {
    before->bytes += b->bytes;
  } else {
    memmove(r->block + i + 1, r->block + i, sizeof *r->block * (size_t)(r->n++ - i));
    r->block[i] = *b;
  }
  sum_up(r);
  sum_up_group(c, at / GROUP);
}

void gaps_add(Gaps *g, const Taken *b) {
  add(g, b);
  if (!b->again) return;
  Taken again = *b;
  again.life = (Life){0, b->again};
  add(g, &again);
}
