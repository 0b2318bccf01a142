// Causal masks, as the constants that they are in exported models:
//
//     keeps  1 0 0     drops  0 1 1     adds  0 -inf -inf
//            1 1 0            0 0 1           0    0 -inf
//            1 1 1            0 0 0           0    0    0

#include "raise.h"

static bool hides(double x, MaskKind kind) {
  switch (kind) {
  case MASK_KEEPS: return x == 0;
  case MASK_DROPS: return x != 0;
  case MASK_ADDS: return x <= HIDDEN;
  }
  return false;
}

static bool has_triangles(const Value *v, int64_t t, int64_t s, MaskKind kind) {
  const Type *type = v->type;
  Arena *a = arena_new();
  Tensor mask;
  bool causal = constant_tensor(v, &mask, a);
  int64_t rows = s > 0 ? type_count(type) / s : 0;
  for (int64_t row = 0, i = 0; causal && row < rows; row++, i = i + 1 < t ? i + 1 : 0)
    for (int64_t j = 0; causal && j < s; j++) {
      double x = tensor_f(&mask, row * s + j);
      bool hidden = hides(x, kind);
      causal = hidden == (j > i + s - t) && (kind != MASK_ADDS || hidden || x == 0);
    }
  arena_free(a);
  return causal;
}

bool is_causal_mask(Raise *r, const Value *v, int64_t t, int64_t s, MaskKind kind) {
  while (made_by(v, OP_broadcast))
    v = v->def->in[0].value;
  const Type *type = v->type;
  if (type->rank < 2 || type->dim[type->rank - 2] != t || type->dim[type->rank - 1] != s ||
      !made_by(v, OP_constant))
    return false;
  for (int i = 0; i < r->masks.n; i++) {
    const KnownMask *known = &r->masks.at[i];
    if (known->v == v && known->t == t && known->s == s && known->kind == kind)
      return known->causal;
  }
  KnownMask mask = {v, t, s, kind, has_triangles(v, t, s, kind)};
  vec_push(r->scratch, &r->masks, mask);
  return mask.causal;
}
