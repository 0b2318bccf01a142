// Pipeline schedule: the order in which ranks run the segments of a loop over time slices.
//
//     slice by slice         stage 0   F0 ── ── B0 F0 ── ── B0 …          stages take turns
//                            stage 1      F1 B1 ──    F1 B1 ──
//
//     run devices=0 F0*2 (get %g B0 F0)*6 (get %g B0)*2                   they do not
//     run devices=1 (get %h)*2 (F1 B1 get %h)*6 (F1 B1)*2
//
// Segments (segments.h) are the works of a pipeline, with the times of their ops and moves as
// estimated on the cluster. A kind (schedule/kinds), such as 1F1B, orders the works of its stages,
// and list scheduling completes these orders. `search` looks for the shortest schedule in the
// memory that 1F1B takes. No slice overtakes another in a segment. The result is a timeline, of
// which only the order is kept:
//
//     a run   has its segments in the order in which they end
//     a move  starts at the end of the segment that produces its operand; a rank that only receives it
//             begins to wait before the first of its own segments that ends later
//     common  to all stages, such as a mask: each rank runs it right before its first other segment of
//             the slice, and waits for no other rank; a value that it sends takes its turn after the
//             rank's segment before it
//     update  after the loop, ops that wait for no other stage come first, then those that wait for
//             one hop, and so on: a stage that ends early reduces its own gradients meanwhile
//
// So the queues of all ranks are in one order, that of these ends, and every action follows the
// actions that it waits for: there is no deadlock. The verifier checks that again, without times.
// An early wait costs nothing: moves have a queue of their own, and no collective of a segment
// follows in it a move that is not yet sent (cost_step.h).
//
// The kind is the pass's option, else the plan's (`schedule` of a program), else 1F1B. If that
// default does not fit, there is no schedule, and slices run one by one, with a warning.
//
// A single slice has a schedule if its halves take different routes through the stages, as in
// chimera: a rank works on one half while the other waits. Other kinds leave a rank no choice in
// one slice, and the order is that of the graph's ops.
//
// A graph with its whole loop on the same devices has no schedule, nor has @eval.

#include "schedule/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/collectives.h"
#include "cost/cost.h"
#include "cost/cost_comm.h"
#include "fit_kind.h"
#include "ir/analysis/live_ranges.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "ir/verify/verify_schedule.h"
#include "pass.h"
#include "unstash.h"

typedef struct Move {
  const Op *op;
  int from; // segment that produces the operand, from 0: it starts at its end; -1: none
  double seconds;
} Move;

typedef struct Scheduler {
  Graph *g;
  Arena *arena;
  const Cluster *cluster; // NULL: unknown
  Segments segments;
  Fit fit;       // of the kind
  int *class_of; // by position in `device`: devices on the same meshes are one class
  int n_classes, n_devices, *device, *first; // `first`: a device of each class
  int *of_class;                             // a position of each class
  bool *leads; // by segment: a class runs it right before its first other one of the slice
  Vec(Move) move;
  Pipeline *pipeline;
  Blocks *blocks;
  Orders orders;
  double room;
  Timeline timeline;
} Scheduler;

// -- Classes -----------------------------------------------------------------------------------

// -- Works -------------------------------------------------------------------------------------

static void find_after(const Scheduler *s, Work *work) {
  int n = s->segments.n;
  double *latency = arena_array(s->arena, double, (int64_t)n *n);
  // -1: no dependence.
  for (int i = 0; i < n * n; i++)
    latency[i] = -1;
  // A segment reads a value of another at no cost on the same devices.
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_in; i++) {
      const Op *made = op->in[i].value->def;
      int to = s->segments.of[op->id] - 1, from = made ? s->segments.of[made->id] - 1 : -1;
      if (to < 0 || from < 0 || from == to) continue;
      latency[to * n + from] = fmax(latency[to * n + from], 0);
    }
  // A transfer takes its time.
  for (int i = 0; i < s->move.n; i++) {
    const Move *move = &s->move.at[i];
    double *at = &latency[(s->segments.of[move->op->id] - 1) * n + move->from];
    if (move->from >= 0) *at = fmax(*at, move->seconds);
  }
  // Each segment waits for those with a latency.
  for (int k = 0; k < n; k++) {
    Work *one = &work[k];
    const double *from = &latency[k * n];
    WorkAfter *after = arena_array(s->arena, WorkAfter, s->segments.n);
    for (int i = 0; i < s->segments.n; i++)
      if (from[i] >= 0) after[one->n_after++] = (WorkAfter){i, from[i]};
    one->after = after;
  }
}

// Whether the forward has gradients, so that its activations are saved.
static bool goes_back(const Segments *all, int forward) {
  for (int i = 0; i < all->n; i++)
    if (all->at[i].kind != WORK_F && all->at[i].stage == all->at[forward].stage &&
        all->at[i].set == all->at[forward].set)
      return true;
  return false;
}

// Whether the move starts before its segment.  One within a segment, such as a step of a route over
// nodes, does not; ops have no segments yet.
static bool starts_ahead(const Scheduler *s, const Op *op) {
  const Op *made = move_is_ahead(op) ? op->in[0].value->def : NULL;
  return move_is_ahead(op) && !(made && s->segments.of[made->id] == s->segments.of[op->id]);
}

static bool is_on(const Scheduler *s, int segment, int class) {
  return mesh_has(s->segments.at[segment].mesh, s->first[class]);
}

// Finds the common forwards that each class may run by itself, without the others: they have no
// communication, and the class has other segments. As blocks of all devices they would make stages
// wait for each other in every slice.
static void find_leading(Scheduler *s) {
  const Segments *all = &s->segments;
  for (int i = 0; i < all->n; i++)
    s->leads[i] = all->at[i].kind == WORK_F && all->at[i].is_common && !all->at[i].is_relay &&
                  all->at[i].set != s->fit.embedding;
  for_each_op(op, s->g)
    if (all->of[op->id] && op_is_collective(op)) s->leads[all->of[op->id] - 1] = false;
  for (int i = 0; i < s->move.n; i++)
    if (s->move.at[i].from >= 0) s->leads[s->move.at[i].from] = false;
  for (int c = 0; c < s->n_classes; c++) {
    bool has_others = false;
    for (int i = 0; i < all->n; i++)
      has_others |= is_on(s, i, c) && !all->at[i].is_common;
    for (int i = 0; i < all->n && !has_others; i++)
      s->leads[i] &= !is_on(s, i, c);
  }
  // It reads such ones only, which are before it.
  const bool *reads = segments_reads(all, s->g, s->arena);
  for (int i = 0; i < all->n; i++)
    for (int from = 0; from < all->n; from++)
      s->leads[i] &= !reads[i * all->n + from] || (from <= i && s->leads[from]);
}

// Gives the time of leading segments to the first forward of each class.
static void add_leading(const Scheduler *s, double *time) {
  const Segments *all = &s->segments;
  double *more = arena_array(s->arena, double, all->n);
  for (int c = 0; c < s->n_classes; c++) {
    double sum = 0;
    int first = 0;
    for (int i = 0; i < all->n; i++)
      if (s->leads[i] && is_on(s, i, c)) sum += time[i];
    while (first < all->n && (all->at[first].is_common || all->at[first].is_relay ||
                              all->at[first].kind != WORK_F || !is_on(s, first, c)))
      first++;
    if (first < all->n) more[first] = fmax(more[first], sum);
  }
  for (int i = 0; i < all->n; i++)
    time[i] = s->leads[i] ? 0 : time[i] + more[i];
}

static void make_pipeline(Scheduler *s, bool split) {
  const Segments *all = &s->segments;
  Work *work = arena_array(s->arena, Work, all->n);
  // The time of each segment. Without a cluster, segments of a kind take equally long, and a
  // backward twice as long as a forward.
  double *time = arena_array(s->arena, double, s->segments.n);
  CommPrices *prices = s->cluster ? comm_prices_new(s->arena, s->cluster) : NULL;
  for (int i = 0; i < s->segments.n && !s->cluster; i++)
    time[i] = s->segments.at[i].kind == WORK_B && !split ? 2 : 1;
  for_each_op(op, s->g) {
    int k = s->segments.of[op->id] - 1;
    if (k < 0 || !s->cluster || (op_info[op->kind].traits & VIEW)) continue;
    if (!op_is_collective(op))
      time[k] += op_seconds(s->cluster, op);
    else if (!starts_ahead(s, op))
      time[k] += comm_price(prices, op)->cost.seconds;
  }
  if (s->cluster) add_leading(s, time);
  // Orders are those of ends, and a segment of no time would end together with its predecessors.
  double least = 0;
  for (int i = 0; i < s->segments.n; i++)
    least = fmax(least, 1e-6 * time[i]);
  for (int i = 0; i < s->segments.n; i++)
    time[i] = fmax(time[i], least > 0 ? least : 1);
  // A segment runs on all classes of devices of its mesh.
  for (int i = 0; i < all->n; i++) {
    const Segment *k = &all->at[i];
    int *on = arena_array(s->arena, int, s->n_classes);
    work[i] = (Work){.kind = k->kind, .stage = k->stage, .pass = 1, .time = time[i], .device = on};
    for (int c = 0; c < s->n_classes && !s->leads[i]; c++)
      if (mesh_has(k->mesh, s->first[c])) on[work[i].n_devices++] = c;
  }
  find_after(s, work);
  // A forward takes its share of a slice on its devices, and its last backward frees it.
  for (int i = 0; i < all->n; i++) {
    int shares = 0, last = -1;
    if (all->at[i].kind != WORK_F || all->at[i].is_common || all->at[i].is_relay) continue;
    for (int k = 0; k < all->n; k++) {
      shares += !all->at[k].is_relay && all->at[k].kind == WORK_F &&
                all->at[k].set == all->at[i].set && goes_back(all, k);
      if (all->at[k].kind != WORK_F && all->at[k].stage == all->at[i].stage &&
          all->at[k].set == all->at[i].set)
        last = k;
    }
    if (last < 0) continue;
    work[i].takes = 1.0 / shares;
    work[last].frees = 1.0 / shares;
  }
  Route *route = arena_one(s->arena, Route);
  *route = (Route){work, all->n};
  int slices = module_slices(s->g->module);
  s->pipeline = arena_one(s->arena, Pipeline);
  *s->pipeline = (Pipeline){s->n_classes, slices, route, 1, arena_array(s->arena, int, slices), 1};
  s->blocks = blocks_new(s->arena, s->pipeline);
}

// -- Orders ------------------------------------------------------------------------------------

static void add_order(Scheduler *s, int first, int then, const Loc *line) {
  Order order = {first, then, line};
  vec_push(s->arena, &s->orders, order);
}

// In blocks tried: about a second.
#define SEARCH_WORK INT64_C(20000000)

// Transfers that start ahead of their readers delay segments.
static void find_moves(Scheduler *s) {
  CommPrices *prices = s->cluster ? comm_prices_new(s->arena, s->cluster) : NULL;
  for_each_op(op, s->g) {
    if (!s->segments.of[op->id] || !starts_ahead(s, op)) continue;
    const Op *made = op->in[0].value->def;
    Move move = {.op = op, .from = made ? s->segments.of[made->id] - 1 : -1};
    if (prices) move.seconds = comm_price(prices, op)->cost.seconds;
    vec_push(s->arena, &s->move, move);
  }
}

// Slices go through each segment in order.
static void order_slices(Scheduler *s) {
  int n = s->segments.n;
  for (int k = 0; k + n < s->blocks->n; k++)
    add_order(s, k, k + n, NULL);
}

// The kind's orders of its own blocks become orders of ours.
static void order_by_kind(Scheduler *s) {
  const Fitted *fitted = fit_segments(&s->fit);
  const Blocks *b = s->fit.plan->blocks;
  Orders orders = fit_orders(&s->fit, fitted);
  for (int i = 0; i < orders.n; i++) {
    const Order *o = &orders.at[i];
    int first_slice, then_slice;
    const SegmentList *first = fitted_to(fitted, b, o->first, &first_slice);
    const SegmentList *then = fitted_to(fitted, b, o->then, &then_slice);
    for (int x = 0; x < first->n; x++)
      for (int y = 0; y < then->n; y++) {
        int one = s->blocks->first[first_slice] + first->at[x],
            other = s->blocks->first[then_slice] + then->at[y];
        bool shared = work_shares_device(&s->pipeline->route->work[first->at[x]],
                                         &s->pipeline->route->work[then->at[y]]);
        if (one != other && shared) add_order(s, one, other, o->line);
      }
  }
}

// The search has the memory of 1F1B.
static bool search_timeline(Scheduler *s) {
  s->room = fit_places(&s->fit);
  SearchResult r = schedule_search(s->arena, s->blocks, &s->orders, s->room, INFINITY,
                                   (SearchLimit){SEARCH_WORK, INFINITY});
  s->timeline = r.best;
  return r.has || fit_declined(&s->fit, "nothing is found in the memory of 1f1b");
}

// The best timeline of the list rules.
static bool list_timeline(Scheduler *s) {
  bool found = false;
  for (int i = 0; i < N_LIST_RULES; i++) {
    ListRule rule = list_rules[i];
    Timeline t;
    rule.room = s->room;
    if (!schedule_list(s->arena, s->blocks, &s->orders, &rule, &t)) continue;
    if (found && t.makespan >= s->timeline.makespan) continue;
    found = true;
    s->timeline = t;
  }
  return found || fit_declined(&s->fit, "it finds no way in the room that it wants");
}

static bool find_timeline(Scheduler *s) {
  bool searches = !s->fit.read.text;
  if (searches && s->fit.slices == 1) return false;
  if (!searches && !fit_kind(&s->fit)) return false;
  bool split = searches || s->fit.plan->shape.split;
  if (split) s->segments = segments_find(s->g, true, fit_by_piece(&s->fit), s->arena);
  find_moves(s);
  s->leads = arena_array(s->arena, bool, s->segments.n);
  if (!searches) find_leading(s);
  make_pipeline(s, split);
  order_slices(s);
  if (searches) return search_timeline(s);
  // Each of two routes has half of a slice.
  s->room = s->fit.plan->room * s->fit.pieces / s->fit.ways;
  order_by_kind(s);
  if (!orders_agree(s->blocks, &s->orders))
    return fit_declined(&s->fit, "its orders contradict the dependences of stages");
  return list_timeline(s);
}

// -- The schedule ------------------------------------------------------------------------------

typedef struct Ended {
  double end;
  int block;
} Ended;

static int by_end(const void *x, const void *y) {
  const Ended *a = x, *b = y;
  if (a->end != b->end) return a->end < b->end ? -1 : 1;
  return a->block - b->block;
}

typedef struct Get {
  int position, move; // move_position of the move
} Get;

static int by_position(const void *x, const void *y) {
  const Get *a = x, *b = y;
  if (a->position != b->position) return a->position < b->position ? -1 : 1;
  return a->move - b->move;
}

static int by_op(const void *x, const void *y) {
  const Move *a = x, *b = y;
  return a->op->id < b->op->id ? -1 : 1;
}

static bool class_sends(const Scheduler *s, const Op *move, int class) {
  for (int i = 0; i < s->n_devices; i++)
    if (s->class_of[i] == class && move_sends(move, &s->device[i], 1)) return true;
  return false;
}

static bool is_hop(const Op *op) {
  if (op->kind != OP_move || !op->in[0].value->layout || !op->out[0]->layout) return false;
  return !mesh_same_devices(op->in[0].value->layout->mesh, op->out[0]->layout->mesh);
}

// Moves ops of the update after those that wait for fewer hops from other stages, else in their
// order: a stage that ends early reduces its own gradients, instead of waiting for the others. A
// plan's order stays.
static void order_update(const Scheduler *s, const bool *update) {
  int *hops = arena_array(s->arena, int, s->g->n_ops), most = 0;
  Vec(Op *) ops = {0};
  for_each_op(op, s->g) {
    if (!update[op->id]) continue;
    if (op->order) return;
    vec_push(s->arena, &ops, op);
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      if (def && update[def->id] && hops[def->id] > hops[op->id]) hops[op->id] = hops[def->id];
    }
    hops[op->id] += is_hop(op);
    most = hops[op->id] > most ? hops[op->id] : most;
  }
  for (int k = 0; k <= most; k++)
    for (int i = 0; i < ops.n; i++)
      if (hops[ops.at[i]->id] == k) op_move_before(ops.at[i], NULL);
}

// The rank of each block in the order of ends.
static int *rank_blocks(const Scheduler *s) {
  int n = s->blocks->n, *rank = arena_array(s->arena, int, n);
  Ended *ended = arena_array(s->arena, Ended, n);
  for (int i = 0; i < n; i++)
    ended[i] = (Ended){s->timeline.end[i], i};
  qsort(ended, (size_t)n, sizeof *ended, by_end);
  for (int i = 0; i < n; i++)
    rank[ended[i].block] = i;
  return rank;
}

// Sorts the ops: begin, segments, update. Returns the number of each segment in the graph.
static int *write_segments(const Scheduler *s) {
  Graph *g = s->g;
  int *number = arena_array(s->arena, int, s->segments.n);
  for (int i = 0; i < s->segments.n; i++)
    number[i] = schedule_segment(g, s->segments.at[i].name);
  const bool *update = graph_update_ops(g, s->arena);
  Vec(Op *) *part = arena_alloc(s->arena, (size_t)(s->segments.n + 2) * sizeof *part);
  memset(part, 0, (size_t)(s->segments.n + 2) * sizeof *part);
  for_each_op(op, g) {
    int segment = s->segments.of[op->id];
    if (segment) op->segment = number[segment - 1];
    vec_push(s->arena, &part[update[op->id] ? s->segments.n + 1 : segment], op);
  }
  for (int k = 0; k < s->segments.n + 2; k++)
    for (int i = 0; i < part[k].n; i++)
      op_move_before(part[k].at[i], NULL);
  order_update(s, update);
  graph_renumber(g);
  return number;
}

// The position of a class's leading segments of a slice: after its block before the slice, which
// may send, and before all that ends later. In the first slice no block is before, and classes
// follow each other.
static int lead_position(const Scheduler *s, int class, int slice, const int *rank) {
  const Timeline *t = &s->timeline;
  int i = t->at[class];
  while (i < t->at[class + 1] && t->block[i] / s->segments.n != slice)
    i++;
  return i > t->at[class] ? 2 * rank[t->block[i - 1]] + 1 : class - s->n_classes;
}

static bool has_leading(const Scheduler *s, int class) {
  for (int k = 0; k < s->segments.n; k++)
    if (s->leads[k] && is_on(s, k, class)) return true;
  return false;
}

// The position of a transfer's start, at the end of a block: twice the rank of this block. A value
// that no segment produces is sent at the end of its sender's first segment, which may be a leading
// one.
static int move_position(const Scheduler *s, const Move *move, int slice, const int *rank) {
  const Timeline *t = &s->timeline;
  int n = s->segments.n, from = move->from;
  for (int c = 0; c < s->n_classes && from < 0; c++) {
    if (t->at[c] == t->at[c + 1] || !class_sends(s, move->op, c)) continue;
    if (has_leading(s, c)) return lead_position(s, c, slice, rank);
    from = t->block[t->at[c]] % n;
  }
  return 2 * rank[slice * n + (from < 0 ? 0 : from)];
}

// The transfers to a class from other devices, in the order in which they start.
static Get *gets_of_class(const Scheduler *s, int class, const int *rank, int *n) {
  int slices = module_slices(s->g->module);
  Get *gets = arena_array(s->arena, Get, slices * s->move.n);
  *n = 0;
  for (int i = 0; i < s->move.n; i++) {
    const Op *op = s->move.at[i].op;
    if (!mesh_has(op->out[0]->layout->mesh, s->first[class]) ||
        mesh_has(op->in[0].value->layout->mesh, s->first[class]))
      continue;
    for (int m = 0; m < slices; m++)
      gets[(*n)++] = (Get){move_position(s, &s->move.at[i], m, rank), i};
  }
  qsort(gets, (size_t)*n, sizeof *gets, by_position);
  return gets;
}

// Adds the transfers that start before a position.
static void write_gets(const Scheduler *s, const Get *gets, int n, int before, int *at,
                       RankRun *run) {
  for (; *at < n && gets[*at].position < before; ++*at)
    vec_push(s->g->module->arena, &run->action,
             ((Action){.get = s->move.at[gets[*at].move].op->out[0]}));
}

// A class runs its segments in order; transfers to it start as soon as they can.
static void write_run(const Scheduler *s, int class, const int *number, const int *rank) {
  Arena *a = s->g->module->arena;
  const Timeline *t = &s->timeline;
  int n_gets, at = 0, n = s->segments.n;
  if (t->at[class] == t->at[class + 1]) return;
  Get *gets = gets_of_class(s, class, rank, &n_gets);
  RankRun run = {.device = arena_array(a, int, s->n_devices)};
  for (int i = 0; i < s->n_devices; i++)
    if (s->class_of[i] == class) run.device[run.n_devices++] = s->device[i];
  bool *begun = arena_array(s->arena, bool, module_slices(s->g->module));
  bool leading = has_leading(s, class);
  for (int i = t->at[class]; i < t->at[class + 1]; i++) {
    int slice = t->block[i] / n;
    if (!begun[slice] && leading)
      write_gets(s, gets, n_gets, lead_position(s, class, slice, rank), &at, &run);
    for (int k = 0; k < n && !begun[slice]; k++)
      if (s->leads[k] && is_on(s, k, class))
        vec_push(a, &run.action, ((Action){.segment = number[k]}));
    begun[slice] = true;
    write_gets(s, gets, n_gets, 2 * rank[t->block[i]], &at, &run);
    vec_push(a, &run.action, ((Action){.segment = number[t->block[i] % n]}));
  }
  vec_push(a, &graph_schedule(s->g)->run, run);
}

static void write_schedule(const Scheduler *s) {
  const int *rank = rank_blocks(s), *number = write_segments(s);
  // Moves that start at the end of one segment do so in graph order.
  if (s->move.n) qsort(s->move.at, (size_t)s->move.n, sizeof *s->move.at, by_op);
  for (int c = 0; c < s->n_classes; c++)
    write_run(s, c, number, rank);
}

static void take_back(Graph *g) {
  for_each_op(op, g)
    op->segment = 0;
  g->schedule = NULL;
}

// A value that each slice has and that is read after the loop, or NULL: its slice would be
// undefined.
static const Value *lost_value(const Graph *g) {
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++) {
      const Layout *l = op->out[i]->layout;
      for (int axis = 0; axis < l->n_axes; axis++)
        if (l->mesh->axis[axis].time && l->axis[axis].kind != SBP_B && value_escapes(op->out[i]))
          return op->out[i];
    }
  return NULL;
}

// Checks that the schedule is possible. A value that no segment produces cannot be sent before the
// first segment, and ops with turns from the plan may not fit into one.
static bool check(const Scheduler *s) {
  // The slice of such a value would be undefined.
  if (lost_value(s->g)) {
    fit_declined(&s->fit, "something that each micro-batch makes is read after the last");
  } else if (!graph_out_of_order(s->g)) {
    // Errors count only if the plan asks for the schedule.
    bool quiet = s->fit.asked ? false : diag_quiet(s->fit.d, true);
    bool ok = verify_schedule(s->g, s->fit.d);
    if (!s->fit.asked) diag_quiet(s->fit.d, quiet);
    if (ok) return true;
    if (!s->fit.asked)
      diag_warning(s->fit.d, NULL,
                   "stages take turns: in a schedule by which they work at the same time, some "
                   "would wait for each other");
  } else {
    fit_declined(&s->fit, "the first op of op_order is in a later segment");
  }
  // Ops are in no segment again.
  take_back(s->g);
  return false;
}

// -- The pass ----------------------------------------------------------------------------------

// Reports an asynchronous kind for a graph that `stash_weights` has not prepared.
static bool check_nature(Scheduler *s, Diag *d) {
  ScheduleNature nature;
  if (!schedule_nature(s->arena, &s->fit.read, &nature, d)) return false;
  s->fit.pieces = nature.pieces;
  s->fit.asynchronous = nature.asynchronous;
  for (int i = 0; nature.asynchronous && i < s->g->n_params; i++)
    if (s->g->params[i]->each_slice) return true;
  return !nature.asynchronous ||
         diag_error(d, s->fit.loc,
                    "the schedule '%s' is asynchronous, and weights are updated once in a step: a "
                    "plan must ask for it, before pass 'stash_weights'",
                    s->fit.kind);
}

// Whether two devices are on the same meshes.
static bool on_same_meshes(const Module *m, int a, int b) {
  for_each_mesh(mesh, m)
    if (mesh_has(mesh, a) != mesh_has(mesh, b)) return false;
  return true;
}

bool pass_schedule(Module *m, const PassOptions *o, Diag *d) {
  Graph *g = module_first_entry(m);
  const char *kind = opt_str(o, "kind");
  const Loc *loc = kind ? NULL : m->schedule_loc;
  bool ok, asked;
  // The kind, and whether it was requested: the default may be dropped without an error.
  if (!kind && m->schedule) kind = str_copy(opt_scratch(o), m->schedule);
  m->schedule = NULL; // from here on the graph has it
  m->schedule_loc = NULL;
  asked = kind && module_slices(m) > 1;
  Scheduler s = {.g = g, .arena = opt_scratch(o)};
  s.fit = (Fit){.arena = s.arena, .d = d, .kind = kind ? kind : "1f1b", .asked = asked};
  s.fit.loc = loc;
  s.fit.slices = (int)module_slices(m);
  s.fit.g = g;
  s.fit.segments = &s.segments;
  s.fit.embedding = -1;
  s.fit.ways = s.fit.pieces = 1;
  const char *wrong = schedule_kind(s.arena, s.fit.kind, &s.fit.read);
  if (wrong) return diag_error(d, s.fit.loc, "%s", wrong);
  s.cluster = cost_cluster(opt_str(o, "cluster"), m, s.arena, d, &ok);
  if (!ok || !g || !m->meshes || (module_slices(m) == 1 && !kind)) return ok;
  if (!check_nature(&s, d)) return false;
  // Only a loop with several stages and gradients has a schedule.
  graph_renumber(g);
  take_back(g);
  s.segments = segments_find(g, false, fit_by_piece(&s.fit), s.arena);
  bool staged = false;
  for (int i = 1; i < s.segments.n; i++)
    staged |= s.segments.at[i].set != s.segments.at[0].set;
  bool gradients = s.segments.n && s.segments.at[s.segments.n - 1].kind != WORK_F;
  if (!staged || !gradients) {
    unstash_weights(g, s.arena);
    return true;
  }
  // Devices in the same sets run the same actions: they are one class.
  s.device = module_devices(s.g->module, s.arena, &s.n_devices);
  s.class_of = arena_array(s.arena, int, s.n_devices);
  s.first = arena_array(s.arena, int, s.n_devices);
  for (int i = 0; i < s.n_devices; i++) {
    // The devices of a mesh are neighbours in the list: most are of the class of the one before.
    int k = i ? s.class_of[i - 1] : 0;
    if (!i || !on_same_meshes(m, s.first[k], s.device[i]))
      for (k = 0; k < s.n_classes; k++)
        if (on_same_meshes(m, s.first[k], s.device[i])) break;
    if (k == s.n_classes) s.first[s.n_classes++] = s.device[i];
    s.class_of[i] = k;
  }
  // From here on ops have segments, unless the check takes them back.
  if (!find_timeline(&s)) return !asked;
  write_schedule(&s);
  unstash_weights(g, s.arena);
  if (!check(&s)) return !asked;
  opt_stat(o, s.segments.n, "segments");
  opt_stat(o, s.segments.n_stages, "stages");
  return true;
}
