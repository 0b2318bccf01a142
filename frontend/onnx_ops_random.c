// Operators that draw random numbers, each with a key of its own: of the same seed and step, an
// element gets the same number under every plan.
//
//     RandomNormal(mean, scale)    noise of a fill with the mean
//     Bernoulli(p)                 a uniform number is less than p
//     Multinomial(x)               the class with the largest x plus Gumbel noise, for every sample
//                                  (Gumbel, Statistical Theory of Extreme Values, 1954)

#include <string.h>

#include "frontend/onnx_tensor.h"
#include "frontend/onnx_walk.h"

// Returns the scalar with this label; an input or a weight of the model may have the same name.
static Value *step_or_seed(Node *n, const char *label) {
  Value *v = graph_find_role(n->im->g, ROLE_scalar, label);
  if (v) return v;
  v = graph_param(n->im->g, label, type_scalar(n->im->m, DT_i64), ROLE_scalar, NULL);
  v->label = str_copy(n->im->m->arena, label);
  return v;
}

// Whether a Dropout of a ratio alone, without training_mode, drops out: PyTorch writes that of
// attention so in every mode.  It is for inference if the model's BatchNormalizations are.
static bool drops_by_ratio(Node *n) {
  if (n->n_in != 2 || !node_by_torch(n)) return false;
  if (!onnx_for_inference(n->im)) return true;
  OnnxFindings *out = n->im->o->findings;
  if (out && !out->n_dropouts++) out->dropout = loc_copy(out->arena, n->b->origin.loc);
  return false;
}

// The identity unless training: by --train-mode, by the model's own training_mode (opset 12 and
// later; before 7 by is_test=0), or in attention of PyTorch, which drops out if it has a ratio.
// The mask is the same dropout of ones.
bool import_dropout(Node *n) {
  Value *x = n->in[0];
  double ratio = node_float(n, "ratio", 0.5);
  const Tensor *training;
  if (!node_attr(n, "ratio") && !node_setting_float(n, 1, "ratio", 0.5, &ratio)) return false;
  if (!node_setting(n, 2, "training_mode", &training)) return false;
  if (ratio < 0 || ratio > 1) return node_fail(n, "a ratio of %g", ratio);
  bool train = n->im->o->train_mode || (training && tensor_i(training, 0) != 0) ||
               (!training && ratio > 0 && drops_by_ratio(n));
  // The mask is a result of its own, if a node reads it.
  Value *ones = node_wants(n, 1) ? node_like(n, x, 1) : NULL;
  if (!train || ratio == 0) {
    n->out[0] = x;
    if (ones) n->out[1] = build_fill(n->b, DT_bool, x->type->ndim, x->type->dim, 1);
    return true;
  }
  // The same key for result and mask: both drop the same elements.
  Attrs attrs = ATTRS(a_f("ratio", ratio), a_i("key", n->index));
  Value *step = step_or_seed(n, "step"), *seed = step_or_seed(n, "seed");
  n->out[0] = build_op(n->b, OP_dropout, IN(x, step, seed), attrs);
  if (ones)
    n->out[1] = node_cast(n, build_op(n->b, OP_dropout, IN(ones, step, seed), attrs), DT_bool);
  return true;
}

// The key of the node's numbers.  An attribute `seed` selects others.
static int64_t node_key(const Node *n) {
  float seed = (float)node_float(n, "seed", 0);
  uint32_t bits;
  memcpy(&bits, &seed, sizeof bits);
  return (int64_t)((uint64_t)n->index ^ (uint64_t)bits << 32);
}

// Returns x plus `scale` times random numbers.
static Value *noise(Node *n, Value *x, double scale, bool normal) {
  Value *step = step_or_seed(n, "step"), *seed = step_or_seed(n, "seed");
  return build_op(n->b, OP_noise, IN(x, step, seed),
                  ATTRS(a_f("scale", scale), a_b("normal", normal), a_i("key", node_key(n))));
}

// The type of attribute `dtype`, or `otherwise`; false after a report.
static bool read_dtype(Node *n, DType otherwise, DType *out) {
  *out = otherwise;
  if (node_attr(n, "dtype") && !onnx_dtype((int)node_int(n, "dtype", 0), out))
    return node_fail(n, "dtype %s is not supported", onnx_dtype_name((int)node_int(n, "dtype", 0)));
  *out = onnx_compute_dtype(*out, n->im->o->keep_f64);
  return true;
}

// Numbers in the shape of `like`, or of attribute `shape`.
static bool random_of(Node *n, const Value *like, bool normal) {
  DType dtype;
  Ints shape = {0};
  if (!read_dtype(n, like ? like->type->dtype : DT_f32, &dtype)) return false;
  if (dtype_class[dtype] != 'F')
    return node_fail(n, "of %s: it must be a floating-point type", dtype_name[dtype]);
  if (like)
    shape = (Ints){like->type->ndim, like->type->dim};
  else if (!node_list(n, "shape", &shape))
    return node_fail(n, "has no shape");
  if (!node_shape(n, shape.n, shape.at)) return false;
  double mean = normal ? node_float(n, "mean", 0) : 0, low = normal ? 0 : node_float(n, "low", 0);
  double scale = normal ? node_float(n, "scale", 1) : node_float(n, "high", 1) - low;
  n->out[0] =
      noise(n, build_fill(n->b, dtype, shape.n, shape.at, normal ? mean : low), scale, normal);
  return true;
}

bool import_random_normal(Node *n) {
  return random_of(n, NULL, true);
}

bool import_random_normal_like(Node *n) {
  return random_of(n, n->in[0], true);
}

bool import_random_uniform(Node *n) {
  return random_of(n, NULL, false);
}

bool import_random_uniform_like(Node *n) {
  return random_of(n, n->in[0], false);
}

bool import_bernoulli(Node *n) {
  Value *p = n->in[0];
  DType dtype;
  if (!read_dtype(n, p->type->dtype, &dtype)) return false;
  Value *uniform = noise(n, node_like(n, p, 0), 1, false);
  n->out[0] = node_cast(n, node_binary(n, OP_less, uniform, p), dtype);
  return true;
}

// x: log-probabilities (batch, classes), up to a constant for each row.
bool import_multinomial(Node *n) {
  const Type *x = n->in[0]->type;
  int64_t samples = node_int(n, "sample_size", 1);
  DType dtype;
  if (!read_dtype(n, DT_i32, &dtype)) return false;
  if (x->ndim != 2) return node_fail(n, "operand 0 is %s, not a matrix", type_text(n->a, x));
  if (dtype != DT_i32 && dtype != DT_i64)
    return node_fail(n, "of %s: it must be i32 or i64", dtype_name[dtype]);
  int64_t dim[] = {x->dim[0], samples, x->dim[1]}, one[] = {x->dim[0], 1, x->dim[1]};
  if (!node_shape(n, 3, dim)) return false;
  // -log(-log(u)) for u uniform in (0, 1): half a step above each multiple of 2^-24.
  Value *u = noise(n, build_fill(n->b, x->dtype, 3, dim, 0x1p-25), 1 - 0x1p-24, false);
  Value *gumbel = node_unary(n, OP_neg, node_unary(n, OP_log, u));
  gumbel = node_unary(n, OP_neg, node_unary(n, OP_log, gumbel));
  Value *sum = node_binary(n, OP_add, build_reshape(n->b, n->in[0], 3, one), gumbel);
  Value *best = build_op(n->b, OP_arg_max, IN(sum), ATTRS(a_i("axis", 2)));
  n->out[0] = build_cast(n->b, best, dtype);
  return true;
}
