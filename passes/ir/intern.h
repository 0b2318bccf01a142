// What the files that build and change graphs share, and nobody else sees: what a module keeps so
// that equal things are found again (its types, its layouts, moves between them, the names of its
// values), and ops before they stand in a graph.

#ifndef IR_INTERN_H
#define IR_INTERN_H

#include "ir/graph.h"

enum { N_BUCKETS = 256 };

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

struct Interned {
  InternedType *types[N_BUCKETS];
  InternedLayout *layouts;
  KnownMove *moves[N_BUCKETS];
  Names names;
};

static inline uint64_t hash_mix(uint64_t h, uint64_t x) {
  return (h ^ x) * 0x9e3779b97f4a7c15u;
}

Value *name_find(const Graph *g, const char *name);
void name_add(Value *v);    // v->name must be free
void name_remove(Value *v); // does nothing when it has none

// An op that knows its operands and nothing of them knows it: uses are not linked, results have no
// types and no ids yet.  op_insert makes it part of the graph.
Op *op_draft(Graph *g, OpKind kind, Value *const *in, int n_in, int n_out, Origin origin);
void op_insert(Op *op, Op *at);

#endif
