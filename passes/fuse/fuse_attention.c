// Attention directly on the packed product of q, k and v, for targets with a kernel that reads them
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
// Slicing q, k and v apart and concatenating their adjoints takes as many bytes through memory as
// attention itself at short lengths. The rows may also be divided as (3, heads, width). q, k and v
// must have the same number of heads, and no mask. Only ops with a kernel on the target are fused.

#include "ir/analysis/local.h"
#include "ir/analysis/rewrite.h"
#include "ir/kernel.h"
#include "pass.h"

typedef struct Fusion {
  Graph *g;
  Diag *d;
  Target target;
  int64_t n_forward, n_back;
} Fusion;

// The dimension of a tensor (b, t, …) that is divided by three when its rows are: the first of more
// than one element after t, or -1.
static int row_dim(const Type *t) {
  int k = 2;
  while (k < t->ndim && t->dim[k] == 1)
    k++;
  return k < t->ndim && t->dim[k] % 3 == 0 ? k : -1;
}

// Whether the result of `slice` is third `i` of each row of its operand.
static bool is_third(const Op *slice, int i) {
  const Type *of = slice->in[0].value->type, *t = slice->out[0]->type;
  int along = row_dim(of);
  if (along < 0) return false;
  for (int k = 0; k < of->ndim; k++) {
    int64_t third = of->dim[k] / 3;
    if (attr_list(slice, "steps")[k] != 1 || t->dim[k] != (k == along ? third : of->dim[k]) ||
        attr_list(slice, "starts")[k] != (k == along ? i * third : 0))
      return false;
  }
  return true;
}

// The tensor that has operands 0, 1 and 2 of `op`, (b, t, h, d), as thirds of its rows; or NULL.
static Value *packed(const Op *op) {
  Value *whole = NULL;
  const Type *heads = op->in[0].value->type;
  for (int i = 0; i < 3; i++) {
    if (op->in[i].value->type != heads) return NULL;
    const Op *reshape = made_by(op->in[i].value, OP_reshape);
    const Op *slice = made_by(reshape ? reshape->in[0].value : op->in[i].value, OP_slice);
    if (!slice || !is_third(slice, i) || (whole && slice->in[0].value != whole)) return NULL;
    whole = slice->in[0].value;
  }
  if (whole->type->dim[0] != heads->dim[0] || whole->type->dim[1] != heads->dim[1]) return NULL;
  return whole;
}

static Attrs *packed_attrs(const Op *op, Attr *at, Attrs *out) {
  at[0] = a_i("heads", op->in[0].value->type->dim[2]);
  at[1] = *op_attr(op, "scale");
  at[2] = *op_attr(op, "causal");
  *out = (Attrs){at, 3};
  return out;
}

// Reshapes (b, t, …) to (b, t, row).
static Value *as_rows(Builder *b, Value *v) {
  const int64_t *dim = v->type->dim;
  if (v->type->ndim == 3) return v;
  const Op *earlier = made_by(v, OP_reshape);
  int64_t row = 1;
  for (int i = 2; i < v->type->ndim; i++)
    row *= dim[i];
  // A tensor that was rows before needs no reshape.
  if (earlier) {
    Value *from = earlier->in[0].value;
    const int64_t *was = from->type->dim;
    if (from->type->ndim == 3 && was[0] == dim[0] && was[1] == dim[1] && from->layout == v->layout)
      return from;
  }
  return local_value(b, OP_reshape, IN(v),
                     ATTRS(a_list("shape", (int64_t[]){dim[0], dim[1], row}, 3)), v->layout);
}

static Value *shaped_as(Builder *b, Value *v, const Value *like) {
  if (v->type == like->type) return v;
  return local_value(b, OP_reshape, IN(v),
                     ATTRS(a_list("shape", like->type->dim, like->type->ndim)), like->layout);
}

static bool has_kernel(const Fusion *f, const Op *op) {
  char name[128];
  return kernel_name(op, f->target, name, sizeof name);
}

// The concat of the three results of `back` to rows, which is their only reader; or NULL.
static Op *find_concat(const Op *back) {
  Op *concat = NULL;
  for (int i = 0; i < 3; i++) {
    const Value *part = back->out[i];
    Op *reader = only_reader(part);
    // Heads may be reshaped to rows first.
    if (reader && reader->kind == OP_reshape) {
      part = reader->out[0];
      reader = only_reader(part);
    }
    if (!reader || reader->kind != OP_concat || reader->n_in != 3 || reader->in[i].value != part ||
        (concat && reader != concat))
      return NULL;
    concat = reader;
  }
  // It must be along the rows.
  const Type *t = concat->out[0]->type;
  return attr_i(concat, "axis") == row_dim(t) ? concat : NULL;
}

// Fuses the gradient; `x` is the packed operand as rows, `forward` the fused op of forward.
static void fuse_back(Fusion *f, Op *back, Value *x, Op *forward) {
  Op *concat = find_concat(back);
  if (!concat || type_count(concat->out[0]->type) != type_count(x->type)) return;
  const Type *t = concat->out[0]->type;
  // Batch and time must be those of x.
  if (t->dim[0] != x->type->dim[0] || t->dim[1] != x->type->dim[1]) return;
  Builder b = {.g = f->g, .at = back, .origin = op_origin(back), .d = f->d};
  Attr at[3];
  Attrs attrs;
  Value *dy = as_rows(&b, back->in[5].value);
  if (!dy) return;
  Op *op = local_op(&b, OP_attention_packed_back, IN(x, forward->out[0], forward->out[1], dy),
                    *packed_attrs(back, at, &attrs), back->split);
  if (!op) return;
  // Without a kernel for these sizes all stays.
  Value *dx = has_kernel(f, op) ? shaped_as(&b, op->out[0], concat->out[0]) : NULL;
  if (!dx || dx->layout != concat->out[0]->layout) return; // the new op is dead
  value_replace_uses(concat->out[0], dx);
  f->n_back++;
}

static void fuse_forward(Fusion *f, Op *op) {
  // Packed attention has no mask, and reads (b, t, h, d).  Blocks are parts of a longer sequence.
  if (op->n_in != 3 || attr_i(op, "blocks") || !attr_i(op, "seq_major")) return;
  Value *whole = packed(op);
  if (!whole) return;
  Builder b = {.g = f->g, .at = op, .origin = op_origin(op), .d = f->d};
  Attr at[3];
  Attrs attrs;
  Value *x = as_rows(&b, whole);
  if (!x) return;
  Op *made = local_op(&b, OP_attention_packed, IN(x), *packed_attrs(op, at, &attrs), op->split);
  // The kernel must exist for these sizes, with the same lse.
  if (!made || !has_kernel(f, made) || !local_same(made, 1, op->out[1]))
    return; // the new op is dead
  Value *y = shaped_as(&b, made->out[0], op->out[0]);
  if (!y || y->layout != op->out[0]->layout) return;
  // The gradient reads the operands of the op and its result.
  Op *back = NULL;
  for_each_use(u, op->out[1])
    if (u->user && u->user->kind == OP_attention_back && u->user->n_in == 6 &&
        u->user->in[3].value == op->out[0] && u->user->in[0].value == op->in[0].value &&
        u->user->in[1].value == op->in[1].value && u->user->in[2].value == op->in[2].value) {
      back = u->user;
      break;
    }
  if (back) fuse_back(f, back, x, made);
  value_replace_uses(op->out[0], y);
  value_replace_uses(op->out[1], made->out[1]);
  f->n_forward++;
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
    // A view of a view is one view: rows reshaped to heads and back are the same rows.
    for_each_op_safe(op, g) {
      Op *inner = op->kind == OP_reshape ? made_by(op->in[0].value, OP_reshape) : NULL;
      if (!inner) continue;
      Value *from = inner->in[0].value;
      if (from->type == op->out[0]->type && from->layout == op->out[0]->layout) {
        value_replace_uses(op->out[0], from);
        continue;
      }
      Builder b = {.g = g, .at = op, .origin = op_origin(op), .d = d};
      Value *v =
          local_value(&b, OP_reshape, IN(from), ATTRS(*op_attr(op, "shape")), op->out[0]->layout);
      if (v) value_replace_uses(op->out[0], v);
    }
    drop_dead(g);
  }
  opt_stat(o, f.n_forward, "attentions");
  opt_stat(o, f.n_back, "gradients of attention");
  return true;
}
