// See lua_sandbox.h.
//
// Limits are checked by a hook every SLICE instructions, at every allocation, and by functions that
// work for long (sandbox_check).  Exceeding one raises an ordinary Lua error; `find_line` records
// the line while the stack still exists, and `report` builds a diagnostic from both.

#include "lua_sandbox.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lualib.h>

#include "base/clock.h"
#include "lua_deterministic.h"

// -- Limits ----------------------------------------------------------------------------------

// Instructions between two checks of the limits.
enum { SLICE = 100 };

static Sandbox *sandbox_of(lua_State *l) {
  void *s;
  lua_getallocf(l, &s);
  return s;
}

// Raises an error without a line, which find_line adds.
static void over(lua_State *l, const char *what, int limit, const char *unit) {
  lua_pushfstring(l, "this %s more than %d %s", what, limit, unit);
  lua_error(l);
}

static size_t taken(const Sandbox *s) {
  return arena_used(s->arena) + (s->other ? arena_used(s->other) : 0);
}

// Bytes that functions of this call have taken, besides those exempt.
static size_t taken_outside(const Sandbox *s) {
  size_t all = taken(s), less = s->began + s->spared.bytes;
  return all > less ? all - less : 0;
}

void sandbox_check(lua_State *l) {
  const Sandbox *s = sandbox_of(l);
  size_t outside = taken_outside(s);
  if (s->used > LUA_BYTES) over(l, "wants", LUA_BYTES >> 20, "MiB of memory");
  if (outside > s->allowed) over(l, "wants", (int)(s->allowed >> 20), "MiB of memory");
  if (s->steps > LUA_STEPS) over(l, "runs for", LUA_STEPS, "instructions");
  if (thread_seconds() > s->end + s->spared.seconds) over(l, "runs for", LUA_SECONDS, "seconds");
}

Spared sandbox_begin(lua_State *l) {
  return (Spared){thread_seconds(), taken(sandbox_of(l))};
}

void sandbox_spare(lua_State *l, const Spared *began) {
  Sandbox *s = sandbox_of(l);
  s->spared.seconds += thread_seconds() - began->seconds;
  s->spared.bytes += taken(s) - began->bytes;
}

void sandbox_spare_all(lua_State *l, const Sandbox *ran) {
  Sandbox *s = sandbox_of(l);
  s->spared.seconds += ran->spared.seconds;
  s->spared.bytes += ran->spared.bytes;
}

SandboxAside sandbox_aside(Sandbox *s, const Arena *other) {
  SandboxAside before = {s->other, s->began, s->spared.bytes};
  size_t outside = taken_outside(s);
  s->other = other;
  s->began = taken(s) - outside;
  s->spared.bytes = 0;
  return before;
}

void sandbox_back(Sandbox *s, const SandboxAside *before) {
  s->other = before->other;
  s->began = before->began;
  s->spared.bytes = before->spared;
}

static void count(lua_State *l, lua_Debug *at) {
  (void)at;
  sandbox_of(l)->steps += SLICE;
  sandbox_check(l);
}

// Records the line of the running program.  Errors raised by C functions, errors that are not
// strings, and a lack of memory have no line of their own.
static int find_line(lua_State *l) {
  lua_Debug at;
  sandbox_of(l)->line = 0;
  for (int level = 0; lua_getstack(l, level, &at); level++) {
    lua_getinfo(l, "l", &at);
    // C functions have no line.
    if (at.currentline < 1) continue;
    sandbox_of(l)->line = at.currentline;
    break;
  }
  return 1;
}

// Lua's allocator.  Lua reports a lack of memory without a line.  So allocations up to twice the
// limit succeed, and the hook ends the program at the next instruction.
static void *allocate(void *context, void *old, size_t old_size, size_t size) {
  Sandbox *s = context;
  if (!old) old_size = 0; // it is the kind of object then
  size_t more = size > old_size ? size - old_size : 0;
  if (more && s->used + more > 2 * (size_t)LUA_BYTES) {
    if (s->lua) find_line(s->lua);
    return NULL;
  }
  // The hook at the next instruction can name the line.
  if (more && s->used + more > LUA_BYTES && s->lua) lua_sethook(s->lua, count, LUA_MASKCOUNT, 1);
  // `used` counts only allocations that succeed.
  void *at = NULL;
  if (size)
    at = realloc(old, size);
  else
    free(old);
  if (size && !at) return NULL;
  s->used += size - old_size;
  return at;
}

// The permitted library functions: none that reaches the machine, and none with unbounded time per
// call, as patterns of string and table.move have.
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

void sandbox_environment(lua_State *l) {
  lua_newtable(l);
  int world = lua_gettop(l);
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
    if (i) lua_newtable(l);
    luaL_requiref(l, libraries[i].name, libraries[i].open, 0);
    // Only the permitted fields; those of _G are in the environment itself.
    for (const char *const *field = libraries[i].fields; *field; field++) {
      lua_getfield(l, -1, *field);
      lua_setfield(l, i ? world + 1 : world, *field);
    }
    lua_pop(l, 1);
    if (i) lua_setfield(l, world, libraries[i].name);
  }
  // s:len() finds the library through the metatable of strings.
  lua_pushliteral(l, "");
  if (lua_getmetatable(l, -1)) {
    lua_getfield(l, world, "string");
    lua_setfield(l, -2, "__index");
  }
  lua_settop(l, world);
  steady_libraries(l);
}

// -- Places in the file ------------------------------------------------------------------------

// The start of a line, searched from the previous query; NULL: no such line.
static const char *line_start(Sandbox *s, int line) {
  const char *end = s->text + s->n;
  if (!s->seen) {
    s->seen = s->text;
    s->seen_line = 1;
  }
  // Backward to an earlier line, or forward to a later one.
  for (; s->seen_line > line; s->seen_line--) {
    s->seen--; // before the '\n' that ends the previous line
    while (s->seen > s->text && s->seen[-1] != '\n')
      s->seen--;
  }
  for (; s->seen_line < line; s->seen_line++) {
    const char *next = memchr(s->seen, '\n', (size_t)(end - s->seen));
    if (!next) return NULL;
    s->seen = next + 1;
  }
  return s->seen;
}

static bool in_name(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

// The column, from 1, of a word that occurs once in a line, not as part of a longer name; else 0.
static int column_of(const char *line, const char *word) {
  enum { MOST = 2000 }; // characters of a line that are searched
  size_t n = strlen(word), length = strcspn(line, "\n");
  int column = 0;
  if (!n || length > MOST) return 0;
  for (size_t i = 0; i + n <= length; i++) {
    bool whole = !(in_name(word[0]) && i && in_name(line[i - 1])) &&
                 !(in_name(word[n - 1]) && in_name(line[i + n]));
    if (!whole || strncmp(line + i, word, n) != 0) continue;
    // A second occurrence: it is open which one is meant.
    if (column) return 0;
    column = (int)i + 1;
  }
  return column;
}

const Loc *sandbox_loc(Sandbox *s, int line, const char *word) {
  const char *start = line > 0 ? line_start(s, line) : NULL;
  return loc_source(s->arena, s->path, line > 0 ? line : 0,
                    start && word ? column_of(start, word) : 0, start);
}

// -- Errors ----------------------------------------------------------------------------------

// The subject of a Lua message: "… (global 'x')", "… near 'end'"; else the first quoted text. NULL:
// none.
static const char *blamed(Arena *a, const char *message) {
  static const char *const before[] = {"near '",   "global '",  "field '", "local '",
                                       "method '", "upvalue '", "to '",    "'"};
  for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
    // The most specific text comes first in the list.
    const char *at = strstr(message, before[i]);
    if (!at) continue;
    at += strlen(before[i]);
    return str_copy_n(a, at, strcspn(at, "'"));
  }
  return NULL;
}

// Messages begin with "lua:LINE: ", since Lua would shorten the path.
static void report(Sandbox *s, const char *message) {
  int line = s->line;
  if (s->reported) return;
  // A line in the message overrides that of find_line.
  if (str_starts(message, "lua:") && isdigit((unsigned char)message[4])) {
    char *end;
    line = (int)strtol(message + 4, &end, 10);
    message = end + strspn(end, ": ");
  }
  const char *word = s->call ? s->call : blamed(s->arena, message);
  diag_error(s->d, sandbox_loc(s, line, word), "%.*s", LUA_MESSAGE, message);
  if (s->about) diag_note(s->d, s->about, "this one");
  for (int i = 0; i < s->notes.n; i++)
    diag_note(s->d, s->notes.at[i].loc, "%s", s->notes.at[i].text);
  if (s->hint) diag_hint(s->d, "%s", s->hint);
  // Hints for common errors.
  if (line == 1 && s->n && *s->text == '{')
    diag_hint(
        s->d,
        "this begins as JSON does; what is read here is Lua, as --emit plan -o plan.lua writes it");
  if (strstr(message, "for iterator"))
    diag_hint(s->d, "a list is gone through by: for i, x in ipairs(list) do");
  if (strstr(message, "global '"))
    diag_hint(s->d,
              "a file has math, string, table, assert, error, ipairs, next, pairs, select, "
              "tonumber, tostring, type%s%s, and nothing of the machine",
              s->calls ? ", " : "", s->calls ? s->calls : "");
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
  // errno is that of fopen or fread.
  if (!f || ferror(f)) {
    diag_error(d, loc_line(a, path, 0, 0), "the file cannot be read: %s", strerror(errno));
    if (f) fclose(f);
    return NULL;
  }
  fclose(f);
  // One block more than the limit is read at most.
  if (text.n > LUA_TEXT) {
    diag_error(d, loc_line(a, path, 0, 0), "the file is larger than %d bytes", LUA_TEXT);
    return NULL;
  }
  strbuf_add(&text, "");
  *n = text.n;
  return text.at;
}

bool sandbox_open(Sandbox *s, Arena *a, const char *path, const char *text, size_t n, Diag *d) {
  *s = (Sandbox){.arena = a, .path = path, .text = text, .n = n, .d = d, .allowed = LUA_BYTES};
  s->lua = lua_newstate(allocate, s);
  if (s->lua) return true;
  report(s, "not enough memory");
  return false;
}

void sandbox_close(Sandbox *s) {
  if (s->lua) lua_close(s->lua);
  s->lua = NULL;
}

// The text in blocks: Lua takes time proportional to the square of the length of a chain of elseif.
typedef struct Blocks {
  Sandbox *sandbox;
  size_t given;
  int line; // the last one of these
  double end;
} Blocks;

static const char *next_block(lua_State *l, void *context, size_t *n) {
  enum { BLOCK = 4096 };
  Blocks *b = context;
  const char *at = b->sandbox->text + b->given;
  if (thread_seconds() > b->end) {
    lua_pushfstring(l, "lua:%d: to read the file up to here takes more than %d seconds", b->line,
                    LUA_READ_SECONDS);
    lua_error(l);
  }
  size_t left = b->sandbox->n - b->given;
  *n = left < BLOCK ? left : BLOCK;
  b->given += *n;
  for (size_t i = 0; i < *n; i++)
    b->line += at[i] == '\n';
  return at;
}

void sandbox_run(Sandbox *s, int n_results) {
  lua_State *l = s->lua;
  Blocks blocks = {.sandbox = s, .line = 1, .end = thread_seconds() + LUA_READ_SECONDS};
  if (lua_load(l, next_block, &blocks, "=lua", "t")) {
    const char *why = lua_tostring(l, -1);
    // A syntax error has a line; other errors need a subject.
    if (!str_starts(why, "lua:")) lua_pushfstring(l, "the file cannot be read as Lua: %s", why);
    lua_error(l);
  }
  lua_insert(l, -2);
  lua_setupvalue(l, -2, 1); // its only upvalue, _ENV
  lua_call(l, 0, n_results);
}

bool sandbox_call(Sandbox *s, lua_CFunction function, void *context, int n_results) {
  lua_State *l = s->lua;
  // The limits apply to each call.
  s->about = NULL;
  s->call = NULL;
  s->hint = NULL;
  s->notes.n = 0;
  s->reported = false;
  s->line = s->steps = 0;
  s->end = thread_seconds() + LUA_SECONDS;
  s->began = taken(s);
  s->spared = (Spared){0};
  lua_sethook(l, count, LUA_MASKCOUNT, SLICE);
  if (!lua_checkstack(l, 8)) {
    report(s, "not enough memory");
    return false;
  }
  // The handler runs before the stack is unwound, so it finds the line.
  int handler = lua_gettop(l) + 1;
  lua_pushcfunction(l, find_line);
  lua_pushcfunction(l, function);
  lua_pushlightuserdata(l, context);
  int status = lua_pcall(l, 1, n_results, handler);
  lua_remove(l, handler);
  if (status == LUA_OK) return true;
  const char *text =
      lua_type(l, -1) == LUA_TSTRING ? lua_tostring(l, -1) : "an error without a text";
  if (status == LUA_ERRMEM)
    text = str_format(s->arena, "this wants more than %d MiB of memory", LUA_BYTES >> 20);
  report(s, text);
  // The stack is empty after an error.
  lua_settop(l, 0);
  return false;
}
