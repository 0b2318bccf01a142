// Lua that can compute and nothing else.
//
// A file has assert, error, ipairs, next, pairs, select, tonumber, tostring and type, most of math,
// string and table, and what is put into its environment; it ends with an error when it runs for
// more than LUA_STEPS instructions, when these take more than LUA_SECONDS, as a sort may, or when
// it wants more than LUA_BYTES, or makes what it calls want more than is allowed to that.
//
// Everything that may fail runs inside sandbox_call, so that even a lack of memory ends there. Only
// the files named lua_*.c know Lua.

#ifndef LUA_SANDBOX_H
#define LUA_SANDBOX_H

#include <lauxlib.h>
#include <lua.h>

#include "base/diag.h"
#include "base/vec.h"

enum {
  LUA_STEPS = 10000000,
  LUA_SECONDS = 10, // of the processor, more than any program needs
  LUA_BYTES = 64 << 20,
  LUA_TEXT = 64 << 20, // bytes of a file
  LUA_MESSAGE = 2000,  // of an error that a file makes itself
};

typedef struct SandboxNote {
  const Loc *loc;
  const char *text;
} SandboxNote;

// Of functions that have a limit of their own.
typedef struct Spared {
  double seconds;
  size_t bytes;
} Spared;

typedef struct Sandbox {
  Arena *arena;
  const char *path;  // what messages call the file
  const char *calls; // what it has besides Lua: "can, cuts, …", or NULL
  const char *text;
  size_t n;
  Diag *d;
  lua_State *lua;
  size_t used;            // bytes that Lua has
  int steps;              // instructions of this call
  double end;             // of the thread's seconds: when this call must be over
  const Arena *other;     // where functions take memory besides `arena`; or NULL
  size_t allowed;         // bytes that functions may take, of both arenas
  size_t began;           // what they had when this call began
  Spared spared;          // what is not counted of this call
  int line;               // where an error was raised that does not say it
  const char *call;       // what of `calls` is running; or NULL
  const char *seen;       // where in the text a line begins that was asked for; or NULL
  int seen_line;          // which one that is
  const Loc *about;       // where in the model the error lies that is being raised, or NULL
  bool reported;          // the error that is being raised: nothing is left to say
  Vec(SandboxNote) notes; // what else is said of it
} Sandbox;

// Reads the text of a file.  NULL, having reported why.
const char *sandbox_read(Arena *a, const char *path, size_t *n, Diag *d);

// False, having reported it, where there is no memory.  Afterwards `text` is not run yet.
bool sandbox_open(Sandbox *s, Arena *a, const char *path, const char *text, size_t n, Diag *d);
void sandbox_close(Sandbox *s);

// For functions that sandbox_call runs: leaves the table of what a file may use on the stack; and
// runs the text with the table on top, which it takes, as all that it has of the world.  Its
// results are left.
void sandbox_environment(lua_State *l);
void sandbox_run(Sandbox *s, int n_results);

// Runs `function` with `context` as its one argument, a light userdata.  False, having reported the
// error at its line, when it raised one; results that it pushed are left on the stack.
bool sandbox_call(Sandbox *s, lua_CFunction function, void *context, int n_results);

// A line of the file, from 1, or 0: unknown.  Its column is that of `word`, where that is known and
// stands there once.
const Loc *sandbox_loc(Sandbox *s, int line, const char *word);

// For functions that work for long: ends the program when it has none of its time or memory left.
void sandbox_check(lua_State *l);
// Around those that have a limit of their own: what they take is not counted.  What a program was
// spared that this one ran is not counted either.
Spared sandbox_begin(lua_State *l);
void sandbox_spare(lua_State *l, const Spared *began);
void sandbox_spare_all(lua_State *l, const Sandbox *ran);

#endif
