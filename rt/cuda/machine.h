// A rank's gpu as the files of the device know it.  device.h says what they are for.
//
//     check.c     is there a gpu, a driver, the libraries, and are they new enough
//     device.c    the slab; copies through pinned memory
//     step.c      recording and replaying; what a step reports; marks of time
//     collectives.h   between the gpus of ranks

#ifndef NNRT_CUDA_MACHINE_H
#define NNRT_CUDA_MACHINE_H

#include "device.h"
#include "gpu.h"

// Pinned memory on the way to the gpu, in segments that are used in turn.  What is put in is
// gathered while it goes on where the last put ended, and copied when it does not, or when a
// segment is full; a segment is used again when its copies are done.
//
// Rows of the next step come while a step still reads its own.  Where there are many bytes of them
// they go to `far` at once, in a stream of their own, and from there to the slab when it is their
// turn: the gpu waits for its own memory, not for this machine's.
typedef struct Ring {
  char *at;
  int n, current;
  int64_t used;    // of the current segment
  char *to, *from; // gathered, not yet copied
  int64_t bytes;
  cudaEvent_t *copied; // [n] of each segment
  bool *waits;         // [n] the event was recorded
  char *far;           // NULL; or as much of the gpu's memory
  cudaStream_t stream; // of copies to there
  cudaEvent_t arrived;
} Ring;
enum { SEGMENT = 4 << 20 };

// Copies to host memory and back (swap.c).
typedef struct Swaps {
  cudaStream_t stream[2]; // there, and back
  cudaEvent_t *event;     // [n] by number of the copy; NULL: not made yet
  int n;
} Swaps;

// What the gpu writes when a step is done, in pinned memory.
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
  cudaGraphExec_t run; // NULL: not recorded yet
  bool ahead;          // it does a move whole that is ahead for others
  const char *scratch; // where it was when this was recorded
} Recording;

// Of @train, or of @eval.
typedef struct Recordings {
  bool ran;         // once, as it is written
  bool recorded;    // tried once, and all ranks agreed
  bool failed;      // on this rank
  Recording *piece; // [n]
  int n;
} Recordings;

struct NnrtDevice {
  NnrtGpu gpu;
  Ring ring;
  char *out[2]; // pinned memory on the way back
  cudaEvent_t out_done[2];
  char *host; // what was read
  int64_t host_bytes;
  Slot slot[NNRT_SLOTS];
  Recordings recordings[2];
  bool records; // false: all runs as it is written, every time
  bool said_plans;
  _Atomic int64_t step; // the oldest that is not answered
  NnrtFinding found;    // in an answered step, the first that had any
  const NnrtGraph *found_graph;
  int64_t found_step;
  struct GpuComm *comm; // NULL: one rank
  struct GpuMoves *moves;
  Swaps swaps;
  // For --trace: events, and a moment of which both clocks are known.
  cudaEvent_t *mark, zero;
  int n_marks, marks_room;
  double zero_us;
  bool zero_set;
};

// -- check.c

int nnrt_gpu_of_rank(const NnrtRun *run, int rank); // which gpu of this machine
// Was there enough of a gpu's memory for some ranks, before any took of it?
bool nnrt_gpu_memory_enough(int gpu, const Slabs *slabs, Why *w);
// What this process and others have taken of its memory since the start; nothing is given back, so
// at the end it is the most there was.
void nnrt_gpu_say_memory(const NnrtRank *r);

// -- Failing outside of an operation

_Noreturn void nnrt_gpu_die(NnrtRank *r, int code);
// Ends the job if there is a code.
#define MUST(r, call)                                                                              \
  do {                                                                                             \
    int code_ = (call);                                                                            \
    if (code_) nnrt_gpu_die(r, code_);                                                             \
  } while (0)

// -- device.c

void nnrt_gpu_flush(NnrtRank *r); // what was put in is on its way

// -- swap.c

int nnrt_gpu_swaps_open(NnrtRank *r);
void nnrt_gpu_swaps_close(NnrtRank *r);

// -- step.c

void nnrt_gpu_recordings_close(NnrtDevice *d);
int64_t nnrt_gpu_mark(NnrtRank *r, cudaStream_t stream); // as nnrt_device_mark

#endif
