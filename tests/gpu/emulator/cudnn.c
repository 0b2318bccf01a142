// cuDNN's backend API: graphs of operations, interpreted in double.
//
//     descriptors    attributes are checked against a table: type, number, required or not
//     graphs         shapes fit; a virtual tensor is computed once, before its first use
//     heuristics     some engines, or none
//     plans          with a text from which they can be rebuilt, for the same GPU only
//     running        whole operands are in GPU memory, and aligned; the workspace is overwritten
//                    with NaN
//
// This file has the library and the descriptors; cudnn_internal.h lists the other files.

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_internal.h"

enum { VERSION = 91900 };

static _Thread_local char last_error[512];

cudnnStatus_t cudnn_refuse(cudnnStatus_t status, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(last_error, sizeof last_error, fmt, args);
  va_end(args);
  return status;
}

// ---- Attributes

size_t cudnn_attribute_bytes(cudnnBackendAttributeType_t type) {
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

// An attribute that can be set: its descriptor, the minimal and maximal number of elements, and
// whether it is required.
typedef struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t least, most;
  bool needed;
} Rule;

#define T(x) CUDNN_TYPE_##x
#define OPERAND(of, name)                                                                          \
  { D(of), A(of##_##name), T(BACKEND_DESCRIPTOR), 1, 1, true }
static const Rule rules[] = {
    {D(TENSOR), A(TENSOR_DATA_TYPE), T(DATA_TYPE), 1, 1, true},
    {D(TENSOR), A(TENSOR_DIMENSIONS), T(INT64), 3, MAX_NDIM, true},
    {D(TENSOR), A(TENSOR_STRIDES), T(INT64), 3, MAX_NDIM, true},
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

void cudnn_let_go(Descriptor *d) {
  if (--d->users > 0) return;
  for (int i = 0; i < d->n; i++) {
    Attribute *a = &d->attribute[i];
    for (int64_t j = 0; a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && j < a->n; j++)
      cudnn_let_go(((Descriptor **)a->at)[j]);
    free(a->at);
  }
  free(d);
}

void cudnn_put(Descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t n, const void *from) {
  size_t bytes = (size_t)n * cudnn_attribute_bytes(type);
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

// ---- The library

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

// ---- Descriptors

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor) {
  bool known = false;
  for (int i = 0; i < N_RULES; i++)
    known = known || rules[i].of == type;
  if (!known) return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptors of type %d", (int)type);
  Descriptor *d = calloc(1, sizeof *d);
  *d = (Descriptor){.type = type, .users = 1};
  *descriptor = d;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  cudnn_let_go(descriptor);
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
  cudnn_put(d, name, type, count, elements);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor *d = descriptor;
  if (d->final) return BAD("a descriptor is finalized twice");
  for (int i = 0; i < N_RULES; i++)
    if (rules[i].of == d->type && rules[i].needed && !find(d, rules[i].name))
      return BAD("a descriptor of type %d lacks attribute %d", (int)d->type, (int)rules[i].name);
  if (d->type == D(VARIANT_PACK) &&
      find(d, A(VARIANT_PACK_UNIQUE_IDS))->n != find(d, A(VARIANT_PACK_DATA_POINTERS))->n)
    return BAD("a variant pack has other ids than pointers");
  cudnnStatus_t s = cudnn_check_graph(d);
  if (s == CUDNN_STATUS_SUCCESS) s = cudnn_check_plan(d);
  d->final = s == CUDNN_STATUS_SUCCESS;
  return s;
}
