// Tables: the costs of a model's units for one plan inside of stages, as the passes build them.
//
//     tables_get(t, {"zero1=16,sp=4", 64 ranks, 64 micro-batches})
//
//     unit             block  forward  backward  gradients     kept  handed  lasting   sums  update
//     0 embed             -1   0.1 ms      0 ms     0.2 ms     6 MB    6 MB   3.1 GB  11 ms    2 ms
//     1 h.0 attention      0   …
//
// For each run of blocks two cut-outs (cut_out.h) go through all passes of the target: with a few
// occurrences of every block, and with one more of this.  The difference is the cost of an
// occurrence, with everything that the passes join across its ends: fused sums and norms, buckets
// of gradients, updates in one launch.  Its units share it as their own ops take time.  The rest of
// the model gets the remainder.  A run of three layers at most is whole in every cut-out, and has
// none of its own.
//
// Values that several units read, as an encoder's result, are gathered once in a cut-out, and on
// each stage that reads them: the cost of beginning a stage with a unit has that, too.
//
// Seconds are those of the simulated step (cost/cost_step.h), by the op that a rank runs or waits
// for; bytes are those of live ranges (cost/step_lives.h).  So a price is that of the built plan.

#ifndef TABLES_H
#define TABLES_H

#include "blocks.h"
#include "cluster/cluster.h"
#include "ir/op.h"
#include "unit_cost.h"

// The costs of units depend on this.
typedef struct TableShape {
  const char *plan; // within a stage, with sizes, as in --plan: "zero1=16,sp=4"
  int64_t ranks;    // of a stage: the product of the sizes
  int64_t micro_batches;
  RecomputeLevel recompute; // levels up to this one are known
  bool late; // layers cost the same from the third one on, as updates in backward wait for copies
} TableShape;

typedef struct Table {
  UnitCosts costs;
  // Of the plan for the whole model, without stages: seconds of a step, and the bytes of the rank
  // that needs the most.
  double seconds, bytes;
} Table;

// The text of the pipeline that follows the front half, for a plan inside of stages; or NULL if the
// plan is none.
typedef const char *TablePipeline(void *context, Arena *a, const char *plan, int64_t ranks,
                                  int64_t micro_batches, Diag *d);

typedef struct TableOptions {
  const Cluster *cluster; // with a known speed
  int64_t ranks;          // of a plan: all stages
  Target target;
  TablePipeline *pipeline;
  void *context;
  struct PathStore *paths; // of all cut-outs (paths/path_store.h), or NULL
  const struct Stop *stop; // ends a table without a result (base/stop.h), or NULL
} TableOptions;

typedef struct Tables Tables;

// `front`: the model before the first pass that depends on a plan; it must last.
Tables *tables_new(Module *front, const TableOptions *o, Arena *a);
void tables_free(Tables *t); // the cut-outs; tables stay
const ModelUnits *tables_blocks(const Tables *t);
// Tables are kept.  NULL: the shape cannot be made; *why is the first error of the passes.
const Table *tables_get(Tables *t, const TableShape *shape, const char **why);
// The table of a shape that tables_get made, or NULL.
const Table *tables_find(const Tables *t, const TableShape *shape);
// Reports all errors of a shape that tables_get cannot make: its passes run once more.
void tables_report(const Tables *t, const TableShape *shape, const char *why, Diag *d);
// The bytes of a rank that has all units: of the whole step, saved by the units up to one, and the
// largest others of this one; or those of updates.
double units_bytes(const UnitCosts *c);
int tables_built(const Tables *t); // how many cut-outs have gone through the passes

#endif
