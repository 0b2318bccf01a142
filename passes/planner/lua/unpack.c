// See unpack.h.
//
// The whole pattern is matched before any change.  Then every slice gets a product of its own, and
// the original product is erased once it is dead.

#include "unpack.h"

#include <string.h>

#include "ir/analysis/rewrite.h"
#include "ir/op.h"

typedef struct Product {
  Op *linear;
  Value *w, *bias;  // bias: one-dimensional, or NULL
  Op *add;          // of the bias, or NULL
  bool shares_bias; // with another product
  Op *view;         // a reshape of the result whose result is sliced; or NULL
  Value *y;         // the value that is sliced
  int dim;          // along which
} Product;

// The columns of a slice along the dimension of the product.
typedef struct Columns {
  int64_t start, n;
} Columns;

static Columns columns_of(const Product *p, const Op *slice) {
  const Type *t = p->y->type;
  int64_t inner = 1;
  for (int i = p->dim + 1; i < t->ndim; i++)
    inner *= t->dim[i];
  return (Columns){attr_list(slice, "starts")[p->dim] * inner,
                   slice->out[0]->type->dim[p->dim] * inner};
}

// Whether all readers are slices along `dim`, contiguous there, whose columns are equal or apart.
static bool only_sliced(const Product *p) {
  bool cuts = false;
  for_each_use(u, p->y) {
    const Op *op = u->user;
    if (!op || op->kind != OP_slice || attr_list(op, "steps")[p->dim] != 1) return false;
    Columns a = columns_of(p, op);
    cuts |= op->out[0]->type->dim[p->dim] != p->y->type->dim[p->dim];
    for_each_use(v, p->y) {
      if (!v->user || v->user->kind != OP_slice) return false;
      Columns b = columns_of(p, v->user);
      bool equal = a.start == b.start && a.n == b.n;
      if (!equal && a.start < b.start + b.n && b.start < a.start + a.n) return false;
    }
  }
  return cuts;
}

// Of a reshape that splits the columns: the dimension of its result with their outer groups.  -1:
// it mixes them with rows.
static int outer_of_columns(const Type *t, int64_t columns) {
  int64_t n = 1;
  for (int i = t->ndim - 1; i >= 0; i--)
    if ((n *= t->dim[i]) == columns) return i;
  return -1;
}

// Matches a product, with or without a bias, whose columns are sliced, perhaps of a reshape.
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
  const Type *t = p->y->type;
  p->dim = t->ndim - 1;
  u = p->y->uses;
  if (u && !u->next && u->user && u->user->kind == OP_reshape) {
    p->view = u->user;
    p->y = p->view->out[0];
    p->dim = outer_of_columns(p->y->type, t->dim[t->ndim - 1]);
  }
  return p->dim >= 0 && only_sliced(p);
}

// The largest number of columns of which every slice has whole groups.
static int64_t group_columns(const Product *p) {
  const Type *t = p->linear->out[0]->type;
  int64_t n = t->dim[t->ndim - 1];
  for_each_use(u, p->y) {
    Columns c = columns_of(p, u->user);
    int64_t both[] = {c.start, c.n};
    for (int i = 0; i < 2; i++)
      for (int64_t m = both[i]; m;) {
        int64_t rest = n % m;
        n = m;
        m = rest;
      }
  }
  return n;
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
static Value *take_columns(Builder *b, Value *v, int ndim, int dim, Columns c) {
  if (v->type->ndim == ndim) return build_slice(b, v, dim, c.start, c.n);
  int64_t shape[MAX_NDIM], n = v->type->dim[dim + 1]; // of a group
  for (int i = 0; i < ndim; i++)
    shape[i] = v->type->dim[i < dim ? i : i + 1];
  shape[dim] = c.n;
  return build_reshape(b, build_slice(b, v, dim, c.start / n, c.n / n), ndim, shape);
}

// The columns as a product of their own, before `at`, in the shape of the sliced value.
static Value *build_part(const Product *p, Columns c, Op *at, Diag *d) {
  bool trans = attr_i(p->linear, "trans");
  Builder b = {.g = at->graph, .at = at, .origin = op_origin(p->linear), .d = d};
  Value *w = take_columns(&b, p->w, 2, trans ? 0 : 1, c);
  Value *y = build_op(&b, OP_linear, IN(p->linear->in[0].value, w), ATTRS(a_b("trans", trans)));
  // The operands of the add keep their order, for the same rounding.
  if (p->bias) {
    const Type *t = y->type;
    Value *bias = build_broadcast(&b, take_columns(&b, p->bias, 1, 0, c), t->ndim, t->dim);
    y = p->add->in[0].value == p->linear->out[0] ? build_op(&b, OP_add, IN(y, bias), NO_ATTRS)
                                                 : build_op(&b, OP_add, IN(bias, y), NO_ATTRS);
  }
  if (!p->view) return y;
  const Type *t = p->y->type;
  int64_t shape[MAX_NDIM], inner = 1;
  for (int i = 0; i < t->ndim; i++) {
    shape[i] = t->dim[i];
    if (i > p->dim) inner *= t->dim[i];
  }
  shape[p->dim] = c.n / inner;
  b.origin = op_origin(p->view);
  return build_reshape(&b, y, t->ndim, shape);
}

// The rest of a slice's columns.
static Value *build_rest(const Product *p, Op *slice, Value *part, Diag *d) {
  if (type_equal(part->type, slice->out[0]->type)) return part;
  Builder b = {.g = slice->graph, .at = slice, .origin = op_origin(slice), .d = d};
  int64_t starts[MAX_NDIM];
  memcpy(starts, attr_list(slice, "starts"), (size_t)p->y->type->ndim * sizeof *starts);
  starts[p->dim] = 0;
  return build_op(&b, OP_slice, IN(part),
                  ATTRS(a_list("starts", starts, p->y->type->ndim), *op_attr(slice, "steps"),
                        *op_attr(slice, "shape")));
}

// Replaces the slices of equal columns by a product of their own.
static bool replace_columns(const Product *p, Columns c, Diag *d) {
  // It stands before the first of them.
  Op *first = NULL;
  for (Op *op = p->y->def->next; op && !first; op = op->next)
    if (op->kind == OP_slice && op->in[0].value == p->y && columns_of(p, op).start == c.start)
      first = op;
  Value *part = build_part(p, c, first, d);
  if (!part) return false;
  for (Use *u = p->y->uses, *next; u; u = next) {
    next = u->next;
    Op *slice = u->user;
    if (columns_of(p, slice).start != c.start) continue;
    Value *rest = build_rest(p, slice, part, d);
    if (!rest) return false;
    value_replace_uses(slice->out[0], rest);
    op_erase(slice);
  }
  return true;
}

bool is_packed_product(Op *op) {
  Product p;
  return find_product(op, &p);
}

bool unpack_product(Op *op, Diag *d) {
  Product p;
  if (!find_product(op, &p)) BUG("no packed product is unpacked");
  int64_t n = group_columns(&p);
  open_weight(p.w, attr_i(op, "trans") ? 0 : 1, n);
  if (p.bias && !p.shares_bias) open_weight(p.bias, 0, n);
  // Columns become products of their own.
  while (p.y->uses)
    if (!replace_columns(&p, columns_of(&p, p.y->uses->user), d)) return false;
  // The product is dead now.
  if (p.view) op_erase(p.view);
  if (p.add) {
    Op *bias = p.add->in[p.add->in[0].value == p.linear->out[0] ? 1 : 0].value->def;
    op_erase(p.add);
    if (!value_used(bias->out[0])) op_erase(bias);
  }
  op_erase(p.linear);
  return true;
}
