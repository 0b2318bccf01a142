// Runs a Lua file and copies the table that it returns: see lua_file.h.

#include "lua_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "lua_locations.h"
#include "lua_sandbox.h"

typedef struct Reading {
  Arena *arena;
  const char *path, *text;
  Diag *d;
  int n_fields;
} Reading;

// -- The table -------------------------------------------------------------------------------

// Lists are sorted by number.
static int by_name(const void *a, const void *b) {
  const char *x = ((const LuaField *)a)->name, *y = ((const LuaField *)b)->name;
  size_t n = strlen(x), k = strlen(y);
  return x[0] == '[' && y[0] == '[' && n != k ? (n > k) - (n < k) : strcmp(x, y);
}

static const LuaTable *copy_table(Reading *r, lua_State *l, int depth, LuaSpan at, const Loc *loc);

// Copies the key and value on top of the stack; `table` is the table's position in the text, and
// `loc` the field that it is the value of: the location of entries that the text does not show.
static bool copy_field(Reading *r, lua_State *l, int depth, LuaSpan table, const Loc *loc,
                       LuaField *f) {
  bool in_list = lua_isinteger(l, -2);
  if (!in_list && lua_type(l, -2) != LUA_TSTRING)
    return diag_error(r->d, loc_line(r->arena, r->path, 0, 0), "a %s is no name of a field",
                      luaL_typename(l, -2));
  f->name = in_list ? str_format(r->arena, "[%lld]", (long long)lua_tointeger(l, -2))
                    : str_copy(r->arena, lua_tostring(l, -2));
  // The position in the text gives the location for messages.
  LuaPlace place = lua_place_of(r->arena, r->path, r->text, table, in_list ? NULL : f->name,
                                in_list ? lua_tointeger(l, -2) : 0);
  f->loc = place.loc->line || !loc ? place.loc : loc;
  switch (lua_type(l, -1)) {
  case LUA_TNUMBER:
    f->kind = LUA_FILE_number;
    f->number = lua_tonumber(l, -1);
    return true;
  case LUA_TSTRING:
    f->kind = LUA_FILE_string;
    f->string = str_copy(r->arena, lua_tostring(l, -1));
    return true;
  case LUA_TBOOLEAN:
    f->kind = LUA_FILE_boolean;
    f->number = lua_toboolean(l, -1);
    return true;
  case LUA_TTABLE:
    if (depth == LUA_FILE_DEPTH)
      return diag_error(r->d, f->loc, "tables are in one another, more than %d deep",
                        LUA_FILE_DEPTH);
    f->kind = LUA_FILE_table;
    f->table = copy_table(r, l, depth + 1, place.inside, f->loc);
    return f->table != NULL;
  default:
    return diag_error(r->d, f->loc, "'%s' is a %s: numbers, strings, booleans and tables are legal",
                      f->name, luaL_typename(l, -1));
  }
}

// Copies the table on top of the stack.
static const LuaTable *copy_table(Reading *r, lua_State *l, int depth, LuaSpan at, const Loc *loc) {
  Vec(LuaField) fields = {0};
  // Nested tables need stack space for a key and a value each.
  if (!lua_checkstack(l, 4)) {
    diag_error(r->d, loc_line(r->arena, r->path, 0, 0), "not enough memory");
    return NULL;
  }
  for (lua_pushnil(l); lua_next(l, -2); lua_pop(l, 1)) {
    LuaField f = {0};
    if (++r->n_fields > LUA_FILE_FIELDS) {
      diag_error(r->d, loc_line(r->arena, r->path, 0, 0), "there are more than %d fields",
                 LUA_FILE_FIELDS);
      return NULL;
    }
    if (!copy_field(r, l, depth, at, loc, &f)) return NULL;
    vec_push(r->arena, &fields, f);
  }
  // Sorted by name: independent of Lua's hash order.
  if (fields.n) qsort(fields.at, (size_t)fields.n, sizeof *fields.at, by_name);
  LuaTable *t = arena_one(r->arena, LuaTable);
  *t = (LuaTable){fields.at, fields.n};
  return t;
}

// -- Running ---------------------------------------------------------------------------------

static int run(lua_State *l) {
  Sandbox *s = lua_touserdata(l, 1);
  sandbox_environment(l);
  sandbox_run(s, 1);
  return 1;
}

const LuaTable *lua_file_read(Arena *a, const char *path, Diag *d) {
  size_t n;
  const char *text = sandbox_read(a, path, &n, d);
  if (!text) return NULL;
  Reading r = {.arena = a, .path = path, .text = text, .d = d};
  Sandbox s;
  const LuaTable *result = NULL;
  if (!sandbox_open(&s, a, path, text, n, d)) return NULL;
  // The copy outlives Lua's state.
  if (sandbox_call(&s, run, &s, 1)) {
    if (lua_istable(s.lua, -1))
      result = copy_table(&r, s.lua, 1, lua_span_returned(text), NULL);
    else
      diag_error(d, loc_line(a, path, 0, 0), "the file must return a table, not a %s",
                 luaL_typename(s.lua, -1));
  }
  sandbox_close(&s);
  return result;
}
