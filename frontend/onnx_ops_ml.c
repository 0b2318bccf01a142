// Operators of ai.onnx.ml on rows of features, as scikit-learn's exporter writes them.
//
//     Scaler             (x - offset) * scale
//     LinearClassifier   x W^T + b -> scores, and the label of the largest
//     SVMRegressor       k(x, support vectors) c + rho
//
// Their coefficients are attributes: constants that do not train.  Gradients pass to x.  The
// results are those of ONNX's reference implementation.

#include <math.h>

#include "frontend/onnx_ops_ml.h"

// x as floating-point numbers, with a row for each sample.
Value *ml_rows(Node *n) {
  Value *x = n->in[0];
  const Type *t = x->type;
  if (t->ndim < 1 || t->ndim > 2) {
    node_fail(n, "operand 0 is %s, and rows of features are needed", type_text(n->a, t));
    return NULL;
  }
  if (dtype_class[t->dtype] != 'F') x = build_cast(n->b, x, DT_f32);
  return t->ndim == 2 ? x : build_reshape(n->b, x, 2, (int64_t[]){1, t->dim[0]});
}

// The elements of a list as a constant that broadcasts with `x` along its last dimension.
static Value *per_feature(Node *n, const char *what, Floats list, const Value *x) {
  int64_t features = x->type->ndim ? x->type->dim[x->type->ndim - 1] : 1;
  if (list.n != 1 && list.n != features) {
    node_fail(n, "its %s has %d elements, for %lld features", what, list.n, (long long)features);
    return NULL;
  }
  return node_numbers(n, x->type->dtype, 1, (int64_t[]){list.n}, list.at);
}

static Value *reduced(Node *n, OpKind kind, Value *x, int axis) {
  return build_op(n->b, kind, IN(x),
                  ATTRS(a_list("axes", (int64_t[]){axis}, 1), a_b("keep", true)));
}

// -- Features ----------------------------------------------------------------------------------

// x[…, index], of a vector with a dimension of length 1 before.
bool import_array_feature_extractor(Node *n) {
  Value *x = n->in[0], *index = n->in[1];
  if (x->type->ndim < 1) return node_fail(n, "operand 0 is a scalar");
  index = build_reshape(n->b, index, 1, (int64_t[]){type_count(index->type)});
  if (x->type->ndim == 1) x = build_reshape(n->b, x, 2, (int64_t[]){1, x->type->dim[0]});
  if (!x) return false;
  n->out[0] = build_op(n->b, OP_gather, IN(x, index), ATTRS(a_i("axis", x->type->ndim - 1)));
  return true;
}

bool import_binarizer(Node *n) {
  Value *x = n->in[0];
  Value *above = node_binary(n, OP_greater, x, node_like(n, x, node_float(n, "threshold", 0)));
  n->out[0] = build_cast(n->b, above, x->type->dtype);
  return true;
}

// Concatenates the features of all operands, each cut or padded with zeros to its length.
bool import_feature_vectorizer(Node *n) {
  Ints lengths;
  if (!node_list(n, "inputdimensions", &lengths) || lengths.n != n->n_in)
    return node_fail(n, "has %d inputdimensions for %d operands", lengths.n, n->n_in);
  Value **part = arena_array(n->a, Value *, n->n_in);
  for (int i = 0; i < n->n_in; i++) {
    Value *x = n->in[i];
    if (!x || x->type->ndim < 1 || x->type->ndim > 2 || lengths.at[i] < 0)
      return node_fail(n, "operand %d has no rows of %lld features", i, (long long)lengths.at[i]);
    if (x->type->ndim == 1) x = build_reshape(n->b, x, 2, (int64_t[]){x->type->dim[0], 1});
    x = dtype_class[x->type->dtype] == 'F' ? x : build_cast(n->b, x, DT_f32);
    int64_t rows[] = {x->type->dim[0], lengths.at[i] - x->type->dim[1]};
    if (rows[1] < 0) x = build_slice(n->b, x, 1, 0, lengths.at[i]);
    if (rows[1] > 0) {
      if (!node_shape(n, 2, rows)) return false;
      Value *zeros = build_fill(n->b, x->type->dtype, 2, rows, 0);
      x = build_op(n->b, OP_concat, IN(x, zeros), ATTRS(a_i("axis", 1)));
    }
    part[i] = x;
  }
  n->out[0] =
      n->n_in == 1 ? part[0] : build_op(n->b, OP_concat, part, n->n_in, ATTRS(a_i("axis", 1)));
  return true;
}

// Replaces one number, by default NaN, by the value of its feature.
bool import_imputer(Node *n) {
  Value *x = n->in[0];
  Floats values;
  Ints integers;
  bool floating = dtype_class[x->type->dtype] == 'F';
  double replaced = node_float(n, "replaced_value_float", 0);
  int64_t replaced_integer = node_int(n, "replaced_value_int64", 0);
  if (!node_floats(n, "imputed_value_floats", &values)) return false;
  node_list(n, "imputed_value_int64s", &integers);
  if (!floating) {
    double *at = arena_array(n->a, double, integers.n + 1);
    for (int i = 0; i < integers.n; i++)
      at[i] = (double)integers.at[i];
    values = (Floats){integers.n, at};
    replaced = (double)replaced_integer;
  }
  Value *imputed = per_feature(n, "list of imputed values", values, x);
  Value *found = floating && isnan(replaced)
                     ? node_unary(n, OP_is_nan, x)
                     : node_binary(n, OP_equal, x, node_like(n, x, replaced));
  Value *in[] = {found, imputed, x};
  if (!imputed || !node_broadcast(n, in, 3)) return false;
  n->out[0] = build_op(n->b, OP_where, in, 3, NO_ATTRS);
  return true;
}

bool import_scaler(Node *n) {
  Value *x = n->in[0];
  Floats offset, scale;
  if (!node_floats(n, "offset", &offset) || !node_floats(n, "scale", &scale)) return false;
  if (dtype_class[x->type->dtype] != 'F') x = build_cast(n->b, x, DT_f32);
  if (offset.n) x = node_sub(n, x, per_feature(n, "offset", offset, x));
  if (scale.n && x) x = node_mul(n, x, per_feature(n, "scale", scale, x));
  n->out[0] = x;
  return true;
}

// Divides each row by its norm; a row of zeros stays.
bool import_normalizer(Node *n) {
  Value *x = n->in[0];
  const char *norm = node_str(n, "norm", "MAX");
  int axis = x->type->ndim - 1;
  if (axis < 0) return node_fail(n, "operand 0 is a scalar");
  if (dtype_class[x->type->dtype] != 'F') x = build_cast(n->b, x, DT_f32);
  bool l2 = str_equal(norm, "L2"), l1 = str_equal(norm, "L1");
  if (!l1 && !l2 && !str_equal(norm, "MAX")) return node_fail(n, "norm '%s' is unknown", norm);
  Value *size = node_unary(n, l2 ? OP_square : OP_abs, x);
  size = reduced(n, l1 || l2 ? OP_reduce_sum : OP_reduce_max, size, axis);
  Value *zero = size ? node_binary(n, OP_equal, size, node_like(n, size, 0)) : NULL;
  // Before the root, which has no derivative at zero.
  size = zero ? build_where(n->b, zero, node_like(n, size, 1), size) : NULL;
  if (l2) size = node_unary(n, OP_sqrt, size);
  n->out[0] = node_div(n, x, size);
  return true;
}

// -- Scores ------------------------------------------------------------------------------------

// Scores that are zero are not counted in the sum of exponentials, but scaled.
static Value *softmax_zero(Node *n, Value *x) {
  Value *most = reduced(n, OP_reduce_max, x, 1);
  Value *above = node_unary(n, OP_exp, node_sub(n, x, most));
  Value *small = node_binary(n, OP_less_equal, node_unary(n, OP_abs, x), node_like(n, x, 1e-7));
  Value *scaled = node_mul(n, x, node_unary(n, OP_exp, node_unary(n, OP_neg, most)));
  Value *y = build_where(n->b, small, scaled, above);
  Value *sum = reduced(n, OP_reduce_sum, y, 1);
  if (!sum) return NULL;
  Value *none = node_binary(n, OP_equal, sum, node_like(n, sum, 0));
  Value *in[] = {none, node_like(n, sum, 0.5),
                 node_div(n, y, build_where(n->b, none, node_like(n, sum, 1), sum))};
  return node_broadcast(n, in, 3) ? build_op(n->b, OP_where, in, 3, NO_ATTRS) : NULL;
}

// The quantile of the normal distribution, by Winitzki's approximation of the inverse of erf, which
// is the definition of the reference implementation.
static Value *probit(Node *n, Value *p) {
  Value *x = build_op(n->b, OP_offset, IN(build_scale(n->b, p, 2)), ATTRS(a_f("by", -1)));
  Value *rest = node_sub(n, node_like(n, p, 1), node_unary(n, OP_square, x));
  Value *log = node_unary(n, OP_log, rest);
  Value *half = build_op(n->b, OP_offset, IN(build_scale(n->b, log, 0.5)),
                         ATTRS(a_f("by", 2 / (M_PI * 0.147))));
  Value *inner = node_sub(n, node_unary(n, OP_square, half), build_scale(n->b, log, 1 / 0.147));
  Value *root = node_unary(n, OP_sqrt, node_sub(n, node_unary(n, OP_sqrt, inner), half));
  return build_scale(n->b, node_mul(n, node_unary(n, OP_sign, x), root), 1.41421356);
}

Value *ml_transformed(Node *n, Value *x, const char *how) {
  if (!x || str_equal(how, "NONE")) return x;
  if (str_equal(how, "LOGISTIC")) return node_unary(n, OP_sigmoid, x);
  if (str_equal(how, "SOFTMAX")) return build_op(n->b, OP_softmax, IN(x), ATTRS(a_i("axis", 1)));
  if (str_equal(how, "SOFTMAX_ZERO")) return softmax_zero(n, x);
  if (str_equal(how, "PROBIT")) return probit(n, x);
  node_fail(n, "post_transform '%s' is unknown", how);
  return NULL;
}

bool ml_labels(Node *n, const char *integers, const char *strings, Labels *out) {
  const Onnx__AttributeProto *names = node_attr(n, strings);
  Ints list;
  node_list(n, integers, &list);
  out->strings = names && names->n_strings;
  out->n = out->strings ? (int)names->n_strings : list.n;
  out->at = list.at;
  if (out->n == 0) return node_fail(n, "has no labels");
  return !out->strings || !node_wants(n, 0) ||
         node_fail_hint(n, "end the model at the scores, which are its result 1",
                        "its labels are strings");
}

Value *ml_label(Node *n, const Labels *labels, Value *scores) {
  if (!scores || labels->strings) return NULL;
  Value *best = build_op(n->b, OP_arg_max, IN(scores), ATTRS(a_i("axis", 1), a_b("keep", false)));
  return build_op(n->b, OP_gather, IN(node_ints_value(n, labels->at, labels->n), best),
                  ATTRS(a_i("axis", 0)));
}

// -- Linear models -----------------------------------------------------------------------------

// x W^T + b, with a row of W for each of `targets`.
static Value *linear_scores(Node *n, Value *x, int64_t targets) {
  Floats w, b;
  if (!node_floats(n, "coefficients", &w) || !node_floats(n, "intercepts", &b)) return NULL;
  int64_t features = x->type->dim[1];
  if (targets < 1 || features < 1 || w.n % features || w.n / features != targets) {
    node_fail(n, "has %d coefficients, for %lld features and %lld targets", w.n,
              (long long)features, (long long)targets);
    return NULL;
  }
  if (b.n && b.n != targets) {
    node_fail(n, "has %d intercepts for %lld targets", b.n, (long long)targets);
    return NULL;
  }
  DType dtype = x->type->dtype;
  Value *weight = node_numbers(n, dtype, 2, (int64_t[]){targets, features}, w.at);
  Value *y = build_op(n->b, OP_linear, IN(x, weight), ATTRS(a_b("trans", true)));
  return b.n ? node_add(n, y, node_numbers(n, dtype, 1, (int64_t[]){targets}, b.at)) : y;
}

bool import_linear_regressor(Node *n) {
  Value *x = ml_rows(n);
  if (!x) return false;
  n->out[0] = ml_transformed(n, linear_scores(n, x, node_int(n, "targets", 1)),
                             node_str(n, "post_transform", "NONE"));
  return true;
}

bool import_linear_classifier(Node *n) {
  Value *x = ml_rows(n);
  Labels labels;
  if (!x || !ml_labels(n, "classlabels_ints", "classlabels_strings", &labels)) return false;
  (void)node_int(n, "multi_class", 0); // ignored by every implementation
  const Onnx__AttributeProto *w = node_attr(n, "coefficients");
  bool one = labels.n == 2 && w && (int64_t)w->n_floats == x->type->dim[1];
  Value *y = linear_scores(n, x, one ? 1 : labels.n);
  // One score for two classes is that of the second.
  if (one && y)
    y = build_op(n->b, OP_concat, IN(node_unary(n, OP_neg, y), y), ATTRS(a_i("axis", 1)));
  n->out[1] = ml_transformed(n, y, node_str(n, "post_transform", "NONE"));
  n->out[0] = ml_label(n, &labels, n->out[1]);
  return true;
}

// -- Support vectors ---------------------------------------------------------------------------

// k(x, v) for all rows of x and all vectors.
static Value *kernels(Node *n, Value *x, Value *vectors) {
  const char *kind = node_str(n, "kernel_type", "LINEAR");
  Floats p;
  if (!node_floats(n, "kernel_params", &p)) return NULL;
  double gamma = p.n > 0 ? p.at[0] : 0, offset = p.n > 1 ? p.at[1] : 0;
  double degree = p.n > 2 ? trunc(p.at[2]) : 0;
  if (str_equal(kind, "RBF")) {
    // The difference of each row and each vector, in three dimensions.
    int64_t rows[] = {x->type->dim[0], 1, x->type->dim[1]};
    Value *apart = node_sub(n, build_reshape(n->b, x, 3, rows), vectors);
    Value *square =
        build_reduce_sum(n->b, node_unary(n, OP_square, apart), (int64_t[]){2}, 1, false);
    return node_unary(n, OP_exp, build_scale(n->b, square, -gamma));
  }
  Value *dot = build_op(n->b, OP_linear, IN(x, vectors), ATTRS(a_b("trans", true)));
  if (str_equal(kind, "LINEAR")) return dot;
  Value *s = build_op(n->b, OP_offset, IN(build_scale(n->b, dot, gamma)), ATTRS(a_f("by", offset)));
  if (str_equal(kind, "SIGMOID")) return node_unary(n, OP_tanh, s);
  if (str_equal(kind, "POLY")) return s ? node_binary(n, OP_pow, s, node_like(n, s, degree)) : NULL;
  node_fail(n, "kernel_type '%s' is unknown", kind);
  return NULL;
}

bool import_svm_regressor(Node *n) {
  Value *x = ml_rows(n);
  Floats c, rho, vectors;
  if (!x || !node_floats(n, "coefficients", &c) || !node_floats(n, "rho", &rho) ||
      !node_floats(n, "support_vectors", &vectors))
    return false;
  int64_t supports = node_int(n, "n_supports", 0), features = x->type->dim[1];
  int64_t rows = supports > 0 ? supports : 1; // of the last product
  if (node_int(n, "n_targets", 1) != 1) return node_fail(n, "has several targets");
  if (supports < 0 || rho.n < 1 || c.n != (supports ? supports : features) ||
      (supports && (vectors.n % supports || vectors.n / supports != features)))
    return node_fail(n, "has %d coefficients and %d numbers of %lld vectors, for %lld features",
                     c.n, vectors.n, (long long)supports, (long long)features);
  DType dtype = x->type->dtype;
  // Without vectors the model is linear, whatever its kernel.
  if (supports) {
    x = kernels(n, x, node_numbers(n, dtype, 2, (int64_t[]){supports, features}, vectors.at));
  } else {
    (void)node_attr(n, "kernel_type");
    (void)node_attr(n, "kernel_params");
    rows = features;
  }
  Value *y = build_op(n->b, OP_linear, IN(x, node_numbers(n, dtype, 2, (int64_t[]){rows, 1}, c.at)),
                      NO_ATTRS);
  y = build_op(n->b, OP_offset, IN(y), ATTRS(a_f("by", rho.at[0])));
  if (node_int(n, "one_class", 0) && y) {
    Value *inside = node_binary(n, OP_greater, y, node_like(n, y, 0));
    y = build_where(n->b, inside, node_like(n, y, 1), node_like(n, y, -1));
  }
  n->out[0] = ml_transformed(n, y, node_str(n, "post_transform", "NONE"));
  return true;
}
