// cuDNN's backend API: graphs of operations, interpreted in double.
//
//     descriptors    what is set is checked against a table of attributes: type, how many, needed
//     graphs         shapes fit; a virtual tensor is made once, before it is used
//     heuristics     some engines, of which the first is not deterministic, and for f32 the second
//                    has tensor cores that round to TF32.  None for what cuDNN 9.19 refuses: other
//                    attention than of 16 bits and heads of a multiple of 8, gradients of weights
//                    of another type than the activations
//     plans          with a text from which they can be made again, for the same gpu only
//     running        operands are in the gpu's memory as far as they reach, and aligned; the
//                    workspace is overwritten with NaN
//
// Results that are virtual are rounded to their type too, as a kernel would that keeps them.  A
// reshape is a view of the same memory with other strides.

#include <cudnn.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

__extension__ typedef _Float16 Half;

enum { MAX_ATTRIBUTES = 16, MAX_RANK = 8, MAX_TENSORS = 128, MAX_OPS = 64, VERSION = 91900 };

static _Thread_local char last_error[512];

__attribute__((format(printf, 2, 3))) static cudnnStatus_t refuse(cudnnStatus_t status,
                                                                  const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(last_error, sizeof last_error, fmt, args);
  va_end(args);
  return status;
}
#define BAD(...) refuse(CUDNN_STATUS_BAD_PARAM, __VA_ARGS__)

// ---- Descriptors

typedef struct Attribute {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t n;
  void *at;
} Attribute;

typedef struct Descriptor {
  cudnnBackendDescriptorType_t type;
  int users; // whoever made it, and descriptors that have it as an attribute
  bool final;
  int n;
  Attribute attribute[MAX_ATTRIBUTES];
} Descriptor;

static size_t attribute_bytes(cudnnBackendAttributeType_t type) {
  switch (type) {
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
  case CUDNN_TYPE_INT64: return sizeof(int64_t);
  case CUDNN_TYPE_DOUBLE: return sizeof(double);
  case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
  case CUDNN_TYPE_CHAR: return 1;
  default: return sizeof(int32_t); // enums and floats
  }
}

// What can be set: of which descriptor, how many at least and at most, and whether it must be.
typedef struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t least, most;
  bool needed;
} Rule;

#define D(x) CUDNN_BACKEND_##x##_DESCRIPTOR
#define A(x) CUDNN_ATTR_##x
#define T(x) CUDNN_TYPE_##x
#define OPERAND(of, name)                                                                          \
  { D(of), A(of##_##name), T(BACKEND_DESCRIPTOR), 1, 1, true }
static const Rule rules[] = {
    {D(TENSOR), A(TENSOR_DATA_TYPE), T(DATA_TYPE), 1, 1, true},
    {D(TENSOR), A(TENSOR_DIMENSIONS), T(INT64), 3, MAX_RANK, true},
    {D(TENSOR), A(TENSOR_STRIDES), T(INT64), 3, MAX_RANK, true},
    {D(TENSOR), A(TENSOR_UNIQUE_ID), T(INT64), 1, 1, true},
    {D(TENSOR), A(TENSOR_BYTE_ALIGNMENT), T(INT64), 1, 1, true},
    {D(TENSOR), A(TENSOR_IS_VIRTUAL), T(BOOLEAN), 1, 1, false},
    {D(TENSOR), A(TENSOR_IS_BY_VALUE), T(BOOLEAN), 1, 1, false},
    {D(MATMUL), A(MATMUL_COMP_TYPE), T(DATA_TYPE), 1, 1, true},
    OPERAND(OPERATION_MATMUL, ADESC),
    OPERAND(OPERATION_MATMUL, BDESC),
    OPERAND(OPERATION_MATMUL, CDESC),
    OPERAND(OPERATION_MATMUL, DESC),
    {D(POINTWISE), A(POINTWISE_MODE), T(POINTWISE_MODE), 1, 1, true},
    {D(POINTWISE), A(POINTWISE_MATH_PREC), T(DATA_TYPE), 1, 1, true},
    {D(POINTWISE), A(POINTWISE_AXIS), T(INT64), 1, 1, false},
    OPERAND(OPERATION_POINTWISE, PW_DESCRIPTOR),
    OPERAND(OPERATION_POINTWISE, XDESC),
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_BDESC), T(BACKEND_DESCRIPTOR), 1, 1, false},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_TDESC), T(BACKEND_DESCRIPTOR), 1, 1, false},
    OPERAND(OPERATION_POINTWISE, YDESC),
    {D(REDUCTION), A(REDUCTION_OPERATOR), T(REDUCTION_OPERATOR_TYPE), 1, 1, true},
    {D(REDUCTION), A(REDUCTION_COMP_TYPE), T(DATA_TYPE), 1, 1, true},
    OPERAND(OPERATION_REDUCTION, XDESC),
    OPERAND(OPERATION_REDUCTION, YDESC),
    OPERAND(OPERATION_REDUCTION, DESC),
    OPERAND(OPERATION_RESHAPE, XDESC),
    OPERAND(OPERATION_RESHAPE, YDESC),
    {D(CONVOLUTION), A(CONVOLUTION_COMP_TYPE), T(DATA_TYPE), 1, 1, true},
    {D(CONVOLUTION), A(CONVOLUTION_CONV_MODE), T(CONVOLUTION_MODE), 1, 1, true},
    {D(CONVOLUTION), A(CONVOLUTION_SPATIAL_DIMS), T(INT64), 1, 1, true},
    {D(CONVOLUTION), A(CONVOLUTION_DILATIONS), T(INT64), 2, 3, true},
    {D(CONVOLUTION), A(CONVOLUTION_FILTER_STRIDES), T(INT64), 2, 3, true},
    {D(CONVOLUTION), A(CONVOLUTION_PRE_PADDINGS), T(INT64), 2, 3, true},
    {D(CONVOLUTION), A(CONVOLUTION_POST_PADDINGS), T(INT64), 2, 3, true},
#define CONVOLUTION(of, prefix, x, w, y)                                                           \
  {D(of), A(prefix##_ALPHA), T(FLOAT), 1, 1, true},                                                \
      {D(of), A(prefix##_BETA), T(FLOAT), 1, 1, true},                                             \
      {D(of), A(prefix##_CONV_DESC), T(BACKEND_DESCRIPTOR), 1, 1, true},                           \
      {D(of), A(prefix##_##x), T(BACKEND_DESCRIPTOR), 1, 1, true},                                 \
      {D(of), A(prefix##_##w), T(BACKEND_DESCRIPTOR), 1, 1, true}, {                               \
    D(of), A(prefix##_##y), T(BACKEND_DESCRIPTOR), 1, 1, true                                      \
  }
    CONVOLUTION(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD, X, W, Y),
    CONVOLUTION(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA, DX, W, DY),
    CONVOLUTION(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER, X, DW, DY),
    {D(OPERATIONGRAPH), A(OPERATIONGRAPH_OPS), T(BACKEND_DESCRIPTOR), 1, MAX_OPS, true},
    {D(OPERATIONGRAPH), A(OPERATIONGRAPH_HANDLE), T(HANDLE), 1, 1, false},
    {D(DEVICEPROP), A(DEVICEPROP_JSON_REPRESENTATION), T(CHAR), 1, 1 << 20, false},
    {D(DEVICEPROP), A(DEVICEPROP_HANDLE), T(HANDLE), 1, 1, false},
    {D(ENGINEHEUR), A(ENGINEHEUR_MODE), T(HEUR_MODE), 1, 1, true},
    {D(ENGINEHEUR), A(ENGINEHEUR_OPERATION_GRAPH), T(BACKEND_DESCRIPTOR), 1, 1, true},
    {D(ENGINEHEUR), A(ENGINEHEUR_DEVICEPROP), T(BACKEND_DESCRIPTOR), 1, 1, false},
    {D(ENGINE), A(ENGINE_OPERATION_GRAPH), T(BACKEND_DESCRIPTOR), 1, 1, true},
    {D(ENGINE), A(ENGINE_GLOBAL_INDEX), T(INT64), 1, 1, true},
    {D(ENGINECFG), A(ENGINECFG_ENGINE), T(BACKEND_DESCRIPTOR), 1, 1, true},
    {D(EXECUTION_PLAN), A(EXECUTION_PLAN_HANDLE), T(HANDLE), 1, 1, false},
    {D(EXECUTION_PLAN), A(EXECUTION_PLAN_DEVICEPROP), T(BACKEND_DESCRIPTOR), 1, 1, false},
    {D(EXECUTION_PLAN), A(EXECUTION_PLAN_ENGINE_CONFIG), T(BACKEND_DESCRIPTOR), 1, 1, false},
    {D(EXECUTION_PLAN), A(EXECUTION_PLAN_JSON_REPRESENTATION), T(CHAR), 1, 1 << 30, false},
    {D(VARIANT_PACK), A(VARIANT_PACK_UNIQUE_IDS), T(INT64), 1, MAX_TENSORS, true},
    {D(VARIANT_PACK), A(VARIANT_PACK_DATA_POINTERS), T(VOID_PTR), 1, MAX_TENSORS, true},
    {D(VARIANT_PACK), A(VARIANT_PACK_WORKSPACE), T(VOID_PTR), 1, 1, true},
};
enum { N_RULES = sizeof rules / sizeof rules[0] };

static const Rule *rule_of(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name) {
  for (int i = 0; i < N_RULES; i++)
    if (rules[i].of == of && rules[i].name == name) return &rules[i];
  return NULL;
}

static const Attribute *find(const Descriptor *d, cudnnBackendAttributeName_t name) {
  for (int i = 0; i < d->n; i++)
    if (d->attribute[i].name == name) return &d->attribute[i];
  return NULL;
}

static Descriptor *child(const Descriptor *d, cudnnBackendAttributeName_t name) {
  const Attribute *a = find(d, name);
  return a ? *(Descriptor **)a->at : NULL;
}

static int64_t number(const Descriptor *d, cudnnBackendAttributeName_t name, int64_t i) {
  const Attribute *a = find(d, name);
  if (!a) return 0;
  if (a->type == CUDNN_TYPE_INT64) return ((const int64_t *)a->at)[i];
  if (a->type == CUDNN_TYPE_BOOLEAN) return ((const bool *)a->at)[i];
  return ((const int32_t *)a->at)[i];
}

static void let_go(Descriptor *d) {
  if (--d->users > 0) return;
  for (int i = 0; i < d->n; i++) {
    Attribute *a = &d->attribute[i];
    for (int64_t j = 0; a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && j < a->n; j++)
      let_go(((Descriptor **)a->at)[j]);
    free(a->at);
  }
  free(d);
}

static void put(Descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t n, const void *from) {
  size_t bytes = (size_t)n * attribute_bytes(type);
  Attribute *a = NULL;
  for (int i = 0; i < d->n; i++)
    if (d->attribute[i].name == name) a = &d->attribute[i];
  if (a)
    free(a->at);
  else
    a = &d->attribute[d->n++];
  *a = (Attribute){name, type, n, malloc(bytes)};
  memcpy(a->at, from, bytes);
  for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++)
    ((Descriptor **)a->at)[i]->users++;
}

// ---- Tensors and graphs

typedef struct Tensor {
  int64_t uid, count, extent; // extent: elements of memory that it reaches over
  cudnnDataType_t type;
  int rank;
  int64_t dim[MAX_RANK], stride[MAX_RANK], alignment;
  bool is_virtual, by_value;
} Tensor;

static int64_t type_bytes(cudnnDataType_t t) {
  switch (t) {
  case CUDNN_DATA_HALF:
  case CUDNN_DATA_BFLOAT16: return 2;
  case CUDNN_DATA_BOOLEAN: return 1;
  case CUDNN_DATA_INT64: return 8;
  default: return 4;
  }
}

static Tensor tensor_of(const Descriptor *d) {
  Tensor t = {.uid = number(d, A(TENSOR_UNIQUE_ID), 0),
              .count = 1,
              .extent = 1,
              .type = (cudnnDataType_t)number(d, A(TENSOR_DATA_TYPE), 0),
              .rank = (int)find(d, A(TENSOR_DIMENSIONS))->n,
              .alignment = number(d, A(TENSOR_BYTE_ALIGNMENT), 0),
              .is_virtual = number(d, A(TENSOR_IS_VIRTUAL), 0),
              .by_value = number(d, A(TENSOR_IS_BY_VALUE), 0)};
  for (int i = 0; i < t.rank; i++) {
    t.dim[i] = number(d, A(TENSOR_DIMENSIONS), i);
    t.stride[i] = number(d, A(TENSOR_STRIDES), i);
    t.count *= t.dim[i];
    t.extent += (t.dim[i] - 1) * t.stride[i];
  }
  return t;
}

static Tensor operand(const Descriptor *op, cudnnBackendAttributeName_t name) {
  return tensor_of(child(op, name));
}

static cudnnStatus_t check_tensor(const Descriptor *d) {
  if (find(d, A(TENSOR_DIMENSIONS))->n != find(d, A(TENSOR_STRIDES))->n)
    return BAD("a tensor has other dimensions than strides");
  Tensor t = tensor_of(d);
  for (int i = 0; i < t.rank; i++) {
    if (t.dim[i] < 1 || t.stride[i] < 1) return BAD("a dimension or stride of a tensor is below 1");
    for (int j = 0; j < i; j++) // elements must not lie on each other
      if (t.dim[i] > 1 && t.dim[j] > 1 && t.stride[i] == t.stride[j])
        return BAD("two dimensions of a tensor have one stride");
  }
  if (t.alignment < 1 || (t.alignment & (t.alignment - 1))) return BAD("an alignment is odd");
  if (t.is_virtual && t.by_value) return BAD("a tensor is virtual and by value");
  if (t.by_value && t.count != 1) return BAD("a tensor by value is not one number");
  return CUDNN_STATUS_SUCCESS;
}

// The results of an operation, and what it reads; how many.
static int results_of(const Descriptor *op, Descriptor **out) {
  switch (op->type) {
  case D(OPERATION_MATMUL): out[0] = child(op, A(OPERATION_MATMUL_CDESC)); break;
  case D(OPERATION_POINTWISE): out[0] = child(op, A(OPERATION_POINTWISE_YDESC)); break;
  case D(OPERATION_REDUCTION): out[0] = child(op, A(OPERATION_REDUCTION_YDESC)); break;
  case D(OPERATION_RESHAPE): out[0] = child(op, A(OPERATION_RESHAPE_YDESC)); break;
  case D(OPERATION_CONVOLUTION_FORWARD):
    out[0] = child(op, A(OPERATION_CONVOLUTION_FORWARD_Y));
    break;
  case D(OPERATION_CONVOLUTION_BACKWARD_DATA):
    out[0] = child(op, A(OPERATION_CONVOLUTION_BWD_DATA_DX));
    break;
  default: out[0] = child(op, A(OPERATION_CONVOLUTION_BWD_FILTER_DW)); break;
  }
  return 1;
}

static int reads_of(const Descriptor *op, Descriptor **out) {
  Descriptor *result;
  int n = 0;
  results_of(op, &result);
  for (int i = 0; i < op->n; i++) {
    const Attribute *a = &op->attribute[i];
    if (a->type != CUDNN_TYPE_BACKEND_DESCRIPTOR) continue;
    Descriptor *d = *(Descriptor **)a->at;
    if (d->type == D(TENSOR) && d != result) out[n++] = d;
  }
  return n;
}

static bool same_dims(const Tensor *a, const Tensor *b) {
  return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->rank) == 0;
}

// Whether b can be repeated to the dimensions of y.
static bool repeats_to(const Tensor *b, const Tensor *y) {
  if (b->rank != y->rank) return false;
  for (int i = 0; i < b->rank; i++)
    if (b->dim[i] != 1 && b->dim[i] != y->dim[i]) return false;
  return true;
}

static cudnnStatus_t check_matmul(const Descriptor *op) {
  Tensor a = operand(op, A(OPERATION_MATMUL_ADESC)), b = operand(op, A(OPERATION_MATMUL_BDESC));
  Tensor c = operand(op, A(OPERATION_MATMUL_CDESC));
  int r = c.rank;
  if (a.rank != r || b.rank != r || a.dim[r - 1] != b.dim[r - 2] || a.dim[r - 2] != c.dim[r - 2] ||
      b.dim[r - 1] != c.dim[r - 1])
    return BAD("matmul: dimensions do not fit");
  for (int i = 0; i < r - 2; i++)
    if (a.dim[i] != c.dim[i] || c.dim[i] % b.dim[i] != 0)
      return BAD("matmul: dimension %d of the batch does not fit", i);
  if (a.type != b.type) return BAD("matmul: operands of two types");
  return CUDNN_STATUS_SUCCESS;
}

static int operands_of_mode(cudnnPointwiseMode_t mode) {
  switch (mode) {
  case CUDNN_POINTWISE_ADD:
  case CUDNN_POINTWISE_SUB:
  case CUDNN_POINTWISE_MUL:
  case CUDNN_POINTWISE_DIV:
  case CUDNN_POINTWISE_MAX:
  case CUDNN_POINTWISE_CMP_GE: return 2;
  case CUDNN_POINTWISE_EXP:
  case CUDNN_POINTWISE_LOG:
  case CUDNN_POINTWISE_IDENTITY:
  case CUDNN_POINTWISE_GEN_INDEX: return 1;
  case CUDNN_POINTWISE_BINARY_SELECT: return 3;
  default: return 0; // not known here
  }
}

static cudnnStatus_t check_pointwise(const Descriptor *op) {
  const Descriptor *how = child(op, A(OPERATION_POINTWISE_PW_DESCRIPTOR));
  cudnnPointwiseMode_t mode = (cudnnPointwiseMode_t)number(how, A(POINTWISE_MODE), 0);
  int n = operands_of_mode(mode);
  if (n == 0) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "pointwise: mode %d", (int)mode);
  if ((n >= 2) != (find(op, A(OPERATION_POINTWISE_BDESC)) != NULL) ||
      (n == 3) != (find(op, A(OPERATION_POINTWISE_TDESC)) != NULL))
    return BAD("pointwise: mode %d has %d operands", (int)mode, n);
  Tensor x = operand(op, A(OPERATION_POINTWISE_XDESC));
  Tensor y = operand(op, A(OPERATION_POINTWISE_YDESC));
  if (!same_dims(&x, &y)) return BAD("pointwise: x has other dimensions than y");
  if (mode == CUDNN_POINTWISE_GEN_INDEX && !find(how, A(POINTWISE_AXIS)))
    return BAD("pointwise: an index needs an axis");
  if (n >= 2) {
    Tensor b = operand(op, A(OPERATION_POINTWISE_BDESC));
    if (!repeats_to(&b, &y)) return BAD("pointwise: b does not fit");
  }
  if (n == 3) {
    Tensor t = operand(op, A(OPERATION_POINTWISE_TDESC));
    if (!same_dims(&t, &y) || t.type != CUDNN_DATA_BOOLEAN)
      return BAD("pointwise: what selects is no boolean of y's dimensions");
  }
  if (mode == CUDNN_POINTWISE_CMP_GE && y.type != CUDNN_DATA_BOOLEAN)
    return BAD("pointwise: a comparison gives booleans");
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_reduction(const Descriptor *op) {
  Tensor x = operand(op, A(OPERATION_REDUCTION_XDESC));
  Tensor y = operand(op, A(OPERATION_REDUCTION_YDESC));
  for (int i = 0; i < x.rank; i++)
    if (x.rank != y.rank || x.dim[i] % y.dim[i] != 0) return BAD("reduction: y does not fit");
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_reshape(const Descriptor *op) {
  Tensor x = operand(op, A(OPERATION_RESHAPE_XDESC)), y = operand(op, A(OPERATION_RESHAPE_YDESC));
  if (x.count != y.count || x.extent != y.extent) return BAD("reshape: y is not of x's size");
  return CUDNN_STATUS_SUCCESS;
}

// A convolution, whichever of its three tensors is the result.
typedef struct Conv {
  Tensor x, w, y;
  int n; // spatial dimensions
  int64_t stride[3], dilation[3], low[3], high[3];
} Conv;

static Conv conv_of(const Descriptor *op) {
  Conv c = {0};
  const Descriptor *how;
  if (op->type == D(OPERATION_CONVOLUTION_FORWARD)) {
    how = child(op, A(OPERATION_CONVOLUTION_FORWARD_CONV_DESC));
    c.x = operand(op, A(OPERATION_CONVOLUTION_FORWARD_X));
    c.w = operand(op, A(OPERATION_CONVOLUTION_FORWARD_W));
    c.y = operand(op, A(OPERATION_CONVOLUTION_FORWARD_Y));
  } else if (op->type == D(OPERATION_CONVOLUTION_BACKWARD_DATA)) {
    how = child(op, A(OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC));
    c.x = operand(op, A(OPERATION_CONVOLUTION_BWD_DATA_DX));
    c.w = operand(op, A(OPERATION_CONVOLUTION_BWD_DATA_W));
    c.y = operand(op, A(OPERATION_CONVOLUTION_BWD_DATA_DY));
  } else {
    how = child(op, A(OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC));
    c.x = operand(op, A(OPERATION_CONVOLUTION_BWD_FILTER_X));
    c.w = operand(op, A(OPERATION_CONVOLUTION_BWD_FILTER_DW));
    c.y = operand(op, A(OPERATION_CONVOLUTION_BWD_FILTER_DY));
  }
  c.n = (int)number(how, A(CONVOLUTION_SPATIAL_DIMS), 0);
  for (int i = 0; i < c.n && i < 3; i++) {
    c.stride[i] = number(how, A(CONVOLUTION_FILTER_STRIDES), i);
    c.dilation[i] = number(how, A(CONVOLUTION_DILATIONS), i);
    c.low[i] = number(how, A(CONVOLUTION_PRE_PADDINGS), i);
    c.high[i] = number(how, A(CONVOLUTION_POST_PADDINGS), i);
  }
  return c;
}

static cudnnStatus_t check_conv(const Descriptor *op) {
  Conv c = conv_of(op);
  if (c.n < 2 || c.n > 3 || c.x.rank != c.n + 2 || c.w.rank != c.n + 2 || c.y.rank != c.n + 2)
    return BAD("convolution: ranks do not fit");
  if (c.x.dim[0] != c.y.dim[0] || c.w.dim[0] != c.y.dim[1] || c.x.dim[1] % c.w.dim[1] != 0 ||
      c.y.dim[1] % (c.x.dim[1] / c.w.dim[1]) != 0)
    return BAD("convolution: channels do not fit");
  for (int i = 0; i < c.n; i++) {
    if (c.low[i] < 0 || c.high[i] < 0 || c.stride[i] < 1 || c.dilation[i] < 1)
      return BAD("convolution: a padding, stride or dilation is too small");
    int64_t room = c.x.dim[i + 2] + c.low[i] + c.high[i] - (c.w.dim[i + 2] - 1) * c.dilation[i] - 1;
    if (room < 0 || room / c.stride[i] + 1 != c.y.dim[i + 2])
      return BAD("convolution: dimension %d of y does not fit", i);
  }
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_graph(const Descriptor *g) {
  const Attribute *ops = find(g, A(OPERATIONGRAPH_OPS));
  Descriptor *seen[MAX_TENSORS], *made[MAX_OPS], *reads[MAX_ATTRIBUTES];
  int n_seen = 0, n_made = 0;
  for (int64_t i = 0; i < ops->n; i++) {
    Descriptor *op = ((Descriptor **)ops->at)[i];
    int n = reads_of(op, reads);
    for (int j = 0; j < n; j++) {
      bool is_made = false;
      for (int k = 0; k < n_made; k++)
        is_made = is_made || made[k] == reads[j];
      if (number(reads[j], A(TENSOR_IS_VIRTUAL), 0) && !is_made)
        return BAD("operation %d reads a virtual tensor that none before it makes", (int)i);
      seen[n_seen++] = reads[j];
    }
    results_of(op, &made[n_made]);
    for (int k = 0; k < n_made; k++)
      if (made[k] == made[n_made]) return BAD("two operations make one tensor");
    seen[n_seen++] = made[n_made++];
    if (n_seen > MAX_TENSORS - MAX_ATTRIBUTES) return BAD("too many tensors");
  }
  for (int i = 0; i < n_seen; i++)
    for (int j = 0; j < i; j++)
      if (seen[i] != seen[j] &&
          number(seen[i], A(TENSOR_UNIQUE_ID), 0) == number(seen[j], A(TENSOR_UNIQUE_ID), 0))
        return BAD("two tensors have one id");
  return CUDNN_STATUS_SUCCESS;
}

// ---- Which gpu, and what its engines can do

typedef struct Machine {
  int sm, processors;
} Machine;

static int property(const char *text, int64_t n, const char *name) {
  size_t length = strlen(name);
  for (int64_t i = 0; i + (int64_t)length < n; i++)
    if (memcmp(text + i, name, length) == 0) return atoi(text + i + length);
  return 0;
}

static Machine this_machine(void) {
  int major = 0, minor = 0, processors = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  return (Machine){10 * major + minor, processors};
}

static Machine machine_of(const Descriptor *device) {
  const Attribute *a = device ? find(device, A(DEVICEPROP_JSON_REPRESENTATION)) : NULL;
  if (!a) return this_machine();
  return (Machine){property(a->at, a->n, "\"deviceVer\":") / 10,
                   property(a->at, a->n, "\"multiProcessorCount\":")};
}

enum { ENGINE_any_order, ENGINE_tensor_cores, ENGINE_plain, N_ENGINES };

static bool has_16_bits(cudnnDataType_t t) {
  return t == CUDNN_DATA_HALF || t == CUDNN_DATA_BFLOAT16;
}

// Why no engine of cuDNN 9.19 takes the graph, or NULL.
static const char *not_taken(const Descriptor *g, int sm) {
  const Attribute *ops = find(g, A(OPERATIONGRAPH_OPS));
  int64_t widest = sm / 10 == 9 ? 256 : 128, matmuls = 0;
  for (int64_t i = 0; i < ops->n; i++) {
    const Descriptor *op = ((Descriptor **)ops->at)[i];
    if (op->type == D(OPERATION_MATMUL)) {
      Tensor a = operand(op, A(OPERATION_MATMUL_ADESC)), b = operand(op, A(OPERATION_MATMUL_BDESC));
      matmuls++;
      if (!has_16_bits(a.type)) return "a product's operands are not of 16 bits";
      int64_t d = a.is_virtual ? b.dim[3] : a.dim[3];
      if (d % 8 != 0 || d > widest) return "heads of this width";
      if (a.dim[2] == 1 && b.dim[3] == 1 && ops->n > 16) return "one query and one key";
    }
    if (op->type == D(OPERATION_CONVOLUTION_BACKWARD_FILTER)) {
      Conv c = conv_of(op);
      if (c.w.type != c.x.type) return "a gradient of weights of another type";
    }
  }
  return matmuls == 1 ? "a product alone" : NULL;
}

// ---- A plan's text: descriptors, those that others have as attributes before them

static int place_of(Descriptor *d, Descriptor **list, int *n) {
  for (int i = 0; i < *n; i++)
    if (list[i] == d) return i;
  for (int i = 0; i < d->n; i++) {
    const Attribute *a = &d->attribute[i];
    for (int64_t j = 0; a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && j < a->n; j++)
      place_of(((Descriptor **)a->at)[j], list, n);
  }
  list[*n] = d;
  return (*n)++;
}

enum { MAX_TEXT_DESCRIPTORS = 512 };

static char *text_of(const Descriptor *plan, size_t *bytes) {
  Descriptor *list[MAX_TEXT_DESCRIPTORS];
  int n = 0;
  Machine m = machine_of(child(plan, A(EXECUTION_PLAN_DEVICEPROP)));
  char *text = NULL;
  FILE *f = open_memstream(&text, bytes);
  place_of(child(plan, A(EXECUTION_PLAN_ENGINE_CONFIG)), list, &n);
  fprintf(f, "{\"emulated\":[%d,%d,%d", m.sm, m.processors, n);
  for (int i = 0; i < n; i++) {
    fprintf(f, ",\n%d,%d", (int)list[i]->type, list[i]->n);
    for (int j = 0; j < list[i]->n; j++) {
      const Attribute *a = &list[i]->attribute[j];
      int64_t size = (int64_t)attribute_bytes(a->type);
      bool handle = a->type == CUDNN_TYPE_HANDLE; // of this process only
      fprintf(f, ",%d,%d,%" PRId64, (int)a->name, (int)a->type, handle ? 0 : a->n);
      for (int64_t k = 0; k < a->n && !handle; k++) {
        int64_t x = 0;
        if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
          x = place_of(((Descriptor **)a->at)[k], list, &n);
        else
          memcpy(&x, (const char *)a->at + k * size, (size_t)size);
        fprintf(f, ",%" PRId64, x);
      }
    }
  }
  fprintf(f, "]}");
  fclose(f);
  return text;
}

static bool next(const char **at, const char *end, int64_t *out) {
  while (*at < end && (**at < '0' || **at > '9') && **at != '-')
    (*at)++;
  if (*at == end) return false;
  char digits[32] = "";
  for (int n = 0; *at < end && n < 31 && ((**at >= '0' && **at <= '9') || **at == '-'); n++)
    digits[n] = *(*at)++;
  *out = strtoll(digits, NULL, 10);
  return true;
}

// The engine config of a text, or NULL; what it is for.
static Descriptor *config_of_text(const char *at, const char *end, Machine *m) {
  int64_t sm, processors, n, type, count, name, kind, values, x;
  Descriptor *list[MAX_TEXT_DESCRIPTORS];
  if (end - at < 14 || memcmp(at, "{\"emulated\":[", 13) != 0 || !next(&at, end, &sm) ||
      !next(&at, end, &processors) || !next(&at, end, &n) || n < 1 || n > MAX_TEXT_DESCRIPTORS)
    return NULL;
  *m = (Machine){(int)sm, (int)processors};
  int made = 0;
  bool ok = true;
  while (made < n &&
         (ok = next(&at, end, &type) && next(&at, end, &count) && count <= MAX_ATTRIBUTES)) {
    Descriptor *d = list[made] = calloc(1, sizeof *d);
    *d = (Descriptor){.type = (cudnnBackendDescriptorType_t)type, .users = 1, .final = true};
    for (int64_t i = 0; ok && i < count; i++) {
      ok = next(&at, end, &name) && next(&at, end, &kind) && next(&at, end, &values) &&
           values >= 0 && values <= end - at;
      size_t size = ok ? attribute_bytes((cudnnBackendAttributeType_t)kind) : 0;
      char *data = ok ? calloc((size_t)values + 1, size) : NULL;
      for (int64_t j = 0; ok && j < values; j++) {
        ok = next(&at, end, &x) && (kind != CUDNN_TYPE_BACKEND_DESCRIPTOR || (x >= 0 && x < made));
        if (!ok) break;
        if (kind == CUDNN_TYPE_BACKEND_DESCRIPTOR)
          memcpy(data + (size_t)j * size, &list[x], size);
        else
          memcpy(data + (size_t)j * size, &x, size);
      }
      if (ok && values > 0)
        put(d, (cudnnBackendAttributeName_t)name, (cudnnBackendAttributeType_t)kind, values, data);
      free(data);
    }
    made++;
    if (!ok) break;
  }
  ok = ok && made == n && list[n - 1]->type == D(ENGINECFG);
  Descriptor *config = ok ? list[n - 1] : NULL;
  if (config) config->users++;
  for (int i = made - 1; i >= 0; i--)
    let_go(list[i]);
  return config;
}

// ---- Running

typedef struct Value {
  Tensor t;
  double *x; // row-major; NULL until it is made or read
  void *memory;
  int64_t n_bytes;
  union {
    float f;
    int32_t i;
  } by_value;
} Value;

typedef struct Run {
  EmulatedWork work;
  Descriptor *plan, *graph;
  int64_t engine;
  Value value[MAX_TENSORS];
  int n;
  char *workspace;
  int64_t workspace_bytes;
} Run;

static double load(const void *at, cudnnDataType_t type, int64_t i) {
  switch (type) {
  case CUDNN_DATA_HALF: return (double)((const Half *)at)[i];
  case CUDNN_DATA_INT32: return ((const int32_t *)at)[i];
  case CUDNN_DATA_BFLOAT16: {
    uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
  }
  default: return (double)((const float *)at)[i];
  }
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void store(void *at, cudnnDataType_t type, int64_t i, double x) {
  switch (type) {
  case CUDNN_DATA_HALF: ((Half *)at)[i] = (Half)(float)x; break;
  case CUDNN_DATA_INT32: ((int32_t *)at)[i] = (int32_t)x; break;
  case CUDNN_DATA_BFLOAT16: ((uint16_t *)at)[i] = to_bf16((float)x); break;
  default: ((float *)at)[i] = (float)x; break;
  }
}

static double rounded(cudnnDataType_t type, double x) {
  char room[8];
  if (type == CUDNN_DATA_BOOLEAN) return x;
  store(room, type, 0, x);
  return load(room, type, 0);
}

// Where row-major element i lies, by the strides.
static int64_t offset_of(const Tensor *t, int64_t i) {
  int64_t at = 0;
  for (int d = t->rank - 1; d >= 0; d--) {
    at += i % t->dim[d] * t->stride[d];
    i /= t->dim[d];
  }
  return at;
}

static Value *value_of(Run *r, const Descriptor *tensor) {
  int64_t uid = number(tensor, A(TENSOR_UNIQUE_ID), 0);
  for (int i = 0; i < r->n; i++)
    if (r->value[i].t.uid == uid) return &r->value[i];
  emulated_abort("cudnn: a plan has no tensor %" PRId64, uid);
}

static const double *read_value(Run *r, const Descriptor *tensor) {
  Value *v = value_of(r, tensor);
  if (v->x) return v->x;
  v->x = malloc((size_t)v->t.count * sizeof *v->x);
  for (int64_t i = 0; i < v->t.count; i++)
    v->x[i] = v->t.by_value ? load(&v->by_value, v->t.type, 0)
                            : load(v->memory, v->t.type, offset_of(&v->t, i));
  // Tensor cores take f32 with 10 bits of fraction.
  for (int64_t i = 0; r->engine == ENGINE_tensor_cores && v->t.type == CUDNN_DATA_FLOAT &&
                      !v->t.by_value && i < v->t.count;
       i++) {
    float f = (float)v->x[i];
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&f, &bits, sizeof f);
    v->x[i] = (double)f;
  }
  return v->x;
}

static double *new_value(Run *r, const Descriptor *tensor) {
  Value *v = value_of(r, tensor);
  free(v->x);
  return v->x = calloc((size_t)v->t.count, sizeof *v->x);
}

// What was made is rounded, and in memory if it belongs there.
static void keep_value(Run *r, const Descriptor *tensor) {
  Value *v = value_of(r, tensor);
  for (int64_t i = 0; i < v->t.count; i++) {
    v->x[i] = rounded(v->t.type, v->x[i]);
    if (!v->t.is_virtual) store(v->memory, v->t.type, offset_of(&v->t, i), v->x[i]);
  }
}

// Of element i of y the one of x that it comes from, where x may be shorter: of 1, or a part.
static int64_t shared_place(const Tensor *x, const Tensor *y, int64_t i) {
  int64_t place = 0, step = 1;
  for (int d = y->rank - 1; d >= 0; d--) {
    place += i % y->dim[d] / (y->dim[d] / x->dim[d]) * step;
    step *= x->dim[d];
    i /= y->dim[d];
  }
  return place;
}

static void run_matmul(Run *r, const Descriptor *op) {
  Tensor a = operand(op, A(OPERATION_MATMUL_ADESC)), b = operand(op, A(OPERATION_MATMUL_BDESC));
  Tensor c = operand(op, A(OPERATION_MATMUL_CDESC)), batch = c, b_batch = b;
  const double *x = read_value(r, child(op, A(OPERATION_MATMUL_ADESC)));
  const double *w = read_value(r, child(op, A(OPERATION_MATMUL_BDESC)));
  double *y = new_value(r, child(op, A(OPERATION_MATMUL_CDESC)));
  int64_t m = c.dim[c.rank - 2], n = c.dim[c.rank - 1], k = a.dim[a.rank - 1];
  batch.rank = b_batch.rank = c.rank - 2;
  for (int64_t i = 0; i < c.count / (m * n); i++) {
    const double *xi = x + i * m * k, *wi = w + shared_place(&b_batch, &batch, i) * k * n;
    for (int64_t row = 0; row < m; row++)
      for (int64_t l = 0; l < k; l++)
        for (int64_t j = 0; j < n; j++)
          y[(i * m + row) * n + j] += xi[row * k + l] * wi[l * n + j];
  }
}

static void run_pointwise(Run *r, const Descriptor *op) {
  const Descriptor *how = child(op, A(OPERATION_POINTWISE_PW_DESCRIPTOR));
  cudnnPointwiseMode_t mode = (cudnnPointwiseMode_t)number(how, A(POINTWISE_MODE), 0);
  const Descriptor *b_of = child(op, A(OPERATION_POINTWISE_BDESC));
  const Descriptor *t_of = child(op, A(OPERATION_POINTWISE_TDESC));
  Tensor y = operand(op, A(OPERATION_POINTWISE_YDESC)), b = b_of ? tensor_of(b_of) : y;
  const double *px = read_value(r, child(op, A(OPERATION_POINTWISE_XDESC)));
  const double *pb = b_of ? read_value(r, b_of) : NULL, *pt = t_of ? read_value(r, t_of) : NULL;
  double *out = new_value(r, child(op, A(OPERATION_POINTWISE_YDESC)));
  int axis = (int)number(how, A(POINTWISE_AXIS), 0);
  int64_t step = 1;
  for (int d = y.rank - 1; mode == CUDNN_POINTWISE_GEN_INDEX && d > axis; d--)
    step *= y.dim[d];
  for (int64_t i = 0; i < y.count; i++) {
    double p = px[i], q = pb ? pb[shared_place(&b, &y, i)] : 0;
    switch ((int)mode) {
    case CUDNN_POINTWISE_ADD: out[i] = p + q; break;
    case CUDNN_POINTWISE_SUB: out[i] = p - q; break;
    case CUDNN_POINTWISE_MUL: out[i] = p * q; break;
    case CUDNN_POINTWISE_DIV: out[i] = p / q; break;
    case CUDNN_POINTWISE_MAX: out[i] = p > q ? p : q; break;
    case CUDNN_POINTWISE_CMP_GE: out[i] = p >= q; break;
    case CUDNN_POINTWISE_EXP: out[i] = exp(p); break;
    case CUDNN_POINTWISE_LOG: out[i] = log(p); break;
    case CUDNN_POINTWISE_IDENTITY: out[i] = p; break;
    case CUDNN_POINTWISE_GEN_INDEX: out[i] = (double)(i / step % y.dim[axis]); break;
    case CUDNN_POINTWISE_BINARY_SELECT: out[i] = pt[i] != 0 ? p : q; break;
    }
  }
}

static void run_reduction(Run *r, const Descriptor *op) {
  const Descriptor *how = child(op, A(OPERATION_REDUCTION_DESC));
  bool most = number(how, A(REDUCTION_OPERATOR), 0) == CUDNN_REDUCE_TENSOR_MAX;
  Tensor x = operand(op, A(OPERATION_REDUCTION_XDESC));
  Tensor y = operand(op, A(OPERATION_REDUCTION_YDESC));
  const double *in = read_value(r, child(op, A(OPERATION_REDUCTION_XDESC)));
  double *out = new_value(r, child(op, A(OPERATION_REDUCTION_YDESC)));
  for (int64_t i = 0; most && i < y.count; i++)
    out[i] = -INFINITY;
  for (int64_t i = 0; i < x.count; i++) {
    double *to = &out[shared_place(&y, &x, i)];
    *to = !most ? *to + in[i] : in[i] > *to || in[i] != in[i] ? in[i] : *to;
  }
}

static void run_reshape(Run *r, const Descriptor *op) {
  Tensor x = operand(op, A(OPERATION_RESHAPE_XDESC)), y = operand(op, A(OPERATION_RESHAPE_YDESC));
  const double *in = read_value(r, child(op, A(OPERATION_RESHAPE_XDESC)));
  double *out = new_value(r, child(op, A(OPERATION_RESHAPE_YDESC)));
  double *memory = malloc((size_t)x.extent * sizeof *memory);
  for (int64_t i = 0; i < x.count; i++)
    memory[offset_of(&x, i)] = in[i];
  for (int64_t i = 0; i < y.count; i++)
    out[i] = memory[offset_of(&y, i)];
  free(memory);
}

static void run_conv(Run *r, const Descriptor *op) {
  Conv c = conv_of(op);
  Descriptor *result, *reads[MAX_ATTRIBUTES];
  results_of(op, &result);
  int n_reads = reads_of(op, reads);
  double *out = new_value(r, result), *x = NULL, *w = NULL, *y = NULL;
  for (int i = 0; i < n_reads; i++)
    read_value(r, reads[i]);
  for (int i = 0; i < r->n; i++) { // by id: which is which
    if (r->value[i].t.uid == c.x.uid) x = r->value[i].x;
    if (r->value[i].t.uid == c.w.uid) w = r->value[i].x;
    if (r->value[i].t.uid == c.y.uid) y = r->value[i].x;
  }
  int64_t plane_x = 1, plane_w = 1, plane_y = 1;
  for (int i = 2; i < c.n + 2; i++) {
    plane_x *= c.x.dim[i];
    plane_w *= c.w.dim[i];
    plane_y *= c.y.dim[i];
  }
  int64_t channels = c.w.dim[1], groups = c.x.dim[1] / channels, each = c.y.dim[1] / groups;
  for (int64_t i = 0; i < c.y.count * plane_w; i++) {
    int64_t window = i % plane_w, place = i / plane_w % plane_y, at = 0, step = 1;
    int64_t o = i / plane_w / plane_y % c.y.dim[1], n = i / plane_w / plane_y / c.y.dim[1];
    bool inside = true;
    for (int d = c.n - 1, w_left = (int)window, y_left = (int)place; d >= 0; d--) {
      int64_t from = y_left % c.y.dim[d + 2] * c.stride[d] - c.low[d] +
                     w_left % c.w.dim[d + 2] * c.dilation[d];
      inside = inside && from >= 0 && from < c.x.dim[d + 2];
      at += from * step;
      step *= c.x.dim[d + 2];
      w_left /= (int)c.w.dim[d + 2];
      y_left /= (int)c.y.dim[d + 2];
    }
    for (int64_t j = 0; inside && j < channels; j++) {
      int64_t xi = (n * c.x.dim[1] + o / each * channels + j) * plane_x + at;
      int64_t wi = (o * channels + j) * plane_w + window, yi = i / plane_w;
      if (op->type == D(OPERATION_CONVOLUTION_FORWARD))
        out[yi] += x[xi] * w[wi];
      else if (op->type == D(OPERATION_CONVOLUTION_BACKWARD_DATA))
        out[xi] += w[wi] * y[yi];
      else
        out[wi] += x[xi] * y[yi];
    }
  }
}

static bool run_plan(EmulatedWork *work, bool again) {
  Run *r = (Run *)(void *)work;
  const Attribute *ops = find(r->graph, A(OPERATIONGRAPH_OPS));
  (void)again;
  if (r->engine == ENGINE_any_order)
    emulated_abort("cudnn: an engine is run that is not deterministic");
  memset(r->workspace, 0xff, (size_t)r->workspace_bytes);
  for (int64_t i = 0; i < ops->n; i++) {
    const Descriptor *op = ((Descriptor **)ops->at)[i];
    Descriptor *result;
    results_of(op, &result);
    switch ((int)op->type) {
    case D(OPERATION_MATMUL): run_matmul(r, op); break;
    case D(OPERATION_POINTWISE): run_pointwise(r, op); break;
    case D(OPERATION_REDUCTION): run_reduction(r, op); break;
    case D(OPERATION_RESHAPE): run_reshape(r, op); break;
    default: run_conv(r, op); break;
    }
    keep_value(r, result);
  }
  for (int i = 0; i < r->n; i++) {
    free(r->value[i].x);
    r->value[i].x = NULL; // a graph may run it again
  }
  return true;
}

static void free_run(EmulatedWork *work) {
  Run *r = (Run *)(void *)work;
  let_go(r->plan);
  free(r);
}

static const Descriptor *engine_of(const Descriptor *plan) {
  return child(child(plan, A(EXECUTION_PLAN_ENGINE_CONFIG)), A(ENGINECFG_ENGINE));
}

// What the real one needs, about: for products of virtual tensors one of them.
static int64_t workspace_of(const Descriptor *plan) {
  const Attribute *ops =
      find(child(engine_of(plan), A(ENGINE_OPERATION_GRAPH)), A(OPERATIONGRAPH_OPS));
  int64_t most = 0;
  for (int64_t i = 0; ops->n > 16 && i < ops->n; i++) {
    const Descriptor *op = ((Descriptor **)ops->at)[i];
    if (op->type != D(OPERATION_MATMUL)) continue;
    Tensor a = operand(op, A(OPERATION_MATMUL_ADESC));
    int64_t bytes = a.count / a.dim[2] / a.dim[3] * ((a.dim[2] + 63) / 64 * 64) *
                    ((a.dim[3] + 127) / 128 * 128) * 2;
    if (a.is_virtual && bytes > most) most = bytes;
  }
  return most + 256;
}

// ---- The interface

struct cudnnContext {
  cudaStream_t stream;
};

size_t cudnnGetVersion(void) {
  const char *other = getenv("EMULATED_CUDNN");
  return other ? strtoul(other, NULL, 10) : VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch ((int)status) {
  case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
  case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
  case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
  default: return "CUDNN_STATUS_INTERNAL_ERROR";
  }
}

void cudnnGetLastErrorString(char *message, size_t max_size) {
  if (max_size > 0) snprintf(message, max_size, "%s", last_error);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  *handle = calloc(1, sizeof **handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  free(handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor) {
  bool known = false;
  for (int i = 0; i < N_RULES; i++)
    known = known || rules[i].of == type;
  if (!known) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptors of type %d", (int)type);
  Descriptor *d = calloc(1, sizeof *d);
  *d = (Descriptor){.type = type, .users = 1};
  *descriptor = d;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  let_go(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements) {
  Descriptor *d = descriptor;
  const Rule *rule = rule_of(d->type, name);
  if (d->final) return BAD("an attribute of a finalized descriptor is set");
  if (!rule) return BAD("descriptors of type %d have no attribute %d", (int)d->type, (int)name);
  if (rule->type != type) return BAD("attribute %d is not of type %d", (int)name, (int)type);
  if (count < rule->least || count > rule->most)
    return BAD("attribute %d: %" PRId64 " elements", (int)name, count);
  if (!elements) return BAD("attribute %d: no elements", (int)name);
  for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
    const Descriptor *x = ((Descriptor *const *)elements)[i];
    if (!x || !x->final) return BAD("attribute %d: a descriptor is not finalized", (int)name);
  }
  put(d, name, type, count, elements);
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_plan(Descriptor *d) {
  const Attribute *text = find(d, A(EXECUTION_PLAN_JSON_REPRESENTATION));
  Descriptor *device = child(d, A(EXECUTION_PLAN_DEVICEPROP));
  if (!device && !find(d, A(EXECUTION_PLAN_HANDLE))) return BAD("a plan for no gpu");
  Machine here = machine_of(device);
  if (text) {
    Machine m;
    Descriptor *config = config_of_text(text->at, (const char *)text->at + text->n, &m);
    if (!config) return BAD("the text of a plan is damaged");
    put(d, A(EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    let_go(config);
    if (m.sm != here.sm || m.processors != here.processors)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the text of a plan is for another gpu");
  }
  return child(d, A(EXECUTION_PLAN_ENGINE_CONFIG)) ? CUDNN_STATUS_SUCCESS
                                                   : BAD("a plan has no engine");
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor *d = descriptor;
  if (d->final) return BAD("a descriptor is finalized twice");
  for (int i = 0; i < N_RULES; i++)
    if (rules[i].of == d->type && rules[i].needed && !find(d, rules[i].name))
      return BAD("a descriptor of type %d lacks attribute %d", (int)d->type, (int)rules[i].name);
  cudnnStatus_t s = CUDNN_STATUS_SUCCESS;
  switch ((int)d->type) {
  case D(TENSOR): s = check_tensor(d); break;
  case D(OPERATION_MATMUL): s = check_matmul(d); break;
  case D(OPERATION_POINTWISE): s = check_pointwise(d); break;
  case D(OPERATION_REDUCTION): s = check_reduction(d); break;
  case D(OPERATION_RESHAPE): s = check_reshape(d); break;
  case D(OPERATION_CONVOLUTION_FORWARD):
  case D(OPERATION_CONVOLUTION_BACKWARD_DATA):
  case D(OPERATION_CONVOLUTION_BACKWARD_FILTER): s = check_conv(d); break;
  case D(OPERATIONGRAPH): s = check_graph(d); break;
  case D(ENGINEHEUR):
    if (!child(d, A(ENGINEHEUR_DEVICEPROP)) &&
        !find(child(d, A(ENGINEHEUR_OPERATION_GRAPH)), A(OPERATIONGRAPH_HANDLE)))
      s = BAD("heuristics for no gpu");
    break;
  case D(EXECUTION_PLAN): s = check_plan(d); break;
  case D(DEVICEPROP):
    if (machine_of(d).sm <= 0) s = BAD("the properties of a gpu are damaged");
    break;
  case D(VARIANT_PACK):
    if (find(d, A(VARIANT_PACK_UNIQUE_IDS))->n != find(d, A(VARIANT_PACK_DATA_POINTERS))->n)
      s = BAD("a variant pack has other ids than pointers");
    break;
  }
  d->final = s == CUDNN_STATUS_SUCCESS;
  return s;
}

static bool touches_f32(const Descriptor *graph) {
  const Attribute *ops = find(graph, A(OPERATIONGRAPH_OPS));
  const Descriptor *op = ((Descriptor **)ops->at)[0];
  return op->type != D(OPERATION_MATMUL) && op->type != D(OPERATION_POINTWISE) &&
         conv_of(op).x.type == CUDNN_DATA_FLOAT;
}

static bool is_conv_gradient(const Descriptor *engine) {
  const Attribute *ops = find(child(engine, A(ENGINE_OPERATION_GRAPH)), A(OPERATIONGRAPH_OPS));
  const Descriptor *op = ((Descriptor **)ops->at)[0];
  return op->type == D(OPERATION_CONVOLUTION_BACKWARD_DATA) ||
         op->type == D(OPERATION_CONVOLUTION_BACKWARD_FILTER);
}

// The engines for a graph, best first.
static cudnnStatus_t propose(const Descriptor *d, int64_t wanted, int64_t *count, void **out) {
  Descriptor *graph = child(d, A(ENGINEHEUR_OPERATION_GRAPH));
  const char *why = not_taken(graph, machine_of(child(d, A(ENGINEHEUR_DEVICEPROP))).sm);
  int64_t n = touches_f32(graph) ? N_ENGINES : N_ENGINES - 1;
  *count = why ? 0 : n;
  if (why) {
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "no engine takes %s", why);
    return CUDNN_STATUS_SUCCESS;
  }
  for (int64_t i = 0; i < wanted && i < n; i++) {
    Descriptor *engine = calloc(1, sizeof *engine), *config = out[i];
    *engine = (Descriptor){.type = D(ENGINE), .users = 1, .final = true};
    put(engine, A(ENGINE_OPERATION_GRAPH), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    put(engine, A(ENGINE_GLOBAL_INDEX), CUDNN_TYPE_INT64, 1, &i);
    put(config, A(ENGINECFG_ENGINE), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    config->final = true;
    let_go(engine);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t *count, void *elements) {
  const Descriptor *d = descriptor;
  int64_t n = 0;
  if (!d->final) return BAD("an attribute of a descriptor is asked for that is not finalized");
  switch ((int)name) {
  case A(ENGINEHEUR_RESULTS): return propose(d, wanted, count, elements);
  case A(ENGINECFG_ENGINE): { // into a descriptor of the caller's
    Descriptor *to = *(Descriptor **)elements, *from = child(d, A(ENGINECFG_ENGINE));
    for (int i = 0; i < from->n; i++)
      put(to, from->attribute[i].name, from->attribute[i].type, from->attribute[i].n,
          from->attribute[i].at);
    to->final = true;
    n = 1;
    break;
  }
  case A(ENGINE_GLOBAL_INDEX):
    *(int64_t *)elements = number(d, A(ENGINE_GLOBAL_INDEX), 0);
    n = 1;
    break;
  case A(ENGINE_NUMERICAL_NOTE): {
    int64_t engine = number(d, A(ENGINE_GLOBAL_INDEX), 0);
    if (wanted < 1 || type != CUDNN_TYPE_NUMERICAL_NOTE) return BAD("no room for notes");
    // The oldest algorithms of convolution's gradients do not say that they are of any order.
    n = engine != ENGINE_plain && !(engine == ENGINE_any_order && is_conv_gradient(d));
    if (n)
      *(cudnnBackendNumericalNote_t *)elements = engine == ENGINE_any_order
                                                     ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                     : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    break;
  }
  case A(EXECUTION_PLAN_WORKSPACE_SIZE):
    *(int64_t *)elements = workspace_of(d);
    n = 1;
    break;
  case A(EXECUTION_PLAN_JSON_REPRESENTATION): {
    size_t bytes;
    char *text = text_of(d, &bytes);
    n = (int64_t)bytes;
    if (elements) memcpy(elements, text, (size_t)(wanted < n ? wanted : n));
    free(text);
    break;
  }
  default: return refuse(CUDNN_STATUS_NOT_SUPPORTED, "asking for attribute %d", (int)name);
  }
  if (count) *count = n;
  return CUDNN_STATUS_SUCCESS;
}

// Takes over what the caller gave for a tensor, and checks it.
static cudnnStatus_t bind_tensor(Run *r, const Descriptor *tensor, const Descriptor *pack) {
  Tensor t = tensor_of(tensor);
  for (int i = 0; i < r->n; i++)
    if (r->value[i].t.uid == t.uid) return CUDNN_STATUS_SUCCESS;
  Value *v = &r->value[r->n++];
  *v = (Value){.t = t, .n_bytes = t.extent * type_bytes(t.type)};
  if (t.is_virtual) return CUDNN_STATUS_SUCCESS;
  const Attribute *uids = find(pack, A(VARIANT_PACK_UNIQUE_IDS));
  for (int64_t i = 0; i < uids->n; i++)
    if (((const int64_t *)uids->at)[i] == t.uid)
      v->memory = ((void **)find(pack, A(VARIANT_PACK_DATA_POINTERS))->at)[i];
  if (!v->memory) return BAD("there is no pointer for tensor %" PRId64, t.uid);
  if (t.by_value) {
    memcpy(&v->by_value, v->memory, sizeof v->by_value);
    return CUDNN_STATUS_SUCCESS;
  }
  if ((uintptr_t)v->memory % (uintptr_t)t.alignment)
    emulated_abort("cudnn: tensor %" PRId64 " is not aligned to %" PRId64 " bytes", t.uid,
                   t.alignment);
  if (!emulated_on_device(v->memory, (size_t)v->n_bytes))
    emulated_abort("cudnn: tensor %" PRId64 ", %" PRId64 " bytes, is not in the gpu's memory",
                   t.uid, v->n_bytes);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_descriptor,
                                  cudnnBackendDescriptor_t pack_descriptor) {
  Descriptor *plan = plan_descriptor, *pack = pack_descriptor, *tensors[MAX_ATTRIBUTES];
  if (!plan->final || !pack->final) return BAD("a plan or variant pack is not finalized");
  Run *r = emulated_alloc(sizeof *r);
  r->work = (EmulatedWork){"cudnn", run_plan, free_run};
  r->plan = plan;
  plan->users++;
  r->graph = child(engine_of(plan), A(ENGINE_OPERATION_GRAPH));
  r->engine = number(engine_of(plan), A(ENGINE_GLOBAL_INDEX), 0);
  r->workspace = *(char **)find(pack, A(VARIANT_PACK_WORKSPACE))->at;
  r->workspace_bytes = workspace_of(plan);
  if (!emulated_on_device(r->workspace, (size_t)r->workspace_bytes) ||
      (uintptr_t)r->workspace % 256)
    emulated_abort("cudnn: the workspace is not in the gpu's memory, or not aligned");
  const Attribute *ops = find(r->graph, A(OPERATIONGRAPH_OPS));
  cudnnStatus_t s = CUDNN_STATUS_SUCCESS;
  for (int64_t i = 0; !s && i < ops->n; i++) {
    const Descriptor *op = ((Descriptor **)ops->at)[i];
    int n = reads_of(op, tensors);
    n += results_of(op, &tensors[n]);
    for (int j = 0; !s && j < n; j++)
      s = bind_tensor(r, tensors[j], pack);
  }
  if (s) {
    free_run(&r->work);
    return s;
  }
  return emulated_enqueue(handle->stream, &r->work, NULL) == cudaSuccess
             ? CUDNN_STATUS_SUCCESS
             : refuse(CUDNN_STATUS_EXECUTION_FAILED, "the stream takes no work");
}
