// The decisions of shard and of plan programs so far about one graph.
//
// Layouts are found axis by axis, the innermost first: programs constrain an axis (plan.h), and
// shard completes it, before the next axis. Splits are stored in Op.split, and layouts along each
// axis in `decisions.layout`, until Value.layout is made from them; until then a value's layout
// gives only its mesh (assign.h). All meshes have the same axes: `mesh` has all ranks of each,
// another mesh may have fewer.

#ifndef SHARDING_H
#define SHARDING_H

#include "cluster/cluster.h"
#include "ir/op.h"
#include "ir/split.h"
#include "order.h"

enum { MAX_MICRO_BATCHES = 256 }; // tried for a step that does not fit in fewer

// The choice of a parameter's layout along an axis.
typedef enum ParamChoice {
  PARAM_open,   // shard chooses
  PARAM_fixed,  // a program chose
  PARAM_stored, // a program chose, for storage only: its use does not split readers
} ParamChoice;

typedef struct Ranks Ranks;           // of an axis: assign.h
typedef struct Constraint Constraint; // on one op or parameter along one axis: constraints.h

// Limits, prices and outputs of the searches; nothing here is decided.
typedef struct SearchEnv {
  const Cluster *cluster;      // for the estimates of a search
  Target target;               // of the step: it decides the kernels
  struct SearchStats *stats;   // totals over all searches
  struct LifetimeCache *lives; // live ranges of the step's values (planner/search/lives.h), or NULL
  struct SolutionCache *solutions; // of searches, to be stored or reused; or NULL
  int64_t memory;                  // capacity of a rank that searches assume; 0: the device's
  int64_t work;                    // limit of the solver's work per search; 0: about 1 s of it
  double seconds;           // limit of a search by the clock, instead of one in work; 0: none
  const struct Stop *stop;  // ends searches (base/stop.h), or NULL
  double worth;             // seconds of a step beyond which a search finds nothing; 0: none
  bool tried;               // one of several factorings: a failure needs no explanation
  bool routed;              // comm will take the cheapest routes over the cluster
  bool limited;             // stages are limited to the memory of the cluster's devices
  const char *problem_file; // for the problem of the last search; NULL: none
  const char *lp_file;      // for the 0/1 program that places ops; NULL: none
  const char *explain;      // name of the op with the split to explain; NULL: none
  const Op *about;          // a search is about this op only and decides nothing; or NULL
  const bool *among;        // by op id, of the model: a search decides these only; NULL: all
} SearchEnv;

// The constraints of programs, the latest first.
typedef struct Constraints {
  const Constraint *(*op)[MAX_AXES];    // by op id: on its split
  const Constraint *(*value)[MAX_AXES]; // by value id of parameters: on the layout
  Orders orders;
} Constraints;

// The results so far.  Splits of ops are in Op.split.  Only sharding/ sets them: decide.h.
typedef struct Decisions {
  const Loc *(
      *fixed_by)[MAX_AXES];   // by op id: the line of the program that chose the split, or NULL
  bool (*assigned)[MAX_AXES]; // by op id: its ranks are known, and are `ranks`
  const Ranks *(*ranks)[MAX_AXES];
  const Loc *(*assigned_by)[MAX_AXES]; // the line of the program, or NULL
  Sbp (*layout)[MAX_AXES];             // by value id
  ParamChoice (*param)[MAX_AXES];      // by value id of parameters
  const Loc *(*param_by)[MAX_AXES];    // the line of the program, or NULL
  bool final[MAX_AXES];                // by axis: layouts and splits will not change
  // The stages that a program placed open ops on (planner/stages/stages.h), and these ops, by id.
  struct Placed {
    const Loc *why; // NULL: not placed
    int n_stages;
    const int *size; // [n_stages] ranks of each
    double seconds;  // of a step, of the slowest stage
    double bytes;    // the largest of a rank
  } placed[MAX_AXES];
  bool (*placed_op)[MAX_AXES];
} Decisions;

typedef struct Sharding {
  Graph *g;
  const Mesh *mesh; // with all ranks
  Arena *scratch;
  SearchEnv env;
  Constraints constraints;
  Decisions decisions;
  uint32_t n_ops, n_values;        // sizes of their tables
  const Dims **dims;               // by op id, with global shapes; see dims_of
  struct Repeats *repeats;         // recomputed values, once asked for: see kept_of
  struct Analyses *analyses;       // of the graph, once computed
  struct Record *record;           // of the programs' calls, or NULL
  const struct Sharding *first;    // of the module's first graph; NULL for that
  const struct Sections *sections; // of the plan, or NULL; and the current one
  int section;
  bool guessing; // on a copy, to predict outer programs: no search
} Sharding;

// Extends the tables to all ops and values of the graph. A new op gets the ranks of its operands.
void sharding_grow(Sharding *s);
// The same if `op` is the only new op and recomputes nothing: without a walk over the graph.
void sharding_add(Sharding *s, Op *op);
// Puts a new op on a mesh, with the assignment of the op `like`, which may be erased.
void sharding_place_as(Sharding *s, Op *op, const Mesh *mesh, uint32_t like);
const Dims *dims_of(const Sharding *s, const Op *op);
// To be called after a change of the type of the op's result.
void dims_forget(Sharding *s, const Op *op);
// The value of the model that `v` recomputes (recompute.c), with the same layout; else `v` itself.
const Value *kept_of(const Sharding *s, const Value *v);
// The op of the model that `op` recomputes; NULL: none.
const Op *repeated_by(const Sharding *s, const Op *op);
// The op of the model that `op` recomputes or is part of the gradient of. If several ops replaced
// that one: the one with the operands of `op`, or the first in `model` (origin.h). NULL: none.
const Op *model_op_of(const Sharding *s, const Op *op, const Op *const *model);
// The number of ranks of the axis that run the op, or that have the value.
int op_ranks(const Op *op, int axis);
int value_ranks(const Value *v, int axis);

// Whether dimension `dim` of parameter `v` can be sharded along `axis` besides the other axes.
bool param_cuts(const Sharding *s, const Value *v, int dim, int axis);
// The same if its layout was `layout`, by axis.
bool layout_cuts(const Sharding *s, const Value *v, const Sbp *layout, int dim, int axis);
// The letter of `op` that is split if operand `i` is sharded along dimension `dim`; -1: it cannot
// be.
int letter_of_operand(const Sharding *s, const Op *op, int i, int dim, int axis);

#endif
