// ONNX's losses, on scores (n, c, d…) and labels (n, d…), with an optional weight for each class:
//
//     SoftmaxCrossEntropyLoss    l = -log(softmax(scores))[label] * weight[label]
//     NegativeLogLikelihoodLoss  l = -scores[label] * weight[label]
//
// and l = 0 if the label is ignore_index.  The result is l, its sum, or its mean: the sum divided
// by the sum of the applied weights.

#include "frontend/onnx_node.h"

// No label has this value.
static const int64_t no_label = INT64_MIN;

// Returns the weight of every label; NULL if all are one.
static Value *label_weights(Node *n, Value *labels, int64_t ignore) {
  Value *weight = node_in(n, 2), *kept = NULL;
  node_keep(n, 2, WHY_class_weights);
  DType dtype = n->in[0]->type->dtype;
  if (ignore != no_label) {
    // Ignored labels have weight 0; they look up class 0, as they may be out of range.
    Value *ignored = node_binary(n, OP_equal, labels, node_like(n, labels, (double)ignore));
    kept = build_cast(n->b, node_unary(n, OP_not, ignored), dtype);
    labels = build_where(n->b, ignored, node_like(n, labels, 0), labels);
  }
  if (!weight) return kept;
  Value *w = build_op(n->b, OP_gather, IN(weight, labels), ATTRS(a_i("axis", 0)));
  return kept ? build_op(n->b, OP_mul, IN(w, kept), NO_ATTRS) : w;
}

// Scores and labels that a mask selects, as they are before the selection, with the label `ignore`
// where the mask is false: their sum is the same, and needs no rows of other ranks.  False: they
// are not selected so.
static bool unselected(Node *n, int64_t ignore, Value **io_x, Value **io_labels) {
  const Op *x = (*io_x)->def, *labels = (*io_labels)->def;
  if (!x || !labels || x->kind != OP_gather || labels->kind != OP_gather) return false;
  if (attr_i(x, "axis") || attr_i(x, "batch") || attr_i(labels, "axis") || attr_i(labels, "batch"))
    return false;
  const Value *index = x->in[1].value;
  const Op *of = index->def;
  Value *all = labels->in[0].value;
  // Of all rows, without a smaller bound.
  if (!of || of->kind != OP_nonzero || index != of->out[0] || index->type->ndim != 1 ||
      all->type->ndim != 1 || index->type->dim[0] != all->type->dim[0] ||
      of->in[0].value->type->dim[0] != all->type->dim[0] ||
      x->in[0].value->type->dim[0] != all->type->dim[0] || !node_same(index, labels->in[1].value))
    return false;
  *io_x = x->in[0].value;
  all = build_cast(n->b, all, DT_i64);
  *io_labels =
      all ? build_where(n->b, of->in[0].value, all, node_like(n, all, (double)ignore)) : NULL;
  return true;
}

static bool loss(Node *n, OpKind kind) {
  Value *x = n->in[0], *labels = n->in[1];
  const char *reduction = node_str(n, "reduction", "mean");
  bool none = str_equal(reduction, "none"), mean = str_equal(reduction, "mean");
  int64_t ignore = node_int(n, "ignore_index", no_label);
  // Padding is ignored, by a value that no other label has.
  if (node_counted(n, labels)) {
    if (ignore == no_label) ignore = -(1LL << 52);
    bool sums = !none && !node_wants(n, 1);
    if (!sums || !unselected(n, ignore, &x, &labels)) {
      labels = build_cast(n->b, labels, DT_i64);
      Value *valid = labels ? node_valid(n, node_counted(n, n->in[1]), labels->type) : NULL;
      if (!valid) return false;
      labels = build_where(n->b, valid, labels, node_like(n, labels, (double)ignore));
    }
    if (!labels) return false;
  }
  if (x->type->ndim < 2) return node_fail(n, "operand 0 has no dimension of classes");
  // The reductions of the standard.
  if (!none && !mean && !str_equal(reduction, "sum"))
    return node_fail(n, "reduction '%s' is unknown", reduction);
  // (n, c, d…) to (n, d…, c)
  int64_t perm[MAX_NDIM];
  int ndim = x->type->ndim;
  for (int i = 0; i < ndim; i++)
    perm[i] = i == 0 ? 0 : i == ndim - 1 ? 1 : i + 1;
  Value *scores = build_transpose(n->b, x, perm);
  Value *l = build_op(n->b, kind, IN(scores, labels), ATTRS(a_i("ignore", ignore)));
  if (!l) return false;
  // Also without class weights, ignored labels have weight 0.
  Value *w = label_weights(n, labels, ignore);
  if (w && node_in(n, 2)) l = build_op(n->b, OP_mul, IN(l, w), NO_ATTRS);
  if (!l) return false;
  int64_t axes[MAX_NDIM], count = type_count(l->type);
  for (int i = 0; i < l->type->ndim; i++)
    axes[i] = i;
  if (!none) l = build_reduce_sum(n->b, l, axes, l->type->ndim, false);
  // A weighted mean divides by the sum of the weights.
  if (mean && w)
    l = build_op(n->b, OP_div, IN(l, build_reduce_sum(n->b, w, axes, w->type->ndim, false)),
                 NO_ATTRS);
  else if (mean)
    l = build_scale(n->b, l, 1.0 / (double)count);
  n->out[0] = l;
  return true;
}

bool import_softmax_cross_entropy_loss(Node *n) {
  if (!loss(n, OP_cross_entropy)) return false;
  if (node_wants(n, 1))
    n->out[1] = build_op(n->b, OP_log_softmax, IN(n->in[0]), ATTRS(a_i("axis", 1)));
  return true;
}

bool import_negative_log_likelihood_loss(Node *n) {
  return loss(n, OP_nll);
}
