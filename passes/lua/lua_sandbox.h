// A sandbox for Lua: programs can compute and nothing else.
//
// The text must be read within LUA_READ_SECONDS.  A file has assert, error, ipairs, next, pairs,
// select, tonumber, tostring and type, most of math, string and table, and the contents of its
// environment.  It ends with an error after LUA_STEPS instructions; after LUA_SECONDS, since some
// instructions, as a sort, take long; if it uses more than LUA_BYTES; or if the functions that it
// calls use more than their limit.
//
// Everything that may fail runs inside sandbox_call, so that even a lack of memory ends there. Only
// the files named lua_*.c use Lua's API.

#ifndef LUA_SANDBOX_H
#define LUA_SANDBOX_H

#include <lauxlib.h>
#include <lua.h>

#include "base/diag.h"
#include "base/vec.h"

enum {
  LUA_STEPS = 10000000,
  LUA_SECONDS = 10,     // CPU time, more than any program needs
  LUA_READ_SECONDS = 4, // of them to read the text
  LUA_BYTES = 64 << 20,
  LUA_TEXT = 64 << 20, // bytes of a file
  LUA_MESSAGE = 2000,  // of an error that a file raises itself
};

typedef struct SandboxNote {
  const Loc *loc;
  const char *text;
} SandboxNote;

// Resources used by functions with a limit of their own.
typedef struct Spared {
  double seconds;
  size_t bytes;
} Spared;

typedef struct Sandbox {
  Arena *arena;
  const char *path;  // the file name in messages
  const char *calls; // the functions besides Lua's: "can, cuts, …", or NULL
  const char *text;
  size_t n;
  Diag *d;
  lua_State *lua;
  size_t used;            // bytes allocated by Lua
  int steps;              // instructions of this call
  double end;             // of this call, in seconds of the thread
  const Arena *other;     // a second arena that functions allocate from; or NULL
  size_t allowed;         // limit of bytes that functions allocate, in both arenas
  size_t began;           // such bytes at the start of this call
  Spared spared;          // resources exempt from the limits of this call
  int line;               // of an error that has none of its own
  const char *call;       // the running function of `calls`; or NULL
  const char *seen;       // the start of the last queried line of the text; or NULL
  int seen_line;          // its number
  const Loc *about;       // the location in the model of the current error, or NULL
  const char *hint;       // of the current error, or NULL
  bool reported;          // the current error is already reported
  Vec(SandboxNote) notes; // added to the error
} Sandbox;

// Reads the text of a file.  NULL after an error.
const char *sandbox_read(Arena *a, const char *path, size_t *n, Diag *d);

// Creates the Lua state, without running `text`.  Reports a lack of memory and returns false.
bool sandbox_open(Sandbox *s, Arena *a, const char *path, const char *text, size_t n, Diag *d);
void sandbox_close(Sandbox *s);

// For functions that sandbox_call runs.  sandbox_environment pushes the table of permitted
// functions. sandbox_run pops a table from the top and runs the text with it as its only
// environment; results are left on the stack.
void sandbox_environment(lua_State *l);
void sandbox_run(Sandbox *s, int n_results);

// Runs `function` with `context` as its one argument, a light userdata; its results are left on the
// stack.  If it raises an error, reports that at its line and returns false.
bool sandbox_call(Sandbox *s, lua_CFunction function, void *context, int n_results);

// The location of a line of the file, from 1, or 0: unknown.  Its column is that of `word`, if not
// NULL and unique in the line.
const Loc *sandbox_loc(Sandbox *s, int line, const char *word);

// For functions that work for long: raises an error if the program exceeds its time or memory.
void sandbox_check(lua_State *l);
// Calls around functions with a limit of their own, which exempt their resources.
// sandbox_spare_all exempts the resources that were exempt in another program, run by this one.
Spared sandbox_begin(lua_State *l);
void sandbox_spare(lua_State *l, const Spared *began);
void sandbox_spare_all(lua_State *l, const Sandbox *ran);
// Counts another second arena, in place of `other`, until sandbox_back; what is allocated in it is
// freed by then.
typedef struct SandboxAside {
  const Arena *other;
  size_t began, spared;
} SandboxAside;
SandboxAside sandbox_aside(Sandbox *s, const Arena *other);
void sandbox_back(Sandbox *s, const SandboxAside *before);

#endif
