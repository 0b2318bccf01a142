// Builds cuDNN graphs: see dnn.h.  Descriptors are created with the graph, and freed with it.
// Every tensor and operation is also appended to the graph's text (dnn_graph.h).

#include "dnn_graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

int dnn_ok(cudnnStatus_t status, const char *what) {
  if (status == CUDNN_STATUS_SUCCESS) return NNRT_OK;
  // cuDNN's own message says more than the status; its first line is enough.
  char more[512] = "";
  cudnnGetLastErrorString(more, sizeof more);
  more[strcspn(more, "\n")] = 0;
  return nnrt_error(status == CUDNN_STATUS_ALLOC_FAILED ? NNRT_MEMORY : NNRT_LIBRARY,
                    "%s: cudnn: %s%s%s", what, cudnnGetErrorString(status), more[0] ? ": " : "",
                    more);
}

cudnnHandle_t nnrt_gpu_dnn(void) {
  NnrtGpu *g = nnrt_gpu();
  if (g->dnn) return g->dnn;
  cudnnHandle_t h = NULL;
  if (dnn_ok(cudnnCreate(&h), "starting cudnn")) return NULL;
  // A handle without its stream would not be ordered with the kernels.
  if (dnn_ok(cudnnSetStream(h, g->stream), "giving cudnn its stream")) {
    cudnnDestroy(h);
    return NULL;
  }
  return g->dnn = h;
}

void nnrt_gpu_dnn_free(NnrtGpu *g) {
  if (g->dnn) cudnnDestroy(g->dnn);
  g->dnn = NULL;
}

// -- Building a graph

DnnGraph *dnn_graph_new(const char *name) {
  DnnGraph *g = nnrt_must_alloc(sizeof *g);
  snprintf(g->name, sizeof g->name, "%s", name);
  return g;
}

void dnn_graph_free(DnnGraph *g) {
  for (int i = g->n_made - 1; i >= 0; i--)
    cudnnBackendDestroyDescriptor(g->made[i]);
  free(g->text);
  free(g);
}

void dnn_say(DnnGraph *g, const char *fmt, ...) {
  char line[512];
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(line, sizeof line, fmt, args);
  va_end(args);
  // The text grows by doubling.
  if (g->text_bytes + (size_t)n + 1 > g->text_room) {
    size_t room = 2 * g->text_room + 1024;
    char *text = nnrt_must_alloc(room);
    if (g->text) memcpy(text, g->text, g->text_bytes);
    free(g->text);
    g->text = text;
    g->text_room = room;
  }
  memcpy(g->text + g->text_bytes, line, (size_t)n + 1);
  g->text_bytes += (size_t)n;
}

void dnn_check(DnnGraph *g, cudnnStatus_t status, const char *what) {
  if (!g->failed && dnn_ok(status, what)) g->failed = true;
}

void dnn_fail(DnnGraph *g, const char *what) {
  if (!g->failed) nnrt_error(NNRT_LIBRARY, "%s: %s", g->name, what);
  g->failed = true;
}

Descriptor dnn_make(DnnGraph *g, cudnnBackendDescriptorType_t type) {
  Descriptor d = NULL;
  // After an error all calls do nothing, and dnn_plan returns NULL.
  if (g->n_made == MAX_DESCRIPTORS) dnn_fail(g, "the graph is too large");
  if (g->failed) return NULL;
  dnn_check(g, cudnnBackendCreateDescriptor(type, &d), "making a descriptor");
  if (g->failed) return NULL;
  return g->made[g->n_made++] = d;
}

void dnn_set(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t n, const void *value) {
  char what[64];
  snprintf(what, sizeof what, "%s: attribute %d", g->name, (int)name);
  if (!g->failed) dnn_check(g, cudnnBackendSetAttribute(d, name, type, n, value), what);
}

void dnn_set_descriptor(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name,
                        Descriptor value) {
  dnn_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name,
                     cudnnDataType_t type) {
  dnn_set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void set_int(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name, int64_t x) {
  dnn_set(g, d, name, CUDNN_TYPE_INT64, 1, &x);
}

static void set_bool(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name, bool x) {
  dnn_set(g, d, name, CUDNN_TYPE_BOOLEAN, 1, &x);
}

void dnn_finalize(DnnGraph *g, Descriptor d) {
  if (!g->failed) dnn_check(g, cudnnBackendFinalize(d), g->name);
}

enum { ALIGNMENT = 16 };

typedef enum Place { IN_MEMORY, VIRTUAL, BY_VALUE } Place;

static DnnTensor tensor(DnnGraph *g, Place place, cudnnDataType_t type, int ndim,
                        const int64_t *dim, const int64_t *stride) {
  if (g->n_tensors == MAX_TENSORS) dnn_fail(g, "the graph has too many tensors");
  if (g->failed) return 0;
  int64_t uid = g->n_tensors + 1;
  Descriptor d = dnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  dnn_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, ndim, dim);
  dnn_set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, ndim, stride);
  set_int(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
  set_int(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNMENT);
  if (place == VIRTUAL) set_bool(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (place == BY_VALUE) set_bool(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  dnn_finalize(g, d);
  // Tensors in memory are the operands of a run, in this order.
  if (place == IN_MEMORY) g->memory[g->n_memory++] = uid;
  g->tensor[g->n_tensors] = d;
  // The text is the key of an ahead-of-time plan.
  dnn_say(g, "tensor %d type %d", (int)place, (int)type);
  for (int i = 0; i < ndim; i++)
    dnn_say(g, " %lld:%lld", (long long)dim[i], (long long)stride[i]);
  dnn_say(g, "\n");
  return g->n_tensors++;
}

DnnTensor dnn_tensor(DnnGraph *g, cudnnDataType_t type, int ndim, const int64_t *dim,
                     const int64_t *stride) {
  return tensor(g, IN_MEMORY, type, ndim, dim, stride);
}

DnnTensor dnn_virtual(DnnGraph *g, cudnnDataType_t type, int ndim, const int64_t *dim,
                      const int64_t *stride) {
  return tensor(g, VIRTUAL, type, ndim, dim, stride);
}

static Number *number(DnnGraph *g, cudnnDataType_t type, int ndim) {
  const int64_t ones[DNN_MAX_DIMS] = {1, 1, 1, 1, 1};
  // A tensor of one element, given by value.
  DnnTensor t = tensor(g, BY_VALUE, type, ndim, ones, ones);
  Number *x = &g->number[g->n_numbers];
  x->uid = t + 1;
  if (!g->failed) g->n_numbers++;
  return x;
}

// The value of a number is part of the key: ahead-of-time plans depend on it.
DnnTensor dnn_number(DnnGraph *g, int ndim, float value) {
  number(g, CUDNN_DATA_FLOAT, ndim)->x.f = value;
  dnn_say(g, "number %a\n", (double)value);
  return g->n_tensors - 1;
}

DnnTensor dnn_integer(DnnGraph *g, int ndim, int32_t value) {
  number(g, CUDNN_DATA_INT32, ndim)->x.i = value;
  dnn_say(g, "number %d\n", (int)value);
  return g->n_tensors - 1;
}

static Descriptor operation(DnnGraph *g, cudnnBackendDescriptorType_t type) {
  if (g->n_ops == MAX_OPS) dnn_fail(g, "the graph has too many operations");
  return dnn_make(g, type);
}

static void operand(DnnGraph *g, Descriptor op, cudnnBackendAttributeName_t name, DnnTensor t) {
  dnn_say(g, " %d=%d", (int)name, t);
  if (!g->failed) dnn_set_descriptor(g, op, name, g->tensor[t]);
}

static void add(DnnGraph *g, Descriptor op) {
  dnn_finalize(g, op);
  dnn_say(g, "\n");
  if (!g->failed) g->op[g->n_ops++] = op;
}

void dnn_matmul(DnnGraph *g, DnnTensor a, DnnTensor b, DnnTensor c) {
  // The computation, then the operation on tensors.
  Descriptor how = dnn_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set_type(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  dnn_finalize(g, how);
  Descriptor op = operation(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  dnn_say(g, "matmul");
  operand(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  operand(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  operand(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  add(g, op);
}

// b, t: or DNN_NONE.  axis: of CUDNN_POINTWISE_GEN_INDEX
static void pointwise(DnnGraph *g, cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                      DnnTensor x, DnnTensor b, DnnTensor t, DnnTensor y, int axis) {
  // The computation, then the operation on tensors.
  Descriptor how = dnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  dnn_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) set_int(g, how, CUDNN_ATTR_POINTWISE_AXIS, axis);
  dnn_finalize(g, how);
  Descriptor op = operation(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  dnn_say(g, "pointwise %d in %d axis %d", (int)mode, (int)precision, axis);
  dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  operand(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != DNN_NONE) operand(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  if (t != DNN_NONE) operand(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
  operand(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add(g, op);
}

void dnn_pointwise(DnnGraph *g, cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y) {
  bool compares = mode >= CUDNN_POINTWISE_CMP_EQ && mode <= CUDNN_POINTWISE_CMP_LE;
  pointwise(g, mode, compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT, x, b, DNN_NONE, y, -1);
}

void dnn_add_integers(DnnGraph *g, DnnTensor x, DnnTensor b, DnnTensor y) {
  pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, x, b, DNN_NONE, y, -1);
}

void dnn_select(DnnGraph *g, DnnTensor where, DnnTensor yes, DnnTensor no, DnnTensor y) {
  pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, yes, no, where, y, -1);
}

void dnn_index(DnnGraph *g, int axis, DnnTensor like, DnnTensor y) {
  pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, like, DNN_NONE, DNN_NONE, y, axis);
}

void dnn_reduce(DnnGraph *g, cudnnReduceTensorOp_t how, DnnTensor x, DnnTensor y) {
  // The computation, then the operation on tensors.
  Descriptor d = dnn_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  dnn_set(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
  set_type(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  dnn_finalize(g, d);
  Descriptor op = operation(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  dnn_say(g, "reduce %d", (int)how);
  operand(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  operand(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
  add(g, op);
}

void dnn_reshape(DnnGraph *g, DnnTensor x, DnnTensor y) {
  Descriptor op = operation(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  dnn_say(g, "reshape");
  operand(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  operand(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  add(g, op);
}

// Engines of gradients with the oldest algorithms: they add with atomic operations, in no fixed
// order, and their notes do not always report it.
#define ENGINE(n) ((uint64_t)1 << (n))
static const uint64_t atomic_engines[] = {
    [DNN_FORWARD] = 0, [DNN_BACK_X] = ENGINE(0), [DNN_BACK_W] = ENGINE(0) | ENGINE(3)};

// Engines that round f32 operands to TF32 without a note of tensor cores.  On an H200, cuDNN 9.19
// takes the one for gradients of weights with a channel in each group: they are off by 4e-4.
static const uint64_t rounding_engines[] = {
    [DNN_FORWARD] = 0, [DNN_BACK_X] = 0, [DNN_BACK_W] = ENGINE(17)};

void dnn_conv(DnnGraph *g, DnnDirection direction, const DnnConv *conv, DnnTensor x, DnnTensor w,
              DnnTensor y) {
  // The attributes of the three operations, in the order of DnnDirection.
  static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
  } names[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
  // Neural networks call cross-correlation a convolution.
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const float one = 1, zero = 0;
  int64_t n = conv->spatial;
  Descriptor d = dnn_make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  set_type(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set_int(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, n);
  dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, conv->dilation);
  dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, conv->stride);
  dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, conv->low);
  dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, conv->high);
  dnn_finalize(g, d);
  // The operation, by the attributes of its direction.
  Descriptor op = operation(g, names[direction].type);
  dnn_say(g, "conv %d", (int)direction);
  for (int64_t i = 0; i < n; i++)
    dnn_say(g, " %lld:%lld:%lld:%lld", (long long)conv->stride[i], (long long)conv->dilation[i],
            (long long)conv->low[i], (long long)conv->high[i]);
  dnn_set_descriptor(g, op, names[direction].conv, d);
  dnn_set(g, op, names[direction].alpha, CUDNN_TYPE_FLOAT, 1, &one);
  dnn_set(g, op, names[direction].beta, CUDNN_TYPE_FLOAT, 1, &zero);
  operand(g, op, names[direction].x, x);
  operand(g, op, names[direction].w, w);
  operand(g, op, names[direction].y, y);
  add(g, op);
  // These engines are never chosen; see above.
  g->distrusted |= atomic_engines[direction];
  g->rounding |= rounding_engines[direction];
}
