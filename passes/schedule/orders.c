// Checks that orders are consistent with each other, and with the blocks' dependencies.
//
//     op_order(B(0, 0), F(0, 0))    mine.lua:3: error: these blocks would wait for each other
//                                   mine.lua:3: note: B(0, 0) is to run before F(0, 0)
//                                   note: F(0, 0) makes what F(1, 0) needs …
//
// The report is a shortest cycle, found from the first block that could never run.

#include "base/vec.h"
#include "schedule/schedule.h"

typedef struct Graph {
  const Blocks *b;
  const Orders *o;
  Arena *arena;
  int *left;              // per block: unfinished predecessors
  int *then_at, *then_of; // numbers of orders, by their first block
} Graph;

static void list_orders(Graph *g) {
  g->then_at = arena_array(g->arena, int, g->b->n + 2);
  g->then_of = arena_array(g->arena, int, g->o->n);
  for (int i = 0; i < g->o->n; i++)
    g->then_at[g->o->at[i].first + 2]++;
  for (int k = 0; k < g->b->n; k++)
    g->then_at[k + 2] += g->then_at[k + 1];
  for (int i = 0; i < g->o->n; i++)
    g->then_of[g->then_at[g->o->at[i].first + 1]++] = i;
}

// Runs all blocks that can run; the others keep unfinished predecessors.
static void run_all(Graph *g) {
  const Blocks *b = g->b;
  int *ready = arena_array(g->arena, int, b->n), n = 0;
  for (int k = 0; k < b->n; k++)
    g->left[k] = b->work[k]->n_after;
  for (int i = 0; i < g->o->n; i++)
    g->left[g->o->at[i].then]++;
  for (int k = 0; k < b->n; k++)
    if (!g->left[k]) ready[n++] = k;
  // In any order: each block that runs releases others.
  for (int at = 0; at < n; at++) {
    int k = ready[at];
    for (int i = b->next_at[k]; i < b->next_at[k + 1]; i++)
      if (!--g->left[b->next[i]]) ready[n++] = b->next[i];
    for (int i = g->then_at[k]; i < g->then_at[k + 1]; i++) {
      int then = g->o->at[g->then_of[i]].then;
      if (!--g->left[then]) ready[n++] = then;
    }
  }
}

typedef struct Step {
  int from;  // block; -1: not reached
  int order; // the order, or -1: a data dependency
} Step;

// Whether it is an order of the user's, not a data dependency.
static bool is_said(const Graph *g, const Step *s) {
  return s->order >= 0 && g->o->at[s->order].line;
}

// Reports the shortest cycle through a block on one; `stuck` is a block that never runs.
static bool report(const Graph *g, int stuck, const Loc *file, Diag *d) {
  Arena *a = g->arena;
  const Blocks *b = g->b;
  // A block that never runs is on a cycle or after one, and its blocked predecessors lead there.
  int start = stuck, *before = arena_array(a, int, b->n);
  bool *seen = arena_array(a, bool, b->n);
  for (int i = 0; i < g->o->n; i++)
    if (g->left[g->o->at[i].first] > 0) before[g->o->at[i].then] = g->o->at[i].first + 1;
  while (!seen[start]) {
    seen[start] = true;
    int from = before[start] - 1;
    for (int i = b->after_at[start]; from < 0 && i < b->after_at[start + 1]; i++)
      if (g->left[b->after[i]] > 0) from = b->after[i];
    start = from;
  }
  // Breadth-first search from `start` to itself.
  Step *step = arena_array(a, Step, b->n);
  int *queue = arena_array(a, int, b->n), n = 0;
  for (int k = 0; k < b->n; k++)
    step[k].from = -1;
  queue[n++] = start;
  for (int at = 0; at < n && step[start].from < 0; at++) {
    int k = queue[at], n_next = b->next_at[k + 1] - b->next_at[k];
    int n_then = g->then_at[k + 1] - g->then_at[k];
    for (int i = 0; i < n_next + n_then; i++) {
      int order = i < n_next ? -1 : g->then_of[g->then_at[k] + i - n_next];
      int to = i < n_next ? b->next[b->next_at[k] + i] : g->o->at[order].then;
      if (step[to].from >= 0 || g->left[to] <= 0) continue;
      step[to] = (Step){k, order};
      queue[n++] = to;
    }
  }
  Vec(int) circle = {0};
  const Loc *line = file;
  // The steps point backwards; the error is at the line of an order on the cycle, if there is one.
  int k = start;
  do {
    vec_push(a, &circle, k);
    if (is_said(g, &step[k])) line = g->o->at[step[k].order].line;
    k = step[k].from;
  } while (k != start);
  diag_error(d, line, "these %d blocks would wait for each other", circle.n);
  for (int i = circle.n - 1; i >= 0; i--) {
    int to = circle.at[i];
    const char *from = block_text(a, b, step[to].from), *then = block_text(a, b, to);
    if (is_said(g, &step[to]))
      diag_note(d, g->o->at[step[to].order].line, "%s is to run before %s", from, then);
    else
      diag_note(d, file, "%s computes an operand of %s", from, then);
  }
  return false;
}

bool orders_agree(const Blocks *b, const Orders *o) {
  Graph g = {.b = b, .o = o, .arena = arena_new()};
  bool ok = true;
  g.left = arena_array(g.arena, int, b->n);
  list_orders(&g);
  run_all(&g);
  for (int k = 0; k < b->n; k++)
    ok &= g.left[k] <= 0;
  arena_free(g.arena);
  return ok;
}

bool orders_check(const Blocks *b, const Orders *o, const Loc *file, Diag *d) {
  Graph g = {.b = b, .o = o, .arena = arena_new()};
  bool ok = true;
  g.left = arena_array(g.arena, int, b->n);
  list_orders(&g);
  run_all(&g);
  for (int k = 0; k < b->n && ok; k++)
    if (g.left[k] > 0) ok = report(&g, k, file, d);
  arena_free(g.arena);
  return ok;
}
