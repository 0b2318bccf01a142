// The machine that computes, as the rest of the runtime knows it.
//
// A program is compiled for one target, and one of the two implementations is linked with it:
//
//     cpu/device.c     the device is this machine: the slab is memory like any other
//     cuda/device.c    a gpu: the slab is in its memory, and work is put in a stream and done later
//       cuda/step.c      recording and replaying, what a step reports
//       cuda/check.c     is there a gpu, a driver, the libraries, and are they new enough
//
// The slab's addresses are the device's.  The rest of the runtime never reads or writes there, but
// asks for it here:
//
//     nnrt_device_put(r, nnrt_tensor_at(r, t), row, bytes);     rows, scalars, initial weights
//     nnrt_device_run(r, piece, run_piece);                     a piece of the step, some time later
//     nnrt_device_call(r, part->start);                         moves, for which others may wait
//     nnrt_device_ask(r, slot, outputs);                        the loss, when it gets there
//     …
//     nnrt_device_answer(r, slot, value);                       waits for it
//     weight = nnrt_device_read(r, nnrt_tensor_at(r, t), bytes);
//
// Weights and states may be in r->host instead, which is memory of this machine that the device
// reaches: these calls take such an address, too, and know it by nnrt_on_host.
//
// Puts, runs, calls and asks are done in the order they were called in, as if each were done at
// once.

#ifndef NNRT_DEVICE_H
#define NNRT_DEVICE_H

#include "comm.h"
#include "runtime.h"

typedef struct NnrtDevice NnrtDevice;

// ---- A process's.  `ranks_here` is the ranks on this machine.

// Whether nnaot has started this executable, for something else than training; its exit status.
bool nnrt_device_errand(const NnrtProgram *p, int *out_status);
// Finds what this process computes with: is it there, and new enough?  Before ranks connect.
bool nnrt_device_find(const NnrtRun *run, Why *w);
// Whether the ranks' slabs fit into what was free then.
bool nnrt_device_enough(const NnrtRun *run, int ranks_here, Why *w);
// How many seconds ranks wait for each other before they give up: --stall-timeout, or what is usual
// here; infinite: for ever.
double nnrt_device_patience(const NnrtRun *run);
// Members of the object that --describe writes, each with a comma before it.
void nnrt_device_describe(const NnrtProgram *p, FILE *out);

// ---- A rank's.  It is opened when ranks can communicate, and ends the job if it cannot be.

void nnrt_device_open(NnrtRank *r); // r->device, slab (zeroed), constant, op
// Waits for what is under way, whatever comes of it; comes before prepared kernels are freed.
void nnrt_device_finish(NnrtRank *r);
void nnrt_device_close(NnrtRank *r);

// Copies to the slab or r->host; `from` is the caller's again when it returns.
void nnrt_device_put(NnrtRank *r, void *to, const void *from, int64_t bytes);
// Waits for all that was put in, and returns memory that may be read up to the next call.
const void *nnrt_device_read(NnrtRank *r, const void *from, int64_t bytes);

// Rounds `n` f32 of the slab or r->host to bf16 or f16, to another place in the slab.
void nnrt_device_narrow(NnrtRank *r, void *to, NnrtDtype type, const void *from, int64_t n);

// ---- Steps

// How many steps may be under way before the first of them is answered, besides the one that is put
// in: 0 or 1.
int nnrt_device_depth(const NnrtRank *r);
// A step of r->graph is put in.  True: all its pieces are to be recorded now, all before any is
// run.
bool nnrt_device_begin(NnrtRank *r);
void nnrt_device_record(NnrtRank *r, int piece, void (*work)(NnrtRank *r));
void nnrt_device_recorded(NnrtRank *r); // collective
// Calls work(r), which calls kernels and collectives.  Pieces of a graph are the same work every
// time, so a device may replay what it recorded without calling.
void nnrt_device_run(NnrtRank *r, int piece, void (*work)(NnrtRank *r));
// Calls work(r), which starts moves or waits for them; it is called every time.
void nnrt_device_call(NnrtRank *r, void (*work)(NnrtRank *r));
enum { NNRT_SLOTS = 2, NNRT_ANSWERS = 16 };
// Wants element 0 of some tensors of the running graph as they are when all that was started is
// done.  NULL: not this one.
void nnrt_device_ask(NnrtRank *r, int slot, const NnrtTensor *const *outputs);
// Returns when they are known and so all before is done; ends the job if anything of it failed.
// False: something wrong was found in the data, so nothing that was computed from it counts.
// `out_when` is when they were known, or when that was heard, on nnrt_now_us's clock.
bool nnrt_device_answer(NnrtRank *r, int slot, double *out_value, double *out_when);
void nnrt_device_say_found(NnrtRank *r); // what, in which operation and step

// The operation in which the device waits for other ranks, having added to nnrt_error's words which
// time that is; -1: it does not, or nobody knows.
int nnrt_device_waits_in(NnrtRank *r);

// ---- Time, for --trace: a mark is where the stream of operations is now.

int64_t nnrt_device_mark(NnrtRank *r);
double nnrt_device_time(NnrtRank *r, int64_t mark); // on nnrt_now_us's clock, of what is done
void nnrt_device_forget_marks(NnrtRank *r);

// Collectives are the device's, too: nnrt_all_reduce_f32 and the others of nnrt.h are in cpu/comm.c
// and cuda/collectives.c.

#endif
