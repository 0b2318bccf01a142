// Fresh weights instead of the model's (--init random), with the distributions of PyTorch's
// modules.
//
//     %w: f32[768,3072] weight "fc.weight" train @ "gpt2.onnx"+4096
//
//   =>
//
//     %w: f32[768,3072] weight "fc.weight" train = uniform(-0.03608439…,0.03608439…)
//
// The op that reads a weight, past ops that only change its shape, gives its purpose:
//
//     norms                    scale 1, offset 0; running mean 0, variance 1
//     gather                   a table of embeddings: normal(0, 0.02)
//     linear, matmul, conv     uniform(-b, b), b = 1 / sqrt(fan in)
//     add, sub                 one dimension: an offset, 0; more: normal(0, 0.02), as positions
//     mul                      one dimension: a scale, 1
//     anything else            two dimensions or more: as for conv; fewer: 0
//
// A weight with several uses takes the first matching line.  Numbers are drawn when the executable
// starts, keyed by seed, name and element.  Weights that are not trained, tables of integers and
// masks, keep their contents; running statistics are reset.

#include <math.h>

#include "ir/build.h"
#include "pass.h"

// Purposes of a weight, in order of precedence.
typedef enum Purpose { NORM_SCALE, NORM_OFFSET, TABLE, MATRIX, OFFSET, SCALE, OTHER } Purpose;

typedef struct Found {
  Purpose purpose;
  int64_t fan_in; // of MATRIX
} Found;

static Found found(Purpose purpose) {
  return (Found){purpose, 0};
}

static Found matrix(int64_t fan_in) {
  return (Found){MATRIX, fan_in};
}

static int64_t product(const Type *t, int from) {
  int64_t n = 1;
  for (int i = from; i < t->ndim; i++)
    n *= t->dim[i];
  return n;
}

// Whether at most one dimension is longer than 1: [64], [64,1,1].
static bool is_vector(const Type *t) {
  int n = 0;
  for (int i = 0; i < t->ndim; i++)
    n += t->dim[i] != 1;
  return n <= 1;
}

static Found purpose_of(const Value *v);

// The purpose of an operand for one reader.
static Found purpose_of_use(const Use *u) {
  const Op *op = u->user;
  if (!op) return found(OTHER);
  const Type *t = u->value->type;
  switch ((int)op->kind) {
  case OP_layer_norm:
  case OP_rms_norm:
  case OP_batch_norm:
  case OP_batch_norm_train:
    // Operands 1 and 2 are scale and shift; 3 and 4 running mean and variance.
    if (u->index == 1 || u->index == 4) return found(NORM_SCALE);
    return found(u->index == 2 || u->index == 3 ? NORM_OFFSET : OTHER);
  case OP_gather: return found(u->index == 0 ? TABLE : OTHER);
  case OP_linear: return u->index == 1 ? matrix(t->dim[attr_i(op, "trans") ? 1 : 0]) : found(OTHER);
  case OP_matmul: {
    // The fan in is the contracted dimension of the operand.
    bool transposed = attr_i(op, u->index == 0 ? "trans_a" : "trans_b");
    bool rows = u->index == 0 ? transposed : !transposed;
    return matrix(t->dim[t->ndim - (rows ? 2 : 1)]);
  }
  case OP_conv: return u->index == 1 ? matrix(product(t, 1)) : found(OTHER);
  case OP_add:
  case OP_sub: return found(OFFSET);
  case OP_mul: return found(SCALE);
  // Ops that only change the shape pass the question on.
  case OP_reshape:
  case OP_slice:
  case OP_broadcast:
  case OP_transpose:
  case OP_cast: return purpose_of(op->out[0]);
  default: return found(OTHER);
  }
}

static Found purpose_of(const Value *v) {
  Found best = found(OTHER);
  for_each_use(u, v) {
    Found f = purpose_of_use(u);
    if (f.purpose < best.purpose) best = f;
  }
  return best;
}

static Init fill(double value) {
  return (Init){.kind = INIT_fill, .fill = value};
}

static Init normal(void) {
  return (Init){.kind = INIT_normal, .fill = 0, .to = 0.02};
}

static Init uniform(int64_t fan_in) {
  double bound = fan_in > 0 ? 1 / sqrt((double)fan_in) : 0;
  return (Init){.kind = INIT_uniform, .fill = -bound, .to = bound};
}

static Init fresh(const Value *w) {
  Found f = purpose_of(w);
  switch (f.purpose) {
  case NORM_SCALE: return fill(1);
  case NORM_OFFSET: return fill(0);
  case TABLE: return normal();
  case MATRIX: return uniform(f.fan_in);
  case OFFSET: return is_vector(w->type) ? fill(0) : normal();
  case SCALE:
    if (is_vector(w->type)) return fill(1);
    break;
  case OTHER: break;
  }
  return is_vector(w->type) ? fill(0) : uniform(product(w->type, 1));
}

bool pass_init(Module *m, const PassOptions *o, Diag *d) {
  (void)d;
  int64_t seed = opt_int(o, "seed", 0), n = 0;
  for_each_graph(g, m) {
    for (int i = 0; g->entry && i < g->n_params; i++) {
      Value *w = g->params[i];
      if (w->role != ROLE_weight || dtype_class[w->type->dtype] != 'F') continue;
      // Running statistics are reset, although they are not trained.
      bool is_statistic = false;
      for_each_use(u, w)
        if (u->user && (u->user->kind == OP_batch_norm || u->user->kind == OP_batch_norm_train) &&
            u->index >= 3)
          is_statistic = true;
      if (!w->train && !is_statistic) continue;
      Init *init = arena_one(m->arena, Init);
      *init = fresh(w);
      init->dtype = w->type->dtype;
      if (init->kind != INIT_fill) init->seed = seed;
      w->init = init;
      n++;
    }
  }
  opt_stat(o, n, "weights");
  return true;
}
