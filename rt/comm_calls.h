// The collectives that generated code calls, by element type or size: the functions of nnrt.h.  The
// file of each target that implements them for any type or size includes this header last:
//
//     collective                   of collectives.def
//     slice                        of elements of so many bytes
//     move  move_start  move_wait  of both; of a sum it is told the type
//
// Sent bytes are counted here, for every target and transport (traffic.h).

#include "traffic.h"

// The shape of x, and the split dimensions before and after, of the parameters NNRT_SHAPE_….
#define SHAPE_none_none 1, &n, -1, -1
#define SHAPE_dim_none  ndim, dims, dim, -1
#define SHAPE_none_dim  ndim, dims, -1, dim
#define SHAPE_from_to   ndim, dims, from, to

// An element of the tensor is `unit` elements of the job's type.
static int call(JobKind kind, void *y, const void *x, int64_t ndim, const int64_t *dims,
                int64_t from, int64_t to, NnrtRank *r, int group, NnrtDtype type, int64_t unit) {
  nnrt_traffic_count(r, group, kind, ndim, dims, unit * nnrt_dtype_size(type));
  return collective(kind, y, x, ndim, dims, from, to, r, group, type, unit);
}

// Defines nnrt_all_reduce_f32, nnrt_all_reduce_i64, nnrt_all_gather_b1 to nnrt_all_gather_b8 and so
// on: a function for each row of collectives.def and type of a sum or element size.
#define CALL(op, name, T, type, unit, from_dim, to_dim)                                            \
  int nnrt_##op##_##name(T *y, const T *x, NNRT_SHAPE_##from_dim##_##to_dim, NnrtRank *r,          \
                         int group) {                                                              \
    return call(JOB_##op, y, x, SHAPE_##from_dim##_##to_dim, r, group, NNRT_##type, unit);         \
  }
// Sums are of a type; all else moves bytes.
#define CALLS_P(op, from_dim, to_dim)                                                              \
  CALL(op, f32, float, f32, 1, from_dim, to_dim)                                                   \
  CALL(op, i64, int64_t, i64, 1, from_dim, to_dim)
#define CALLS_S(op, from_dim, to_dim)                                                              \
  CALL(op, b1, void, u8, 1, from_dim, to_dim)                                                      \
  CALL(op, b2, void, u8, 2, from_dim, to_dim)                                                      \
  CALL(op, b4, void, u8, 4, from_dim, to_dim)                                                      \
  CALL(op, b8, void, u8, 8, from_dim, to_dim)
#define CALLS_B                                          CALLS_S
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) CALLS_##from(op, from_dim, to_dim)
#include "collectives.def"

#define SLICE(bytes)                                                                               \
  int nnrt_local_slice_b##bytes(void *y, const void *x, NNRT_SHAPE_none_dim, NnrtRank *r,          \
                                int group) {                                                       \
    return slice(y, x, ndim, dims, dim, r, group, bytes);                                          \
  }
SLICE(1)
SLICE(2)
SLICE(4)
SLICE(8)

// Moves of elements of `size` bytes, or of a sum of type `type`.
#define MOVE(name, T, size, sums, type)                                                            \
  int nnrt_move_##name(T *y, const T *x, NnrtRank *r, int number) {                                \
    nnrt_traffic_move(r, number, size);                                                            \
    return move(y, x, r, number, size, sums, NNRT_##type);                                         \
  }                                                                                                \
  int nnrt_move_start_##name(T *y, const T *x, NnrtRank *r, int number) {                          \
    nnrt_traffic_move(r, number, size);                                                            \
    return move_start(y, x, r, number, size, sums);                                                \
  }                                                                                                \
  int nnrt_move_wait_##name(T *y, NnrtRank *r, int number) {                                       \
    return move_wait(y, r, number, size, sums, NNRT_##type);                                       \
  }
MOVE(f32, float, sizeof(float), true, f32)
MOVE(i64, int64_t, sizeof(int64_t), true, i64)
MOVE(b1, void, 1, false, u8)
MOVE(b2, void, 2, false, u8)
MOVE(b4, void, 4, false, u8)
MOVE(b8, void, 8, false, u8)
