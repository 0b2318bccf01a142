// Overlap: the reductions of gradients, and of the loss before them, that run beside backward.
//
//     ops           linear_back ── move ── linear_back ───────── linear_back ── move ─ …
//     all_reduces          └── of w3 ──┘ waits    └── of w2 ── of w1 ──┘
//
// An all_reduce on which only the update waits, or no op, runs while backward continues. Transfers
// on which backward waits follow it in the same queue (cost_step.h). So the hidden time depends on
// all choices together, and no sum over nodes and edges can express it. Instead the problem has one
// number: Problem.exposed, the part of each such all_reduce on which the step waits. This file
// computes that number for an answer: it simulates backward as step_cost.c does, with the prices of
// the problem.
//
// With a time axis, gradients are reduced after the last slice, and nothing is hidden.

#include <math.h>
#include <string.h>

#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "overlap/bucket_grads.h"
#include "problem.h"
#include "solved.h"
#include "value_layouts.h"

// Gradients of one layout that wait for their bucket to fill.
typedef struct Waiting {
  const Layout *layout;
  double bytes, cost;
} Waiting;

enum { MAX_WAITING = 16 }; // layouts at a time; gradients of further layouts do not wait

typedef struct Backward {
  const Problem *p;
  const int *choice;
  double now, queued;    // end times of ops and of all_reduces
  double done, reducing; // total time without overlap; the part of all_reduces in it
  Waiting waiting[MAX_WAITING];
  int n_waiting;
} Backward;

static void move(Backward *b, double cost) {
  if (cost <= 0) return;
  b->now = b->queued = fmax(b->now, b->queued) + cost;
  b->done += cost;
}

static void reduce(Backward *b, Waiting *w) {
  b->queued = fmax(b->now, b->queued) + w->cost;
  w->bytes = w->cost = 0;
}

static Waiting *waiting_of(Backward *b, const Layout *layout) {
  for (int i = 0; i < b->n_waiting; i++)
    if (b->waiting[i].layout == layout) return &b->waiting[i];
  if (b->n_waiting == MAX_WAITING) return NULL;
  b->waiting[b->n_waiting] = (Waiting){.layout = layout};
  return &b->waiting[b->n_waiting++];
}

// -- Transfers ---------------------------------------------------------------------------------

static int64_t at_choice(const Backward *b, const Pair *e, const int64_t *cost) {
  int n = b->p->nodes.at[e->to].choices.n;
  return cost ? cost[b->choice[e->from] * n + b->choice[e->to]] : 0;
}

// Returns the edge by which an op reads operand `i`; NULL: there is none.
static const Pair *read_by(const Backward *b, const Op *of, int i) {
  return pair_between(b->p, of->in[i].value, &of->in[i]);
}

static void reduce_results(Backward *b, const Op *of) {
  for (int i = 0; i < of->n_in; i++) {
    const Pair *e = read_by(b, of, i);
    int64_t cost = e && !e->late ? at_choice(b, e, e->reduced) : 0;
    if (cost <= 0) continue;
    const Layout *layout = e->gradient[b->choice[e->to]], *wanted = e->wanted[b->choice[e->from]];
    double bytes = (double)type_bytes(weight_of(of->in[i].value)->type);
    // Fills a bucket as bucket_grads does.
    Waiting alone = {.layout = layout}, *w = waiting_of(b, layout);
    if (!w) w = &alone;
    w->bytes += bytes / fmax(parts_of(layout), parts_of(wanted));
    w->cost += (double)cost;
    b->done += (double)cost;
    b->reducing += (double)cost;
    if (w->bytes >= PACK_BUCKET || w == &alone) reduce(b, w);
  }
}

// -- The whole of backward ---------------------------------------------------------------------

// Runs op number `i` of the gradient of `of`.
static void run_gradient(Backward *b, const Op *of, int i, bool is_last) {
  int node = b->p->op_node[of->id];
  const Node *n = &b->p->nodes.at[node];
  // Transfers before the first op of a gradient: sharded weights are gathered, and the sum of the
  // gradients from all readers of a result is resharded.
  for (int k = 0; i == 0 && k < of->n_out; k++) {
    const Pair *e = pair_between(b->p, of->out[k], NULL);
    if (e) move(b, (double)at_choice(b, e, e->back));
  }
  for (int k = 0; i == 0 && k < of->n_in; k++) {
    const Pair *e = read_by(b, of, k);
    if (e) move(b, (double)at_choice(b, e, e->again));
  }
  // The op itself.
  double cost = i < n->n_gradients ? (double)n->back[i * n->choices.n + b->choice[node]] : 0;
  b->now += cost;
  b->done += cost;
  // The gradients of its operands are resharded.
  for (int k = 0; i == 0 && k < of->n_in; k++) {
    const Pair *e = read_by(b, of, k);
    if (e) move(b, (double)at_choice(b, e, e->back));
  }
  if (is_last) reduce_results(b, of);
}

Overlap overlap_of(const Problem *p, const int *choice) {
  Overlap out = {.exposed = 1};
  if (p->slices > 1) return out;
  Backward *b = arena_one(p->scratch, Backward);
  *b = (Backward){.p = p, .choice = choice};
  // Late reductions, such as that of the loss, are in the queue when backward begins.
  for (int i = 0; i < p->pairs.n; i++) {
    const Pair *e = &p->pairs.at[i];
    double cost = e->late ? (double)(e->n * at_choice(b, e, e->reduced)) : 0;
    b->queued += cost;
    b->done += cost;
    b->reducing += cost;
  }
  // The ops of each gradient.
  int *count = arena_array(p->scratch, int, p->s->g->n_ops);
  for_each_op(op, p->s->g)
    if (p->model_op[op->id]) count[p->model_op[op->id]->id]++;
  // Each op of a gradient; its sums start after the last.
  int *seen = arena_array(p->scratch, int, p->s->g->n_ops);
  for_each_op(op, p->s->g) {
    const Op *of = p->model_op[op->id];
    if (!of || p->op_node[of->id] < 0) continue;
    int i = seen[of->id]++;
    run_gradient(b, of, i, i + 1 == count[of->id]);
  }
  // Buckets that are not full start at the end.
  for (int i = 0; i < b->n_waiting; i++)
    if (b->waiting[i].cost > 0) reduce(b, &b->waiting[i]);
  double hidden = b->done - fmax(b->now, b->queued);
  out.hidden = hidden * p->unit;
  if (b->reducing > 0) out.exposed = fmin(fmax(1 - hidden / b->reducing, 0), 1);
  return out;
}
