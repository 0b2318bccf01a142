// The rows of a saved plan (record.h), as calls of a program:
//
//     saved_for { update = "adamw", rows = 32 }
//     op_row("/fc1/MatMul", "linear", "forward", 1, "0", "n")
//     op_row({ "/h.#/fc/MatMul", 0, 11 }, "linear", "forward", 1, "0", { "n", { 0, 1 } })
//     op_row("", "add", "update", { 1, 35 }, "-", "-")
//     param_row("fc1.weight", "weight", "-", 1)
//
//     offload_row({ "h.#.fc1.weight", 0, 11 })         in `model`
//
// A row has a split for each axis of the program, outermost first.  For every op or parameter that
// it names, it adds the constraints that op_trans, op_assign, split and store add for one, the
// innermost axis first.  An error is reported at the row.  `saved_for` is an error with another
// optimizer, since no row covers its states.  With another number of samples per step the plan may
// still be good, so only an error in a row adds a note about that.

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/op.h"
#include "lua/lua_deterministic.h"
#include "lua_graph.h"
#include "planner/saved/plan_fingerprint.h"

// -- Names -------------------------------------------------------------------------------------

// The names of argument 1: a text, or { text, first, last, step } with # for the number.
typedef struct Range {
  const char *text;
  bool one; // the text is the name
  lua_Integer at, last, step;
  StrBuf name; // the name with number `at`
} Range;

static lua_Integer range_entry(lua_State *l, lua_Integer i, lua_Integer otherwise) {
  bool missing = lua_rawgeti(l, 1, i) == LUA_TNIL;
  lua_pop(l, 1);
  return missing && otherwise ? otherwise : plan_entry(l, 1, i, "entry", NULL);
}

static Range range_arg(lua_State *l) {
  Range r = {.one = !lua_istable(l, 1), .step = 1, .name = {.arena = program_of(l)->box.arena}};
  if (r.one) {
    r.text = luaL_checkstring(l, 1);
    return r;
  }
  if (lua_rawgeti(l, 1, 1) == LUA_TSTRING) r.text = lua_tostring(l, -1); // the table owns it
  lua_pop(l, 1);
  // { text with one #, first, last, step }
  const char *mark = r.text ? strchr(r.text, '#') : NULL;
  if (!mark || strchr(mark + 1, '#'))
    FAIL(l, NULL, "a row of several is named as { \"/h.#/fc\", 0, 11 }, with one #");
  r.at = range_entry(l, 2, 0);
  r.last = range_entry(l, 3, 0);
  r.step = range_entry(l, 4, 1);
  if (r.at < 0 || r.last < r.at || r.last > INT32_MAX || r.step < 1 || r.step > INT32_MAX)
    FAIL(l, NULL, "numbers of names go up, from 0 or more: not from %lld to %lld in steps of %lld",
         (long long)r.at, (long long)r.last, (long long)r.step);
  return r;
}

// The next name; NULL after the last.
static const char *next_name(Range *r) {
  if (r->at > r->last) return NULL;
  if (r->one) {
    r->at = r->last + 1;
    return r->text;
  }
  size_t n = strcspn(r->text, "#");
  r->name.n = 0;
  strbuf_add_n(&r->name, r->text, n);
  strbuf_addf(&r->name, "%lld%s", (long long)r->at, r->text + n + 1);
  r->at += r->step;
  return r->name.at;
}

// -- Splits --------------------------------------------------------------------------------------

// After the `n` naming arguments a row has at most one split per axis.
static void check_splits(lua_State *l, int n) {
  const PlanProgram *p = program_of(l);
  int splits = lua_gettop(l) - n;
  if (!p->n_axes) FAIL(l, NULL, "there are no axes yet: this belongs into 'step'");
  if (splits > p->n_axes)
    FAIL(l, NULL, "this row is about %d axes, and the program has %d", splits, p->n_axes);
  lua_settop(l, n + p->n_axes);
}

static bool is_open(lua_State *l, int arg) {
  return lua_isnil(l, arg) || (lua_isboolean(l, arg) && !lua_toboolean(l, arg));
}

// Adds the constraints of a row for one op: ranks, then splits, which depend on them.
static void say_op(lua_State *l, Op *op, int n_named) {
  const PlanProgram *p = program_of(l);
  // { "n", { 0, 1 } }: the op runs on these ranks of the axis.
  for (int k = p->n_axes; k > 0; k--) {
    if (!lua_istable(l, n_named + k)) continue;
    if (lua_rawgeti(l, n_named + k, 2) == LUA_TNIL)
      FAIL(l, op->loc, "a letter on some ranks is written { \"n\", { 0, 1 } }");
    plan_say_ranks(l, op, lua_gettop(l), p->axis[k - 1]);
    lua_pop(l, 1);
  }
  // The letter, alone or as the first of such a table.
  for (int k = p->n_axes; k > 0; k--) {
    if (is_open(l, n_named + k)) continue;
    if (lua_istable(l, n_named + k))
      lua_rawgeti(l, n_named + k, 1);
    else
      lua_pushvalue(l, n_named + k);
    if (lua_type(l, -1) != LUA_TSTRING)
      FAIL(l, op->loc, "%s is no letter of %s", steady_text(l, -1), op_info[op->kind].name);
    plan_say_split(l, op, plan_letter_arg(l, lua_gettop(l), op), p->axis[k - 1]);
    lua_pop(l, 1);
  }
  sandbox_check(l);
}

// op_row(name, kind, part, which, split, …)
static int op_row(lua_State *l) {
  enum { WHICH = 4 };
  const char *kind = luaL_checkstring(l, 2), *part = luaL_checkstring(l, 3), *name;
  // One op of the node, or a range of them.
  bool several = lua_istable(l, WHICH);
  lua_Integer first =
      several ? plan_entry(l, WHICH, 1, "entry", NULL) : luaL_checkinteger(l, WHICH);
  lua_Integer last = several ? plan_entry(l, WHICH, 2, "entry", NULL) : first;
  if (first < 1 || last < first)
    return FAIL(l, NULL, "ops of a node are numbered from 1: not from %lld to %lld",
                (long long)first, (long long)last);
  check_splits(l, WHICH);
  for (Range r = range_arg(l); (name = next_name(&r));)
    for (lua_Integer i = first; i <= last; i++)
      say_op(l, plan_find_op(l, name, kind, part, i), WHICH);
  return 0;
}

// -- Parameters --------------------------------------------------------------------------------

static int by_label(const void *x, const void *y) {
  const Value *a = *(Value *const *)x, *b = *(Value *const *)y;
  int order = strcmp(a->label ? a->label : "", b->label ? b->label : "");
  return order ? order : (int)a->role - (int)b->role;
}

// NULL for a missing parameter of a graph after the first, which may have fewer.
static Value *find_param(lua_State *l, const char *name, const char *role) {
  PlanProgram *p = program_of(l);
  Value like = {.label = name}, *key = &like, **found = NULL;
  int k = 0;
  while (k < N_ROLES && !str_equal(role, role_name[k]))
    k++;
  if (k == N_ROLES) FAIL(l, NULL, "the roles are input, weight, state and scalar, not '%s'", role);
  like.role = (Role)k;
  // Sorted by label and role, once for all rows.
  if (!p->params) {
    const Graph *g = p->s->g;
    p->n_params = g->n_params;
    p->params = arena_array(p->box.arena, Value *, g->n_params);
    memcpy(p->params, g->params, (size_t)g->n_params * sizeof *p->params);
    qsort(p->params, (size_t)p->n_params, sizeof *p->params, by_label);
  }
  if (p->n_params)
    found = bsearch(&key, p->params, (size_t)p->n_params, sizeof *p->params, by_label);
  if (!found && !p->s->first) FAIL(l, NULL, "there is no %s '%s'", role, name);
  return found ? *found : NULL;
}

// param_row(name, role, split, …)
static int param_row(lua_State *l) {
  enum { NAMED = 2 };
  const PlanProgram *p = program_of(l);
  const char *role = luaL_checkstring(l, 2), *name;
  check_splits(l, NAMED);
  for (Range r = range_arg(l); (name = next_name(&r));) {
    const Value *v = find_param(l, name, role);
    for (int k = p->n_axes; v && k > 0; k--) {
      // A dimension, "-", or { dimension } for storage only.
      int at = NAMED + k, axis = p->axis[k - 1];
      bool stored = lua_istable(l, at);
      if (is_open(l, at)) continue;
      if (stored)
        lua_rawgeti(l, at, 1);
      else
        lua_pushvalue(l, at);
      if (lua_type(l, -1) != LUA_TSTRING && !lua_isinteger(l, -1))
        FAIL(l, v->loc, "%s is no dimension of '%s'", steady_text(l, -1), v->label);
      plan_say_cut(l, v, plan_split_arg(l, lua_gettop(l), v), axis,
                   stored ? PARAM_stored : PARAM_fixed);
      lua_pop(l, 1);
    }
    sandbox_check(l);
  }
  return 0;
}

// Marks the named weights: their states, or their gradients.
static int mark_row(lua_State *l, bool gradients) {
  const char *name;
  plan_sharding(l);
  if (program_of(l)->n_axes)
    return FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  for (Range r = range_arg(l); (name = next_name(&r));) {
    Value *v = find_param(l, name, role_name[ROLE_weight]);
    *(gradients ? &v->host_gradient : &v->host) = true;
    sandbox_check(l);
  }
  return 0;
}

// offload_row(name): `offload` of the named weights
static int offload_row(lua_State *l) {
  return mark_row(l, false);
}

// offload_gradient_row(name): `offload_gradient` of the named weights
static int offload_gradient_row(lua_State *l) {
  return mark_row(l, true);
}

// -- Model and optimizer of a saved plan -------------------------------------------------------

// saved_for { update = "adamw", rows = 32 }, about the training step
static int saved_for(lua_State *l) {
  const PlanProgram *p = program_of(l);
  luaL_checktype(l, 1, LUA_TTABLE);
  // Unknown keys: a misspelt one would have no effect.
  for (lua_pushnil(l); lua_next(l, 1); lua_pop(l, 1)) {
    const char *name = lua_type(l, -2) == LUA_TSTRING ? lua_tostring(l, -2) : "";
    if (!str_equal(name, "update") && !str_equal(name, "rows"))
      FAIL(l, NULL, "saved_for has no '%s': it wants { update = \"adamw\", rows = 32 }",
           *name ? name : steady_text(l, -2));
  }
  lua_getfield(l, 1, "update");
  lua_getfield(l, 1, "rows");
  if ((!lua_isnil(l, 2) && lua_type(l, 2) != LUA_TSTRING) ||
      (!lua_isnil(l, 3) && !(lua_isinteger(l, 3) && lua_tointeger(l, 3) > 0)))
    return FAIL(l, NULL, "saved_for wants { update = \"adamw\", rows = 32 }");
  // Checked once, in the first graph.
  if (plan_sharding(l)->first) return 0;
  MadeFor here = made_for(p->s->g);
  const char *update = lua_tostring(l, 2);
  if (update && !str_equal(update, here.update)) {
    plan_note(l, NULL, "save it again with this optimizer, or give the earlier --optimizer");
    return FAIL(l, NULL, "this plan was saved for updates by %s, and %s%s", update,
                here.update ? "here they are by " : "here is none", here.update ? here.update : "");
  }
  // Another number of samples is no error, but may be the cause of one.
  lua_Integer rows = lua_tointeger(l, 3);
  if (rows && rows != here.batch && !p->box.notes.n)
    plan_note(l, plan_line(l),
              str_format(p->box.arena, "the plan was saved for a step of %lld rows, not %" PRId64,
                         (long long)rows, here.batch));
  return 0;
}

const luaL_Reg plan_rows[] = {{"offload_gradient_row", offload_gradient_row},
                              {"offload_row", offload_row},
                              {"op_row", op_row},
                              {"param_row", param_row},
                              {"saved_for", saved_for},
                              {NULL, NULL}};
