// See lua_sandbox.h.

#include "lua_sandbox.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lualib.h>

// -- Limits ----------------------------------------------------------------------------------

static void *allocate(void *context, void *old, size_t old_size, size_t size) {
  Sandbox *s = context;
  if (!old) old_size = 0; // then it is the kind of object
  if (size > old_size && s->used + (size - old_size) > LUA_BYTES) return NULL;
  void *at = NULL;
  if (size)
    at = realloc(old, size);
  else
    free(old);
  if (size && !at) return NULL;
  s->used += size - old_size;
  return at;
}

static void too_long(lua_State *l, lua_Debug *at) {
  lua_getinfo(l, "l", at);
  lua_pushfstring(l, "lua:%d: this runs for more than %d instructions", at->currentline, LUA_STEPS);
  lua_error(l);
}

// What there is of Lua's libraries: nothing that reaches the machine, and no function that can work
// for long on its own, as the patterns of string and table.move can.
static const struct {
  const char *name;
  lua_CFunction open;
  const char *const fields[20];
} libraries[] = {
    {"_G",
     luaopen_base,
     {"assert", "error", "ipairs", "next", "pairs", "select", "tonumber", "tostring", "type"}},
    {"math",
     luaopen_math,
     {"abs", "ceil", "cos", "exp", "floor", "fmod", "huge", "log", "max", "maxinteger", "min",
      "mininteger", "modf", "pi", "sin", "sqrt", "tointeger", "type", "ult"}},
    {"string", luaopen_string, {"byte", "char", "format", "len", "lower", "sub", "upper"}},
    {"table", luaopen_table, {"concat", "insert", "remove", "sort", "unpack"}},
};

// The fields that are allowed of the library on top, to the table at `to`.
static void copy_fields(lua_State *l, const char *const *name, int to) {
  for (; *name; name++) {
    lua_getfield(l, -1, *name);
    lua_setfield(l, to, *name);
  }
}

void sandbox_environment(lua_State *l) {
  lua_newtable(l);
  int world = lua_gettop(l);
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
    if (i) lua_newtable(l);
    luaL_requiref(l, libraries[i].name, libraries[i].open, 0);
    copy_fields(l, libraries[i].fields, i ? world + 1 : world);
    lua_pop(l, 1);
    if (i) lua_setfield(l, world, libraries[i].name);
  }
  // s:len() finds the library through the strings' own table of methods.
  lua_pushliteral(l, "");
  if (lua_getmetatable(l, -1)) {
    lua_getfield(l, world, "string");
    lua_setfield(l, -2, "__index");
  }
  lua_settop(l, world);
}

// -- Errors ----------------------------------------------------------------------------------

// "lua:LINE: text": Lua would shorten the path.
static void report(const Sandbox *s, const char *message) {
  int line = 0;
  if (str_starts(message, "lua:") && isdigit((unsigned char)message[4])) {
    char *end;
    line = (int)strtol(message + 4, &end, 10);
    message = end + strspn(end, ": ");
  }
  diag_error(s->d, loc_line(s->arena, s->path, line, line ? 1 : 0), "%s", message);
  if (s->about) diag_note(s->d, s->about, "this is what it is about");
  if (strstr(message, "global '"))
    diag_hint(s->d, "a file has math, string, table, assert, error, ipairs, next, pairs, select, "
                    "tonumber, tostring and type, and nothing of the machine");
}

// -- Running ---------------------------------------------------------------------------------

const char *sandbox_read(Arena *a, const char *path, size_t *n, Diag *d) {
  FILE *f = fopen(path, "rb");
  StrBuf text = {.arena = a};
  char block[4096];
  size_t k = 0;
  if (f)
    while ((k = fread(block, 1, sizeof block, f)) > 0 && text.n <= LUA_TEXT)
      strbuf_add_n(&text, block, k);
  if (!f || ferror(f)) {
    diag_error(d, loc_line(a, path, 0, 0), "the file cannot be read: %s", strerror(errno));
    if (f) fclose(f);
    return NULL;
  }
  fclose(f);
  if (text.n > LUA_TEXT) {
    diag_error(d, loc_line(a, path, 0, 0), "the file is larger than %d bytes", LUA_TEXT);
    return NULL;
  }
  strbuf_add(&text, "");
  *n = text.n;
  return text.at;
}

bool sandbox_open(Sandbox *s, Arena *a, const char *path, const char *text, size_t n, Diag *d) {
  *s = (Sandbox){.arena = a, .path = path, .text = text, .n = n, .d = d};
  s->lua = lua_newstate(allocate, s);
  if (s->lua) return true;
  report(s, "not enough memory");
  return false;
}

void sandbox_close(Sandbox *s) {
  if (s->lua) lua_close(s->lua);
  s->lua = NULL;
}

void sandbox_run(Sandbox *s, int n_results) {
  lua_State *l = s->lua;
  if (luaL_loadbufferx(l, s->text, s->n, "=lua", "t")) lua_error(l);
  lua_insert(l, -2);
  lua_setupvalue(l, -2, 1); // all that it has of the world
  lua_call(l, 0, n_results);
}

bool sandbox_call(Sandbox *s, lua_CFunction function, void *context, int n_results) {
  lua_State *l = s->lua;
  s->about = NULL;
  lua_sethook(l, too_long, LUA_MASKCOUNT, LUA_STEPS);
  if (!lua_checkstack(l, 8)) {
    report(s, "not enough memory");
    return false;
  }
  lua_pushcfunction(l, function);
  lua_pushlightuserdata(l, context);
  if (!lua_pcall(l, 1, n_results, 0)) return true;
  report(s, lua_type(l, -1) == LUA_TSTRING ? lua_tostring(l, -1) : "an error without a text");
  lua_settop(l, 0);
  return false;
}
