// Signals: the transform of frames, windows and mel weights.
//
//     STFT   y[k] = sum over j of x[j] e^(-2 pi i j k / n)     products with tables of cos and sin
//
// A complex number is the last dimension, of length 2; a real one has length 1.  Tables are
// computed here, so lengths must be known.

#include <math.h>
#include <string.h>

#include "frontend/onnx_walk.h"

// -- The transform of frames ---------------------------------------------------------------------

// cos or -sin of 2 pi j k / length as a matrix (length, bins).
static Value *table(Node *n, int64_t length, int64_t bins, DType dtype, bool sine) {
  if (!node_small(n, length) || !node_small(n, length * bins)) return NULL;
  const Type *type = type_new(n->im->m, dtype, 2, (int64_t[]){length, bins});
  Tensor out = tensor_new(n->a, type);
  for (int64_t j = 0; j < length; j++)
    for (int64_t k = 0; k < bins; k++) {
      // The angle of j k modulo the length is exact for any length.
      double angle = 2 * acos(-1) * (double)(j * k % length) / (double)length;
      tensor_set_f(&out, j * bins + k, sine ? -sin(angle) : cos(angle));
    }
  return build_constant(n->b, type, out.data);
}

static Value *product_with(Node *n, Value *x, Value *w) {
  return x && w ? build_op(n->b, OP_linear, IN(x, w), ATTRS(a_b("trans", false))) : NULL;
}

// Transforms real and imaginary parts (…, length) to those of the result (…, bins); `im` may be
// NULL.
static bool transform(Node *n, int64_t bins, Value *re, Value *im, Value **out_re, Value **out_im) {
  const Type *t = re->type;
  int64_t length = t->dim[t->ndim - 1];
  Value *c = table(n, length, bins, t->dtype, false), *s = table(n, length, bins, t->dtype, true);
  if (!c || !s) return false;
  // (re + i im) (cos + i s)
  *out_re = product_with(n, re, c);
  *out_im = product_with(n, re, s);
  if (im) {
    *out_re = node_sub(n, *out_re, product_with(n, im, s));
    *out_im = node_add(n, *out_im, product_with(n, im, c));
  }
  return !n->b->failed;
}

// The real or imaginary parts of a signal (b, length, 1 or 2), as (b, length).
static Value *component(Node *n, Value *x, int part) {
  return build_reshape(n->b, node_part(n, x, 2, part, 1), 2, x->type->dim);
}

// (b, frames, bins, 2) of the parts.
static Value *complex_of(Node *n, Value *re, Value *im) {
  if (!re || !im) return NULL;
  const int64_t *d = re->type->dim;
  int64_t dim[] = {d[0], d[1], d[2], 1};
  return build_op(n->b, OP_concat,
                  IN(build_reshape(n->b, re, 4, dim), build_reshape(n->b, im, 4, dim)),
                  ATTRS(a_i("axis", 3)));
}

// Operands: the signal (b, length, 1 or 2), the step between frames, the window, the length of a
// frame.  Result: (b, frames, bins, 2).
bool import_stft(Node *n) {
  Value *x = n->in[0], *window = node_in(n, 2);
  const Type *type = x->type;
  int64_t step, length;
  bool onesided = node_int(n, "onesided", 1) != 0;
  if (type->ndim == 2) x = build_reshape(n->b, x, 3, (int64_t[]){type->dim[0], type->dim[1], 1});
  type = x->type;
  if (type->ndim != 3 || (type->dim[2] != 1 && type->dim[2] != 2))
    return node_fail(n, "a signal of %s", type_text(n->a, type));
  int64_t all = type->dim[1];
  if (window && window->type->ndim != 1)
    return node_fail(n, "a window of %s", type_text(n->a, window->type));
  if (!node_setting_int(n, 1, "frame_step", 0, &step) ||
      !node_setting_int(n, 3, "frame_length", window ? window->type->dim[0] : all, &length))
    return false;
  if (step < 1 || length < 1 || length > all || (window && window->type->dim[0] != length))
    return node_fail(n, "frames of %lld, %lld apart, of a signal of %lld", (long long)length,
                     (long long)step, (long long)all);
  bool complex = type->dim[2] == 2;
  if (complex && onesided) return node_fail(n, "onesided, of complex numbers");
  int64_t frames = (all - length) / step + 1;
  if (!node_small(n, frames * length)) return false;
  // The positions of all frames.
  int64_t *at = arena_array(n->a, int64_t, frames * length);
  for (int64_t i = 0; i < frames * length; i++)
    at[i] = i / length * step + i % length;
  const Type *index = type_new(n->im->m, DT_i64, 2, (int64_t[]){frames, length});
  Value *rows = build_constant(n->b, index, at), *out[2], *part[2] = {NULL, NULL};
  for (int i = 0; i < (complex ? 2 : 1) && rows; i++) {
    // (b, frames, length)
    Value *signal = component(n, x, i);
    part[i] = signal ? build_op(n->b, OP_gather, IN(signal, rows), ATTRS(a_i("axis", 1))) : NULL;
    if (window) part[i] = node_mul(n, part[i], window);
    if (!part[i]) return false;
  }
  int64_t bins = onesided ? length / 2 + 1 : length;
  if (!rows || !transform(n, bins, part[0], part[1], &out[0], &out[1])) return false;
  n->out[0] = complex_of(n, out[0], out[1]);
  return n->out[0] != NULL;
}

// -- Windows and mel weights -------------------------------------------------------------------

// The type of `output_datatype`, a floating one.
static bool output_type(Node *n, DType *out) {
  int64_t type = node_int(n, "output_datatype", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
  if (!onnx_dtype((int)type, out) || onnx_narrow((int)type))
    return node_fail(n, "output_datatype %s is not supported", onnx_dtype_name((int)type));
  *out = onnx_compute_dtype(*out, n->im->o->keep_f64);
  return true;
}

// a0 - a1 cos(2 pi i / m) + a2 cos(4 pi i / m), with m the size, or one less if it is symmetric.
static bool cosine_window(Node *n, double a0, double a1, double a2) {
  int64_t size;
  DType dtype;
  if (!node_setting_int(n, 0, "size", 0, &size) || !output_type(n, &dtype)) return false;
  if (size < 0) return node_fail(n, "a size of %lld", (long long)size);
  if (!node_small(n, size)) return false;
  double m = (double)(node_int(n, "periodic", 1) ? size : size - 1);
  const Type *type = type_new(n->im->m, dtype, 1, &size);
  Tensor out = tensor_new(n->a, type);
  for (int64_t i = 0; i < size; i++) {
    // A window of one element has no angle.
    double angle = m > 0 ? 2 * acos(-1) * (double)i / m : 0;
    tensor_set_f(&out, i, m > 0 ? a0 - a1 * cos(angle) + a2 * cos(2 * angle) : 1);
  }
  n->out[0] = build_constant(n->b, type, out.data);
  return n->out[0] != NULL;
}

bool import_hann_window(Node *n) {
  return cosine_window(n, 0.5, 0.5, 0);
}

bool import_hamming_window(Node *n) {
  return cosine_window(n, 25.0 / 46, 21.0 / 46, 0);
}

bool import_blackman_window(Node *n) {
  return cosine_window(n, 0.42, 0.5, 0.08);
}

// Triangles over the bins of a spectrum, between neighbours on the mel scale.
bool import_mel_weight_matrix(Node *n) {
  int64_t bands, length, rate;
  double low, high;
  DType dtype;
  if (!node_setting_int(n, 0, "num_mel_bins", 0, &bands) ||
      !node_setting_int(n, 1, "dft_length", 0, &length) ||
      !node_setting_int(n, 2, "sample_rate", 0, &rate) ||
      !node_setting_float(n, 3, "lower_edge_hertz", 0, &low) ||
      !node_setting_float(n, 4, "upper_edge_hertz", 0, &high) || !output_type(n, &dtype))
    return false;
  if (bands < 1 || length < 1 || rate < 1 || !(low >= 0) || !(high >= low) || bands > 1 << 20 ||
      length > 1 << 24)
    return node_fail(n, "%lld bands of a transform of %lld at %lld Hz, from %g to %g Hz",
                     (long long)bands, (long long)length, (long long)rate, low, high);
  int64_t bins = length / 2 + 1;
  if (!node_small(n, bins * bands)) return false;
  // The bin of each edge.
  int64_t *edge = arena_array(n->a, int64_t, bands + 2);
  double from = log1p(low / 700), by = (log1p(high / 700) - from) / (double)(bands + 2);
  for (int64_t i = 0; i < bands + 2; i++) {
    double hertz = 700 * expm1(from + by * (double)i);
    edge[i] = (int64_t)floor((double)(length + 1) * hertz / (double)rate);
    if (edge[i] >= bins)
      return node_fail(n, "%g Hz is beyond the spectrum of %lld Hz", hertz, (long long)rate);
  }
  const Type *type = type_new(n->im->m, dtype, 2, (int64_t[]){bins, bands});
  Tensor out = tensor_new(n->a, type);
  for (int64_t i = 0; i < bands; i++) {
    int64_t left = edge[i], center = edge[i + 1], right = edge[i + 2];
    if (left == center) tensor_set_f(&out, center * bands + i, 1);
    for (int64_t j = left; j <= center && left < center; j++)
      tensor_set_f(&out, j * bands + i, (double)(j - left) / (double)(center - left));
    for (int64_t j = center; j < right; j++)
      tensor_set_f(&out, j * bands + i, (double)(right - j) / (double)(right - center));
  }
  n->out[0] = build_constant(n->b, type, out.data);
  return n->out[0] != NULL;
}
