// See search.h.
//
// search_axes, at the end, has the steps in order: prices, live ranges (lives.h), the assumed
// shardings of outer programs (outer.h), choices (nodes.c) and their costs (edges.c), the solver,
// repeated while copies do not fit (memory_refine.c), and the choices as splits and layouts.

#include "cost/cost.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "lives.h"
#include "planner/plan/outer.h"
#include "prices.h"
#include "problem.h"
#include "sharding/constraints.h"
#include "sharding/microbatch_cut.h"
#include "solved.h"
#include "splits.h"

#include <string.h>

enum { SECONDS = 120 }; // for the solver, if its work takes longer than expected
#define GAP 1e-4        // accepted gap: prices are not that exact

// -- Choices as splits -------------------------------------------------------------------------

SavedSplits splits_save(const Sharding *s) {
  SavedSplits saved = {s->g, arena_alloc_array(s->scratch, s->g->n_ops, sizeof *saved.split)};
  for_each_op(op, s->g)
    memcpy(saved.split[op->id], op->split, sizeof op->split);
  return saved;
}

void splits_restore(const SavedSplits *saved) {
  for_each_op(op, saved->g)
    memcpy(op->split, saved->split[op->id], sizeof op->split);
}

// Whether all readers in the model take the parameter in its layout along the axis.
static bool taken_so(const Problem *p, const Value *v, Sbp sbp, int axis) {
  for_each_use(u, v) {
    if (!u->user || op_part(u->user) != PART_forward) continue;
    Sbp want = split_wants(u->user, dims_of(p->s, u->user), u->index, axis, sbp);
    if (!sbp_equal(want, sbp)) return false;
  }
  return true;
}

// Whether an op of the rest reads the parameter, which then stays open.
static bool read_outside(const Problem *p, const Value *v) {
  for_each_use(u, v)
    if (u->user && op_part(u->user) == PART_forward && !use_counts(p, u)) return true;
  return false;
}

// Finds the ops of a sub-space: those given, those whose splits are decided, and ops of weights
// alone, such as casts, that only these read.
static bool *find_inside(const Problem *p, const bool *among) {
  const Graph *g = p->s->g;
  bool *inside = arena_array(p->scratch, bool, g->n_ops);
  bool *of_weights = arena_array(p->scratch, bool, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    of_weights[g->params[i]->id] = g->params[i]->role != ROLE_input;
  for_each_op(op, g) {
    bool constant = true, decided = true;
    for (int i = 0; i < op->n_in; i++)
      constant &= of_weights[op->in[i].value->id];
    for (int i = 0; i < op->n_out; i++)
      of_weights[op->out[i]->id] = constant;
    for (int i = 0; i < p->n_axes; i++)
      decided &= p->s->decisions.fixed_by[op->id][p->axis[i]] != NULL;
    inside[op->id] = op_part(op) == PART_forward && (among[op->id] || decided);
  }
  // From the last op on, so that readers are known.
  for (const Op *op = g->last; op; op = op->prev) {
    bool all = op_part(op) == PART_forward && op->n_out > 0 && of_weights[op->out[0]->id];
    for (int i = 0; i < op->n_out && all; i++)
      for_each_use(u, op->out[i])
        if (!u->user || op_part(u->user) == PART_forward) all &= u->user && inside[u->user->id];
    inside[op->id] |= all;
  }
  return inside;
}

static const Choice *chosen(const Problem *p, int node, const int *choice) {
  return &p->nodes.at[node].choices.at[choice[node]];
}

// Finds the splits and layouts under the choice of each node. Op.split has them in the meantime.
static void find_chosen(const Problem *p, const int *choice, Chosen *out) {
  const Graph *g = p->s->g;
  const Decisions *d = &p->s->decisions;
  // An op of the model has the chosen split of its node.
  for_each_op(op, g) {
    if (p->op_node[op->id] < 0) continue;
    const Choice *c = chosen(p, p->op_node[op->id], choice);
    for (int i = 0; i < p->n_axes; i++) {
      int axis = p->axis[i];
      op->split[axis] = c->split[axis];
      out->op[op->id][axis] = !d->fixed_by[op->id][axis];
    }
  }
  // A gradient op has the split that was priced: the letter that its op of the model splits, or
  // none if every device runs all of that op. If the letter is unknown, the split is left to
  // propagation from the operands.
  for_each_op(op, g) {
    const Op *of = p->model_op[op->id];
    if (!of || p->op_node[of->id] < 0) continue;
    char left[MAX_AXES];
    memcpy(left, op->split, sizeof left);
    choose_gradient_split(p, op, of);
    for (int i = 0; i < p->n_axes; i++) {
      int axis = p->axis[i];
      char split = op->split[axis];
      bool known = split != SPLIT_NONE || of->split[axis] == SPLIT_NONE;
      if (known && !d->fixed_by[op->id][axis] &&
          constraint_allows(p->s->constraints.op[op->id][axis], split ? split : '-'))
        out->op[op->id][axis] = true;
      else
        op->split[axis] = left[axis];
    }
  }
  // A parameter with an open layout gets the chosen one: fixed if all readers take it in this
  // layout, else only stored in it.
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    int node = read_outside(p, v) ? -1 : p->value_node[v->id];
    for (int k = 0; k < p->n_axes && node >= 0; k++) {
      const Choice *c = chosen(p, node, choice);
      int axis = p->axis[k];
      if (d->param[v->id][axis] == PARAM_open) {
        out->layout[v->id][axis] = c->layout[axis];
        out->param[v->id][axis] =
            taken_so(p, v, c->layout[axis], axis) ? PARAM_fixed : PARAM_stored;
      }
      split_update(p, v, c->back[axis], axis, out);
    }
  }
  for_each_op(op, g)
    memcpy(out->split[op->id], op->split, sizeof op->split);
}

// -- Solving -----------------------------------------------------------------------------------

Problem problem_about(const Problem *p, const Sharding *s) {
  Problem again = *p;
  again.s = s;
  memset(&again.nodes, 0, sizeof again.nodes);
  memset(&again.pairs, 0, sizeof again.pairs);
  again.known = NULL; // their cache keys are layouts
  again.n_known = again.known_size = 0;
  return again;
}

bool choices_make(Problem *p) {
  nodes_make(p);
  for (int i = 0; i < p->nodes.n; i++)
    if (!p->nodes.at[i].choices.n) return false;
  edges_make(p);
  return true;
}

static const int *takes_longer(const Problem *p, const Loc *why, Diag *d) {
  diag_error(d, why, "no way to split it takes less than %.3f ms", 1e3 * p->env->worth);
  return NULL;
}

static const int *does_not_fit(const Problem *p, const SolverResult *r, const Loc *why, Diag *d) {
  bool proven = r->status == SOLVER_infeasible;
  diag_error(d, why, "%s fits into the %.0f bytes of %s of '%s'",
             proven ? "no way to split it" : "within the time there is, no way was found that",
             (double)p->memory, p->c->n_kinds ? "the smallest device" : "a device", p->c->name);
  if (r->has_moment)
    diag_note(d, why, "each needs at least %s bytes", solver_cost_text(p->scratch, r->needed));
  if (proven && !p->env->tried) search_conflict(p, d);
  if (!proven) diag_hint(d, "--search-seconds gives a search more time; a named plan needs none");
  return NULL;
}

void searched_add(SearchStats *sum, const SearchStats *more) {
  if (!sum->n || more->status > sum->status) sum->status = more->status;
  sum->bound |= more->bound;
  sum->slow |= more->slow;
  sum->gap = sum->gap > more->gap ? sum->gap : more->gap;
  if (more->ended > sum->ended) sum->ended = more->ended;
  sum->n += more->n;
  if (more->explained) sum->explained = more->explained;
  sum->step += more->step;
  sum->compute += more->compute;
  sum->peak = more->peak; // the last search knows all axes
  sum->needed = more->needed;
  sum->seconds += more->seconds;
  sum->work += more->work;
  sum->all_work += more->all_work;
  sum->n_nodes += more->n_nodes;
  sum->n_choices += more->n_choices;
  sum->n_edges += more->n_edges;
}

// Live ranges of the training step, computed once for all factorings of its ranks and all assumed
// amounts of memory.
static const Lives *known_lives(const Problem *p) {
  const Sharding *s = p->s;
  LifetimeCache here = {.arena = s->scratch}, *known = p->env->lives ? p->env->lives : &here;
  if (s->g != s->g->module->graphs) return NULL;
  if (known->lives) return known->lives;
  Lives *lives = known->lives = lives_of(s->g->module, p->env->target, p->slices, known->arena);
  if (lives) lives->timed = timed_find(s->g, p->slices, known->arena);
  return lives;
}

// Whether alternatives are wanted besides the answer: only for the factoring that is taken.
static bool wants_others(const Problem *p) {
  return p->env->lives && p->env->lives->others && !p->env->tried;
}

static void note_answer(const Problem *p, const Solved *solved, const SearchStats *found,
                        Answer *known) {
  SolutionCache *all = p->env->solutions;
  if (!all || (all->known && !known)) return;
  int n = p->nodes.n;
  Answer a = {.n_nodes = n, .searched = *found};
  a.choice = arena_copy(all->arena, solved->result.choice, (size_t)n * sizeof *a.choice);
  if (wants_others(p)) a.n_others = search_others(p, solved, all->arena, &a.other);
  if (known)
    *known = a;
  else
    vec_push(all->arena, &all->all, a);
}

// Returns the chosen alternative of each node; NULL, with an error reported, if there is none.
static const int *solve(Problem *p, SearchStats *out, const Loc *why, Diag *d) {
  const SearchEnv *env = p->env;
  if (!choices_make(p)) {
    // Constraints and splits of other axes leave an op or a parameter no choice.
    for (int i = 0; i < p->nodes.n; i++) {
      const Node *n = &p->nodes.at[i];
      if (n->choices.n) continue;
      const char *name = n->op ? op_info[n->op->kind].name : n->v->label;
      diag_error(d, why, "no constraint of '%s' is feasible besides the splits of other axes",
                 name);
      diag_note(d, n->op ? n->op->loc : n->v->loc, "this one");
      break;
    }
    if (!env->tried) search_conflict(p, d);
    return NULL;
  }
  // The answer found when this factoring was tried.
  SolutionCache *all = env->solutions;
  bool is_known = all && all->known && all->next < all->all.n;
  Answer *known = is_known ? &all->all.at[all->next++] : NULL;
  if (known && known->n_nodes != p->nodes.n) BUG("a factoring asks something else the second time");
  bool anew = !known || wants_others(p);
  const int *choice = anew ? NULL : known->choice;
  // It is solved again for its alternatives, to write the problem, or to explain it.
  if (anew || env->problem_file || env->explain) {
    Solved solved = search_solve(p);
    const SolverResult *r = &solved.result;
    *out = (SearchStats){.n = 1, .status = r->status, .step = solved.step, .gap = r->gap};
    for (int i = 0; r->choice && i < p->nodes.n; i++)
      out->compute += (double)solved.problem.node[i].cost[r->choice[i]] * p->unit;
    out->ended = r->ended;
    out->seconds = solved.seconds;
    out->work = out->all_work = solved.work;
    out->bound = solved.bound;
    out->slow = solved.slow;
    out->peak = (double)solved.peak;
    out->needed = (double)solved.needed;
    out->n_nodes = p->nodes.n;
    out->n_edges = p->pairs.n;
    for (int i = 0; i < p->nodes.n; i++)
      out->n_choices += p->nodes.at[i].choices.n;
    if (env->problem_file && !solver_write(&solved.problem, env->problem_file, d)) return NULL;
    if (!r->choice) return solved.above ? takes_longer(p, why, d) : does_not_fit(p, r, why, d);
    if (anew) choice = r->choice;
    if (env->explain) out->explained = search_explain(p, &solved.problem, env->explain, choice);
    if (anew) note_answer(p, &solved, out, known);
  } else {
    *out = known->searched;
  }
  return choice;
}

bool search_axes(const Sharding *s, const SearchEnv *env, const int *axis, int n, bool sums,
                 const Loc *why, Chosen *out_chosen, SearchStats *out, Diag *d) {
  const Cluster *c = env->cluster;
  Problem p = {.env = env, .scratch = s->scratch, .c = c, .axis = axis, .n_axes = n, .slices = 1};
  p.s = s;
  p.sums = sums;
  p.memory = env->memory ? env->memory : c->memory > 0 ? (int64_t)c->memory : SOLVER_NO_LIMIT;
  p.routed = env->routed;
  p.options = (SolverOptions){
      .seconds = SECONDS, .work = env->work ? (double)env->work : SEARCH_WORK, .gap = GAP};
  // By the clock the answer depends on the machine, as the user asks.
  if (env->seconds > 0) {
    p.options.seconds = env->seconds;
    p.options.work = 0;
  }
  p.options.stop = env->stop;
  *out_chosen = chosen_new(s, axis, n);
  if (s->guessing) return true;
  // The rest counts no bytes: the search that decides the last of it sees the whole step.
  if (env->among) {
    p.inside = find_inside(&p, env->among);
    p.memory = SOLVER_NO_LIMIT;
  }
  if (!cost_known(c))
    return diag_error(
        d, why, "'%s' does not say how fast its devices are: give memory_speed and f32", c->name);
  if (s->mesh->n_devices > cluster_devices(c))
    return diag_error(d, why, "'%s' has %d devices, and the mesh has %d", c->name,
                      cluster_devices(c), s->mesh->n_devices);
  for (int a = 0; a < s->mesh->n_axes; a++)
    if (s->mesh->axis[a].time) p.slices *= s->mesh->axis[a].size;
  p.lives = known_lives(&p);
  p.timed = p.lives ? p.lives->timed : timed_find(s->g, p.slices, s->scratch);
  // A lower bound of the step time: all kernels, divided evenly by all devices.
  double least = 0;
  for_each_op(op, s->g)
    least += whole_seconds(&p, op);
  p.least = least / s->mesh->n_devices;
  // Picoseconds, or a power-of-two multiple for a longer step: the solver's bounds are exact to one
  // part in 10^12, and prove an optimum when the gap is below 1.
  enum { SPARE = 8 }; // a step takes longer than its kernels at best
  p.unit = 1e-12;
  while (p.least * SPARE > 4e11 * p.unit)
    p.unit *= 2;
  p.prices = transitions_new(s->g->module, c, s->scratch);
  // Prices of transfers that start together with others.
  const Cluster *joined = cluster_without_starts(s->scratch, c);
  p.joined = transitions_new(s->g->module, joined, s->scratch);
  // Splits of ops change while choices are priced, and along outer axes while these are assumed.
  SavedSplits before = splits_save(s);
  p.outer = outer_guess(s);
  if (p.outer) p.s = outer_assume(s, p.outer);
  const int *choice = solve(&p, out, why, d);
  splits_restore(&before);
  if (!choice || env->about) return choice != NULL;
  p.s = s;
  find_chosen(&p, choice, out_chosen);
  splits_restore(&before);
  return true;
}
