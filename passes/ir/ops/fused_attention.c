// Attention that reads q, k and v packed, as one product writes them.  Its adjoint is packed in the
// same way, so that there are no slices and no concatenation.
//
//     x  b t (3 h d)    the h heads of q, the h heads of k, the h heads of v
//     y  b t (h d)      lse  b h t
//
//     y, lse = attention_packed x           dx = attention_packed_back x, y, lse, dy
//
// fuse_attention replaces slices, attention and concatenation by these ops; ir/definition.c has
// their meaning.

#include "ir/op.h"

static bool packed_rule(const Op *op, Dims *dims, const char *einsum, Diag *d) {
  const Type *x = op->in[0].value->type;
  int64_t heads = attr_i(op, "heads");
  if (x->ndim != 3 || heads < 1 || x->dim[2] % (3 * heads))
    return diag_error(d, op->loc, "%s: operand 0 must have 3 dimensions, and 3 times %lld heads",
                      op_info[op->kind].name, (long long)heads);
  if (!dims_parse(dims, op, einsum, d)) return false;
  // If an operand has these letters, its type has set their sizes.
  int h = dims_find(dims, 'h'), e = dims_find(dims, 'e');
  if ((dims->letter[h].size >= 0 && dims->letter[h].size != heads) ||
      (dims->letter[e].size >= 0 && dims->letter[e].size != x->dim[2] / 3))
    return diag_error(d, op->loc, "%s: the operands are of other heads than operand 0",
                      op_info[op->kind].name);
  // Letters that only results have get their sizes from the attribute.
  dims_size(dims, 'h', heads);
  dims_size(dims, 'e', x->dim[2] / 3);
  return true;
}

bool attention_packed_rule(const Op *op, Dims *dims, Diag *d) {
  return packed_rule(op, dims, "b t^ c^ -> b t^ e^, b h^ t^", d);
}

bool attention_packed_back_rule(const Op *op, Dims *dims, Diag *d) {
  return packed_rule(op, dims, "b t^ c^, b t^ e^, b h^ t^, b t^ e^ -> b t^ c^", d);
}
