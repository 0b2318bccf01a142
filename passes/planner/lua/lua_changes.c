// Changes that plan programs make: of the model, in function `model`, and of the step.
//
//     unpack(qkv)                                   a fused product of q, k and v becomes three
//     dispatch_experts(fc1, {parts = 4})            rows of experts in slots, for an all_to_all
//     pad(head, 8)                                  its columns become a multiple of 8
//     split_loss(loss, "tp")                        ops of a cross entropy over sharded classes
//     ring(attention, "cp")                         rounds of attention over sharded tokens
//     recompute(layer)                              recomputes their saved activations in backward
//     swap(layer)                                   offloads these to host memory until backward
//     cross_barrier()                               defers updates to the next step
//     optimizer_in_backward()                       updates do not wait for other gradients
//     offload(weight)                               keeps its states in host memory between steps
//     offload_gradient(weight)                      the sum of its gradients in host memory between micro-batches
//     pin(gradient)                                 an op that only sets the layout of a gradient, or
//                                                   of a weight that is gathered once
//
// Each call is checked, implemented in a file of its own (pieces.h, unpack.h, split_classes.h), and
// recorded, so that a saved plan repeats it (record.h).

#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "ir/analysis/origin.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"
#include "ir/split.h"
#include "ir/verify/verify.h"
#include "lua/lua_deterministic.h"
#include "lua_graph.h"
#include "pad.h"
#include "planner/saved/record.h"
#include "sharding/decide.h"
#include "simplify/dispatch_experts.h"
#include "simplify/ring_attention.h"
#include "simplify/split_classes.h"
#include "unpack.h"

// Whether op_order orders the op: an order would be left with an op that is gone.
static bool is_ordered(const PlanProgram *p, const Op *op) {
  for (int k = 0; k < p->s->constraints.orders.n; k++) {
    const Order *o = &p->s->constraints.orders.at[k];
    for (int i = 0; i < o->n_first + o->n_then; i++)
      if ((i < o->n_first ? o->first[i] : o->then[i - o->n_first]) == op) return true;
  }
  return false;
}

// -- The classes of a loss ---------------------------------------------------------------------

// The loss that argument 1 names: a cross entropy, or the op with its parts if split_loss has
// replaced it, in this program or another.
static Op *check_loss(lua_State *l) {
  const PlanProgram *p = program_of(l);
  Op *given = *(Op **)luaL_checkudata(l, 1, PLAN_OPS);
  for (int i = p->losses.n - 1; i >= 0; i--)
    if (p->losses.at[i].was == given) return alternative_op(p->alternative, p->losses.at[i].is);
  // In an alternative the copy of the loss is replaced.
  for (int i = p->losses.n - 1; i >= 0; i--)
    if (p->losses.at[i].was == alternative_op(p->alternative, given))
      return alternative_op(p->alternative, p->losses.at[i].is);
  Op *op = plan_op(l, 1);
  if (op->kind != OP_cross_entropy && !is_split_loss(op))
    FAIL(l, op->loc, "%s is no cross_entropy", op_info[op->kind].name);
  return op;
}

// split_loss(op, axis, parts): replaces a cross entropy by ops whose classes can be split along the
// axis, into one part for each rank of the op, or as many as given.  Of a loss that is in parts
// already, for another axis, each part becomes as many.
static int split_loss(lua_State *l) {
  PlanProgram *p = program_of(l);
  Op *op = check_loss(l);
  int axis = plan_axis(l, 2);
  const Loc *loc = op->loc;
  bool again = op->kind != OP_cross_entropy;
  lua_Integer ranks = op_ranks(op, axis), parts = luaL_optinteger(l, 3, ranks);
  if (parts < 1 || parts > ranks)
    return FAIL(l, loc, "split_loss makes 1 to %d parts for this op, not %lld", (int)ranks,
                (long long)parts);
  if (!again && is_ordered(p, op))
    return FAIL(l, loc, "op_order orders this loss already: call split_loss before op_order");
  Record *r = p->s->record;
  // The name for the record must be taken before the op is replaced.
  record_before(r, &op, 1);
  const char *name = record_op(r, op);
  Op *made = op;
  if (again ? !split_classes_again(op, (int)parts, p->box.d)
            : !(made = split_classes(op, (int)parts, p->box.d)))
    return FAIL(l, loc, "the loss stays as it is");
  // The program may split the same loss along other axes, too.
  if (!again) vec_push(p->box.arena, &p->losses, (ReplacedLoss){op, made});
  // A saved plan assigns ranks after its changes, so it names the parts of a loss on some ranks.
  const MeshAxis *along = &p->s->mesh->axis[axis];
  const char *more = parts != along->size ? str_format(p->box.arena, ", %d", (int)parts) : "";
  if (r) record_call(r, p->s->g, "split_loss(%s, \"%s\"%s)", name, along->name, more);
  plan_changed(p);
  sharding_grow(p->s);
  if (again) dims_forget(p->s, made);
  return 0;
}

// -- Rings of attention ------------------------------------------------------------------------

// The layouts of a value that an attention reads, along the decided axes: those that it is given,
// and those that the attention needs.
typedef struct RingOperand {
  Value *value;
  Sbp given[MAX_AXES], needed[MAX_AXES];
} RingOperand;

typedef Vec(RingOperand) RingOperands;

static void add_operands(const Sharding *s, const Op *op, RingOperands *out) {
  for (int i = 0; i < op->n_in; i++) {
    RingOperand x = {.value = op->in[i].value};
    memcpy(x.given, s->decisions.layout[x.value->id], sizeof x.given);
    memcpy(x.needed, x.given, sizeof x.needed);
    for (int a = 0; a < s->mesh->n_axes; a++)
      if (s->decisions.final[a]) x.needed[a] = split_wants(op, dims_of(s, op), i, a, x.given[a]);
    vec_push(s->scratch, out, x);
  }
}

// The decided axis that splits the tokens of the attention; -1: none does.
static int axis_of_tokens(const Sharding *s, const Op *op) {
  RingOperands of = {0};
  add_operands(s, op, &of);
  int tokens = attr_i(op, "seq_major") ? 1 : 2;
  for (int i = 0; i < 3; i++)
    for (int a = 0; a < s->mesh->n_axes; a++) {
      const Sbp *needs = &of.at[i].needed[a];
      if (s->decisions.final[a] && needs->kind == SBP_S && needs->dim == tokens) return a;
    }
  return -1;
}

// Puts the new ops on the ranks of the attention, number `like`, and splits them along decided axes
// as it was: q, k and v come to them as it needed them, and all else follows.
static void decide_rounds(Sharding *s, uint32_t known, const Mesh *mesh, uint32_t like,
                          const RingOperands *operands) {
  for (int i = 0; i < operands->n; i++)
    memcpy(s->decisions.layout[operands->at[i].value->id], operands->at[i].needed,
           sizeof operands->at[i].needed);
  for_each_op(new, s->g)
    if (new->id >= known) {
      sharding_place_as(s, new, mesh, like);
      decide_by_operands(s, new);
    }
  for (int i = 0; i < operands->n; i++)
    memcpy(s->decisions.layout[operands->at[i].value->id], operands->at[i].given,
           sizeof operands->at[i].given);
}

// ring(op, axis): replaces an attention by the rounds of a ring over the ranks of the axis, and
// splits their blocks along it.  Returns true; or false and the reason, if the attention cannot be
// one.
static int ring(lua_State *l) {
  PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  int axis = plan_axis(l, 2);
  const Loc *loc = op->loc, *line = plan_line(l);
  const char *why;
  if (op->kind != OP_attention) return FAIL(l, loc, "%s is no attention", op_info[op->kind].name);
  bool ordered = is_ordered(p, op);
  for_each_use(u, op->out[1])
    ordered |= u->user && u->user->kind == OP_attention_back && is_ordered(p, u->user);
  if (ordered)
    return FAIL(l, loc, "op_order orders this attention already: call ring before op_order");
  bool possible = ring_possible(op, op_ranks(op, axis), &why);
  int split = possible ? axis_of_tokens(p->s, op) : -1;
  if (split >= 0)
    why = str_format(p->box.arena, "its tokens are split along '%s' already",
                     p->s->mesh->axis[split].name);
  if (!possible || split >= 0) {
    lua_pushboolean(l, false);
    lua_pushstring(l, why);
    return 2;
  }
  RingOperands operands = {0};
  add_operands(p->s, op, &operands);
  for_each_use(u, op->out[1])
    if (u->user && u->user->kind == OP_attention_back) add_operands(p->s, u->user, &operands);
  // The name for the record must be taken before the op is replaced.
  Record *r = p->s->record;
  record_before(r, &op, 1);
  const char *name = record_op(r, op);
  const Mesh *mesh = op_mesh(op);
  uint32_t known = p->s->g->n_ops, like = op->id;
  RingOps ops = {0};
  // The rounds of many ranks are many ops, which do not count.
  Spared began = sandbox_begin(l);
  if (!ring_attention(op, op_ranks(op, axis), p->box.arena, &ops, p->box.d))
    return FAIL(l, loc, "the attention stays as it is");
  if (r) record_call(r, p->s->g, "ring(%s, \"%s\")", name, p->s->mesh->axis[axis].name);
  plan_changed(p);
  sharding_grow(p->s);
  decide_rounds(p->s, known, mesh, like, &operands);
  for (int i = 0; i < ops.n; i++)
    decide_split(p->s, ops.at[i], axis, ring_letter(ops.at[i]), line);
  sandbox_spare(l, &began);
  lua_pushboolean(l, true);
  return 1;
}

// -- Pins --------------------------------------------------------------------------------------

// Replaces a recomputation of `v` by the pin.
static void drop_repeat(const Sharding *s, Op *op, const Value *v, Value *pinned) {
  if (repeated_by(s, op) != v->def) return;
  value_replace_uses(op->out[v->index], pinned);
  if (!op_used(op)) op_erase(op);
}

// Replaces all recomputations of `v`, which ends in a pin. Those of a cast of a weight read the
// weight as well.
static void drop_repeated(const Sharding *s, const Value *v, Value *pinned) {
  const Value *of = v->def->n_in == 1 ? v->def->in[0].value : NULL;
  if (of && !of->def) {
    for (Use *u = of->uses, *next; u; u = next) {
      next = u->next;
      if (u->user && u->user->n_in == 1) drop_repeat(s, u->user, v, pinned);
    }
    return;
  }
  for_each_op_safe(op, s->g)
    drop_repeat(s, op, v, pinned);
}

// pin(value): inserts an identity op between the value and its readers in the update, for a
// constraint on its split.  pin(value, "all"): between it and all of its readers.
static int pin(lua_State *l) {
  PlanProgram *p = program_of(l);
  Value *v = plan_value(l, 1);
  const char *whose = luaL_optstring(l, 2, "update");
  bool all = strcmp(whose, "all") == 0;
  if (!v->def)
    return FAIL(l, v->loc, "'%s' is a parameter: split or store gives its layout", v->label);
  if (!all && strcmp(whose, "update") != 0)
    return FAIL(l, v->def->loc, "pin serves the readers in 'update' or 'all', not '%s'", whose);
  Builder b = {.g = p->s->g, .at = v->def->next, .origin = op_origin(v->def), .d = p->box.d};
  Record *r = p->s->record;
  record_before(r, &v->def, 1);
  const char *name = record_op(r, v->def);
  // A reshape to the same shape is the identity.
  Value *pinned =
      build_op(&b, OP_reshape, IN(v), ATTRS(a_list("shape", v->type->dim, v->type->ndim)));
  if (!pinned) return FAIL(l, v->def->loc, "the value cannot be pinned");
  // Otherwise readers in forward and backward keep the value itself.
  for (Use *u = v->uses, *next; u; u = next) {
    next = u->next;
    bool reads = u->user && u->user != pinned->def && (all || op_part(u->user) == PART_update);
    if (reads) op_set_in(u->user, u->index, pinned);
  }
  if (all) drop_repeated(p->s, v, pinned);
  if (r)
    record_call(r, p->s->g, "pin(%s.outputs[%d]%s)", name, v->index + 1, all ? ", \"all\"" : "");
  plan_changed(p);
  sharding_add(p->s, pinned->def);
  // Along decided axes the pin has the layout of its value, which may be a partial sum.
  decide_as_operand(p->s, pinned->def);
  plan_push(l, pinned->def, PLAN_OPS);
  return 1;
}

// -- Lists of ops that are gone -----------------------------------------------------------------

// The ops of the graph in their order, before a change.
static OpList before_change(lua_State *l) {
  const PlanProgram *p = program_of(l);
  OpList all = {0};
  for_each_op(op, p->s->g)
    vec_push(p->box.arena, &all, op);
  return all;
}

// Which of the ops before a change a new op replaces, -1: none.  `from` to `to` are the ones that
// are gone between its neighbours.
static int replaced_by(const OpList *before, int from, int to, const Op *new) {
  for (int i = from; i < to; i++)
    if (before->at[i]->loc == new->loc) return i;
  // A new op may come from the same place in the model as one elsewhere.
  for (int i = 0; i < before->n; i++)
    if (before->at[i]->loc == new->loc && !plan_there(before->at[i])) return i;
  return from < to ? from : -1;
}

// After a change: in lists of the program, and in layers, new ops replace those that are gone.
static void after_change(lua_State *l, const OpList *before) {
  PlanProgram *p = program_of(l);
  Arena *a = p->box.arena;
  OpList *now = arena_array(a, OpList, before->n);
  Op *new = p->s->g->first;
  for (int i = 0; i <= before->n; i++) {
    int from = i;
    while (i < before->n && !plan_there(before->at[i]))
      i++;
    // New ops up to the next old one, in the order of those that they replace.
    Op *end = i < before->n ? before->at[i] : NULL;
    for (; new != end; new = new->next) {
      int by = replaced_by(before, from, i, new);
      if (by >= 0) vec_push(a, &now[by], new);
      if (by >= from && by < i) from = by;
    }
    new = end ? end->next : NULL;
  }
  Vec(CutOp) cuts = {0};
  for (int i = 0; i < before->n; i++)
    if (!plan_there(before->at[i]))
      vec_push(a, &cuts, ((CutOp){before->at[i], now[i].at, now[i].n}));
  plan_after_cut(l, cuts.at, cuts.n);
}

// -- Changes of the model ----------------------------------------------------------------------

// unpack(op): returns whether its result was a fused product.
static int unpack(lua_State *l) {
  PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  if (p->n_axes) return FAIL(l, op->loc, "the model is as it is now: this belongs into 'model'");
  if (!is_packed_product(op)) {
    lua_pushboolean(l, false);
    return 1;
  }
  Record *r = p->s->record;
  record_before(r, &op, 1);
  const char *name = record_op(r, op);
  // Lists of all ops, of each of many layers, do not count.
  Spared began = sandbox_begin(l);
  OpList before = before_change(l);
  if (!unpack_product(op, p->box.d)) return FAIL(l, op->loc, "the product stays as it is");
  if (r) record_call(r, p->s->g, "unpack(%s)", name);
  plan_changed(p);
  after_change(l, &before);
  sandbox_spare(l, &began);
  lua_pushboolean(l, true);
  return 1;
}

// pad(op, n): pads the vocabulary of a gather or a product to a multiple of n; returns whether it
// is one now, and if not, why not.
static int pad(lua_State *l) {
  PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  lua_Integer n = luaL_checkinteger(l, 2);
  if (p->n_axes) return FAIL(l, op->loc, "the model is as it is now: this belongs into 'model'");
  if (n < 1 || n > MAX_DEVICES)
    return FAIL(l, op->loc, "pad wants a multiple of 1 to %d, not %lld", MAX_DEVICES, (long long)n);
  Record *r = p->s->record;
  const char *why;
  record_before(r, &op, 1);
  const char *name = record_op(r, op);
  OpList before = before_change(l);
  if (!pad_vocabulary(op, n, &why, p->box.d))
    return FAIL(l, op->loc, "the vocabulary stays as it is");
  if (!why && r) record_call(r, p->s->g, "pad(%s, %lld)", name, (long long)n);
  plan_changed(p);
  after_change(l, &before);
  lua_pushboolean(l, !why);
  if (why) lua_pushstring(l, why);
  return why ? 2 : 1;
}

// A number of the table `arg`, or `otherwise`.
static double field(lua_State *l, int arg, const char *name, double otherwise) {
  if (lua_isnoneornil(l, arg)) return otherwise;
  luaL_checktype(l, arg, LUA_TTABLE);
  int is_number = 1;
  bool there = lua_getfield(l, arg, name) != LUA_TNIL;
  double x = there ? lua_tonumberx(l, -1, &is_number) : otherwise;
  if (!is_number) FAIL(l, NULL, "'%s' is a number, not %s", name, steady_text(l, -1));
  lua_pop(l, 1);
  return x;
}

// Rows of the batch that divide those of the experts; 1 if there are none.
static int64_t groups_of(const Graph *g, int64_t rows) {
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->role != ROLE_input || v->whole || v->type->ndim < 1) continue;
    if (v->type->dim[0] > 0 && rows % v->type->dim[0] == 0) return v->type->dim[0];
  }
  return 1;
}

// dispatch_experts(op, {parts=, capacity=, imbalance=}): puts the rows of the mixture of a
// grouped_linear in slots.  Returns the number of slots of a part for each group, and of all slots.
static int put_in_slots(lua_State *l) {
  PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  if (p->n_axes) return FAIL(l, op->loc, "the model is as it is now: this belongs into 'model'");
  if (op->kind != OP_grouped_linear || attr_i(op, "parts"))
    return FAIL(l, op->loc, "%s is no grouped_linear of all experts", op_info[op->kind].name);
  op = dispatch_first(op);
  int64_t experts = dispatch_experts_of(op), rows = dispatch_rows_of(op);
  double parts = field(l, 2, "parts", (double)experts);
  double capacity = field(l, 2, "capacity", 0), imbalance = field(l, 2, "imbalance", 1);
  Dispatch to = {.groups = groups_of(op->graph, rows)};
  if (!(parts >= 1 && parts <= (double)experts) || experts % (int64_t)parts != 0)
    return FAIL(l, op->loc, "%lld experts are not %g equal parts", (long long)experts, parts);
  if (!(capacity == 0 || capacity >= 1))
    return FAIL(l, op->loc, "a capacity of %g times the mean loses rows", capacity);
  if (!(imbalance >= 1 && imbalance <= (double)experts))
    return FAIL(l, op->loc, "the busiest part has 1 to %lld times the mean of rows, not %g",
                (long long)experts, imbalance);
  to.parts = (int64_t)parts;
  // Without a capacity, one that no rows exceed.
  int64_t bound = dispatch_bound(op, to.parts, to.groups), each = rows / to.groups;
  double mean = (double)each / (double)to.parts, wanted = ceil(mean * capacity);
  to.capacity = capacity == 0 || wanted >= (double)bound ? bound : (int64_t)wanted;
  double load = imbalance * mean / (double)to.capacity;
  to.load = load < 1 ? load : 1;
  Record *r = p->s->record;
  // The name for the record must be taken before the op is replaced.
  record_before(r, &op, 1);
  const char *name = record_op(r, op);
  Spared began = sandbox_begin(l);
  OpList before = before_change(l);
  if (!dispatch_experts(op, &to, p->box.d)) return FAIL(l, NULL, "the experts stay as they are");
  if (r)
    record_call(r, p->s->g,
                "dispatch_experts(%s, { parts = %lld, capacity = %.17g, imbalance = %.17g })", name,
                (long long)to.parts, capacity, imbalance);
  plan_changed(p);
  after_change(l, &before);
  sandbox_spare(l, &began);
  lua_pushinteger(l, to.capacity);
  lua_pushinteger(l, to.capacity * to.parts * to.groups);
  return 2;
}

// -- Recomputed and offloaded lists --------------------------------------------------------------

// A mark of ops: the number of their list, 0 for none.
typedef struct ListMark {
  const char *call, *verb;
  int *(*of)(Op *op);
} ListMark;

static int *recompute_group_of(Op *op) {
  return &op->recompute_group;
}

static int *offload_group_of(Op *op) {
  return &op->offload_group;
}

// Makes a list of the ops; an op that is in one already is an error.
static int mark_list(lua_State *l, const ListMark *mark, bool by_piece) {
  PlanProgram *p = program_of(l);
  const Graph *g = plan_sharding(l)->g;
  OpList ops = {0};
  int list = 1;
  luaL_checkany(l, 1);
  if (p->n_axes) return FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  lua_settop(l, 1);
  plan_list(l, arena_array(p->s->scratch, bool, g->n_ops), &ops, mark->call);
  if (!ops.n) return FAIL(l, NULL, "%s wants ops, and this list is empty", mark->call);
  // Numbers lists from 1, in the order of the calls.
  for_each_op(op, g)
    if (*mark->of(op) >= list) list = *mark->of(op) + 1;
  for (int i = 0; i < ops.n; i++) {
    Op *op = ops.at[i];
    if (*mark->of(op))
      return FAIL(l, op->loc, "%s is in a list that is %s already", op_info[op->kind].name,
                  mark->verb);
    *mark->of(op) = list;
    op->by_piece |= by_piece;
  }
  // A saved plan repeats the call.
  Record *r = p->s->record;
  if (!r) return 0;
  record_before(r, ops.at, ops.n);
  record_call(r, g, "%s(%s%s)", mark->call, record_ops(r, ops.at, ops.n), by_piece ? ", true" : "");
  return 0;
}

// recompute(list, by_piece): backward recomputes the results of these ops instead of saving them.
static int recompute(lua_State *l) {
  if (!lua_isnoneornil(l, 2)) luaL_checktype(l, 2, LUA_TBOOLEAN);
  bool by_piece = lua_toboolean(l, 2);
  return mark_list(l, &(ListMark){"recompute", "recomputed", recompute_group_of}, by_piece);
}

// swap(list): offloads the saved activations of these ops to host memory until backward.
static int swap(lua_State *l) {
  return mark_list(l, &(ListMark){"swap", "swapped", offload_group_of}, false);
}

// -- Persistent state in host memory -------------------------------------------------------------

// Argument 1, a weight, in 'model'; `why` ends the error for another value.
static Value *weight_of_model(lua_State *l, const char *why) {
  Value *v = plan_value(l, 1);
  PlanProgram *p = program_of(l);
  if (p->n_axes) FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  if (v->def || v->role != ROLE_weight)
    FAIL(l, plan_loc(v), "'%s' is no weight, and %s",
         v->label ? v->label : value_text(p->box.arena, v), why);
  return v;
}

// offload(weight): keeps its optimizer states in host memory, and the weight, if only updates read
// it.
static int offload(lua_State *l) {
  weight_of_model(l, "no optimizer keeps states of it")->host = true;
  return 0;
}

// offload_gradient(weight): keeps the sum of its gradients over micro-batches in host memory.
static int offload_gradient(lua_State *l) {
  weight_of_model(l, "no gradient of it is added up")->host_gradient = true;
  return 0;
}

// -- Order of updates ----------------------------------------------------------------------------

// cross_barrier(): defers updates to the next step, right before the first use of their result.
static int cross_barrier(lua_State *l) {
  PlanProgram *p = program_of(l);
  if (p->n_axes) return FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  plan_sharding(l)->g->module->cross_barrier = true;
  if (p->s->record) p->s->record->cross_barrier = true;
  return 0;
}

// optimizer_in_backward(): runs each update as soon as its gradient is complete.
static int optimizer_in_backward(lua_State *l) {
  PlanProgram *p = program_of(l);
  if (p->n_axes) return FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  plan_sharding(l)->g->module->optimizer_in_backward = true;
  if (p->s->record) p->s->record->optimizer_in_backward = true;
  return 0;
}

const luaL_Reg plan_changes[] = {
    {"cross_barrier", cross_barrier},
    {"dispatch_experts", put_in_slots},
    {"offload", offload},
    {"offload_gradient", offload_gradient},
    {"optimizer_in_backward", optimizer_in_backward},
    {"pad", pad},
    {"pin", pin},
    {"recompute", recompute},
    {"ring", ring},
    {"split_loss", split_loss},
    {"swap", swap},
    {"unpack", unpack},
    {NULL, NULL},
};
