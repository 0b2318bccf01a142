// Which parts of a graph repeat: the layers of a transformer, the stages of a convolutional
// network and the blocks in them, the experts of a mixture.
//
//     x ─ [norm linear gelu linear add] ─ [norm linear gelu linear add] ─ norm ─ linear
//          block 0, occurrence 0           block 0, occurrence 1          alone   alone
//
// What repeats is found by structure and never by names: occurrences of a block have the same ops,
// attributes, types and wiring.  What comes from outside is an operand and may be anything of its
// type: the embedding before the first layer, what the layer before gave, a weight, a mask that is
// made once.  So may the same value stand for two operands in one occurrence and not in another.
// Only weights and states are told from other values, and trained ones from frozen ones.
//
// Blocks nest: a member of an occurrence is an op or an occurrence of another block, and all
// occurrences of a block have the same members.  Occurrences do not overlap, and there is an order
// of the graph in which each of them stands together: `order`.
//
// Where a layer comes back, as it does in the gradients and again in the updates, it is a *family*
// of blocks: occurrence i of one belongs to occurrence i of the others.  They are blocks of their
// own because what lies between them depends on other layers.

#ifndef REPEATS_H
#define REPEATS_H

#include "ir/graph.h"

typedef struct Occurrence Occurrence;

// An op, or an occurrence of a block that is part of this one.
typedef struct Member {
  Op *op; // NULL where it is the other
  Occurrence *inner;
} Member;

typedef struct Block {
  int id;
  int family;    // the same number of blocks that belong together
  int n_members; // of each occurrence, in an order in which they can run
  int n_ops;     // with those of inner occurrences
  int n;
  Occurrence **at; // [n]
} Block;

struct Occurrence {
  const Block *block;
  int index; // at[index] of its block
  Member *member;
  Occurrence *outer; // whose member it is, or NULL
  int position;      // in that
};

// Where an op is: member `position` of an occurrence, or alone.
typedef struct OpRepeat {
  Occurrence *occurrence; // NULL: nothing is like it
  int position;
} OpRepeat;

// Of a parameter that one occurrence only reads, or one and those of its family: the first to read
// it.  Parameters whose readers correspond correspond.
typedef struct ParamRepeat {
  Occurrence *occurrence; // NULL: several read it, or none
  const Op *reader;       // inside of it
  int operand;
} ParamRepeat;

typedef struct Repeats {
  int n_blocks;
  Block **block;
  OpRepeat *of_op;       // [n_ops], by id
  ParamRepeat *of_param; // [n_params], by index
  int n_order;
  Member *order; // all ops, as few members as there are
  int n_after;   // ops when every block is there once, with a call for each of its occurrences
} Repeats;

enum { LEAST_BLOCK = 4 }; // ops, where nobody says otherwise

// Blocks have at least `min` ops.  `among`, by id, says which ops may be in one; NULL: all.  Of a
// whole training step, that restricts it to the model: gradients follow by origin.h.
Repeats *repeats_find(const Graph *g, int min, const bool *among, Arena *a);

// Whether two ops are the same member of a block.
bool ops_correspond(const Repeats *r, const Op *x, const Op *y);
// The occurrence that is in no other, or NULL.
Occurrence *op_outermost(const Repeats *r, const Op *op);
// The occurrence of a block of this family that it is in, maybe inside of others, or NULL.
Occurrence *op_of_family(const Repeats *r, const Op *op, int family);
// Whether it is in this one, or in one inside of it.
bool op_is_within(const Repeats *r, const Op *op, const Occurrence *o);

#endif
