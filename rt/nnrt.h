// The runtime's interface to generated code: the only header that a generated program includes.  It
// includes nnrt_kernels.h (the kernels) and nnrt_math.h (elementwise formulas).
//
// A generated program is one NnrtProgram: tables of its ranks and tensors, and functions that run
// one step of one rank as a list of kernel calls on one slab of memory. main (main.c) reads the
// flags and starts the ranks.  For every step it calls the part before all slices of time, the
// parts of the loop over slices in their order, and the part after it.
//
// Ranks are on meshes.  All may be on one, or stages of the model may have meshes of their own,
// which may share ranks.  A tensor is on one mesh: the other ranks have no part of it.
//
//     mesh m  ranks 0 1 2 3  (dp=4)      mesh s0  ranks 0 1  (dp=2)      mesh s1  ranks 2 3  (dp=2)
//
// The weights are not in the program's text.  They are the payload, bytes appended to the
// executable and mapped on demand; the file ends in an NnrtTrailer (trailer.h).  A program for one
// rank only may have just that rank's shards of them.
//
// Kernels return 0 or a code (nnrt_error_text); generated code wraps each call in RUN, which names
// rank, step and op when it ends the job.  Sizes are in elements unless they end in _bytes.

#ifndef NNRT_H
#define NNRT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
#define NNRT_NORETURN [[noreturn]]
extern "C" {
#else
#define NNRT_NORETURN _Noreturn
#endif

enum { NNRT_MAX_NDIM = 8, NNRT_MAX_AXES = 6 };

// clang-format off
typedef enum NnrtDtype {
  NNRT_f32, NNRT_f64, NNRT_f16, NNRT_bf16, NNRT_i8, NNRT_i16, NNRT_i32, NNRT_i64,
  NNRT_u8, NNRT_u16, NNRT_u32, NNRT_u64, NNRT_bool,
} NnrtDtype;
// clang-format on

typedef enum NnrtRole {
  NNRT_input,  // samples, copied in before the first segment of their slice
  NNRT_weight, // of the model; saved
  NNRT_state,  // optimizer state; in checkpoints only
  NNRT_copy,   // a 16-bit copy of the f32 weight of the same name and sharding; never saved
  NNRT_scalar, // "lr" f32, "step" i64 (updates done before), "seed" i64
  NNRT_output, // "loss", "grad_norm", …: read after `update`
} NnrtRole;

typedef enum NnrtInitKind {
  NNRT_from_payload, // bytes at `payload`, of the tensor's type, row-major
  NNRT_from_fill,    // every element is `a`
  NNRT_from_normal,  // mean a, deviation b, keyed by seed, name and logical element
  NNRT_from_uniform, // from a to b, with the same key
} NnrtInitKind;

typedef struct NnrtRank NnrtRank;
typedef struct NnrtPrep NnrtPrep; // prepared once per kernel: oneDNN primitives, scratch

typedef struct NnrtAxis {
  const char *name;
  int size;
  bool time; // sequential slices: micro-batches; the same in all meshes that have it
} NnrtAxis;

// An ordered list of ranks, factored into axes.
typedef struct NnrtMesh {
  const char *name;
  int n_axes;
  NnrtAxis axis[NNRT_MAX_AXES];
  int n_ranks;     // product of the axes other than time
  const int *rank; // [n_ranks], each once; row-major over the axes other than time
} NnrtMesh;

// The ranks of a collective: the ranks of a mesh that differ only along these axes, which act as
// one axis.
typedef struct NnrtGroup {
  int mesh;
  int8_t axis[NNRT_MAX_AXES]; // their numbers, in order; -1 after the last
} NnrtGroup;

// A box of a tensor that one rank sends to another, or to itself.
typedef struct NnrtMessage {
  int from, to; // ranks
  int share;    // the number of its term of a partial sum; else 0
  int64_t size[NNRT_MAX_NDIM];
  int64_t at_from[NNRT_MAX_NDIM], at_to[NNRT_MAX_NDIM]; // start of the box in the parts of both
} NnrtMessage;

// A transfer of a tensor from one mesh, or layout, to another.
typedef struct NnrtMove {
  int from, to;                                           // meshes
  int ndim;                                               // dimensions of the tensor
  int64_t from_dim[NNRT_MAX_NDIM], to_dim[NNRT_MAX_NDIM]; // of the parts before and after
  bool sums;  // a receiver adds its messages, in their order, onto zeros
  bool ahead; // starts in another segment than its reader: uses the queue for moves
  int n;
  const NnrtMessage *message; // [n], by receiver; messages of one receiver by share
} NnrtMove;

// A tensor that the runtime feeds, keeps or reads.
typedef struct NnrtTensor {
  const char *name; // its name for users
  NnrtRole role;
  NnrtDtype dtype;
  int ndim;
  int64_t dim[NNRT_MAX_NDIM]; // of the whole tensor (of an input: of all micro-batches)
  // For each dimension the axes that split it, outermost first, -1 after the last.
  int8_t split[NNRT_MAX_NDIM][NNRT_MAX_AXES];
  int mesh;       // its mesh, to which the axes belong
  int64_t offset; // of the local shard, in the slab, in bytes
  bool host;      // of a weight or state: resident in host memory, at `offset` there
  // Of an input that is resident for several slices at once: slice m is in slot m modulo `slots`.
  // Slots are `stride` bytes apart.  0: all slices share one slot.
  int slots;
  int64_t stride;
  bool train;      // of a weight: an optimizer updates it
  bool unread;     // of an input: no op reads it, and it may be missing
  bool every_step; // of an input: each step reads its whole file, and no dimension is the batch
  bool deferred;   // of an output: of the previous step, until all deferred updates have run
  // Its dimensions for users and files, if they differ: the same elements in the same order, or, of
  // as many dimensions, fewer elements, with zeros after them.  A known_ndim of 0: they do not.
  int known_ndim;
  int64_t known_dim[NNRT_MAX_NDIM];
  NnrtInitKind init;
  int64_t payload;   // offset in the payload; -1: the only rank of this program has no part of it
  bool payload_part; // the payload holds the part of split_rank, not the whole tensor
  double a, b;
  int64_t init_seed; // of normal and uniform
} NnrtTensor;

// The range of a weight's bytes in the model, for --export.
typedef struct NnrtHole {
  const char *name;
  NnrtDtype dtype;        // of the file
  int64_t offset, length; // in the skeleton
} NnrtHole;

// A floating-point operand or result of an operation, for --check-values.
typedef struct NnrtValue {
  int op;     // index of the op in the graph
  int number; // operands are 1, 2, …, results -1, -2, …
  NnrtDtype dtype;
  bool host; // as in NnrtTensor, and so are offset, slots and stride
  int64_t count, offset;
  int slots;
  int64_t stride;
} NnrtValue;

// A value of train that stands for one of the model's program, as a rank has it: for
// --check-against.
typedef struct NnrtModelValue {
  int number;    // of that value
  int64_t terms; // of the longest sum in the operation that computes it there
  NnrtDtype dtype;
  int param;    // index of its tensor; -1: it is a result
  bool partial; // each rank or slice has a term of a sum
  int ndim;
  int64_t dim[NNRT_MAX_NDIM];  // of the whole
  int8_t split[NNRT_MAX_AXES]; // by axis of its mesh: the dimension that the axis splits; -1: none
  bool host;                   // as in NnrtTensor, and so are mesh, offset, slots and stride
  int mesh;
  int64_t offset;
  int slots;
  int64_t stride;
} NnrtModelValue;

// An operand of operation `op` of train, which is complete before it, or a result, after it.
typedef struct NnrtModelUse {
  int op;
  int of;     // the operation that names it: `op`, or the one whose result `op` waits for
  int number; // operands are 1, 2, …, results -1, -2, …
  int value;  // index in the table of values; negative: the operand is in none, and operation
              // -1 - value computes it
  bool late;  // a sum over slices of time: complete in the last
} NnrtModelUse;

// The model's program, before it was distributed.  Executables with equal fingerprints number its
// values in the same way.
typedef struct NnrtModelProgram {
  uint64_t fingerprint;
  int n_numbers;  // of its values
  int n_computed; // of these, results of operations, equal ones counted once
  const NnrtModelValue *value;
  int n_values;
  const NnrtModelUse *use; // [n_uses], in the order of the operations
  int n_uses;
} NnrtModelProgram;

// The work of a call of an operation, of one rank, as the compiler counts it (ir/analysis/work.h):
// every operand and result once, a multiply-add as two flops, and of lookups and experts the number
// that does not depend on data.
typedef struct NnrtWork {
  int64_t flops;  // of products
  int64_t bytes;  // read and written
  NnrtDtype type; // of the numbers that it multiplies: f32, bf16 or f16
} NnrtWork;

// One graph that the executable runs: @train or @eval.  The two share persistent state: a weight,
// state or copy of eval has the name, shape and offset of one of train.  No other value of eval
// overlaps the persistent state of train.
typedef struct NnrtGraph {
  const NnrtTensor *tensors;
  int n_tensors;
  const char *const *ops; // for errors and --trace: "linear  mlp.onnx:/fc1/MatMul"
  int n_ops;
  const NnrtWork *work;    // [n_ops] of train, for --timings; NULL: unknown
  const NnrtValue *values; // [n_values], in the order of the operations
  int n_values;
} NnrtGraph;

// A part of one slice of time that a rank runs without waiting for other ranks, except at its
// begin. A task that only starts to receive a value has no segment: `run` is NULL.
typedef struct NnrtTask {
  const char *name;           // "F0", "get %g1": for --trace
  void (*wait)(NnrtRank *r);  // waits for the data of moves; NULL: none
  void (*run)(NnrtRank *r);   // the segment
  void (*start)(NnrtRank *r); // starts moves that overlap later tasks; NULL: none
} NnrtTask;

// The tasks of a rank in a step of a graph: `begin`, its parts for all slices of time, `update`.
//
//     part   F0, get g1, B0          order   0 0 0 1 2 0 1 2 0 1 2 1 2 1 2
//
// Every part occurs once for every slice: the first time for slice 0, then for slice 1, ….
typedef struct NnrtSchedule {
  void (*begin)(NnrtRank *r); // ops that are the same in all slices; NULL: none
  int n_parts;
  const NnrtTask *part;
  const int *order;            // [n_parts * slices]; NULL: all parts of slice 0, of slice 1, …
  void (*update)(NnrtRank *r); // ops that depend only on sums over slices; NULL: none
} NnrtSchedule;

// The code of all ranks that are on the same meshes.
typedef struct NnrtRankProgram {
  void (*init)(NnrtRank *r); // prepares kernels, into r->prep
  NnrtSchedule train, eval;  // eval is all NULL without an eval graph
  int64_t slab_bytes;
  int64_t host_bytes; // of values, weights and states in host memory
} NnrtRankProgram;

// An array in the program's text that kernels read.  The runtime makes it accessible to them.
typedef struct NnrtConstant {
  const void *at;
  int64_t bytes;
} NnrtConstant;

// Fingerprints of the proof that nnaot made before the program was compiled; 0: there is none.
typedef struct NnrtProof {
  uint64_t model;   // the model's program, which the plan computes: of NnrtModelProgram
  uint64_t plan;    // the plan_hash of the program; 0 without a model's program
  uint64_t program; // the text up to the field .proof, and of kernels.cu: it runs the plan
} NnrtProof;

typedef struct NnrtProgram {
  const char *model, *plan, *target, *version;
  const char *describe; // JSON object with the compiler's part of --describe
  uint64_t plan_hash;   // of --summary: the ops of all ranks
  const char *schedule; // the plan's order of segments on each rank; NULL: slice by slice
  const NnrtMesh *mesh; // [n_mesh], at least one: of one rank it has no axes
  int n_mesh;
  const NnrtGroup *group; // [n_groups], indexed by collectives
  int n_groups;
  const NnrtMove *move; // [n_moves], indexed by nnrt_move_…
  int n_moves;
  const NnrtRankProgram *code; // [n_codes]
  int n_codes;
  const int *code_of;    // [ranks]; NULL: all ranks run the first
  int ranks;             // number of ranks 0, 1, … of all meshes together
  int micro_batches;     // slices of time
  int split_rank;        // of --split-ranks: 1 + the only rank that this executable can be; 0: any
  int64_t batch;         // samples per step
  NnrtGraph train, eval; // eval.n_tensors is 0 without an eval graph
  const NnrtModelProgram *model_program; // NULL: the plan is not proved
  // Functions that fill tables of repeated rows; NULL: there are none.
  void (*fill)(void);        // tensors, names of ops, holes: at the start
  void (*fill_checks)(void); // values, for --check-values and --check-against
  // The deferred updates of a step of train, which the next step runs by nnrt_flush_deferred before
  // their results are used: [n_deferred].  A program that has them has only one NnrtRankProgram.
  void (*const *deferred)(NnrtRank *r);
  int n_deferred;
  int64_t payload_bytes;
  int n_prep;
  double lr;               // default of --lr
  const char *lr_schedule; // constant|linear|cosine[:warmup=…,min=…]
  int64_t seed;            // default of --seed
  int per_node;            // ranks per host that collectives were routed for; 0: unknown
  // The model for --export: the payload offset of its bytes without the holes, and its size with
  // them; 0: none.  The holes are in the order of the file.  An executable for one rank other than
  // 0, which does not write, has the numbers but not the bytes.
  int64_t skeleton, skeleton_bytes;
  const NnrtHole *holes;
  int n_holes;
  const NnrtConstant *constants;
  int n_constants;
  NnrtProof proof;
} NnrtProgram;

// One rank.  Generated code reads slab, prep, constant, coord and micro; the rest is the runtime's.
// The slab and the constants are in the memory of the device that computes (device.h).
struct NnrtRank {
  char *slab;
  char *host; // host memory, for values that are not in the slab; NULL: none
  NnrtPrep **prep;
  const void **constant; // [n_constants] of the program, at addresses for kernels
  // Its coordinates on each mesh, all -1 on meshes without it; on an axis of time, the current
  // slice.
  int (*coord)[NNRT_MAX_AXES];
  int micro;   // the slice of time, from 0
  int piece;   // the current piece of the step (step.c)
  int flushed; // number of the previous step's deferred updates that have run (nnrt_flush_deferred)
  int rank, ranks;
  int64_t step;
  int *op; // index of the current op in the graph; GPU kernels store it with the errors they find
  const NnrtProgram *program;
  const NnrtRankProgram *code;
  const NnrtGraph *graph; // the running graph
  struct NnrtDevice *device;
  struct NnrtComm *comm;
  struct NnrtTrace *trace;     // NULL unless --trace
  struct NnrtInUse *in_use;    // NULL unless --memory
  struct NnrtChecks *checks;   // NULL unless --check-values
  struct NnrtAgainst *against; // NULL unless --check-against, or the reference of such a run
  struct NnrtRun *run;         // the settings of the process
  struct NnrtFed *fed;         // the batch of the graph that was enqueued last; NULL: none
};

extern const NnrtProgram nnrt_program; // in generated code; main itself is in start.c

int nnrt_main(int argc, char **argv, const NnrtProgram *p);

// Ends the job: prints rank, step, op `i` of the running graph, and the meaning of `code`.
NNRT_NORETURN void nnrt_fail(NnrtRank *r, int i, int code);
// Runs those of the first `n` deferred updates of the previous step that have not run yet.
void nnrt_flush_deferred(NnrtRank *r, int n);
void nnrt_trace_begin(NnrtRank *r, int i);
void nnrt_trace_end(NnrtRank *r, int i);
void nnrt_in_use_op(NnrtRank *r, int i); // -1: between ops

// Sets a kernel's message beside its code: kept per thread until nnrt_fail prints it.
int nnrt_error(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum {
  NNRT_OK,
  NNRT_INDEX,
  NNRT_LIBRARY,
  NNRT_COMM,
  NNRT_MEMORY,
  NNRT_UNSUPPORTED,
  NNRT_VALUE,
  NNRT_CAPACITY
};
// The same for a label or an index outside of least .. limit - 1, with the row of the label, or the
// number of the index, among those that the kernel reads: returns NNRT_INDEX.  More rows of a part
// of the experts, or elements of a row, than the step has memory for are NNRT_CAPACITY.
enum NnrtFound { FOUND_label, FOUND_index, FOUND_length, FOUND_count, FOUND_capacity };
int nnrt_found(enum NnrtFound kind, long long value, long long place, long long least,
               long long limit);

// Called before op `i` of the running graph, and after it with the code that it returned
// (run_op.c).
void nnrt_check_values(NnrtRank *r, int op); // ends the job if a result has a NaN
void nnrt_against_before(NnrtRank *r, int op);
void nnrt_against_after(NnrtRank *r, int op);
void nnrt_run_begin(NnrtRank *r, int i);
void nnrt_run_end(NnrtRank *r, int i, int code);
#define RUN(i, call) (nnrt_run_begin(r, i), nnrt_run_end(r, i, (call)))

// Prepares a kernel, in `init`; `i` is the first op that runs it.
#define PREPARE(p, i, call)                                                                        \
  do {                                                                                             \
    if (!((p) = (call))) nnrt_fail(r, i, NNRT_LIBRARY);                                            \
  } while (0)

// A function that fills tables once: long, and not worth the time of optimising it.
#if defined __clang__
#define NNRT_ONCE __attribute__((optnone, noinline))
#elif defined __GNUC__
#define NNRT_ONCE __attribute__((optimize("O0")))
#else
#define NNRT_ONCE
#endif

// "h.12.ln" of "h.%d.ln" and 12, for the caller to free; "%%" is a percent sign.
char *nnrt_name(const char *format, const int64_t *numbers);

// Numbers of a loop over equal calls or rows that do not grow evenly over all iterations: from
// iteration `from` on, number `column` is `value`, and grows by `step` per iteration.
typedef struct NnrtSpan {
  int64_t from, column, value, step;
} NnrtSpan;

// Computes the n numbers of iteration `i`, at[0] to at[n - 1], from those of the iteration before
// it; at[n] to at[2 * n - 1] are their steps.  All are 0 before the first iteration.  `spans` are
// in the order of `from`; the last begins after the loop.  `next` is the first span that has not
// begun; returns that of the next iteration.
static inline int64_t nnrt_row(const NnrtSpan *spans, int64_t next, int64_t i, int64_t *at, int n) {
  for (int k = 0; k < n; k++)
    at[k] += at[n + k];
  for (; spans[next].from == i; next++) {
    at[spans[next].column] = spans[next].value;
    at[n + spans[next].column] = spans[next].step;
  }
  return next;
}

// Arrays of sizes, strides and shapes for kernels.
#define LIST(...) ((const int64_t[]){__VA_ARGS__})

// Collectives between the ranks of a group of the program (cpu/comm.c, cuda/collectives.c, by the
// macros of comm_calls.h), one function for each row of
// collectives.def and element type of a sum or element size:
//
//     int nnrt_all_reduce_f32(float *y, const float *x, int64_t n, NnrtRank *r, int group);
//     int nnrt_all_gather_b4(void *y, const void *x, int64_t ndim, const int64_t *dims, int64_t dim,
//                            NnrtRank *r, int group);
//
// `dims` is the shape of x; `dim` the dimension along which x was split, or y is.  In an all_to_all
// rank k gets slice k of dimension `to` and sends its own; received slices are concatenated along
// dimension `from`.
//
// They only start: the collective owns x and y until nnrt_wait(r, y), and the rank continues
// meanwhile. On GPUs all but all_reduce are complete before the next kernel.  All ranks get the
// same bits: additions are in the group's order, except with NCCL.
#define NNRT_SHAPE_none_none int64_t n
#define NNRT_SHAPE_dim_none  int64_t ndim, const int64_t *dims, int64_t dim
#define NNRT_SHAPE_none_dim  int64_t ndim, const int64_t *dims, int64_t dim
#define NNRT_SHAPE_from_to   int64_t ndim, const int64_t *dims, int64_t from, int64_t to
#define NNRT_COLLECTIVE(name, T, from_dim, to_dim)                                                 \
  int nnrt_##name(T *y, const T *x, NNRT_SHAPE_##from_dim##_##to_dim, NnrtRank *r, int group);
#define NNRT_COLLECTIVE_P(op, from_dim, to_dim)                                                    \
  NNRT_COLLECTIVE(op##_f32, float, from_dim, to_dim)                                               \
  NNRT_COLLECTIVE(op##_i64, int64_t, from_dim, to_dim)
#define NNRT_COLLECTIVE_S(op, from_dim, to_dim)                                                    \
  NNRT_COLLECTIVE(op##_b1, void, from_dim, to_dim)                                                 \
  NNRT_COLLECTIVE(op##_b2, void, from_dim, to_dim)                                                 \
  NNRT_COLLECTIVE(op##_b4, void, from_dim, to_dim)                                                 \
  NNRT_COLLECTIVE(op##_b8, void, from_dim, to_dim)
#define NNRT_COLLECTIVE_B NNRT_COLLECTIVE_S
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl)                                           \
  NNRT_COLLECTIVE_##from(op, from_dim, to_dim)
#include "collectives.def"
// The rank's slice along `dim`; nothing is sent.
NNRT_COLLECTIVE_B(local_slice, none, dim)
int nnrt_wait(NnrtRank *r, const void *y);

// Copies of `bytes` bytes to host memory and back.  Until the wait, the source of an out copy must
// not change, and the target of an in copy is undefined.  `copy` is a number that no other copy in
// flight has.
int nnrt_swap_out(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes);
int nnrt_swap_out_wait(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes);
// Adds f32 to the sum in host memory; the first micro-batch of a step copies them there.
int nnrt_swap_out_accumulate(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes);
int nnrt_swap_out_accumulate_wait(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes);
int nnrt_swap_in(NnrtRank *r, int copy, void *y, const void *host, int64_t bytes);
int nnrt_swap_in_wait(NnrtRank *r, int copy, void *y, const void *host, int64_t bytes);
// A move of the program, of elements of this width, or of a sum.  x is NULL on ranks that only
// receive, y on ranks that only send; they do not overlap.  When it returns x may be overwritten,
// and y is complete: elements without a sender are zero in a sum, else unchanged.  Ranks with a
// part neither before nor after do not call it.  The other ranks call their moves and collectives
// in one order, and the moves that are ahead in one order among themselves.
int nnrt_move_b1(void *y, const void *x, NnrtRank *r, int number);
int nnrt_move_b2(void *y, const void *x, NnrtRank *r, int number);
int nnrt_move_b4(void *y, const void *x, NnrtRank *r, int number);
int nnrt_move_b8(void *y, const void *x, NnrtRank *r, int number);
int nnrt_move_f32(float *y, const float *x, NnrtRank *r, int number);
int nnrt_move_i64(int64_t *y, const int64_t *x, NnrtRank *r, int number);
// The same in two calls: when `start` returns x may be overwritten, when `wait` returns y is
// complete. Ranks that only send do not wait.  A move may be started several times before it is
// waited for: the first wait is for the first start.
#define NNRT_MOVE_APART(type, T)                                                                   \
  int nnrt_move_start_##type(T *y, const T *x, NnrtRank *r, int number);                           \
  int nnrt_move_wait_##type(T *y, NnrtRank *r, int number)
NNRT_MOVE_APART(b1, void);
NNRT_MOVE_APART(b2, void);
NNRT_MOVE_APART(b4, void);
NNRT_MOVE_APART(b8, void);
NNRT_MOVE_APART(f32, float);
NNRT_MOVE_APART(i64, int64_t);

#include "nnrt_kernels.h"

#ifdef __cplusplus
}
#endif

#include "nnrt_math.h"

#endif
