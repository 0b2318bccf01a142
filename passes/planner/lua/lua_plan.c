// Calls of plan programs about the whole step: propagation of a split, order of ops, and the
// schedule of micro-batches on stages.
//
//     ends, stops = flow(fc1, "n", "tp")     fc2, which sums over the split of fc1; and no stops
//     op_order(a2, b1)                       a2, and all its dependencies, before b1
//     schedule("zb-h1")                      of micro-batches

#include <stdlib.h>

#include "base/vec.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "lua_graph.h"
#include "planner/saved/record.h"
#include "schedule/names.h"
#include "sharding/constraints.h"

// -- Propagation of a split --------------------------------------------------------------------

// A split dimension of a value.
typedef struct Cut {
  const Value *v;
  int dim;
} Cut;

typedef struct Flow {
  lua_State *l;
  int axis;
  Vec(Cut) cuts; // all visited; also the worklist
  int n_ends, n_stops;
} Flow;

static void push_stop(Flow *f, const Op *op) {
  plan_push(f->l, op, PLAN_OPS);
  lua_rawseti(f->l, 5, ++f->n_stops);
}

// Adds the cuts of an op's results by the letter, or the op itself as an end.
static void meet_results(Flow *f, const Op *op, int letter) {
  const Dims *dims = plan_einsum(f->l, op);
  bool ends = true;
  for (int i = 0; i < op->n_out; i++) {
    int dim = dims_position(dims, &dims->out[i], letter);
    if (dim < 0) continue;
    ends = false;
    // A cut that is met for the first time is followed.
    PlanProgram *p = program_of(f->l);
    uint32_t *met = &p->met[op->out[i]->id * MAX_NDIM + (uint32_t)dim];
    if (*met == p->n_flows) continue;
    *met = p->n_flows;
    vec_push(p->s->scratch, &f->cuts, (Cut){op->out[i], dim});
  }
  // An op without the letter in any result sums over it.
  if (!ends) return;
  lua_createtable(f->l, 0, 2);
  plan_push(f->l, op, PLAN_OPS);
  lua_setfield(f->l, -2, "op");
  lua_pushstring(f->l, plan_letter(plan_einsum(f->l, op), letter));
  lua_setfield(f->l, -2, "letter");
  lua_rawseti(f->l, 4, ++f->n_ends);
}

// flow(op, letter, axis): follows a split through the model.  Returns the ops that sum over it, as
// a list of {op=, letter=}; and the list of ops that cannot be split so.
static int flow(lua_State *l) {
  const Op *op = plan_op(l, 1);
  char letter = plan_letter_arg(l, 2, op);
  Flow f = {.l = l, .axis = plan_axis(l, 3)};
  const char *why = plan_why_not(l, op, letter, f.axis);
  lua_settop(l, 3);
  lua_newtable(l);
  lua_newtable(l);
  // Marks are numbers of flows, so that they need no clearing; the model may have grown.
  PlanProgram *p = program_of(l);
  if (p->n_met < p->s->n_values) {
    p->n_met = p->s->n_values;
    p->met = arena_array(p->s->scratch, uint32_t, p->n_met * MAX_NDIM);
    p->n_flows = 0;
  }
  p->n_flows++;
  int i = dims_find(plan_einsum(l, op), letter);
  if (why || i < 0)
    push_stop(&f, op);
  else
    meet_results(&f, op, i);
  // Each cut leads to the readers of its value, in the model; results of the graph are whole.
  for (int k = 0; k < f.cuts.n; k++) {
    Cut cut = f.cuts.at[k];
    for_each_use(u, cut.v) {
      if (!u->user) {
        if (cut.v->def) push_stop(&f, cut.v->def);
        continue;
      }
      if (op_part(u->user) != PART_forward) continue;
      int own = letter_of_operand(p->s, u->user, u->index, cut.dim, f.axis);
      if (own < 0)
        push_stop(&f, u->user);
      else
        meet_results(&f, u->user, own);
    }
  }
  return 2;
}

// -- Order -------------------------------------------------------------------------------------

typedef struct Positioned {
  int position;
  Op *op;
} Positioned;

static int by_position(const void *x, const void *y) {
  return ((const Positioned *)x)->position - ((const Positioned *)y)->position;
}

// The op in argument `arg`, or those of the list, in graph order.  They stay marked.
static Op **check_ops(lua_State *l, int arg, const char *which, int *n) {
  PlanProgram *p = program_of(l);
  OpList list = {0};
  lua_pushvalue(l, arg);
  plan_list(l, p->marked, &list, which);
  lua_pop(l, 1);
  if (!list.n) FAIL(l, NULL, "op_order wants an op or a list of them, and the %s is empty", which);
  *n = list.n;
  // Sort them by graph order.
  const OpNames *names = plan_names_of(p);
  Positioned *at = arena_array(p->s->scratch, Positioned, list.n);
  for (int i = 0; i < list.n; i++)
    at[i] = (Positioned){op_names_position(names, list.at[i]), list.at[i]};
  qsort(at, (size_t)list.n, sizeof *at, by_position);
  for (int i = 0; i < list.n; i++)
    list.at[i] = at[i].op;
  return list.at;
}

static void unmark(PlanProgram *p, Op *const *op, int n) {
  for (int i = 0; i < n; i++)
    p->marked[op[i]->id] = false;
}

// op_order(a, b): the op, or all of a list, runs before the other op, or all of the other list.
static int op_order(lua_State *l) {
  PlanProgram *p = program_of(l);
  Order o = {.line = plan_line(l)};
  plan_sharding(l);
  luaL_checkany(l, 2);
  if (!p->n_axes)
    return FAIL(l, NULL, "there is no step yet that is run: this belongs into 'step'");
  if (!p->marked) p->marked = arena_array(p->s->scratch, bool, p->s->g->n_ops);
  o.first = check_ops(l, 1, "first", &o.n_first);
  unmark(p, o.first, o.n_first);
  o.then = check_ops(l, 2, "second", &o.n_then);
  // The marks now are those of the second list: an op in both would wait for itself.
  for (int i = 0; i < o.n_first; i++)
    if (p->marked[o.first[i]->id])
      return FAIL(l, o.first[i]->loc, "%s is to come before itself",
                  op_info[o.first[i]->kind].name);
  unmark(p, o.then, o.n_then);
  if (op_part(o.first[o.n_first - 1]) == PART_update && op_part(o.then[0]) != PART_update)
    return FAIL(l, o.then[0]->loc, "%s cannot wait for an update, which comes after all gradients",
                op_info[o.then[0]->kind].name);
  constrain_order(p->s, o);
  // A saved plan repeats it.
  Record *r = p->s->record;
  if (!r) return 0;
  record_before(r, o.first, o.n_first);
  record_before(r, o.then, o.n_then);
  record_call(r, p->s->g, "op_order(%s, %s)", record_ops(r, o.first, o.n_first),
              record_ops(r, o.then, o.n_then));
  return 0;
}

// -- Micro-batches -----------------------------------------------------------------------------

// schedule(kind): the order of micro-batches on stages.
static int schedule(lua_State *l) {
  PlanProgram *p = program_of(l);
  const char *kind = luaL_checkstring(l, 1);
  Module *m = plan_sharding(l)->g->module;
  ScheduleKind read;
  if (!p->n_axes)
    return FAIL(l, NULL, "there is no step yet that is run: this belongs into 'step'");
  const char *wrong = schedule_kind(p->box.arena, kind, &read);
  if (wrong) return FAIL(l, NULL, "%s", wrong);
  // `step` runs for every graph, and the schedule is one of all.
  if (m->schedule && !str_equal(m->schedule, kind)) {
    plan_note(l, m->schedule_loc, str_format(p->box.arena, "'%s' is said here", m->schedule));
    return FAIL(l, NULL, "the schedule is '%s' already, and cannot be '%s', too", m->schedule,
                kind);
  }
  if (!m->schedule) m->schedule_loc = loc_copy(m->arena, plan_line(l));
  m->schedule = str_copy(m->arena, kind);
  if (p->s->record) p->s->record->schedule = str_copy(p->s->record->arena, kind);
  return 0;
}

const luaL_Reg plan_calls[] = {
    {"annotated_apart", plan_annotated_apart},
    {"annotations", plan_annotations},
    {"flow", flow},
    {"op_order", op_order},
    {"schedule", schedule},
    {NULL, NULL},
};
