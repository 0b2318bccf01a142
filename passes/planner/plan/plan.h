// Plans: programs in Lua that say how a model is spread over the axes of a mesh.
//
//     dp                data parallelism over all ranks
//     dp=2,tp=4         over an axis of 2, and tensor parallelism over one of 4 inside of it
//     dp,tp=4           the same on 8 ranks: dp takes what is left
//     search=2x4        over 8 ranks, which its program cuts in an axis of 2 and one of 4: factoring.h
//     my.lua=4          a file; its axis is called my
//
// A program fixes some of a plan and leaves the rest to shard.  Those with a name are the files of
// passes/planner/plans; its README is the language.

#ifndef PLAN_H
#define PLAN_H

#include "sharding/sharding.h"

typedef struct PlanProgram PlanProgram;

// One program and the axes of the mesh that are its own.
typedef struct PlanAxes {
  const char *program; // a name or a file
  const char *axis;    // what its axis is called
  int64_t size;        // ranks
  int n_factors;       // into which sizes they are cut; at most 1: that is left open
  int64_t factor[MAX_AXES];
} PlanAxes;

enum { MAX_PLAN = 4 };

typedef struct Plan {
  PlanAxes at[MAX_PLAN]; // outermost first
  int n;
} Plan;

// Reads the text of --plan; the sizes multiply to `ranks`.  False, having reported why.
bool plan_parse(Arena *a, const char *text, int64_t ranks, Plan *out, Diag *d);
// Whether a program is a file, there or not, or one of these; otherwise false, having reported it.
bool plan_known(const char *program, Arena *a, Diag *d);
// The program of the i-th axis of devices in a pass's option `plan`: "dp" is that of all axes,
// "dp,tp" has one for each; NULL and "auto" are dp.
const char *plan_program(Arena *a, const char *plan, int i);

// Runs the file once, to know what it defines.  NULL, having reported why.
PlanProgram *program_open(Arena *a, const char *name, Diag *d);
void program_close(PlanProgram *p);
// The axes that the program wants its axis of ranks cut into, outermost first.
typedef struct Factors {
  int n;
  int64_t size[MAX_AXES];
  const char *name[MAX_AXES]; // of the axes; NULL: shard finds one
} Factors;

enum { MAX_FACTORINGS = 64 };

// All that it would take, as its function `factors` says; without one, that axis as it is.  How
// many; 0, having reported why.
int program_factors(PlanProgram *p, int64_t n, Factors out[MAX_FACTORINGS]);
// The micro-batches that it is for, as its `micro_batches` says, and where; 0: any.  Less than 0,
// having reported why.
int64_t program_micro_batches(PlanProgram *p, const Loc **said);
// Lets it change the model, before there are gradients, and records what that is.  False, having
// reported why.
bool program_model(PlanProgram *p, Graph *g, struct Record *record);
// Lets it say what it wants of `axis[n]`, which are axes of the mesh.  False, having reported why.
bool program_step(PlanProgram *p, Sharding *s, const int *axis, int n);

#endif
