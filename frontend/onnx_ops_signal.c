// Signals: Fourier transforms, whole or of frames, windows and mel weights.
//
//     DFT    y[k] = sum over j of x[j] e^(-2 pi i j k / n)     products with tables of cos and sin
//     STFT   the same of each frame
//
// A complex number is the last dimension, of length 2; a real one has length 1.  Tables are
// computed here, so lengths must be known.

#include <math.h>
#include <string.h>

#include "frontend/onnx_walk.h"

// -- The transform -------------------------------------------------------------------------------

// A transform of `length`, of its first `rows` numbers to its first `bins`: numbers beyond `rows`
// are zero.  The inverse has the other sign in the exponent and the factor 1 / length.
typedef struct Transform {
  int64_t rows, bins, length;
  bool inverse;
  bool halved; // inverse only: the numbers are half of a spectrum, of a real signal
} Transform;

// cos or -sin of 2 pi j k / length as a matrix (rows, bins); of the inverse, sin.
static Value *table(Node *n, const Transform *t, DType dtype, bool sine) {
  if (!node_small(n, t->length) || !node_small(n, t->rows * t->bins)) return NULL;
  const Type *type = type_new(n->im->m, dtype, 2, (int64_t[]){t->rows, t->bins});
  Tensor out = tensor_new(n->a, type);
  double by = t->inverse ? 1 / (double)t->length : 1;
  for (int64_t j = 0; j < t->rows; j++) {
    // Half a spectrum has the conjugates of all numbers but the first, and the middle one.
    double factor = t->halved && j > 0 && 2 * j != t->length ? 2 * by : by;
    for (int64_t k = 0; k < t->bins; k++) {
      // The angle of j k modulo the length is exact for any length, and quarters of a turn have
      // exact values.
      int64_t turn = j * k % t->length, quarter = 4 * turn / t->length;
      double angle = 2 * acos(-1) * (double)turn / (double)t->length;
      double c = cos(angle), s = sin(angle);
      if (4 * turn % t->length == 0) {
        c = (double[]){1, 0, -1, 0}[quarter];
        s = (double[]){0, 1, 0, -1}[quarter];
      }
      tensor_set_f(&out, j * t->bins + k, factor * (!sine ? c : t->inverse ? s : -s));
    }
  }
  return build_constant(n->b, type, out.data);
}

static Value *product_with(Node *n, Value *x, Value *w) {
  return x && w ? build_op(n->b, OP_linear, IN(x, w), ATTRS(a_b("trans", false))) : NULL;
}

// Transforms real and imaginary parts (…, rows) to those of the result (…, bins); `im` may be NULL,
// and `out_im`, if the result is real.
static bool by_table(Node *n, const Transform *t, Value *re, Value *im, Value **out_re,
                     Value **out_im) {
  DType dtype = re->type->dtype;
  Value *c = table(n, t, dtype, false), *s = c ? table(n, t, dtype, true) : NULL;
  if (!s) return false;
  // (re + i im) (cos + i s)
  *out_re = product_with(n, re, c);
  if (im) *out_re = node_sub(n, *out_re, product_with(n, im, s));
  if (out_im) *out_im = product_with(n, re, s);
  if (out_im && im) *out_im = node_add(n, *out_im, product_with(n, im, c));
  return !n->b->failed;
}

enum { LARGEST_TABLE = 1 << 24 }; // of node_small

// Multiplies numbers (m, b, a) by e^(-2 pi i j k / (a b)), with j and k the last two indices.
static bool twiddle(Node *n, const Transform *t, int64_t b, int64_t a, Value **io_re,
                    Value **io_im) {
  Transform turn = {.rows = b, .bins = a, .length = a * b, .inverse = t->inverse};
  DType dtype = (*io_re)->type->dtype;
  Value *c = table(n, &turn, dtype, false), *s = c ? table(n, &turn, dtype, true) : NULL;
  if (!s) return false;
  // The factor of the inverse comes with the two transforms.
  if (t->inverse) {
    c = build_scale(n->b, c, (double)(a * b));
    s = build_scale(n->b, s, (double)(a * b));
  }
  Value *re = node_sub(n, node_mul(n, *io_re, c), node_mul(n, *io_im, s));
  *io_im = node_add(n, node_mul(n, *io_re, s), node_mul(n, *io_im, c));
  *io_re = re;
  return re && *io_im;
}

// Transforms numbers (m, a b), with index i b + j, in two steps (Cooley and Tukey): all of the same
// j, and then all of the same k of the result k + a l.
static bool by_factors(Node *n, const Transform *t, int64_t a, Value **io_re, Value **io_im) {
  int64_t m = (*io_re)->type->dim[0], b = t->length / a;
  int64_t swap[] = {0, 2, 1}, flat[] = {m, a * b}, square[] = {m, a, b};
  Transform first = {.rows = a, .bins = a, .length = a, .inverse = t->inverse};
  Transform second = {.rows = b, .bins = b, .length = b, .inverse = t->inverse};
  Value *part[] = {*io_re, *io_im}, *out[2];
  for (int i = 0; i < 2; i++)
    part[i] = build_transpose(n->b, build_reshape(n->b, part[i], 3, square), swap);
  if (!part[1] || !by_table(n, &first, part[0], part[1], &out[0], &out[1])) return false;
  if (!twiddle(n, t, b, a, &out[0], &out[1])) return false;
  for (int i = 0; i < 2; i++)
    part[i] = build_transpose(n->b, out[i], swap);
  if (!part[1] || !by_table(n, &second, part[0], part[1], &out[0], &out[1])) return false;
  for (int i = 0; i < 2; i++)
    out[i] = build_reshape(n->b, build_transpose(n->b, out[i], swap), 2, flat);
  *io_re = out[0];
  *io_im = out[1];
  return !n->b->failed;
}

// Returns x, of (m, rows), with zeros up to the length of the transform.
static Value *padded(Node *n, const Transform *t, Value *x) {
  if (!x || t->rows == t->length) return x;
  int64_t dim[] = {x->type->dim[0], t->length - t->rows};
  Value *zeros = build_fill(n->b, x->type->dtype, 2, dim, 0);
  return build_op(n->b, OP_concat, IN(x, zeros), ATTRS(a_i("axis", 1)));
}

// As by_table.  A transform of which the table is too large is one of two factors of its length,
// unless it is of half a spectrum.
static bool transform(Node *n, const Transform *t, Value *re, Value *im, Value **out_re,
                      Value **out_im) {
  const Type *type = re->type;
  int ndim = type->ndim;
  int64_t m = type_count(type) / t->rows, a = (int64_t)sqrt((double)t->length), dim[MAX_NDIM];
  while (a > 1 && t->length % a)
    a--;
  if (t->halved || t->length > LARGEST_TABLE || t->rows * t->bins <= LARGEST_TABLE || a < 2)
    return by_table(n, t, re, im, out_re, out_im);
  Value *part[] = {re, im};
  for (int i = 0; i < 2; i++) {
    Value *x = part[i] ? build_reshape(n->b, part[i], 2, (int64_t[]){m, t->rows}) : NULL;
    part[i] = x || i == 0 ? padded(n, t, x) : NULL;
  }
  if (part[0] && !part[1]) part[1] = build_full_like(n->b, part[0], 0);
  if (!part[1] || !by_factors(n, t, a, &part[0], &part[1])) return false;
  memcpy(dim, type->dim, sizeof dim);
  dim[ndim - 1] = t->bins;
  for (int i = 0; i < 2; i++)
    part[i] = build_reshape(n->b, node_part(n, part[i], 1, 0, t->bins), ndim, dim);
  *out_re = part[0];
  *out_im = part[1];
  return !n->b->failed;
}

// -- DFT -----------------------------------------------------------------------------------------

// Returns a permutation that moves dimension `axis` of ndim to the end.
static void to_the_end(int ndim, int axis, int64_t *perm) {
  for (int i = 0; i < ndim; i++)
    perm[i] = i < axis ? i : i < ndim - 1 ? i + 1 : axis;
}

// Returns x, of (…, rows), with dimension `axis` in its place, and one more of length 1.
static Value *part_back(Node *n, Value *x, int axis) {
  if (!x) return NULL;
  int ndim = x->type->ndim;
  int64_t to[MAX_NDIM], perm[MAX_NDIM], dim[MAX_NDIM];
  to_the_end(ndim, axis, to);
  for (int i = 0; i < ndim; i++)
    perm[to[i]] = i;
  x = build_transpose(n->b, x, perm);
  if (!x) return NULL;
  memcpy(dim, x->type->dim, sizeof dim);
  dim[ndim] = 1;
  return build_reshape(n->b, x, ndim + 1, dim);
}

// Operands: the signal, of (…, 1 or 2), the length of the transform, and from opset 20 on the axis.
bool import_dft(Node *n) {
  Value *x = n->in[0], *part[2] = {NULL, NULL}, *out[2] = {NULL, NULL};
  const Type *type = x->type;
  bool inverse = node_int(n, "inverse", 0) != 0, onesided = node_int(n, "onesided", 0) != 0;
  int ndim = type->ndim, axis;
  if (ndim < 2 || (type->dim[ndim - 1] != 1 && type->dim[ndim - 1] != 2))
    return node_fail(n, "a signal of %s", type_text(n->a, type));
  bool complex = type->dim[ndim - 1] == 2;
  if (onesided && complex != inverse)
    return node_fail(n, complex ? "onesided, of complex numbers"
                                : "the inverse of half a spectrum, of real numbers");
  int64_t at = n->opset < 20 ? node_int(n, "axis", 1) : -2;
  if (n->opset >= 20 && !node_setting_int(n, 2, "axis", -2, &at)) return false;
  if (!node_axis(n, at, ndim, &axis)) return false;
  if (axis == ndim - 1) return node_fail(n, "its axis is the dimension of complex numbers");
  int64_t have = type->dim[axis], length;
  if (!node_setting_int(n, 1, "dft_length", inverse && onesided ? 2 * (have - 1) : have, &length))
    return false;
  if (length < 1 || have < 1)
    return node_fail(n, "a transform of %lld, of %lld numbers", (long long)length, (long long)have);

  // Numbers beyond the length are left out.
  int64_t half = length / 2 + 1, most = inverse && onesided ? half : length;
  Transform t = {.rows = have < most ? have : most,
                 .bins = onesided && !inverse ? half : length,
                 .length = length,
                 .inverse = inverse,
                 .halved = inverse && onesided};
  int64_t perm[MAX_NDIM], dim[MAX_NDIM];
  to_the_end(ndim - 1, axis, perm);
  x = t.rows < have ? node_part(n, x, axis, 0, t.rows) : x;
  for (int i = 0; i < (complex ? 2 : 1) && x; i++) {
    memcpy(dim, x->type->dim, sizeof dim);
    part[i] = build_reshape(n->b, node_part(n, x, ndim - 1, i, 1), ndim - 1, dim);
    part[i] = part[i] ? build_transpose(n->b, part[i], perm) : NULL;
  }
  if (!part[0] || (complex && !part[1])) return false;
  if (!transform(n, &t, part[0], part[1], &out[0], t.halved ? NULL : &out[1])) return false;
  n->out[0] = part_back(n, out[0], axis);
  if (!t.halved)
    n->out[0] = build_op(n->b, OP_concat, IN(n->out[0], part_back(n, out[1], axis)),
                         ATTRS(a_i("axis", ndim - 1)));
  return n->out[0] != NULL;
}

// -- STFT ----------------------------------------------------------------------------------------

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
  Transform t = {.rows = length, .bins = onesided ? length / 2 + 1 : length, .length = length};
  if (!rows || !transform(n, &t, part[0], part[1], &out[0], &out[1])) return false;
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
