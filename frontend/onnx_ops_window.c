// Operators over windows: convolution, its transpose, pooling, and their inverses MaxUnpool and
// Col2Im.  Attributes in all spellings become explicit strides, pads and dilations.

#include <string.h>

#include "frontend/onnx_window.h"

static bool read_list(Node *n, const char *name, int count, int64_t low, int64_t otherwise,
                      int64_t *out) {
  Ints list;
  bool given = node_list(n, name, &list);
  if (given && list.n != count)
    return node_fail(n, "%s has %d entries, and %d are needed", name, list.n, count);
  // The bounds keep sums and products of these numbers from overflowing.
  for (int i = 0; i < count; i++) {
    out[i] = given ? list.at[i] : otherwise;
    if (out[i] < low || out[i] > INT32_MAX)
      return node_fail(n, "%s has an entry of %lld", name, (long long)out[i]);
  }
  return true;
}

// Windows of one element, over `n` spatial dimensions.
static Geometry single_elements(int n) {
  Geometry g = {.n = n};
  for (int i = 0; i < MAX_NDIM; i++)
    g.kernel[i] = g.stride[i] = g.dilation[i] = 1;
  return g;
}

bool window_read(Node *n, const int64_t *kernel, bool pads, Geometry *g) {
  const Type *x = n->in[0]->type;
  const char *auto_pad = node_str(n, "auto_pad", "NOTSET");
  *g = single_elements(x->ndim - 2);
  if (g->n < 1) return node_fail(n, "operand 0 has no spatial dimensions");
  // A convolution's kernel is that of its weight.
  if (kernel)
    memcpy(g->kernel, kernel, (size_t)g->n * sizeof *kernel);
  else if (!node_attr(n, "kernel_shape"))
    return node_fail(n, "has no kernel_shape");
  else if (!read_list(n, "kernel_shape", g->n, 1, 1, g->kernel))
    return false;
  if (!read_list(n, "strides", g->n, 1, 1, g->stride) ||
      !read_list(n, "dilations", g->n, 1, 1, g->dilation))
    return false;
  if (!pads) return true;
  if (str_equal(auto_pad, "NOTSET")) return read_list(n, "pads", 2 * g->n, 0, 0, g->pad);
  if (str_equal(auto_pad, "VALID")) return true;
  bool upper = str_equal(auto_pad, "SAME_UPPER");
  if (!upper && !str_equal(auto_pad, "SAME_LOWER"))
    return node_fail(n, "auto_pad '%s' is unknown", auto_pad);
  // SAME: an odd pad has its extra element at the end (UPPER) or at the start (LOWER).
  for (int i = 0; i < g->n; i++) {
    int64_t length = x->dim[2 + i], out = (length + g->stride[i] - 1) / g->stride[i];
    int64_t reach = (g->kernel[i] - 1) * g->dilation[i] + 1;
    int64_t pad = (out - 1) * g->stride[i] + reach - length;
    if (pad < 0) pad = 0;
    g->pad[i] = upper ? pad / 2 : pad - pad / 2;
    g->pad[g->n + i] = pad - g->pad[i];
  }
  return true;
}

bool window_check_kernel(Node *n) {
  const Type *x = n->in[0]->type, *w = n->in[1]->type;
  Ints kernel;
  if (w->ndim != x->ndim || w->ndim < 3)
    return node_fail(n, "its operands have %d and %d dimensions", x->ndim, w->ndim);
  if (node_list(n, "kernel_shape", &kernel) &&
      (kernel.n != w->ndim - 2 ||
       memcmp(kernel.at, w->dim + 2, (size_t)kernel.n * sizeof *kernel.at) != 0))
    return node_fail(n, "kernel_shape is not that of its weight");
  return true;
}

bool window_add_bias(Node *n, Value *bias, int n_spatial) {
  if (!bias || !n->out[0]) return true;
  if (bias->type->ndim != 1) return node_fail(n, "its bias is not a vector");
  int64_t dim[MAX_NDIM] = {bias->type->dim[0]};
  for (int i = 1; i <= n_spatial; i++)
    dim[i] = 1;
  n->out[0] = node_binary(n, OP_add, n->out[0], build_reshape(n->b, bias, n_spatial + 1, dim));
  return true;
}

bool import_conv(Node *n) {
  Value *x = n->in[0], *w = n->in[1], *bias = node_in(n, 2);
  Geometry g;
  if (!window_check_kernel(n)) return false;
  if (!window_read(n, w->type->dim + 2, true, &g)) return false;
  Value *y = build_op(n->b, OP_conv, IN(x, w),
                      ATTRS(a_list("strides", g.stride, g.n), a_list("pads", g.pad, 2 * g.n),
                            a_list("dilations", g.dilation, g.n),
                            a_i("group", node_int(n, "group", 1)), a_b("channels_last", false)));
  n->out[0] = y;
  return window_add_bias(n, bias, g.n);
}

// The place of a transposed convolution's result in the whole one, which has
//
//     (in - 1) * stride + (kernel - 1) * dilation + 1
//
// elements along a dimension: the result drops `before` of them, and ends `after` before their end.
// A negative `after` is elements beyond the end, which are zero.
typedef struct Crop {
  int64_t before[MAX_NDIM], after[MAX_NDIM], length[MAX_NDIM];
} Crop;

// Checks that a dimension of the input has elements, and few enough for products with a stride.
static bool check_length(Node *n, int i) {
  const Type *x = n->in[0]->type;
  if (x->dim[i] >= 1 && x->dim[i] <= INT32_MAX) return true;
  return node_fail(n, "its operand is %s", type_text(n->a, x));
}

// Of the pads, the output's length and the output padding any may be left out.  A given length, or
// auto_pad SAME, which is a length of the input's times the stride, determines the pads: an odd one
// has its extra element at the end with SAME_UPPER, otherwise at the start.
static bool read_crop(Node *n, const Geometry *g, Crop *c) {
  const Type *x = n->in[0]->type;
  const char *auto_pad = node_str(n, "auto_pad", "NOTSET");
  bool upper = str_equal(auto_pad, "SAME_UPPER");
  bool same = upper || str_equal(auto_pad, "SAME_LOWER"), given = same;
  int64_t pad[2 * MAX_NDIM] = {0}, extra[MAX_NDIM] = {0};
  if (!same && !str_equal(auto_pad, "NOTSET") && !str_equal(auto_pad, "VALID"))
    return node_fail(n, "auto_pad '%s' is unknown", auto_pad);
  if (!read_list(n, "output_padding", g->n, 0, 0, extra)) return false;
  if (str_equal(auto_pad, "NOTSET") && !read_list(n, "pads", 2 * g->n, 0, 0, pad)) return false;
  for (int i = 0; i < g->n; i++) {
    if (!check_length(n, 2 + i)) return false;
    c->length[i] = x->dim[2 + i] * g->stride[i];
  }
  if (node_attr(n, "output_shape")) {
    given = true;
    if (!read_list(n, "output_shape", g->n, 1, 1, c->length)) return false;
  }
  for (int i = 0; i < g->n; i++) {
    int64_t whole = (x->dim[2 + i] - 1) * g->stride[i] + (g->kernel[i] - 1) * g->dilation[i] + 1;
    if (given) {
      int64_t total = whole + extra[i] - c->length[i];
      if (total < 0) total = 0;
      pad[i] = upper ? total / 2 : total - total / 2;
      pad[g->n + i] = total - pad[i];
    } else {
      c->length[i] = whole + extra[i] - pad[i] - pad[g->n + i];
      if (c->length[i] < 1)
        return node_fail(n, "its pads leave %lld elements of spatial dimension %d",
                         (long long)c->length[i], i);
    }
    c->before[i] = pad[i];
    c->after[i] = whole - pad[i] - c->length[i];
  }
  return true;
}

// The sum over x[n c p] w[c o r] at position p * stride - before + r * dilation: the gradient of
// the convolution with that weight, which has conv's operator conv_back_x.
bool import_conv_transpose(Node *n) {
  Value *x = n->in[0], *w = n->in[1], *bias = node_in(n, 2);
  Geometry g;
  Crop c = {0};
  int64_t group = node_int(n, "group", 1);
  if (!window_check_kernel(n) || !window_read(n, w->type->dim + 2, false, &g) ||
      !read_crop(n, &g, &c))
    return false;
  if (group < 1 || w->type->dim[0] % group || x->type->dim[1] != w->type->dim[0])
    return node_fail(n, "its input has %lld channels, and its weight is for %lld in %lld groups",
                     (long long)x->type->dim[1], (long long)w->type->dim[0], (long long)group);
  // The convolution's result must have the length of x, which is rounded down: its input may have
  // up to stride - 1 elements at the end that no window reads.  Further ones are appended.
  int64_t shape[MAX_NDIM] = {x->type->dim[0], w->type->dim[1] * group}, low[MAX_NDIM] = {0};
  int64_t all[MAX_NDIM] = {shape[0], shape[1]}, pads[2 * MAX_NDIM];
  bool appended = false;
  for (int i = 0; i < g.n; i++) {
    int64_t beyond = c.after[i] < 0 ? -c.after[i] : 0;
    if (beyond < g.stride[i]) beyond = 0;
    pads[i] = c.before[i];
    pads[g.n + i] = c.after[i] < 0 ? 0 : c.after[i];
    all[2 + i] = c.length[i];
    shape[2 + i] = c.length[i] - beyond;
    appended = appended || beyond > 0;
    // The result begins after the end of the whole one.
    if (shape[2 + i] < 1) return node_fail(n, "its pads leave no element of its result");
  }
  if (!node_shape(n, g.n + 2, all)) return false;
  Value *y = build_op(n->b, OP_conv_back_x, IN(w, x),
                      ATTRS(a_list("strides", g.stride, g.n), a_list("pads", pads, 2 * g.n),
                            a_list("dilations", g.dilation, g.n), a_i("group", group),
                            a_b("channels_last", false), a_list("shape", shape, g.n + 2)));
  if (appended)
    y = build_op(n->b, OP_pad, IN(y),
                 ATTRS(a_list("low", low, g.n + 2), a_list("shape", all, g.n + 2),
                       a_s("mode", "constant"), a_f("value", 0)));
  n->out[0] = y;
  return window_add_bias(n, bias, g.n);
}

// The last window must start inside the input or the padding before it.
static bool pool_geometry(Node *n, Geometry *g) {
  const Type *x = n->in[0]->type;
  if (!window_read(n, NULL, true, g)) return false;
  bool ceil_mode = node_int(n, "ceil_mode", 0) != 0;
  g->out[0] = x->dim[0];
  g->out[1] = x->dim[1];
  for (int i = 0; i < g->n; i++) {
    int64_t length = x->dim[2 + i], reach = (g->kernel[i] - 1) * g->dilation[i] + 1;
    // The positions that the window may begin at, in steps of the stride.
    int64_t room = length + g->pad[i] + g->pad[g->n + i] - reach;
    if (room < 0) return node_fail(n, "its kernel is larger than %s", type_text(n->a, x));
    int64_t out = (room + (ceil_mode ? g->stride[i] - 1 : 0)) / g->stride[i] + 1;
    if (ceil_mode && (out - 1) * g->stride[i] >= length + g->pad[i]) out--;
    g->out[2 + i] = out;
  }
  return true;
}

// The index of an element in its plane with the first dimension the fastest, of its index with the
// last one the fastest.
static Value *column_major(Node *n, Value *index, const Type *x) {
  Value *sum = NULL;
  int64_t stride = product(x->dim, 2, x->ndim);
  for (int i = x->ndim - 1; i >= 2; i--) {
    // The position along dimension i is the remainder by its length.
    Value *length = node_scalar(n, DT_i64, (double)(x->dim[i] ? x->dim[i] : 1));
    if (x->dim[i]) stride /= x->dim[i];
    Value *at = node_binary(n, OP_mod, index, length);
    index = node_div(n, index, length);
    sum = build_add(n->b, sum, node_mul(n, at, node_scalar(n, DT_i64, (double)stride)));
  }
  return sum;
}

bool import_max_pool(Node *n) {
  Geometry g;
  if (!pool_geometry(n, &g)) return false;
  bool columns = node_int(n, "storage_order", 0) != 0;
  Value *x = n->in[0];
  DType dtype = x->type->dtype;
  bool narrow = dtype_class[dtype] != 'F'; // of 8 bits by the standard, so exact as f32
  Value *y = build_op(n->b, OP_max_pool, IN(narrow ? build_cast(n->b, x, DT_f32) : x),
                      ATTRS(a_list("kernel", g.kernel, g.n), a_list("strides", g.stride, g.n),
                            a_list("pads", g.pad, 2 * g.n), a_list("dilations", g.dilation, g.n),
                            a_b("channels_last", false), a_list("shape", g.out, g.n + 2)));
  if (!y) return false;
  // The index of a maximum is that in the whole tensor; the op's is that in its plane.
  const Type *t = x->type;
  int64_t planes = t->dim[0] * t->dim[1], plane = product(t->dim, 2, t->ndim);
  if (node_wants(n, 1) && node_small(n, planes)) {
    int64_t *start = arena_array(n->a, int64_t, planes), dim[MAX_NDIM] = {t->dim[0], t->dim[1]};
    for (int64_t i = 0; i < planes; i++)
      start[i] = i * plane;
    for (int i = 2; i < t->ndim; i++)
      dim[i] = 1;
    Value *base = build_constant(n->b, type_new(n->b->g->module, DT_i64, t->ndim, dim), start);
    Value *index = build_cast(n->b, y->def->out[1], DT_i64);
    if (columns) index = column_major(n, index, t);
    n->out[1] = node_binary(n, OP_add, index, base);
  }
  n->out[0] = build_cast(n->b, y, dtype);
  return true;
}

bool import_average_pool(Node *n) {
  Geometry g;
  if (!pool_geometry(n, &g)) return false;
  // The shape is explicit, since ceil_mode is not an attribute of the op.
  n->out[0] = build_op(n->b, OP_avg_pool, IN(n->in[0]),
                       ATTRS(a_list("kernel", g.kernel, g.n), a_list("strides", g.stride, g.n),
                             a_list("pads", g.pad, 2 * g.n), a_list("dilations", g.dilation, g.n),
                             a_b("include_pad", node_int(n, "count_include_pad", 0)),
                             a_b("channels_last", false), a_list("shape", g.out, g.n + 2)));
  return true;
}

// Returns the p-th root, of which the gradient at 0 is 0.
static Value *root(Node *n, Value *x, double p) {
  if (!x || p == 1) return x;
  if (p == 2) return node_unary(n, OP_sqrt, x);
  Value *zero = node_like(n, x, 0), *one = node_like(n, x, 1);
  Value *positive = build_binary(n->b, OP_greater, x, zero);
  Value *y =
      build_binary(n->b, OP_pow, build_where(n->b, positive, x, one), node_like(n, x, 1 / p));
  return build_where(n->b, positive, y, zero);
}

// Returns |x|^p.
static Value *power(Node *n, Value *x, double p) {
  if (p == 2) return node_unary(n, OP_square, x);
  x = node_unary(n, OP_abs, x);
  return p == 1 || !x ? x : build_binary(n->b, OP_pow, x, node_like(n, x, p));
}

// The attribute is a float in opset 1.
static bool read_p(Node *n, double *p) {
  const Onnx__AttributeProto *attr = node_attr(n, "p");
  *p = !attr ? 2 : attr->has_f ? (double)attr->f : (double)attr->i;
  return *p >= 1 || node_fail(n, "p is %g", *p);
}

// (sum of |x|^p)^(1/p) over each window.
bool import_lp_pool(Node *n) {
  Geometry g = {0};
  double p, count = 1;
  if (!read_p(n, &p) || !pool_geometry(n, &g)) return false;
  for (int i = 0; i < g.n; i++) {
    // The mean counts padding, so that it is the sum divided by the kernel's size; with ceil_mode
    // the last window ends after the padding.
    int64_t end = (g.out[2 + i] - 1) * g.stride[i] + (g.kernel[i] - 1) * g.dilation[i] + 1;
    int64_t pad = end - n->in[0]->type->dim[2 + i] - g.pad[i];
    if (pad > g.pad[g.n + i]) g.pad[g.n + i] = pad;
    count *= (double)g.kernel[i];
  }
  Value *mean = build_op(n->b, OP_avg_pool, IN(power(n, n->in[0], p)),
                         ATTRS(a_list("kernel", g.kernel, g.n), a_list("strides", g.stride, g.n),
                               a_list("pads", g.pad, 2 * g.n), a_list("dilations", g.dilation, g.n),
                               a_b("include_pad", true), a_b("channels_last", false),
                               a_list("shape", g.out, g.n + 2)));
  n->out[0] = root(n, build_scale(n->b, mean, count), p);
  return true;
}

// Puts the elements of a pooling back to their places in zeros: `index` is that in the whole
// result.
bool import_max_unpool(Node *n) {
  Value *x = n->in[0], *index = n->in[1];
  const Type *t = x->type;
  Geometry g = {0};
  Ints shape;
  bool given, extended = false;
  if (!window_read(n, NULL, true, &g)) return false;
  if (!node_ints(n, 2, "output_shape", &shape, &given)) return false;
  if (!type_same_dims(t, index->type))
    return node_fail(n, "its operands are %s and %s", type_text(n->a, t),
                     type_text(n->a, index->type));
  int64_t dim[MAX_NDIM] = {t->dim[0], t->dim[1]}, low[MAX_NDIM] = {0};
  for (int i = 0; i < g.n; i++) {
    if (!check_length(n, 2 + i)) return false;
    // A place that two windows have would need one of two elements.
    if (g.kernel[i] > g.stride[i])
      return node_fail(n, "windows of %lld elements, %lld apart, overlap: this is not supported",
                       (long long)g.kernel[i], (long long)g.stride[i]);
    dim[2 + i] = (t->dim[2 + i] - 1) * g.stride[i] - g.pad[i] - g.pad[g.n + i] + g.kernel[i];
    if (dim[2 + i] < 1) return node_fail(n, "its pads leave no element of its result");
  }
  if (given && shape.n != t->ndim)
    return node_fail(n, "output_shape has %d numbers, and %d are needed", shape.n, t->ndim);
  for (int i = 0; given && i < t->ndim; i++) {
    if (shape.at[i] < dim[i] || (i < 2 && shape.at[i] > dim[i]))
      return node_fail(n, "output_shape is %lld along dimension %d, and its windows give %lld",
                       (long long)shape.at[i], i, (long long)dim[i]);
    extended = extended || shape.at[i] > dim[i];
  }
  if (!node_shape(n, t->ndim, given ? shape.at : dim)) return false;
  // The index within its plane: the planes are tables with indices of their own.
  int64_t planes[] = {dim[0], dim[1], product(dim, 2, t->ndim)};
  int64_t places[] = {dim[0], dim[1], product(t->dim, 2, t->ndim)}, count = planes[0] * planes[1];
  if (!node_small(n, count)) return false;
  int64_t *start = arena_array(n->a, int64_t, count);
  for (int64_t i = 0; i < count; i++)
    start[i] = i * planes[2];
  const Type *first = type_new(n->b->g->module, DT_i64, 3, (int64_t[]){dim[0], dim[1], 1});
  index = build_reshape(n->b, build_cast(n->b, index, DT_i64), 3, places);
  index = node_binary(n, OP_sub, index, build_constant(n->b, first, start));
  Value *y = build_op(n->b, OP_gather_back, IN(index, build_reshape(n->b, x, 3, places)),
                      ATTRS(a_i("axis", 2), a_list("shape", planes, 3), a_i("batch", 2)));
  y = build_reshape(n->b, build_cast(n->b, y, t->dtype), t->ndim, dim);
  if (extended)
    y = build_op(n->b, OP_pad, IN(y),
                 ATTRS(a_list("low", low, t->ndim), a_list("shape", shape.at, t->ndim),
                       a_s("mode", "constant"), a_f("value", 0)));
  n->out[0] = y;
  return true;
}

// Adds up blocks (n, c * block, positions) at their positions in an image (n, c, spatial): the
// transposed convolution whose kernel has a single 1 for each element of the block.
bool import_col2im(Node *n) {
  const Type *t = n->in[0]->type;
  Ints image, block;
  bool given, has_block;
  if (!node_ints(n, 1, "image_shape", &image, &given) ||
      !node_ints(n, 2, "block_shape", &block, &has_block))
    return false;
  Geometry g = single_elements(image.n);
  if (!given || !has_block || block.n != g.n || g.n < 1 || g.n > 3 || t->ndim != 3)
    return node_fail(n, "its operand %s has no blocks of %d dimensions in an image of %d",
                     type_text(n->a, t), block.n, image.n);
  if (!read_list(n, "strides", g.n, 1, 1, g.stride) ||
      !read_list(n, "pads", 2 * g.n, 0, 0, g.pad) ||
      !read_list(n, "dilations", g.n, 1, 1, g.dilation))
    return false;
  int64_t size = 1, positions = 1, dy[MAX_NDIM] = {t->dim[0], t->dim[1]};
  for (int i = 0; i < g.n; i++) {
    g.kernel[i] = block.at[i];
    if (block.at[i] < 1 || image.at[i] < 1 || block.at[i] > INT32_MAX || image.at[i] > INT32_MAX)
      return node_fail(n, "blocks of length %lld in an image of length %lld",
                       (long long)block.at[i], (long long)image.at[i]);
    int64_t room = image.at[i] + g.pad[i] + g.pad[g.n + i] - (block.at[i] - 1) * g.dilation[i] - 1;
    dy[2 + i] = room < 0 ? 0 : room / g.stride[i] + 1;
    if (__builtin_mul_overflow(size, block.at[i], &size) ||
        __builtin_mul_overflow(positions, dy[2 + i], &positions))
      return node_fail(n, "its shape overflows");
  }
  int64_t channels = t->dim[1] / size;
  if (t->dim[1] % size || t->dim[2] != positions || channels < 1)
    return node_fail(n,
                     "its operand is %s, and %lld positions of blocks of %lld elements are needed",
                     type_text(n->a, t), (long long)positions, (long long)size);
  if (!node_small(n, t->dim[1]) || !node_small(n, t->dim[1] * size)) return false;
  int64_t w_dim[MAX_NDIM] = {t->dim[1], 1}, dim[MAX_NDIM] = {t->dim[0], channels};
  for (int i = 0; i < g.n; i++) {
    w_dim[2 + i] = g.kernel[i];
    dim[2 + i] = image.at[i];
  }
  if (!node_shape(n, g.n + 2, dim)) return false;
  Tensor w = tensor_new(n->a, type_new(n->b->g->module, t->dtype, g.n + 2, w_dim));
  for (int64_t i = 0; i < t->dim[1]; i++)
    tensor_set_f(&w, i * size + i % size, 1);
  Value *y = build_reshape(n->b, n->in[0], g.n + 2, dy);
  n->out[0] = build_op(n->b, OP_conv_back_x, IN(build_constant(n->b, w.type, w.data), y),
                       ATTRS(a_list("strides", g.stride, g.n), a_list("pads", g.pad, 2 * g.n),
                             a_list("dilations", g.dilation, g.n), a_i("group", channels),
                             a_b("channels_last", false), a_list("shape", dim, g.n + 2)));
  return true;
}

static int spatial_axes(const Node *n, int64_t *axes) {
  int count = 0;
  for (int i = 2; i < n->in[0]->type->ndim; i++)
    axes[count++] = i;
  return count;
}

bool import_global_average_pool(Node *n) {
  int64_t axes[MAX_NDIM];
  int count = spatial_axes(n, axes);
  n->out[0] = node_mean(n, n->in[0], axes, count, true);
  return true;
}

bool import_global_max_pool(Node *n) {
  int64_t axes[MAX_NDIM];
  int count = spatial_axes(n, axes);
  n->out[0] = build_op(n->b, OP_reduce_max, IN(n->in[0]),
                       ATTRS(a_list("axes", axes, count), a_b("keep", true)));
  return true;
}

bool import_global_lp_pool(Node *n) {
  int64_t axes[MAX_NDIM];
  int count = spatial_axes(n, axes);
  double p;
  if (!read_p(n, &p)) return false;
  n->out[0] = root(n, build_reduce_sum(n->b, power(n, n->in[0], p), axes, count, true), p);
  return true;
}
