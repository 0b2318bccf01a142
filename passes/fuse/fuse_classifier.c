// Fuses the loss over classes with the product that gives the logits, which are never in memory as
// a whole:
//
//     %logits = linear %x, %w trans=true                        : f32[8,64,256]
//     %loss, %lse = cross_entropy %logits, %labels              : f32[8,64], …
//     %dloss = fill …                                           : f32[8,64]
//     %d = cross_entropy_back %logits, %labels, %lse, %dloss    : f32[8,64,256]
//     %dx = linear %d, %w                                       : f32[8,64,32]
//     %dw = linear_back_w %x, %d trans=true                     : f32[256,32]
//
//   =>  %loss, %dx, %dw = classifier_back %x, %w, %labels, %dloss trans=true
//
// and classifier, for the loss alone, without a backward. The kernel takes some rows at a time:
// their logits, the loss, its adjoint in the same memory, and both products with that. So the
// largest tensors of a language model, and their adjoints, are only as large as a chunk. The idea
// is that of Wijmans et al., "Cut your losses in large-vocabulary language models", and of Hsu et
// al., "Liger kernel". The adjoint of the loss must not depend on the loss, and does not: it is a
// constant, or a scale that is known before the step.
//
// The sum for dw goes through memory once per chunk, so only logits of at least `bytes` (default
// 512 MiB) are fused.

#include "base/vec.h"
#include "ir/analysis/local.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"
#include "pass.h"

enum { DEFAULT_BYTES = 512 << 20 };

typedef struct Fusion {
  Graph *g;
  Arena *scratch;
  Diag *d;
  int64_t bytes;
  int64_t n_fused;
} Fusion;

// The ops of one classifier; `back`, `dx` and `dw` are NULL without a backward.
typedef struct Classifier {
  Op *product, *loss, *back, *dx, *dw;
} Classifier;

static bool reads(const Op *op, int i, const Value *v) {
  return op->in[i].value == v;
}

// Finds the ops of a classifier. The logits must have no readers but loss and back, their adjoint
// none but the two products.
static bool find_classifier(Op *loss, Classifier *c) {
  *c = (Classifier){.loss = loss, .product = made_by(loss->in[0].value, OP_linear)};
  if (!c->product || attr_i(loss, "classes")) return false;
  // Only the loss and its gradient read the logits.
  for_each_use(u, c->product->out[0]) {
    if (u->user == loss) continue;
    if (c->back || !u->user || u->user->kind != OP_cross_entropy_back) return false;
    c->back = u->user;
  }
  const Value *lse = loss->out[1];
  if (!c->back) return !value_used(lse);
  // The gradient must be that of this loss.
  if (only_reader(lse) != c->back || !reads(c->back, 1, loss->in[1].value) ||
      !reads(c->back, 2, lse) || attr_i(c->back, "ignore") != attr_i(loss, "ignore"))
    return false;
  // The adjoint of the logits leads to those of x and w.
  Value *x = c->product->in[0].value, *w = c->product->in[1].value, *d = c->back->out[0];
  bool trans = attr_i(c->product, "trans");
  for_each_use(u, d) {
    Op *op = u->user;
    if (op && op->kind == OP_linear && !c->dx && reads(op, 1, w) && attr_i(op, "trans") != trans)
      c->dx = op;
    else if (op && op->kind == OP_linear_back_w && !c->dw && reads(op, 0, x) &&
             attr_i(op, "trans") == trans)
      c->dw = op;
    else
      return false;
  }
  return c->dx && c->dw;
}

// Ops that must precede the fused op but follow its position, in graph order.
typedef struct Moved {
  Op *at;
  bool *seen; // by op id
  Vec(Op *) op;
} Moved;

// Collects the producers of `v` after `at`. False if `v` depends on `at`.
static bool collect(Fusion *f, Moved *m, const Value *v) {
  Op *op = v->def;
  if (!op || op->id < m->at->id || m->seen[op->id]) return true;
  if (op == m->at) return false;
  m->seen[op->id] = true;
  for (int i = 0; i < op->n_in; i++)
    if (!collect(f, m, op->in[i].value)) return false;
  vec_push(f->scratch, &m->op, op);
  return true;
}

static void fuse(Fusion *f, const Classifier *c) {
  Op *at = c->product;
  Value *labels = c->loss->in[1].value, *dloss = c->back ? c->back->in[3].value : NULL;
  // The fused op takes the position of the product: producers of its other operands move before
  // that.
  Moved moved = {.at = at, .seen = arena_array(f->scratch, bool, f->g->n_ops)};
  if (!collect(f, &moved, labels) || (dloss && !collect(f, &moved, dloss))) return;
  for (int i = 0; i < moved.op.n; i++)
    op_move_before(moved.op.at[i], at);
  Builder b = {.g = f->g, .at = at, .d = f->d};
  b.origin = op_origin(c->back ? c->back : c->loss);
  Op *op = local_op(&b, c->back ? OP_classifier_back : OP_classifier,
                    (Value *[]){at->in[0].value, at->in[1].value, labels, dloss}, c->back ? 4 : 3,
                    ATTRS(*op_attr(at, "trans"), *op_attr(c->loss, "ignore")), at->split);
  if (!op) return;
  if (!local_same(op, 0, c->loss->out[0]) ||
      (c->back && (!local_same(op, 1, c->dx->out[0]) || !local_same(op, 2, c->dw->out[0])))) {
    op_erase(op);
    return;
  }
  value_replace_uses(c->loss->out[0], op->out[0]);
  if (c->back) {
    value_replace_uses(c->dx->out[0], op->out[1]);
    value_replace_uses(c->dw->out[0], op->out[2]);
  }
  f->n_fused++;
  drop_dead(f->g);
  graph_renumber(f->g);
}

bool pass_fuse_classifier(Module *m, const PassOptions *o, Diag *d) {
  Fusion f = {.scratch = opt_scratch(o), .d = d, .bytes = opt_int(o, "bytes", DEFAULT_BYTES)};
  for_each_graph(g, m) {
    f.g = g;
    if (g->entry) {
      // Fusing compares positions by id, so the graph is renumbered.
      drop_dead(f.g);
      graph_renumber(f.g);
      Vec(Op *) losses = {0};
      for_each_op(op, f.g)
        if (op->kind == OP_cross_entropy) vec_push(f.scratch, &losses, op);
      for (int i = 0; i < losses.n; i++) {
        Classifier c;
        // Only logits above a size are worth it.
        if (type_bytes(losses.at[i]->in[0].value->type) >= f.bytes &&
            find_classifier(losses.at[i], &c))
          fuse(&f, &c);
      }
    }
  }
  opt_stat(o, f.n_fused, "classifiers");
  return true;
}
