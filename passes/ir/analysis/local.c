// Building ops in a local module: see local.h.

#include "local.h"

#include <string.h>

#include "ir/op.h"
#include "ir/split.h"

static int n_axes(const Op *op) {
  const Mesh *mesh = op_mesh(op);
  return mesh ? mesh->n_axes : 0;
}

// Whether the op may be split as its `split` says, and its operands have the layouts for it.
static bool fits(const Op *op, const Dims *dims) {
  for (int axis = 0; axis < n_axes(op); axis++) {
    char letter = op->split[axis];
    // Partial sums pass only ops that are linear.
    if (letter == SPLIT_PARTIAL && !(op_info[op->kind].traits & (ADDITIVE | MULTILINEAR)))
      return false;
    if (letter != SPLIT_NONE && letter != SPLIT_PARTIAL) {
      int i = dims_find(dims, letter);
      if (i < 0 || dims->letter[i].whole || !dims_leads(dims, i)) return false;
    }
    // Operands must have the layouts that the split wants.
    for (int i = 0; i < op->n_in; i++) {
      Sbp have = op->in[i].value->layout->axis[axis];
      if (!sbp_equal(have, split_wants(op, dims, i, axis, have))) return false;
    }
  }
  return true;
}

// Gives the results of `op` their layouts; if the split is not legal, erases `op` and returns NULL.
static Op *laid_out(Op *op, Diag *d) {
  Dims dims;
  if (!op_dims(op, &dims, d)) BUG("%s does not fit", op_info[op->kind].name);
  if (!fits(op, &dims)) {
    op_erase(op);
    return NULL;
  }
  // The split decides the layout of each result.
  for (int i = 0; i < op->n_out; i++) {
    Sbp axis[MAX_AXES];
    for (int a = 0; a < n_axes(op); a++)
      axis[a] = split_gives(op, &dims, i, a);
    op->out[i]->layout = layout_new(op->graph->module, op_mesh(op), axis);
  }
  return op;
}

static Op *draft(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs) {
  Value *v = build_op(b, kind, in, n_in, attrs);
  if (!v) BUG("%s does not fit", op_info[kind].name);
  return v->def;
}

// Whether the split of `op` along `axis` takes the operands as they are and gives result 0 the
// layout `want`, if that is not NULL.
static bool fits_along(const Op *op, const Dims *dims, int axis, const Layout *want) {
  int n_partial = 0, last = 0;
  for (int i = 0; i < op->n_in; i++) {
    Sbp have = op->in[i].value->layout->axis[axis];
    if (!sbp_equal(have, split_wants(op, dims, i, axis, have))) return false;
    if (have.kind != SBP_P) continue;
    n_partial++;
    last = i;
  }
  if (op->split[axis] == SPLIT_PARTIAL && !op_passes_sums(op, n_partial, last)) return false;
  return !want || sbp_equal(split_gives(op, dims, 0, axis), want->axis[axis]);
}

static bool find_split(Op *op, const Dims *dims, int axis, const Layout *want) {
  // Nothing, partial sums, then the letters.
  op->split[axis] = SPLIT_NONE;
  if (fits_along(op, dims, axis, want)) return true;
  op->split[axis] = SPLIT_PARTIAL;
  if (fits_along(op, dims, axis, want)) return true;
  for (int i = 0; i < dims->n_letters; i++) {
    if (dims->letter[i].whole || !dims_leads(dims, i)) continue;
    op->split[axis] = dims->letter[i].name;
    if (fits_along(op, dims, axis, want)) return true;
  }
  return false;
}

Op *local_op_for(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs,
                 const Layout *want) {
  Value *v = build_op(b, kind, in, n_in, attrs);
  Op *op = v ? v->def : NULL;
  Dims dims;
  if (!op) return NULL;
  v->layout = want ? want : in[0]->layout; // the einsum of a local op may need it
  if (!op_dims(op, &dims, b->d)) BUG("%s does not fit", op_info[kind].name);
  for (int axis = 0; axis < n_axes(op); axis++)
    if (!find_split(op, &dims, axis, want)) {
      op_erase(op);
      return NULL;
    }
  return laid_out(op, b->d);
}

Op *local_op(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs, const char *split) {
  Op *op = draft(b, kind, in, n_in, attrs);
  memcpy(op->split, split, sizeof op->split);
  return laid_out(op, b->d);
}

Value *local_value(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs,
                   const Layout *layout) {
  Op *op = draft(b, kind, in, n_in, attrs);
  Dims dims;
  op->out[0]->layout = layout; // the einsum of a local op may need it
  if (!op_dims(op, &dims, b->d)) BUG("%s does not fit", op_info[kind].name);
  for (int a = 0; a < layout->n_axes && a < MAX_AXES; a++) {
    Sbp sbp = layout->axis[a];
    // The split that gives the layout: a letter of the result, or partial sums.
    if (sbp.kind == SBP_P) op->split[a] = SPLIT_PARTIAL;
    if (sbp.kind != SBP_S || dims.out[0].dim[sbp.dim].n == 0) continue;
    op->split[a] = dims.letter[dims.out[0].dim[sbp.dim].letter[0]].name;
  }
  op = laid_out(op, b->d);
  return op ? op->out[0] : NULL;
}

Value *local_cast(Builder *b, Value *v, DType to) {
  if (v->type->dtype == to) return v;
  return local_value(b, OP_cast, IN(v), ATTRS(a_t("to", to)), v->layout);
}

bool local_same(const Op *op, int i, const Value *v) {
  return op->out[i]->type == v->type && op->out[i]->layout == v->layout;
}

Op *only_reader(const Value *v) {
  return v->uses && !v->uses->next ? v->uses->user : NULL;
}
