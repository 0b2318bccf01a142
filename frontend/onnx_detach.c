// --detach GLOB: results of these nodes stop gradients, as x.detach() does in PyTorch.
//
//     y = Identity(x)      --detach y    =>    %y = detach %x
//     h = Add(a, b)        --detach h    =>    %h = add %a, %b;  %0 = detach %h
//
// A result stops gradients by an op of its own, because its node's ops may not last: an Identity
// has none, and simplification merges and removes others.  autodiff erases the op.

#include <string.h>

#include "frontend/onnx_walk.h"
#include "rt/nearest.h"

void onnx_detach_begin(Import *im) {
  // Globs are separated by commas, too; an empty one matches no node.
  for (int i = 0; i < im->o->n_detached; i++) {
    const char *at = im->o->detached[i];
    for (size_t n;; at += n + 1) {
      n = strcspn(at, ",");
      vec_push(im->a, &im->detach, ((DetachGlob){.glob = str_copy_n(im->a, at, n)}));
      if (!at[n]) break;
    }
  }
}

bool onnx_is_detached(Import *im, const Scope *scope, const Onnx__NodeProto *node) {
  if (!im->detach.n) return false;
  const char *name = onnx_node_loc(im, scope, node)->node;
  bool any = false;
  for (int i = 0; i < im->detach.n; i++) {
    DetachGlob *d = &im->detach.at[i];
    bool matches = str_glob(d->glob, name);
    d->matched |= matches;
    any |= matches;
    // The name nearest to a glob without a match is in its error.
    if (d->matched) continue;
    NnrtNearest near = {d->near, d->distance};
    nnrt_nearest(&near, d->glob, strlen(d->glob), name);
    d->near = near.name;
    d->distance = near.distance;
  }
  return any;
}

static Value *detached(Node *n, Value *v) {
  if (!v || dtype_class[v->type->dtype] != 'F' || (v->def && v->def->kind == OP_detach)) return v;
  Value *to = build_unary(n->b, OP_detach, v);
  const Counted *c = node_counted(n, v);
  if (to && c) node_count(n, to, c->axis, c->count);
  return to;
}

void onnx_detach_results(Import *im, Scope *scope, const Onnx__NodeProto *node) {
  Builder b = {.g = im->g, .origin = {.loc = onnx_node_loc(im, scope, node)}, .d = im->caught};
  Node n = {.op = "detach", .b = &b, .a = im->a, .proto = node, .scope = scope, .im = im};
  for (size_t i = 0; i < node->n_output; i++) {
    Binding *result = *onnx_str(node->output[i]) ? onnx_lookup(scope, node->output[i]) : NULL;
    if (!result || result->poisoned) continue;
    result->v = detached(&n, result->v);
    if (!result->sequence) continue;
    // Each tensor of a sequence.
    Value **at = arena_array(im->a, Value *, result->sequence->n);
    for (int k = 0; k < result->sequence->n; k++)
      at[k] = detached(&n, result->sequence->at[k]);
    Sequence *all = arena_copy(im->a, result->sequence, sizeof *all);
    all->at = at;
    result->sequence = all;
  }
  onnx_evaluate_new(im, &n);
}

bool onnx_check_detached(Import *im) {
  bool ok = true;
  for (int i = 0; i < im->detach.n; i++) {
    const DetachGlob *d = &im->detach.at[i];
    if (d->matched) continue;
    ok = diag_problem(im->d, PROBLEM_no_match, im->file->loc, "--detach '%s' matches no node%s",
                      d->glob, str_did_you_mean(im->a, d->near));
    diag_hint(im->d, "it takes names of nodes, of those that the outputs depend on; in a glob, * "
                     "is any text");
  }
  return ok;
}
