// Deterministic versions of Lua's functions that depend on addresses, on a seed, or on the clock.
// So the same program gives the same plan, byte for byte:
//
//     pairs, next      iterate over keys in order: false, true, numbers, strings, and then objects with
//                      a position in the graph, in that order (metamethod __order)
//     table.sort       is stable
//     tostring         of a table is "table", without its address; likewise in string.format
//
// Other keys have no order, and are an error if one is needed.

#ifndef LUA_DETERMINISTIC_H
#define LUA_DETERMINISTIC_H

#include <lua.h>

// Replaces these functions in the table on top of the stack, the environment of a file.
void steady_libraries(lua_State *l);

// tostring of argument `arg`; the text is left on the stack.
const char *steady_text(lua_State *l, int arg);

#endif
