// Plans: Lua programs that shard a model over the axes of a mesh.
//
//     dp                data parallelism over all ranks
//     dp=2,tp=4         over an axis of 2, and tensor parallelism over an inner axis of 4
//     dp,tp=4           the same on 8 ranks: dp takes the remaining factor
//     search=2x4        over 8 ranks, factored by its program into axes of 2 and 4: factoring.h
//     my.lua=4          a file; its axis is named my
//     coshard:4=1       with a number for the program, 4, in its function `numbers`
//     coshard:4@1-4:2@5 several, for layers 1 to 4 and for layer 5
//
// A program fixes some of a plan and leaves the rest to shard.  Named programs are the files of
// passes/planner/plans; its README documents the language.

#ifndef PLAN_H
#define PLAN_H

#include "plan_numbers.h"
#include "repeats/repeats.h"
#include "sharding/sharding.h"

typedef struct PlanProgram PlanProgram;

// One program and its axes of the mesh.
typedef struct PlanAxes {
  const char *program; // a name or a file, with its numbers
  const char *axis;    // the axis name
  int64_t size;        // ranks
  int n_factors;       // factors of the ranks; at most 1: the factoring is open
  int64_t factor[MAX_AXES];
} PlanAxes;

enum { MAX_PLAN = 5 };

typedef struct Plan {
  PlanAxes at[MAX_PLAN]; // outermost first
  int n;
} Plan;

// A program with its numbers, "coshard:4@1-4:2@5".
typedef struct PlanCall {
  const char *text;
  const char *name; // or the file
  PlanNumber *at;   // [n]
  int n;
} PlanCall;

// Reads the text of a program.  False after an error.
bool plan_call(Arena *a, const char *text, PlanCall *out, Diag *d);
// Parses the text of --plan; the sizes multiply to `ranks`.  False after an error.
bool plan_parse(Arena *a, const char *text, int64_t ranks, Plan *out, Diag *d);
// Whether a program is a file, existing or not, or a built-in; otherwise false, with an error.
bool plan_known(const char *text, Arena *a, Diag *d);
// Whether a program is known, and is a file or takes numbers; otherwise false, with an error.
bool plan_may_have_numbers(const char *name, Arena *a, Diag *d);
// The program of the i-th device axis in a pass's option `plan`: "dp" applies to all axes, "dp,tp"
// has one for each; NULL and "auto" mean dp.
const char *plan_program(Arena *a, const char *plan, int i);

// Runs the file once, to find its definitions.  NULL after an error.
PlanProgram *program_open(Arena *a, const char *called, Diag *d);
void program_close(PlanProgram *p);
// A program's factoring of its axis of ranks into axes, outermost first.
typedef struct Factors {
  int n;
  int64_t size[MAX_AXES];
  const char *name[MAX_AXES]; // of the axes; NULL: shard picks one
} Factors;

enum { MAX_FACTORINGS = 64 };

// All factorings that the program accepts, from its function `factors`; without that, the axis as
// it is.  Returns their number; 0 after an error.
int program_factors(PlanProgram *p, int64_t n, Factors out[MAX_FACTORINGS]);
// The number of micro-batches that the program requires, its `micro_batches`, and the line of that;
// 0: any.  Negative after an error.
int64_t program_micro_batches(PlanProgram *p, const Loc **loc);
// The same of its `peak_bytes`: the bytes of the rank with the most, when it was saved.
int64_t program_peak_bytes(PlanProgram *p, const Loc **loc);
// Ranks of a program, while the model changes.  0: unknown.
typedef struct PlanRanks {
  int own; // of all its axes
  int all; // with those of the programs inside of it
} PlanRanks;

// Runs its function `model`, which may change the model before autodiff, and records the changes.
// `layers` is of the graph: all programs of the plan share it.  False after an error.
typedef struct PlanLayers PlanLayers;
PlanLayers *plan_layers_new(Arena *a);
// Those of a model that the graph is cut from are its layers.
void plan_layers_set(PlanLayers *layers, const Graph *g, const NumberedLayers *of);
bool program_model(PlanProgram *p, Graph *g, PlanLayers *layers, PlanRanks ranks,
                   struct Record *record);
// Runs its function `step`, which adds constraints along `axis[n]`, axes of the mesh.  False after
// an error.
bool program_step(PlanProgram *p, Sharding *s, const int *axis, int n);
// Runs its function `inside`, if there is one, along each of the axes of a program inside of its
// own, before that program's `step`.  False after an error.
bool program_inside(PlanProgram *p, Sharding *s, const int *axis, int n);
// Whether it has that function. A program on one rank has no axis, and its function is not run.
bool program_has_inside(const PlanProgram *p);

#endif
