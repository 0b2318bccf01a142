// Matrix products, and determinants.
//
//     MatMul  x (…, k), w (k, n)              linear x, w
//     MatMul  a (…, m, k), b (…, k, n)        matmul, with the leading dimensions broadcast
//     Gemm    alpha a' b' + beta c            linear, scale and add; the transposes that linear has
//                                             are its attribute

#include "frontend/onnx_node.h"

static Value *linear(Node *n, Value *x, Value *w, bool trans) {
  return build_op(n->b, OP_linear, IN(x, w), ATTRS(a_b("trans", trans)));
}

// Broadcasts both operands to the same leading dimensions.
static Value *batched(Node *n, Value *a, Value *b) {
  const Type *ta = a->type, *tb = b->type;
  int ndim = ta->ndim > tb->ndim ? ta->ndim : tb->ndim;
  int64_t da[MAX_NDIM], db[MAX_NDIM];
  // Leading dimensions are aligned at the end, as in numpy.
  for (int i = 0; i < ndim - 2; i++) {
    int ia = i - (ndim - ta->ndim), ib = i - (ndim - tb->ndim);
    int64_t la = ia < 0 ? 1 : ta->dim[ia], lb = ib < 0 ? 1 : tb->dim[ib];
    if (la != lb && la != 1 && lb != 1) {
      node_fail(n, "%s and %s do not broadcast", type_text(n->a, ta), type_text(n->a, tb));
      return NULL;
    }
    da[i] = db[i] = la == 1 ? lb : la;
  }
  for (int i = 1; i <= 2; i++) {
    // The last two dimensions are those of the matrices.
    da[ndim - i] = ta->dim[ta->ndim - i];
    db[ndim - i] = tb->dim[tb->ndim - i];
  }
  return build_op(n->b, OP_matmul,
                  IN(build_broadcast(n->b, a, ndim, da), build_broadcast(n->b, b, ndim, db)),
                  ATTRS(a_b("trans_a", false), a_b("trans_b", false)));
}

bool import_matmul(Node *n) {
  Value *a = n->in[0], *b = n->in[1];
  int ndim_a = a->type->ndim, ndim_b = b->type->ndim;
  if (ndim_a == 0 || ndim_b == 0) return node_fail(n, "an operand is a scalar");
  int64_t k = ndim_b == 1 ? b->type->dim[0] : b->type->dim[ndim_b - 2];
  if (a->type->dim[ndim_a - 1] != k)
    return node_fail(n, "inner dimensions differ: %lld and %lld",
                     (long long)a->type->dim[ndim_a - 1], (long long)k);
  // A vector is a row on the left and a column on the right, and loses that dimension again.
  if (ndim_b == 1) b = build_reshape(n->b, b, 2, (int64_t[]){k, 1});
  if (ndim_a == 1 && ndim_b > 2) a = build_reshape(n->b, a, 2, (int64_t[]){1, k});
  if (!a || !b) return false;
  Value *y = b->type->ndim == 2 ? linear(n, a, b, false) : batched(n, a, b);
  if (!y) return false;
  // The added dimensions of length 1 are removed.
  int64_t dim[MAX_NDIM];
  int ndim = 0;
  for (int i = 0; i < y->type->ndim; i++)
    if (!(ndim_b == 1 && i == y->type->ndim - 1) &&
        !(ndim_a == 1 && ndim_b > 2 && i == y->type->ndim - 2))
      dim[ndim++] = y->type->dim[i];
  n->out[0] = build_reshape(n->b, y, ndim, dim);
  return true;
}

bool import_gemm(Node *n) {
  Value *a = n->in[0], *b = n->in[1], *c = node_in(n, 2);
  bool trans_a = node_int(n, "transA", 0) != 0, trans_b = node_int(n, "transB", 0) != 0;
  (void)node_int(n, "broadcast", 0); // of opsets before 7; newer ones always broadcast
  double alpha = node_float(n, "alpha", 1), beta = node_float(n, "beta", 1);
  if (a->type->ndim != 2 || b->type->ndim != 2)
    return node_fail(n, "its operands are %s and %s, not matrices", type_text(n->a, a->type),
                     type_text(n->a, b->type));
  int64_t ka = a->type->dim[trans_a ? 0 : 1], kb = b->type->dim[trans_b ? 1 : 0];
  if (ka != kb)
    return node_fail_hint(n, "a weight may be transposed: see transA and transB",
                          "inner dimensions differ: %lld and %lld", (long long)ka, (long long)kb);
  // linear has a transposed weight, but no transposed x.
  if (trans_a) a = build_transpose(n->b, a, (int64_t[]){1, 0});
  Value *y = build_scale(n->b, linear(n, a, b, trans_b), alpha);
  // c is broadcast to the product.
  if (c && beta != 0 && y) {
    c = build_broadcast(n->b, build_scale(n->b, c, beta), 2, y->type->dim);
    y = build_op(n->b, OP_add, IN(y, c), NO_ATTRS);
  }
  n->out[0] = y;
  return true;
}

// The determinants of the matrices in the last two dimensions.
bool import_det(Node *n) {
  const Type *t = n->in[0]->type;
  if (t->ndim < 2 || t->dim[t->ndim - 1] != t->dim[t->ndim - 2])
    return node_fail(n, "its operand, %s, has no square matrices", type_text(n->a, t));
  n->out[0] = build_op(n->b, OP_det, IN(n->in[0]), NO_ATTRS);
  return n->out[0] != NULL;
}
