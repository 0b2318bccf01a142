// Shared by the files of place: stages.c (the order), options.c (checks), runs.c (candidate runs),
// solution.c and dealt.c (assignments), write_stages.c (their effects), failed.c (explains
// failures), explain.c (explains assignments).

#ifndef STAGES_PLACING_H
#define STAGES_PLACING_H

#include "base/diag.h"
#include "chain.h"
#include "loads.h"
#include "stages.h"

typedef struct Placing {
  Sharding *s;
  int axis, n_ranks;
  const Loc *why;
  const StageOptions *wish;
  const int *batch;
  Units units;
  const Run *run; // candidate runs of stages
  int n_runs;
  Loads *loads;
  const Chain *chain; // of stages of one rank each, in their order; or NULL
  const int *run_of;  // by unit, once solved
  Load load;          // of run_of
} Placing;

enum { PLACING_SECONDS = 10 }; // of the solver, at most

// Checks the options; the units are known.
bool placing_check(const Placing *p, Diag *d);

// -- Runs ----------------------------------------------------------------------------------------

// Whether a stage of so many ranks shares the rows evenly.
bool placing_shares(const Placing *p, int n);
void placing_find_runs(Placing *p, const StageOptions *w);
// Returns the ranks of the stages, several on each rank; `p->run` numbers them as if each had its
// own.
Run *placing_chunk_runs(Placing *p);
// Loads of chunks: each stage has a rank of its own, at the prices of the ranks they run on. A
// message from a later rank to an earlier one costs as much as in the other direction.
void placing_chunk_loads(Placing *p, const Run *on);

// -- Solutions -----------------------------------------------------------------------------------

// Whether each stage is one rank, in the order of the ranks: then chain.h has their exact price.
// The 0/1 program in a file is that of partition.h.
bool placing_is_chain(const Sharding *s, const StageOptions *w, int n_ranks);
// Finds stages that fit with the micro-batches of the schedule in flight, or else with those of
// 1f1b, or with one: less than the passes come to, which may find a way.
bool placing_solve_chain(Placing *p, Stages *out);
// Takes the loads with all micro-batches in flight, if stages fit under them.  They are an
// estimate, so stages that fit only without are left to the passes.
void placing_limit_closely(Placing *p);
// Takes these loads if the stages to which a program deals ops fit under them.
void placing_limit_dealt(Placing *p);
// Finds stages of any ranks; reports an error if there are none.
bool placing_solve(Placing *p, Stages *out, Diag *d);
// Takes the stages to which a program deals ops. `closely`: see placing_limit_dealt.
bool placing_take_dealt(Placing *p, bool closely, Stages *out, Diag *d);
// Returns the number of ranks of each stage.
const int *placing_sizes(const Placing *p, int *n);

// -- Effects -------------------------------------------------------------------------------------

// Assigns the ops to their stages, and splits the rows of these.
void placing_write(const Placing *p);
// Places another graph of the module like the first one.
void placing_as_first(Sharding *s, int axis, const Loc *why);

// -- Explanations --------------------------------------------------------------------------------

// The load of an assignment: of a chain, the slowest stage has lead, tail and sums.
Load placing_load(const Placing *p, const int *run_of);

const Run *placing_run_at(const Placing *p, int rank); // the stage of this rank

// Returns the number of ranks of each stage, and the number of stages, in the best assignment
// without options; NULL: none fits.
const int *placing_open(const Placing *p, int *n_stages);

// Reports that nothing fits: the rank, the bytes that it lacks, their use, and a cure. Returns the
// bytes that this rank needs; 0: no stages can be made, however much memory there is.
double placing_failed(const Placing *p, const PartitionResult *r, Diag *d);

// Returns the stages of the ops of that kind or place, and the step time with each of them on the
// next stage; NULL: no op has that name.
const char *placing_explain(const Placing *p, const char *what);

#endif
