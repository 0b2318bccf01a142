// Batch normalisation in training, lowered to ops that can be sharded along the batch.
//
//     %y, %m, %v, %rm1, %rv1 = batch_norm_train %x, %g, %b, %rm, %rv axis=1 momentum=0.9
//
//   =>
//
//     %m   = batch_norm_mean %x axis=1 count=128            a sum over rows: partial sums of ranks
//     %v   = batch_norm_var %x, %m axis=1 count=128         likewise
//     %y   = batch_norm %x, %g, %b, %m, %v axis=1
//     %rm1 = add (scale %rm by=0.9), (scale %m by=0.1)
//     %rv1 = add (scale %rv by=0.9), (scale %v by=0.1)      times n/(n-1) if unbiased
//
// Each op is split over the batch by its einsum: mean and var become partial sums that comm
// reduces, so the statistics are those of the global batch under every plan.  A split into
// micro-batches is an error that comm reports: y needs the mean before later rows are computed.
//
// Runs after autodiff, since the gradient of the whole op is simpler than the chain of gradients of
// its parts.

#include <string.h>

#include "ir/build.h"
#include "pass.h"

static Value *statistic(Builder *b, OpKind kind, const Op *op, Value *mean, int64_t count) {
  Value *x = op->in[0].value;
  Attrs attrs = ATTRS(*op_attr(op, "axis"), a_i("count", count));
  return mean ? build_op(b, kind, IN(x, mean), attrs) : build_op(b, kind, IN(x), attrs);
}

// running * momentum + fresh * (1 - momentum)
static Value *blend(Builder *b, Value *running, Value *fresh, double momentum, double correction) {
  if (!fresh) return NULL;
  Value *kept = build_scale(b, running, momentum);
  return build_op(b, OP_add, IN(kept, build_scale(b, fresh, correction * (1 - momentum))),
                  NO_ATTRS);
}

static bool lower(Op *op, Diag *d) {
  Builder b = {.g = op->graph, .at = op, .origin = op_origin(op), .d = d};
  Value *x = op->in[0].value, *g = op->in[1].value, *shift = op->in[2].value;
  int64_t count = type_count(x->type) / x->type->dim[attr_i(op, "axis")];
  double momentum = attr_f(op, "momentum");
  double correction = attr_i(op, "unbiased") ? (double)count / (double)(count - 1) : 1;
  // The mean and the variance become ops of their own, which ranks can compute as partial sums.
  Value *out[5];
  out[1] = statistic(&b, OP_batch_norm_mean, op, NULL, count);
  out[2] = statistic(&b, OP_batch_norm_var, op, out[1], count);
  out[0] = build_op(&b, OP_batch_norm, IN(x, g, shift, out[1], out[2]),
                    ATTRS(*op_attr(op, "axis"), *op_attr(op, "eps")));
  // The running statistics are built only if they are read: the model may not keep them.
  out[3] = out[4] = NULL;
  if (value_used(op->out[3])) out[3] = blend(&b, op->in[3].value, out[1], momentum, 1);
  if (value_used(op->out[4])) out[4] = blend(&b, op->in[4].value, out[2], momentum, correction);
  if (b.failed) return false;
  // The new values take over the readers and the names.
  for (int i = 0; i < 5; i++) {
    if (!out[i]) continue;
    const char *name = op->out[i]->name;
    value_replace(op->out[i], out[i]);
    if (!name) continue;
    value_set_name(op->out[i], NULL);
    value_set_name(out[i], name);
  }
  op_erase(op);
  return true;
}

bool pass_lower_batch_norm(Module *m, const PassOptions *o, Diag *d) {
  int64_t n = 0;
  for_each_graph(g, m) {
    for_each_op_safe(op, g) {
      if (op->kind != OP_batch_norm_train) continue;
      if (!lower(op, d)) return false;
      n++;
    }
  }
  opt_stat(o, n, "batch normalisations");
  return true;
}
