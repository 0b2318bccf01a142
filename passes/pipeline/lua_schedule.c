// Runs the Lua file of a kind, or of a user's constraints: see kinds.h.

#include <math.h>

#include "base/vec.h"
#include "lua/lua_sandbox.h"
#include "schedule/kinds.h"

typedef struct Reading {
  Sandbox box;
  const ScheduleAsk *ask;
  SchedulePlan *plan;
  Vec(const Loc *) lines; // by line number; NULL: not used yet
  ScheduleNature nature;
} Reading;

// -- Blocks ------------------------------------------------------------------------------------

static Reading *reading_of(lua_State *l) {
  lua_getfield(l, LUA_REGISTRYINDEX, "reading");
  Reading *r = lua_touserdata(l, -1);
  lua_pop(l, 1);
  if (!r->plan->blocks) luaL_error(l, "there are no blocks yet: they are for 'order' to use");
  return r;
}

// Pushes a block: a light userdata, its pointer in the list of works. A file has no other.
static int push_block(lua_State *l, const Reading *r, int block) {
  if (block < 0)
    lua_pushnil(l);
  else
    lua_pushlightuserdata(l, (void *)&r->plan->blocks->work[block]);
  return 1;
}

static int block_at(lua_State *l, const Reading *r, int arg) {
  if (lua_isnil(l, arg)) return -1;
  if (!lua_islightuserdata(l, arg))
    luaL_error(l, "a %s is no block: F, B, W and E give them", luaL_typename(l, arg));
  return (int)((const Work **)lua_touserdata(l, arg) - r->plan->blocks->work);
}

// F(stage, micro-batch, pass): nil if there is no such micro-batch.
static int stage_block(lua_State *l, WorkKind kind) {
  Reading *r = reading_of(l);
  const Shape *s = &r->plan->shape;
  lua_Integer stage = luaL_checkinteger(l, 1), m = luaL_checkinteger(l, 2);
  lua_Integer pass = kind == WORK_F ? luaL_optinteger(l, 3, s->forwards) : 1;
  if (stage < 0 || stage >= s->n_stages)
    return luaL_error(l, "there is no stage %I: they are 0 to %d", stage, s->n_stages - 1);
  if (pass < 1 || pass > s->forwards)
    return luaL_error(l, "there is no pass %I: 'forwards' is %d", pass, s->forwards);
  if (m < 0 || m >= s->n_micro_batches) return push_block(l, r, -1);
  return push_block(l, r, shape_block(s, r->plan->blocks, kind, (int)stage, (int)m, (int)pass));
}

static int forward(lua_State *l) {
  return stage_block(l, WORK_F);
}
static int backward(lua_State *l) {
  return stage_block(l, WORK_B);
}

static int weights(lua_State *l) {
  if (!reading_of(l)->plan->shape.split)
    return luaL_error(
        l, "there is no W: backwards are in one part unless the file says 'split = true'");
  return stage_block(l, WORK_W);
}

// E(pass, micro-batch)
static int embedding(lua_State *l) {
  Reading *r = reading_of(l);
  lua_Integer pass = luaL_checkinteger(l, 1), m = luaL_checkinteger(l, 2);
  if (!r->plan->shape.embedding)
    return luaL_error(l, "there is no E unless the file says 'embedding = true'");
  if (pass < 1 || pass > 4)
    return luaL_error(l, "there is no E of number %I: they are 1 to 4", pass);
  if (m < 0 || m >= r->plan->shape.n_micro_batches) return push_block(l, r, -1);
  return push_block(l, r,
                    shape_block(&r->plan->shape, r->plan->blocks, WORK_E, 0, (int)m, (int)pass));
}

// -- Orders ------------------------------------------------------------------------------------

static void add_order(Reading *r, lua_State *l, int first, int then) {
  const Blocks *b = r->plan->blocks;
  // nil stands for no block.
  if (first < 0 || then < 0) return;
  if (!work_shares_device(b->work[first], b->work[then]))
    luaL_error(l, "%s and %s share no device, and only ops of one device have an order",
               block_text(r->box.arena, b, first), block_text(r->box.arena, b, then));
  // All calls on a line share its location.
  lua_Debug at;
  int number = 0;
  if (lua_getstack(l, 1, &at) && lua_getinfo(l, "l", &at) && at.currentline > 0)
    number = at.currentline;
  while (r->lines.n <= number)
    vec_push(r->box.arena, &r->lines, NULL);
  if (!r->lines.at[number]) r->lines.at[number] = sandbox_loc(&r->box, number, NULL);
  const Loc *loc = r->lines.at[number];
  Order o = {first, then, loc};
  vec_push(r->box.arena, &r->plan->orders, o);
}

// op_order(a, b): a runs before b; op_order{a, b, c}: one after the other. Skips nil.
static int op_order(lua_State *l) {
  Reading *r = reading_of(l);
  if (!lua_istable(l, 1)) {
    luaL_checkany(l, 2);
    add_order(r, l, block_at(l, r, 1), block_at(l, r, 2));
    return 0;
  }
  // A table orders each block after the one before.
  int last = -1;
  for (lua_Integer i = 1, n = (lua_Integer)lua_rawlen(l, 1); i <= n; i++) {
    lua_rawgeti(l, 1, i);
    int block = block_at(l, r, -1);
    lua_pop(l, 1);
    if (block < 0) continue;
    add_order(r, l, last, block);
    last = block;
  }
  sandbox_check(l);
  return 0;
}

static const luaL_Reg calls[] = {{"F", forward},   {"B", backward},        {"W", weights},
                                 {"E", embedding}, {"op_order", op_order}, {NULL, NULL}};

// -- Shape -------------------------------------------------------------------------------------

static void push_global(lua_State *l, const char *name) {
  lua_getfield(l, LUA_REGISTRYINDEX, "world");
  lua_getfield(l, -1, name);
  lua_remove(l, -2);
}

static int read_integer(lua_State *l, const char *name, int lo, int hi) {
  push_global(l, name);
  int is_integer;
  lua_Integer x = lua_tointegerx(l, -1, &is_integer);
  if (!is_integer || x < lo || x > hi)
    luaL_error(l, "'%s' must be a whole number from %d to %d", name, lo, hi);
  lua_pop(l, 1);
  return (int)x;
}

static bool read_flag(lua_State *l, const char *name) {
  push_global(l, name);
  if (!lua_isboolean(l, -1) && !lua_isnil(l, -1)) luaL_error(l, "'%s' must be true or false", name);
  bool x = lua_toboolean(l, -1);
  lua_pop(l, 1);
  return x;
}

static int device_of(lua_State *l, bool asks, int stage, int micro_batch, int n_devices) {
  // Without the function, stages are on devices in turn.
  if (!asks) return stage % n_devices;
  int is_integer;
  push_global(l, "device");
  lua_pushinteger(l, stage);
  lua_pushinteger(l, micro_batch);
  lua_call(l, 2, 1);
  lua_Integer x = lua_tointegerx(l, -1, &is_integer);
  if (!is_integer)
    luaL_error(l, "device(%d, %d) is no whole number but a %s", stage, micro_batch,
               luaL_typename(l, -1));
  if (x < 0 || x >= n_devices)
    luaL_error(l, "device(%d, %d) is %I, and devices are 0 to %d", stage, micro_batch, x,
               n_devices - 1);
  lua_pop(l, 1);
  return (int)x;
}

// Checks that all pieces of a micro-batch have a stage on one device: a piece reads values of
// earlier pieces there.
static void check_pieces(lua_State *l, const Shape *s) {
  for (int m = 1; m < s->n_micro_batches; m++)
    for (int i = 0; i < s->n_stages && m % s->pieces; i++) {
      int at = m * s->n_stages + i, one = s->device[at - s->n_stages], other = s->device[at];
      if (one != other)
        luaL_error(l,
                   "device(%d, %d) is %d and device(%d, %d) is %d: pieces of a micro-batch have "
                   "their stages on the same devices",
                   i, m - 1, one, i, m, other);
    }
}

static void read_shape(lua_State *l, Reading *r) {
  // Pieces count as micro-batches of their own in the shape.
  const ScheduleAsk *ask = r->ask;
  Shape *s = &r->plan->shape;
  int pieces = read_integer(l, "pieces", 1, SCHEDULE_CHUNKS);
  *s = (Shape){.n_devices = ask->n_devices,
               .pieces = pieces,
               .n_micro_batches = ask->n_micro_batches * pieces,
               .n_stages = read_integer(l, "stages", 1, SCHEDULE_BLOCKS),
               .split = read_flag(l, "split"),
               .forwards = read_integer(l, "forwards", 1, SCHEDULE_FORWARDS),
               .embedding = read_flag(l, "embedding"),
               .f = ask->f,
               .b = ask->b,
               .w = ask->w,
               .e = ask->e,
               .latency = ask->latency};
  double blocks = (double)s->n_stages * ask->n_micro_batches * pieces * (s->forwards + 2);
  if (blocks > SCHEDULE_BLOCKS)
    luaL_error(l, "these are about %f blocks, more than %d", blocks, SCHEDULE_BLOCKS);
  // Without `room`, memory is unlimited.
  push_global(l, "room");
  double room = lua_isnil(l, -1) ? INFINITY : lua_tonumber(l, -1);
  if (!lua_isnil(l, -1) && (!lua_isnumber(l, -1) || !(room > 0)))
    luaL_error(l, "'room' must be a number above 0");
  lua_pop(l, 1);
  r->plan->room = room;
  // Stages are on devices in turn, unless the kind has a function `device`.
  push_global(l, "device");
  bool asks = !lua_isnil(l, -1);
  if (asks && !lua_isfunction(l, -1)) luaL_error(l, "'device' must be a function");
  lua_pop(l, 1);
  int *device = arena_array(r->box.arena, int, (size_t)s->n_micro_batches *(size_t)s->n_stages);
  for (int m = 0, k = 0; m < s->n_micro_batches; m++)
    for (int i = 0; i < s->n_stages; i++, k++)
      device[k] = device_of(l, asks, i, m, s->n_devices);
  s->device = device;
  check_pieces(l, s);
}

// -- Running -----------------------------------------------------------------------------------

// Runs the file with its globals.
static void run_file(lua_State *l, Reading *r) {
  const ScheduleAsk *ask = r->ask;
  const struct {
    const char *name;
    int value;
  } given[] = {{"devices", ask->n_devices},
               {"micro_batches", ask->n_micro_batches},
               {"chunks", ask->chunks},
               {"stages", ask->n_devices},
               {"forwards", 1},
               {"pieces", 1}};
  lua_pushlightuserdata(l, r);
  lua_setfield(l, LUA_REGISTRYINDEX, "reading");
  // The environment has the functions and the defaults that the file may override.
  sandbox_environment(l);
  luaL_setfuncs(l, calls, 0);
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    lua_pushinteger(l, given[i].value);
    lua_setfield(l, -2, given[i].name);
  }
  lua_pushnumber(l, ask->memory);
  lua_setfield(l, -2, "memory");
  // The file runs in this environment.
  lua_pushvalue(l, -1);
  lua_setfield(l, LUA_REGISTRYINDEX, "world");
  sandbox_run(&r->box, 0);
}

static int start(lua_State *l) {
  Reading *r = lua_touserdata(l, 1);
  run_file(l, r);
  read_shape(l, r);
  return 0;
}

static int start_nature(lua_State *l) {
  Reading *r = lua_touserdata(l, 1);
  run_file(l, r);
  r->nature.asynchronous = read_flag(l, "asynchronous");
  r->nature.pieces = read_integer(l, "pieces", 1, SCHEDULE_CHUNKS);
  return 0;
}

static int call_order(lua_State *l) {
  push_global(l, "order");
  if (lua_isnil(l, -1)) return 0;
  if (!lua_isfunction(l, -1)) return luaL_error(l, "'order' must be a function");
  lua_call(l, 0, 0);
  return 0;
}

static SchedulePlan *run_text(Arena *a, const char *path, const char *text, size_t n,
                              const ScheduleAsk *ask, Diag *d) {
  Reading r = {.ask = ask, .plan = arena_one(a, SchedulePlan)};
  SchedulePlan *p = r.plan;
  p->name = path;
  p->loc = loc_line(a, path, 0, 0);
  if (!sandbox_open(&r.box, a, path, text, n, d)) return NULL;
  r.box.calls = "F, B, W, E, op_order";
  // Shape first, since orders need the blocks.
  bool ok = sandbox_call(&r.box, start, &r, 0);
  if (ok) {
    p->pipeline = shape_pipeline(a, &p->shape);
    p->blocks = blocks_new(a, p->pipeline);
    shape_order_pieces(a, &p->shape, p->blocks, &p->orders);
    ok = sandbox_call(&r.box, call_order, &r, 0);
  }
  sandbox_close(&r.box);
  return ok && orders_check(p->blocks, &p->orders, p->loc, d) ? p : NULL;
}

bool schedule_nature(Arena *a, const ScheduleKind *kind, ScheduleNature *out, Diag *d) {
  const ScheduleAsk one = {.n_devices = 1, .n_micro_batches = 1, .chunks = kind->count};
  Reading r = {.ask = &one, .plan = arena_one(a, SchedulePlan)};
  const ScheduleText *text = kind->text;
  *out = (ScheduleNature){.pieces = 1};
  if (!text) return true;
  if (!sandbox_open(&r.box, a, text->name, text->text, text->n, d)) return false;
  r.box.calls = "F, B, W, E, op_order";
  bool ok = sandbox_call(&r.box, start_nature, &r, 0);
  sandbox_close(&r.box);
  *out = r.nature;
  return ok;
}

SchedulePlan *schedule_plan(Arena *a, const ScheduleText *text, const ScheduleAsk *ask, Diag *d) {
  return run_text(a, text->name, text->text, text->n, ask, d);
}

SchedulePlan *schedule_plan_file(Arena *a, const char *path, const ScheduleAsk *ask, Diag *d) {
  size_t n;
  const char *text = sandbox_read(a, path, &n, d);
  return text ? run_text(a, path, text, n, ask, d) : NULL;
}
