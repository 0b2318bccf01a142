// Causal masks, as the constants that they are in exported models:
//
//     keeps  1 0 0     drops  0 1 1     adds  0 -inf -inf
//            1 1 0            0 0 1           0    0 -inf
//            1 1 1            0 0 0           0    0    0
//
// For many tokens they are too large to be folded, and are recognised by the ops that make them:
//
//     %1 = fill value=-inf shape=[1,1,8192,8192] to=f32     %2 = trilu %1 upper=true k=1
//
// Each value on the way has one number up to a diagonal and another above it.

#include "raise.h"

static bool hides(double x, MaskKind kind) {
  switch (kind) {
  case MASK_KEEPS: return x == 0;
  case MASK_DROPS: return x != 0;
  case MASK_ADDS: return x <= HIDDEN;
  }
  return false;
}

// A mask with `low` if column j is at most row i + k, else `high`.
typedef struct Triangle {
  double low, high;
  int64_t k;
} Triangle;

static bool find_triangle(const Value *v, Triangle *out);

static bool operand_triangle(const Op *op, int i, Triangle *out) {
  const Value *x = op->in[i].value;
  if (!find_triangle(x, out)) return false;
  // The last two dimensions, and so the diagonal, must stay the same.
  const Type *from = x->type, *to = op->out[0]->type;
  bool square = from->ndim >= 2 && to->ndim >= 2 &&
                from->dim[from->ndim - 1] == to->dim[to->ndim - 1] &&
                from->dim[from->ndim - 2] == to->dim[to->ndim - 2];
  return out->low == out->high || square;
}

static bool find_triangle(const Value *v, Triangle *out) {
  const Op *op = v->def;
  *out = (Triangle){0};
  // A fill is a triangle with one number.
  if (is_fill(v, &out->low)) {
    out->high = out->low;
    return true;
  }
  if (!op) return false;
  if (op->kind == OP_trilu) {
    // The part that is cut off becomes 0.
    if (!operand_triangle(op, 0, out) || out->low != out->high) return false;
    bool upper = attr_i(op, "upper");
    out->k = attr_i(op, "k") - upper;
    *(upper ? &out->low : &out->high) = 0;
    return true;
  }
  if (op->kind == OP_where) {
    // A triangle may choose between two numbers.
    Triangle yes, no;
    if (!operand_triangle(op, 0, out) || !operand_triangle(op, 1, &yes) ||
        !operand_triangle(op, 2, &no) || yes.low != yes.high || no.low != no.high)
      return false;
    out->low = out->low ? yes.low : no.low;
    out->high = out->high ? yes.low : no.low;
    return true;
  }
  // Ops that move elements or change the type keep the triangle.
  bool is_bool = v->type->dtype == DT_bool;
  if (op->kind == OP_broadcast || op->kind == OP_reshape || op->kind == OP_not ||
      (op->kind == OP_cast && (is_bool || dtype_class[v->type->dtype] == 'F'))) {
    if (!operand_triangle(op, 0, out)) return false;
    bool flips = op->kind == OP_not;
    if (is_bool) *out = (Triangle){(out->low != 0) != flips, (out->high != 0) != flips, out->k};
    return true;
  }
  return false;
}

bool is_causal_mask(Raise *r, const Value *v, int64_t t, int64_t s, MaskKind kind) {
  while (made_by(v, OP_broadcast))
    v = v->def->in[0].value;
  const Type *type = v->type;
  if (type->ndim < 2 || type->dim[type->ndim - 2] != t || type->dim[type->ndim - 1] != s)
    return false;
  // A computed mask is known by its ops.
  if (!made_by(v, OP_constant)) {
    Triangle mask;
    if (!find_triangle(v, &mask) || mask.k != s - t) return false;
    return hides(mask.high, kind) && !hides(mask.low, kind) && (kind != MASK_ADDS || mask.low == 0);
  }
  for (int i = 0; i < r->masks.n; i++) {
    // Layers share their mask.
    const KnownMask *known = &r->masks.at[i];
    if (known->v == v && known->t == t && known->s == s && known->kind == kind)
      return known->causal;
  }
  // A constant mask is compared element by element.
  Arena *a = arena_new();
  Tensor tensor;
  bool causal = constant_tensor(v, &tensor, a);
  int64_t rows = s > 0 ? type_count(type) / s : 0;
  for (int64_t row = 0, i = 0; causal && row < rows; row++, i = i + 1 < t ? i + 1 : 0)
    for (int64_t j = 0; causal && j < s; j++) {
      double x = tensor_f(&tensor, row * s + j);
      bool hidden = hides(x, kind);
      causal = hidden == (j > i + s - t) && (kind != MASK_ADDS || hidden || x == 0);
    }
  arena_free(a);
  KnownMask mask = {v, t, s, kind, causal};
  vec_push(r->scratch, &r->masks, mask);
  return mask.causal;
}
