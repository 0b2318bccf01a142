// Indices of rows of a table, for the kernels that read or write rows by index; and as keys, for
// the order of indices that name the same row.
//
// The table may be a shard of a larger one: rows `from` to `from + n` of `all`.  Indices are
// global.
//
// With a batch each of the outer tables has its own indices, and together they form one table of
// all their rows.

#ifndef NNRT_CUDA_INDICES_CUH
#define NNRT_CUDA_INDICES_CUH

#include "move.cuh"
#include "sort.cuh"

struct Indices {
  const void *at; // of `width` bytes each
  int64_t width, n, from, all;
  int64_t low; // the smallest index
  int64_t per; // indices per table of n rows; 0: one table for all
};

// With a batch the outer tables become one.
static Indices indices_of(const void *at, int64_t count, int64_t width, int64_t batch, int64_t from,
                          int64_t all, Axis *io_axis) {
  Indices x = {at, width, io_axis->n, from, all, -all, 0};
  if (batch == 0) return x;
  // One table of all rows, in which index i belongs to table i / per.
  x.per = io_axis->outer > 0 ? count / io_axis->outer : 0;
  io_axis->n *= io_axis->outer;
  io_axis->outer = 1;
  return x;
}

// The local row of index number `i`; or NO_ROW if the index is out of range, ELSEWHERE if its row
// is in another shard.
enum { NO_ROW = -1, ELSEWHERE = -2 };
static __device__ inline int64_t row_of_index(Indices x, int64_t i) {
  int64_t index = index_at(x.at, x.width, i);
  if (index < x.low || index >= x.all) return NO_ROW;
  // Negative indices count from the end.
  int64_t row = (index < 0 ? index + x.all : index) - x.from;
  if (row < 0 || row >= x.n) return ELSEWHERE;
  return x.per ? i / x.per * x.n + row : row;
}

// -- Keys for sort.cuh

// The key of an index that is out of range, or in another shard, is n: it sorts last, and belongs
// to no row of dx.
static __global__ void make_keys(uint32_t *keys, uint32_t *places, Indices at, int64_t rows,
                                 int count, Finder f) {
  for (int64_t i = first_thread(); i < count; i += all_threads()) {
    int64_t row = row_of_index(at, i);
    if (row == NO_ROW) find_index(f, index_at(at.at, at.width, i), i, at.low, at.all);
    keys[i] = (uint32_t)(row < 0 ? rows : row);
    places[i] = (uint32_t)i;
  }
}

#endif
