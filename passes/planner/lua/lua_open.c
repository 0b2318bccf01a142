// Calls of plan programs that leave decisions to the compiler: the search, and stage placement.
//
//     search("dp", "tp")            decides all open choices along these axes jointly (search.h)
//     place("pp", 4)                runs open ops on four stages (stages.h)
//     place("pp", {chunks = 2})     on two stages per rank
//     place("pp", {deal = lists})   stage 1 has the ops of the first list, …
//
//     search({ops = layers()}, "tp")   those of a sub-space only; the next call sees its answer
//     place("pp", {ops = layers()})    likewise (nnScaler, OSDI 2024, algorithm 1)
//
// Their resources do not count against the program's own limits.

#include "base/vec.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "lua/lua_deterministic.h"
#include "lua_graph.h"
#include "planner/plan/sections.h"
#include "planner/search/search.h"
#include "planner/stages/stages.h"
#include "schedule/names.h"

enum {
  MAX_SEARCHES = 64
}; // per program, with the programs that it applies: each has limits of its own

// The ops of the list on top, by id: a sub-space.
static const bool *sub_space(lua_State *l, const char *call) {
  PlanProgram *p = program_of(l);
  bool *among = arena_array(p->s->scratch, bool, p->s->g->n_ops);
  OpList ops = {0};
  plan_list(l, among, &ops, "ops");
  if (!ops.n) FAIL(l, NULL, "the list of ops for '%s' is empty", call);
  for (int i = 0; i < ops.n; i++)
    if (op_part(ops.at[i]) != PART_forward)
      FAIL(l, ops.at[i]->loc,
           "'%s' is about ops of the model, and their gradients with them: this "
           "%s is of %s",
           call, op_info[ops.at[i]->kind].name, train_part_name[op_part(ops.at[i])]);
  return among;
}

// The first argument, if it is {sums = false} or {ops = list}.
static void check_search(lua_State *l, bool *sums, const bool **among) {
  if (!lua_istable(l, 1)) return;
  for (lua_pushnil(l); lua_next(l, 1); lua_pop(l, 1)) {
    const char *name = lua_type(l, -2) == LUA_TSTRING ? lua_tostring(l, -2) : "";
    if (str_equal(name, "ops"))
      *among = sub_space(l, "search");
    else if (str_equal(name, "sums") && lua_isboolean(l, -1))
      *sums = lua_toboolean(l, -1);
    else
      FAIL(l, NULL, "search has no option '%s': it takes sums = true or false, and ops = list",
           steady_text(l, -2));
  }
  lua_remove(l, 1);
}

// search({sums = false, ops = list}, axis, …): decides all open choices along these axes jointly,
// or those of the ops in the list.
static int search(lua_State *l) {
  PlanProgram *p = program_of(l);
  bool sums = true;
  SearchStats found = {0};
  plan_sharding(l);
  SearchEnv env = p->s->env;
  check_search(l, &sums, &env.among);
  int n = lua_gettop(l), axis[MAX_AXES];
  Spared began = sandbox_begin(l);
  if (n < 1 || n > MAX_AXES) return FAIL(l, NULL, "search takes the axes that it is about");
  if (++p->n_searches > MAX_SEARCHES)
    return FAIL(l, NULL, "a program searches at most %d times", MAX_SEARCHES);
  plan_axes(l, 1, n, axis);
  // Ops that are assigned to some of the ranks cannot be searched.
  for_each_op(op, p->s->g)
    if (op_mesh(op) != p->s->mesh)
      return FAIL(l, op->loc,
                  "ops assigned to some of the ranks cannot be searched: in --plan stages come "
                  "first, pp=2,search=4");
  // The time and memory of the search do not count.
  const Loc *line = plan_line(l);
  Chosen chosen;
  bool ok = search_axes(p->s, &env, axis, n, sums, line, &chosen, &found, p->box.d);
  if (ok) decide_chosen(p->s, &chosen, line);
  // The time of a sub-space is no step's.
  if (env.among) found.step = found.compute = found.peak = 0;
  if (p->s->env.stats && found.n) searched_add(p->s->env.stats, &found);
  sandbox_spare(l, &began);
  return ok ? 0 : plan_quit(l);
}

enum { MAX_STAGES = 4096 };

// An integer from 1 to `most` in the table at `arg`; 0 if there is none.
static int table_number(lua_State *l, int arg, const char *name, int most) {
  int is_integer;
  if (lua_getfield(l, arg, name) == LUA_TNIL) {
    lua_pop(l, 1);
    return 0;
  }
  lua_Integer n = lua_tointegerx(l, -1, &is_integer);
  if (!is_integer || n < 1 || n > most)
    FAIL(l, NULL, "'%s' is a whole number from 1 to %d", name, most);
  lua_pop(l, 1);
  return (int)n;
}

static bool table_flag(lua_State *l, int arg, const char *name) {
  if (lua_getfield(l, arg, name) != LUA_TNIL && !lua_isboolean(l, -1))
    FAIL(l, NULL, "'%s' is true or false", name);
  bool flag = lua_toboolean(l, -1);
  lua_pop(l, 1);
  return flag;
}

// The numbers of the plan's text by which a program deals ops to `n` stages; NULL: it gives none.
static const Loc *const *dealt_numbers(lua_State *l, int arg, int n) {
  if (lua_getfield(l, arg, "numbers") == LUA_TNIL) {
    lua_pop(l, 1);
    return NULL;
  }
  if (!lua_istable(l, -1) || lua_rawlen(l, -1) != (size_t)n)
    FAIL(l, NULL,
         "'numbers' is the list of the function 'numbers', with one for each list of 'deal'");
  const Loc **loc = arena_array(program_of(l)->box.arena, const Loc *, n);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(l, -1, i + 1);
    loc[i] = plan_number_loc(l, lua_gettop(l));
    lua_pop(l, 1);
  }
  lua_pop(l, 1);
  return loc;
}

// The lists of ops on top: the stages that they are dealt to, of 1 or more ranks each, or several
// on each rank.
static bool check_deal(lua_State *l, int arg, int size, StageOptions *w) {
  PlanProgram *p = program_of(l);
  int at = lua_gettop(l), *dealt = arena_array(p->s->scratch, int, p->s->g->n_ops);
  static const char *const others[] = {"chunks", "forwards", "ways", "pieces", "stages"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (lua_getfield(l, arg, others[i]) != LUA_TNIL)
      FAIL(l, NULL, "'deal' says the stages of all layers, and '%s' is something else", others[i]);
    lua_pop(l, 1);
  }
  int n = lua_istable(l, at) ? (int)lua_rawlen(l, at) : 0;
  if (!n) FAIL(l, NULL, "'deal' is a list with the ops of each stage, such as layers");
  if (n > size ? n % size != 0 || n > MAX_STAGES : size % n != 0)
    FAIL(l, NULL, "'deal' has %d stages, which %d ranks cannot share equally", n, size);
  for (int i = 0; i < n; i++) {
    OpList ops = {0};
    lua_rawgeti(l, at, i + 1);
    plan_list(l, arena_array(p->s->scratch, bool, p->s->g->n_ops), &ops, "deal");
    for (int k = 0; k < ops.n; k++) {
      const Op *op = ops.at[k];
      int *stage = &dealt[op->id];
      if (op_part(op) != PART_forward)
        FAIL(l, op->loc, "'deal' is about ops of the model, and their gradients with them");
      if (*stage && *stage != i + 1)
        FAIL(l, op->loc, "%s is dealt to stage %d, and to stage %d", op_info[op->kind].name, *stage,
             i + 1);
      *stage = i + 1;
    }
    lua_pop(l, 1);
  }
  w->dealt = dealt;
  w->number = dealt_numbers(l, arg, n);
  w->back = table_flag(l, arg, "back");
  w->chunks = n > size ? n / size : 0;
  w->n = n > size ? 0 : n;
  int *ranks = arena_array(p->box.arena, int, n);
  for (int i = 0; i < n; i++)
    ranks[i] = n > size ? 1 : size / n;
  if (w->n) w->size = ranks;
  return true;
}

// {chunks = 2, back = true}, {forwards = 3}, {ways = 2} or {pieces = true}, each with {ops = list};
// false for none of these.
static bool check_table(lua_State *l, int arg, int size, StageOptions *w) {
  if (!lua_istable(l, arg)) return false;
  // Unknown keys: a misspelt one would have no effect.
  static const char *const names[] = {"chunks", "back",   "forwards", "ways",   "pieces",
                                      "ops",    "stages", "deal",     "numbers"};
  for (lua_pushnil(l); lua_next(l, arg); lua_pop(l, 1)) {
    size_t i = 0;
    if (lua_type(l, -2) != LUA_TSTRING) continue;
    while (i < sizeof names / sizeof *names && !str_equal(lua_tostring(l, -2), names[i]))
      i++;
    if (i == sizeof names / sizeof *names)
      FAIL(l, NULL,
           "place has no option '%s': it takes chunks, back, forwards, ways, pieces, ops, stages, "
           "deal and numbers",
           lua_tostring(l, -2));
  }
  if (lua_getfield(l, arg, "ops") != LUA_TNIL) w->among = sub_space(l, "place");
  lua_pop(l, 1);
  if (lua_getfield(l, arg, "deal") != LUA_TNIL) return check_deal(l, arg, size, w);
  lua_pop(l, 1);
  int n = table_number(l, arg, "chunks", MAX_STAGES / size);
  int forwards = table_number(l, arg, "forwards", SCHEDULE_FORWARDS);
  bool ways = table_number(l, arg, "ways", 2) == 2, pieces = table_flag(l, arg, "pieces");
  bool back = table_flag(l, arg, "back");
  if (back && n < 2)
    FAIL(l, NULL, "'back' is about chunks of a rank, as in {chunks = 2, back = true}");
  if (!n && !forwards && !ways && !pieces) return false;
  // Their stages are as many as ranks, or chunks.
  bool numbered = lua_getfield(l, arg, "stages") != LUA_TNIL;
  lua_pop(l, 1);
  if (numbered || lua_rawlen(l, arg))
    FAIL(l, NULL, "chunks, forwards, ways and pieces have stages on all ranks, and no %s of them",
         numbered ? "number" : "list");
  // Each of them has a schedule of its own.
  if (ways && (n > 1 || forwards > 1))
    FAIL(l, NULL, "each of two ways goes once through one stage on each rank");
  if (pieces && (n > 1 || forwards > 1 || ways))
    FAIL(l, NULL, "each piece goes once, in the same way, through one stage on each rank");
  if (n > 1 && forwards > 1)
    FAIL(l, NULL, "several forwards go through one stage on each rank, and not through %d", n);
  const bool *among = w->among;
  *w = (StageOptions){.n = n > 1 ? 0 : size, .chunks = n, .forwards = forwards, .ways = ways};
  w->pieces = pieces;
  w->among = among;
  w->back = back;
  return true;
}

// A number of stages, a list of ranks per stage, or options; without an argument, no constraint.
static StageOptions check_stages(lua_State *l, int arg, int size) {
  StageOptions w = {0};
  if (lua_isnoneornil(l, arg) || check_table(l, arg, size, &w)) return w;
  // {ops = list, stages = 2}: their number, or none.
  if (lua_istable(l, arg) && !lua_rawlen(l, arg)) {
    w.n = table_number(l, arg, "stages", size);
    if (w.n || w.among) return w;
  }
  bool counted = !lua_istable(l, arg);
  lua_Integer n = counted ? luaL_checkinteger(l, arg) : (lua_Integer)lua_rawlen(l, arg);
  if (n < 1 || n > size)
    FAIL(l, NULL, "place wants 1 to %d stages, as many as there are ranks, and not %lld", size,
         (long long)n);
  w.n = (int)n;
  if (counted) return w;
  // The ranks of each stage.
  int *at = arena_array(program_of(l)->box.arena, int, n);
  for (int i = 0; i < n; i++) {
    lua_Integer ranks = plan_entry(l, arg, i + 1, "size", NULL);
    if (ranks < 1 || ranks > size)
      FAIL(l, NULL, "a stage has 1 to %d ranks, not %lld", size, (long long)ranks);
    at[i] = (int)ranks;
  }
  w.size = at;
  return w;
}

// Completes the program's axes inside of `axis`: the work of an op on a stage depends on its splits
// there, as of a program of one axis on the decisions of programs inside of it.
static void decide_inside(PlanProgram *p, int axis) {
  int inside[MAX_AXES], n = 0;
  for (int i = 0; i < p->n_axes; i++)
    if (p->axis[i] > axis) inside[n++] = p->axis[i];
  if (n) decide_axes(p->s, inside, n);
}

// place(axis, number of stages or list of their ranks): runs open ops on stages.  Returns the list
// of ranks per stage.
static int place(lua_State *l) {
  PlanProgram *p = program_of(l);
  plan_sharding(l);
  int axis = plan_axis(l, 1);
  if (p->s->mesh->axis[axis].time) return FAIL(l, NULL, "stages are ranks, and no micro-batches");
  StageOptions wish = check_stages(l, 2, p->s->mesh->axis[axis].size);
  Stages made;
  if (p->s->guessing) return plan_quit(l); // outer.h: no prediction for stages
  Spared began = sandbox_begin(l);
  decide_inside(p, axis);
  bool ok = stages_place(p->s, axis, &wish, plan_line(l), &made, p->box.d);
  if (p->s->env.stats && made.searched.n) searched_add(p->s->env.stats, &made.searched);
  if (!ok) return plan_quit(l);
  sandbox_spare(l, &began);
  // The ranks of each stage, which the program may use.
  lua_createtable(l, made.n, 0);
  for (int i = 0; i < made.n; i++) {
    lua_pushinteger(l, made.size[i]);
    lua_rawseti(l, -2, i + 1);
  }
  return 1;
}

const luaL_Reg plan_open[] = {
    {"place", place},
    {"search", search},
    {NULL, NULL},
};
