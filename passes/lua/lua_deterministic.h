// What of Lua's libraries depends on where things lie in memory, on a seed, or on the clock, in
// ways that do not, so that the same program gives the same plan, byte for byte:
//
//     pairs, next      go through keys in order: false, true, numbers, strings, and then what has a
//                      place of its own in the graph, by that (metamethod __order)
//     table.sort       leaves what is equal in the order in which it was
//     tostring         of a table is "table", without its address; so it is in string.format
//
// Other keys have no order, and are an error where one is needed.

#ifndef LUA_DETERMINISTIC_H
#define LUA_DETERMINISTIC_H

#include <lua.h>

// In the table of what a file may use, on top, instead of what is there.
void steady_libraries(lua_State *l);

// As tostring, of what stands there; it is left on the stack.
const char *steady_text(lua_State *l, int arg);

#endif
