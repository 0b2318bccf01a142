// Layouts of an op's operands and results, from its split: see split.h.

#include "ir/split.h"

#include "ir/op.h"

bool sbp_equal(Sbp a, Sbp b) {
  return a.kind == b.kind && (a.kind != SBP_S || a.dim == b.dim);
}

static Sbp term_sbp(const Dims *dims, const Term *t, int letter, Sbp absent) {
  int dim = dims_position(dims, t, letter);
  if (dim == -2)
    BUG("letter '%c' is split, but is not first in its dimension", dims->letter[letter].name);
  return dim < 0 ? absent : (Sbp){.kind = SBP_S, .dim = dim};
}

Sbp split_wants(const Op *op, const Dims *dims, int i, int axis, Sbp have) {
  Sbp whole = {.kind = SBP_B};
  if (op->split[axis] == SPLIT_NONE) return whole;
  // Split over terms of a sum: partial operands stay partial.
  if (op->split[axis] == SPLIT_PARTIAL) return have.kind == SBP_P ? have : whole;
  return term_sbp(dims, &dims->in[i], dims_find(dims, op->split[axis]), whole);
}

Sbp split_gives(const Op *op, const Dims *dims, int i, int axis) {
  if (op->split[axis] == SPLIT_NONE) return (Sbp){.kind = SBP_B};
  // An accumulating op itself sums the parts of its first result along time.
  bool sums = i == 0 && (op_info[op->kind].traits & ACCUMULATES) && op_time_axis(op) == axis;
  Sbp partial = {.kind = sums ? SBP_B : SBP_P};
  if (op->split[axis] == SPLIT_PARTIAL) return partial;
  return term_sbp(dims, &dims->out[i], dims_find(dims, op->split[axis]), partial);
}

bool split_legal(const Op *op, const Dims *dims, int letter, int axis) {
  const Mesh *mesh = op_mesh(op);
  if (letter < 0 || dims->letter[letter].whole) return false;
  int64_t parts = mesh->axis[axis].size;
  // Several axes may split one letter; its size must divide evenly.
  for (int a = 0; a < mesh->n_axes; a++)
    if (a != axis && op->split[a] == dims->letter[letter].name) parts *= mesh->axis[a].size;
  return dims->letter[letter].size % parts == 0 && dims_leads(dims, letter);
}

static const Type *type_scaled(Module *m, const Type *t, const Layout *layout, bool up) {
  int64_t dim[MAX_NDIM];
  for (int d = 0; d < t->ndim; d++)
    dim[d] = t->dim[d];
  for (int a = 0; a < layout->n_axes; a++) {
    if (layout->axis[a].kind != SBP_S) continue;
    int d = layout->axis[a].dim, n = layout->mesh->axis[a].size;
    // The local type must be exact: shards are of equal size.
    if (up)
      dim[d] *= n;
    else if (dim[d] % n == 0)
      dim[d] /= n;
    else
      BUG("a dimension of %lld cannot be split into %d", (long long)dim[d], n);
  }
  return type_new(m, t->dtype, t->ndim, dim);
}

const Type *type_local(Module *m, const Type *whole, const Layout *layout) {
  return type_scaled(m, whole, layout, false);
}

const Type *type_whole(Module *m, const Type *local, const Layout *layout) {
  return type_scaled(m, local, layout, true);
}

bool type_pads(const Type *known, const Type *whole) {
  bool longer = false;
  if (known->ndim != whole->ndim) return false;
  for (int i = 0; i < whole->ndim; i++) {
    if (known->dim[i] > whole->dim[i]) return false;
    longer |= known->dim[i] < whole->dim[i];
  }
  return longer;
}

bool value_padded(const Value *v) {
  return v->as && type_pads(v->as, value_whole(v));
}

const Type *value_known(const Value *v) {
  return v->as ? v->as : value_whole(v);
}

const Type *value_whole(const Value *v) {
  Module *m = v->graph->module;
  return m->phase >= PHASE_local && v->layout ? type_whole(m, v->type, v->layout) : v->type;
}
