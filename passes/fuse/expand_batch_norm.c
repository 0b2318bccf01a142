// Expands batch normalisation to elementwise ops, for targets bound by memory bandwidth:
//
//     %y = batch_norm %x, %g, %b, %m, %v axis=3 eps=1e-05     : bf16[8,4,4,16]
//     %r = relu %y                                            : bf16[8,4,4,16]
//
//   =>
//
//     %0 = cast %x to=f32                     y = (x - m) rsqrt(v + eps) g + b, in f32, with
//     %1 = broadcast %m shape=[8,4,4,16]      m, v, g and b broadcast over all but the channel
//     %2 = sub %0, %1
//     …
//     %y = cast %9 to=bf16
//     %r = relu %y
//
// Then fuse makes one kernel of this, the relu, and the sum with the shortcut. With a library
// kernel, each of these would read and write the tensor once more. The square root is computed for
// every element: that costs less than a kernel for the channels. Likewise batch_norm_back:
// ir/definition.c has both.
//
// The sums (batch_norm_mean, _var, _sums) keep their kernels. The pass is for gpus: a cpu computes
// too slowly for the square roots to be free.

#include "ir/analysis/local.h"
#include "ir/analysis/rewrite.h"
#include "ir/definition.h"
#include "pass.h"

static bool expand(Op *op, Arena *scratch, Diag *d) {
  Value **result = op_expand(op, scratch, d);
  if (!result) return false;
  if (!local_same(result[0]->def, 0, op->out[0])) BUG("a batch normalisation changes its layout");
  value_replace_uses(op->out[0], result[0]);
  op_erase(op);
  return true;
}

bool pass_expand_batch_norm(Module *m, const PassOptions *o, Diag *d) {
  int64_t n = 0;
  for_each_graph(g, m) {
    if (!g->entry) continue;
    for_each_op_safe(op, g) {
      if (op->kind != OP_batch_norm && op->kind != OP_batch_norm_back) continue;
      if (!expand(op, opt_scratch(o), d)) return false;
      n++;
    }
    drop_dead(g);
  }
  opt_stat(o, n, "batch normalisations");
  return true;
}
