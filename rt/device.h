// The device that computes, as the rest of the runtime sees it.
//
// A program is compiled for one target, and linked with one of the two implementations:
//
//     cpu/device.c     the device is the CPU: the slab is ordinary host memory
//     cuda/device.c    a GPU: the slab is in its memory, and work is enqueued in a stream
//       cuda/step.c      recording and replaying, results of a step
//       cuda/check.c     checks that GPU, driver and libraries are present and new enough
//
// The slab's addresses are the device's.  The rest of the runtime never reads or writes there, but
// calls the device:
//
//     nnrt_device_put(r, nnrt_tensor_at(r, t), row, bytes);     rows, scalars, initial weights
//     nnrt_device_run(r, piece, run_piece);                     a piece of the step, some time later
//     nnrt_device_call(r, part->start);                         moves, for which others may wait
//     nnrt_device_ask(r, slot, outputs);                        the loss, when it gets there
//     …
//     nnrt_device_answer(r, slot, value);                       waits for it
//     weight = nnrt_device_read(r, nnrt_tensor_at(r, t), bytes);
//
// Weights and states may be in r->host instead, host memory that the device can access.  These
// calls take such an address too, and recognize it by nnrt_on_host.
//
// Puts, runs, calls and asks are executed in the order of the calls, as if each were complete when
// it returns.

#ifndef NNRT_DEVICE_H
#define NNRT_DEVICE_H

#include "comm.h"
#include "runtime.h"

typedef struct NnrtDevice NnrtDevice;

// ---- Per process.  `ranks_here` is the number of ranks on this machine.

// Whether nnaot has started this executable for another task than training; sets its exit status.
bool nnrt_device_special_run(const NnrtProgram *p, int *out_status);
// Finds the hardware and libraries of this process, and checks their versions.  Before ranks
// connect.
bool nnrt_device_find(const NnrtRun *run, Why *w);
// Whether the ranks' slabs fit into the memory that was free at nnrt_device_find.
bool nnrt_device_enough(const NnrtRun *run, int ranks_here, Why *w);
// The instruction sets of the CPU that kernels may use, as a set of bits: those of the processor,
// and not above NNRT_MAX_ISA; -1: kernels are a GPU's.  False: the variable is wrong.
bool nnrt_device_isa(int64_t *out_set, Why *w);
// Restricts kernels to these sets, a part of the former; before any kernel is prepared.
bool nnrt_device_use_isa(int64_t set, Why *w);
const char *nnrt_device_isa_name(int64_t set); // the highest of them: "avx2"
// Returns a note about flags that bring nothing with these sets, or NULL; the caller frees it.
char *nnrt_device_isa_note(int64_t set, const Flags *f);
// Adds the environment variables that change results of libraries: all ranks need the same.
void nnrt_device_variables(Terms *t);
// Writes members of the object of --describe, each with a comma before it.
void nnrt_device_describe(const NnrtProgram *p, const Flags *f, FILE *out);

// ---- Per rank.  It is opened when ranks can communicate, and ends the job on failure.

void nnrt_device_open(NnrtRank *r); // sets r->device, slab (zeroed), constant, op
// Waits for all enqueued work, ignoring errors; called before prepared kernels are freed.
void nnrt_device_finish(NnrtRank *r);
void nnrt_device_close(NnrtRank *r);

// Adds the properties of machine and libraries on which the rounding of this rank's kernels
// depends, and which ranks cannot choose; after nnrt_device_use_isa.
void nnrt_device_terms(const NnrtRank *r, Terms *t);

// Copies to the slab or r->host; the caller may reuse `from` when it returns.
void nnrt_device_put(NnrtRank *r, void *to, const void *from, int64_t bytes);
// Orders all puts before the next kernel, inside of a piece of a step; pieces begin with that.
void nnrt_device_flush(NnrtRank *r);
// Waits for all enqueued work, and returns memory that is valid until the next call.
const void *nnrt_device_read(NnrtRank *r, const void *from, int64_t bytes);

typedef struct Range {
  const char *at; // in the slab or r->host, at a multiple of 8
  int64_t bytes;
} Range;
// Waits for all enqueued work, and sets out[i] to the checksum of range i (word_sum.h).
void nnrt_device_checksums(NnrtRank *r, const Range *range, int n, uint64_t *out);

// Rounds `n` f32 of the slab or r->host to bf16 or f16, to another position in the slab.
void nnrt_device_narrow(NnrtRank *r, void *to, NnrtDtype type, const void *from, int64_t n);

// ---- Steps

// Returns the number of steps, 0 or 1, that may be in flight besides the one being enqueued, before
// the answer of the oldest is taken.
int nnrt_device_depth(const NnrtRank *r);
// Begins to enqueue a step of r->graph.  True: all its pieces must be recorded now, before any is
// run.
bool nnrt_device_begin(NnrtRank *r);
void nnrt_device_record(NnrtRank *r, int piece, void (*work)(NnrtRank *r));
void nnrt_device_recorded(NnrtRank *r); // collective
// Calls work(r), which calls kernels and collectives.  Each piece of a graph is the same work in
// every step, so a device may replay a recording without the call.
void nnrt_device_run(NnrtRank *r, int piece, void (*work)(NnrtRank *r));
// Calls work(r), which starts moves or waits for them; called in every step.
void nnrt_device_call(NnrtRank *r, void (*work)(NnrtRank *r));
enum { NNRT_SLOTS = 2, NNRT_ANSWERS = 16 };
// Requests element 0 of some tensors of the running graph, as of the end of all work started so
// far. NULL: none.
void nnrt_device_ask(NnrtRank *r, int slot, const NnrtTensor *const *outputs);
// Returns when the requested values are known, and so all work before is complete; ends the job if
// any of it failed.  False: bad data was found, so no result computed from it is valid.  `out_when`
// is the time at which they were known, or at which that was noticed, on nnrt_now_us's clock.
bool nnrt_device_answer(NnrtRank *r, int slot, double *out_value, double *out_when);
void nnrt_device_say_found(NnrtRank *r); // prints the bad data, its operation and step

// Returns the operation in which the device waits for other ranks, and adds the occurrence of it to
// nnrt_error's text; -1: it does not wait, or this is unknown.
int nnrt_device_waits_in(NnrtRank *r);

// ---- Time, for --trace: a mark is the current position in the stream of operations.

int64_t nnrt_device_mark(NnrtRank *r);
double nnrt_device_time(NnrtRank *r, int64_t mark); // on nnrt_now_us's clock, of a reached mark
void nnrt_device_forget_marks(NnrtRank *r);

// ---- The limits of the machine, measured with the threads of the rank, for --timings.

typedef struct NnrtPeak {
  double rate;  // flops or bytes a second; 0: unknown
  int64_t size; // of a product, the rows and columns of its matrices, 0: sums in registers;
                // of a copy, the bytes of both arrays
} NnrtPeak;
// Measures the best product of numbers of a type, f32, bf16 or f16, which are summed in f32.
NnrtPeak nnrt_device_peak(NnrtRank *r, NnrtDtype type);
enum { NNRT_COPIES = 16 };
// Measures the best copies of several sizes, in order; bytes are counted as read and as written.
// Returns their number; 0: unknown.
int nnrt_device_copies(NnrtRank *r, NnrtPeak out_copy[NNRT_COPIES]);

// Collectives belong to the device too: nnrt_all_reduce_f32 and the others of nnrt.h are functions
// that the macros of comm_calls.h define, over those of cpu/comm.c or cuda/collectives.c.

#endif
