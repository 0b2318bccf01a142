// Parts of tensors: slice and slice_back, concat, pad, trilu.
//
// A dimension that is taken completely keeps its letter and can be split.  One that is sliced,
// joined or padded has different letters before and after, both whole:
//
//     slice f32[8,10] starts=[0,9] steps=[1,-3] shape=[8,4]     a B^ -> a Q^
//     concat f32[8,3], f32[8,5] axis=1                          a B^, a C^ -> a Q^

#include "ir/ops/einsum.h"
#include "ir/ops/index.h"

// Writes the einsum: dimension i has one letter if it is the same on both sides, else two whole
// ones.
static bool parse_partly(const Op *op, Dims *dims, const bool *same, Diag *d) {
  const Type *x = op->in[0].value->type;
  const int64_t *shape = attr_list(op, "shape");
  Einsum e = {0};
  for (int i = 0; i < x->ndim; i++)
    einsum_add(&e, "%c%s ", same[i] ? letter_free(i) : letter_in(i), same[i] ? "" : "^");
  einsum_add(&e, "->");
  for (int i = 0; i < x->ndim; i++)
    einsum_add(&e, " %c%s", same[i] ? letter_free(i) : letter_out(i), same[i] ? "" : "^");
  if (!dims_parse(dims, op, e.text, d)) return false;
  for (int i = 0; i < x->ndim; i++)
    // The lengths that no operand gives.
    if (!same[i]) dims_size(dims, letter_out(i), shape[i]);
  return true;
}

// slice takes `part` out of `whole`, slice_back puts it back.
static bool slicing_rule(const Op *op, Dims *dims, const int64_t *whole, const int64_t *part,
                         Diag *d) {
  int ndim = op->in[0].value->type->ndim;
  bool all[MAX_NDIM];
  if (!list_fits(op, "starts", ndim, d) || !list_fits(op, "steps", ndim, d)) return false;
  for (int i = 0; i < ndim; i++) {
    int64_t start = attr_list(op, "starts")[i], step = attr_list(op, "steps")[i];
    int64_t length = whole[i], n = part[i];
    // A dimension that is taken completely, in order, can be split.
    all[i] = start == 0 && step == 1 && n == length;
    if (n == 0 || all[i]) continue;
    // The first element and the last one must be inside.
    bool inside = start >= 0 && start < length;
    int64_t more = 0; // the number of steps that fit after the first element
    if (inside && step > 0) more = (length - 1 - start) / step;
    if (inside && step < 0) more = step == INT64_MIN ? 0 : start / -step;
    if (!inside || step == 0 || n - 1 > more)
      return diag_error(d, op->loc, "%s: %lld elements from %lld by %lld are not within %lld",
                        op_info[op->kind].name, (long long)n, (long long)start, (long long)step,
                        (long long)length);
  }
  return parse_partly(op, dims, all, d);
}

bool slice_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *x = op->in[0].value->type;
  return list_fits(op, "shape", x->ndim, d) &&
         slicing_rule(op, dims, x->dim, attr_list(op, "shape"), d);
}

bool slice_back_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *dy = op->in[0].value->type;
  return list_fits(op, "shape", dy->ndim, d) &&
         slicing_rule(op, dims, attr_list(op, "shape"), dy->dim, d);
}

bool slice_grad(Builder *b, Op *op, Value **dout, Value **din) {
  const Type *x = op->in[0].value->type;
  din[0] = build_op(b, OP_slice_back, IN(dout[0]),
                    ATTRS(a_list("starts", attr_list(op, "starts"), x->ndim),
                          a_list("steps", attr_list(op, "steps"), x->ndim),
                          a_list("shape", x->dim, x->ndim)));
  return !b->failed;
}

// The offset in the whole tensor of the slice's element at `at`.
static int64_t slice_offset(const Op *op, const int64_t *at, const int64_t *stride, int ndim) {
  const int64_t *starts = attr_list(op, "starts"), *steps = attr_list(op, "steps");
  int64_t offset = 0;
  for (int i = 0; i < ndim; i++)
    offset += (starts[i] + at[i] * steps[i]) * stride[i];
  return offset;
}

bool slice_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  int64_t stride[MAX_NDIM], at[MAX_NDIM] = {0}, n = type_count(out->type);
  strides_of(in[0].type, stride);
  for (int64_t i = 0; i < n; i++, index_next(out->type, at))
    element_copy(out, i, &in[0], slice_offset(op, at, stride, out->type->ndim));
  return true;
}

bool slice_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  int64_t stride[MAX_NDIM], at[MAX_NDIM] = {0}, n = type_count(in[0].type);
  strides_of(out->type, stride);
  for (int64_t i = 0; i < n; i++, index_next(in[0].type, at))
    element_copy(out, slice_offset(op, at, stride, out->type->ndim), &in[0], i);
  return true;
}

// -- concat ------------------------------------------------------------------------------------

// Operands of the same length along the axis share a letter: it cannot be split, and letters are
// few.
enum { MAX_LENGTHS = 20 };

bool concat_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[0].value->type->ndim;
  if (!axis_fits(op, ndim, d)) return false;
  int axis = (int)attr_i(op, "axis"), n_lengths = 0;
  int64_t length[MAX_LENGTHS], sum = 0;
  Einsum e = {0};
  for (int k = 0; k < op->n_in; k++) {
    const Type *x = op->in[k].value->type;
    // Operands differ only along the axis.
    if (x->ndim != ndim)
      return diag_error(d, op->loc, "concat: operand %d has %d dimensions, operand 0 has %d", k,
                        x->ndim, ndim);
    // The letter of this length along the axis.
    int which = 0;
    while (which < n_lengths && length[which] != x->dim[axis])
      which++;
    if (which == MAX_LENGTHS)
      return diag_error(d, op->loc, "concat: more than %d different lengths along the axis",
                        MAX_LENGTHS);
    if (which == n_lengths) length[n_lengths++] = x->dim[axis];
    if (__builtin_add_overflow(sum, x->dim[axis], &sum))
      return diag_error(d, op->loc, "concat: the result is too large");
    einsum_add(&e, k ? ", " : "");
    for (int i = 0; i < ndim; i++)
      if (i == axis)
        einsum_add(&e, "%c^ ", 'A' + which);
      else
        einsum_add(&e, "%c ", letter_free(i));
  }
  // Other dimensions keep their letters and can be split.
  einsum_add(&e, "->");
  for (int i = 0; i < ndim; i++)
    einsum_add(&e, i == axis ? " Z^" : " %c", letter_free(i));
  if (!dims_parse(dims, op, e.text, d)) return false;
  dims_size(dims, 'Z', sum);
  return true;
}

// Each operand gets its slice of the adjoint.
bool concat_grad(Builder *b, Op *op, Value **dout, Value **din) {
  int64_t axis = attr_i(op, "axis"), starts[MAX_NDIM] = {0}, steps[MAX_NDIM];
  for (int i = 0; i < MAX_NDIM; i++)
    steps[i] = 1;
  for (int k = 0; k < op->n_in; k++) {
    const Type *x = op->in[k].value->type;
    din[k] = build_op(b, OP_slice, IN(dout[0]),
                      ATTRS(a_list("starts", starts, x->ndim), a_list("steps", steps, x->ndim),
                            a_list("shape", x->dim, x->ndim)));
    // The next operand begins after this one.
    starts[axis] += x->dim[axis];
  }
  return !b->failed;
}

// Result and operands are viewed as (outer, length along the axis and everything after it).
bool concat_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  int axis = (int)attr_i(op, "axis");
  int64_t outer = 1, inner = dtype_bytes[out->type->dtype];
  for (int i = 0; i < axis; i++)
    outer *= out->type->dim[i];
  for (int i = axis + 1; i < out->type->ndim; i++)
    inner *= out->type->dim[i];
  char *to = out->data;
  for (int64_t i = 0; i < outer; i++)
    for (int k = 0; k < op->n_in; k++) {
      // One run of bytes of each operand.
      size_t row = (size_t)(in[k].type->dim[axis] * inner);
      memcpy(to, (const char *)in[k].data + (size_t)i * row, row);
      to += row;
    }
  return true;
}

// -- pad ---------------------------------------------------------------------------------------

// The padding of one dimension: `low` elements before, and after it as many as extend `from` to
// `to`.  Negative amounts are cut off first; then the remaining elements are repeated:
//
//     reflect  d c b [a b c d] c b a       edge  a a a [a b c d] d d d
//     wrap     b c d [a b c d] a b c
typedef struct Padding {
  int64_t cut_low; // elements cut off at the start
  int64_t n;       // elements left
  int64_t low;     // elements put before
} Padding;

static Padding padding(int64_t from, int64_t to, int64_t low) {
  int64_t high = to - from - low;
  int64_t cut_low = low < 0 ? -low : 0, cut_high = high < 0 ? -high : 0;
  return (Padding){cut_low, from - cut_low - cut_high, low < 0 ? 0 : low};
}

typedef enum PadMode { PAD_constant, PAD_reflect, PAD_edge, PAD_wrap, N_PAD_MODES } PadMode;

static bool pad_mode(const Op *op, PadMode *out) {
  static const char *const names[N_PAD_MODES] = {"constant", "reflect", "edge", "wrap"};
  for (int i = 0; i < N_PAD_MODES; i++)
    if (str_equal(attr_s(op, "mode"), names[i])) {
      *out = (PadMode)i;
      return true;
    }
  return false;
}

// The operand's element for element `i` of the result, or -1: the attribute `value`.
static int64_t pad_source(PadMode mode, const Padding *p, int64_t i) {
  int64_t at = i - p->low, n = p->n;
  if (at >= 0 && at < n) return p->cut_low + at;
  switch (mode) {
  case PAD_constant: return -1;
  case PAD_edge: return p->cut_low + (at < 0 ? 0 : n - 1);
  case PAD_wrap: return p->cut_low + (at % n + n) % n;
  case PAD_reflect: {
    if (n == 1) return p->cut_low;
    // There and back, without repeating the ends.
    int64_t period = 2 * (n - 1);
    at = (at % period + period) % period;
    return p->cut_low + (at < n ? at : period - at);
  }
  case N_PAD_MODES: break;
  }
  BUG("no mode of padding");
}

bool pad_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *x = op->in[0].value->type;
  const int64_t *low = attr_list(op, "low"), *shape = attr_list(op, "shape");
  PadMode mode = 0;
  // A dimension without padding can be split.
  bool same[MAX_NDIM];
  if (!list_fits(op, "low", x->ndim, d) || !list_fits(op, "shape", x->ndim, d)) return false;
  if (!pad_mode(op, &mode))
    return diag_error(d, op->loc, "pad: mode '%s' is none of constant, reflect, edge, wrap",
                      attr_s(op, "mode"));
  for (int i = 0; i < x->ndim; i++) {
    if (low[i] > INT64_MAX / 4 || low[i] < -INT64_MAX / 4)
      return diag_error(d, op->loc, "pad: %lld elements are too many", (long long)low[i]);
    Padding p = padding(x->dim[i], shape[i], low[i]);
    same[i] = low[i] == 0 && shape[i] == x->dim[i];
    if (p.n < 1 && mode != PAD_constant && shape[i] > 0)
      return diag_error(d, op->loc, "pad: nothing is left of dimension %d to pad with", i);
  }
  return parse_partly(op, dims, same, d);
}

bool pad_grad(Builder *b, Op *op, Value **dout, Value **din) {
  const Type *x = op->in[0].value->type;
  const int64_t *low = attr_list(op, "low");
  PadMode mode = 0;
  pad_mode(op, &mode);
  // Constant padding is cut off again.
  if (mode == PAD_constant) {
    int64_t cut[MAX_NDIM];
    for (int i = 0; i < x->ndim; i++)
      cut[i] = -low[i];
    din[0] = build_op(b, OP_pad, IN(dout[0]),
                      ATTRS(a_list("low", cut, x->ndim), a_list("shape", x->dim, x->ndim),
                            a_s("mode", "constant"), a_f("value", 0)));
    return !b->failed;
  }
  // The adjoint of the modes that repeat elements, dimension by dimension: every element of dx is
  // the sum over its repetitions.
  Value *dy = dout[0];
  for (int i = 0; i < x->ndim && dy; i++) {
    int64_t n = dy->type->dim[i], shape[MAX_NDIM];
    if (low[i] == 0 && n == x->dim[i]) continue;
    Padding p = padding(x->dim[i], n, low[i]);
    int64_t *source = arena_array(b->g->module->arena, int64_t, n);
    for (int64_t k = 0; k < n; k++)
      source[k] = pad_source(mode, &p, k);
    Value *index = build_constant(b, type_new(b->g->module, DT_i64, 1, &n), source);
    memcpy(shape, dy->type->dim, sizeof shape);
    shape[i] = x->dim[i];
    dy = build_op(b, OP_gather_back, IN(index, dy),
                  ATTRS(a_i("axis", i), a_list("shape", shape, x->ndim)));
    dy = build_cast(b, dy, x->dtype);
  }
  din[0] = dy;
  return !b->failed;
}

bool pad_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  const Type *x = in[0].type, *y = out->type;
  const int64_t *low = attr_list(op, "low");
  PadMode mode = 0;
  pad_mode(op, &mode);
  Padding p[MAX_NDIM];
  // The padding of each dimension, at its start.
  for (int i = 0; i < x->ndim; i++)
    p[i] = padding(x->dim[i], y->dim[i], low[i]);
  int64_t stride[MAX_NDIM], at[MAX_NDIM] = {0}, n = type_count(y);
  strides_of(x, stride);
  for (int64_t k = 0; k < n; k++, index_next(y, at)) {
    // An element outside along any dimension is padding.
    int64_t from = 0;
    for (int i = 0; i < x->ndim && from >= 0; i++) {
      int64_t source = pad_source(mode, &p[i], at[i]);
      from = source < 0 ? -1 : from + source * stride[i];
    }
    if (from >= 0)
      element_copy(out, k, &in[0], from);
    else
      tensor_set_f(out, k, attr_f(op, "value"));
  }
  return true;
}

// -- trilu -------------------------------------------------------------------------------------

// The mask depends on the position in the matrix, so matrices are not split.
bool trilu_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op, "* m^ n^ -> * m^ n^", d);
}

bool trilu_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_op(b, OP_trilu, IN(dout[0]),
                    ATTRS(a_b("upper", attr_i(op, "upper")), a_i("k", attr_i(op, "k"))));
  return !b->failed;
}

bool trilu_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  bool upper = attr_i(op, "upper");
  const Type *x = in[0].type;
  int64_t rows = x->dim[x->ndim - 2], columns = x->dim[x->ndim - 1], k = attr_i(op, "k");
  int64_t n = columns ? type_count(x) / columns : 0, bytes = dtype_bytes[x->dtype];
  k = k < -rows ? -rows : k > columns ? columns : k;
  for (int64_t i = 0; i < n; i++) {
    // The columns from diagonal k on, or up to it; the rest stays zero.
    int64_t row = i % rows, from = upper ? row + k : 0, to = upper ? columns : row + k + 1;
    if (from < 0) from = 0;
    if (to > columns) to = columns;
    if (from >= to) continue;
    memcpy((char *)out->data + (i * columns + from) * bytes,
           (const char *)in[0].data + (i * columns + from) * bytes, (size_t)((to - from) * bytes));
  }
  return true;
}
