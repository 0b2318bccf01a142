// `--plan auto`: compiles every plan that may be the best one, prices it, and takes the cheapest
// that fits into memory.
//
//     candidate       step      peak
//     dp              3.1 ms    2.4 GB
//     zero1           3.3 ms    1.3 GB
//     dp=4,sp=2       4.0 ms    1.4 GB
//     search          2.9 ms    1.9 GB    taken
//     search=2x4      3.0 ms    1.9 GB
//
// Candidates are the programs of passes/planner/plans, alone and a data-parallel one outside of a
// tensor-parallel one of every degree, and searches: `search`, the factorings of the ranks that it
// prices about as low as its best, and `search_added`. All plans of the latter are also considered
// by `search`, but a search's estimate is not the whole step.
//
// Each candidate runs through the whole pipeline of its target, so the price is that of the
// executed program: its collectives after fusion, its memory as placed by plan_memory. If none of
// them fits, or the best only in several micro-batches, the inside of layers is recomputed
// (recompute.c) or offloaded to host memory until backward (swap.c), with each of the others. If
// that does not fit either, or none of them can be made, stages are tried, alone and with one of
// the others. If still none fits in one micro-batch, data parallelism is tried with the optimizer
// states in host memory (offload.c). Last, plans that were compiled and lack memory get the same
// savers, if they may then be the best (relief.h). If still nothing fits, so are their sums of
// gradients over micro-batches in host memory (offload_gradients.c).
//
// If something fits, stages are tried if they may be faster (pipelines.h). If a search prefers to
// share nothing, as in very small models, a search is tried inside of data parallelism over some of
// the ranks. A plan that cannot be made of the model is no candidate, nor is one by which all ranks
// do the same. Among those that take up to 1 % more than the cheapest, the one with the most ranks
// sharing the work is taken. A plan that does not fit is tried again with more micro-batches, as
// long as that may help; stages are also tried with enough micro-batches to be busy most of the
// time.
//
// If memory is short, a search runs several times and assumes more or less of it, as the needs of
// its plans are only known after compilation (memory_budget.h). It also runs again with less memory
// if all ranks do the same under its plan; but not if less memory would have to make it faster.
// If such a plan needed the expected bytes in fewer micro-batches, a search that finds nothing is
// not repeated with more memory. A search of a large model ends when its bound is
// above the best plan so far, and is then not repeated in more micro-batches, which take no less.
// A search of a smaller space is not tried if that of a larger one proved that nothing fits, or is
// as fast.
//
// Without a named plan, all searches together have one budget of work, counted instead of timed,
// and each gets a part of the rest, so that many searches do not multiply the time. For a small
// model its next best answers are compiled, too (planner/search/k_best.c).

#ifndef CHOOSE_H
#define CHOOSE_H

#include <math.h>

#include "base/vec.h"
#include "cluster/cluster.h"
#include "ir/op.h"
#include "memory_breakdown.h"
#include "memory_budget.h"
#include "pass.h"
#include "step_work.h"

// A search that may factor the ranks in several ways takes the factoring with the lowest price;
// factorings of about the same price are candidates, too, and their plans say so: `search=2x4`.
typedef struct Candidate {
  const char *plan; // as in --plan
  int64_t ranks, micro_batches;
  int n_others, other[2]; // factorings by number, if `plan` leaves that open: worth a try, too
  int64_t work;           // limit of each of its searches; 0: no limit
  int64_t memory;         // capacity that its searches assume (memory_budget.h); 0: a device's
  double worth;           // seconds of the best earlier one that fits; 0: none does
  double wanted;          // seconds beyond which its searches find nothing; 0: none
  bool *slow_factorings;  // of its search, by number (LifetimeCache.slow), or NULL
  bool exact;             // in fewer micro-batches it needed the memory that its search had seen
  double priced;          // seconds that the search of auto expected (auto.h); 0: it did not
  double priced_bytes;    // likewise, of the rank with the most; 0: by no table
  const char *why;        // if it could not be made: the first error
  bool excluded;          // then: it was not tried, by its bound or estimate
  bool lacks;             // of these: memory, by its bound of bytes
  bool stopped;           // or its compilation ended early, without a result
  bool needs_less;        // the reason is memory: a search found that nothing fits
  bool slow;              // or a search proved that all take longer than `wanted`, in any memory
  bool proved;            // no search was cut off
  double needed;          // bytes that every answer of its search takes (SearchStats); 0: unknown
  double least;           // then: bytes of a rank under the plan that needs least; 0: unknown
  int64_t least_slices;   // micro-batches of that plan
  const char *least_why;
  bool searched; // a search ran: the result of a round, the work of all rounds
  double work_done;
  Round round;
  bool made;                   // else nothing below is known
  bool fits;                   // into a device's memory
  double seconds;              // of a step
  const struct StepCost *step; // of the module that is kept; NULL: unknown
  int sharing; // ranks that share the work (redundancy.h); the rest repeat it, or are idle
  bool alike;  // a search prefers that all ranks do the same
  struct LifetimeCache
      *known; // answers of its searches (planner/search/lives.h), for the next compilation
  Needs needs;
} Candidate;

typedef Vec(Candidate) Candidates;

// The result of the search of auto (auto.h): how many points of its space there were, and what no
// plan of it can be below.
typedef struct Certificate {
  int points;        // of the space; 0: it was not searched
  int impossible;    // they lack memory, by a bound
  double lacks;      // bytes that a rank takes at least under any plan, if no plan can fit; or 0
  int unlikely;      // they lack memory, by tables or an estimate
  int refused;       // the passes refuse them, by tables
  int recomputed;    // further points: some of these with recomputation, as they do not fit
  int offloaded;     // and with states in host memory, as well as or without recomputation
  int swapped;       // and with saved activations in host memory, as well as or without both
  int estimated;     // with a price by tables, or an estimate
  int tables;        // cut-outs compiled for tables
  int built, failed; // compiled by the search; of these, those that cannot be made
  int excluded;      // other candidates that were not compiled, by bounds and estimates
  double best;       // seconds of the best plan; 0: none fits
  double bound;      // least seconds of any plan of the space; 0: unknown
  double tabled;     // the same by tables, of any deal of units to stages; 0: unknown
  double priced;     // least price, or estimate, of the plans that were not compiled; 0: none
  const char *binds; // the largest term of that bound (bounds.h)
  int unpriced;      // points without a price, that may be better than the best plan
  bool stopped;      // the choice ended early
} Certificate;

// Returns the pipeline that makes a training step by this plan.
typedef const char *MakePipeline(void *context, const Candidate *c);

// Returns the options of passes for a candidate with a module that may be the result. Their
// observers have findings, which KeepRun returns after the run; TakeRun restores those of the run
// that made the result.
typedef const PipelineOptions *RunOptions(void *context);
typedef void *KeepRun(void *context);
typedef void TakeRun(void *context, void *findings);

// The text of the pipeline after `raise` for a plan inside of stages, for tables of the model's
// units (tables.h); or NULL if the plan is none.
typedef const char *MakeTablePipeline(void *context, Arena *a, const char *plan, int64_t ranks,
                                      int64_t micro_batches, Diag *d);

// Whether to take the best plan so far: the time is over, or the user wants it.
typedef bool StopChoice(void *context);

// Called with each candidate that was compiled, or could not be, and with NULL between these,
// often. `bound`: seconds that no plan of the search's space can be below; 0: unknown.
typedef void ShowProgress(void *context, const Candidate *c, double bound);

typedef struct ChooseOptions {
  int64_t ranks;
  int64_t micro_batches; // 0: as many as memory or stages need
  int64_t batch;         // rows; 0: unknown, and not divided then
  const Cluster *cluster;
  bool limited;        // the memory of its devices is a limit
  int64_t accumulate;  // batches per update; 0: 1
  int expert_capacity; // slots of expert ranks, in per cent of the mean; 0: for the worst routing
  Target target;
  const char *const *plans; // the only candidates, `n_plans` of them; NULL: all known ones
  int n_plans;
  struct PathStore *paths; // of all candidates (paths/path_store.h), or NULL
  double *left;            // remaining work of all searches; NULL: no limit
  MakePipeline *pipeline;
  MakeTablePipeline *tables; // NULL: plans are not priced before they are compiled
  StopChoice *stop;          // NULL: all are considered; asked if some plan fits, also by passes
  StopChoice *abandon;       // or NULL: whether to end without one
  bool *ended;               // set by choose_plan if that ended it
  bool *found;               // set by candidates: some plan fits
  const StepWork *work;      // set by choose_plan for more micro-batches of large models; or NULL
  ShowProgress *progress;    // or NULL
  double bound;              // for that; known to the search
  RunOptions *run;           // NULL: fast options, as modules are only priced
  KeepRun *keep;             // with `run`
  TakeRun *take;             // with `run`
  void *context;
} ChooseOptions;

// The bytes that a plan may take on each device; INFINITY: any number.
static inline double choose_memory(const ChooseOptions *o) {
  return o->limited && o->cluster->memory > 0 ? o->cluster->memory : INFINITY;
}

// Puts all candidates into `out`, in the order of their trials. Returns the index of the best one,
// or -1 if none could be made or none fits. With `run`, *made is the module of the best one,
// proved, after its messages were printed; or NULL, if that was not kept. *certificate says how
// good it is.
int choose_plan(const Module *model, const ChooseOptions *o, Arena *a, Candidates *out,
                Certificate *certificate, Module **made);

// After -1: reports the reason that each could not be made; or the nearest miss: the rank, the
// bytes that it lacks, their use, and the number of ranks on which it would fit. If no plan can
// fit, that is the error. Returns false.
bool choose_failed(const Module *model, const ChooseOptions *o, Arena *a, const Candidates *all,
                   const Certificate *certificate, Diag *d);

// After -1: returns the nearest miss, the one that needs least memory, after trials of plans in as
// many micro-batches as there can be, which are appended; NULL: none could be made.
const Candidate *choose_nearest(const Module *model, const ChooseOptions *o, Arena *a,
                                Candidates *all);
// Whether one of the plans that take little time to make fits: the first of them.
bool choose_quick(const Module *model, const ChooseOptions *o, Arena *a, Candidate *out);

// Whether no plan could be made, and all for the same error. Its cause is the model or an option,
// and the compilation of any of the plans reports it with its location and hint.
bool choose_failed_alike(const Candidates *all);

#endif
