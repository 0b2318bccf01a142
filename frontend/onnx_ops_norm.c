// Softmax and the normalisations.
//
// The ops normalise the last dimension (softmax: any).  For ONNX's other normalisations, of several
// dimensions or groups of channels, x is reshaped so that these are the last dimension:
//
//     InstanceNormalization  x (n, c, h, w)
//                            layer_norm of (n c, h w), then scale and bias by channel

#include <string.h>

#include "frontend/onnx_node.h"
#include "frontend/onnx_walk.h"

static bool softmax_by_axis(Node *n, OpKind kind) {
  int axis;
  if (!node_axis(n, node_int(n, "axis", -1), node_ndim(n, 0), &axis)) return false;
  n->out[0] = build_op(n->b, kind, IN(n->in[0]), ATTRS(a_i("axis", axis)));
  return true;
}

// Flattens the dimensions from `axis` on into one, as before opset 13.  Returns x itself if
// normalising along that axis alone is the same.
static Value *coerce(Node *n, int *axis) {
  Value *x = n->in[0];
  const Type *t = x->type;
  int64_t a = node_int(n, "axis", 1);
  *axis = (int)(a < 0 ? a + t->ndim : a);
  // The axis may be the number of dimensions: then the last dimension is 1.
  if (*axis < 0 || *axis > t->ndim) {
    node_axis(n, a, t->ndim, axis);
    return NULL;
  }
  if (*axis < t->ndim && product(t->dim, *axis + 1, t->ndim) == 1) return x;
  int64_t dim[2] = {product(t->dim, 0, *axis), product(t->dim, *axis, t->ndim)};
  *axis = 1;
  return build_reshape(n->b, x, 2, dim);
}

static bool softmax_2d(Node *n, OpKind kind) {
  int axis;
  const Type *t = n->in[0]->type;
  Value *x = coerce(n, &axis);
  if (!x) return false;
  Value *y = build_op(n->b, kind, IN(x), ATTRS(a_i("axis", axis)));
  // The result has the shape of the operand again.
  n->out[0] = build_reshape(n->b, y, t->ndim, t->dim);
  return true;
}

bool import_softmax(Node *n) {
  return softmax_by_axis(n, OP_softmax);
}

bool import_softmax_2d(Node *n) {
  return softmax_2d(n, OP_softmax);
}

bool import_log_softmax(Node *n) {
  return softmax_by_axis(n, OP_log_softmax);
}

bool import_log_softmax_2d(Node *n) {
  return softmax_2d(n, OP_log_softmax);
}

// 1 at the first maximum along the axis, 0 elsewhere
static Value *hardmax(Node *n, Value *x, int axis) {
  if (!x) return NULL;
  int64_t count = x->type->dim[axis], dim[MAX_NDIM];
  for (int i = 0; i < x->type->ndim; i++)
    dim[i] = i == axis ? count : 1;
  Value *best = build_op(n->b, OP_arg_max, IN(x),
                         ATTRS(a_i("axis", axis), a_b("keep", true), a_b("last", false)));
  // The positions along the axis, compared with that of the maximum.
  Value *at = build_reshape(n->b, node_count_up(n, count), x->type->ndim, dim);
  return build_cast(n->b, node_binary(n, OP_equal, best, at), x->type->dtype);
}

bool import_hardmax(Node *n) {
  int axis;
  if (!node_axis(n, node_int(n, "axis", -1), node_ndim(n, 0), &axis)) return false;
  n->out[0] = hardmax(n, n->in[0], axis);
  return true;
}

bool import_hardmax_2d(Node *n) {
  int axis;
  const Type *t = n->in[0]->type;
  Value *x = coerce(n, &axis);
  n->out[0] = build_reshape(n->b, hardmax(n, x, axis), t->ndim, t->dim);
  return x != NULL;
}

// -- Over the last dimensions ------------------------------------------------------------------

// The dimensions from `axis` on as one.
typedef struct Tail {
  int axis;
  int ndim;
  int64_t dim[MAX_NDIM];  // the leading ones, then their product
  int64_t stat[MAX_NDIM]; // of the statistics: the leading ones, then ones
  int64_t count;
} Tail;

static bool read_tail(Node *n, Tail *t) {
  const Type *x = n->in[0]->type;
  if (!node_axis(n, node_int(n, "axis", -1), x->ndim, &t->axis)) return false;
  t->ndim = t->axis + 1;
  t->count = product(x->dim, t->axis, x->ndim);
  // The statistics keep the normalised dimensions with length 1.
  for (int i = 0; i < x->ndim; i++)
    t->stat[i] = i < t->axis ? x->dim[i] : 1;
  memcpy(t->dim, x->dim, (size_t)t->axis * sizeof *t->dim);
  t->dim[t->axis] = t->count;
  return true;
}

// Returns a scale or bias as a vector over the tail; NULL, without a report, if it also varies over
// the leading dimensions.
static Value *tail_vector(Node *n, const Tail *t, Value *v) {
  const Type *x = n->in[0]->type;
  int ndim = x->ndim - t->axis;
  int over = v->type->ndim - ndim;
  // Leading dimensions of length 1 are dropped.
  if (over > 0 && product(v->type->dim, 0, over) != 1) return NULL;
  if (over > 0) v = build_reshape(n->b, v, ndim, v->type->dim + over);
  v = build_broadcast(n->b, v, ndim, x->dim + t->axis);
  return build_reshape(n->b, v, 1, &t->count);
}

static Value *ones(Node *n, DType dtype, int64_t count) {
  return build_fill(n->b, dtype, 1, &count, 1);
}

static Value *zeros(Node *n, DType dtype, int64_t count) {
  return build_fill(n->b, dtype, 1, &count, 0);
}

static Value *layer_norm(Node *n, Value *x, Value *scale, Value *bias, double eps) {
  return build_op(n->b, OP_layer_norm, IN(x, scale, bias), ATTRS(a_f("eps", eps)));
}

bool import_layer_normalization(Node *n) {
  Value *x = n->in[0], *bias = node_in(n, 2);
  DType dtype = x->type->dtype;
  double eps = node_float(n, "epsilon", 1e-5);
  Tail t;
  if (!read_tail(n, &t)) return false;
  Value *g = tail_vector(n, &t, n->in[1]);
  Value *b = bias ? tail_vector(n, &t, bias) : zeros(n, dtype, t.count);
  if (n->b->failed) return false;
  Value *flat = build_reshape(n->b, x, t.ndim, t.dim), *y;
  // A scale or bias that varies over leading dimensions is applied after the op.
  if (g && b) {
    y = layer_norm(n, flat, g, b, eps);
  } else {
    y = layer_norm(n, flat, ones(n, dtype, t.count), zeros(n, dtype, t.count), eps);
  }
  if (!y) return false;
  // Mean and inverse deviation, if a node reads them.
  if (node_wants(n, 1)) n->out[1] = build_reshape(n->b, y->def->out[1], x->type->ndim, t.stat);
  if (node_wants(n, 2)) n->out[2] = build_reshape(n->b, y->def->out[2], x->type->ndim, t.stat);
  y = build_reshape(n->b, y, x->type->ndim, x->type->dim);
  if (!(g && b)) {
    y = node_binary(n, OP_mul, y, n->in[1]);
    if (bias) y = node_binary(n, OP_add, y, bias);
  }
  n->out[0] = y;
  return true;
}

bool import_rms_normalization(Node *n) {
  Value *x = n->in[0];
  double eps = node_float(n, "epsilon", 1e-5);
  Tail t;
  if (!read_tail(n, &t)) return false;
  Value *g = tail_vector(n, &t, n->in[1]);
  if (n->b->failed) return false;
  // A scale that varies over leading dimensions is applied after the op.
  Value *y =
      build_op(n->b, OP_rms_norm,
               IN(build_reshape(n->b, x, t.ndim, t.dim), g ? g : ones(n, x->type->dtype, t.count)),
               ATTRS(a_f("eps", eps)));
  y = build_reshape(n->b, y, x->type->ndim, x->type->dim);
  n->out[0] = g ? y : node_binary(n, OP_mul, y, n->in[1]);
  return true;
}

// Reshapes one number per channel to broadcast along dimension 1 of x.
static Value *per_channel(Node *n, Value *v, int ndim) {
  int64_t dim[MAX_NDIM];
  if (!v) return NULL;
  for (int i = 0; i < ndim; i++)
    dim[i] = i == 1 ? product(v->type->dim, 0, v->type->ndim) : 1;
  return build_reshape(n->b, v, ndim, dim);
}

// Normalises groups of channels together with all later dimensions; then scale and bias by channel.
static bool group_norm(Node *n, int64_t groups, Value *scale, Value *bias) {
  Value *x = n->in[0];
  const Type *t = x->type;
  if (t->ndim < 2) return node_fail(n, "operand 0 has no channels");
  if (groups < 1 || t->dim[1] % groups)
    return node_fail(n, "%lld channels do not make %lld groups", (long long)t->dim[1],
                     (long long)groups);
  // Each group of channels is one row of a layer_norm without scale and bias.
  int64_t count = product(t->dim, 1, t->ndim) / groups, dim[3] = {t->dim[0], groups, count};
  Value *y = layer_norm(n, build_reshape(n->b, x, 3, dim), ones(n, t->dtype, count),
                        zeros(n, t->dtype, count), node_float(n, "epsilon", 1e-5));
  y = build_reshape(n->b, y, t->ndim, t->dim);
  y = node_binary(n, OP_mul, y, per_channel(n, scale, t->ndim));
  n->out[0] = node_binary(n, OP_add, y, per_channel(n, bias, t->ndim));
  return true;
}

bool import_instance_normalization(Node *n) {
  const Type *t = n->in[0]->type;
  return group_norm(n, t->ndim > 1 ? t->dim[1] : 0, n->in[1], n->in[2]);
}

// Before opset 21, scale and bias were per group.
static Value *group_to_channels(Node *n, Value *v, int64_t groups, int64_t channels) {
  if (!v || v->type->ndim != 1 || v->type->dim[0] == channels) return v;
  v = build_reshape(n->b, v, 2, (int64_t[]){groups, 1});
  v = build_broadcast(n->b, v, 2, (int64_t[]){groups, channels / groups});
  return build_reshape(n->b, v, 1, &channels);
}

bool import_group_normalization(Node *n) {
  int64_t groups = node_int(n, "num_groups", 0);
  const Type *t = n->in[0]->type;
  Value *scale = n->in[1], *bias = n->in[2];
  // Channels that do not divide are reported by group_norm.
  if (t->ndim > 1 && groups > 0 && t->dim[1] % groups == 0 && n->opset < 21) {
    scale = group_to_channels(n, scale, groups, t->dim[1]);
    bias = group_to_channels(n, bias, groups, t->dim[1]);
  }
  return group_norm(n, groups, scale, bias);
}

// Whether the node trains: by --train-mode, by training_mode=1 (from opset 14), or because it was
// exported from such a call of PyTorch.
static bool in_training(Node *n) {
  if (node_int(n, "training_mode", 0) != 0 || n->im->o->train_mode) return true;
  if (node_from_torch(n, "batch_norm_legit_no_training")) return false;
  // The call's argument `training`.
  if (node_from_torch(n, "batch_norm")) {
    const char *training = node_torch_arg(n, 5);
    return training && str_equal(training, "True");
  }
  // Counts the nodes in inference and keeps the first location, for the driver's message.
  OnnxFindings *out = n->im->o->findings;
  if (out && !out->n_batch_norms++) out->batch_norm = loc_copy(out->arena, n->b->origin.loc);
  return false;
}

// Returns the running statistics after all nodes so far: a second node with the same statistics
// updates them further.
static Value *newest(Node *n, Value *running) {
  Result *r = graph_find_update(n->b->g, running);
  return r ? r->use.value : running;
}

// In training the running variance is updated by the unbiased variance of the batch, as in PyTorch,
// or by the biased one, as ONNX defines, if the model is not from PyTorch.
bool import_batch_normalization(Node *n) {
  double eps = node_float(n, "epsilon", 1e-5), momentum = node_float(n, "momentum", 0.9);
  bool unbiased = node_by_torch(n);
  Value *x = n->in[0];
  if (x->type->ndim < 2) return node_fail(n, "operand 0 has no channels");
  if (node_int(n, "spatial", 1) == 0)
    return node_fail(n, "statistics per element (spatial=0) are not supported");
  for (int i = 3; i < 5; i++)
    node_keep(n, i, WHY_statistic);
  if (!in_training(n)) {
    n->out[0] = build_op(n->b, OP_batch_norm, n->in, 5, ATTRS(a_i("axis", 1), a_f("eps", eps)));
    return true;
  }
  // One value per channel has no variance to train with.
  if (type_count(x->type) == x->type->dim[1])
    return node_fail(n,
                     "there is one value for each channel, %s, and in training its variance "
                     "would be that of one",
                     type_text(n->a, x->type));
  Value *in[] = {x, n->in[1], n->in[2], newest(n, n->in[3]), newest(n, n->in[4])};
  Value *y = build_op(
      n->b, OP_batch_norm_train, in, 5,
      ATTRS(a_i("axis", 1), a_f("eps", eps), a_f("momentum", momentum), a_b("unbiased", unbiased)));
  if (!y) return false;
  n->out[0] = y;
  Value **out = y->def->out; // y, mean, var, new running mean, new running var
  // The new running statistics are updates of the model's states.
  for (int i = 0; i < 2; i++) {
    Value *running = n->in[3 + i];
    if (running->def || running->role != ROLE_weight) continue;
    Result *r = graph_find_update(n->b->g, running);
    if (r)
      graph_set_result(n->b->g, r->use.index, out[3 + i]);
    else
      graph_update(n->b->g, running, out[3 + i]);
  }
  // Results 1 and 2 are the new running statistics, in every opset; before opset 14, results 3 and
  // 4 are the mean and variance of the batch.
  n->out[1] = out[3];
  n->out[2] = out[4];
  n->out[3] = out[1];
  n->out[4] = out[2];
  return true;
}

// x / (bias + alpha * mean of squares over `size` channels)^beta.  The mean is an average pooling
// in which the channels are a spatial dimension.
bool import_lrn(Node *n) {
  Value *x = n->in[0];
  const Type *t = x->type;
  int64_t size = node_int(n, "size", 0);
  if (t->ndim < 3) return node_fail(n, "operand 0 is %s, not an image", type_text(n->a, t));
  if (size < 1 || size > INT32_MAX) return node_fail(n, "a size of %lld", (long long)size);
  // x as an image whose rows are the channels.
  int64_t plane[4] = {t->dim[0], 1, t->dim[1], product(t->dim, 2, t->ndim)};
  int64_t kernel[2] = {size, 1}, once[2] = {1, 1};
  // With an even size, the window has one channel more after than before.
  int64_t pads[4] = {(size - 1) / 2, 0, size - 1 - (size - 1) / 2, 0};
  Value *squares = build_reshape(n->b, node_unary(n, OP_square, x), 4, plane);
  Value *mean = build_op(n->b, OP_avg_pool, IN(squares),
                         ATTRS(a_list("kernel", kernel, 2), a_list("strides", once, 2),
                               a_list("pads", pads, 4), a_list("dilations", once, 2),
                               a_b("include_pad", true), a_b("channels_last", false),
                               a_list("shape", plane, 4)));
  Value *base =
      build_scale(n->b, build_reshape(n->b, mean, t->ndim, t->dim), node_float(n, "alpha", 1e-4));
  base = build_op(n->b, OP_offset, IN(base), ATTRS(a_f("by", node_float(n, "bias", 1))));
  Value *power = node_binary(n, OP_pow, base, node_like(n, x, node_float(n, "beta", 0.75)));
  n->out[0] = node_binary(n, OP_div, x, power);
  return true;
}

// x / (|x| + … + |x|) or x / sqrt(x² + … + x²) along the axis
bool import_lp_normalization(Node *n) {
  int axis;
  Value *x = n->in[0];
  int64_t p = node_int(n, "p", 2);
  if (!node_axis(n, node_int(n, "axis", -1), x->type->ndim, &axis)) return false;
  if (p != 1 && p != 2) return node_fail(n, "p is %lld", (long long)p);
  Value *each = node_unary(n, p == 1 ? OP_abs : OP_square, x);
  Value *norm = build_reduce_sum(n->b, each, (int64_t[]){axis}, 1, true);
  if (p == 2) norm = node_unary(n, OP_sqrt, norm);
  Value *zero = node_binary(n, OP_equal, norm, norm ? node_like(n, norm, 0) : NULL);
  // If the norm is zero, x is zero, and stays zero.
  norm = build_where(n->b, zero, norm ? node_like(n, norm, 1) : NULL, norm);
  n->out[0] = node_binary(n, OP_div, x, norm);
  return true;
}

// (x - mean) / sqrt(variance) over `axes`; the standard's function adds 1e-9 to the divisor.
bool import_mean_variance_normalization(Node *n) {
  static const int64_t default_axes[] = {0, 2, 3};
  Ints axes;
  if (!node_list(n, "axes", &axes)) axes = (Ints){3, default_axes};
  int64_t at[MAX_NDIM];
  int ndim = node_ndim(n, 0), count = 0;
  bool reduced[MAX_NDIM] = {false};
  for (int i = 0; i < axes.n; i++) {
    int axis;
    if (!node_axis(n, axes.at[i], ndim, &axis)) return false;
    reduced[axis] = true;
  }
  for (int i = 0; i < ndim; i++)
    if (reduced[i]) at[count++] = i;
  Value *mean = node_mean(n, n->in[0], at, count, true);
  Value *difference = mean ? node_binary(n, OP_sub, n->in[0], mean) : NULL;
  if (!difference) return false;
  Value *variance = node_mean(n, node_unary(n, OP_square, difference), at, count, true);
  if (!variance) return false;
  Value *divisor =
      build_op(n->b, OP_offset, IN(node_unary(n, OP_sqrt, variance)), ATTRS(a_f("by", 1e-9)));
  n->out[0] = divisor ? node_binary(n, OP_div, difference, divisor) : NULL;
  return true;
}
