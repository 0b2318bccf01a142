// What --summary and --comm-manifest say of a compiled module.

#ifndef TOOLS_SUMMARY_H
#define TOOLS_SUMMARY_H

#include "base/vec.h"
#include "planner/auto/choose.h"
#include "planner/search/search.h"

typedef struct PassSeconds {
  const char *pass;
  double seconds;
} PassSeconds;

typedef struct Summary {
  Arena *arena;
  const char *version;
  int argc; // the command line
  char **argv;
  int ranks;
  const char *plan;              // that was taken, as in --plan; NULL: passes were said
  int64_t micro_batches;         // of a batch
  int n_ops, n_folded, n_blocks; // of the model: with every block once, and how many blocks
  Target target;
  const Cluster *cluster; // that times are predicted for
  Vec(PassSeconds) seconds;
  Candidates candidates; // of --plan auto, else none
  int chosen;            // of these; -1
  double choosing;       // seconds
  SearchStats searched;
} Summary;

// Counts what repeats in the model as it was imported; simplifies a copy for that.
void summary_before(Summary *s, const Module *m);
void summary_timed(void *summary, const char *pass, double seconds); // PipelineOptions.timed
void summary_searched(void *summary, const SearchStats *found);      // PipelineOptions.searched
const char *summary_command(const Summary *s);                       // as a shell reads it
const char *summary_text(Summary *s, const Module *m);

// The type that the module computes in: "bf16" or "f16" where any value is of it, else "f32".
const char *summary_dtype(const Module *m);

// Every collective of a step: JSON, or CSV as NCCL's example tuner plugin reads it.
const char *manifest_text(Arena *a, const Module *m, bool csv);

#endif
