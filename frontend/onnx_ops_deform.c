// Deformable convolution: the elements of each window are at computed points (onnx_taps.h).
//
//     point of element k of the window at p = p stride - pad + k dilation + offset[k, p]
//
// Elements of x there, times the mask, are the columns of a product with the weight:
//
//     columns (groups, n p, c k)   weight (groups, m, c k)   ->   y (groups, n p, m)

#include <string.h>

#include "frontend/onnx_taps.h"
#include "frontend/onnx_window.h"

typedef struct Deform {
  Geometry g;
  int64_t n, c, m;            // batch, channels of x and of y
  int64_t k, p;               // elements of a window, windows
  int64_t groups, own_groups; // of channels; of offsets
} Deform;

// Checks the operands, and that there are offsets for each window that fits.
static bool read_deform(Node *n, Deform *f) {
  const Type *x = n->in[0]->type, *w = n->in[1]->type, *o = n->in[2]->type;
  const Value *mask = node_in(n, 4);
  if (!window_check_kernel(n) || !window_read(n, w->dim + 2, true, &f->g)) return false;
  const Geometry *g = &f->g;
  f->n = x->dim[0];
  f->c = x->dim[1];
  f->m = w->dim[0];
  f->k = product(w->dim, 2, w->ndim);
  f->p = o->ndim == x->ndim ? product(o->dim, 2, o->ndim) : 0;
  f->groups = node_int(n, "group", 1);
  f->own_groups = node_int(n, "offset_group", 1);
  if (g->n > 3) return node_fail(n, "%d spatial dimensions, and at most 3 are supported", g->n);
  if (f->groups < 1 || f->c % f->groups || f->m % f->groups || w->dim[1] != f->c / f->groups)
    return node_fail(n, "%s and a weight of %s in %lld groups", type_text(n->a, x),
                     type_text(n->a, w), (long long)f->groups);
  if (f->own_groups < 1 || f->c % f->own_groups)
    return node_fail(n, "%lld channels in %lld groups of offsets", (long long)f->c,
                     (long long)f->own_groups);
  // By division: products of hostile lengths overflow.
  bool ok = o->ndim == x->ndim && o->dim[0] == f->n && f->k > 0 && o->dim[1] % (f->k * g->n) == 0 &&
            o->dim[1] / (f->k * g->n) == f->own_groups;
  for (int i = 0; ok && i < g->n; i++) {
    int64_t reach = (g->kernel[i] - 1) * g->dilation[i] + 1;
    int64_t rest = x->dim[2 + i] + g->pad[i] + g->pad[g->n + i] - reach;
    ok = x->dim[2 + i] > 0 && rest >= 0 && o->dim[2 + i] == rest / g->stride[i] + 1;
  }
  if (!ok)
    return node_fail(n, "its offsets are %s, which are not those of the windows of %s",
                     type_text(n->a, o), type_text(n->a, x));
  const Type *t = mask ? mask->type : NULL;
  ok = !t || (t->ndim == o->ndim && t->dim[0] == f->n && t->dim[1] == f->own_groups * f->k &&
              memcmp(t->dim + 2, o->dim + 2, (size_t)g->n * sizeof *o->dim) == 0);
  return ok ||
         node_fail(n, "its mask is %s for offsets of %s", type_text(n->a, t), type_text(n->a, o));
}

// The points of all windows along dimension j without their offsets, as (1, k p).
static Value *grid(Node *n, const Deform *f, int j, const Type *like) {
  const Geometry *g = &f->g;
  const int64_t *windows = n->in[2]->type->dim + 2;
  if (!node_small(n, f->k * f->p)) return NULL;
  DType dtype = taps_constant_type(like);
  Tensor at = tensor_new(n->a, type_new(n->b->g->module, dtype, 2, (int64_t[]){1, f->k * f->p}));
  // Strides of dimension j in the flattened window, and in the flattened list of windows.
  int64_t by_element = product(g->kernel, j + 1, g->n), by_window = product(windows, j + 1, g->n);
  for (int64_t i = 0; i < f->k * f->p; i++) {
    int64_t element = i / f->p / by_element % g->kernel[j];
    int64_t window = i % f->p / by_window % windows[j];
    tensor_set_f(&at, i, (double)(window * g->stride[j] - g->pad[j] + element * g->dilation[j]));
  }
  return build_cast(n->b, build_constant(n->b, at.type, at.data), like->dtype);
}

// The elements of x in all windows, as (n own_groups, k p, channels of an own group).
static Value *elements(Node *n, const Deform *f) {
  Value *x = n->in[0], *mask = node_in(n, 4);
  int64_t batch = f->n * f->own_groups, rows = f->k * f->p, shape[MAX_NDIM];
  memcpy(shape, x->type->dim, sizeof shape);
  shape[0] = batch;
  shape[1] = f->c / f->own_groups;
  // (n own_groups, k, dimensions, p)
  Value *offset = build_reshape(n->b, n->in[2], 4, (int64_t[]){batch, f->k, f->g.n, f->p});
  Taps axis[3] = {0};
  for (int j = 0; j < f->g.n; j++) {
    Value *base = offset ? grid(n, f, j, offset->type) : NULL;
    if (!base) return NULL;
    Value *by =
        build_reshape(n->b, build_slice(n->b, offset, 2, j, 1), 2, (int64_t[]){batch, rows});
    taps_linear(n, node_add(n, base, by), shape[2 + j], &axis[j]);
  }
  Value *index, *weight;
  if (!taps_combine(n, axis, shape + 2, f->g.n, 1, &index, &weight)) return NULL;
  Value *image = taps_image(n, build_reshape(n->b, x, x->type->ndim, shape));
  Value *y = build_op(n->b, OP_gather, IN(image, index), ATTRS(a_i("axis", 1), a_i("batch", 1)));
  y = build_reduce_sum(n->b, taps_weighted(n, y, weight), (int64_t[]){1}, 1, false);
  return mask ? taps_weighted(n, y, build_reshape(n->b, mask, 2, (int64_t[]){batch, rows})) : y;
}

bool import_deform_conv(Node *n) {
  Deform f;
  if (!read_deform(n, &f)) return false;
  Value *x = n->in[0], *y = elements(n, &f);
  // (n, own_groups, k, p, c) -> (n, own_groups, c, k, p) -> (n, groups, c k, p) -> (groups, n p, c
  // k)
  int64_t own = f.c / f.own_groups, inner = f.c / f.groups * f.k, each = f.m / f.groups;
  y = y ? build_reshape(n->b, y, 5, (int64_t[]){f.n, f.own_groups, f.k, f.p, own}) : NULL;
  y = y ? build_transpose(n->b, y, (int64_t[]){0, 1, 4, 2, 3}) : NULL;
  y = build_reshape(n->b, y, 4, (int64_t[]){f.n, f.groups, inner, f.p});
  y = y ? build_transpose(n->b, y, (int64_t[]){1, 0, 3, 2}) : NULL;
  y = build_reshape(n->b, y, 3, (int64_t[]){f.groups, f.n * f.p, inner});
  Value *w = build_reshape(n->b, n->in[1], 3, (int64_t[]){f.groups, each, inner});
  y = build_op(n->b, OP_matmul, IN(y, w), ATTRS(a_b("trans_a", false), a_b("trans_b", true)));
  if (!y) return false;
  // (groups, n, p, m) -> (n, groups, m, p)
  y = build_reshape(n->b, y, 4, (int64_t[]){f.groups, f.n, f.p, each});
  y = build_transpose(n->b, y, (int64_t[]){1, 0, 3, 2});
  int64_t dim[MAX_NDIM] = {f.n, f.m};
  for (int i = 0; i < f.g.n; i++)
    dim[2 + i] = n->in[2]->type->dim[2 + i];
  n->out[0] = build_reshape(n->b, y, x->type->ndim, dim);
  return window_add_bias(n, node_in(n, 3), f.g.n) && n->out[0] != NULL;
}
