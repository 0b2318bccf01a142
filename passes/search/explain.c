// Why it was decided so: what the whole step would take if one node was another way and all others
// were the best for that.
//
//     search: linear, gpt3.nn:/h0/up, and 95 like it
//       split=[0,n]    7906.417 ms
//       split=[0,0]    7911.300 ms   +0.062 %
//       split=[n,0]    8107.218 ms   +2.540 %

#include <stdlib.h>
#include <string.h>

#include "ir/op.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "problem.h"

enum { MAX_EXPLAINED = 8 }; // nodes: each of their choices is a problem of its own

typedef struct Alternative {
  const Choice *choice;
  int64_t cost; // of all; SOLVER_INFINITE: it cannot be, or not be found in the time that there is
} Alternative;

static bool is_meant(Arena *a, const Node *n, const char *what) {
  if (n->v)
    return !n->shared && (str_equal(n->v->label, what) || str_equal(value_text(a, n->v), what));
  for (int i = 0; i < n->op->n_out && what[0] == '%'; i++)
    if (str_equal(value_text(a, n->op->out[i]), what)) return true;
  if (what[0] == '%') return false;
  return str_equal(op_info[n->op->kind].name, what) ||
         (n->op->loc && strstr(loc_comment(a, n->op->loc), what));
}

static const char *layout_of(const Problem *p, Arena *a, const Sbp *lies) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < p->n_axes; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "{", sbp_text(a, lies[p->axis[i]]));
  strbuf_add(&b, "}");
  return b.at;
}

static const char *choice_text(const Problem *p, Arena *a, const Node *n, const Choice *c) {
  if (n->v) {
    const char *lies = layout_of(p, a, c->lies), *back = layout_of(p, a, c->back);
    return str_equal(lies, back) ? lies : str_format(a, "%s, its states %s", lies, back);
  }
  StrBuf b = {.arena = a};
  strbuf_add(&b, "split=[");
  for (int i = 0; i < p->n_axes; i++) {
    char letter = c->split[p->axis[i]];
    strbuf_addf(&b, "%s%c", i ? "," : "", letter ? letter : '-');
  }
  strbuf_add(&b, "]");
  return b.at;
}

static int by_cost(const void *x, const void *y) {
  const Alternative *a = x, *b = y;
  return (a->cost > b->cost) - (a->cost < b->cost);
}

static int64_t cost_with(const Problem *p, const SolverProblem *problem, int node, int choice) {
  Arena *a = arena_new();
  const SolverNode *old = &problem->node[node];
  SolverNode *all = arena_copy(a, problem->node, sizeof *all * (size_t)problem->n_nodes);
  int64_t *cost = arena_array(a, int64_t, old->n);
  for (int k = 0; k < old->n; k++)
    cost[k] = k == choice ? old->cost[k] : SOLVER_INFINITE;
  all[node].cost = cost;
  SolverProblem fixed = *problem;
  fixed.node = all;
  SolverResult r = solver_solve(a, &fixed, &p->options);
  int64_t total = r.choice && r.cost < SOLVER_INFINITE ? (int64_t)r.cost : SOLVER_INFINITE;
  arena_free(a);
  return total;
}

static void explain_node(const Problem *p, const SolverProblem *problem, int node, StrBuf *out) {
  Arena *a = out->arena;
  const Node *n = &p->nodes.at[node];
  Alternative *all = arena_array(a, Alternative, n->choices.n);
  for (int k = 0; k < n->choices.n; k++)
    all[k] = (Alternative){&n->choices.at[k], cost_with(p, problem, node, k)};
  qsort(all, (size_t)n->choices.n, sizeof *all, by_cost);
  strbuf_addf(out, "search: %s", n->v ? value_text(a, n->v) : op_info[n->op->kind].name);
  if (n->op) strbuf_addf(out, ", %s", loc_comment(a, n->op->loc));
  if (n->n > 1) strbuf_addf(out, ", and %d like it", n->n - 1);
  strbuf_add(out, "\n");
  for (int k = 0; k < n->choices.n && all[k].cost < SOLVER_INFINITE; k++) {
    double ms = (double)all[k].cost * 1e-9, best = (double)all[0].cost * 1e-9;
    strbuf_addf(out, "  %-24s %12.6f ms", choice_text(p, a, n, all[k].choice), ms);
    if (k) strbuf_addf(out, "   +%.3f %%", best > 0 ? 100 * (ms - best) / best : 0);
    strbuf_add(out, "\n");
  }
}

const char *search_explain(const Problem *p, const SolverProblem *problem, const char *what) {
  StrBuf b = {.arena = p->scratch};
  int n = 0;
  for (int i = 0; i < p->nodes.n && n < MAX_EXPLAINED; i++) {
    if (!is_meant(p->scratch, &p->nodes.at[i], what)) continue;
    explain_node(p, problem, i, &b);
    n++;
  }
  return b.at;
}
