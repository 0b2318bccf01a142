// Reasons of a decision: the time of the whole step under each choice of a node, with the best
// choices of all other nodes for it; the parts of this time in nodes (kernels, updates of weights)
// and between them (reshards); and the reason that excludes a choice: it does not fit, or is
// impossible.
//
//     search: linear, gpt3.nn:/h0/up, and 95 like it
//       split=[0,n]    7906.417 ms            nodes 7201.220, between 705.197
//       split=[0,0]    7911.300 ms   +0.062 % nodes 7201.220, between 710.080
//       split=[n,0]    7100.031 ms            does not fit: 83221180112 bytes, there are 80000000000
//       split=[-,-]    cannot be
//     search: linear, gpt3.nn:/h0/down
//       split=[0,k]    7906.417 ms            nodes 7201.220, between 705.197
//       mine.lua:7:3 says so of it

#include <stdlib.h>
#include <string.h>

#include "ir/analysis/op_names.h"
#include "ir/op.h"
#include "ir/op_display_name.h"
#include "ir/text.h"
#include "ir/verify/verify.h"
#include "problem.h"
#include "solved.h"

enum { MAX_EXPLAINED = 8 }; // nodes: each of their choices is a separate problem

typedef struct Alternative {
  const Choice *choice;
  SolverStatus status;
  int64_t cost, nodes; // of all, and of nodes; SOLVER_INFINITE: no solution
  int64_t needed;      // bytes of a rank without a limit, if it does not fit; or 0
} Alternative;

static const char *layout_of(const Problem *p, Arena *a, const Sbp *layout) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < p->n_axes; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "{", sbp_text(a, layout[p->axis[i]]));
  strbuf_add(&b, "}");
  return b.at;
}

static const char *choice_text(const Problem *p, Arena *a, const Node *n, const Choice *c) {
  if (n->v) {
    const char *layout = layout_of(p, a, c->layout), *back = layout_of(p, a, c->back);
    return str_equal(layout, back) ? layout : str_format(a, "%s, its states %s", layout, back);
  }
  StrBuf b = {.arena = a};
  strbuf_add(&b, "split=[");
  for (int i = 0; i < p->n_axes; i++) {
    char letter = c->split[p->axis[i]];
    strbuf_addf(&b, "%s%c", i ? "," : "", letter ? letter : '-');
  }
  strbuf_add(&b, "]");
  if (c->via >= 0) strbuf_addf(&b, " of operand %d", c->via);
  return b.at;
}

// Choices that fit come first, then by cost.
static int by_cost(const void *x, const void *y) {
  const Alternative *a = x, *b = y;
  if (!a->needed != !b->needed) return a->needed ? 1 : -1;
  return (a->cost > b->cost) - (a->cost < b->cost);
}

static void solve(const Problem *p, const SolverProblem *problem, Arena *a, Alternative *out) {
  SolverResult r = solver_solve(a, problem, &p->options);
  out->status = r.status;
  out->cost = out->nodes = SOLVER_INFINITE;
  if (!r.choice || r.cost >= SOLVER_INFINITE) return;
  out->cost = (int64_t)r.cost;
  // The part of nodes; edges have the rest.
  out->nodes = 0;
  for (int i = 0; i < problem->n_nodes; i++)
    out->nodes += problem->node[i].cost[r.choice[i]];
  int64_t moment, peak = (int64_t)solver_peak(problem, r.choice, &moment);
  if (peak > p->memory) out->needed = peak;
}

static Alternative with(const Problem *p, const SolverProblem *problem, int node, int choice) {
  Arena *a = arena_new();
  Alternative out = {.choice = &p->nodes.at[node].choices.at[choice]};
  // All other choices of the node are excluded.
  const SolverNode *old = &problem->node[node];
  SolverNode *all = arena_copy(a, problem->node, sizeof *all * (size_t)problem->n_nodes);
  int64_t *cost = arena_array(a, int64_t, old->n);
  for (int k = 0; k < old->n; k++)
    cost[k] = k == choice ? old->cost[k] : SOLVER_INFINITE;
  all[node].cost = cost;
  SolverProblem fixed = *problem;
  fixed.node = all;
  solve(p, &fixed, a, &out);
  // Of a choice that does not fit, the cost without a limit, and its bytes.
  if (out.status == SOLVER_infeasible && problem->limit != SOLVER_NO_LIMIT) {
    fixed.limit = SOLVER_NO_LIMIT;
    solve(p, &fixed, a, &out);
  }
  arena_free(a);
  return out;
}

static void explain_node(const Problem *p, const SolverProblem *problem, int node, int taken,
                         StrBuf *out) {
  Arena *a = out->arena;
  const Node *n = &p->nodes.at[node];
  // The line of the constraint that leaves the op one choice; NULL: there is none.
  const Loc *fixed_by = NULL;
  for (int i = 0; n->op && i < p->n_axes; i++)
    if (p->s->decisions.fixed_by[n->op->id][p->axis[i]]) {
      fixed_by = p->s->decisions.fixed_by[n->op->id][p->axis[i]];
      break;
    }
  // A separate problem for each choice.
  Alternative *all = arena_array(a, Alternative, n->choices.n);
  for (int k = 0; k < n->choices.n; k++)
    all[k] = with(p, problem, node, k);
  qsort(all, (size_t)n->choices.n, sizeof *all, by_cost);
  // The title: the node, and the ops that it decides.
  strbuf_addf(out, "%s: %s", p->env->about ? "otherwise" : "search",
              n->v ? value_text(a, n->v) : op_info[n->op->kind].name);
  if (n->shared) strbuf_add(out, ", for all that read it");
  const char *place = n->op ? op_full_place(a, n->op) : "";
  if (*place) strbuf_addf(out, ", %s", place);
  if (n->n > 1) strbuf_addf(out, ", and %d like it", n->n - 1);
  strbuf_add(out, "\n");
  // One line for each choice, with the time that it takes more than the best.
  double least = (double)all[0].cost * 1e3 * p->unit;
  for (int k = 0; k < n->choices.n; k++) {
    const Alternative *x = &all[k];
    strbuf_addf(out, "  %-24s ", choice_text(p, a, n, x->choice));
    if (x->cost >= SOLVER_INFINITE) {
      bool time_out = x->status == SOLVER_time_out;
      strbuf_add(out, time_out ? "nothing was found in the time there is\n" : "cannot be\n");
      continue;
    }
    double ms = (double)x->cost * 1e3 * p->unit;
    strbuf_addf(out, "%12.6f ms   ", ms);
    bool is_more = !x->needed && ms > least && least > 0;
    const char *more = is_more ? str_format(a, "+%.3f %%", 100 * (ms - least) / least) : "";
    strbuf_addf(out, "%-12s", more);
    if (x->needed)
      strbuf_addf(out, "does not fit: %lld bytes, there are %lld\n", (long long)x->needed,
                  (long long)p->memory);
    else
      strbuf_addf(out, "nodes %.6f, between %.6f\n", (double)x->nodes * 1e3 * p->unit,
                  (double)(x->cost - x->nodes) * 1e3 * p->unit);
  }
  // A plan's choice that the search would not take.
  for (int k = 1; k < n->choices.n; k++)
    if (taken >= 0 && all[k].choice == &n->choices.at[taken] && all[k].cost > all[0].cost)
      strbuf_addf(out, "  taken is %s: the step that is made with it takes less\n",
                  choice_text(p, a, n, all[k].choice));
  if (fixed_by) strbuf_addf(out, "  %s says so of it\n", loc_text(a, fixed_by));
}

const char *search_explain(const Problem *p, const SolverProblem *problem, const char *what,
                           const int *choice) {
  StrBuf b = {.arena = p->scratch};
  int n = 0;
  const Op *about = p->env->about;
  for (int i = 0; i < p->nodes.n && n < MAX_EXPLAINED; i++) {
    const Node *node = &p->nodes.at[i];
    // A value is named by its label or its text, an op as op_is_meant accepts it.
    if (about && node->op != about) continue;
    if (!about && node->v && !str_equal(node->v->label, what) &&
        !str_equal(value_text(p->scratch, node->v), what))
      continue;
    if (!about && !node->v && !op_is_meant(node->op, what, p->scratch)) continue;
    explain_node(p, problem, i, choice ? choice[i] : -1, &b);
    n++;
  }
  return b.at;
}
