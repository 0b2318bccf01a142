// oneDNN as the kernels use it: primitives with their memory objects, made once; a run only sets
// addresses.
//
//     DnnlOp *op = dnnl_op_new("linear", m * n * k, m * k + k * n + m * n);
//     dnnl_op_step(op, pd);                    a primitive; several run in this order
//     dnnl_op_arg(op, DNNL_ARG_SRC, x, 1);     an argument of it: address 1 of the run
//     …
//     return dnnl_op_end(op);                  NULL, having said why, if any of these failed
//
//     dnnl_op_run(p, (const void *[]){y, x, w});
//
// The engine and primitives may be used by all threads; streams and memory objects belong to one
// DnnlOp, and so to one rank.  Intermediate tensors and what primitives need while they run are in
// the rank's scratch.
//
// oneDNN starts a team for the smallest product, and a team costs more than the product as soon as
// other programs want the cores: its threads wait for one another by turning in circles.  So what
// is small is made and run by one thread.

#ifndef NNRT_DNNL_H
#define NNRT_DNNL_H

#include <dnnl.h>

#include "kernel.h"

enum { DNNL_OP_STEPS = 4, DNNL_OP_ARGS = 5 };

typedef struct DnnlArg {
  int at;        // address of the run, or -1:
  size_t offset; // in scratch
} DnnlArg;

typedef struct DnnlOp {
  NnrtPrep base;
  const char *name;
  dnnl_stream_t stream;
  bool small;  // one thread does it
  int threads; // while it is made: how many there were
  struct {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t exec[DNNL_OP_ARGS];
    DnnlArg arg[DNNL_OP_ARGS];
    int n;
  } step[DNNL_OP_STEPS];
  int n_steps;
  size_t temps;   // bytes of scratch for intermediate tensors, and after them
  size_t largest; // the most that one primitive needs for itself
  bool failed;
} DnnlOp;

// Begins one of so many multiplications on tensors of so many elements; until dnnl_op_end it says
// how many threads the caller's OpenMP has.  NULL: failed.
DnnlOp *dnnl_op_new(const char *name, int64_t products, int64_t elements);
bool dnnl_op_ok(DnnlOp *op, dnnl_status_t status); // false, having reported it, if it is an error
dnnl_engine_t dnnl_op_engine(void);                // of the process

// Row-major, or with the given strides; `any` lets the primitive choose.
dnnl_memory_desc_t dnnl_op_desc(DnnlOp *op, int64_t rank, const int64_t *dim);
dnnl_memory_desc_t dnnl_op_desc_strided(DnnlOp *op, int64_t rank, const int64_t *dim,
                                        const int64_t *stride);
dnnl_memory_desc_t dnnl_op_desc_any(DnnlOp *op, int64_t rank, const int64_t *dim);
void dnnl_desc_free(dnnl_memory_desc_t md);
dnnl_primitive_attr_t dnnl_op_attr(DnnlOp *op); // for all primitives; the caller destroys it

void dnnl_op_step(DnnlOp *op, dnnl_primitive_desc_t pd); // the caller destroys pd
void dnnl_op_arg(DnnlOp *op, int arg, const_dnnl_memory_desc_t md, int at);
size_t dnnl_op_temp(DnnlOp *op, const_dnnl_memory_desc_t md); // an intermediate tensor
void dnnl_op_arg_temp(DnnlOp *op, int arg, const_dnnl_memory_desc_t md, size_t temp);

NnrtPrep *dnnl_op_end(DnnlOp *op);
int dnnl_op_run(NnrtPrep *p, const void *const *address);

#endif
