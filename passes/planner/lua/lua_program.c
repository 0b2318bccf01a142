// Opens programs of plans and runs their functions `factors`, `model`, `inside` and `step`
// (plan.h).

#include <ctype.h>
#include <string.h>

#include "lua/lua_deterministic.h"
#include "lua/lua_locations.h"
#include "lua_graph.h"
#include "planner/plan/plan_texts.h"
#include "rt/nearest.h"

enum { MAX_DEPTH = 8 }; // of nested `apply`

// -- Applying other programs -------------------------------------------------------------------

// Pushes the program's function of that name; false, with an empty stack, if there is none.
static bool push_function(lua_State *l, const char *name) {
  lua_getfield(l, LUA_REGISTRYINDEX, "world");
  lua_getfield(l, -1, name);
  lua_remove(l, -2);
  if (lua_isfunction(l, -1)) return true;
  lua_pop(l, 1);
  return false;
}

// Shows the numbers that a program gives another one as they are in the plan's text, if they are
// the same: pp:9:10 as pp_zb_h1:9:10.
static void quote_numbers(PlanProgram *other, const PlanProgram *p) {
  const char *own = p->given ? strchr(p->given, ':') : NULL;
  const char *its = other->given ? strchr(other->given, ':') : NULL;
  if (!own || !its || !str_equal(own, its)) return;
  other->moved = p->moved + (int)(own - p->given) - (int)(its - other->given);
  other->given = p->given;
}

// apply(name, axis, …): runs another program on these axes.
static int apply(lua_State *l) {
  PlanProgram *p = program_of(l);
  const char *name = luaL_checkstring(l, 1);
  int axis[MAX_AXES], n = lua_gettop(l) - 1;
  plan_sharding(l);
  if (n > MAX_AXES || (n < 1) != (p->n_axes == 0))
    return FAIL(l, NULL, "apply takes a program and, in 'step', its axes");
  plan_axes(l, 2, n, axis);
  if (p->depth == MAX_DEPTH)
    return FAIL(l, NULL, "programs apply one another more than %d deep", MAX_DEPTH);
  // A fresh instance, with a Lua state of its own.
  PlanProgram *other = program_open(p->box.arena, name, p->box.d);
  bool ok = other != NULL;
  p->mistaken |= !ok;
  // Searches of both count together; resources exempt in the applied program are exempt here.
  if (ok) {
    quote_numbers(other, p);
    other->depth = p->depth + 1;
    other->n_searches = p->n_searches;
    other->n_prices = p->n_prices;
    // A `step` with named axes requires that many.
    lua_Debug at;
    push_function(other->box.lua, "step");
    lua_getinfo(other->box.lua, ">u", &at);
    bool fits = at.nparams == n || (at.isvararg && at.nparams < n);
    if (n && at.nparams && !fits) {
      program_close(other);
      FAIL(l, NULL, "the program '%s' has %d ax%s, and %d given", name, at.nparams,
           at.nparams == 1 ? "is" : "es", n);
    }
    ok = n ? program_step(other, p->s, axis, n)
           : program_model(other, p->s->g, p->layers, p->ranks, p->s->record);
    plan_changed(p);
    p->n_searches = other->n_searches;
    p->n_prices = other->n_prices;
    bool about_model = other->box.about || other->box.reported || other->n_refused;
    p->mistaken |= !ok && (other->mistaken || !about_model);
    if (ok) plan_note_cuts(l, other->cuts.at, other->cuts.n);
    sandbox_spare_all(l, &other->box);
    program_close(other);
  }
  sandbox_check(l);
  if (ok) return 0;
  diag_note(p->box.d, plan_line(l), "the program '%s' is applied here", name);
  return plan_quit(l);
}

// -- The functions of programs -----------------------------------------------------------------

static const luaL_Reg program_calls[] = {{"apply", apply}, {NULL, NULL}};

static const luaL_Reg *const calls[] = {plan_questions, plan_splits,  plan_rows,     plan_changes,
                                        plan_pieces,    plan_prices,  plan_replaces, plan_open,
                                        plan_calls,     program_calls};
enum { N_CALLS = sizeof calls / sizeof *calls };

// Checks the limits after each call, since one Lua instruction may call a slow function or one that
// uses much memory. Upvalue 1 is the function, 2 its name.
static int checked(lua_State *l) {
  PlanProgram *p = program_of(l);
  lua_CFunction function = lua_tocfunction(l, lua_upvalueindex(1));
  // The name is for messages. A function that this one calls may make calls of its own.
  const char *before = p->box.call;
  p->box.call = lua_touserdata(l, lua_upvalueindex(2));
  int n_results = function(l);
  sandbox_check(l);
  p->box.call = before;
  return n_results;
}

// -- Running -----------------------------------------------------------------------------------

static int start(lua_State *l) {
  PlanProgram *p = lua_touserdata(l, 1);
  plan_types(l);
  sandbox_environment(l);
  // A closure for each function, which checks the limits after a call.
  for (int i = 0; i < N_CALLS; i++)
    for (const luaL_Reg *call = calls[i]; call->name; call++) {
      lua_pushcfunction(l, call->func);
      lua_pushlightuserdata(l, (void *)(uintptr_t)call->name);
      lua_pushcclosure(l, checked, 2);
      lua_setfield(l, -2, call->name);
    }
  lua_pushvalue(l, -1);
  lua_setfield(l, LUA_REGISTRYINDEX, "world");
  sandbox_run(&p->box, 0);
  return 0;
}

// A program may delete its functions while it runs.
static void push_own_function(lua_State *l, const char *name) {
  if (!push_function(l, name)) luaL_error(l, "the program has no function '%s' any more", name);
}

static bool has_function(const PlanProgram *p, const char *name) {
  bool has = push_function(p->box.lua, name);
  lua_settop(p->box.lua, 0);
  return has;
}

// Reports an invalid result of `factors`, at the line of the function: no other line is to blame.
static int bad_factors(lua_State *l, const char *what, lua_Integer i) {
  lua_Debug at;
  push_own_function(l, "factors");
  lua_getinfo(l, ">S", &at);
  return luaL_error(l, "lua:%d: %s", at.linedefined, lua_pushfstring(l, what, i));
}

// Pops the list of sizes on top of the stack.
static void read_factors(lua_State *l, const PlanProgram *p, Factors *out) {
  int n = (int)lua_rawlen(l, -1);
  if (n < 1 || n > MAX_AXES) bad_factors(l, "'factors' must return 1 to %I sizes", MAX_AXES);
  // The sizes must be positive integers whose product is the number of ranks.
  lua_Integer product = 1;
  for (int i = 0; i < n; i++) {
    int whole;
    lua_rawgeti(l, -1, i + 1);
    lua_Integer size = lua_tointegerx(l, -1, &whole);
    if (!whole) bad_factors(l, "'factors' returned no integer as size %I", i + 1);
    if (size < 1 || size > INT32_MAX) bad_factors(l, "'factors' returned a size of %I", size);
    out->size[i] = size;
    product = product > INT32_MAX ? product : product * size; // no overflow: both are below 2^31
    lua_pop(l, 1);
  }
  if (product != p->n) {
    lua_pushfstring(l, "'factors' returned axes for %I ranks, and there are %%I", product);
    bad_factors(l, lua_tostring(l, -1), p->n);
  }
  out->n = n;
  lua_pop(l, 1);
}

// The list of names on top of the stack, if any, applies to all factorings.
static void read_names(lua_State *l, const PlanProgram *p) {
  if (lua_isnil(l, -1)) return;
  if (!lua_istable(l, -1)) bad_factors(l, "the names that 'factors' returned are no list", 0);
  for (int k = 0; k < MAX_AXES; k++) {
    bool is_name = lua_rawgeti(l, -1, k + 1) == LUA_TSTRING;
    if (!is_name && !lua_isnil(l, -1))
      bad_factors(l, "'factors' returned no text as name %I", k + 1);
    // It becomes an axis of the mesh in the text of the IR.
    const char *name = is_name ? str_copy(p->box.arena, lua_tostring(l, -1)) : NULL, *end = name;
    while (name && (isalnum((unsigned char)*end) || *end == '_'))
      end++;
    if (name && (!*name || *end))
      bad_factors(l, "'factors' returned a name %I that is not of letters, digits and _", k + 1);
    for (int i = 0; i < k && name; i++)
      if (str_equal(p->factors->name[i], name))
        bad_factors(l, "'factors' returned name %I for another axis already", k + 1);
    for (int i = 0; i < p->n_factors; i++)
      p->factors[i].name[k] = name;
    lua_pop(l, 1);
  }
}

// Results: a list of sizes or a list of such lists; and a list of axis names.
static int call_factors(lua_State *l) {
  PlanProgram *p = lua_touserdata(l, 1);
  push_own_function(l, "factors");
  lua_pushinteger(l, p->n);
  lua_call(l, 1, 2);
  lua_insert(l, -2); // moves the names below the sizes
  if (!lua_istable(l, -1)) return bad_factors(l, "'factors' must return a list of sizes", 0);
  // A list of numbers is a single factoring.
  bool several = lua_rawgeti(l, -1, 1) == LUA_TTABLE;
  lua_pop(l, 1);
  lua_Integer n = several ? (lua_Integer)lua_rawlen(l, -1) : 1;
  if (n > MAX_FACTORINGS)
    return bad_factors(l, "'factors' may return at most %I lists of sizes", MAX_FACTORINGS);
  for (p->n_factors = 0; p->n_factors < n; p->n_factors++) {
    if (!several)
      lua_pushvalue(l, -1);
    else if (lua_rawgeti(l, -1, p->n_factors + 1) != LUA_TTABLE)
      return bad_factors(l, "'factors' returned no list as number %I", p->n_factors + 1);
    read_factors(l, p, &p->factors[p->n_factors]);
  }
  lua_pop(l, 1);
  read_names(l, p);
  return 0;
}

static int call_model(lua_State *l) {
  push_own_function(l, "model");
  lua_call(l, 0, 0);
  return 0;
}

static int call_inside(lua_State *l) {
  const PlanProgram *p = lua_touserdata(l, 1);
  push_own_function(l, "inside");
  lua_pushstring(l, p->s->mesh->axis[*p->axis].name);
  lua_call(l, 1, 0);
  return 0;
}

static int call_step(lua_State *l) {
  const PlanProgram *p = lua_touserdata(l, 1);
  // Fewer parameters ignore the other axes; of more, the last would be nil.
  lua_Debug at;
  push_own_function(l, "step");
  lua_getinfo(l, ">uS", &at);
  if (at.nparams > p->n_axes)
    return luaL_error(l, "lua:%d: 'step' has %d axes, and the ranks have %d: see 'factors'",
                      at.linedefined, at.nparams, p->n_axes);
  push_own_function(l, "step");
  for (int i = 0; i < p->n_axes; i++)
    lua_pushstring(l, p->s->mesh->axis[p->axis[i]].name);
  lua_call(l, p->n_axes, 0);
  return 0;
}

// numbers(list of {n=, first=, last=, text=})
static int call_numbers(lua_State *l) {
  const PlanProgram *p = lua_touserdata(l, 1);
  push_own_function(l, "numbers");
  lua_createtable(l, p->call->n, 0);
  for (int i = 0; i < p->call->n; i++) {
    const PlanNumber *number = &p->call->at[i];
    lua_createtable(l, 0, 5);
    lua_pushinteger(l, number->n);
    lua_setfield(l, -2, "n");
    if (number->first) {
      lua_pushinteger(l, number->first);
      lua_setfield(l, -2, "first");
      lua_pushinteger(l, number->last);
      lua_setfield(l, -2, "last");
    }
    if (number->first)
      lua_pushfstring(l, "%I@%I-%I", (lua_Integer)number->n, (lua_Integer)number->first,
                      (lua_Integer)number->last);
    else
      lua_pushfstring(l, "%I", (lua_Integer)number->n);
    lua_setfield(l, -2, "text");
    lua_pushinteger(l, number->column);
    lua_setfield(l, -2, "column");
    lua_rawseti(l, -2, i + 1);
  }
  lua_call(l, 1, 0);
  return 0;
}

#define TAKES_NUMBERS "\nfunction numbers("

// "dp, tp, …": the plans that are part of the compiler and have `part` in their text.
static const char *names_with(Arena *a, const char *part) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < n_plan_texts; i++)
    if (strstr(plan_texts[i].text, part))
      strbuf_addf(&b, "%s%s", b.n ? ", " : "", plan_texts[i].name);
  return b.at;
}

// Reports that the program takes no numbers.  Returns false.
static bool refuse_numbers(Arena *a, const char *name, Diag *d) {
  diag_error(d, NULL, "the plan '%s' takes no numbers", name);
  diag_hint(d, "these take them, and programs with a function 'numbers': %s",
            names_with(a, TAKES_NUMBERS));
  return false;
}

// Passes the numbers in the plan's text to the program.
static bool give_numbers(PlanProgram *p, const PlanCall *call) {
  if (!call->n) return true;
  if (!has_function(p, "numbers")) return refuse_numbers(p->box.arena, call->name, p->box.d);
  p->call = call;
  p->given = str_copy(p->box.arena, call->text);
  bool ok = sandbox_call(&p->box, call_numbers, p, 0);
  p->call = NULL;
  return ok;
}

int program_factors(PlanProgram *p, int64_t n, Factors out[MAX_FACTORINGS]) {
  out[0] = (Factors){.n = 1, .size = {n}};
  if (!has_function(p, "factors")) return 1;
  p->n = n;
  p->factors = out;
  p->s = NULL;
  return sandbox_call(&p->box, call_factors, p, 0) ? p->n_factors : 0;
}

// The line that sets a number, as far as the text shows it.
static const Loc *number_place(const PlanProgram *p, const char *name) {
  const LuaSpan no_table = {NULL, NULL};
  return lua_place_of(p->box.arena, p->box.path, p->box.text, no_table, name, 0).loc;
}

// Reads the program's number of the name p->number, at most p->n, into p->n; 0: there is none.
static int get_number(lua_State *l) {
  PlanProgram *p = lua_touserdata(l, 1);
  int64_t most = p->n;
  lua_getfield(l, LUA_REGISTRYINDEX, "world");
  int whole = 1;
  bool there = lua_getfield(l, -1, p->number) != LUA_TNIL;
  p->n = there ? lua_tointegerx(l, -1, &whole) : 0;
  if (there && (!whole || p->n < 1 || p->n > most))
    return luaL_error(l, "lua:%d: '%s' must be a whole number from 1 to %I, not %s",
                      number_place(p, p->number)->line, p->number, (LUAI_UACINT)most,
                      steady_text(l, -1));
  return 0;
}

static int64_t read_number(PlanProgram *p, const char *name, int64_t most, const Loc **loc) {
  *loc = number_place(p, name);
  p->number = name;
  p->n = most;
  return sandbox_call(&p->box, get_number, p, 0) ? p->n : -1;
}

int64_t program_micro_batches(PlanProgram *p, const Loc **loc) {
  return read_number(p, "micro_batches", MAX_DEVICES, loc);
}

int64_t program_peak_bytes(PlanProgram *p, const Loc **loc) {
  return read_number(p, "peak_bytes", INT64_C(1000000000000000000), loc); // as of a cluster
}

// Memory limit of the calls: state of each op, which later programs reuse, and as much as Lua has.
static void allow_memory(PlanProgram *p, const Graph *g) {
  enum { OF_OP = sizeof(Dims) + 4096 };
  p->box.other = g->module->arena;
  p->box.allowed = LUA_BYTES + (size_t)g->n_ops * OF_OP;
}

PlanLayers *plan_layers_new(Arena *a) {
  PlanLayers *layers = arena_one(a, PlanLayers);
  layers->arena = a;
  return layers;
}

void plan_layers_set(PlanLayers *layers, const Graph *g, const NumberedLayers *of) {
  OpLists all = {0};
  for (int i = 0; i < of->n_layers; i++)
    vec_push(layers->arena, &all, (OpList){0});
  for_each_op(op, g) {
    int layer = op->of < of->n_numbers ? of->of[op->of] : 0;
    if (layer) vec_push(layers->arena, &all.at[layer - 1], op);
  }
  // Without those that are left out.
  for (int i = 0; i < all.n; i++)
    if (all.at[i].n) vec_push(layers->arena, &layers->all, all.at[i]);
  layers->known = true;
}

bool program_model(PlanProgram *p, Graph *g, PlanLayers *layers, PlanRanks ranks,
                   struct Record *record) {
  if (!has_function(p, "model")) return true;
  Sharding s = {.g = g, .scratch = p->box.arena, .record = record};
  p->s = &s;
  p->layers = layers;
  plan_changed(p);
  p->n_axes = 0;
  p->ranks = ranks;
  allow_memory(p, g);
  bool ok = sandbox_call(&p->box, call_model, p, 0);
  plan_refused_all(p);
  p->s = NULL;
  p->layers = NULL;
  return ok && !p->n_refused;
}

// Calls a function of the program with these axes.
static bool run_step(PlanProgram *p, Sharding *s, const int *axis, int n, lua_CFunction call) {
  p->s = s;
  plan_changed(p);
  p->params = NULL;
  p->axis = axis;
  p->n_axes = n;
  p->n_met = 0;
  allow_memory(p, s->g);
  bool ok = sandbox_call(&p->box, call, p, 0) && !p->n_refused;
  plan_refused_all(p);
  // An error in a graph after the first may surprise: tell which graph it is.
  if (!ok && s->first && !p->depth)
    diag_note(p->box.d, NULL, "this is of '@%s', for which 'step' runs as well as for '@%s'",
              s->g->name, s->first->g->name);
  return ok;
}

bool program_step(PlanProgram *p, Sharding *s, const int *axis, int n) {
  return run_step(p, s, axis, n, call_step);
}

bool program_inside(PlanProgram *p, Sharding *s, const int *axis, int n) {
  bool ok = true, has = has_function(p, "inside");
  // An axis of one rank splits nothing.
  for (int i = 0; i < n && ok && has; i++)
    if (s->mesh->axis[axis[i]].size > 1) ok = run_step(p, s, &axis[i], 1, call_inside);
  return ok;
}

bool program_has_inside(const PlanProgram *p) {
  return has_function(p, "inside");
}

static bool is_file(const char *name) {
  return strchr(name, '/') || str_ends(name, ".lua");
}

static int text_index(const char *name) {
  for (int i = 0; i < n_plan_texts; i++)
    if (!strcmp(plan_texts[i].name, name)) return i;
  return -1;
}

bool plan_known(const char *text, Arena *a, Diag *d) {
  PlanCall call;
  if (!plan_call(a, text, &call, d)) return false;
  const char *name = call.name;
  if (is_file(name) || text_index(name) >= 0) return true;
  if (str_equal(name, "auto")) {
    diag_error(d, NULL, "the plan 'auto' stands alone and takes no size");
    diag_hint(d, "it is the default; beside others, or with a size, write one of %s",
              names_with(a, ""));
    return false;
  }
  // A misspelt name: suggest the nearest.
  NnrtNearest near = {0};
  nnrt_nearest(&near, name, strlen(name), "auto");
  for (int i = 0; i < n_plan_texts; i++)
    nnrt_nearest(&near, name, strlen(name), plan_texts[i].name);
  diag_error(d, NULL, "there is no plan '%s'%s", name, str_did_you_mean(a, near.name));
  diag_hint(d,
            "the plans are: auto, %s, or a program in a file that ends in .lua, "
            "as --emit plan -o FILE.lua writes",
            names_with(a, ""));
  return false;
}

bool plan_may_have_numbers(const char *name, Arena *a, Diag *d) {
  if (!plan_known(name, a, d)) return false;
  int text = text_index(name);
  if (text < 0 || strstr(plan_texts[text].text, TAKES_NUMBERS)) return true;
  return refuse_numbers(a, name, d);
}

PlanProgram *program_open(Arena *a, const char *called, Diag *d) {
  PlanCall given;
  if (!plan_known(called, a, d) || !plan_call(a, called, &given, d)) return NULL;
  const char *name = given.name;
  // A file, or one of the plans that are part of the compiler.
  size_t n;
  const char *text = NULL, *path = name;
  if (is_file(name)) {
    text = sandbox_read(a, name, &n, d);
  } else {
    const PlanText *own = &plan_texts[text_index(name)];
    text = own->text;
    n = own->n;
    path = str_format(a, "plans/%s.lua", name);
  }
  if (!text) return NULL;
  PlanProgram *p = arena_one(a, PlanProgram);
  if (!sandbox_open(&p->box, a, path, text, n, d)) return NULL;
  *(PlanProgram **)lua_getextraspace(p->box.lua) = p;
  // The names of all functions, for errors.
  StrBuf names = {.arena = a};
  for (int i = 0; i < N_CALLS; i++)
    for (const luaL_Reg *call = calls[i]; call->name; call++)
      strbuf_addf(&names, "%s%s", names.n ? ", " : "", call->name);
  p->box.calls = names.at;
  if (sandbox_call(&p->box, start, p, 0)) {
    bool has_step = has_function(p, "step");
    if (has_step && give_numbers(p, &given)) return p;
    if (!has_step) diag_error(d, loc_line(a, path, 0, 0), "the program has no function 'step'");
  }
  program_close(p);
  return NULL;
}

void program_close(PlanProgram *p) {
  sandbox_close(&p->box);
}
