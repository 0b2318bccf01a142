// cuDNN graphs of operations, and plans that run them.
//
// cuDNN 9 takes a graph of small operations on tensors, and finds one kernel, or a few, that
// compute it.  A tensor is in memory, or virtual: it then never leaves the kernel.  y = relu(a b):
//
//     DnnGraph *g = dnn_graph_new("example");
//     DnnTensor a = dnn_tensor(g, CUDNN_DATA_BFLOAT16, 3, LIST(1, m, k), LIST(m * k, k, 1));
//     DnnTensor b = dnn_tensor(g, CUDNN_DATA_BFLOAT16, 3, LIST(1, k, n), LIST(k * n, n, 1));
//     DnnTensor c = dnn_virtual(g, CUDNN_DATA_FLOAT, 3, LIST(1, m, n), LIST(m * n, n, 1));
//     DnnTensor y = dnn_tensor(g, CUDNN_DATA_BFLOAT16, 3, LIST(1, m, n), LIST(m * n, n, 1));
//     dnn_matmul(g, a, b, c);
//     dnn_pointwise(g, CUDNN_POINTWISE_RELU_FWD, c, DNN_NONE, y);
//     DnnPlan *p = dnn_plan(g, &(DnnLimits){.workspace = 1 << 30});
//     …
//     dnn_run(p, (void *[]){a_at, b_at, y_at}, workspace);
//
// Calls need no checks: the graph keeps the first failure, dnn_plan then returns NULL, and
// nnrt_error has the reason.
//
// dnn_plan asks cuDNN's heuristics for engines, best first, and takes the first that builds a plan
// within the limits.  It never takes an engine that is nondeterministic or rounds operands to a
// shorter type, by its notes.  Ahead-of-time plans are used if they fit (cudnn_plans.h).

#ifndef NNRT_CUDA_DNN_H
#define NNRT_CUDA_DNN_H

#include <cudnn.h>

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DnnGraph DnnGraph;
typedef struct DnnPlan DnnPlan;
typedef int DnnTensor;
enum { DNN_NONE = -1, DNN_MAX_DIMS = 5 };

DnnGraph *dnn_graph_new(const char *name); // name of the kernel
void dnn_graph_free(DnnGraph *g);

// Tensors.  Those in memory are the operands and results of dnn_run, in order of creation.
DnnTensor dnn_tensor(DnnGraph *g, cudnnDataType_t type, int ndim, const int64_t *dim,
                     const int64_t *stride);
DnnTensor dnn_virtual(DnnGraph *g, cudnnDataType_t type, int ndim, const int64_t *dim,
                      const int64_t *stride);
// A number, passed to the kernel by value; of `ndim` dimensions of 1.
DnnTensor dnn_number(DnnGraph *g, int ndim, float value);
DnnTensor dnn_integer(DnnGraph *g, int ndim, int32_t value);

// Operations.  They compute in f32; comparisons in the operands' type.
void dnn_matmul(DnnGraph *g, DnnTensor a, DnnTensor b, DnnTensor c);
void dnn_pointwise(DnnGraph *g, cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y);
void dnn_add_integers(DnnGraph *g, DnnTensor x, DnnTensor b, DnnTensor y);
void dnn_select(DnnGraph *g, DnnTensor where, DnnTensor yes, DnnTensor no, DnnTensor y);
void dnn_index(DnnGraph *g, int axis, DnnTensor like, DnnTensor y); // i32, along `axis`
void dnn_reduce(DnnGraph *g, cudnnReduceTensorOp_t how, DnnTensor x, DnnTensor y);
void dnn_reshape(DnnGraph *g, DnnTensor x, DnnTensor y); // the same numbers, other strides

typedef struct DnnConv {
  int spatial; // dimensions
  const int64_t *stride, *dilation, *low, *high;
} DnnConv;
typedef enum DnnDirection { DNN_FORWARD, DNN_BACK_X, DNN_BACK_W } DnnDirection;
// x (n, c, spatial), w (o, c / group, spatial), y (n, o, spatial), with any strides
void dnn_conv(DnnGraph *g, DnnDirection direction, const DnnConv *conv, DnnTensor x, DnnTensor w,
              DnnTensor y);

typedef struct DnnLimits {
  int64_t workspace;    // maximal bytes
  bool no_tensor_cores; // they would round f32 to TF32
} DnnLimits;

// Builds a plan; frees the graph.
DnnPlan *dnn_plan(DnnGraph *g, const DnnLimits *limits);
void dnn_plan_free(DnnPlan *p); // NULL is allowed
int64_t dnn_plan_workspace(const DnnPlan *p);
// For reports: the choice of this thread's last dnn_plan, or "".  "engine 6, 1 of 2, heuristics A,
// …"
const char *dnn_plan_chosen(void);
// `workspace` must be a multiple of 256.
int dnn_run(const DnnPlan *p, void *const *data, void *workspace);

// The cuDNN handle of this rank, in its stream; NULL with nnrt_error set.
cudnnHandle_t nnrt_gpu_dnn(void);
// Frees the handle when a rank ends; g->dnn may be NULL.
void nnrt_gpu_dnn_free(NnrtGpu *g);

// Returns a code of nnrt.h for a cuDNN status; 0 for success.
int dnn_ok(cudnnStatus_t status, const char *what);

#ifdef __cplusplus
}
#endif

#endif
