// The CPU kernels: for each row of the op table with a cpu column, what computes it fast.
//
//     int nnrt_softmax_f32(float *y, const float *x, int64_t rank, const int64_t *shape, int64_t
//     axis);
//
// Results come first, then operands, then sizes and attributes in the order of the row's args.
// Tensors are row-major and packed; their shapes stand behind them as comments.  A kernel returns 0
// or a code, having said more by nnrt_error.  Only results that the row marks INPLACE may be the
// memory of an operand (of operand i, for result i of an optimizer).
//
// Kernels that are prepared come in two: nnrt_X_prep_f32 is called once per rank and place in the
// program (NULL: failed, by nnrt_error), the kernel itself every step.  What was prepared is one
// rank's and used by one thread at a time.
//
// Every rank is a thread that calls kernels on its own, with an OpenMP team of its own.  With the
// same number of threads the same operands give the same bits.

#ifndef NNRT_KERNELS_H
#define NNRT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NnrtPrep NnrtPrep;

void nnrt_prep_free(NnrtPrep *p); // NULL is fine

// Helpers of generated code.  The operation `accumulate` is zero before the first micro-batch.
int nnrt_zero(void *y, int64_t bytes);

// Contractions
// y (m, n) = x (m, k) w, with w (k, n), or (n, k) when `trans`
NnrtPrep *nnrt_linear_prep_f32(int64_t m, int64_t k, int64_t n, bool trans);
int nnrt_linear_f32(NnrtPrep *p, float *y, const float *x, const float *w);
// dw (k, n), or (n, k) when `trans`, = x' dy, with x (m, k) and dy (m, n)
NnrtPrep *nnrt_linear_back_w_prep_f32(int64_t m, int64_t k, int64_t n, bool trans);
int nnrt_linear_back_w_f32(NnrtPrep *p, float *dw, const float *x, const float *dy);
// y (batch, m, n) = a b, with a (batch, m, k) or (batch, k, m), b (batch, k, n) or (batch, n, k)
NnrtPrep *nnrt_matmul_prep_f32(int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a,
                               bool trans_b);
int nnrt_matmul_f32(NnrtPrep *p, float *y, const float *a, const float *b);

// Convolution.  x (n, c, spatial) or (n, spatial, c) when `channels_last`, y likewise; w is always
// (o, c / group, spatial).  pads: all the starts, then all the ends.  dilations: 1 is none.
NnrtPrep *nnrt_conv_prep_f32(int64_t rank, const int64_t *x_shape, const int64_t *w_shape,
                             const int64_t *y_shape, const int64_t *strides, const int64_t *pads,
                             const int64_t *dilations, int64_t group, bool channels_last);
int nnrt_conv_f32(NnrtPrep *p, float *y, const float *x, const float *w);
NnrtPrep *nnrt_conv_back_x_prep_f32(int64_t rank, const int64_t *x_shape, const int64_t *w_shape,
                                    const int64_t *y_shape, const int64_t *strides,
                                    const int64_t *pads, const int64_t *dilations, int64_t group,
                                    bool channels_last);
int nnrt_conv_back_x_f32(NnrtPrep *p, float *dx, const float *w, const float *dy);
// rank is of w, and so of x
NnrtPrep *nnrt_conv_back_w_prep_f32(int64_t rank, const int64_t *x_shape, const int64_t *w_shape,
                                    const int64_t *y_shape, const int64_t *strides,
                                    const int64_t *pads, const int64_t *dilations, int64_t group,
                                    bool channels_last);
int nnrt_conv_back_w_f32(NnrtPrep *p, float *dw, const float *x, const float *dy);

// Pooling.  `at` (of y's shape): where in the plane of x, row-major over its spatial dimensions,
// the maximum is; the first of equal ones, and the first NaN.
int nnrt_max_pool_f32(float *y, int32_t *at, const float *x, int64_t rank, const int64_t *x_shape,
                      const int64_t *y_shape, const int64_t *kernel, const int64_t *strides,
                      const int64_t *pads, const int64_t *dilations, bool channels_last);
int nnrt_max_pool_back_f32(float *dx, const int32_t *at, const float *dy, int64_t rank,
                           const int64_t *y_shape, const int64_t *x_shape, bool channels_last);
// The mean of the window: of all of it that lies in x and its pads when `include_pad`, else of what
// lies in x.
int nnrt_avg_pool_f32(float *y, const float *x, int64_t rank, const int64_t *x_shape,
                      const int64_t *y_shape, const int64_t *kernel, const int64_t *strides,
                      const int64_t *pads, const int64_t *dilations, bool include_pad,
                      bool channels_last);
int nnrt_avg_pool_back_f32(float *dx, const float *dy, int64_t rank, const int64_t *y_shape,
                           const int64_t *x_shape, const int64_t *kernel, const int64_t *strides,
                           const int64_t *pads, const int64_t *dilations, bool include_pad,
                           bool channels_last);

// Normalisation.  softmax_back and log_softmax_back read the result y and the adjoint dy.
int nnrt_softmax_f32(float *y, const float *x, int64_t rank, const int64_t *shape, int64_t axis);
int nnrt_softmax_back_f32(float *dx, const float *y, const float *dy, int64_t rank,
                          const int64_t *shape, int64_t axis);
int nnrt_log_softmax_f32(float *y, const float *x, int64_t rank, const int64_t *shape,
                         int64_t axis);
int nnrt_log_softmax_back_f32(float *dx, const float *y, const float *dy, int64_t rank,
                              const int64_t *shape, int64_t axis);
// y (m, n) = (x - mean) rstd g + b, with mean and rstd (m), g and b (n)
int nnrt_layer_norm_f32(float *y, float *mean, float *rstd, const float *x, const float *g,
                        const float *b, int64_t m, int64_t n, double eps);
int nnrt_layer_norm_back_f32(float *dx, float *dg, float *db, const float *x, const float *g,
                             const float *mean, const float *rstd, const float *dy, int64_t m,
                             int64_t n);
// y (m, n) = x rstd g, with rstd (m) = 1 / sqrt(mean(x^2) + eps)
int nnrt_rms_norm_f32(float *y, float *rstd, const float *x, const float *g, int64_t m, int64_t n,
                      double eps);
int nnrt_rms_norm_back_f32(float *dx, float *dg, const float *x, const float *g, const float *rstd,
                           const float *dy, int64_t m, int64_t n);
// x, y of `shape`; all others (c), with c = shape[axis].  `count`: elements per channel of the
// whole batch, of which this may be a part.
int nnrt_batch_norm_f32(float *y, const float *x, const float *g, const float *b, const float *mean,
                        const float *var, int64_t rank, const int64_t *shape, int64_t axis,
                        double eps);
int nnrt_batch_norm_mean_f32(float *mean, const float *x, int64_t rank, const int64_t *shape,
                             int64_t axis, int64_t count);
int nnrt_batch_norm_var_f32(float *var, const float *x, const float *mean, int64_t rank,
                            const int64_t *shape, int64_t axis, int64_t count);
int nnrt_batch_norm_sums_f32(float *dg, float *db, const float *x, const float *mean,
                             const float *var, const float *dy, int64_t rank, const int64_t *shape,
                             int64_t axis, double eps);
int nnrt_batch_norm_back_f32(float *dx, const float *x, const float *g, const float *mean,
                             const float *var, const float *dy, const float *dg, const float *db,
                             int64_t rank, const int64_t *shape, int64_t axis, double eps,
                             int64_t count);

// Attention.  in: q (b, h, t, d), k (b, h, s, d), v (b, h, s, e), mask (b|1, h|1, t|1, s|1) if n is
// 4; (b, t, h, d) and so on when `seq_major`, y too.  y (b, h, t, e), lse (b, h, t).  causal:
// position i sees 0 .. i + s - t.  A position that sees nothing gets 0, and lse -inf.  q may have r
// times the heads of k and v; its head i then reads head i / r of them.
NnrtPrep *nnrt_attention_prep_f32(int64_t n, int64_t rank, const int64_t *q_shape,
                                  const int64_t *k_shape, const int64_t *v_shape,
                                  const int64_t *mask_shape, double scale, bool causal,
                                  bool seq_major);
int nnrt_attention_f32(NnrtPrep *p, float *y, float *lse, const float *const *in);
// in: q, k, v, y, lse, dy, mask if n is 7
NnrtPrep *nnrt_attention_back_prep_f32(int64_t n, int64_t rank, const int64_t *q_shape,
                                       const int64_t *k_shape, const int64_t *v_shape,
                                       const int64_t *mask_shape, double scale, bool causal,
                                       bool seq_major);
int nnrt_attention_back_f32(NnrtPrep *p, float *dq, float *dk, float *dv, const float *const *in);

// Losses.  logits (m, c), labels (m) of `width` bytes each, loss and lse (m)
int nnrt_cross_entropy_f32(float *loss, float *lse, const float *logits, const void *labels,
                           int64_t m, int64_t c, int64_t width, int64_t ignore);
int nnrt_cross_entropy_back_f32(float *dlogits, const float *logits, const void *labels,
                                const float *lse, const float *dloss, int64_t m, int64_t c,
                                int64_t width, int64_t ignore);
int nnrt_nll_f32(float *loss, const float *logp, const void *labels, int64_t m, int64_t c,
                 int64_t width, int64_t ignore);
int nnrt_nll_back_f32(float *dlogp, const void *labels, const float *dloss, int64_t m, int64_t c,
                      int64_t width, int64_t ignore);

// Reductions over `axes` (sorted) of x, and scans along one.
#define NNRT_REDUCE(op, name, type)                                                                \
  int nnrt_reduce_##op##_##name(type *y, const type *x, int64_t rank, const int64_t *shape,        \
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
// The place of the largest along `axis`: of equal ones the first, or the last; a NaN is largest.
int nnrt_arg_max_f32(int64_t *y, const float *x, int64_t rank, const int64_t *shape, int64_t axis,
                     bool last);
int nnrt_arg_min_f32(int64_t *y, const float *x, int64_t rank, const int64_t *shape, int64_t axis,
                     bool last);
int nnrt_cumsum_f32(float *y, const float *x, int64_t rank, const int64_t *shape, int64_t axis,
                    bool exclusive, bool reverse);
int nnrt_cumsum_i32(int32_t *y, const int32_t *x, int64_t rank, const int64_t *shape, int64_t axis,
                    bool exclusive, bool reverse);
int nnrt_cumsum_i64(int64_t *y, const int64_t *x, int64_t rank, const int64_t *shape, int64_t axis,
                    bool exclusive, bool reverse);

// The kernels that only move elements exist by element size: _b1 _b2 _b4 _b8.
#define NNRT_BY_SIZE(declare) declare(b1) declare(b2) declare(b4) declare(b8)

// Lookup.  y (before axis, index shape, after axis) = x[…, at, …]; indices of `width` bytes, from
// -n to n - 1.
#define NNRT_GATHER(size)                                                                          \
  int nnrt_gather_##size(void *y, const void *x, const void *at, int64_t x_rank,                   \
                         const int64_t *x_shape, int64_t at_rank, const int64_t *at_shape,         \
                         int64_t width, int64_t axis);
NNRT_BY_SIZE(NNRT_GATHER)
#undef NNRT_GATHER
// dx of x_shape: each of its elements is the sum of the elements of dy that gather took from it, in
// the order of dy
int nnrt_gather_back_f32(float *dx, const void *at, const float *dy, int64_t at_rank,
                         const int64_t *at_shape, int64_t width, int64_t x_rank,
                         const int64_t *x_shape, int64_t axis);

// Shape
#define NNRT_SHAPE(size)                                                                           \
  int nnrt_transpose_##size(void *y, const void *x, int64_t rank, const int64_t *shape,            \
                            const int64_t *perm);                                                  \
  int nnrt_broadcast_##size(void *y, const void *x, int64_t y_rank, const int64_t *y_shape,        \
                            int64_t x_rank, const int64_t *x_shape);                               \
  int nnrt_slice_##size(void *y, const void *x, int64_t rank, const int64_t *x_shape,              \
                        const int64_t *starts, const int64_t *steps, const int64_t *y_shape);      \
  int nnrt_slice_back_##size(void *dx, const void *dy, int64_t rank, const int64_t *dy_shape,      \
                             const int64_t *starts, const int64_t *steps,                          \
                             const int64_t *dx_shape);                                             \
  int nnrt_concat_##size(void *y, const void *const *in, int64_t n, int64_t rank,                  \
                         const int64_t *y_shape, const int64_t *sizes, int64_t axis);              \
  int nnrt_trilu_##size(void *y, const void *x, int64_t rank, const int64_t *shape, bool upper,    \
                        int64_t k);                                                                \
  int nnrt_pack_##size(void *y, const void *const *in, int64_t n, const int64_t *sizes);
NNRT_BY_SIZE(NNRT_SHAPE)
#undef NNRT_SHAPE
// mode: "constant", "reflect", "edge" or "wrap"; `low` elements before, negative: cut
#define NNRT_PAD(name, type)                                                                       \
  int nnrt_pad_##name(type *y, const type *x, int64_t rank, const int64_t *x_shape,                \
                      const int64_t *low, const int64_t *y_shape, const char *mode, double value);
NNRT_PAD(f32, float)
NNRT_PAD(f64, double)
NNRT_PAD(i32, int32_t)
NNRT_PAD(i64, int64_t)
#undef NNRT_PAD

// Random.  y of `shape`, which begins at `start` in a tensor of shape `whole`: x / (1 - ratio), or
// 0 where nnrt_random_uniform(seed, step, key, place in the whole) is below `ratio`.
int nnrt_dropout_f32(float *y, const float *x, const int64_t *step, const int64_t *seed,
                     int64_t rank, const int64_t *shape, const int64_t *whole, const int64_t *start,
                     double ratio, int64_t key);

// Optimizers: one pass over n elements.  lr, gscale and step (updates done before) point to one
// number each.
int nnrt_sgd_f32(float *w2, const float *w, const float *g, const float *lr, const float *gscale,
                 int64_t n, double weight_decay);
int nnrt_sgd_momentum_f32(float *w2, float *m2, const float *w, const float *g, const float *m,
                          const float *lr, const float *gscale, const int64_t *step, int64_t n,
                          double momentum, double dampening, double weight_decay, bool nesterov);
int nnrt_adam_f32(float *w2, float *m2, float *v2, const float *w, const float *g, const float *m,
                  const float *v, const float *lr, const float *gscale, const int64_t *step,
                  int64_t n, double beta1, double beta2, double eps, double weight_decay,
                  bool decoupled, bool onnx);
int nnrt_adagrad_f32(float *w2, float *s2, const float *w, const float *g, const float *s,
                     const float *lr, const float *gscale, const int64_t *step, int64_t n,
                     double lr_decay, double eps, double weight_decay);
int nnrt_lamb_f32(float *direction, float *m2, float *v2, const float *w, const float *g,
                  const float *m, const float *v, const float *gscale, const int64_t *step,
                  int64_t n, double beta1, double beta2, double eps, double weight_decay);
// w_square and direction_square: |w|^2 and |direction|^2 of the whole tensors
int nnrt_lamb_apply_f32(float *w2, const float *w, const float *direction, const float *w_square,
                        const float *direction_square, const float *lr, int64_t n);

// y += x, over an axis bound to time
int nnrt_accumulate_f32(float *y, const float *x, int64_t n);
int nnrt_accumulate_i64(int64_t *y, const int64_t *x, int64_t n);

#endif
