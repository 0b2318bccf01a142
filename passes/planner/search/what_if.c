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

#include <string.h>

#include "cost/cost.h"
#include "ir/analysis/op_names.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "search.h"

enum { MAX_ASKED = 8 }; // ops: each is a separate problem

typedef char Splits[MAX_AXES];

static void *copied(const Sharding *s, const void *at, uint32_t n, size_t size) {
  return arena_copy(s->scratch, at, n * size);
}

// Returns the answer for one op; NULL: the search has no node for it.
static const char *ask(const Sharding *s, const Op *op, const int *axis, int n) {
  // All decisions except those of one op, as if a program had made them.
  static const Loc decided = {0};
  Sharding t = *s;
  t.decisions.fixed_by = copied(s, s->decisions.fixed_by, s->n_ops, sizeof *s->decisions.fixed_by);
  t.constraints.op = copied(s, s->constraints.op, s->n_ops, sizeof *s->constraints.op);
  t.decisions.layout = copied(s, s->decisions.layout, s->n_values, sizeof *s->decisions.layout);
  t.decisions.param = copied(s, s->decisions.param, s->n_values, sizeof *s->decisions.param);
  t.env.about = op;
  t.record = NULL;
  t.env.problem_file = NULL;
  t.env.solutions = NULL;
  t.env.memory = SOLVER_NO_LIMIT;
  // All other ops are fixed, and parameters keep their layouts.
  for (int k = 0; k < n; k++) {
    int a = axis[k];
    t.decisions.final[a] = false;
    for_each_op(each, s->g)
      t.decisions.fixed_by[each->id][a] = each == op ? NULL : &decided;
    t.constraints.op[op->id][a] = NULL;
    for (int i = 0; i < s->g->n_params; i++) {
      uint32_t id = s->g->params[i]->id;
      if (t.decisions.param[id][a] == PARAM_open) t.decisions.param[id][a] = PARAM_fixed;
    }
  }
  // The split of the plan.
  SearchStats found = {0};
  StrBuf now = {.arena = s->scratch};
  for (int k = 0; k < n; k++)
    strbuf_addf(&now, "%s%c", k ? "," : "[", op->split[axis[k]] ? op->split[axis[k]] : '-');
  strbuf_add(&now, "]");
  // Errors of the search are not reported: then it has no answer.
  Diag *quiet = diag_new(stderr);
  diag_quiet(quiet, true);
  search_axes(&t, axis, n, true, s->env.cluster, NULL, &found, quiet);
  diag_free(quiet);
  if (!found.explained || !*found.explained) return NULL;
  return str_format(s->scratch, "%s  split=%s is the plan's\n", found.explained, now.at);
}

const char *search_otherwise(Sharding *s, const char *what) {
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
  Splits *was = arena_array(s->scratch, Splits, s->n_ops);
  for_each_op(op, s->g)
    memcpy(was[op->id], op->split, sizeof *was);
  for_each_op(op, s->g) {
    if (asked == MAX_ASKED || op_part(op) != PART_forward) continue;
    if (!op_is_meant(op, what, s->scratch)) continue;
    asked++;
    const char *said = ask(s, op, axis, n);
    if (said) strbuf_add(&b, said);
    for_each_op(each, s->g)
      memcpy(each->split, was[each->id], sizeof *was); // pricing kernels changes them
  }
  return b.n ? b.at : NULL;
}
