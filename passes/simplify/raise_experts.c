// Products with a matrix of their own for each row, as exporters write the experts of a mixture.
//
//     %1 = gather %w, %expert               : f32[512,32,16]   a matrix for each row: too many
//     %2 = reshape %x shape=[512,16,1]                         =>
//     %y = matmul %1, %2                    : f32[512,32,1]    grouped_linear %w, %x, %expert trans=true
//
// That is batched_mm of transformers' experts; the gathered matrices are as many as rows. The
// matrix may also be the second operand, and either may be read transposed.
//
// Index -1 is no expert in grouped_linear, and the last matrix for gather. So the indices must come
// from ops without negative results.

#include "raise.h"

// Whether no element is negative: indices of top_k and arg_max, in any order.
static bool not_negative(const Value *v) {
  for (const Op *op = v->def; op; op = op->in[0].value->def)
    switch ((int)op->kind) {
    case OP_top_k:
    case OP_arg_max:
    case OP_arg_min: return true;
    case OP_reshape:
    case OP_transpose:
    case OP_broadcast:
    case OP_slice:
    case OP_cast: break;
    default: return false;
    }
  return false;
}

bool raise_experts(Raise *r, Op *root) {
  Builder *b = &r->b;
  if (root->kind != OP_matmul) return false;
  const Type *y = root->out[0]->type;
  for (int side = 0; side < 2; side++) {
    Match m = {0};
    match_op(&m, root->out[0], OP_matmul);
    Op *table = match_op(&m, root->in[side].value, OP_gather);
    if (!table || attr_i(table, "axis") != 0 || attr_n(table, "padding")) continue;
    Value *w = table->in[0].value, *index = table->in[1].value, *x = root->in[1 - side].value;
    int ndim = index->type->ndim;
    // One matrix for each row, and one row for each matrix.
    if (w->type->ndim != 3 || ndim + 2 != y->ndim || y->dim[ndim + !side] != 1) continue;
    if (!not_negative(index) || !match_closed(&m, root)) continue;
    // The letters of a matrix: n k on the left, k n on the right; the other way around if it is
    // read transposed.
    bool trans = (side == 0) != (bool)attr_i(root, side == 0 ? "trans_a" : "trans_b");
    int64_t row[MAX_NDIM];
    for (int i = 0; i < ndim; i++)
      row[i] = y->dim[i];
    row[ndim] = w->type->dim[trans ? 2 : 1];
    x = build_reshape(b, x, ndim + 1, row);
    Value *z = build_op(b, OP_grouped_linear, IN(w, x, index), ATTRS(a_b("trans", trans)));
    z = z ? build_reshape(b, z, y->ndim, y->dim) : NULL;
    if (z) value_replace_uses(root->out[0], z);
    return z;
  }
  return false;
}
