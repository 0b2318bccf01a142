// Streams, events, graphs and memory: late, in a bad order, and with CUDA's errors.

#include <cuda_runtime.h>
#include <pthread.h>

#include "test.h"

// A call that fails leaves its error for cudaGetLastError.
#define FAILS(call, error)                                                                         \
  do {                                                                                             \
    CHECK_IS(call, error);                                                                         \
    CHECK_IS(cudaGetLastError(), error);                                                           \
  } while (0)

enum { N = 64 };
static int *y, *z;  // in GPU memory, N ints
static int *pinned; // N ints
static cudaStream_t a, b;

static __global__ void add(int *to, int x) {
  to[threadIdx.x] += x;
}
static __global__ void twice(int *to) {
  to[threadIdx.x] *= 2;
}
static __global__ void take(int *to, const int *from) {
  to[threadIdx.x] = from[threadIdx.x];
}

static void launch_add(cudaStream_t s, int *to, int x) {
  emulated_launch(1, N, 0, s, add, to, x);
  OK(cudaGetLastError());
}

static int value(const int *at) {
  int x;
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpy(&x, at, sizeof x, cudaMemcpyDeviceToHost));
  return x;
}

static void zero() {
  OK(cudaDeviceSynchronize());
  OK(cudaMemset(y, 0, N * sizeof *y));
  OK(cudaMemset(z, 0, N * sizeof *z));
  OK(cudaDeviceSynchronize());
}

// ---- Lateness

static void test_late() {
  zero();
  memset(pinned, 0, N * sizeof *pinned);
  launch_add(a, y, 3);
  OK(cudaMemcpyAsync(pinned, y, N * sizeof *y, cudaMemcpyDeviceToHost, a));
  CHECK(pinned[5] == 0); // has not run
  CHECK_IS(cudaStreamQuery(a), cudaErrorNotReady);
  CHECK(pinned[5] == 0);
  OK(cudaStreamQuery(a));
  CHECK(pinned[5] == 3);
  // Pinned memory is read when the copy runs, pageable memory at the call.
  int pageable[N];
  for (int i = 0; i < N; i++)
    pinned[i] = pageable[i] = 1;
  OK(cudaMemcpyAsync(y, pinned, N * sizeof *y, cudaMemcpyHostToDevice, a));
  OK(cudaMemcpyAsync(z, pageable, N * sizeof *z, cudaMemcpyHostToDevice, a));
  pinned[0] = pageable[0] = 2;
  OK(cudaStreamSynchronize(a));
  CHECK(value(y) == 2 && value(z) == 1);
  // A copy to pageable memory is complete at return.
  launch_add(a, y, 40);
  OK(cudaMemcpyAsync(pageable, y, N * sizeof *y, cudaMemcpyDeviceToHost, a));
  CHECK(pageable[0] == 42);
}

static void called(void *data) {
  *(int *)data += 1;
  FAILS(cudaMemsetAsync(y, 0, 4, a), cudaErrorNotPermitted);
}

static void test_host_function() {
  int count = 0;
  OK(cudaLaunchHostFunc(a, called, &count));
  CHECK(count == 0);
  OK(cudaStreamSynchronize(a));
  CHECK(count == 1);
}

// ---- Order between streams

static void test_events() {
  cudaEvent_t e, late;
  OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  OK(cudaEventCreate(&late));
  OK(cudaEventQuery(e)); // never recorded
  zero();
  launch_add(a, y, 1);
  OK(cudaEventRecord(e, a));
  launch_add(a, y, 10); // after the event: b does not wait for it
  OK(cudaStreamWaitEvent(b, e, 0));
  emulated_launch(1, N, 0, b, take, z, y);
  OK(cudaEventRecord(late, b));
  CHECK_IS(cudaEventQuery(late), cudaErrorNotReady);
  OK(cudaEventQuery(late));
  CHECK(value(z) == 1 && value(y) == 11);
  // A missing wait: b begins before the work that it depends on.
  zero();
  launch_add(a, y, 1);
  emulated_launch(1, N, 0, b, take, z, y);
  OK(cudaEventRecord(late, b));
  OK(cudaStreamWaitEvent(a, late, 0));
  OK(cudaStreamSynchronize(a));
  CHECK(value(z) == 0);
  // Missing in the other direction: work without a wait does not run.
  zero();
  launch_add(b, z, 1);
  emulated_launch(1, N, 0, a, take, y, z);
  OK(cudaStreamSynchronize(a));
  OK(cudaMemcpyAsync(pinned, y, N * sizeof *y, cudaMemcpyDeviceToHost, a));
  OK(cudaStreamSynchronize(a));
  CHECK(pinned[0] == 0);
  float ms;
  FAILS(cudaEventElapsedTime(&ms, e, late), cudaErrorInvalidResourceHandle);
  OK(cudaEventElapsedTime(&ms, late, late));
  OK(cudaEventDestroy(e));
  OK(cudaEventDestroy(late));
}

// Streams that wait for each other many times, while one thread runs the work that another waits
// for.
static void sleeps(void *) {
  usleep(100 * 1000);
}
static void *synchronise(void *) {
  OK(cudaStreamSynchronize(b));
  return NULL;
}

static void test_many_waits() {
  enum { TIMES = 500 };
  cudaEvent_t e[2];
  zero();
  OK(cudaEventCreateWithFlags(&e[0], cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&e[1], cudaEventDisableTiming));
  OK(cudaLaunchHostFunc(a, sleeps, NULL));
  for (int i = 0; i < TIMES; i++) {
    launch_add(a, y, 1);
    OK(cudaEventRecord(e[0], a));
    OK(cudaStreamWaitEvent(b, e[0], 0));
    emulated_launch(1, N, 0, b, take, z, y);
    launch_add(b, z, 1);
    OK(cudaEventRecord(e[1], b));
    OK(cudaStreamWaitEvent(a, e[1], 0));
    emulated_launch(1, N, 0, a, take, y, z);
  }
  pthread_t other;
  OK(pthread_create(&other, NULL, synchronise, NULL));
  OK(cudaStreamSynchronize(a));
  OK(pthread_join(other, NULL));
  CHECK(value(y) == 2 * TIMES && value(z) == 2 * TIMES);
  OK(cudaEventDestroy(e[0]));
  OK(cudaEventDestroy(e[1]));
}

// The legacy stream synchronises with blocking ones.
static void test_legacy() {
  cudaStream_t blocking;
  OK(cudaStreamCreate(&blocking));
  zero();
  launch_add(blocking, y, 1);
  emulated_launch(1, N, 0, NULL, twice, y);
  launch_add(blocking, y, 1);
  OK(cudaStreamSynchronize(blocking));
  CHECK(value(y) == 3);
  OK(cudaStreamDestroy(blocking));
  FAILS(cudaStreamSynchronize(blocking), cudaErrorInvalidResourceHandle);
}

// ---- Graphs

static void test_graph() {
  cudaEvent_t fork, join;
  OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  zero();
  enum cudaStreamCaptureStatus status;
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  OK(cudaStreamIsCapturing(a, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  OK(cudaMemcpyAsync(y, pinned, N * sizeof *y, cudaMemcpyHostToDevice, a));
  OK(cudaEventRecord(fork, a));
  OK(cudaStreamWaitEvent(b, fork, 0));
  emulated_launch(1, N, 0, b, take, z, y);
  launch_add(b, z, 100);
  OK(cudaEventRecord(join, b));
  launch_add(a, y, 1);
  OK(cudaStreamWaitEvent(a, join, 0));
  emulated_launch(1, N, 0, a, twice, z);
  cudaGraph_t graph;
  OK(cudaStreamEndCapture(a, &graph));
  OK(cudaStreamIsCapturing(b, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  CHECK(value(z) == 0); // captured, not run
  size_t n;
  OK(cudaGraphGetNodes(graph, NULL, &n));
  CHECK(n == 5);
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; i++) {
    pinned[0] = i;
    OK(cudaGraphLaunch(exec, a));
    OK(cudaStreamSynchronize(a));
    int x = value(y), w = value(z);
    // The branches are not ordered: b's may be first.
    CHECK(x == i + 1 && (w == 2 * (i + 100) || w == 2 * (i + 101)));
  }
  OK(cudaGraphExecDestroy(exec));
  OK(cudaEventDestroy(fork));
  OK(cudaEventDestroy(join));
}

// A call that is forbidden during capture invalidates it.
static void ruin(cudaError_t (*what)(), cudaError_t wanted) {
  cudaGraph_t graph;
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  launch_add(a, y, 1);
  FAILS(what(), wanted);
  FAILS(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
  CHECK(!graph);
}
static cudaError_t allocate() {
  void *p;
  return cudaMalloc(&p, 100);
}
static cudaError_t wait_for_all() {
  return cudaDeviceSynchronize();
}
static cudaError_t wait_for_it() {
  return cudaStreamSynchronize(a);
}
static cudaError_t copy_and_wait() {
  return cudaMemcpy(pinned, y, 4, cudaMemcpyDeviceToHost);
}
static cudaError_t wait_for_outside() {
  cudaEvent_t e;
  OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  OK(cudaEventRecord(e, b));
  cudaError_t error = cudaStreamWaitEvent(a, e, 0);
  OK(cudaEventDestroy(e));
  return error;
}

static void test_capture_errors() {
  ruin(allocate, cudaErrorStreamCaptureUnsupported);
  ruin(wait_for_all, cudaErrorStreamCaptureUnsupported);
  ruin(wait_for_it, cudaErrorStreamCaptureUnsupported);
  ruin(copy_and_wait, cudaErrorStreamCaptureUnsupported);
  ruin(wait_for_outside, cudaErrorStreamCaptureIsolation);
  // A stream in the same capture must be joined in the end.
  cudaEvent_t e;
  cudaGraph_t graph;
  OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  launch_add(a, y, 1);
  OK(cudaEventRecord(e, a));
  OK(cudaStreamWaitEvent(b, e, 0));
  launch_add(b, y, 1);
  FAILS(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
  FAILS(cudaEventSynchronize(e), cudaErrorStreamCaptureUnsupported);
  FAILS(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  launch_add(a, y, 1);
  OK(cudaEventRecord(e, a));
  OK(cudaStreamWaitEvent(b, e, 0));
  launch_add(b, y, 1);
  FAILS(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
  FAILS(cudaEventSynchronize(e), cudaErrorCapturedEvent);
  FAILS(cudaStreamEndCapture(a, &graph), cudaErrorIllegalState);
  OK(cudaEventDestroy(e));
}

// ---- Memory and devices

static void test_memory() {
  void *p, *q;
  setenv("EMULATED_MEMORY", "1m", 1);
  OK(cudaMalloc(&p, 700 << 10));
  FAILS(cudaMalloc(&q, 700 << 10), cudaErrorMemoryAllocation);
  CHECK(!q);
  size_t left, total;
  OK(cudaMemGetInfo(&left, &total));
  CHECK(total == 1 << 20 && left < 400 << 10);
  unsetenv("EMULATED_MEMORY");
  CHECK((uintptr_t)p % 256 == 0);
  unsigned char bytes[16];
  OK(cudaMemcpy(bytes, p, sizeof bytes, cudaMemcpyDeviceToHost));
  CHECK(bytes[0] == 0xff && bytes[15] == 0xff);
  FAILS(cudaMemcpy(p, bytes, 16, cudaMemcpyDeviceToDevice), cudaErrorInvalidMemcpyDirection);
  FAILS(cudaMemcpy(bytes, (char *)p + (700 << 10) - 8, 16, cudaMemcpyDeviceToHost),
        cudaErrorInvalidValue);
  FAILS(cudaFree((char *)p + 1), cudaErrorInvalidValue);
  FAILS(cudaFreeHost(p), cudaErrorInvalidValue);
  struct cudaPointerAttributes at;
  OK(cudaPointerGetAttributes(&at, p));
  CHECK(at.type == cudaMemoryTypeDevice && at.device == 0);
  OK(cudaPointerGetAttributes(&at, pinned));
  CHECK(at.type == cudaMemoryTypeHost);
  OK(cudaPointerGetAttributes(&at, bytes));
  CHECK(at.type == cudaMemoryTypeUnregistered);
  OK(cudaFree(p));
}

static void test_devices() {
  int n;
  setenv("EMULATED_GPUS", "2", 1);
  OK(cudaGetDeviceCount(&n));
  CHECK(n == 2);
  OK(cudaSetDevice(1));
  FAILS(cudaSetDevice(2), cudaErrorInvalidDevice);
  // A stream belongs to a GPU.
  emulated_launch(1, N, 0, a, twice, y);
  CHECK_IS(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  OK(cudaSetDevice(0));
  setenv("EMULATED_GPUS", "0", 1);
  FAILS(cudaGetDeviceCount(&n), cudaErrorNoDevice);
  CHECK(!strcmp(cudaGetErrorString(cudaErrorNoDevice), "no CUDA-capable device is detected"));
  setenv("EMULATED_DRIVER", "12000", 1);
  FAILS(cudaSetDevice(0), cudaErrorInsufficientDriver);
  unsetenv("EMULATED_GPUS");
  unsetenv("EMULATED_DRIVER");
}

int main() {
  OK(cudaMalloc(&y, N * sizeof *y));
  OK(cudaMalloc(&z, N * sizeof *z));
  OK(cudaMallocHost((void **)&pinned, N * sizeof *pinned));
  OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithPriority(&b, cudaStreamNonBlocking, -5));
  test_late();
  test_host_function();
  test_events();
  test_many_waits();
  test_legacy();
  test_graph();
  test_capture_errors();
  test_memory();
  test_devices();
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
  OK(cudaFree(y));
  OK(cudaFree(z));
  OK(cudaFreeHost(pinned));
}
