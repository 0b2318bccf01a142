// Configuration files in Lua: a file is run, and the table that it returns is the configuration.
//
//     local gbit = 1e9 / 8
//     return { nodes = 2, across = { alpha = 2.7e-6, beta = 1 / (100 * gbit) } }
//
// lua_sandbox.h lists the functions that a file may use.

#ifndef LUA_FILE_H
#define LUA_FILE_H

#include "base/diag.h"

enum {
  LUA_FILE_FIELDS = 1000, // in all tables of the result together
  LUA_FILE_DEPTH = 8,     // of nested tables
};

typedef enum LuaKind { LUA_FILE_number, LUA_FILE_string, LUA_FILE_boolean, LUA_FILE_table } LuaKind;

typedef struct LuaField {
  const char *name; // "nodes", or "[1]" in a list
  const Loc *loc;   // see lua_locations.h
  LuaKind kind;
  double number; // a boolean is 0 or 1
  const char *string;
  const struct LuaTable *table;
} LuaField;

typedef struct LuaTable {
  LuaField *at; // sorted by name, lists by number
  int n;
} LuaTable;

// NULL after an error, reported at its line.
const LuaTable *lua_file_read(Arena *a, const char *path, Diag *d);

#endif
