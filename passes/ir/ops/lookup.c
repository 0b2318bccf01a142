// Rows selected by index, and the adjoint.
//
//     gather f32[10,6], i64[4,3] axis=0     v b, A B -> A B b       each index, its row
//     gather_back i64[4,3], f32[4,3,6]      A B, A B b -> v b       rows added to their sources
//     gather f32[4,10,6], i64[4,3] batch=1  a v c, a B -> a B c     each index, its row of its own table
//
// Split along the indexed dimension, v, gather gives partial sums: each index is a row of one shard
// of the table, and gets zeros from the other shards.  So the element type must have a sum;
// otherwise v is whole.  gather_back computes its shard of the rows from all indices.  Split along
// the indices, gather_back gives partial sums.
//
// Lookups of the rows in `padding` give no gradient.

#include "ir/ops/lookup.h"

#include "ir/ops/index.h"
#include "ir/ops/reference.h"

void lookup_add_table(Einsum *e, int ndim, int axis, const char *rows) {
  for (int i = 0; i < ndim; i++)
    if (i == axis)
      einsum_add(e, " %s", rows);
    else
      einsum_add(e, " %c", letter_free(i));
}

static void add_places(Einsum *e, int batch, int index_ndim, const char *mark) {
  for (int i = batch; i < index_ndim; i++)
    einsum_add(e, " %c%s", letter_in(i), mark);
}

void lookup_add_indices(Einsum *e, int batch, int ndim, const char *mark) {
  for (int i = 0; i < batch; i++)
    einsum_add(e, " %c", letter_free(i));
  add_places(e, batch, ndim, mark);
}

void lookup_add_rows(Einsum *e, int ndim, int axis, int batch, int index_ndim, const char *mark) {
  for (int i = 0; i < ndim; i++)
    if (i == axis)
      add_places(e, batch, index_ndim, mark);
    else
      einsum_add(e, " %c", letter_free(i));
}

bool lookup_batch_fits(const Op *op, int index_ndim, Diag *d) {
  int64_t batch = attr_i(op, "batch");
  if (batch == 0 || (batch == attr_i(op, "axis") && batch > 0 && batch <= index_ndim)) return true;
  return diag_error(d, op->loc, "%s: a batch of %lld dimensions, with axis %lld and indices of %d",
                    op_info[op->kind].name, (long long)batch, (long long)attr_i(op, "axis"),
                    index_ndim);
}

bool gather_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[0].value->type->ndim, index_ndim = op->in[1].value->type->ndim;
  if (!axis_fits(op, ndim, d) || !lookup_batch_fits(op, index_ndim, d)) return false;
  int axis = (int)attr_i(op, "axis"), batch = (int)attr_i(op, "batch");
  // Rows of `padding` count from the start.
  for (int i = 0; i < attr_n(op, "padding"); i++)
    if (attr_list(op, "padding")[i] < 0)
      return diag_error(d, op->loc, "gather: padding is row %lld",
                        (long long)attr_list(op, "padding")[i]);
  // v b, A B -> A B b
  Einsum e = {0};
  lookup_add_table(&e, ndim, axis, ranks_add(op->in[0].value->type->dtype) ? "v" : "v^");
  einsum_add(&e, ",");
  lookup_add_indices(&e, batch, index_ndim, "");
  einsum_add(&e, "->");
  lookup_add_rows(&e, ndim, axis, batch, index_ndim, "");
  return dims_parse(dims, op, e.text, d);
}

static bool back_dims(const Op *op, int axis, int batch, Dims *dims, Diag *d) {
  const int64_t *shape = attr_list(op, "shape");
  int ndim = attr_n(op, "shape"), index_ndim = op->in[0].value->type->ndim;
  // A B, A B b -> v b
  Einsum e = {0};
  lookup_add_indices(&e, batch, index_ndim, "");
  einsum_add(&e, ",");
  lookup_add_rows(&e, ndim, axis, batch, index_ndim, "");
  einsum_add(&e, "->");
  lookup_add_table(&e, ndim, axis, "v");
  if (!dims_parse(dims, op, e.text, d)) return false;
  // All dimensions except the indexed one are also dimensions of dy.
  for (int i = 0; i < ndim; i++) {
    int known = dims_find(dims, letter_free(i));
    if (i != axis && dims->letter[known].size != shape[i])
      return diag_error(d, op->loc, "%s: dimension %d is %lld in the shape and %lld in the addend",
                        op_info[op->kind].name, i, (long long)shape[i],
                        (long long)dims->letter[known].size);
  }
  dims_size(dims, 'v', shape[axis]);
  return true;
}

bool gather_back_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = attr_n(op, "shape"), index_ndim = op->in[0].value->type->ndim;
  if (!axis_fits(op, ndim, d) || !lookup_batch_fits(op, index_ndim, d)) return false;
  return back_dims(op, (int)attr_i(op, "axis"), (int)attr_i(op, "batch"), dims, d);
}

bool gather_back_accumulate_rule(const Op *op, Dims *dims, Diag *d) {
  if (attr_n(op, "shape") == 0)
    return diag_error(d, op->loc, "gather_back_accumulate: a number has no rows");
  return back_dims(op, 0, 0, dims, d);
}

bool gather_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *index = op->in[1].value, *dy = dout[0];
  const Type *x = op->in[0].value->type, *t = index->type, *y = dy->type;
  // dy with zeros for indices in `padding`, as torch.nn.Embedding defines its padding_idx.
  int from = (int)(attr_i(op, "axis") - attr_i(op, "batch"));
  int64_t ones[MAX_NDIM];
  for (int i = 0; i < y->ndim; i++)
    ones[i] = i >= from && i < from + t->ndim ? y->dim[i] : 1;
  for (int i = 0; i < attr_n(op, "padding"); i++) {
    double row = (double)attr_list(op, "padding")[i];
    Value *padded =
        build_op(b, OP_equal, IN(index, build_fill(b, t->dtype, t->ndim, t->dim, row)), NO_ATTRS);
    padded = build_broadcast(b, build_reshape(b, padded, y->ndim, ones), y->ndim, y->dim);
    Value *zero = build_fill(b, y->dtype, y->ndim, y->dim, 0);
    dy = build_where(b, padded, zero, dy);
  }
  // The rows of a 16-bit table are summed in f32.
  din[0] = build_op(b, OP_gather_back, IN(index, dy),
                    ATTRS(*op_attr(op, "axis"), a_list("shape", x->dim, x->ndim),
                          a_i("batch", attr_i(op, "batch")), *op_attr(op, "rows")));
  din[0] = build_cast(b, din[0], x->dtype);
  return !b->failed;
}

// The adjoint of a sum of rows: each row gets that of its sum.
bool gather_back_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *rows = lookup_gather(b, op, dout[0], op->in[0].value);
  if (rows) din[1] = build_cast(b, rows, op->in[1].value->type->dtype);
  return !b->failed;
}

Value *lookup_gather(Builder *b, const Op *op, Value *table, Value *index) {
  return build_op(b, OP_gather, IN(table, index),
                  ATTRS(*op_attr(op, "axis"), a_i("batch", attr_i(op, "batch")),
                        a_i("rows", op_has_attr(op, "rows") ? attr_i(op, "rows") : 0)));
}

Lookup lookup_of(const Op *op, const Type *table, const Type *index, const Box *box) {
  // An accumulation is over a time axis, of rows along dimension 0.
  bool adds = op->kind == OP_gather_back_accumulate;
  int axis = adds ? 0 : (int)attr_i(op, "axis");
  AxisView v = axis_view(table, axis);
  Lookup l = {.outer = v.outer, .n = v.n, .inner = v.inner, .m = type_count(index)};
  l.own = !adds && attr_i(op, "batch") > 0;
  // m counts the indices of one table.
  if (l.own && l.outer > 0) l.m /= l.outer;
  l.from = box_start(box, axis);
  l.all = op_unpadded(op, box_whole(box, table, axis));
  return l;
}

bool lookup_row(const Op *op, const Tensor *index, int64_t i, const Lookup *l, int64_t *out,
                Diag *d) {
  int64_t at = tensor_i(index, i), row = at < 0 ? at + l->all : at;
  *out = row >= l->from && row < l->from + l->n ? row - l->from : -1;
  if (row >= 0 && row < l->all) return true;
  return diag_error(d, op->loc, "%s: index %lld at element %lld is not one of %lld to %lld",
                    op_info[op->kind].name, (long long)at, (long long)i, (long long)-l->all,
                    (long long)(l->all - 1));
}

// `out` comes zeroed; rows of other shards stay zero.
bool gather_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  Lookup l = lookup_of(op, in[0].type, in[1].type, box);
  for (int64_t i = 0; i < l.outer; i++)
    for (int64_t j = 0; j < l.m; j++) {
      int64_t at;
      if (!lookup_row(op, &in[1], l.own ? i * l.m + j : j, &l, &at, d)) return false;
      // One row of the table.
      for (int64_t k = 0; at >= 0 && k < l.inner; k++)
        element_copy(out, (i * l.m + j) * l.inner + k, &in[0], (i * l.n + at) * l.inner + k);
    }
  return true;
}

// Sums are kept in double and rounded once.
bool gather_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  Lookup l = lookup_of(op, out->type, in[0].type, box);
  Arena *scratch = arena_new();
  int64_t n = type_count(out->type);
  double *sum = arena_array(scratch, double, n);
  bool ok = true;
  for (int64_t i = 0; ok && i < l.outer; i++)
    for (int64_t j = 0; ok && j < l.m; j++) {
      int64_t at;
      ok = lookup_row(op, &in[0], l.own ? i * l.m + j : j, &l, &at, d);
      // An index may occur several times.
      for (int64_t k = 0; ok && at >= 0 && k < l.inner; k++)
        sum[(i * l.n + at) * l.inner + k] += tensor_f(&in[1], (i * l.m + j) * l.inner + k);
    }
  // Rows without an index are zero.
  for (int64_t i = 0; i < n; i++)
    tensor_set_f(out, i, sum[i]);
  arena_free(scratch);
  return ok;
}
