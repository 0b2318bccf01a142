// Reductions over any axes.
//
// The axes are first merged: neighbours that are both kept or both reduced become one, and axes of
// length 1 are dropped, so that most reductions become one of
//
//     (kept, reduced)          sums of rows: each row is a run of memory
//     (reduced, kept)          sums of columns: vectors go across a tile of columns
//
// and the others are these within loops over further kept and reduced axes.  Sums of floats are
// accumulated in double: the kernel is bound by memory bandwidth anyway.

#include "kernel.h"

enum {
  TILE = 2048, // columns that are accumulated at once
  LANES = 32,  // independent partial sums of a run: enough to hide the latency of one operation
};

// x as groups of axes, alternately kept and reduced, outermost first.
typedef struct Groups {
  int n;
  int64_t size[NNRT_MAX_NDIM], stride[NNRT_MAX_NDIM]; // stride in elements of x
  bool reduced[NNRT_MAX_NDIM];
} Groups;

static Groups groups_of(int64_t ndim, const int64_t *shape, int64_t n_axes, const int64_t *axes) {
  Groups g = {0};
  bool reduced[NNRT_MAX_NDIM] = {0};
  for (int64_t i = 0; i < n_axes; i++)
    reduced[axes[i]] = true;
  // Merges neighbours of one kind.
  for (int64_t d = 0; d < ndim; d++) {
    if (shape[d] == 1) continue;
    if (g.n && g.reduced[g.n - 1] == reduced[d]) {
      g.size[g.n - 1] *= shape[d];
    } else {
      g.size[g.n] = shape[d];
      g.reduced[g.n++] = reduced[d];
    }
  }
  // Row-major strides of the merged axes.
  int64_t stride = 1;
  for (int i = g.n - 1; i >= 0; i--) {
    g.stride[i] = stride;
    stride *= g.size[i];
  }
  return g;
}

// Returns the first element of combination number i of the groups that are `reduced` (or kept), of
// all but the innermost `skip` groups.
static int64_t place(const Groups *g, bool reduced, int skip, int64_t i) {
  int64_t at = 0;
  for (int d = g->n - 1 - skip; d >= 0; d--) {
    if (g->reduced[d] != reduced) continue;
    // Mixed radix over the groups of this kind.
    at += i % g->size[d] * g->stride[d];
    i /= g->size[d];
  }
  return at;
}

static int64_t combinations(const Groups *g, bool reduced, int skip) {
  int64_t n = 1;
  for (int d = 0; d < g->n - skip; d++)
    if (g->reduced[d] == reduced) n *= g->size[d];
  return n;
}

#define SUM_OF(a, b)  ((a) + (b))
#define PROD_OF(a, b) ((a) * (b))
#define MAX_OF(a, b)  ((a) > (b) || (a) != (a) ? (a) : (b))
#define MIN_OF(a, b)  ((a) < (b) || (a) != (a) ? (a) : (b))

// name, element type, type of the accumulator (unsigned integers wrap around), operation, start
#define NAME  sum_f32
#define T     float
#define ACC   double
#define OF    SUM_OF
#define START 0.0
#include "reduce_of.h"
#define NAME  sum_f64
#define T     double
#define ACC   double
#define OF    SUM_OF
#define START 0.0
#include "reduce_of.h"
#define NAME  sum_i32
#define T     int32_t
#define ACC   uint32_t
#define OF    SUM_OF
#define START 0
#include "reduce_of.h"
#define NAME  sum_i64
#define T     int64_t
#define ACC   uint64_t
#define OF    SUM_OF
#define START 0
#include "reduce_of.h"
#define NAME  max_f32
#define T     float
#define ACC   float
#define OF    MAX_OF
#define START -INFINITY
#include "reduce_of.h"
#define NAME  max_i32
#define T     int32_t
#define ACC   int32_t
#define OF    MAX_OF
#define START INT32_MIN
#include "reduce_of.h"
#define NAME  max_i64
#define T     int64_t
#define ACC   int64_t
#define OF    MAX_OF
#define START INT64_MIN
#include "reduce_of.h"
#define NAME  min_f32
#define T     float
#define ACC   float
#define OF    MIN_OF
#define START INFINITY
#include "reduce_of.h"
#define NAME  min_i32
#define T     int32_t
#define ACC   int32_t
#define OF    MIN_OF
#define START INT32_MAX
#include "reduce_of.h"
#define NAME  min_i64
#define T     int64_t
#define ACC   int64_t
#define OF    MIN_OF
#define START INT64_MAX
#include "reduce_of.h"
#define NAME  prod_f32
#define T     float
#define ACC   double
#define OF    PROD_OF
#define START 1.0
#include "reduce_of.h"
#define NAME  prod_i32
#define T     int32_t
#define ACC   uint32_t
#define OF    PROD_OF
#define START 1
#include "reduce_of.h"
#define NAME  prod_i64
#define T     int64_t
#define ACC   uint64_t
#define OF    PROD_OF
#define START 1
#include "reduce_of.h"
