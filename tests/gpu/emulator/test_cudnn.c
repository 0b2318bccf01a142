// cuDNN's backend interface: a convolution by every engine against its definition, a plan from its
// text, and refusals.

#include <cudnn.h>
#include <string.h>

#include "emulator.h"
#include "test.h"

typedef cudnnBackendDescriptor_t Descriptor;
#define DESCRIPTOR(x) CUDNN_BACKEND_##x##_DESCRIPTOR
#define REFUSED(call) CHECK_IS(call, CUDNN_STATUS_BAD_PARAM)

// x (2, 3, 6, 5), w (4, 3, 3, 2) and y (2, 4, 4, 4) with the channel last, and no padding.
enum { N = 2, C = 3, H = 6, W = 5, K = 4, R = 3, S = 2, P = H - R + 1, Q = W - S + 1 };
enum { X_UID = 1, W_UID, Y_UID, Z_UID };

static cudnnHandle_t handle;
static float *x, *w, *y; // in GPU memory
static void *workspace;

static Descriptor made[512]; // destroyed at the end
static int n_made;

static Descriptor make(cudnnBackendDescriptorType_t type) {
  CHECK(n_made < (int)(sizeof made / sizeof *made));
  OK(cudnnBackendCreateDescriptor(type, &made[n_made]));
  return made[n_made++];
}

static cudnnStatus_t set(Descriptor d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n, const void *at) {
  return cudnnBackendSetAttribute(d, name, type, n, at);
}

static void set_one(Descriptor d, cudnnBackendAttributeName_t name, Descriptor value) {
  OK(set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value));
}

// A tensor that is not finalized.
static Descriptor open_tensor(int64_t uid, cudnnDataType_t type, const int64_t *dim, bool virtual) {
  Descriptor d = make(DESCRIPTOR(TENSOR));
  int64_t stride[4] = {dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]}, alignment = 16;
  OK(set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  OK(set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim));
  OK(set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride));
  OK(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid));
  OK(set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
  OK(set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &virtual));
  return d;
}

static Descriptor tensor(int64_t uid, const int64_t *dim, bool virtual) {
  Descriptor d = open_tensor(uid, CUDNN_DATA_FLOAT, dim, virtual);
  OK(cudnnBackendFinalize(d));
  return d;
}

static const int64_t x_dim[] = {N, C, H, W}, w_dim[] = {K, C, R, S}, y_dim[] = {N, K, P, Q};

static Descriptor convolution(void) {
  Descriptor d = make(DESCRIPTOR(CONVOLUTION));
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  int64_t spatial = 2, ones[] = {1, 1}, none[] = {0, 0};
  OK(set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  OK(set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
  OK(set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial));
  OK(set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones));
  OK(set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones));
  OK(set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, none));
  OK(set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, none));
  OK(cudnnBackendFinalize(d));
  return d;
}

// y = conv(x, w), not finalized.
static Descriptor open_forward(Descriptor from, Descriptor to) {
  Descriptor d = make(DESCRIPTOR(OPERATION_CONVOLUTION_FORWARD));
  float one = 1, zero = 0;
  OK(set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one));
  OK(set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero));
  set_one(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution());
  set_one(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, from);
  set_one(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor(W_UID, w_dim, false));
  set_one(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, to);
  return d;
}

static Descriptor forward(Descriptor from, Descriptor to) {
  Descriptor d = open_forward(from, to);
  OK(cudnnBackendFinalize(d));
  return d;
}

static Descriptor open_graph(int64_t n, const Descriptor *ops) {
  Descriptor d = make(DESCRIPTOR(OPERATIONGRAPH));
  OK(set(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops));
  OK(set(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  return d;
}

static Descriptor conv_graph(void) {
  Descriptor op = forward(tensor(X_UID, x_dim, false), tensor(Y_UID, y_dim, false));
  Descriptor d = open_graph(1, &op);
  OK(cudnnBackendFinalize(d));
  return d;
}

// Returns the number of engines for the graph; `out` gets the first `most` of them.
static int64_t engines(Descriptor graph, int64_t most, Descriptor *out) {
  Descriptor heuristic = make(DESCRIPTOR(ENGINEHEUR));
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  OK(set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
  set_one(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  OK(cudnnBackendFinalize(heuristic));
  for (int64_t i = 0; i < most; i++)
    out[i] = make(DESCRIPTOR(ENGINECFG));
  int64_t n;
  OK(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &n, out));
  return n;
}

static Descriptor plan_of(Descriptor engine) {
  Descriptor d = make(DESCRIPTOR(EXECUTION_PLAN));
  OK(set(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  set_one(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
  OK(cudnnBackendFinalize(d));
  return d;
}

static Descriptor pack(void *to) {
  Descriptor d = make(DESCRIPTOR(VARIANT_PACK));
  int64_t uids[] = {X_UID, W_UID, Y_UID};
  void *at[] = {x, w, to};
  OK(set(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uids));
  OK(set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, at));
  OK(set(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
  OK(cudnnBackendFinalize(d));
  return d;
}

// ---- Numbers

static float host_x[N * H * W * C], host_w[K * R * S * C];

static double expected(int n, int k, int p, int q) {
  double sum = 0;
  for (int r = 0; r < R; r++)
    for (int s = 0; s < S; s++)
      for (int c = 0; c < C; c++)
        sum += (double)host_x[((n * H + p + r) * W + q + s) * C + c] *
               (double)host_w[((k * R + r) * S + s) * C + c];
  return sum;
}

static void run_right(Descriptor plan) {
  float got[N * P * Q * K];
  OK(cudaMemset(y, 0xff, sizeof got));
  OK(cudnnBackendExecute(handle, plan, pack(y)));
  OK(cudaMemcpy(got, y, sizeof got, cudaMemcpyDeviceToHost));
  for (int i = 0; i < N * P * Q * K; i++) {
    double want = expected(i / (P * Q * K), i % K, i / (Q * K) % P, i / K % Q);
    CHECK(fabs((double)got[i] - want) < 1e-2 * (1 + fabs(want))); // one engine rounds to TF32
  }
}

static void test_engines(void) {
  Descriptor found[8];
  int64_t n = engines(conv_graph(), 8, found), first;
  CHECK(n > 1 && n <= 8);
  for (int64_t i = 1; i < n; i++)
    run_right(plan_of(found[i]));
  // The first of them adds in no fixed order, and reports it; it must not be run.
  Descriptor engine = make(DESCRIPTOR(ENGINE));
  cudnnBackendNumericalNote_t note;
  OK(cudnnBackendGetAttribute(found[0], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                              1, &first, &engine));
  OK(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                              1, &first, &note));
  CHECK(first == 1 && note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
}

static void in_any_order(void) {
  Descriptor found[1];
  engines(conv_graph(), 1, found);
  run_right(plan_of(found[0]));
}

static void test_text(void) {
  Descriptor found[8], again = make(DESCRIPTOR(EXECUTION_PLAN));
  engines(conv_graph(), 8, found);
  Descriptor plan = plan_of(found[1]), damaged = make(DESCRIPTOR(EXECUTION_PLAN));
  int64_t n;
  cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
  OK(cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, 0, &n, NULL));
  char *text = malloc((size_t)n);
  OK(cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, n, &n, text));
  OK(set(again, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  OK(set(again, name, CUDNN_TYPE_CHAR, n, text));
  OK(cudnnBackendFinalize(again));
  run_right(again);
  OK(set(damaged, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  OK(set(damaged, name, CUDNN_TYPE_CHAR, n / 2, text));
  REFUSED(cudnnBackendFinalize(damaged));
  free(text);
}

// ---- Refusals

static void test_attributes(void) {
  Descriptor d = open_tensor(1, CUDNN_DATA_FLOAT, x_dim, false), empty = make(DESCRIPTOR(TENSOR));
  int64_t two[] = {1, 2};
  float wrong = 1;
  REFUSED(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, &wrong));
  REFUSED(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, two));
  REFUSED(set(d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, two));
  REFUSED(cudnnBackendFinalize(empty));
  OK(cudnnBackendFinalize(d));
  REFUSED(cudnnBackendFinalize(d));
  REFUSED(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, two));
}

static void test_graphs(void) {
  // Two overlapping elements of a tensor, a result of another shape, an operand that is not
  // finalized.
  Descriptor d = open_tensor(1, CUDNN_DATA_FLOAT, x_dim, false);
  int64_t strides[] = {90, 1, 15, 15}, wide[] = {N, K, P, Q + 1};
  OK(set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
  REFUSED(cudnnBackendFinalize(d));
  REFUSED(
      cudnnBackendFinalize(open_forward(tensor(X_UID, x_dim, false), tensor(Y_UID, wide, false))));
  Descriptor op = make(DESCRIPTOR(OPERATION_CONVOLUTION_FORWARD));
  REFUSED(
      set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d));
  // A virtual operand that no operation computes; two tensors of one id; two operations that
  // compute one.
  Descriptor in = tensor(X_UID, x_dim, false), out = tensor(Y_UID, y_dim, false);
  Descriptor unmade = forward(tensor(Z_UID, x_dim, true), out);
  Descriptor twins = forward(in, tensor(X_UID, y_dim, false));
  Descriptor both[] = {forward(in, out), forward(in, out)};
  REFUSED(cudnnBackendFinalize(open_graph(1, &unmade)));
  REFUSED(cudnnBackendFinalize(open_graph(1, &twins)));
  REFUSED(cudnnBackendFinalize(open_graph(2, both)));
}

static void to_the_host(void) {
  Descriptor found[2];
  float host[N * P * Q * K];
  engines(conv_graph(), 2, found);
  cudnnBackendExecute(handle, plan_of(found[1]), pack(host));
}

static void to_an_odd_address(void) {
  Descriptor found[2];
  engines(conv_graph(), 2, found);
  cudnnBackendExecute(handle, plan_of(found[1]), pack(y + 1));
}

static void test_workspace(void) {
  Descriptor found[2];
  unsigned char got[256];
  engines(conv_graph(), 2, found);
  OK(cudaMemset(workspace, 0, sizeof got));
  run_right(plan_of(found[1]));
  OK(cudaMemcpy(got, workspace, sizeof got, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < sizeof got; i++)
    CHECK(got[i] == 0xff);
}

int main(void) {
  for (size_t i = 0; i < sizeof host_x / sizeof *host_x; i++)
    host_x[i] = (float)((int)(i * 37 % 65) - 32) / 16;
  for (size_t i = 0; i < sizeof host_w / sizeof *host_w; i++)
    host_w[i] = (float)((int)(i * 29 % 33) - 16) / 16;
  OK(cudnnCreate(&handle));
  OK(cudaMalloc((void **)&x, sizeof host_x));
  OK(cudaMalloc((void **)&w, sizeof host_w));
  OK(cudaMalloc((void **)&y, (N * P * Q * K + 1) * sizeof *y));
  OK(cudaMalloc(&workspace, 1 << 16));
  OK(cudaMemcpy(x, host_x, sizeof host_x, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(w, host_w, sizeof host_w, cudaMemcpyHostToDevice));
  test_engines();
  test_text();
  test_workspace();
  test_attributes();
  test_graphs();
  check_dies(in_any_order, "is not deterministic");
  check_dies(to_the_host, "is not in the gpu's memory");
  check_dies(to_an_odd_address, "is not aligned to 16 bytes");
  for (int i = 0; i < n_made; i++)
    OK(cudnnBackendDestroyDescriptor(made[i]));
  OK(cudnnDestroy(handle));
}
