// The assignment of units to runs with the least slowest stage: of stages of one rank each by
// chain.h, of others by partition.h.

#include <math.h>

#include "base/clock.h"
#include "borders.h"
#include "placing.h"
#include "planner/plan/outer.h"
#include "planner/search/splits.h"

static const SolverStatus solver_status[] = {
    [PARTITION_proved] = SOLVER_optimal,
    [PARTITION_found] = SOLVER_feasible,
    [PARTITION_infeasible] = SOLVER_infeasible,
    [PARTITION_unknown] = SOLVER_time_out,
};

const int *placing_sizes(const Placing *p, int *n) {
  int *size = arena_array(p->s->scratch, int, p->n_ranks);
  *n = 0;
  for (int rank = 0; rank < p->n_ranks; rank += size[(*n)++])
    size[*n] = placing_run_at(p, rank)->n;
  return size;
}

const Run *placing_run_at(const Placing *p, int rank) {
  for (int u = 0; u < p->units.n; u++) {
    const Run *run = &p->run[p->run_of[u]];
    if (run->first <= rank && rank < run->first + run->n) return run;
  }
  BUG("rank %d is in no stage", rank);
}

const int *placing_open(const Placing *p, int *n_stages) {
  Placing q = *p;
  StageOptions any = {0};
  placing_find_runs(&q, &any);
  q.loads = loads_new(q.s, q.axis, &q.units, q.batch, q.run, q.n_runs, NULL, q.s->scratch);
  PartitionOptions o = {.seconds = PLACING_SECONDS};
  q.run_of = partition_solve(q.s->scratch, &q.loads->p, &o).run_of;
  return q.run_of ? placing_sizes(&q, n_stages) : NULL;
}

// -- Memory ------------------------------------------------------------------------------------

// The micro-batches that each run has in flight under a kind of schedule.
static double *runs_in_flight(const Placing *p, StagedKind kind) {
  double *n = arena_array(p->s->scratch, double, p->n_runs);
  int slices = module_slices(p->s->g->module);
  int n_stages = p->wish->n ? p->wish->n : p->n_ranks;
  for (int r = 0; r < p->n_runs; r++) {
    int after = p->n_ranks - p->run[r].first - p->run[r].n;
    if (after > n_stages - 1) after = n_stages - 1;
    n[r] = (double)staged_held(kind, n_stages, slices, n_stages - 1 - after);
  }
  return n;
}

#define ROOM 0.96 // of a device's memory: gaps between blocks and workspaces of kernels take some

static bool is_limited(const Placing *p) {
  bool limited = false;
  for (int r = 0; r < p->n_runs; r++)
    limited |= !isinf(p->loads->p.limit[r]);
  return limited;
}

// Loads with all micro-batches in flight, and with the values that pass.
static Loads *close_loads(const Placing *p, StagedKind kind) {
  Loads *close = loads_new(p->s, p->axis, &p->units, p->batch, p->run, p->n_runs,
                           runs_in_flight(p, kind), p->s->scratch);
  close->p.n_stages = p->loads->p.n_stages;
  for (int r = 0; r < p->n_runs; r++)
    close->p.limit[r] *= ROOM;
  return close;
}

void placing_limit_closely(Placing *p) {
  if (!is_limited(p)) return;
  Loads *close = close_loads(p, STAGED_1f1b);
  PartitionOptions o = {.seconds = PLACING_SECONDS};
  const int *run_of = partition_solve(p->s->scratch, &close->p, &o).run_of;
  if (run_of && partition_load(p->s->scratch, &close->p, run_of).fits) p->loads = close;
}

void placing_limit_dealt(Placing *p) {
  if (!is_limited(p)) return;
  Loads *close = close_loads(p, STAGED_1f1b);
  if (partition_load(p->s->scratch, &close->p, p->run_of).fits) p->loads = close;
}

// -- Chains --------------------------------------------------------------------------------------

bool placing_is_chain(const Sharding *s, const StageOptions *w, int n_ranks) {
  bool ones = w->n == n_ranks && n_ranks > 1 && !s->env.lp_file;
  for (int i = 0; i < w->n && w->size; i++)
    ones &= w->size[i] == 1;
  return ones && w->chunks <= 1 && w->forwards <= 1 && !w->ways && !w->pieces;
}

// The first unit of each stage; NULL: units are not in the order of their stages.
static int *first_units(const Placing *p, const int *run_of) {
  int *first = arena_array(p->s->scratch, int, p->n_runs);
  for (int u = 0; u < p->units.n; u++) {
    int before = u ? run_of[u - 1] : -1;
    if (run_of[u] != before && run_of[u] != before + 1) return NULL;
    if (run_of[u] != before) first[run_of[u]] = u;
  }
  return first;
}

Load placing_load(const Placing *p, const int *run_of) {
  Load load = partition_load(p->s->scratch, &p->loads->p, run_of);
  const int *first = p->chain ? first_units(p, run_of) : NULL;
  if (!first) return load;
  const ChainStage *stage = chain_price(p->s->scratch, p->chain, first);
  load.fits = true;
  load.slowest = load.sum = 0;
  for (int s = 0; s < p->n_runs; s++) {
    load.seconds[s] = stage[s].all;
    load.bytes[s] = stage[s].bytes;
    load.fits &= stage[s].fits;
    load.slowest = fmax(load.slowest, stage[s].all);
    load.sum += stage[s].all;
  }
  return load;
}

bool placing_solve_chain(Placing *p, Stages *out) {
  double start = clock_seconds();
  if (p->n_runs != p->n_ranks) return false; // one rank has no rows of its own
  // Outer axes are not decided yet: their programs give a guess of their constraints.
  SavedSplits before = splits_save(p->s);
  const Outer *outer = outer_guess(p->s);
  const Sharding *assumed = outer ? outer_assume(p->s, outer) : p->s;
  Chain *c = borders_price(assumed, p->axis, &p->units, p->loads, p->s->scratch);
  splits_restore(&before);
  StagedKind often = STAGED_1f1b;
  Loads *loose = p->loads, *tries[3] = {NULL, NULL, loose};
  if (is_limited(p)) {
    tries[0] = close_loads(p, c->kind);
    if (c->kind != often) tries[1] = close_loads(p, often);
  }
  const int *first = NULL;
  for (int i = 0; i < 3 && !first; i++) {
    if (!tries[i]) continue;
    p->loads = tries[i];
    c->p = &tries[i]->p;
    first = chain_solve(p->s->scratch, c);
  }
  if (!first) return false;
  p->chain = c;
  int *run_of = arena_array(p->s->scratch, int, p->units.n);
  for (int s = 0; s < p->n_runs; s++)
    for (int u = first[s]; u < p->units.n; u++)
      run_of[u] = s;
  p->run_of = run_of;
  p->load = placing_load(p, run_of);
  out->searched = (SearchStats){.n = 1, .status = SOLVER_optimal, .step = p->load.slowest};
  out->searched.seconds = clock_seconds() - start;
  out->searched.ended = SOLVER_done;
  out->searched.n_nodes = p->units.n;
  out->searched.n_choices = p->units.n * p->n_runs;
  out->searched.n_edges = c->n_transfers;
  out->size = placing_sizes(p, &out->n);
  return true;
}

// -- Stages of any ranks -------------------------------------------------------------------------

bool placing_solve(Placing *p, Stages *out, Diag *d) {
  double start = clock_seconds();
  const SearchEnv *env = &p->s->env;
  PartitionOptions o = {.seconds = env->seconds > 0 ? env->seconds : PLACING_SECONDS,
                        .lp = env->lp_file};
  PartitionResult r = partition_solve(p->s->scratch, &p->loads->p, &o);
  if (r.lp_failed) {
    diag_error(d, p->why, "'%s' cannot be written", o.lp);
    return false;
  }
  if (!r.run_of) {
    double needed = 0;
    if (p->wish->chunks > 1)
      diag_error(d, p->why, "the model fits on no stages of which every rank has %d",
                 p->wish->chunks);
    else
      needed = placing_failed(p, &r, d);
    out->searched =
        (SearchStats){.n = needed > 0, .status = solver_status[r.status], .peak = needed};
    return false;
  }
  p->run_of = r.run_of;
  p->load = partition_load(p->s->scratch, &p->loads->p, r.run_of);
  // The report of the solver.
  double slowest = p->load.slowest;
  out->searched = (SearchStats){.n = 1, .status = solver_status[r.status], .step = slowest};
  out->searched.gap = slowest > 0 ? (slowest - r.bound) / slowest : 0;
  out->searched.seconds = clock_seconds() - start;
  out->searched.ended = r.out_of_time                  ? SOLVER_late
                        : r.status == PARTITION_proved ? SOLVER_done
                                                       : SOLVER_worked;
  out->searched.n_nodes = p->units.n;
  out->searched.n_choices = p->units.n * p->n_runs;
  out->searched.n_edges = p->loads->p.n_flows;
  out->size = placing_sizes(p, &out->n);
  return true;
}
