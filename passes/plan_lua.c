// What the program of a plan sees of the graph, and what it may say: passes/plans/README.md is the
// language, this its implementation.
//
// Ops and values are handed out as userdata that hold pointers; equal ones are the same userdata,
// so that a program can keep them in tables.  What a program says is checked where it says it, so
// that an error is at its line, and about an op of the model.

#include <string.h>

#include "base/vec.h"
#include "ir/op.h"
#include "ir/verify.h"
#include "lua_sandbox.h"
#include "part.h"
#include "pieces.h"
#include "plan.h"
#include "plan_texts.h"
#include "split_classes.h"
#include "unpack.h"

enum { MAX_DEPTH = 8 }; // of programs that apply programs

struct PlanProgram {
  Sandbox box;
  Sharding *s;
  const int *axis; // its own, while `step` runs
  int n_axes, depth;
  int64_t n;        // of `factors`: ranks
  int64_t *factors; // what it returned
  uint32_t *met;    // by value id and dimension: the last flow that came there
  uint32_t n_met, n_flows;
  bool refused; // the model
};

static PlanProgram *program_of(lua_State *l) {
  return *(PlanProgram **)lua_getextraspace(l);
}

// Ends the program with an error at the line that called; `loc` is what of the model it is about.
static int fail(lua_State *l, const Loc *loc, const char *message) {
  program_of(l)->box.about = loc;
  return luaL_error(l, "%s", message);
}

#define FAIL(l, loc, ...) fail(l, loc, str_format(program_of(l)->box.arena, __VA_ARGS__))

// -- Ops and values ----------------------------------------------------------------------------

static const char OPS[] = "op", VALUES[] = "value"; // names of metatables

static void push_object(lua_State *l, const void *object, const char *type) {
  if (lua_rawgetp(l, LUA_REGISTRYINDEX, object) != LUA_TNIL) return;
  lua_pop(l, 1);
  *(const void **)lua_newuserdatauv(l, sizeof object, 0) = object;
  luaL_setmetatable(l, type);
  lua_pushvalue(l, -1);
  lua_rawsetp(l, LUA_REGISTRYINDEX, object);
}

static Op *check_op(lua_State *l, int arg) {
  return *(Op **)luaL_checkudata(l, arg, OPS);
}

static Value *check_value(lua_State *l, int arg) {
  return *(Value **)luaL_checkudata(l, arg, VALUES);
}

static const Dims *op_einsum(lua_State *l, const Op *op) {
  return dims_of(program_of(l)->s, op);
}

// Argument `arg` is the name of one of the program's axes.
static int check_axis(lua_State *l, int arg) {
  const PlanProgram *p = program_of(l);
  const char *name = luaL_checkstring(l, arg);
  StrBuf known = {.arena = p->box.arena};
  if (p->n_axes == 0) return FAIL(l, NULL, "there are no axes yet: this belongs into 'step'");
  for (int i = 0; i < p->n_axes; i++) {
    const char *own = p->s->mesh->axis[p->axis[i]].name;
    if (str_equal(own, name)) return p->axis[i];
    strbuf_addf(&known, "%s%s", i ? ", " : "", own);
  }
  return FAIL(l, NULL, "'%s' is no axis of this program; there is %s", name, known.at);
}

// A dimension as in layouts: from 0, or from the end if negative.
static int check_dim(lua_State *l, int arg, int rank, const Loc *loc) {
  lua_Integer dim = luaL_checkinteger(l, arg);
  if (dim >= -rank && dim < rank) return (int)(dim < 0 ? dim + rank : dim);
  return FAIL(l, loc, "there is no dimension %lld: there are %d, from 0", (long long)dim, rank);
}

static const char *letter_text(const Dims *dims, int letter) {
  static char text[2];
  text[0] = dims->letter[letter].name;
  return text;
}

// -- Fields ------------------------------------------------------------------------------------

static const char *origin_name(const Loc *loc) {
  const Loc *origin = loc_origin(loc);
  return origin && origin->node ? origin->node : "";
}

static void push_values(lua_State *l, Value *const *at, int n) {
  lua_createtable(l, n, 0);
  for (int i = 0; i < n; i++) {
    push_object(l, at[i], VALUES);
    lua_rawseti(l, -2, i + 1);
  }
}

static void push_inputs(lua_State *l, const Op *op) {
  lua_createtable(l, op->n_in, 0);
  for (int i = 0; i < op->n_in; i++) {
    push_object(l, op->in[i].value, VALUES);
    lua_rawseti(l, -2, i + 1);
  }
}

// The letter that a split of the dimension is over, whether it may be split or not: the first that
// is longer than 1.
static int first_letter(const Dims *dims, const Term *t, int dim) {
  for (int i = 0; i < t->dim[dim].n; i++)
    if (dims->letter[t->dim[dim].letter[i]].size != 1) return t->dim[dim].letter[i];
  return -1;
}

static int push_letter(lua_State *l, const Op *op, const Term *terms, int n, const char *what) {
  lua_Integer i = luaL_checkinteger(l, 2);
  if (i < 1 || i > n)
    return FAIL(l, op->loc, "%s has %d %ss, from 1", op_info[op->kind].name, n, what);
  const Dims *dims = op_einsum(l, op);
  const Term *t = &terms[i - 1];
  int letter = first_letter(dims, t, check_dim(l, 3, t->rank, op->loc));
  if (letter < 0)
    lua_pushnil(l);
  else
    lua_pushstring(l, letter_text(dims, letter));
  return 1;
}

static int op_letter(lua_State *l) {
  const Op *op = check_op(l, 1);
  return push_letter(l, op, op_einsum(l, op)->in, op->n_in, "operand");
}

static int op_result_letter(lua_State *l) {
  const Op *op = check_op(l, 1);
  return push_letter(l, op, op_einsum(l, op)->out, op->n_out, "result");
}

// What the op splits along an axis, as far as that is decided; otherwise nil.
static int op_split(lua_State *l) {
  const Op *op = check_op(l, 1);
  const PlanProgram *p = program_of(l);
  const char *name = luaL_checkstring(l, 2);
  for (int a = 0; a < p->s->mesh->n_axes; a++) {
    if (!str_equal(p->s->mesh->axis[a].name, name)) continue;
    if (!p->s->decided[a] && !p->s->fixed[op->id][a])
      lua_pushnil(l);
    else
      lua_pushstring(l, (char[]){op->split[a] ? op->split[a] : '-', 0});
    return 1;
  }
  return FAIL(l, NULL, "the mesh has no axis '%s'", name);
}

static int op_attribute(lua_State *l) {
  const Op *op = check_op(l, 1);
  const char *name = luaL_checkstring(l, 2);
  if (!op_has_attr(op, name)) {
    lua_pushnil(l);
    return 1;
  }
  const Attr *a = op_attr(op, name);
  switch (a->kind) {
  case 'i': lua_pushinteger(l, a->i); break;
  case 'b': lua_pushboolean(l, a->i != 0); break;
  case 'f': lua_pushnumber(l, a->f); break;
  case 's': lua_pushstring(l, a->s); break;
  case 't': lua_pushstring(l, dtype_name[a->t]); break;
  case 'I':
    lua_createtable(l, a->list.n, 0);
    for (int i = 0; i < a->list.n; i++) {
      lua_pushinteger(l, a->list.at[i]);
      lua_rawseti(l, -2, i + 1);
    }
    break;
  default: lua_pushnil(l);
  }
  return 1;
}

static int op_text_of(lua_State *l) {
  const Op *op = check_op(l, 1);
  lua_pushstring(l, op_text(op, program_of(l)->box.arena));
  return 1;
}

static int op_field(lua_State *l) {
  const Op *op = check_op(l, 1);
  const char *name = luaL_checkstring(l, 2);
  if (!strcmp(name, "kind"))
    lua_pushstring(l, op_info[op->kind].name);
  else if (!strcmp(name, "name"))
    lua_pushstring(l, origin_name(op->loc));
  else if (!strcmp(name, "part"))
    lua_pushstring(l, part_name[op_part(op)]);
  else if (!strcmp(name, "einsum"))
    lua_pushstring(l, dims_text(program_of(l)->box.arena, op_einsum(l, op)));
  else if (!strcmp(name, "elementwise"))
    lua_pushboolean(l, op_info[op->kind].formula != NULL);
  else if (!strcmp(name, "inputs"))
    push_inputs(l, op);
  else if (!strcmp(name, "outputs"))
    push_values(l, op->out, op->n_out);
  else if (luaL_getmetafield(l, 1, name) == LUA_TNIL)
    return FAIL(l, op->loc, "an op has no field '%s'", name);
  return 1;
}

static void push_shape(lua_State *l, const Type *t) {
  lua_createtable(l, t->rank, 0);
  for (int i = 0; i < t->rank; i++) {
    lua_pushinteger(l, t->dim[i]);
    lua_rawseti(l, -2, i + 1);
  }
}

static void push_readers(lua_State *l, const Value *v) {
  lua_newtable(l);
  int n = 0;
  for_each_use(u, v) {
    if (!u->user) continue;
    push_object(l, u->user, OPS);
    lua_rawseti(l, -2, ++n);
  }
}

static void push_string_or_nil(lua_State *l, const char *s) {
  if (s)
    lua_pushstring(l, s);
  else
    lua_pushnil(l);
}

static const char *role_of(const Value *v) {
  static const char *const names[] = {
#define ROLE(name, lasts, means) #name,
#include "ir/roles.def"
#undef ROLE
  };
  return v->def ? NULL : names[v->role];
}

static int value_field(lua_State *l) {
  const Value *v = check_value(l, 1);
  const char *name = luaL_checkstring(l, 2);
  if (!strcmp(name, "shape"))
    push_shape(l, v->type);
  else if (!strcmp(name, "rank"))
    lua_pushinteger(l, v->type->rank);
  else if (!strcmp(name, "dtype"))
    lua_pushstring(l, dtype_name[v->type->dtype]);
  else if (!strcmp(name, "role"))
    push_string_or_nil(l, role_of(v));
  else if (!strcmp(name, "name"))
    lua_pushstring(l, v->label ? v->label : v->name ? v->name : "");
  else if (!strcmp(name, "trained"))
    lua_pushboolean(l, !v->def && v->train);
  else if (!strcmp(name, "readers"))
    push_readers(l, v);
  else if (strcmp(name, "def") != 0)
    return FAIL(l, v->loc, "a value has no field '%s'", name);
  else if (v->def)
    push_object(l, v->def, OPS);
  else
    lua_pushnil(l);
  return 1;
}

static int value_text_of(lua_State *l) {
  lua_pushstring(l, value_text(program_of(l)->box.arena, check_value(l, 1)));
  return 1;
}

// -- Asking ------------------------------------------------------------------------------------

// ops(kind, part): those of this kind and part, in order; nil stands for any.
static int list_ops(lua_State *l) {
  const char *kind = luaL_optstring(l, 1, NULL), *part = luaL_optstring(l, 2, NULL);
  OpKind known;
  if (kind && !op_kind_parse(kind, &known)) return FAIL(l, NULL, "there is no op '%s'", kind);
  bool is_part = !part;
  for (int i = 0; part && i < N_PARTS; i++)
    is_part |= str_equal(part, part_name[i]);
  if (!is_part) return FAIL(l, NULL, "the parts are forward, backward and update, not '%s'", part);
  lua_newtable(l);
  int n = 0;
  for_each_op(op, program_of(l)->s->g) {
    if ((kind && op->kind != known) || (part && !str_equal(part, part_name[op_part(op)]))) continue;
    push_object(l, op, OPS);
    lua_rawseti(l, -2, ++n);
  }
  return 1;
}

// params(role): in order; nil stands for any.
static int list_params(lua_State *l) {
  const char *role = luaL_optstring(l, 1, NULL);
  const Graph *g = program_of(l)->s->g;
  lua_newtable(l);
  int n = 0;
  for (int i = 0; i < g->n_params; i++) {
    if (role && !str_equal(role, role_of(g->params[i]))) continue;
    push_object(l, g->params[i], VALUES);
    lua_rawseti(l, -2, ++n);
  }
  return 1;
}

static int axis_size(lua_State *l) {
  lua_pushinteger(l, program_of(l)->s->mesh->axis[check_axis(l, 1)].size);
  return 1;
}

static int matches(lua_State *l) {
  lua_pushboolean(l, str_glob(luaL_checkstring(l, 1), luaL_checkstring(l, 2)));
  return 1;
}

// refuse(op or value, message): an error of the model, found here; the program goes on to find
// more.
static int refuse(lua_State *l) {
  PlanProgram *p = program_of(l);
  const Value *v = luaL_testudata(l, 1, VALUES) ? check_value(l, 1) : NULL;
  const Loc *loc = v ? v->loc : check_op(l, 1)->loc;
  diag_error(p->box.d, v && v->def ? v->def->loc : loc, "%s", luaL_checkstring(l, 2));
  lua_Debug at;
  if (lua_getstack(l, 1, &at) && lua_getinfo(l, "l", &at))
    diag_note(p->box.d, loc_line(p->box.arena, p->box.path, at.currentline, 1),
              "the plan asks for it here");
  p->refused = true;
  return 0;
}

// -- Splits of ops -----------------------------------------------------------------------------

// Why `op` cannot split `letter` along `axis`, or NULL.
static const char *why_not(lua_State *l, const Op *op, char letter, int axis) {
  const PlanProgram *p = program_of(l);
  Arena *a = p->box.arena;
  const Dims *dims = op_einsum(l, op);
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
  if (!split_legal(op, dims, i, axis))
    return str_format(a, "%s has %lld of '%c', which cannot be cut in %d along %s%s", name,
                      (long long)dims->letter[i].size, letter, p->s->mesh->axis[axis].size,
                      axis_name, strchr(op->split, letter) ? " besides what cuts it already" : "");
  return NULL;
}

static char check_letter(lua_State *l, int arg, const Op *op) {
  size_t n;
  const char *text = luaL_checklstring(l, arg, &n);
  if (n == 1) return *text;
  return (char)FAIL(l, op->loc, "'%s' is no letter; '-' is none of them, '+' passes sums on", text);
}

static int can(lua_State *l) {
  const Op *op = check_op(l, 1);
  if (lua_isnil(l, 2))
    lua_pushboolean(l, false);
  else
    lua_pushboolean(l, !why_not(l, op, check_letter(l, 2, op), check_axis(l, 3)));
  return 1;
}

static int op_trans(lua_State *l) {
  const PlanProgram *p = program_of(l);
  Op *op = check_op(l, 1);
  char letter = check_letter(l, 2, op);
  int axis = check_axis(l, 3);
  const char *why = why_not(l, op, letter, axis);
  if (why) return fail(l, op->loc, why);
  op->split[axis] = letter == '-' ? SPLIT_NONE : letter;
  p->s->fixed[op->id][axis] = true;
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
  const Value *v = check_value(l, 1);
  int dim = check_dim(l, 2, v->type->rank, v->loc);
  lua_pushboolean(l, !why_not_cut(l, v, dim, check_axis(l, 3)));
  return 1;
}

static int cut(lua_State *l, Given given) {
  const PlanProgram *p = program_of(l);
  const Value *v = check_value(l, 1);
  int dim = check_dim(l, 2, v->type->rank, v->loc), axis = check_axis(l, 3);
  const char *why = why_not_cut(l, v, dim, axis);
  if (why) return fail(l, v->loc, why);
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
  Op *op = check_op(l, 1);
  int axis = check_axis(l, 2);
  const Loc *loc = op->loc;
  if (op->kind != OP_cross_entropy)
    return FAIL(l, loc, "%s is no cross_entropy", op_info[op->kind].name);
  if (!split_classes(op, p->s->mesh->axis[axis].size, p->box.d))
    return FAIL(l, loc, "the loss stays as it is");
  sharding_grow(p->s);
  return 0;
}

// -- Pins --------------------------------------------------------------------------------------

// pin(value): an op that does nothing to the value and takes its readers of the update, so that
// one can say what it splits.
static int pin(lua_State *l) {
  PlanProgram *p = program_of(l);
  Value *v = check_value(l, 1);
  if (!v->def)
    return FAIL(l, v->loc, "'%s' is a parameter: split or store says how it lies", v->label);
  Builder b = {.g = p->s->g, .at = v->def->next, .loc = v->def->loc, .d = p->box.d};
  Value *pinned = build(&b, OP_reshape, IN(v), ATTRS(a_list("shape", v->type->dim, v->type->rank)));
  if (!pinned) return FAIL(l, v->def->loc, "the value cannot be pinned");
  for (Use *u = v->uses, *next; u; u = next) {
    next = u->next;
    bool reads = u->user && u->user != pinned->def && op_part(u->user) == PART_update;
    if (reads) op_set_in(u->user, u->index, pinned);
  }
  sharding_grow(p->s);
  push_object(l, pinned->def, OPS);
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
  push_object(f->l, op, OPS);
  lua_rawseti(f->l, 5, ++f->n_stops);
}

static void push_end(Flow *f, const Op *op, int letter) {
  lua_createtable(f->l, 0, 2);
  push_object(f->l, op, OPS);
  lua_setfield(f->l, -2, "op");
  lua_pushstring(f->l, letter_text(op_einsum(f->l, op), letter));
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
  const Dims *dims = op_einsum(f->l, op);
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
  const Op *op = check_op(l, 1);
  char letter = check_letter(l, 2, op);
  Flow f = {.l = l, .axis = check_axis(l, 3)};
  const char *why = why_not(l, op, letter, f.axis);
  lua_settop(l, 3);
  lua_newtable(l);
  lua_newtable(l);
  start_flow(program_of(l));
  int i = dims_find(op_einsum(l, op), letter);
  if (why || i < 0)
    push_stop(&f, op);
  else
    meet_results(&f, op, i);
  for (int k = 0; k < f.cuts.n; k++)
    follow(&f, f.cuts.at[k]);
  return 2;
}

// -- Changes of the model ----------------------------------------------------------------------

// unpack(op): whether its result was cut apart.
static int unpack(lua_State *l) {
  PlanProgram *p = program_of(l);
  Op *op = check_op(l, 1);
  if (p->n_axes) return FAIL(l, op->loc, "the model is as it is now: this belongs into 'model'");
  bool done;
  if (!unpack_product(op, &done, p->box.d)) return FAIL(l, op->loc, "the product stays as it is");
  lua_pushboolean(l, done);
  return 1;
}

// pieces(list of {op=, letter=}, n): whether these and what follows was cut in n pieces.
static int pieces(lua_State *l) {
  PlanProgram *p = program_of(l);
  luaL_checktype(l, 1, LUA_TTABLE);
  int n = (int)lua_rawlen(l, 1);
  lua_Integer count = luaL_checkinteger(l, 2);
  if (p->n_axes) return FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  if (n < 1 || count < 1 || count > 1024)
    return FAIL(l, NULL, "pieces wants ops, and 1 to 1024 pieces");
  PieceStart *start = arena_array(p->box.arena, PieceStart, n);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(l, 1, i + 1);
    luaL_checktype(l, -1, LUA_TTABLE);
    lua_getfield(l, -1, "op");
    start[i].op = check_op(l, -1);
    lua_getfield(l, -2, "letter");
    start[i].letter = check_letter(l, -1, start[i].op);
    lua_pop(l, 3);
  }
  bool done;
  if (!cut_in_pieces(start, n, (int)count, &done, p->box.d))
    return FAIL(l, start->op->loc, "the ops stay as they are");
  lua_pushboolean(l, done);
  return 1;
}

// -- Other programs ----------------------------------------------------------------------------

// apply(name, axis, …): what that program wants of the axes.
static int apply(lua_State *l) {
  PlanProgram *p = program_of(l);
  const char *name = luaL_checkstring(l, 1);
  int axis[MAX_AXES], n = lua_gettop(l) - 1;
  if (n > MAX_AXES || (n < 1) != (p->n_axes == 0))
    return FAIL(l, NULL, "apply takes a program and, in 'step', its axes");
  for (int i = 0; i < n; i++)
    axis[i] = check_axis(l, i + 2);
  if (p->depth == MAX_DEPTH)
    return FAIL(l, NULL, "programs apply one another more than %d deep", MAX_DEPTH);
  PlanProgram *other = program_open(p->box.arena, name, p->box.d);
  bool ok = other != NULL;
  if (ok) {
    other->depth = p->depth + 1;
    ok = n ? program_step(other, p->s, axis, n) : program_model(other, p->s->g);
    program_close(other);
  }
  if (ok) return 0;
  return FAIL(l, NULL, "the program '%s' could not be applied", name);
}

// -- Running -----------------------------------------------------------------------------------

static const luaL_Reg functions[] = {
    {"apply", apply},       {"can", can},
    {"cuts", cuts},         {"flow", flow},
    {"glob", matches},      {"ops", list_ops},
    {"op_trans", op_trans}, {"params", list_params},
    {"pieces", pieces},     {"pin", pin},
    {"refuse", refuse},     {"size", axis_size},
    {"split", split},       {"split_loss", split_loss},
    {"store", store},       {"unpack", unpack},
    {NULL, NULL},
};

static const luaL_Reg op_methods[] = {
    {"__index", op_field}, {"__tostring", op_text_of},
    {"letter", op_letter}, {"result_letter", op_result_letter},
    {"split", op_split},   {"attribute", op_attribute},
    {NULL, NULL},
};

static const luaL_Reg value_methods[] = {
    {"__index", value_field},
    {"__tostring", value_text_of},
    {NULL, NULL},
};

static void make_type(lua_State *l, const char *name, const luaL_Reg *methods) {
  luaL_newmetatable(l, name);
  luaL_setfuncs(l, methods, 0);
  lua_pop(l, 1);
}

static int start(lua_State *l) {
  PlanProgram *p = lua_touserdata(l, 1);
  make_type(l, OPS, op_methods);
  make_type(l, VALUES, value_methods);
  sandbox_environment(l);
  luaL_setfuncs(l, functions, 0);
  lua_pushvalue(l, -1);
  lua_setfield(l, LUA_REGISTRYINDEX, "world");
  sandbox_run(&p->box, 0);
  return 0;
}

// The program's function of that name; false, with nothing on the stack, when it has none.
static bool push_function(lua_State *l, const char *name) {
  lua_getfield(l, LUA_REGISTRYINDEX, "world");
  lua_getfield(l, -1, name);
  lua_remove(l, -2);
  if (lua_isfunction(l, -1)) return true;
  lua_pop(l, 1);
  return false;
}

static bool has_function(PlanProgram *p, const char *name) {
  bool has = push_function(p->box.lua, name);
  lua_settop(p->box.lua, 0);
  return has;
}

static int call_factors(lua_State *l) {
  PlanProgram *p = lua_touserdata(l, 1);
  push_function(l, "factors");
  lua_pushinteger(l, p->n);
  lua_call(l, 1, 1);
  if (!lua_istable(l, -1)) luaL_error(l, "'factors' must return a list of sizes");
  int n = (int)lua_rawlen(l, -1);
  if (n < 1 || n > MAX_AXES) luaL_error(l, "'factors' must return 1 to %d sizes", MAX_AXES);
  lua_Integer product = 1;
  for (int i = 0; i < n; i++) {
    lua_rawgeti(l, -1, i + 1);
    lua_Integer size = luaL_checkinteger(l, -1);
    if (size < 1 || size > p->n) luaL_error(l, "'factors' returned a size of %I", size);
    p->factors[i] = size;
    product *= size;
    lua_pop(l, 1);
  }
  if (product != p->n)
    luaL_error(l, "the sizes that 'factors' returned do not multiply to %I", (lua_Integer)p->n);
  p->n_axes = n;
  return 0;
}

static int call_model(lua_State *l) {
  push_function(l, "model");
  lua_call(l, 0, 0);
  return 0;
}

static int call_step(lua_State *l) {
  const PlanProgram *p = lua_touserdata(l, 1);
  push_function(l, "step");
  for (int i = 0; i < p->n_axes; i++)
    lua_pushstring(l, p->s->mesh->axis[p->axis[i]].name);
  lua_call(l, p->n_axes, 0);
  return 0;
}

int program_factors(PlanProgram *p, int64_t n, int64_t size[MAX_AXES]) {
  size[0] = n;
  if (!has_function(p, "factors")) return 1;
  p->n = n;
  p->factors = size;
  return sandbox_call(&p->box, call_factors, p, 0) ? p->n_axes : 0;
}

bool program_model(PlanProgram *p, Graph *g) {
  if (!has_function(p, "model")) return true;
  Sharding s = {.g = g, .scratch = p->box.arena};
  p->s = &s;
  p->n_axes = 0;
  bool ok = sandbox_call(&p->box, call_model, p, 0);
  p->s = NULL;
  return ok && !p->refused;
}

bool program_step(PlanProgram *p, Sharding *s, const int *axis, int n) {
  p->s = s;
  p->axis = axis;
  p->n_axes = n;
  p->n_met = 0;
  return sandbox_call(&p->box, call_step, p, 0) && !p->refused;
}

static bool is_file(const char *name) {
  return strchr(name, '/') || str_ends(name, ".lua");
}

const char *plan_names(Arena *a) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < n_plan_texts; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "", plan_texts[i].name);
  return b.at;
}

static const char *text_of(Arena *a, const char *name, size_t *n, Diag *d) {
  if (is_file(name)) return sandbox_read(a, name, n, d);
  for (int i = 0; i < n_plan_texts; i++)
    if (!strcmp(plan_texts[i].name, name)) {
      *n = plan_texts[i].n;
      return plan_texts[i].text;
    }
  diag_error(d, NULL, "there is no plan '%s'", name);
  diag_hint(d, "the plans are: auto, %s, or a program in a file that ends in .lua", plan_names(a));
  return NULL;
}

PlanProgram *program_open(Arena *a, const char *name, Diag *d) {
  size_t n;
  const char *text = text_of(a, name, &n, d);
  if (!text) return NULL;
  PlanProgram *p = arena_one(a, PlanProgram);
  const char *path = is_file(name) ? name : str_format(a, "plans/%s.lua", name);
  if (!sandbox_open(&p->box, a, path, text, n, d)) return NULL;
  *(PlanProgram **)lua_getextraspace(p->box.lua) = p;
  if (sandbox_call(&p->box, start, p, 0)) {
    if (has_function(p, "step")) return p;
    diag_error(d, loc_line(a, path, 0, 0), "the program has no function 'step'");
  }
  program_close(p);
  return NULL;
}

void program_close(PlanProgram *p) {
  sandbox_close(&p->box);
}
