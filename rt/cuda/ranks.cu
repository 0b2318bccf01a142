// Sums of the tensors of ranks, and the progress of their collectives.  See ranks.h.

#include "ranks.h"

#include "device.cuh"

template <class T> struct Operands { const T *at[NNRT_MOST_THREADS]; };

// Adds in the order of ranks: the same bits as on CPUs (../comm.c).  y may be one of x: a thread
// reads all operands before it writes.
template <class T> static __global__ void add_in_order(T *y, Operands<T> x, int n, int64_t count) {
  for (int64_t i = first_thread(); i < count; i += all_threads()) {
    T sum = x.at[0][i];
    for (int k = 1; k < n; k++)
      sum += x.at[k][i];
    y[i] = sum;
  }
}

static __global__ void announce(Progress *p, int op, bool begin) {
  // The host reads `op` after `begun` has changed.
  if (begin) {
    p->op = op;
    __threadfence_system();
    p->begun++;
  } else {
    p->done = p->begun;
  }
  __threadfence_system();
}

// launch() uses the rank's compute stream; this replaces the stream temporarily.
class InStream {
  cudaStream_t operations;

public:
  InStream(cudaStream_t stream) : operations(nnrt_gpu()->stream) { nnrt_gpu()->stream = stream; }
  ~InStream() { nnrt_gpu()->stream = operations; }
};

template <class T>
static int add(T *y, const void *const *x, int n, int64_t count, cudaStream_t stream) {
  InStream in(stream);
  Operands<T> operands = {};
  for (int i = 0; i < n; i++)
    operands.at[i] = (const T *)x[i];
  return launch(add_in_order<T>, blocks_for(count), BLOCK, 0, y, operands, n, count);
}

int nnrt_gpu_add(void *y, const void *const *x, int n, int64_t count, NnrtDtype t,
                 cudaStream_t stream) {
  return t == NNRT_f32 ? add((float *)y, x, n, count, stream)
                       : add((int64_t *)y, x, n, count, stream);
}

int nnrt_gpu_announce(Progress *p, int op, bool begin, cudaStream_t stream) {
  InStream in(stream);
  return launch(announce, 1, 1, 0, p, op, begin);
}

bool nnrt_gpu_runs_here(void) {
  // A kernel without code for this GPU has no attributes.
  cudaFuncAttributes ignored;
  bool runs = cudaFuncGetAttributes(&ignored, (const void *)add_in_order<float>) == cudaSuccess;
  cudaGetLastError();
  return runs;
}
