// Attention with at most one tile of scores in memory: y = softmax(scale q k' + mask) v, one block
// of queries after another, over the keys in tiles.  When a tile raises the running maximum, the
// previous sums are scaled down (Milakov and Gimelshein, "Online normalizer calculation for
// softmax"; Dao et al., "FlashAttention", algorithm 1).  Tiles that a causal mask hides from all
// queries of the block are skipped.

#include "attention.h"

static void prep_free(NnrtPrep *p) {
  free(p);
}

Attention *attention_new(int64_t ndim, const int64_t *q_shape, const int64_t *k_shape,
                         const int64_t *v_shape, const int64_t *mask_shape, double scale,
                         bool causal, bool seq_major) {
  if (ndim != 4) {
    nnrt_error(NNRT_UNSUPPORTED, "attention: operands have %lld dimensions, not 4",
               (long long)ndim);
    return NULL;
  }
  Attention *p = calloc(1, sizeof *p);
  if (!p) {
    nnrt_error(NNRT_MEMORY, "attention: no memory");
    return NULL;
  }
  // The layout decides which dimension has the heads.
  int heads = seq_major ? 2 : 1, seq = seq_major ? 1 : 2;
  p->base.free = prep_free;
  p->b = q_shape[0];
  p->h = q_shape[heads];
  // Grouped-query attention: several heads of q share one of k and v.
  p->group = q_shape[heads] / k_shape[heads];
  p->t = q_shape[seq];
  p->s = k_shape[seq];
  p->d = q_shape[3];
  p->e = v_shape[3];
  p->scale = (float)scale;
  p->causal = causal;
  p->seq_major = seq_major;
  if (mask_shape) {
    // A dimension of length 1 is broadcast: stride 0.
    int64_t stride = 1;
    p->has_mask = true;
    for (int i = 3; i >= 0; i--) {
      p->mask_stride[i] = mask_shape[i] == 1 ? 0 : stride;
      stride *= mask_shape[i];
    }
  }
  return p;
}

NNRT_CLONES void attention_transpose(float *block, const float *x, int64_t row, int64_t n,
                                     int64_t count, float scale) {
  for (int64_t c = 0; c < n; c++) {
    // One column of x becomes one vector of lanes.
    float *to = block + c * LANES;
    for (int64_t l = 0; l < LANES; l++)
      to[l] = l < count ? x[l * row + c] * scale : 0.0f;
  }
}

// scores += mask; mask begins at (query i, key j)
NNRT_CLONES static void add_mask(float *restrict scores, const float *restrict mask,
                                 int64_t query_stride, int64_t key_stride, int64_t keys,
                                 int64_t count) {
  for (int64_t j = 0; j < keys; j++)
    for (int64_t l = 0; l < count; l++)
      scores[j * LANES + l] += mask[l * query_stride + j * key_stride];
}

void attention_scores(const Attention *p, float *scores, const float *block, const float *k,
                      int64_t k_row, const float *mask, int64_t i, int64_t j, int64_t keys) {
  // scores = k q', one row per key.
  tile_product(&(TileProduct){.c = scores,
                              .c_row = LANES,
                              .a = k + j * k_row,
                              .a_row = k_row,
                              .a_step = 1,
                              .b = block,
                              .b_row = LANES,
                              .rows = keys,
                              .lanes = LANES,
                              .steps = p->d});
  int64_t count = p->t - i < LANES ? p->t - i : LANES;
  if (mask)
    add_mask(scores, mask + i * p->mask_stride[2] + j * p->mask_stride[3], p->mask_stride[2],
             p->mask_stride[3], keys, count);
  // The causal mask: keys after the last visible one.
  for (int64_t l = 0; p->causal && l < count; l++) {
    int64_t hidden = visible(p, i + l) - j;
    if (hidden >= keys) break; // later queries attend to more
    for (int64_t c = hidden < 0 ? 0 : hidden; c < keys; c++)
      scores[c * LANES + l] = -INFINITY;
  }
}

// Replaces scores by e^(score - maximum), and sums them.  Sets `shrink`, per lane, to the factor
// for the previous sums.
NNRT_CLONES static void online_softmax(float *restrict scores, int64_t keys, float *restrict top,
                                       float *restrict sum, float *restrict shrink) {
  float high[LANES], base[LANES], total[LANES];
  for (int l = 0; l < LANES; l++)
    high[l] = top[l];
  // The maximum of each lane over this tile and all before it.
  for (int64_t j = 0; j < keys; j++)
    for (int l = 0; l < LANES; l++)
      high[l] = scores[j * LANES + l] > high[l] ? scores[j * LANES + l] : high[l];
  for (int l = 0; l < LANES; l++) {
    base[l] = high[l] == -INFINITY ? 0.0f : high[l]; // no visible key yet: all powers are 0
    // Sums so far were relative to the old maximum.
    shrink[l] = m_exp_f(top[l] - base[l]);
    total[l] = sum[l] * shrink[l];
    top[l] = high[l];
  }
  // The powers of the tile, and their sum.
  for (int64_t j = 0; j < keys; j++)
    for (int l = 0; l < LANES; l++) {
      float e = m_exp_f(scores[j * LANES + l] - base[l]);
      scores[j * LANES + l] = e;
      total[l] += e;
    }
  for (int l = 0; l < LANES; l++)
    sum[l] = total[l];
}

NNRT_CLONES static void scale_lanes(float *restrict x, const float *restrict by, int64_t n) {
  for (int64_t c = 0; c < n; c++)
    for (int l = 0; l < LANES; l++)
      x[c * LANES + l] *= by[l];
}

// y (count rows of e) = block (e, LANES) transposed, divided by the sums
NNRT_CLONES static void store_block(float *restrict y, int64_t row, const float *restrict block,
                                    const float *restrict factor, int64_t e, int64_t count) {
  for (int64_t l = 0; l < count; l++)
    for (int64_t c = 0; c < e; c++)
      y[l * row + c] = block[c * LANES + l] * factor[l];
}

// Computes queries i .. i + LANES of one head.
static void forward_block(const Attention *p, float *y, Head yh, float *lse, const float *q,
                          Head qh, const float *k, Head kh, const float *v, Head vh,
                          const float *mask, int64_t i, float *memory) {
  float *queries = memory, *sums = queries + p->d * LANES, *scores = sums + p->e * LANES;
  float top[LANES], sum[LANES], shrink[LANES];
  int64_t count = p->t - i < LANES ? p->t - i : LANES;
  // The scale is applied once, to the queries.
  attention_transpose(queries, q + qh.at + i * qh.row, qh.row, p->d, count, p->scale);
  for (int l = 0; l < LANES; l++) {
    top[l] = -INFINITY;
    sum[l] = 0;
  }
  memset(sums, 0, (size_t)(p->e * LANES) * sizeof *sums);
  // Keys that no query of the block sees are skipped.
  int64_t seen = visible(p, i + count - 1);
  for (int64_t j = 0; j < seen; j += KEYS) {
    int64_t keys = seen - j < KEYS ? seen - j : KEYS;
    attention_scores(p, scores, queries, k + kh.at, kh.row, mask, i, j, keys);
    online_softmax(scores, keys, top, sum, shrink);
    if (j > 0) scale_lanes(sums, shrink, p->e);
    // sums += v' scores, one row per element of v.
    tile_product(&(TileProduct){.c = sums,
                                .c_row = LANES,
                                .a = v + vh.at + j * vh.row,
                                .a_row = 1,
                                .a_step = vh.row,
                                .b = scores,
                                .b_row = LANES,
                                .rows = p->e,
                                .lanes = LANES,
                                .steps = keys,
                                .add = true});
  }
  // The log-sum-exp is saved for the gradient.
  for (int64_t l = 0; l < count; l++) {
    lse[i + l] = top[l] + logf(sum[l]); // -inf without visible keys
    shrink[l] = sum[l] > 0 ? 1.0f / sum[l] : sum[l];
  }
  store_block(y + yh.at + i * yh.row, yh.row, sums, shrink, p->e, count);
}

NnrtPrep *nnrt_attention_prep_f32(int64_t n, int64_t ndim, const int64_t *q_shape,
                                  const int64_t *k_shape, const int64_t *v_shape,
                                  const int64_t *mask_shape, double scale, bool causal,
                                  bool seq_major) {
  Attention *p = attention_new(ndim, q_shape, k_shape, v_shape, n > 3 ? mask_shape : NULL, scale,
                               causal, seq_major);
  return p ? &p->base : NULL;
}

int nnrt_attention_f32(NnrtPrep *prep, float *y, float *lse, const void *const *in) {
  const Attention *p = (const Attention *)prep;
  const float *q = in[0], *k = in[1], *v = in[2], *mask = p->has_mask ? in[3] : NULL;
  int64_t blocks = (p->t + LANES - 1) / LANES;
  int64_t each = (p->d + p->e + KEYS) * LANES; // floats of a thread: queries, sums, scores
  int64_t kv_heads = p->h / p->group;
  int threads = threads_for(p->b * p->h * p->t * p->s);
  size_t bytes = (size_t)(threads * each) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
    // Dynamic, because under a causal mask later blocks attend to more; blocks are independent, so
    // the result does not depend on the thread.
#pragma omp parallel for collapse(2) num_threads(threads) schedule(dynamic)
  for (int64_t bh = 0; bh < p->b * p->h; bh++)
    for (int64_t block = 0; block < blocks; block++) {
      // Heads of q share a head of k and v in groups.
      int64_t b = bh / p->h, h = bh % p->h;
      const float *m = mask ? mask + b * p->mask_stride[0] + h * p->mask_stride[1] : NULL;
      forward_block(p, y, head_of(p, p->h, b, h, p->t, p->e), lse + bh * p->t, q,
                    head_of(p, p->h, b, h, p->t, p->d), k,
                    head_of(p, kv_heads, b, h / p->group, p->s, p->d), v,
                    head_of(p, kv_heads, b, h / p->group, p->s, p->e), m, block * LANES,
                    memory + omp_get_thread_num() * each);
    }
  return NNRT_OK;
}
