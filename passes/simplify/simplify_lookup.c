// Simplification of the gradients of lookups.
//
//     %a = gather_back %i, %dy shape=[n,d]        i [8,16]        %s = concat %i, %j axis=2     [8,16,2]
//     %b = gather_back %j, %dz shape=[n,d]        j [8,16]   =>   %t = concat %dy, %dz axis=2   [8,16,2,d]
//     %c = add %a, %b                                             %c = gather_back %s, %t shape=[n,d]
//
// Encoder and decoder look words up in one table. Each gradient is as large as the table, of which
// few rows are not zero: their sum is computed at once, without a table for every term. The lookups
// are stacked after the dimensions that a plan may split, samples and tokens.

#include <string.h>

#include "ir/analysis/local.h"
#include "ir/analysis/rewrite.h"

// The lookup whose gradient `v` is, for the rows of a table, if only `reader` reads it.
static const Op *rows_read_by(const Value *v, const Op *reader) {
  const Op *op = made_by(v, OP_gather_back);
  return op && only_reader(v) == reader && !attr_i(op, "axis") && !attr_i(op, "batch") ? op : NULL;
}

// Both values with a new dimension at `axis`, which says of which one an element is.
static Value *stacked(Builder *b, Value *x, Value *y, int axis) {
  int64_t shape[MAX_NDIM];
  int ndim = x->type->ndim;
  memcpy(shape, x->type->dim, (size_t)axis * sizeof *shape);
  shape[axis] = 1;
  memcpy(shape + axis + 1, x->type->dim + axis, (size_t)(ndim - axis) * sizeof *shape);
  return build_op(b, OP_concat,
                  IN(build_reshape(b, x, ndim + 1, shape), build_reshape(b, y, ndim + 1, shape)),
                  ATTRS(a_i("axis", axis)));
}

static Value *both_rows(Builder *b, const Op *x, const Op *y) {
  Value *at = x->in[0].value, *rows = x->in[1].value;
  // Pieces of a model run one after the other: neither waits for the other's gradient.
  if (x->piece != y->piece) return NULL;
  if (at->type != y->in[0].value->type || rows->type != y->in[1].value->type ||
      x->out[0]->type != y->out[0]->type || rows->type->ndim == MAX_NDIM)
    return NULL;
  int axis = at->type->ndim;
  return build_op(b, OP_gather_back,
                  IN(stacked(b, at, y->in[0].value, axis), stacked(b, rows, y->in[1].value, axis)),
                  ATTRS(*op_attr(x, "axis"), *op_attr(x, "shape"), *op_attr(x, "batch")));
}

static Value *join_rows(Builder *b, Op *op) {
  for (int i = 0; i < 2; i++) {
    const Op *last = rows_read_by(op->in[i].value, op);
    Value *x = op->in[1 - i].value;
    if (!last) continue;
    const Op *first = rows_read_by(x, op), *add = made_by(x, OP_add);
    if (first) return both_rows(b, first, last);
    // Of a sum with more terms: the lookup among those so far.
    for (int k = 0; k < 2 && add && only_reader(x) == op; k++) {
      first = rows_read_by(add->in[k].value, add);
      Value *rows = first ? both_rows(b, first, last) : NULL;
      if (rows) return build_op(b, OP_add, IN(add->in[1 - k].value, rows), NO_ATTRS);
    }
  }
  return NULL;
}

const SimplifyRule lookup_rules[] = {
    {OP_add, join_rows},
    {0, NULL},
};
