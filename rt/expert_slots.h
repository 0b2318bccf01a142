// The slots of a shard of the parts of experts, for the kernels of dispatch and collect on the CPU
// and on GPUs: y (parts, groups, capacity, …), and slots (groups, rows) of all parts.

#ifndef NNRT_EXPERT_SLOTS_H
#define NNRT_EXPERT_SLOTS_H

#include <stdint.h>

// Parts `from` and following of `all`, with `capacity` slots each for every group.
typedef struct Slots {
  const int64_t *at; // [groups * rows]
  int64_t groups, rows, capacity, parts, from, all;
  int64_t inner; // elements of a row
} Slots;

// `shape` is of the rows at their slots.
static inline Slots slots_of(const int64_t *slots, const int64_t *slots_shape, int64_t ndim,
                             const int64_t *shape, int64_t from, int64_t all) {
  Slots s;
  s.at = slots;
  s.groups = slots_shape[0];
  s.rows = slots_shape[1];
  s.capacity = shape[2];
  s.parts = shape[0];
  s.from = from;
  s.all = all;
  s.inner = 1;
  for (int64_t i = 3; i < ndim; i++)
    s.inner *= shape[i];
  return s;
}

#endif
