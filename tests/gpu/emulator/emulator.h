// Interfaces between the parts of the emulator.
//
// It emulates a GPU and NVIDIA's libraries, so that the cuda target can be tested without a GPU.
// README.md lists its checks.
//
//     device.c    the GPUs, their properties; error codes
//     memory.c    allocations with guards around them; copies
//     stream.c    streams and events: work runs as late as CUDA allows
//     graph.c     capturing work into graphs, and running them
//     block.c     the threads of a block, as fibres
//     symbols.c   the names of kernels, and the addresses of their __shared__ variables
//     cublaslt*.c, cudnn*.c, nccl*.c   the libraries; they use this header, their own and CUDA's
//
// A library enqueues its work in a stream:
//
//     typedef struct Scale { EmulatedWork work; float *y, by; int64_t n; } Scale;
//     static bool scale(EmulatedWork *w, bool again) {
//       … the GPU's memory can be read …
//       return true;
//     }
//
//     Scale *s = emulated_alloc(sizeof *s);
//     s->work = (EmulatedWork){"scale", scale, emulated_free};
//     …
//     return emulated_enqueue(stream, &s->work, NULL);
//
// C and C++.

#ifndef EMULATOR_H
#define EMULATOR_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct EmulatedWork {
  const char *name; // for messages
  // Runs the work and returns true; false if it has to wait for another process, and must be called
  // again.  `again`: it has returned false before, in this run; work of a graph has many runs.  GPU
  // memory can be accessed only here.
  bool (*run)(struct EmulatedWork *w, bool again);
  void (*free)(struct EmulatedWork *w);
} EmulatedWork;

// Enqueues work in a stream, or adds it to the graph that is being captured.  Takes ownership, even
// on failure.  Work with the same `chain` (a communicator) runs in order of arrival, in any
// streams, and begins after some time even if no thread waits for it.
cudaError_t emulated_enqueue(cudaStream_t stream, EmulatedWork *w, const void *chain);

void *emulated_alloc(size_t bytes);  // zeroed
void emulated_free(EmulatedWork *w); // if it is one allocation

// Whether [p, p + bytes) is within one allocation of the GPU.
bool emulated_on_device(const void *p, size_t bytes);
// Whether a kernel may access it: GPU memory, or pinned memory.
bool emulated_reachable(const void *p, size_t bytes);

// Prints the error on stderr, and aborts.
__attribute__((noreturn)) void emulated_abort(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif

#endif
