// Selections of a length that depends on data: indices up to a bound, and the count of those that
// are selected.
//
//     nonzero bool[6] k=4     0 1 0 0 1 0   ->  1 4 1 1, count 2
//     nms boxes, scores k=2   the best boxes of each class that overlap no better one
//
// After the count, nonzero repeats the first index that it selects, or 0 if there is none: readers
// compute with rows that are part of the selection, so a number that the model never sees cannot
// make a result infinite.

#include <math.h>

#include "ir/ops/einsum.h"

bool nonzero_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *x = op->in[0].value->type;
  if (x->ndim == 0) return diag_error(d, op->loc, "nonzero: the operand is a scalar");
  int64_t k = attr_i(op, "k"), n = x->dim[x->ndim - 1];
  if (k < 0 || k > n)
    return diag_error(d, op->loc, "nonzero: %lld elements of %lld", (long long)k, (long long)n);
  if (!dims_parse(dims, op, "* n^ -> * k^, *", d)) return false;
  dims_size(dims, 'k', k);
  return true;
}

bool nonzero_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  const Type *x = in[0].type;
  int64_t n = x->dim[x->ndim - 1], k = attr_i(op, "k"), rows = type_count(out[1].type);
  for (int64_t row = 0; row < rows; row++) {
    // From the end, so that the first one is found last.
    int64_t count = 0, first = 0;
    for (int64_t i = n - 1; i >= 0; i--)
      if (tensor_i(&in[0], row * n + i)) {
        first = i;
        count++;
      }
    if (count > k)
      return diag_error(d, op->loc, "nonzero: %lld elements are selected, and the bound is %lld",
                        (long long)count, (long long)k);
    tensor_set_i(&out[1], row, count);
    for (int64_t j = count; j < k; j++)
      tensor_set_i(&out[0], row * k + j, first);
    for (int64_t i = n - 1; i >= 0; i--)
      if (tensor_i(&in[0], row * n + i)) tensor_set_i(&out[0], row * k + --count, i);
  }
  return true;
}

// -- Non-maximum suppression -----------------------------------------------------------------

bool nms_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *boxes = op->in[0].value->type;
  if (!dims_parse(dims, op, "* n^ x^, * c n^ -> * c k^, * c", d)) return false;
  if (boxes->dim[boxes->ndim - 1] != 4)
    return diag_error(d, op->loc, "nms: a box has %lld numbers, and 4 are needed",
                      (long long)boxes->dim[boxes->ndim - 1]);
  int64_t k = attr_i(op, "k"), n = boxes->dim[boxes->ndim - 2];
  if (k < 0 || k > n)
    return diag_error(d, op->loc, "nms: %lld boxes of %lld", (long long)k, (long long)n);
  dims_size(dims, 'k', k);
  return true;
}

// An interval of one axis.
typedef struct Side {
  double low, high;
} Side;

// Corners come in any order, a center with a length.
static Side side_of(const Tensor *boxes, int64_t box, int axis, bool center) {
  double a = tensor_f(boxes, box * 4 + axis), b = tensor_f(boxes, box * 4 + axis + 2);
  if (center) return (Side){a - b / 2, a + b / 2};
  return (Side){fmin(a, b), fmax(a, b)};
}

// The intersection of two boxes over their union; 0 if one is empty.
static double overlap(const Tensor *boxes, int64_t i, int64_t j, bool center) {
  double both = 1, area_i = 1, area_j = 1;
  for (int axis = 0; axis < 2; axis++) {
    Side a = side_of(boxes, i, axis, center), b = side_of(boxes, j, axis, center);
    both *= fmax(0, fmin(a.high, b.high) - fmax(a.low, b.low));
    area_i *= a.high - a.low;
    area_j *= b.high - b.low;
  }
  return area_i > 0 && area_j > 0 ? both / (area_i + area_j - both) : 0;
}

// A box is selected if it overlaps no selected box that comes before it.
bool nms_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  const Type *t = in[1].type;
  int64_t n = t->dim[t->ndim - 1], classes = t->dim[t->ndim - 2], k = attr_i(op, "k");
  int64_t rows = type_count(out[1].type);
  bool scored = attr_i(op, "scored"), center = attr_i(op, "center");
  for (int64_t row = 0; row < rows; row++) {
    int64_t count = 0, last = -1, from = row / classes * n;
    for (int64_t j = 0; j < k; j++)
      tensor_set_i(&out[0], row * k + j, 0);
    while (count < k) {
      // The best score after the last one; of equal scores the lower index comes first.
      int64_t best = -1;
      for (int64_t i = 0; i < n; i++) {
        double s = tensor_f(&in[1], row * n + i);
        double b = best < 0 ? -INFINITY : tensor_f(&in[1], row * n + best);
        double l = last < 0 ? INFINITY : tensor_f(&in[1], row * n + last);
        bool after = last < 0 || s < l || (s == l && i > last);
        if (!isnan(s) && after && (!scored || s > attr_f(op, "score")) && (best < 0 || s > b))
          best = i;
      }
      if (best < 0) break;
      bool kept = true;
      for (int64_t j = 0; j < count && kept; j++)
        kept = overlap(&in[0], from + best, from + tensor_i(&out[0], row * k + j), center) <=
               attr_f(op, "iou");
      if (kept) tensor_set_i(&out[0], row * k + count++, best);
      last = best;
    }
    tensor_set_i(&out[1], row, count);
  }
  return true;
}
