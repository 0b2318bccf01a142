// Images at points of a grid: AffineGrid and GridSample (onnx_taps.h).

#include "frontend/onnx_taps.h"

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
  Tensor points =
      tensor_new(n->a, type_new(m, taps_constant_type(theta), 2, (int64_t[]){k + 1, p}));
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
  Value *distance = build_unary(n->b, OP_abs, node_offset(n, x, -low));
  Value *flips = build_unary(n->b, OP_floor, build_scale(n->b, distance, 1 / span));
  Value *rest = build_binary(n->b, OP_sub, distance, build_scale(n->b, flips, span));
  Value *half = build_scale(n->b, flips, 0.5);
  Value *even = build_binary(n->b, OP_equal, half, build_unary(n->b, OP_floor, half));
  Value *there = node_offset(n, rest, low);
  Value *back = node_offset(n, build_unary(n->b, OP_neg, rest), low + span);
  return build_where(n->b, even, there, back);
}

// Adds the tap at position `at`, a whole number, with its weight (NULL: 1).
static void add_tap(Node *n, const Sampling *s, Taps *a, Value *at, Value *weight, int64_t length) {
  if (!at) return;
  Value *inside = node_between(n, at, 0, (double)(length - 1)), *zero = node_like(n, at, 0);
  if (s->padding == REFLECTION) at = build_where(n->b, inside, at, reflect(n, s, at, length));
  if (!weight) weight = node_like(n, at, 1);
  if (s->padding == ZEROS) weight = build_where(n->b, inside, weight, zero);
  a->at[a->n] = taps_index(n, at, length);
  a->weight[a->n++] = weight;
}

// The weights of the four taps around a point, with the ratio of its distance to the second one.
static Value *cubic_weight(Node *n, Value *ratio, int k) {
  // Its distance to tap k, and the polynomial of Keys with a = -0.75 there.
  static const double a = -0.75;
  Value *x = k == 0   ? node_offset(n, ratio, 1)
             : k == 1 ? ratio
                      : node_offset(n, build_unary(n->b, OP_neg, ratio), k == 2 ? 1 : 2);
  bool near = k == 1 || k == 2;
  double cube = near ? a + 2 : a, square = near ? -(a + 3) : -5 * a;
  Value *y = node_offset(n, build_scale(n->b, x, cube), square);
  y = build_binary(n->b, OP_mul, y, x);
  if (near) return node_offset(n, build_binary(n->b, OP_mul, y, x), 1);
  y = build_binary(n->b, OP_mul, node_offset(n, y, 8 * a), x);
  return node_offset(n, y, -4 * a);
}

// The taps along a dimension of coordinates from -1 to 1.
static void find_taps(Node *n, const Sampling *s, Value *x, int64_t length, Taps *a) {
  double last = (double)length - 1, scale = (s->align ? last : last + 1) / 2;
  double low = s->align ? 0 : -0.5, high = last - low;
  a->n = 0;
  x = node_offset(n, build_scale(n->b, x, scale), s->align ? scale : scale - 0.5);
  if (s->mode == NEAREST) x = build_unary(n->b, OP_round, x);
  // Points outside of the image move to its border, or are reflected.  A cubic kernel at a point on
  // the outer half of an element stays there.
  if (s->padding == REFLECTION)
    x = build_where(n->b, node_between(n, x, low, high), x, reflect(n, s, x, length));
  if (s->padding == BORDER && s->mode == CUBIC)
    x = build_where(n->b, node_between(n, x, low, high), x, node_clip(n, x, 0, last));
  else if (s->padding != ZEROS && s->mode != CUBIC)
    x = node_clip(n, x, 0, last);
  if (s->mode == NEAREST) {
    add_tap(n, s, a, x, NULL, length);
    return;
  }
  Value *before = build_unary(n->b, OP_floor, x), *ratio = build_binary(n->b, OP_sub, x, before);
  if (s->mode == LINEAR) {
    add_tap(n, s, a, before, node_offset(n, build_unary(n->b, OP_neg, ratio), 1), length);
    add_tap(n, s, a, node_offset(n, before, 1), ratio, length);
    return;
  }
  for (int k = 0; k < MAX_TAPS; k++)
    add_tap(n, s, a, node_offset(n, before, k - 1), cubic_weight(n, ratio, k), length);
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
  Taps axis[3] = {0};
  for (int j = 0; j < k; j++) {
    // The last dimension is x, the first coordinate.
    Value *at = grid ? build_slice(n->b, grid, 2, k - 1 - j, 1) : NULL;
    at = build_reshape(n->b, at, 2, (int64_t[]){batch, points});
    find_taps(n, &s, at, t->dim[2 + j], &axis[j]);
  }
  Value *index, *weight;
  if (!taps_combine(n, axis, t->dim + 2, k, 1, &index, &weight)) return false;
  // (n, taps, p, c), summed over taps.
  Value *y = build_op(n->b, OP_gather, IN(taps_image(n, x), index),
                      ATTRS(a_i("axis", 1), a_i("batch", 1)));
  y = build_reduce_sum(n->b, taps_weighted(n, y, weight), (int64_t[]){1}, 1, false);
  y = build_transpose(n->b, y, (int64_t[]){0, 2, 1});
  int64_t dim[MAX_NDIM] = {batch, t->dim[1]};
  for (int j = 0; j < k; j++)
    dim[2 + j] = g->dim[1 + j];
  n->out[0] = build_reshape(n->b, y, k + 2, dim);
  return true;
}
