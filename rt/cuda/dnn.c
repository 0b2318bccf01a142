// Graphs and plans of cuDNN: see dnn.h.  Descriptors are made as the graph is described, and freed
// with it; the plan is one of its own.
//
// A graph has a text as well, one line for each tensor and operation: its hash is the key by which
// a plan made ahead of time is found, so a key can never belong to another graph.

#include "dnn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plans.h"
#include "runtime.h"

enum { MAX_TENSORS = 64, MAX_OPS = 32, MAX_DESCRIPTORS = 192, MAX_NOTES = 16, ALIGNMENT = 16 };

typedef cudnnBackendDescriptor_t Descriptor;

// What dnn_run passes to the kernel as it is.
typedef struct Number {
  int64_t uid;
  union {
    float f;
    int32_t i;
  } x;
} Number;

struct DnnGraph {
  char name[32];
  bool failed; // nnrt_error has said why
  Descriptor made[MAX_DESCRIPTORS];
  int n_made;
  Descriptor tensor[MAX_TENSORS];
  int n_tensors;
  int64_t memory[MAX_TENSORS]; // uids of those in memory
  int n_memory;
  Number number[MAX_TENSORS];
  int n_numbers;
  Descriptor op[MAX_OPS];
  int n_ops;
  uint64_t distrusted; // engines, by their number
  char *text;
  size_t text_bytes, text_room;
};

struct DnnPlan {
  Descriptor plan;
  int64_t workspace;
  int64_t memory[MAX_TENSORS];
  int n_memory;
  Number number[MAX_TENSORS];
  int n_numbers;
};

static _Thread_local char chosen[128];

int dnn_ok(cudnnStatus_t status, const char *what) {
  if (status == CUDNN_STATUS_SUCCESS) return NNRT_OK;
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

// -- Describing a graph

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

__attribute__((format(printf, 2, 3))) static void say(DnnGraph *g, const char *fmt, ...) {
  char line[512];
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(line, sizeof line, fmt, args);
  va_end(args);
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

static void check(DnnGraph *g, cudnnStatus_t status, const char *what) {
  if (!g->failed && dnn_ok(status, what)) g->failed = true;
}

static void fail(DnnGraph *g, const char *what) {
  if (!g->failed) nnrt_error(NNRT_LIBRARY, "%s: %s", g->name, what);
  g->failed = true;
}

// A descriptor that is freed with the graph.
static Descriptor make(DnnGraph *g, cudnnBackendDescriptorType_t type) {
  Descriptor d = NULL;
  if (g->n_made == MAX_DESCRIPTORS) fail(g, "the graph is too large");
  if (g->failed) return NULL;
  check(g, cudnnBackendCreateDescriptor(type, &d), "making a descriptor");
  if (g->failed) return NULL;
  return g->made[g->n_made++] = d;
}

static void set(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *value) {
  char what[64];
  snprintf(what, sizeof what, "%s: attribute %d", g->name, (int)name);
  if (!g->failed) check(g, cudnnBackendSetAttribute(d, name, type, n, value), what);
}

static void set_descriptor(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name,
                           Descriptor value) {
  set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name,
                     cudnnDataType_t type) {
  set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void set_int(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name, int64_t x) {
  set(g, d, name, CUDNN_TYPE_INT64, 1, &x);
}

static void set_bool(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name, bool x) {
  set(g, d, name, CUDNN_TYPE_BOOLEAN, 1, &x);
}

static void finalize(DnnGraph *g, Descriptor d) {
  if (!g->failed) check(g, cudnnBackendFinalize(d), g->name);
}

typedef enum Place { IN_MEMORY, VIRTUAL, BY_VALUE } Place;

static DnnTensor tensor(DnnGraph *g, Place place, cudnnDataType_t type, int rank,
                        const int64_t *dim, const int64_t *stride) {
  if (g->n_tensors == MAX_TENSORS) fail(g, "the graph has too many tensors");
  if (g->failed) return 0;
  int64_t uid = g->n_tensors + 1;
  Descriptor d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dim);
  set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, stride);
  set_int(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
  set_int(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNMENT);
  if (place == VIRTUAL) set_bool(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (place == BY_VALUE) set_bool(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  finalize(g, d);
  if (place == IN_MEMORY) g->memory[g->n_memory++] = uid;
  g->tensor[g->n_tensors] = d;
  say(g, "tensor %d type %d", (int)place, (int)type);
  for (int i = 0; i < rank; i++)
    say(g, " %lld:%lld", (long long)dim[i], (long long)stride[i]);
  say(g, "\n");
  return g->n_tensors++;
}

DnnTensor dnn_tensor(DnnGraph *g, cudnnDataType_t type, int rank, const int64_t *dim,
                     const int64_t *stride) {
  return tensor(g, IN_MEMORY, type, rank, dim, stride);
}

DnnTensor dnn_virtual(DnnGraph *g, cudnnDataType_t type, int rank, const int64_t *dim,
                      const int64_t *stride) {
  return tensor(g, VIRTUAL, type, rank, dim, stride);
}

static Number *number(DnnGraph *g, cudnnDataType_t type, int rank) {
  const int64_t ones[DNN_MAX_DIMS] = {1, 1, 1, 1, 1};
  DnnTensor t = tensor(g, BY_VALUE, type, rank, ones, ones);
  Number *x = &g->number[g->n_numbers];
  x->uid = t + 1;
  if (!g->failed) g->n_numbers++;
  return x;
}

// What numbers are is part of the key: plans may have been made for them.
DnnTensor dnn_number(DnnGraph *g, int rank, float value) {
  number(g, CUDNN_DATA_FLOAT, rank)->x.f = value;
  say(g, "number %a\n", (double)value);
  return g->n_tensors - 1;
}

DnnTensor dnn_integer(DnnGraph *g, int rank, int32_t value) {
  number(g, CUDNN_DATA_INT32, rank)->x.i = value;
  say(g, "number %d\n", (int)value);
  return g->n_tensors - 1;
}

static Descriptor operation(DnnGraph *g, cudnnBackendDescriptorType_t type) {
  if (g->n_ops == MAX_OPS) fail(g, "the graph has too many operations");
  return make(g, type);
}

static void operand(DnnGraph *g, Descriptor op, cudnnBackendAttributeName_t name, DnnTensor t) {
  say(g, " %d=%d", (int)name, t);
  if (!g->failed) set_descriptor(g, op, name, g->tensor[t]);
}

static void add(DnnGraph *g, Descriptor op) {
  finalize(g, op);
  say(g, "\n");
  if (!g->failed) g->op[g->n_ops++] = op;
}

void dnn_matmul(DnnGraph *g, DnnTensor a, DnnTensor b, DnnTensor c) {
  Descriptor how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set_type(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  finalize(g, how);
  Descriptor op = operation(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  say(g, "matmul");
  operand(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  operand(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  operand(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  add(g, op);
}

// b, t: or DNN_NONE.  axis: of CUDNN_POINTWISE_GEN_INDEX
static void pointwise(DnnGraph *g, cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                      DnnTensor x, DnnTensor b, DnnTensor t, DnnTensor y, int axis) {
  Descriptor how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) set_int(g, how, CUDNN_ATTR_POINTWISE_AXIS, axis);
  finalize(g, how);
  Descriptor op = operation(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  say(g, "pointwise %d in %d axis %d", (int)mode, (int)precision, axis);
  set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
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
  Descriptor d = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
  set_type(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  finalize(g, d);
  Descriptor op = operation(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  say(g, "reduce %d", (int)how);
  operand(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  operand(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
  add(g, op);
}

void dnn_reshape(DnnGraph *g, DnnTensor x, DnnTensor y) {
  Descriptor op = operation(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  say(g, "reshape");
  operand(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  operand(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  add(g, op);
}

// Engines of gradients that are the oldest algorithms: they add up with atomic operations, in any
// order, and their notes do not always say so.
#define ENGINE(n) ((uint64_t)1 << (n))
static const uint64_t atomic_engines[] = {
    [DNN_FORWARD] = 0, [DNN_BACK_X] = ENGINE(0), [DNN_BACK_W] = ENGINE(0) | ENGINE(3)};

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
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const float one = 1, zero = 0;
  int64_t n = conv->spatial;
  Descriptor d = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  set_type(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set_int(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, n);
  set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, conv->dilation);
  set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, conv->stride);
  set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, conv->low);
  set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, conv->high);
  finalize(g, d);
  Descriptor op = operation(g, names[direction].type);
  say(g, "conv %d", (int)direction);
  for (int64_t i = 0; i < n; i++)
    say(g, " %lld:%lld:%lld:%lld", (long long)conv->stride[i], (long long)conv->dilation[i],
        (long long)conv->low[i], (long long)conv->high[i]);
  set_descriptor(g, op, names[direction].conv, d);
  set(g, op, names[direction].alpha, CUDNN_TYPE_FLOAT, 1, &one);
  set(g, op, names[direction].beta, CUDNN_TYPE_FLOAT, 1, &zero);
  operand(g, op, names[direction].x, x);
  operand(g, op, names[direction].w, w);
  operand(g, op, names[direction].y, y);
  add(g, op);
  g->distrusted |= atomic_engines[direction];
}

// -- Plans

// The properties of the gpu to plan for; NULL when there is a gpu.
static Descriptor planned_device(DnnGraph *g) {
  const char *json = nnrt_gpu()->planning;
  if (!json) return NULL;
  Descriptor d = make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  set(g, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json),
      json);
  finalize(g, d);
  return d;
}

// Which machine a graph or plan is for: this rank's, or the one that is planned for.
static void set_machine(DnnGraph *g, Descriptor d, Descriptor device,
                        cudnnBackendAttributeName_t by_handle,
                        cudnnBackendAttributeName_t by_device) {
  if (device) {
    set_descriptor(g, d, by_device, device);
    return;
  }
  cudnnHandle_t h = nnrt_gpu_dnn();
  if (!h) g->failed = true;
  set(g, d, by_handle, CUDNN_TYPE_HANDLE, 1, &h);
}

// A descriptor that is not freed with the graph.
static Descriptor keep(DnnGraph *g, Descriptor d) {
  for (int i = 0; i < g->n_made; i++)
    if (g->made[i] == d) g->made[i] = g->made[--g->n_made];
  return d;
}

static void drop(DnnGraph *g, int since) {
  while (g->n_made > since)
    cudnnBackendDestroyDescriptor(g->made[--g->n_made]);
}

static int64_t int_of(Descriptor d, cudnnBackendAttributeName_t name) {
  int64_t x = 0, n = 0;
  if (cudnnBackendGetAttribute(d, name, CUDNN_TYPE_INT64, 1, &n, &x) != CUDNN_STATUS_SUCCESS)
    return -1;
  return x;
}

static bool fits(DnnGraph *g, Descriptor config, const DnnLimits *limits, int64_t *out_engine) {
  Descriptor engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendNumericalNote_t note[MAX_NOTES];
  int64_t n = 0;
  if (g->failed) return false;
  check(g,
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &n, &engine),
        "asking for the engine");
  check(g,
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &n, note),
        "asking for notes");
  if (g->failed) return false;
  *out_engine = int_of(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  if (*out_engine >= 0 && *out_engine < 64 && g->distrusted >> *out_engine & 1) return false;
  for (int64_t i = 0; i < n; i++)
    if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
        note[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
        note[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
        note[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 ||
        (limits->no_tensor_cores && note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
      return false;
  return true;
}

// The first engine of those that `mode` proposes that makes a plan within the limits, or NULL. That
// one engine cannot is no failure.
static Descriptor plan_by(DnnGraph *g, cudnnBackendHeurMode_t mode, Descriptor graph,
                          Descriptor device, const DnnLimits *limits) {
  Descriptor heuristics = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), plan = NULL;
  int64_t n = 0;
  set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  set_descriptor(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  if (device) set_descriptor(g, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  finalize(g, heuristics);
  if (!g->failed)
    check(g,
          cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL),
          "counting engines");
  if (g->failed || n == 0) return NULL;
  Descriptor *config = nnrt_must_alloc((size_t)n * sizeof *config);
  for (int64_t i = 0; i < n; i++)
    check(g, cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]),
          "making a descriptor");
  int64_t got = 0;
  if (!g->failed)
    check(g,
          cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &got, config),
          "asking for engines");
  for (int64_t i = 0; !plan && !g->failed && i < got; i++) {
    int since = g->n_made;
    int64_t engine = -1;
    if (fits(g, config[i], limits, &engine)) {
      Descriptor d = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      set_machine(g, d, device, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                  CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
      set_descriptor(g, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config[i]);
      int64_t workspace = -1;
      if (!g->failed && cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS)
        workspace = int_of(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
      if (workspace >= 0 && workspace <= limits->workspace) {
        snprintf(chosen, sizeof chosen, "engine %lld, %lld of %lld, heuristics %s, workspace %lld",
                 (long long)engine, (long long)i + 1, (long long)got,
                 mode == CUDNN_HEUR_MODE_FALLBACK ? "fallback" : "A", (long long)workspace);
        plan = keep(g, d);
      }
    }
    drop(g, since);
  }
  for (int64_t i = 0; i < n; i++)
    if (config[i]) cudnnBackendDestroyDescriptor(config[i]);
  free(config);
  return plan;
}

static Descriptor build_plan(DnnGraph *g, Descriptor device, const DnnLimits *limits) {
  Descriptor graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), plan = NULL;
  // Device-less, a graph does not say what it is for; heuristics and plan do.
  if (!device) {
    cudnnHandle_t h = nnrt_gpu_dnn();
    if (!h) g->failed = true;
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
  }
  set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->op);
  finalize(g, graph);
  if (g->failed) return NULL;
  plan = plan_by(g, CUDNN_HEUR_MODE_A, graph, device, limits);
  // Heuristics that know nothing of the graph are no reason to give up.
  if (!plan) {
    g->failed = false;
    plan = plan_by(g, CUDNN_HEUR_MODE_FALLBACK, graph, device, limits);
  }
  if (!plan && !g->failed) fail(g, "cudnn has no engine for it");
  return plan;
}

static Descriptor load_plan(DnnGraph *g, Descriptor device, const char *json, int64_t bytes) {
  Descriptor d = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  set_machine(g, d, device, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  set(g, d, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, bytes, json);
  finalize(g, d);
  if (!g->failed) return keep(g, d);
  g->failed = false; // it can still be built
  return NULL;
}

// Engines that are not compiled for a graph have no text; they are also quick to make.
static void remember(const char *key, Descriptor plan) {
  int64_t n = 0;
  if (cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                               0, &n, NULL) != CUDNN_STATUS_SUCCESS ||
      n <= 0)
    return;
  char *json = nnrt_must_alloc((size_t)n + 1);
  if (cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                               n, &n, json) == CUDNN_STATUS_SUCCESS)
    nnrt_plans_add(key, json, n);
  free(json);
}

DnnPlan *dnn_plan(DnnGraph *g, const DnnLimits *limits) {
  DnnPlan *p = nnrt_must_alloc(sizeof *p);
  char key[64];
  chosen[0] = 0;
  say(g, "limits %lld %d\n", (long long)limits->workspace, (int)limits->no_tensor_cores);
  snprintf(key, sizeof key, "%s-%016llx", g->name,
           (unsigned long long)nnrt_xxh64(g->text, (int64_t)g->text_bytes, 0));
  Descriptor device = planned_device(g);
  if (!g->failed) {
    // One at a time: ranks of one process make the same plans, and the others find the first one's.
    nnrt_plans_lock();
    int64_t bytes = 0;
    const char *json = nnrt_plans_find(key, &bytes);
    if (json) p->plan = load_plan(g, device, json, bytes);
    if (p->plan) {
      snprintf(chosen, sizeof chosen, "from its text");
    } else {
      double from = nnrt_now_us();
      p->plan = build_plan(g, device, limits);
      if (p->plan && !json) remember(key, p->plan);
      if (p->plan) nnrt_plans_built((nnrt_now_us() - from) / 1e6, json != NULL);
    }
    nnrt_plans_unlock();
  }
  if (p->plan) {
    p->workspace = int_of(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    memcpy(p->memory, g->memory, sizeof p->memory);
    memcpy(p->number, g->number, sizeof p->number);
    p->n_memory = g->n_memory;
    p->n_numbers = g->n_numbers;
  } else {
    free(p);
    p = NULL;
  }
  dnn_graph_free(g);
  return p;
}

void dnn_plan_free(DnnPlan *p) {
  if (!p) return;
  cudnnBackendDestroyDescriptor(p->plan);
  free(p);
}

int64_t dnn_plan_workspace(const DnnPlan *p) {
  return p->workspace;
}

const char *dnn_plan_chosen(void) {
  return chosen;
}

int dnn_run(const DnnPlan *p, void *const *data, void *workspace) {
  int64_t uid[MAX_TENSORS];
  const void *at[MAX_TENSORS];
  int n = 0;
  for (int i = 0; i < p->n_memory; i++, n++) {
    uid[n] = p->memory[i];
    at[n] = data[i];
  }
  for (int i = 0; i < p->n_numbers; i++, n++) {
    uid[n] = p->number[i].uid;
    at[n] = &p->number[i].x;
  }
  cudnnHandle_t h = nnrt_gpu_dnn();
  if (!h) return NNRT_LIBRARY;
  Descriptor d = NULL;
  int code = dnn_ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d),
                    "making a descriptor");
  if (code) return code;
  cudnnStatus_t s =
      cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid);
  if (!s)
    s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n,
                                 at);
  if (!s)
    s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                 &workspace);
  if (!s) s = cudnnBackendFinalize(d);
  if (!s) s = cudnnBackendExecute(h, p->plan, d);
  code = dnn_ok(s, "running a plan");
  cudnnBackendDestroyDescriptor(d);
  return code;
}
