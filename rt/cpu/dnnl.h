// oneDNN's primitives for kernels, with their memory objects, created once; a run only sets
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
// All threads may use the engine and the primitives; streams and memory objects belong to one
// DnnlOp, and so to one rank.  Intermediate tensors and the scratchpads of primitives are in the
// rank's scratch.
//
// oneDNN starts a team for the smallest product, and a team costs more than the product as soon as
// other programs use the cores: its threads spin while they wait for one another.  So one thread
// creates and runs small primitives.

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
  bool small;  // run by one thread
  int threads; // the caller's OpenMP threads, restored by dnnl_op_end
  struct {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t exec[DNNL_OP_ARGS];
    DnnlArg arg[DNNL_OP_ARGS];
    int n;
  } step[DNNL_OP_STEPS];
  int n_steps;
  size_t temps;   // bytes of scratch for intermediate tensors, and after them
  size_t largest; // the largest scratchpad of a primitive
  bool failed;
} DnnlOp;

// Begins an op of `products` multiplications on tensors of `elements` elements.  Until dnnl_op_end
// it may change the number of threads of the caller's OpenMP.  NULL: failed.
DnnlOp *dnnl_op_new(const char *name, int64_t products, int64_t elements);
bool dnnl_op_ok(DnnlOp *op, dnnl_status_t status); // reports an error and returns false
dnnl_engine_t dnnl_op_engine(void);                // of the process

// With the given strides, or row-major; `any` lets the primitive choose.
dnnl_memory_desc_t dnnl_op_desc_typed(DnnlOp *op, dnnl_data_type_t type, int64_t ndim,
                                      const int64_t *dim, const int64_t *stride);
dnnl_memory_desc_t dnnl_op_desc(DnnlOp *op, dnnl_data_type_t type, int64_t ndim,
                                const int64_t *dim);
dnnl_memory_desc_t dnnl_op_desc_any(DnnlOp *op, dnnl_data_type_t type, int64_t ndim,
                                    const int64_t *dim);
void dnnl_desc_free(dnnl_memory_desc_t md);
dnnl_primitive_attr_t dnnl_op_attr(DnnlOp *op); // for all primitives; the caller destroys it

void dnnl_op_step(DnnlOp *op, dnnl_primitive_desc_t pd); // the caller destroys pd
void dnnl_op_arg(DnnlOp *op, int arg, const_dnnl_memory_desc_t md, int at);
size_t dnnl_op_temp(DnnlOp *op, const_dnnl_memory_desc_t md); // an intermediate tensor
void dnnl_op_arg_temp(DnnlOp *op, int arg, const_dnnl_memory_desc_t md, size_t temp);

NnrtPrep *dnnl_op_end(DnnlOp *op);
int dnnl_op_run(NnrtPrep *p, const void *const *address);

#endif
