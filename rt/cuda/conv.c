// Convolution and its gradients by cuDNN, over one to three spatial dimensions.
//
// Activations keep their layout, channels first or last; a pass has chosen it.  Weights are (o, c /
// group, window) in memory.  With channels last, cuDNN's tensor cores need them as (o, window, c /
// group).  Weights are small, so a kernel transposes them into scratch before, or transposes their
// gradient after.  For 16-bit activations the engines of cuDNN 9.19 compute the gradient of the
// weights in 16 bits only, so it is rounded once before it becomes f32.  f32 is computed in f32
// unless TF32 is allowed (products.h).
//
// cuDNN's older engines support symmetric padding only, and do not report asymmetric padding as an
// error: gradients of weights come out wrong.  So cuDNN gets the symmetric part of the padding.
// For the rest a kernel copies x into scratch with zeros around it, or crops dx.
//
// cuDNN convolves over two or three dimensions; a convolution over one becomes one over two, the
// first of which is 1.

#include "conv.h"

#include <stdlib.h>

#include "cudnn_plans.h"
#include "dnn.h"
#include "products.h"
#include "runtime.h"

typedef struct Conv {
  NnrtPrep base;
  NnrtDtype type;
  DnnDirection direction;
  ConvShape s;
  int64_t high[3]; // padding at the ends
  bool asymmetric; // has asymmetric padding
  ConvPad pad;     // of x: the asymmetric part
  bool nothing;    // empty sum: the result is 0
  int64_t result;  // bytes of the result
  bool last;       // cuDNN needs the weights as (o, window, c)
  bool turned;     // so they are transposed; not for a window of 1 or one channel
  DnnPlan *plan;   // NULL: without cuDNN
  int64_t window;  // elements
  int64_t workspace, weights, padded_x; // bytes of scratch
} Conv;

static const int64_t MOST_WORKSPACE = (int64_t)1 << 30;

static cudnnDataType_t dnn_type(NnrtDtype type) {
  return type == NNRT_bf16  ? CUDNN_DATA_BFLOAT16
         : type == NNRT_f16 ? CUDNN_DATA_HALF
                            : CUDNN_DATA_FLOAT;
}

static void prep_free(NnrtPrep *prep) {
  Conv *p = (Conv *)prep;
  dnn_plan_free(p->plan);
  free(p);
}

// Strides of n, channels and spatial.
static void set_strides(int64_t *stride, int64_t channels, const int64_t *spatial, bool last) {
  // From the innermost dimension outwards.
  int64_t n = last ? channels : 1;
  for (int i = 2; i >= 0; i--) {
    stride[2 + i] = n;
    n *= spatial[i];
  }
  stride[1] = last ? 1 : n;
  stride[0] = last ? n : n * channels;
}

// The tensor with `dims` dimensions, without the first spatial ones, which are 1.
static DnnTensor tensor_of(DnnGraph *g, NnrtDtype type, int dims, int64_t n, int64_t channels,
                           const int64_t *spatial, const int64_t *stride) {
  int64_t dim[DNN_MAX_DIMS] = {n, channels}, step[DNN_MAX_DIMS] = {stride[0], stride[1]};
  // Of three spatial dimensions the last ones.
  for (int i = 2; i < dims; i++) {
    dim[i] = spatial[3 - dims + i];
    step[i] = stride[5 - dims + i];
  }
  return dnn_tensor(g, dnn_type(type), dims, dim, step);
}

// Gives cuDNN the symmetric part of the padding.
static void set_pad(Conv *p) {
  const ConvShape *s = &p->s;
  p->pad = (ConvPad){.outer = p->last ? s->n : s->n * s->c, .inner = p->last ? s->c : 1};
  for (int i = 0; i < 3; i++) {
    // The smaller of both ends is the symmetric part.
    int64_t both = s->low[i] < p->high[i] ? s->low[i] : p->high[i];
    p->pad.size[i] = s->x[i];
    p->pad.before[i] = s->low[i] - both;
    p->pad.padded[i] = s->x[i] + s->low[i] + p->high[i] - 2 * both;
    p->asymmetric = p->asymmetric || s->low[i] != p->high[i];
  }
}

static DnnPlan *plan_of(const Conv *p) {
  static const char *const names[] = {"conv", "conv_back_x", "conv_back_w"};
  const ConvShape *s = &p->s;
  char name[32];
  // Two spatial dimensions suffice if the first is 1 everywhere.
  bool flat = p->pad.padded[0] == 1 && s->y[0] == 1 && s->w[0] == 1;
  int dims = flat ? 4 : 5, skip = 5 - dims;
  int64_t w_stride[5], c = s->c / s->group;
  set_strides(w_stride, c, s->w, p->last);
  snprintf(name, sizeof name, "%s_%s", names[p->direction], nnrt_dtype_name(p->type));
  DnnGraph *g = dnn_graph_new(name);
  int64_t x_stride[5], pad[3];
  set_strides(x_stride, s->c, p->pad.padded, p->last);
  // The asymmetric part is already in x.
  for (int i = 0; i < 3; i++)
    pad[i] = s->low[i] - p->pad.before[i];
  DnnTensor x = tensor_of(g, p->type, dims, s->n, s->c, p->pad.padded, x_stride);
  DnnTensor w = tensor_of(g, p->type, dims, s->o, c, s->w, w_stride);
  DnnTensor y = tensor_of(g, p->type, dims, s->n, s->o, s->y, s->y_stride);
  DnnConv how = {.spatial = dims - 2,
                 .stride = s->stride + skip,
                 .dilation = s->dilation + skip,
                 .low = pad + skip,
                 .high = pad + skip};
  dnn_conv(g, p->direction, &how, x, w, y);
  return dnn_plan(g, &(DnnLimits){.workspace = MOST_WORKSPACE,
                                  .no_tensor_cores = p->type == NNRT_f32 && !nnrt_gpu_tf32()});
}

// Scratch: the plan's workspace, then weights, then padded x.
static char *scratch_of(const Conv *p) {
  return nnrt_gpu_scratch(p->workspace + p->weights + p->padded_x);
}

static NnrtPrep *prepare(NnrtDtype type, DnnDirection direction, int64_t ndim, const int64_t *x,
                         const int64_t *w, const int64_t *y, const int64_t *strides,
                         const int64_t *pads, const int64_t *dilations, int64_t group,
                         bool channels_last) {
  if (ndim < 3 || ndim > DNN_MAX_DIMS) {
    nnrt_error(NNRT_UNSUPPORTED, "conv: %lld spatial dimensions, of at most %d",
               (long long)ndim - 2, DNN_MAX_DIMS - 2);
    return NULL;
  }
  Conv *p = nnrt_must_alloc(sizeof *p);
  p->base.free = prep_free;
  p->type = type;
  p->direction = direction;
  // Missing spatial dimensions, in front, have length 1.
  int64_t axis = channels_last ? ndim - 1 : 1;
  p->s = (ConvShape){.n = x[0],
                     .c = x[axis],
                     .o = y[axis],
                     .group = group,
                     .x = {1, 1, 1},
                     .w = {1, 1, 1},
                     .y = {1, 1, 1},
                     .stride = {1, 1, 1},
                     .dilation = {1, 1, 1}};
  for (int64_t i = 2; i < ndim; i++) {
    int64_t to = 3 - ndim + i, from = channels_last ? i - 1 : i;
    p->s.x[to] = x[from];
    p->s.y[to] = y[from];
    p->s.w[to] = w[i];
    p->s.stride[to] = strides[i - 2];
    p->s.dilation[to] = dilations[i - 2];
    p->s.low[to] = pads[i - 2];
    p->high[to] = pads[ndim - 4 + i];
  }
  set_strides(p->s.x_stride, p->s.c, p->s.x, channels_last);
  set_strides(p->s.y_stride, p->s.o, p->s.y, channels_last);
  p->window = p->s.w[0] * p->s.w[1] * p->s.w[2];
  // An empty tensor needs no plan: the result is all zeros, or nothing.
  int64_t c = p->s.c / group, weights = p->s.o * c * p->window, in = p->s.n * p->s.c;
  int64_t out = p->s.n * p->s.o;
  for (int i = 0; i < 3; i++) {
    in *= p->s.x[i];
    out *= p->s.y[i];
  }
  p->nothing = in == 0 || out == 0 || weights == 0;
  p->result = direction == DNN_BACK_W
                  ? weights * 4
                  : (direction == DNN_FORWARD ? out : in) * nnrt_dtype_size(type);
  if (p->nothing) return &p->base;
  p->last = channels_last;
  p->turned = channels_last && p->window > 1 && c > 1;
  set_pad(p);
  p->plan = plan_of(p);
  if (!p->plan) {
    nnrt_plans_without("conv");
    return &p->base;
  }
  // Weights in scratch: transposed; or, for gradients of 16 bits, before they become f32.
  if (direction == DNN_BACK_W)
    p->weights = p->turned || type != NNRT_f32 ? round_256(weights * nnrt_dtype_size(type)) : 0;
  else
    p->weights = p->turned ? round_256(weights * nnrt_dtype_size(type)) : 0;
  p->workspace = round_256(dnn_plan_workspace(p->plan) + 1);
  const int64_t *size = p->pad.padded;
  if (p->asymmetric)
    p->padded_x = round_256(p->s.n * p->s.c * size[0] * size[1] * size[2] * nnrt_dtype_size(type));
  if (!nnrt_gpu()->planning && !scratch_of(p)) {
    prep_free(&p->base);
    return NULL;
  }
  return &p->base;
}

static int run(const Conv *p, void *y, const void *x, const void *w) {
  if (p->nothing) return nnrt_zero(y, p->result);
  bool back = p->direction == DNN_BACK_X; // then y is dx, and x is dy
  if (!p->plan)
    return back ? conv_direct_back_x(p->type, &p->s, y, w, x)
                : conv_direct(p->type, &p->s, y, x, w);
  char *scratch = scratch_of(p);
  if (!scratch) return NNRT_MEMORY;
  int code = NNRT_OK;
  if (p->turned) {
    void *turned = scratch + p->workspace;
    code = conv_weights_last(p->type, turned, w, p->s.o, p->s.c / p->s.group, p->window);
    w = turned;
  }
  // In the order of the graph: x, w, y.
  void *data[] = {back ? y : unconst(x), unconst(w), back ? unconst(x) : y};
  // cuDNN reads x with zeros around it, or writes dx with a border that is cropped.
  if (p->asymmetric) data[0] = scratch + p->workspace + p->weights;
  if (!code && p->asymmetric && !back) code = conv_pad(p->type, data[0], x, &p->pad);
  if (!code) code = dnn_run(p->plan, data, scratch);
  if (!code && p->asymmetric && back) code = conv_crop(p->type, y, data[0], &p->pad);
  return code;
}

static int run_back_w(const Conv *p, float *dw, const void *x, const void *dy) {
  if (p->nothing) return nnrt_zero(dw, p->result);
  if (!p->plan) return conv_direct_back_w(p->type, &p->s, dw, x, dy);
  char *scratch = scratch_of(p);
  if (!scratch) return NNRT_MEMORY;
  // The plan writes the gradients in its own layout and type.
  void *to = p->weights ? scratch + p->workspace : (void *)dw;
  void *padded = scratch + p->workspace + p->weights;
  int code = p->asymmetric ? conv_pad(p->type, padded, x, &p->pad) : NNRT_OK;
  void *data[] = {p->asymmetric ? padded : unconst(x), to, unconst(dy)};
  if (!code) code = dnn_run(p->plan, data, scratch);
  if (!code && p->weights)
    code = conv_weights_back(p->type, dw, to, p->s.o, p->s.c / p->s.group, p->window, p->last);
  return code;
}

#define PREP(name, suffix, dtype, direction)                                                       \
  NnrtPrep *nnrt_##name##_prep_##suffix(                                                           \
      int64_t ndim, const int64_t *x_shape, const int64_t *w_shape, const int64_t *y_shape,        \
      const int64_t *strides, const int64_t *pads, const int64_t *dilations, int64_t group,        \
      bool channels_last) {                                                                        \
    return prepare(dtype, direction, ndim, x_shape, w_shape, y_shape, strides, pads, dilations,    \
                   group, channels_last);                                                          \
  }
#define KERNELS(suffix, T, dtype)                                                                  \
  PREP(conv, suffix, dtype, DNN_FORWARD)                                                           \
  PREP(conv_back_x, suffix, dtype, DNN_BACK_X)                                                     \
  PREP(conv_back_w, suffix, dtype, DNN_BACK_W)                                                     \
  int nnrt_conv_##suffix(NnrtPrep *p, T *y, const T *x, const T *w) {                              \
    return run((const Conv *)p, y, x, w);                                                          \
  }                                                                                                \
  int nnrt_conv_back_x_##suffix(NnrtPrep *p, T *dx, const T *w, const T *dy) {                     \
    return run((const Conv *)p, dx, dy, w);                                                        \
  }                                                                                                \
  int nnrt_conv_back_w_##suffix(NnrtPrep *p, float *dw, const T *x, const T *dy) {                 \
    return run_back_w((const Conv *)p, dw, x, dy);                                                 \
  }

KERNELS(f32, float, NNRT_f32)
KERNELS(bf16, uint16_t, NNRT_bf16)
KERNELS(f16, uint16_t, NNRT_f16)
