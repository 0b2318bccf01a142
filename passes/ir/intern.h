// Internals of the files that build and change graphs: the module's interned objects (types,
// layouts, attributes, moves, names of values, einsums of identical ops), and ops before their
// insertion into a graph.

#ifndef IR_INTERN_H
#define IR_INTERN_H

#include "ir/dims.h"

enum { N_BUCKETS = 4096, N_ALIKE = 16384 };

typedef struct InternedType {
  Type type;
  struct InternedType *next;
} InternedType;

typedef struct InternedLayout {
  Layout layout;
  struct InternedLayout *next;
} InternedLayout;

// The attributes of ops of a kind, in the order of its row.
typedef struct InternedAttrs {
  uint64_t hash;
  OpKind kind;
  struct InternedAttrs *next;
  Attr at[];
} InternedAttrs;

// A named value, and the hash of its graph and name.
typedef struct NameSlot {
  Value *value;
  uint64_t hash;
} NameSlot;

// Named values, by graph and name: open addressing, `n` of `cap` slots not NULL.  names.c only.
typedef struct Names {
  NameSlot *slot;
  int n, cap;
} Names;

// Whether a move of a value is a no-op; boxes.c only.
typedef struct KnownMove {
  const Type *whole;
  const Layout *from, *to;
  bool stays, counted;
  int64_t moved; // if counted: elements of a slice that a device gets from another
  struct KnownMove *next;
} KnownMove;

// A class of identical ops, as alike.c defines it.
typedef struct Alike {
  uint64_t hash;
  OpKind kind;
  int n_in, n_out;
  const Attr *attrs; // interned
  const Type **in;
  bool local;            // types are local, and the next two fields distinguish ops
  const Mesh *mesh;      // the mesh of the ops
  const Layout **layout; // of operands and results
  // Cached results, NULL until the first query.
  const Dims *dims;
  const Type **out;
  struct Alike *next;
} Alike;

struct Interned {
  InternedType *types[N_BUCKETS];
  InternedLayout *layouts[N_BUCKETS];
  InternedAttrs *attrs[N_BUCKETS];
  KnownMove *moves[N_BUCKETS];
  Names names;
  Alike *alike[N_ALIKE];
};

static inline uint64_t hash_mix(uint64_t h, uint64_t x) {
  return (h ^ x) * 0x9e3779b97f4a7c15u;
}

// A hash of two addresses, for sums over many pairs: two sums are equal if the pairs are the same,
// and for other pairs with a probability of 2^-64.
static inline uint64_t hash_pair(const void *x, const void *y) {
  uint64_t h = hash_mix(0, (uintptr_t)x);
  h = hash_mix(h ^ h >> 32, (uintptr_t)y);
  return hash_mix(1, h ^ h >> 32);
}

Value *name_find(const Graph *g, const char *name);
uint64_t name_term(const Value *v); // the value's term of g->names; 0 without a name
void name_remove(Value *v);         // does nothing if it has no name

// The attributes of a kind, all of its row in its order, in the module that owns them from then on;
// `attrs` may be of another module.
const Attr *attrs_interned(Module *m, OpKind kind, const Attr *attrs);

Alike *op_alike(const Op *op); // NULL if ops with equal fields may differ

// An op with operands, outside of the graph: uses are not linked, results have no types and no ids.
// op_insert makes it part of the graph.
Op *op_draft(Graph *g, OpKind kind, Value *const *in, int n_in, int n_out, Origin origin);
void op_insert(Op *op, Op *at);

#endif
