// Overlap: recomputation runs while gradients wait for a collective (SuperScaler, section 6.4).
//
// With tensor parallelism the gradient that one layer passes to the layer before it is a sum over
// ranks. The recomputation of that layer does not read the gradient, only saved activations.
//
//     %d = all_reduce %p      backward             %d = all_reduce %p      backward
//     %e = cast %d            waits for %d         %1 = layer_norm %x      recompute_group=1
//     …                                     =>     %2 = linear %1, %q      recompute_group=1
//     %1 = layer_norm %x      recompute_group=1               %e = cast %d            waits for %d
//     %2 = linear %1, %q      recompute_group=1               …
//     … gradients that read %2 and %e              … gradients that read %2 and %e
//
// The pass walks the ops in order with two clocks, one for compute and one for the queue of
// collectives. Before an op that has to wait, it puts recomputed ops with all operands ready, in
// their order, until the wait is filled. All ranks keep one common order, as before.
//
// Values that are recomputed earlier live longer. An op stays in place if the move would exceed the
// present peak of memory or, if a device's capacity is a limit (`limited`), most of that capacity.
// As backward frees saved activations there mostly is capacity, so the pass needs no option.
//
// The pass looks at no more than AHEAD recompute groups: the one whose gradients are next, and that
// of the layer before it. Values recomputed earlier still would live longer, their own sums would
// precede in the queue the sums that backward waits for, and later waits would have nothing left to
// fill them.
//
// The pass follows `schedule`: ops of one segment stay in it.

#include "cost/clocks.h"
#include "cost/cost.h"
#include "ir/analysis/in_flight.h"
#include "ir/analysis/origin.h"
#include "memory/plan_blocks.h"
#include "pass.h"

#define ROOM 0.9 // of a device's memory: gaps between blocks take some
enum {
  WINDOW = 512, // ops examined after one that waits
  AHEAD = 2,    // recompute groups
};

typedef struct Overlap {
  Graph *g;
  const Cluster *cluster;
  Target target;
  Arena *arena;
  int64_t n_times;
  Op **at;             // in order, by time; NULL: moved forward
  int *list;           // recompute group, by time; 0: none
  bool *is_recomputed; // by op id: recomputed, or depends only on recomputed ops
  MemoryPlan memory;   // live ranges of blocks
  bool limited;        // by the capacity of a device
  int64_t room;        // if limited: usable bytes besides persistent values
  int64_t **in_use;    // resident bytes by mesh id and time
  int64_t *most;       // limit of in_use by mesh id
  int64_t n;
} Overlap;

// -- Memory ------------------------------------------------------------------------------------

// Reserves memory at times [from, to) for the blocks that begin with the op; false: over the limit.
static bool takes_room(Overlap *x, const Op *op, int64_t from, int64_t to) {
  int64_t bytes = 0;
  int mesh = op->n_out ? value_mesh_id(op->out[0]) : 0;
  for (int i = 0; i < op->n_out; i++) {
    const Block *b = x->memory.place[op->out[i]->id].block;
    if (b && b->life.from >= op_time(op)) bytes += block_bytes(&x->memory, b);
  }
  for (int64_t t = from; t < to; t++)
    if (x->in_use[mesh][t] + bytes > x->most[mesh]) return false;
  for (int64_t t = from; t < to; t++)
    x->in_use[mesh][t] += bytes;
  return true;
}

// -- Dependences -------------------------------------------------------------------------------

// Whether an op may run before `wait`: the same part, segment and mesh, and no move between stages.
static bool is_alike(const Op *op, const Op *wait) {
  return op->part == wait->part && op->segment == wait->segment && op_mesh(op) == op_mesh(wait) &&
         op->kind != OP_move && !op->order;
}

static bool is_ready(const Op *op, const bool *stays) {
  for (int i = 0; i < op->n_in; i++) {
    const Op *def = op->in[i].value->def;
    if (def && stays[def->id]) return false;
  }
  return true;
}

// -- The pass ----------------------------------------------------------------------------------

typedef struct Lists {
  int now, n;
} Lists;

// Moves ops before the waiting op at time `t` until the wait is filled.
static void fill(Overlap *x, Clocks *c, int64_t t, bool *stays) {
  Op *wait = x->at[t];
  double until = clocks_ready(c, wait);
  int64_t last = t;
  Lists lists = {0};
  // Ops in the window stay unless moved: an op that reads one of them is not ready.
  for (int64_t k = t; k < x->n_times && k < t + WINDOW; k++)
    if (x->at[k]) stays[x->at[last = k]->id] = true;
  for (int64_t k = t + 1; k <= last && c->now < until; k++) {
    Op *op = x->at[k];
    // Ops of more than AHEAD recompute groups further are too far, moved ops included.
    int list = x->list[k];
    if (list && list != lists.now) lists = (Lists){list, lists.n + 1};
    if (lists.n > AHEAD) break;
    if (!op || !x->is_recomputed[op->id] || !is_alike(op, wait) || !is_ready(op, stays) ||
        clocks_ready(c, op) > c->now || !takes_room(x, op, t, k))
      continue;
    op_move_before(op, wait);
    clocks_run(c, op);
    stays[op->id] = false;
    x->at[k] = NULL;
    x->n++;
  }
  for (int64_t k = t; k <= last; k++)
    if (x->at[k]) stays[x->at[k]->id] = false;
}

// Whether the graph has both recomputed ops and collectives that overlap.
static bool may_overlap(const Graph *g, Target target) {
  bool recomputed = false, overlaps = false;
  for_each_op(op, g) {
    recomputed |= op_is_recomputed(op);
    overlaps |= op_overlaps(op, target);
  }
  return g->entry && recomputed && overlaps;
}

static void overlap_graph(Overlap *x, Graph *g) {
  x->g = g;
  x->n_times = graph_end(g) + 1;
  x->at = arena_array(x->arena, Op *, x->n_times);
  x->list = arena_array(x->arena, int, x->n_times);
  x->is_recomputed = arena_array(x->arena, bool, g->n_ops);
  for_each_op(op, g) {
    x->at[op_time(op)] = op;
    x->list[op_time(op)] = op_is_recomputed(op) ? op->recompute_group : 0;
  }
  // Bytes in use by mesh and time, and the most that a mesh may use.
  const Module *m = x->g->module;
  int n_meshes = m->meshes ? module_n_meshes(m) : 1;
  x->in_use = arena_array(x->arena, int64_t *, n_meshes);
  x->most = arena_array(x->arena, int64_t, n_meshes);
  for (int i = 0; i < n_meshes; i++)
    x->in_use[i] = arena_array(x->arena, int64_t, x->n_times + 1);
  for (int i = 0; i < x->memory.block.n; i++) {
    const Block *b = x->memory.block.at[i];
    if (b->kept || value_on_host(b->member.at[0])) continue;
    int64_t *change = x->in_use[value_mesh_id(b->member.at[0])];
    change[earlier(b->life.from, x->n_times)] += block_bytes(&x->memory, b);
    change[earlier(b->life.to + 1, x->n_times)] -= block_bytes(&x->memory, b);
    if (!b->again) continue;
    change[0] += block_bytes(&x->memory, b);
    change[earlier(b->again + 1, x->n_times)] -= block_bytes(&x->memory, b);
  }
  // Changes add up to the bytes in use.
  for (int i = 0; i < n_meshes; i++)
    for (int64_t t = 0; t < x->n_times; t++) {
      if (t) x->in_use[i][t] += x->in_use[i][t - 1];
      x->most[i] = later(x->most[i], x->in_use[i][t]);
    }
  // A mesh over the limit already moves nothing: gaps between blocks may take the rest.
  for (int i = 0; i < n_meshes && x->limited; i++)
    x->most[i] = x->most[i] > x->room ? 0 : x->room;
  // Collectives and casts between recomputed ops are in no recompute group themselves.
  for_each_op(op, x->g) {
    bool any = false, all = op->part == PART_backward;
    for (int i = 0; i < op->n_in && all; i++) {
      const Op *def = op->in[i].value->def;
      any |= def && x->is_recomputed[def->id];
      all = !def || x->is_recomputed[def->id];
    }
    x->is_recomputed[op->id] = op_is_recomputed(op) || (any && all);
  }
  // A simulation of the step finds the waits of backward.
  Clocks c = clocks_new(x->g, x->cluster, x->target, x->arena);
  bool *stays = arena_array(x->arena, bool, x->g->n_ops);
  for (int64_t t = 0; t < x->n_times; t++) {
    const Op *op = x->at[t];
    if (!op) continue;
    if (op->part == PART_backward && clocks_ready(&c, op) > c.now) fill(x, &c, t, stays);
    clocks_run(&c, op);
  }
}

bool pass_overlap(Module *m, const PassOptions *o, Diag *d) {
  bool ok;
  Target target;
  if (!opt_target(o, &target, d)) return false;
  Overlap x = {.target = target, .arena = opt_scratch(o)};
  x.cluster = cost_cluster(opt_str(o, "cluster"), m, x.arena, d, &ok);
  // Without a cluster, or without candidates, nothing is estimated.
  if (!x.cluster) return ok;
  bool any = false;
  for_each_graph(graph, m)
    any |= may_overlap(graph, target);
  if (!any) return ok;
  x.memory = memory_plan_begin(m, target, x.arena, d);
  double memory = cluster_least(x.cluster).memory;
  x.limited = opt_bool(o, "limited", false) && memory > 0;
  // Persistent memory is in use during the whole step.
  int64_t kept = 0;
  for (int i = 0; i < x.memory.kept.n; i++)
    if (!value_on_host(x.memory.kept.at[i]->member.at[0]))
      kept = later(kept, x.memory.kept.at[i]->offset + x.memory.kept.at[i]->bytes);
  x.room = (int64_t)(ROOM * memory) - kept;
  for_each_graph(g, m) {
    if (!may_overlap(g, target)) continue;
    if (!memory_plan_find_blocks(&x.memory, g)) return false;
    overlap_graph(&x, g);
  }
  for_each_graph(g, m) // plan_memory assigns them again
    for (int i = 0; i < g->n_params; i++)
      g->params[i]->offset = -1;
  opt_stat(o, x.n, "ops moved beside a collective");
  return true;
}
