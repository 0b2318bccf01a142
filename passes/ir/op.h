// The rows of ops.def as data, and the types of the functions they name.

#ifndef IR_OP_H
#define IR_OP_H

#include "ir/build.h"
#include "ir/dims.h"
#include "ir/graph.h"

// Bits of the last column of ops.def, which explains them.
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
};

// What a program is compiled for: the columns of ops.def that say which kernels there are.
typedef enum Target { TARGET_cpu, TARGET_cuda, N_TARGETS } Target;

// What passes know of a target; backend/target.h has the rest.
typedef struct TargetInfo {
  const char *name;     // "cpu"
  const char *pipeline; // that makes a training step for it: pipeline_named
  int64_t align;        // of values in memory, in bytes
  bool batches;         // has the kernels of trait MULTI_TENSOR
  const char *cluster;  // on which its ranks are assumed to run, where nobody says
} TargetInfo;

extern const TargetInfo target_info[N_TARGETS];
bool target_parse(const char *name, Target *out);
const char *target_names(Arena *a); // "cpu, cuda"

// Writes the einsum of one instance: see dims.h.
typedef bool RuleFn(const Op *op, Dims *dims, Diag *d);

// Given the adjoints of the results (dout[i], NULL where none flows), appends ops through `b` and
// sets the adjoints of the operands (din[i]; those left NULL get none).
typedef bool GradFn(Builder *b, Op *op, Value **dout, Value **din);

// A tensor of the reference evaluator.  Row-major and packed.
typedef struct Tensor {
  const Type *type;
  void *data;
} Tensor;

// The meaning of the op: computes `out` (allocated, zeroed) from `in`, element by element, in
// double for floating types and in int64 for integers, rounding once when it stores.
// `box` says where the local part of op_boxed lies; NULL: it is the whole.
typedef struct Box {
  int64_t start[MAX_RANK], whole[MAX_RANK];
} Box;
typedef bool ReferenceFn(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d);

typedef struct OpInfo {
  const char *name;
  const char *dims;               // einsum, or "" where `rule` writes it
  const char *types;              // element types
  const char *attrs;              // "axis:i keep:b"
  const char *args;               // of the kernel, after results and operands
  const char *kernels[N_TARGETS]; // element types a kernel exists for, by target
  const char *formula; // of an elementwise op, as C over x, y, z and attributes a, b; else NULL
  RuleFn *rule;
  GradFn *grad;
  ReferenceFn *reference;
  int traits;
} OpInfo;

extern const OpInfo op_info[N_OPS];
bool op_has_callee(OpKind kind); // fused, batch and call
bool op_kind_parse(const char *name, OpKind *out);

// One attribute that a row allows; an op's `attrs` stand in the same order.
typedef struct AttrSpec {
  const char *name;
  char kind;
} AttrSpec;
const AttrSpec *op_attr_specs(OpKind kind, int *n);

// The types that the row, or the callee, gives the results: types[n_out].
bool op_infer(const Op *op, const Type **types, Diag *d);
// What the row's types column says of operand i: a class ('F', 'S', …), or 0 where it names a type.
char op_operand_class(const Op *op, int i);
// The row's traits, but ADDITIVE for a cast to a wider floating type, which is exact, and not for a
// scale of integers, which rounds: the row cannot say so.
int op_traits(const Op *op);
// Whether what it makes is where its operand is.
bool op_is_view(const Op *op);
// Whether it makes a new weight, or the step towards that, of a gradient; of one that does, the
// operand that every gradient is multiplied by, behind which stands the number of the step, if it
// reads that.
bool op_optimizes(const Op *op);
int op_gscale(const Op *op);
// The op of that kind that makes what a weight is next, or something that becomes that; or NULL.
const Op *value_optimizer(const Value *next);
// Whether an op of the kind is among those of the update that `v` is made by.  `seen`, by op id:
// those that are known not to lead there.
bool value_leads_from(const Value *v, OpKind kind, bool *seen);
// The value whose global index the kernel needs: result 0 of a GLOBAL_INDEX row, operand 0 of a
// GLOBAL_INDEX_IN row; else NULL.
const Value *op_boxed(const Op *op);
// The axes of its mesh that its attribute `axis` names, as in "dp" or "dp+tp".
bool op_axes(const Op *op, MeshAxes *out, Diag *d);
int op_time_axis(const Op *op); // the only one, which is bound to time; -1 when it is not so
// How far apart, in elements, an operand of `pack` of type `t` and the next one lie in the bucket.
int64_t pack_length(const Type *t);
// Is it the cast to 16 bits that a batch makes in one launch with the op before it?
bool batch_narrows(const Op *op);
// Is it added up over the slices of time, and known after the last: result 0 of an op of
// ACCUMULATES?
bool value_accumulates(const Value *v);
// Says, after an error, where an operand comes from.
void op_note_operand(const Op *op, int i, Diag *d);

RuleFn from_row;
GradFn no_grad;          // has no derivative: asking for it is an error that names the op
GradFn zero_grad;        // is piecewise constant, or stops the gradient: nothing flows
ReferenceFn elementwise; // the reference of rows with a formula

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
uint16_t float_to_half(float x);
float bf16_to_float(uint16_t h);
uint16_t float_to_bf16(float x);

// Runs the reference of one op whose operands are given; allocates the results in `a`.
bool op_evaluate(const Op *op, const Tensor *in, Tensor *out, const Box *box, Arena *a, Diag *d);

#endif
