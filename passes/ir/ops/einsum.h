// For rules that write their einsum letter by letter.
//
//     Einsum e = {0};
//     einsum_add(&e, "a%s -> ", whole ? "^" : "");
//     return dims_parse(dims, op, e.text, d);

#ifndef IR_OPS_EINSUM_H
#define IR_OPS_EINSUM_H

#include <string.h>

#include "ir/op.h"

typedef struct Einsum {
  char text[8192]; // fits MAX_TERMS of MAX_NDIM dimensions, "a^ " each
  size_t n;
} Einsum;

PRINTF_LIKE(2, 3) static inline void einsum_add(Einsum *e, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(e->text + e->n, sizeof e->text - e->n, fmt, args);
  va_end(args);
  if (n < 0 || (size_t)n >= sizeof e->text - e->n) BUG("an einsum is too long");
  e->n += (size_t)n;
}

// Letters by convention: dimension i is 'a' + i if it can be split; 'A' + i in operands, or 'P' + i
// in results, if it is whole and differs between them.
static inline char letter_free(int i) {
  return (char)('a' + i);
}
static inline char letter_in(int i) {
  return (char)('A' + i);
}
static inline char letter_out(int i) {
  return (char)('P' + i);
}

// Whether ranks can add shares of this type; a partial sum of another type could not be reduced.
static inline bool ranks_add(DType t) {
  return dtype_class[t] == 'F' || t == DT_i64;
}

// Whether dimension `i` is one of the axes.
static inline bool is_axis(const int64_t *axes, int n, int i) {
  for (int k = 0; k < n; k++)
    if (axes[k] == i) return true;
  return false;
}

// Checks that attribute `axis` is a dimension of a tensor of `ndim` dimensions.
static inline bool axis_fits(const Op *op, int ndim, Diag *d) {
  int64_t axis = attr_i(op, "axis");
  if (axis >= 0 && axis < ndim) return true;
  return diag_error(d, op->loc, "%s: axis %lld is not one of 0 to %d", op_info[op->kind].name,
                    (long long)axis, ndim - 1);
}

// Checks that the list attribute `name` has one number for each of `ndim` dimensions.
static inline bool list_fits(const Op *op, const char *name, int ndim, Diag *d) {
  if (attr_n(op, name) == ndim) return true;
  return diag_error(d, op->loc, "%s: '%s' has %d numbers for %d dimensions", op_info[op->kind].name,
                    name, attr_n(op, name), ndim);
}

#endif
