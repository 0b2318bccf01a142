// The call of a runtime kernel: its name and the arguments after results and operands, from the
// `cpu`, `cuda` and `args` columns of ops.def.  Kernels of one name have the same signature on all
// targets.  On a GPU pointers are to its memory, and a call only enqueues the work on the rank's
// stream.
//
//     %y = linear %x, %w trans=true : f32[4,8,32]      args "* k n trans"
//
//     nnrt_linear_f32   4*8=32, 16, 32, true
//
// The backend prints this as C, nnaot-eval passes it through libffi.  The order is results,
// operands (or one array of them, kernel_variadic), then these arguments.  A PREP kernel gets these
// when it is prepared, by the name with `_prep_` before the type, and only results and operands
// when it runs.

#ifndef IR_KERNEL_H
#define IR_KERNEL_H

#include "ir/op.h"

// MAX_KERNEL_PARAMS limits all parameters of a kernel: results, operands and arguments.  A row with
// more takes its attributes as a struct.
enum { MAX_KERNEL_ARGS = 16, MAX_KERNEL_PARAMS = 12 };

typedef struct KernelArg {
  enum {
    ARG_int,   // int64_t `i`
    ARG_float, // double `f`
    ARG_bool,  // bool, in `i`
    ARG_str,   // const char * `s`
    ARG_list,  // const int64_t * `list`, of `n`; NULL if `n` is 0 or the operand is absent
    ARG_box,  // two const int64_t *: the global shape of op_boxed, and the start of the local shard
    ARG_from, // int64_t: the start of the local shard along dimension `i` of op_boxed
    ARG_all,  // int64_t: the global length of that dimension, without padding: op_unpadded
    ARG_ranks,  // NnrtRank *r, int: the group of ranks that differ along `axes` only
    ARG_struct, // const S *, with S the type `s`: attributes, as its `n` fields
  } kind;
  int64_t i;
  double f;
  const char *s;
  int n;
  const int64_t *list;
  MeshAxes axes;
  const struct KernelArg *field;
  const char *name; // of a field
} KernelArg;

// "nnrt_linear_f32", "nnrt_gather_b4"; with `prep`, "nnrt_linear_prep_f32".  False when there is
// no kernel for the op with these element types.
bool kernel_name(const Op *op, Target t, char *buf, size_t n);
bool kernel_prep_name(const Op *op, Target t, char *buf, size_t n); // for PREP ops

// The value whose element type is in the name of the op's kernel.
const Value *kernel_telling(const Op *op);

// Whether there is a kernel named after element type `dtype`.
bool kernel_exists(OpKind kind, Target t, DType dtype);

// Whether a move has a partial sum as its operand or result: it adds shares, or leaves zeros in
// shares without a source.
bool move_sums(const Op *move);

// Fills `args` in the order of the column and returns their number.  Lists live in `a` or in the
// op.
int kernel_args(const Op *op, KernelArg *args, int max, Arena *a);

// Returns the bytes of an ARG_struct as C lays them out.
const void *kernel_struct(const KernelArg *arg, Arena *a);

// Whether operands are passed as one array `const T *const *in`: the row takes any number of them.
bool kernel_variadic(const Op *op);

#endif
