// Rows of a saved plan that differ in one number of their names only, as one row.
//
//     "/h.0/fc/MatMul"   linear  forward  1  n
//     "/h.1/fc/MatMul"   linear  forward  1  n      =>   { "/h.#/fc/MatMul", 0, 2 }  linear  forward  1  n
//     "/h.2/fc/MatMul"   linear  forward  1  n
//
//     "Add.7", "Add.19", "Add.31", "Add.60"         =>   { "Add.#", 7, 31, 12 } and "Add.60"
//
// Of several numbers in a name, the one counts that most other rows differ in; of these rows,
// equally spaced numbers become one row. Before that, neighbours that differ only in `which`, the
// number of an op within its node, become one row: 1, 2 and 3 become { 1, 3 }.

#ifndef RECORD_ROWS_H
#define RECORD_ROWS_H

#include "base/str.h"
#include "base/vec.h"

typedef struct Row {
  const char *name;   // of the node or the parameter; once joined, as a word of Lua
  const char *kind;   // op kind and part, or role, with tabs between them
  const char *splits; // splits or layouts along each axis
  const char *note;
  int which, last; // of ops: from 1
} Row;

typedef Vec(Row) Rows;

// Returns the string in quotes, as Lua reads it.
const char *lua_quoted(Arena *a, const char *s);
// Returns the numbers of the row's ops within their node: "1", or "{ 1, 3 }".
const char *row_which(const Row *row, Arena *a);
// Returns the joined rows, each at the position of its first one, with words of Lua for names.
Rows rows_joined(const Rows *all, Arena *a);

#endif
