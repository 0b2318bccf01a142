// Resize and Upsample: interpolation along each resized axis, one after the other.
//
// For each axis a table of taps is computed here, in double, for the op resample: the elements of x
// that each element of the result is a weighted sum of.  A position o of the result is a coordinate
// of x by the coordinate transformation; with b, the last element left of it, and the ratio, its
// distance from b, in (0, 1]:
//
//     nearest   b or b + 1, by the ratio
//     linear    b and b + 1
//     cubic     b - 1 to b + 2
//
// With antialias the kernel of linear or cubic is stretched by 1 / scale where the scale is
// below 1. An element outside of x is the one at the edge, or with exclude_outside is left out,
// with the remaining weights scaled to sum 1.

#include <math.h>
#include <string.h>

#include "frontend/onnx_node.h"

typedef enum Mode { NEAREST, LINEAR, CUBIC } Mode;

// The settings of a node, and of one axis.
typedef struct Resize {
  Mode mode;
  const char *coordinate, *nearest, *policy; // policy: of sizes
  double cubic_a, extrapolation;
  bool antialias, exclude_outside;
} Resize;

typedef struct ResizeAxis {
  int axis;
  int64_t length, size; // of x, of the result
  double scale;         // as requested: size / length unless that was rounded
  double start, end;    // of tf_crop_and_resize, in units of the length
} ResizeAxis;

static const char *const coordinates[] = {
    "half_pixel",           "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",   "asymmetric"};
static const char *const policies[] = {"stretch", "not_larger", "not_smaller"};
static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil",
                                        "floor_up_ceil_down"};

static bool one_of(const char *s, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (str_equal(s, names[i])) return true;
  return false;
}
#define ONE_OF(s, names) one_of(s, names, sizeof(names) / sizeof *(names))

static bool is_crop(const Resize *r) {
  return str_equal(r->coordinate, "tf_crop_and_resize");
}

// Returns the coordinate in x of position `o` of the result.
static double coordinate_of(const Resize *r, const ResizeAxis *a, double o) {
  const char *how = r->coordinate;
  double length = (double)a->length, size = a->scale * length;
  if (str_equal(how, "asymmetric")) return o / a->scale;
  if (str_equal(how, "tf_half_pixel_for_nn")) return (o + 0.5) / a->scale;
  if (str_equal(how, "align_corners")) return size == 1 ? 0 : o * (length - 1) / (size - 1);
  if (is_crop(r)) {
    double span = (a->end - a->start) * (length - 1);
    return a->start * (length - 1) + (size == 1 ? span / 2 : o * span / (size - 1));
  }
  // Of one element of PyTorch, the first of x; symmetric: both centers are the same.
  if (str_equal(how, "pytorch_half_pixel") && size == 1) return -0.5;
  double shift =
      str_equal(how, "half_pixel_symmetric") ? length / 2 * (1 - (double)a->size / size) : 0;
  return shift + (o + 0.5) / a->scale - 0.5;
}

// Whether an element is the one after the coordinate, rather than the one before it.
static double is_upper(const Resize *r, const ResizeAxis *a, double ratio) {
  const char *how = r->nearest;
  if (ratio == 1) return 1;
  if (str_equal(how, "floor_up_ceil_down")) how = a->scale < 1 ? "ceil" : "floor";
  if (str_equal(how, "floor")) return 0;
  if (str_equal(how, "ceil")) return 1;
  return str_equal(how, "round_prefer_ceil") ? ratio >= 0.5 : ratio > 0.5;
}

// The weight of an element at distance `x` from the coordinate.
static double linear_kernel(double x) {
  return fmax(0, 1 - fabs(x));
}

static double cubic_kernel(double x, double a) {
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// Returns how far the kernel reaches to either side, in elements of x.
static int64_t reach_of(const Resize *r, const ResizeAxis *a) {
  if (r->mode == NEAREST) return 1;
  int64_t reach = r->mode == CUBIC ? 2 : 1;
  if (!r->antialias || a->scale >= 1) return reach;
  return (int64_t)fmin(ceil((double)reach / a->scale), INT32_MAX);
}

// Sets weight[2 * reach] for position o, of the elements from `first` on; false if the position is
// outside of x.
static bool weigh(const Resize *r, const ResizeAxis *a, int64_t o, int64_t reach, int64_t *first,
                  double *weight) {
  double x = coordinate_of(r, a, (double)o), last = (double)(a->length - 1);
  memset(weight, 0, 2 * (size_t)reach * sizeof *weight);
  *first = 0;
  if (is_crop(r) && (x < 0 || x > last)) return false;
  double before = ceil(x) - 1, ratio = x - before, sum = 0, inside = 0;
  double by = r->antialias && a->scale < 1 ? a->scale : 1;
  *first = (int64_t)fmin(fmax(before + 1 - (double)reach, 0), last);
  for (int pass = 0; pass < 2; pass++)
    // The sums first, by which the weights are then divided.
    for (int64_t i = 1 - reach; i <= reach; i++) {
      double w = r->mode == NEAREST  ? (i == 1) == is_upper(r, a, ratio)
                 : r->mode == LINEAR ? linear_kernel(by * ((double)i - ratio))
                                     : cubic_kernel(by * ((double)i - ratio), r->cubic_a);
      double at = before + (double)i;
      bool outside = at < 0 || at > last;
      if (pass == 0) {
        sum += w;
        inside += outside ? 0 : w;
        continue;
      }
      if (r->exclude_outside)
        w = outside || inside == 0 ? 0 : w / inside;
      else if (r->antialias)
        w /= sum;
      if (w != 0) weight[(int64_t)fmin(fmax(at, 0), last) - *first] += w;
    }
  return true;
}

// The table of one axis.
typedef struct Taps {
  int64_t n;       // per position
  int32_t *first;  // [size]
  double *weight;  // [size, n]
  uint8_t *beyond; // [size]: the position is outside of x
  bool any_beyond;
} Taps;

static bool find_taps(Node *n, const Resize *r, const ResizeAxis *a, Taps *t) {
  int64_t window = 2 * reach_of(r, a);
  if (!node_small(n, a->size * window)) return false;
  double *all = arena_array(n->a, double, a->size *window);
  int64_t *skipped = arena_array(n->a, int64_t, a->size);
  t->first = arena_array(n->a, int32_t, a->size);
  t->beyond = arena_array(n->a, uint8_t, a->size);
  t->n = 1;
  t->any_beyond = false;
  for (int64_t o = 0; o < a->size; o++) {
    int64_t first, from = 0, to = window;
    double *row = all + o * window;
    t->beyond[o] = !weigh(r, a, o, window / 2, &first, row);
    t->any_beyond = t->any_beyond || t->beyond[o];
    // From the first to the last element with a weight.
    while (to > 0 && row[to - 1] == 0)
      to--;
    while (from < to && row[from] == 0)
      from++;
    skipped[o] = from;
    t->first[o] = (int32_t)(first + from);
    if (to - from > t->n) t->n = to - from;
  }
  t->weight = arena_array(n->a, double, a->size * t->n);
  for (int64_t o = 0; o < a->size; o++)
    for (int64_t k = 0; k < t->n && skipped[o] + k < window; k++)
      t->weight[o * t->n + k] = all[o * window + skipped[o] + k];
  return true;
}

static Value *resample(Node *n, Value *x, const ResizeAxis *a, const Taps *t) {
  Module *m = n->b->g->module;
  Value *first = build_constant(n->b, type_new(m, DT_i32, 1, &a->size), t->first);
  // Whole numbers are never interpolated, so each has one tap.
  if (dtype_class[x->type->dtype] != 'F')
    return build_op(n->b, OP_gather, IN(x, first), ATTRS(a_i("axis", a->axis)));
  DType dtype = x->type->dtype == DT_f64 ? DT_f64 : DT_f32;
  Tensor weight = tensor_new(n->a, type_new(m, dtype, 2, (int64_t[]){a->size, t->n}));
  for (int64_t i = 0; i < type_count(weight.type); i++)
    tensor_set_f(&weight, i, t->weight[i]);
  return build_op(n->b, OP_resample, IN(x, first, build_constant(n->b, weight.type, weight.data)),
                  ATTRS(a_i("axis", a->axis)));
}

static Value *resize_axis(Node *n, Value *x, const Resize *r, const ResizeAxis *a) {
  Taps t;
  bool whole = a->start == 0 && a->end == 1;
  if (!x || (a->scale == 1 && a->size == a->length && (whole || !is_crop(r)))) return x;
  if (!find_taps(n, r, a, &t)) return NULL;
  Value *y = resample(n, x, a, &t);
  if (!y || !t.any_beyond) return y;
  // Positions outside of x have a value of their own.
  int64_t dim[MAX_NDIM];
  for (int i = 0; i < y->type->ndim; i++)
    dim[i] = i == a->axis ? a->size : 1;
  Value *beyond =
      build_constant(n->b, type_new(n->b->g->module, DT_bool, y->type->ndim, dim), t.beyond);
  beyond = build_broadcast(n->b, beyond, y->type->ndim, y->type->dim);
  return build_where(n->b, beyond, node_like(n, y, r->extrapolation), y);
}

// Reads numbers that stand in an operand; `given` is false if it is left out or empty.
static bool read_numbers(Node *n, int i, const char *what, int count, double *out, bool *given) {
  const Tensor *t;
  if (!node_setting(n, i, what, &t)) return false;
  *given = t && type_count(t->type) > 0;
  if (!*given) return true;
  if (t->type->ndim != 1 || t->type->dim[0] != count)
    return node_fail(n, "its %s are %s, and %d numbers are needed", what, type_text(n->a, t->type),
                     count);
  for (int k = 0; k < count; k++)
    out[k] = tensor_f(t, k);
  return true;
}

static bool read_settings(Node *n, Resize *r) {
  const char *mode = node_str(n, "mode", "nearest");
  // Before opset 11 there is one coordinate transformation, and nearest rounds away from the
  // result.
  bool old = n->opset < 11;
  r->coordinate = old ? "asymmetric" : node_str(n, "coordinate_transformation_mode", "half_pixel");
  r->nearest = old ? "floor_up_ceil_down" : node_str(n, "nearest_mode", "round_prefer_floor");
  r->policy = node_str(n, "keep_aspect_ratio_policy", "stretch");
  r->cubic_a = node_float(n, "cubic_coeff_a", -0.75);
  r->extrapolation = node_float(n, "extrapolation_value", 0);
  r->antialias = node_int(n, "antialias", 0) != 0;
  r->exclude_outside = node_int(n, "exclude_outside", 0) != 0;
  if (str_equal(mode, "nearest"))
    r->mode = NEAREST;
  else if (str_equal(mode, "linear"))
    r->mode = LINEAR;
  else if (str_equal(mode, "cubic") && !old)
    r->mode = CUBIC;
  else
    return node_fail(n, "mode '%s' is unknown", mode);
  if (!ONE_OF(r->coordinate, coordinates))
    return node_fail(n, "coordinate_transformation_mode '%s' is unknown", r->coordinate);
  if (!ONE_OF(r->nearest, roundings))
    return node_fail(n, "nearest_mode '%s' is unknown", r->nearest);
  if (!ONE_OF(r->policy, policies))
    return node_fail(n, "keep_aspect_ratio_policy '%s' is unknown", r->policy);
  if (r->antialias && r->mode == NEAREST)
    return node_fail(n, "there is no antialias for mode 'nearest'");
  if (r->mode != NEAREST && dtype_class[n->in[0]->type->dtype] != 'F')
    return node_fail_hint(
        n, "a Cast to a floating-point type before the node, and one back after it",
        "mode '%s' is not supported for elements of %s", mode, dtype_name[n->in[0]->type->dtype]);
  return true;
}

// The axes of the lists: all, or those of the attribute.
static bool read_axes(Node *n, ResizeAxis *a, int *count) {
  const Type *x = n->in[0]->type;
  Ints list;
  bool given = n->opset >= 18 && node_list(n, "axes", &list), seen[MAX_NDIM] = {false};
  *count = given ? list.n : x->ndim;
  if (*count > x->ndim) return node_fail(n, "has %d axes for %d dimensions", *count, x->ndim);
  for (int i = 0; i < *count; i++) {
    a[i] = (ResizeAxis){.axis = i, .start = 0, .end = 1};
    if (given && !node_axis(n, list.at[i], x->ndim, &a[i].axis)) return false;
    if (seen[a[i].axis]) return node_fail(n, "axis %d is there twice", a[i].axis);
    seen[a[i].axis] = true;
    a[i].length = x->dim[a[i].axis];
  }
  return true;
}

// Fills in lengths of the result, and scales: each determines the other.
static bool take_scales(Node *n, ResizeAxis *a, int count, const double *scale) {
  for (int i = 0; i < count; i++) {
    if (!(scale[i] > 0) || !(scale[i] * (double)a[i].length < INT32_MAX))
      return node_fail(n, "a scale of %g", scale[i]);
    a[i].scale = scale[i];
    a[i].size = (int64_t)(scale[i] * (double)a[i].length);
  }
  return true;
}

static bool take_sizes(Node *n, ResizeAxis *a, int count, const double *size, const char *policy) {
  bool larger = str_equal(policy, "not_smaller"), stretch = str_equal(policy, "stretch");
  double scale = larger ? 0 : INFINITY;
  for (int i = 0; i < count; i++) {
    if (!(size[i] >= 1) || !(size[i] < INT32_MAX)) return node_fail(n, "a size of %g", size[i]);
    if (a[i].length < 1) return node_fail(n, "its operand is %s", type_text(n->a, n->in[0]->type));
    a[i].size = (int64_t)size[i];
    a[i].scale = size[i] / (double)a[i].length;
    scale = larger ? fmax(scale, a[i].scale) : fmin(scale, a[i].scale);
  }
  // One scale for all axes; sizes are rounded.
  for (int i = 0; i < count && !stretch; i++) {
    double rounded = scale * (double)a[i].length + 0.5;
    if (!(rounded < INT32_MAX)) return node_fail(n, "a scale of %g", scale);
    a[i].scale = scale;
    a[i].size = (int64_t)rounded;
  }
  return true;
}

static bool resize(Node *n, const Resize *r, ResizeAxis *a, int count) {
  const Type *x = n->in[0]->type;
  int64_t dim[MAX_NDIM];
  memcpy(dim, x->dim, sizeof dim);
  for (int i = 0; i < count; i++) {
    if (a[i].length < 1 || a[i].length > INT32_MAX)
      return node_fail(n, "its operand is %s", type_text(n->a, x));
    dim[a[i].axis] = a[i].size;
  }
  if (!node_shape(n, x->ndim, dim)) return false;
  // The axis that shrinks the most is first, so that the others have less work; of two, the last
  // one.
  Value *y = n->in[0];
  bool done[MAX_NDIM] = {false};
  for (int k = 0; k < count; k++) {
    int next = -1;
    for (int i = 0; i < count; i++)
      if (!done[i] && (next < 0 || a[i].scale < a[next].scale ||
                       (a[i].scale == a[next].scale && a[i].axis > a[next].axis)))
        next = i;
    done[next] = true;
    y = resize_axis(n, y, r, &a[next]);
  }
  n->out[0] = y;
  return y != NULL;
}

bool import_resize(Node *n) {
  Resize r = {0};
  ResizeAxis a[MAX_NDIM] = {0};
  int count;
  bool old = n->opset < 11, has_scales, has_sizes = false, has_roi = false;
  double scale[MAX_NDIM] = {0}, size[MAX_NDIM] = {0}, roi[2 * MAX_NDIM] = {0};
  if (!read_settings(n, &r) || !read_axes(n, a, &count)) return false;
  // In opset 10 the scales are operand 1.
  if (!read_numbers(n, old ? 1 : 2, "scales", count, scale, &has_scales)) return false;
  if (!old && !read_numbers(n, 3, "sizes", count, size, &has_sizes)) return false;
  if (has_scales == has_sizes)
    return node_fail(n, "%s", has_sizes ? "has both scales and sizes" : "has no scales or sizes");
  if (is_crop(&r)) {
    if (!read_numbers(n, 1, "roi", 2 * count, roi, &has_roi)) return false;
    if (!has_roi) return node_fail(n, "tf_crop_and_resize has no roi");
    for (int i = 0; i < count; i++) {
      a[i].start = roi[i];
      a[i].end = roi[count + i];
      if (!isfinite(roi[i]) || !isfinite(roi[count + i]))
        return node_fail(n, "its roi is not finite");
    }
  }
  bool ok = has_scales ? take_scales(n, a, count, scale) : take_sizes(n, a, count, size, r.policy);
  return ok && resize(n, &r, a, count);
}

bool import_upsample(Node *n) {
  const Onnx__AttributeProto *list = node_attr(n, "scales");
  Resize r = {0};
  ResizeAxis a[MAX_NDIM] = {0};
  int count;
  double scale[MAX_NDIM] = {0};
  bool given = true;
  if (!read_settings(n, &r) || !read_axes(n, a, &count)) return false;
  // An attribute before opset 9.
  if (list) {
    if ((int)list->n_floats != count)
      return node_fail(n, "scales has %d entries, and %d are needed", (int)list->n_floats, count);
    for (int i = 0; i < count; i++)
      scale[i] = list->floats[i];
  } else if (!read_numbers(n, 1, "scales", count, scale, &given)) {
    return false;
  }
  if (!given) return node_fail(n, "has no scales");
  return take_scales(n, a, count, scale) && resize(n, &r, a, count);
}
