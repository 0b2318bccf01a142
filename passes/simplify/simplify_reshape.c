// Moves reshapes towards the parameters, through transposes and the ops between two reshapes.
//
//     reshape of a transpose                            transpose of a reshape, if groups stay neighbours
//     elementwise op or linear of other reshapes of transposes     reshape of a transpose of the op
//     reshape of elementwise ops and linears of reshapes           the ops, of one reshape each

#include "ir/analysis/rewrite.h"

// Dimensions i0 .. i1-1 of the operand of a reshape become k0 .. k1-1 of its result; as few as
// possible on both sides.
typedef struct Group {
  int i0, i1, k0, k1;
} Group;

static int split_in_groups(const Type *from, const Type *to, Group *group) {
  // Dimensions of length 1 on one side only are groups of their own.
  int i = 0, k = 0, n = 0;
  while (i < from->ndim || k < to->ndim) {
    Group *g = &group[n++];
    g->i0 = i;
    g->k0 = k;
    bool one_in = i < from->ndim && from->dim[i] == 1, one_out = k < to->ndim && to->dim[k] == 1;
    if (one_in != one_out) {
      i += one_in;
      k += one_out;
    } else {
      int64_t in = from->dim[i++], out = to->dim[k++];
      // The smallest products of lengths that agree are a group.
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

// Adjacent dimensions of the result of a transpose that are also adjacent in its operand.
typedef struct Part {
  int64_t before; // first dimension in the operand; its ndim: an added dimension of length 1
  const int64_t *dim;
  int n, to; // how many, and the first dimension in the result
} Part;

//     [8,16,8] -transpose 0,2,1-> [8,8,16] -> [2,4,8,16]
//     [8,16,8] -> [2,4,16,8] -transpose 0,1,3,2-> [2,4,8,16]
//
// Groups of the reshape must be adjacent before the transpose too. Other groups are reshaped after
// it:
//
//     [2,5,4,8] -transpose 1,0,2,3-> [5,2,4,8] -> [10,32]
//     [2,5,4,8] -> [2,5,32] -transpose 1,0,2-> [5,2,32] -> [10,32]
static Value *transpose_after_reshape(Builder *b, Op *op) {
  const Op *transpose = made_by(first_operand(op), OP_transpose);
  const Type *from = first_operand(op)->type, *to = op->out[0]->type;
  if (!transpose || type_count(to) == 0) return NULL;
  const int64_t *perm = attr_list(transpose, "perm");
  Group group[2 * MAX_NDIM];
  Part part[2 * MAX_NDIM];
  int n_parts = 0, ndim = 0;
  bool moves = false;
  // A group is one part if it is adjacent in the operand, else a part per dimension.
  for (int n = split_in_groups(from, to, group), i = 0; i < n; i++) {
    Group *g = &group[i];
    bool neighbours = true;
    for (int k = g->i0 + 1; k < g->i1; k++)
      neighbours &= perm[k] == perm[k - 1] + 1;
    if (neighbours) {
      moves |= g->i1 != g->i0 + 1 || g->k1 != g->k0 + 1;
      part[n_parts++] = (Part){.before = g->i0 == g->i1 ? from->ndim : perm[g->i0],
                               .dim = to->dim + g->k0,
                               .n = g->k1 - g->k0};
    } else {
      for (int k = g->i0; k < g->i1; k++)
        part[n_parts++] = (Part){.before = perm[k], .dim = from->dim + k, .n = 1};
    }
  }
  // Parts are in the order of the result.
  for (int i = 0; i < n_parts; i++) {
    part[i].to = ndim;
    ndim += part[i].n;
  }
  if (!moves || ndim > MAX_NDIM) return NULL;
  int64_t dim[MAX_NDIM], place[MAX_NDIM];
  // The shape before the transpose has the parts in the operand's order.
  ndim = 0;
  for (int at = 0; at <= from->ndim; at++)
    for (int i = 0; i < n_parts; i++)
      for (int k = 0; part[i].before == at && k < part[i].n; k++) {
        dim[ndim] = part[i].dim[k];
        place[part[i].to + k] = ndim++;
      }
  Value *v = build_transpose(b, build_reshape(b, first_operand(transpose), ndim, dim), place);
  return build_reshape(b, v, to->ndim, to->dim);
}

const Op *stuck_reshape(const Value *v) {
  const Op *reshape = made_by(v, OP_reshape);
  return reshape && made_by(first_operand(reshape), OP_transpose) ? reshape : NULL;
}

// The number of dimensions of the vector that `v` broadcasts, without leading ones of length 1; -1
// if the shapes of `v` and `from` differ in these last dimensions.
static int vector_ndim(const Value *v, const Type *from) {
  const Op *broadcast = made_by(v, OP_broadcast);
  if (!broadcast) return -1;
  const Type *to = v->type, *x = first_operand(broadcast)->type;
  int same = 0, ndim = x->ndim;
  while (same < to->ndim && same < from->ndim &&
         to->dim[to->ndim - 1 - same] == from->dim[from->ndim - 1 - same])
    same++;
  while (ndim > 0 && x->dim[x->ndim - ndim] == 1)
    ndim--;
  return ndim <= same ? ndim : -1;
}

// The value that reshapes from the shape `from` to `v`, if `v` is a fill or such a vector; or NULL.
static Value *before_reshape(Builder *b, Value *v, const Type *from) {
  double c;
  if (is_fill(v, &c)) return build_fill(b, v->type->dtype, from->ndim, from->dim, c);
  int ndim = vector_ndim(v, from);
  if (ndim < 0) return NULL;
  Value *x = first_operand(v->def);
  Value *vector = build_reshape(b, x, ndim, x->type->dim + x->type->ndim - ndim);
  return build_broadcast(b, vector, from->ndim, from->dim);
}

//     [5,2,8] -> [10,8] -exp-> [10,8]      [5,2,8] -exp-> [5,2,8] -> [10,8]
Value *reshape_later(Builder *b, Op *op) {
  const Type *from = NULL, *to = op->out[0]->type;
  if (type_count(to) == 0) return NULL;
  bool any = false;
  for (int i = 0; i < op->n_in; i++) {
    if (!same_shape(op->in[i].value->type, to)) return NULL;
    // All reshaped operands must come from one shape, and one reshape must be stuck.
    const Op *reshape = made_by(op->in[i].value, OP_reshape);
    if (!reshape) continue;
    if (from && !same_shape(from, first_operand(reshape)->type)) return NULL;
    from = first_operand(reshape)->type;
    any |= stuck_reshape(op->in[i].value) != NULL;
  }
  if (!any) return NULL;
  // Others are reshaped back, if that costs nothing.
  Value *in[3];
  for (int i = 0; i < op->n_in; i++) {
    const Op *reshape = made_by(op->in[i].value, OP_reshape);
    in[i] = reshape ? first_operand(reshape) : before_reshape(b, op->in[i].value, from);
    if (!in[i]) return NULL;
  }
  return build_reshape(b, build_on(b, op, in), to->ndim, to->dim);
}

//     [5,8,2,8] -> [40,16] -linear-> [40,24] -exp-> [40,24] -> [5,8,24]
//     [5,8,2,8] -> [5,8,16] -linear-> [5,8,24] -exp-> [5,8,24]
//
// Merged dimensions would hide that rows of the batch are independent.

// The number of operands of `op`, a linear or an elementwise op, with the rows of its result.
static int n_reshaped(const Op *op) {
  return op->kind == OP_linear ? 1 : op->n_in;
}

// The shape of such an operand for a result of the shape of `to`.
static Type operand_shape(const Op *op, const Type *to) {
  Type shape = *to;
  const Type *x = first_operand(op)->type;
  if (op->kind == OP_linear) shape.dim[to->ndim - 1] = x->dim[x->ndim - 1];
  return shape;
}

// Whether the producers of `v` can produce it in the shape of `to`; `out_any`: some start at a
// reshape.
static bool can_reshape(const Value *v, const Type *to, int depth, bool *out_any) {
  enum { DEEPEST = 16 };
  const Op *op = v->def;
  double c;
  // These start in any shape.
  if (is_fill(v, &c)) return true;
  if (made_by(v, OP_broadcast)) return vector_ndim(v, to) >= 0;
  if (made_by(v, OP_reshape)) return *out_any = true;
  // Others must have this reader only, and work row by row.
  if (!op || v->uses->next || depth == DEEPEST) return false;
  if (op->kind == OP_linear) {
    if (to->ndim < 2 || to->dim[to->ndim - 1] != v->type->dim[v->type->ndim - 1]) return false;
  } else if (!op_info[op->kind].formula) {
    return false;
  }
  Type shape = operand_shape(op, to);
  for (int i = 0; i < n_reshaped(op); i++)
    if (!can_reshape(op->in[i].value, &shape, depth + 1, out_any)) return false;
  return true;
}

static Value *reshape_all(Builder *b, Value *v, const Type *to) {
  if (made_by(v, OP_reshape)) return build_reshape(b, first_operand(v->def), to->ndim, to->dim);
  Value *number = before_reshape(b, v, to), *in[3];
  if (number) return number;
  const Op *op = v->def;
  Type shape = operand_shape(op, to);
  for (int i = 0; i < op->n_in; i++)
    in[i] = i < n_reshaped(op) ? reshape_all(b, op->in[i].value, &shape) : op->in[i].value;
  return build_on(b, op, in);
}

static Value *reshape_sooner(Builder *b, Op *op) {
  const Type *to = op->out[0]->type;
  bool any = false;
  if (type_count(to) == 0 || made_by(first_operand(op), OP_broadcast)) return NULL;
  return can_reshape(first_operand(op), to, 0, &any) && any ? reshape_all(b, first_operand(op), to)
                                                            : NULL;
}

Value *reshape_earlier(Builder *b, Op *op) {
  Value *v = transpose_after_reshape(b, op);
  return v ? v : reshape_sooner(b, op);
}
