// Queries of a plan's program about the graph: see lua_graph.h; docs/own_plans.md
// has the functions.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "lua/lua_deterministic.h"
#include "lua_graph.h"
#include "repeats/parts.h"

// -- Ops ---------------------------------------------------------------------------------------

enum { MAX_LISTS = 4 }; // nested: of blocks, occurrences and ops there are three

// The op kind of that name, if one was given.
static void check_kind(lua_State *l, const char *kind, OpKind *known) {
  if (!kind || op_kind_parse(kind, known)) return;
  // "add, linear, relu": the kinds of op in the graph.
  StrBuf b = {.arena = program_of(l)->box.arena};
  bool there[N_OPS] = {0};
  for_each_op(op, plan_sharding(l)->g)
    there[op->kind] = true;
  for (int i = 0; i < N_OPS; i++)
    if (there[i]) strbuf_addf(&b, "%s%s", b.n ? ", " : "", op_info[i].name);
  FAIL(l, NULL, "there is no op '%s'; the graph has %s", kind, b.n ? b.at : "none");
}

static void check_part(lua_State *l, const char *part) {
  bool is_part = !part;
  for (int i = 0; part && i < N_TRAIN_PARTS; i++)
    is_part |= str_equal(part, train_part_name[i]);
  if (!is_part) FAIL(l, NULL, "the parts are forward, backward and update, not '%s'", part);
}

// The filter of `ops`.
typedef struct Wanted {
  const char *kind, *part, *name;
  OpKind known;
  bool *among; // by id; NULL: all
} Wanted;

static void list(lua_State *l, bool *marked, OpList *ops, const char *what, int depth) {
  luaL_checkstack(l, 4, NULL);
  if (luaL_testudata(l, -1, PLAN_OPS)) {
    // An op that was cut stands for those that replaced it.
    bool was_cut = lua_getiuservalue(l, -1, 1) == LUA_TTABLE;
    if (was_cut) list(l, marked, ops, what, 0);
    lua_pop(l, 1);
    if (was_cut) return;
    Op *op = plan_op(l, -1);
    if (!marked[op->id]) vec_push(program_of(l)->s->scratch, ops, op);
    marked[op->id] = true;
    return;
  }
  if (!lua_istable(l, -1) || depth > MAX_LISTS)
    FAIL(l, NULL, "'%s' wants an op, a list of them, or lists of such, not %s", what,
         steady_text(l, -1));
  // The depth is limited, as a list may contain itself.
  for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(l, -1); i++) {
    lua_rawgeti(l, -1, i);
    list(l, marked, ops, what, depth + 1);
    lua_pop(l, 1);
  }
}

void plan_list(lua_State *l, bool *marked, OpList *ops, const char *what) {
  list(l, marked, ops, what, 0);
}

static const char *text_field(lua_State *l, const char *field) {
  int kind = lua_getfield(l, 1, field);
  if (kind != LUA_TNIL && kind != LUA_TSTRING)
    FAIL(l, NULL, "'%s' wants a text, not %s", field, steady_text(l, -1));
  const char *text = lua_tostring(l, -1); // the table owns it
  lua_pop(l, 1);
  return text;
}

// ops(kind, part), or ops{kind=, part=, name=, block=}: the ops that match all of these, in order;
// nil matches any.
static int list_ops(lua_State *l) {
  Wanted w = {0};
  plan_sharding(l);
  if (lua_istable(l, 1)) {
    // The fields of the table; a misspelt one would match all ops.
    static const char *const fields[] = {"kind", "part", "name", "block"};
    for (lua_pushnil(l); lua_next(l, 1); lua_pop(l, 1)) {
      bool known = false;
      for (size_t i = 0; i < sizeof fields / sizeof *fields && lua_type(l, -2) == LUA_TSTRING; i++)
        known |= str_equal(fields[i], lua_tostring(l, -2));
      if (!known)
        FAIL(l, NULL, "ops takes kind, part, name and block, not '%s'", steady_text(l, -2));
    }
    w.kind = text_field(l, "kind");
    w.part = text_field(l, "part");
    w.name = text_field(l, "name");
    if (lua_getfield(l, 1, "block") != LUA_TNIL) {
      w.among = arena_array(program_of(l)->s->scratch, bool, plan_sharding(l)->g->n_ops);
      plan_list(l, w.among, &(OpList){0}, "block");
    }
    lua_pop(l, 1);
  } else {
    w.kind = luaL_optstring(l, 1, NULL);
    w.part = luaL_optstring(l, 2, NULL);
  }
  check_kind(l, w.kind, &w.known);
  check_part(l, w.part);
  // The filter is valid: list its ops in graph order.
  const Graph *g = plan_sharding(l)->g;
  lua_newtable(l);
  int n = 0;
  for_each_op(op, g) {
    bool wanted = (!w.kind || op->kind == w.known) &&
                  (!w.part || str_equal(w.part, train_part_name[op_part(op)])) &&
                  (!w.name || str_glob(w.name, op_node(op))) && (!w.among || w.among[op->id]);
    if (!wanted) continue;
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

// Appends the ops of an occurrence, with those of nested occurrences, to the list of `n` on top.
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

static const Repeats *repeats_of(lua_State *l) {
  PlanProgram *p = program_of(l);
  const Graph *g = plan_sharding(l)->g;
  if (p->repeats) return p->repeats;
  // Of the model only: backward repeats with it.
  bool *model = arena_array(p->s->scratch, bool, g->n_ops);
  for_each_op(op, g)
    model[op->id] = op_part(op) == PART_forward;
  p->repeats = repeats_find(g, LEAST_BLOCK, model, p->s->scratch);
  qsort(p->repeats->block, (size_t)p->repeats->n_blocks, sizeof *p->repeats->block, by_size);
  return p->repeats;
}

static void push_occurrence(lua_State *l, const Occurrence *o, int number) {
  lua_createtable(l, o->block->n_ops, 0);
  push_members(l, o, 0);
  lua_rawseti(l, -2, number);
}

// blocks(): the repeated subgraphs of the model, those with the most ops first: a list of blocks,
// each a list of occurrences, each a list of ops; op i corresponds to op i of every other
// occurrence.
static int list_blocks(lua_State *l) {
  const Repeats *r = repeats_of(l);
  lua_createtable(l, r->n_blocks, 0);
  for (int b = 0; b < r->n_blocks; b++) {
    const Block *block = r->block[b];
    lua_createtable(l, block->n, 0);
    for (int i = 0; i < block->n; i++)
      push_occurrence(l, block->at[i], i + 1);
    lua_rawseti(l, -2, b + 1);
  }
  return 1;
}

static uint32_t first_id(const Occurrence *o) {
  uint32_t first = UINT32_MAX;
  for (int i = 0; i < o->block->n_members; i++) {
    const Member *m = &o->member[i];
    uint32_t id = m->op ? m->op->id : first_id(m->inner);
    if (id < first) first = id;
  }
  return first;
}

static int by_first_op(const void *x, const void *y) {
  uint32_t a = first_id(*(Occurrence *const *)x), b = first_id(*(Occurrence *const *)y);
  return (a > b) - (a < b);
}

// The occurrences of all blocks that are in no other, in order of their first ops.
typedef Vec(Occurrence *) Occurrences;

static Occurrences find_outermost(lua_State *l, Arena *a) {
  const Repeats *r = repeats_of(l);
  Occurrences layer = {0};
  for (int b = 0; b < r->n_blocks; b++)
    for (int i = 0; i < r->block[b]->n; i++)
      if (!r->block[b]->at[i]->outer) vec_push(a, &layer, r->block[b]->at[i]);
  // Blocks are in order of their size: sort their occurrences by graph order.
  if (layer.n) qsort(layer.at, (size_t)layer.n, sizeof *layer.at, by_first_op);
  return layer;
}

// These occurrences; runs of ops if nothing repeats.
void plan_find_layers(lua_State *l, Arena *a, OpLists *out) {
  Occurrences layer = find_outermost(l, a);
  for (int i = 0; i < layer.n; i++) {
    int n = layer.at[i]->block->n_ops;
    OpList list = {.at = arena_array(a, Op *, n), .n = n, .cap = n};
    occurrence_ops(layer.at[i], list.at);
    vec_push(a, out, list);
  }
  if (layer.n) return;
  // Nothing repeats: the ops before the loss in runs, about as many as there are ops in each.
  const Graph *g = plan_sharding(l)->g;
  int n = 0;
  for (const Op *op = g->first; op && op->kind != OP_cross_entropy; op = op->next)
    n++;
  int length = (int)ceil(sqrt(n)), i = 0;
  OpList run = {0};
  for (Op *op = g->first; i < n; op = op->next, i++) {
    vec_push(a, &run, op);
    if (run.n < length && i < n - 1) continue;
    vec_push(a, out, run);
    run = (OpList){0};
  }
}

// -- Refusals ------------------------------------------------------------------------------------

enum {
  MAX_REFUSED = 100,
  MOST_PLACES = 3, // of one reason
};

// Ends a reason: tells how many of its places were left out.
static void end_reason(PlanProgram *p) {
  if (p->n_places > MOST_PLACES) diag_more_places(p->box.d, p->n_places - MOST_PLACES);
  p->reason = NULL;
  p->n_places = 0;
}

void plan_refused_all(PlanProgram *p) {
  end_reason(p);
}

const Loc *plan_number_loc(lua_State *l, int arg) {
  const PlanProgram *p = program_of(l);
  if (!p->given || !lua_istable(l, arg)) return NULL;
  lua_getfield(l, arg, "column");
  lua_Integer column = lua_tointeger(l, -1) + p->moved;
  lua_pop(l, 1);
  if (column < 1 || column > (lua_Integer)strlen(p->given)) return NULL;
  return loc_source(p->box.arena, "--plan", 0, (int)column, p->given);
}

// Reports an error of the model, or of a number of the plan's text; the program continues, to find
// more. Places with the message of the one before are reported together.
static int refuse_at(lua_State *l, const Loc *loc, bool number, const char *text) {
  PlanProgram *p = program_of(l);
  // An alternative keeps its messages to itself.
  if (!p->alternative && p->reason && str_equal(p->reason, text)) {
    diag_place(p->box.d, loc, NULL, ++p->n_places <= MOST_PLACES);
  } else {
    if (!p->alternative) {
      end_reason(p);
      p->reason = str_copy(p->box.arena, text);
      p->n_places = 1;
    }
    diag_error(p->box.d, loc, "%.*s", LUA_MESSAGE, text);
    if (!number) diag_note(p->box.d, plan_line(l), "the plan asks for it here");
  }
  if (++p->n_refused < MAX_REFUSED) return 0;
  if (!p->alternative) end_reason(p);
  return FAIL(l, NULL, "these are enough");
}

// refuse(op, value or number, message)
static int refuse(lua_State *l) {
  bool is_value = luaL_testudata(l, 1, PLAN_VALUES) != NULL;
  const Loc *number = plan_number_loc(l, 1), *loc = number;
  if (!number) loc = is_value ? plan_loc(plan_value(l, 1)) : plan_op(l, 1)->loc;
  return refuse_at(l, loc, number, luaL_checkstring(l, 2));
}

// -- Layers --------------------------------------------------------------------------------------

// The field of a number of the plan's text, which is at the top of the stack.
static lua_Integer number_field(lua_State *l, const char *name, lua_Integer otherwise) {
  lua_getfield(l, -1, name);
  lua_Integer value = luaL_optinteger(l, -1, otherwise);
  lua_pop(l, 1);
  return value;
}

// Marks the layers of a number, which is at the top of the stack: of layers `first` to `last`, or
// of all, the first n.  No other number may have a layer of that range.  Errors are at the number.
static void mark_layers(lua_State *l, bool *asked, bool *taken, int n_layers) {
  lua_Integer n = number_field(l, "n", n_layers), first = number_field(l, "first", 1);
  lua_Integer last = number_field(l, "last", n_layers);
  bool has_range = number_field(l, "first", 0) != 0;
  const Loc *loc = plan_number_loc(l, lua_gettop(l));
  Arena *a = plan_sharding(l)->scratch;
  const char *why = NULL;
  if (first < 1 || last < 1 || last > n_layers)
    why = str_format(a, "there is no layer %lld, there are %d",
                     (long long)(first < 1 ? first : last), n_layers);
  else if (n < 0 || n > last - first + 1)
    why =
        str_format(a, "layers %lld to %lld are %lld, so %lld of them cannot be asked for",
                   (long long)first, (long long)last, (long long)(last - first + 1), (long long)n);
  for (lua_Integer i = first; !why && i <= (has_range ? last : n); i++) {
    if (taken[i - 1]) why = str_format(a, "layer %lld is in an earlier number", (long long)i);
    taken[i - 1] = true;
    asked[i - 1] = i < first + n;
  }
  if (why) refuse_at(l, loc, loc != NULL, why);
}

static void push_layers(lua_State *l, const OpLists *all, const bool *asked) {
  lua_createtable(l, all->n, 0);
  for (int i = 0, listed = 0; i < all->n; i++) {
    const OpList *list = &all->at[i];
    int n = 0;
    if (asked && !asked[i]) continue;
    lua_createtable(l, list->n, 0);
    for (int k = 0; k < list->n; k++) {
      if (!plan_there(list->at[k])) continue;
      plan_push(l, list->at[k], PLAN_OPS);
      lua_rawseti(l, -2, ++n);
    }
    lua_rawseti(l, -2, ++listed);
  }
}

// The layers of a program, and those that argument 1 asks for, the numbers of the plan's text.
// NULL: there is no argument.
static const OpLists *asked_layers(lua_State *l, OpLists *found, bool **out) {
  const PlanProgram *p = program_of(l);
  bool known = p->layers && p->layers->known;
  if (!known) plan_find_layers(l, p->s->scratch, found);
  const OpLists *all = known ? &p->layers->all : found;
  bool some = !lua_isnoneornil(l, 1);
  bool *asked = arena_array(p->s->scratch, bool, all->n + 1);
  bool *taken = arena_array(p->s->scratch, bool, all->n + 1);
  if (some) luaL_checktype(l, 1, LUA_TTABLE);
  for (lua_Integer i = 1; some && lua_geti(l, 1, i) == LUA_TTABLE; i++, lua_pop(l, 1))
    mark_layers(l, asked, taken, all->n);
  *out = some ? asked : NULL;
  return all;
}

// layers(numbers): as found before the first cut into pieces, with the pieces of their ops since;
// with numbers (numbers(list)) those that they are of.
static int list_layers(lua_State *l) {
  OpLists found = {0};
  bool *asked;
  const OpLists *all = asked_layers(l, &found, &asked);
  push_layers(l, all, asked);
  return 1;
}

// layer_weights(numbers): the trained weights of these layers. A weight belongs to the layer of its
// first reader; ops before the first layer count for it, and others for the layer before them.
static int list_layer_weights(lua_State *l) {
  const Graph *g = plan_sharding(l)->g;
  Arena *a = program_of(l)->s->scratch;
  OpLists found = {0};
  bool *asked;
  const OpLists *all = asked_layers(l, &found, &asked);
  int *of = arena_array(a, int, g->n_ops); // by op id: the number of its layer, from 1
  for (int i = 0; i < all->n; i++)
    for (int k = 0; k < all->at[i].n; k++)
      if (plan_there(all->at[i].at[k])) of[all->at[i].at[k]->id] = i + 1;
  bool *seen = arena_array(a, bool, g->n_values);
  int layer = 1, n = 0;
  lua_newtable(l);
  for_each_op(op, g) {
    if (op_part(op) != PART_forward || !all->n) continue;
    if (of[op->id]) layer = of[op->id];
    for (int i = 0; i < op->n_in; i++) {
      Value *v = op->in[i].value;
      bool trained = !v->def && v->role == ROLE_weight && v->train;
      if (!trained || seen[v->id]) continue;
      seen[v->id] = true;
      if (asked && !asked[layer - 1]) continue;
      plan_push(l, v, PLAN_VALUES);
      lua_rawseti(l, -2, ++n);
    }
  }
  return 1;
}

// layer_parts(): the parts of all layers, in order. A layer that does not repeat is one part, and
// in model() one that was cut into pieces.
static int list_layer_parts(lua_State *l) {
  const PlanProgram *p = program_of(l);
  Arena *a = p->s->scratch;
  const Graph *g = plan_sharding(l)->g;
  Occurrences layer = find_outermost(l, a);
  if (!layer.n || (p->layers && p->layers->known)) {
    lua_settop(l, 0);
    return list_layers(l);
  }
  bool *among = arena_array(a, bool, g->n_ops);
  for_each_op(op, g)
    among[op->id] = op_part(op) == PART_forward;
  ModelOrder order = model_order(g, repeats_of(l), among, a);
  OpLists parts = {0};
  for (int i = 0; i < layer.n; i++) {
    int n = layer.at[i]->block->n_ops, *part = arena_array(a, int, n);
    Op **op = arena_array(a, Op *, n);
    occurrence_ops(layer.at[i], op);
    block_parts(&order, layer.at[i]->block, part, a);
    for (int k = 0; k < n; k++) {
      if (!k || part[k] != part[k - 1]) vec_push(a, &parts, (OpList){0});
      vec_push(a, &parts.at[parts.n - 1], op[k]);
    }
  }
  push_layers(l, &parts, NULL);
  return 1;
}

// -- Parameters and axes -------------------------------------------------------------------------

// params(role): in order; nil matches any.
static int list_params(lua_State *l) {
  const char *role = luaL_optstring(l, 1, NULL);
  const Graph *g = plan_sharding(l)->g;
  bool is_role = !role;
  for (int i = 0; role && i < N_ROLES; i++)
    is_role |= str_equal(role, role_name[i]);
  if (!is_role)
    return FAIL(l, NULL, "the roles are input, weight, state and scalar, not '%s'", role);
  // Values that ops compute have no role: only parameters are listed.
  lua_newtable(l);
  int n = 0;
  for (int i = 0; i < g->n_params; i++) {
    if (role && !str_equal(role, plan_role(g->params[i]))) continue;
    plan_push(l, g->params[i], PLAN_VALUES);
    lua_rawseti(l, -2, ++n);
  }
  return 1;
}

Op *plan_find_op(lua_State *l, const char *node, const char *kind, const char *part,
                 lua_Integer which) {
  PlanProgram *p = program_of(l);
  OpKind known = 0;
  int k = 0, n;
  plan_sharding(l);
  check_kind(l, kind, &known);
  check_part(l, part);
  while (!str_equal(part, train_part_name[k]))
    k++;
  // Without a number there must be one such op only.
  int number = which > INT32_MAX ? -1 : which ? (int)which : 1;
  Op *op =
      op_names_find(plan_names_of(p), node, (TrainPart)k, kind ? (int)known : N_OPS, number, &n);
  const char *what = kind ? kind : n == 1 ? "op" : "ops";
  if (!op && !n && kind && known == OP_cast)
    plan_note(l, NULL, "casts follow --dtype: a saved plan has those of its own");
  if (!op && !n)
    FAIL(l, NULL, "no %s of %s comes from the node '%s'", kind ? kind : "op", part, node);
  if (!op)
    FAIL(l, NULL, "the node '%s' has %d %s of %s, and this is number %lld", node, n, what, part,
         (long long)(which ? which : 1));
  if (!which && n > 1)
    FAIL(l, op->loc, "the node '%s' has %d %s of %s: say which%s", node, n, what, part,
         kind ? "" : ", or of which kind");
  return op;
}

// op(node, kind, part, which): the op of this node of the model; kind: nil for any; part: forward
// if nil.
static int find_op(lua_State *l) {
  const char *node = luaL_checkstring(l, 1), *kind = luaL_optstring(l, 2, NULL);
  const char *part = luaL_optstring(l, 3, train_part_name[PART_forward]);
  plan_push(l, plan_find_op(l, node, kind, part, luaL_optinteger(l, 4, 0)), PLAN_OPS);
  return 1;
}

// graph(): "train" for the training step, "eval" for evaluation.
static int graph_name(lua_State *l) {
  lua_pushstring(l, plan_sharding(l)->g->name);
  return 1;
}

// size(axis): its ranks; in `model` size(): the ranks of the program, size(true): with those of the
// programs inside of it, nil if they are not decided yet.
static int axis_size(lua_State *l) {
  const PlanProgram *p = program_of(l);
  if (p->s && p->n_axes == 0 && (lua_isnone(l, 1) || lua_isboolean(l, 1))) {
    int ranks = lua_toboolean(l, 1) ? p->ranks.all : p->ranks.own;
    if (!ranks) return 0;
    lua_pushinteger(l, ranks);
    return 1;
  }
  int axis = plan_axis(l, 1);
  lua_pushinteger(l, program_of(l)->s->mesh->axis[axis].size);
  return 1;
}

static int matches(lua_State *l) {
  lua_pushboolean(l, str_glob(luaL_checkstring(l, 1), luaL_checkstring(l, 2)));
  return 1;
}

enum { MAX_PRODUCT = 1 << 24 }; // the limit of trial division

// Appends to the `n` lists of the list below each factoring of `product` that begins with the
// `n_sizes` sizes on top and ends with `count` more sizes, of 2 or more.
static lua_Integer push_products(lua_State *l, lua_Integer product, int n_sizes, int count,
                                 lua_Integer n) {
  luaL_checkstack(l, 4, NULL);
  // The last size is the rest: a list of those on the stack and of this.
  if (count == 1) {
    lua_createtable(l, n_sizes + 1, 0);
    for (int i = 0; i < n_sizes; i++) {
      lua_pushvalue(l, -1 - n_sizes + i);
      lua_rawseti(l, -2, i + 1);
    }
    lua_pushinteger(l, product);
    lua_rawseti(l, -2, n_sizes + 1);
    lua_rawseti(l, -2 - n_sizes, ++n);
    return n;
  }
  // Each divisor as the next size.
  for (lua_Integer size = 2; size <= product / 2; size++) {
    if (product % size) continue;
    lua_pushinteger(l, size);
    n = push_products(l, product / size, n_sizes + 1, count - 1, n);
    lua_pop(l, 1);
  }
  return n;
}

// products(n, least, most): all ordered factorings of n into that many sizes.
static int products(lua_State *l) {
  lua_Integer product = luaL_checkinteger(l, 1), n = 0;
  lua_Integer least = luaL_checkinteger(l, 2), most = luaL_optinteger(l, 3, least);
  if (product < 1 || product > MAX_PRODUCT)
    return FAIL(l, NULL, "products are of 1 to %d, not of %lld", MAX_PRODUCT, (long long)product);
  if (least < 1 || most < least || most > MAX_AXES)
    return FAIL(l, NULL, "there are 1 to %d sizes, not %lld to %lld", MAX_AXES, (long long)least,
                (long long)most);
  lua_newtable(l);
  for (int count = (int)least; count <= most; count++)
    n = push_products(l, product, 0, count, n);
  return 1;
}

// replicated(op or value, message): warns that the plan leaves it whole on every rank.
static int replicated(lua_State *l) {
  PlanProgram *p = program_of(l);
  bool is_value = luaL_testudata(l, 1, PLAN_VALUES) != NULL;
  const Loc *loc = is_value ? plan_loc(plan_value(l, 1)) : plan_op(l, 1)->loc;
  diag_doubt(p->box.d, PROBLEM_replicated, loc, "%.*s", LUA_MESSAGE, luaL_checkstring(l, 2));
  return 0;
}

static int remark(lua_State *l, ProblemKind kind) {
  PlanProgram *p = program_of(l);
  bool is_value = luaL_testudata(l, 1, PLAN_VALUES) != NULL;
  const Loc *loc = is_value ? plan_loc(plan_value(l, 1)) : plan_op(l, 1)->loc;
  diag_remark(p->box.d, kind, loc, "%.*s", LUA_MESSAGE, luaL_checkstring(l, 2));
  diag_hint(p->box.d, "%s", problem_info[kind].way_out);
  return 0;
}

// worst_case(op or value, message): notes that the plan has memory for the worst case of data.
static int worst_case(lua_State *l) {
  return remark(l, PROBLEM_worst_case);
}

// dense_routing(op or value, message): notes that all experts compute all rows.
static int dense_routing(lua_State *l) {
  return remark(l, PROBLEM_dense_routing);
}

// -- The table of queries ----------------------------------------------------------------------

const luaL_Reg plan_questions[] = {
    {"glob", matches},
    {"ops", list_ops},
    {"op", find_op},
    {"blocks", list_blocks},
    {"layers", list_layers},
    {"layer_weights", list_layer_weights},
    {"layer_parts", list_layer_parts},
    {"params", list_params},
    {"graph", graph_name},
    {"products", products},
    {"refuse", refuse},
    {"replicated", replicated},
    {"size", axis_size},
    {"worst_case", worst_case},
    {"dense_routing", dense_routing},
    {NULL, NULL},
};
