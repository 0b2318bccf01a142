// Images at computed points: AffineGrid, GridSample and RoiAlign.
//
// Points are values, so their elements are looked up by gather.  Along each dimension of the image
// a point has taps: positions and weights.  All combinations of taps of all dimensions are one
// index into the flattened image, and the result is a weighted sum:
//
//     image (n, d, c)   index (n, taps, p)   ->   gather (n, taps, p, c) * weight, summed over taps
//
// Gradients are those of gather, of the weights, and of the points that the weights come from.

#include <math.h>

#include "frontend/onnx_node.h"

static Value *add_number(Node *n, Value *x, double by) {
  return build_op(n->b, OP_offset, IN(x), ATTRS(a_f("by", by)));
}
static Value *clamp(Node *n, Value *x, double low, double high) {
  return build_op(n->b, OP_clip, IN(x), ATTRS(a_f("low", low), a_f("high", high)));
}
// Returns 1 where low <= x <= high, otherwise 0.
static Value *is_between(Node *n, Value *x, double low, double high) {
  if (!x) return NULL;
  Value *above = build_binary(n->b, OP_greater_equal, x, node_like(n, x, low));
  Value *below = build_binary(n->b, OP_less_equal, x, node_like(n, x, high));
  return build_binary(n->b, OP_and, above, below);
}

// Returns the type of constants that are computed here and then cast to that of `t`.
static DType constant_type(const Type *t) {
  return t->dtype == DT_f64 ? DT_f64 : DT_f32;
}

// -- AffineGrid --------------------------------------------------------------------------------

// The coordinates of a grid of points from -1 to 1, each times the matrix of its row of the batch:
// theta (n, k, k + 1), points (k + 1, p)  ->  (n, spatial, k), x before y before z.
bool import_affine_grid(Node *n) {
  const Type *theta = n->in[0]->type;
  bool align = node_int(n, "align_corners", 0) != 0, given;
  Ints size;
  if (!node_ints(n, 1, "size", &size, &given)) return false;
  int k = size.n - 2;
  if (k < 2 || k > 3) return node_fail(n, "its size has %d numbers, and 4 or 5 are needed", size.n);
  if (theta->ndim != 3 || theta->dim[0] != size.at[0] || theta->dim[1] != k ||
      theta->dim[2] != k + 1)
    return node_fail(n, "its matrices are %s, for a grid of %d dimensions", type_text(n->a, theta),
                     k);
  if (!node_shape(n, size.n, size.at)) return false;
  int64_t p = product(size.at, 2, size.n);
  if (!node_small(n, p * (k + 1))) return false;
  Module *m = n->b->g->module;
  Tensor points = tensor_new(n->a, type_new(m, constant_type(theta), 2, (int64_t[]){k + 1, p}));
  for (int64_t i = 0; i < p; i++) {
    int64_t rest = i;
    // The last dimension is x.
    for (int j = 0; j < k; j++) {
      int64_t length = size.at[size.n - 1 - j], at = rest % length;
      double first = align ? -1 : 1 / (double)length - 1;
      double step = 2 / (double)(align ? length - 1 : length);
      rest /= length;
      tensor_set_f(&points, j * p + i, align && length == 1 ? 0 : first + (double)at * step);
    }
    tensor_set_f(&points, k * p + i, 1);
  }
  Value *grid = build_constant(n->b, points.type, points.data);
  grid = build_op(n->b, OP_linear, IN(n->in[0], build_cast(n->b, grid, theta->dtype)),
                  ATTRS(a_b("trans", false)));
  grid = build_transpose(n->b, grid, (int64_t[]){0, 2, 1});
  int64_t dim[MAX_NDIM] = {size.at[0]};
  for (int j = 0; j < k; j++)
    dim[1 + j] = size.at[2 + j];
  dim[1 + k] = k;
  n->out[0] = build_reshape(n->b, grid, k + 2, dim);
  return true;
}

// -- Taps --------------------------------------------------------------------------------------

enum { MAX_TAPS = 4 };

// The taps of points along one dimension of an image.
typedef struct Axis {
  int n;
  Value *at[MAX_TAPS];     // i64, in range
  Value *weight[MAX_TAPS]; // of x's type
} Axis;

// Converts a position, a whole number of a floating type, to an index.  A NaN becomes any element.
static Value *index_of(Node *n, Value *at, int64_t length) {
  at = clamp(n, at, 0, (double)(length - 1));
  return clamp(n, build_cast(n->b, at, DT_i64), 0, (double)(length - 1));
}

// The combinations of the taps of `n_axes` axes, of the image's lengths `dim`: their indices into
// the flattened image and their weights, stacked along a new dimension `place`.  The values of an
// axis are broadcast with the others.
static bool combine(Node *n, const Axis *axis, const int64_t *dim, int n_axes, int place,
                    Value **index, Value **weight) {
  int total = 1;
  for (int j = 0; j < n_axes; j++)
    total *= axis[j].n;
  Value **each = arena_array(n->a, Value *, total), **by = arena_array(n->a, Value *, total);
  for (int t = 0; t < total; t++) {
    // The flattened index, major dimension first.
    for (int j = 0, rest = t; j < n_axes; j++) {
      int k = rest % axis[j].n;
      rest /= axis[j].n;
      Value *at = axis[j].at[k], *w = axis[j].weight[k];
      if (!at || !w) return false;
      each[t] = !each[t] ? at
                         : node_binary(n, OP_add,
                                       build_binary(n->b, OP_mul, each[t],
                                                    node_like(n, each[t], (double)dim[j])),
                                       at);
      by[t] = by[t] ? node_binary(n, OP_mul, by[t], w) : w;
    }
    if (!each[t] || !by[t]) return false;
    int64_t shape[MAX_NDIM];
    int ndim = 0;
    for (int i = 0; i <= each[t]->type->ndim; i++)
      shape[ndim++] = i == place ? 1 : each[t]->type->dim[i - (i > place)];
    each[t] = build_reshape(n->b, each[t], ndim, shape);
    by[t] = build_reshape(n->b, by[t], ndim, shape);
  }
  Attr along = a_i("axis", place);
  *index = total == 1 ? each[0] : build_op(n->b, OP_concat, each, total, ATTRS(along));
  *weight = total == 1 ? by[0] : build_op(n->b, OP_concat, by, total, ATTRS(along));
  return *index && *weight;
}

// Returns an image (n, c, spatial) as (n, elements, c).
static Value *channels_last(Node *n, Value *x) {
  const Type *t = x->type;
  Value *flat =
      build_reshape(n->b, x, 3, (int64_t[]){t->dim[0], t->dim[1], product(t->dim, 2, t->ndim)});
  return build_transpose(n->b, flat, (int64_t[]){0, 2, 1});
}

// Multiplies the elements (…, c) that an index (…) selected by their weights (…).
static Value *weighted(Node *n, Value *x, Value *weight) {
  if (!x || !weight) return NULL;
  int64_t dim[MAX_NDIM];
  int ndim = weight->type->ndim;
  for (int i = 0; i < ndim; i++)
    dim[i] = weight->type->dim[i];
  dim[ndim] = 1;
  return node_binary(n, OP_mul, x, build_reshape(n->b, weight, ndim + 1, dim));
}

// -- GridSample --------------------------------------------------------------------------------

typedef enum Padding { ZEROS, BORDER, REFLECTION } Padding;
typedef enum Mode { NEAREST, LINEAR, CUBIC } Mode;

typedef struct Sampling {
  Mode mode;
  Padding padding;
  bool align; // -1 and 1 are the centers of the outer elements, not their outer edges
} Sampling;

static bool read_sampling(Node *n, Sampling *s) {
  const char *mode = node_str(n, "mode", n->opset < 20 ? "bilinear" : "linear");
  const char *padding = node_str(n, "padding_mode", "zeros");
  s->align = node_int(n, "align_corners", 0) != 0;
  // Opset 16 has the names of two dimensions.
  if (str_equal(mode, "nearest"))
    s->mode = NEAREST;
  else if (str_equal(mode, "bilinear") || str_equal(mode, "linear"))
    s->mode = LINEAR;
  else if (str_equal(mode, "bicubic") || str_equal(mode, "cubic"))
    s->mode = CUBIC;
  else
    return node_fail(n, "mode '%s' is unknown", mode);
  if (str_equal(padding, "zeros"))
    s->padding = ZEROS;
  else if (str_equal(padding, "border"))
    s->padding = BORDER;
  else if (str_equal(padding, "reflection"))
    s->padding = REFLECTION;
  else
    return node_fail(n, "padding_mode '%s' is unknown", padding);
  return true;
}

// Returns positions reflected at both ends of the image, as often as needed:
//
//     distance = |x - low|, flips = floor(distance / span), rest = distance - flips * span
//     low + rest after an even number of flips, else high - rest
static Value *reflect(Node *n, const Sampling *s, Value *x, int64_t length) {
  double low = s->align ? 0 : -0.5, span = s->align ? (double)length - 1 : (double)length;
  // The image is a single point.
  if (span == 0) return build_scale(n->b, x, 0);
  Value *distance = build_unary(n->b, OP_abs, add_number(n, x, -low));
  Value *flips = build_unary(n->b, OP_floor, build_scale(n->b, distance, 1 / span));
  Value *rest = build_binary(n->b, OP_sub, distance, build_scale(n->b, flips, span));
  Value *half = build_scale(n->b, flips, 0.5);
  Value *even = build_binary(n->b, OP_equal, half, build_unary(n->b, OP_floor, half));
  Value *there = add_number(n, rest, low);
  Value *back = add_number(n, build_unary(n->b, OP_neg, rest), low + span);
  return build_where(n->b, even, there, back);
}

// Adds the tap at position `at`, a whole number, with its weight (NULL: 1).
static void add_tap(Node *n, const Sampling *s, Axis *a, Value *at, Value *weight, int64_t length) {
  if (!at) return;
  Value *inside = is_between(n, at, 0, (double)(length - 1)), *zero = node_like(n, at, 0);
  if (s->padding == REFLECTION) at = build_where(n->b, inside, at, reflect(n, s, at, length));
  if (!weight) weight = node_like(n, at, 1);
  if (s->padding == ZEROS) weight = build_where(n->b, inside, weight, zero);
  a->at[a->n] = index_of(n, at, length);
  a->weight[a->n++] = weight;
}

// The weights of the four taps around a point, with the ratio of its distance to the second one.
static Value *cubic_weight(Node *n, Value *ratio, int k) {
  // Its distance to tap k, and the polynomial of Keys with a = -0.75 there.
  static const double a = -0.75;
  Value *x = k == 0   ? add_number(n, ratio, 1)
             : k == 1 ? ratio
                      : add_number(n, build_unary(n->b, OP_neg, ratio), k == 2 ? 1 : 2);
  bool near = k == 1 || k == 2;
  double cube = near ? a + 2 : a, square = near ? -(a + 3) : -5 * a;
  Value *y = add_number(n, build_scale(n->b, x, cube), square);
  y = build_binary(n->b, OP_mul, y, x);
  if (near) return add_number(n, build_binary(n->b, OP_mul, y, x), 1);
  y = build_binary(n->b, OP_mul, add_number(n, y, 8 * a), x);
  return add_number(n, y, -4 * a);
}

// The taps along a dimension of coordinates from -1 to 1.
static void find_taps(Node *n, const Sampling *s, Value *x, int64_t length, Axis *a) {
  double last = (double)length - 1, scale = (s->align ? last : last + 1) / 2;
  double low = s->align ? 0 : -0.5, high = last - low;
  a->n = 0;
  x = add_number(n, build_scale(n->b, x, scale), s->align ? scale : scale - 0.5);
  if (s->mode == NEAREST) x = build_unary(n->b, OP_round, x);
  // Points outside of the image move to its border, or are reflected.  A cubic kernel at a point on
  // the outer half of an element stays there.
  if (s->padding == REFLECTION)
    x = build_where(n->b, is_between(n, x, low, high), x, reflect(n, s, x, length));
  if (s->padding == BORDER && s->mode == CUBIC)
    x = build_where(n->b, is_between(n, x, low, high), x, clamp(n, x, 0, last));
  else if (s->padding != ZEROS && s->mode != CUBIC)
    x = clamp(n, x, 0, last);
  if (s->mode == NEAREST) {
    add_tap(n, s, a, x, NULL, length);
    return;
  }
  Value *before = build_unary(n->b, OP_floor, x), *ratio = build_binary(n->b, OP_sub, x, before);
  if (s->mode == LINEAR) {
    add_tap(n, s, a, before, add_number(n, build_unary(n->b, OP_neg, ratio), 1), length);
    add_tap(n, s, a, add_number(n, before, 1), ratio, length);
    return;
  }
  for (int k = 0; k < MAX_TAPS; k++)
    add_tap(n, s, a, add_number(n, before, k - 1), cubic_weight(n, ratio, k), length);
}

bool import_grid_sample(Node *n) {
  Value *x = n->in[0], *grid = n->in[1];
  const Type *t = x->type, *g = grid->type;
  int k = t->ndim - 2;
  Sampling s = {0};
  if (!read_sampling(n, &s)) return false;
  if (k < 1 || k > 3 || g->ndim != t->ndim || g->dim[0] != t->dim[0] || g->dim[k + 1] != k ||
      dtype_class[t->dtype] != 'F' || g->dtype != t->dtype)
    return node_fail(n, "its operands are %s and %s", type_text(n->a, t), type_text(n->a, g));
  int64_t points = product(g->dim, 1, k + 1), batch = t->dim[0];
  for (int j = 0; j < k; j++)
    if (t->dim[2 + j] < 1) return node_fail(n, "its operand is %s", type_text(n->a, t));
  grid = build_reshape(n->b, grid, 3, (int64_t[]){batch, points, k});
  Axis axis[3] = {0};
  for (int j = 0; j < k; j++) {
    // The last dimension is x, the first coordinate.
    Value *at = grid ? build_slice(n->b, grid, 2, k - 1 - j, 1) : NULL;
    at = build_reshape(n->b, at, 2, (int64_t[]){batch, points});
    find_taps(n, &s, at, t->dim[2 + j], &axis[j]);
  }
  Value *index, *weight;
  if (!combine(n, axis, t->dim + 2, k, 1, &index, &weight)) return false;
  // (n, taps, p, c), summed over taps.
  Value *y = build_op(n->b, OP_gather, IN(channels_last(n, x), index),
                      ATTRS(a_i("axis", 1), a_i("batch", 1)));
  y = build_reduce_sum(n->b, weighted(n, y, weight), (int64_t[]){1}, 1, false);
  y = build_transpose(n->b, y, (int64_t[]){0, 2, 1});
  int64_t dim[MAX_NDIM] = {batch, t->dim[1]};
  for (int j = 0; j < k; j++)
    dim[2 + j] = g->dim[1 + j];
  n->out[0] = build_reshape(n->b, y, k + 2, dim);
  return true;
}

// -- RoiAlign ----------------------------------------------------------------------------------

// Samples along one dimension of all regions: from `start` to `end`, `count` of them.
static Value *samples(Node *n, Value *start, Value *end, double least, int64_t bins, int64_t each) {
  if (!start || !end) return NULL;
  int64_t regions = start->type->dim[0], count = bins * each;
  Value *size = build_binary(n->b, OP_sub, end, start);
  if (least > 0) size = build_binary(n->b, OP_max, size, node_like(n, size, least));
  const Type *t = type_new(n->b->g->module, constant_type(start->type), 2, (int64_t[]){1, count});
  Tensor part = tensor_new(n->a, t);
  for (int64_t i = 0; i < count; i++)
    tensor_set_f(&part, i, ((double)i + 0.5) / (double)count);
  Value *at = build_cast(n->b, build_constant(n->b, part.type, part.data), start->type->dtype);
  at = node_binary(n, OP_mul, at, build_reshape(n->b, size, 2, (int64_t[]){regions, 1}));
  return node_binary(n, OP_add, at, build_reshape(n->b, start, 2, (int64_t[]){regions, 1}));
}

// Two taps of each sample; samples beyond one element from the image weigh nothing.
static void find_samples(Node *n, Value *at, int64_t length, int dim, int64_t regions, Axis *a) {
  if (!at) return;
  double last = (double)length - 1;
  Value *inside = is_between(n, at, -1, (double)length), *zero = node_like(n, at, 0);
  at = clamp(n, at, 0, last);
  Value *before = build_unary(n->b, OP_floor, at), *ratio = build_binary(n->b, OP_sub, at, before);
  Value *weight[2] = {add_number(n, build_unary(n->b, OP_neg, ratio), 1), ratio};
  int64_t shape[] = {regions, 1, 1};
  shape[dim] = at ? at->type->dim[1] : 0;
  for (int k = 0; k < 2; k++) {
    Value *index = index_of(n, add_number(n, before, k), length);
    Value *w = build_where(n->b, inside, weight[k], zero);
    a->at[k] = build_reshape(n->b, index, 3, shape);
    a->weight[k] = build_reshape(n->b, w, 3, shape);
  }
  a->n = 2;
}

// The mean, or the largest, of bilinear samples in each bin of each region.  As in torchvision
// there is no gradient of the regions.
bool import_roi_align(Node *n) {
  Value *x = n->in[0], *rois = n->in[1], *image = n->in[2];
  const Type *t = x->type, *r = rois->type;
  int64_t h = node_int(n, "output_height", 1), w = node_int(n, "output_width", 1);
  int64_t each = node_int(n, "sampling_ratio", 0);
  double scale = node_float(n, "spatial_scale", 1);
  const char *mode = node_str(n, "mode", "avg");
  const char *how = node_str(n, "coordinate_transformation_mode",
                             n->opset < 16 ? "output_half_pixel" : "half_pixel");
  bool half = str_equal(how, "half_pixel"), max = str_equal(mode, "max");
  if (!half && !str_equal(how, "output_half_pixel"))
    return node_fail(n, "coordinate_transformation_mode '%s' is unknown", how);
  if (!max && !str_equal(mode, "avg")) return node_fail(n, "mode '%s' is unknown", mode);
  if (t->ndim != 4 || r->ndim != 2 || r->dim[1] != 4 || image->type->ndim != 1 ||
      image->type->dim[0] != r->dim[0] || t->dim[2] < 1 || t->dim[3] < 1)
    return node_fail(n, "its operands are %s, %s and %s", type_text(n->a, t), type_text(n->a, r),
                     type_text(n->a, image->type));
  if (each == 0)
    return node_fail_hint(
        n, "export the model with a sampling_ratio, such as 2",
        "sampling_ratio 0, a number of samples that depends on the regions, is not "
        "supported");
  if (h < 1 || w < 1 || each < 1 || h > 4096 || w > 4096 || each > 4096)
    return node_fail(n, "%lld x %lld bins of %lld samples", (long long)h, (long long)w,
                     (long long)each);
  int64_t regions = r->dim[0], channels = t->dim[1];
  // x1, y1, x2 and y2 of all regions.
  Value *corner[4];
  rois = build_unary(n->b, OP_detach, build_cast(n->b, rois, t->dtype));
  for (int k = 0; k < 4 && rois; k++) {
    corner[k] = build_reshape(n->b, build_slice(n->b, rois, 1, k, 1), 1, &regions);
    corner[k] = add_number(n, build_scale(n->b, corner[k], scale), half ? -0.5 : 0);
  }
  if (!rois) return false;
  Axis axis[3] = {{.n = 1}};
  double least = half ? 0 : 1;
  find_samples(n, samples(n, corner[1], corner[3], least, h, each), t->dim[2], 1, regions,
               &axis[1]);
  find_samples(n, samples(n, corner[0], corner[2], least, w, each), t->dim[3], 2, regions,
               &axis[2]);
  // The image of each region is the major index.
  int64_t one[] = {regions, 1, 1};
  axis[0].at[0] = build_reshape(n->b, build_cast(n->b, image, DT_i64), 3, one);
  axis[0].weight[0] = build_fill(n->b, t->dtype, 3, one, 1);
  Value *index, *weight, *flat = channels_last(n, x);
  if (!combine(n, axis, (int64_t[]){t->dim[0], t->dim[2], t->dim[3]}, 3, 1, &index, &weight))
    return false;
  flat = build_reshape(n->b, flat, 2, (int64_t[]){t->dim[0] * t->dim[2] * t->dim[3], channels});
  // (regions, taps, ys, xs, c): the samples of a bin and their taps are summed, or compared.
  Value *y = weighted(n, build_op(n->b, OP_gather, IN(flat, index), ATTRS(a_i("axis", 0))), weight);
  int64_t taps = 4, parts[] = {regions, taps, h, each, w, each, channels}, axes[] = {1, 3, 5};
  y = build_reshape(n->b, y, 7, parts);
  if (max)
    y = build_op(n->b, OP_reduce_max, IN(y), ATTRS(a_list("axes", axes, 3), a_b("keep", false)));
  else
    y = build_scale(n->b, build_reduce_sum(n->b, y, axes, 3, false),
                    1 / ((double)each * (double)each));
  n->out[0] = build_transpose(n->b, y, (int64_t[]){0, 3, 1, 2});
  return true;
}
