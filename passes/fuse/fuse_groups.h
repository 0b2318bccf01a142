// Groups of ops that become one kernel each: pass fuse (fuse.c) makes bodies of them.
//
//     %1 = broadcast %b …       in no group: bodies read it as strides
//     %2 = add %y, %1           group 0, of 24 points
//     %3 = gelu %2              group 0
//     %4 = reduce_sum %3        group 0, which adds up rows
//     %5 = linear %3, %w        in no group
//
// Every elementwise op is in a group, if only its own; so is a fill that must be memory.

#ifndef FUSE_GROUPS_H
#define FUSE_GROUPS_H

#include "base/vec.h"
#include "ir/analysis/loops.h"

// The ops of one body.
typedef struct Group {
  Vec(Op *) member; // in the order of the graph
  int64_t count;    // of points: elements of the elementwise results
  Loops loops;      // over the points
  SumKind sum;      // the dimensions that its reduce_sums reduce; SUM_none: it has none
  int64_t n_kept;   // elements of the result of such a sum
  uint32_t node;    // the id of the member that has its place in FuseGroups.places
} Group;

// A place in an order of groups, and of ops in no group, in which each is after its operands.
typedef struct FusePlace {
  int64_t label;       // larger than that of the place before
  uint32_t prev, next; // FuseGroups.n_ops: none
} FusePlace;

// A tree of all ops: an op's parent is the last of the ops that make its operands. All ops below an
// op have numbers in a row, from its own on.
typedef struct FuseTree {
  uint32_t number, size; // size: of the op and all below it
} FuseTree;

// A node that a walk met.
typedef struct FuseVisit {
  int64_t label;
  uint32_t node;
} FuseVisit;

typedef struct FuseGroups {
  Graph *g;
  Arena *scratch;
  uint32_t n_ops;        // before fusion; fused ops have ids from here on
  const Op **op;         // by id
  Group **group;         // by op id; NULL: none
  bool *whole;           // by value id: a broadcast that is stored, not read as strides
  Op **before;           // by op id, for an op with an order: the op with the order before; or NULL
  const bool *reported;  // by op id: an update op that serves outputs only; NULL: irrelevant
  FusePlace *places;     // by op id; those of ops in a group, but one, are out of use
  FuseTree *tree;        // by op id
  uint32_t *seen, stamp; // by op id, for walks
  uint32_t *reader;      // likewise, for the readers of a group
  Vec(uint32_t) pending; // nodes
  Vec(FuseVisit) visited;
  int64_t n_visited; // of all walks
} FuseGroups;

// Requires ids without gaps.  `each`: every op is a group of its own.
FuseGroups *fuse_groups_find(Graph *g, bool each, Arena *scratch);

Group *group_of(const FuseGroups *f, const Op *op); // NULL: none
// Whether one of the two groups produces `v`, and whether an op other than their members reads it.
// Members see through views.
bool in_group(const FuseGroups *f, const Value *v, const Group *a, const Group *b);
bool read_outside(const FuseGroups *f, const Value *v, const Group *a, const Group *b);

// Whether a joint group of both would depend on itself: a path leads out of it and back. If not,
// f->visited has the nodes between the two on which they depend. Not of small groups without
// dependents: they are joined last, and have no places of their own.
bool fuse_makes_cycle(FuseGroups *f, const Group *a, const Group *b);

// Views do not move elements; scalars are one number; a broadcast read as strides is not stored.
bool fuse_is_view(const Op *op);
bool fuse_is_scalar(const Value *v);
bool fuse_is_strides(const FuseGroups *f, const Value *v);
Value *through_views(Value *v);

#endif
