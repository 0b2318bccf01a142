// Dimensions of a length that depends on data: a bound, and a count.
//
//     NonZero(mask) -> i        i64[2,bound], of which the first `count` columns are the result
//     GatherND(x, i) -> y       f32[bound,8], a counted value: dimension 0 has `count` rows
//     ReduceMean(y) -> z        the sum of these rows over their number
//
// The count is an i64 of the graph.  Rows from the count on are padding.  An operator with a row in
// this table treats them as its row says; every other operator with a counted operand is an error
// at its node, so that padding is never taken for data:
//
//     elementwise, products    work on each row apart: the result is counted, too
//     reductions               over the counted dimension see the neutral element in the padding;
//                              a mean divides by the count
//     lookups by counted indices        have counted results
//     scatters by counted indices       write the first row again in place of padding, or combine
//                                       rows with the neutral element
//     Shape, Size              have the count.  Reshape, Expand, Slice, ConstantOfShape and Range
//                              take the length of their result from it
//
// Two counts are the same if they are the same ops of the same values: a mask that an exporter
// wrote twice is one mask.

#include <stdlib.h>
#include <string.h>

#include "frontend/onnx_walk.h"

// -- The counts of values --------------------------------------------------------------------

const Counted *node_counted(const Node *n, const Value *v) {
  const Import *im = n->im;
  if (!v || (int)v->id >= im->counted.n || !im->counted.at[v->id].count) return NULL;
  return &im->counted.at[v->id];
}

bool node_count(Node *n, Value *v, int axis, Value *count) {
  if (!v || !count) return false;
  Import *im = n->im;
  const Counted *had = node_counted(n, v);
  if (had && (had->axis != axis || had->count != count))
    return node_fail(n, "its result has two dimensions whose lengths depend on data");
  while (im->counted.n <= (int)v->id)
    vec_push(im->a, &im->counted, (Counted){0});
  im->counted.at[v->id] = (Counted){count, axis, v->type->dim[axis]};
  return true;
}

Value *node_valid(Node *n, const Counted *c, const Type *t) {
  int64_t dim[MAX_NDIM];
  for (int i = 0; i < t->ndim; i++)
    dim[i] = i == c->axis ? t->dim[i] : 1;
  Value *at = node_count_up(n, t->dim[c->axis]);
  if (!at) return NULL;
  Value *valid = node_binary(n, OP_less, build_reshape(n->b, at, t->ndim, dim), c->count);
  return valid ? build_broadcast(n->b, valid, t->ndim, t->dim) : NULL;
}

Value *node_pad_with(Node *n, Value *x, double by) {
  const Counted *c = node_counted(n, x);
  if (!c) return x;
  Counted is = *c; // the list may move
  Value *valid = node_valid(n, &is, x->type);
  Value *y = valid ? build_where(n->b, valid, x, node_like(n, x, by)) : NULL;
  return y && node_count(n, y, is.axis, is.count) ? y : NULL;
}

enum { MOST_COMPARED = 10000 };

// Whether two values are the same ops of the same values.  `io_left`: comparisons left.
static bool same_value(const Value *x, const Value *y, int *io_left) {
  if (x == y) return true;
  if (!x->def || !y->def || x->def->kind != y->def->kind || x->type != y->type) return false;
  const Op *p = x->def, *q = y->def;
  if (p->callee || p->n_in != q->n_in || !op_same_attrs(p, q) || --*io_left < 0) return false;
  for (int i = 0; i < p->n_out; i++)
    if ((p->out[i] == x) != (q->out[i] == y)) return false;
  for (int i = 0; i < p->n_in; i++)
    if (!same_value(p->in[i].value, q->in[i].value, io_left)) return false;
  return true;
}

bool node_same(const Value *x, const Value *y) {
  int left = MOST_COMPARED;
  return same_value(x, y, &left);
}

const Selection *node_selection(const Node *n, const Value *tuples) {
  const Op *op = tuples->def;
  if (!op || op->kind != OP_transpose || tuples->type->ndim != 2) return NULL;
  const Value *from = op->in[0].value;
  for (int i = 0; i < n->im->selections.n; i++)
    if (n->im->selections.at[i].result == from) return &n->im->selections.at[i];
  return NULL;
}

static bool same_count(const Counted *x, const Counted *y) {
  int left = MOST_COMPARED;
  return same_value(x->count, y->count, &left);
}

// -- Lengths in shapes -----------------------------------------------------------------------

static Value *of_op(const Op *op) {
  return op->in[0].value;
}

// Returns the value with element *io_at of v in its first place, an operand of the shape
// arithmetic; NULL at its end.
static const Value *source(const Node *n, const Value *v, int64_t *io_at) {
  const Op *op = v->def;
  if (!op || v->type->ndim > 1) return NULL;
  const Tensor *index = op->kind == OP_gather ? node_known(n, op->in[1].value) : NULL;
  switch ((int)op->kind) {
  case OP_cast:
  case OP_reshape: return of_op(op);
  case OP_slice:
    *io_at = attr_list(op, "starts")[0] + *io_at * attr_list(op, "steps")[0];
    return of_op(op);
  case OP_gather:
    if (!index || of_op(op)->type->ndim != 1) return NULL;
    *io_at = tensor_i(index, *io_at);
    if (*io_at < 0) *io_at += of_op(op)->type->dim[0];
    return of_op(op);
  case OP_concat:
    for (int i = 0; i < op->n_in; i++) {
      int64_t length = type_count(op->in[i].value->type);
      if (*io_at < length) return op->in[i].value;
      *io_at -= length;
    }
    return NULL;
  default: return NULL;
  }
}

const Value *node_unreshaped(const Value *v) {
  while (v->def && v->def->kind == OP_reshape)
    v = of_op(v->def);
  return v;
}

// The mask of which v is the number of true elements, a sum over all of it; NULL: none.
static const Value *counted_mask(const Value *v) {
  const Op *op = v->def;
  if (!op || op->kind != OP_reduce_sum || attr_n(op, "axes") != of_op(op)->type->ndim) return NULL;
  const Value *x = of_op(op);
  while (x->def && (x->def->kind == OP_cast || x->def->kind == OP_reshape) &&
         x->type->dtype != DT_bool)
    x = of_op(x->def);
  return x->type->dtype == DT_bool ? node_unreshaped(x) : NULL;
}

// Whether v is the count, by the same ops or as the sum of the same mask.
static bool is_count(const Value *count, const Value *v) {
  int left = MOST_COMPARED;
  if (same_value(count, v, &left)) return true;
  const Value *mask = counted_mask(v);
  return mask && count->def && count->def->kind == OP_nonzero &&
         same_value(node_unreshaped(of_op(count->def)), mask, &left);
}

bool node_length(const Node *n, const Value *v, int64_t at, Length *out) {
  const Import *im = n->im;
  for (; v; v = source(n, v, &at)) {
    const Tensor *known = node_known(n, v);
    if (known) {
      *out = (Length){tensor_i(known, at), NULL};
      return true;
    }
    // The count of a value; its dimension is the bound.
    for (int i = 0; type_count(v->type) == 1 && i < im->counted.n; i++) {
      const Counted *c = &im->counted.at[i];
      if (!c->count || !is_count(c->count, v)) continue;
      *out = (Length){c->bound, c->count};
      return true;
    }
  }
  return false;
}

bool node_lengths(Node *n, int i, const char *what, Ints *out, Value **count, int *axis) {
  const Value *v = n->in[i];
  *count = NULL;
  bool given, counted = v && !node_known(n, v) && v->type->ndim == 1 && v->def;
  int64_t *at = arena_array(n->a, int64_t, counted ? v->type->dim[0] + 1 : 1);
  for (int k = 0; counted && k < (int)v->type->dim[0]; k++) {
    Length length;
    counted = node_length(n, v, k, &length) && !(length.count && *count);
    if (!counted) break;
    at[k] = length.number;
    if (!length.count) continue;
    *count = length.count;
    *axis = k;
  }
  // Not a shape of such a value: it must be known.
  if (!counted) {
    *count = NULL;
    return node_ints(n, i, what, out, &given);
  }
  *out = (Ints){(int)v->type->dim[0], at};
  return true;
}

// -- The bound -------------------------------------------------------------------------------

bool onnx_check_bounds(Import *im) {
  im->bound_used = arena_array(im->a, bool, im->o->n_bounds + 1);
  bool ok = true;
  for (int i = 0; i < im->o->n_bounds; i++) {
    const char *text = im->o->bounds[i], *equals = strrchr(text, '=');
    char *end = NULL;
    long long n = equals ? strtoll(equals + 1, &end, 10) : 0;
    if (!equals || equals == text || !equals[1] || *end || n < 1 || n > INT32_MAX)
      ok = diag_error(im->d, NULL, "--bound wants NAME=SIZE, not '%s'", text);
  }
  return ok;
}

bool onnx_check_bounds_used(Import *im) {
  for (int i = 0; i < im->o->n_bounds; i++) {
    if (im->bound_used[i]) continue;
    // A node that failed has no result.
    if (im->problems.all.n) continue;
    diag_problem(im->d, PROBLEM_no_match, im->file->loc,
                 "--bound '%s' names no result of a length that depends on data", im->o->bounds[i]);
    diag_hint(im->d,
              "such are results of NonZero, Compress, Unique and NonMaxSuppression, named by "
              "the node or the result");
    return false;
  }
  return true;
}

int64_t node_bound(Node *n, int64_t most) {
  const OnnxOptions *o = n->im->o;
  int64_t bound = most;
  const char *node = onnx_node_name(n->a, n->scope, n->proto);
  // The last match counts.
  for (int i = 0; i < o->n_bounds; i++) {
    const char *equals = strrchr(o->bounds[i], '=');
    const char *glob = str_copy_n(n->a, o->bounds[i], (size_t)(equals - o->bounds[i]));
    bool named = str_glob(glob, node);
    for (int k = 0; k < n->n_out && !named; k++)
      named = *onnx_str(n->proto->output[k]) && str_glob(glob, onnx_str(n->proto->output[k]));
    if (!named) continue;
    n->im->bound_used[i] = true;
    bound = strtoll(equals + 1, NULL, 10);
  }
  return bound < most ? bound : most;
}

Value *node_counted_result(Node *n, Value *v, int axis, Value *count) {
  if (!v || !count) return NULL;
  onnx_evaluate_new(n->im, n);
  const Tensor *known = node_known(n, count);
  if (known) return node_part(n, v, axis, 0, tensor_i(known, 0));
  return node_count(n, v, axis, count) ? v : NULL;
}

// -- The rules -------------------------------------------------------------------------------

enum { NONE = -1, FAILED = -2 };

static int refuse(Node *n, const char *why) {
  node_fail_hint(n,
                 "reduce the selected rows before this operator, or select them after it; "
                 "masking with Where instead of selecting keeps every length fixed",
                 "%s", why);
  return FAILED;
}

static int refuse_axis(Node *n) {
  return refuse(n, "it works along a dimension whose length depends on data");
}

// A rule returns the counted axis of the results, or NONE, when the node has been imported.  `c`
// is the count of the first counted operand.
typedef int Rule(Node *n, Counted *c);

// The axis of result 0 of operands that broadcast; `skip`: an axis along which they may differ.
static int broadcast_axis(Node *n, int ndim, int from, int to) {
  int axis = NONE;
  for (int i = from; i < to; i++) {
    const Counted *c = node_counted(n, n->in[i]);
    if (!c) continue;
    int at = ndim - n->in[i]->type->ndim + c->axis;
    if (axis != NONE && at != axis)
      return refuse(n, "its operands are counted along two dimensions");
    axis = at;
  }
  // Others are the same for every row.
  for (int i = from; i < to; i++) {
    if (!n->in[i] || node_counted(n, n->in[i])) continue;
    const Type *t = n->in[i]->type;
    int at = axis - (ndim - t->ndim);
    if (axis != NONE && at >= 0 && t->dim[at] != 1)
      return refuse(n, "an operand has a fixed length where another's depends on data");
  }
  return axis;
}

static int elementwise(Node *n, Counted *c) {
  (void)c;
  return n->out[0] ? broadcast_axis(n, n->out[0]->type->ndim, 0, n->n_in) : FAILED;
}

// Operand 0 has the elements; of the others only the type is read.
static int first_only(Node *n, Counted *c) {
  (void)c;
  const Counted *x = node_counted(n, n->in[0]);
  return x ? x->axis : NONE;
}

// The attribute `axis`, from the start.
static int axis_of(Node *n, int otherwise, int ndim) {
  int64_t axis = node_int(n, "axis", otherwise);
  return (int)(axis < 0 ? axis + ndim : axis);
}

static int softmax(Node *n, Counted *c) {
  int ndim = node_ndim(n, 0), axis = axis_of(n, n->opset < 13 ? 1 : -1, ndim);
  bool within = n->opset < 13 ? c->axis >= axis : c->axis == axis;
  return within ? refuse_axis(n) : c->axis;
}

// The last dimensions, from the attribute on.
static int normalization(Node *n, Counted *c) {
  return c->axis >= axis_of(n, -1, node_ndim(n, 0)) ? refuse_axis(n) : c->axis;
}

static int along_last(Node *n, Counted *c) {
  return c->axis == axis_of(n, -1, node_ndim(n, 0)) ? refuse_axis(n) : c->axis;
}

static int arg(Node *n, Counted *c) {
  int axis = axis_of(n, 0, node_ndim(n, 0));
  if (axis == c->axis) return refuse_axis(n);
  return c->axis - (axis < c->axis && !node_int(n, "keepdims", 1));
}

// Padding comes last, so running sums from the start do not see it.
static int scan(Node *n, Counted *c) {
  int64_t axis;
  if (!node_setting_int(n, 1, "axis", 0, &axis)) return FAILED;
  bool along = (axis < 0 ? axis + node_ndim(n, 0) : axis) == c->axis;
  return along && node_int(n, "reverse", 0) ? refuse_axis(n) : c->axis;
}

static int one_hot(Node *n, Counted *c) {
  int axis = axis_of(n, -1, node_ndim(n, 0) + 1);
  return c->axis + (axis <= c->axis);
}

static int matmul(Node *n, Counted *c) {
  int ndim = node_ndim(n, 0);
  if (c->axis == ndim - 1) return refuse_axis(n);
  const Type *w = n->in[1]->type;
  int at = c->axis - (ndim - w->ndim); // of a batch dimension
  if (c->axis < ndim - 2 && at >= 0 && w->dim[at] != 1)
    return refuse(n, "an operand has a fixed length where another's depends on data");
  return n->out[0]->type->ndim - (ndim - c->axis) + (w->ndim == 1);
}

static int gemm(Node *n, Counted *c) {
  if (c->axis != (node_int(n, "transA", 0) ? 1 : 0)) return refuse_axis(n);
  const Value *bias = node_in(n, 2);
  if (bias && bias->type->ndim == 2 && bias->type->dim[0] != 1)
    return refuse(n, "an operand has a fixed length where another's depends on data");
  return 0;
}

static int reduced(Node *n, Counted *c) {
  bool reduces[MAX_NDIM], keep;
  if (!node_reduced(n, reduces, &keep)) return FAILED;
  if (reduces[c->axis]) return NONE;
  int axis = c->axis;
  for (int i = 0; i < c->axis && !keep; i++)
    axis -= reduces[i];
  return axis;
}

static int reduced_rows(Node *n, Counted *c) {
  int axis = reduced(n, c);
  return axis == NONE ? refuse_axis(n) : axis;
}

static int loss(Node *n, Counted *c) {
  int at = c->axis == 0 ? 0 : c->axis - 1;
  const Counted *labels = node_counted(n, n->in[1]);
  if (c->axis == 1) return refuse_axis(n);
  if (!node_counted(n, n->in[0]) || !labels || labels->axis != at)
    return refuse(n, "its scores and labels are not counted along the same dimension");
  if (n->n_out > 1 && n->out[1] && !node_count(n, n->out[1], c->axis, c->count)) return FAILED;
  return str_equal(node_str(n, "reduction", "mean"), "none") ? at : NONE;
}

// -- Shapes ----------------------------------------------------------------------------------

static int transpose(Node *n, Counted *c) {
  Ints perm;
  if (!node_list(n, "perm", &perm)) return node_ndim(n, 0) - 1 - c->axis;
  for (int i = 0; i < perm.n; i++)
    if (perm.at[i] == c->axis) return i;
  return FAILED;
}

static int squeeze(Node *n, Counted *c) {
  const Type *x = n->in[0]->type;
  Ints axes;
  bool given, drop[MAX_NDIM] = {false};
  if (!node_ints(n, 1, "axes", &axes, &given)) return FAILED;
  for (int i = 0; i < axes.n; i++)
    drop[axes.at[i] < 0 ? axes.at[i] + x->ndim : axes.at[i]] = true;
  for (int i = 0; i < x->ndim && !given; i++)
    drop[i] = x->dim[i] == 1;
  if (drop[c->axis]) return refuse_axis(n);
  int axis = c->axis;
  for (int i = 0; i < c->axis; i++)
    axis -= drop[i];
  return axis;
}

static int unsqueeze(Node *n, Counted *c) {
  Ints axes;
  bool given, added[MAX_NDIM] = {false};
  int ndim = n->out[0]->type->ndim;
  if (!node_ints(n, 1, "axes", &axes, &given)) return FAILED;
  for (int i = 0; i < axes.n; i++)
    added[axes.at[i] < 0 ? axes.at[i] + ndim : axes.at[i]] = true;
  for (int i = 0, k = 0; i < ndim; i++)
    if (!added[i] && k++ == c->axis) return i;
  return FAILED;
}

// The counted dimension stays, or takes in all dimensions after it that `rest` leaves.
static int regrouped(Node *n, Counted *c, const Ints *shape) {
  const Type *x = n->in[0]->type, *y = n->out[0]->type;
  int64_t before = product(x->dim, 0, c->axis), after = product(x->dim, c->axis + 1, x->ndim);
  int64_t bound = x->dim[c->axis];
  int found = NONE, n_found = 0;
  for (int i = 0; i < y->ndim; i++)
    if (product(y->dim, 0, i) == before && y->dim[i] == bound &&
        product(y->dim, i + 1, y->ndim) == after) {
      if (type_same_dims(x, y) ? i == c->axis : true) {
        found = i;
        n_found++;
      }
    }
  if (n_found == 0 && before == 1 && bound > 0) {
    for (int i = 0; i < y->ndim && found == NONE; i++) {
      int64_t rest = product(y->dim, i + 1, y->ndim);
      if (product(y->dim, 0, i) != 1 || rest == 0 || after % rest != 0 || y->dim[i] == 1) continue;
      found = i;
      n_found = 1;
      const int64_t each = after / rest; // elements of the joined dimensions
      c->count = node_mul(n, c->count, node_scalar(n, DT_i64, (double)each));
    }
  }
  if (n_found != 1) return refuse(n, "it joins or splits a dimension whose length depends on data");
  // A length that the model writes out is not one that depends on data.
  if (shape && shape->at[found] > 0)
    return refuse(n, "its shape has a number where the length depends on data, and -1 is needed");
  return found;
}

static int reshape(Node *n, Counted *c) {
  Ints shape;
  Value *count;
  int at;
  if (!node_lengths(n, 1, "shape", &shape, &count, &at)) return FAILED;
  if (!count) return regrouped(n, c, &shape);
  // The model writes the length as the count: it must be that of the result.
  int axis = regrouped(n, c, NULL);
  if (axis == FAILED || (axis == at && same_count(c, &(Counted){count, 0, 0}))) return axis;
  return refuse(n, "it joins or splits a dimension whose length depends on data");
}

static int flatten(Node *n, Counted *c) {
  return regrouped(n, c, NULL);
}

static int expand(Node *n, Counted *c) {
  Ints shape;
  Value *count;
  int place;
  if (!node_lengths(n, 1, "shape", &shape, &count, &place)) return FAILED;
  int ndim = n->out[0]->type->ndim, axis = ndim - node_ndim(n, 0) + c->axis;
  int at = axis - (ndim - shape.n);
  if (count && place == at && same_count(c, &(Counted){count, 0, 0})) return axis;
  if (count || (at >= 0 && shape.at[at] != 1))
    return refuse(n, "its shape has a number where the length depends on data, and 1 is needed");
  return axis;
}

static int slice(Node *n, Counted *c) {
  Ints begin, end, axes, by;
  Value *count;
  bool given, has_axes, has_steps;
  int at;
  if (!node_ints(n, 1, "starts", &begin, &given) ||
      !node_lengths(n, 2, "ends", &end, &count, &at) ||
      !node_ints(n, 3, "axes", &axes, &has_axes) || !node_ints(n, 4, "steps", &by, &has_steps))
    return FAILED;
  for (int i = 0; i < begin.n; i++) {
    int64_t axis = has_axes ? axes.at[i] : i;
    if ((axis < 0 ? axis + node_ndim(n, 0) : axis) != c->axis) continue;
    // As PyTorch writes x[:], and x[:n] with the length n.
    bool all = count && i == at ? same_count(c, &(Counted){count, 0, 0}) : end.at[i] >= INT32_MAX;
    if (begin.at[i] != 0 || !all || (has_steps && by.at[i] != 1)) return refuse_axis(n);
    count = NULL;
  }
  // A part of another dimension would be a second length that depends on data.
  return count ? refuse_axis(n) : c->axis;
}

static int split(Node *n, Counted *c) {
  return axis_of(n, 0, node_ndim(n, 0)) == c->axis ? refuse_axis(n) : c->axis;
}

static int concat(Node *n, Counted *c) {
  int ndim = n->out[0]->type->ndim;
  if (axis_of(n, 1, ndim) == c->axis) return refuse_axis(n);
  return broadcast_axis(n, ndim, 0, n->n_in);
}

static int shape(Node *n, Counted *c) {
  const Type *x = n->in[0]->type;
  int64_t from = node_int(n, "start", 0);
  from = from < 0 ? from + x->ndim : from;
  from = from < 0 ? 0 : from;
  int64_t at = c->axis - from, length = n->out[0]->type->dim[0];
  if (at < 0 || at >= length) return NONE;
  Value *part[3];
  int parts = 0;
  if (at > 0) part[parts++] = node_part(n, n->out[0], 0, 0, at);
  part[parts++] = build_reshape(n->b, c->count, 1, (int64_t[]){1});
  if (at + 1 < length) part[parts++] = node_part(n, n->out[0], 0, at + 1, length - at - 1);
  n->out[0] = parts == 1 ? part[0] : build_op(n->b, OP_concat, part, parts, ATTRS(a_i("axis", 0)));
  return NONE;
}

static int size(Node *n, Counted *c) {
  const Type *x = n->in[0]->type;
  int64_t others = product(x->dim, 0, c->axis) * product(x->dim, c->axis + 1, x->ndim);
  n->out[0] = node_mul(n, c->count, node_scalar(n, DT_i64, (double)others));
  return NONE;
}

// -- Lookups ---------------------------------------------------------------------------------

static int gather(Node *n, Counted *c) {
  int axis = axis_of(n, 0, node_ndim(n, 0)), at = node_ndim(n, 1);
  const Counted *x = node_counted(n, n->in[0]), *index = node_counted(n, n->in[1]);
  if (x && index) return refuse(n, "both of its operands have lengths that depend on data");
  if (index) return axis + c->axis;
  if (axis == c->axis) return refuse_axis(n);
  return c->axis < axis ? c->axis : c->axis - 1 + at;
}

static int gather_elements(Node *n, Counted *c) {
  const Counted *x = node_counted(n, n->in[0]), *index = node_counted(n, n->in[1]);
  int axis = axis_of(n, 0, node_ndim(n, 0));
  if (!index || (x && (x->axis != index->axis || x->axis == axis))) return refuse_axis(n);
  return c->axis;
}

static int gather_nd(Node *n, Counted *c) {
  if (c->axis >= node_ndim(n, 1) - 1 || c->axis < node_int(n, "batch_dims", 0))
    return refuse_axis(n);
  return c->axis;
}

static int scattered(Node *n, Counted *c) {
  if (!str_equal(node_str(n, "reduction", "none"), "none") || !n->out[0]) return NONE;
  // Without a selected row nothing is written.
  Value *any = node_binary(n, OP_greater, c->count, node_like(n, c->count, 0));
  const Type *t = n->out[0]->type;
  if (any)
    n->out[0] = build_where(n->b, build_broadcast(n->b, any, t->ndim, t->dim), n->out[0], n->in[0]);
  return NONE;
}

// -- Padding before the import ---------------------------------------------------------------

// Puts the neutral element into the padding of operand 0, if the counted dimension is reduced.
static bool pad_reduced(Node *n, double by) {
  bool reduces[MAX_NDIM], keep;
  const Counted *c = node_counted(n, n->in[0]);
  if (!c || !node_reduced(n, reduces, &keep)) return false;
  if (reduces[c->axis]) n->in[0] = node_pad_with(n, n->in[0], by);
  return n->in[0] != NULL;
}

static bool pad_zero(Node *n) {
  return pad_reduced(n, 0);
}

static bool pad_one(Node *n) {
  return pad_reduced(n, 1);
}

static bool pad_low(Node *n) {
  return pad_reduced(n, node_extreme(n->in[0]->type->dtype, false));
}

static bool pad_high(Node *n) {
  return pad_reduced(n, node_extreme(n->in[0]->type->dtype, true));
}

// Padding writes the last row once more, after which no other row of its index comes, or combines a
// row with the neutral element.  The copies pass no gradient: that row's would count several times.
static bool pad_scattered(Node *n) {
  const Counted *index = node_counted(n, n->in[1]), *u = node_counted(n, n->in[2]);
  const char *how = node_str(n, "reduction", "none");
  DType dtype = n->in[2]->type->dtype;
  if (!index || !u || index->axis != u->axis || node_counted(n, n->in[0])) {
    refuse(n, "its indices and updates are not counted along the same dimension");
    return false;
  }
  if (str_equal(n->op, "ScatterND") && index->axis >= node_ndim(n, 1) - 1) {
    refuse_axis(n);
    return false;
  }
  Counted c = *index;
  // Indices of the padding are in range.
  Value *at = node_count_up(n, c.bound), *rows = n->in[2];
  Value *last = node_clip(n, node_offset(n, c.count, -1), 0, (double)c.bound);
  Value *row = at && last ? node_binary(n, OP_min, at, last) : NULL;
  Attrs along = ATTRS(a_i("axis", c.axis));
  n->in[1] = row ? build_op(n->b, OP_gather, IN(n->in[1], row), along) : NULL;
  if (str_equal(how, "none")) {
    Value *copies = row ? build_op(n->b, OP_gather, IN(rows, row), along) : NULL;
    if (copies && dtype_class[dtype] == 'F') copies = node_unary(n, OP_detach, copies);
    Value *whole = copies ? node_valid(n, &c, rows->type) : NULL;
    n->in[2] = whole ? build_where(n->b, whole, rows, copies) : NULL;
  } else {
    double neutral = str_equal(how, "mul")   ? 1
                     : str_equal(how, "max") ? node_extreme(dtype, false)
                     : str_equal(how, "min") ? node_extreme(dtype, true)
                                             : 0;
    n->in[2] = node_pad_with(n, rows, neutral);
  }
  if (!n->in[1] || !n->in[2] || !node_count(n, n->in[1], c.axis, c.count)) return false;
  return node_counted(n, n->in[2]) || node_count(n, n->in[2], c.axis, c.count);
}

// -- The table -------------------------------------------------------------------------------

enum { FIRST = 1, SECOND = 2, ALL = -1 };

static const struct {
  const char *name;
  int operands;            // bits of those that may be counted
  bool (*before)(Node *n); // NULL: none
  Rule *rule;
} rows[] = {
    {"IsInf", ALL, NULL, elementwise},
    {"LeakyRelu", ALL, NULL, elementwise},
    {"Elu", ALL, NULL, elementwise},
    {"Selu", ALL, NULL, elementwise},
    {"Celu", ALL, NULL, elementwise},
    {"HardSigmoid", ALL, NULL, elementwise},
    {"Gelu", ALL, NULL, elementwise},
    {"Swish", ALL, NULL, elementwise},
    {"Mish", ALL, NULL, elementwise},
    {"Softsign", ALL, NULL, elementwise},
    {"ThresholdedRelu", ALL, NULL, elementwise},
    {"Shrink", ALL, NULL, elementwise},
    {"PRelu", ALL, NULL, elementwise},
    {"Tan", ALL, NULL, elementwise},
    {"Sinh", ALL, NULL, elementwise},
    {"Cosh", ALL, NULL, elementwise},
    {"Clip", ALL, NULL, elementwise},
    {"Pow", ALL, NULL, elementwise},
    {"Mod", ALL, NULL, elementwise},
    {"Min", ALL, NULL, elementwise},
    {"Max", ALL, NULL, elementwise},
    {"Sum", ALL, NULL, elementwise},
    {"Mean", ALL, NULL, elementwise},
    {"Where", ALL, NULL, elementwise},
    {"Cast", ALL, NULL, elementwise},
    {"CastLike", ALL, NULL, first_only},
    {"Identity", ALL, NULL, elementwise},
    {"Dropout", FIRST, NULL, elementwise},
    {"BitShift", ALL, NULL, elementwise},
    {"MatMul", FIRST, NULL, matmul},
    {"Gemm", FIRST, NULL, gemm},
    {"Softmax", FIRST, NULL, softmax},
    {"LogSoftmax", FIRST, NULL, softmax},
    {"Hardmax", FIRST, NULL, softmax},
    {"LayerNormalization", FIRST, NULL, normalization},
    {"RMSNormalization", FIRST, NULL, normalization},
    {"LpNormalization", FIRST, NULL, along_last},
    {"TopK", FIRST, NULL, along_last},
    {"ArgMax", FIRST, NULL, arg},
    {"ArgMin", FIRST, NULL, arg},
    {"CumSum", FIRST, NULL, scan},
    {"CumProd", FIRST, NULL, scan},
    {"OneHot", FIRST, NULL, one_hot},
    {"ReduceSum", FIRST, pad_zero, reduced},
    {"ReduceMean", FIRST, pad_zero, reduced},
    {"ReduceSumSquare", FIRST, pad_zero, reduced},
    {"ReduceL1", FIRST, pad_zero, reduced},
    {"ReduceL2", FIRST, pad_zero, reduced},
    {"ReduceLogSum", FIRST, pad_zero, reduced},
    {"ReduceProd", FIRST, pad_one, reduced},
    {"ReduceMax", FIRST, pad_low, reduced},
    {"ReduceMin", FIRST, pad_high, reduced},
    {"ReduceLogSumExp", FIRST, NULL, reduced_rows},
    {"SoftmaxCrossEntropyLoss", FIRST | SECOND, NULL, loss},
    {"NegativeLogLikelihoodLoss", FIRST | SECOND, NULL, loss},
    {"Transpose", FIRST, NULL, transpose},
    {"Squeeze", FIRST, NULL, squeeze},
    {"Unsqueeze", FIRST, NULL, unsqueeze},
    {"Reshape", FIRST, NULL, reshape},
    {"Flatten", FIRST, NULL, flatten},
    {"Expand", FIRST, NULL, expand},
    {"Slice", FIRST, NULL, slice},
    {"Split", FIRST, NULL, split},
    {"Concat", ALL, NULL, concat},
    {"Shape", FIRST, NULL, shape},
    {"Size", FIRST, NULL, size},
    {"Gather", FIRST | SECOND, NULL, gather},
    {"GatherElements", FIRST | SECOND, NULL, gather_elements},
    {"GatherND", SECOND, NULL, gather_nd},
    {"ScatterND", ALL, pad_scattered, scattered},
    {"ScatterElements", ALL, pad_scattered, scattered},
    // It selects among the rows up to the count.
    {"NonZero", FIRST, NULL, NULL},
};

static int find_row(const Node *n) {
  for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++)
    if (str_equal(rows[i].name, n->op) && !*onnx_str(n->proto->domain)) return i;
  return -1;
}

bool onnx_counted_before(Node *n, Counted *out) {
  *out = (Counted){0};
  int row = find_row(n);
  // Rows UNARY and BINARY of onnx_ops.def are elementwise.
  int operands = n->kind != N_OPS ? ALL : row < 0 ? 0 : rows[row].operands;
  for (int i = 0; i < n->n_in; i++) {
    const Counted *c = node_counted(n, n->in[i]);
    if (!c) continue;
    if (i > 30 ? operands != ALL : !(operands >> i & 1))
      return refuse(n, str_format(n->a,
                                  "operand %d has a length that depends on data (at most %lld), "
                                  "which is not supported here",
                                  i, (long long)n->in[i]->type->dim[c->axis])) != FAILED;
    if (!out->count)
      *out = *c;
    else if (!same_count(out, c))
      return refuse(n, "its operands have lengths that depend on different data") != FAILED;
  }
  return !out->count || row < 0 || !rows[row].before || rows[row].before(n);
}

bool onnx_counted_after(Node *n, const Counted *of) {
  int row = find_row(n);
  Rule *rule = n->kind != N_OPS ? elementwise : row < 0 ? NULL : rows[row].rule;
  if (!of->count || !rule) return true;
  Counted c = *of;
  int axis = rule(n, &c);
  if (axis == FAILED || n->b->failed) return false;
  for (int i = 0; axis != NONE && i < n->n_out; i++)
    if (n->out[i] && (i == 0 || !node_counted(n, n->out[i])) &&
        !node_count(n, n->out[i], axis, c.count))
      return false;
  return true;
}
