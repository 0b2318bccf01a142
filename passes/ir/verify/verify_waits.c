// The absence of deadlocks in a schedule: promise 17 of verify.c.
//
//     run devices=0 F0 get %g1 B0        device 0 sends %h at the end of F0, then gets %g1
//     run devices=1 get %h1 F1 B1        device 1 gets %h, then sends %g at the end of B1
//
// This check uses no times.  Each run does its actions in order.  It also has a queue of its sends
// and receives, which are done in order, too; a send ends when it is received, as in a rendezvous.
// So these are the steps, and the steps that each one waits for:
//
//     an action            the previous action; before a segment, the moves that it needs
//     a move of a slice    for each run that sends or receives it: the action that enqueued it,
//                          and its predecessor in the queue
//     collectives of a     for all its runs: the previous action, and everything in their queues
//     segment with several
//     devices
//
// There is no deadlock if these steps have a topological order.  If not, a cycle is reported.
// Devices of one run are treated as one: a move of some of them waits for all.
//
// A compiled program waits less.  It has one queue for moves and another for the collectives of
// segments (rt/README.md), so any order found here is an order there: each of its queues is a
// subsequence of this one.  In some cases it has a single queue, as in this model: ranks that are
// threads with GPUs, and processes that share a GPU, synchronise move by move in the order of their
// calls, and so do all ranks the first time, when NCCL connects them.

#include "ir/analysis/deferred.h"
#include "ir/op.h"
#include "verify.h"
#include "verify_schedule.h"

typedef struct Edge {
  int from, to; // steps: `to` waits for `from`
} Edge;

typedef struct Waits {
  Scheduled *s;
  int *action_at; // the first step of each run's actions
  int move_at;    // the first move, slice by slice
  int meet_at;    // the first collective step of a segment
  int n;          // steps
  bool *meets;    // by segment: whether its devices communicate
  Vec(Edge) edge;
} Waits;

static void add_edge(Waits *w, int from, int to) {
  Edge edge = {from, to};
  if (from >= 0) vec_push(w->s->arena, &w->edge, edge);
}

static int move_step(const Waits *w, int move, int slice) {
  return w->move_at + slice * w->s->ahead.n + move;
}

// -- Edges between steps -----------------------------------------------------------------------

// The state of one run.
typedef struct Runner {
  const RankRun *run;
  int step, queue; // the last action, and the last step in the queue; -1: none
  int *count, *got;
} Runner;

static void put_in_queue(Waits *w, Runner *r, int step) {
  add_edge(w, r->step, step);
  add_edge(w, r->queue, step);
  r->queue = step;
}

static void follow_run(Waits *w, int which) {
  const Scheduled *s = w->s;
  const RankRun *run = &s->g->schedule->run.at[which];
  Runner r = {run, -1, -1, arena_array(s->arena, int, s->n + 1),
              arena_array(s->arena, int, s->ahead.n)};
  // All devices of a run have the same operands, so the first one stands for all.
  int device = run->device[0];
  int *start = arena_array(s->arena, int, s->ahead.n); // the segment at whose end it sends; or 0
  for (int i = 0; i < s->ahead.n; i++) {
    const Op *move = s->ahead.at[i], *made = move->in[0].value->def;
    bool ours = mesh_has(move->in[0].value->layout->mesh, device);
    // Runs send a value of the outside at different times, if they are several.
    if (ours && !(made && made->segment)) ours = move_sends(move, run->device, run->n_devices);
    if (ours) start[i] = move_start(move, run);
  }
  const BySegment sends = group_by_segment(s, start, s->ahead.n), *needs = &s->ahead_in;
  for (int at = 0; at < run->action.n; at++) {
    int step = w->action_at[which] + at, segment = run->action.at[at].segment;
    // A get enqueues the move on the receiving run.
    if (!segment) {
      int move = s->ahead_of[run->action.at[at].get->id] - 1;
      add_edge(w, r.step, step);
      r.step = step;
      put_in_queue(w, &r, move_step(w, move, r.got[move]++));
      continue;
    }
    int slice = r.count[segment]++;
    int meets = w->meets[segment] ? w->meet_at + slice * s->n + segment - 1 : -1;
    // The segment, or its collectives, wait for the moves that it needs.
    for (int i = needs->at[segment]; i < needs->at[segment + 1]; i++) {
      int move = needs->item[i];
      if (mesh_has(s->ahead.at[move]->out[0]->layout->mesh, device))
        add_edge(w, move_step(w, move, slice), meets < 0 ? step : meets);
    }
    // Collectives also wait for the queue.
    if (meets >= 0) put_in_queue(w, &r, meets);
    add_edge(w, meets, step);
    add_edge(w, r.step, step);
    r.step = step;
    // At its end, the segment enqueues its sends.
    for (int i = sends.at[segment]; i < sends.at[segment + 1]; i++)
      put_in_queue(w, &r, move_step(w, sends.item[i], slice));
  }
}

// -- Cycles ------------------------------------------------------------------------------------

// Adjacency lists of steps: predecessors or successors.
typedef struct Lists {
  int *at, *step; // the list of step i: step[at[i] … at[i + 1]]
} Lists;

static Lists list_edges(const Waits *w, bool back) {
  Arena *a = w->s->arena;
  Lists l = {arena_array(a, int, w->n + 2), arena_array(a, int, w->edge.n)};
  for (int i = 0; i < w->edge.n; i++)
    l.at[(back ? w->edge.at[i].to : w->edge.at[i].from) + 2]++;
  // Counts are two places ahead, so that filling the lists leaves `at` as their starts.
  for (int i = 0; i < w->n; i++)
    l.at[i + 2] += l.at[i + 1];
  for (int i = 0; i < w->edge.n; i++) {
    const Edge *e = &w->edge.at[i];
    l.step[l.at[(back ? e->to : e->from) + 1]++] = back ? e->from : e->to;
  }
  return l;
}

static int *run_steps(const Waits *w) {
  Arena *a = w->s->arena;
  Lists next = list_edges(w, false);
  int *left = arena_array(a, int, w->n), *ready = arena_array(a, int, w->n), n = 0;
  // The number of steps that each one waits for.
  for (int i = 0; i < w->edge.n; i++)
    left[w->edge.at[i].to]++;
  for (int i = 0; i < w->n; i++)
    if (!left[i]) ready[n++] = i;
  // A step that has run releases its successors.
  for (int at = 0; at < n; at++)
    for (int i = next.at[ready[at]]; i < next.at[ready[at] + 1]; i++)
      if (!--left[next.step[i]]) ready[n++] = next.step[i];
  return n < w->n ? left : NULL;
}

static const char *step_text(const Waits *w, int step) {
  const Scheduled *s = w->s;
  const Schedule *all = s->g->schedule;
  Arena *a = s->arena;
  // Steps are numbered: actions of the runs, then moves, then collectives.
  if (step >= w->meet_at)
    return str_format(a, "what ranks do together in %s of slice %d",
                      segment_name(s->g, (step - w->meet_at) % s->n + 1),
                      (step - w->meet_at) / s->n);
  if (step >= w->move_at)
    return str_format(a, "the move to %s of slice %d",
                      value_text(a, s->ahead.at[(step - w->move_at) % s->ahead.n]->out[0]),
                      (step - w->move_at) / s->ahead.n);
  int r = all->run.n - 1;
  while (w->action_at[r] > step)
    r--;
  const RankRun *run = &all->run.at[r];
  const Action *action = &run->action.at[step - w->action_at[r]];
  // The slice is the number of the same actions before.
  int k = 0;
  for (int i = 0; i < step - w->action_at[r]; i++)
    k += run->action.at[i].segment == action->segment && run->action.at[i].get == action->get;
  // A get of a value, or a segment.
  if (action->get)
    return str_format(a, "device %d's get of %s of slice %d", run->device[0],
                      value_text(a, action->get), k);
  return str_format(a, "device %d's %s of slice %d", run->device[0],
                    segment_name(s->g, action->segment), k);
}

// Reports a cycle, found backwards from a step that cannot run.
static bool report(const Waits *w, const int *left, Diag *d) {
  Arena *a = w->s->arena;
  Lists before = list_edges(w, true);
  bool *seen = arena_array(a, bool, w->n);
  int step = 0;
  while (!left[step])
    step++;
  // Round 0 goes back until a step repeats, which is in a cycle; round 1 prints the cycle.
  for (int round = 0; round < 2; round++) {
    int start = step;
    bool again = false;
    if (round == 1) diag_error(d, NULL, "the schedule of '@%s' waits for itself", w->s->g->name);
    do {
      int i = before.at[step];
      while (!left[before.step[i]])
        i++;
      if (round == 1)
        diag_note(d, NULL, "%s waits for %s", step_text(w, step), step_text(w, before.step[i]));
      seen[step] = true;
      step = before.step[i];
      again = round == 0 ? seen[step] : step == start;
    } while (!again);
  }
  return false;
}

bool verify_waits(Scheduled *s, Diag *d) {
  Waits w = {.s = s};
  const Schedule *all = s->g->schedule;
  // The numbers of the steps: actions of the runs, then moves, then collectives.
  w.action_at = arena_array(s->arena, int, all->run.n);
  for (int i = 0; i < all->run.n; i++) {
    w.action_at[i] = w.n;
    w.n += all->run.at[i].action.n;
  }
  w.move_at = w.n;
  w.n += s->ahead.n * s->slices;
  w.meet_at = w.n;
  w.n += s->n * s->slices;
  // Segments whose devices communicate; moves that are ahead have steps of their own.
  w.meets = arena_array(s->arena, bool, s->n + 1);
  for_each_op(op, s->g) {
    if (!op->segment || s->mesh[op->segment]->n_devices <= 1) continue;
    w.meets[op->segment] |= op_meets_others(op) && !(op_info[op->kind].traits & ACCUMULATES) &&
                            (op->kind != OP_move || !move_is_ahead(op));
  }
  for (int i = 0; i < all->run.n; i++)
    follow_run(&w, i);
  const int *left = run_steps(&w);
  return !left || report(&w, left, d);
}
