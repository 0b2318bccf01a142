// Attention that reads q, k and v where one product left them, for targets whose kernel takes them
// at any stride:
//
//     %q = slice %p …[0,0,0] …  : f32[8,64,64]        %q4 = reshape %q … : f32[8,64,4,16]
//     %k = slice %p …[0,0,64]   %v = slice %p …[0,0,128]   …
//     %y, %lse = attention %q4, %k4, %v4 causal=true seq_major=true
//     …
//     %dq, %dk, %dv = attention_back %q4, %k4, %v4, %y, %lse, %dy causal=true seq_major=true
//     %dp = concat %dq3, %dk3, %dv3 axis=2 : f32[8,64,192]             the three reshaped
//
//   =>  %y3, %lse = attention_packed %p heads=4 causal=true            %y = reshape %y3
//       %dp = attention_packed_back %p, %y3, %lse, %dy3 heads=4 causal=true
//
// Cutting q, k and v apart and putting their adjoints together takes as many bytes through memory
// as attention itself at short lengths.  q, k and v must have the same number of heads, and no
// mask. Only what the target has a kernel for is fused.

#include "ir/kernel.h"
#include "local.h"
#include "pass.h"
#include "rewrite.h"

typedef struct Fusion {
  Graph *g;
  Diag *d;
  Target target;
  int64_t n_forward, n_back;
} Fusion;

// The tensor of which operands 0, 1 and 2 of `op` are the thirds, by heads; or NULL.
static Value *packed(const Op *op) {
  Value *whole = NULL;
  for (int i = 0; i < 3; i++) {
    const Op *reshape = made_by(op->in[i].value, OP_reshape);
    const Op *slice = reshape ? made_by(reshape->in[0].value, OP_slice) : NULL;
    if (!slice || op->in[i].value->type != op->in[0].value->type) return NULL;
    Value *of = slice->in[0].value;
    const Type *third = slice->out[0]->type, *heads = op->in[0].value->type;
    if ((whole && of != whole) || of->type->rank != 3 || of->type->dim[2] != 3 * third->dim[2])
      return NULL;
    for (int k = 0; k < 3; k++)
      if (attr_list(slice, "steps")[k] != 1 ||
          attr_list(slice, "starts")[k] != (k == 2 ? i * third->dim[2] : 0) ||
          (k < 2 && (third->dim[k] != of->type->dim[k] || heads->dim[k] != third->dim[k])))
        return NULL;
    whole = of;
  }
  return whole;
}

static Attrs *packed_attrs(const Op *op, Attr *at, Attrs *out) {
  at[0] = a_i("heads", op->in[0].value->type->dim[2]);
  at[1] = *op_attr(op, "scale");
  at[2] = *op_attr(op, "causal");
  *out = (Attrs){at, 3};
  return out;
}

static Value *as_rows(Builder *b, Value *v) {
  const int64_t *dim = v->type->dim;
  return local_value(b, OP_reshape, IN(v),
                     ATTRS(a_list("shape", (int64_t[]){dim[0], dim[1], dim[2] * dim[3]}, 3)),
                     v->layout);
}

static bool has_kernel(const Fusion *f, const Op *op) {
  char name[128];
  return kernel_name(op, f->target, name, sizeof name);
}

// The concat of the three results of `back` as rows, in order, or NULL; each is read by it only.
static Op *find_concat(const Op *back) {
  Op *concat = NULL;
  for (int i = 0; i < 3; i++) {
    Op *reshape = only_reader(back->out[i]);
    Op *reader = reshape && reshape->kind == OP_reshape ? only_reader(reshape->out[0]) : NULL;
    if (!reader || reader->kind != OP_concat || reader->n_in != 3 ||
        reader->in[i].value != reshape->out[0] || (concat && reader != concat) ||
        attr_i(reader, "axis") != 2)
      return NULL;
    concat = reader;
  }
  return concat;
}

static void fuse_back(Fusion *f, Op *back, Value *x, Op *forward) {
  Op *concat = find_concat(back);
  if (!concat || concat->out[0]->type != x->type) return;
  Builder b = {.g = f->g, .at = back, .loc = back->loc, .d = f->d};
  Attr at[3];
  Attrs attrs;
  Value *dy = as_rows(&b, back->in[5].value);
  if (!dy) return;
  Op *op = local_op(&b, OP_attention_packed_back, IN(x, forward->out[0], forward->out[1], dy),
                    *packed_attrs(back, at, &attrs), back->split);
  if (!op) return;
  if (!local_same(op, 0, concat->out[0]) || !has_kernel(f, op)) {
    op_erase(op);
    return;
  }
  replace(concat->out[0], op->out[0]);
  f->n_back++;
}

static Op *gradient_of(const Op *op) {
  for_each_use(u, op->out[1])
    if (u->user && u->user->kind == OP_attention_back && u->user->n_in == 6 &&
        u->user->in[3].value == op->out[0] && u->user->in[0].value == op->in[0].value &&
        u->user->in[1].value == op->in[1].value && u->user->in[2].value == op->in[2].value)
      return u->user;
  return NULL;
}

static void fuse_forward(Fusion *f, Op *op) {
  if (op->n_in != 3 || !attr_i(op, "seq_major")) return;
  Value *x = packed(op);
  if (!x) return;
  Builder b = {.g = f->g, .at = op, .loc = op->loc, .d = f->d};
  Attr at[3];
  Attrs attrs;
  Op *made = local_op(&b, OP_attention_packed, IN(x), *packed_attrs(op, at, &attrs), op->split);
  if (!made) return;
  if (!local_same(made, 1, op->out[1]) || made->out[0]->layout != op->out[0]->layout ||
      !has_kernel(f, made)) {
    op_erase(made);
    return;
  }
  Op *back = gradient_of(op);
  if (back) fuse_back(f, back, x, made);
  const Type *t = op->out[0]->type;
  Value *y = local_value(&b, OP_reshape, IN(made->out[0]), ATTRS(a_list("shape", t->dim, t->rank)),
                         made->out[0]->layout);
  if (!y) BUG("rows cannot be laid out as heads");
  replace(op->out[0], y);
  replace(op->out[1], made->out[1]);
  f->n_forward++;
}

// Views of views are one view, so that readers find rows where rows were made of heads.
static void join_reshapes(Graph *g, Diag *d) {
  for_each_op_safe(op, g) {
    Op *inner = op->kind == OP_reshape ? made_by(op->in[0].value, OP_reshape) : NULL;
    if (!inner) continue;
    Value *from = inner->in[0].value;
    if (from->type == op->out[0]->type && from->layout == op->out[0]->layout) {
      replace(op->out[0], from);
      continue;
    }
    Builder b = {.g = g, .at = op, .loc = op->loc, .d = d};
    Value *v =
        local_value(&b, OP_reshape, IN(from), ATTRS(*op_attr(op, "shape")), op->out[0]->layout);
    if (v) replace(op->out[0], v);
  }
  drop_dead(g);
}

bool pass_fuse_attention(Module *m, const PassOptions *o, Diag *d) {
  Fusion f = {.d = d};
  if (!opt_target(o, &f.target, d)) return false;
  for_each_graph(g, m) {
    f.g = g;
    if (!g->entry) continue;
    for_each_op(op, g)
      if (op->kind == OP_attention) fuse_forward(&f, op);
    drop_dead(g);
    join_reshapes(g, d);
  }
  opt_stat(o, f.n_forward, "attentions");
  opt_stat(o, f.n_back, "gradients of attention");
  return true;
}
