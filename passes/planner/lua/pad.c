// See pad.h.
//
// The weight gets its longer type first; then its readers are changed one by one, and the readers
// of results that became longer.

#include "pad.h"

#include "base/vec.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"
#include "ir/split.h"

typedef struct Padding {
  int64_t from, to; // the lengths
  Arena *scratch;
  Diag *d;
} Padding;

enum { MAX_READ = 8 }; // operands of an elementwise op

typedef struct Reader {
  Op *op; // NULL: the result `index` of the graph
  int index;
} Reader;

typedef Vec(Reader) Readers;

// The readers of a value, which may change while they are visited.
static Readers readers_of(Padding *p, const Value *v) {
  Readers all = {0};
  for_each_use(u, v)
    vec_push(p->scratch, &all, ((Reader){u->user, u->index}));
  return all;
}

static Builder builder_at(const Padding *p, const Value *v, Op *reader) {
  Origin origin = reader ? op_origin(reader) : op_origin(v->def);
  return (Builder){.g = v->graph, .at = reader, .origin = origin, .d = p->d};
}

// Gives a reader of the padded value one without padding.
static bool read_slice(const Padding *p, Value *v, int dim, Reader r) {
  Builder b = builder_at(p, v, r.op);
  Value *slice = build_slice(&b, v, dim, 0, p->from);
  if (!slice) return false;
  if (r.op)
    op_set_in(r.op, r.index, slice);
  else
    graph_set_result(v->graph, r.index, slice);
  return true;
}

static void pad_weight(const Padding *p, Value *w, int dim) {
  const Type *t = w->type;
  int64_t shape[MAX_NDIM];
  for (int i = 0; i < t->ndim; i++)
    shape[i] = i == dim ? p->to : t->dim[i];
  w->as = t;
  w->type = type_new(w->graph->module, t->dtype, t->ndim, shape);
}

static bool is_plain_weight(const Value *v) {
  return !v->def && v->role == ROLE_weight && !v->as;
}

// -- Elementwise ops -----------------------------------------------------------------------------

// Whether a broadcast repeats a bias, which can be padded, along the other dimensions.
static bool repeats_bias(const Padding *p, const Op *op) {
  const Value *x = op->in[0].value;
  const Type *t = x->type;
  return t->ndim == 1 && t->dim[0] == p->from && is_plain_weight(x) && !x->uses->next;
}

// Whether one element of the operand is repeated along the last dimension.
static bool repeats_one(const Value *v) {
  if (!v->def || v->def->kind != OP_broadcast) return v->def && v->def->kind == OP_fill;
  const Type *t = v->def->in[0].value->type;
  return t->ndim == 0 || t->dim[t->ndim - 1] == 1;
}

static bool may_pad_operand(const Padding *p, const Value *v, const Value *padded) {
  if (v == padded || repeats_one(v)) return true;
  return v->def && v->def->kind == OP_broadcast && repeats_bias(p, v->def);
}

// The op on `padded`, which replaces `v`; NULL after an error.
static Value *build_padded(Padding *p, Op *op, const Value *v, Value *padded) {
  Builder b = builder_at(p, padded, op);
  Value **in = arena_array(p->scratch, Value *, op->n_in);
  for (int i = 0; i < op->n_in; i++) {
    Value *x = op->in[i].value, *from = x == v ? NULL : x->def->n_in ? x->def->in[0].value : NULL;
    const Type *to = padded->type;
    if (x == v)
      in[i] = padded;
    else if (!from)
      in[i] = build_fill(&b, x->type->dtype, to->ndim, to->dim, op_attr(x->def, "value")->f);
    else {
      if (from->type->ndim && from->type->dim[from->type->ndim - 1] == p->from)
        pad_weight(p, from, 0);
      in[i] = build_broadcast(&b, from, to->ndim, to->dim);
    }
  }
  int n_attrs;
  op_attr_specs(op->kind, &n_attrs);
  return build_op(&b, op->kind, in, op->n_in, (Attrs){op->attrs, n_attrs});
}

// Whether the op computes padding from padding, and the gradient of padding, which is 0, is still 0
// through it.  log has an infinite derivative at 0.
static bool is_elementwise(const Padding *p, const Op *op, const Value *v) {
  bool finite = (op_info[op->kind].traits & FINITE) ||
                (op->kind == OP_div && op->in[0].value == v && repeats_one(op->in[1].value));
  bool is = finite && op->n_out == 1 && op->n_in <= MAX_READ;
  for (int i = 0; i < op->n_in && is; i++)
    is = type_same_dims(op->in[i].value->type, v->type) && may_pad_operand(p, op->in[i].value, v);
  return is;
}

// -- Readers -------------------------------------------------------------------------------------

static bool reads_class(const Op *op, int i) {
  return i == 0 && (op->kind == OP_cross_entropy || op->kind == OP_nll) && !attr_i(op, "classes");
}

// A slice along other dimensions, or a reshape of them: the same of the padded value.  NULL after
// an error, or if it is neither.
static Value *build_view(const Padding *p, Op *op, Value *padded) {
  const Type *x = op->in[0].value->type, *t = op->out[0]->type;
  bool keeps = t->ndim > 0 && x->dim[x->ndim - 1] == p->from && t->dim[t->ndim - 1] == p->from;
  if (!keeps || (op->kind != OP_slice && op->kind != OP_reshape)) return NULL;
  int64_t shape[MAX_NDIM];
  for (int i = 0; i < t->ndim; i++)
    shape[i] = i == t->ndim - 1 ? p->to : t->dim[i];
  Builder b = builder_at(p, padded, op);
  Attr a = a_list("shape", shape, t->ndim);
  if (op->kind == OP_reshape) return build_op(&b, OP_reshape, IN(padded), ATTRS(a));
  return build_op(&b, OP_slice, IN(padded),
                  ATTRS(*op_attr(op, "starts"), *op_attr(op, "steps"), a));
}

// Erases an op that nothing reads any more, and what only it read.
static void erase_dead(Op *op) {
  Op *made[MAX_READ];
  int n = 0;
  for (int i = 0; i < op->n_in && i < MAX_READ; i++)
    if (op->in[i].value->def) made[n++] = op->in[i].value->def;
  op_erase(op);
  for (int i = 0; i < n; i++) {
    bool again = false;
    for (int k = 0; k < i; k++)
      again |= made[k] == made[i];
    bool repeats = made[i]->kind == OP_broadcast || made[i]->kind == OP_fill;
    if (!again && repeats && !value_used(made[i]->out[0])) erase_dead(made[i]);
  }
}

// Replaces `v`, with the vocabulary in its last dimension, by `padded` for its readers.
static bool pad_readers(Padding *p, Value *v, Value *padded) {
  Readers all = readers_of(p, v);
  for (int i = 0; i < all.n; i++) {
    Op *op = all.at[i].op;
    bool again = false; // an op that reads it twice is gone after the first time
    for (int k = 0; k < i; k++)
      again |= op && all.at[k].op == op;
    if (again) continue;
    Value *longer = NULL;
    if (op && reads_class(op, all.at[i].index)) {
      op_set_in(op, 0, padded);
      op_set_attr(op, a_i("classes", p->from));
      continue;
    }
    if (op && is_elementwise(p, op, v))
      longer = build_padded(p, op, v, padded);
    else if (op)
      longer = build_view(p, op, padded);
    if (longer) {
      if (!pad_readers(p, op->out[0], longer)) return false;
      erase_dead(op);
    } else if (!read_slice(p, padded, v->type->ndim - 1, all.at[i])) {
      return false;
    }
  }
  return true;
}

// Whether operand `i` is a weight of which this dimension becomes the columns of the product.
static bool is_columns(const Op *op, int i, int dim) {
  return op->kind == OP_linear && i == 1 && op->in[1].value->type->ndim == 2 &&
         dim == (attr_i(op, "trans") ? 0 : 1);
}

static bool is_table(const Op *op, int i, int dim) {
  return op->kind == OP_gather && i == 0 && attr_i(op, "axis") == dim && attr_i(op, "batch") == 0 &&
         !attr_i(op, "rows");
}

static bool pad_all(Padding *p, Value *w, int dim) {
  Readers all = readers_of(p, w);
  pad_weight(p, w, dim);
  for (int i = 0; i < all.n; i++) {
    Reader r = all.at[i];
    if (is_table(r.op, r.index, dim)) {
      op_set_attr(r.op, a_i("rows", p->from));
    } else if (is_columns(r.op, r.index, dim)) {
      Builder b = builder_at(p, w, r.op);
      Value *longer =
          build_op(&b, OP_linear, IN(r.op->in[0].value, w), ATTRS(*op_attr(r.op, "trans")));
      if (!longer || !pad_readers(p, r.op->out[0], longer)) return false;
      op_erase(r.op);
    } else if (!read_slice(p, w, dim, r)) {
      return false;
    }
  }
  return true;
}

bool pad_vocabulary(Op *op, int64_t multiple, const char **why, Diag *d) {
  int i = op->kind == OP_gather ? 0 : 1;
  Value *w = i < op->n_in ? op->in[i].value : NULL;
  int dim = op->kind == OP_linear && !attr_i(op, "trans") ? 1 : 0;
  *why = NULL;
  if (!w || (!is_table(op, i, dim) && !is_columns(op, i, dim)))
    *why = "it is no lookup in a table and no product with a weight";
  else if (w->type->dim[dim] % multiple == 0)
    return true;
  else if (!is_plain_weight(w))
    *why = "its table is no weight as the model has it";
  for (const Use *u = !*why ? w->uses : NULL; u; u = u->next)
    if (!u->user) *why = "its table is a result of the model";
  if (*why) return true;
  Arena *scratch = arena_new();
  Padding p = {.from = w->type->dim[dim], .scratch = scratch, .d = d};
  p.to = (p.from + multiple - 1) / multiple * multiple;
  bool ok = pad_all(&p, w, dim);
  arena_free(scratch);
  return ok;
}
