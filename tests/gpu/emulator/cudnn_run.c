// The emulated cuDNN: runs plans.
//
// Each operation of the graph is interpreted in double, in the given order.  Results are rounded to
// their type, virtual ones too, like those of a kernel that keeps them.  Whole operands are in GPU
// memory, and aligned; the workspace is overwritten with NaN.

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_internal.h"
#include "emulator.h"

// ---- Values

__extension__ typedef _Float16 Half;

static int64_t type_bytes(cudnnDataType_t t) {
  switch (t) {
  case CUDNN_DATA_HALF:
  case CUDNN_DATA_BFLOAT16: return 2;
  case CUDNN_DATA_BOOLEAN: return 1;
  case CUDNN_DATA_INT64: return 8;
  default: return 4;
  }
}

typedef struct Value {
  Tensor t;
  double *x; // row-major; NULL until computed or read
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

// The offset of row-major element i, by the strides.
static int64_t offset_of(const Tensor *t, int64_t i) {
  int64_t at = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
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
  // Tensor cores read f32 with 10 bits of fraction.
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

// Rounds a result, and stores it unless it is virtual.
static void keep_value(Run *r, const Descriptor *tensor) {
  Value *v = value_of(r, tensor);
  for (int64_t i = 0; i < v->t.count; i++) {
    v->x[i] = rounded(v->t.type, v->x[i]);
    if (!v->t.is_virtual) store(v->memory, v->t.type, offset_of(&v->t, i), v->x[i]);
  }
}

// ---- Operations

// The element of x for element i of y, if x may be shorter: of 1, or a divisor.
static int64_t shared_place(const Tensor *x, const Tensor *y, int64_t i) {
  int64_t place = 0, step = 1;
  for (int d = y->ndim - 1; d >= 0; d--) {
    place += i % y->dim[d] / (y->dim[d] / x->dim[d]) * step;
    step *= x->dim[d];
    i /= y->dim[d];
  }
  return place;
}

static void run_matmul(Run *r, const Descriptor *op) {
  Tensor a = cudnn_operand(op, A(OPERATION_MATMUL_ADESC));
  Tensor b = cudnn_operand(op, A(OPERATION_MATMUL_BDESC));
  Tensor c = cudnn_operand(op, A(OPERATION_MATMUL_CDESC)), batch = c, b_batch = b;
  const double *x = read_value(r, child(op, A(OPERATION_MATMUL_ADESC)));
  const double *w = read_value(r, child(op, A(OPERATION_MATMUL_BDESC)));
  double *y = new_value(r, child(op, A(OPERATION_MATMUL_CDESC)));
  int64_t m = c.dim[c.ndim - 2], n = c.dim[c.ndim - 1], k = a.dim[a.ndim - 1];
  batch.ndim = b_batch.ndim = c.ndim - 2;
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
  Tensor y = cudnn_operand(op, A(OPERATION_POINTWISE_YDESC)), b = b_of ? cudnn_tensor_of(b_of) : y;
  const double *px = read_value(r, child(op, A(OPERATION_POINTWISE_XDESC)));
  const double *pb = b_of ? read_value(r, b_of) : NULL, *pt = t_of ? read_value(r, t_of) : NULL;
  double *out = new_value(r, child(op, A(OPERATION_POINTWISE_YDESC)));
  int axis = (int)number(how, A(POINTWISE_AXIS), 0);
  int64_t step = 1;
  for (int d = y.ndim - 1; mode == CUDNN_POINTWISE_GEN_INDEX && d > axis; d--)
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
  Tensor x = cudnn_operand(op, A(OPERATION_REDUCTION_XDESC));
  Tensor y = cudnn_operand(op, A(OPERATION_REDUCTION_YDESC));
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
  Tensor x = cudnn_operand(op, A(OPERATION_RESHAPE_XDESC));
  Tensor y = cudnn_operand(op, A(OPERATION_RESHAPE_YDESC));
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
  Conv c = cudnn_conv_of(op);
  Descriptor *result, *reads[MAX_ATTRIBUTES];
  cudnn_results_of(op, &result);
  int n_reads = cudnn_reads_of(op, reads);
  double *out = new_value(r, result), *x = NULL, *w = NULL, *y = NULL;
  for (int i = 0; i < n_reads; i++)
    read_value(r, reads[i]);
  for (int i = 0; i < r->n; i++) { // match by id
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

// ---- Plans

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
    cudnn_results_of(op, &result);
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
  cudnn_let_go(r->plan);
  free(r);
}

// Takes the caller's pointer for a tensor, and checks it.
static cudnnStatus_t bind_tensor(Run *r, const Descriptor *tensor, const Descriptor *pack) {
  Tensor t = cudnn_tensor_of(tensor);
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
  r->graph = child(cudnn_engine_of(plan), A(ENGINE_OPERATION_GRAPH));
  r->engine = number(cudnn_engine_of(plan), A(ENGINE_GLOBAL_INDEX), 0);
  r->workspace = *(char **)find(pack, A(VARIANT_PACK_WORKSPACE))->at;
  r->workspace_bytes = cudnn_workspace_of(plan);
  if (!emulated_on_device(r->workspace, (size_t)r->workspace_bytes) ||
      (uintptr_t)r->workspace % 256)
    emulated_abort("cudnn: the workspace is not in the gpu's memory, or not aligned");
  const Attribute *ops = find(r->graph, A(OPERATIONGRAPH_OPS));
  cudnnStatus_t s = CUDNN_STATUS_SUCCESS;
  for (int64_t i = 0; !s && i < ops->n; i++) {
    const Descriptor *op = ((Descriptor **)ops->at)[i];
    int n = cudnn_reads_of(op, tensors);
    n += cudnn_results_of(op, &tensors[n]);
    for (int j = 0; !s && j < n; j++)
      s = bind_tensor(r, tensors[j], pack);
  }
  if (s) {
    free_run(&r->work);
    return s;
  }
  return emulated_enqueue(handle->stream, &r->work, NULL) == cudaSuccess
             ? CUDNN_STATUS_SUCCESS
             : cudnn_refuse(CUDNN_STATUS_EXECUTION_FAILED, "the stream takes no work");
}
