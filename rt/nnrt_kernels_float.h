// The kernels that exist for several floating-point types, once for each: nnrt_kernels.h includes
// this with NNRT_T, the type of an element, and NNRT_NAME(linear), its name.  16-bit types are in
// uint16_t, which GPUs have most kernels for, and the CPU those that ops.def lists.  `float`
// parameters are f32 for every type: statistics, gains and sums.

// Contractions
// y (m, n) = x (m, k) w, with w (k, n), or (n, k) when `trans`
NnrtPrep *NNRT_NAME(linear_prep)(int64_t m, int64_t k, int64_t n, bool trans);
int NNRT_NAME(linear)(NnrtPrep *p, NNRT_T *y, const NNRT_T *x, const NNRT_T *w);
// dw (k, n), or (n, k) when `trans`, = x' dy, with x (m, k) and dy (m, n)
NnrtPrep *NNRT_NAME(linear_back_w_prep)(int64_t m, int64_t k, int64_t n, bool trans);
int NNRT_NAME(linear_back_w)(NnrtPrep *p, float *dw, const NNRT_T *x, const NNRT_T *dy);
// y (batch, m, n) = a b, with a (batch, m, k) or (batch, k, m), b (batch, k, n) or (batch, n, k)
NnrtPrep *NNRT_NAME(matmul_prep)(int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a,
                                 bool trans_b);
int NNRT_NAME(matmul)(NnrtPrep *p, NNRT_T *y, const NNRT_T *a, const NNRT_T *b);

// Products with fused epilogues, on GPUs only.  x, w and y as in linear; b (n).
NnrtPrep *NNRT_NAME(linear_bias_prep)(int64_t m, int64_t k, int64_t n, bool trans);
int NNRT_NAME(linear_bias)(NnrtPrep *p, NNRT_T *y, const NNRT_T *x, const NNRT_T *w,
                           const NNRT_T *b);
// pre (m, n) = x w + b, y = gelu_tanh(pre); n is a multiple of 8
NnrtPrep *NNRT_NAME(linear_gelu_tanh_prep)(int64_t m, int64_t k, int64_t n, bool trans);
int NNRT_NAME(linear_gelu_tanh)(NnrtPrep *p, NNRT_T *y, NNRT_T *pre, const NNRT_T *x,
                                const NNRT_T *w, const NNRT_T *b);
// dpre (m, n) = gelu_tanh'(pre) times x w, with pre (m, n); n is a multiple of 8.  x is the
// gradient of the next product's result, w that product's weight.
NnrtPrep *NNRT_NAME(linear_gelu_tanh_back_prep)(int64_t m, int64_t k, int64_t n, bool trans);
int NNRT_NAME(linear_gelu_tanh_back)(NnrtPrep *p, NNRT_T *dpre, const NNRT_T *x, const NNRT_T *w,
                                     const NNRT_T *pre);
// dw as linear_back_w; db (n) = the sum of the rows of dy
NnrtPrep *NNRT_NAME(linear_back_w_bias_prep)(int64_t m, int64_t k, int64_t n, bool trans);
int NNRT_NAME(linear_back_w_bias)(NnrtPrep *p, float *dw, float *db, const NNRT_T *x,
                                  const NNRT_T *dy);
// dw is added to its previous contents; db is written
NnrtPrep *NNRT_NAME(linear_back_w_accumulate_prep)(int64_t m, int64_t k, int64_t n, bool trans);
int NNRT_NAME(linear_back_w_accumulate)(NnrtPrep *p, float *dw, const NNRT_T *x, const NNRT_T *dy);
NnrtPrep *NNRT_NAME(linear_back_w_bias_accumulate_prep)(int64_t m, int64_t k, int64_t n,
                                                        bool trans);
int NNRT_NAME(linear_back_w_bias_accumulate)(NnrtPrep *p, float *dw, float *db, const NNRT_T *x,
                                             const NNRT_T *dy);
// The cross entropy of logits = x w (m, n) with labels (m) of `width` bytes each, as cross_entropy
// below: loss (m).  The logits are computed for some rows at a time, in scratch.
NnrtPrep *NNRT_NAME(classifier_prep)(int64_t m, int64_t k, int64_t n, bool trans, int64_t width,
                                     int64_t ignore);
int NNRT_NAME(classifier)(NnrtPrep *p, float *loss, const NNRT_T *x, const NNRT_T *w,
                          const void *labels);
// The same with the gradients: from dloss (m), dx (m, k) and dw, as w; dw is summed in f32.
NnrtPrep *NNRT_NAME(classifier_back_prep)(int64_t m, int64_t k, int64_t n, bool trans,
                                          int64_t width, int64_t ignore);
int NNRT_NAME(classifier_back)(NnrtPrep *p, float *loss, NNRT_T *dx, float *dw, const NNRT_T *x,
                               const NNRT_T *w, const void *labels, const float *dloss);

// Convolution.  x (n, c, spatial) or (n, spatial, c) when `channels_last`, y likewise; w is always
// (o, c / group, spatial).  pads: all the starts, then all the ends.  dilations: 1 is none.
NnrtPrep *NNRT_NAME(conv_prep)(int64_t ndim, const int64_t *x_shape, const int64_t *w_shape,
                               const int64_t *y_shape, const int64_t *strides, const int64_t *pads,
                               const int64_t *dilations, int64_t group, bool channels_last);
int NNRT_NAME(conv)(NnrtPrep *p, NNRT_T *y, const NNRT_T *x, const NNRT_T *w);
NnrtPrep *NNRT_NAME(conv_back_x_prep)(int64_t ndim, const int64_t *x_shape, const int64_t *w_shape,
                                      const int64_t *y_shape, const int64_t *strides,
                                      const int64_t *pads, const int64_t *dilations, int64_t group,
                                      bool channels_last);
int NNRT_NAME(conv_back_x)(NnrtPrep *p, NNRT_T *dx, const NNRT_T *w, const NNRT_T *dy);
// ndim is of w, and so of x
NnrtPrep *NNRT_NAME(conv_back_w_prep)(int64_t ndim, const int64_t *x_shape, const int64_t *w_shape,
                                      const int64_t *y_shape, const int64_t *strides,
                                      const int64_t *pads, const int64_t *dilations, int64_t group,
                                      bool channels_last);
int NNRT_NAME(conv_back_w)(NnrtPrep *p, float *dw, const NNRT_T *x, const NNRT_T *dy);

// Pooling.  `at` (of y's shape): the index of the maximum in the plane of x, row-major over its
// spatial dimensions; the first of equal ones, and the first NaN.
int NNRT_NAME(max_pool)(NNRT_T *y, int32_t *at, const NNRT_T *x, int64_t ndim,
                        const int64_t *x_shape, const int64_t *y_shape, const int64_t *kernel,
                        const int64_t *strides, const int64_t *pads, const int64_t *dilations,
                        bool channels_last);
int NNRT_NAME(max_pool_back)(NNRT_T *dx, const int32_t *at, const NNRT_T *dy, int64_t ndim,
                             const int64_t *y_shape, const int64_t *x_shape, const int64_t *kernel,
                             const int64_t *strides, const int64_t *pads, const int64_t *dilations,
                             bool channels_last);
// The mean of the window: over its elements in x and the pads if `include_pad`, else over its
// elements in x.
int NNRT_NAME(avg_pool)(NNRT_T *y, const NNRT_T *x, int64_t ndim, const int64_t *x_shape,
                        const int64_t *y_shape, const int64_t *kernel, const int64_t *strides,
                        const int64_t *pads, const int64_t *dilations, bool include_pad,
                        bool channels_last);
int NNRT_NAME(avg_pool_back)(NNRT_T *dx, const NNRT_T *dy, int64_t ndim, const int64_t *y_shape,
                             const int64_t *x_shape, const int64_t *kernel, const int64_t *strides,
                             const int64_t *pads, const int64_t *dilations, bool include_pad,
                             bool channels_last);

// Resampling along `axis`: y (…, m, …) and x (…, n, …), with first (m), weight (m, taps) and
// y[o] = sum over k of weight[o, k] x[first[o] + k], of the elements that x has.  One of weight 0
// is not read.
int NNRT_NAME(resample)(NNRT_T *y, const NNRT_T *x, const int32_t *first, const float *weight,
                        int64_t ndim, const int64_t *x_shape, const int64_t *w_shape, int64_t axis);
int NNRT_NAME(resample_back)(NNRT_T *dx, const int32_t *first, const float *weight,
                             const NNRT_T *dy, int64_t ndim, const int64_t *x_shape,
                             const int64_t *w_shape, int64_t axis);

// Normalisation.  softmax_back and log_softmax_back read the result y and the adjoint dy.
int NNRT_NAME(softmax)(NNRT_T *y, const NNRT_T *x, int64_t ndim, const int64_t *shape,
                       int64_t axis);
int NNRT_NAME(softmax_back)(NNRT_T *dx, const NNRT_T *y, const NNRT_T *dy, int64_t ndim,
                            const int64_t *shape, int64_t axis);
int NNRT_NAME(log_softmax)(NNRT_T *y, const NNRT_T *x, int64_t ndim, const int64_t *shape,
                           int64_t axis);
int NNRT_NAME(log_softmax_back)(NNRT_T *dx, const NNRT_T *y, const NNRT_T *dy, int64_t ndim,
                                const int64_t *shape, int64_t axis);
// y (m, n) = (x - mean) rstd g + b, with mean and rstd (m), g and b (n)
int NNRT_NAME(layer_norm)(NNRT_T *y, float *mean, float *rstd, const NNRT_T *x, const float *g,
                          const float *b, int64_t m, int64_t n, double eps);
int NNRT_NAME(layer_norm_back)(NNRT_T *dx, float *dg, float *db, const NNRT_T *x, const float *g,
                               const float *mean, const float *rstd, const NNRT_T *dy, int64_t m,
                               int64_t n);
// y (m, n) = x rstd g, with rstd (m) = 1 / sqrt(mean(x^2) + eps)
int NNRT_NAME(rms_norm)(NNRT_T *y, float *rstd, const NNRT_T *x, const float *g, int64_t m,
                        int64_t n, double eps);
int NNRT_NAME(rms_norm_back)(NNRT_T *dx, float *dg, const NNRT_T *x, const float *g,
                             const float *rstd, const NNRT_T *dy, int64_t m, int64_t n);
// With the sum of a residual stream, on GPUs only.  s (m, n) = x + r, y the norm of s; s may be x.
int NNRT_NAME(add_layer_norm)(NNRT_T *s, NNRT_T *y, float *mean, float *rstd, const NNRT_T *x,
                              const NNRT_T *r, const float *g, const float *b, int64_t m, int64_t n,
                              double eps);
int NNRT_NAME(add_rms_norm)(NNRT_T *s, NNRT_T *y, float *rstd, const NNRT_T *x, const NNRT_T *r,
                            const float *g, int64_t m, int64_t n, double eps);
// dx = dr + the dx of layer_norm_back, with dr (m, n); dx may be dr
int NNRT_NAME(layer_norm_back_add)(NNRT_T *dx, float *dg, float *db, const NNRT_T *dr,
                                   const NNRT_T *x, const float *g, const float *mean,
                                   const float *rstd, const NNRT_T *dy, int64_t m, int64_t n);
int NNRT_NAME(rms_norm_back_add)(NNRT_T *dx, float *dg, const NNRT_T *dr, const NNRT_T *x,
                                 const float *g, const float *rstd, const NNRT_T *dy, int64_t m,
                                 int64_t n);
// x, y of `shape`; all others (c), with c = shape[axis].  `count`: elements per channel of the
// whole batch, of which this may be a shard.
int NNRT_NAME(batch_norm)(NNRT_T *y, const NNRT_T *x, const float *g, const float *b,
                          const float *mean, const float *var, int64_t ndim, const int64_t *shape,
                          int64_t axis, double eps);
int NNRT_NAME(batch_norm_mean)(float *mean, const NNRT_T *x, int64_t ndim, const int64_t *shape,
                               int64_t axis, int64_t count);
int NNRT_NAME(batch_norm_var)(float *var, const NNRT_T *x, const float *mean, int64_t ndim,
                              const int64_t *shape, int64_t axis, int64_t count);
int NNRT_NAME(batch_norm_sums)(float *dg, float *db, const NNRT_T *x, const float *mean,
                               const float *var, const NNRT_T *dy, int64_t ndim,
                               const int64_t *shape, int64_t axis, double eps);
int NNRT_NAME(batch_norm_back)(NNRT_T *dx, const NNRT_T *x, const float *g, const float *mean,
                               const float *var, const NNRT_T *dy, const float *dg, const float *db,
                               int64_t ndim, const int64_t *shape, const NnrtBatchNormBack *attrs);

// Attention.  in: q (b, h, t, d), k (b, h, s, d), v (b, h, s, e), mask (b|1, h|1, t|1, s|1) if n is
// 4; (b, t, h, d) and so on if `seq_major`, y too.  y (b, h, t, e), lse (b, h, t).  causal:
// position i attends to 0 .. i + s - t.  A position that attends to nothing gets 0, and lse -inf.
// q may have r times the heads of k and v; its head i then reads head i / r of them.
NnrtPrep *NNRT_NAME(attention_prep)(int64_t n, int64_t ndim, const int64_t *q_shape,
                                    const int64_t *k_shape, const int64_t *v_shape,
                                    const int64_t *mask_shape, double scale, bool causal,
                                    bool seq_major);
int NNRT_NAME(attention)(NnrtPrep *p, NNRT_T *y, float *lse, const void *const *in);
// in: q, k, v, y, lse, dy, mask if n is 7
NnrtPrep *NNRT_NAME(attention_back_prep)(int64_t n, int64_t ndim, const int64_t *q_shape,
                                         const int64_t *k_shape, const int64_t *v_shape,
                                         const int64_t *mask_shape, double scale, bool causal,
                                         bool seq_major);
int NNRT_NAME(attention_back)(NnrtPrep *p, NNRT_T *dq, NNRT_T *dk, NNRT_T *dv,
                              const void *const *in);
// q, k and v packed, as the result of one product, on GPUs only: x (b, t, 3, heads, d), `shape` is
// (b, t, 3 heads d); y (b, t, heads, d), lse (b, heads, t).
NnrtPrep *NNRT_NAME(attention_packed_prep)(const int64_t *shape, int64_t heads, double scale,
                                           bool causal);
int NNRT_NAME(attention_packed)(NnrtPrep *p, NNRT_T *y, float *lse, const NNRT_T *x);
// dx as x
NnrtPrep *NNRT_NAME(attention_packed_back_prep)(const int64_t *shape, int64_t heads, double scale,
                                                bool causal);
int NNRT_NAME(attention_packed_back)(NnrtPrep *p, NNRT_T *dx, const NNRT_T *x, const NNRT_T *y,
                                     const float *lse, const NNRT_T *dy);

// Recurrent layers, one direction.  y (t, b, h), gx (t, b, gates h), weight (gates h, h), h0 and
// last (b, h), lengths (b) of 0 to t; sums: the operands of the activations, which the gradient
// reads.  From its length on, y of a row is 0 and its state stays.  f, g and h name activations
// (activation.h).  before (t, b, h): the state that each step read, 0 after the length.
// lstm: blocks i o f c; in: gx, weight, h0, c0 (b, h), lengths, peepholes (3 h) if n is 6.  last_c
// (b, h), sums (t, b, 4 h), c (t, b, h)
NnrtPrep *NNRT_NAME(lstm_prep)(int64_t n, const int64_t *y_shape, const char *f, const char *g,
                               const char *h, const NnrtLstm *attrs);
int NNRT_NAME(lstm)(NnrtPrep *p, NNRT_T *y, NNRT_T *last, float *last_c, NNRT_T *sums, float *c,
                    const void *const *in);
// in: sums, c, y, weight, h0, c0, lengths, dy, dlast, dlast_c, peepholes if n is 11
NnrtPrep *NNRT_NAME(lstm_back_prep)(int64_t n, const int64_t *y_shape, const char *f, const char *g,
                                    const char *h, const NnrtLstm *attrs);
int NNRT_NAME(lstm_back)(NnrtPrep *p, NNRT_T *dgx, NNRT_T *dh0, float *dc0, NNRT_T *before,
                         const void *const *in);
// gru: blocks z r n; bias (h) is added to the product of n.  sums (t, b, 3 h), or (t, b, 4 h) with
// linear_before_reset: the last block is the product with its bias
NnrtPrep *NNRT_NAME(gru_prep)(const int64_t *y_shape, const char *f, const char *g,
                              const NnrtGru *attrs);
int NNRT_NAME(gru)(NnrtPrep *p, NNRT_T *y, NNRT_T *last, NNRT_T *sums, const NNRT_T *gx,
                   const NNRT_T *weight, const float *bias, const NNRT_T *h0,
                   const int32_t *lengths);
// inner (t, b, h): the adjoint of the product of n with linear_before_reset, else r times `before`
NnrtPrep *NNRT_NAME(gru_back_prep)(const int64_t *y_shape, const char *f, const char *g,
                                   const NnrtGru *attrs);
int NNRT_NAME(gru_back)(NnrtPrep *p, NNRT_T *dgx, NNRT_T *dh0, NNRT_T *before, NNRT_T *inner,
                        const NNRT_T *sums, const NNRT_T *y, const NNRT_T *weight, const NNRT_T *h0,
                        const int32_t *lengths, const NNRT_T *dy, const NNRT_T *dlast);
// rnn: sums (t, b, h)
NnrtPrep *NNRT_NAME(rnn_prep)(const int64_t *y_shape, const char *f, const NnrtRnn *attrs);
int NNRT_NAME(rnn)(NnrtPrep *p, NNRT_T *y, NNRT_T *last, NNRT_T *sums, const NNRT_T *gx,
                   const NNRT_T *weight, const NNRT_T *h0, const int32_t *lengths);
NnrtPrep *NNRT_NAME(rnn_back_prep)(const int64_t *y_shape, const char *f, const NnrtRnn *attrs);
int NNRT_NAME(rnn_back)(NnrtPrep *p, NNRT_T *dgx, NNRT_T *dh0, NNRT_T *before, const NNRT_T *sums,
                        const NNRT_T *y, const NNRT_T *weight, const NNRT_T *h0,
                        const int32_t *lengths, const NNRT_T *dy, const NNRT_T *dlast);

// Losses.  logits (m, c), labels (m) of `width` bytes each, loss and lse (m).  If the c classes are
// a shard of `all`, they begin with number `from`; a label outside of the shard contributes 0.
int NNRT_NAME(cross_entropy)(float *loss, float *lse, const NNRT_T *logits, const void *labels,
                             int64_t m, int64_t c, int64_t width, int64_t ignore, int64_t classes);
int NNRT_NAME(cross_entropy_back)(NNRT_T *dlogits, const NNRT_T *logits, const void *labels,
                                  const float *lse, const float *dloss, int64_t m, int64_t c,
                                  int64_t from, int64_t all, int64_t width, int64_t ignore);
// log-probabilities (m, c)
int NNRT_NAME(nll)(float *loss, const NNRT_T *logp, const void *labels, int64_t m, int64_t c,
                   int64_t from, int64_t all, int64_t width, int64_t ignore);
// y (m, g): the log-sum-exp of the rows of x (m, g, c); -inf if all elements are.  The g c columns
// are those from `from` on, and columns from number `all` on are padding.
int NNRT_NAME(lse_parts)(float *y, const NNRT_T *x, int64_t m, int64_t g, int64_t c, int64_t from,
                         int64_t all);

// Lookup
// dx of x_shape: each of its elements is the sum of the elements of dy that gather took from it, in
// the order of dy.  `batch`, `from` and `all` as in gather.
int NNRT_NAME(gather_back)(float *dx, const void *at, const NNRT_T *dy, int64_t at_ndim,
                           const int64_t *at_shape, int64_t width, int64_t x_ndim,
                           const int64_t *x_shape, int64_t axis, int64_t batch, int64_t from,
                           int64_t all);
// Adds them to dx, along its dimension 0.
int NNRT_NAME(gather_back_accumulate)(float *dx, const void *at, const NNRT_T *dy, int64_t at_ndim,
                                      const int64_t *at_shape, int64_t width, int64_t x_ndim,
                                      const int64_t *x_shape, int64_t from, int64_t all);

// Experts.  Row i of y (rows, n) = row i of x (rows, k) times matrix `index[i]` of w, of w_shape:
// (experts, k, n), or (experts, n, k) if `trans`; zeros if that is -1 or not one of w, which begins
// with expert `from` of `all`.  Indices have `width` bytes.  `parts`: dimension 0 of at_shape is
// parts, each with as many rows and experts as the others; rows of other parts' experts are zero.
int NNRT_NAME(grouped_linear)(NNRT_T *y, const NNRT_T *w, const NNRT_T *x, const void *index,
                              int64_t at_ndim, const int64_t *at_shape, const int64_t *w_shape,
                              int64_t from, int64_t all, int64_t width, bool trans, bool parts);
// dw of w_shape: for each expert the sum over its rows of x' dy, or dy' x if `trans`
int NNRT_NAME(grouped_linear_back_w)(float *dw, const void *index, const NNRT_T *x,
                                     const NNRT_T *dy, int64_t at_ndim, const int64_t *at_shape,
                                     const int64_t *w_shape, int64_t from, int64_t all,
                                     int64_t width, bool trans, bool parts);

// Random.  y of `shape`, which begins at `start` in a tensor of shape `whole`: x / (1 - ratio), or
// 0 if nnrt_random_uniform(seed, step, key, index in the whole) is below `ratio`.  That tensor may
// itself begin at `piece_start` of one of shape `piece_of`, and then indices in that count; or
// NULL.
int NNRT_NAME(dropout)(NNRT_T *y, const NNRT_T *x, const int64_t *step, const int64_t *seed,
                       int64_t ndim, const int64_t *shape, const int64_t *whole,
                       const int64_t *start, const int64_t *piece_of, const int64_t *piece_start,
                       double ratio, int64_t key);
// y of `shape`, placed as above: x + scale number, with the number of an element from
// nnrt_random_normal or nnrt_random_uniform of seed, step, key and its index.
int NNRT_NAME(noise)(NNRT_T *y, const NNRT_T *x, const int64_t *step, const int64_t *seed,
                     int64_t ndim, const int64_t *shape, const int64_t *whole, const int64_t *start,
                     const int64_t *piece_of, const int64_t *piece_start, const NnrtNoise *attrs);
