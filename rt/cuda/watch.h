// A watchdog for collectives that wait in the GPU, in which a lost rank causes no error.
//
// Before and after each collective a kernel writes its number into host memory, also when a graph
// is replayed; moves between segments, in a stream of their own, have a separate record.  A thread
// polls the records, and asks NCCL for errors:
//
//     rank 0, step 7: all_reduce  grads of /fc1: communication failed: collective 41: no progress
//     for 600 seconds (--stall-timeout): rank 1 on host7 (pid 4711) is stopped by a signal
//
// It ends the process, and so the job.

#ifndef NNRT_CUDA_WATCH_H
#define NNRT_CUDA_WATCH_H

#include "device.h"
#include "ranks.h"

typedef struct Watch Watch;

// `errors` returns a code, with the reason in text; the watching thread calls it.
int nnrt_watch_start(Watch **out, NnrtRank *r, int (*errors)(void *state, char *text, size_t size),
                     void *state);
void nnrt_watch_stop(Watch *w);
int nnrt_watch_op(Watch *w); // for nnrt_device_waits_in
int nnrt_watch_begin(Watch *w, int op, bool ahead, cudaStream_t stream);
int nnrt_watch_end(Watch *w, bool ahead, cudaStream_t stream);

#endif
