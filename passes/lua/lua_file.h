// Files in Lua that say what something is: they are run, and the table they return is what counts.
//
//     local gbit = 1e9 / 8
//     return { nodes = 2, across = { alpha = 2.7e-6, beta = 1 / (100 * gbit) } }
//
// What a file may do is in lua_sandbox.h.

#ifndef LUA_FILE_H
#define LUA_FILE_H

#include "base/diag.h"

enum {
  LUA_FILE_FIELDS = 1000, // in all tables of the result
  LUA_FILE_DEPTH = 8,     // of tables in tables
};

typedef enum LuaKind { LUA_FILE_number, LUA_FILE_string, LUA_FILE_boolean, LUA_FILE_table } LuaKind;

typedef struct LuaField {
  const char *name; // "nodes", or "[1]" in a list
  const Loc *loc;   // see lua_locations.h
  LuaKind kind;
  double number; // or 0 and 1 of a boolean
  const char *string;
  const struct LuaTable *table;
} LuaField;

typedef struct LuaTable {
  LuaField *at; // sorted by name, lists by number
  int n;
} LuaTable;

// NULL, having reported why and on which line.
const LuaTable *lua_file_read(Arena *a, const char *path, Diag *d);

#endif
