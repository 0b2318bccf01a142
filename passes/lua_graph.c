// See lua_graph.h; passes/plans/README.md has the fields and functions.

#include "lua_graph.h"

#include <stdlib.h>
#include <string.h>

#include "ir/op.h"
#include "ir/verify.h"
#include "ir/work.h"
#include "lua_steady.h"
#include "part.h"
#include "repeats.h"

PlanProgram *program_of(lua_State *l) {
  return *(PlanProgram **)lua_getextraspace(l);
}

int plan_fail(lua_State *l, const Loc *loc, const char *message) {
  program_of(l)->box.about = loc;
  return luaL_error(l, "%s", message);
}

int plan_quit(lua_State *l) {
  program_of(l)->box.reported = true;
  return luaL_error(l, "reported");
}

void plan_note(lua_State *l, const Loc *loc, const char *text) {
  PlanProgram *p = program_of(l);
  vec_push(p->box.arena, &p->box.notes, (SandboxNote){loc, text});
}

const Loc *plan_line(lua_State *l) {
  const PlanProgram *p = program_of(l);
  lua_Debug at;
  int line = lua_getstack(l, 1, &at) && lua_getinfo(l, "l", &at) ? at.currentline : 0;
  return loc_line(p->box.arena, p->box.path, line < 0 ? 0 : line, line > 0);
}

// -- Ops and values ----------------------------------------------------------------------------

const char PLAN_OPS[] = "op", PLAN_VALUES[] = "value";

void plan_push(lua_State *l, const void *object, const char *type) {
  if (lua_rawgetp(l, LUA_REGISTRYINDEX, object) != LUA_TNIL) return;
  lua_pop(l, 1);
  *(const void **)lua_newuserdatauv(l, sizeof object, 0) = object;
  luaL_setmetatable(l, type);
  lua_pushvalue(l, -1);
  lua_rawsetp(l, LUA_REGISTRYINDEX, object);
}

const Sharding *plan_sharding(lua_State *l) {
  const PlanProgram *p = program_of(l);
  if (!p->s) FAIL(l, NULL, "there is no graph yet: this belongs into 'model' or 'step'");
  return p->s;
}

// `step` runs for every graph that is an entry, and a program may have kept what is of another.
static void check_graph(lua_State *l, const Graph *g, const Loc *loc) {
  const Graph *own = plan_sharding(l)->g;
  if (g != own) FAIL(l, loc, "this is of '@%s', and the graph is '@%s' now", g->name, own->name);
}

// An op may have become others since it was handed out.
static void check_there(lua_State *l, const Op *op) {
  check_graph(l, op->graph, op->loc);
  if (op->prev ? op->prev->next != op : op->graph->first != op)
    FAIL(l, op->loc, "%s is not there any more: it became other ops", op_info[op->kind].name);
}

Op *plan_op(lua_State *l, int arg) {
  Op *op = *(Op **)luaL_checkudata(l, arg, PLAN_OPS);
  check_there(l, op);
  return op;
}

Value *plan_value(lua_State *l, int arg) {
  Value *v = *(Value **)luaL_checkudata(l, arg, PLAN_VALUES);
  if (v->def)
    check_there(l, v->def);
  else
    check_graph(l, v->graph, v->loc);
  return v;
}

const Loc *plan_loc(const Value *v) {
  return v->def ? v->def->loc : v->loc;
}

const Dims *plan_einsum(lua_State *l, const Op *op) {
  return dims_of(program_of(l)->s, op);
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

int plan_dim(lua_State *l, int arg, int rank, const Loc *loc) {
  lua_Integer dim = luaL_checkinteger(l, arg);
  if (dim >= -rank && dim < rank) return (int)(dim < 0 ? dim + rank : dim);
  return FAIL(l, loc, "there is no dimension %lld: there are %d, from 0", (long long)dim, rank);
}

const char *plan_letter(const Dims *dims, int letter) {
  static char text[2];
  text[0] = dims->letter[letter].name;
  return text;
}

// -- Fields ------------------------------------------------------------------------------------

static void push_values(lua_State *l, Value *const *at, int n) {
  lua_createtable(l, n, 0);
  for (int i = 0; i < n; i++) {
    plan_push(l, at[i], PLAN_VALUES);
    lua_rawseti(l, -2, i + 1);
  }
}

static void push_inputs(lua_State *l, const Op *op) {
  lua_createtable(l, op->n_in, 0);
  for (int i = 0; i < op->n_in; i++) {
    plan_push(l, op->in[i].value, PLAN_VALUES);
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
  const Dims *dims = plan_einsum(l, op);
  const Term *t = &terms[i - 1];
  int letter = first_letter(dims, t, plan_dim(l, 3, t->rank, op->loc));
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

// What the op splits along an axis, as far as that is decided; otherwise nil.
static int op_split(lua_State *l) {
  const Op *op = plan_op(l, 1);
  const Sharding *s = program_of(l)->s;
  const char *name = luaL_checkstring(l, 2);
  int a = s->mesh ? mesh_find_axis(s->mesh, name) : -1;
  if (a < 0) return FAIL(l, NULL, "there is no axis '%s'", name);
  if (!s->decided[a] && !s->fixed[op->id][a])
    lua_pushnil(l);
  else
    lua_pushstring(l, (char[]){op->split[a] ? op->split[a] : '-', 0});
  return 1;
}

// Whether an axis that is decided splits the letter.
static int op_taken(lua_State *l) {
  const Op *op = plan_op(l, 1);
  const Sharding *s = program_of(l)->s;
  const char *letter = luaL_checkstring(l, 2);
  bool taken = false;
  for (int a = 0; s->mesh && a < s->mesh->n_axes; a++)
    taken |= s->decided[a] && op->split[a] == *letter;
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
  push_values(l, op->out, op->n_out);
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
  lua_createtable(l, v->type->rank, 0);
  for (int i = 0; i < v->type->rank; i++) {
    lua_pushinteger(l, v->type->dim[i]);
    lua_rawseti(l, -2, i + 1);
  }
}

static void push_rank(lua_State *l, Value *v) {
  lua_pushinteger(l, v->type->rank);
}

static void push_dtype(lua_State *l, Value *v) {
  lua_pushstring(l, dtype_name[v->type->dtype]);
}

// A list of {op=, index=}: which operands it is of which ops.
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

static const char *role_of(const Value *v) {
  return v->def ? NULL : role_name[v->role];
}

static void push_role(lua_State *l, Value *v) {
  lua_pushstring(l, role_of(v)); // NULL is nil
}

static void push_value_name(lua_State *l, Value *v) {
  lua_pushstring(l, v->label ? v->label : v->name ? v->name : "");
}

static void push_trained(lua_State *l, Value *v) {
  lua_pushboolean(l, !v->def && v->train);
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

// What a value was cut, cast or turned from.
static void push_source(lua_State *l, Value *v) {
  while (v->def && (v->def->kind == OP_cast || v->def->kind == OP_slice ||
                    v->def->kind == OP_transpose || v->def->kind == OP_reshape))
    v = v->def->in[0].value;
  plan_push(l, v, PLAN_VALUES);
}

static const struct {
  const char *name;
  void (*push)(lua_State *, Value *);
} value_fields[] = {
    {"name", push_value_name}, {"role", push_role},   {"trained", push_trained},
    {"shape", push_shape},     {"rank", push_rank},   {"dtype", push_dtype},
    {"def", push_def},         {"index", push_index}, {"source", push_source},
    {"readers", push_readers},
};

enum { N_VALUE_FIELDS = sizeof value_fields / sizeof *value_fields };

static int value_field(lua_State *l) {
  Value *v = plan_value(l, 1);
  const char *name = luaL_checkstring(l, 2);
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

// -- Asking ------------------------------------------------------------------------------------

enum { MAX_LISTS = 4 }; // in one another: of blocks, occurrences and ops there are three

// "add, linear, relu": the kinds of op in the graph.
static const char *kinds_in(lua_State *l) {
  StrBuf b = {.arena = program_of(l)->box.arena};
  bool there[N_OPS] = {0};
  for_each_op(op, plan_sharding(l)->g)
    there[op->kind] = true;
  for (int i = 0; i < N_OPS; i++)
    if (there[i]) strbuf_addf(&b, "%s%s", b.n ? ", " : "", op_info[i].name);
  return b.n ? b.at : "none";
}

// The op of that name, if one was given.
static void check_kind(lua_State *l, const char *kind, OpKind *known) {
  if (kind && !op_kind_parse(kind, known))
    FAIL(l, NULL, "there is no op '%s'; the graph has %s", kind, kinds_in(l));
}

static void check_part(lua_State *l, const char *part) {
  bool is_part = !part;
  for (int i = 0; part && i < N_TRAIN_PARTS; i++)
    is_part |= str_equal(part, train_part_name[i]);
  if (!is_part) FAIL(l, NULL, "the parts are forward, backward and update, not '%s'", part);
}

// What `ops` is to list.
typedef struct Wanted {
  const char *kind, *part, *name;
  OpKind known;
  bool *among; // by id; NULL: all
} Wanted;

static void mark(lua_State *l, bool *among, const char *what, int depth) {
  luaL_checkstack(l, 4, NULL);
  if (luaL_testudata(l, -1, PLAN_OPS)) {
    among[plan_op(l, -1)->id] = true;
    return;
  }
  if (!lua_istable(l, -1) || depth > MAX_LISTS)
    FAIL(l, NULL, "'%s' wants an op, a list of them, or lists of such, not %s", what,
         steady_text(l, -1));
  for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(l, -1); i++) {
    lua_rawgeti(l, -1, i);
    mark(l, among, what, depth + 1);
    lua_pop(l, 1);
  }
}

void plan_mark(lua_State *l, bool *marked, const char *what) {
  mark(l, marked, what, 0);
}

static const char *text_field(lua_State *l, const char *field) {
  int kind = lua_getfield(l, 1, field);
  if (kind != LUA_TNIL && kind != LUA_TSTRING)
    FAIL(l, NULL, "'%s' wants a text, not %s", field, steady_text(l, -1));
  const char *text = lua_tostring(l, -1); // which the table keeps
  lua_pop(l, 1);
  return text;
}

// ops{kind=, part=, name=, block=}
static void read_wanted(lua_State *l, Wanted *w) {
  static const char *const fields[] = {"kind", "part", "name", "block"};
  for (lua_pushnil(l); lua_next(l, 1); lua_pop(l, 1)) {
    bool known = false;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && lua_type(l, -2) == LUA_TSTRING; i++)
      known |= str_equal(fields[i], lua_tostring(l, -2));
    if (!known) FAIL(l, NULL, "ops takes kind, part, name and block, not '%s'", steady_text(l, -2));
  }
  w->kind = text_field(l, "kind");
  w->part = text_field(l, "part");
  w->name = text_field(l, "name");
  if (lua_getfield(l, 1, "block") != LUA_TNIL) {
    w->among = arena_array(program_of(l)->s->scratch, bool, plan_sharding(l)->g->n_ops);
    plan_mark(l, w->among, "block");
  }
  lua_pop(l, 1);
}

static bool is_wanted(const Wanted *w, const Op *op) {
  return (!w->kind || op->kind == w->known) &&
         (!w->part || str_equal(w->part, train_part_name[op_part(op)])) &&
         (!w->name || str_glob(w->name, op_node(op))) && (!w->among || w->among[op->id]);
}

// ops(kind, part), or ops{kind=, part=, name=, block=}: those that are all of this, in order; nil
// stands for any.
static int list_ops(lua_State *l) {
  Wanted w = {0};
  plan_sharding(l);
  if (lua_istable(l, 1)) {
    read_wanted(l, &w);
  } else {
    w.kind = luaL_optstring(l, 1, NULL);
    w.part = luaL_optstring(l, 2, NULL);
  }
  check_kind(l, w.kind, &w.known);
  check_part(l, w.part);
  const Graph *g = plan_sharding(l)->g;
  lua_newtable(l);
  int n = 0;
  for_each_op(op, g) {
    if (!is_wanted(&w, op)) continue;
    plan_push(l, op, PLAN_OPS);
    lua_rawseti(l, -2, ++n);
  }
  return 1;
}

// -- Blocks ------------------------------------------------------------------------------------

static int ops_of_model(const Block *b) {
  return b->n * b->n_ops;
}

static int by_size(const void *x, const void *y) {
  const Block *a = *(Block *const *)x, *b = *(Block *const *)y;
  int more = ops_of_model(b) - ops_of_model(a);
  return more ? more : a->id - b->id;
}

// The ops of an occurrence, with those of occurrences inside of it, behind the `n` of the list on
// top.
static int push_members(lua_State *l, const Occurrence *o, int n) {
  for (int i = 0; i < o->block->n_members; i++) {
    const Member *m = &o->member[i];
    if (m->op) {
      plan_push(l, m->op, PLAN_OPS);
      lua_rawseti(l, -2, ++n);
    } else {
      n = push_members(l, m->inner, n);
    }
  }
  return n;
}

// blocks(): what repeats in the model, that with the most ops first: a list of blocks, each a list
// of occurrences, each a list of ops, op i of one being what op i of another is.
static int list_blocks(lua_State *l) {
  const Graph *g = plan_sharding(l)->g;
  Arena *a = program_of(l)->s->scratch;
  bool *model = arena_array(a, bool, g->n_ops);
  for_each_op(op, g)
    model[op->id] = op_part(op) == PART_forward;
  Repeats *r = repeats_find(g, LEAST_BLOCK, model, a);
  qsort(r->block, (size_t)r->n_blocks, sizeof *r->block, by_size);
  lua_createtable(l, r->n_blocks, 0);
  for (int b = 0; b < r->n_blocks; b++) {
    lua_createtable(l, r->block[b]->n, 0);
    for (int i = 0; i < r->block[b]->n; i++) {
      lua_createtable(l, r->block[b]->n_ops, 0);
      push_members(l, r->block[b]->at[i], 0);
      lua_rawseti(l, -2, i + 1);
    }
    lua_rawseti(l, -2, b + 1);
  }
  return 1;
}

// -- Parameters and axes -------------------------------------------------------------------------

// params(role): in order; nil stands for any.
static int list_params(lua_State *l) {
  const char *role = luaL_optstring(l, 1, NULL);
  const Graph *g = plan_sharding(l)->g;
  bool is_role = !role;
  for (int i = 0; role && i < N_ROLES; i++)
    is_role |= str_equal(role, role_name[i]);
  if (!is_role)
    return FAIL(l, NULL, "the roles are input, weight, state and scalar, not '%s'", role);
  lua_newtable(l);
  int n = 0;
  for (int i = 0; i < g->n_params; i++) {
    if (role && !str_equal(role, role_of(g->params[i]))) continue;
    plan_push(l, g->params[i], PLAN_VALUES);
    lua_rawseti(l, -2, ++n);
  }
  return 1;
}

// op(node, kind, part, which): the op of this node of the model; kind: nil for any; part: forward
// if nil.
static int find_op(lua_State *l) {
  PlanProgram *p = program_of(l);
  const char *node = luaL_checkstring(l, 1), *kind = luaL_optstring(l, 2, NULL);
  const char *part = luaL_optstring(l, 3, train_part_name[PART_forward]);
  lua_Integer which = luaL_optinteger(l, 4, 0);
  OpKind known = 0;
  int k = 0, n;
  plan_sharding(l);
  check_kind(l, kind, &known);
  check_part(l, part);
  while (!str_equal(part, train_part_name[k]))
    k++;
  if (!p->names) p->names = op_names_new(p->s->g, p->box.arena);
  Op *op = op_names_find(p->names, node, (TrainPart)k, kind ? (int)known : N_OPS,
                         which > INT32_MAX ? -1
                         : which           ? (int)which
                                           : 1,
                         &n);
  const char *what = kind ? kind : n == 1 ? "op" : "ops";
  if (!op && !n)
    return FAIL(l, NULL, "no %s of %s comes from the node '%s'", kind ? kind : "op", part, node);
  if (!op)
    return FAIL(l, NULL, "the node '%s' has %d %s of %s, and this is number %lld", node, n, what,
                part, (long long)(which ? which : 1));
  if (!which && n > 1)
    return FAIL(l, op->loc, "the node '%s' has %d %s of %s: say which%s", node, n, what, part,
                kind ? "" : ", or of which kind");
  plan_push(l, op, PLAN_OPS);
  return 1;
}

// graph(): "train" while it is the step that is spoken of.
static int graph_name(lua_State *l) {
  lua_pushstring(l, plan_sharding(l)->g->name);
  return 1;
}

static int axis_size(lua_State *l) {
  int axis = plan_axis(l, 1);
  lua_pushinteger(l, program_of(l)->s->mesh->axis[axis].size);
  return 1;
}

static int matches(lua_State *l) {
  lua_pushboolean(l, str_glob(luaL_checkstring(l, 1), luaL_checkstring(l, 2)));
  return 1;
}

enum { MAX_REFUSED = 100 };

// refuse(op or value, message): an error of the model, found here; the program goes on to find
// more.
static int refuse(lua_State *l) {
  PlanProgram *p = program_of(l);
  bool is_value = luaL_testudata(l, 1, PLAN_VALUES) != NULL;
  const Loc *loc = is_value ? plan_loc(plan_value(l, 1)) : plan_op(l, 1)->loc;
  diag_error(p->box.d, loc, "%s", luaL_checkstring(l, 2));
  diag_note(p->box.d, plan_line(l), "the plan asks for it here");
  if (++p->n_refused == MAX_REFUSED) return FAIL(l, NULL, "these are enough");
  return 0;
}

// -- What there is -----------------------------------------------------------------------------

const luaL_Reg plan_questions[] = {
    {"glob", matches},       {"ops", list_ops},       {"op", find_op},
    {"blocks", list_blocks}, {"params", list_params}, {"graph", graph_name},
    {"refuse", refuse},      {"size", axis_size},     {NULL, NULL},
};

// Ops and values as keys (lua_steady.h): as the graph numbers them.
static int order_of(lua_State *l) {
  Op *const *op = luaL_testudata(l, 1, PLAN_OPS);
  Value *const *v = luaL_testudata(l, 1, PLAN_VALUES);
  lua_pushinteger(l, op ? 2 * (lua_Integer)(*op)->id : v ? 2 * (lua_Integer)(*v)->id + 1 : 0);
  return 1;
}

static void make_type(lua_State *l, const char *name, lua_CFunction field, lua_CFunction text) {
  const luaL_Reg own[] = {
      {"__index", field}, {"__tostring", text}, {"__order", order_of}, {NULL, NULL}};
  luaL_newmetatable(l, name);
  luaL_setfuncs(l, own, 0);
  lua_pop(l, 1);
}

void plan_types(lua_State *l) {
  make_type(l, PLAN_OPS, op_field, op_text_of);
  make_type(l, PLAN_VALUES, value_field, value_text_of);
}
