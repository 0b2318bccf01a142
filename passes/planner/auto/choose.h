// `--plan auto`: makes every plan that may be the best one, prices it, and takes the cheapest that
// fits into memory.
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
// finds about as good as the one it takes, and `search_added`, whose plans are all among those that
// `search` has looked at, as what a search sees of a step is not all there is.  Each is run through
// the whole pipeline of its target, so what is priced is what would be executed: its collectives
// after they were fused, its memory as plan_memory lays it out.  Where none of them fits, or the
// best only in more micro-batches than one, the inside of layers is computed anew (recompute.c) or
// in host memory until backward (swap.c), with each of the others; where that does not fit either,
// or none of them can be made, stages are tried, alone and with one of the others; and where still
// none fits in one micro-batch, data parallelism with the optimizer's states in host memory
// (offload.c). Where something fits stages are tried if they may be faster (pipelines.h); and where
// a search would rather share nothing, as models are so small, one inside of data parallelism over
// some of the ranks.  A plan that cannot be made of the model is no candidate, and neither is one
// by which all ranks do the same.  Of those that take up to 1 % more than the cheapest, the one is
// taken in which most ranks share the work.  One that does not fit is tried again with more
// micro-batches, as long as that may help; and stages with so many that they are busy most of the
// time.
//
// A search is asked several times where memory is short, counting on more or less of it, as what
// its plans need is only known when they are made (memory_budget.h); and again, counting on less,
// if all ranks do the same under its plan; but not if less memory would have to make it faster.
// Without a named plan, all searches together have one budget of work, counted instead of timed,
// and each of them a part of the rest, so that many of them do not take many times as long.  Of a
// small model its next best answers are made, too (planner/search/k_best.c).

#ifndef CHOOSE_H
#define CHOOSE_H

#include "base/vec.h"
#include "cluster/cluster.h"
#include "ir/op.h"
#include "memory_breakdown.h"
#include "memory_budget.h"
#include "pass.h"

// A search that may factor the ranks differently takes the factoring that it prices least; some
// that it prices about the same are candidates, too, and their plans say so: `search=2x4`.
typedef struct Candidate {
  const char *plan; // as in --plan
  int64_t ranks, micro_batches;
  int n_others, other[2]; // factorings by number, where `plan` leaves that open: worth a try, too
  int64_t work;           // that each of its searches may do; 0: as much as it likes
  int64_t memory;         // capacity that its searches assume (memory_budget.h); 0: a device's
  double worth;           // seconds of the best before it that fits; 0: none did
  const char *why;        // it could not be made: the first that was wrong
  bool needs_less;        // and that was memory: a search found that nothing fits
  double least;           // then: bytes of a rank under the plan that needs least; 0: not known
  int64_t least_slices;   // micro-batches that this was with
  const char *least_why;
  bool searched; // then what a round comes to, and how much solvers worked in all of them
  double work_done;
  Round round;
  bool made;      // else nothing below is known
  bool fits;      // into a device's memory
  double seconds; // of a step
  int sharing;    // ranks that share the work (redundancy.h); others do the same, or nothing
  bool alike;     // a search would rather have all ranks do the same
  struct LifetimeCache
      *known; // answers of its searches (planner/search/lives.h), for the next time it is made
  Needs needs;
} Candidate;

typedef Vec(Candidate) Candidates;

// The pipeline that makes a training step by this plan.
typedef const char *MakePipeline(void *context, const Candidate *c);

// How passes run for the next candidate, where what is made of it may be what is used.
typedef const PipelineOptions *RunOptions(void *context);

typedef struct ChooseOptions {
  int64_t ranks;
  int64_t micro_batches; // 0: as many as memory or stages ask for
  int64_t batch;         // rows; 0: not known, and not cut then
  const Cluster *cluster;
  bool limited; // by the memory of its devices
  Target target;
  const char *const *plans; // the only candidates, `n_plans` of them; NULL: all that are known
  int n_plans;
  double *left; // work that all searches may do still; NULL: as much as they like
  MakePipeline *pipeline;
  RunOptions *run; // NULL: quickly, as what is made is only priced
  void *context;
} ChooseOptions;

// All candidates in `out`, in the order in which they were tried.  The best one's index, or -1
// where none could be made or none fits.  With `run`, *made is what was made of the best one, after
// what there was to say of it has been said; else NULL.
int choose_plan(const Module *model, const ChooseOptions *o, Arena *a, Candidates *out,
                Module **made);

// After -1: reports why each could not be made; or the nearest miss: which rank lacks how many
// bytes, what they are for, and on how many ranks it would fit.  Returns false.
bool choose_failed(const Module *model, const ChooseOptions *o, Arena *a, const Candidates *all,
                   Diag *d);

#endif
