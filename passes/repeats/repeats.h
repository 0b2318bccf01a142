// Repeated subgraphs: the layers of a transformer, the stages of a convolutional network and the
// blocks in them, the experts of a mixture.
//
//     x ─ [norm linear gelu linear add] ─ [norm linear gelu linear add] ─ norm ─ linear
//          block 0, occurrence 0           block 0, occurrence 1          alone   alone
//
// Repeats are found by structure and never by names: occurrences of a block have the same ops,
// attributes, types and wiring. A value from outside is an operand and may be any value of its
// type: the embedding before the first layer, the result of the layer before, a weight, a mask that
// is made once. The same value may be two operands of one occurrence and of no other. Only weights
// and states are distinguished from other values, and trained ones from frozen ones. An op on these
// alone that several ops read alike, as forwards that share their layers do, is in no block.
//
// Blocks nest: a member of an occurrence is an op or an occurrence of another block, and all
// occurrences of a block have the same members. Occurrences do not overlap, and in some order of
// the graph the ops of each are adjacent: `order`.
//
// If a layer recurs, as in its gradients and again in its updates, it is a *family* of blocks:
// occurrence i of one belongs to occurrence i of the others. They are separate blocks because the
// ops between them depend on other layers.

#ifndef REPEATS_H
#define REPEATS_H

#include "ir/graph.h"

typedef struct Occurrence Occurrence;

// An op, or an occurrence of an inner block.
typedef struct Member {
  Op *op; // NULL for an inner occurrence
  Occurrence *inner;
} Member;

typedef struct Block {
  int id;
  int family;    // a common number for blocks that belong together
  int n_members; // of each occurrence, in topological order
  int n_ops;     // inner occurrences included
  int n;
  Occurrence **at; // [n]
} Block;

struct Occurrence {
  const Block *block;
  int index; // its position in block->at
  Member *member;
  Occurrence *outer; // the occurrence that contains it, or NULL
  int position;      // among the members of `outer`
};

// The place of an op: member `position` of an occurrence, or none.
typedef struct OpRepeat {
  Occurrence *occurrence; // NULL: the op does not repeat
  int position;
} OpRepeat;

// The first reader of a parameter that one occurrence reads alone, or together with its family
// only. Parameters correspond if these readers do.
typedef struct ParamRepeat {
  Occurrence *occurrence; // NULL: several read it, or none
  const Op *reader;       // in the occurrence
  int operand;
} ParamRepeat;

typedef struct Repeats {
  int n_blocks;
  Block **block;
  OpRepeat *of_op;       // [n_ops], by id
  ParamRepeat *of_param; // [n_params], by index
  int n_order;
  Member *order; // all ops, with outermost occurrences as one member each
  int n_after;   // ops with every block stored once and a call per occurrence
} Repeats;

// The layers of a model, for a module with few of them, in which other repeats may be found: by
// number of an op of the model (Origin.of), its outermost occurrence, from 1; 0: it is in none.
typedef struct NumberedLayers {
  int n_numbers, n_layers;
  const int *of;
} NumberedLayers;

enum { LEAST_BLOCK = 4 }; // ops, by default

// Blocks have at least `min` ops. `among`, by id, restricts the ops that may be in a block; NULL:
// all. For a whole training step, restrict it to the model: gradients follow by origin.h.
Repeats *repeats_find(const Graph *g, int min, const bool *among, Arena *a);

// Whether two ops are the same member of a block.
bool ops_correspond(const Repeats *r, const Op *x, const Op *y);
// The outermost occurrence that contains the op, or NULL.
Occurrence *op_outermost(const Repeats *r, const Op *op);
// The occurrence of a block of this family that contains the op, directly or not, or NULL.
Occurrence *op_of_family(const Repeats *r, const Op *op, int family);
// Whether the op is in this occurrence, directly or not.
bool op_is_within(const Repeats *r, const Op *op, const Occurrence *o);

#endif
