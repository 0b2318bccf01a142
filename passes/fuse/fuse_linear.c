// Fuses products with neighbouring ops, for targets with such epilogues in the matrix library:
//
//     %1 = linear %x, %w               : f32[8,96]
//     %2 = broadcast %b shape=[8,96]   : f32[8,96]
//     %3 = add %2, %1                  : f32[8,96]
//     %4 = gelu_tanh %3                : f32[8,96]      =>   %4, %3 = linear_gelu_tanh %x, %w, %b
//     …                                                      …
//     %5 = linear %dy, %v trans=true   : f32[8,96]
//     %6 = gelu_tanh_back %3, %5       : f32[8,96]      =>   %6 = linear_gelu_tanh_back %dy, %v, %3
//     …                                                      …
//     %7 = reduce_sum %6 axes=[0]      : f32[96]
//     %8 = linear_back_w %x, %6        : f32[64,96]     =>   %8, %7 = linear_back_w_bias %x, %6
//
// and linear_bias if no GELU follows, or if its operand has no other reader. The bias of a product
// in 16 bits is f32 and is cast after the broadcast: here it is cast before, as a vector. The sum
// of an adjoint in 16 bits is read through a cast to f32, which the product makes unnecessary.
//
// In 16 bits these ops compute in f32 inside, so a GELU is of the sum before it is rounded. If it
// is recomputed for gradients, which also read the recomputed sum, forward computes it by the same
// op, although no other op reads the sum there: both have the same bits.
//
// If the batch is split into micro-batches, a product that is only accumulated over them adds to
// the sum itself: the sum is read and written once per micro-batch, and no term of it is ever in
// memory.
//
//     %8, %7 = linear_back_w_bias %x, %6
//     %9 = accumulate %8 axis="acc"          =>   %9, %7 = linear_back_w_bias_accumulate %x, %6 …
//     %10 = accumulate %7 axis="acc"              %10 = accumulate %7 axis="acc"
//
// So does the sum of the rows that a lookup took from a table. A weight with several readers, such
// as a tied table, has a sum for each, which the update adds: the terms need not wait for one
// another, nor the operands of products for the last of them.
//
//     %11 = linear_back_w %x, %d             %11 = linear_back_w_accumulate %x, %d axis="acc"
//     %12 = gather_back %words, %dy          %12 = gather_back_accumulate %words, %dy axis="acc"
//     %13 = add %11, %12               =>    %14 = add %11, %12      update
//     %14 = accumulate %13 axis="acc"
//
// A product that is saved to recompute its sum for gradients has two readers. As the sum is as
// large as the product, it is saved in its place, and no op recomputes it: forward is fused as
// without recomputation, and has the same bits.
//
//     %1 = linear %x, %w
//     %3 = add %2, %1
//     %4 = add %2, %1   recompute_group=1    =>   %3 = linear_bias %x, %w, %b, which readers of %4 read
//
// A bias is fused only into a product without other readers, and only if ranks have no partial
// sums: each would add it. cuBLASLt requires the operand of a GELU in rows of a multiple of 8
// elements.

#include "ir/analysis/local.h"
#include "ir/analysis/origin.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"
#include "pass.h"

enum { GELU_MULTIPLE = 8 };

typedef struct Fusion {
  Graph *g;
  Diag *d;
  bool *recomputed; // by the number of an op of the model: its GELU is recomputed
  int64_t n_biases, n_saved, n_gelus, n_gelu_backs, n_sums, n_accumulated;
} Fusion;

static Builder before(Fusion *f, Op *at) {
  return (Builder){.g = f->g, .at = at, .origin = op_origin(at), .d = f->d};
}

static int64_t last_dim(const Value *v) {
  return v->type->dim[v->type->ndim - 1];
}

// The vector that is broadcast over all but the last dimension of `v`, seen through casts to the
// type of `v`; NULL if there is none.
static Value *broadcast_vector(Value *v) {
  int64_t n = last_dim(v);
  const Op *cast = made_by(v, OP_cast);
  if (cast && dtype_class[cast->in[0].value->type->dtype] != 'F') return NULL;
  if (cast) v = cast->in[0].value;
  const Op *broadcast = made_by(v, OP_broadcast);
  if (!broadcast) return NULL;
  v = broadcast->in[0].value;
  return v->type->ndim == 1 && v->type->dim[0] == n ? v : NULL;
}

// Whether two vectors are the same, or casts of the same.
static bool is_same_bias(const Value *a, const Value *b) {
  if (a == b) return true;
  if (!a || !b || a->type != b->type) return false;
  const Op *x = made_by(a, OP_cast), *y = made_by(b, OP_cast);
  return x && y && x->in[0].value == y->in[0].value;
}

// Whether the op recomputes %add, the sum of the product `y` and a bias.
static bool recomputes(const Op *op, const Op *add, const Value *y, const Value *bias) {
  if (!op || op->kind != OP_add || op->of != add->of || !op_is_recomputed(op)) return false;
  Value *other = op->in[op->in[0].value == y ? 1 : 0].value;
  return is_same_bias(broadcast_vector(other), bias) && local_same(op, 0, add->out[0]);
}

// Has the readers of recomputed sums read %add, if nothing else reads the product: that takes no
// more memory, as a sum of another type or layout would. The recomputed sums are dead.
static void save_sum(Fusion *f, Op *add) {
  const Value *sum = add->out[0];
  for (int i = 0; i < 2; i++) {
    Value *y = add->in[i].value;
    if (op_is_recomputed(add) || !made_by(y, OP_linear) || !local_same(y->def, 0, sum)) continue;
    const Value *bias = broadcast_vector(add->in[1 - i].value);
    bool all = bias != NULL;
    int n = 0;
    for_each_use(u, y) {
      if (u->user == add) continue;
      all &= recomputes(u->user, add, y, bias);
      n++;
    }
    if (!all || !n) continue;
    for_each_use(u, y)
      if (u->user != add) value_replace_uses(u->user->out[0], add->out[0]);
    f->n_saved += n;
  }
}

// Replaces %add, a product plus a bias, by one op, which also applies the GELU if `gelu` is not
// NULL.
static bool fuse_bias(Fusion *f, Op *product, Op *add, Value *bias, Op *gelu) {
  Builder b = before(f, add);
  Value *x = product->in[0].value, *w = product->in[1].value, *sum = add->out[0];
  // The bias has the type of the sum.
  Value *vector = local_cast(&b, bias, sum->type->dtype);
  Op *op = local_op(&b, gelu ? OP_linear_gelu_tanh : OP_linear_bias, IN(x, w, vector),
                    ATTRS(*op_attr(product, "trans")), product->split);
  int at = gelu ? 1 : 0; // result number of the sum
  if (!op || !local_same(op, at, sum)) {
    if (op) op_erase(op);
    if (vector != bias) op_erase(vector->def);
    return false;
  }
  // Readers read the fused op, and the others are dead.
  if (gelu) value_replace_uses(gelu->out[0], op->out[0]); // gelu is dead
  value_replace_uses(sum, op->out[at]);
  op_erase(add);
  op_erase(product);
  return true;
}

// Fuses %add if its operands are a product and a bias.
static void fuse_product(Fusion *f, Op *add) {
  Value *sum = add->out[0];
  if (sum->type->ndim == 0 || dtype_class[sum->type->dtype] != 'F') return;
  // Either operand may be the bias.
  Value *bias = broadcast_vector(add->in[0].value);
  Value *y = add->in[bias ? 1 : 0].value;
  if (!bias) bias = broadcast_vector(add->in[1].value);
  Op *product = made_by(y, OP_linear);
  if (!bias || !product || only_reader(y) != add) return;
  // The kernel computes the GELU too, if exactly one reads the sum besides others, here or in
  // backward.
  Op *gelu = NULL;
  int n_gelus = 0;
  for_each_use(u, sum) {
    if (!u->user || u->user->kind != OP_gelu_tanh) continue;
    gelu = u->user;
    n_gelus++;
  }
  bool others = !only_reader(sum) || (gelu && f->recomputed[gelu->of]);
  if (!others || n_gelus != 1) gelu = NULL;
  if (gelu && last_dim(sum) % GELU_MULTIPLE == 0 && fuse_bias(f, product, add, bias, gelu)) {
    f->n_biases++;
    f->n_gelus++;
  } else if (fuse_bias(f, product, add, bias, NULL)) {
    f->n_biases++;
  }
}

// Fuses %back = gelu_tanh_back %pre, %dy if %dy is a product.
static void fuse_gelu_back(Fusion *f, Op *back) {
  Value *pre = back->in[0].value, *dy = back->in[1].value;
  Op *product = made_by(dy, OP_linear);
  // The product must have no other reader, and a width that the kernel supports.
  if (!product || only_reader(dy) != back || last_dim(dy) % GELU_MULTIPLE) return;
  Builder b = before(f, back);
  Op *op =
      local_op(&b, OP_linear_gelu_tanh_back, IN(product->in[0].value, product->in[1].value, pre),
               ATTRS(*op_attr(product, "trans")), product->split);
  if (!op) return;
  // Type and layout must stay.
  if (!local_same(op, 0, back->out[0])) {
    op_erase(op);
    return;
  }
  value_replace_uses(back->out[0], op->out[0]);
  op_erase(back);
  op_erase(product);
  f->n_gelu_backs++;
}

static bool sums_rows(const Op *op, const Value *dy) {
  if (!op || op->kind != OP_reduce_sum || attr_i(op, "keep")) return false;
  int n = attr_n(op, "axes");
  return n > 0 && n == dy->type->ndim - 1 && attr_list(op, "axes")[n - 1] == n - 1;
}

// The sum of the rows of `dy`, perhaps through a cast; or NULL.
static Op *find_sum(const Value *dy) {
  for_each_use(u, dy) {
    if (!u->user) continue;
    if (sums_rows(u->user, dy) && value_used(u->user->out[0])) return u->user;
    if (u->user->kind != OP_cast) continue;
    for_each_use(t, u->user->out[0])
      if (sums_rows(t->user, dy) && value_used(t->user->out[0])) return t->user;
  }
  return NULL;
}

static bool is_read_before(const Value *v, const Op *op) {
  for_each_use(u, v)
    if (u->user && u->user->id < op->id) return true;
  return false;
}

// Fuses a product and a sum, at the position of the first: `x` and `dy` must be known there. If `x`
// is recomputed after the sum, the product is the first that can have both.
static void fuse_sum(Fusion *f, Op *product) {
  Value *x = product->in[0].value, *dy = product->in[1].value;
  Op *sum = find_sum(dy);
  if (!sum) return;
  Op *at = sum->id < product->id ? sum : product;
  if (x->def && x->def->id >= at->id) at = product;
  if (is_read_before(sum->out[0], at)) return;
  Builder b = before(f, at);
  b.origin = op_origin(product);
  Op *op = local_op(&b, OP_linear_back_w_bias, IN(x, dy), ATTRS(*op_attr(product, "trans")),
                    product->split);
  if (!op) return;
  if (!local_same(op, 0, product->out[0]) || !local_same(op, 1, sum->out[0])) {
    op_erase(op);
    return;
  }
  value_replace_uses(product->out[0], op->out[0]);
  value_replace_uses(sum->out[0], op->out[1]); // sum is dead
  op_erase(product);
  f->n_sums++;
}

// Notes the ops of the model with a recomputed GELU.
static void find_recomputed(Fusion *f, Arena *scratch) {
  int n = 0;
  for_each_op(op, f->g)
    if (op->of > n) n = op->of;
  f->recomputed = arena_array(scratch, bool, n + 1);
  for_each_op(op, f->g)
    if (op->kind == OP_gelu_tanh && op_is_recomputed(op)) f->recomputed[op->of] = true;
}

// Whether the accumulation of the value can be fused with its producer.
static bool adds_up(const Value *v) {
  const Op *op = v->index == 0 ? v->def : NULL;
  if (!op || !only_reader(v)) return false;
  if (op->kind == OP_gather_back) return !attr_i(op, "axis") && !attr_i(op, "batch");
  return op->kind == OP_linear_back_w || op->kind == OP_linear_back_w_bias;
}

// Whether the op accumulates, and not in host memory (offload_gradients.c).
static bool adds_on_device(const Op *op) {
  return op->kind == OP_accumulate && !op->offload_group;
}

// Whether the value is a sum of values that add up, each of the same layout.
static bool is_sum_of_terms(const Value *v) {
  const Op *add = made_by(v, OP_add);
  if (!add || !only_reader(v)) return false;
  for (int i = 0; i < add->n_in; i++) {
    const Value *term = add->in[i].value;
    if (term->layout != v->layout || !(adds_up(term) || is_sum_of_terms(term))) return false;
  }
  return true;
}

// Replaces %sum = accumulate of a sum by the sum of the accumulated terms.
static Value *accumulate_terms(Fusion *f, Op *sum, Value *v) {
  if (adds_up(v)) {
    Op *own = op_copy(f->g, sum, sum, &v, f->d);
    if (!own) return NULL;
    own->out[0]->layout = sum->out[0]->layout;
    return own->out[0];
  }
  Value *in[2];
  for (int i = 0; i < 2; i++)
    if (!(in[i] = accumulate_terms(f, sum, v->def->in[i].value))) return NULL;
  Builder b = before(f, sum);
  Op *add = local_op_for(&b, OP_add, in, 2, NO_ATTRS, sum->out[0]->layout);
  return add ? add->out[0] : NULL;
}

static void split_sum(Fusion *f, Op *sum) {
  if (!is_sum_of_terms(sum->in[0].value)) return;
  Value *v = accumulate_terms(f, sum, sum->in[0].value);
  if (!v || !local_same(v->def, 0, sum->out[0])) return; // the ops are dead
  value_replace_uses(sum->out[0], v);
  op_erase(sum);
}

// Fuses %sum = accumulate with its operand if that is a product or a sum of rows, at the position
// of that.
static void fuse_accumulate(Fusion *f, Op *sum) {
  Value *dw = sum->in[0].value;
  // The product must have no reader but the sum.
  Op *product = dw->def;
  if (!adds_up(dw)) return;
  bool bias = product->kind == OP_linear_back_w_bias, rows = product->kind == OP_gather_back;
  Builder b = before(f, product);
  OpKind kind = rows   ? OP_gather_back_accumulate
                : bias ? OP_linear_back_w_bias_accumulate
                       : OP_linear_back_w_accumulate;
  Op *op = local_op(&b, kind, IN(product->in[0].value, product->in[1].value),
                    ATTRS(*op_attr(product, rows ? "shape" : "trans"), *op_attr(sum, "axis")),
                    product->split);
  if (!op) return;
  if (!local_same(op, 0, sum->out[0]) || (bias && !local_same(op, 1, product->out[1]))) {
    op_erase(op);
    return;
  }
  value_replace_uses(sum->out[0], op->out[0]);
  value_replace_uses(dw, op->out[0]); // no op reads a term; the sum may take its name
  if (bias) value_replace_uses(product->out[1], op->out[1]);
  op_erase(sum);
  op_erase(product);
  f->n_accumulated++;
}

bool pass_fuse_linear(Module *m, const PassOptions *o, Diag *d) {
  Fusion f = {.d = d};
  for_each_graph(g, m) {
    f.g = g;
    if (g->entry) {
      find_recomputed(&f, opt_scratch(o));
      for_each_op(op, f.g)
        if (op->kind == OP_add) save_sum(&f, op);
      drop_dead(f.g);
      for_each_op_safe(op, f.g)
        if (op->kind == OP_add) fuse_product(&f, op);
      for_each_op_safe(op, f.g)
        if (op->kind == OP_gelu_tanh_back) fuse_gelu_back(&f, op);
      // Positions are compared by id.
      drop_dead(f.g);
      graph_renumber(f.g);
      for_each_op_safe(op, f.g)
        if (op->kind == OP_linear_back_w) fuse_sum(&f, op);
      drop_dead(f.g);
      for_each_op_safe(op, f.g)
        if (adds_on_device(op)) split_sum(&f, op);
      drop_dead(f.g);
      for_each_op_safe(op, f.g)
        if (adds_on_device(op)) fuse_accumulate(&f, op);
    }
  }
  opt_stat(o, f.n_biases, "biases");
  opt_stat(o, f.n_saved, "sums saved in place of products");
  opt_stat(o, f.n_gelus, "GELUs");
  opt_stat(o, f.n_gelu_backs, "gradients of GELU");
  opt_stat(o, f.n_sums, "gradients of biases");
  opt_stat(o, f.n_accumulated, "gradients added up");
  return true;
}
