// Simplification by changing places: broadcasts and transposes go towards the results, reshapes and
// slices towards the parameters.
//
//     elementwise op of broadcasts from one shape       broadcast of the op
//     elementwise op of transposes by one permutation   transpose of the op
//     linear of a transpose that keeps the last place   transpose of linear
//     slice of a transpose                              transpose of the slice
//     reduction of a transpose                          transpose of the reduction
//     reshape of a transpose                            transpose of a reshape, where that can be
//     elementwise op or linear of other reshapes of transposes     reshape of a transpose of the op
//     reshape of elementwise ops and linears of reshapes           the ops, of one reshape each
//
// So transposes meet, and compose, or stand before a product that can read its operand transposed;
// reshapes, which cost nothing, meet too; and what is broadcast is computed once.

#include <string.h>

#include "rewrite.h"

static Value *operand(const Op *op) {
  return op->in[0].value;
}

static bool same_shape(const Type *x, const Type *y) {
  return x->rank == y->rank &&
         (x->rank == 0 || memcmp(x->dim, y->dim, (size_t)x->rank * sizeof *x->dim) == 0);
}

// `op` on other operands.
static Value *on(Builder *b, const Op *op, Value *const *in) {
  int n;
  op_attr_specs(op->kind, &n);
  return build(b, op->kind, in, op->n_in, (Attrs){op->attrs, n});
}

// -- Broadcasts ------------------------------------------------------------------------------

static Value *broadcast_later(Builder *b, Op *op) {
  const Type *from = NULL, *t = op->out[0]->type;
  double c;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (is_fill(v, &c)) continue;
    const Op *broadcast = made_by(v, OP_broadcast);
    if (!broadcast || (from && !same_shape(from, operand(broadcast)->type))) return NULL;
    from = operand(broadcast)->type;
  }
  if (!from) return NULL;
  Value *in[3];
  for (int i = 0; i < op->n_in; i++) {
    Value *v = op->in[i].value;
    in[i] =
        is_fill(v, &c) ? build_fill(b, v->type->dtype, from->rank, from->dim, c) : operand(v->def);
  }
  return build_broadcast(b, on(b, op, in), t->rank, t->dim);
}

// -- Transposes ------------------------------------------------------------------------------

// Whether any transpose of `v` costs little: it is one number, or made of less.
static bool is_cheap(const Value *v) {
  double c;
  const Op *op = made_by(v, OP_broadcast);
  return is_fill(v, &c) || (op && type_count(operand(op)->type) < type_count(v->type));
}

// The cheap value `v` before a transpose by `perm`, of the shape of `from`.
static Value *before_transpose(Builder *b, Value *v, const int64_t *perm, const Type *from) {
  double c;
  if (is_fill(v, &c)) return build_fill(b, v->type->dtype, from->rank, from->dim, c);
  Value *x = operand(v->def);
  int64_t dim[MAX_RANK], back[MAX_RANK];
  int over = from->rank - x->type->rank;
  for (int i = 0; i < from->rank; i++) {
    dim[i] = i < over ? 1 : x->type->dim[i - over];
    back[perm[i]] = i;
  }
  x = transposed(b, build_reshape(b, x, from->rank, dim), back);
  return build_broadcast(b, x, from->rank, from->dim);
}

static Value *transpose_later(Builder *b, Op *op) {
  const Op *transpose = NULL;
  for (int i = 0; i < op->n_in; i++) {
    const Op *of = made_by(op->in[i].value, OP_transpose);
    if (!of && is_cheap(op->in[i].value)) continue;
    if (!of || (transpose && !has_perm(of, attr_list(transpose, "perm")))) return NULL;
    transpose = of;
  }
  if (!transpose) return NULL;
  const int64_t *perm = attr_list(transpose, "perm");
  Value *in[3];
  for (int i = 0; i < op->n_in; i++) {
    Value *v = op->in[i].value;
    const Op *of = made_by(v, OP_transpose);
    in[i] = of ? operand(of) : before_transpose(b, v, perm, operand(transpose)->type);
  }
  return build_transpose(b, on(b, op, in), perm);
}

static Value *transpose_after_slice(Builder *b, Op *op) {
  const Op *transpose = made_by(operand(op), OP_transpose);
  if (!transpose) return NULL;
  const int64_t *perm = attr_list(transpose, "perm");
  int rank = op->out[0]->type->rank;
  int64_t starts[MAX_RANK], steps[MAX_RANK], shape[MAX_RANK];
  for (int i = 0; i < rank; i++) {
    starts[perm[i]] = attr_list(op, "starts")[i];
    steps[perm[i]] = attr_list(op, "steps")[i];
    shape[perm[i]] = attr_list(op, "shape")[i];
  }
  Value *v = build(b, OP_slice, IN(operand(transpose)),
                   ATTRS(a_list("starts", starts, rank), a_list("steps", steps, rank),
                         a_list("shape", shape, rank)));
  return build_transpose(b, v, perm);
}

//     reduce_sum of (transpose x perm=[0,3,1,2]) axes=[0,2]   transpose of reduce_sum x axes=[0,1]
//
// Not where dimensions are kept: that may be part of a norm, which raise knows by its last
// dimension.
static Value *transpose_after_reduction(Builder *b, Op *op) {
  const Op *transpose = made_by(operand(op), OP_transpose);
  if (!transpose || attr_i(op, "keep")) return NULL;
  const int64_t *perm = attr_list(transpose, "perm");
  int rank = operand(op)->type->rank;
  bool reduced[MAX_RANK] = {false};
  for (int i = 0; i < attr_n(op, "axes"); i++)
    reduced[perm[attr_list(op, "axes")[i]]] = true;
  int64_t axes[MAX_RANK], place[MAX_RANK], after[MAX_RANK];
  int n_axes = 0, n_places = 0, n = 0;
  for (int i = 0; i < rank; i++) {
    if (reduced[i])
      axes[n_axes++] = i;
    else
      place[i] = n_places++;
  }
  for (int i = 0; i < rank; i++)
    if (!reduced[perm[i]]) after[n++] = place[perm[i]];
  Value *v = build(b, op->kind, IN(operand(transpose)),
                   ATTRS(a_list("axes", axes, n_axes), a_b("keep", false)));
  return build_transpose(b, v, after);
}

// -- Reshapes --------------------------------------------------------------------------------

// Dimensions i0 .. i1-1 of the operand of a reshape become k0 .. k1-1 of its result; as few as can
// be on both sides.
typedef struct Group {
  int i0, i1, k0, k1;
} Group;

static int split_in_groups(const Type *from, const Type *to, Group *group) {
  int i = 0, k = 0, n = 0;
  while (i < from->rank || k < to->rank) {
    Group *g = &group[n++];
    g->i0 = i;
    g->k0 = k;
    bool one_in = i < from->rank && from->dim[i] == 1, one_out = k < to->rank && to->dim[k] == 1;
    if (one_in != one_out) {
      i += one_in;
      k += one_out;
    } else {
      int64_t in = from->dim[i++], out = to->dim[k++];
      while (in != out)
        if (in < out)
          in *= from->dim[i++];
        else
          out *= to->dim[k++];
    }
    g->i1 = i;
    g->k1 = k;
  }
  return n;
}

// Neighbours in the result of a transpose that are neighbours in its operand.
typedef struct Part {
  int64_t before; // where they begin in the operand; its rank for dimensions made of nothing
  const int64_t *dim;
  int n, to; // how many, and where they begin in the result
} Part;

//     [8,16,8] -transpose 0,2,1-> [8,8,16] -> [2,4,8,16]
//     [8,16,8] -> [2,4,16,8] -transpose 0,1,3,2-> [2,4,8,16]
//
// Groups of the reshape must be neighbours before the transpose too.  Those that are not stay
// below:
//
//     [2,5,4,8] -transpose 1,0,2,3-> [5,2,4,8] -> [10,32]
//     [2,5,4,8] -> [2,5,32] -transpose 1,0,2-> [5,2,32] -> [10,32]
static Value *transpose_after_reshape(Builder *b, Op *op) {
  const Op *transpose = made_by(operand(op), OP_transpose);
  const Type *from = operand(op)->type, *to = op->out[0]->type;
  if (!transpose || type_count(to) == 0) return NULL;
  const int64_t *perm = attr_list(transpose, "perm");
  Group group[2 * MAX_RANK];
  Part part[2 * MAX_RANK];
  int n_parts = 0, rank = 0;
  bool moves = false;
  for (int n = split_in_groups(from, to, group), i = 0; i < n; i++) {
    Group *g = &group[i];
    bool neighbours = true;
    for (int k = g->i0 + 1; k < g->i1; k++)
      neighbours &= perm[k] == perm[k - 1] + 1;
    if (neighbours) {
      moves |= g->i1 != g->i0 + 1 || g->k1 != g->k0 + 1;
      part[n_parts++] = (Part){.before = g->i0 == g->i1 ? from->rank : perm[g->i0],
                               .dim = to->dim + g->k0,
                               .n = g->k1 - g->k0};
    } else {
      for (int k = g->i0; k < g->i1; k++)
        part[n_parts++] = (Part){.before = perm[k], .dim = from->dim + k, .n = 1};
    }
  }
  for (int i = 0; i < n_parts; i++) {
    part[i].to = rank;
    rank += part[i].n;
  }
  if (!moves || rank > MAX_RANK) return NULL;
  int64_t dim[MAX_RANK], place[MAX_RANK];
  rank = 0;
  for (int at = 0; at <= from->rank; at++)
    for (int i = 0; i < n_parts; i++)
      for (int k = 0; part[i].before == at && k < part[i].n; k++) {
        dim[rank] = part[i].dim[k];
        place[part[i].to + k] = rank++;
      }
  Value *v = build_transpose(b, build_reshape(b, operand(transpose), rank, dim), place);
  return build_reshape(b, v, to->rank, to->dim);
}

// The reshape of a transpose that could not go above it, or NULL.
static const Op *stuck(const Value *v) {
  const Op *reshape = made_by(v, OP_reshape);
  return reshape && made_by(operand(reshape), OP_transpose) ? reshape : NULL;
}

// The rank of the vector that `v` broadcasts, without leading dimensions of length 1; -1 unless the
// shapes of `v` and `from` agree in these last dimensions.
static int vector_rank(const Value *v, const Type *from) {
  const Op *broadcast = made_by(v, OP_broadcast);
  if (!broadcast) return -1;
  const Type *to = v->type, *x = operand(broadcast)->type;
  int same = 0, rank = x->rank;
  while (same < to->rank && same < from->rank &&
         to->dim[to->rank - 1 - same] == from->dim[from->rank - 1 - same])
    same++;
  while (rank > 0 && x->dim[x->rank - rank] == 1)
    rank--;
  return rank <= same ? rank : -1;
}

// `v` of the shape `from`, which is reshaped to that of `v`, when it is one number or such a
// vector; or NULL.
static Value *before_reshape(Builder *b, Value *v, const Type *from) {
  double c;
  if (is_fill(v, &c)) return build_fill(b, v->type->dtype, from->rank, from->dim, c);
  int rank = vector_rank(v, from);
  if (rank < 0) return NULL;
  Value *x = operand(v->def);
  Value *vector = build_reshape(b, x, rank, x->type->dim + x->type->rank - rank);
  return build_broadcast(b, vector, from->rank, from->dim);
}

//     [5,2,8] -> [10,8] -exp-> [10,8]      [5,2,8] -exp-> [5,2,8] -> [10,8]
static Value *reshape_later(Builder *b, Op *op) {
  const Type *from = NULL, *to = op->out[0]->type;
  if (type_count(to) == 0) return NULL;
  bool any = false;
  for (int i = 0; i < op->n_in; i++) {
    if (!same_shape(op->in[i].value->type, to)) return NULL;
    const Op *reshape = made_by(op->in[i].value, OP_reshape);
    if (!reshape) continue;
    if (from && !same_shape(from, operand(reshape)->type)) return NULL;
    from = operand(reshape)->type;
    any |= stuck(op->in[i].value) != NULL;
  }
  if (!any) return NULL;
  Value *in[3];
  for (int i = 0; i < op->n_in; i++) {
    const Op *reshape = made_by(op->in[i].value, OP_reshape);
    in[i] = reshape ? operand(reshape) : before_reshape(b, op->in[i].value, from);
    if (!in[i]) return NULL;
  }
  return build_reshape(b, on(b, op, in), to->rank, to->dim);
}

//     [5,8,2,8] -> [40,16] -linear-> [40,24] -exp-> [40,24] -> [5,8,24]
//     [5,8,2,8] -> [5,8,16] -linear-> [5,8,24] -exp-> [5,8,24]
//
// Merged dimensions would hide that rows of the batch stay independent.

// How many operands of `op`, a linear or an elementwise op, have the rows of its result.
static int n_reshaped(const Op *op) {
  return op->kind == OP_linear ? 1 : op->n_in;
}

// The shape of such an operand for a result of the shape of `to`.
static Type operand_shape(const Op *op, const Type *to) {
  Type shape = *to;
  const Type *x = operand(op)->type;
  if (op->kind == OP_linear) shape.dim[to->rank - 1] = x->dim[x->rank - 1];
  return shape;
}

// Whether the ops that make `v` can make it in the shape of `to`; `out_any`: they begin at a
// reshape.
static bool can_reshape(const Value *v, const Type *to, int depth, bool *out_any) {
  enum { DEEPEST = 16 };
  const Op *op = v->def;
  double c;
  if (is_fill(v, &c)) return true;
  if (made_by(v, OP_broadcast)) return vector_rank(v, to) >= 0;
  if (made_by(v, OP_reshape)) return *out_any = true;
  if (!op || v->uses->next || depth == DEEPEST) return false;
  if (op->kind == OP_linear) {
    if (to->rank < 2 || to->dim[to->rank - 1] != v->type->dim[v->type->rank - 1]) return false;
  } else if (!op_info[op->kind].formula) {
    return false;
  }
  Type shape = operand_shape(op, to);
  for (int i = 0; i < n_reshaped(op); i++)
    if (!can_reshape(op->in[i].value, &shape, depth + 1, out_any)) return false;
  return true;
}

static Value *reshape_all(Builder *b, Value *v, const Type *to) {
  if (made_by(v, OP_reshape)) return build_reshape(b, operand(v->def), to->rank, to->dim);
  Value *number = before_reshape(b, v, to), *in[3];
  if (number) return number;
  const Op *op = v->def;
  Type shape = operand_shape(op, to);
  for (int i = 0; i < op->n_in; i++)
    in[i] = i < n_reshaped(op) ? reshape_all(b, op->in[i].value, &shape) : op->in[i].value;
  return on(b, op, in);
}

static Value *reshape_sooner(Builder *b, Op *op) {
  const Type *to = op->out[0]->type;
  bool any = false;
  if (type_count(to) == 0 || made_by(operand(op), OP_broadcast)) return NULL;
  return can_reshape(operand(op), to, 0, &any) && any ? reshape_all(b, operand(op), to) : NULL;
}

// -- Products --------------------------------------------------------------------------------

// Also through a reshape that could not go above the transpose.  Not where the result is much
// larger than the operand: the logits of a language model, say.
static Value *transpose_after_linear(Builder *b, Op *op) {
  enum { MUCH = 4 };
  const Op *reshape = stuck(operand(op));
  Value *x = reshape ? operand(reshape) : operand(op);
  const Op *transpose = made_by(x, OP_transpose);
  const Type *t = op->out[0]->type;
  int last = x->type->rank - 1;
  int64_t summed = x->type->dim[last];
  if (!transpose || attr_list(transpose, "perm")[last] != last ||
      operand(op)->type->dim[t->rank - 1] != summed || type_count(operand(op)->type) == 0 ||
      t->dim[t->rank - 1] > MUCH * summed)
    return NULL;
  Value *y = build_transpose(b, on(b, op, (Value *[]){operand(transpose), op->in[1].value}),
                             attr_list(transpose, "perm"));
  return build_reshape(b, y, t->rank, t->dim);
}

static bool is_reduction(const Op *op) {
  switch ((int)op->kind) {
  case OP_reduce_sum:
  case OP_reduce_max:
  case OP_reduce_min:
  case OP_reduce_prod: return true;
  }
  return false;
}

Value *change_order(Builder *b, Op *op) {
  if (op->kind == OP_linear) return transpose_after_linear(b, op);
  if (op->kind == OP_slice) return transpose_after_slice(b, op);
  if (op->kind == OP_reshape) {
    Value *v = transpose_after_reshape(b, op);
    return v ? v : reshape_sooner(b, op);
  }
  if (is_reduction(op)) return transpose_after_reduction(b, op);
  if (!op_info[op->kind].formula) return NULL;
  Value *v = broadcast_later(b, op);
  if (!v) v = transpose_later(b, op);
  return v ? v : reshape_later(b, op);
}
