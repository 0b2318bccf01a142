// How a runtime kernel is called: its name and the arguments after results and operands, out of
// the `cpu`, `cuda` and `args` columns of ops.def.  Kernels of one name are called alike on all
// targets; on a gpu pointers are to its memory, and a call only puts the work in the rank's stream.
//
//     %y = linear %x, %w trans=true : f32[4,8,32]      args "* k n trans"
//
//     nnrt_linear_f32   4*8=32, 16, 32, true
//
// The backend prints this as C, nnaot-eval passes it through libffi.  Results come first, then
// operands (or one array of them, kernel_variadic), then these; a PREP kernel gets these when it is
// prepared, by the name with `_prep_` before the type, and only results and operands when it runs.

#ifndef IR_KERNEL_H
#define IR_KERNEL_H

#include "ir/op.h"

enum { MAX_KERNEL_ARGS = 16 };

typedef struct KernelArg {
  enum {
    ARG_int,   // int64_t `i`
    ARG_float, // double `f`
    ARG_bool,  // bool, in `i`
    ARG_str,   // const char * `s`
    ARG_list,  // const int64_t * `list`, of `n`; NULL where that is 0, or the operand is absent
    ARG_box,   // two const int64_t *: the whole shape of op_boxed, and where the local part starts
    ARG_from,  // int64_t: where in the whole dimension `i` of op_boxed starts
    ARG_all,   // int64_t: how long that is in the whole
    ARG_ranks, // NnrtRank *r, int: the group of ranks that differ along `axes` only
  } kind;
  int64_t i;
  double f;
  const char *s;
  int n;
  const int64_t *list;
  MeshAxes axes;
} KernelArg;

// "nnrt_linear_f32", "nnrt_gather_b4"; with `prep`, "nnrt_linear_prep_f32".  False when there is
// no kernel for the op with these element types.
bool kernel_name(const Op *op, Target t, char *buf, size_t n);
bool kernel_prep_name(const Op *op, Target t, char *buf, size_t n); // of a PREP op

// Is there a kernel for elements of type `dtype`, those that tell the name?
bool kernel_exists(OpKind kind, Target t, DType dtype);

// Whether a move adds up shares of a sum, or leaves zeros where one is of nothing.
bool move_sums(const Op *move);

// Fills `args` in the order of the column and returns how many.  Lists live in `a` or in the op.
int kernel_args(const Op *op, KernelArg *args, int max, Arena *a);

// Operands come as one array `const T *const *in`: the row takes any number of them.
bool kernel_variadic(const Op *op);

#endif
