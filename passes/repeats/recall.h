// Records in a call about its ops, from which they are restored exactly: position in the graph,
// names of results, location and number. See ir/README.md, "Calls".

#ifndef RECALL_H
#define RECALL_H

#include "base/vec.h"
#include "ir/graph.h"

enum { MAX_ID = 1 << 24 }; // limit of the id of a value without a name, as in the parser

typedef struct Recall {
  int n;             // number of results
  const char **name; // [n]; the id in digits for a value without a name
  const char *loc;   // as written in a comment
  int of;            // see Origin
} Recall;

typedef Vec(Op *) Ops;

Recall recall_of(const Op *op, Arena *a);
// The ops of a graph in order, with called graphs expanded in place.
void ops_called(const Graph *g, Arena *a, Ops *out);

// Positions as an attribute of a call, in runs: the first and the length. And back.
Attr places_attr(const char *name, const int *place, int n, Arena *a);
bool places_read(const Op *call, const char *name, int *place, int n);

// Attribute `was` of a call of the ops `of[n]`, which are `body[n]` in the callee.
Attr recalls_attr(const Recall *body, const Recall *of, int n, Arena *a);
// The inverse, for each of n ops; false if the call does not describe so many ops.
bool recalls_read(const Op *call, const Recall *body, Recall *of, int n, Arena *a);

// Renumbers values. A value without a name keeps its id unless an earlier value has it; the others
// get free ids.
void values_number(Graph *g, Arena *scratch);

#endif
