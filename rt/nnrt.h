// The runtime's interface to generated code: the only header a generated program includes, with
// nnrt_kernels.h (the kernels) and nnrt_math.h (elementwise formulas) behind it.
//
// A generated program is one NnrtProgram: tables that say which ranks there are and what its
// tensors are, and functions that run one step of one rank as a list of kernel calls on one slab of
// memory. main (main.c) reads the flags, starts the ranks, and for every step calls what comes
// before all slices of time, the parts of the loop over them in their order, and what comes after.
//
// Ranks are on meshes.  All may be on one, or stages of the model may have meshes of their own,
// which may share ranks.  A tensor is on one mesh: the other ranks have no part of it.
//
//     mesh m  ranks 0 1 2 3  (dp=4)      mesh s0  ranks 0 1  (dp=2)      mesh s1  ranks 2 3  (dp=2)
//
// The weights are not in the program's text: they are the payload, bytes appended to the executable
// and mapped when they are wanted.  The file ends in an NnrtTrailer that says where they begin.  A
// program that can be one rank only may have just that rank's parts of them.
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

enum { NNRT_MAX_RANK = 8, NNRT_MAX_AXES = 6 };

// clang-format off
typedef enum NnrtDtype {
  NNRT_f32, NNRT_f64, NNRT_f16, NNRT_bf16, NNRT_i8, NNRT_i16, NNRT_i32, NNRT_i64,
  NNRT_u8, NNRT_u16, NNRT_u32, NNRT_u64, NNRT_bool,
} NnrtDtype;
// clang-format on

typedef enum NnrtRole {
  NNRT_input,  // rows of data, copied in before the first segment of their slice
  NNRT_weight, // of the model; saved
  NNRT_state,  // optimizer state; in checkpoints only
  NNRT_copy,   // in 16 bits of the f32 weight of the same name, which is cut alike; nowhere saved
  NNRT_scalar, // "lr" f32, "step" i64 (updates done before), "seed" i64
  NNRT_output, // "loss", "grad_norm", …: read after `update`
} NnrtRole;

typedef enum NnrtInitKind {
  NNRT_from_payload, // bytes at `payload`, of the tensor's type, row-major
  NNRT_from_fill,    // every element is `a`
  NNRT_from_normal,  // mean a, deviation b, keyed by seed, name and logical element
  NNRT_from_uniform, // from a to b, likewise
} NnrtInitKind;

typedef struct NnrtRank NnrtRank;
typedef struct NnrtPrep NnrtPrep; // what a kernel prepares once: oneDNN primitives, scratch

typedef struct NnrtAxis {
  const char *name;
  int size;
  bool time; // slices one after the other: micro-batches; the same in all meshes that have it
} NnrtAxis;

// Ranks in an order, factored into axes.
typedef struct NnrtMesh {
  const char *name;
  int n_axes;
  NnrtAxis axis[NNRT_MAX_AXES];
  int n_ranks;     // product of the axes that are not time
  const int *rank; // [n_ranks], each once; row-major over the axes that are not time
} NnrtMesh;

// Ranks that meet in a collective: those of a mesh that differ only along these axes, which are
// together as if they were one.
typedef struct NnrtGroup {
  int mesh;
  int8_t axis[NNRT_MAX_AXES]; // their numbers, in order; -1 after the last
} NnrtGroup;

// A box of a tensor that one rank gives to another, or to itself.
typedef struct NnrtMessage {
  int from, to; // ranks
  int share;    // which of the shares of a sum it is; else 0
  int64_t size[NNRT_MAX_RANK];
  int64_t at_from[NNRT_MAX_RANK], at_to[NNRT_MAX_RANK]; // where it begins in the parts of both
} NnrtMessage;

// What carries a tensor from one mesh, or layout, to another.
typedef struct NnrtMove {
  int from, to;                                           // meshes
  int rank;                                               // dimensions of the tensor
  int64_t from_dim[NNRT_MAX_RANK], to_dim[NNRT_MAX_RANK]; // of the parts before and after
  bool sums;  // a receiver adds up what it gets, in the order of the messages, onto zeros
  bool ahead; // it starts in another segment than what reads it: a queue of its own has it
  int n;
  const NnrtMessage *message; // [n], in the order of receivers; those of one in that of shares
} NnrtMove;

// A tensor that the runtime feeds, keeps or reads.
typedef struct NnrtTensor {
  const char *name; // as users know it
  NnrtRole role;
  NnrtDtype dtype;
  int rank;
  int64_t dim[NNRT_MAX_RANK]; // of the whole tensor (of an input: of all micro-batches' rows)
  // For each dimension the axes that cut it, outermost first, -1 after the last.
  int8_t split[NNRT_MAX_RANK][NNRT_MAX_AXES];
  int mesh;       // that it is on, and has these axes
  int64_t offset; // of the local part, in the slab, in bytes
  bool host;      // of a weight or state: it is in memory of this machine, and `offset` is there
  // Of an input that is there for several slices at once: slice m is in the place of number m
  // modulo `slots`, each `stride` bytes behind the one before.  0: all slices have one place.
  int slots;
  int64_t stride;
  bool train;      // of a weight: an optimizer updates it
  bool unread;     // of an input: nothing reads it, and it need not be given
  bool every_step; // of an input: each step reads its whole file, and no dimension is rows
  bool owed;       // of an output: it is of the step before, until all that a step owes is settled
  // Its dimensions as users and files know them, if they are others: as many elements in the same
  // order.  A rank of 0: they are not.
  int known_rank;
  int64_t known_dim[NNRT_MAX_RANK];
  NnrtInitKind init;
  int64_t payload;   // offset in the payload; -1: the only rank of this program has no part of it
  bool payload_part; // what is there is the part of split_rank, not the whole tensor
  double a, b;
  int64_t init_seed; // of normal and uniform
} NnrtTensor;

// Where the bytes of a weight go in the model for --export.
typedef struct NnrtHole {
  const char *name;
  NnrtDtype dtype;        // of the file
  int64_t offset, length; // in the skeleton
} NnrtHole;

// A floating-point operand or result of an operation, for --check-values.
typedef struct NnrtValue {
  int op;     // of the graph's
  int number; // operands are 1, 2, …, results -1, -2, …
  NnrtDtype dtype;
  bool host; // as of a tensor, and so are offset, slots and stride
  int64_t count, offset;
  int slots;
  int64_t stride;
} NnrtValue;

// One graph the executable runs: @train or @eval.  What lasts from step to step is in one place: a
// weight, state or copy of eval has the name, shape and offset of one of train, and nothing else of
// eval lies on train's.
typedef struct NnrtGraph {
  const NnrtTensor *tensors;
  int n_tensors;
  const char *const *ops; // for errors and --trace: "linear  mlp.onnx:/fc1/MatMul"
  int n_ops;
  const NnrtValue *values; // [n_values], in the order of the operations
  int n_values;
} NnrtGraph;

// What a rank runs of one slice of time without waiting for others but before it.  One that only
// gets something, and so begins to wait for it, has no segment: `run` is NULL.
typedef struct NnrtTask {
  const char *name;           // "F0", "get %g1": for --trace
  void (*wait)(NnrtRank *r);  // until what moves bring is here; NULL: there are none
  void (*run)(NnrtRank *r);   // the segment
  void (*start)(NnrtRank *r); // of moves that go on meanwhile; NULL: of none
} NnrtTask;

// What a rank does in a step of a graph: `begin`, its parts for all slices of time, `update`.
//
//     part   F0, get g1, B0          order   0 0 0 1 2 0 1 2 0 1 2 1 2 1 2
//
// Every part is there for every slice: the first time it is of slice 0, then of slice 1, ….
typedef struct NnrtSchedule {
  void (*begin)(NnrtRank *r); // what is the same in all slices; NULL: nothing
  int n_parts;
  const NnrtTask *part;
  const int *order;            // [n_parts * slices]; NULL: all parts of slice 0, of slice 1, …
  void (*update)(NnrtRank *r); // what only depends on sums over slices; NULL: nothing
} NnrtSchedule;

// What ranks do that are on the same meshes.
typedef struct NnrtRankProgram {
  void (*init)(NnrtRank *r); // prepares kernels, into r->prep
  NnrtSchedule train, eval;  // all is NULL without an eval graph
  int64_t slab_bytes;
  int64_t host_bytes; // of values, weights and states in host memory
} NnrtRankProgram;

// An array of the program's text that kernels read.  The runtime puts it where they can.
typedef struct NnrtConstant {
  const void *at;
  int64_t bytes;
} NnrtConstant;

typedef struct NnrtProgram {
  const char *model, *plan, *target, *version;
  const char *describe; // JSON object with the rest of what --describe says
  const char *schedule; // when ranks run what, as the plan writes it; NULL: slice by slice
  const NnrtMesh *mesh; // [n_mesh], at least one: of one rank it has no axes
  int n_mesh;
  const NnrtGroup *group; // [n_groups], as collectives name them
  int n_groups;
  const NnrtMove *move; // [n_moves], as nnrt_move_… name them
  int n_moves;
  const NnrtRankProgram *code; // [n_codes]
  int n_codes;
  const int *code_of;    // [ranks]; NULL: all have the first
  int ranks;             // of all meshes together; they are 0, 1, …
  int micro_batches;     // slices of time
  int split_rank;        // of --split-ranks: 1 + the only rank that this executable can be; 0: any
  int64_t batch;         // rows a step reads
  NnrtGraph train, eval; // eval.n_tensors is 0 when there is none
  // What a step of train owes to the next one, which calls nnrt_settle where it is due: [n_owed],
  // of the one code that such a program has.
  void (*const *owed)(NnrtRank *r);
  int n_owed;
  int64_t payload_bytes;
  int n_prep;
  double lr;               // default of --lr
  const char *lr_schedule; // constant|linear|cosine[:warmup=…,min=…]
  int64_t seed;            // default of --seed
  // The model for --export: where its bytes but for the holes are in the payload, and how many
  // there are with them; 0: none.  The holes are in the order of the file.  A program that is only
  // a rank other than 0, which does not write, has the numbers but not the bytes.
  int64_t skeleton, skeleton_bytes;
  const NnrtHole *holes;
  int n_holes;
  const NnrtConstant *constants;
  int n_constants;
} NnrtProgram;

// One rank.  Generated code reads slab, prep, constant, coord and micro; the rest is the runtime's.
// The slab and the constants are in the memory of the device that computes (device.h).
struct NnrtRank {
  char *slab;
  char *host; // memory of this machine, for what is not kept in the slab; NULL: there is nothing
  NnrtPrep **prep;
  const void **constant; // [n_constants] of the program's, where kernels read them
  // Where it is on each mesh, all -1 on those that it is not on; but of an axis of time, the
  // current slice.
  int (*coord)[NNRT_MAX_AXES];
  int micro;   // the slice of time, from 0
  int piece;   // of the step, that is called (step.c)
  int settled; // of what the step before owes (nnrt_settle)
  int rank, ranks;
  int64_t step;
  int *op; // which of the graph's is called now; kernels of a gpu keep it with what they find
  const NnrtProgram *program;
  const NnrtRankProgram *code;
  const NnrtGraph *graph; // the one that runs
  struct NnrtDevice *device;
  struct NnrtComm *comm;
  struct NnrtTrace *trace;   // NULL unless --trace
  struct NnrtInUse *in_use;  // NULL unless --memory
  struct NnrtChecks *checks; // NULL unless --check-values
  struct NnrtRun *run;       // what main knows
  struct NnrtFed *fed;       // the batch of the graph that was put in last; NULL: none
};

// The last 32 bytes of an executable, little-endian.
typedef struct NnrtTrailer {
  char magic[8];         // NNRT_PAYLOAD_MAGIC, without its final 0
  int64_t offset, bytes; // of the payload in this file; the offset is a multiple of 4096
  int64_t plans;         // bytes that follow the payload: what libraries planned ahead of time
} NnrtTrailer;
#define NNRT_PAYLOAD_MAGIC "nnrtpay1"

extern const NnrtProgram nnrt_program; // in generated code; main itself is in start.c

int nnrt_main(int argc, char **argv, const NnrtProgram *p);

// Ends the job: prints rank, step, op `i` of the running graph, and what `code` means.
NNRT_NORETURN void nnrt_fail(NnrtRank *r, int i, int code);
// Does of what the step before owes the first `n` that are not done.
void nnrt_settle(NnrtRank *r, int n);
void nnrt_trace_begin(NnrtRank *r, int i);
void nnrt_trace_end(NnrtRank *r, int i);
void nnrt_in_use_op(NnrtRank *r, int i); // -1: what follows is none

// A kernel may say more than its code: kept per thread until nnrt_fail prints it.
int nnrt_error(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum { NNRT_OK, NNRT_INDEX, NNRT_LIBRARY, NNRT_COMM, NNRT_MEMORY, NNRT_UNSUPPORTED, NNRT_VALUE };
// The same of a label or an index that is not in least .. limit - 1: the label of which row, the
// index with which number, among those that the kernel reads.  NNRT_INDEX.
enum NnrtFound { FOUND_label, FOUND_index };
int nnrt_found(enum NnrtFound kind, long long value, long long place, long long least,
               long long limit);

// Before op `i` of the running graph, and after it with the code that it returned (run_op.c).
void nnrt_check_values(NnrtRank *r, int i); // ends the job if a result has a NaN
void nnrt_run_begin(NnrtRank *r, int i);
void nnrt_run_end(NnrtRank *r, int i, int code);
#define RUN(i, call) (nnrt_run_begin(r, i), nnrt_run_end(r, i, (call)))

// What `init` does for each kernel that is prepared; `i` is the first op that runs it.
#define PREPARE(p, i, call)                                                                        \
  do {                                                                                             \
    if (!((p) = (call))) nnrt_fail(r, i, NNRT_LIBRARY);                                            \
  } while (0)

// Sizes, strides and shapes as kernels take them.
#define LIST(...) ((const int64_t[]){__VA_ARGS__})

// Between the ranks (comm.c) of a group of the program's.  all_reduce only starts: it owns x and y
// until nnrt_wait(r, y), and backward goes on meanwhile; the others are done when they return. All
// ranks get the same bits: they add up in the group's order, except where NCCL adds up.  `dims` is
// the shape of x.
int nnrt_all_reduce_f32(float *y, const float *x, int64_t n, NnrtRank *r, int group);
int nnrt_all_reduce_i64(int64_t *y, const int64_t *x, int64_t n, NnrtRank *r, int group);
int nnrt_wait(NnrtRank *r, const void *y);

// To host memory and back, of `bytes` bytes.  What out copies must stay, and what in fills is not
// there, until they were waited for; `copy` is a number of its own of each that may be on its way.
int nnrt_swap_out(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes);
int nnrt_swap_out_wait(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes);
int nnrt_swap_in(NnrtRank *r, int copy, void *y, const void *host, int64_t bytes);
int nnrt_swap_in_wait(NnrtRank *r, int copy, void *y, const void *host, int64_t bytes);
int nnrt_reduce_scatter_f32(float *y, const float *x, int64_t rank, const int64_t *dims,
                            int64_t dim, NnrtRank *r, int group);
int nnrt_reduce_scatter_i64(int64_t *y, const int64_t *x, int64_t rank, const int64_t *dims,
                            int64_t dim, NnrtRank *r, int group);
#define NNRT_MOVE(name)                                                                            \
  int nnrt_##name(void *y, const void *x, int64_t rank, const int64_t *dims, int64_t dim,          \
                  NnrtRank *r, int group)
NNRT_MOVE(all_gather_b1);
NNRT_MOVE(all_gather_b2);
NNRT_MOVE(all_gather_b4);
NNRT_MOVE(all_gather_b8);
NNRT_MOVE(local_slice_b1);
NNRT_MOVE(local_slice_b2);
NNRT_MOVE(local_slice_b4);
NNRT_MOVE(local_slice_b8);
// Rank k gets slice k of dimension `to`, and gives its own, which follow along dimension `from`.
#define NNRT_ALL_TO_ALL(bytes)                                                                     \
  int nnrt_all_to_all_b##bytes(void *y, const void *x, int64_t rank, const int64_t *dims,          \
                               int64_t from, int64_t to, NnrtRank *r, int group)
NNRT_ALL_TO_ALL(1);
NNRT_ALL_TO_ALL(2);
NNRT_ALL_TO_ALL(4);
NNRT_ALL_TO_ALL(8);
// A move of the program's, of elements of so many bytes, or of a sum.  x is NULL on ranks that only
// get, y on ranks that only give; they do not overlap.  When it returns x may be overwritten, and y
// is there: what nobody gives to is zero in a sum, and else as it was.  Ranks that have neither a
// part before nor one after do not call it; the others call their moves and collectives in one
// order, and those moves that are ahead in one.
int nnrt_move_b1(void *y, const void *x, NnrtRank *r, int move);
int nnrt_move_b2(void *y, const void *x, NnrtRank *r, int move);
int nnrt_move_b4(void *y, const void *x, NnrtRank *r, int move);
int nnrt_move_b8(void *y, const void *x, NnrtRank *r, int move);
int nnrt_move_f32(float *y, const float *x, NnrtRank *r, int move);
int nnrt_move_i64(int64_t *y, const int64_t *x, NnrtRank *r, int move);
// The same in two: when `start` returns x may be overwritten, when `wait` does y is there.  Who
// only gives does not wait.  A move may be started several times before it is waited for: the first
// wait is for the first start.
#define NNRT_MOVE_APART(type, T)                                                                   \
  int nnrt_move_start_##type(T *y, const T *x, NnrtRank *r, int move);                             \
  int nnrt_move_wait_##type(T *y, NnrtRank *r, int move)
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
