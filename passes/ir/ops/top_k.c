// The k best elements of each row, by their indices.
//
//     top_k f32[4,8] k=2      0 n^ -> 0 k^
//
// The elements themselves are a gather by these indices, whose gradient adds that of each to its
// place.

#include <math.h>

#include "ir/ops/einsum.h"

bool top_k_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *x = op->in[0].value->type;
  if (x->ndim == 0) return diag_error(d, op->loc, "top_k: the operand is a scalar");
  int64_t k = attr_i(op, "k"), n = x->dim[x->ndim - 1];
  if (k < 0 || k > n)
    return diag_error(d, op->loc, "top_k: %lld elements of %lld", (long long)k, (long long)n);
  if (!dims_parse(dims, op, "* n^ -> * k^", d)) return false;
  dims_size(dims, 'k', k);
  return true;
}

// Whether element i comes before element j; neither does if they are equal.
static bool precedes(const Tensor *x, int64_t i, int64_t j, bool smallest) {
  if (dtype_class[x->type->dtype] != 'F') {
    int64_t a = tensor_i(x, smallest ? j : i), b = tensor_i(x, smallest ? i : j);
    return x->type->dtype == DT_u64 ? (uint64_t)a > (uint64_t)b : a > b;
  }
  double a = tensor_f(x, smallest ? j : i), b = tensor_f(x, smallest ? i : j);
  // A NaN is larger than every number.
  return isnan(a) ? !isnan(b) : a > b;
}

// The place of an element is the number of elements before it.
bool top_k_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  const Type *x = in[0].type;
  int64_t n = x->dim[x->ndim - 1], k = attr_i(op, "k");
  bool smallest = attr_i(op, "smallest");
  for (int64_t row = 0; n > 0 && row < type_count(x) / n; row++)
    for (int64_t i = 0; i < n; i++) {
      int64_t place = 0;
      for (int64_t j = 0; j < n; j++) {
        bool before = precedes(&in[0], row * n + j, row * n + i, smallest);
        bool equal = !before && !precedes(&in[0], row * n + i, row * n + j, smallest);
        place += before || (equal && j < i);
      }
      if (place < k) tensor_set_i(out, row * k + place, i);
    }
  return true;
}
