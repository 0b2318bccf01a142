// See lua_deterministic.h.
//
// `pairs` sorts the keys once per loop, `next` at every call, since it has no state: a loop over
// `next` takes quadratic time in the cost of a loop over `pairs`.  `sort` is a merge sort, which is
// stable, between the list and a temporary one.

#include "lua_deterministic.h"

#include <lauxlib.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// -- Texts -------------------------------------------------------------------------------------

const char *steady_text(lua_State *l, int arg) {
  int type = lua_type(l, arg);
  bool has_own = luaL_getmetafield(l, arg, "__tostring") != LUA_TNIL;
  if (has_own) lua_pop(l, 1);
  // Lua's own text of other types is an address.
  bool plain =
      type == LUA_TNIL || type == LUA_TBOOLEAN || type == LUA_TNUMBER || type == LUA_TSTRING;
  if (has_own || plain) return luaL_tolstring(l, arg, NULL);
  return lua_pushstring(l, luaL_typename(l, arg));
}

static int tostring(lua_State *l) {
  luaL_checkany(l, 1);
  steady_text(l, 1);
  return 1;
}

// Upvalue 1 is Lua's own string.format.
static int format(lua_State *l) {
  for (const char *p = strchr(luaL_checkstring(l, 1), '%'); p; p = strchr(p, '%')) {
    p += 1 + strspn(p + 1, "-+ #0123456789.");
    if (*p == 'p') return luaL_error(l, "'%%p' is an address");
    if (*p) p++;
  }
  // Arguments that are no plain values become texts.
  for (int i = 2; i <= lua_gettop(l); i++) {
    int type = lua_type(l, i);
    if (type == LUA_TNIL || type == LUA_TBOOLEAN || type == LUA_TNUMBER || type == LUA_TSTRING)
      continue;
    steady_text(l, i);
    lua_replace(l, i);
  }
  // Calls Lua's own function with the same arguments.
  lua_pushvalue(l, lua_upvalueindex(1));
  lua_insert(l, 1);
  lua_call(l, lua_gettop(l) - 1, 1);
  return 1;
}

// -- Keys in order -------------------------------------------------------------------------------

typedef struct Key {
  int kind; // keys are ordered by kind first
  lua_Number number;
  const char *string;
  size_t n;
  int at; // index in the list of keys
} Key;

static int by_key(const void *x, const void *y) {
  const Key *a = x, *b = y;
  if (a->kind != b->kind) return a->kind - b->kind;
  if (a->number != b->number) return a->number < b->number ? -1 : 1;
  if (!a->string || !b->string) return 0;
  int order = memcmp(a->string, b->string, a->n < b->n ? a->n : b->n);
  return order ? order : (a->n > b->n) - (a->n < b->n);
}

// Pushes a sorted list of the keys of the table at `t`.
static void push_keys(lua_State *l, int t) {
  int n = 0;
  lua_newtable(l);
  int list = lua_gettop(l);
  // Values cannot be kept in C, so the keys stay in a list and the sort keys refer to it.
  for (lua_pushnil(l); lua_next(l, t); lua_pop(l, 1)) {
    lua_pushvalue(l, -2);
    lua_rawseti(l, list, ++n);
  }
  // Userdata, so that an error of Lua frees it.
  Key *key = lua_newuserdatauv(l, sizeof *key * (size_t)(n + 1), 0);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(l, list, i + 1);
    Key k = {.kind = lua_type(l, -1), .at = i + 1};
    switch (k.kind) {
    case LUA_TBOOLEAN: k.number = lua_toboolean(l, -1); break;
    case LUA_TNUMBER: k.number = lua_tonumber(l, -1); break;
    case LUA_TSTRING: k.string = lua_tolstring(l, -1, &k.n); break;
    // Objects of this program have a metamethod that gives their order.
    default:
      if (!luaL_callmeta(l, -1, "__order"))
        luaL_error(l, "keys that are of type %s have no order", luaL_typename(l, -1));
      k.number = lua_tonumber(l, -1);
      lua_pop(l, 1);
    }
    key[i] = k;
    lua_pop(l, 1);
  }
  // A second list has the keys in order.
  qsort(key, (size_t)n, sizeof *key, by_key);
  lua_createtable(l, n, 0);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(l, list, key[i].at);
    lua_rawseti(l, -2, i + 1);
  }
  lua_replace(l, list);
  lua_settop(l, list);
}

// The iterator of `pairs`.  Upvalues: the table, its keys, and the number of keys done.  Skips keys
// that were removed meanwhile.
static int step(lua_State *l) {
  lua_Integer done = lua_tointeger(l, lua_upvalueindex(3));
  for (;;) {
    // A key without a value was removed.
    lua_settop(l, 0);
    if (lua_rawgeti(l, lua_upvalueindex(2), ++done) == LUA_TNIL) return 1;
    lua_pushvalue(l, -1);
    if (lua_rawget(l, lua_upvalueindex(1)) != LUA_TNIL) break;
  }
  lua_pushinteger(l, done);
  lua_replace(l, lua_upvalueindex(3));
  return 2;
}

static int pairs(lua_State *l) {
  luaL_checktype(l, 1, LUA_TTABLE);
  lua_settop(l, 1);
  push_keys(l, 1);
  lua_pushinteger(l, 0);
  lua_pushcclosure(l, step, 3);
  return 1;
}

static int next(lua_State *l) {
  luaL_checktype(l, 1, LUA_TTABLE);
  lua_settop(l, 2);
  push_keys(l, 1);
  // The position after the given key.
  lua_Integer at = 1;
  if (!lua_isnil(l, 2)) {
    for (;; at++) {
      if (lua_rawgeti(l, 3, at) == LUA_TNIL) return luaL_error(l, "the table has no such key");
      bool found = lua_rawequal(l, -1, 2);
      lua_pop(l, 1);
      if (found) break;
    }
    at++;
  }
  // After the last key: nil.
  if (lua_rawgeti(l, 3, at) == LUA_TNIL) return 1;
  lua_pushvalue(l, -1);
  lua_rawget(l, 1);
  return 2;
}

// -- Sorting -------------------------------------------------------------------------------------

// Whether entry i of the list at `list` sorts before entry j: by the function in argument 2, or by
// `<`.
static bool is_before(lua_State *l, int list, lua_Integer i, lua_Integer j) {
  bool less;
  // Without a function, numbers or strings are compared as in Lua.
  if (lua_isnoneornil(l, 2)) {
    lua_rawgeti(l, list, i);
    lua_rawgeti(l, list, j);
    less = lua_compare(l, -2, -1, LUA_OPLT);
    lua_pop(l, 2);
    return less;
  }
  // The function's result counts as a boolean.
  lua_pushvalue(l, 2);
  lua_rawgeti(l, list, i);
  lua_rawgeti(l, list, j);
  lua_call(l, 2, 1);
  less = lua_toboolean(l, -1);
  lua_pop(l, 1);
  return less;
}

// Merges entries lo to mid and mid to hi of `from`, each in order, into `to`.
static void merge(lua_State *l, int from, int to, lua_Integer lo, lua_Integer mid, lua_Integer hi) {
  lua_Integer i = lo, j = mid;
  for (lua_Integer k = lo; k < hi; k++) {
    bool second = i == mid || (j < hi && is_before(l, from, j, i));
    lua_rawgeti(l, from, second ? j++ : i++);
    lua_rawseti(l, to, k);
  }
}

static int sort(lua_State *l) {
  luaL_checktype(l, 1, LUA_TTABLE);
  if (!lua_isnoneornil(l, 2)) luaL_checktype(l, 2, LUA_TFUNCTION);
  lua_settop(l, 2);
  lua_Integer n = luaL_len(l, 1);
  lua_newtable(l);
  int from = 1, to = 3;
  // Runs of `width` are merged from one list to the other, which then change roles.
  for (lua_Integer width = 1; width < n; width *= 2) {
    for (lua_Integer lo = 1; lo <= n; lo += 2 * width) {
      lua_Integer mid = lo + width < n + 1 ? lo + width : n + 1;
      merge(l, from, to, lo, mid, mid + width < n + 1 ? mid + width : n + 1);
    }
    int other = from;
    from = to;
    to = other;
  }
  // The result must be in the argument.
  for (lua_Integer i = 1; from != 1 && i <= n; i++) {
    lua_rawgeti(l, from, i);
    lua_rawseti(l, 1, i);
  }
  return 0;
}

// -- Library -------------------------------------------------------------------------------------

void steady_libraries(lua_State *l) {
  static const luaL_Reg plain[] = {
      {"pairs", pairs}, {"next", next}, {"tostring", tostring}, {NULL, NULL}};
  luaL_setfuncs(l, plain, 0);
  lua_getfield(l, -1, "table");
  lua_pushcfunction(l, sort);
  lua_setfield(l, -2, "sort");
  lua_pop(l, 1);
  // The new format keeps Lua's own as an upvalue.
  lua_getfield(l, -1, "string");
  lua_getfield(l, -1, "format");
  lua_pushcclosure(l, format, 1);
  lua_setfield(l, -2, "format");
  lua_pop(l, 1);
}
