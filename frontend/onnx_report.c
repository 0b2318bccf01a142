// Collects the problems of the import, which are reported in one run, grouped by cause:
//
//     m.onnx:/split: error: StringSplit is not supported (2 nodes) [NN101]
//     m.onnx:/split: note: StringSplit, opset 20, of ?
//     m.onnx:/split_1: note: StringSplit, opset 20, of ?
//     hint: …
//
// Consequences of a reported problem are not reported: see `poisoned` in onnx_walk.h.  Bodies of a
// loop, a branch or a function that are not imported are searched for operators without an import:
// the types of their operands may be unknown.

#include <string.h>

#include "frontend/onnx_walk.h"

void onnx_problem(Import *im, ProblemKind kind, const Loc *loc, const char *cause,
                  const char *hint) {
  problem_add(&im->problems,
              (ModelProblem){.kind = kind, .loc = loc, .cause = cause, .hint = hint});
}

// "Gemm, opset 13, of f32[8,16], f32[16,4], -"
static const char *describe_node(Import *im, const Scope *scope, const Onnx__NodeProto *node,
                                 const Operator *o) {
  StrBuf b = {.arena = im->a};
  strbuf_addf(&b, "%s%s%s, opset %lld", o->domain, *o->domain ? "." : "", o->name,
              (long long)o->opset);
  for (size_t i = 0; i < node->n_input; i++) {
    const char *name = onnx_str(node->input[i]);
    // Operands that failed or are missing have no type.
    const Binding *in = *name ? onnx_lookup(scope, name) : NULL;
    strbuf_addf(&b, "%s%s", i ? ", " : ", of ",
                in && in->v          ? type_text(im->a, in->v->type)
                : in && in->sequence ? "a sequence"
                : *name              ? "?"
                                     : "-");
  }
  return b.at;
}

void onnx_node_problem(Import *im, ProblemKind kind, const Scope *scope,
                       const Onnx__NodeProto *node, const char *cause, const char *hint) {
  Operator o = onnx_operator(im, scope, node);
  problem_add(&im->problems, (ModelProblem){.kind = kind,
                                            .loc = onnx_node_loc(im, scope, node),
                                            .cause = cause,
                                            .hint = hint,
                                            .detail = describe_node(im, scope, node, &o),
                                            .op = o.name,
                                            .domain = o.domain,
                                            .opset = (int)o.opset});
}

// -- Bodies that are not imported --------------------------------------------------------------

enum { MOST_SURVEYED = 1 << 20, MOST_FOUND = 1 << 11, DEEPEST_SURVEY = 64 };

static void survey_body(Import *im, Scope *scope, Onnx__NodeProto *const *node, size_t n,
                        char *const *output, size_t n_output) {
  int *order, n_order;
  // Nodes that no output depends on do not count.
  if (im->depth == DEEPEST_SURVEY ||
      !onnx_order(im, node, n, output, n_output, scope, &order, &n_order))
    return;
  im->depth++;
  for (int i = 0; i < n_order && im->n_nodes < MOST_SURVEYED; i++) {
    if (im->problems.all.n == MOST_FOUND)
      onnx_problem(im, PROBLEM_operator, im->file->loc,
                   "has so many nodes without an import that the others are not looked for", NULL);
    if (im->problems.all.n > MOST_FOUND) return;
    const Onnx__NodeProto *one = node[order[i]];
    im->n_nodes++;
    Operator o = onnx_operator(im, scope, one);
    if (!o.row && !o.function) onnx_operator_problem(im, scope, one);
    onnx_survey(im, scope, one);
  }
  im->depth--;
}

void onnx_survey(Import *im, const Scope *scope, const Onnx__NodeProto *node) {
  const Onnx__FunctionProto *f = onnx_operator(im, scope, node).function;
  for (const Scope *s = scope; f && s; s = s->caller)
    if (s->function == f) return; // it calls itself
  if (f)
    survey_body(im, onnx_call_scope(im, scope, node, f), f->node, f->n_node, f->output,
                f->n_output);
  for (size_t i = 0; i < node->n_attribute; i++) {
    const Onnx__GraphProto *g = node->attribute[i]->g;
    if (!g) continue;
    Scope *body = onnx_scope_new(im, scope);
    body->prefix = onnx_node_name(im->a, scope, node);
    char **output = arena_array(im->a, char *, g->n_output);
    for (size_t k = 0; k < g->n_output; k++) {
      const char *name = onnx_str(g->output[k]->name);
      output[k] = arena_copy(im->a, name, strlen(name) + 1);
    }
    survey_body(im, body, g->node, g->n_node, output, g->n_output);
  }
}
