// See unpack.h.
//
// The whole pattern is matched before any change.  Then every slice gets a product of its own, and
// the original product is erased once it is dead.

#include "unpack.h"

#include "ir/analysis/rewrite.h"
#include "ir/op.h"

typedef struct Product {
  Op *linear;
  Value *w, *bias;  // bias: one-dimensional, or NULL
  Op *add;          // of the bias, or NULL
  bool shares_bias; // with another product
  Value *y;         // the value that is sliced
} Product;

// Whether all readers are slices of columns.
static bool only_sliced(const Value *v) {
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op || op->kind != OP_slice || v->type->ndim == 0) return false;
    // All other dimensions are whole, and columns are contiguous.
    const Type *x = v->type, *y = op->out[0]->type;
    const int64_t *steps = attr_list(op, "steps");
    for (int i = 0; i < x->ndim; i++)
      if (steps[i] != 1 || (i < x->ndim - 1 && x->dim[i] != y->dim[i])) return false;
  }
  return v->uses != NULL;
}

// Matches a product, with or without a bias, whose columns are sliced.
static bool find_product(Op *op, Product *p) {
  if (op->kind != OP_linear) return false;
  *p = (Product){.linear = op, .w = op->in[1].value, .y = op->out[0]};
  if (p->w->type->ndim != 2) return false;
  const Use *u = p->y->uses;
  if (u && !u->next && u->user && u->user->kind == OP_add) {
    // A one-dimensional bias, broadcast along the columns.
    const Value *columns = u->user->in[1 - u->index].value;
    if (!columns->def || columns->def->kind != OP_broadcast) return false;
    p->bias = columns->def->in[0].value;
    if (p->bias->type->ndim != 1) return false;
    if (p->bias->type->dim[0] != columns->type->dim[columns->type->ndim - 1]) return false;
    p->shares_bias = columns->uses->next != NULL;
    p->add = u->user;
    p->y = u->user->out[0];
  }
  return only_sliced(p->y);
}

// The number of columns per slice, if all are equal and aligned; otherwise 0.
static int64_t equal_columns(const Product *p) {
  int last = p->y->type->ndim - 1;
  int64_t n = p->y->uses->user->out[0]->type->dim[last];
  for_each_use(u, p->y) {
    const Op *slice = u->user;
    if (slice->out[0]->type->dim[last] != n || attr_list(slice, "starts")[last] % n != 0) return 0;
  }
  return n && p->y->type->dim[last] % n == 0 ? n : 0;
}

// Adds a dimension for the groups of columns, which are along `dim`, to a weight with a single
// reader.
static void open_weight(Value *v, int dim, int64_t n) {
  const Type *t = v->type;
  if (v->def || v->role != ROLE_weight || v->as || v->uses->next || t->ndim == MAX_NDIM) return;
  int64_t shape[MAX_NDIM];
  for (int i = 0; i < t->ndim; i++)
    shape[i < dim ? i : i + 1] = t->dim[i];
  shape[dim] = t->dim[dim] / n;
  shape[dim + 1] = n;
  v->as = t;
  v->type = type_new(v->graph->module, t->dtype, t->ndim + 1, shape);
}

// A range of columns, as a value of `ndim` dimensions, from a weight opened or not.
static Value *columns_of(Builder *b, Value *v, int ndim, int dim, int64_t start, int64_t n) {
  if (v->type->ndim == ndim) return build_slice(b, v, dim, start, n);
  int64_t shape[MAX_NDIM];
  for (int i = 0; i < ndim; i++)
    shape[i] = v->type->dim[i < dim ? i : i + 1];
  return build_reshape(b, build_slice(b, v, dim, start / n, 1), ndim, shape);
}

// The columns of one slice, as a product of their own.
static Value *build_part(const Product *p, Op *slice, Diag *d) {
  const Type *t = slice->out[0]->type;
  bool trans = attr_i(p->linear, "trans");
  int64_t start = attr_list(slice, "starts")[t->ndim - 1], n = t->dim[t->ndim - 1];
  Builder b = {.g = slice->graph, .at = slice, .origin = op_origin(p->linear), .d = d};
  Value *w = columns_of(&b, p->w, 2, trans ? 0 : 1, start, n);
  Value *y = build_op(&b, OP_linear, IN(p->linear->in[0].value, w), ATTRS(a_b("trans", trans)));
  // The operands of the add keep their order, for the same rounding.
  if (!p->bias) return y;
  Value *bias = build_broadcast(&b, columns_of(&b, p->bias, 1, 0, start, n), t->ndim, t->dim);
  return p->add->in[0].value == p->linear->out[0] ? build_op(&b, OP_add, IN(y, bias), NO_ATTRS)
                                                  : build_op(&b, OP_add, IN(bias, y), NO_ATTRS);
}

bool is_packed_product(Op *op) {
  Product p;
  return find_product(op, &p);
}

bool unpack_product(Op *op, Diag *d) {
  Product p;
  if (!find_product(op, &p)) BUG("no packed product is unpacked");
  int64_t n = equal_columns(&p);
  if (n) open_weight(p.w, attr_i(op, "trans") ? 0 : 1, n);
  if (n && p.bias && !p.shares_bias) open_weight(p.bias, 0, n);
  // Each slice becomes a product.
  while (p.y->uses) {
    Op *slice = p.y->uses->user;
    Value *part = build_part(&p, slice, d);
    if (!part) return false;
    value_replace_uses(slice->out[0], part);
    op_erase(slice);
  }
  // The product is dead now.
  if (p.add) {
    Op *bias = p.add->in[p.add->in[0].value == p.linear->out[0] ? 1 : 0].value->def;
    op_erase(p.add);
    if (!value_used(bias->out[0])) op_erase(bias);
  }
  op_erase(p.linear);
  return true;
}
