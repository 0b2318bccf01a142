// Comparing results: as relative norms, because single elements that should be 0 differ by as much
// as sums over large numbers do.  NaN equals nothing.
//
// A result may be 0 but for rounding as a whole: the gradient of a bias before BatchNormalization,
// say.  A run on operands perturbed in their last bits shows it: such a result keeps no digit.
// Then the other result only has to be as small.

#include "eval.h"

#include <math.h>
#include <string.h>

#include "ir/random.h"

double tensor_difference(const Tensor *x, const Tensor *y) {
  bool floating = dtype_class[x->type->dtype] == 'F';
  double apart = 0, size = 0;
  for (int64_t i = 0; i < type_count(x->type); i++) {
    if (!floating && tensor_i(x, i) == tensor_i(y, i)) {
      size += tensor_f(y, i) * tensor_f(y, i);
      continue;
    }
    double a = tensor_f(x, i), b = tensor_f(y, i);
    if (isinf(a) && a == b) continue;
    if (!isfinite(a) || !isfinite(b)) return INFINITY;
    apart += (a - b) * (a - b);
    size += b * b;
  }
  return sqrt(apart) / (size > 0 ? sqrt(size) : 1);
}

static double norm(const Tensor *x) {
  double squares = 0;
  for (int64_t i = 0; i < type_count(x->type); i++)
    squares += tensor_f(x, i) * tensor_f(x, i);
  return sqrt(squares);
}

// Whether `x` and `y` are nothing but rounding; `near`: `x` of perturbed operands.
static bool both_rounding(const Tensor *x, const Tensor *y, const Tensor *near) {
  enum { MUCH = 16 }; // tolerated ratio between orders of summation
  if (dtype_class[x->type->dtype] != 'F') return false;
  double rounding = tensor_difference(near, x) * norm(x);
  return isfinite(rounding) && norm(x) <= rounding && norm(y) <= MUCH * rounding;
}

// The first element that differs by more than its share of the tolerance, or the one that differs
// most.
static int64_t guilty_element(const Tensor *x, const Tensor *y, double tolerance) {
  int64_t n = type_count(x->type), worst = 0;
  double size = 0, most = -1;
  for (int64_t i = 0; i < n; i++)
    if (isfinite(tensor_f(y, i))) size += tensor_f(y, i) * tensor_f(y, i);
  double share = tolerance * (size > 0 ? sqrt(size) : 1) / sqrt((double)n);
  for (int64_t i = 0; i < n; i++) {
    double a = tensor_f(x, i), b = tensor_f(y, i);
    if (a == b) continue;
    if (!(fabs(a - b) <= share)) return i;
    if (fabs(a - b) > most) {
      most = fabs(a - b);
      worst = i;
    }
  }
  return worst;
}

static const char *index_text(const Type *t, int64_t i, Arena *a) {
  int64_t at[MAX_RANK];
  StrBuf b = {.arena = a};
  for (int k = t->rank - 1; k >= 0; k--) {
    at[k] = i % t->dim[k];
    i /= t->dim[k];
  }
  strbuf_add(&b, "[");
  for (int k = 0; k < t->rank; k++)
    strbuf_addf(&b, "%s%lld", k ? "," : "", (long long)at[k]);
  strbuf_add(&b, "]");
  return b.at;
}

static bool equal(const char *name, const Tensor *x, const Tensor *y, const Tensor *near,
                  double tolerance, Arena *a, Diag *d) {
  if (!type_equal(x->type, y->type))
    return diag_error(d, NULL, "'%s' is %s here and %s there", name, type_text(a, x->type),
                      type_text(a, y->type));
  double apart = tensor_difference(x, y);
  if (apart <= tolerance || (near && both_rounding(x, y, near))) return true;
  int64_t i = guilty_element(x, y, tolerance);
  return diag_error(d, NULL, "'%s' differs by %g: element %s is %.9g here and %.9g there", name,
                    apart, index_text(x->type, i, a), tensor_f(x, i), tensor_f(y, i));
}

// Checks a 16-bit copy of a weight, a result of one pipeline only: it must equal the new weight,
// rounded.
static bool equal_copy(const Values *v, const Named *copy, Arena *a, Diag *d) {
  const Tensor *weight =
      values_find(v, str_format(a, "update %s", copy->name + sizeof "update copy " - 1));
  if (!weight) return diag_error(d, NULL, "'%s' is there without its weight", copy->name);
  Tensor rounded = tensor_new(a, copy->t.type);
  for (int64_t i = 0; i < type_count(rounded.type); i++)
    tensor_set_f(&rounded, i, tensor_f(weight, i));
  return equal(copy->name, &copy->t, &rounded, NULL, 0, a, d);
}

static bool missing(const Values *v, const Named *n, const char *which, Arena *a, Diag *d) {
  if (str_starts(n->name, "update copy ")) return equal_copy(v, n, a, d);
  return diag_error(d, NULL, "'%s' is a result of the %s pipeline only", n->name, which);
}

bool values_equal(const Values *x, const Values *y, const Values *near, double tolerance, Diag *d) {
  bool ok = true;
  Arena *a = arena_new();
  for (int i = 0; i < x->n; i++) {
    const Tensor *other = values_find(y, x->at[i].name);
    ok &= other ? equal(x->at[i].name, &x->at[i].t, other, near ? &near->at[i].t : NULL, tolerance,
                        a, d)
                : missing(x, &x->at[i], "first", a, d);
  }
  for (int i = 0; i < y->n; i++)
    if (!values_find(x, y->at[i].name)) ok &= missing(y, &y->at[i], "second", a, d);
  arena_free(a);
  return ok;
}

// The last bit of a number in [1, 2).
static double last_bit(DType t) {
  return t == DT_f64 ? 0x1p-52 : t == DT_f16 ? 0x1p-10 : t == DT_bf16 ? 0x1p-7 : 0x1p-23;
}

Values values_near(const Values *values, int64_t seed, Arena *a) {
  Values near = {0};
  for (int i = 0; i < values->n; i++) {
    Named v = values->at[i];
    const Tensor *from = &values->at[i].t;
    v.t = tensor_new(a, from->type);
    memcpy(v.t.data, from->data, (size_t)type_bytes(from->type));
    int64_t key = random_key(v.name);
    bool floating = dtype_class[from->type->dtype] == 'F';
    for (int64_t k = 0; floating && k < type_count(from->type); k++) {
      bool up = random_uniform(seed + 1, 0, key, k) < 0.5;
      tensor_set_f(&v.t, k, tensor_f(from, k) * (1 + (up ? 1 : -1) * last_bit(from->type->dtype)));
    }
    vec_push(a, &near, v);
  }
  return near;
}
