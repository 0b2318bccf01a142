// Regions of images: RoiAlign.

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
