// What shard and the programs of plans have decided so far about one graph.
//
// Layouts are found axis by axis, the innermost first: programs say what they want of an axis
// (plan.h), and shard finds the rest of it, before the next axis is looked at.  Splits are kept in
// Op.split, how values lie in `lies`, until the layouts are made of it; until then a value's layout
// says on which mesh it is (assign.h), and no more.  All meshes have the same axes: `mesh` has all
// ranks of each, another fewer of some.

#ifndef SHARDING_H
#define SHARDING_H

#include "cluster/cluster.h"
#include "ir/op.h"
#include "ir/split.h"
#include "order.h"

enum { MAX_MICRO_BATCHES = 256 }; // that are tried of a step that does not fit in fewer

// How a parameter came to lie as it does along an axis.
typedef enum Given {
  OPEN,   // shard may choose
  FIXED,  // a program said so
  STORED, // the same, but it is used whole: readers are not split because of it
} Given;

typedef struct Ranks Ranks; // of an axis: assign.h
typedef struct Said Said;   // constraints on one op or parameter along one axis: constraints.h

typedef struct Sharding {
  Graph *g;
  const Mesh *mesh; // of all ranks
  Arena *scratch;
  const Cluster *cluster;       // that a search prices plans on
  Target target;                // of the step, which decides its kernels
  struct SearchStats *searched; // of all searches, added up
  struct LifetimeCache *lives; // live ranges of the step's values (planner/search/lives.h), or NULL
  int64_t memory;              // capacity of a rank that searches assume; 0: the device's
  int64_t work;                // that the solver may do for one search; 0: about 1 s of it
  double worth;                // seconds of a step beyond which a search may give up; 0: none
  bool tried;                  // as one of several factorings: its failure needs no explanation
  struct SolutionCache *answers; // of its searches, to be kept or used again, or NULL
  const char *problem;           // a file for the problem of the last search; NULL: none
  const char *explain;           // the op whose split a search explains; NULL: none
  const Op *about;       // a search is asked about this op only, and decides nothing; or NULL
  const Dims **dims;     // by op id, of the whole; see dims_of
  struct Record *record; // of the programs' calls, or NULL
  const char *lp;        // a file for the 0/1 program that places ops; or NULL
  bool routed;           // comm will take the cheapest routes over the cluster
  bool limited;          // stages have the memory of the cluster's devices, and no more
  const struct Sharding *first;  // of the module's first graph; of that NULL
  Orders orders;                 // which ops programs want to run before which
  const Loc *(*fixed)[MAX_AXES]; // by op id: where a program chose the split, or NULL
  bool (*assigned)[MAX_AXES];    // by op id: where it runs is known, and these are the ranks
  const Ranks *(*ranks)[MAX_AXES];
  const Loc *(*assigned_by)[MAX_AXES]; // where a program said it, or NULL
  const Said *(*said)[MAX_AXES];       // by op id: among which splits it may split, the last first
  uint32_t n_ops;                      // that these are for
  Sbp (*lies)[MAX_AXES];               // by value id
  Given (*given)[MAX_AXES];            // the same, of parameters
  const Loc *(*given_by)[MAX_AXES];    // where a program said it, or NULL
  const Said *(*said_lies)[MAX_AXES];  // the same: among which splits they may lie
  uint32_t n_values;                   // that these are for
  struct TimedOnce *timed;             // what time will cut, once that was asked
  const Value **kept;                  // by value id; see kept_of.  NULL: nothing is computed anew
  bool decided[MAX_AXES];              // by axis: what lies and splits say is final
  const struct Sections *sections;     // whose programs have their say, or NULL; and which does now
  int section;
  bool guessing;             // it is of a copy, to see what outer programs do: nothing is searched
  const struct Outer *outer; // what is assumed of them while a search lasts, or NULL
  // The stages that a program placed open ops on (planner/stages/stages.h), and these ops, by id.
  struct Placed {
    const Loc *why; // NULL: nowhere
    int n_stages;
    const int *size; // [n_stages] ranks of each
  } placed[MAX_AXES];
  bool (*placed_op)[MAX_AXES];
} Sharding;

// Makes room for all ops and values of the graph; those that are new are where their operands are.
void sharding_grow(Sharding *s);
// The same where `op` is all that is new, and does nothing anew: without a walk over the graph.
void sharding_add(Sharding *s, Op *op);
const Dims *dims_of(const Sharding *s, const Op *op);
// The value of the model that `v` is computed anew for (recompute.c), which lies as that does; else
// `v` itself.
const Value *kept_of(const Sharding *s, const Value *v);
// The op of the model that `op` does again; NULL: none.
const Op *repeated_by(const Sharding *s, const Op *op);
// The op of the model that `op` does again or is part of the gradient of; if that became
// several, the one with the operands of `op`, or the first that `model` (origin.h) has.  NULL:
// none.
const Op *model_op_of(const Sharding *s, const Op *op, const Op *const *model);
// Ranks of the axis that the op runs on; that the value is on.
int op_ranks(const Op *op, int axis);
int value_ranks(const Value *v, int axis);

// Whether dimension `dim` of parameter `v` can be cut along `axis` besides what already cuts it.
bool param_cuts(const Sharding *s, const Value *v, int dim, int axis);
// The letter of `op` that is split when operand `i` comes in cut along dimension `dim`, if that can
// be split; otherwise -1.
int letter_of_operand(const Sharding *s, const Op *op, int i, int dim, int axis);

#endif
