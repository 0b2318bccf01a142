// Convolution and its two adjoints.
//
//     y[n o p] = sum over c, r of x[n c q] w[o c r]      q = p * stride - before + r * dilation
//
// is linear in x and in w, so y, dx and dw are three sums over the same triples of elements (x[..],
// w[..], y[..]): conv adds x w to y, conv_back_x adds w dy to dx, conv_back_w adds x dy to dw.
// With groups, output channel o reads only the channels of its own group.
//
// The einsum of a convolution over two dimensions, and the same with groups:
//
//     n c y^ x^, o c r^ s^ -> n o p^ q^
//     n (g^ c^) y^ x^, (g^ o^) c^ r^ s^ -> n (g^ o^) p^ q^
//
// Groups are not split: the attribute `group` is global.

#include "ir/ops/reference.h"
#include "ir/ops/window.h"

enum { X, W, Y }; // the three tensors of a convolution

static const char *const spatial_letters[3] = {"zyx", "trs", "upq"};

// Adds the term of x, w or y to the einsum.
static void add_term(Einsum *e, int tensor, int n, int64_t group, bool channels_last) {
  static const char *const channel[2][3] = {{"(g^ c^)", "c^", "(g^ o^)"}, {"c", "c", "o"}};
  const char *letters = spatial_letters[tensor] + (MAX_SPATIAL - n);
  const char *const *c = channel[group == 1];
  if (tensor == W)
    window_term(e, c[Y], c[W], letters, n, false);
  else
    window_term(e, "n", c[tensor], letters, n, channels_last);
}

// The geometry, from the types of x and w, and of y if it is known.
static bool conv_window(Window *win, const Op *op, const Type *x, const Type *w, const Type *y,
                        Diag *d) {
  const char *name = op_info[op->kind].name;
  if (x->ndim != w->ndim || (y && y->ndim != x->ndim))
    return diag_error(d, op->loc, "%s: the operands' ranks differ", name);
  int n;
  if (!window_ndim(op, x->ndim, &n, d)) return false;
  if (!window_init(win, op, x, y, w->dim + 2, d)) return false;
  int64_t group = attr_i(op, "group");
  // Groups divide the channels on both sides.
  if (group < 1 || w->dim[0] % group)
    return diag_error(d, op->loc, "%s: %lld output channels do not make %lld groups", name,
                      (long long)w->dim[0], (long long)group);
  if (win->c_in % group || win->c_in / group != w->dim[1])
    return diag_error(d, op->loc,
                      "%s: the input has %lld channels, the weight is for %lld groups of %lld",
                      name, (long long)win->c_in, (long long)group, (long long)w->dim[1]);
  // A given output must agree with weight and input.
  if (y && win->c_out != w->dim[0])
    return diag_error(d, op->loc, "%s: the output has %lld channels, the weight is for %lld", name,
                      (long long)win->c_out, (long long)w->dim[0]);
  if (y && y->dim[0] != x->dim[0])
    return diag_error(d, op->loc, "%s: batches of %lld and %lld", name, (long long)x->dim[0],
                      (long long)y->dim[0]);
  win->c_out = w->dim[0];
  // Its spatial size follows from the others.
  int64_t out[MAX_SPATIAL];
  if (!window_output(win, op, n, out, d)) return false;
  for (int j = 0; j < n; j++) {
    int i = MAX_SPATIAL - n + j;
    if (y && win->out[i] != out[j])
      return diag_error(d, op->loc, "%s: spatial dimension %d of the output is %lld, needs %lld",
                        name, j, (long long)win->out[i], (long long)out[j]);
    win->out[i] = out[j];
  }
  // Leading dimensions that the op lacks have length 1.
  for (int i = 0; i < MAX_SPATIAL - n; i++)
    win->out[i] = 1;
  return true;
}

// The rule of the three ops: `which` is the result; the other two are the operands, in the order x,
// w, y.
static bool rule(const Op *op, Dims *dims, int which, Diag *d) {
  const Type *type[3] = {0};
  Type shape;
  int operand = 0;
  // Operands have types; the result of a gradient has the type of attribute `shape`.
  for (int i = 0; i < 3; i++)
    if (i != which) type[i] = op->in[operand++].value->type;
  if (which != Y) {
    shape = (Type){.dtype = op->in[0].value->type->dtype, .ndim = attr_n(op, "shape")};
    if (shape.ndim > MAX_NDIM) shape.ndim = 0; // such a type is illegal for a convolution too
    for (int i = 0; i < shape.ndim; i++)
      shape.dim[i] = attr_list(op, "shape")[i];
    type[which] = &shape;
  }
  Window win;
  if (!conv_window(&win, op, type[X], type[W], type[Y], d)) return false;
  int n = type[X]->ndim - 2;
  int64_t group = attr_i(op, "group");
  // The einsum: two operands and the result.
  Einsum e = {0};
  add_term(&e, which == X ? W : X, n, group, win.channels_last);
  einsum_add(&e, ", ");
  add_term(&e, which == Y ? W : Y, n, group, win.channels_last);
  einsum_add(&e, " -> ");
  add_term(&e, which, n, group, win.channels_last);
  if (!dims_parse(dims, op, e.text, d)) return false;
  // With groups the dimensions are products, so their factors must be given.
  if (group > 1) {
    dims_size(dims, 'g', group);
    dims_size(dims, 'c', type[W]->dim[1]);
    dims_size(dims, 'o', type[W]->dim[0] / group);
  }
  // Spatial letters that only the result has.
  const int64_t *size = which == X ? win.in : which == W ? win.kernel : win.out;
  for (int i = MAX_SPATIAL - n; i < MAX_SPATIAL; i++)
    dims_size(dims, spatial_letters[which][i], size[i]);
  return true;
}

bool conv_rule(const Op *op, Dims *dims, Diag *d) {
  return rule(op, dims, Y, d);
}
bool conv_back_x_rule(const Op *op, Dims *dims, Diag *d) {
  return rule(op, dims, X, d);
}
bool conv_back_w_rule(const Op *op, Dims *dims, Diag *d) {
  return rule(op, dims, W, d);
}

// Builds an op with the attributes of `op`, and with the shape of the result if it is an adjoint.
static Value *conv_of(Builder *b, const Op *op, OpKind kind, Value *first, Value *second,
                      const Type *like) {
  Attr attrs[6] = {*op_attr(op, "strides"), *op_attr(op, "pads"), *op_attr(op, "dilations"),
                   *op_attr(op, "group"), *op_attr(op, "channels_last")};
  int n = 5;
  if (like) attrs[n++] = a_list("shape", like->dim, like->ndim);
  return build_op(b, kind, IN(first, second), (Attrs){attrs, n});
}

bool conv_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value, *w = op->in[1].value, *dy = dout[0];
  din[0] = conv_of(b, op, OP_conv_back_x, w, dy, x->type);
  // The weight's gradient is in f32 if w has 16 bits, and rounded once.
  din[1] = build_cast(b, conv_of(b, op, OP_conv_back_w, x, dy, w->type), w->type->dtype);
  return !b->failed;
}

// Transposed convolutions are imported as conv_back_x, so it has a gradient too.
bool conv_back_x_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *w = op->in[0].value, *dx = dout[0];
  din[0] = conv_of(b, op, OP_conv_back_w, dx, op->in[1].value, w->type);
  din[0] = build_cast(b, din[0], w->type->dtype);
  din[1] = conv_of(b, op, OP_conv, dx, w, NULL);
  return !b->failed;
}

// Visits every triple (x, w, y) whose product is a term of the convolution, and adds the product of
// the other two to the one that is computed.
static void add_triples(const Window *win, int64_t group, double *const at[3], int which) {
  int64_t c_group = win->c_in / group, o_group = win->c_out / group;
  int64_t taps = win->kernel[0] * win->kernel[1] * win->kernel[2];
  for (int64_t n = 0; n < win->n; n++) {
    for (int64_t o = 0; o < win->c_out; o++) {
      for_each_position(p, win->out) {
        int64_t y = window_at(win, win->out, win->c_out, n, o, p), tap = -1;
        // Taps outside of the image read padding, which contributes nothing.
        for_each_position(r, win->kernel) {
          int64_t q[MAX_SPATIAL];
          tap++;
          if (!window_input(win, p, r, q)) continue;
          // x has all channels; w only those of the group.
          for (int64_t c = 0; c < c_group; c++) {
            int64_t x = window_at(win, win->in, win->c_in, n, o / o_group * c_group + c, q);
            int64_t w = (o * c_group + c) * taps + tap;
            switch (which) {
            case X: at[X][x] += at[W][w] * at[Y][y]; break;
            case W: at[W][w] += at[X][x] * at[Y][y]; break;
            case Y: at[Y][y] += at[X][x] * at[W][w]; break;
            }
          }
        }
      }
    }
  }
}

static bool reference(const Op *op, const Tensor *in, Tensor *out, int which, Diag *d) {
  Arena *a = arena_new();
  const Type *type[3] = {0};
  double *at[3] = {0};
  int operand = 0;
  // The two operands as doubles, and zeros for the result.
  for (int i = 0; i < 3; i++) {
    if (i == which) continue;
    type[i] = in[operand].type;
    at[i] = tensor_doubles(a, &in[operand++]);
  }
  type[which] = out->type;
  at[which] = arena_array(a, double, type_count(out->type));
  // The geometry was checked by the rule; this fills it again.
  Window win;
  bool ok = conv_window(&win, op, type[X], type[W], type[Y], d);
  if (ok) {
    add_triples(&win, attr_i(op, "group"), at, which);
    tensor_set_doubles(out, at[which]);
  }
  arena_free(a);
  return ok;
}

bool conv_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  return reference(op, in, out, Y, d);
}

bool conv_back_x_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  return reference(op, in, out, X, d);
}

bool conv_back_w_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  return reference(op, in, out, W, d);
}
