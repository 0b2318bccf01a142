// The time of a step if one op has another split, under a plan that decides all splits: the
// search's problem, with one choice for every other op.
//
//     plan dp, 4 ranks, --explain c_attn
//
//     otherwise: linear, gpt2.onnx:/h.0/attn/c_attn/MatMul
//       split=[0]        1.711156 ms              nodes 1.598311, between 0.112845
//       split=[n]        1.987654 ms   +16.16 %   nodes 1.583305, between 0.404349
//       split=[0] is what the plan has
//
// Only values with several readers may deviate from the plan, as their best layout follows from the
// op.

#include "cost/cost.h"
#include "ir/analysis/op_names.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "search.h"
#include "splits.h"

enum { MAX_ASKED = 8 }; // ops: each is a separate problem

// Returns the answer for one op; NULL: the search has no node for it.
static const char *ask(const Sharding *s, Op *op, const int *axis, int n) {
  // The split of the plan.
  StrBuf now = {.arena = s->scratch};
  for (int k = 0; k < n; k++)
    strbuf_addf(&now, "%s%c", k ? "," : "[", op->split[axis[k]] ? op->split[axis[k]] : '-');
  strbuf_add(&now, "]");
  // All decisions except those of one op, as if a program had made them.
  static const Loc decided = {0};
  Sharding *open = sharding_copy(s);
  SavedSplits before = splits_save(s);
  for (int k = 0; k < n; k++)
    decide_all_but(open, op, axis[k], &decided);
  SearchEnv env = s->env;
  env.about = op;
  env.problem_file = NULL;
  env.solutions = NULL;
  env.memory = SOLVER_NO_LIMIT;
  // Errors of the search are not reported: then it has no answer.
  SearchStats found = {0};
  Chosen none;
  Diag *quiet = diag_new(stderr);
  diag_quiet(quiet, true);
  search_axes(open, &env, axis, n, true, NULL, &none, &found, quiet);
  diag_free(quiet);
  splits_restore(&before);
  if (!found.explained || !*found.explained) return NULL;
  return str_format(s->scratch, "%s  split=%s is the plan's\n", found.explained, now.at);
}

bool search_price(const Sharding *s, const int *axis, int n, const Loc *why, StepPrice *out,
                  Diag *d) {
  Sharding *decided = sharding_copy(s);
  SavedSplits before = splits_save(s);
  for (int k = 0; k < n; k++)
    decide_all(decided, axis[k], why);
  SearchEnv env = s->env;
  env.memory = SOLVER_NO_LIMIT;
  env.problem_file = env.explain = NULL;
  env.solutions = NULL;
  env.worth = 0;
  SearchStats found = {0};
  Chosen none;
  bool ok = search_axes(decided, &env, axis, n, true, why, &none, &found, d);
  splits_restore(&before);
  *out = (StepPrice){found.step, found.compute, found.peak};
  return ok;
}

const char *search_otherwise(const Sharding *s, const char *what) {
  // Splits along device axes are asked about; those along time follow.
  int axis[MAX_AXES], n = 0, asked = 0;
  for (int a = 0; a < s->mesh->n_axes; a++)
    if (!s->mesh->axis[a].time) axis[n++] = a;
  // The search needs a cluster with prices.
  if (!n || !cost_known(s->env.cluster) || s->mesh->n_devices > cluster_devices(s->env.cluster))
    return NULL;
  for_each_op(op, s->g)
    if (op_mesh(op) != s->mesh) return NULL; // ops on some of the ranks are not searched
  StrBuf b = {.arena = s->scratch};
  for_each_op(op, s->g) {
    if (asked == MAX_ASKED || op_part(op) != PART_forward) continue;
    if (!op_is_meant(op, what, s->scratch)) continue;
    asked++;
    const char *said = ask(s, op, axis, n);
    if (said) strbuf_add(&b, said);
  }
  return b.n ? b.at : NULL;
}
