// Values and ops on paths from trained weights to the loss: see gradient_path.h.

#include "ir/analysis/gradient_path.h"

#include "ir/analysis/op_names.h"

// Whether no gradient goes back through the op: it is piecewise constant, or detached.
static bool is_constant(const GradientPath *p, const Op *op) {
  return op_info[op->kind].grad == zero_grad || (p->detached && p->detached[op->id]);
}

static bool any_varied(const GradientPath *p, const Op *op) {
  for (int i = 0; i < op->n_in; i++)
    if (p->varied[op->in[i].value->id]) return true;
  return false;
}

static bool any_useful(const GradientPath *p, const Op *op) {
  for (int i = 0; i < op->n_out; i++)
    if (p->useful[op->out[i]->id]) return true;
  return false;
}

bool gradient_path_has(const GradientPath *p, const Op *op) {
  return !is_constant(p, op) && any_varied(p, op) && any_useful(p, op);
}

// Marks the ends of links; whether one of them is new.
static bool follow_links(const GradientPath *p, bool forward) {
  bool any = false;
  for (int i = 0; i < p->n_links; i++) {
    const ValueLink *l = &p->links[i];
    bool *mark = forward ? p->varied : p->useful;
    uint32_t from = forward ? l->from->id : l->to->id, to = forward ? l->to->id : l->from->id;
    if (!mark[from] || mark[to]) continue;
    any = mark[to] = true;
  }
  return any;
}

void gradient_path_mark(const Graph *g, const GradientPath *p) {
  // A link leads from an op to a parameter, which earlier ops do not read: again from the start.
  do
    for_each_op(op, g) {
      if (is_constant(p, op) || !any_varied(p, op)) continue;
      for (int i = 0; i < op->n_out; i++)
        p->varied[op->out[i]->id] = dtype_class[op->out[i]->type->dtype] == 'F';
    }
  while (follow_links(p, true));
  do
    for (const Op *op = g->last; op; op = op->prev) {
      if (is_constant(p, op) || !any_useful(p, op)) continue;
      for (int i = 0; i < op->n_in; i++)
        p->useful[op->in[i].value->id] = true;
    }
  while (follow_links(p, false));
}

ModelProblem gradient_problem(const Op *op, Arena *a) {
  const char *name = op_info[op->kind].name, *node = op_node(op);
  // The place has the types of operands and results.
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "%s of ", name);
  for (int i = 0; i < op->n_in; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "", type_text(a, op->in[i].value->type));
  for (int i = 0; i < op->n_out; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : " -> ", type_text(a, op->out[i]->type));
  const char *hint =
      str_format(a,
                 "the loss reaches trained weights through it: freeze the weights before it with "
                 "--freeze%s%s%s, or choose another --loss",
                 node && *node ? ", stop the gradient with --detach '" : "",
                 node && *node ? node : "", node && *node ? "'" : "");
  return (ModelProblem){.kind = PROBLEM_gradient,
                        .loc = op->loc,
                        .cause = str_format(a, "%s has no gradient", name),
                        .hint = hint,
                        .detail = b.at,
                        .op = name};
}
