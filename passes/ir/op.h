// The rows of ops.def as data, and the types of the functions they name.

#ifndef IR_OP_H
#define IR_OP_H

#include "ir/build.h"
#include "ir/dims.h"
#include "ir/graph.h"

// Bits of the traits column of ops.def, which explains them.
enum {
  ADDITIVE = 1,
  MULTILINEAR = 2,
  INPLACE = 4,
  VIEW = 8,
  COMM = 16,
  PREP = 32,
  GLOBAL_INDEX = 64, // of result 0: op_boxed
  STATES = 128,
  AMP_LOW = 256,
  AMP_F32 = 512,
  MULTI_TENSOR = 1024,
  ACCUMULATES = 2048,
  NARROWS = 4096,
  GLOBAL_INDEX_IN = 8192, // of operand 0
  OPTIMIZER = 16384,
  APPLIES_STEP = 32768,
  MOVES_ELEMENTS = 65536,
  ASYNC = 131072,
  FINITE = 262144,
};

// A compilation target: a row of targets.def.
typedef enum Target {
#define TARGET(name, pipeline, align, cluster, multi_tensor, gpu, eager_sends, async_comm,         \
               recorded, half)                                                                     \
  TARGET_##name,
#include "ir/targets.def"
  N_TARGETS
} Target;

// The facts about a target that passes use, as targets.def explains them; backend/target.h has the
// rest.
typedef struct TargetInfo {
  const char *name, *pipeline;
  int64_t align;
  const char *cluster;
  bool multi_tensor, gpu, eager_sends, async_comm, recorded, half;
} TargetInfo;

extern const TargetInfo target_info[N_TARGETS];
bool target_parse(const char *name, Target *out);
const char *target_names(Arena *a); // "cpu, cuda"

// Writes the einsum of one instance: see dims.h.
typedef bool RuleFn(const Op *op, Dims *dims, Diag *d);

// The gradient.  From the adjoints of the results (dout[i]; NULL for those that the loss does not
// depend on, but not for all), appends ops through `b` and sets the adjoints of the operands
// (din[i]; NULL: none).
typedef bool GradFn(Builder *b, Op *op, Value **dout, Value **din);

// A tensor of the reference evaluator.  Row-major and packed.
typedef struct Tensor {
  const Type *type;
  void *data;
} Tensor;

// The meaning of the op.  Computes `out` (allocated, zeroed) from `in`, element by element, in
// double for floating types and in int64 for integers, rounding once on store. `box` is the
// position of the local shard of op_boxed; NULL: `in` and `out` are global.
typedef struct Box {
  int64_t start[MAX_NDIM], whole[MAX_NDIM];
} Box;
typedef bool ReferenceFn(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d);

typedef struct OpInfo {
  const char *name;
  const char *dims;               // einsum, or "" if `rule` writes it
  const char *types;              // element types
  const char *attrs;              // "axis:i keep:b"
  const char *args;               // of the kernel, after results and operands
  const char *kernels[N_TARGETS]; // element types with a kernel, by target
  const char *formula; // of an elementwise op, as C over x, y, z and attributes a, b; else NULL
  RuleFn *rule;
  GradFn *grad;
  ReferenceFn *reference;
  int traits;
} OpInfo;

extern const OpInfo op_info[N_OPS];
bool op_has_callee(OpKind kind); // fused, multi_tensor, call and loop
bool op_kind_parse(const char *name, OpKind *out);

enum { MAX_ATTRS = 16 }; // of a row

// An attribute of a row; an op's `attrs` have the same order.
typedef struct AttrSpec {
  const char *name;
  char kind;
} AttrSpec;
const AttrSpec *op_attr_specs(OpKind kind, int *n);

// The result types according to the row, or the callee: types[n_out].
bool op_infer(const Op *op, const Type **types, Diag *d);
// The class of operand i in the row's types column ('F', 'S', …); 0 if the column names a type.
char op_operand_class(const Op *op, int i);
// The traits of the row, with three corrections: ADDITIVE holds for a cast to a wider floating
// type, which is exact, and not for a scale of integers, which rounds; MOVES_ELEMENTS does not hold
// for a pad with another number than zero.
int op_traits(const Op *op);
// Whether the result is a partial sum of the same kind if `n` operands are partial sums and the
// others are replicated; `last` is the last of the `n`.  An op that is linear in each operand is
// not so in its indices.
bool op_passes_sums(const Op *op, int n, int last);
bool op_linear_in(const Op *op, int i); // of a MULTILINEAR op
// Whether result 0 is a view of operand 0.
bool op_is_view(const Op *op);
// A reshape to the shape of its operand: a plan pins the layout of the result (lua_changes.c).
bool op_is_pin(const Op *op);
// op_optimizes: whether the op computes a new weight, or the step of it, from a gradient.
// op_gscale: the operand of such an op that multiplies every gradient.  The step count, if the op
// reads it, follows: op_counts_steps.
bool op_optimizes(const Op *op);
bool op_counts_steps(OpKind kind);
int op_gscale(const Op *op);
// The optimizer op that computes the next value of a weight, directly or through other ops; or
// NULL.
const Op *value_optimizer(const Value *next);
// Whether `v` depends on an op of this kind through ops of the update.  `seen`: a cache by op id of
// ops that do not.
bool value_leads_from(const Value *v, OpKind kind, bool *seen);
// Of `length`, the global length of the classes of a loss or of the rows of a table, those that are
// no padding: its attribute `classes` or `rows`.
int64_t op_unpadded(const Op *op, int64_t length);

// The value whose global index the kernel needs: result 0 of a GLOBAL_INDEX row, operand 0 of a
// GLOBAL_INDEX_IN row; else NULL.
const Value *op_boxed(const Op *op);
// Whether the op draws random numbers by the global index of each element of result 0; then it can
// be a piece, whose attributes `whole` and `start` give its place.
bool op_draws(OpKind kind);
// The blocks of q that an op with a number of `blocks` has here: of its shard, 1 on one of as many
// ranks.  0: the op has none.
int64_t attention_blocks(const Op *op);
// The number of keys that the first `to` queries of a causal attention see.  Together with these
// keys alone, any of the last of the queries have the same results: query i of t sees keys up to i
// + s - t, so the last query sees the last key.
int64_t attention_keys(const Op *op, int64_t to);
// The axes of the op's mesh that its attribute `axis` names, as in "dp" or "dp+tp".
bool op_axes(const Op *op, MeshAxes *out, Diag *d);
int op_time_axis(const Op *op); // the axis, if it is a single time axis; otherwise -1
// The distance, in elements, from an operand of `pack` of type `t` to the next one in the bucket.
int64_t pack_length(const Type *t);
// Whether the op is a cast to 16 bits that a batch runs in one launch with the op before it.
bool multi_tensor_narrows(const Op *op);
// Whether the value accumulates over the time slices, and is complete after the last: result 0 of
// an op of ACCUMULATES.
bool value_accumulates(const Value *v);
// Whether the op starts a copy to host memory or back, which a swap_wait completes.
bool op_starts_copy(const Op *op);
// Whether the op is the swap_wait of a sum over the time slices in host memory.  It runs in every
// slice, and its result is the sum, complete after the last.
bool op_waits_for_sum(const Op *op);
// Adds a note to an error: the location of an operand.
void op_note_operand(const Op *op, int i, Diag *d);

RuleFn from_row;
GradFn no_grad;              // no derivative: differentiating is an error that names the op
GradFn zero_grad;            // piecewise constant, or stops the gradient: zero gradient
ReferenceFn elementwise_ref; // the reference of rows with a formula

#define OP(name, dims, types, attrs, rule, grad, reference, args, cpu, cuda, traits)               \
  RuleFn rule;                                                                                     \
  GradFn grad;                                                                                     \
  ReferenceFn reference;
#include "ir/ops.def"
#undef OP

// Reading and writing elements of any type in the reference evaluator.
double tensor_f(const Tensor *t, int64_t i);
int64_t tensor_i(const Tensor *t, int64_t i);
void tensor_set_f(Tensor *t, int64_t i, double x); // rounds to the type; integers truncate
void tensor_set_i(Tensor *t, int64_t i, int64_t x);
Tensor tensor_new(Arena *a, const Type *type);
float half_to_float(uint16_t h);
uint16_t double_to_half(double x);
float bf16_to_float(uint16_t h);
uint16_t double_to_bf16(double x);
// The same for many, but finite numbers stay finite.
void floats_to_bf16(const float *x, int64_t n, uint16_t *out);

// Runs the reference of one op whose operands are given; allocates the results in `a`.
bool op_evaluate(const Op *op, const Tensor *in, Tensor *out, const Box *box, Arena *a, Diag *d);

#endif
