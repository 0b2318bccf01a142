// What the files of place share: stages.c (does it), failed.c (why it cannot be), explain.c (why it
// is so).

#ifndef STAGES_PLACING_H
#define STAGES_PLACING_H

#include "base/diag.h"
#include "loads.h"
#include "stages.h"

typedef struct Placing {
  Sharding *s;
  int axis, n_ranks;
  const Loc *why;
  const StageOptions *wish;
  const int *rows;
  Units units;
  const Run *run; // that stages may be
  int n_runs;
  Loads *loads;
  const int *run_of; // by unit, once it is solved
  Load load;         // of that
} Placing;

const Run *placing_run_at(const Placing *p, int rank); // the stage of this rank

// With as many stages of as many ranks as are best, whatever was asked for: how many ranks each of
// them has where that fits, and how many stages; NULL: it does not.
const int *placing_open(const Placing *p, int *n_stages);

// Reports that nothing fits: which rank lacks how many bytes, what they are for, and what would
// help.  Returns that number of bytes; 0: no stages can be made, however much memory there is.
double placing_failed(const Placing *p, const PartitionResult *r, Diag *d);

// Where ops of that kind or place are, and what it would take to have them on the next stage; NULL:
// nothing is called so.
const char *placing_explain(const Placing *p, const char *what);

#endif
