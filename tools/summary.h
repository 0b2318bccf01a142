// Reports on a compiled module: --summary and --comm-manifest.

#ifndef TOOLS_SUMMARY_H
#define TOOLS_SUMMARY_H

#include "base/vec.h"
#include "cost/cost_step.h"
#include "cost/price_terms.h"
#include "planner/auto/choose.h"
#include "planner/search/search.h"

typedef struct PassSeconds {
  const char *pass;
  double seconds;
} PassSeconds;

typedef Vec(PassSeconds) PassTimes;

typedef struct Summary {
  Arena *arena;
  const char *version;
  int argc; // the command line
  char **argv;
  int ranks;
  const char *plan;              // the chosen plan, as in --plan; NULL: --passes was given
  int64_t micro_batches;         // of a batch
  int n_ops, n_folded, n_blocks; // of the model: ops, ops with every block once, and blocks
  Target target;
  const Cluster *cluster; // for predicted times
  PassTimes seconds;
  Candidates candidates; // of --plan auto, else none
  int chosen;            // index of a candidate; -1: none
  Certificate certificate;
  double choosing; // seconds of the choice
  SearchStats searched;
  const StepCost *step; // of the module, if the choice has computed it; else NULL
} Summary;

// Counts repeated subgraphs of the imported model; simplifies a copy for that.
void summary_before(Summary *s, const Module *m);
void summary_timed(void *summary, const char *pass, double seconds); // PipelineOptions.timed
void summary_searched(void *summary, const SearchStats *found);      // PipelineOptions.searched
const char *summary_command(const Summary *s);                       // as a shell reads it
const char *summary_text(Summary *s, const Module *m);
// The terms of the price of the rank that computes most.  Returns false if a step has no price.
bool summary_prices(const Module *m, const Cluster *c, Target target, Arena *a, int *rank,
                    PriceTerms *out);

// A hash of the decisions, without locations of ops: equal for equal plans of equal models.
uint64_t plan_hash(const Module *m);

// The computation type of the module: "bf16" or "f16" if any value has it, else "f32".
const char *summary_dtype(const Module *m);

// Every collective of a step, as JSON.
const char *manifest_text(Arena *a, const Module *m);
// Their algorithms, protocols and channels as CSV: the file of NCCL's example tuner plugin.
const char *tuner_text(Arena *a, const Module *m, const Cluster *c);

#endif
