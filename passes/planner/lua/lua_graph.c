// Ops and values as Lua userdata, and their fields: see lua_graph.h; docs/own_plans.md
// documents the fields.

#include "lua_graph.h"

#include <stdlib.h>
#include <string.h>

#include "ir/analysis/origin.h"
#include "ir/analysis/work.h"
#include "ir/op.h"
#include "ir/verify/verify.h"
#include "lua/lua_deterministic.h"
#include "repeats/repeats.h"

PlanProgram *program_of(lua_State *l) {
  return *(PlanProgram **)lua_getextraspace(l);
}

void plan_changed(PlanProgram *p) {
  p->names = NULL;
  p->repeats = NULL;
  p->marked = NULL;
}

const OpNames *plan_names_of(PlanProgram *p) {
  if (!p->names) p->names = op_names_new(p->s->g, p->box.arena);
  return p->names;
}

int plan_fail(lua_State *l, const Loc *loc, const char *message) {
  program_of(l)->box.about = loc;
  luaL_error(l, "%s", message);
  abort(); // luaL_error does not return, and its declaration does not say so
}

int plan_quit(lua_State *l) {
  program_of(l)->box.reported = true;
  luaL_error(l, "reported");
  abort();
}

void plan_note(lua_State *l, const Loc *loc, const char *text) {
  PlanProgram *p = program_of(l);
  vec_push(p->box.arena, &p->box.notes, (SandboxNote){loc, text});
}

const Loc *plan_line(lua_State *l) {
  PlanProgram *p = program_of(l);
  lua_Debug at;
  int line = lua_getstack(l, 1, &at) && lua_getinfo(l, "l", &at) ? at.currentline : 0;
  return sandbox_loc(&p->box, line, p->box.call);
}

// -- Ops and values ----------------------------------------------------------------------------

const char PLAN_OPS[] = "op", PLAN_VALUES[] = "value";

void plan_push(lua_State *l, const void *object, const char *type) {
  object = alternative_origin(program_of(l)->alternative, object, type);
  // One userdata for each object, so that a program can compare them.
  if (lua_rawgetp(l, LUA_REGISTRYINDEX, object) != LUA_TNIL) return;
  lua_pop(l, 1);
  // An op that is cut gets the list of those that replace it (lua_pieces.c).
  *(const void **)lua_newuserdatauv(l, sizeof object, type == PLAN_OPS) = object;
  luaL_setmetatable(l, type);
  lua_pushvalue(l, -1);
  lua_rawsetp(l, LUA_REGISTRYINDEX, object);
}

const Sharding *plan_sharding(lua_State *l) {
  const PlanProgram *p = program_of(l);
  if (!p->s) FAIL(l, NULL, "there is no graph yet: this belongs into 'model' or 'step'");
  return p->s;
}

// Rejects an op or value of another graph: `step` runs for every entry, and a program may keep
// objects of an earlier one.
static void check_graph(lua_State *l, const Graph *g, const Loc *loc) {
  const Graph *own = plan_sharding(l)->g;
  if (g != own) FAIL(l, loc, "this is of '@%s', and the graph is '@%s' now", g->name, own->name);
}

bool plan_there(const Op *op) {
  // A removed op still points to its neighbours, but these do not point back.
  return op->prev ? op->prev->next == op : op->graph->first == op;
}

// Rejects an op that has been replaced since the program got it.
static void check_there(lua_State *l, const Op *op) {
  check_graph(l, op->graph, op->loc);
  if (!plan_there(op))
    FAIL(l, op->loc, "%s is not there any more: it became other ops", op_info[op->kind].name);
}

// Ops and values of an alternative end with its price.
static void check_lasts(lua_State *l, const void *object, const char *what) {
  if (!object) FAIL(l, NULL, "this %s was of an alternative that has been priced", what);
}

Op *plan_op(lua_State *l, int arg) {
  Op *op = *(Op **)luaL_checkudata(l, arg, PLAN_OPS);
  check_lasts(l, op, "op");
  op = alternative_op(program_of(l)->alternative, op);
  check_there(l, op);
  return op;
}

Value *plan_value(lua_State *l, int arg) {
  Value *v = *(Value **)luaL_checkudata(l, arg, PLAN_VALUES);
  check_lasts(l, v, "value");
  v = alternative_value(program_of(l)->alternative, v);
  if (v->def)
    check_there(l, v->def);
  else
    check_graph(l, v->graph, v->loc);
  return v;
}

const Loc *plan_loc(const Value *v) {
  return v->def ? v->def->loc : v->loc;
}

// In `model`, while the graph changes, the result is valid until the next call only.
const Dims *plan_einsum(lua_State *l, const Op *op) {
  PlanProgram *p = program_of(l);
  if (p->s->n_ops) return dims_of(p->s, op);
  if (!p->dims) p->dims = arena_one(p->box.arena, Dims);
  Diag *d = diag_new(stderr);
  if (!op_dims(op, p->dims, d)) BUG("%s does not fit", op_info[op->kind].name);
  diag_free(d);
  return p->dims;
}

int plan_axis(lua_State *l, int arg) {
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

void plan_axes(lua_State *l, int arg, int n, int *out) {
  for (int i = 0; i < n; i++) {
    out[i] = plan_axis(l, arg + i);
    for (int k = 0; k < i; k++)
      if (out[k] == out[i]) FAIL(l, NULL, "the axis '%s' is given twice", lua_tostring(l, arg + i));
  }
}

int plan_dim(lua_State *l, int arg, int ndim, const Loc *loc) {
  lua_Integer dim = luaL_checkinteger(l, arg);
  if (dim >= -ndim && dim < ndim) return (int)(dim < 0 ? dim + ndim : dim);
  return FAIL(l, loc, "there is no dimension %lld: there are %d, from 0", (long long)dim, ndim);
}

const char *plan_letter(const Dims *dims, int letter) {
  static char text[2];
  text[0] = dims->letter[letter].name;
  return text;
}

// -- Fields ------------------------------------------------------------------------------------

static void push_inputs(lua_State *l, const Op *op) {
  lua_createtable(l, op->n_in, 0);
  for (int i = 0; i < op->n_in; i++) {
    plan_push(l, op->in[i].value, PLAN_VALUES);
    lua_rawseti(l, -2, i + 1);
  }
}

int plan_letter_of(const Dims *dims, const Term *t, int dim) {
  int letter = -1;
  for (int k = t->dim[dim].n - 1; k >= 0; k--)
    if (dims->letter[t->dim[dim].letter[k]].size != 1) letter = t->dim[dim].letter[k];
  return letter;
}

static int push_letter(lua_State *l, const Op *op, const Term *terms, int n, const char *what) {
  lua_Integer i = luaL_checkinteger(l, 2);
  if (i < 1 || i > n)
    return FAIL(l, op->loc, "%s has %d %ss, from 1", op_info[op->kind].name, n, what);
  const Dims *dims = plan_einsum(l, op);
  const Term *t = &terms[i - 1];
  int letter = plan_letter_of(dims, t, plan_dim(l, 3, t->ndim, op->loc));
  if (letter < 0)
    lua_pushnil(l);
  else
    lua_pushstring(l, plan_letter(dims, letter));
  return 1;
}

static int op_letter(lua_State *l) {
  const Op *op = plan_op(l, 1);
  return push_letter(l, op, plan_einsum(l, op)->in, op->n_in, "operand");
}

static int op_result_letter(lua_State *l) {
  const Op *op = plan_op(l, 1);
  return push_letter(l, op, plan_einsum(l, op)->out, op->n_out, "result");
}

// The op's split along an axis if decided; otherwise nil.
static int op_split(lua_State *l) {
  const Op *op = plan_op(l, 1);
  const Sharding *s = program_of(l)->s;
  const char *name = luaL_checkstring(l, 2);
  int a = s->mesh ? mesh_find_axis(s->mesh, name) : -1;
  if (a < 0) return FAIL(l, NULL, "there is no axis '%s'", name);
  // An open axis has no split yet.
  if (!s->decisions.final[a] && !s->decisions.fixed_by[op->id][a])
    lua_pushnil(l);
  else
    lua_pushstring(l, (char[]){op->split[a] ? op->split[a] : '-', 0});
  return 1;
}

// Whether a decided axis splits the letter.
static int op_taken(lua_State *l) {
  const Op *op = plan_op(l, 1);
  const Sharding *s = program_of(l)->s;
  const char *letter = luaL_checkstring(l, 2);
  bool taken = false;
  for (int a = 0; s->mesh && a < s->mesh->n_axes; a++)
    taken |= s->decisions.final[a] && op->split[a] == *letter;
  lua_pushboolean(l, taken);
  return 1;
}

static int op_attribute(lua_State *l) {
  const Op *op = plan_op(l, 1);
  const char *name = luaL_checkstring(l, 2);
  if (!op_has_attr(op, name)) {
    lua_pushnil(l);
    return 1;
  }
  // By the kind of the attribute; a list becomes a table.
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
  const Op *op = plan_op(l, 1);
  lua_pushstring(l, op_text(op, program_of(l)->box.arena));
  return 1;
}

static void push_op_kind(lua_State *l, const Op *op) {
  lua_pushstring(l, op_info[op->kind].name);
}

static void push_op_name(lua_State *l, const Op *op) {
  lua_pushstring(l, op_node(op));
}

static void push_part(lua_State *l, const Op *op) {
  lua_pushstring(l, train_part_name[op_part(op)]);
}

static void push_einsum(lua_State *l, const Op *op) {
  lua_pushstring(l, dims_text(program_of(l)->box.arena, plan_einsum(l, op)));
}

static void push_flops(lua_State *l, const Op *op) {
  lua_pushnumber(l, op_flops(op));
}

// Whether the op is part of the loss that nnaot adds to the model.
static void push_is_loss(lua_State *l, const Op *op) {
  bool is_loss = false;
  for (const Loc *loc = op->loc; loc; loc = loc->from)
    is_loss |= str_equal(loc->why, "loss");
  lua_pushboolean(l, is_loss);
}

static void push_piece(lua_State *l, const Op *op) {
  int piece = op->piece;
  if (piece)
    lua_pushinteger(l, piece);
  else
    lua_pushnil(l);
}

static void push_elementwise(lua_State *l, const Op *op) {
  lua_pushboolean(l, op_info[op->kind].formula != NULL);
}

static void push_outputs(lua_State *l, const Op *op) {
  lua_createtable(l, op->n_out, 0);
  for (int i = 0; i < op->n_out; i++) {
    plan_push(l, op->out[i], PLAN_VALUES);
    lua_rawseti(l, -2, i + 1);
  }
}

static const struct {
  const char *name;
  void (*push)(lua_State *, const Op *);
} op_fields[] = {
    {"kind", push_op_kind},
    {"name", push_op_name},
    {"part", push_part},
    {"einsum", push_einsum},
    {"flops", push_flops},
    {"piece", push_piece},
    {"elementwise", push_elementwise},
    {"loss", push_is_loss},
    {"inputs", push_inputs},
    {"outputs", push_outputs},
};

static const luaL_Reg op_methods[] = {
    {"letter", op_letter}, {"result_letter", op_result_letter},
    {"split", op_split},   {"attribute", op_attribute},
    {"taken", op_taken},
};

enum {
  N_OP_FIELDS = sizeof op_fields / sizeof *op_fields,
  N_OP_METHODS = sizeof op_methods / sizeof *op_methods,
};

static int op_field(lua_State *l) {
  const Op *op = plan_op(l, 1);
  const char *name = luaL_checkstring(l, 2);
  // Fields, then methods; the names up to here are for the error.
  StrBuf known = {.arena = program_of(l)->box.arena};
  for (int i = 0; i < N_OP_FIELDS; i++) {
    strbuf_addf(&known, "%s, ", op_fields[i].name);
    if (strcmp(op_fields[i].name, name) != 0) continue;
    op_fields[i].push(l, op);
    return 1;
  }
  for (int i = 0; i < N_OP_METHODS; i++) {
    strbuf_addf(&known, "%s:%s()", i ? ", " : "", op_methods[i].name);
    if (strcmp(op_methods[i].name, name) != 0) continue;
    lua_pushcfunction(l, op_methods[i].func);
    return 1;
  }
  return FAIL(l, op->loc, "an op has no field '%s'; it has %s", name, known.at);
}

static void push_shape(lua_State *l, Value *v) {
  lua_createtable(l, v->type->ndim, 0);
  for (int i = 0; i < v->type->ndim; i++) {
    lua_pushinteger(l, v->type->dim[i]);
    lua_rawseti(l, -2, i + 1);
  }
}

static void push_ndim(lua_State *l, Value *v) {
  lua_pushinteger(l, v->type->ndim);
}

static void push_dtype(lua_State *l, Value *v) {
  lua_pushstring(l, dtype_name[v->type->dtype]);
}

// A list of {op=, index=}: the readers and the number of the operand.
static void push_readers(lua_State *l, Value *v) {
  lua_newtable(l);
  int n = 0;
  for_each_use(u, v) {
    if (!u->user) continue;
    lua_createtable(l, 0, 2);
    plan_push(l, u->user, PLAN_OPS);
    lua_setfield(l, -2, "op");
    lua_pushinteger(l, u->index + 1);
    lua_setfield(l, -2, "index");
    lua_rawseti(l, -2, ++n);
  }
}

const char *plan_role(const Value *v) {
  return v->def ? NULL : role_name[v->role];
}

static void push_role(lua_State *l, Value *v) {
  lua_pushstring(l, plan_role(v)); // NULL is nil
}

static void push_value_name(lua_State *l, Value *v) {
  lua_pushstring(l, v->label ? v->label : v->name ? v->name : "");
}

static void push_trained(lua_State *l, Value *v) {
  lua_pushboolean(l, !v->def && v->train);
}

static void push_whole(lua_State *l, Value *v) {
  lua_pushboolean(l, v->whole);
}

static void push_index(lua_State *l, Value *v) {
  lua_pushinteger(l, v->index + 1);
}

static void push_def(lua_State *l, Value *v) {
  if (v->def)
    plan_push(l, v->def, PLAN_OPS);
  else
    lua_pushnil(l);
}

Value *plan_source(Value *v) {
  while (v->def && (v->def->kind == OP_cast || v->def->kind == OP_slice ||
                    v->def->kind == OP_transpose || v->def->kind == OP_reshape))
    v = v->def->in[0].value;
  return v;
}

static void push_source(lua_State *l, Value *v) {
  plan_push(l, plan_source(v), PLAN_VALUES);
}

static const struct {
  const char *name;
  void (*push)(lua_State *, Value *);
} value_fields[] = {
    {"name", push_value_name}, {"role", push_role},   {"trained", push_trained},
    {"shape", push_shape},     {"ndim", push_ndim},   {"dtype", push_dtype},
    {"def", push_def},         {"index", push_index}, {"source", push_source},
    {"readers", push_readers}, {"whole", push_whole},
};

enum { N_VALUE_FIELDS = sizeof value_fields / sizeof *value_fields };

static int value_field(lua_State *l) {
  Value *v = plan_value(l, 1);
  const char *name = luaL_checkstring(l, 2);
  if (!strcmp(name, "rank")) name = "ndim"; // its older name
  StrBuf known = {.arena = program_of(l)->box.arena};
  for (int i = 0; i < N_VALUE_FIELDS; i++) {
    strbuf_addf(&known, "%s%s", i ? ", " : "", value_fields[i].name);
    if (strcmp(value_fields[i].name, name) != 0) continue;
    value_fields[i].push(l, v);
    return 1;
  }
  return FAIL(l, plan_loc(v), "a value has no field '%s'; it has %s", name, known.at);
}

static int value_text_of(lua_State *l) {
  lua_pushstring(l, value_text(program_of(l)->box.arena, plan_value(l, 1)));
  return 1;
}

// -- Types -------------------------------------------------------------------------------------

// Orders ops and values as keys (lua_deterministic.h) by their numbers in the graph.
static int order_of(lua_State *l) {
  Op *const *op = luaL_testudata(l, 1, PLAN_OPS);
  Value *const *v = luaL_testudata(l, 1, PLAN_VALUES);
  op = op && *op ? op : NULL;
  v = v && *v ? v : NULL;
  lua_pushinteger(l, op ? 2 * (lua_Integer)(*op)->id : v ? 2 * (lua_Integer)(*v)->id + 1 : 0);
  return 1;
}

static int set_field(lua_State *l) {
  return luaL_error(l, "the fields of an op or a value cannot be changed: op_trans, split and "
                       "other calls constrain them");
}

static void make_type(lua_State *l, const char *name, lua_CFunction field, lua_CFunction text) {
  const luaL_Reg own[] = {{"__index", field},
                          {"__newindex", set_field},
                          {"__tostring", text},
                          {"__order", order_of},
                          {NULL, NULL}};
  luaL_newmetatable(l, name);
  luaL_setfuncs(l, own, 0);
  lua_pop(l, 1);
}

void plan_types(lua_State *l) {
  make_type(l, PLAN_OPS, op_field, op_text_of);
  make_type(l, PLAN_VALUES, value_field, value_text_of);
}
