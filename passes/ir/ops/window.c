// The geometry of sliding windows; see window.h.

#include "ir/ops/window.h"

static const char *name_of(const Op *op) {
  return op_info[op->kind].name;
}

bool window_ndim(const Op *op, int ndim, int *n_spatial, Diag *d) {
  *n_spatial = ndim - 2;
  if (*n_spatial >= 1 && *n_spatial <= MAX_SPATIAL) return true;
  return diag_error(d, op->loc,
                    "%s: needs 1 to %d spatial dimensions, the operand has %d dimensions",
                    name_of(op), MAX_SPATIAL, ndim);
}

static bool read_list(const Op *op, const char *name, int n, int64_t low, Diag *d) {
  if (attr_n(op, name) != n)
    return diag_error(d, op->loc, "%s: '%s' has %d entries, needs %d", name_of(op), name,
                      attr_n(op, name), n);
  // 32 bits, so that positions cannot overflow 64.
  for (int i = 0; i < n; i++)
    if (attr_list(op, name)[i] < low || attr_list(op, name)[i] > INT32_MAX)
      return diag_error(d, op->loc, "%s: '%s' has the entry %lld", name_of(op), name,
                        (long long)attr_list(op, name)[i]);
  return true;
}

bool window_init(Window *w, const Op *op, const Type *x, const Type *y, const int64_t *kernel,
                 Diag *d) {
  const Type *either = x ? x : y;
  int n;
  if (!window_ndim(op, either->ndim, &n, d)) return false;
  if (x && y && x->ndim != y->ndim)
    return diag_error(d, op->loc, "%s: an input of %d dimensions and an output of %d", name_of(op),
                      x->ndim, y->ndim);
  if (!read_list(op, "strides", n, 1, d) || !read_list(op, "pads", 2 * n, 0, d) ||
      !read_list(op, "dilations", n, 1, d))
    return false;
  *w = (Window){.channels_last = attr_i(op, "channels_last")};
  // The dimension of the channels, and the first spatial one.
  int channel = w->channels_last ? n + 1 : 1, first = w->channels_last ? 1 : 2;
  w->n = either->dim[0];
  w->c_in = x ? x->dim[channel] : 0;
  w->c_out = y ? y->dim[channel] : 0;
  // Dimensions that the op lacks have length 1 and no padding.
  for (int i = 0; i < MAX_SPATIAL; i++) {
    int j = i - (MAX_SPATIAL - n); // dimension of the op; negative: the op lacks it
    bool has = j >= 0;
    w->in[i] = !x ? 0 : has ? x->dim[first + j] : 1;
    w->out[i] = !y ? 0 : has ? y->dim[first + j] : 1;
    w->kernel[i] = has ? kernel[j] : 1;
    w->stride[i] = has ? attr_list(op, "strides")[j] : 1;
    w->dilation[i] = has ? attr_list(op, "dilations")[j] : 1;
    w->before[i] = has ? attr_list(op, "pads")[j] : 0;
    w->after[i] = has ? attr_list(op, "pads")[n + j] : 0;
    if (w->kernel[i] < 1 || w->kernel[i] > INT32_MAX)
      return diag_error(d, op->loc, "%s: a kernel of length %lld", name_of(op),
                        (long long)w->kernel[i]);
  }
  return true;
}

bool window_output(const Window *w, const Op *op, int n, int64_t *out, Diag *d) {
  for (int j = 0; j < n; j++) {
    int i = MAX_SPATIAL - n + j;
    int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
    int64_t padded = w->in[i] + w->before[i] + w->after[i];
    // At least one window must fit.
    if (padded < reach)
      return diag_error(d, op->loc,
                        "%s: the kernel reaches over %lld elements of dimension %d, which has "
                        "%lld with its padding",
                        name_of(op), (long long)reach, j, (long long)padded);
    out[j] = (padded - reach) / w->stride[i] + 1;
  }
  return true;
}

void window_term(Einsum *e, const char *n, const char *c, const char *letters, int n_spatial,
                 bool channels_last) {
  einsum_add(e, "%s", n);
  if (!channels_last) einsum_add(e, " %s", c);
  for (int i = 0; i < n_spatial; i++)
    einsum_add(e, " %c^", letters[i]);
  if (channels_last) einsum_add(e, " %s", c);
}
