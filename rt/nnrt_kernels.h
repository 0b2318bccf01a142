// The kernels: for each row of the op table with a column of the target, its implementation.
//
//     int nnrt_softmax_f32(float *y, const float *x, int64_t ndim, const int64_t *shape,
//                          int64_t axis);
//
// Results come first, then operands, then sizes and attributes in the order of the row's args.
// Tensors are row-major and packed; comments after them give their shapes.  A kernel returns 0 or a
// code, with details by nnrt_error.  Only results that the row marks INPLACE may share the memory
// of an operand (of operand i, for result i of an optimizer).
//
// A prepared kernel has two functions: nnrt_X_prep_f32 is called once per rank and place in the
// program (NULL: failed, by nnrt_error), the kernel itself every step.  The NnrtPrep belongs to one
// rank, and one thread at a time uses it.
//
// Every rank is a thread that calls kernels on its own, with an OpenMP team of its own.  With the
// same number of threads the same operands give the same bits.
//
// On a GPU (cuda/gpu.h) tensors are in its memory, and a call enqueues the work in the stream of
// the thread's rank and returns; an index out of range is reported at the end of the step.

#ifndef NNRT_KERNELS_H
#define NNRT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NnrtPrep NnrtPrep;

void nnrt_prep_free(NnrtPrep *p); // NULL is fine

// Helpers of generated code.  The operation `accumulate` is zero before the first micro-batch.
int nnrt_zero(void *y, int64_t bytes);
int nnrt_copy(void *y, const void *x, int64_t bytes);

// Attributes as structs: the fields have the order of the braces in the row of ops.def.
typedef struct NnrtSlots {
  int64_t experts, parts, capacity, choices; // choices: rows for each token; 0: 1
  bool drop;                                 // rows beyond the capacity
} NnrtSlots;
typedef struct NnrtGather {
  int64_t axis, batch;
  bool embedding;
} NnrtGather;
typedef struct NnrtScatter {
  int64_t axis, batch;
} NnrtScatter;
typedef struct NnrtNms {
  double iou, score;
  bool scored; // scores must be above `score`
  bool center; // boxes are a center and lengths, not corners
} NnrtNms;
typedef struct NnrtNoise {
  double scale;
  bool normal; // or uniform in [0, 1)
  int64_t key;
} NnrtNoise;
typedef struct NnrtBatchNormBack {
  int64_t axis;
  double eps;
  int64_t count;
} NnrtBatchNormBack;
// Recurrent layers: activations f, g and h with their numbers; clip 0: none
typedef struct NnrtLstm {
  double f_alpha, f_beta, g_alpha, g_beta, h_alpha, h_beta, clip;
  bool input_forget; // the forget gate is 1 - the input gate
  bool reverse;
} NnrtLstm;
typedef struct NnrtGru {
  double f_alpha, f_beta, g_alpha, g_beta, clip;
  bool linear_before_reset;
  bool reverse;
} NnrtGru;
typedef struct NnrtRnn {
  double f_alpha, f_beta, clip;
  bool reverse;
} NnrtRnn;
// Hyper-parameters of optimizers
typedef struct NnrtSgdMomentum {
  double momentum, dampening, weight_decay;
  bool nesterov;
} NnrtSgdMomentum;
typedef struct NnrtAdam {
  double beta1, beta2, eps, weight_decay;
  bool decoupled; // AdamW: the decay shrinks the weight
  bool onnx;      // eps joins the uncorrected root
} NnrtAdam;
typedef struct NnrtAdagrad {
  double lr_decay, eps, weight_decay;
} NnrtAdagrad;
typedef struct NnrtLamb {
  double beta1, beta2, eps, weight_decay;
} NnrtLamb;

// Floating-point types
#define NNRT_T          float
#define NNRT_NAME(name) nnrt_##name##_f32
#include "nnrt_kernels_float.h"
#undef NNRT_T
#undef NNRT_NAME
#define NNRT_T          uint16_t
#define NNRT_NAME(name) nnrt_##name##_bf16
#include "nnrt_kernels_float.h"
#undef NNRT_NAME
#define NNRT_NAME(name) nnrt_##name##_f16
#include "nnrt_kernels_float.h"
#undef NNRT_T
#undef NNRT_NAME

// One kernel for many tensors (multi-tensor apply), on GPUs only: the operation `multi_tensor`.
// Tensor i has sizes[i] elements. out and in concatenate the results and the operands of the single
// kernels: of adam, out is w, m, v of the first tensor, then those of the second; in is w, g, m, v,
// lr, gscale, step of the first, and so on.  Each result may take the memory that the single kernel
// allows, no other. The attributes are the same for all.  Pointers are the same in every step.
// `narrow` is bf16 or f16 if 16-bit copies of weights are needed: then out has, after each tensor's
// results, the copy, or NULL for none.  Otherwise it is f32.  out and in are NULL if
// nnrt_batch_tensor has named the results and operands of each tensor.
void nnrt_batch_tensor(NnrtPrep *p, int64_t k, void *const *out, const void *const *in);
NnrtPrep *nnrt_sgd_batch_prep_f32(int64_t n, const int64_t *sizes, NnrtDtype narrow,
                                  double weight_decay);
int nnrt_sgd_batch_f32(NnrtPrep *p, void *const *out, const void *const *in);
NnrtPrep *nnrt_sgd_momentum_batch_prep_f32(int64_t n, const int64_t *sizes, NnrtDtype narrow,
                                           const NnrtSgdMomentum *hyper);
int nnrt_sgd_momentum_batch_f32(NnrtPrep *p, void *const *out, const void *const *in);
NnrtPrep *nnrt_adam_batch_prep_f32(int64_t n, const int64_t *sizes, NnrtDtype narrow,
                                   const NnrtAdam *hyper);
int nnrt_adam_batch_f32(NnrtPrep *p, void *const *out, const void *const *in);
NnrtPrep *nnrt_adagrad_batch_prep_f32(int64_t n, const int64_t *sizes, NnrtDtype narrow,
                                      const NnrtAdagrad *hyper);
int nnrt_adagrad_batch_f32(NnrtPrep *p, void *const *out, const void *const *in);
NnrtPrep *nnrt_lamb_batch_prep_f32(int64_t n, const int64_t *sizes, const NnrtLamb *hyper);
int nnrt_lamb_batch_f32(NnrtPrep *p, void *const *out, const void *const *in);
NnrtPrep *nnrt_lamb_apply_batch_prep_f32(int64_t n, const int64_t *sizes, NnrtDtype narrow);
int nnrt_lamb_apply_batch_f32(NnrtPrep *p, void *const *out, const void *const *in);
NnrtPrep *nnrt_sum_squares_batch_prep_f32(int64_t n, const int64_t *sizes);
int nnrt_sum_squares_batch_f32(NnrtPrep *p, void *const *out, const void *const *in);

// The adjoint of nll; dlogp (m, c)
int nnrt_nll_back_f32(float *dlogp, const void *labels, const float *dloss, int64_t m, int64_t c,
                      int64_t from, int64_t all, int64_t width, int64_t ignore);

// Reductions over `axes` (sorted) of x, and scans along one.
#define NNRT_REDUCE(op, name, type)                                                                \
  int nnrt_reduce_##op##_##name(type *y, const type *x, int64_t ndim, const int64_t *shape,        \
                                int64_t n_axes, const int64_t *axes);
NNRT_REDUCE(sum, f32, float)
NNRT_REDUCE(sum, f64, double)
NNRT_REDUCE(sum, i32, int32_t)
NNRT_REDUCE(sum, i64, int64_t)
NNRT_REDUCE(max, f32, float)
NNRT_REDUCE(max, i32, int32_t)
NNRT_REDUCE(max, i64, int64_t)
NNRT_REDUCE(min, f32, float)
NNRT_REDUCE(min, i32, int32_t)
NNRT_REDUCE(min, i64, int64_t)
NNRT_REDUCE(prod, f32, float)
NNRT_REDUCE(prod, i32, int32_t)
NNRT_REDUCE(prod, i64, int64_t)
#undef NNRT_REDUCE
int nnrt_sum_squares_f32(float *y, const float *x, int64_t n); // y: one number
// The index of the largest element along `axis`: of equal ones the first, or the last; a NaN is
// largest.
#define NNRT_ARG(type, T)                                                                          \
  int nnrt_arg_max_##type(int64_t *y, const T *x, int64_t ndim, const int64_t *shape,              \
                          int64_t axis, bool last);                                                \
  int nnrt_arg_min_##type(int64_t *y, const T *x, int64_t ndim, const int64_t *shape,              \
                          int64_t axis, bool last);
NNRT_ARG(f32, float)
NNRT_ARG(i32, int32_t)
NNRT_ARG(i64, int64_t)
#undef NNRT_ARG
int nnrt_cumsum_f32(float *y, const float *x, int64_t ndim, const int64_t *shape, int64_t axis,
                    bool exclusive, bool reverse);
int nnrt_cumsum_i32(int32_t *y, const int32_t *x, int64_t ndim, const int64_t *shape, int64_t axis,
                    bool exclusive, bool reverse);
int nnrt_cumsum_i64(int64_t *y, const int64_t *x, int64_t ndim, const int64_t *shape, int64_t axis,
                    bool exclusive, bool reverse);
// Running products, likewise.
int nnrt_cumprod_f32(float *y, const float *x, int64_t ndim, const int64_t *shape, int64_t axis,
                     bool exclusive, bool reverse);
int nnrt_cumprod_i32(int32_t *y, const int32_t *x, int64_t ndim, const int64_t *shape, int64_t axis,
                     bool exclusive, bool reverse);
int nnrt_cumprod_i64(int64_t *y, const int64_t *x, int64_t ndim, const int64_t *shape, int64_t axis,
                     bool exclusive, bool reverse);
// y (m, k): the indices of the k largest elements, or smallest, of the rows of x (m, n), in their
// order; of equal ones the lower index first; a NaN is largest.
int nnrt_top_k_f32(int64_t *y, const float *x, int64_t m, int64_t n, int64_t k, bool smallest);
int nnrt_top_k_i32(int64_t *y, const int32_t *x, int64_t m, int64_t n, int64_t k, bool smallest);
int nnrt_top_k_i64(int64_t *y, const int64_t *x, int64_t m, int64_t n, int64_t k, bool smallest);
// index (m, k), count (m): the true elements of the rows of x (m, n) in their order, and then the
// first of them again, or 0.  More than k are an error.
int nnrt_nonzero_bool(int64_t *index, int64_t *count, const uint8_t *x, int64_t m, int64_t n,
                      int64_t k);
// index (m, c, k), count (m, c): boxes (m, n, 4) by their scores (m, c, n), without those that
// overlap a better one by more than `iou`; then zeros.
int nnrt_nms_f32(int64_t *index, int64_t *count, const float *boxes, const float *scores, int64_t m,
                 int64_t c, int64_t n, int64_t k, const NnrtNms *attrs);

// y (m): the determinants of the matrices x (m, n, n); dx: dy times their cofactors.
int nnrt_det_f32(float *y, const float *x, int64_t m, int64_t n);
int nnrt_det_back_f32(float *dx, const float *x, const float *dy, int64_t m, int64_t n);

// The kernels that only move elements exist by element size: _b1 _b2 _b4 _b8.
#define NNRT_BY_SIZE(declare) declare(b1) declare(b2) declare(b4) declare(b8)

// Lookup.  y (before axis, index shape, after axis) = x[…, at, …]; the first `batch` dimensions, 0
// or `axis`, are shared by x and the indices.  Indices have `width` bytes and are from -all, or
// from 0 in an `embedding`, to all - 1.  x holds a shard of these rows, starting with number
// `from`; y gets zeros for other rows.
#define NNRT_GATHER(size)                                                                          \
  int nnrt_gather_##size(void *y, const void *x, const void *at, int64_t x_ndim,                   \
                         const int64_t *x_shape, int64_t at_ndim, const int64_t *at_shape,         \
                         int64_t width, const NnrtGather *attrs, int64_t from, int64_t all);
NNRT_BY_SIZE(NNRT_GATHER)
#undef NNRT_GATHER
// Experts.  y (groups, rows): a slot for each row, from its expert, x (groups, rows), -1 for none.
int nnrt_expert_slots_i32(int64_t *y, const int32_t *x, int64_t groups, int64_t rows,
                          const NnrtSlots *s);
int nnrt_expert_slots_i64(int64_t *y, const int64_t *x, int64_t groups, int64_t rows,
                          const NnrtSlots *s);
// The rows of x (groups, rows, …) at their slots, of slots_shape, in y, of y_shape: (parts, groups,
// capacity, …); zeros, or -1 if `none`, in the others.  y begins with part `from` of `all`; collect
// is the reverse.
#define NNRT_SLOT_ROWS(size)                                                                       \
  int nnrt_dispatch_##size(void *y, const void *x, const int64_t *slots, int64_t y_ndim,           \
                           const int64_t *y_shape, const int64_t *slots_shape, int64_t from,       \
                           int64_t all, bool none);                                                \
  int nnrt_collect_##size(void *y, const void *x, const int64_t *slots, int64_t x_ndim,            \
                          const int64_t *x_shape, const int64_t *slots_shape, int64_t from,        \
                          int64_t all);
NNRT_BY_SIZE(NNRT_SLOT_ROWS)
#undef NNRT_SLOT_ROWS
// y = x with the rows of u (before axis, index shape, after axis) in the place of those indexed, or
// combined with them in the order of the indices.  Indices, `from` and `all` as in gather.
#define NNRT_SCATTER(name, type)                                                                   \
  int nnrt_##name(type *y, const type *x, const void *at, const type *u, int64_t x_ndim,           \
                  const int64_t *x_shape, int64_t at_ndim, const int64_t *at_shape, int64_t width, \
                  const NnrtScatter *attrs, int64_t from, int64_t all);
#define NNRT_SCATTER_SIZE(size) NNRT_SCATTER(scatter_##size, void)
NNRT_BY_SIZE(NNRT_SCATTER_SIZE)
#undef NNRT_SCATTER_SIZE
#define NNRT_SCATTERS(name, type)                                                                  \
  NNRT_SCATTER(scatter_add_##name, type)                                                           \
  NNRT_SCATTER(scatter_mul_##name, type)                                                           \
  NNRT_SCATTER(scatter_min_##name, type)                                                           \
  NNRT_SCATTER(scatter_max_##name, type)
NNRT_SCATTERS(f32, float)
NNRT_SCATTERS(i32, int32_t)
NNRT_SCATTERS(i64, int64_t)
#undef NNRT_SCATTERS
#undef NNRT_SCATTER
// Shape
#define NNRT_SHAPE(size)                                                                           \
  int nnrt_transpose_##size(void *y, const void *x, int64_t ndim, const int64_t *shape,            \
                            const int64_t *perm);                                                  \
  int nnrt_broadcast_##size(void *y, const void *x, int64_t y_ndim, const int64_t *y_shape,        \
                            int64_t x_ndim, const int64_t *x_shape);                               \
  int nnrt_slice_##size(void *y, const void *x, int64_t ndim, const int64_t *x_shape,              \
                        const int64_t *starts, const int64_t *steps, const int64_t *y_shape);      \
  int nnrt_slice_back_##size(void *dx, const void *dy, int64_t ndim, const int64_t *dy_shape,      \
                             const int64_t *starts, const int64_t *steps,                          \
                             const int64_t *dx_shape);                                             \
  int nnrt_concat_##size(void *y, const void *const *in, int64_t n, int64_t ndim,                  \
                         const int64_t *y_shape, const int64_t *sizes, int64_t axis);              \
  int nnrt_bit_cast_##size(void *y, const void *x, int64_t n);                                     \
  int nnrt_trilu_##size(void *y, const void *x, int64_t ndim, const int64_t *shape, bool upper,    \
                        int64_t k);                                                                \
  int nnrt_pack_##size(void *y, const void *const *in, int64_t n, const int64_t *sizes);
NNRT_BY_SIZE(NNRT_SHAPE)
#undef NNRT_SHAPE
// mode: "constant", "reflect", "edge" or "wrap"; `low` elements before, negative: crop
#define NNRT_PAD(name, type)                                                                       \
  int nnrt_pad_##name(type *y, const type *x, int64_t ndim, const int64_t *x_shape,                \
                      const int64_t *low, const int64_t *y_shape, const char *mode, double value);
NNRT_PAD(f32, float)
NNRT_PAD(f64, double)
NNRT_PAD(i32, int32_t)
NNRT_PAD(i64, int64_t)
#undef NNRT_PAD

// Optimizers: one pass over n elements.  lr, gscale and step (updates done before) point to one
// number each.  The hyper-parameters of each are a struct, read before the call returns.
int nnrt_sgd_f32(float *w2, const float *w, const float *g, const float *lr, const float *gscale,
                 int64_t n, double weight_decay);
int nnrt_sgd_momentum_f32(float *w2, float *m2, const float *w, const float *g, const float *m,
                          const float *lr, const float *gscale, const int64_t *step, int64_t n,
                          const NnrtSgdMomentum *hyper);
int nnrt_adam_f32(float *w2, float *m2, float *v2, const float *w, const float *g, const float *m,
                  const float *v, const float *lr, const float *gscale, const int64_t *step,
                  int64_t n, const NnrtAdam *hyper);
int nnrt_adagrad_f32(float *w2, float *s2, const float *w, const float *g, const float *s,
                     const float *lr, const float *gscale, const int64_t *step, int64_t n,
                     const NnrtAdagrad *hyper);
int nnrt_lamb_f32(float *direction, float *m2, float *v2, const float *w, const float *g,
                  const float *m, const float *v, const float *gscale, const int64_t *step,
                  int64_t n, const NnrtLamb *hyper);
// w_square and direction_square: |w|^2 and |direction|^2 of the whole tensors
int nnrt_lamb_apply_f32(float *w2, const float *w, const float *direction, const float *w_square,
                        const float *direction_square, const float *lr, int64_t n);

// y += x, over an axis bound to time
int nnrt_accumulate_f32(float *y, const float *x, int64_t n);
int nnrt_accumulate_i64(int64_t *y, const int64_t *x, int64_t n);

#endif
