// Watching collectives that wait in the gpu, where no error tells of a rank that is gone.
//
// Before and after each collective a kernel writes into this machine's memory which one it is, also
// when it is replayed in a graph; moves that are ahead, in a stream of their own, in a place of
// their own.  A thread looks there, and asks NCCL for errors of its own:
//
//     rank 0, step 7: all_reduce  grads of /fc1: communication failed: collective 41: no progress
//     for 300 seconds (--stall-timeout): another rank is gone or stopped
//
// It ends the process, and so the job.

#ifndef NNRT_CUDA_WATCH_H
#define NNRT_CUDA_WATCH_H

#include "device.h"
#include "ranks.h"

typedef struct Watch Watch;

// `errors` returns a code, having said why in text; the watching thread calls it.
int nnrt_watch_start(Watch **out, NnrtRank *r, int (*errors)(void *state, char *text, size_t size),
                     void *state);
void nnrt_watch_stop(Watch *w);
int nnrt_watch_op(Watch *w); // for nnrt_device_waits_in
int nnrt_watch_begin(Watch *w, int op, bool ahead, cudaStream_t stream);
int nnrt_watch_end(Watch *w, bool ahead, cudaStream_t stream);

#endif
