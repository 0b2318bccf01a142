// The collectives that generated code calls, by element type or size.  The file of each target that
// implements them for any type or size includes this header last:
//
//     all_reduce  reduce_scatter      of a type
//     gather  slice  all_to_all       of elements of so many bytes
//     move  move_start  move_wait     of both; of a sum it is told the type
//
// Sent bytes are counted here, for every target and transport (traffic.h).

#include "traffic.h"

#define REDUCE(type, T)                                                                            \
  int nnrt_all_reduce_##type(T *y, const T *x, int64_t n, NnrtRank *r, int group) {                \
    nnrt_traffic_count(r, group, TRAFFIC_all_reduce, 1, &n, sizeof(T));                            \
    return all_reduce(y, x, n, r, group, NNRT_##type);                                             \
  }                                                                                                \
  int nnrt_reduce_scatter_##type(T *y, const T *x, int64_t rank, const int64_t *dims, int64_t dim, \
                                 NnrtRank *r, int group) {                                         \
    nnrt_traffic_count(r, group, TRAFFIC_reduce_scatter, rank, dims, sizeof(T));                   \
    return reduce_scatter(y, x, rank, dims, dim, r, group, NNRT_##type);                           \
  }                                                                                                \
  int nnrt_move_##type(T *y, const T *x, NnrtRank *r, int number) {                                \
    nnrt_traffic_move(r, number, sizeof(T));                                                       \
    return move(y, x, r, number, sizeof(T), true, NNRT_##type);                                    \
  }                                                                                                \
  int nnrt_move_start_##type(T *y, const T *x, NnrtRank *r, int number) {                          \
    nnrt_traffic_move(r, number, sizeof(T));                                                       \
    return move_start(y, x, r, number, sizeof(T), true);                                           \
  }                                                                                                \
  int nnrt_move_wait_##type(T *y, NnrtRank *r, int number) {                                       \
    return move_wait(y, r, number, sizeof(T), true, NNRT_##type);                                  \
  }
REDUCE(f32, float)
REDUCE(i64, int64_t)

#define MOVE(bytes)                                                                                \
  int nnrt_all_gather_b##bytes(void *y, const void *x, int64_t rank, const int64_t *dims,          \
                               int64_t dim, NnrtRank *r, int group) {                              \
    nnrt_traffic_count(r, group, TRAFFIC_all_gather, rank, dims, bytes);                           \
    return gather(y, x, rank, dims, dim, r, group, bytes);                                         \
  }                                                                                                \
  int nnrt_local_slice_b##bytes(void *y, const void *x, int64_t rank, const int64_t *dims,         \
                                int64_t dim, NnrtRank *r, int group) {                             \
    return slice(y, x, rank, dims, dim, r, group, bytes);                                          \
  }                                                                                                \
  int nnrt_all_to_all_b##bytes(void *y, const void *x, int64_t rank, const int64_t *dims,          \
                               int64_t from, int64_t to, NnrtRank *r, int group) {                 \
    nnrt_traffic_count(r, group, TRAFFIC_all_to_all, rank, dims, bytes);                           \
    return all_to_all(y, x, rank, dims, from, to, r, group, bytes);                                \
  }                                                                                                \
  int nnrt_move_b##bytes(void *y, const void *x, NnrtRank *r, int number) {                        \
    nnrt_traffic_move(r, number, bytes);                                                           \
    return move(y, x, r, number, bytes, false, NNRT_u8);                                           \
  }                                                                                                \
  int nnrt_move_start_b##bytes(void *y, const void *x, NnrtRank *r, int number) {                  \
    nnrt_traffic_move(r, number, bytes);                                                           \
    return move_start(y, x, r, number, bytes, false);                                              \
  }                                                                                                \
  int nnrt_move_wait_b##bytes(void *y, NnrtRank *r, int number) {                                  \
    return move_wait(y, r, number, bytes, false, NNRT_u8);                                         \
  }
MOVE(1)
MOVE(2)
MOVE(4)
MOVE(8)
