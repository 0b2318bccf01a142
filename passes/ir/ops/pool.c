// Pooling: the largest or the mean of a window's elements.
//
//     n c y^ x^ -> n c p^ q^
//
// Padding never wins a maximum, and counts in a mean only with `include_pad`.  The shape of the
// result is an attribute, since models round it up or down; windows may reach beyond the padding,
// which then counts nowhere, but each must see at least one element.  As in PyTorch, the first of
// equal elements is the maximum and a NaN is larger than all.

#include "ir/ops/reference.h"
#include "ir/ops/window.h"

static const char input_letters[] = "zyx", output_letters[] = "upq";

// Fills `w` from the attributes, the type of the pooled tensor, and the type of the result.
static bool pool_window(Window *w, const Op *op, const Type *x, const Type *y, Diag *d) {
  const char *name = op_info[op->kind].name;
  int n;
  if (!window_ndim(op, x->ndim, &n, d)) return false;
  if (attr_n(op, "kernel") != n)
    return diag_error(d, op->loc, "%s: 'kernel' has %d entries, needs %d", name,
                      attr_n(op, "kernel"), n);
  // Both types must agree about batch and channels.
  if (!window_init(w, op, x, y, attr_list(op, "kernel"), d)) return false;
  if (x->dim[0] != y->dim[0] || w->c_in != w->c_out)
    return diag_error(d, op->loc, "%s: batch and channels of 'shape' must be the operand's", name);
  for (int i = MAX_SPATIAL - n; i < MAX_SPATIAL; i++) {
    if (w->out[i] > INT32_MAX || w->in[i] > INT32_MAX)
      return diag_error(d, op->loc, "%s: a dimension is too long", name);
    // A window that starts on data reads it; only windows that start before data, and the last one,
    // need a check.
    for (int64_t o = 0; o < w->out[i]; o++) {
      int64_t start = o * w->stride[i] - w->before[i];
      if (start >= 0 && o < w->out[i] - 1) {
        o = w->out[i] - 2;
        continue;
      }
      int64_t k = start >= 0 ? 0 : (-start + w->dilation[i] - 1) / w->dilation[i];
      if (k >= w->kernel[i] || start + k * w->dilation[i] >= w->in[i])
        return diag_error(d, op->loc, "%s: window %lld of spatial dimension %d sees only padding",
                          name, (long long)o, i - (MAX_SPATIAL - n));
    }
  }
  return true;
}

// Writes the einsum from `sides`: i for a tensor of the input's shape, o for one of the output's.
static bool pool_dims(const Op *op, Dims *dims, const char *sides, const int64_t *shape, Diag *d) {
  int n = attr_n(op, "shape") - 2;
  bool last = attr_i(op, "channels_last");
  const char *letters = NULL;
  Einsum e = {0};
  // A comma between two tensors, an arrow between operands and results.
  for (const char *s = sides; *s; s++) {
    if (s > sides) einsum_add(&e, *s == '>' ? " -> " : s[-1] == '>' ? "" : ", ");
    if (*s == '>') continue;
    letters = (*s == 'i' ? input_letters : output_letters) + (MAX_SPATIAL - n);
    window_term(&e, "n", "c", letters, n, last);
  }
  if (!dims_parse(dims, op, e.text, d)) return false;
  // The result's spatial letters occur in no operand.
  for (int i = 0; i < n; i++)
    dims_size(dims, letters[i], shape[(last ? 1 : 2) + i]);
  return true;
}

static bool result_type(const Op *op, Type *t, Diag *d) {
  *t = (Type){.dtype = op->in[op->n_in - 1].value->type->dtype, .ndim = attr_n(op, "shape")};
  if (t->ndim != op->in[0].value->type->ndim)
    return diag_error(d, op->loc, "%s: 'shape' has %d entries, the operand has %d dimensions",
                      op_info[op->kind].name, t->ndim, op->in[0].value->type->ndim);
  for (int i = 0; i < t->ndim; i++)
    t->dim[i] = attr_list(op, "shape")[i];
  return true;
}

static bool pool_rule(const Op *op, Dims *dims, const char *sides, bool back, Diag *d) {
  const Type *operand = op->in[0].value->type;
  Type shape;
  Window w;
  if (!result_type(op, &shape, d)) return false;
  if (!pool_window(&w, op, back ? &shape : operand, back ? operand : &shape, d)) return false;
  // The index of a maximum is an i32.
  if (op->kind == OP_max_pool && w.in[0] * w.in[1] > INT32_MAX / w.in[2])
    return diag_error(d, op->loc, "max_pool: positions in the plane do not fit i32");
  return pool_dims(op, dims, sides, shape.dim, d);
}

bool max_pool_rule(const Op *op, Dims *dims, Diag *d) {
  return pool_rule(op, dims, "i>oo", false, d);
}

bool avg_pool_rule(const Op *op, Dims *dims, Diag *d) {
  return pool_rule(op, dims, "i>o", false, d);
}

bool avg_pool_back_rule(const Op *op, Dims *dims, Diag *d) {
  return pool_rule(op, dims, "o>i", true, d);
}

bool max_pool_back_rule(const Op *op, Dims *dims, Diag *d) {
  Type shape;
  Window w;
  if (!result_type(op, &shape, d)) return false;
  if (!pool_window(&w, op, &shape, op->in[0].value->type, d)) return false;
  return pool_dims(op, dims, "oo>i", shape.dim, d);
}

bool max_pool_grad(Builder *b, Op *op, Value **dout, Value **din) {
  const Type *x = op->in[0].value->type;
  if (!dout[0]) return true; // the index has no derivative
  din[0] = build_op(b, OP_max_pool_back, IN(op->out[1], dout[0]),
                    ATTRS(*op_attr(op, "kernel"), *op_attr(op, "strides"), *op_attr(op, "pads"),
                          *op_attr(op, "dilations"), *op_attr(op, "channels_last"),
                          a_list("shape", x->dim, x->ndim)));
  return !b->failed;
}

bool avg_pool_grad(Builder *b, Op *op, Value **dout, Value **din) {
  const Type *x = op->in[0].value->type;
  din[0] = build_op(b, OP_avg_pool_back, IN(dout[0]),
                    ATTRS(*op_attr(op, "kernel"), *op_attr(op, "strides"), *op_attr(op, "pads"),
                          *op_attr(op, "dilations"), *op_attr(op, "include_pad"),
                          *op_attr(op, "channels_last"), a_list("shape", x->dim, x->ndim)));
  return !b->failed;
}

// The window of an output position: its first element of data, and its extent there.  A kernel may
// be much longer than the data.
typedef struct Seen {
  int64_t q[MAX_SPATIAL], n[MAX_SPATIAL];
} Seen;

static Seen window_seen(const Window *w, const int64_t *p) {
  Seen seen;
  for (int i = 0; i < MAX_SPATIAL; i++) {
    int64_t first, end;
    window_range(w, i, p[i], 0, w->in[i], &first, &end);
    seen.q[i] = p[i] * w->stride[i] - w->before[i] + first * w->dilation[i];
    seen.n[i] = end - first;
  }
  return seen;
}

// The input position of element `k` of the part.
static void seen_input(const Window *w, const Seen *seen, const int64_t *k, int64_t *q) {
  for (int i = 0; i < MAX_SPATIAL; i++)
    q[i] = seen->q[i] + k[i] * w->dilation[i];
}

bool max_pool_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  Window w;
  if (!pool_window(&w, op, in[0].type, out[0].type, d)) return false;
  for (int64_t n = 0; n < w.n; n++) {
    for (int64_t c = 0; c < w.c_in; c++) {
      for_each_position(p, w.out) {
        double best = 0;
        int64_t where = -1;
        Seen seen = window_seen(&w, p);
        // The first maximum wins, and NaN wins over numbers.
        for_each_position(k, seen.n) {
          int64_t q[MAX_SPATIAL];
          seen_input(&w, &seen, k, q);
          double x = tensor_f(&in[0], window_at(&w, w.in, w.c_in, n, c, q));
          if (where >= 0 && !(x > best || (x != x && best == best))) continue;
          best = x;
          // The index is within the plane of one image and channel.
          where = (q[0] * w.in[1] + q[1]) * w.in[2] + q[2];
        }
        int64_t at = window_at(&w, w.out, w.c_out, n, c, p);
        tensor_set_f(&out[0], at, best);
        tensor_set_i(&out[1], at, where);
      }
    }
  }
  return true;
}

// The elements of a plane are `step` apart.
bool max_pool_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  bool last = attr_i(op, "channels_last");
  const Type *x = out->type, *y = in[0].type;
  int64_t channels = x->dim[last ? x->ndim - 1 : 1], plane_x = 1, plane_y = 1;
  // The spatial dimensions: between batch and channels, or after both.
  for (int i = last ? 1 : 2; i < x->ndim - last; i++) {
    plane_x *= x->dim[i];
    plane_y *= y->dim[i];
  }
  int64_t step = last ? channels : 1;
  Arena *a = arena_new();
  double *dx = arena_array(a, double, type_count(x));
  bool ok = true;
  for (int64_t n = 0; n < x->dim[0] && ok; n++) {
    for (int64_t c = 0; c < channels && ok; c++) {
      // The first elements of the two planes.
      int64_t start_x = last ? n * plane_x * channels + c : (n * channels + c) * plane_x;
      int64_t start_y = last ? n * plane_y * channels + c : (n * channels + c) * plane_y;
      // Windows may overlap, so an element can get several gradients.
      for (int64_t i = 0; i < plane_y && ok; i++) {
        int64_t where = tensor_i(&in[0], start_y + i * step);
        if (where < 0 || where >= plane_x)
          ok = diag_error(d, op->loc, "max_pool_back: the index %lld is outside 0..%lld",
                          (long long)where, (long long)plane_x - 1);
        else
          dx[start_x + where * step] += tensor_f(&in[1], start_y + i * step);
      }
    }
  }
  if (ok) tensor_set_doubles(out, dx);
  arena_free(a);
  return ok;
}

// The divisor of the sum over the window at `p`: its elements, with `include_pad` also those of the
// padding.
static double window_count(const Window *w, const int64_t *p, bool include_pad) {
  double count = 1;
  for (int i = 0; i < MAX_SPATIAL; i++) {
    // The positions that count along one dimension.
    int64_t low = include_pad ? -w->before[i] : 0;
    int64_t high = w->in[i] + (include_pad ? w->after[i] : 0), first, end;
    window_range(w, i, p[i], low, high, &first, &end);
    count *= (double)(end - first);
  }
  return count;
}

// Adds x / count to y, or dy / count to dx, for every element of every window.
static bool average_reference(const Op *op, const Tensor *in, Tensor *out, bool back, Diag *d) {
  Window w;
  if (!pool_window(&w, op, back ? out->type : in->type, back ? in->type : out->type, d))
    return false;
  Arena *a = arena_new();
  double *from = tensor_doubles(a, in), *to = arena_array(a, double, type_count(out->type));
  double *x = back ? to : from, *y = back ? from : to;
  bool include_pad = attr_i(op, "include_pad");
  for (int64_t n = 0; n < w.n; n++) {
    for (int64_t c = 0; c < w.c_in; c++) {
      for_each_position(p, w.out) {
        // The divisor is the same for all elements of the window.
        double count = window_count(&w, p, include_pad);
        int64_t at_y = window_at(&w, w.out, w.c_out, n, c, p);
        Seen seen = window_seen(&w, p);
        // Padding adds nothing, even if it counts.
        for_each_position(k, seen.n) {
          int64_t q[MAX_SPATIAL];
          seen_input(&w, &seen, k, q);
          int64_t at_x = window_at(&w, w.in, w.c_in, n, c, q);
          if (back)
            x[at_x] += y[at_y] / count;
          else
            y[at_y] += x[at_x] / count;
        }
      }
    }
  }
  tensor_set_doubles(out, to);
  arena_free(a);
  return true;
}

bool avg_pool_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  return average_reference(op, in, out, false, d);
}

bool avg_pool_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  return average_reference(op, in, out, true, d);
}
