// What a call remembers of the ops that it stands for, so that they can be put back as they were:
// where each stood, what its results were called, where it is from and its number.  See
// ir/README.md, "Calls".

#ifndef RECALL_H
#define RECALL_H

#include "base/vec.h"
#include "ir/graph.h"

enum { MAX_ID = 1 << 24 }; // of a value without a name, as of one that is read

typedef struct Recall {
  int n;             // results
  const char **name; // [n]; digits of a value without a name: its id
  const char *loc;   // as a comment
  int of;            // its number: Origin
} Recall;

typedef Vec(Op *) Ops;

Recall recall_of(const Op *op, Arena *a);
// The ops of a graph in order, with those of the graphs that it calls in place of the calls.
void ops_called(const Graph *g, Arena *a, Ops *out);

// Places as runs of neighbours, the first and how many, in an attribute of a call; and back.
Attr places_attr(const char *name, const int *place, int n, Arena *a);
bool places_read(const Op *call, const char *name, int *place, int n);

// Attribute `was` of a call of ops that were `of[n]` and are `body[n]` in the callee.
Attr recalls_attr(const Recall *body, const Recall *of, int n, Arena *a);
// Back, of the result of each; false when the call does not say it of so many ops.
bool recalls_read(const Op *call, const Recall *body, Recall *of, int n, Arena *a);

// Values without a name keep their id, unless one before has it; others get what is left.
void values_number(Graph *g, Arena *scratch);

#endif
