// What the program of a plan may say: see lua_graph.h; passes/plans/README.md has the functions.

#include <ctype.h>
#include <string.h>

#include "assign.h"
#include "base/vec.h"
#include "ir/op.h"
#include "ir/verify.h"
#include "lua_graph.h"
#include "part.h"
#include "pieces.h"
#include "search/search.h"
#include "split_classes.h"
#include "stages/stages.h"
#include "unpack.h"

// -- Splits of ops -----------------------------------------------------------------------------

// Why `op` cannot split `letter` along `axis`, or NULL.
static const char *why_not(lua_State *l, const Op *op, char letter, int axis) {
  const PlanProgram *p = program_of(l);
  Arena *a = p->box.arena;
  const Dims *dims = plan_einsum(l, op);
  const char *name = op_info[op->kind].name, *axis_name = p->s->mesh->axis[axis].name;
  if (p->s->fixed[op->id][axis] && (op->split[axis] ? op->split[axis] : '-') != letter)
    return str_format(a, "%s splits '%c' along %s already", name,
                      op->split[axis] ? op->split[axis] : '-', axis_name);
  if (letter == '-') return NULL;
  if (letter == SPLIT_PARTIAL)
    return op_traits(op) & (SUM | EACH) ? NULL
                                        : str_format(a, "%s cannot pass partial sums on", name);
  int i = dims_find(dims, letter);
  if (i < 0)
    return str_format(a, "%s has no letter '%c': it is %s", name, letter, dims_text(a, dims));
  if (dims->letter[i].whole)
    return str_format(a, "%s cannot be split along '%c', which it needs whole: it is %s", name,
                      letter, dims_text(a, dims));
  if (!dims_leads(dims, i))
    return str_format(a, "%s cannot be split along '%c', which does not stand first: it is %s",
                      name, letter, dims_text(a, dims));
  if (op_ranks(op, axis) == 1 && p->s->mesh->axis[axis].size > 1)
    return str_format(a, "%s runs on one rank of %s, which has all of it", name, axis_name);
  bool cut_already = memchr(op->split, letter, sizeof op->split) != NULL;
  if (!split_legal(op, dims, i, axis))
    return str_format(a, "%s has %lld of '%c', which cannot be cut in %d along %s%s", name,
                      (long long)dims->letter[i].size, letter, op_ranks(op, axis), axis_name,
                      cut_already ? " besides what cuts it already" : "");
  return NULL;
}

static char check_letter(lua_State *l, int arg, const Op *op) {
  size_t n;
  const char *text = luaL_checklstring(l, arg, &n);
  if (n == 1 && isgraph((unsigned char)*text)) return *text;
  return (char)FAIL(l, op->loc, "'%s' is no letter of %s; '-' is none of them, '+' passes sums on",
                    text, dims_text(program_of(l)->box.arena, plan_einsum(l, op)));
}

static int can(lua_State *l) {
  const Op *op = plan_op(l, 1);
  if (lua_isnil(l, 2))
    lua_pushboolean(l, false);
  else
    lua_pushboolean(l, !why_not(l, op, check_letter(l, 2, op), plan_axis(l, 3)));
  return 1;
}

static int op_trans(lua_State *l) {
  const PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  char letter = check_letter(l, 2, op);
  int axis = plan_axis(l, 3);
  const char *why = why_not(l, op, letter, axis);
  if (why) return plan_fail(l, op->loc, why);
  op->split[axis] = letter == '-' ? SPLIT_NONE : letter;
  p->s->fixed[op->id][axis] = plan_line(l);
  return 0;
}

// -- Ranks of ops ------------------------------------------------------------------------------

// An entry of the list that is argument `arg`, `i` from 1.
static lua_Integer check_entry(lua_State *l, int arg, lua_Integer i, const char *what,
                               const Loc *loc) {
  int is_integer;
  lua_rawgeti(l, arg, i);
  lua_Integer entry = lua_tointegerx(l, -1, &is_integer);
  if (!is_integer)
    return FAIL(l, loc, "%s %lld of the list is %s, which is no integer", what, (long long)i,
                luaL_tolstring(l, -1, NULL));
  lua_pop(l, 1);
  return entry;
}

// A rank of the axis, from 0.
static int check_rank(lua_State *l, lua_Integer i, const Op *op, int axis) {
  const MeshAxis *along = &program_of(l)->s->mesh->axis[axis];
  if (i >= 0 && i < along->size) return (int)i;
  return FAIL(l, op->loc, "there is no rank %lld of %s: there are %d, from 0", (long long)i,
              along->name, along->size);
}

// One rank, or a list of them.
static const Ranks *check_ranks(lua_State *l, int arg, const Op *op, int axis) {
  const PlanProgram *p = program_of(l);
  if (!lua_istable(l, arg))
    return ranks_new(p->s, axis, (int[]){check_rank(l, luaL_checkinteger(l, arg), op, axis)}, 1);
  lua_Unsigned n = lua_rawlen(l, arg);
  int size = p->s->mesh->axis[axis].size, *at = arena_array(p->box.arena, int, size);
  bool *seen = arena_array(p->box.arena, bool, size);
  if (n == 0)
    FAIL(l, op->loc, "op_assign wants a rank of %s or a list of them, and this is empty",
         p->s->mesh->axis[axis].name);
  for (lua_Unsigned i = 0; i < n; i++) {
    int rank = check_rank(l, check_entry(l, arg, (lua_Integer)i + 1, "rank", op->loc), op, axis);
    if (seen[rank]) FAIL(l, op->loc, "rank %d is in the list twice", rank);
    seen[rank] = true;
    at[i] = rank;
  }
  return ranks_new(p->s, axis, at, (int)n);
}

// op_assign(op, ranks, axis): it runs on this rank of the axis, or on the ranks of this list.
static int op_assign(lua_State *l) {
  const PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  int axis = plan_axis(l, 3);
  const char *name = op_info[op->kind].name, *along = p->s->mesh->axis[axis].name;
  const Ranks *ranks = check_ranks(l, 2, op, axis);
  if (op->split[axis] != SPLIT_NONE)
    return FAIL(l, op->loc, "%s splits '%c' along %s already: say first where it runs", name,
                op->split[axis], along);
  if (p->s->assigned[op->id][axis])
    return FAIL(l, op->loc, "%s runs on %s already", name,
                ranks_text(p->box.arena, p->s->ranks[op->id][axis], along));
  assign_op(p->s, op, axis, ranks);
  return 0;
}

// -- Layouts of parameters ---------------------------------------------------------------------

static const char *why_not_cut(lua_State *l, const Value *v, int dim, int axis) {
  const PlanProgram *p = program_of(l);
  Arena *a = p->box.arena;
  const char *name = v->label ? v->label : value_text(a, v);
  if (v->def) return str_format(a, "'%s' is no parameter", name);
  Sbp lies = p->s->lies[v->id][axis];
  if (p->s->given[v->id][axis] != OPEN && (lies.kind != SBP_S || lies.dim != dim))
    return str_format(a, "'%s' lies otherwise along %s already", name, p->s->mesh->axis[axis].name);
  if (!param_cuts(p->s, v, dim, axis))
    return str_format(a, "dimension %d of '%s' is %lld, which cannot be cut in %d along %s", dim,
                      name, (long long)v->type->dim[dim], p->s->mesh->axis[axis].size,
                      p->s->mesh->axis[axis].name);
  return NULL;
}

static int cuts(lua_State *l) {
  const Value *v = plan_value(l, 1);
  int dim = plan_dim(l, 2, v->type->rank, plan_loc(v));
  lua_pushboolean(l, !why_not_cut(l, v, dim, plan_axis(l, 3)));
  return 1;
}

static int cut(lua_State *l, Given given) {
  const PlanProgram *p = program_of(l);
  const Value *v = plan_value(l, 1);
  int dim = plan_dim(l, 2, v->type->rank, plan_loc(v)), axis = plan_axis(l, 3);
  const char *why = why_not_cut(l, v, dim, axis);
  if (why) return plan_fail(l, plan_loc(v), why);
  p->s->lies[v->id][axis] = (Sbp){.kind = SBP_S, .dim = dim};
  p->s->given[v->id][axis] = given;
  return 0;
}

static int split(lua_State *l) {
  return cut(l, FIXED);
}

static int store(lua_State *l) {
  return cut(l, STORED);
}

// -- The classes of a loss ---------------------------------------------------------------------

// split_loss(op, axis): a cross entropy becomes ops whose classes can be split along the axis.
static int split_loss(lua_State *l) {
  const PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  int axis = plan_axis(l, 2);
  const Loc *loc = op->loc;
  if (op->kind != OP_cross_entropy)
    return FAIL(l, loc, "%s is no cross_entropy", op_info[op->kind].name);
  if (!split_classes(op, op_ranks(op, axis), p->box.d))
    return FAIL(l, loc, "the loss stays as it is");
  sharding_grow(p->s);
  return 0;
}

// -- Pins --------------------------------------------------------------------------------------

// pin(value): an op that does nothing to the value and takes its readers of the update, so that
// one can say what it splits.
static int pin(lua_State *l) {
  PlanProgram *p = program_of(l);
  Value *v = plan_value(l, 1);
  if (!v->def)
    return FAIL(l, v->loc, "'%s' is a parameter: split or store says how it lies", v->label);
  Builder b = {.g = p->s->g, .at = v->def->next, .origin = op_origin(v->def), .d = p->box.d};
  Value *pinned = build(&b, OP_reshape, IN(v), ATTRS(a_list("shape", v->type->dim, v->type->rank)));
  if (!pinned) return FAIL(l, v->def->loc, "the value cannot be pinned");
  for (Use *u = v->uses, *next; u; u = next) {
    next = u->next;
    bool reads = u->user && u->user != pinned->def && op_part(u->user) == PART_update;
    if (reads) op_set_in(u->user, u->index, pinned);
  }
  sharding_grow(p->s);
  plan_push(l, pinned->def, PLAN_OPS);
  return 1;
}

// -- Where a split leads -----------------------------------------------------------------------

// A dimension of a value that comes in cut.
typedef struct Cut {
  const Value *v;
  int dim;
} Cut;

typedef struct Flow {
  lua_State *l;
  int axis;
  Vec(Cut) cuts; // all that were met; those from some point on are still to be followed
  int n_ends, n_stops;
} Flow;

static void start_flow(PlanProgram *p) {
  if (p->n_met < p->s->n_values) {
    p->n_met = p->s->n_values;
    p->met = arena_array(p->s->scratch, uint32_t, p->n_met * MAX_RANK);
    p->n_flows = 0;
  }
  p->n_flows++;
}

static void push_stop(Flow *f, const Op *op) {
  plan_push(f->l, op, PLAN_OPS);
  lua_rawseti(f->l, 5, ++f->n_stops);
}

static void push_end(Flow *f, const Op *op, int letter) {
  lua_createtable(f->l, 0, 2);
  plan_push(f->l, op, PLAN_OPS);
  lua_setfield(f->l, -2, "op");
  lua_pushstring(f->l, plan_letter(plan_einsum(f->l, op), letter));
  lua_setfield(f->l, -2, "letter");
  lua_rawseti(f->l, 4, ++f->n_ends);
}

static void meet(Flow *f, const Value *v, int dim) {
  PlanProgram *p = program_of(f->l);
  uint32_t *met = &p->met[v->id * MAX_RANK + (uint32_t)dim];
  if (*met == p->n_flows) return;
  *met = p->n_flows;
  vec_push(p->s->scratch, &f->cuts, (Cut){v, dim});
}

static void meet_results(Flow *f, const Op *op, int letter) {
  const Dims *dims = plan_einsum(f->l, op);
  bool ends = true;
  for (int i = 0; i < op->n_out; i++) {
    int dim = dims_position(dims, &dims->out[i], letter);
    if (dim < 0) continue;
    ends = false;
    meet(f, op->out[i], dim);
  }
  if (ends) push_end(f, op, letter);
}

static void follow(Flow *f, Cut cut) {
  for_each_use(u, cut.v) {
    if (!u->user) {
      if (cut.v->def) push_stop(f, cut.v->def);
      continue;
    }
    if (op_part(u->user) != PART_forward) continue;
    int letter = letter_of_operand(program_of(f->l)->s, u->user, u->index, cut.dim, f->axis);
    if (letter < 0)
      push_stop(f, u->user);
    else
      meet_results(f, u->user, letter);
  }
}

// flow(op, letter, axis): follows a split through the model.  Returns where it ends in sums, as a
// list of {op=, letter=}; and the list of ops that cannot take it.
static int flow(lua_State *l) {
  const Op *op = plan_op(l, 1);
  char letter = check_letter(l, 2, op);
  Flow f = {.l = l, .axis = plan_axis(l, 3)};
  const char *why = why_not(l, op, letter, f.axis);
  lua_settop(l, 3);
  lua_newtable(l);
  lua_newtable(l);
  start_flow(program_of(l));
  int i = dims_find(plan_einsum(l, op), letter);
  if (why || i < 0)
    push_stop(&f, op);
  else
    meet_results(&f, op, i);
  for (int k = 0; k < f.cuts.n; k++)
    follow(&f, f.cuts.at[k]);
  return 2;
}

// -- What is left open --------------------------------------------------------------------------

// Takes {sums = false} off, the first of the arguments, if it is there.
static bool search_sums(lua_State *l) {
  bool sums = true;
  if (!lua_istable(l, 1)) return sums;
  for (lua_pushnil(l); lua_next(l, 1); lua_pop(l, 1)) {
    const char *name = lua_type(l, -2) == LUA_TSTRING ? lua_tostring(l, -2) : "";
    if (!str_equal(name, "sums") || !lua_isboolean(l, -1))
      return FAIL(l, NULL, "of a search one may say {sums = true} or {sums = false}");
    sums = lua_toboolean(l, -1);
  }
  lua_remove(l, 1);
  return sums;
}

// search({sums = false}, axis, …): what is open along these axes is chosen, all together.
static int search(lua_State *l) {
  PlanProgram *p = program_of(l);
  bool sums = search_sums(l);
  int n = lua_gettop(l), axis[MAX_AXES];
  Searched found;
  plan_sharding(l);
  if (n < 1 || n > MAX_AXES) return FAIL(l, NULL, "search takes the axes that it is about");
  for (int i = 0; i < n; i++)
    axis[i] = plan_axis(l, i + 1);
  for_each_op(op, p->s->g)
    if (op_mesh(op) != p->s->mesh)
      return FAIL(l, op->loc, "what is assigned to some of the ranks cannot be searched yet");
  if (!search_axes(p->s, axis, n, sums, p->s->cluster, plan_line(l), &found, p->box.d))
    return FAIL(l, NULL, "the search found nothing");
  if (p->s->searched) searched_add(p->s->searched, &found);
  return 0;
}

// A number of stages, or a list of how many ranks each has; without one, nothing is asked for.
static StageWish check_stages(lua_State *l, int arg, int size) {
  StageWish w = {0};
  if (lua_isnoneornil(l, arg)) return w;
  bool counted = !lua_istable(l, arg);
  lua_Integer n = counted ? luaL_checkinteger(l, arg) : (lua_Integer)lua_rawlen(l, arg);
  if (n < 1 || n > size)
    FAIL(l, NULL, "place wants 1 to %d stages, as many as there are ranks, and not %lld", size,
         (long long)n);
  w.n = (int)n;
  if (counted) return w;
  int *at = arena_array(program_of(l)->box.arena, int, n);
  for (int i = 0; i < n; i++) {
    lua_Integer ranks = check_entry(l, arg, i + 1, "size", NULL);
    if (ranks < 1 || ranks > size)
      FAIL(l, NULL, "a stage has 1 to %d ranks, not %lld", size, (long long)ranks);
    at[i] = (int)ranks;
  }
  w.size = at;
  return w;
}

// place(axis, number of stages or list of their ranks): what is open runs on stages.  Returns the
// list of how many ranks each has.
static int place(lua_State *l) {
  PlanProgram *p = program_of(l);
  plan_sharding(l);
  int axis = plan_axis(l, 1);
  if (p->s->mesh->axis[axis].time) return FAIL(l, NULL, "stages are ranks, and no slices of time");
  StageWish wish = check_stages(l, 2, p->s->mesh->axis[axis].size);
  Stages made;
  if (!stages_place(p->s, axis, &wish, plan_line(l), &made, p->box.d))
    return FAIL(l, NULL, "nothing was placed along %s", p->s->mesh->axis[axis].name);
  if (p->s->searched && made.searched.n) searched_add(p->s->searched, &made.searched);
  lua_createtable(l, made.n, 0);
  for (int i = 0; i < made.n; i++) {
    lua_pushinteger(l, made.size[i]);
    lua_rawseti(l, -2, i + 1);
  }
  return 1;
}

// -- Changes of the model ----------------------------------------------------------------------

// unpack(op): whether its result was cut apart.
static int unpack(lua_State *l) {
  PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  if (p->n_axes) return FAIL(l, op->loc, "the model is as it is now: this belongs into 'model'");
  bool done;
  if (!unpack_product(op, &done, p->box.d)) return FAIL(l, op->loc, "the product stays as it is");
  lua_pushboolean(l, done);
  return 1;
}

enum { MAX_PIECES = 1024 };

// A number of equal pieces, or a list of how long each is.
static PieceSizes check_sizes(lua_State *l, int arg) {
  PieceSizes s = {0};
  bool equal = !lua_istable(l, arg);
  lua_Integer n = equal ? luaL_checkinteger(l, arg) : (lua_Integer)lua_rawlen(l, arg);
  if (n < 1 || n > MAX_PIECES) FAIL(l, NULL, "pieces wants 1 to %d pieces", MAX_PIECES);
  int *at = arena_array(program_of(l)->box.arena, int, n);
  for (s.at = at; s.n < n; s.sum += at[s.n++]) {
    lua_Integer size = equal ? 1 : check_entry(l, arg, s.n + 1, "size", NULL);
    if (size < 1 || size > INT32_MAX / MAX_PIECES)
      FAIL(l, NULL, "a piece has a size of 1 or more, not %lld", (long long)size);
    at[s.n] = (int)size;
  }
  return s;
}

// pieces(list of {op=, letter=}, n or list of sizes): whether these and what follows was cut so.
static int pieces(lua_State *l) {
  PlanProgram *p = program_of(l);
  luaL_checktype(l, 1, LUA_TTABLE);
  int n = (int)lua_rawlen(l, 1);
  PieceSizes sizes = check_sizes(l, 2);
  if (p->n_axes) return FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  if (n < 1) return FAIL(l, NULL, "pieces wants a list of {op=, letter=}, and this is empty");
  PieceStart *start = arena_array(p->box.arena, PieceStart, n);
  for (int i = 0; i < n; i++) {
    lua_settop(l, 2);
    bool fits = lua_rawgeti(l, 1, i + 1) == LUA_TTABLE;
    fits = fits && lua_getfield(l, 3, "op") && luaL_testudata(l, 4, PLAN_OPS);
    fits = fits && lua_getfield(l, 3, "letter") == LUA_TSTRING;
    if (!fits) return FAIL(l, NULL, "number %d of the list is no {op=, letter=}", i + 1);
    start[i].op = plan_op(l, 4);
    start[i].letter = check_letter(l, 5, start[i].op);
  }
  bool done;
  if (!cut_in_pieces(start, n, &sizes, &done, p->box.d))
    return FAIL(l, start->op->loc, "the ops stay as they are");
  lua_pushboolean(l, done);
  return 1;
}

// -- Not yet -----------------------------------------------------------------------------------

static int op_order(lua_State *l) {
  return FAIL(l, plan_op(l, 1)->loc, "op_order is not supported yet: ops run in the model's order");
}

const luaL_Reg plan_calls[] = {
    {"annotated_apart", plan_annotated_apart},
    {"annotations", plan_annotations},
    {"op_assign", op_assign},
    {"op_order", op_order},
    {"can", can},
    {"cuts", cuts},
    {"flow", flow},
    {"op_trans", op_trans},
    {"pieces", pieces},
    {"pin", pin},
    {"place", place},
    {"search", search},
    {"split", split},
    {"split_loss", split_loss},
    {"store", store},
    {"unpack", unpack},
    {NULL, NULL},
};
