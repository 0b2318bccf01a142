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
// every element: that costs less than a kernel for the channels. Likewise batch_norm_back, with
//
//     dx = g rstd ((dy - db / count) - (x - m) rstd dg / count)
//
// The sums (batch_norm_mean, _var, _sums) keep their kernels. The pass is for gpus: a cpu computes
// too slowly for the square roots to be free.

#include "ir/analysis/local.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"
#include "pass.h"

typedef struct Expansion {
  Builder b;
  const Type *shape; // of x
  const Layout *layout;
  int axis;
} Expansion;

static Value *apply(Expansion *e, OpKind kind, Value *const *in, int n_in, Attrs attrs) {
  for (int i = 0; i < n_in; i++)
    if (!in[i]) return NULL;
  return local_value(&e->b, kind, in, n_in, attrs, e->layout);
}

// Broadcasts one number per channel to all elements.
static Value *each(Expansion *e, Value *v) {
  int after = e->shape->ndim - 1 - e->axis;
  if (after > 0) {
    int64_t dim[MAX_NDIM] = {v->type->dim[0]};
    for (int i = 1; i <= after; i++)
      dim[i] = 1;
    v = local_value(&e->b, OP_reshape, IN(v), ATTRS(a_list("shape", dim, after + 1)), v->layout);
    if (!v) return NULL;
  }
  return apply(e, OP_broadcast, IN(v), ATTRS(a_list("shape", e->shape->dim, e->shape->ndim)));
}

// Casts a tensor like x to the type of the sums.
static Value *wide(Expansion *e, const Op *op, Value *v) {
  return local_cast(&e->b, v, op->in[1].value->type->dtype);
}

static Value *rstd(Expansion *e, const Op *op, Value *var) {
  Value *v = apply(e, OP_offset, IN(each(e, var)), ATTRS(a_f("by", attr_f(op, "eps"))));
  return apply(e, OP_rsqrt, IN(v), NO_ATTRS);
}

static Value *expand_forward(Expansion *e, const Op *op) {
  Value *x = wide(e, op, op->in[0].value);
  Value *y = apply(e, OP_sub, IN(x, each(e, op->in[3].value)), NO_ATTRS);
  y = apply(e, OP_mul, IN(y, rstd(e, op, op->in[4].value)), NO_ATTRS);
  y = apply(e, OP_mul, IN(y, each(e, op->in[1].value)), NO_ATTRS);
  return apply(e, OP_add, IN(y, each(e, op->in[2].value)), NO_ATTRS);
}

static Value *expand_back(Expansion *e, const Op *op) {
  Attr part = a_f("by", 1 / (double)attr_i(op, "count"));
  Value *x = wide(e, op, op->in[0].value), *dy = wide(e, op, op->in[4].value);
  Value *r = rstd(e, op, op->in[3].value);
  Value *h = apply(e, OP_sub, IN(x, each(e, op->in[2].value)), NO_ATTRS);
  h = apply(e, OP_mul, IN(h, r), NO_ATTRS);
  Value *dg = apply(e, OP_scale, IN(each(e, op->in[5].value)), ATTRS(part));
  Value *db = apply(e, OP_scale, IN(each(e, op->in[6].value)), ATTRS(part));
  Value *dx = apply(e, OP_sub, IN(dy, db), NO_ATTRS);
  dx = apply(e, OP_sub, IN(dx, apply(e, OP_mul, IN(h, dg), NO_ATTRS)), NO_ATTRS);
  dx = apply(e, OP_mul, IN(dx, r), NO_ATTRS);
  return apply(e, OP_mul, IN(dx, each(e, op->in[1].value)), NO_ATTRS);
}

// Replaces one op. If the result does not fit, the new ops are dead.
static bool expand(Op *op, Diag *d) {
  Value *y = op->out[0];
  Expansion e = {.b = {.g = op->graph, .at = op, .origin = op_origin(op), .d = d},
                 .shape = y->type,
                 .layout = y->layout,
                 .axis = (int)attr_i(op, "axis")};
  Value *v = op->kind == OP_batch_norm ? expand_forward(&e, op) : expand_back(&e, op);
  if (v) v = local_cast(&e.b, v, y->type->dtype);
  if (!v || v->type != y->type || v->layout != y->layout) return false;
  value_replace_uses(y, v);
  op_erase(op);
  return true;
}

bool pass_expand_batch_norm(Module *m, const PassOptions *o, Diag *d) {
  int64_t n = 0;
  for_each_graph(g, m) {
    if (!g->entry) continue;
    for_each_op_safe(op, g)
      if (op->kind == OP_batch_norm || op->kind == OP_batch_norm_back) n += expand(op, d);
    drop_dead(g);
  }
  opt_stat(o, n, "batch normalisations");
  return true;
}
