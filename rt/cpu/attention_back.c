// The gradient of attention.  The probabilities are recomputed, tile by tile, from the log-sum-exp
// that the forward pass saved (Dao et al., "FlashAttention", algorithm 4):
//
//     P = e^(scale q k' + mask - lse)      dV = P' dy       dP = dy v'
//     dS = P (dP - D) scale                dQ = dS k        dK = dS' q       D = rowsum(dy y)
//
// A task is one head of k and v with the heads of q that read it, or, with fewer heads than
// threads, a range of its keys: only this task adds to its rows of dK and dV.  The ranges' parts of
// dQ are added at the end, in order.

#include "attention.h"

typedef struct Back {
  Attention attention; // begins with the NnrtPrep
  int64_t dp, ep;      // d and e, rounded up to LANES
} Back;

static int64_t round_lanes(int64_t n) {
  return (n + LANES - 1) / LANES * LANES;
}

// P and dS of a tile from scores and dP (keys, LANES) each; in place
NNRT_CLONES static void probabilities(float *restrict scores, float *restrict dp, int64_t keys,
                                      const float *restrict lse, const float *restrict delta,
                                      float scale) {
  for (int64_t j = 0; j < keys; j++)
    for (int l = 0; l < LANES; l++) {
      // P by the saved log-sum-exp, without a maximum.
      float e = m_exp_f(scores[j * LANES + l] - lse[l]);
      scores[j * LANES + l] = e;
      dp[j * LANES + l] = e * (dp[j * LANES + l] - delta[l]) * scale;
    }
}

NNRT_CLONES static float dot(const float *x, const float *y, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * y[i];
  return sum;
}

// to (LANES, padded) = count rows of x; the rest is 0
static void pad_rows(float *to, int64_t padded, const float *x, int64_t row, int64_t n,
                     int64_t count) {
  memset(to, 0, (size_t)(LANES * padded) * sizeof *to);
  // Products take whole vectors of lanes.
  for (int64_t l = 0; l < count; l++)
    memcpy(to + l * padded, x + l * row, (size_t)n * sizeof *to);
}

// One head of q within a task.
typedef struct Task {
  const float *q, *k, *v, *y, *lse, *dy, *mask;
  float *dq; // t rows of dq_row
  int64_t q_row, k_row, v_row, y_row, dq_row;
  Part keys;
} Task;

static void back_block(const Back *p, const Task *task, int64_t i, float *memory, float *dk,
                       float *dv) {
  const Attention *a = &p->attention;
  int64_t d = a->d, e = a->e, count = a->t - i < LANES ? a->t - i : LANES;
  float *qt = memory, *dyt = qt + d * LANES, *dqt = dyt + e * LANES; // (d or e, LANES)
  float *qs = dqt + d * LANES, *dys = qs + p->dp * LANES;            // (LANES, dp or ep)
  float *scores = dys + p->ep * LANES, *ds = scores + KEYS * LANES;  // (KEYS, LANES)
  float lse[LANES], delta[LANES];
  const float *q = task->q + i * task->q_row, *dy = task->dy + i * task->y_row;
  // The block's queries and gradients, transposed and as padded rows.
  attention_transpose(qt, q, task->q_row, d, count, a->scale);
  attention_transpose(dyt, dy, task->y_row, e, count, 1.0f);
  pad_rows(qs, p->dp, q, task->q_row, d, count);
  pad_rows(dys, p->ep, dy, task->y_row, e, count);
  memset(dqt, 0, (size_t)(d * LANES) * sizeof *dqt);
  for (int64_t l = 0; l < LANES; l++) {
    // Lanes beyond the last query, and queries without visible keys, get probability 0.
    bool sees = l < count && task->lse[i + l] > -INFINITY;
    lse[l] = sees ? task->lse[i + l] : INFINITY;
    delta[l] = l < count ? dot(dy + l * task->y_row, task->y + (i + l) * task->y_row, e) : 0.0f;
  }
  // Only keys that a query of the block sees, within the task's range.
  int64_t seen = visible(a, i + count - 1);
  int64_t to = seen < task->keys.to ? seen : task->keys.to;
  for (int64_t j = task->keys.from; j < to; j += KEYS) {
    int64_t keys = to - j < KEYS ? to - j : KEYS;
    const float *k = task->k + j * task->k_row, *v = task->v + j * task->v_row;
    attention_scores(a, scores, qt, task->k, task->k_row, task->mask, i, j, keys);
    tile_product(&(TileProduct){.c = ds, // dP: keys x lanes, over e
                                .c_row = LANES,
                                .a = v,
                                .a_row = task->v_row,
                                .a_step = 1,
                                .b = dyt,
                                .b_row = LANES,
                                .rows = keys,
                                .lanes = LANES,
                                .steps = e});
    probabilities(scores, ds, keys, lse, delta, a->scale);
    tile_product(&(TileProduct){.c = dv + (j - task->keys.from) * p->ep, // over queries
                                .c_row = p->ep,
                                .a = scores,
                                .a_row = LANES,
                                .a_step = 1,
                                .b = dys,
                                .b_row = p->ep,
                                .rows = keys,
                                .lanes = p->ep,
                                .steps = count,
                                .add = true});
    tile_product(&(TileProduct){.c = dk + (j - task->keys.from) * p->dp, // over queries
                                .c_row = p->dp,
                                .a = ds,
                                .a_row = LANES,
                                .a_step = 1,
                                .b = qs,
                                .b_row = p->dp,
                                .rows = keys,
                                .lanes = p->dp,
                                .steps = count,
                                .add = true});
    tile_product(&(TileProduct){.c = dqt, // d x lanes, over keys
                                .c_row = LANES,
                                .a = k,
                                .a_row = 1,
                                .a_step = task->k_row,
                                .b = ds,
                                .b_row = LANES,
                                .rows = d,
                                .lanes = LANES,
                                .steps = keys,
                                .add = true});
  }
  for (int64_t l = 0; l < count; l++)
    for (int64_t c = 0; c < d; c++)
      task->dq[(i + l) * task->dq_row + c] = dqt[c * LANES + l];
}

// dq (t rows of d) = the sum of the parts (parts, t, d)
NNRT_CLONES static void add_queries(float *restrict dq, int64_t row, const float *restrict part,
                                    int64_t parts, int64_t t, int64_t d) {
  for (int64_t i = 0; i < t; i++) {
    memcpy(dq + i * row, part + i * d, (size_t)d * sizeof *dq);
    // Always in the same order, so that the bits do not depend on timing.
    for (int64_t n = 1; n < parts; n++)
      for (int64_t c = 0; c < d; c++)
        dq[i * row + c] += part[(n * t + i) * d + c];
  }
}

NnrtPrep *nnrt_attention_back_prep_f32(int64_t n, int64_t ndim, const int64_t *q_shape,
                                       const int64_t *k_shape, const int64_t *v_shape,
                                       const int64_t *mask_shape, double scale, bool causal,
                                       bool seq_major) {
  Attention *a = attention_new(ndim, q_shape, k_shape, v_shape, n > 6 ? mask_shape : NULL, scale,
                               causal, seq_major);
  if (!a) return NULL;
  // The padded widths are multiples of a vector.
  Back *p = malloc(sizeof *p);
  if (p) *p = (Back){*a, round_lanes(a->d), round_lanes(a->e)};
  if (!p) nnrt_error(NNRT_MEMORY, "attention_back: no memory");
  free(a);
  return p ? &p->attention.base : NULL;
}

// Operands, results, and the buffer for the parts of dQ, (b, h, parts, t, d), if there is more than
// one.
typedef struct Tensors {
  const void *const *in;
  float *dq, *dk, *dv, *dq_parts;
} Tensors;

// Computes part `part` of head `shared` of k and v.
static void back_task(const Back *p, const Tensors *x, int64_t b, int64_t shared, int64_t part,
                      int64_t parts, float *memory) {
  const Attention *a = &p->attention;
  int64_t kv_heads = a->h / a->group;
  Head kh = head_of(a, kv_heads, b, shared, a->s, a->d);
  Head vh = head_of(a, kv_heads, b, shared, a->s, a->e);
  Part keys = part_of(a->s, KEYS, part, parts);
  int64_t rows = keys.to - keys.from;
  float *dk = memory, *dv = dk + a->s * p->dp, *rest = dv + a->s * p->ep;
  // The gradients of this range of keys, over all heads of q that read it.
  memset(dk, 0, (size_t)(rows * p->dp) * sizeof *dk);
  memset(dv, 0, (size_t)(rows * p->ep) * sizeof *dv);
  for (int64_t h = shared * a->group; h < (shared + 1) * a->group; h++) {
    Head qh = head_of(a, a->h, b, h, a->t, a->d), yh = head_of(a, a->h, b, h, a->t, a->e);
    const float *mask = a->has_mask ? x->in[6] : NULL;
    int64_t bh = b * a->h + h;
    Task task = {.q = (const float *)x->in[0] + qh.at,
                 .k = (const float *)x->in[1] + kh.at,
                 .v = (const float *)x->in[2] + vh.at,
                 .y = (const float *)x->in[3] + yh.at,
                 .lse = (const float *)x->in[4] + bh * a->t,
                 .dy = (const float *)x->in[5] + yh.at,
                 .mask = mask ? mask + b * a->mask_stride[0] + h * a->mask_stride[1] : NULL,
                 .dq = parts > 1 ? x->dq_parts + (bh * parts + part) * a->t * a->d : x->dq + qh.at,
                 .q_row = qh.row,
                 .k_row = kh.row,
                 .v_row = vh.row,
                 .y_row = yh.row,
                 .dq_row = parts > 1 ? a->d : qh.row,
                 .keys = keys};
    for (int64_t i = 0; i < a->t; i += LANES)
      back_block(p, &task, i, rest, dk, dv);
  }
  // The padding is dropped.
  for (int64_t j = 0; j < rows; j++) {
    memcpy(x->dk + kh.at + (keys.from + j) * kh.row, dk + j * p->dp, (size_t)a->d * sizeof *dk);
    memcpy(x->dv + vh.at + (keys.from + j) * vh.row, dv + j * p->ep, (size_t)a->e * sizeof *dv);
  }
}

int nnrt_attention_back_f32(NnrtPrep *prep, float *dq, float *dk, float *dv,
                            const void *const *in) {
  const Back *p = (const Back *)prep;
  const Attention *a = &p->attention;
  int threads = threads_for(a->b * a->h * a->t * a->s);
  int64_t kv_heads = a->h / a->group, heads = a->b * kv_heads;
  // Few heads are divided into ranges of keys, so that all threads work.
  int64_t parts = heads >= threads ? 1 : (threads + heads - 1) / heads;
  // A thread's floats: blocks of queries, two tiles, and dK and dV of a task.
  int64_t each = (2 * a->d + a->e + p->dp + p->ep + 2 * KEYS) * LANES + a->s * (p->dp + p->ep);
  int64_t dq_size = a->t * a->d;
  int64_t queries = parts > 1 ? a->b * a->h * parts * dq_size : 0;
  size_t bytes = (size_t)(threads * each + queries) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
  Tensors x = {.in = in, .dq = dq, .dk = dk, .dv = dv, .dq_parts = memory + threads * each};
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t i = 0; i < heads * parts; i++)
    back_task(p, &x, i / parts / kv_heads, i / parts % kv_heads, i % parts, parts,
              memory + omp_get_thread_num() * each);
  // Each range has computed a part of dQ.
  for (int64_t i = 0; parts > 1 && i < a->b * a->h; i++) {
    Head qh = head_of(a, a->h, i / a->h, i % a->h, a->t, a->d);
    add_queries(dq + qh.at, qh.row, x.dq_parts + i * parts * dq_size, parts, a->t, a->d);
  }
  return NNRT_OK;
}
