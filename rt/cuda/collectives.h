// Collectives between the gpus of ranks: what generated code calls, and three ways to do it.
//
//     collectives.c   the order: what waits for what
//     moves.c         moves between meshes, in one or in two
//     comm_peer.c          ranks are threads of this process: kernels read each other's memory
//     nccl.c          ranks are processes, each with a gpu of its own: NCCL
//     comm_host.c        ranks are processes that share a gpu: through this machine's memory
//
// A collective goes to the rank's stream for collectives, which first waits for what the stream of
// operations has been given so far:
//
//     operations   a  b │ fork         c  d │ wait(y): join   e
//     collectives       └─► all_reduce y  ──┘
//
// all_reduce only starts, so c and d run meanwhile.  The others are joined when they return.  All
// of it is put in, none of it waited for by the host, so it can be recorded, except where ranks
// meet or are staged.
//
// A move in two is not recorded and has memory of its own, since it goes on while other pieces of
// the step run.  All moves that are ahead (nnrt.h) go to a third stream, in one order, and to a
// communicator of their own:
//
//     operations   F0 │ start        B0 ──────────────────────────────── │ wait, F0'
//     collectives     │              └ all_reduce ─ all_reduce ─ …       │
//     ahead           └─► get %h ······························ receive ─┘
//
// What a stage gets next may be made long after it has begun to wait for that, and no collective
// stands behind it.  Kernels of both are on the gpu at once, so there must be room for both: each
// is at most 32 or 64 blocks, and what computes never waits for others.

#ifndef NNRT_CUDA_COLLECTIVES_H
#define NNRT_CUDA_COLLECTIVES_H

#include "device.h"
#include "gpu.h"

// They put work in the stream of collectives, moves in the one that nnrt_gpu_comm_stream says, and
// return a code.
typedef struct GpuTransport {
  const char *name;
  bool records; // may be part of a CUDA graph
  int (*open)(NnrtRank *r);
  void (*close)(NnrtRank *r);                           // and frees the slab
  int (*memory)(NnrtRank *r, void **out, size_t bytes); // for the slab
  int (*run[N_JOB_KINDS])(NnrtRank *r, const Job *job); // as comm.h says
  // Of nnrt_device_waits_in; may be NULL.
  int (*waits_in)(NnrtRank *r);
} GpuTransport;
extern const GpuTransport nnrt_gpu_meet, nnrt_gpu_nccl, nnrt_gpu_staged;

enum { MOST_STARTED = 256 };

typedef struct Started {
  const char *y;
  int64_t bytes;
  cudaEvent_t done;
} Started;

typedef struct GpuComm {
  const GpuTransport *way;
  void *state; // the way's
  cudaEvent_t fork;
  // What nobody waited for; number i is at i modulo MOST_STARTED.
  Started started[MOST_STARTED];
  int64_t n_started, n_joined;
  int64_t n_ahead; // moves that are ahead, and done whole here
} GpuComm;

typedef struct GpuMoves GpuMoves;

// Which stream the job goes to.
cudaStream_t nnrt_gpu_comm_stream(const NnrtRank *r, bool ahead);
// There, behind what the stream of operations has been given so far.
int nnrt_gpu_comm_call(NnrtRank *r, const Job *job);
// The same, and the stream of operations waits for it.
int nnrt_gpu_comm_do(NnrtRank *r, const Job *job);

// As nnrt_move_… of nnrt.h, of elements of `size` bytes (moves.c).
int nnrt_gpu_move(void *y, const void *x, NnrtRank *r, int number, int64_t size, bool sums,
                  NnrtDtype t);
int nnrt_gpu_move_start(void *y, const void *x, NnrtRank *r, int number, int64_t size, bool sums);
int nnrt_gpu_move_wait(void *y, NnrtRank *r, int number, int64_t size, bool sums, NnrtDtype t);
int nnrt_gpu_moves_open(NnrtRank *r);
void nnrt_gpu_moves_close(NnrtRank *r);
// The stream of operations waits for all that were started.
int nnrt_gpu_moves_join(NnrtRank *r);

// The version of NCCL that ranks that are processes use, 22809 of 2.28.9; 0 if there is none.
int nnrt_gpu_nccl_version(void);

int nnrt_gpu_comm_open(NnrtRank *r);
void nnrt_gpu_comm_close(NnrtRank *r);
int nnrt_gpu_comm_memory(NnrtRank *r, void **out, size_t bytes);
// The stream of operations waits for all that was started.
int nnrt_gpu_comm_join(NnrtRank *r);

#endif
