// See stages.h.
//
// In this order: the candidate runs, the checks of the options, the solution, and its effects on
// ops and parameters. Nothing of the program changes before the last step. The time goes to the
// solver, and to the hint after a request for too many stages, which solves for fewer and fewer.

#include "stages.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "batch_letter.h"
#include "borders.h"
#include "cost/cost.h"
#include "forwards.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "placing.h"
#include "planner/plan/outer.h"
#include "planner/search/splits.h"
#include "sharding/assign.h"
#include "sharding/decide.h"

enum { SECONDS = 10, MAX_RUNS = 160, MANY_RANKS = 12 };

// -- Candidate runs of stages --------------------------------------------------------------------

typedef Vec(Run) Runs;

static bool shares(const Placing *p, int n) {
  return loads_split_batch(p->s, p->axis, &p->units, p->batch, n);
}

static void add_run(Placing *p, Runs *out, int first, int n) {
  vec_push(p->s->scratch, out, (Run){first, n});
}

static void find_runs(Placing *p, const StageOptions *w) {
  Runs out = {0};
  if (w->size) {
    // The sizes of the program, one after the other.
    for (int i = 0, first = 0; i < w->n; first += w->size[i++])
      add_run(p, &out, first, w->size[i]);
  } else {
    // All runs with a length that shares the batch; with many ranks, only lengths that are powers
    // of two, at multiples of their length.
    int most = w->n ? p->n_ranks - w->n + 1 : p->n_ranks;
    bool few = p->n_ranks > MANY_RANKS;
    for (int n = 1; n <= most; n++) {
      if ((few && (n & (n - 1))) || !shares(p, n)) continue;
      for (int first = 0; first + n <= p->n_ranks; first += few ? n : 1)
        add_run(p, &out, first, n);
    }
  }
  // Too many runs for this number of stages: only stages of equal length.
  if (!w->size && w->n && out.n > MAX_RUNS && p->n_ranks % w->n == 0) {
    out.n = 0;
    for (int i = 0; i < w->n; i++)
      add_run(p, &out, i * (p->n_ranks / w->n), p->n_ranks / w->n);
  }
  p->run = out.at;
  p->n_runs = out.n;
}

// -- Checks of the options -----------------------------------------------------------------------

static bool check_sizes(const Placing *p, const StageOptions *w, Diag *d) {
  int sum = 0;
  const char *axis = p->s->mesh->axis[p->axis].name;
  for (int i = 0; i < w->n && w->size; i++)
    sum += w->size[i];
  if (w->size && sum != p->n_ranks)
    return diag_error(d, p->why, "these stages have %d ranks together, and %s has %d", sum, axis,
                      p->n_ranks);
  for (int i = 0; i < w->n && w->size; i++)
    if (!shares(p, w->size[i]))
      return diag_error(d, p->why, "a stage of %d ranks cannot share the rows evenly", w->size[i]);
  if (w->n > p->n_ranks)
    return diag_error(d, p->why, "%d stages cannot share the %d rank%s of %s", w->n, p->n_ranks,
                      p->n_ranks == 1 ? "" : "s", axis);
  return true;
}

static bool check_ways(const Placing *p, const StageOptions *w, Diag *d) {
  bool has[3] = {false};
  if (!w->ways) return true;
  for_each_op(op, p->s->g)
    if (op_part(op) == PART_forward && op->piece <= 2) has[op->piece] = true;
  if (p->n_ranks % 2)
    return diag_error(d, p->why, "two ways are through an even number of ranks, and %s has %d",
                      p->s->mesh->axis[p->axis].name, p->n_ranks);
  if (has[1] && has[2]) return true;
  diag_error(d, p->why, "two ways are for a model in two pieces, and this is in one");
  diag_hint(d, "pieces(list, 2, true) in 'model' deals the rows of the model to two pieces");
  return false;
}

// Whether this many stages of equal size are possible, and fit into memory.
static bool can_be(const Placing *p, int n) {
  Arena *scratch = arena_new();
  Run *run = arena_array(scratch, Run, n);
  int each = p->n_ranks / n;
  bool can = p->n_ranks % n == 0 && shares(p, each);
  // The same problem, with these runs alone.
  for (int i = 0; i < n; i++)
    run[i] = (Run){i * each, each};
  if (can) {
    Loads *l = loads_new(p->s, p->axis, &p->units, p->batch, run, n, NULL, scratch);
    l->p.n_stages = n;
    can = partition_solve(scratch, &l->p, &(PartitionOptions){.seconds = SECONDS}).run_of != NULL;
  }
  arena_free(scratch);
  return can;
}

static bool check_units(const Placing *p, const StageOptions *w, Diag *d) {
  const char *axis = p->s->mesh->axis[p->axis].name;
  int n = p->units.n;
  if (!n)
    return diag_error(d, p->why,
                      "nothing is left to place along %s: all that computes something is assigned "
                      "or split",
                      axis);
  int wanted = w->chunks > 1 ? p->n_ranks : w->n;
  if (n >= wanted) return true;
  diag_error(d, p->why, "%d stages, and only %d unit%s to put on them", wanted, n,
             n == 1 ? "" : "s");
  diag_note(d, p->units.first[n - 1]->loc,
            "the last unit begins here: a unit is a layer of a large model, or a product with a "
            "weight and the ops after it");
  if (w->forwards > 1)
    diag_hint(d,
              "these are stages of a model that goes through itself %d times, as one that "
              "recycles does; of others there is pp",
              w->forwards);
  // A hint: the largest number of stages that works.
  if (w->chunks > 1 || w->forwards > 1) return false;
  while (n > 1 && !can_be(p, n))
    n--;
  if (n > 1)
    diag_hint(d, "%d stages of %d rank%s each would do: pp=%d,dp=%d, or place(axis, %d)", n,
              p->n_ranks / n, p->n_ranks / n == 1 ? "" : "s", n, p->n_ranks / n, n);
  return false;
}

// -- Assignment of ranks -------------------------------------------------------------------------

// `op`: the op to assign, or NULL. The second piece of two ways runs on the mirrored ranks.
static const Ranks *ranks_of(const Placing *p, const Op *op, const Run *run) {
  int *at = arena_array(p->s->scratch, int, run->n);
  bool back = p->wish->ways && op && op->piece == 2;
  for (int i = 0; i < run->n; i++)
    at[i] = back ? p->n_ranks - run->first - run->n + i : run->first + i;
  return ranks_new(p->s, p->axis, at, run->n);
}

// If only one stage reads an input, each of its ranks reads its slice of the batch.
static void write_input(const Placing *p, Value *v) {
  int unit = UNIT_none;
  for_each_use(u, v) {
    if (!u->user || op_part(u->user) != PART_forward) continue;
    int reader = p->units.of_op[u->user->id];
    if (reader < 0 || (unit >= 0 && p->run_of[reader] != p->run_of[unit])) return;
    unit = reader;
  }
  if (unit < 0 || p->batch[v->id] != 0 || p->s->decisions.param[v->id][p->axis] != PARAM_open)
    return;
  const Run *run = &p->run[p->run_of[unit]];
  if (run->n == 1) return;
  // Rows that these ranks cannot divide are left on all ranks.
  const Layout *before = v->layout;
  assign_param(p->s, v, p->axis, ranks_of(p, NULL, run));
  if (!param_cuts(p->s, v, 0, p->axis)) {
    v->layout = before;
    return;
  }
  decide_layout(p->s, v, p->axis, (Sbp){.kind = SBP_S}, PARAM_fixed, NULL);
}

// An op with an undecided split runs on all ranks.
static void hold(Sharding *s, Op *op, int axis) {
  if (s->constraints.op[op->id][axis] && !s->decisions.assigned[op->id][axis])
    assign_op(s, op, axis, NULL, NULL);
}

static void write_all(const Placing *p) {
  const Graph *g = p->s->g;
  for_each_op(op, g) {
    int unit = op_part(op) == PART_forward ? p->units.of_op[op->id] : UNIT_none;
    hold(p->s, op, p->axis);
    if (unit < 0) continue;
    assign_op(p->s, op, p->axis, ranks_of(p, op, &p->run[p->run_of[unit]]), p->why);
    // The ranks of a stage share its batch.
    int letter = batch_letter(p->s, p->batch, op);
    const Dims *dims = dims_of(p->s, op);
    if (op_ranks(op, p->axis) == 1 || letter < 0 || !split_legal(op, dims, letter, p->axis))
      continue;
    decide_split(p->s, op, p->axis, dims->letter[letter].name, p->why);
  }
  // Parameters follow their readers; inputs are read in shards.
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->role == ROLE_input) write_input(p, g->params[i]);
}

// -- Other graphs --------------------------------------------------------------------------------

// The ops of the model in the first graph, by the node that they belong to.
typedef struct Firsts {
  int n;           // more than the largest number of a node
  const Op **of;   // by node: its first op
  const Op **next; // by op id: the next op of the same node
} Firsts;

static void place_as_first(Sharding *s, int axis, const Loc *why) {
  // Ops of the first graph, by node.
  const Sharding *first = s->first;
  Firsts firsts = {0};
  for_each_op(op, first->g)
    if (op->of >= firsts.n) firsts.n = op->of + 1;
  firsts.of = arena_array(first->scratch, const Op *, firsts.n);
  firsts.next = arena_array(first->scratch, const Op *, first->g->n_ops);
  for (const Op *op = first->g->last; op; op = op->prev) {
    if (op_part(op) != PART_forward || !op->of) continue;
    firsts.next[op->id] = firsts.of[op->of];
    firsts.of[op->of] = op;
  }

  for_each_op(op, s->g) {
    // The op of the first graph that stands for the same op of the model.
    bool has_node = op_part(op) == PART_forward && op->of && op->of < firsts.n;
    const Op *same = has_node ? firsts.of[op->of] : NULL;
    while (same && (same->piece != op->piece || same->kind != op->kind))
      same = firsts.next[same->id];
    hold(s, op, axis);
    if (!same || s->decisions.assigned[op->id][axis] || op->split[axis] != SPLIT_NONE) continue;
    if (!s->first->decisions.placed_op[same->id][axis]) continue;
    assign_op(s, op, axis, s->first->decisions.ranks[same->id][axis], why);
    // It has the same split, if that is legal here.
    int letter = dims_find(dims_of(s, op), same->split[axis]);
    if (same->split[axis] == SPLIT_NONE || letter < 0 ||
        !split_legal(op, dims_of(s, op), letter, axis))
      continue;
    decide_split(s, op, axis, same->split[axis], why);
  }
}

// -- Chunks --------------------------------------------------------------------------------------

// Loads of chunks: each stage has a rank of its own, at the prices of the ranks they run on. A
// message from a later rank to an earlier one costs as much as in the other direction.
static void chunk_loads(Placing *p, const Run *on) {
  Partition *q = &p->loads->p;
  int n = p->n_runs;
  for (int i = 0; i < n; i++) {
    q->limit[i] /= p->wish->chunks;
    for (int k = i + 1; k < n; k++) {
      // A later stage on an earlier rank.
      if (on[k].first >= on[i].first) continue;
      int at = i * n + k, other = on[k].first * n + on[i].first;
      q->start[at] = q->start[other];
      q->by_batch[at] = q->by_batch[other];
      q->by_whole[at] = q->by_whole[other];
    }
  }
  q->run = p->run;
  q->n_ranks = p->n_ranks;
}

// Returns the ranks of the stages; `p->run` numbers them as if each had its own.
static Run *chunk_runs(Placing *p) {
  int n = p->n_ranks, n_ranks = n / p->wish->chunks;
  Run *own = arena_array(p->s->scratch, Run, n), *on = arena_array(p->s->scratch, Run, n);
  for (int i = 0; i < n; i++) {
    // In rounds, or there and back.
    int rank = i % n_ranks;
    bool back = p->wish->back && i / n_ranks % 2;
    own[i] = (Run){i, 1};
    on[i] = (Run){back ? n_ranks - 1 - rank : rank, 1};
  }
  p->run = own;
  p->n_runs = n;
  return on;
}

// -- All together --------------------------------------------------------------------------------

static const SolverStatus solver_status[] = {
    [PARTITION_proved] = SOLVER_optimal,
    [PARTITION_found] = SOLVER_feasible,
    [PARTITION_infeasible] = SOLVER_infeasible,
    [PARTITION_unknown] = SOLVER_time_out,
};

// Returns the number of ranks of each stage.
static const int *sizes_of(const Placing *p, int *n) {
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
  find_runs(&q, &any);
  q.loads = loads_new(q.s, q.axis, &q.units, q.batch, q.run, q.n_runs, NULL, q.s->scratch);
  PartitionOptions o = {.seconds = SECONDS};
  q.run_of = partition_solve(q.s->scratch, &q.loads->p, &o).run_of;
  return q.run_of ? sizes_of(&q, n_stages) : NULL;
}

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

// Takes the loads with all micro-batches in flight, if stages fit under them.  They are an
// estimate, so stages that fit only without are left to the passes.
static void limit_closely(Placing *p) {
  if (!is_limited(p)) return;
  Loads *close = close_loads(p, STAGED_1f1b);
  PartitionOptions o = {.seconds = SECONDS};
  const int *run_of = partition_solve(p->s->scratch, &close->p, &o).run_of;
  if (run_of && partition_load(p->s->scratch, &close->p, run_of).fits) p->loads = close;
}

// -- Chains --------------------------------------------------------------------------------------

// Whether each stage is one rank, in the order of the ranks: then chain.h has their exact price.
// The 0/1 program in a file is that of partition.h.
static bool is_chain(const Sharding *s, const StageOptions *w, int n_ranks) {
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

// Finds stages that fit with the micro-batches of the schedule in flight, or else with those of
// 1f1b, or with one: less than the passes come to, which may find a way.
static bool solve_chain(Placing *p, Stages *out) {
  double start = clock_seconds();
  if (p->n_runs != p->n_ranks) return false; // one rank has no rows of its own
  // Outer axes are not decided yet: their programs say what they will ask for.
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
  out->size = sizes_of(p, &out->n);
  return true;
}

// -- Solutions -----------------------------------------------------------------------------------

// The place of an error about the ops of a stage, from 1: its number in the plan's text, if there
// is one, or else the line that places it.
static const Loc *stage_loc(const Placing *p, int stage) {
  const Loc *number = p->wish->number ? p->wish->number[stage - 1] : NULL;
  return number ? number : p->why;
}

// Returns the runs of units that a program deals to stages; NULL, with an error reported, if an op
// would be on a stage before one that it depends on.
static const int *dealt_runs(const Placing *p, Diag *d) {
  int n = p->units.n, *run_of = arena_array(p->s->scratch, int, n);
  const Op **by = arena_array(p->s->scratch, const Op *, n); // the op with the unit's stage
  for_each_op(op, p->s->g) {
    int unit = op_part(op) == PART_forward ? p->units.of_op[op->id] : UNIT_none;
    int stage = p->wish->dealt[op->id];
    if (unit < 0 || !stage) continue;
    if (by[unit] && run_of[unit] != stage - 1) {
      int other = run_of[unit] + 1, earlier = stage < other ? stage : other;
      diag_error(d, stage_loc(p, earlier),
                 "%s is dealt to stage %d, and stays with one of stage %d", op_info[op->kind].name,
                 stage, other);
      diag_note(d, op->loc, "this one");
      diag_note(d, by[unit]->loc, "of stage %d", other);
      if (p->wish->number)
        diag_hint(d, "no stage can end between these two: give stage %d another number of layers",
                  earlier);
      return NULL;
    }
    if (!by[unit]) by[unit] = op;
    run_of[unit] = stage - 1;
  }
  // Units of no list are on the stage of the one before them, and no stage is empty.
  for (int u = 1; u < n; u++)
    if (!by[u]) run_of[u] = run_of[u - 1];
  for (int r = 0; r < p->n_runs; r++) {
    bool used = false;
    for (int u = 0; u < n; u++)
      used |= run_of[u] == r;
    if (used) continue;
    diag_error(d, stage_loc(p, r + 1), "nothing is dealt to stage %d of %d that can be placed",
               r + 1, p->n_runs);
    return NULL;
  }
  // Values go forward only.
  for_each_op(op, p->s->g) {
    int unit = op_part(op) == PART_forward ? p->units.of_op[op->id] : UNIT_none;
    for (int i = 0; unit >= 0 && i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      int from = def ? p->units.of_op[def->id] : UNIT_none;
      if (from < 0 || run_of[from] <= run_of[unit]) continue;
      diag_error(d, stage_loc(p, run_of[unit] + 1),
                 "%s is on stage %d, and reads a result of stage %d", op_info[op->kind].name,
                 run_of[unit] + 1, run_of[from] + 1);
      diag_note(d, op->loc, "this one");
      diag_note(d, def->loc, "it reads this");
      return NULL;
    }
  }
  return run_of;
}

static bool take_dealt(Placing *p, Stages *out, Diag *d) {
  p->run_of = dealt_runs(p, d);
  if (!p->run_of) return false;
  p->load = partition_load(p->s->scratch, &p->loads->p, p->run_of);
  out->size = sizes_of(p, &out->n);
  return true;
}

static bool solve(Placing *p, Stages *out, Diag *d) {
  double start = clock_seconds();
  const SearchEnv *env = &p->s->env;
  PartitionOptions o = {.seconds = env->seconds > 0 ? env->seconds : SECONDS, .lp = env->lp_file};
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
  out->size = sizes_of(p, &out->n);
  return true;
}

// An axis is placed once. Costs need the speeds of a device for each rank.
static bool check_axis(const Sharding *s, int axis, const Loc *why, Diag *d) {
  const Cluster *c = s->env.cluster;
  if (s->decisions.placed[axis].why) {
    diag_error(d, why, "%s is placed already", s->mesh->axis[axis].name);
    diag_note(d, s->decisions.placed[axis].why, "here");
    return false;
  }
  if (!cost_known(c))
    return diag_error(
        d, why, "'%s' does not say how fast its devices are: give memory_speed and f32", c->name);
  return s->mesh->n_devices <= cluster_devices(c) ||
         diag_error(d, why, "'%s' has %d devices for %d ranks", c->name, cluster_devices(c),
                    s->mesh->n_devices);
}

// Finds the units of the model; with chunks every rank counts as several.
static void find_units(Placing *p, int forwards, bool chain) {
  const StageOptions *w = p->wish;
  bool chunks = w->chunks > 1;
  if (chunks) p->n_ranks *= w->chunks;
  p->batch = splittable_batch_dims(p->s, p->s->scratch);
  UnitOptions units = {forwards * (w->n ? w->n : p->n_ranks),
                       forwards > 1,
                       w->ways || w->pieces,
                       chunks,
                       chain,
                       w->among,
                       w->dealt};
  p->units = units_find(p->s, p->axis, &units, p->s->scratch);
}

// Finds the candidate runs, and the loads of all units on each. Returns the ranks of chunks; NULL:
// each rank has one stage.
static const Run *load_runs(Placing *p) {
  const StageOptions *w = p->wish;
  const Run *on = w->chunks > 1 ? chunk_runs(p) : NULL;
  if (!on) find_runs(p, w);
  p->loads = loads_new(p->s, p->axis, &p->units, p->batch, on ? on : p->run, p->n_runs, NULL,
                       p->s->scratch);
  p->loads->p.n_stages = on ? p->n_ranks : w->n;
  if (on) chunk_loads(p, on);
  // With two ways every rank has a stage of each.
  for (int i = 0; i < p->n_runs && w->ways; i++)
    p->loads->p.limit[i] /= 2;
  return on;
}

// Records that the axis is placed, for its explanation and for other graphs.
static void record_placed(const Placing *p, const Stages *out) {
  const Sharding *s = p->s;
  bool *on_stages = arena_array(s->scratch, bool, s->g->n_ops);
  for_each_op(op, s->g)
    on_stages[op->id] = p->units.of_op[op->id] >= 0;
  struct Placed placed = {p->why, out->n, out->size, p->load.slowest, 0};
  for (int i = 0; i < p->n_runs; i++)
    if (p->load.seconds[i] > 0 && p->load.bytes[i] > placed.bytes) placed.bytes = p->load.bytes[i];
  assign_placed(p->s, p->axis, &placed, on_stages);
}

bool stages_place(Sharding *s, int axis, const StageOptions *wish, const Loc *why, Stages *out,
                  Diag *d) {
  Placing p = {.s = s, .axis = axis, .why = why, .wish = wish, .n_ranks = s->mesh->axis[axis].size};
  *out = (Stages){0};
  if (!check_axis(s, axis, why, d)) return false;
  // Other graphs are placed like the first.
  if (s->first) {
    const struct Placed *placed = &s->first->decisions.placed[axis];
    place_as_first(s, axis, why);
    assign_placed(s, axis, placed, NULL);
    *out = (Stages){.n = placed->n_stages, .size = placed->size};
    return true;
  }
  int forwards = wish->forwards > 1 ? wish->forwards : 1;
  bool chain = is_chain(s, wish, p.n_ranks);
  find_units(&p, forwards, chain);
  if (!check_ways(&p, wish, d) || !check_sizes(&p, wish, d) || !check_units(&p, wish, d))
    return false;
  if (forwards > 1 && !forwards_check(s, forwards, why, d)) return false;
  const Run *on = load_runs(&p);
  // Other schedules have other numbers of micro-batches in flight.
  bool solved = chain && !wish->dealt && solve_chain(&p, out);
  if (!solved && !on && !wish->ways && !wish->pieces && forwards == 1) limit_closely(&p);
  if (!solved && (wish->dealt ? !take_dealt(&p, out, d) : !solve(&p, out, d))) return false;
  if (s->env.explain) out->searched.explained = placing_explain(&p, s->env.explain);
  if (on) p.run = on;
  write_all(&p);
  record_placed(&p, out);
  return true;
}
