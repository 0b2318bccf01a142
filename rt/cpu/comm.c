// Collectives of generated code on processors: jobs of the rank's queue (comm.h), and copies.

#include <stdlib.h>
#include <string.h>

#include "comm.h"

int nnrt_all_reduce_f32(float *y, const float *x, int64_t n, NnrtRank *r, int axis) {
  return nnrt_comm_start(r->comm, (Job){JOB_reduce, &r->comm->axis[axis], y, x, n, NNRT_f32, true});
}

int nnrt_all_reduce_i64(int64_t *y, const int64_t *x, int64_t n, NnrtRank *r, int axis) {
  return nnrt_comm_start(r->comm, (Job){JOB_reduce, &r->comm->axis[axis], y, x, n, NNRT_i64, true});
}

int nnrt_wait(NnrtRank *r, const void *y) {
  return nnrt_comm_wait(r->comm, y);
}

static int gather(void *y, const void *x, int64_t rank, const int64_t *dims, int64_t dim,
                  NnrtRank *r, int axis, int64_t size) {
  NnrtComm *c = r->comm;
  const Group *g = &c->axis[axis];
  int64_t outer = 1, bytes = size;
  for (int64_t d = 0; d < rank; d++) {
    if (d < dim) outer *= dims[d];
    bytes *= dims[d];
  }
  Job job = {JOB_gather, g, y, x, bytes, NNRT_u8, true};
  if (outer == 1 || g->n == 1) return nnrt_comm_do(c, job);
  // The parts come one after the other; in the result they alternate.
  char *parts = job.y = nnrt_must_alloc((size_t)(bytes * g->n));
  int code = nnrt_comm_do(c, job);
  int64_t run = bytes / outer;
  for (int64_t o = 0; o < outer; o++)
    for (int i = 0; i < g->n; i++)
      memcpy((char *)y + (o * g->n + i) * run, parts + i * bytes + o * run, (size_t)run);
  free(parts);
  return code;
}

static int slice(void *y, const void *x, int64_t rank, const int64_t *dims, int64_t dim,
                 NnrtRank *r, int axis, int64_t size) {
  int64_t outer = 1, run = size / 1;
  for (int64_t d = 0; d < rank; d++) {
    if (d < dim)
      outer *= dims[d];
    else
      run *= dims[d];
  }
  int64_t part = run / r->program->axis[axis].size;
  const char *from = (const char *)x + part * r->coord[axis];
  for (int64_t o = 0; o < outer; o++)
    memmove((char *)y + o * part, from + o * run, (size_t)part);
  return 0;
}

#define MOVE(name, function, bytes)                                                                \
  int nnrt_##name##_b##bytes(void *y, const void *x, int64_t rank, const int64_t *dims,            \
                             int64_t dim, NnrtRank *r, int axis) {                                 \
    return function(y, x, rank, dims, dim, r, axis, bytes);                                        \
  }
MOVE(all_gather, gather, 1)
MOVE(all_gather, gather, 2)
MOVE(all_gather, gather, 4)
MOVE(all_gather, gather, 8)
MOVE(local_slice, slice, 1)
MOVE(local_slice, slice, 2)
MOVE(local_slice, slice, 4)
MOVE(local_slice, slice, 8)
