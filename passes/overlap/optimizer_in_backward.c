// Early updates: each weight is updated as soon as its gradient is complete and its old value dead
// (LOMO: Lv et al. 2023, section 3.1).
//
//     %gv = linear_back_w %y, %dz   backward       %gv = linear_back_w %y, %dz   backward
//     %dy = linear %dz, %v          backward       %sv = sum_squares %gv         update  %gv is complete
//     %gw = linear_back_w %x, %dy   backward       %dy = linear %dz, %v          backward
//     %sv = sum_squares %gv         update    =>   %v1 = sgd %v, %gv, …          update  %v is dead
//     %sw = sum_squares %gw         update         %gw = linear_back_w %x, %dy   backward
//     %n  = add %sv, %sw            update         %sw = sum_squares %gw         update
//     %v1 = sgd %v, %gv, …          update         %w1 = sgd %w, %gw, …          update
//     %w1 = sgd %w, %gw, …          update         %n  = add %sv, %sw            update
//
// If all updates follow all gradients, the gradients of all weights are in memory at the end of
// backward. Here the memory of one gradient is free again for the next. The results are computed
// from the same numbers and are the same, and the norm of all gradients is known at the end, as
// before.
//
// A plan's program asks for it (`optimizer_in_backward`), and gets an error if it is impossible.
// The option `early` gives updates that are early if they can be: nnaot does so for one rank, if
// the target gains nothing by one launch of all updates (multi_tensor.c). With optimizer states in
// host memory (offload.c) updates are early without that request, if they can be: then copies of
// states overlap with backward. But then the states on the device are resident together with saved
// activations, so their bytes must be less than those of all gradients.
//
// An op that produces a parameter, or whose results are smaller than its operands produced in the
// step, is hoisted as far as possible. Ops that serve only these, such as a slice of a weight, are
// hoisted no further than to their first reader. A sum over ranks is in flight while backward goes
// on: its readers are placed after the start of the next such sum, when the links are busy with
// that.
//
// The pass precedes multi_tensor.c, which must not make early updates wait for each other.

#include "base/vec.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "memory/offload.h"
#include "pass.h"

typedef Vec(Op *) Ops;

typedef struct EarlyUpdates {
  Graph *g;
  Arena *scratch;
  uint32_t n_ops;
  const Value **target; // by value id: the parameter that it, or a view of it, updates
  bool *follows;        // by op id: an optimizer, a sum of squares, or dependent on these
  bool *sums;           // an op of the update that completes gradients
  bool *moves;          // hoisted
  bool *feeds;          // hoisted, and a parameter depends on it
  // By op id, of hoisted ops: the earliest op that it can follow, and the op that it follows;
  // n_ops: it follows all ops.
  uint32_t *soonest, *behind;
  uint32_t *next_sum; // by op id: the next all_reduce that is not hoisted; n_ops: none
  int64_t n;
} EarlyUpdates;

// -- Hoisted ops -------------------------------------------------------------------------------

static bool is_read(const Op *op, const bool *by) {
  for (int i = 0; i < op->n_out; i++)
    for_each_use(u, op->out[i])
      if (u->user && by[u->user->id]) return true;
  return false;
}

static bool reads(const Op *op, const bool *which) {
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->def && which[op->in[i].value->def->id]) return true;
  return false;
}

// Whether the op is hoisted: ops of the update, except sums of gradients over ranks, which stay in
// the order of readiness; outside the update, slices and views that only hoisted ops read.
static bool can_move(const EarlyUpdates *h, const Op *op) {
  bool sums = op->kind == OP_all_reduce || op->kind == OP_pack || is_read(op, h->sums);
  h->sums[op->id] = op->part == PART_update && !h->follows[op->id] && sums;
  if (op->part == PART_update) return !h->sums[op->id];
  if (op->kind != OP_local_slice && !op_is_view(op)) return false;
  for_each_use(u, op->out[0])
    if (!u->user || !h->moves[u->user->id]) return false;
  return op->out[0]->uses != NULL;
}

static void find_moves(EarlyUpdates *h) {
  for (int i = 0; i < h->g->n_results; i++) {
    const Result *r = h->g->results[i];
    if (!r->target || !value_lasts(r->target)) continue;
    Value *v = r->use.value;
    h->target[v->id] = r->target;
    for (; v->def && op_is_view(v->def); v = v->def->in[0].value)
      h->target[v->def->in[0].value->id] = r->target;
  }
  // Optimizers, sums of squares and their dependents follow gradients; other ops complete them.
  for_each_op(op, h->g) {
    bool squares = op->kind == OP_sum_squares && op->part == PART_update;
    h->follows[op->id] = op_optimizes(op) || squares || reads(op, h->follows);
  }
  for (const Op *op = h->g->last; op; op = op->prev)
    h->moves[op->id] = can_move(h, op);
  // Readers of a hoisted op are hoisted too: all members of a bucket, such as that of norm and
  // loss.
  for_each_op(op, h->g)
    h->moves[op->id] |= reads(op, h->moves);
  uint32_t next = h->n_ops;
  for (const Op *op = h->g->last; op; op = op->prev) {
    // An op feeds a parameter if it produces one, or if its reader does.
    bool feeds = is_read(op, h->feeds);
    for (int i = 0; i < op->n_out; i++)
      feeds |= h->target[op->out[i]->id] != NULL;
    h->feeds[op->id] = h->moves[op->id] && feeds;
    h->next_sum[op->id] = next;
    if (op->kind == OP_all_reduce && !h->moves[op->id]) next = op->id;
  }
}

// -- New positions -----------------------------------------------------------------------------

static uint32_t later(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

// The id of the op that `op` follows at the earliest, if hoisted, else its own.
static uint32_t done(const EarlyUpdates *h, const Op *op) {
  return h->moves[op->id] ? h->soonest[op->id] : op->id;
}

static uint32_t there(const EarlyUpdates *h, Value *v) {
  int64_t skip;
  const Value *root = view_root(v, &skip);
  uint32_t at = v->def ? done(h, v->def) : 0;
  if (!root->def || root->def->kind != OP_all_reduce || h->moves[root->def->id]) return at;
  // A sum over ranks counts as complete at the start of the next sum.
  return later(at, h->next_sum[root->def->id]);
}

// The last read of `v`, except by `by` and by hoisted ops after it.
static uint32_t last_read(const EarlyUpdates *h, const Value *v, const Op *by) {
  uint32_t at = 0;
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op || op == by || (h->moves[op->id] && op->id > by->id)) continue;
    at = later(at, done(h, op));
    if (op_is_view(op) && u->index == 0) at = later(at, last_read(h, op->out[0], by));
  }
  return at;
}

static bool goes_first(const EarlyUpdates *h, const Op *op) {
  int64_t bytes = 0;
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->def) bytes += type_bytes(op->in[i].value->type);
  for (int i = 0; i < op->n_out; i++) {
    if (h->target[op->out[i]->id]) return true;
    bytes -= type_bytes(op->out[i]->type);
  }
  return bytes > 0;
}

static void find_places(EarlyUpdates *h) {
  for_each_op(op, h->g)
    if (h->moves[op->id]) {
      // An op can run once its operands are complete and the old value of its parameter is read.
      // An op on numbers alone, such as the count of steps, stays at the end.
      bool tensor = false;
      for (int i = 0; i < op->n_in; i++)
        if (op->in[i].value->type->ndim) {
          tensor = true;
          break;
        }
      if (op->order || (!h->feeds[op->id] && !tensor))
        h->soonest[op->id] = h->n_ops;
      else {
        uint32_t at = 0;
        for (int k = 0; k < op->n_in; k++)
          at = later(at, there(h, op->in[k].value));
        for (int k = 0; k < op->n_out; k++) {
          const Value *target = h->target[op->out[k]->id];
          if (target) at = later(at, last_read(h, target, op));
        }
        h->soonest[op->id] = at;
      }
    }
  for (const Op *op = h->g->last; op; op = op->prev)
    if (h->moves[op->id]) {
      // Ops that free memory run as soon as they can, others right before their first reader.
      uint32_t wanted = h->n_ops;
      for (int i = 0; i < op->n_out; i++)
        for_each_use(u, op->out[i])
          if (u->user && h->behind[u->user->id] < wanted) wanted = h->behind[u->user->id];
      h->behind[op->id] = goes_first(h, op) ? h->soonest[op->id] : wanted;
    }
}

// -- Obstacles ---------------------------------------------------------------------------------

typedef struct Reason {
  const char *why, *hint;
} Reason;

static Reason in_the_way(const EarlyUpdates *h) {
  const Module *m = h->g->module;
  // Updates are elsewhere, or gradients are complete only at the end.
  if (m->cross_barrier)
    return (Reason){"cross_barrier defers the update to the next step", "leave cross_barrier out"};
  if (module_has_stages(m))
    return (Reason){"the plan has pipeline stages", "take a plan by which all ranks do the same"};
  if (module_slices(m) > 1)
    return (Reason){"its gradient is a sum over several micro-batches, whole after the last",
                    "have one micro-batch and no --accumulate"};
  // Gradients may be multiplied by a number that depends on the norm of all of them.
  bool *seen = arena_array(h->scratch, bool, h->n_ops);
  bool waits = false;
  for_each_op(op, h->g) {
    if (op_optimizes(op) && value_leads_from(op->in[op_gscale(op)].value, OP_sum_squares, seen)) {
      waits = true;
      break;
    }
  }
  if (!waits) return (Reason){0};
  if (graph_find_output(h->g, "loss_scale"))
    return (Reason){"whether gradients are finite in f16 is known when all are there",
                    "compile with --dtype bf16 or f32"};
  return (Reason){"the norm that gradients are clipped by is known when all are there",
                  "compile without --clip-norm"};
}

// States that are copied to the device for updates would be there beside saved activations.
static bool has_offloaded(const Graph *g) {
  for_each_op(op, g)
    if (op_optimizes(op) && offload_bytes(op)) return true;
  return false;
}

// -- The pass ----------------------------------------------------------------------------------

bool pass_optimizer_in_backward(Module *m, const PassOptions *o, Diag *d) {
  EarlyUpdates h = {.g = module_first_entry(m), .scratch = opt_scratch(o)};
  // Errors name the first trained weight.
  const Value *w = NULL;
  for (int i = 0; h.g && i < h.g->n_results && !w; i++) {
    const Value *target = h.g->results[i]->target;
    if (target && target->role == ROLE_weight && target->train) w = target;
  }
  bool wanted = m->optimizer_in_backward;
  m->optimizer_in_backward = false;
  if (!w) return true;
  // Without a request, updates are early only if that reduces memory and no obstacle exists.
  bool early = has_offloaded(h.g) ? offload_wants_early(h.g) : opt_bool(o, "early", false);
  if (!wanted && !early) return true;
  graph_renumber(h.g);
  h.n_ops = h.g->n_ops;
  Reason reason = in_the_way(&h);
  if (reason.why && !wanted) return true;
  if (reason.why) {
    diag_error(d, w->loc,
               "'%s' cannot be updated in backward, as optimizer_in_backward wants it: %s",
               w->label, reason.why);
    diag_hint(d, "%s, or leave optimizer_in_backward out of the plan", reason.hint);
    return false;
  }
  h.target = arena_array(h.scratch, const Value *, h.g->n_values);
  h.follows = arena_array(h.scratch, bool, h.n_ops);
  h.sums = arena_array(h.scratch, bool, h.n_ops);
  h.moves = arena_array(h.scratch, bool, h.n_ops);
  h.feeds = arena_array(h.scratch, bool, h.n_ops);
  h.soonest = arena_array(h.scratch, uint32_t, h.n_ops);
  h.behind = arena_array(h.scratch, uint32_t, h.n_ops);
  h.next_sum = arena_array(h.scratch, uint32_t, h.n_ops);
  // First which ops move, then after which op.
  find_moves(&h);
  find_places(&h);
  // Hoisted ops that follow the same op keep their order.
  Ops *up = arena_array(h.scratch, Ops, h.n_ops + 1);
  Op **at = arena_array(h.scratch, Op *, h.n_ops);
  for_each_op(op, h.g) {
    at[op->id] = op;
    if (h.moves[op->id]) vec_push(h.scratch, &up[h.behind[op->id]], op);
  }
  for (uint32_t i = 0; i <= h.n_ops; i++) {
    if (i < h.n_ops && !h.moves[i]) op_move_before(at[i], NULL);
    for (int k = 0; k < up[i].n; k++)
      op_move_before(up[i].at[k], NULL);
    h.n += i < h.n_ops ? up[i].n : 0;
  }
  graph_renumber(h.g);
  m->early_updates = true;
  opt_stat(o, h.n, "ops of the update in backward");
  return true;
}
