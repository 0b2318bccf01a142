// Operators that move elements or compute positions: results have the elements of the operands.

#include <string.h>

#include "frontend/onnx_node.h"

bool import_reshape(Node *n) {
  const Type *x = n->in[0]->type;
  Ints shape;
  bool given = node_list(n, "shape", &shape) || node_in(n, 1);
  Value *count_of = NULL;
  int place;
  if (!given) return node_fail(n, "has no shape");
  if (!node_list(n, "shape", &shape) && !node_lengths(n, 1, "shape", &shape, &count_of, &place))
    return false;
  if (count_of && !node_counted(n, n->in[0]))
    return node_fail(n, "its shape has a length that depends on data, and its operand has none");
  if (shape.n > MAX_NDIM)
    return node_fail(n, "a tensor of %d dimensions; the limit is %d", shape.n, MAX_NDIM);
  bool allow_zero = node_int(n, "allowzero", 0) != 0;
  int64_t dim[MAX_NDIM], count = 1;
  int open = -1;
  for (int i = 0; i < shape.n; i++) {
    dim[i] = shape.at[i];
    // 0 copies the dimension of the operand, the first -1 is computed.
    if (dim[i] == 0 && !allow_zero) {
      if (i >= x->ndim)
        return node_fail(n, "shape has a 0 beyond the dimensions of %s", type_text(n->a, x));
      dim[i] = x->dim[i];
    }
    if (dim[i] == -1 && open < 0) {
      open = i;
      dim[i] = 1;
    }
    if (dim[i] < 0) return node_fail(n, "shape has an entry of %lld", (long long)dim[i]);
    if (__builtin_mul_overflow(count, dim[i], &count))
      return node_fail(n, "the size of its result overflows");
  }
  // The open dimension is the rest of the elements.
  int64_t elements = type_count(x);
  if (open >= 0 && count > 0) dim[open] = elements / count;
  if (open >= 0 ? (count == 0 ? elements != 0 : elements % count != 0) : elements != count) {
    // The message shows the requested shape, with its 0 and -1.
    StrBuf b = {.arena = n->a};
    for (int i = 0; i < shape.n; i++)
      strbuf_addf(&b, "%s%lld", i ? "," : "", (long long)shape.at[i]);
    return node_fail_hint(n,
                          "a model exported with a fixed batch or length cannot be given another; "
                          "export it with that dimension symbolic",
                          "%s cannot be reshaped to [%s]", type_text(n->a, x), b.at ? b.at : "");
  }
  n->out[0] = build_reshape(n->b, n->in[0], shape.n, dim);
  return true;
}

bool import_flatten(Node *n) {
  const Type *x = n->in[0]->type;
  int64_t axis = node_int(n, "axis", 1);
  if (axis < 0) axis += x->ndim;
  if (axis < 0 || axis > x->ndim)
    return node_fail(n, "axis %lld is outside of a tensor of %d dimensions", (long long)axis,
                     x->ndim);
  // Everything before the axis, and everything from it on.
  int64_t dim[2] = {product(x->dim, 0, (int)axis), product(x->dim, (int)axis, x->ndim)};
  n->out[0] = build_reshape(n->b, n->in[0], 2, dim);
  return true;
}

bool import_squeeze(Node *n) {
  const Type *x = n->in[0]->type;
  Ints axes;
  bool given, drop[MAX_NDIM] = {false};
  int64_t dim[MAX_NDIM];
  int ndim = 0;
  if (!node_ints(n, 1, "axes", &axes, &given)) return false;
  // Only dimensions of length 1 can be removed.
  for (int i = 0; i < axes.n; i++) {
    int axis;
    if (!node_axis(n, axes.at[i], x->ndim, &axis)) return false;
    if (x->dim[axis] != 1)
      return node_fail(n, "dimension %d of %s is not 1", axis, type_text(n->a, x));
    drop[axis] = true;
  }
  for (int i = 0; i < x->ndim; i++)
    // Without axes all of them are.
    if (given ? !drop[i] : x->dim[i] != 1) dim[ndim++] = x->dim[i];
  n->out[0] = build_reshape(n->b, n->in[0], ndim, dim);
  return true;
}

bool import_unsqueeze(Node *n) {
  const Type *x = n->in[0]->type;
  Ints axes;
  bool given, added[MAX_NDIM] = {false};
  int64_t dim[MAX_NDIM];
  if (!node_ints(n, 1, "axes", &axes, &given)) return false;
  if (!given) return node_fail(n, "has no axes");
  int ndim = x->ndim + axes.n;
  if (ndim > MAX_NDIM)
    return node_fail(n, "a tensor of %d dimensions; the limit is %d", ndim, MAX_NDIM);
  // Axes are of the result.
  for (int i = 0; i < axes.n; i++) {
    int axis;
    if (!node_axis(n, axes.at[i], ndim, &axis)) return false;
    if (added[axis]) return node_fail(n, "axis %d is given twice", axis);
    added[axis] = true;
  }
  // The others are those of the operand, in their order.
  for (int i = 0, k = 0; i < ndim; i++)
    dim[i] = added[i] ? 1 : x->dim[k++];
  n->out[0] = build_reshape(n->b, n->in[0], ndim, dim);
  return true;
}

bool import_transpose(Node *n) {
  int ndim = node_ndim(n, 0);
  Ints perm;
  int64_t reversed[MAX_NDIM];
  for (int i = 0; i < ndim; i++)
    reversed[i] = ndim - 1 - i;
  // By default the dimensions are reversed.
  if (!node_list(n, "perm", &perm)) perm = (Ints){ndim, reversed};
  if (perm.n != ndim)
    return node_fail(n, "perm has %d entries for a tensor of %d dimensions", perm.n, ndim);
  n->out[0] = build_transpose(n->b, n->in[0], perm.at);
  return true;
}

// Old exporters concatenate a vector without elements with other tensors.
bool import_concat(Node *n) {
  Value **in = arena_array(n->a, Value *, n->n_in);
  int count = 0, axis;
  for (int i = 0; i < n->n_in; i++) {
    if (!n->in[i]) return node_fail(n, "operand %d is left out", i);
    // The first operand alone is the result of a concat of one.
    in[count] = n->in[i];
    count += !(n->in[i]->type->ndim == 1 && n->in[i]->type->dim[0] == 0) || i == 0;
  }
  if (count > 1 && in[0]->type->ndim == 1 && in[0]->type->dim[0] == 0) {
    in++;
    count--;
  }
  if (!node_axis(n, node_int(n, "axis", 1), in[0]->type->ndim, &axis)) return false;
  n->out[0] = count == 1 ? in[0] : build_op(n->b, OP_concat, in, count, ATTRS(a_i("axis", axis)));
  return true;
}

bool import_split(Node *n) {
  const Type *x = n->in[0]->type;
  Ints sizes;
  bool given;
  int axis;
  if (!node_axis(n, node_int(n, "axis", 0), x->ndim, &axis)) return false;
  if (!node_ints(n, 1, "split", &sizes, &given)) return false;
  if (given && sizes.n != n->n_out)
    return node_fail(n, "has %d sizes for %d results", sizes.n, n->n_out);
  // Splits into equal parts, the last of which may be shorter; one for each result of the node.
  if (node_int(n, "num_outputs", n->n_out) != n->n_out)
    return node_fail(n, "has %d results and num_outputs of %lld", n->n_out,
                     (long long)node_int(n, "num_outputs", 0));
  int64_t length = x->dim[axis], equal = (length + n->n_out - 1) / (n->n_out ? n->n_out : 1);
  int64_t at = 0;
  for (int i = 0; i < n->n_out; i++) {
    // Given sizes, or equal ones.
    int64_t size = given ? sizes.at[i] : length - at < equal ? length - at : equal;
    if (size < 0 || size > length - at)
      return node_fail(n, "its parts are longer than dimension %d of %s", axis, type_text(n->a, x));
    n->out[i] = node_part(n, n->in[0], axis, at, size);
    at += size;
  }
  return at == length ||
         node_fail(n, "its parts are shorter than dimension %d of %s", axis, type_text(n->a, x));
}

// Bounds count from the end if negative, and are clamped to the tensor.
static int64_t clamp_bound(int64_t at, int64_t length, int64_t low, int64_t high) {
  if (at < 0) at = at < -length ? -1 : at + length;
  return at < low ? low : at > high ? high : at;
}

bool import_slice(Node *n) {
  const Type *x = n->in[0]->type;
  Ints begin, end, axes, by;
  Value *count = NULL;
  int place = 0, counted_axis = 0;
  bool given, has_axes, has_steps;
  if (!node_ints(n, 1, "starts", &begin, &given)) return false;
  if (!node_list(n, "ends", &end) && !node_lengths(n, 2, "ends", &end, &count, &place))
    return false;
  if (!node_ints(n, 3, "axes", &axes, &has_axes)) return false;
  if (!node_ints(n, 4, "steps", &by, &has_steps)) return false;
  if (begin.n != end.n || (has_axes && axes.n != begin.n) || (has_steps && by.n != begin.n))
    return node_fail(n, "its starts, ends, axes and steps differ in number");
  int64_t starts[MAX_NDIM] = {0}, steps[MAX_NDIM], shape[MAX_NDIM];
  for (int i = 0; i < x->ndim; i++) {
    steps[i] = 1;
    shape[i] = x->dim[i];
  }
  bool whole = true;
  for (int i = 0; i < begin.n; i++) {
    int axis;
    if (!node_axis(n, has_axes ? axes.at[i] : i, x->ndim, &axis)) return false;
    int64_t length = x->dim[axis], step = has_steps ? by.at[i] : 1;
    if (count && i == place) {
      counted_axis = axis;
      if (begin.at[i] != 0 || step != 1 || end.at[i] > length)
        return node_fail(n,
                         "its end depends on data: only the first elements, without a step, of a "
                         "dimension of the bound or more are supported");
    }
    if (step == 0 || step == INT64_MIN) return node_fail(n, "a step of %lld", (long long)step);
    // With a negative step the end is one before the first element.
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? length : length - 1;
    // Bounds count from the end if negative, and are clamped to the tensor.
    int64_t from = clamp_bound(begin.at[i], length, low, high);
    int64_t to = clamp_bound(end.at[i], length, low, high);
    int64_t span = step > 0 ? to - from : from - to, size = step > 0 ? step : -step;
    shape[axis] = span > 0 ? (span - 1) / size + 1 : 0;
    starts[axis] = shape[axis] ? from : 0;
    // For one element every step is the same.
    steps[axis] = shape[axis] > 1 ? step : 1;
    whole = whole && shape[axis] == length && steps[axis] == 1;
  }
  n->out[0] =
      whole && (!count || node_counted(n, n->in[0]))
          ? n->in[0]
          : build_op(n->b, OP_slice, IN(n->in[0]),
                     ATTRS(a_list("starts", starts, x->ndim), a_list("steps", steps, x->ndim),
                           a_list("shape", shape, x->ndim)));
  return !count || node_counted(n, n->in[0]) || node_count(n, n->out[0], counted_axis, count);
}

bool import_pad(Node *n) {
  const Type *x = n->in[0]->type;
  Ints pads, axes;
  bool given, has_axes;
  const char *mode = node_str(n, "mode", "constant");
  double value = node_float(n, "value", 0);
  if (!node_ints(n, 1, "pads", &pads, &given)) return false;
  // The value is an attribute in older opsets.
  if (!node_attr(n, "value") && !node_setting_float(n, 2, "constant value", 0, &value))
    return false;
  if (!node_ints(n, 3, "axes", &axes, &has_axes)) return false;
  int count = has_axes ? axes.n : x->ndim;
  if (pads.n != 2 * count) return node_fail(n, "has %d pads for %d dimensions", pads.n, count);
  int64_t low[MAX_NDIM] = {0}, shape[MAX_NDIM];
  memcpy(shape, x->dim, sizeof shape);
  bool none = true;
  // Pads are all starts, then all ends; negative ones crop.
  for (int i = 0; i < count; i++) {
    int axis;
    if (!node_axis(n, has_axes ? axes.at[i] : i, x->ndim, &axis)) return false;
    low[axis] = pads.at[i];
    none = none && pads.at[i] == 0 && pads.at[count + i] == 0;
    if (__builtin_add_overflow(shape[axis], pads.at[i], &shape[axis]) ||
        __builtin_add_overflow(shape[axis], pads.at[count + i], &shape[axis]))
      return node_fail(n, "the size of its result overflows");
  }
  if (!node_shape(n, x->ndim, shape)) return false;
  n->out[0] = none ? n->in[0]
                   : build_op(n->b, OP_pad, IN(n->in[0]),
                              ATTRS(a_list("low", low, x->ndim), a_list("shape", shape, x->ndim),
                                    a_s("mode", mode), a_f("value", value)));
  return true;
}

// Crops or pads with zeros around the center; of an odd number the greater half is at the end.
bool import_center_crop_pad(Node *n) {
  const Type *x = n->in[0]->type;
  Ints want, axes;
  bool given, has_axes = node_list(n, "axes", &axes);
  if (!node_ints(n, 1, "shape", &want, &given)) return false;
  int count = has_axes ? axes.n : x->ndim;
  if (want.n != count)
    return node_fail(n, "its shape has %d numbers for %d dimensions", want.n, count);
  int64_t start[MAX_NDIM] = {0}, step[MAX_NDIM], low[MAX_NDIM] = {0}, cut[MAX_NDIM], dim[MAX_NDIM];
  bool crops = false, pads = false;
  for (int i = 0; i < x->ndim; i++) {
    step[i] = 1;
    cut[i] = dim[i] = x->dim[i];
  }
  for (int i = 0; i < count; i++) {
    int axis;
    if (!node_axis(n, has_axes ? axes.at[i] : i, x->ndim, &axis)) return false;
    int64_t length = x->dim[axis], to = want.at[i];
    if (to < 0) return node_fail(n, "a length of %lld", (long long)to);
    dim[axis] = to;
    cut[axis] = to < length ? to : length;
    start[axis] = to < length ? (length - to) / 2 : 0;
    low[axis] = to > length ? (to - length) / 2 : 0;
    crops = crops || to < length;
    pads = pads || to > length;
  }
  if (!node_shape(n, x->ndim, dim)) return false;
  Value *y = n->in[0];
  if (crops)
    y = build_op(n->b, OP_slice, IN(y),
                 ATTRS(a_list("starts", start, x->ndim), a_list("steps", step, x->ndim),
                       a_list("shape", cut, x->ndim)));
  if (pads)
    y = build_op(n->b, OP_pad, IN(y),
                 ATTRS(a_list("low", low, x->ndim), a_list("shape", dim, x->ndim),
                       a_s("mode", "constant"), a_f("value", 0)));
  n->out[0] = y;
  return true;
}

// Broadcasts both ways: for a 1 in the requested shape, the tensor's own dimension is kept.
bool import_expand(Node *n) {
  const Type *x = n->in[0]->type;
  Ints shape;
  Value *count;
  int place;
  if (!node_lengths(n, 1, "shape", &shape, &count, &place)) return false;
  int ndim = shape.n > x->ndim ? shape.n : x->ndim;
  int64_t dim[MAX_NDIM];
  if (ndim > MAX_NDIM) return node_shape(n, ndim, NULL);
  for (int i = 0; i < ndim; i++) {
    // Both shapes are aligned at the end.
    int is = i - (ndim - shape.n), ix = i - (ndim - x->ndim);
    int64_t want = is < 0 ? 1 : shape.at[is], have = ix < 0 ? 1 : x->dim[ix];
    if (want != have && want != 1 && have != 1)
      return node_fail(n, "%s does not expand to a dimension of %lld", type_text(n->a, x),
                       (long long)want);
    dim[i] = want == 1 ? have : want;
  }
  if (!node_shape(n, ndim, dim)) return false;
  n->out[0] = build_broadcast(n->b, n->in[0], ndim, dim);
  if (!count || node_counted(n, n->in[0])) return true;
  // One element becomes as many as the count.
  int axis = ndim - shape.n + place, from = axis - (ndim - x->ndim);
  if (from >= 0 && x->dim[from] != 1)
    return node_fail(n, "%s does not expand to a length that depends on data", type_text(n->a, x));
  return node_count(n, n->out[0], axis, count);
}

// One dimension after another: (before, 1, rest) is broadcast to (before, times, rest).
bool import_tile(Node *n) {
  Value *x = n->in[0];
  Ints times;
  bool given;
  int64_t dim[MAX_NDIM];
  if (!node_ints(n, 1, "repeats", &times, &given)) return false;
  if (times.n != x->type->ndim)
    return node_fail(n, "has %d repeats for %d dimensions", times.n, x->type->ndim);
  int ndim = x->type->ndim;
  for (int i = 0; i < ndim; i++)
    if (times.at[i] < 0 || __builtin_mul_overflow(x->type->dim[i], times.at[i], &dim[i]))
      return node_fail(n, "repeats has an entry of %lld", (long long)times.at[i]);
  // The size of the result is checked before anything is built.
  if (!node_shape(n, ndim, dim)) return false;
  for (int i = 0; i < ndim; i++) {
    if (times.at[i] == 1 || !x) continue;
    // The dimension is split into (1, rest), and the 1 broadcast.
    memcpy(dim, x->type->dim, sizeof dim);
    int64_t before = product(dim, 0, i), rest = product(dim, i, ndim);
    x = build_reshape(n->b, x, 3, (int64_t[]){before, 1, rest});
    x = build_broadcast(n->b, x, 3, (int64_t[]){before, times.at[i], rest});
    dim[i] *= times.at[i];
    x = build_reshape(n->b, x, ndim, dim);
  }
  n->out[0] = x;
  return true;
}

bool import_trilu(Node *n) {
  int64_t k;
  if (!node_setting_int(n, 1, "k", 0, &k)) return false;
  // All larger diagonals are outside of the matrix, too.
  if (k > INT32_MAX) k = INT32_MAX;
  if (k < -INT32_MAX) k = -INT32_MAX;
  n->out[0] = build_op(n->b, OP_trilu, IN(n->in[0]),
                       ATTRS(a_b("upper", node_int(n, "upper", 1)), a_i("k", k)));
  return true;
}

// Reads the block size for x (n, c, h, w), which must be divisible into blocks.
static bool read_block(Node *n, bool channels, int64_t *block) {
  const Type *x = n->in[0]->type;
  *block = node_int(n, "blocksize", 0);
  if (x->ndim != 4) return node_fail(n, "operand 0 is %s, not an image", type_text(n->a, x));
  // Blocks of the channels, or of height and width.
  if (*block < 1 || *block > 1 << 15 ||
      (channels ? x->dim[1] % (*block * *block) : x->dim[2] % *block || x->dim[3] % *block))
    return node_fail(n, "%s has no blocks of %lld", type_text(n->a, x), (long long)*block);
  return true;
}

bool import_depth_to_space(Node *n) {
  const int64_t *d = n->in[0]->type->dim;
  int64_t b;
  if (!read_block(n, true, &b)) return false;
  int64_t c = d[1] / (b * b);
  bool crd = str_equal(node_str(n, "mode", "DCR"), "CRD");
  // The two modes differ in the place of the block's dimensions among the channels.
  Value *x = crd ? build_reshape(n->b, n->in[0], 6, (int64_t[]){d[0], c, b, b, d[2], d[3]})
                 : build_reshape(n->b, n->in[0], 6, (int64_t[]){d[0], b, b, c, d[2], d[3]});
  x = crd ? build_transpose(n->b, x, (int64_t[]){0, 1, 4, 2, 5, 3})
          : build_transpose(n->b, x, (int64_t[]){0, 3, 4, 1, 5, 2});
  n->out[0] = build_reshape(n->b, x, 4, (int64_t[]){d[0], c, d[2] * b, d[3] * b});
  return true;
}

bool import_space_to_depth(Node *n) {
  const int64_t *d = n->in[0]->type->dim;
  int64_t b;
  if (!read_block(n, false, &b)) return false;
  int64_t h = d[2] / b, w = d[3] / b;
  bool crd = str_equal(node_str(n, "mode", "DCR"), "CRD");
  // Height and width are split into blocks, whose elements become channels.
  Value *x = build_reshape(n->b, n->in[0], 6, (int64_t[]){d[0], d[1], h, b, w, b});
  x = crd ? build_transpose(n->b, x, (int64_t[]){0, 1, 3, 5, 2, 4})
          : build_transpose(n->b, x, (int64_t[]){0, 3, 5, 1, 2, 4});
  n->out[0] = build_reshape(n->b, x, 4, (int64_t[]){d[0], d[1] * b * b, h, w});
  return true;
}
