// Attention that reads q, k and v packed, as one product writes them.  Its adjoint is packed in the
// same way, so that there are no slices and no concatenation.
//
//     x  b t (3 h d)    the h heads of q, the h heads of k, the h heads of v
//     y  b t (h d)      lse  b h t
//
//     y, lse = attention_packed x           dx = attention_packed_back x, y, lse, dy
//
// fuse_attention replaces slices, attention and concatenation by these ops; the replaced ops are
// also their reference.

#include <string.h>

#include "ir/ops/einsum.h"
#include "ir/ops/reference.h"

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

// Copies a third of `x` (rows, 3 width) to or from `part` (rows, width).
static void copy_third(Tensor *x, int third, Tensor *part, bool to) {
  int64_t wide = x->type->dim[x->type->ndim - 1], width = wide / 3;
  for (int64_t i = 0; i < type_count(part->type); i++) {
    // Element i of the part, in its row of x.
    int64_t at = i / width * wide + third * width + i % width;
    if (to)
      tensor_set_f(x, at, tensor_f(part, i));
    else
      tensor_set_f(part, i, tensor_f(x, at));
  }
}

// Runs attention or attention_back on q, k, v of `x` and on `more`, as an op of a temporary module.
static bool run_unpacked(OpKind kind, const Op *op, const Tensor *x, const Tensor *more, int n_more,
                         Tensor *out, Arena *a, Diag *d) {
  Module *m = module_new();
  Graph *g = graph_new(m, "unpacked", false);
  const int64_t *dim = x->type->dim, heads = attr_i(op, "heads"), width = dim[2] / 3 / heads;
  const Type *part = type_new(m, x->type->dtype, 4, (int64_t[]){dim[0], dim[1], heads, width});
  Tensor in[6];
  Value *operand[6];
  // Operands: the three parts of x, then y, lse and dy.
  for (int i = 0; i < 3 + n_more; i++) {
    const Type *t = part;
    // lse is b h t; the others are like a part of x.
    if (i == 4) t = type_new(m, more[1].type->dtype, 3, more[1].type->dim);
    Tensor whole = *x;
    in[i] = i < 3 ? tensor_new(a, t) : (Tensor){t, more[i - 3].data};
    if (i < 3) copy_third(&whole, i, &in[i], false);
    operand[i] = graph_param(g, NULL, t, ROLE_none, NULL);
  }
  // The op keeps the attributes, in the layout of the parts.
  Op *made = op_new(g, NULL, kind, operand, 3 + n_more,
                    (Attr[]){*op_attr(op, "scale"), *op_attr(op, "causal"), a_b("seq_major", true)},
                    3, op_origin(op), d);
  bool ok = made && op_evaluate(made, in, out, NULL, a, d);
  module_free(m);
  return ok;
}

bool attention_packed_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  Arena *a = arena_new();
  Tensor result[2];
  bool ok = run_unpacked(OP_attention, op, &in[0], NULL, 0, result, a, d);
  // The temporary results have other types, but the same bytes.
  for (int i = 0; ok && i < 2; i++)
    memcpy(out[i].data, result[i].data, (size_t)type_bytes(out[i].type));
  arena_free(a);
  return ok;
}

bool attention_packed_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box,
                               Diag *d) {
  (void)box;
  Arena *a = arena_new();
  Tensor result[3];
  bool ok = run_unpacked(OP_attention_back, op, &in[0], &in[1], 3, result, a, d);
  // The result types were freed with their module; each part has the shape of a third of x.
  const Type *x = in[0].type;
  const Type *part =
      type_new(op->graph->module, x->dtype, 3, (int64_t[]){x->dim[0], x->dim[1], x->dim[2] / 3});
  for (int i = 0; ok && i < 3; i++) {
    result[i].type = part;
    copy_third(&out[0], i, &result[i], true);
  }
  arena_free(a);
  return ok;
}
