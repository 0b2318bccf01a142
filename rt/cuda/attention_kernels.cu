// The kernels of attention: the softmax between two matrix products, for shapes that cuDNN does not
// support, and conversions around cuDNN.
//
// A warp computes a row of scores.  It reads the row three times, which is cheap: a row stays in
// the cache.

#include "attention.h"
#include "device.cuh"

// Masks for cuDNN, which computes NaN for a row of -inf.  It multiplies scores by log2(e), which
// must stay finite, so HIDDEN is far from the largest float.  A row with a log-sum-exp below BLIND
// saw only HIDDEN.
#define HIDDEN    (-1e38f)
#define LEAST     (-1e37f)
#define BLIND     (-5e37f)
#define NO_WEIGHT 1e30f // e^(HIDDEN - NO_WEIGHT) and e^(x - NO_WEIGHT) are 0

namespace {

struct Row {
  int64_t b, h, i; // the query
  int64_t head;    // in b h
  int64_t seen;    // number of visible keys, from 0
  int64_t mask;    // offset of its mask
};

__device__ inline Row row_at(const AttentionRows &x, int64_t r) {
  Row row;
  row.head = x.head + r / x.rows * x.head_step;
  row.b = row.head / x.h;
  row.h = row.head % x.h;
  row.i = x.first + r % x.rows;
  // Query i sees keys up to i + s - t.
  int64_t n = x.causal ? row.i + x.s - x.t + 1 : x.s;
  row.seen = n < 0 ? 0 : n < x.s ? n : x.s;
  row.mask = row.b * x.mask_stride[0] + row.h * x.mask_stride[1] + row.i * x.mask_stride[2];
  return row;
}

// The offset of query `row` in y (b, h, t, e).
__device__ inline int64_t y_at(const AttentionRows &x, const Row &row) {
  return x.seq_major ? ((row.b * x.t + row.i) * x.h + row.h) * x.e : (row.head * x.t + row.i) * x.e;
}

template <class T>
__device__ inline float attention_score(const AttentionRows &x, const float *scores, const T *mask,
                                        const Row &row, int64_t j) {
  return mask ? scores[j] + load(mask + row.mask + j * x.mask_stride[3]) : scores[j];
}

template <class T>
__global__ void softmax_rows(T *p, float *lse, const float *scores, const T *mask,
                             AttentionRows x) {
  int lane = (int)(threadIdx.x % WARP);
  for (int64_t r = first_thread() / WARP; r < x.n * x.rows; r += all_threads() / WARP) {
    Row row = row_at(x, r);
    const float *in = scores + r * x.s;
    // The maximum of the visible scores; NaN stays.
    float top = -INFINITY, sum = 0;
    for (int64_t j = lane; j < row.seen; j += WARP) {
      float y = attention_score(x, in, mask, row, j);
      top = y > top || y != y ? y : top;
    }
    top = warp_max(top);
    float base = top == -INFINITY ? 0 : top; // no visible key: all powers are 0
    for (int64_t j = lane; j < row.seen; j += WARP)
      sum += expf(attention_score(x, in, mask, row, j) - base);
    sum = warp_sum(sum);
    // A row that sees no key has probabilities of 0.
    float share = sum == 0 ? 0 : 1 / sum;
    for (int64_t j = lane; j < x.s; j += WARP) {
      float y = j < row.seen ? expf(attention_score(x, in, mask, row, j) - base) * share : 0;
      store(p + r * x.s + j, y);
    }
    if (lane == 0) lse[row.head * x.t + row.i] = sum == 0 ? -INFINITY : base + logf(sum);
  }
}

template <class T>
__global__ void softmax_rows_back(T *p, T *ds, const float *scores, const float *dp,
                                  const float *lse, const T *mask, const T *y, const T *dy,
                                  float scale, AttentionRows x) {
  int lane = (int)(threadIdx.x % WARP);
  for (int64_t r = first_thread() / WARP; r < x.n * x.rows; r += all_threads() / WARP) {
    Row row = row_at(x, r);
    int64_t at = y_at(x, row);
    float delta = 0, log_sum = lse[row.head * x.t + row.i];
    for (int64_t c = lane; c < x.e; c += WARP)
      delta += load(y + at + c) * load(dy + at + c);
    // sum dy y of the row.
    delta = warp_sum(delta);
    for (int64_t j = lane; j < x.s; j += WARP) {
      float e = 0, d = dp[r * x.s + j];
      // The probability again, from lse.
      if (j < row.seen && log_sum != -INFINITY)
        e = expf(attention_score(x, scores + r * x.s, mask, row, j) - log_sum);
      store(p + r * x.s + j, e);
      store(ds + r * x.s + j, e == 0 ? 0 : e * (d - delta) * scale);
    }
  }
}

template <class T>
__global__ void store_heads(T *to, int64_t head, int64_t row, const float *from, int64_t n,
                            int64_t rows, int64_t columns) {
  for (int64_t i = first_thread(); i < n * rows * columns; i += all_threads()) {
    int64_t c = i % columns, r = i / columns % rows, x = i / columns / rows;
    store(to + x * head + r * row + c, from[i]);
  }
}

// Dimensions of a mask (b, h, t, s).
struct MaskDims {
  int64_t at[4];
};

template <class T>
__global__ void finite_mask(float *to, MaskDims wide, const T *mask, MaskDims d) {
  int64_t n = wide.at[0] * wide.at[1] * wide.at[2] * wide.at[3];
  for (int64_t i = first_thread(); i < n; i += all_threads()) {
    int64_t from = 0, rest = i, stride = 1;
    // The index in the mask, of which a dimension may be 1.
    for (int k = 3; k >= 0; k--) {
      from += d.at[k] == 1 ? 0 : rest % wide.at[k] * stride;
      rest /= wide.at[k];
      stride *= d.at[k];
    }
    float x = load(mask + from);
    to[i] = x == -INFINITY ? HIDDEN : x < LEAST ? LEAST : x;
  }
}

template <class T>
__global__ void blind_rows(T *y, float *lse, int64_t b, int64_t h, int64_t t, int64_t e,
                           bool seq_major) {
  for (int64_t i = first_thread(); i < b * h * t; i += all_threads()) {
    if (!(lse[i] < BLIND)) continue;
    // y has either layout, lse is (b, h, t).
    int64_t row = i % t, head = i / t;
    int64_t at = seq_major ? ((head / h * t + row) * h + head % h) * e : i * e;
    lse[i] = -INFINITY;
    for (int64_t c = 0; c < e; c++)
      store(y + at + c, 0);
  }
}

__global__ void finite_lse(float *to, const float *lse, int64_t n) {
  for (int64_t i = first_thread(); i < n; i += all_threads())
    to[i] = lse[i] == -INFINITY ? NO_WEIGHT : lse[i];
}

// The number of blocks for `rows`, with a warp per row.
int blocks_of_warps(int64_t rows) {
  return blocks_for(rows * WARP);
}

} // namespace

int attention_softmax(const AttentionRows *x, NnrtDtype type, void *p, float *lse,
                      const float *scores, const void *mask) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(softmax_rows<T>, blocks_of_warps(x->n * x->rows), BLOCK, 0, (T *)p, lse, scores,
                  (const T *)mask, *x);
  });
}

int attention_softmax_back(const AttentionRows *x, NnrtDtype type, void *p, void *ds,
                           const float *scores, const float *dp, const float *lse, const void *mask,
                           const void *y, const void *dy, float scale) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(softmax_rows_back<T>, blocks_of_warps(x->n * x->rows), BLOCK, 0, (T *)p, (T *)ds,
                  scores, dp, lse, (const T *)mask, (const T *)y, (const T *)dy, scale, *x);
  });
}

int attention_store(NnrtDtype type, void *to, int64_t head, int64_t row, const float *from,
                    int64_t n, int64_t rows, int64_t columns) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(store_heads<T>, blocks_for(n * rows * columns), BLOCK, 0, (T *)to, head, row,
                  from, n, rows, columns);
  });
}

int attention_mask_f32(NnrtDtype type, float *to, const int64_t *to_dim, const void *mask,
                       const int64_t *dim) {
  MaskDims wide, narrow;
  for (int i = 0; i < 4; i++) {
    wide.at[i] = to_dim[i];
    narrow.at[i] = dim[i];
  }
  int64_t n = wide.at[0] * wide.at[1] * wide.at[2] * wide.at[3];
  return with_short_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(finite_mask<T>, blocks_for(n), BLOCK, 0, to, wide, (const T *)mask, narrow);
  });
}

int attention_blind_rows(const AttentionShape *a, void *y, float *lse) {
  return with_short_type(a->type, [&](auto element) {
    using T = decltype(element);
    return launch(blind_rows<T>, blocks_for(a->b * a->h * a->t), BLOCK, 0, (T *)y, lse, a->b, a->h,
                  a->t, a->e, a->seq_major);
  });
}

int attention_finite_lse(float *to, const float *lse, int64_t n) {
  return launch(finite_lse, blocks_for(n), BLOCK, 0, to, lse, n);
}
