// Runs a Lua file and copies the table that it returns: see lua_file.h.

#include "lua_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "base/vec.h"

typedef struct Reading {
  Arena *arena;
  const char *path, *text;
  Diag *d;
  size_t used; // bytes that Lua has
  int n_fields;
} Reading;

// -- Limits ----------------------------------------------------------------------------------

static void *allocate(void *context, void *old, size_t old_size, size_t size) {
  Reading *r = context;
  if (!old) old_size = 0; // then it is the kind of object
  if (size > old_size && r->used + (size - old_size) > LUA_FILE_BYTES) return NULL;
  void *at = NULL;
  if (size)
    at = realloc(old, size);
  else
    free(old);
  if (size && !at) return NULL;
  r->used += size - old_size;
  return at;
}

static void too_long(lua_State *l, lua_Debug *at) {
  lua_getinfo(l, "l", at);
  lua_pushfstring(l, "lua:%d: this runs for more than %d instructions", at->currentline,
                  LUA_FILE_STEPS);
  lua_error(l);
}

static const char *const allowed[] = {"assert", "error",    "ipairs",   "next", "pairs",
                                      "select", "tonumber", "tostring", "type"};

// Leaves the table of all that a file may use on the stack.
static void push_environment(lua_State *l) {
  luaL_requiref(l, "_G", luaopen_base, 0);
  lua_newtable(l);
  for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
    lua_getfield(l, -2, allowed[i]);
    lua_setfield(l, -2, allowed[i]);
  }
  luaL_requiref(l, "math", luaopen_math, 0);
  lua_pushnil(l);
  lua_setfield(l, -2, "random");
  lua_pushnil(l);
  lua_setfield(l, -2, "randomseed");
  lua_setfield(l, -2, "math");
  lua_remove(l, -2);
}

// -- Locations -------------------------------------------------------------------------------

// Where `name =` stands first, if it does.
static const Loc *place_of(const Reading *r, const char *name) {
  size_t n = strlen(name);
  int line = 1;
  for (const char *s = r->text, *start = s; *s; s++) {
    if (*s == '\n') {
      line++;
      start = s + 1;
    }
    bool inside_word = s > r->text && (isalnum((unsigned char)s[-1]) || s[-1] == '_');
    if (inside_word || strncmp(s, name, n) != 0) continue;
    const char *after = s + n + strspn(s + n, " \t");
    if (after[0] == '=' && after[1] != '=')
      return loc_line(r->arena, r->path, line, (int)(s - start) + 1);
  }
  return loc_line(r->arena, r->path, 0, 0);
}

// "lua:LINE: text": Lua would shorten the path.
static void report(const Reading *r, const char *message) {
  int line = 0;
  if (str_starts(message, "lua:") && isdigit((unsigned char)message[4])) {
    char *end;
    line = (int)strtol(message + 4, &end, 10);
    message = end + strspn(end, ": ");
  }
  diag_error(r->d, loc_line(r->arena, r->path, line, line ? 1 : 0), "%s", message);
  if (strstr(message, "global '"))
    diag_hint(r->d, "a file has math, assert, error, ipairs, next, pairs, select, tonumber, "
                    "tostring and type, and nothing of the machine");
}

// -- The table -------------------------------------------------------------------------------

static int by_name(const void *a, const void *b) {
  return strcmp(((const LuaField *)a)->name, ((const LuaField *)b)->name);
}

static const LuaTable *copy_table(Reading *r, lua_State *l, int depth);

// The key and its value are the two values on top.
static bool copy_field(Reading *r, lua_State *l, int depth, LuaField *f) {
  bool in_list = lua_isinteger(l, -2);
  if (!in_list && lua_type(l, -2) != LUA_TSTRING)
    return diag_error(r->d, loc_line(r->arena, r->path, 0, 0), "a %s is no name of a field",
                      luaL_typename(l, -2));
  f->name = in_list ? str_format(r->arena, "[%lld]", (long long)lua_tointeger(l, -2))
                    : str_copy(r->arena, lua_tostring(l, -2));
  f->loc = place_of(r, f->name);
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
    f->table = copy_table(r, l, depth + 1);
    return f->table != NULL;
  default:
    return diag_error(r->d, f->loc, "'%s' is a %s: numbers, strings, booleans and tables are legal",
                      f->name, luaL_typename(l, -1));
  }
}

// Of the table on top.
static const LuaTable *copy_table(Reading *r, lua_State *l, int depth) {
  Vec(LuaField) fields = {0};
  if (!lua_checkstack(l, 4)) {
    report(r, "not enough memory");
    return NULL;
  }
  for (lua_pushnil(l); lua_next(l, -2); lua_pop(l, 1)) {
    LuaField f = {0};
    if (++r->n_fields > LUA_FILE_FIELDS) {
      diag_error(r->d, loc_line(r->arena, r->path, 0, 0), "there are more than %d fields",
                 LUA_FILE_FIELDS);
      return NULL;
    }
    if (!copy_field(r, l, depth, &f)) return NULL;
    vec_push(r->arena, &fields, f);
  }
  if (fields.n) qsort(fields.at, (size_t)fields.n, sizeof *fields.at, by_name);
  LuaTable *t = arena_one(r->arena, LuaTable);
  *t = (LuaTable){fields.at, fields.n};
  return t;
}

// -- Running ---------------------------------------------------------------------------------

typedef struct Text {
  const char *at;
  size_t n;
} Text;

// Called by lua_pcall, so that even a lack of memory ends here and nowhere else.
static int run(lua_State *l) {
  const Text *text = lua_touserdata(l, 1);
  push_environment(l);
  if (luaL_loadbufferx(l, text->at, text->n, "=lua", "t")) return lua_error(l);
  lua_insert(l, -2);
  lua_setupvalue(l, -2, 1); // all that it has of the world
  lua_sethook(l, too_long, LUA_MASKCOUNT, LUA_FILE_STEPS);
  lua_call(l, 0, 1);
  return 1;
}

static const LuaTable *run_text(Reading *r, Text *text) {
  lua_State *l = lua_newstate(allocate, r);
  if (!l) {
    report(r, "not enough memory");
    return NULL;
  }
  const LuaTable *result = NULL;
  lua_pushcfunction(l, run);
  lua_pushlightuserdata(l, text);
  if (lua_pcall(l, 1, 1, 0))
    report(r, lua_type(l, -1) == LUA_TSTRING ? lua_tostring(l, -1) : "an error without a text");
  else if (!lua_istable(l, -1))
    diag_error(r->d, loc_line(r->arena, r->path, 0, 0), "the file must return a table, not a %s",
               luaL_typename(l, -1));
  else
    result = copy_table(r, l, 1);
  lua_close(l);
  return result;
}

const LuaTable *lua_file_read(Arena *a, const char *path, Diag *d) {
  FILE *f = fopen(path, "rb");
  StrBuf text = {.arena = a};
  char block[4096];
  size_t n = 0;
  if (f)
    while ((n = fread(block, 1, sizeof block, f)) > 0 && text.n <= LUA_FILE_TEXT)
      strbuf_add_n(&text, block, n);
  if (!f || ferror(f)) {
    diag_error(d, loc_line(a, path, 0, 0), "the file cannot be read: %s", strerror(errno));
    if (f) fclose(f);
    return NULL;
  }
  fclose(f);
  if (text.n > LUA_FILE_TEXT) {
    diag_error(d, loc_line(a, path, 0, 0), "the file is larger than %d bytes", LUA_FILE_TEXT);
    return NULL;
  }
  strbuf_add(&text, "");
  Reading r = {.arena = a, .path = path, .text = text.at, .d = d};
  return run_text(&r, &(Text){text.at, text.n});
}
