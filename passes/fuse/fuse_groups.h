// Which ops become one kernel: groups that pass fuse (fuse.c) makes bodies of.
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

// Ops of one body.
typedef struct Group {
  Vec(Op *) member; // in the order of the graph
  int64_t count;
  Loops loops;
  SumKind sum;
  int64_t n_kept;
} Group;

typedef struct FuseGroups {
  Graph *g;
  Arena *scratch;
  uint32_t n_ops;        // there were so many; fused ops have ids from here on
  Group **group;         // by op id, NULL for ops in none
  bool *whole;           // by value id: a broadcast that is memory, and is not read as strides
  Op **before;           // by op id: of one that has a turn the one whose turn was before, or NULL
  const bool *reported;  // by op id: of the update, and for outputs alone; NULL: that is no matter
  uint32_t *seen, stamp; // by op id, for walks
} FuseGroups;

// Of a graph whose ids have no gaps.
FuseGroups *fuse_groups_find(Graph *g, Arena *scratch);

Group *group_of(const FuseGroups *f, const Op *op); // NULL: it is in none
// Whether `v` is made in one of the two groups, and whether anything but their members reads it,
// which see through views.
bool in_group(const FuseGroups *f, const Value *v, const Group *a, const Group *b);
bool read_outside(const FuseGroups *f, const Value *v, const Group *a, const Group *b);

// Views do not move elements; scalars are one number; what is read as strides is no memory.
bool fuse_is_view(const Op *op);
bool fuse_is_scalar(const Value *v);
bool fuse_is_strides(const FuseGroups *f, const Value *v);
Value *through_views(Value *v);

#endif
