// Rows of a saved plan that differ in one number of their names only, as one row.
//
//     "/h.0/fc/MatMul"   linear  forward  1  n
//     "/h.1/fc/MatMul"   linear  forward  1  n      =>   { "/h.#/fc/MatMul", 0, 2 }  linear  forward  1  n
//     "/h.2/fc/MatMul"   linear  forward  1  n
//
//     "Add.7", "Add.19", "Add.31", "Add.60"         =>   { "Add.#", 7, 31, 12 } and "Add.60"
//
// A name may have several numbers.  It is that one which most others differ in; of these, numbers
// that are equally far apart are a row.  Before that neighbours are one row that differ in `which`
// only, which ops of a node they are: 1, 2 and 3 become { 1, 3 }.

#ifndef RECORD_ROWS_H
#define RECORD_ROWS_H

#include "base/str.h"
#include "base/vec.h"

typedef struct Row {
  const char *name;   // of the node or the parameter; once joined, as a word of Lua
  const char *kind;   // what it is, and with tabs between them
  const char *splits; // what it says along each axis
  const char *note;
  int which, last; // of ops: from 1
} Row;

typedef Vec(Row) Rows;

// In quotes, as Lua reads it.
const char *lua_quoted(Arena *a, const char *s);
// Which ops of their node the row is about: "1", or "{ 1, 3 }".
const char *row_which(const Row *row, Arena *a);
// The rows joined, each where the first of them stood, with words of Lua for names.
Rows rows_joined(const Rows *rows, Arena *a);

#endif
