// The price of an alternative, for plan programs: seconds and bytes of a step whose constraints a
// function adds, without adding them.
//
//     local now = price()                                        the constraints so far
//     local cut = price(function() op_trans(fc, "n", axis) end)  these and one more
//     if cut.seconds < now.seconds then op_trans(fc, "n", axis) end
//
// The function runs on a copy of the graph and of its sharding, which is dropped afterwards.  The
// program's ops and values stand for those of the copy in the meantime, so the function is ordinary
// code of the program: it may call apply, search and place.  All that it leaves open is propagated.
// Then the price is that of a search in which every op has one choice (search_price), or of the
// slowest stage.
//
// An alternative that is impossible for the model has no price: nil and the reason.

#include <ctype.h>
#include <string.h>

#include "diag_capture.h"
#include "ir/op.h"
#include "lua_graph.h"
#include "planner/plan/sections.h"
#include "planner/search/search.h"
#include "sharding/decide.h"

enum {
  MAX_PRICES = 256, // per program, with the programs that it applies: each builds a search
  MAX_NESTED = 8,   // prices inside of prices
};

// -- Ops and values of the copy ------------------------------------------------------------------

Op *alternative_op(const Alternative *a, Op *op) {
  if (!a) return op;
  op = alternative_op(a->outer, op);
  return op->graph == a->of && a->op[op->id] ? a->op[op->id] : op;
}

Value *alternative_value(const Alternative *a, Value *v) {
  if (!a) return v;
  v = alternative_value(a->outer, v);
  const Graph *g = v->def ? v->def->graph : v->graph;
  return g == a->of && a->value[v->id] ? a->value[v->id] : v;
}

const void *alternative_origin(Alternative *a, const void *object, const char *type) {
  const void *from = NULL;
  if (!a) return object;
  if (type == PLAN_OPS) {
    const Op *op = object;
    if (op->graph != a->g) return object;
    from = op->id < a->n_ops ? a->op_of[op->id] : NULL;
  } else {
    const Value *v = object;
    if ((v->def ? v->def->graph : v->graph) != a->g) return object;
    from = v->id < a->n_values ? a->value_of[v->id] : NULL;
  }
  if (from) return alternative_origin(a->outer, from, type);
  vec_push(a->arena, &a->own, object);
  return object;
}

static void pair_values(Alternative *a, Value *v, Value *copy) {
  a->value[v->id] = copy;
  a->value_of[copy->id] = v;
}

// Ops and parameters of the copy are in the order of the originals.
static void pair_all(Alternative *a, const Graph *of, const Graph *g) {
  a->of = of;
  a->g = g;
  a->n_ops = g->n_ops;
  a->n_values = g->n_values;
  a->op = arena_array(a->arena, Op *, of->n_ops);
  a->op_of = arena_array(a->arena, Op *, g->n_ops);
  a->value = arena_array(a->arena, Value *, of->n_values);
  a->value_of = arena_array(a->arena, Value *, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    pair_values(a, of->params[i], g->params[i]);
  Op *copy = g->first;
  for_each_op(op, of) {
    a->op[op->id] = copy;
    a->op_of[copy->id] = op;
    for (int i = 0; i < op->n_out; i++)
      pair_values(a, op->out[i], copy->out[i]);
    copy = copy->next;
  }
}

// -- The state of the program while a function runs ----------------------------------------------

typedef struct Pricing {
  Alternative alternative;
  Module *module; // the copy
  Sharding sharding, *before;
  SandboxAside aside;
  DiagCapture capture;
  const char *why; // once it has ended: the first of its errors
  Diag *d;         // messages of the program
  int n_refused, n_notes;
  ReplacedLosses losses; // of the program
} Pricing;

static Graph *graph_at(const Graph *g, const Module *copy) {
  Graph *at = copy->graphs;
  for_each_graph(other, g->module) {
    if (other == g) break;
    at = at->next;
  }
  return at;
}

// A cached table of the program is of one graph.
static void forget(PlanProgram *p) {
  plan_changed(p);
  p->params = NULL;
  p->n_met = 0;
}

static void begin(lua_State *l, Pricing *k) {
  PlanProgram *p = program_of(l);
  Spared began = sandbox_begin(l);
  Sharding from = *p->s;
  *k = (Pricing){.before = p->s, .d = p->box.d};
  Alternative *a = &k->alternative;
  a->arena = from.scratch = arena_new();
  a->outer = p->alternative;
  k->module = module_clone(from.g->module);
  Graph *g = graph_at(from.g, k->module);
  k->sharding = sharding_of_clone(&from, g);
  pair_all(a, from.g, g);
  // The limits of searches, and none of their files and caches, which are of the graph.
  SearchEnv *env = &k->sharding.env;
  *env = from.env;
  env->stats = NULL;
  env->lives = NULL;
  env->solutions = NULL;
  env->problem_file = env->lp_file = env->explain = NULL;
  // Outer axes are assumed as they are in a search.
  k->sharding.sections = from.guessing ? NULL : from.sections;
  k->sharding.section = from.section;
  k->n_refused = p->n_refused;
  k->losses = p->losses;
  k->n_notes = p->box.notes.n;
  diag_capture_begin(&k->capture);
  sandbox_spare(l, &began);
  k->aside = sandbox_aside(&p->box, a->arena);
  p->s = &k->sharding;
  p->alternative = a;
  p->box.d = k->capture.d;
  forget(p);
}

// Ends the alternative: the program's state is as before, and ops that it alone had are gone.
static void end(lua_State *l, Pricing *k) {
  PlanProgram *p = program_of(l);
  for (int i = 0; i < k->alternative.own.n; i++) {
    const void *object = k->alternative.own.at[i];
    if (lua_rawgetp(l, LUA_REGISTRYINDEX, object) == LUA_TUSERDATA)
      *(const void **)lua_touserdata(l, -1) = NULL;
    lua_pop(l, 1);
    lua_pushnil(l);
    lua_rawsetp(l, LUA_REGISTRYINDEX, object);
  }
  p->s = k->before;
  p->alternative = k->alternative.outer;
  p->box.d = k->d;
  p->box.reported = false;
  p->box.notes.n = k->n_notes;
  p->n_refused = k->n_refused;
  p->losses = k->losses;
  forget(p);
  sandbox_back(&p->box, &k->aside);
  k->why = diag_capture_end(&k->capture, p->box.arena);
  module_free(k->module);
  arena_free(k->alternative.arena);
}

// The message of an error that a call raised, without its line.
static const char *message_of(lua_State *l) {
  const char *text = lua_tostring(l, -1);
  if (!text || !str_starts(text, "lua:") || !isdigit((unsigned char)text[4])) return text;
  text += 4 + strspn(text + 4, "0123456789");
  return text + strspn(text, ": ");
}

// -- The price -----------------------------------------------------------------------------------

// The price of the copy; false, with an error reported, if there is none.
static bool evaluate(const PlanProgram *p, Pricing *k, const Loc *line, StepPrice *out,
                     bool *placed) {
  Sharding *s = &k->sharding;
  for (int a = 0; a < s->mesh->n_axes; a++) {
    const struct Placed *of = &s->decisions.placed[a];
    if (!of->why) continue;
    *placed = true;
    out->seconds = of->seconds;
    out->bytes = of->bytes;
  }
  if (*placed) return true;
  decide_axes(s, p->axis, p->n_axes);
  for_each_op(op, s->g)
    if (op_mesh(op) != s->mesh)
      return diag_error(p->box.d, op->loc, "ops assigned to some of the ranks have no price");
  return search_price(s, p->axis, p->n_axes, line, out, p->box.d);
}

static void push_price(lua_State *l, const StepPrice *price, bool placed) {
  lua_createtable(l, 0, 4);
  lua_pushnumber(l, price->seconds);
  lua_setfield(l, -2, "seconds");
  if (price->bytes > 0) {
    lua_pushnumber(l, price->bytes);
    lua_setfield(l, -2, "bytes");
  }
  if (placed) return;
  lua_pushnumber(l, price->compute);
  lua_setfield(l, -2, "compute");
  lua_pushnumber(l, price->seconds > price->compute ? price->seconds - price->compute : 0);
  lua_setfield(l, -2, "communication");
}

static void check_state(lua_State *l) {
  PlanProgram *p = program_of(l);
  if (!lua_isnoneornil(l, 1)) luaL_checktype(l, 1, LUA_TFUNCTION);
  if (lua_gettop(l) > 1) FAIL(l, NULL, "price takes a function, and nothing else");
  plan_sharding(l);
  if (!p->n_axes) FAIL(l, NULL, "there is no step yet to be priced: this belongs into 'step'");
  if (++p->n_prices > MAX_PRICES) FAIL(l, NULL, "a program asks for at most %d prices", MAX_PRICES);
  int depth = 0;
  for (const Alternative *a = p->alternative; a; a = a->outer)
    depth++;
  if (depth >= MAX_NESTED)
    FAIL(l, NULL, "prices are asked for inside of one another more than %d deep", MAX_NESTED);
  for_each_op(op, p->s->g)
    if (op_mesh(op) != p->s->mesh)
      FAIL(l, op->loc, "ops assigned to some of the ranks have no price: ask before");
}

// price(function): the price of the step if the function's constraints held; nil and the reason if
// that is impossible.
static int price(lua_State *l) {
  PlanProgram *p = program_of(l);
  check_state(l);
  lua_settop(l, 1);
  const Loc *line = plan_line(l);
  Pricing k;
  begin(l, &k);
  int status = LUA_OK;
  bool ok = true, placed = false;
  const char *why = NULL;
  StepPrice found = {0};
  if (!lua_isnil(l, 1)) {
    lua_pushvalue(l, 1);
    const char *call = p->box.call;
    status = lua_pcall(l, 0, 0, 0);
    if (status == LUA_OK) p->box.call = call;
  }
  // An error about an op or value of the model makes the alternative impossible; any other is a
  // mistake in the program.
  bool impossible = p->box.reported || p->box.about || p->n_refused > k.n_refused;
  bool mistaken = p->mistaken;
  if (status != LUA_OK && impossible && !p->box.reported)
    why = str_copy(p->box.arena, message_of(l));
  if (status == LUA_OK && !impossible) {
    Spared began = sandbox_begin(l);
    ok = evaluate(p, &k, line, &found, &placed);
    sandbox_spare(l, &began);
  }
  p->box.about = NULL;
  end(l, &k);
  if (!why && (!ok || impossible)) why = k.why;
  if (mistaken) return plan_fail(l, NULL, why);
  if (status != LUA_OK && !impossible) return lua_error(l);
  if (!why) {
    push_price(l, &found, placed);
    return 1;
  }
  lua_pushnil(l);
  lua_pushstring(l, why);
  return 2;
}

const luaL_Reg plan_prices[] = {{"price", price}, {NULL, NULL}};
