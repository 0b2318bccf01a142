// The cheapest choice that fits into memory, and its peak.
//
// The memory of a node is part of the solver's problem. A copy depends on two nodes, which the
// problem cannot express; it gets a node of its own that says whether it exists:
//
//     %x ─ (layout ℓ) ─ linear    nodes x, linear, and [no copy of ℓ | a copy of ℓ] for each
//                                 layout ℓ that linear wants, tied to both by edges: 0 or infinity
//
// There are many copies, and few matter. So at first none has a node; if an answer exceeds the
// memory, the copies resident at that time get nodes, and the solver runs again. The first run has
// no limit: if its answer fits, memory does not matter.

#include <math.h>

#include "base/clock.h"
#include "base/stop.h"
#include "memory.h"
#include "solved.h"

// Of each run of the solver.
#define LEAST_SECONDS 0.2
#define LEAST_WORK    1e8
#define LEAST_CHANGE  0.02 // of the exposed part, to solve again

#define LEAST_NORM 0.1 // of a step, to be part of the problem

enum { ROUNDS = 3 }; // after the first

typedef struct Building {
  Problem *p;
  const Memory *m;
  const bool *copies; // by buffer: whether it has a node
  int *copy_node;
  Vec(SolverNode) node;
  Vec(SolverEdge) edge;
  Vec(SolverUse) * use; // of each node
} Building;

// -- Nodes of copies ---------------------------------------------------------------------------

static int distinct(const Problem *p, const Share *s, const Layout **out) {
  int n = 0;
  for (int i = 0; i < p->nodes.at[s->node].choices.n; i++) {
    int k = 0;
    while (k < n && out[k] != s->layout[i])
      k++;
    if (k == n) out[n++] = s->layout[i];
  }
  return n;
}

// Choice 2 k: no copy in layout k exists; 2 k + 1: one exists.
static void add_copy(Building *b, const Buffer *of) {
  const Problem *p = b->p;
  const Share *from = of->from, *as = of->as;
  int n_from = p->nodes.at[from->node].choices.n, n_as = p->nodes.at[as->node].choices.n;
  const Layout **layout = arena_array(p->scratch, const Layout *, n_as);
  int n = distinct(p, as, layout), node = b->node.n;
  // `tie` admits the two choices of the wanted layout; `need` forbids the first one if a copy is
  // required.
  int64_t *tie = arena_array(p->scratch, int64_t, (int64_t)2 * n * n_as);
  int64_t *need = arena_array(p->scratch, int64_t, (int64_t)2 * n * n_from);
  for (int k = 0; k < n; k++) {
    int at = 0;
    for (int i = 0; i < n_as; i++) {
      bool other = as->layout[i] != layout[k];
      if (!other) at = i;
      tie[2 * k * n_as + i] = tie[(2 * k + 1) * n_as + i] = other ? SOLVER_INFINITE : 0;
    }
    for (int i = 0; i < n_from; i++)
      need[2 * k * n_from + i] = copy_bytes(of, i, at) ? SOLVER_INFINITE : 0;
  }
  int64_t *none = arena_array(p->scratch, int64_t, 2 * n);
  vec_push(p->scratch, &b->node, ((SolverNode){2 * n, none, NULL, 0}));
  vec_push(p->scratch, &b->edge, ((SolverEdge){{node, as->node}, tie}));
  vec_push(p->scratch, &b->edge, ((SolverEdge){{node, from->node}, need}));
}

// -- Uses --------------------------------------------------------------------------------------

static bool is_alone(const Buffer *b) {
  return !b->from || b->from->node == b->as->node;
}

// Bytes of `count` instances of a buffer, for each choice of its node.
static int64_t *usage_of(const Building *b, const Buffer *of, int count) {
  const Problem *p = b->p;
  // The same bytes under every choice.
  if (!of->as) {
    int64_t *usage = arena_one(p->scratch, int64_t);
    usage[0] = count * of->bytes;
    return usage;
  }
  int n = p->nodes.at[of->as->node].choices.n;
  int64_t *usage = arena_array(p->scratch, int64_t, 2 * n);
  // Decided by the choices of one node.
  if (is_alone(of)) {
    for (int i = 0; i < n; i++)
      usage[i] = count * (of->from ? copy_bytes(of, i, i) : buffer_bytes(of, i));
    return usage;
  }
  // The node of a copy: the second choice of each layout has its bytes.
  const Layout **layout = arena_array(p->scratch, const Layout *, n);
  int n_layouts = distinct(p, of->as, layout);
  for (int k = 0; k < n_layouts; k++)
    for (int i = 0; i < n; i++)
      if (of->as->layout[i] == layout[k]) usage[2 * k + 1] = count * buffer_bytes(of, i);
  return usage;
}

// -- The problem -------------------------------------------------------------------------------

static bool has_norm(const Node *n, uint32_t axes) {
  for (int k = 0; n->norm && k < n->choices.n; k++)
    if (n->norm[k] == axes) return true;
  return false;
}

// A norm node is adjacent to all weights, and makes the problem expensive to solve. There is none
// if the norm is a small part of the step; then the norm influences no choice.
static void add_norms(Building *b) {
  const Problem *p = b->p;
  double sum = 0;
  for (uint32_t axes = 1; !(axes >> p->n_axes); axes++)
    sum += (double)p->norm[axes] * p->unit;
  if (sum <= LEAST_NORM * p->least) return;
  for (uint32_t axes = 1; !(axes >> p->n_axes); axes++) {
    bool any = false;
    for (int i = 0; i < p->nodes.n && !any; i++)
      any = has_norm(&p->nodes.at[i], axes);
    if (!any) continue;
    // Choice 0: no weight has a part of the norm to reduce over these axes; 1: some may.
    int node = b->node.n;
    int64_t *cost = arena_array(p->scratch, int64_t, 2);
    cost[1] = p->norm[axes];
    vec_push(p->scratch, &b->node, ((SolverNode){2, cost, NULL, 0}));
    // A weight with such a part forbids choice 0.
    for (int i = 0; i < p->nodes.n; i++) {
      const Node *n = &p->nodes.at[i];
      if (!has_norm(n, axes)) continue;
      int64_t *tie = arena_array(p->scratch, int64_t, (int64_t)2 * n->choices.n);
      for (int k = 0; k < n->choices.n; k++)
        if (n->norm[k] == axes) tie[k] = SOLVER_INFINITE;
      vec_push(p->scratch, &b->edge, ((SolverEdge){{node, i}, tie}));
    }
  }
}

// `copies`, by buffer: the copies in the problem.
static SolverProblem problem_with(Problem *p, const Memory *m, const bool *copies, int64_t limit) {
  Building b = {.p = p, .m = m, .copies = copies};
  int n = m ? m->buffer.n : 0, *node = arena_array(p->scratch, int, n);
  // The problem without memory.
  static const int64_t none[1] = {0};
  for (int i = 0; i < p->nodes.n; i++) {
    const Node *of = &p->nodes.at[i];
    vec_push(p->scratch, &b.node, ((SolverNode){of->choices.n, of->cost, NULL, 0}));
  }
  vec_push(p->scratch, &b.node, ((SolverNode){1, none, NULL, 0})); // for buffers of constant size
  for (int i = 0; i < p->pairs.n; i++) {
    const Pair *e = &p->pairs.at[i];
    vec_push(p->scratch, &b.edge, ((SolverEdge){{e->from, e->to}, pair_cost(p, e)}));
  }
  add_norms(&b);
  // The node that decides each buffer; -1: none, as copies at first.
  for (int i = 0; i < n; i++) {
    const Buffer *of = &m->buffer.at[i];
    node[i] = !of->as ? p->nodes.n : is_alone(of) ? of->as->node : copies[i] ? b.node.n : -1;
    if (!is_alone(of) && copies[i]) add_copy(&b, of);
  }
  // An interval for each run of rows with the same count of the buffer.
  b.use = arena_alloc_array(p->scratch, (size_t)b.node.n, sizeof *b.use);
  for (int i = 0; i < n; i++)
    for (int lo = 0, hi; node[i] >= 0 && lo < m->n_rows; lo = hi) {
      int count = m->count[(int64_t)lo * n + i];
      for (hi = lo + 1; hi < m->n_rows && m->count[(int64_t)hi * n + i] == count; hi++)
        ;
      if (!count) continue;
      SolverUse use = {usage_of(&b, &m->buffer.at[i], count), lo, hi};
      vec_push(p->scratch, &b.use[node[i]], use);
    }
  for (int i = 0; i < b.node.n; i++) {
    b.node.at[i].use = b.use[i].at;
    b.node.at[i].n_uses = b.use[i].n;
  }
  return (SolverProblem){b.node.at, b.edge.at, b.node.n, b.edge.n, limit};
}

// -- Hidden reductions -------------------------------------------------------------------------

static bool any_reduced(const Problem *p, bool late) {
  for (int i = 0; i < p->pairs.n; i++) {
    const Pair *e = &p->pairs.at[i];
    int n = p->nodes.at[e->from].choices.n * p->nodes.at[e->to].choices.n;
    for (int k = 0; e->reduced && e->late == late && k < n; k++)
      if (e->reduced[k] > 0) return true;
  }
  return false;
}

static bool may_hide(const Problem *p) {
  return p->slices == 1 && (any_reduced(p, false) || any_reduced(p, true));
}

// -- The answer --------------------------------------------------------------------------------

// The remaining budget of the solver.
typedef struct Left {
  double end, work;
  bool bound; // an answer without a limit did not fit into memory
} Left;

// `copies`: needed by the answers so far.
static Solved fit(Problem *p, const Memory *m, bool *copies, Left *left) {
  int n = m ? m->buffer.n : 0;
  bool *found = arena_array(p->scratch, bool, n);
  int64_t limit = left->bound ? p->memory : SOLVER_NO_LIMIT;
  for (;;) { // each round adds copies, so it ends
    SolverOptions options = p->options;
    Solved out = {.problem = problem_with(p, m, copies, limit), .bound = left->bound};
    // Half of the rest, as more rounds may follow.
    options.seconds = fmax((left->end - clock_seconds()) / 2, fmin(options.seconds, LEAST_SECONDS));
    if (p->options.work > 0) options.work = fmax(left->work / 2, fmin(p->options.work, LEAST_WORK));
    // Reductions that may hide are in the cost, but not in the seconds of the step.
    if (p->env->worth > 0 && !may_hide(p)) options.most = p->env->worth / p->unit;
    out.result = solver_solve(p->scratch, &out.problem, &options);
    left->work -= out.result.work;
    if (out.result.above) {
      out.result.choice = NULL;
      out.result.status = SOLVER_infeasible;
      out.above = true;
      return out;
    }
    if (out.result.choice && m) out.peak = memory_peak(m, out.result.choice, p->memory, found);
    out.problem.limit = p->memory;
    // Copies that are in memory when it is exceeded get nodes in the next round.
    bool any_new = false, free = out.result.choice && !out.bound;
    for (int i = 0; i < n; i++) {
      any_new |= found[i] && !copies[i];
      copies[i] |= found[i];
    }
    if (out.peak <= p->memory || !(any_new || free)) return out;
    left->bound = true;
    limit = p->memory;
  }
}

// -- The step ------------------------------------------------------------------------------------

// Seconds of a step, without the hidden ones.
static double step_of(const Problem *p, const int *choice, double hidden) {
  // The norm is reduced over the axes along which any weight has a part of it.
  double cost = 0;
  for (uint32_t axes = 1; !(axes >> p->n_axes); axes++)
    for (int i = 0; i < p->nodes.n; i++) {
      const Node *n = &p->nodes.at[i];
      if (!n->norm || n->norm[choice[i]] != axes) continue;
      cost += (double)p->norm[axes];
      break;
    }
  for (int i = 0; i < p->nodes.n; i++)
    cost += (double)p->nodes.at[i].cost[choice[i]];
  for (int i = 0; i < p->pairs.n; i++) {
    const Pair *e = &p->pairs.at[i];
    cost += (double)e->cost[choice[e->from] * p->nodes.at[e->to].choices.n + choice[e->to]];
  }
  return cost * p->unit - hidden;
}

SolverResult search_any(Problem *p) {
  const Memory *m = p->lives ? memory_of(p, p->lives) : NULL;
  bool *copies = arena_array(p->scratch, bool, m ? m->buffer.n : 0);
  p->exposed = 1;
  p->late_hides = false;
  Left left = {clock_seconds() + p->options.seconds, p->options.work, false};
  return fit(p, m, copies, &left).result;
}

// Solves with that part of the gradient reductions exposed.
static Solved fit_exposed(Problem *p, const Memory *m, bool *copies, Left *left, double share,
                          bool late_hides) {
  p->exposed = share;
  p->late_hides = late_hides;
  Solved out = fit(p, m, copies, left);
  if (!out.result.choice) return out;
  out.overlap = may_hide(p) ? overlap_of(p, out.result.choice) : (Overlap){.exposed = 1};
  out.step = step_of(p, out.result.choice, out.overlap.hidden);
  return out;
}

static void take_better(const Problem *p, const Solved *next, Solved *best) {
  if (next->result.choice && next->peak <= p->memory && next->step < best->step) *best = *next;
}

// The hidden time depends on the answer, so the problem is solved several times: with nothing
// hidden, with the loss hidden, with everything hidden, and then with the exposed part of the
// previous answer. The best of all is taken, so it is no worse than the first.
Solved search_solve(Problem *p) {
  double before = 0;
  // A lower bound of the seconds of a step, without a memory limit, and with every reduction hidden
  // that can be. Above the best known step it ends the search.
  if (p->env->worth > 0) {
    SolverProblem free = problem_with(p, NULL, NULL, SOLVER_NO_LIMIT);
    SolverOptions options = p->options;
    options.work = options.work > 0 ? fmin(options.work, LEAST_WORK) : LEAST_WORK;
    p->late_hides = may_hide(p);
    p->exposed = p->late_hides ? 0 : 1;
    SolverResult r = solver_solve(p->scratch, &free, &options);
    before = r.work;
    double least = r.has_bound ? (double)r.bound * p->unit : 0;
    if (least > p->env->worth)
      return (Solved){.result = {.status = SOLVER_infeasible},
                      .bound = true,
                      .above = true,
                      .slow = true,
                      .work = before};
  }
  const Memory *m = p->lives ? memory_of(p, p->lives) : NULL;
  bool *copies = arena_array(p->scratch, bool, m ? m->buffer.n : 0);
  double start = clock_seconds(), share = 0;
  Left left = {start + p->options.seconds, p->options.work, false};
  // Nothing hidden; then the loss, if there is anything to hide.
  Solved best = fit_exposed(p, m, copies, &left, 1, false);
  bool hides = best.result.choice && may_hide(p);
  if (hides && any_reduced(p, true)) {
    Solved next = fit_exposed(p, m, copies, &left, 1, true);
    take_better(p, &next, &best);
  }
  // Everything hidden; then the exposed part of the previous answer, until it does not change.
  for (int i = 0; i < ROUNDS && hides && !stop_wanted(p->env->stop); i++) {
    Solved next = fit_exposed(p, m, copies, &left, share, true);
    hides = next.result.choice && fabs(next.overlap.exposed - share) > LEAST_CHANGE;
    share = next.overlap.exposed;
    take_better(p, &next, &best);
  }
  best.bound = left.bound;
  best.needed = !best.result.choice && m ? memory_least(p, m) : 0;
  best.work = before + p->options.work - left.work;
  best.seconds = clock_seconds() - start;
  return best;
}
