// nnaot-plan fit: a model on several clusters.
//
//     cluster    devices  plan   micro-batches  step ms  samples/s     peak   memory
//     h100:1x4         4  zero1              2    12.31      10397  61.2 GB  84.9 GB
//     a100:1x4         4  does not fit: zero3 in 32 micro-batches needs 92.1 GB of 84.6 GB, 7.50 GB too many
//
//     plan_fit.c     the command, and the rows
//     fit_text.c     the table, the answer below it, and both as JSON

#ifndef TOOLS_FIT_H
#define TOOLS_FIT_H

#include "base/vec.h"
#include "cost/price_terms.h"
#include "planner/auto/choose.h"

typedef struct FitRow {
  const char *name; // as on the command line
  const Cluster *cluster;
  int devices;
  // NULL: no plan could be made.  Else the best of those that fit, or the one that needs least.
  const Candidate *best;
  const char *why;     // without `best`: the first error
  double least;        // and the bytes of a rank that a plan would need at least; 0: not known
  int n_tried;         // candidates
  double memory;       // bytes of a device, of the rank that needs most; 0: not known
  double rows, tokens; // of a step; tokens are 0 if the model looks up none
  bool requested;      // the plan, by the user
  bool cut;            // --micro-batches is given, and a batch has rows for other numbers
  int priced_rank;     // the rank of `prices`
  PriceTerms prices;   // with --verbose: how its step was priced
  // Changes with which it would fit; NULL: nothing was found.
  const char *wider; // more nodes: a cluster, and its plan
  const char *other; // another plan than the requested one
  int nodes_tried;   // for `wider`, at most
} FitRow;

typedef Vec(FitRow) FitRows;

bool fit_fits(const FitRow *r);
// Returns the bytes that a device lacks; 0: none, or not known.
double fit_lacks(const FitRow *r);
// Returns the index of the smallest cluster that fits, -1: none: the one with the fewest devices,
// then with the least memory of all of them, then the first; those of unknown memory come last.
int fit_smallest(const FitRows *rows);

// The table, with the answers below it; `verbose`: with the memory of every plan by use.
const char *fit_text(Arena *a, const FitRows *rows, bool verbose);
const char *fit_json(Arena *a, const FitRows *rows, const char *model);

#endif
