// The meaning of the elementwise rows: their formulas, compiled twice.
//
//     E2(mod, "N, N -> N", …, m_mod(x, y))
//
//   =>
//
//     double mod_f(double x, double y, …) { return m_mod(x, y); }
//     Wide   mod_i(Wide x, Wide y, …)     { return w_mod(x, y); }
//
// Floating types are computed in double.  Integers, and bool as 0 and 1, are computed in 128 bits,
// so that neither INT64_MIN / -1 nor a product of two i64 overflows.  They wrap when they are
// stored.

#include <float.h>
#include <limits.h>

#include "ir/math.h"
#include "ir/op.h"

__extension__ typedef __int128 Wide;

static Wide w_min(Wide x, Wide y) {
  return x < y ? x : y;
}
static Wide w_max(Wide x, Wide y) {
  return x > y ? x : y;
}
static Wide w_div(Wide x, Wide y) {
  return x / y;
}
static Wide w_fmod(Wide x, Wide y) {
  return x % y;
}
static Wide w_mod(Wide x, Wide y) {
  Wide r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

// Modulo 2^64, by squaring.  A negative power is 1 / x^-y as integers divide: 0 unless x is 1 or
// -1.
static Wide w_pow(Wide x, Wide y) {
  if (y < 0) return x == 1 || (x == -1 && y % 2 == 0) ? 1 : x == -1 ? -1 : 0;
  uint64_t base = (uint64_t)x, result = 1;
  // One bit of the exponent a round.
  for (; y > 0; y /= 2) {
    if (y % 2) result *= base;
    base *= base;
  }
  return (int64_t)result;
}

// Of floating types, which have no such rows.
static double m_bit_not(double x) {
  return x;
}
static double m_bit_and(double x, double y) {
  return x + y;
}
#define m_bit_or      m_bit_and
#define m_bit_xor     m_bit_and
#define m_shift_left  m_bit_and
#define m_shift_right m_bit_and

static Wide w_bit_not(Wide x) {
  return ~x;
}
static Wide w_bit_and(Wide x, Wide y) {
  return x & y;
}
static Wide w_bit_or(Wide x, Wide y) {
  return x | y;
}
static Wide w_bit_xor(Wide x, Wide y) {
  return x ^ y;
}
// The result is stored modulo the size of its type.
static Wide w_shift_left(Wide x, Wide y) {
  return y < 0 || y >= 64 ? 0 : (Wide)((uint64_t)x << y);
}
static Wide w_shift_right(Wide x, Wide y) {
  return y < 0 || y >= 64 ? (x < 0 ? -1 : 0) : x >> y;
}

typedef double FloatFn(double x, double y, double z, double a, double b);
typedef Wide WideFn(Wide x, Wide y, Wide z, Wide a, Wide b);

#define E1(name, types, attrs, grad, traits, formula) FORMULA(name, formula)
#define E2(name, types, attrs, grad, traits, formula) FORMULA(name, formula)
#define E3(name, types, attrs, grad, traits, formula) FORMULA(name, formula)

#define FORMULA(name, formula)                                                                     \
  static double name##_f(double x, double y, double z, double a, double b) {                       \
    (void)x, (void)y, (void)z, (void)a, (void)b;                                                   \
    return formula;                                                                                \
  }
#include "ir/ops.def"
#undef FORMULA

#undef m_bit_or
#undef m_bit_xor
#undef m_shift_left
#undef m_shift_right

// Rows for floating types only are also compiled here, but never called.
#define m_bit_not                                     w_bit_not
#define m_bit_and                                     w_bit_and
#define m_bit_or                                      w_bit_or
#define m_bit_xor                                     w_bit_xor
#define m_shift_left                                  w_shift_left
#define m_shift_right                                 w_shift_right
#define m_min                                         w_min
#define m_max                                         w_max
#define m_div                                         w_div
#define m_mod                                         w_mod
#define m_fmod                                        w_fmod
#define m_pow                                         w_pow
#define E1(name, types, attrs, grad, traits, formula) FORMULA(name, formula)
#define E2(name, types, attrs, grad, traits, formula) FORMULA(name, formula)
#define E3(name, types, attrs, grad, traits, formula) FORMULA(name, formula)
#define FORMULA(name, formula)                                                                     \
  static Wide name##_i(Wide x, Wide y, Wide z, Wide a, Wide b) {                                   \
    (void)x, (void)y, (void)z, (void)a, (void)b;                                                   \
    return (Wide)(formula);                                                                        \
  }
#include "ir/ops.def"
#undef FORMULA

static const struct {
  FloatFn *floating;
  WideFn *integer;
} formulas[N_OPS] = {
#define E1(name, types, attrs, grad, traits, formula) FORMULA(name)
#define E2(name, types, attrs, grad, traits, formula) FORMULA(name)
#define E3(name, types, attrs, grad, traits, formula) FORMULA(name)
#define FORMULA(name)                                 [OP_##name] = {name##_f, name##_i},
#include "ir/ops.def"
#undef FORMULA
#undef OP
};

// The first two attributes, `a` and `b`, as numbers; type attributes are skipped.
static void attr_numbers(const Op *op, double at[2]) {
  int n;
  op_attr_specs(op->kind, &n);
  for (int i = 0; i < n && i < 2; i++) {
    const Attr *attr = &op->attrs[i];
    // Booleans are 0 and 1.
    at[i] = attr->kind == 'f'                        ? attr->f
            : attr->kind == 'i' || attr->kind == 'b' ? (double)attr->i
                                                     : 0;
  }
}

// The attribute as an integer.  Bounds of a clip may be infinite: they become the largest u64, for
// which a product with an i64 does not overflow.
static bool attr_wide(const Op *op, double x, Wide *out, Diag *d) {
  Wide far = ((Wide)1 << 64) - 1;
  if (x != floor(x)) // NaN too
    return diag_error(d, op->loc, "%s: attribute of integers must be an integer and is %g",
                      op_info[op->kind].name, x);
  *out = x >= 0x1p64 ? far : x <= -0x1p64 ? -far : (Wide)x;
  return true;
}

// 1 / 0, 1 % 0 and 0 to the power of -1.
static bool divides_by_zero(const Op *op, const Wide *x) {
  if (op->kind == OP_div || op->kind == OP_mod || op->kind == OP_fmod) return x[1] == 0;
  return op->kind == OP_pow && x[0] == 0 && x[1] < 0;
}

static bool integers(const Op *op, const Tensor *in, Tensor *out, Diag *d) {
  double number[2] = {0, 0};
  Wide a = 0, b = 0;
  attr_numbers(op, number);
  if (!attr_wide(op, number[0], &a, d) || !attr_wide(op, number[1], &b, d)) return false;
  // With `ring`, the result modulo 2^64 depends on operands modulo 2^64 only: the sign of a u64 is
  // irrelevant, and products must stay small.  Otherwise the value of a u64 matters.
  bool ring = (op_info[op->kind].traits & (ADDITIVE | MULTILINEAR)) || op->kind == OP_square;
  int64_t n = type_count(out->type);
  for (int64_t i = 0; i < n; i++) {
    Wide x[3] = {0, 0, 0};
    for (int j = 0; j < op->n_in; j++) {
      int64_t bits = tensor_i(&in[j], i);
      x[j] = in[j].type->dtype == DT_u64 && !ring ? (Wide)(uint64_t)bits : (Wide)bits;
    }
    if (divides_by_zero(op, x))
      return diag_error(d, op->loc, "%s: division by zero at element %lld", op_info[op->kind].name,
                        (long long)i);
    Wide r = formulas[op->kind].integer(x[0], x[1], x[2], a, b);
    // A u64 above INT64_MAX as a float must not wrap to a negative number.
    if (dtype_class[out->type->dtype] == 'F' && r > INT64_MAX)
      tensor_set_f(out, i, (double)r);
    else
      tensor_set_i(out, i, (int64_t)(uint64_t)r);
  }
  return true;
}

// The last operand determines the type: the condition of `where` is always bool.
bool elementwise_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  if (dtype_class[in[op->n_in - 1].type->dtype] != 'F') return integers(op, in, out, d);
  double a[2] = {0, 0};
  attr_numbers(op, a);
  int64_t n = type_count(out->type);
  for (int64_t i = 0; i < n; i++) {
    // Absent operands are 0; the formula ignores them.
    double x[3] = {0, 0, 0};
    for (int j = 0; j < op->n_in; j++)
      x[j] = tensor_f(&in[j], i);
    tensor_set_f(out, i, formulas[op->kind].floating(x[0], x[1], x[2], a[0], a[1]));
  }
  return true;
}
