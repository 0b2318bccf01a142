// Rows put into the places of a table that indices name, or combined with the rows there.
//
//     scatter f32[10,6], i64[4,3], f32[4,3,6] axis=0    v b, A^ B^, A^ B^ b -> v b
//     scatter f32[4,10,6], i64[4,3], f32[4,3,6] axis=1 batch=1
//                                                       a v c, a B^, a B^ c -> a v c
//
// Split along the indexed dimension, v, each rank puts the rows of its shard in place, from all
// indices.  The indices are whole: the rows of two ranks could have the same place.  The sum of
// rows that may be split along the indices, as in message passing along the edges of a graph, is
// gather_back; scatter_add is that of types that ranks cannot add.

#include "ir/ops/index.h"
#include "ir/ops/lookup.h"
#include "ir/ops/reference.h"

bool scatter_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[0].value->type->ndim, index_ndim = op->in[1].value->type->ndim;
  if (!axis_fits(op, ndim, d) || !lookup_batch_fits(op, index_ndim, d)) return false;
  int axis = (int)attr_i(op, "axis"), batch = (int)attr_i(op, "batch");
  // v b, A^ B^, A^ B^ b -> v b
  Einsum e = {0};
  lookup_add_table(&e, ndim, axis, "v");
  einsum_add(&e, ",");
  lookup_add_indices(&e, batch, index_ndim, "^");
  einsum_add(&e, ",");
  lookup_add_rows(&e, ndim, axis, batch, index_ndim, "^");
  einsum_add(&e, "->");
  lookup_add_table(&e, ndim, axis, "v");
  return dims_parse(dims, op, e.text, d);
}

// -- Gradients -------------------------------------------------------------------------------

// The rows of `u` summed in their places of a table of zeros like x.
static Value *summed(Builder *b, const Op *op, Value *u) {
  const Type *x = op->in[0].value->type;
  Value *sum = build_op(b, OP_gather_back, IN(op->in[1].value, u),
                        ATTRS(*op_attr(op, "axis"), a_list("shape", x->dim, x->ndim),
                              a_i("batch", attr_i(op, "batch"))));
  return sum ? build_cast(b, sum, x->dtype) : NULL;
}

static Value *gathered(Builder *b, const Op *op, Value *table) {
  return lookup_gather(b, op, table, op->in[1].value);
}

// The rows that were replaced have no gradient.  Those that replace them have one each, also if
// several have the same place: as in PyTorch.
bool scatter_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *zeros = build_full_like(b, op->in[2].value, 0);
  din[0] = build_op(b, OP_scatter, IN(dout[0], op->in[1].value, zeros),
                    ATTRS(*op_attr(op, "axis"), a_i("batch", attr_i(op, "batch"))));
  din[2] = gathered(b, op, dout[0]);
  return !b->failed;
}

bool scatter_add_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = dout[0];
  din[2] = gathered(b, op, dout[0]);
  return !b->failed;
}

// The derivative by a factor is the product of the others: `product`, of all that are not zero,
// divided by the factor unless it is zero; or 0 if another one, of `zeros` in all, is zero.
static Value *by_factor(Builder *b, Value *dy, Value *product, Value *zeros, Value *factor,
                        Value *is_zero) {
  Value *one = build_full_like(b, factor, 1);
  Value *flow = build_binary(b, OP_mul, dy, product);
  flow = build_binary(b, OP_div, flow, build_where(b, is_zero, one, factor));
  Value *own = build_cast(b, is_zero, factor->type->dtype);
  Value *none = build_full_like(b, factor, 0);
  // The zeros among the other factors.
  Value *alone = build_binary(b, OP_equal, build_binary(b, OP_sub, zeros, own), none);
  return build_where(b, alone, flow, none);
}

bool scatter_mul_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value, *index = op->in[1].value, *u = op->in[2].value;
  Value *x_zero = build_binary(b, OP_equal, x, build_full_like(b, x, 0));
  Value *u_zero = build_binary(b, OP_equal, u, build_full_like(b, u, 0));
  // The product of the factors that are not zero, and the number of those that are.
  Value *safe_x = build_where(b, x_zero, build_full_like(b, x, 1), x);
  Value *safe_u = build_where(b, u_zero, build_full_like(b, u, 1), u);
  Value *product = build_op(b, OP_scatter_mul, IN(safe_x, index, safe_u),
                            ATTRS(*op_attr(op, "axis"), a_i("batch", attr_i(op, "batch"))));
  Value *zeros = summed(b, op, build_cast(b, u_zero, u->type->dtype));
  zeros = build_binary(b, OP_add, zeros, build_cast(b, x_zero, x->type->dtype));
  if (b->failed) return false;
  din[0] = by_factor(b, dout[0], product, zeros, x, x_zero);
  din[2] = by_factor(b, gathered(b, op, dout[0]), gathered(b, op, product), gathered(b, op, zeros),
                     u, u_zero);
  return !b->failed;
}

// Operands equal to the result share its gradient, as in PyTorch's scatter_reduce.
bool scatter_max_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value, *u = op->in[2].value, *y = op->out[0];
  Value *x_best = build_binary(b, OP_equal, x, y);
  Value *u_best = build_binary(b, OP_equal, u, gathered(b, op, y));
  if (b->failed) return false;
  Value *count = build_cast(b, x_best, x->type->dtype);
  count = build_binary(b, OP_add, count, summed(b, op, build_cast(b, u_best, u->type->dtype)));
  // Where neither is equal, a NaN is the result, and nothing gets the gradient.
  Value *share = build_binary(b, OP_div, dout[0], count);
  if (b->failed) return false;
  din[0] = build_where(b, x_best, share, build_full_like(b, x, 0));
  din[2] = build_where(b, u_best, gathered(b, op, share), build_full_like(b, u, 0));
  return !b->failed;
}

// -- References ------------------------------------------------------------------------------

typedef enum Reduction {
  SCATTER_none,
  SCATTER_add,
  SCATTER_mul,
  SCATTER_min,
  SCATTER_max
} Reduction;

static double combine_f(Reduction r, double y, double u) {
  switch (r) {
  case SCATTER_none: return u;
  case SCATTER_add: return y + u;
  case SCATTER_mul: return y * u;
  case SCATTER_min: return y != y || y < u ? y : u; // a NaN stays
  case SCATTER_max: return y != y || y > u ? y : u;
  }
  BUG("no reduction");
}

// Sums and products wrap.
static int64_t combine_i(Reduction r, int64_t y, int64_t u, bool is_unsigned) {
  bool less = is_unsigned ? (uint64_t)y < (uint64_t)u : y < u;
  switch (r) {
  case SCATTER_none: return u;
  case SCATTER_add: return (int64_t)((uint64_t)y + (uint64_t)u);
  case SCATTER_mul: return (int64_t)((uint64_t)y * (uint64_t)u);
  case SCATTER_min: return less ? y : u;
  case SCATTER_max: return less ? u : y;
  }
  BUG("no reduction");
}

// Results are kept in double, or in 64 bits, and rounded once.
static bool scatter(const Op *op, const Tensor *in, Tensor *out, const Box *box, Reduction r,
                    Diag *d) {
  Lookup l = lookup_of(op, out->type, in[1].type, box);
  int64_t n = type_count(out->type);
  bool floating = dtype_class[out->type->dtype] == 'F', ok = true;
  bool is_unsigned = out->type->dtype == DT_u64;
  Arena *scratch = arena_new();
  double *y = tensor_doubles(scratch, &in[0]);
  int64_t *whole = arena_array(scratch, int64_t, n);
  for (int64_t i = 0; i < n; i++)
    whole[i] = tensor_i(&in[0], i);
  for (int64_t i = 0; ok && i < l.outer; i++)
    for (int64_t j = 0; ok && j < l.m; j++) {
      int64_t row;
      ok = lookup_row(op, &in[1], l.own ? i * l.m + j : j, &l, &row, d);
      // One row of u, unless its place is in another shard.
      for (int64_t k = 0; ok && row >= 0 && k < l.inner; k++) {
        int64_t to = (i * l.n + row) * l.inner + k, from = (i * l.m + j) * l.inner + k;
        y[to] = combine_f(r, y[to], tensor_f(&in[2], from));
        whole[to] = combine_i(r, whole[to], tensor_i(&in[2], from), is_unsigned);
      }
    }
  for (int64_t i = 0; i < n; i++)
    if (floating)
      tensor_set_f(out, i, y[i]);
    else
      tensor_set_i(out, i, whole[i]);
  arena_free(scratch);
  return ok;
}

#define SCATTER(name, reduction)                                                                   \
  bool name##_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {          \
    return scatter(op, in, out, box, reduction, d);                                                \
  }
SCATTER(scatter, SCATTER_none)
SCATTER(scatter_add, SCATTER_add)
SCATTER(scatter_mul, SCATTER_mul)
SCATTER(scatter_min, SCATTER_min)
SCATTER(scatter_max, SCATTER_max)
