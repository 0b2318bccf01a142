// Channels last: convolutions, pooling and batch normalisation on n spatial c instead of n c
// spatial.
//
//     %y = conv %x, %w                          %x1 = transpose %x perm=[0,2,3,1]
//     %r = relu %y                              %y1 = conv %x1, %w channels_last=true
//     %z = conv %r, %v                  =>      %r1 = relu %y1
//                                               %z1 = conv %r1, %v channels_last=true
//                                               %z  = transpose %z1 perm=[0,3,1,2]
//
// The kernels run faster in this layout: their inner loop is over channels, which become
// contiguous.
//
// One walk in order.  An image op is rebuilt on the transposed operands, and its result is the
// transpose back of the new op's result.  An op that accepts any order of dimensions (elementwise,
// reductions, concat, …) follows if that leaves no more transposes than before.  A transpose of a
// transpose back is replaced by the original; dead transposes are removed at the end.
//
// Weights and their gradients stay as they are: o c spatial, in either form.

#include <stdlib.h>
#include <string.h>

#include "ir/analysis/rewrite.h"
#include "pass.h"

// Describes an op that can run channels last: the operands and results that are images, as bits;
// whether it prefers the channel last, or only follows; and the attributes that are permuted with
// the dimensions of an image.
typedef struct ImageOp {
  OpKind kind;
  bool wants;
  unsigned in, out;
  const char *axis; // an axis, or a list of axes; NULL: none
  const char *each; // names of attributes with one number per dimension
} ImageOp;

#define ALL ~0u

static const ImageOp image_ops[] = {
    {OP_conv, true, 1, 1, NULL, ""},
    {OP_conv_back_x, true, 2, 1, NULL, "shape"}, // w, dy
    {OP_conv_back_w, true, 3, 0, NULL, ""},      // x, dy; the shape is that of the weight
    {OP_max_pool, true, 1, 3, NULL, "shape"},
    {OP_max_pool_back, true, 3, 1, NULL, "shape"},
    {OP_avg_pool, true, 1, 1, NULL, "shape"},
    {OP_avg_pool_back, true, 1, 1, NULL, "shape"},
    {OP_batch_norm, false, 1, 1, "axis", ""},
    {OP_batch_norm_train, false, 1, 1, "axis", ""},
    {OP_batch_norm_mean, false, 1, 0, "axis", ""},
    {OP_batch_norm_var, false, 1, 0, "axis", ""},
    {OP_batch_norm_sums, false, 1 | 1 << 3, 0, "axis", ""}, // x, mean, var, dy
    {OP_batch_norm_back, false, 1 | 1 << 4, 1, "axis", ""}, // x, g, mean, var, dy, dg, db
    {OP_softmax, false, ALL, 1, "axis", ""},
    {OP_softmax_back, false, ALL, 1, "axis", ""},
    {OP_log_softmax, false, ALL, 1, "axis", ""},
    {OP_log_softmax_back, false, ALL, 1, "axis", ""},
    {OP_cumsum, false, 1, 1, "axis", ""},
    {OP_resample, false, 1, 1, "axis", ""},
    {OP_resample_back, false, 1 << 2, 1, "axis", ""}, // first, weight, dy
    {OP_cumprod, false, 1, 1, "axis", ""},
    {OP_concat, false, ALL, 1, "axis", ""},
    {OP_pad, false, 1, 1, NULL, "low shape"},
    {OP_slice, false, 1, 1, NULL, "starts steps shape"},
    {OP_slice_back, false, 1, 1, NULL, "starts steps shape"},
    {OP_reduce_sum, false, 1, 1, "axes", ""},
    {OP_reduce_max, false, 1, 1, "axes", ""},
    {OP_reduce_min, false, 1, 1, "axes", ""},
    {OP_reduce_prod, false, 1, 1, "axes", ""},
};

typedef struct Images {
  Builder b;
  Value **last; // by id: the same value with the channel last, once built
  uint32_t n_values;
  int moved;
} Images;

// The permutations from n c spatial to n spatial c, and back.
static void to_last(int ndim, int64_t *perm) {
  for (int i = 0; i < ndim; i++)
    perm[i] = i == 0 ? 0 : i == ndim - 1 ? 1 : i + 1;
}
static void to_first(int ndim, int64_t *perm) {
  for (int i = 0; i < ndim; i++)
    perm[i] = i == 0 ? 0 : i == 1 ? ndim - 1 : i - 1;
}

// The channels-last value that `v` is the transpose back of, or NULL.
static Value *was_last(const Value *v) {
  int64_t perm[MAX_NDIM];
  const Op *op = made_by(v, OP_transpose);
  if (!op || v->type->ndim < 3) return NULL;
  to_first(v->type->ndim, perm);
  return has_perm(op, perm) ? op->in[0].value : NULL;
}

// Whether the channel can be put last in `v` without transposing all of its elements.
static bool is_cheap(const Value *v) {
  double value;
  if (is_fill(v, &value)) return true;
  const Op *op = made_by(v, OP_broadcast);
  return op && type_count(op->in[0].value->type) < type_count(v->type);
}

// Returns `v` with the channel last.  It is built once.
static Value *last(Images *c, Value *v) {
  Value *made = was_last(v);
  if (!made && v->id < c->n_values) made = c->last[v->id];
  if (made) return made;
  Builder *b = &c->b;
  int64_t dim[MAX_NDIM], perm[MAX_NDIM], ones[MAX_NDIM];
  int ndim = v->type->ndim;
  double value;
  to_last(ndim, perm);
  for (int i = 0; i < ndim; i++)
    dim[i] = v->type->dim[perm[i]];
  if (is_fill(v, &value)) {
    made = build_fill(b, v->type->dtype, ndim, dim, value);
  } else if (!is_cheap(v)) {
    made = build_transpose(b, v, perm);
  } else {
    // Of a broadcast the operand is transposed, since it is smaller.  Leading dimensions of 1 give
    // it as many dimensions as the result.
    Value *x = v->def->in[0].value;
    int over = ndim - x->type->ndim;
    for (int i = 0; i < ndim; i++)
      ones[i] = i < over ? 1 : x->type->dim[i - over];
    x = build_transposed(b, build_reshape(b, x, ndim, ones), perm);
    made = build_broadcast(b, x, ndim, dim);
  }
  if (v->id < c->n_values) c->last[v->id] = made;
  return made;
}

static bool image_op(const Op *op, ImageOp *out) {
  *out = (ImageOp){op->kind, false, ALL, 1, NULL, ""};
  // An elementwise op accepts any order: all operands and results are images.
  if (op_info[op->kind].formula) return true;
  for (size_t i = 0; i < sizeof image_ops / sizeof *image_ops; i++)
    if (image_ops[i].kind == op->kind) {
      *out = image_ops[i];
      return true;
    }
  return false;
}

static bool drops(const Op *op) {
  return op_has_attr(op, "keep") && !attr_i(op, "keep");
}

// Whether `op` becomes channels last: it prefers it, or follows at no cost.
static bool is_moved(const Images *c, const Op *op, const ImageOp *row) {
  if (op_has_attr(op, "channels_last") && attr_i(op, "channels_last")) return false;
  if (drops(op)) {
    // The dimensions that are left keep their order if the channel or all spatial ones are dropped.
    bool channel = false;
    int spatial = 0;
    for (int i = 0; i < attr_n(op, "axes"); i++) {
      channel |= attr_list(op, "axes")[i] == 1;
      spatial += attr_list(op, "axes")[i] > 1;
    }
    if (!channel && spatial != op->in[0].value->type->ndim - 2) return false;
  }
  int free = 0, costly = 0, ndim = -1;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (!(row->in >> (i < 31 ? i : 31) & 1)) continue;
    if (v->type->ndim < 3 || (ndim >= 0 && v->type->ndim != ndim)) return false;
    ndim = v->type->ndim;
    // An image is a value that this walk built.  The model's own transposes do not tell: the
    // [0,2,1] after the patches of a vision transformer is its own inverse.
    bool image = v->id < c->n_values ? c->last[v->id] != NULL : was_last(v) != NULL;
    if (image)
      free++;
    else if (!is_cheap(v) && !was_last(v))
      costly++;
  }
  if (row->wants) return true;
  return free > 0 && (costly == 0 || costly < free);
}

static int64_t moved_axis(int64_t axis, int ndim) {
  return axis == 0 ? 0 : axis == 1 ? ndim - 1 : axis - 1;
}

static int compare(const void *x, const void *y) {
  int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  return (a > b) - (a < b);
}

// Whether `name` is one of the words of `text`.
static bool has_word(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *at = text; *at; at += strcspn(at, " "), at += strspn(at, " "))
    if (strcspn(at, " ") == n && strncmp(at, name, n) == 0) return true;
  return false;
}

// Rebuilds `op` on images with the channel last.
static bool move(Images *c, Op *op, const ImageOp *row) {
  Arena *a = arena_new();
  Value **in = arena_array(a, Value *, op->n_in);
  int n, ndim = 0;
  c->b.at = op;
  c->b.origin = op_origin(op);
  for (int i = 0; i < op->n_in; i++) {
    in[i] = op->in[i].value;
    if (!(row->in >> (i < 31 ? i : 31) & 1)) continue;
    ndim = in[i]->type->ndim;
    in[i] = last(c, in[i]);
  }
  // The new op has the same attributes.  Axes are renumbered; lists of axes stay sorted; lists with
  // a number per dimension are permuted.
  int64_t perm[MAX_NDIM];
  to_last(ndim, perm);
  op_attr_specs(op->kind, &n);
  Attr *attrs = arena_array(a, Attr, n);
  for (int i = 0; i < n; i++) {
    Attr *attr = &attrs[i];
    *attr = op->attrs[i];
    bool axis = row->axis && str_equal(attr->name, row->axis);
    if (row->wants && str_equal(attr->name, "channels_last")) attr->i = true;
    if (axis && attr->kind == 'i') attr->i = moved_axis(attr->i, ndim);
    if (attr->kind != 'I' || !(axis || has_word(row->each, attr->name))) continue;
    const int64_t *was = attr->list.at;
    int64_t *at = arena_copy(a, was, (size_t)attr->list.n * sizeof *at);
    for (int k = 0; axis && k < attr->list.n; k++)
      at[k] = moved_axis(was[k], ndim);
    if (axis) qsort(at, (size_t)attr->list.n, sizeof *at, compare);
    for (int k = 0; !axis && k < ndim; k++)
      at[k] = was[perm[k]];
    attr->list.at = at;
  }
  Value *made = build_op(&c->b, op->kind, in, op->n_in, (Attrs){attrs, n});
  arena_free(a);
  if (!made) return false;
  // Readers get the transpose back; those that become channels last skip it.
  to_first(ndim, perm);
  for (int i = 0; i < op->n_out; i++) {
    Value *v = made->def->out[i];
    bool image = (row->out >> i & 1) && !drops(op);
    // The channels-last form of %y is named %y.last: %y itself may be removed.
    if (image && op->out[i]->name)
      value_set_name(v, str_format(v->graph->module->arena, "%s.last", op->out[i]->name));
    value_replace_uses(op->out[i], image ? build_transpose(&c->b, v, perm) : v);
  }
  op_erase(op);
  c->moved++;
  return !c->b.failed;
}

bool pass_channels_last(Module *m, const PassOptions *o, Diag *d) {
  for_each_graph(g, m) {
    Images c = {.b = {.g = g, .d = d}};
    ImageOp row;
    // A graph in which no op prefers the channel last stays as it is.
    bool wanted = false;
    for_each_op(op, g)
      wanted |= image_op(op, &row) && row.wants;
    if (wanted) {
      graph_renumber(g);
      c.n_values = g->n_values;
      c.last = arena_array(opt_scratch(o), Value *, g->n_values);
      for_each_op_safe(op, g)
        if (image_op(op, &row) && is_moved(&c, op, &row) && !move(&c, op, &row)) return false;
      drop_dead(g);
    }
    opt_stat(o, c.moved, "ops with the channel last");
  }
  return true;
}
