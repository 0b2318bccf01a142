// Interfaces between the parts of the emulated cuDNN.
//
//     cudnn.c         the library; descriptors and their attributes
//     cudnn_graph.c   interprets and checks descriptors of tensors, operations and graphs
//     cudnn_plan.c    engines, heuristics, plans and their text
//     cudnn_run.c     runs plans: operations are interpreted in double
//
// A descriptor is a list of attributes, as they were set; it is interpreted on demand.

#ifndef EMULATOR_CUDNN_INTERNAL_H
#define EMULATOR_CUDNN_INTERNAL_H

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_ATTRIBUTES = 16, MAX_NDIM = 8, MAX_TENSORS = 128, MAX_OPS = 64 };

// ---- cudnn.c

struct cudnnContext {
  cudaStream_t stream;
};

typedef struct Attribute {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t n;
  void *at;
} Attribute;

typedef struct Descriptor {
  cudnnBackendDescriptorType_t type;
  int users; // its creator, and descriptors with it as an attribute
  bool final;
  int n;
  Attribute attribute[MAX_ATTRIBUTES];
} Descriptor;

#define D(x) CUDNN_BACKEND_##x##_DESCRIPTOR
#define A(x) CUDNN_ATTR_##x

static inline const Attribute *find(const Descriptor *d, cudnnBackendAttributeName_t name) {
  for (int i = 0; i < d->n; i++)
    if (d->attribute[i].name == name) return &d->attribute[i];
  return NULL;
}

static inline Descriptor *child(const Descriptor *d, cudnnBackendAttributeName_t name) {
  const Attribute *a = find(d, name);
  return a ? *(Descriptor **)a->at : NULL;
}

static inline int64_t number(const Descriptor *d, cudnnBackendAttributeName_t name, int64_t i) {
  const Attribute *a = find(d, name);
  if (!a) return 0;
  if (a->type == CUDNN_TYPE_INT64) return ((const int64_t *)a->at)[i];
  if (a->type == CUDNN_TYPE_BOOLEAN) return ((const bool *)a->at)[i];
  return ((const int32_t *)a->at)[i];
}

size_t cudnn_attribute_bytes(cudnnBackendAttributeType_t type);
// Sets an attribute; a descriptor as an attribute is released with its users.
void cudnn_put(Descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t n, const void *from);
void cudnn_let_go(Descriptor *d);

// Stores the message for cudnnGetLastErrorString and returns the status.
cudnnStatus_t cudnn_refuse(cudnnStatus_t status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define BAD(...) cudnn_refuse(CUDNN_STATUS_BAD_PARAM, __VA_ARGS__)

// ---- cudnn_graph.c

typedef struct Tensor {
  int64_t uid, count, extent; // extent: elements of memory from its first to its last
  cudnnDataType_t type;
  int ndim;
  int64_t dim[MAX_NDIM], stride[MAX_NDIM], alignment;
  bool is_virtual, by_value;
} Tensor;

// A convolution, with any of its three tensors as the result.
typedef struct Conv {
  Tensor x, w, y;
  int n; // spatial dimensions
  int64_t stride[3], dilation[3], low[3], high[3];
} Conv;

Tensor cudnn_tensor_of(const Descriptor *d);
Tensor cudnn_operand(const Descriptor *op, cudnnBackendAttributeName_t name);
// The results of an operation, and its operands; return their number.
int cudnn_results_of(const Descriptor *op, Descriptor **out);
int cudnn_reads_of(const Descriptor *op, Descriptor **out);
Conv cudnn_conv_of(const Descriptor *op);
// Checks a tensor, an operation or a graph before it is finalized.
cudnnStatus_t cudnn_check_graph(const Descriptor *d);

// ---- cudnn_plan.c

enum { ENGINE_any_order, ENGINE_tensor_cores, ENGINE_plain, N_ENGINES };

const Descriptor *cudnn_engine_of(const Descriptor *plan);
int64_t cudnn_workspace_of(const Descriptor *plan); // bytes
// Checks heuristics, plans and the properties of a GPU.  A plan from a text gets its engine.
cudnnStatus_t cudnn_check_plan(Descriptor *d);

#endif
