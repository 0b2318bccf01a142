// Positions in the text of a Lua file of the fields of the table that it returns.
//
//     return { nodes = 2, devices = { { from = 0 }, { from = 8 } } }
//              ^          ^           ^ [1]         ^ [2]
//
// Lua does not record the positions of fields, so the text is scanned again: the constructor after
// the last `return`, and the constructors inside it.  For other values, from a loop or a variable,
// the position is the first assignment to their name.

#ifndef LUA_LOCATIONS_H
#define LUA_LOCATIONS_H

#include "base/diag.h"

// The text between the braces of a table; NULL: unknown.
typedef struct LuaSpan {
  const char *from, *to;
} LuaSpan;

typedef struct LuaPlace {
  const Loc *loc; // of the field, or of the whole file
  LuaSpan inside; // the value of the field, if it is a table
} LuaPlace;

LuaSpan lua_span_returned(const char *text);
// The place of the field `name`; if that is NULL, of entry i of the list, from 1.
LuaPlace lua_place_of(Arena *a, const char *path, const char *text, LuaSpan table, const char *name,
                      long long i);

#endif
