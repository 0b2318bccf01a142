// Tensors of the reference evaluator: reading and writing elements of any type.
//
// A value is computed in double and rounded once, when it is stored, to the nearest number of the
// type, ties to even.  For f16 and bf16 the conversion from double must be one step: via float, 1 +
// 2^-11 + 2^-30 would be rounded twice, to the wrong side.

#include "ir/op.h"

#include <math.h>
#include <string.h>

// The bits of `x` in a 16-bit format: a sign, `exponent` bits, `mantissa` bits.
static uint16_t round_to_16(double x, int exponent, int mantissa) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint16_t sign = (uint16_t)(bits >> 63 << 15);
  uint16_t infinity = (uint16_t)(((1 << exponent) - 1) << mantissa);
  if (isnan(x)) return (uint16_t)(sign | infinity | 1 << (mantissa - 1));
  if (isinf(x)) return sign | infinity;

  // The mantissa with its leading one, and the biased exponent in the narrow format.
  uint64_t whole = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
  int e = (int)(bits >> 52 & 0x7ff) - 1023 + (1 << (exponent - 1)) - 1;
  int shift = 52 - mantissa;
  if (e < 1) { // subnormal: the leading one moves into the mantissa
    shift += 1 - e;
    e = 1;
  }
  if (shift > 62) return sign;
  // Ties go to the even mantissa.
  uint64_t kept = whole >> shift, rest = whole & (((uint64_t)1 << shift) - 1);
  uint64_t half = (uint64_t)1 << (shift - 1);
  kept += rest > half || (rest == half && (kept & 1));
  // The leading one of `kept` adds one to the exponent, and so does a carry out of the mantissa.
  uint64_t result = ((uint64_t)(e - 1) << mantissa) + kept;
  return sign | (result > infinity ? infinity : (uint16_t)result);
}

uint16_t double_to_half(double x) {
  return round_to_16(x, 5, 10);
}

uint16_t double_to_bf16(double x) {
  return round_to_16(x, 8, 7);
}

void floats_to_bf16(const float *x, int64_t n, uint16_t *out) {
  const uint32_t largest = 0x7f7f0000, infinity = 0x7f800000;
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    uint32_t size = bits & 0x7fffffff, sign = bits ^ size;
    if (size > largest && size < infinity) size = largest;
    // The exponents are those of f32, so the lower half of the bits is rounded off, ties to even.
    out[i] = (uint16_t)((sign | (size + 0x7fff + (size >> 16 & 1))) >> 16);
    if (size > infinity) out[i] = double_to_bf16(x[i]);
  }
}

float half_to_float(uint16_t h) {
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  // Infinities and NaN, subnormal numbers, normal numbers.
  float x = exponent == 31  ? (mantissa ? NAN : INFINITY)
            : exponent == 0 ? ldexpf((float)mantissa, -24)
                            : ldexpf((float)(mantissa | 1024), exponent - 25);
  return h >> 15 ? -x : x;
}

float bf16_to_float(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

double tensor_f(const Tensor *t, int64_t i) {
  switch (t->type->dtype) {
  case DT_f32: return ((const float *)t->data)[i];
  case DT_f64: return ((const double *)t->data)[i];
  case DT_f16: return half_to_float(((const uint16_t *)t->data)[i]);
  case DT_bf16: return bf16_to_float(((const uint16_t *)t->data)[i]);
  // Only u64 exceeds the range of int64_t.
  case DT_u64: return (double)((const uint64_t *)t->data)[i];
  // All other integers go through int64_t.
  case DT_i8:
  case DT_i16:
  case DT_i32:
  case DT_i64:
  case DT_u8:
  case DT_u16:
  case DT_u32:
  case DT_bool: return (double)tensor_i(t, i);
  case N_DTYPES: break;
  }
  BUG("a tensor has no element type");
}

// A double as int64_t: saturates outside of its range; NaN gives zero.
static int64_t truncated(double x) {
  if (x >= 0x1p63) return INT64_MAX;
  if (x < -0x1p63) return INT64_MIN;
  return isnan(x) ? 0 : (int64_t)x;
}

// The bits of a u64 are returned as they are.
int64_t tensor_i(const Tensor *t, int64_t i) {
  switch (t->type->dtype) {
  case DT_i8: return ((const int8_t *)t->data)[i];
  case DT_i16: return ((const int16_t *)t->data)[i];
  case DT_i32: return ((const int32_t *)t->data)[i];
  case DT_i64: return ((const int64_t *)t->data)[i];
  case DT_u8: return ((const uint8_t *)t->data)[i];
  case DT_u16: return ((const uint16_t *)t->data)[i];
  case DT_u32: return ((const uint32_t *)t->data)[i];
  case DT_u64: return (int64_t)((const uint64_t *)t->data)[i];
  case DT_bool: return ((const uint8_t *)t->data)[i] != 0;
  // Floating-point numbers are truncated.
  case DT_f32:
  case DT_f64:
  case DT_f16:
  case DT_bf16: return truncated(tensor_f(t, i));
  case N_DTYPES: break;
  }
  BUG("a tensor has no element type");
}

void tensor_set_f(Tensor *t, int64_t i, double x) {
  switch (t->type->dtype) {
  case DT_f32: ((float *)t->data)[i] = (float)x; return;
  case DT_f64: ((double *)t->data)[i] = x; return;
  case DT_f16: ((uint16_t *)t->data)[i] = round_to_16(x, 5, 10); return;
  case DT_bf16: ((uint16_t *)t->data)[i] = round_to_16(x, 8, 7); return;
  case DT_bool: ((uint8_t *)t->data)[i] = x != 0; return;
  // u64 values above INT64_MAX do not fit the conversion via int64_t.
  case DT_u64:
    ((uint64_t *)t->data)[i] = x >= 0x1p63 && x < 0x1p64 ? (uint64_t)x : (uint64_t)truncated(x);
    return;
  // Integers are truncated, then keep their low bits.
  case DT_i8:
  case DT_i16:
  case DT_i32:
  case DT_i64:
  case DT_u8:
  case DT_u16:
  case DT_u32: tensor_set_i(t, i, truncated(x)); return;
  case N_DTYPES: break;
  }
  BUG("a tensor has no element type");
}

// Narrower integers keep the low bits.
void tensor_set_i(Tensor *t, int64_t i, int64_t x) {
  switch (t->type->dtype) {
  case DT_i8: ((int8_t *)t->data)[i] = (int8_t)x; return;
  case DT_i16: ((int16_t *)t->data)[i] = (int16_t)x; return;
  case DT_i32: ((int32_t *)t->data)[i] = (int32_t)x; return;
  case DT_i64: ((int64_t *)t->data)[i] = x; return;
  case DT_u8: ((uint8_t *)t->data)[i] = (uint8_t)x; return;
  case DT_u16: ((uint16_t *)t->data)[i] = (uint16_t)x; return;
  case DT_u32: ((uint32_t *)t->data)[i] = (uint32_t)x; return;
  case DT_u64: ((uint64_t *)t->data)[i] = (uint64_t)x; return;
  case DT_bool: ((uint8_t *)t->data)[i] = x != 0; return;
  // Floating-point numbers are rounded to nearest.
  case DT_f32: ((float *)t->data)[i] = (float)x; return; // not via double: rounded once
  case DT_f64:
  case DT_f16:
  case DT_bf16: tensor_set_f(t, i, (double)x); return;
  case N_DTYPES: break;
  }
  BUG("a tensor has no element type");
}

Tensor tensor_new(Arena *a, const Type *type) {
  return (Tensor){.type = type, .data = arena_alloc(a, (size_t)type_bytes(type))};
}

bool op_evaluate(const Op *op, const Tensor *in, Tensor *out, const Box *box, Arena *a, Diag *d) {
  for (int i = 0; i < op->n_out; i++)
    out[i] = tensor_new(a, op->out[i]->type);
  return op_info[op->kind].reference(op, in, out, box, d);
}
