// See loops.h.
//
// Three layers, each built on the previous one.  Accesses are digits and strides.  Loops serve all
// accesses; an access that does not fit splits a loop in two (loops_cut_at).  Bodies are read op by
// op: each value is an operand, a scalar, computed, or a sum.

#include "loops.h"

#include <string.h>

#include "ir/op.h"

bool op_is_elementwise(const Op *op) {
  return op_info[op->kind].formula != NULL;
}

// -- Accesses and loops ------------------------------------------------------------------------

// Adds an inner digit.  Drops digits of one element, and merges a digit that continues the previous
// one.
static void access_push(Access *a, int64_t extent, int64_t stride) {
  if (extent == 1) return;
  // The previous digit steps over exactly this one: they are one digit.
  if (a->n > 0 && a->stride[a->n - 1] == stride * extent) {
    a->extent[a->n - 1] *= extent;
    a->stride[a->n - 1] = stride;
    return;
  }
  a->extent[a->n] = extent;
  a->stride[a->n++] = stride;
}

Access access_broadcast(const Type *from, const Type *to) {
  int64_t stride[MAX_NDIM] = {0}, step = 1;
  for (int i = from->ndim - 1, k = to->ndim - 1; i >= 0; i--, k--) {
    // Stretched dimensions do not move in the operand.
    stride[k] = from->dim[i] == 1 ? 0 : step;
    step *= from->dim[i];
  }
  Access a = {0};
  for (int k = 0; k < to->ndim; k++)
    access_push(&a, to->dim[k], stride[k]);
  return a;
}

bool access_is_flat(const Access *a) {
  return a->n == 0 || (a->n == 1 && a->stride[0] == 1);
}

Loops loops_flat(int64_t count) {
  Loops l = {0};
  if (count != 1) l.extent[l.n++] = count;
  return l;
}

bool loops_cut_at(Loops *l, int64_t inner) {
  if (l->n > 0 && l->extent[0] == 0) return true; // no points, so no constraint
  int64_t below = 1;                              // points of the loops inside of loop k
  for (int k = l->n - 1; k >= 0 && below <= inner; k--) {
    if (below == inner) return true;
    // The boundary is inside of loop k, which becomes two loops.
    int64_t with = below * l->extent[k];
    if (inner < with) {
      if (inner % below || with % inner || l->n == MAX_LOOPS) return false;
      // The loops inside move up by one.
      memmove(&l->extent[k + 1], &l->extent[k], (size_t)(l->n - k) * sizeof l->extent[0]);
      l->n++;
      l->extent[k] = with / inner;
      l->extent[k + 1] = inner / below;
      return true;
    }
    below = with;
  }
  return below == inner;
}

bool loops_cut(Loops *l, const Access *a) {
  Loops cut = *l;
  int64_t inner = 1;
  // Every digit of the access begins at a loop; all of them, or none.
  for (int k = a->n - 1; k > 0; k--) {
    inner *= a->extent[k];
    if (!loops_cut_at(&cut, inner)) return false;
  }
  *l = cut;
  return true;
}

int64_t loops_stride(const Loops *l, int loop, const Access *a) {
  int64_t inner = 1, below = 1;
  for (int k = l->n - 1; k > loop; k--)
    inner *= l->extent[k];
  for (int k = a->n - 1; k >= 0; k--) {
    // The digit that the loop is part of.
    if (inner < below * a->extent[k]) return a->stride[k] * (inner / below);
    below *= a->extent[k];
  }
  return 0;
}

// -- Sums --------------------------------------------------------------------------------------

SumKind sum_kind(const Op *reduce, int64_t *n_kept) {
  const Type *t = reduce->in[0].value->type;
  bool summed[MAX_NDIM] = {false};
  for (int i = 0; i < attr_n(reduce, "axes"); i++)
    summed[attr_list(reduce, "axes")[i]] = true;
  *n_kept = 1;
  int changes = 0, n = 0;
  bool first = false, last = false;
  for (int i = 0; i < t->ndim; i++) {
    // Dimensions of one element do not matter.
    if (t->dim[i] == 1) continue;
    if (!summed[i]) *n_kept *= t->dim[i];
    if (n == 0) first = summed[i];
    changes += n > 0 && summed[i] != last;
    last = summed[i];
    n++;
  }
  if (n == 0 || (changes == 0 && !first)) return SUM_none; // nothing is reduced
  // Rows: the last dimensions are reduced.  Columns: the first ones.
  if (changes > 1) return SUM_other;
  return last ? SUM_rows : SUM_columns;
}

// -- Bodies ------------------------------------------------------------------------------------

static bool set_count(Body *b, int64_t count) {
  if (b->count < 0) {
    b->count = count;
    b->loops = loops_flat(count);
  }
  return b->count == count;
}

static bool read_op(Body *b, const Op *op) {
  BodyValue *out = &b->value[op->out[0]->id];
  *out = (BodyValue){.source = op->out[0]};
  // Computed at every point, or the same at all of them.
  if (op_is_elementwise(op)) {
    out->kind = BODY_computed;
    return set_count(b, type_count(op->out[0]->type));
  }
  if (op->kind == OP_fill || op->kind == OP_constant) {
    out->kind = BODY_scalar;
    return op->kind == OP_fill || type_count(op->out[0]->type) == 1;
  }
  if (op->kind == OP_reduce_sum) {
    out->kind = BODY_sum;
    // All sums of a body are of one kind, over the same points.
    int64_t n_kept;
    SumKind kind = sum_kind(op, &n_kept);
    if (kind == SUM_none || kind == SUM_other) return false;
    if (!set_count(b, type_count(op->in[0].value->type))) return false;
    if (b->sum != SUM_none && (b->sum != kind || b->n_kept != n_kept)) return false;
    b->sum = kind;
    b->n_kept = n_kept;
    return true;
  }
  // Views keep the flat index, and so does a broadcast that changes no length.
  const BodyValue *in = op->n_in > 0 ? &b->value[op->in[0].value->id] : NULL;
  bool same_count = in && type_count(op->in[0].value->type) == type_count(op->out[0]->type);
  if (op->kind == OP_reshape || (op->kind == OP_broadcast && same_count)) {
    *out = *in;
    return true;
  }
  // A broadcast of an operand needs a flat access, since accesses do not compose.
  if (op->kind != OP_broadcast) return false;
  *out = *in;
  out->access = access_broadcast(op->in[0].value->type, op->out[0]->type);
  return in->kind == BODY_scalar || (in->kind == BODY_operand && access_is_flat(&in->access));
}

bool body_read(const Graph *g, Body *out, Arena *a) {
  Body b = {.g = g, .count = -1, .value = arena_array(a, BodyValue, g->n_values)};
  // Operands have element i at flat index i.
  for (int i = 0; i < g->n_params; i++) {
    BodyValue *v = &b.value[g->params[i]->id];
    *v = (BodyValue){.kind = BODY_operand, .source = g->params[i]};
    access_push(&v->access, type_count(g->params[i]->type), 1);
  }
  for_each_op(op, g)
    if (!read_op(&b, op)) return false;
  for (int i = 0; i < g->n_results; i++) { // a body may be only a fill, a view or a broadcast
    const Value *v = g->results[i]->use.value;
    if (b.value[v->id].kind != BODY_sum && !set_count(&b, type_count(v->type))) return false;
  }
  // Accesses of operands refine the loops.  No operand of a computed value or of a sum is a sum, so
  // each has an element at every point.
  for_each_op(op, g) {
    if (!op_is_elementwise(op) && op->kind != OP_reduce_sum) continue;
    for (int i = 0; i < op->n_in; i++) {
      const BodyValue *in = &b.value[op->in[i].value->id];
      if (in->kind == BODY_sum) return false;
      if (in->kind == BODY_operand && !loops_cut(&b.loops, &in->access)) return false;
    }
  }
  for (int i = 0; i < g->n_results; i++) {
    const BodyValue *v = &b.value[g->results[i]->use.value->id];
    if (v->kind == BODY_operand && !loops_cut(&b.loops, &v->access)) return false;
  }
  // The loop over a sum's dimensions must be a loop of its own.
  if (b.count > 0 && b.sum == SUM_rows && !loops_cut_at(&b.loops, b.count / b.n_kept)) return false;
  if (b.sum == SUM_columns && !loops_cut_at(&b.loops, b.n_kept)) return false;
  *out = b;
  return true;
}

bool body_inplace(const Body *b, int result, int operand) {
  const Value *out = b->g->results[result]->use.value, *in = b->g->params[operand];
  if (b->value[out->id].kind != BODY_computed || type_count(in->type) != b->count ||
      dtype_bytes[in->type->dtype] != dtype_bytes[out->type->dtype])
    return false;
  // Every read is of the element that is written at that point.
  for_each_op(op, b->g) {
    const BodyValue *v = &b->value[op->out[0]->id];
    if (v->kind == BODY_operand && v->source == in && !access_is_flat(&v->access)) return false;
  }
  return true;
}

bool body_same(const Graph *a, const Graph *b) {
  if (a->n_params != b->n_params || a->n_ops != b->n_ops || a->n_values != b->n_values ||
      a->n_results != b->n_results)
    return false;
  for (int i = 0; i < a->n_params; i++)
    if (a->params[i]->type != b->params[i]->type) return false;
  // The same ops in the same order; values are compared by id.
  for (const Op *x = a->first, *y = b->first; x; x = x->next, y = y->next) {
    if (x->kind != y->kind || x->out[0]->type != y->out[0]->type || !op_same_attrs(x, y))
      return false;
    for (int i = 0; i < x->n_in; i++)
      if (x->in[i].value->id != y->in[i].value->id) return false;
  }
  for (int i = 0; i < a->n_results; i++)
    if (a->results[i]->use.value->id != b->results[i]->use.value->id) return false;
  return true;
}
