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

static bool equal(const char *name, const Tensor *x, const Tensor *y, const Tensor *near,
                  double tolerance, Arena *a, Diag *d) {
  if (!type_equal(x->type, y->type))
    return diag_error(d, NULL, "'%s' is %s here and %s there", name, type_text(a, x->type),
                      type_text(a, y->type));
  double apart = tensor_difference(x, y);
  if (apart <= tolerance || (near && both_rounding(x, y, near))) return true;

  // The guilty element differs by more than its share of the tolerance, or is the one that differs
  // most.
  int64_t n = type_count(x->type), guilty = 0;
  double size = 0, most = -1;
  for (int64_t k = 0; k < n; k++)
    if (isfinite(tensor_f(y, k))) size += tensor_f(y, k) * tensor_f(y, k);
  double share = tolerance * (size > 0 ? sqrt(size) : 1) / sqrt((double)n);
  for (int64_t k = 0; k < n; k++) {
    double here = tensor_f(x, k), there = tensor_f(y, k);
    if (here == there) continue;
    if (!(fabs(here - there) <= share)) {
      guilty = k;
      break;
    }
    if (fabs(here - there) > most) {
      most = fabs(here - there);
      guilty = k;
    }
  }

  // The element's index by dimension.
  int64_t at[MAX_NDIM], rest = guilty;
  StrBuf b = {.arena = a};
  for (int k = x->type->ndim - 1; k >= 0; k--) {
    at[k] = rest % x->type->dim[k];
    rest /= x->type->dim[k];
  }
  strbuf_add(&b, "[");
  for (int k = 0; k < x->type->ndim; k++)
    strbuf_addf(&b, "%s%lld", k ? "," : "", (long long)at[k]);
  strbuf_add(&b, "]");
  return diag_error(d, NULL, "'%s' differs by %g: element %s is %.9g here and %.9g there", name,
                    apart, b.at, tensor_f(x, guilty), tensor_f(y, guilty));
}

static bool missing(const Values *v, const Named *n, const char *which, Arena *a, Diag *d) {
  if (str_starts(n->name, "update copy ")) {
    // A 16-bit copy of a weight is a result of one pipeline only.  It equals the new weight,
    // rounded.
    const Tensor *weight =
        values_find(v, str_format(a, "update %s", n->name + sizeof "update copy " - 1));
    if (!weight) return diag_error(d, NULL, "'%s' is there without its weight", n->name);
    Tensor rounded = tensor_new(a, n->t.type);
    for (int64_t i = 0; i < type_count(rounded.type); i++)
      tensor_set_f(&rounded, i, tensor_f(weight, i));
    return equal(n->name, &n->t, &rounded, NULL, 0, a, d);
  }
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

Values values_near(const Values *values, int64_t seed, Arena *a) {
  Values near = {0};
  for (int i = 0; i < values->n; i++) {
    Named v = values->at[i];
    const Tensor *from = &values->at[i].t;
    v.t = tensor_new(a, from->type);
    memcpy(v.t.data, from->data, (size_t)type_bytes(from->type));

    // The last bit of a number in [1, 2).
    DType t = from->type->dtype;
    double last_bit = t == DT_f64    ? 0x1p-52
                      : t == DT_f16  ? 0x1p-10
                      : t == DT_bf16 ? 0x1p-7
                                     : 0x1p-23;
    int64_t key = random_key(v.name);
    bool floating = dtype_class[t] == 'F';
    for (int64_t k = 0; floating && k < type_count(from->type); k++) {
      bool up = random_uniform(seed + 1, 0, key, k) < 0.5;
      tensor_set_f(&v.t, k, tensor_f(from, k) * (1 + (up ? 1 : -1) * last_bit));
    }
    vec_push(a, &near, v);
  }
  return near;
}
