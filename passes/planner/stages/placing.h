// Shared by the files of place: stages.c (assigns), failed.c (explains failures), explain.c
// (explains assignments).

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
