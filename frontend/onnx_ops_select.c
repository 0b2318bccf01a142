// Operators with lengths that depend on data: indices up to a bound, with a count
// (onnx_counted.c).  Of constants the count is known, and the results are sliced to it.
//
//     NonZero(x)         nonzero of x != 0, flattened; an index becomes a tuple by division
//     Compress(x, c)     gather of x by nonzero of c
//     Unique(x)          sorted by top_k; an element that differs from the one before begins a group
//     NonMaxSuppression  nms of each class, then nonzero of its valid places

#include <math.h>

#include "frontend/onnx_walk.h"

// Returns the indices of the true elements of a vector, and their count.
static Value *true_elements(Node *n, Value *flags, int64_t bound, Value **count) {
  *count = NULL;
  if (!node_small(n, bound)) return NULL;
  Value *index = build_op(n->b, OP_nonzero, IN(flags), ATTRS(a_i("k", bound)));
  *count = index ? index->def->out[1] : NULL;
  return index;
}

static Value *vector(Node *n, Value *x) {
  return x ? build_reshape(n->b, x, 1, (int64_t[]){type_count(x->type)}) : NULL;
}

// Rows of x along its first dimension.
static Value *take(Node *n, Value *x, Value *index) {
  return build_op(n->b, OP_gather, IN(x, index), ATTRS(a_i("axis", 0)));
}

// Returns the mask that is expanded along the last dimensions of x, all others being the same;
// NULL: x is not expanded.
static Value *expanded_from(const Value *x) {
  const Op *op = x->def;
  if (!op || op->kind != OP_broadcast) return NULL;
  Value *from = op->in[0].value;
  const Type *t = x->type, *tf = from->type;
  if (tf->ndim != t->ndim || type_count(tf) == 0) return NULL;
  int same = 0;
  while (same < t->ndim && tf->dim[same] == t->dim[same])
    same++;
  return product(tf->dim, same, tf->ndim) == 1 ? from : NULL;
}

// -- NonZero and Compress --------------------------------------------------------------------

bool import_non_zero(Node *n) {
  Value *x = n->in[0], *count;
  const Type *t = x->type;
  int ndim = t->ndim ? t->ndim : 1;
  // An initializer is a constant here, as a setting is.
  const Tensor *initial;
  if (!x->def && x->role == ROLE_weight && x->init && x->init->length <= 1 << 20) {
    if (!node_setting(n, 0, "operand", &initial)) return false;
    x = build_constant(n->b, initial->type, initial->data);
  }
  // An expanded mask selects whole rows: all elements of each row that it selects.
  const Counted *c = node_counted(n, x);
  Value *rows = c ? NULL : expanded_from(x);
  int64_t all = type_count(t), inside = rows && all ? all / type_count(rows->type) : 1;
  int64_t bound = node_bound(n, all);
  if (bound % inside) {
    rows = NULL;
    inside = 1;
  }
  Value *flags = node_cast(n, rows ? rows : x, DT_bool);
  // Padding selects nothing.
  if (c) flags = node_binary(n, OP_and, flags, node_valid(n, c, t));
  while (flags && flags->def && flags->def->kind == OP_reshape)
    flags = flags->def->in[0].value;
  flags = vector(n, flags);
  if (!flags) return false;
  Value *index = true_elements(n, flags, bound / inside, &count), *part[MAX_NDIM];
  if (inside > 1 && index) {
    int64_t dim[2] = {bound / inside, inside};
    Value *from = node_mul(n, index, node_like(n, index, (double)inside));
    from = from ? build_reshape(n->b, from, 2, (int64_t[]){dim[0], 1}) : NULL;
    index = vector(n, node_add(n, from, node_count_up(n, inside)));
    count = node_mul(n, count, node_scalar(n, DT_i64, (double)inside));
    if (!index) return false;
  }
  // A row for each dimension.
  for (int i = 0; i < ndim; i++) {
    Value *at = index;
    int64_t inner = t->ndim ? product(t->dim, i + 1, t->ndim) : 1;
    if (inner > 1) at = node_div(n, at, node_like(n, at, (double)inner));
    if (i > 0) at = node_binary(n, OP_mod, at, node_like(n, at, (double)t->dim[i]));
    part[i] = at ? build_reshape(n->b, at, 2, (int64_t[]){1, bound}) : NULL;
    if (!part[i]) return false;
  }
  Value *y = ndim == 1 ? part[0] : build_op(n->b, OP_concat, part, ndim, ATTRS(a_i("axis", 0)));
  n->out[0] = node_counted_result(n, y, 1, count);
  if (n->out[0] == y && y)
    vec_push(n->a, &n->im->selections, (Selection){.result = y, .x = n->in[0], .index = index});
  return true;
}

// The elements, along an axis or of all of them, at which the condition is true.
bool import_compress(Node *n) {
  Value *x = n->in[0], *condition = n->in[1], *count;
  int axis = 0;
  if (node_attr(n, "axis")) {
    if (!node_axis(n, node_int(n, "axis", 0), x->type->ndim, &axis)) return false;
  } else {
    x = vector(n, x);
  }
  // Elements beyond the condition are left out.
  int64_t length = type_count(condition->type);
  if (condition->type->ndim != 1 || length > x->type->dim[axis])
    return node_fail(n, "its condition is %s, for %lld elements", type_text(n->a, condition->type),
                     (long long)x->type->dim[axis]);
  Value *index = true_elements(n, node_cast(n, condition, DT_bool), node_bound(n, length), &count);
  // A known index is a constant of the length of the result.
  index = node_counted_result(n, index, 0, count);
  Value *y = build_op(n->b, OP_gather, IN(x, index), ATTRS(a_i("axis", axis)));
  n->out[0] = node_known(n, count) ? y : node_counted_result(n, y, axis, count);
  return true;
}

// -- Unique ----------------------------------------------------------------------------------

// The most columns of rows that are compared: each is a sort.
enum { MOST_COLUMNS = 256 };

static Value *constant_ones(Node *n, int64_t count) {
  return build_fill(n->b, DT_i64, 1, &count, 1);
}

// Returns the permutation that sorts the rows of x (n, columns): by the last column first, each
// sort being stable.
static Value *sorting(Node *n, Value *x) {
  int64_t count = x->type->dim[0], columns = x->type->dim[1];
  Value *order = node_count_up(n, count);
  for (int64_t k = columns - 1; k >= 0 && order; k--) {
    Value *column = vector(n, node_part(n, x, 1, k, 1));
    if (k < columns - 1) column = column ? take(n, column, order) : NULL;
    Value *next =
        column ? build_op(n->b, OP_top_k, IN(column), ATTRS(a_i("k", count), a_b("smallest", true)))
               : NULL;
    order = !next ? NULL : k < columns - 1 ? take(n, order, next) : next;
  }
  return order;
}

// Returns whether each row of x (n, columns) differs from the one before; the first one does.
static Value *begins(Node *n, Value *x) {
  int64_t count = x->type->dim[0], columns = x->type->dim[1];
  Value *first = build_fill(n->b, DT_bool, 1, (int64_t[]){1}, 1);
  if (count == 1) return first;
  Value *differs = node_unary(
      n, OP_not,
      node_binary(n, OP_equal, node_part(n, x, 0, 0, count - 1), node_part(n, x, 0, 1, count - 1)));
  Value *number = differs ? build_reduce_sum(n->b, build_cast(n->b, differs, DT_i32),
                                             (int64_t[]){1}, columns > 0, false)
                          : NULL;
  return number ? build_op(n->b, OP_concat, IN(first, node_cast(n, number, DT_bool)),
                           ATTRS(a_i("axis", 0)))
                : NULL;
}

// Returns i64[n], zero but for `rows` at `index`.
static Value *placed(Node *n, int64_t count, Value *index, Value *rows) {
  Value *zero = build_fill(n->b, DT_i64, 1, &count, 0);
  return build_op(n->b, OP_scatter, IN(zero, index, rows), NO_ATTRS);
}

// Results: the distinct elements, or slices along an axis, sorted or in the order of their first
// occurrence; the first occurrence of each; the place of each element among them; their numbers.
bool import_unique(Node *n) {
  Value *x = n->in[0];
  int axis = 0, ndim = x->type->ndim;
  bool has_axis = node_attr(n, "axis") != NULL, sorted = node_int(n, "sorted", 1) != 0;
  if (has_axis && !node_axis(n, node_int(n, "axis", 0), ndim, &axis)) return false;
  // The axis becomes the first dimension, and all others one.
  int64_t perm[MAX_NDIM], back[MAX_NDIM];
  for (int i = 0; i < ndim; i++) {
    perm[i] = i == 0 ? axis : i - (i <= axis);
    back[perm[i]] = i;
  }
  Value *slices = has_axis ? build_transpose(n->b, x, perm) : vector(n, x);
  if (!slices) return false;
  int64_t count = slices->type->dim[0];
  int64_t columns = product(slices->type->dim, 1, slices->type->ndim);
  if (count == 0 || columns == 0) return node_fail(n, "its operand has no elements");
  if (columns > MOST_COLUMNS)
    return node_fail(n, "slices of %lld elements are not supported; the limit is %d",
                     (long long)columns, MOST_COLUMNS);
  int64_t bound = node_bound(n, count);
  Value *table = build_reshape(n->b, slices, 2, (int64_t[]){count, columns});
  if (table && dtype_class[table->type->dtype] == 'B') table = build_cast(n->b, table, DT_i32);

  // In sorted order: the first slices of groups, and the group of each slice.
  Value *order = table ? sorting(n, table) : NULL, *number;
  Value *new = order ? begins(n, take(n, table, order)) : NULL;
  if (!new) return false;
  Value *group = build_op(n->b, OP_cumsum, IN(build_cast(n->b, new, DT_i64)), NO_ATTRS);
  group = node_sub(n, group, constant_ones(n, count));
  Value *inverse = placed(n, count, order, group);
  Value *at = true_elements(n, new, bound, &number);
  Value *first = at ? take(n, order, at) : NULL; // the sorts are stable
  if (!sorted && inverse && first) {
    // A group has the place of its first slice among all first slices.
    Value *all = build_op(n->b, OP_nonzero, IN(new), ATTRS(a_i("k", count)));
    Value *firsts = all ? take(n, order, all) : NULL;
    Value *is_first = placed(n, count, order, build_cast(n->b, new, DT_i64));
    Value *rank = is_first ? build_op(n->b, OP_cumsum, IN(is_first), NO_ATTRS) : NULL;
    rank = node_sub(n, rank, constant_ones(n, count));
    if (!rank || !firsts) return false;
    inverse = take(n, rank, take(n, firsts, inverse));
    first = true_elements(n, node_cast(n, is_first, DT_bool), bound, &number);
  }
  if (!first || !inverse) return false;
  first = node_counted_result(n, first, 0, number);
  bool known = node_known(n, number) != NULL;
  Value *y = first ? take(n, slices, first) : NULL;
  if (has_axis && y) y = build_transpose(n->b, y, back);
  n->out[0] = known ? y : node_counted_result(n, y, has_axis ? axis : 0, number);
  n->out[1] = first;
  n->out[2] = inverse;
  if (node_wants(n, 3)) {
    Value *zero = build_fill(n->b, DT_i64, 1, &count, 0);
    Value *times =
        build_op(n->b, OP_scatter_add, IN(zero, inverse, constant_ones(n, count)), NO_ATTRS);
    times = node_part(n, times, 0, 0, bound);
    n->out[3] = node_counted_result(n, times, 0, number);
  }
  return true;
}

// -- NonMaxSuppression -----------------------------------------------------------------------

// boxes (b, n, 4), scores (b, c, n) -> (batch, class, box) of each selected box.
bool import_non_max_suppression(Node *n) {
  Value *boxes = n->in[0], *scores = n->in[1], *number;
  const Type *tb = boxes->type, *ts = scores->type;
  int64_t most;
  double iou, score;
  if (!node_setting_int(n, 2, "max_output_boxes_per_class", 0, &most)) return false;
  if (!node_setting_float(n, 3, "iou_threshold", 0, &iou)) return false;
  if (!node_setting_float(n, 4, "score_threshold", 0, &score)) return false;
  bool center = node_int(n, "center_point_box", 0) != 0;
  if (tb->ndim != 3 || ts->ndim != 3 || tb->dim[0] != ts->dim[0] || tb->dim[1] != ts->dim[2] ||
      tb->dim[2] != 4)
    return node_fail(n, "its operands are %s and %s", type_text(n->a, tb), type_text(n->a, ts));
  int64_t classes = ts->dim[1], k = most < 0 ? 0 : most < tb->dim[1] ? most : tb->dim[1];
  int64_t places = ts->dim[0] * classes * k;
  if (places == 0) {
    n->out[0] = build_fill(n->b, DT_i64, 2, (int64_t[]){0, 3}, 0);
    return true;
  }
  Value *index = build_op(n->b, OP_nms, IN(boxes, scores),
                          ATTRS(a_i("k", k), a_f("iou", iou), a_f("score", score),
                                a_b("scored", node_in(n, 4) != NULL), a_b("center", center)));
  if (!index) return false;
  // The places before the count of their class.
  Value *place = build_reshape(n->b, node_count_up(n, k), 3, (int64_t[]){1, 1, k});
  Value *count = build_reshape(n->b, index->def->out[1], 3, (int64_t[]){ts->dim[0], classes, 1});
  Value *valid = vector(n, node_binary(n, OP_less, place, count));
  if (!valid) return false;
  int64_t bound = node_bound(n, places);
  Value *at = true_elements(n, valid, bound, &number);
  if (!at) return false;
  Value *row = node_div(n, at, node_like(n, at, (double)k));
  Value *part[3] = {node_div(n, row, node_like(n, at, (double)classes)),
                    node_binary(n, OP_mod, row, node_like(n, at, (double)classes)),
                    take(n, vector(n, index), at)};
  for (int i = 0; i < 3; i++) {
    if (part[i]) part[i] = build_reshape(n->b, part[i], 2, (int64_t[]){bound, 1});
    if (!part[i]) return false;
  }
  Value *y = build_op(n->b, OP_concat, part, 3, ATTRS(a_i("axis", 1)));
  n->out[0] = node_counted_result(n, y, 0, number);
  return true;
}
