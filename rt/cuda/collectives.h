// Collectives between the GPUs of ranks: the functions called by generated code, and three
// transports.
//
//     collectives.c   the order: dependencies between streams
//     moves.c         moves between meshes, blocking or split
//     comm_threads.c  ranks are threads of this process: kernels read each other's memory
//     nccl.c          ranks are processes, each with a GPU of its own: NCCL
//     comm_host.c     ranks are processes that share a GPU: through host memory
//
// A collective runs in the rank's stream for collectives, which first waits for all earlier work of
// the compute stream:
//
//     operations   a  b │ fork         c  d │ wait(y): join   e
//     collectives       └─► all_reduce y  ──┘
//
// An all_reduce only starts, so c and d overlap with it.  The other collectives are joined before
// they return, and their wait does nothing: nnaot's targets.def says so (async_comm).  All of it is
// enqueued without the host waiting, so it can be captured, except with comm_threads.c and
// comm_host.c.
//
// A split move is not captured and has memory of its own, since it continues while other pieces of
// the step run.  All moves between segments (`ahead` in nnrt.h) use a third stream, in one order,
// and a communicator of their own:
//
//     operations   F0 │ start        B0 ──────────────────────────────── │ wait, F0'
//     collectives     │              └ all_reduce ─ all_reduce ─ …       │
//     ahead           └─► get %h ······························ receive ─┘
//
// The value that a stage receives next may be computed long after the receive has started, and no
// collective is queued after it.  Kernels of both communicators are on the GPU at once, so both
// must fit: each has at most 32 or 64 blocks, and compute kernels never wait for other ranks.

#ifndef NNRT_CUDA_COLLECTIVES_H
#define NNRT_CUDA_COLLECTIVES_H

#include "device.h"
#include "gpu.h"

// The functions of a transport.  They enqueue collectives in the stream for collectives, and moves
// in that of nnrt_gpu_comm_stream, and return a code.
typedef struct GpuTransport {
  bool records; // can be captured into a CUDA graph
  int (*open)(NnrtRank *r);
  void (*close)(NnrtRank *r);                           // also frees the slab
  int (*memory)(NnrtRank *r, void **out, size_t bytes); // allocates the slab
  int (*run)(NnrtRank *r, const Job *job);              // as job.h says
  // For nnrt_device_waits_in; may be NULL.
  int (*waits_in)(NnrtRank *r);
} GpuTransport;
extern const GpuTransport nnrt_gpu_threads, nnrt_gpu_nccl, nnrt_gpu_host;

enum { MOST_STARTED = 256 };

typedef struct Started {
  const char *y;
  int64_t bytes;
  cudaEvent_t done;
} Started;

typedef struct GpuComm {
  const GpuTransport *transport;
  void *state; // of the transport
  cudaEvent_t fork;
  // Collectives without a wait yet; number i is at i modulo MOST_STARTED.
  Started started[MOST_STARTED];
  int64_t n_started, n_joined;
  int64_t n_ahead; // blocking moves in the stream `ahead`
} GpuComm;

typedef struct GpuMoves GpuMoves;

// The stream for a job.
cudaStream_t nnrt_gpu_comm_stream(const NnrtRank *r, bool ahead);
// Enqueues the job in that stream, after all earlier work of the compute stream.
int nnrt_gpu_comm_call(NnrtRank *r, const Job *job);
// The same, and makes the compute stream wait for it.
int nnrt_gpu_comm_do(NnrtRank *r, const Job *job);

// Like nnrt_move_… of nnrt.h, for elements of `size` bytes (moves.c).
int nnrt_gpu_move(void *y, const void *x, NnrtRank *r, int number, int64_t size, bool sums,
                  NnrtDtype t);
int nnrt_gpu_move_start(void *y, const void *x, NnrtRank *r, int number, int64_t size, bool sums);
int nnrt_gpu_move_wait(void *y, NnrtRank *r, int number, int64_t size, bool sums, NnrtDtype t);
int nnrt_gpu_moves_open(NnrtRank *r);
void nnrt_gpu_moves_close(NnrtRank *r);
// Makes the compute stream wait for all started moves.
int nnrt_gpu_moves_join(NnrtRank *r);

// The NCCL version, 22809 for 2.28.9; 0 if the library is not found.
int nnrt_gpu_nccl_version(void);

int nnrt_gpu_comm_open(NnrtRank *r);
void nnrt_gpu_comm_close(NnrtRank *r);
int nnrt_gpu_comm_memory(NnrtRank *r, void **out, size_t bytes);
// Makes the compute stream wait for all started collectives.
int nnrt_gpu_comm_join(NnrtRank *r);

#endif
