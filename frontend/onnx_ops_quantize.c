// Quantized tensors: integers of few bits, or floats of 8 bits and less, with a scale and a zero
// point for the whole tensor, for each index of an axis, or for blocks along an axis.
//
//     QuantizeLinear    round(x / scale) + zero, within the range of the type
//     DequantizeLinear  (q - zero) * scale
//
// A model that is trained with quantization in mind quantizes and dequantizes at once: the gradient
// goes straight through the rounding, and is zero beyond the range.  The value before its
// conversion to integers is remembered for that (Import.straight).
//
// Sums of products of integers are exact: see integer_product.

#include <math.h>
#include <string.h>

#include "frontend/onnx_walk.h"
#include "frontend/onnx_weights.h"

enum { UINT8 = ONNX__TENSOR_PROTO__DATA_TYPE__UINT8 };

// -- Scales and zero points --------------------------------------------------------------------

// Blocks of scales along the axis, repeated to the length of x there.
static Value *repeat_blocks(Node *n, Value *scale, const Type *x, int axis, int64_t block) {
  int64_t dim[MAX_NDIM + 1], all[MAX_NDIM + 1], flat[MAX_NDIM];
  const Type *t = scale->type;
  // A block beyond the axis is as long as that.
  if (x->ndim > 0 && block > x->dim[axis]) block = x->dim[axis] > 0 ? x->dim[axis] : 1;
  bool fits = x->ndim < MAX_NDIM;
  for (int i = 0; i < x->ndim && fits; i++) {
    int64_t blocks = x->dim[i] / block + (x->dim[i] % block > 0);
    fits = t->dim[i] == (i == axis ? blocks : x->dim[i]);
    // The block is a dimension of its own after the axis.
    dim[i + (i > axis)] = all[i + (i > axis)] = flat[i] = t->dim[i];
  }
  if (!fits) {
    node_fail(n, "scales of %s for %s in blocks of %lld", type_text(n->a, t), type_text(n->a, x),
              (long long)block);
    return NULL;
  }
  dim[axis + 1] = 1;
  all[axis + 1] = block;
  flat[axis] *= block;
  scale = build_broadcast(n->b, build_reshape(n->b, scale, x->ndim + 1, dim), x->ndim + 1, all);
  if (!node_shape(n, x->ndim, flat)) return NULL;
  return node_part(n, build_reshape(n->b, scale, x->ndim, flat), axis, 0, x->dim[axis]);
}

// A scale or zero point of the form that broadcasts to x.
static Value *along_axis(Node *n, Value *scale, const Type *x) {
  int64_t axis = node_int(n, "axis", 1), block = node_int(n, "block_size", 0);
  const Type *t = scale->type;
  int at, ndim = x->ndim;
  if (type_count(t) == 1) return build_scalar(n->b, scale);
  if (!node_axis(n, axis, ndim, &at)) return NULL;
  if (block > 0 && t->ndim == ndim) return repeat_blocks(n, scale, x, at, block);
  if (t->ndim != 1 || t->dim[0] != x->dim[at]) {
    node_fail(n, "scales of %s for %s along axis %d", type_text(n->a, t), type_text(n->a, x), at);
    return NULL;
  }
  int64_t dim[MAX_NDIM];
  for (int i = 0; i < ndim; i++)
    dim[i] = i == at ? x->dim[i] : 1;
  return build_reshape(n->b, scale, ndim, dim);
}

// -- QuantizeLinear ----------------------------------------------------------------------------

// The range of an integer type of `bits`.
static void range(DType t, const OnnxNarrow *narrow, double *low, double *high) {
  int bits = narrow ? narrow->bits : 8 * dtype_bytes[t];
  bool is_signed = dtype_class[t] == 'I';
  *low = is_signed ? -ldexp(1, bits - 1) : 0;
  *high = ldexp(1, is_signed ? bits - 1 : bits) - 1;
}

// The element type of result `i` of a node that quantizes, from its zero point or output_dtype.
static int quantized_type(Node *n, int zero) {
  int given = (int)node_int(n, "output_dtype", 0), narrow = node_narrow(n, zero);
  const Value *z = node_in(n, zero);
  if (!z) return given ? given : UINT8;
  if (narrow) return narrow;
  switch (z->type->dtype) {
  case DT_i8: return ONNX__TENSOR_PROTO__DATA_TYPE__INT8;
  case DT_i16: return ONNX__TENSOR_PROTO__DATA_TYPE__INT16;
  case DT_u16: return ONNX__TENSOR_PROTO__DATA_TYPE__UINT16;
  case DT_u8: return UINT8;
  default: node_fail(n, "a zero point of %s", type_text(n->a, z->type)); return UINT8;
  }
}

// quotient + zero within the range of the type, which has its result.
static Value *quantize(Node *n, Value *quotient, Value *zero, int data_type, int *out_narrow) {
  DType to;
  const OnnxNarrow *narrow = onnx_narrow(data_type);
  *out_narrow = narrow ? data_type : 0;
  if (!quotient) return NULL;
  if (!onnx_dtype(data_type, &to)) {
    node_fail(n, "type %s is not supported", onnx_dtype_name(data_type));
    return NULL;
  }
  if (narrow && narrow->format >= 0)
    return node_cast_to(n, zero ? node_add(n, quotient, zero) : quotient, data_type);
  if (dtype_class[to] == 'F' || dtype_class[to] == 'B' || dtype_bytes[to] > 2) {
    node_fail(n, "type %s is not quantized", onnx_dtype_name(data_type));
    return NULL;
  }
  double low, high;
  range(to, narrow, &low, &high);
  quotient = build_cast(n->b, quotient, DT_f32);
  Value *rounded = node_unary(n, OP_round, quotient);
  if (zero) {
    zero = build_cast(n->b, zero, DT_f32);
    rounded = node_add(n, rounded, zero);
    quotient = node_add(n, quotient, zero);
  }
  if (!rounded || !quotient) return NULL;
  Attrs bounds = ATTRS(a_f("low", low), a_f("high", high));
  rounded = build_op(n->b, OP_clip, IN(rounded), bounds);
  quotient = build_op(n->b, OP_clip, IN(quotient), bounds);
  if (!rounded || !quotient) return NULL;
  // The difference is exact, and so is the sum: the integer, with the gradient of the quotient.
  Value *rest = node_unary(n, OP_detach, node_sub(n, rounded, quotient));
  Value *straight = node_add(n, quotient, rest);
  Value *q = build_cast(n->b, rounded, to);
  if (!q || !straight) return NULL;
  while (n->im->straight.n <= (int)q->id)
    vec_push(n->im->a, &n->im->straight, NULL);
  n->im->straight.at[q->id] = straight;
  return q;
}

bool import_quantize_linear(Node *n) {
  const Type *x = n->in[0]->type;
  int precision = (int)node_int(n, "precision", 0);
  node_keep(n, 1, WHY_quantizes);
  Value *scale = along_axis(n, n->in[1], x), *zero = node_in(n, 2);
  if (zero) zero = along_axis(n, zero, x);
  if (n->b->failed) return false;
  DType divide = scale->type->dtype;
  if (precision && (!onnx_dtype(precision, &divide) || dtype_class[divide] != 'F'))
    return node_fail(n, "precision %s is not supported", onnx_dtype_name(precision));
  if (precision) divide = onnx_compute_dtype(divide, n->im->o->keep_f64);
  Value *quotient =
      node_div(n, build_cast(n->b, n->in[0], divide), build_cast(n->b, scale, divide));
  n->out[0] = quantize(n, quotient, zero ? build_cast(n->b, zero, divide) : NULL,
                       quantized_type(n, 2), &n->out_narrow[0]);
  return n->out[0] != NULL;
}

// -- DequantizeLinear --------------------------------------------------------------------------

// The float that a quantized value came from, with its gradient: also through operators between,
// which only move, select or join elements.  NULL if the value was not quantized here.
static Value *straight_of(Node *n, Value *q) {
  Import *im = n->im;
  if ((int)q->id < im->straight.n && im->straight.at[q->id]) return im->straight.at[q->id];
  Op *op = q->def;
  if (!op || op->out[0] != q) return NULL;
  // A cast does not change these integers.
  if (op->kind == OP_cast) return straight_of(n, op->in[0].value);
  bool joins = op->kind == OP_concat;
  bool moves = joins || op->kind == OP_reshape || op->kind == OP_transpose ||
               op->kind == OP_slice || op->kind == OP_broadcast || op->kind == OP_gather ||
               op->kind == OP_max_pool;
  if (!moves) return NULL;
  Value **in = arena_array(n->a, Value *, op->n_in);
  bool any = false;
  for (int i = 0; i < op->n_in; i++) {
    in[i] = op->in[i].value;
    if (i > 0 && !joins) continue;
    Value *straight = straight_of(n, in[i]);
    any = any || straight;
    in[i] = straight ? straight : build_cast(n->b, in[i], DT_f32);
  }
  int n_attrs;
  op_attr_specs(op->kind, &n_attrs);
  Value *v = any ? build_op(n->b, op->kind, in, op->n_in, (Attrs){op->attrs, n_attrs}) : NULL;
  if (!v) return NULL;
  while (im->straight.n <= (int)q->id)
    vec_push(im->a, &im->straight, NULL);
  im->straight.at[q->id] = v;
  return v;
}

// q - zero in f32, with the gradient of the tensor that was quantized.
static Value *without_zero(Node *n, Value *q, Value *zero) {
  Value *straight = straight_of(n, q);
  Value *x = straight ? straight : build_cast(n->b, q, DT_f32);
  return zero && x ? node_sub(n, x, build_cast(n->b, zero, DT_f32)) : x;
}

bool import_dequantize_linear(Node *n) {
  const Type *x = n->in[0]->type;
  node_keep(n, 1, WHY_quantizes);
  Value *scale = along_axis(n, n->in[1], x), *zero = node_in(n, 2);
  if (zero) zero = along_axis(n, zero, x);
  if (n->b->failed) return false;
  int given = (int)node_int(n, "output_dtype", 0);
  DType to = scale->type->dtype;
  if (given && (!onnx_dtype(given, &to) || dtype_class[to] != 'F' || onnx_narrow(given)))
    return node_fail(n, "output_dtype %s is not supported", onnx_dtype_name(given));
  if (given) to = onnx_compute_dtype(to, n->im->o->keep_f64);
  Value *difference = without_zero(n, n->in[0], zero);
  if (!difference) return false;
  n->out[0] = node_mul(n, build_cast(n->b, difference, to), build_cast(n->b, scale, to));
  n->out_narrow[0] = 0;
  return !n->b->failed;
}

// y, scale and zero point of u8 from the least and the largest element of x.
bool import_dynamic_quantize_linear(Node *n) {
  Value *x = n->in[0];
  int64_t axes[MAX_NDIM];
  for (int i = 0; i < x->type->ndim; i++)
    axes[i] = i;
  Attrs all = ATTRS(a_list("axes", axes, x->type->ndim), a_b("keep", false));
  Value *low = build_op(n->b, OP_reduce_min, IN(x), all);
  Value *high = build_op(n->b, OP_reduce_max, IN(x), all);
  if (!low || !high) return false;
  Value *none = node_like(n, low, 0);
  low = node_binary(n, OP_min, low, none);
  high = node_binary(n, OP_max, high, none);
  // A tensor of zeros has no range: its scale is 1, as in onnxruntime.
  Value *span = node_sub(n, high, low);
  if (!span) return false;
  span = build_where(n->b, node_binary(n, OP_greater, span, none), span, node_like(n, span, 255));
  Value *scale = build_scale(n->b, span, 1.0 / 255);
  // round(0 - low / scale), within 0..255.
  Value *zero = node_div(n, node_sub(n, none, low), scale);
  if (!zero) return false;
  Attrs bounds = ATTRS(a_f("low", 0), a_f("high", 255));
  zero = node_unary(n, OP_round, build_op(n->b, OP_clip, IN(zero), bounds));
  n->out[0] = quantize(n, node_div(n, x, scale), zero, UINT8, &n->out_narrow[0]);
  n->out[1] = scale;
  n->out[2] = build_cast(n->b, zero, DT_u8);
  return n->out[0] != NULL;
}

// -- Products of integers ----------------------------------------------------------------------

// A sum of products of integers with at most 9 bits, as they are without their zero points: exact
// in f32 up to 2^24.  For longer sums the first operand is split in 16 h + l.
enum { LONGEST_SUM = 1 << 24 >> 17, LONGEST_SPLIT = 1 << 24 >> 13 };

typedef Value *Product(Node *n, Value *x, Value *w);

static Value *integer_product(Node *n, Value *x, Value *w, int64_t length, Product *multiply) {
  if (!x || !w) return NULL;
  if (length > LONGEST_SPLIT) {
    node_fail(n, "sums of %lld products are not supported; the limit is %d", (long long)length,
              LONGEST_SPLIT);
    return NULL;
  }
  if (length <= LONGEST_SUM) return build_cast(n->b, multiply(n, x, w), DT_i32);
  Value *high = node_unary(n, OP_floor, build_scale(n->b, x, 1.0 / 16));
  Value *low = node_sub(n, x, build_scale(n->b, high, 16));
  Value *h = build_cast(n->b, multiply(n, high, w), DT_i32);
  Value *l = build_cast(n->b, multiply(n, low, w), DT_i32);
  return h && l ? node_add(n, build_scale(n->b, h, 16), l) : NULL;
}

// Runs another import function on two operands.
static Value *apply(Node *n, ImportFn *import, Value *x, Value *w) {
  Value *in[] = {x, w}, *out[8] = {NULL};
  int narrow[8];
  Node of = *n;
  of.in = in;
  of.n_in = 2;
  of.out = out;
  of.out_narrow = narrow;
  return x && w && import(&of) ? out[0] : NULL;
}

static Value *matrix_product(Node *n, Value *x, Value *w) {
  return apply(n, import_matmul, x, w);
}

static Value *convolution(Node *n, Value *x, Value *w) {
  return apply(n, import_conv, x, w);
}

// A zero point of a matrix: a number, or one per row of the left operand (`rows`) or per column.
static Value *matrix_zero(Node *n, Value *zero, bool rows) {
  if (!zero || type_count(zero->type) == 1) return zero ? build_scalar(n->b, zero) : NULL;
  const Type *t = zero->type;
  if (!rows || t->ndim != 1) return zero;
  return build_reshape(n->b, zero, 2, (int64_t[]){t->dim[0], 1});
}

static Value *matrix_sum(Node *n, Value *a, Value *a_zero, Value *b, Value *b_zero) {
  int ndim = a->type->ndim;
  int64_t length = ndim > 0 ? a->type->dim[ndim - 1] : 0;
  Value *x = without_zero(n, a, matrix_zero(n, a_zero, true));
  Value *w = without_zero(n, b, matrix_zero(n, b_zero, false));
  return integer_product(n, x, w, length, matrix_product);
}

bool import_matmul_integer(Node *n) {
  n->out[0] = matrix_sum(n, n->in[0], node_in(n, 2), n->in[1], node_in(n, 3));
  return n->out[0] != NULL;
}

// A zero point of filters: a number, or one per filter.
static Value *filter_zero(Node *n, Value *zero, int ndim) {
  if (!zero || type_count(zero->type) == 1) return zero ? build_scalar(n->b, zero) : NULL;
  int64_t dim[MAX_NDIM];
  for (int i = 0; i < ndim; i++)
    dim[i] = i == 0 ? type_count(zero->type) : 1;
  return build_reshape(n->b, zero, ndim, dim);
}

static Value *convolution_sum(Node *n, Value *x, Value *x_zero, Value *w, Value *w_zero) {
  const Type *t = w->type;
  if (t->ndim < 3) {
    node_fail(n, "filters of %s", type_text(n->a, t));
    return NULL;
  }
  // Padding is with the zero point, which is 0 after the subtraction.
  Value *a = without_zero(n, x, x_zero ? build_scalar(n->b, x_zero) : NULL);
  Value *b = without_zero(n, w, filter_zero(n, w_zero, t->ndim));
  return integer_product(n, a, b, product(t->dim, 1, t->ndim), convolution);
}

bool import_conv_integer(Node *n) {
  n->out[0] = convolution_sum(n, n->in[0], node_in(n, 2), n->in[1], node_in(n, 3));
  return n->out[0] != NULL;
}

// Quantizes a sum of integers: operands a, its scale and zero point, b, its own, then those of y.
static bool requantize(Node *n, Value *sum, Value *b_scale) {
  if (!sum || n->b->failed) return false;
  DType dtype = n->in[6]->type->dtype;
  Value *a_scale = matrix_zero(n, n->in[1], true);
  Value *scale = node_mul(n, build_cast(n->b, a_scale, dtype), build_cast(n->b, b_scale, dtype));
  if (!scale) return false;
  Value *y_scale = build_scalar(n->b, n->in[6]);
  scale = node_div(n, build_cast(n->b, scale, DT_f32), build_cast(n->b, y_scale, DT_f32));
  Value *x = node_mul(n, build_cast(n->b, sum, DT_f32), scale);
  n->out[0] = quantize(n, x, build_scalar(n->b, n->in[7]), quantized_type(n, 7), &n->out_narrow[0]);
  return n->out[0] != NULL;
}

bool import_qlinear_matmul(Node *n) {
  Value *sum = matrix_sum(n, n->in[0], n->in[2], n->in[3], n->in[5]);
  return requantize(n, sum, matrix_zero(n, n->in[4], false));
}

bool import_qlinear_conv(Node *n) {
  Value *sum = convolution_sum(n, n->in[0], n->in[2], n->in[3], n->in[5]), *bias = node_in(n, 8);
  if (!sum) return false;
  int64_t dim[MAX_NDIM];
  int ndim = sum->type->ndim;
  for (int i = 0; i < ndim; i++)
    dim[i] = i == 1 ? sum->type->dim[1] : 1;
  // Scales of filters are scales of channels.
  Value *scale = n->in[4];
  bool each = type_count(scale->type) > 1;
  scale = each ? build_reshape(n->b, scale, ndim, dim) : build_scalar(n->b, scale);
  if (bias) sum = node_add(n, sum, build_reshape(n->b, bias, ndim, dim));
  return requantize(n, sum, scale);
}
