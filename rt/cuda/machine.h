// A rank's GPU, as seen by the files that implement device.h.
//
//     check.c     checks for a GPU, a driver and the libraries, and their versions
//     device.c    the slab; copies through pinned memory
//     step.c      capture and replay; results of a step; timestamps
//     collectives.h   between the GPUs of ranks

#ifndef NNRT_CUDA_MACHINE_H
#define NNRT_CUDA_MACHINE_H

#include "device.h"
#include "gpu.h"

// Pinned memory for copies to the GPU, in segments that are used in turn.  Contiguous puts are
// gathered; they are copied when a put does not continue the last one, or when a segment is full.
// A segment is reused when its copies are complete.
//
// Rows of the next step arrive while a step still reads its own.  If they have many bytes they are
// copied to `far` at once, in a stream of their own, and from there to the slab in their turn: the
// GPU waits for its own memory, not for host memory.
typedef struct Ring {
  char *at;
  int n, current;
  int64_t used;    // bytes of the current segment
  char *to, *from; // gathered, not yet copied
  int64_t bytes;
  cudaEvent_t *copied; // [n] of each segment
  bool *waits;         // [n] the event was recorded
  char *far;           // NULL; or as much GPU memory
  cudaStream_t stream; // of copies to `far`
  cudaEvent_t arrived;
} Ring;
enum { SEGMENT = 4 << 20 };

// Copies to host memory and back (swap.c).
typedef struct Swaps {
  cudaStream_t stream[2]; // out, and in
  cudaEvent_t *event;     // [n] by number of the copy; NULL: not created yet
  int n;
} Swaps;

// The results that the GPU writes at the end of a step, in pinned memory.
typedef struct Report {
  char value[NNRT_ANSWERS][8];
  NnrtFinding finding;
} Report;

typedef struct Slot {
  Report *report;
  cudaEvent_t done;
  NnrtDtype dtype[NNRT_ANSWERS];
  bool wanted[NNRT_ANSWERS];
  int64_t step;
  const NnrtGraph *graph;
} Slot;

// A piece of a graph.
typedef struct Recording {
  cudaGraphExec_t run; // NULL: not captured yet
  bool ahead;          // it contains a blocking move in the stream `ahead`
  const char *scratch; // scratch at the time of capture
} Recording;

// Of @train, or of @eval.
typedef struct Recordings {
  bool ran;         // once, call by call
  bool recorded;    // tried once, and all ranks agreed
  bool failed;      // on this rank
  Recording *piece; // [n]
  int n;
} Recordings;

struct NnrtDevice {
  NnrtGpu gpu;
  Ring ring;
  char *out[2]; // pinned memory for reads
  cudaEvent_t out_done[2];
  char *host; // result of the last read
  int64_t host_bytes;
  Slot slot[NNRT_SLOTS];
  Recordings recordings[2];
  bool records; // false: every step runs call by call
  bool said_plans;
  _Atomic int64_t step; // the oldest without an answer
  NnrtFinding found;    // the first finding of an answered step
  const NnrtGraph *found_graph;
  int64_t found_step;
  struct GpuComm *comm; // NULL: one rank
  struct GpuMoves *moves;
  Swaps swaps;
  // For --trace: events, and a time known on both clocks.
  cudaEvent_t *mark, zero;
  int n_marks, marks_room;
  double zero_us;
  bool zero_set;
};

// -- check.c

int nnrt_gpu_of_rank(const NnrtRun *run, int rank); // index of the GPU on this machine
// Whether a GPU had enough memory for some ranks before any of them allocated.
bool nnrt_gpu_memory_enough(int gpu, const Slabs *slabs, Why *w);
// Logs the GPU memory that this process and others have allocated since the start.  Nothing is
// freed, so at the end it is the maximum.
void nnrt_gpu_say_memory(const NnrtRank *r);

// -- Failing outside of an operation

_Noreturn void nnrt_gpu_die(NnrtRank *r, int code);
// Ends the job on an error code.
#define MUST(r, call)                                                                              \
  do {                                                                                             \
    int code_ = (call);                                                                            \
    if (code_) nnrt_gpu_die(r, code_);                                                             \
  } while (0)

// -- device.c

void nnrt_gpu_flush(NnrtRank *r); // starts the copies of all gathered puts

// -- swap.c

int nnrt_gpu_swaps_open(NnrtRank *r);
void nnrt_gpu_swaps_close(NnrtRank *r);

// -- step.c

void nnrt_gpu_recordings_close(NnrtDevice *d);
int64_t nnrt_gpu_mark(NnrtRank *r, cudaStream_t stream); // like nnrt_device_mark

#endif
