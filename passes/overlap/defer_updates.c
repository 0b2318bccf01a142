// Deferred updates: an update that waits for other ranks runs in the next step, right before the
// first use of its weight (ByteScheduler: Peng et al. 2019).
//
//     %y  = linear %x, %w                          %y  = linear %x, %w
//     %z  = linear %y, %v                          %z  = linear %y, %v
//     …                                            …
//     %s  = all_reduce %g  backward                %s  = all_reduce %g  backward
//     %r  = all_reduce %h  backward                %r  = all_reduce %h  backward
//     %n1 = sum_squares %s update            =>    %l  = stash %lr      update
//     %n2 = sum_squares %r update                  %n2 = sum_squares %r update deferred     before linear
//     %n  = fused %n1, %n2 update                  %w1 = sgd %w, %r, %l update deferred     %x, %w
//     %v1 = sgd %v, %s, %lr update                 %n1 = sum_squares %s update deferred     before linear
//     %w1 = sgd %w, %r, %lr update                 %v1 = sgd %v, %s, %l update deferred     %y, %v
//     return output "grad_norm" %n,                %n  = fused %n1, %n2 update deferred
//            update %w %w1, update %v %v1          return …
//
// Backward produces the gradients of the last layers first, and the next forward needs the first
// layers first: a barrier between steps waits for all of them. Without one, gradients of late
// layers are still in flight while early layers run. The results are computed from the same numbers
// and are the same.
//
// An all_reduce is carried over the end of its step if only updates and the norm depend on it. Its
// dependent ops are deferred (ir/analysis/deferred.h), in the order in which the next step first
// reads the parameters that they update. The norm's term of a gradient is computed with the update
// of that gradient, so the gradient dies there. The norm is known in the next step, and the runtime
// reports it then.
//
// Operands of deferred ops must keep the values of their own step. So scalars that the runtime
// sets, and values that the next step produces before the deferred ops are due, are copied.
//
// An update that waits for the gradients of all weights gains nothing, and a gpu records its step
// as a whole: both are errors. If no update waits for other ranks, as with tensor parallelism
// alone, nothing is carried, and a warning says so.

#include <stdlib.h>

#include "base/vec.h"
#include "ir/analysis/deferred.h"
#include "ir/analysis/local.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "pass.h"

// Kinds of results that depend on an op.
enum { TO_norm = 1, TO_update = 2, TO_else = 4 };

// An op that produces a parameter, and the time of its first read in the next step.
typedef struct Update {
  Op *op;
  int64_t due;
} Update;

// An operand of deferred ops, and the copy that they read instead.
typedef struct Copied {
  const Value *of;
  Value *copy;
} Copied;

typedef struct Deferral {
  Graph *g;
  Arena *scratch;
  Diag *d;
  Target target;
  int *leads;   // by op id: TO_ flags
  bool *placed; // by op id: it has its final position
  Vec(Update) update;
  Vec(Copied) copied;
  int64_t reduces, deferred;
} Deferral;

// -- Deferred ops ------------------------------------------------------------------------------

static int result_leads(const Result *r) {
  if (r->target) return value_lasts(r->target) ? TO_update : TO_else;
  return str_equal(r->label, "grad_norm") ? TO_norm : TO_else;
}

// Whether an op of the update reads `v`, directly or through views and casts.
static bool updates_by(const Value *v) {
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op) continue;
    if (op->part == PART_update) return true;
    if ((op_is_view(op) || op->kind == OP_cast) && updates_by(op->out[0])) return true;
  }
  return false;
}

// The TO_ flags of all readers of the op's results.
static int leads_on(const Deferral *c, const Op *op) {
  int leads = 0;
  for (int i = 0; i < op->n_out; i++)
    for_each_use(u, op->out[i])
      leads |= u->user ? c->leads[u->user->id] : result_leads(op->graph->results[u->index]);
  return leads;
}

// Whether the all_reduce adds the sums of squares for the norm of all gradients.
static bool is_of_norm(const Deferral *c, const Op *reduce) {
  return (leads_on(c, reduce) & TO_norm) &&
         value_leads_from(reduce->in[0].value, OP_sum_squares,
                          arena_array(c->scratch, bool, c->g->n_ops));
}

// -- Order of deferred ops ---------------------------------------------------------------------

static bool is_ready(const Deferral *c, const Op *op) {
  for (int i = 0; i < op->n_in; i++) {
    const Op *made = op->in[i].value->def;
    if (made && made->deferred && !c->placed[made->id]) return false;
  }
  return true;
}

static void place(Deferral *c, Op *op);

// Places the readers of `v` that serve the norm alone.
static void place_for_norm(Deferral *c, const Value *v) {
  for_each_use(u, v)
    if (u->user && c->leads[u->user->id] == TO_norm && is_ready(c, u->user)) place(c, u->user);
}

// Places a deferred op after its operands, and after the norm's readers of these operands.
static void place(Deferral *c, Op *op) {
  if (!op->deferred || c->placed[op->id]) return;
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->def) place(c, op->in[i].value->def);
  for (int i = 0; i < op->n_in && c->leads[op->id] != TO_norm; i++)
    place_for_norm(c, op->in[i].value);
  op_move_before(op, NULL);
  c->placed[op->id] = true;
  for (int i = 0; i < op->n_out; i++)
    place_for_norm(c, op->out[i]);
}

static int by_due(const void *x, const void *y) {
  const Update *a = x, *b = y;
  if (a->due != b->due) return a->due < b->due ? -1 : 1;
  return (a->op->id > b->op->id) - (a->op->id < b->op->id);
}

static void order_deferred(Deferral *c) {
  const int64_t *order = step_order(c->g, c->scratch);
  for_each_op(op, c->g) {
    if (!op->deferred) continue;
    // Only ops that produce a parameter have a due time.
    bool updates = false;
    for (int i = 0; i < op->n_out; i++)
      for_each_use(u, op->out[i])
        if (!u->user && op->graph->results[u->index]->target) updates = true;
    if (!updates) continue;
    const Op *want = first_to_want(op, order);
    vec_push(c->scratch, &c->update, ((Update){op, want ? order[want->id] : INT64_MAX}));
  }
  if (c->update.n) qsort(c->update.at, (size_t)c->update.n, sizeof *c->update.at, by_due);
  // Updates come in the order in which the next step needs them, and the other ops last.
  Op *last = c->g->last;
  for (int i = 0; i < c->update.n; i++)
    place(c, c->update.at[i].op);
  for (Op *op = c->g->first, *next; op; op = next) {
    next = op == last ? NULL : op->next;
    place(c, op);
  }
}

// -- Copied operands ---------------------------------------------------------------------------

static Value *copy_of(Deferral *c, Value *v, Op *first) {
  for (int i = 0; i < c->copied.n; i++)
    if (c->copied.at[i].of == v) return c->copied.at[i].copy;
  Builder b = {.g = c->g, .at = first, .d = c->d};
  b.origin = origin_for(c->g->module->arena, value_origin(v), "deferred to the next step");
  b.origin.part = PART_update;
  Value *copy = local_value(&b, OP_stash, IN(v), NO_ATTRS, v->layout);
  if (!copy) BUG("stash does not fit");
  vec_push(c->scratch, &c->copied, ((Copied){v, copy}));
  return copy;
}

static void copy_lost(Deferral *c) {
  DeferredGroups groups = {0};
  graph_renumber(c->g);
  const int64_t *order = step_order(c->g, c->scratch);
  graph_deferred_groups(c->g, c->scratch, &groups);
  Op *first = graph_first_deferred(c->g);
  for (int i = 0; i < groups.n; i++) {
    Op *op = groups.at[i].first;
    for (int k = 0; k < groups.at[i].n; k++, op = op->next)
      for (int x = 0; x < op->n_in; x++) {
        // The next step overwrites an operand if it sets it before the op that waits for the
        // reader.
        bool lost;
        int64_t skip;
        const Value *v = view_root(op->in[x].value, &skip);
        if (!v->def)
          lost = !value_lasts(v) || param_changes_in_step(v);
        else
          lost = v->def->kind != OP_constant && !v->def->deferred &&
                 order[v->def->id] < order[groups.at[i].due->id];
        if (lost) op_set_in(op, x, copy_of(c, op->in[x].value, first));
      }
  }
}

// -- Errors ------------------------------------------------------------------------------------

static bool wrong(const Deferral *c, const Value *w, const char *why, const char *hint) {
  diag_error(c->d, w->loc,
             "'%s' cannot be updated in the step after, as cross_barrier wants it: %s", w->label,
             why);
  diag_hint(c->d, "%s, or leave cross_barrier out of the plan", hint);
  return false;
}

// Whether an update waits for other ranks, apart from the norm.
static bool updates_wait(const Deferral *c) {
  for_each_op(op, c->g) {
    bool over_time = op_info[op->kind].traits & ACCUMULATES, read = false;
    if (over_time || !op_meets_others(op) || !(leads_on(c, op) & TO_update)) continue;
    for (int i = 0; i < op->n_out; i++)
      read |= updates_by(op->out[i]);
    if (read && !is_of_norm(c, op)) return true;
  }
  return false;
}

static bool check(const Deferral *c, const Value *w, const Value *next) {
  // An update that is scaled by the norm of all gradients waits for all of them.
  const Op *op = value_optimizer(next);
  if (op && value_leads_from(op->in[op_gscale(op)].value, OP_sum_squares,
                             arena_array(c->scratch, bool, c->g->n_ops))) {
    if (graph_find_output(c->g, "loss_scale"))
      return wrong(c, w, "whether gradients are finite in f16 is known when all are there",
                   "compile with --dtype bf16 or f32");
    return wrong(c, w, "the norm that gradients are clipped by is known when all are there",
                 "compile without --clip-norm");
  }
  // Without an all_reduce in flight nothing is gained.
  if (c->deferred) return true;
  return wrong(c, w,
               "no update follows from an all_reduce and from nothing else that ranks wait for",
               "take dp: zero1 and similar plans scatter gradients and gather weights, and offload "
               "copies its states");
}

// -- The pass ----------------------------------------------------------------------------------

bool pass_defer_updates(Module *m, const PassOptions *o, Diag *d) {
  Deferral c = {.g = module_first_entry(m), .scratch = opt_scratch(o), .d = d};
  const Value *next = NULL;
  // Errors name the first trained weight.
  const Value *w = NULL;
  for (int i = 0; c.g && i < c.g->n_results && !w; i++) {
    const Result *r = c.g->results[i];
    if (!r->target || r->target->role != ROLE_weight || !r->target->train) continue;
    next = r->use.value;
    w = r->target;
  }
  bool wanted = m->cross_barrier;
  int n_devices;
  m->cross_barrier = false;
  if (!wanted || !w) return true;
  module_devices(m, c.scratch, &n_devices);
  if (n_devices == 1) return true; // no other rank to wait for
  if (!opt_target(o, &c.target, d)) return false;
  graph_renumber(c.g);
  c.leads = arena_array(c.scratch, int, c.g->n_ops);
  c.placed = arena_array(c.scratch, bool, c.g->n_ops);
  // An all_reduce in flight has no dependents but updates and the norm.
  // Flags flow from readers to producers. An op that waits for other ranks cannot be deferred.
  for (const Op *op = c.g->last; op; op = op->prev) {
    int leads = leads_on(&c, op);
    bool swaps = op_starts_copy(op) || op->kind == OP_swap_wait;
    bool waits = op_meets_others(op) && (op->kind != OP_all_reduce || (leads & TO_update));
    if (op->part != PART_update || swaps || waits) leads |= TO_else;
    c.leads[op->id] = leads;
  }
  // Readers of an all_reduce in flight are deferred, and their readers.
  for_each_op(op, c.g) {
    // Only updates and the norm may depend on an all_reduce in flight, and it is not that of the
    // norm.
    int leads = leads_on(&c, op);
    bool in_flight = op->kind == OP_all_reduce && (leads & TO_update) && !(leads & TO_else) &&
                     !is_of_norm(&c, op);
    c.reduces += in_flight;
    if (!in_flight && !op->deferred) continue;
    for (int i = 0; i < op->n_out; i++)
      for_each_use(u, op->out[i])
        if (u->user) u->user->deferred = true;
  }
  for_each_op(op, c.g)
    c.deferred += op->deferred;
  // Ranks must be replicas, and no step may be recorded.
  if (target_info[c.target].recorded)
    return wrong(&c, w, "on GPUs a step is one CUDA graph", "compile with --target cpu");
  if (c.g->schedule || module_has_stages(m))
    return wrong(&c, w, "ranks are several stages, which wait for each other in every step",
                 "take a plan without stages, such as dp");
  if (!c.deferred && !updates_wait(&c)) {
    diag_warning(d, NULL, "cross_barrier changes nothing: no update waits for other ranks");
    diag_hint(d, "leave it out of the plan, or take one whose ranks add up gradients, such as dp");
    return true;
  }
  if (!check(&c, w, next)) return false;
  // From here on deferred ops are the last of the graph.
  order_deferred(&c);
  copy_lost(&c);
  graph_renumber(c.g);
  opt_stat(o, c.reduces, "all_reduces in flight at the end of a step");
  opt_stat(o, c.deferred, "ops of the update deferred to the next step");
  return true;
}
