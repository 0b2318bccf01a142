// Indices of rows of a table, for the kernels that read or write rows by index.
//
// The table may be a shard of a larger one: rows `from` to `from + n` of `all`.  Indices are
// global.
//
// With a batch each of the outer tables has its own indices, and all of them together are one table
// with as many rows.

#ifndef NNRT_CPU_INDICES_H
#define NNRT_CPU_INDICES_H

#include "kernel.h"

typedef struct Indices {
  const void *at; // `count` of `width` bytes
  int64_t width, count, from, all;
  int64_t low; // the least index
  int64_t n;   // rows of a table
  int64_t per; // indices into a table of n rows; 0: all of them
} Indices;

// With a batch the outer tables become one.
static inline Indices indices_of(const void *at, int64_t count, int64_t width, int64_t batch,
                                 int64_t from, int64_t all, Axis *io_axis) {
  Indices x = {at, width, count, from, all, -all, io_axis->n, 0};
  if (batch == 0) return x;
  // As many indices for each table; an empty tensor has none.
  x.per = io_axis->outer > 0 ? count / io_axis->outer : 0;
  io_axis->n *= io_axis->outer;
  io_axis->outer = 1;
  return x;
}

static inline int check_indices(const Indices *x) {
  for (int64_t i = 0; i < x->count; i++) {
    int64_t index = index_at(x->at, x->width, i);
    // Negative indices count from the end; embeddings have none.
    if (index < x->low || index >= x->all) return nnrt_found(FOUND_index, index, i, x->low, x->all);
  }
  return NNRT_OK;
}

// Returns the row of index i; -1 if it is in another shard.
static inline int64_t row_at(const Indices *x, int64_t i) {
  int64_t index = index_at(x->at, x->width, i);
  int64_t row = (index < 0 ? index + x->all : index) - x->from;
  // The row is in the shard of another rank.
  if (row < 0 || row >= x->n) return -1;
  return x->per ? i / x->per * x->n + row : row;
}

// The types for copying one element; the memory may hold floats.
typedef uint8_t __attribute__((may_alias)) b1;
typedef uint16_t __attribute__((may_alias)) b2;
typedef uint32_t __attribute__((may_alias)) b4;
typedef uint64_t __attribute__((may_alias)) b8;

#endif
