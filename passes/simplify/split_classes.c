// A cross entropy with splittable classes.
//
// The loss of a row is lse - x[label], with lse = log(sum of exp(x)) over all classes. Neither can
// be computed from the losses of parts of the classes. But lse follows from the lse of the parts,
// and x[label] is a sum over the parts of which all but one are 0. In two parts:
//
//     %loss, %lse = cross_entropy %x, %labels ignore=-100    : f32[8], f32[8]         x f32[8,96]
//
//   =>                                                                          split by
//
//     %0    = lse_parts %x shape=[8,2]      : f32[8,2]   of each part           g
//     %1    = lse_parts %0 shape=[8,1]      : f32[8,1]   of the parts' lse
//     %lse  = reshape %1 shape=[8]          : f32[8]
//     %2    = nll %x, %labels ignore=-100   : f32[8]     -x[label]              c: partial sums
//     %3    = add %lse, %2                  : f32[8]     the loss of rows that count
//     %4    = fill value=-100 to=i64
//     %5    = broadcast %4 shape=[8]        : i64[8]
//     %6    = equal %labels, %5             : bool[8]    those that do not
//     %7    = fill value=0 shape=[8] to=f32
//     %loss = where %6, %7, %3              : f32[8]
//
// So a device with some of the classes sends two numbers for each row, and no logits. The summands
// are those of a whole cross_entropy, and as precise: every exponential is relative to the largest
// logit of its part, every part to the largest of these.
//
// cross_entropy_back, which reads %lse, can be split as it is.
//
// For a second axis each part is divided again: only the shape of %0 changes.

#include "split_classes.h"

#include <string.h>

#include "ir/analysis/local.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"

// The log-sum-exp of each of `parts` equal parts of the last dimension, without padding after
// `classes`, unless that is 0.
static Value *parts_of(Builder *b, Value *x, int64_t parts, int64_t classes) {
  int64_t shape[MAX_NDIM];
  int ndim = x->type->ndim;
  memcpy(shape, x->type->dim, sizeof shape);
  shape[ndim - 1] = parts;
  return build_op(b, OP_lse_parts, IN(x),
                  ATTRS(a_list("shape", shape, ndim), a_i("classes", classes)));
}

// The losses, with 0 for the label `ignore`.
static Value *without_ignored(Builder *b, Value *losses, Value *labels, int64_t ignore) {
  const Type *t = labels->type;
  int32_t narrow = (int32_t)ignore;
  if (t->dtype == DT_i32 && narrow != ignore) return losses; // no label can be
  const void *bytes = t->dtype == DT_i32 ? (const void *)&narrow : &ignore;
  Value *one = build_constant(b, type_scalar(b->g->module, t->dtype), bytes);
  Value *all = build_broadcast(b, one, t->ndim, t->dim);
  Value *ignored = build_op(b, OP_equal, IN(labels, all), NO_ATTRS);
  Value *zero = build_fill(b, losses->type->dtype, t->ndim, t->dim, 0);
  return build_where(b, ignored, zero, losses);
}

Op *split_classes(Op *op, int parts, Diag *d) {
  Value *x = op->in[0].value, *labels = op->in[1].value;
  const Type *t = op->out[0]->type;
  int64_t classes = x->type->dim[t->ndim];
  if (parts < 1 || classes % parts != 0) {
    diag_error(d, op->loc, "cross_entropy: %lld classes cannot be split in %d equal parts",
               (long long)classes, parts);
    return NULL;
  }
  Builder b = {.g = op->graph, .at = op, .origin = op_origin(op), .d = d};
  // The lse of the parts, and of these.
  Value *each = parts_of(&b, x, parts, attr_i(op, "classes")), *one = parts_of(&b, each, 1, 0);
  Value *lse = build_reshape(&b, one, t->ndim, t->dim);
  // The loss is lse - x[label], or 0 for the ignored label.
  Value *minus =
      build_op(&b, OP_nll, IN(x, labels), ATTRS(*op_attr(op, "ignore"), *op_attr(op, "classes")));
  Value *losses = build_op(&b, OP_add, IN(lse, minus), NO_ATTRS);
  Value *loss = without_ignored(&b, losses, labels, attr_i(op, "ignore"));
  if (b.failed) return NULL;
  value_replace_uses(op->out[0], loss);
  value_replace_uses(op->out[1], lse);
  op_erase(op);
  return each->def;
}

bool is_split_loss(const Op *op) {
  const Op *made = op->kind == OP_lse_parts ? op->in[0].value->def : NULL;
  const Op *reader = op->kind == OP_lse_parts ? only_reader(op->out[0]) : NULL;
  return reader && reader->kind == OP_lse_parts && !(made && made->kind == OP_lse_parts);
}

bool split_classes_again(Op *op, int times, Diag *d) {
  const Type *x = op->in[0].value->type, *t = op->out[0]->type;
  int64_t shape[MAX_NDIM], classes = x->dim[x->ndim - 1], parts = t->dim[t->ndim - 1];
  if (times < 1 || classes % (parts * times) != 0)
    return diag_error(d, op->loc,
                      "cross_entropy: %lld classes in %lld parts cannot be split in %d equal parts "
                      "each",
                      (long long)classes, (long long)parts, times);
  memcpy(shape, t->dim, sizeof shape);
  shape[t->ndim - 1] = parts * times;
  op_set_attr(op, a_list("shape", shape, t->ndim));
  op->out[0]->type = type_new(op->graph->module, t->dtype, t->ndim, shape);
  return true;
}
