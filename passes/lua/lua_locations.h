// Where the fields of a table that a Lua file returns stand in its text.
//
//     return { nodes = 2, devices = { { from = 0 }, { from = 8 } } }
//              ^          ^           ^ [1]         ^ [2]
//
// Lua tells what a table has and not where that was written, so the text is read again: the
// constructor behind the last `return`, and those inside of it.  What is made in another way, by a
// loop or from a variable, is where its name is first given a value.

#ifndef LUA_LOCATIONS_H
#define LUA_LOCATIONS_H

#include "base/diag.h"

// What stands between the braces of a table; NULL: not known.
typedef struct LuaSpan {
  const char *from, *to;
} LuaSpan;

typedef struct LuaPlace {
  const Loc *loc; // of the field, or only the file
  LuaSpan inside; // of the table that is its value
} LuaPlace;

LuaSpan lua_span_returned(const char *text);
// The field that is called so, or with a NULL name, number i of the list, from 1.
LuaPlace lua_place_of(Arena *a, const char *path, const char *text, LuaSpan table, const char *name,
                      long long i);

#endif
