// What the parts of the emulator know of each other.
//
// The emulator stands in for a gpu and NVIDIA's libraries, so that the cuda target runs in tests
// where there is no gpu.  README.md says what it checks.
//
//     device.c    which gpus there are, their properties; error codes
//     memory.c    allocations with guards around them; copies
//     stream.c    streams and events: work runs as late as CUDA allows
//     graph.c     recording work into graphs, and running them
//     block.c     the threads of a block, as fibres
//     symbols.c   the names of kernels, and where their __shared__ variables are
//     cublaslt*.c, cudnn*.c, nccl*.c   the libraries; they know this header, their own and CUDA's
//
// A library puts what it is asked for into a stream:
//
//     typedef struct Scale { EmulatedWork work; float *y, by; int64_t n; } Scale;
//     static bool scale(EmulatedWork *w, bool again) {
//       … the gpu's memory can be read …
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
  // Does it, and answers true; false if it has to wait for something that is not in this process,
  // and wants to be called again.  `again`: it has answered false before, in this run; work of a
  // graph has many runs.  Only here the gpu's memory can be touched.
  bool (*run)(struct EmulatedWork *w, bool again);
  void (*free)(struct EmulatedWork *w);
} EmulatedWork;

// Puts work at the end of a stream, or in the graph that is being recorded, and takes it over, also
// when it fails.  Work that has the same `chain` (a communicator) runs in the order it came, in
// whatever streams, and is begun in the end even if nobody waits for it.
cudaError_t emulated_enqueue(cudaStream_t stream, EmulatedWork *w, const void *chain);

void *emulated_alloc(size_t bytes);  // zeroed
void emulated_free(EmulatedWork *w); // when it is one allocation

// Whether [p, p + bytes) lies within one allocation of the gpu.
bool emulated_on_device(const void *p, size_t bytes);
// Whether a kernel may use it: the gpu's, or pinned.
bool emulated_reachable(const void *p, size_t bytes);

// Says what is wrong on stderr, and aborts.
__attribute__((noreturn)) void emulated_abort(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif

#endif
