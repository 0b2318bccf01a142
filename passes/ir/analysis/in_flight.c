// See in_flight.h.
//
// One walk over the parts of a step in the order of execution, with a list of the collectives that
// have started and not ended.

#include "in_flight.h"

#include "base/vec.h"
#include "deferred.h"
#include "ir/schedule.h"
#include "rt/small_operand.h"

bool move_is_round(const Op *op) {
  const Use *use = op->kind == OP_move ? op->out[0]->uses : NULL;
  return use && use->user && use->user->kind == OP_permute_blocks &&
         !(op->segment && move_is_ahead(op));
}

bool op_is_async(const Op *op) {
  return (op_info[op->kind].traits & ASYNC) || move_is_round(op);
}

bool op_overlaps(const Op *op, Target target) {
  return op->kind == OP_all_reduce || move_is_round(op) ||
         (op_is_async(op) && target_info[target].async_comm);
}

bool op_copies_operand(const Op *op) {
  if (move_is_round(op)) return true;
  return op_is_async(op) && op->kind != OP_all_reduce &&
         type_bytes(op->in[0].value->type) <= NNRT_SMALL_OPERAND;
}

// The end of the bytes of all slots.
static int64_t end_of(const Value *v) {
  return v->offset + (v->slots > 1 ? (v->slots - 1) * v->stride : 0) + type_bytes(v->type);
}

static bool share_bytes(const Meets *meets, const Value *a, const Value *b) {
  return a->offset >= 0 && b->offset >= 0 && a->offset < end_of(b) && b->offset < end_of(a) &&
         values_meet(meets, a, b);
}

bool op_waits_for(const Meets *meets, const Op *op, const Op *started) {
  const Value *operand = started->in[0].value, *result = started->out[0];
  for (int i = 0; i < op->n_in; i++) {
    // A value may be read through a view.
    int64_t skip;
    Value *in = op->in[i].value;
    if (view_root(in, &skip) == result || share_bytes(meets, in, result)) return true;
  }
  bool copied = op_copies_operand(started);
  for (int i = 0; i < op->n_out; i++)
    if (share_bytes(meets, op->out[i], result) ||
        (!copied && share_bytes(meets, op->out[i], operand)))
      return true;
  return false;
}

// -- The order of a step -----------------------------------------------------------------------

enum { IN_begin, IN_loop, IN_update, IN_deferred, N_PARTS };

typedef struct Span {
  int64_t from, to; // bytes; of a value without an offset there are none
} Span;

typedef struct Started {
  const Op *op;
  int result_id;        // of the value
  Span operand, result; // operand: of one that must not be overwritten
} Started;

typedef Vec(Span) Spans;

typedef struct Walk {
  const Graph *g;
  Arena *arena;
  Meets meets;
  const bool *begin, *update;
  DeferredGroups groups;
  Vec(Started) started;
  bool *started_by;    // by value id: it is the result of a collective that has not ended
  const Op **read_by;  // by value id: the last op that waited and reads such a result
  Spans reads, writes; // of the op that waits
  const Op **before;
} Walk;

static int part_of(const Walk *w, const Op *op) {
  if (op->deferred) return IN_deferred;
  return w->begin[op->id] ? IN_begin : w->update[op->id] ? IN_update : IN_loop;
}

static Span span_of(const Value *v) {
  return v->offset < 0 ? (Span){0, 0} : (Span){v->offset, end_of(v)};
}

static bool any_meets(const Spans *spans, Span s) {
  for (int i = 0; i < spans->n; i++)
    if (spans->at[i].from < s.to && s.from < spans->at[i].to) return true;
  return false;
}

// Sets the spans of the op's operands and results. Returns whether it reads the result of a
// collective, perhaps through views.
static bool set_spans(Walk *w, const Op *op) {
  bool reads = false;
  w->reads.n = w->writes.n = 0;
  for (int i = 0; i < op->n_in; i++) {
    int64_t skip;
    const Value *root = view_root(op->in[i].value, &skip);
    vec_push(w->arena, &w->reads, span_of(op->in[i].value));
    if (!w->started_by[root->id]) continue;
    w->read_by[root->id] = op;
    reads = true;
  }
  for (int i = 0; i < op->n_out; i++)
    vec_push(w->arena, &w->writes, span_of(op->out[i]));
  return reads;
}

// Ends the collectives for which `op` waits; NULL: all of them but those of the next step.
static void end_before(Walk *w, const Op *op) {
  int left = 0;
  bool reads = op && w->started.n && set_spans(w, op);
  for (int i = 0; i < w->started.n; i++) {
    const Started *s = &w->started.at[i];
    bool ends;
    if (!op)
      ends = !reduce_is_in_flight(s->op);
    else if (reads && w->read_by[s->result_id] == op)
      ends = true;
    else // most have no bytes in common with it
      ends = (any_meets(&w->reads, s->result) || any_meets(&w->writes, s->result) ||
              any_meets(&w->writes, s->operand)) &&
             op_waits_for(&w->meets, op, s->op);
    if (ends) {
      w->before[s->op->id] = op;
      w->started_by[s->result_id] = false;
    } else {
      if (left < i) w->started.at[left] = *s;
      left++;
    }
  }
  w->started.n = left;
}

static void start(Walk *w, const Op *op) {
  int id = op->out[0]->id;
  Started s = {.op = op, .result_id = id, .result = span_of(op->out[0])};
  if (!op_copies_operand(op)) s.operand = span_of(op->in[0].value);
  vec_push(w->arena, &w->started, s);
  w->started_by[id] = true;
}

// The deferred ops of the previous step that run before `op` may overwrite operands, too.
static void flush_before(Walk *w, const Op *op) {
  for (int i = 0; i < w->groups.n; i++) {
    const Op *late = w->groups.at[i].first;
    for (int k = 0; w->groups.at[i].due == op && k < w->groups.at[i].n; k++, late = late->next)
      if (!op_is_view(late)) end_before(w, late);
  }
}

static void run_part(Walk *w, int part) {
  bool repeated = module_slices(w->g->module) > 1 || w->g->schedule;
  const Op *last = NULL;
  for (const Op *op = w->g->first; op; op = op->next) {
    if (part_of(w, op) != part) continue;
    for (int i = 0; part == IN_deferred && i < w->groups.n; i++)
      if (w->groups.at[i].first == op) end_before(w, NULL);
    if (part != IN_deferred) flush_before(w, op);
    if (op_is_view(op)) continue;
    if (part == IN_loop && last && op->segment != last->segment) end_before(w, NULL);
    last = op;
    // A move from another segment starts outside of this one.
    if (op->kind == OP_move && op->segment && move_is_ahead(op)) continue;
    end_before(w, op);
    if (op_is_async(op)) start(w, op);
  }
  // With one slice, the collectives of the loop overlap with the update.
  if (part != IN_loop || repeated) end_before(w, NULL);
}

const Op **graph_waits(const Graph *g, Arena *a) {
  Walk w = {.g = g, .arena = a, .meets = module_meets(g->module, a)};
  w.before = arena_array(a, const Op *, g->n_ops);
  w.started_by = arena_array(a, bool, g->n_values);
  w.read_by = arena_array(a, const Op *, g->n_values);
  const PartOps ops = graph_part_ops(g, a);
  w.begin = ops.begin;
  w.update = ops.update;
  graph_deferred_groups(g, a, &w.groups);
  for (int part = 0; part < N_PARTS; part++)
    run_part(&w, part);
  return w.before;
}
