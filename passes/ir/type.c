// Element types, tensor types and layouts.  Types and layouts are interned in their module: all
// other code compares them by pointer.

#include <string.h>

#include "ir/graph.h"
#include "ir/intern.h"
#include "ir/lex.h"

const char *const dtype_name[N_DTYPES] = {
#define DTYPE(name, ctype, bytes, class) #name,
#include "ir/dtypes.def"
#undef DTYPE
};
const char *const dtype_ctype[N_DTYPES] = {
#define DTYPE(name, ctype, bytes, class) #ctype,
#include "ir/dtypes.def"
#undef DTYPE
};
const int dtype_bytes[N_DTYPES] = {
#define DTYPE(name, ctype, bytes, class) bytes,
#include "ir/dtypes.def"
#undef DTYPE
};
const char dtype_class[N_DTYPES] = {
#define DTYPE(name, ctype, bytes, class) #class[0],
#include "ir/dtypes.def"
#undef DTYPE
};

bool dtype_narrow(DType t) {
  return dtype_class[t] == 'F' && dtype_bytes[t] == 2;
}

bool dtype_parse(const char *name, DType *out) {
  for (int i = 0; i < N_DTYPES; i++)
    if (str_equal(name, dtype_name[i])) {
      *out = (DType)i;
      return true;
    }
  return false;
}

bool type_fits(DType dtype, int ndim, const int64_t *dim) {
  if (ndim < 0 || ndim > MAX_NDIM) return false;
  int64_t bytes = dtype_bytes[dtype];
  // A length of 0 must not hide an overflow of the others: strides are computed from them.
  for (int i = 0; i < ndim; i++)
    if (dim[i] < 0 || __builtin_mul_overflow(bytes, dim[i] ? dim[i] : 1, &bytes)) return false;
  return true;
}

const Type *type_new(Module *m, DType dtype, int ndim, const int64_t *dim) {
  if (!type_fits(dtype, ndim, dim)) BUG("not a type: %d dimensions, or its size overflows", ndim);
  uint64_t hash = (uint64_t)dtype * 31 + (uint64_t)ndim;
  for (int i = 0; i < ndim; i++)
    hash = (hash ^ (uint64_t)dim[i]) * 0x9e3779b97f4a7c15u;
  InternedType **bucket = &m->interned->types[hash >> 32 & (N_BUCKETS - 1)];
  size_t bytes = (size_t)ndim * sizeof *dim;
  // Equal types are one object.
  for (InternedType *t = *bucket; t; t = t->next)
    if (t->type.dtype == dtype && t->type.ndim == ndim &&
        (ndim == 0 || memcmp(t->type.dim, dim, bytes) == 0))
      return &t->type;
  // Not known yet: the new type comes first in its bucket.
  InternedType *t = arena_one(m->arena, InternedType);
  t->type.dtype = dtype;
  t->type.ndim = ndim;
  if (ndim > 0) memcpy(t->type.dim, dim, bytes);
  t->next = *bucket;
  *bucket = t;
  return &t->type;
}

const Type *type_scalar(Module *m, DType dtype) {
  return type_new(m, dtype, 0, NULL);
}

int64_t type_count(const Type *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++)
    n *= t->dim[i];
  return n;
}

bool type_same_dims(const Type *x, const Type *y) {
  bool same = x->ndim == y->ndim;
  for (int i = 0; same && i < x->ndim; i++)
    same = x->dim[i] == y->dim[i];
  return same;
}

bool type_equal(const Type *x, const Type *y) {
  return x->dtype == y->dtype && type_same_dims(x, y);
}

int64_t type_bytes(const Type *t) {
  return type_count(t) * dtype_bytes[t->dtype];
}

const char *type_text(Arena *a, const Type *t) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "%s[", dtype_name[t->dtype]);
  for (int i = 0; i < t->ndim; i++)
    strbuf_addf(&b, "%s%lld", i ? "," : "", (long long)t->dim[i]);
  strbuf_add(&b, "]");
  return b.at;
}

static bool layout_equal(const Layout *l, const Mesh *mesh, const Sbp *axis) {
  if (l->mesh != mesh) return false;
  for (int i = 0; i < l->n_axes; i++)
    if (l->axis[i].kind != axis[i].kind || (axis[i].kind == SBP_S && l->axis[i].dim != axis[i].dim))
      return false;
  return true;
}

const Layout *layout_new(Module *m, const Mesh *mesh, const Sbp *axis) {
  uint64_t hash = (uintptr_t)mesh;
  for (int i = 0; mesh && i < mesh->n_axes; i++)
    hash = hash_mix(hash, (uint64_t)axis[i].kind * MAX_NDIM +
                              (axis[i].kind == SBP_S ? (uint64_t)axis[i].dim : 0));
  InternedLayout **bucket = &m->interned->layouts[hash >> 32 & (N_BUCKETS - 1)];
  // Equal layouts are one object.
  for (InternedLayout *l = *bucket; l; l = l->next)
    if (layout_equal(&l->layout, mesh, axis)) return &l->layout;
  InternedLayout *l = arena_one(m->arena, InternedLayout);
  l->layout.mesh = mesh;
  l->layout.n_axes = mesh ? mesh->n_axes : 0;
  // Only split axes have a dimension.
  for (int i = 0; i < l->layout.n_axes; i++) {
    l->layout.axis[i].kind = axis[i].kind;
    l->layout.axis[i].dim = axis[i].kind == SBP_S ? axis[i].dim : 0;
  }
  l->next = *bucket;
  *bucket = l;
  return &l->layout;
}

const Layout *layout_broadcast(Module *m, const Mesh *mesh) {
  Sbp axis[MAX_AXES] = {{SBP_B, 0}};
  return layout_new(m, mesh, axis);
}

int64_t layout_parts(const Layout *l, int dim) {
  int64_t parts = 1;
  for (int i = 0; i < l->n_axes; i++)
    if (l->axis[i].kind == SBP_S && l->axis[i].dim == dim) parts *= l->mesh->axis[i].size;
  return parts;
}

const char *sbp_text(Arena *a, Sbp sbp) {
  return sbp.kind == SBP_S ? str_format(a, "S(%d)", sbp.dim) : sbp.kind == SBP_P ? "P" : "B";
}

const char *layout_text(Arena *a, const Layout *l) {
  StrBuf b = {.arena = a};
  // The first mesh of the module goes without a name.
  if (l->mesh && l->mesh->id > 0) strbuf_addf(&b, "@%s ", str_name(a, l->mesh->name));
  strbuf_add(&b, "{");
  for (int i = 0; i < l->n_axes; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "", sbp_text(a, l->axis[i]));
  strbuf_add(&b, "}");
  return b.at;
}
