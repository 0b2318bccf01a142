// Messages that are kept instead of shown, for calls that try something: an error among them
// becomes a result, or the message of an error at the program's line.
//
//     Said said;
//     said_open(&said);
//     Op *op = op_new(…, said.d);
//     const char *why = said_close(&said, a);      "linear: inner dimensions differ: 8 and 4"

#ifndef LUA_SAID_H
#define LUA_SAID_H

#include "base/diag.h"

typedef struct Said {
  Diag *d;
  FILE *file;
  char *text;
  size_t n;
} Said;

void said_open(Said *s);
// Returns the first error, without its place, in `a`; "it is impossible" if there is none.
const char *said_close(Said *s, Arena *a);

#endif
