// Primitives of oneDNN, prepared and run: see dnnl.h.

#include "dnnl.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine;

static void make_engine(void) {
  if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

dnnl_engine_t dnnl_op_engine(void) {
  pthread_once(&once, make_engine);
  return engine;
}

static const char *status_text(dnnl_status_t status) {
  switch (status) {
  case dnnl_success: return "success";
  case dnnl_out_of_memory: return "out of memory";
  case dnnl_invalid_arguments: return "invalid arguments";
  case dnnl_unimplemented: return "not supported by oneDNN on this machine";
  case dnnl_last_impl_reached: return "no implementation left";
  case dnnl_runtime_error: return "runtime error";
  case dnnl_not_required: return "not required";
  case dnnl_invalid_graph: return "invalid graph";
  case dnnl_invalid_graph_op: return "invalid operation";
  case dnnl_invalid_shape: return "invalid shape";
  case dnnl_invalid_data_type: return "invalid data type";
  }
  return "unknown error";
}

bool dnnl_op_ok(DnnlOp *op, dnnl_status_t status) {
  if (status == dnnl_success) return true;
  // The first error is the cause of the others.
  if (!op->failed) nnrt_error(NNRT_LIBRARY, "%s: oneDNN: %s", op->name, status_text(status));
  op->failed = true;
  return false;
}

static void op_free(NnrtPrep *p) {
  DnnlOp *op = (DnnlOp *)p;
  for (int i = 0; i < op->n_steps; i++) {
    // The engine is the process's, and stays.
    dnnl_primitive_destroy(op->step[i].primitive);
    for (int j = 0; j < op->step[i].n; j++)
      dnnl_memory_destroy(op->step[i].exec[j].memory);
  }
  dnnl_stream_destroy(op->stream);
  free(op);
}

DnnlOp *dnnl_op_new(const char *name, int64_t products, int64_t elements) {
  if (!kernel_memory_left(name)) return NULL;
  DnnlOp *op = calloc(1, sizeof *op);
  if (!op || !dnnl_op_engine()) {
    nnrt_error(NNRT_LIBRARY, "%s: oneDNN has no engine for this processor", name);
    free(op);
    return NULL;
  }
  op->base.free = op_free;
  op->name = name;
  op->small = kernel_small(products, elements);
  // oneDNN divides a primitive by the number of threads at its creation.
  op->threads = omp_get_max_threads();
  if (op->small) omp_set_num_threads(1);
  dnnl_op_ok(op, dnnl_stream_create(&op->stream, engine, dnnl_stream_default_flags));
  return op;
}

dnnl_memory_desc_t dnnl_op_desc_typed(DnnlOp *op, dnnl_data_type_t type, int64_t ndim,
                                      const int64_t *dim, const int64_t *stride) {
  dnnl_dims_t dims, strides;
  dnnl_memory_desc_t md = NULL;
  // oneDNN's arrays have a fixed length.
  for (int64_t i = 0; i < ndim; i++) {
    dims[i] = dim[i];
    strides[i] = stride[i];
  }
  dnnl_op_ok(op, dnnl_memory_desc_create_with_strides(&md, (int)ndim, dims, type, strides));
  return md;
}

dnnl_memory_desc_t dnnl_op_desc(DnnlOp *op, dnnl_data_type_t type, int64_t ndim,
                                const int64_t *dim) {
  int64_t stride[DNNL_MAX_NDIMS], n = 1;
  for (int64_t i = ndim - 1; i >= 0; i--) {
    stride[i] = n;
    n *= dim[i];
  }
  return dnnl_op_desc_typed(op, type, ndim, dim, stride);
}

dnnl_memory_desc_t dnnl_op_desc_any(DnnlOp *op, dnnl_data_type_t type, int64_t ndim,
                                    const int64_t *dim) {
  dnnl_dims_t dims;
  dnnl_memory_desc_t md = NULL;
  for (int64_t i = 0; i < ndim; i++)
    dims[i] = dim[i];
  dnnl_op_ok(op, dnnl_memory_desc_create_with_tag(&md, (int)ndim, dims, type, dnnl_format_tag_any));
  return md;
}

void dnnl_desc_free(dnnl_memory_desc_t md) {
  if (md) dnnl_memory_desc_destroy(md);
}

dnnl_primitive_attr_t dnnl_op_attr(DnnlOp *op) {
  dnnl_primitive_attr_t attr = NULL;
  // Scratchpads come from the rank's scratch; no TF32 or bf16 in place of f32.
  if (dnnl_op_ok(op, dnnl_primitive_attr_create(&attr)) &&
      dnnl_op_ok(op, dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user)))
    dnnl_op_ok(op, dnnl_primitive_attr_set_fpmath_mode(attr, dnnl_fpmath_mode_strict));
  return attr;
}

static void add_arg(DnnlOp *op, int arg, const_dnnl_memory_desc_t md, DnnlArg where) {
  if (op->failed) return;
  int i = op->n_steps - 1, j = op->step[i].n;
  // Without an address: each run sets its own.
  dnnl_memory_t memory = NULL;
  if (!dnnl_op_ok(op, dnnl_memory_create(&memory, md, engine, DNNL_MEMORY_NONE))) return;
  op->step[i].exec[j] = (dnnl_exec_arg_t){arg, memory};
  op->step[i].arg[j] = where;
  op->step[i].n = j + 1;
}

void dnnl_op_arg(DnnlOp *op, int arg, const_dnnl_memory_desc_t md, int at) {
  add_arg(op, arg, md, (DnnlArg){.at = at});
}

void dnnl_op_arg_temp(DnnlOp *op, int arg, const_dnnl_memory_desc_t md, size_t temp) {
  add_arg(op, arg, md, (DnnlArg){.at = -1, .offset = temp});
}

size_t dnnl_op_temp(DnnlOp *op, const_dnnl_memory_desc_t md) {
  size_t at = op->temps;
  op->temps += round_64(dnnl_memory_desc_get_size(md));
  return at;
}

void dnnl_op_step(DnnlOp *op, dnnl_primitive_desc_t pd) {
  if (op->failed) return;
  dnnl_primitive_t primitive = NULL;
  if (!dnnl_op_ok(op, dnnl_primitive_create(&primitive, pd))) return;
  op->step[op->n_steps++].primitive = primitive;
  const_dnnl_memory_desc_t pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
  size_t bytes = dnnl_memory_desc_get_size(pad);
  if (!bytes) return;
  // The offset is known after all intermediate tensors: see dnnl_op_end.
  add_arg(op, DNNL_ARG_SCRATCHPAD, pad, (DnnlArg){.at = -1});
  if (bytes > op->largest) op->largest = bytes;
}

NnrtPrep *dnnl_op_end(DnnlOp *op) {
  omp_set_num_threads(op->threads);
  if (op->failed) {
    op_free(&op->base);
    return NULL;
  }
  // Primitives run one after the other, so their scratchpads share memory.
  for (int i = 0; i < op->n_steps; i++)
    for (int j = 0; j < op->step[i].n; j++)
      if (op->step[i].exec[j].arg == DNNL_ARG_SCRATCHPAD) op->step[i].arg[j].offset = op->temps;
  return &op->base;
}

static int run_steps(DnnlOp *op, const void *const *address) {
  size_t bytes = op->temps + op->largest;
  char *temps = bytes ? kernel_scratch(bytes) : NULL;
  if (bytes && !temps) return scratch_failed(bytes);
  for (int i = 0; i < op->n_steps; i++) {
    for (int j = 0; j < op->step[i].n; j++) {
      // An address is one of this run, or an offset in scratch.
      DnnlArg a = op->step[i].arg[j];
      void *at;
      if (a.at < 0)
        at = temps + a.offset;
      else
        memcpy(&at, &address[a.at], sizeof at); // without const; operands are not written
      dnnl_memory_set_data_handle(op->step[i].exec[j].memory, at);
    }
    if (!dnnl_op_ok(op, dnnl_primitive_execute(op->step[i].primitive, op->stream, op->step[i].n,
                                               op->step[i].exec)))
      return NNRT_LIBRARY;
  }
  return dnnl_op_ok(op, dnnl_stream_wait(op->stream)) ? NNRT_OK : NNRT_LIBRARY;
}

int dnnl_op_run(NnrtPrep *p, const void *const *address) {
  DnnlOp *op = (DnnlOp *)p;
  if (!op->small) return run_steps(op, address);
  // Only this call is small; the rank's other kernels keep their threads.
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  int code = run_steps(op, address);
  omp_set_num_threads(threads);
  return code;
}
