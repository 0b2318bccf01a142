// Regions of images: RoiAlign and MaxRoiPool.

#include <math.h>

#include "frontend/onnx_taps.h"

// -- RoiAlign ----------------------------------------------------------------------------------

// Samples along one dimension of all regions: from `start` to `end`, `count` of them.
static Value *samples(Node *n, Value *start, Value *end, double least, int64_t bins, int64_t each) {
  if (!start || !end) return NULL;
  int64_t regions = start->type->dim[0], count = bins * each;
  Value *size = build_binary(n->b, OP_sub, end, start);
  if (least > 0) size = build_binary(n->b, OP_max, size, node_like(n, size, least));
  const Type *t =
      type_new(n->b->g->module, taps_constant_type(start->type), 2, (int64_t[]){1, count});
  Tensor part = tensor_new(n->a, t);
  for (int64_t i = 0; i < count; i++)
    tensor_set_f(&part, i, ((double)i + 0.5) / (double)count);
  Value *at = build_cast(n->b, build_constant(n->b, part.type, part.data), start->type->dtype);
  at = node_binary(n, OP_mul, at, build_reshape(n->b, size, 2, (int64_t[]){regions, 1}));
  return node_binary(n, OP_add, at, build_reshape(n->b, start, 2, (int64_t[]){regions, 1}));
}

// Two taps of each sample; samples beyond one element from the image weigh nothing.
static void find_samples(Node *n, Value *at, int64_t length, int dim, int64_t regions, Taps *a) {
  if (!at) return;
  double last = (double)length - 1;
  Value *inside = node_between(n, at, -1, (double)length), *zero = node_like(n, at, 0);
  at = node_clip(n, at, 0, last);
  Value *before = build_unary(n->b, OP_floor, at), *ratio = build_binary(n->b, OP_sub, at, before);
  Value *weight[2] = {node_offset(n, build_unary(n->b, OP_neg, ratio), 1), ratio};
  int64_t shape[] = {regions, 1, 1};
  shape[dim] = at ? at->type->dim[1] : 0;
  for (int k = 0; k < 2; k++) {
    Value *index = taps_index(n, node_offset(n, before, k), length);
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
    corner[k] = node_offset(n, build_scale(n->b, corner[k], scale), half ? -0.5 : 0);
  }
  if (!rois) return false;
  Taps axis[3] = {{.n = 1}};
  double least = half ? 0 : 1;
  find_samples(n, samples(n, corner[1], corner[3], least, h, each), t->dim[2], 1, regions,
               &axis[1]);
  find_samples(n, samples(n, corner[0], corner[2], least, w, each), t->dim[3], 2, regions,
               &axis[2]);
  // The image of each region is the major index.
  int64_t one[] = {regions, 1, 1};
  axis[0].at[0] = build_reshape(n->b, build_cast(n->b, image, DT_i64), 3, one);
  axis[0].weight[0] = build_fill(n->b, t->dtype, 3, one, 1);
  Value *index, *weight, *flat = taps_image(n, x);
  if (!taps_combine(n, axis, (int64_t[]){t->dim[0], t->dim[2], t->dim[3]}, 3, 1, &index, &weight))
    return false;
  flat = build_reshape(n->b, flat, 2, (int64_t[]){t->dim[0] * t->dim[2] * t->dim[3], channels});
  // (regions, taps, ys, xs, c): the samples of a bin and their taps are summed, or compared.
  Value *y =
      taps_weighted(n, build_op(n->b, OP_gather, IN(flat, index), ATTRS(a_i("axis", 0))), weight);
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

// -- MaxRoiPool ----------------------------------------------------------------------------------

// Rounds to the nearest whole number, halves away from zero.
static Value *rounded(Node *n, Value *x) {
  Value *size = node_unary(n, OP_floor, node_offset(n, node_unary(n, OP_abs, x), 0.5));
  return node_mul(n, node_unary(n, OP_sign, x), size);
}

// Whether element i of a dimension is in bin k of region r, as (regions, bins, length):
//
//     floor(k size) <= i - start < ceil((k + 1) size)     size = max(end - start + 1, 1) / bins
static Value *in_bins(Node *n, Value *start, Value *end, int64_t bins, int64_t length) {
  if (!start || !end || !node_small(n, length)) return NULL;
  int64_t regions = start->type->dim[0];
  DType dtype = taps_constant_type(start->type);
  Module *m = n->b->g->module;
  Tensor k = tensor_new(n->a, type_new(m, dtype, 3, (int64_t[]){1, bins, 1}));
  Tensor i = tensor_new(n->a, type_new(m, dtype, 3, (int64_t[]){1, 1, length}));
  for (int64_t at = 0; at < bins; at++)
    tensor_set_f(&k, at, (double)at);
  for (int64_t at = 0; at < length; at++)
    tensor_set_f(&i, at, (double)at);
  Value *bin = build_cast(n->b, build_constant(n->b, k.type, k.data), start->type->dtype);
  Value *element = build_cast(n->b, build_constant(n->b, i.type, i.data), start->type->dtype);
  // The region's size is a number of elements, at least one.
  Value *size = node_offset(n, node_sub(n, end, start), 1);
  size = size ? build_binary(n->b, OP_max, size, node_like(n, size, 1)) : NULL;
  size = size ? node_div(n, size, node_like(n, size, (double)bins)) : NULL;
  int64_t one[] = {regions, 1, 1};
  size = build_reshape(n->b, size, 3, one);
  start = build_reshape(n->b, start, 3, one);
  Value *first = node_add(n, node_unary(n, OP_floor, node_mul(n, bin, size)), start);
  Value *last = node_unary(n, OP_ceil, node_mul(n, node_offset(n, bin, 1), size));
  last = node_add(n, last, start);
  return node_binary(n, OP_and, node_binary(n, OP_greater_equal, element, first),
                     node_binary(n, OP_less, element, last));
}

// The largest elements, along the last dimension, of those of x that are inside; -inf without one.
static Value *largest(Node *n, Value *x, Value *inside) {
  if (!x || !inside) return NULL;
  Value *in[] = {inside, x, node_scalar(n, x->type->dtype, -INFINITY)};
  if (!node_broadcast(n, in, 3)) return NULL;
  int64_t axis = in[0]->type->ndim - 1;
  return build_op(n->b, OP_reduce_max, IN(build_where(n->b, in[0], in[1], in[2])),
                  ATTRS(a_list("axes", &axis, 1), a_b("keep", false)));
}

// The largest element in each bin of each region, 0 in an empty bin.  A region is an image and its
// corners x1, y1, x2 and y2.
bool import_max_roi_pool(Node *n) {
  Value *x = n->in[0], *rois = n->in[1], *corner[5];
  const Type *t = x->type, *r = rois->type;
  double scale = node_float(n, "spatial_scale", 1);
  Ints bins;
  if (!node_list(n, "pooled_shape", &bins) || bins.n != 2)
    return node_fail(n, "it needs a pooled_shape of two numbers");
  if (t->ndim != 4 || r->ndim != 2 || r->dim[1] != 5 || t->dim[2] < 1 || t->dim[3] < 1)
    return node_fail(n, "its operands are %s and %s", type_text(n->a, t), type_text(n->a, r));
  if (bins.at[0] < 1 || bins.at[1] < 1 || bins.at[0] > 4096 || bins.at[1] > 4096)
    return node_fail(n, "%lld x %lld bins", (long long)bins.at[0], (long long)bins.at[1]);
  int64_t regions = r->dim[0], c = t->dim[1], h = t->dim[2], w = t->dim[3];
  if (!node_shape(n, 5, (int64_t[]){regions, c, h, bins.at[1], w})) return false;
  // Regions have no gradient: elements enter and leave them at once.
  rois = build_unary(n->b, OP_detach, rois);
  for (int i = 0; i < 5 && rois; i++) {
    corner[i] = build_reshape(n->b, build_slice(n->b, rois, 1, i, 1), 1, &regions);
    if (i > 0) corner[i] = rounded(n, build_scale(n->b, corner[i], scale));
  }
  if (!rois || n->b->failed) return false;
  Value *in_rows = in_bins(n, corner[2], corner[4], bins.at[0], h);
  Value *in_columns = in_rows ? in_bins(n, corner[1], corner[3], bins.at[1], w) : NULL;
  if (!in_columns) return false;
  Value *image =
      build_op(n->b, OP_gather, IN(x, build_cast(n->b, corner[0], DT_i64)), ATTRS(a_i("axis", 0)));

  // (regions, c, h, bins, w), and then (regions, c, bins, bins, h).
  image = build_reshape(n->b, image, 5, (int64_t[]){regions, c, h, 1, w});
  in_columns = build_reshape(n->b, in_columns, 5, (int64_t[]){regions, 1, 1, bins.at[1], w});
  Value *y = largest(n, image, in_columns);
  y = y ? build_transpose(n->b, y, (int64_t[]){0, 1, 3, 2}) : NULL;
  y = build_reshape(n->b, y, 5, (int64_t[]){regions, c, 1, bins.at[1], h});
  in_rows = build_reshape(n->b, in_rows, 5, (int64_t[]){regions, 1, bins.at[0], 1, h});
  y = largest(n, y, in_rows);
  // An element of -inf is no empty bin.
  Value *some[2] = {in_rows, in_columns};
  for (int i = 0; i < 2 && some[i]; i++) {
    int64_t axis = 4;
    some[i] = build_op(n->b, OP_reduce_max, IN(build_cast(n->b, some[i], DT_i32)),
                       ATTRS(a_list("axes", &axis, 1), a_b("keep", false)));
    some[i] = build_cast(n->b, some[i], DT_bool);
  }
  if (!y || !some[0] || !some[1]) return false;
  // (regions, 1, bins, 1) and (regions, 1, 1, bins)
  Value *in[] = {node_binary(n, OP_and, some[0], some[1]), y, node_like(n, y, 0)};
  if (!node_broadcast(n, in, 3)) return false;
  n->out[0] = build_where(n->b, in[0], in[1], in[2]);
  return n->out[0] != NULL;
}
