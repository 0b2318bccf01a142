// What the files that build and change graphs share, and nobody else sees: what a module keeps so
// that equal things are found again (its types, its layouts, moves between them, the names of its
// values, einsums of ops that are alike), and ops before they stand in a graph.

#ifndef IR_INTERN_H
#define IR_INTERN_H

#include "ir/dims.h"

enum { N_BUCKETS = 256, N_ALIKE = 4096 };

typedef struct InternedType {
  Type type;
  struct InternedType *next;
} InternedType;

typedef struct InternedLayout {
  Layout layout;
  struct InternedLayout *next;
} InternedLayout;

// Named values, by graph and name: open addressing, `n` of `cap` slots not NULL.  names.c only.
typedef struct Names {
  Value **slot;
  int n, cap;
} Names;

// Whether a move of a value has nothing to do: boxes.c only.
typedef struct KnownMove {
  const Type *whole;
  const Layout *from, *to;
  bool stays;
  struct KnownMove *next;
} KnownMove;

// Ops that are alike: alike.c says which.
typedef struct Alike {
  uint64_t hash;
  OpKind kind;
  int n_in, n_out;
  const Attr *attrs;
  const Type **in;
  bool local;            // types are those of parts, and what follows tells ops apart
  const Mesh *mesh;      // that they run on
  const Layout **layout; // of operands and results
  // What is known of them, NULL until somebody has asked.
  const Dims *dims;
  const Type **out;
  struct Alike *next;
} Alike;

struct Interned {
  InternedType *types[N_BUCKETS];
  InternedLayout *layouts[N_BUCKETS];
  KnownMove *moves[N_BUCKETS];
  Names names;
  Alike *alike[N_ALIKE];
};

static inline uint64_t hash_mix(uint64_t h, uint64_t x) {
  return (h ^ x) * 0x9e3779b97f4a7c15u;
}

Value *name_find(const Graph *g, const char *name);
void name_remove(Value *v); // does nothing when it has none

Alike *op_alike(const Op *op); // NULL where ops that look the same may differ

// An op that knows its operands and nothing of them knows it: uses are not linked, results have no
// types and no ids yet.  op_insert makes it part of the graph.
Op *op_draft(Graph *g, OpKind kind, Value *const *in, int n_in, int n_out, Origin origin);
void op_insert(Op *op, Op *at);

#endif
