// Convolution and its gradients, by oneDNN, over one to three spatial dimensions.
//
// Weights are (o, c / group, spatial) in memory and change every step; each run reorders them into
// the layout of the implementation, which is cheap compared with the convolution.  Activations
// channels last are used without a reorder.  Channels first, oneDNN has only a slow path (im2col
// and a product of matrices): a blocked format of its choice, with a reorder of input and output,
// takes 0.5 to 0.7 times as long on ResNet's layers.  The exception is a gradient with few
// channels: there the slow path takes 1.3 ms instead of 7.1 for the first layer of a ResNet.
//
// Convolutions of bf16 are oneDNN's if the processor has instructions for them, with sums in f32.

#include "dnnl.h"
#include "library.h"
#include "taps.h"

_Static_assert(CONV_DIMS == DNNL_MAX_NDIMS, "dimensions of a convolution are arrays of oneDNN");

// Returns x or y with its layout in memory.
static dnnl_memory_desc_t plain(DnnlOp *op, dnnl_data_type_t type, const Conv *c,
                                const int64_t *dim) {
  if (!c->channels_last) return dnnl_op_desc(op, type, c->ndim, dim);
  // Channels last: the channels are the fastest dimension.
  int64_t stride[MAX_DIMS], n = dim[1];
  for (int64_t i = c->ndim - 1; i >= 2; i--) {
    stride[i] = n;
    n *= dim[i];
  }
  stride[0] = n;
  stride[1] = 1;
  return dnnl_op_desc_typed(op, type, c->ndim, dim, stride);
}

// dw: the gradient of w, of f32 in any case.
static dnnl_primitive_desc_t describe(DnnlOp *op, const Conv *c, Direction direction,
                                      dnnl_memory_desc_t x, dnnl_memory_desc_t w,
                                      dnnl_memory_desc_t dw, dnnl_memory_desc_t y) {
  dnnl_primitive_attr_t attr = dnnl_op_attr(op);
  dnnl_primitive_desc_t forward = NULL, pd = NULL;
  dnnl_engine_t engine = dnnl_op_engine();
  dnnl_alg_kind_t how = dnnl_convolution_direct;
  // The gradients' descriptors need the forward one as a hint.
  if (op->failed || !dnnl_op_ok(op, dnnl_convolution_forward_primitive_desc_create(
                                        &forward, engine, dnnl_forward_training, how, x, w, NULL, y,
                                        c->stride, c->dilation, c->low, c->high, attr))) {
    dnnl_primitive_attr_destroy(attr);
    return NULL;
  }
  // One of the three is the result; the other two are operands.
  switch (direction) {
  case FORWARD:
    pd = forward;
    forward = NULL;
    break;
  case BACK_X:
    dnnl_op_ok(
        op, dnnl_convolution_backward_data_primitive_desc_create(
                &pd, engine, how, x, w, y, c->stride, c->dilation, c->low, c->high, forward, attr));
    break;
  case BACK_W:
    dnnl_op_ok(op, dnnl_convolution_backward_weights_primitive_desc_create(
                       &pd, engine, how, x, dw, NULL, y, c->stride, c->dilation, c->low, c->high,
                       forward, attr));
    break;
  }
  if (forward) dnnl_primitive_desc_destroy(forward);
  dnnl_primitive_attr_destroy(attr);
  return pd;
}

static void add_reorder(DnnlOp *op, const_dnnl_memory_desc_t from, const_dnnl_memory_desc_t to) {
  dnnl_primitive_attr_t attr = dnnl_op_attr(op);
  dnnl_primitive_desc_t pd = NULL;
  dnnl_engine_t engine = dnnl_op_engine();
  // After an error all further steps do nothing.
  if (!op->failed &&
      dnnl_op_ok(op, dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr))) {
    dnnl_op_step(op, pd);
    dnnl_primitive_desc_destroy(pd);
  }
  dnnl_primitive_attr_destroy(attr);
}

// One of the three tensors: its layout in memory, the primitive's layout, its address of the run.
typedef struct Role {
  dnnl_memory_desc_t memory;
  const_dnnl_memory_desc_t wanted;
  int arg, at;
  bool result, moved;
  size_t temp;
} Role;

// Adds the primitive, with reorders before it of operands with another layout, and after it of the
// result.
static void add_steps(DnnlOp *op, dnnl_primitive_desc_t pd, Role *role) {
  // Reorders of operands.
  for (int i = 0; i < 3; i++) {
    Role *r = &role[i];
    r->moved = !dnnl_memory_desc_equal(r->memory, r->wanted);
    if (!r->moved) continue;
    r->temp = dnnl_op_temp(op, r->wanted);
    if (r->result) continue;
    add_reorder(op, r->memory, r->wanted);
    dnnl_op_arg(op, DNNL_ARG_FROM, r->memory, r->at);
    dnnl_op_arg_temp(op, DNNL_ARG_TO, r->wanted, r->temp);
  }
  // The primitive itself, on the reordered tensors.
  dnnl_op_step(op, pd);
  for (int i = 0; i < 3; i++) {
    if (role[i].moved)
      dnnl_op_arg_temp(op, role[i].arg, role[i].wanted, role[i].temp);
    else
      dnnl_op_arg(op, role[i].arg, role[i].memory, role[i].at);
  }
  // The reorder of the result.
  for (int i = 0; i < 3; i++) {
    Role *r = &role[i];
    if (!r->moved || !r->result) continue;
    add_reorder(op, r->wanted, r->memory);
    dnnl_op_arg_temp(op, DNNL_ARG_FROM, r->wanted, r->temp);
    dnnl_op_arg(op, DNNL_ARG_TO, r->memory, r->at);
  }
}

// Address 0 of a run is the result; then the operands, in the order x, w, y.
NnrtPrep *library_conv_prep(const char *name, NnrtDtype type, const Conv *c, Direction direction) {
  dnnl_data_type_t t = type == NNRT_bf16 ? dnnl_bf16 : dnnl_f32;
  // An element of y is a sum over the filter of its channel.
  int64_t skip = c->w_ndim - c->ndim + 1, filter = product(c->w + skip, c->w_ndim - skip),
          y_size = product(c->y, c->ndim);
  DnnlOp *op = dnnl_op_new(name, y_size * filter,
                           product(c->x, c->ndim) + product(c->w, c->w_ndim) + y_size);
  if (!op) return NULL;
  dnnl_memory_desc_t x = plain(op, t, c, c->x), y = plain(op, t, c, c->y);
  dnnl_memory_desc_t w = dnnl_op_desc(op, direction == BACK_W ? dnnl_f32 : t, c->w_ndim, c->w);
  // The primitive chooses these layouts.
  dnnl_memory_desc_t x_any = dnnl_op_desc_any(op, t, c->ndim, c->x);
  dnnl_memory_desc_t w_any = dnnl_op_desc_any(op, t, c->w_ndim, c->w);
  dnnl_memory_desc_t dw_any = dnnl_op_desc_any(op, dnnl_f32, c->w_ndim, c->w);
  dnnl_memory_desc_t y_any = dnnl_op_desc_any(op, t, c->ndim, c->y);
  bool layout_as_is = c->channels_last || (direction == BACK_X && c->x[1] / c->group < 16);
  dnnl_primitive_desc_t pd =
      describe(op, c, direction, layout_as_is ? x : x_any, w_any, dw_any, layout_as_is ? y : y_any);
  if (pd) {
    // The names of arguments depend on the direction.
    bool back_x = direction == BACK_X, back_w = direction == BACK_W, back = back_x || back_w;
    Role role[3] = {
        {.memory = x, .result = back_x, .arg = back_x ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC},
        {.memory = w, .result = back_w, .arg = back_w ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS},
        {.memory = y, .result = !back, .arg = back ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST}};
    // The layouts that the primitive has chosen.
    role[0].wanted =
        dnnl_primitive_desc_query_md(pd, back_x ? dnnl_query_diff_src_md : dnnl_query_src_md, 0);
    role[1].wanted = dnnl_primitive_desc_query_md(
        pd, back_w ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    role[2].wanted =
        dnnl_primitive_desc_query_md(pd, back ? dnnl_query_diff_dst_md : dnnl_query_dst_md, 0);
    int operand = 1;
    for (int i = 0; i < 3; i++)
      role[i].at = role[i].result ? 0 : operand++;
    add_steps(op, pd, role);
    dnnl_primitive_desc_destroy(pd);
  }
  dnnl_desc_free(x);
  dnnl_desc_free(y);
  dnnl_desc_free(w);
  dnnl_desc_free(x_any);
  dnnl_desc_free(w_any);
  dnnl_desc_free(dw_any);
  dnnl_desc_free(y_any);
  return dnnl_op_end(op);
}

// -- 16 bits -----------------------------------------------------------------------------------

static bool has_bf16(void) {
  int set = dnnl_cpu_isa_avx512_core_bf16;
  return ((int)dnnl_get_effective_cpu_isa() & set) == set;
}

// Whether oneDNN's convolution of bf16 is faster than that of f32 on copies.  It takes about half
// the time of f32's, but on the smallest maps more than the products per tap.  Milliseconds of one
// core of a Zen 5, batch 16, 3x3 filters:
//
//     y: channels         forward       dx            dw            f32, then oneDNN's bf16
//     16x16: 64 > 64      1.03  0.55    1.05  0.55    1.16  0.73
//     8x8: 128 > 128      1.01  0.54    1.10  0.55    1.03  0.70    dw of f32: per tap
//     4x4: 256 > 256      0.87  0.63    0.94  0.62    0.97  1.12    f32: per tap
//     2x2: 512 > 512      0.90  1.72    0.98  1.77    1.20  2.99    f32: per tap
//
// For the gradients of depthwise convolutions oneDNN 3.2 has kernels of bf16 for a part of the
// shapes; others take up to 80 times as long as in f32 (x of 32x32, 64 channels, stride 2: 4.8 and
// 0.06 ms).
static bool prefers_bf16(const Conv *c, Direction direction) {
  if (!has_bf16()) return false;
  if (c->group > 1 && c->group == c->x[1]) {
    if (c->ndim != 4 || !c->channels_last) return false;
    if (direction == BACK_X) return c->stride[0] == 1 && c->stride[1] == 1;
    return direction == FORWARD || product(c->w + 3, 2) <= 9;
  }
  int64_t positions = product(c->y + 2, c->ndim - 2);
  bool small = direction == BACK_W ? positions <= 16 : positions < 16;
  return !(small && taps_fit(c, direction));
}

bool library_has_conv(NnrtDtype type, const Conv *c, Direction direction) {
  return type == NNRT_bf16 ? prefers_bf16(c, direction) : !taps_fit(c, direction);
}

int library_conv_run(NnrtPrep *p, void *result, const void *first, const void *second) {
  return dnnl_op_run(p, (const void *[]){result, first, second});
}
