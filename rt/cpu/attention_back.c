// The gradient of attention.  The probabilities are recomputed, tile by tile, from the log-sum-exp
// that the forward pass saved (Dao et al., "FlashAttention", algorithm 4):
//
//     P = e^(scale q k' + mask - lse)      dV = P' dy       dP = dy v'
//     dS = P (dP - D) scale                dQ = dS k        dK = dS' q       D = rowsum(dy y)
//
// The keys are divided into ranges, by their number alone.  A task is a range of one head of k and
// v with the heads of q that read it: only this task adds to its rows of dK and dV.  With fewer
// heads than threads, tasks of different threads keep their parts of dQ, which are added at the
// end; else a thread computes all ranges of a head, and adds each part to those before.  Both are
// the same sums in the same order, so the bits do not depend on the number of threads.

#include "attention.h"

enum { KEYS = 64 }; // of a tile

typedef struct Back {
  Attention attention; // begins with the NnrtPrep
  int64_t dp, ep;      // d and e, rounded up to whole vectors
  int64_t ranges;
} Back;

NNRT_CLONES static float dot(const float *x, const float *y, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * y[i];
  return sum;
}

NNRT_CLONES static void add_rows(float *restrict y, const float *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i];
}

// One head of q within a task.
typedef struct Task {
  Head q, y, dy;
  const float *lse;
  const char *mask;
  Rows k, v; // of the range
  Part keys; // the range
  float *dk, *dv;
  bool first; // dk and dv are not written yet
  float *dq;  // (t, d); NULL: `out_dq` is the result
  bool add;   // to dq
  Head out_dq;
} Task;

// The parts of a thread's memory.
typedef struct Memory {
  float *q_block, *dy_block;        // packed, d or e * LANES
  float *q_copy, *dy_copy;          // (LANES, dp or ep)
  float *dq;                        // (LANES, dp)
  float *scores, *ds, *tile;        // (KEYS, LANES)
  float *y;                         // (ep)
  float *dk, *dv, *k_copy, *v_copy; // of a range: (…, dp or ep)
  float *dq_sum;                    // (group, t, d)
} Memory;

// The longest range; a multiple of KEYS.
static int64_t range_keys(const Back *p) {
  int64_t tiles = (p->attention.s + KEYS - 1) / KEYS;
  return (tiles + p->ranges - 1) / p->ranges * KEYS;
}

// Divides `at`; returns its floats.
static int64_t divide(const Back *p, bool sums, float *at, Memory *m) {
  const Attention *a = &p->attention;
  int64_t keys = range_keys(p);
  int64_t heads = a->h / a->group;
  bool k_copied = attention_copies(a, row_of(a, heads, a->d), a->d, true);
  bool v_copied = attention_copies(a, row_of(a, heads, a->e), a->e, false);
  struct {
    float **part;
    int64_t n;
  } parts[] = {{&m->q_block, a->d * LANES},
               {&m->dy_block, a->e * LANES},
               {&m->q_copy, p->dp * LANES},
               {&m->dy_copy, p->ep * LANES},
               {&m->dq, p->dp * LANES},
               {&m->scores, KEYS * LANES},
               {&m->ds, KEYS * LANES},
               {&m->tile, KEYS * LANES},
               {&m->y, p->ep},
               {&m->dk, keys * p->dp},
               {&m->dv, keys * p->ep},
               {&m->k_copy, k_copied ? keys * p->dp : 0},
               {&m->v_copy, v_copied ? keys * p->ep : 0},
               {&m->dq_sum, sums ? round_unit(a->group * a->t * a->d) : 0}};
  int64_t n = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (at) *parts[i].part = at + n;
    n += parts[i].n;
  }
  return n;
}

// y (rows, lanes) (+)= x times the rows of b, over `steps`: x is a tile (KEYS, LANES) by rows, or
// by columns.
static void add_product(float *y, int64_t lanes, int64_t rows, const float *x, bool columns, Rows b,
                        int64_t steps, bool add) {
  tile_product(&(TileProduct){.c = y,
                              .c_row = lanes,
                              .a = x,
                              .a_row = columns ? 1 : LANES,
                              .a_step = columns ? LANES : 1,
                              .b = b.at,
                              .b_row = b.row,
                              .rows = rows,
                              .lanes = lanes,
                              .steps = steps,
                              .add = add});
}

// Stores the block's dQ, or adds it to the ranges before.
static void store_queries(const Back *p, const Task *task, int64_t i, int64_t count,
                          const float *dq) {
  const Attention *a = &p->attention;
  if (!task->dq) {
    attention_store(a, task->out_dq, i, count, a->d, dq, p->dp, NULL);
    return;
  }
  for (int64_t l = 0; l < count; l++) {
    float *to = task->dq + (i + l) * a->d;
    if (task->add)
      add_rows(to, dq + l * p->dp, a->d);
    else
      memcpy(to, dq + l * p->dp, (size_t)a->d * sizeof *to);
  }
}

static void back_block(const Back *p, const Task *task, int64_t i, const Memory *m) {
  const Attention *a = &p->attention;
  int64_t d = a->d, e = a->e, count = a->t - i < LANES ? a->t - i : LANES;
  float lse[LANES], delta[LANES];
  // The next block is read meanwhile.
  int64_t next = i + LANES, rows = a->t - next < LANES ? a->t - next : LANES;
  attention_prefetch(a, task->q, next, rows, d);
  attention_prefetch(a, task->dy, next, rows, e);
  attention_prefetch(a, task->y, next, rows, e);
  // The block's queries and gradients, transposed and as rows.
  attention_pack(a, m->q_block, task->q, i, count, d);
  attention_pack(a, m->dy_block, task->dy, i, count, e);
  Rows q = attention_rows(a, task->q, i, count, d, true, m->q_copy);
  Rows dy = attention_rows(a, task->dy, i, count, e, true, m->dy_copy);
  for (int64_t l = 0; l < LANES; l++) {
    // Lanes beyond the last query, and queries without visible keys, get probability 0.
    bool sees = l < count && task->lse[i + l] != -INFINITY;
    lse[l] = sees ? task->lse[i + l] : INFINITY;
    delta[l] = 0;
    if (l >= count) continue;
    Rows y = attention_rows(a, task->y, i + l, 1, e, false, m->y);
    delta[l] = dot(dy.at + l * dy.row, y.at, e);
  }
  // Only keys that a query of the block sees, within the task's range.
  int64_t from = task->keys.from, seen = visible(a, i + count - 1);
  int64_t to = seen < task->keys.to ? seen : task->keys.to;
  if (to <= from) memset(m->dq, 0, (size_t)(LANES * p->dp) * sizeof *m->dq);
  for (int64_t j = from; j < to; j += KEYS) {
    int64_t keys = to - j < KEYS ? to - j : KEYS;
    Rows k = rows_from(task->k, j - from), v = rows_from(task->v, j - from);
    float scale = attention_scores(a, m->scores, m->q_block, k, task->mask, i, j, keys, m->tile);
    attention_product(m->ds, v, m->dy_block, keys, e, count); // dP
    attention_kind()->softmax_back(m->scores, m->ds, keys, round_unit(count), scale, a->scale, lse,
                                   delta);
    add_product(task->dv + (j - from) * p->ep, p->ep, keys, m->scores, false, dy, count,
                !task->first);
    add_product(task->dk + (j - from) * p->dp, p->dp, keys, m->ds, false, q, count, !task->first);
    add_product(m->dq, p->dp, count, m->ds, true, k, keys, j > from);
  }
  store_queries(p, task, i, count, m->dq);
}

static NnrtPrep *back_prep(GemmType type, int64_t n, int64_t ndim, const int64_t *q_shape,
                           const int64_t *k_shape, const int64_t *v_shape,
                           const int64_t *mask_shape, double scale, bool causal, bool seq_major) {
  // A range's rows of dK and dV are in the L2 cache.  Of more ranges the parts of dQ would need
  // more memory than they are worth.
  enum { RANGE = 256, MOST_RANGES = 8 };
  Attention *a = attention_new(type, ndim, q_shape, k_shape, v_shape, n > 6 ? mask_shape : NULL,
                               scale, causal, seq_major);
  if (!a) return NULL;
  int64_t ranges = (a->s + RANGE - 1) / RANGE;
  Back *p = malloc(sizeof *p);
  if (p)
    *p = (Back){.attention = *a,
                .dp = round_unit(a->d),
                .ep = round_unit(a->e),
                .ranges = ranges < 1             ? 1
                          : ranges < MOST_RANGES ? ranges
                                                 : MOST_RANGES};
  if (!p) nnrt_error(NNRT_MEMORY, "attention_back: no memory");
  free(a);
  return p ? &p->attention.base : NULL;
}

// Operands, results, and the parts of dQ of each range, (b, kv heads, ranges, group, t, d), if they
// are added at the end.
typedef struct Tensors {
  const void *const *in;
  void *dq, *dk, *dv;
  float *parts;
} Tensors;

// Computes range `range` of head `shared` of k and v.  Its part of dQ is written to `dq` (group, t,
// d), or added there; NULL: it is the whole.
static void back_task(const Back *p, const Tensors *x, int64_t b, int64_t shared, int64_t range,
                      float *dq, bool add, const Memory *m) {
  const Attention *a = &p->attention;
  int64_t kv_heads = a->h / a->group;
  Part keys = part_of(a->s, KEYS, range, p->ranges);
  int64_t rows = keys.to - keys.from;
  Head k = head_of(a, x->in[1], kv_heads, b, shared, a->s, a->d);
  Head v = head_of(a, x->in[2], kv_heads, b, shared, a->s, a->e);
  Task task = {.k = attention_rows(a, k, keys.from, rows, a->d, true, m->k_copy),
               .v = attention_rows(a, v, keys.from, rows, a->e, false, m->v_copy),
               .keys = keys,
               .dk = m->dk,
               .dv = m->dv,
               .add = add};
  // The gradients of this range of keys, over all heads of q that read it.  Without a causal mask
  // the first block writes all of them.
  task.first = !a->causal;
  if (a->causal || !a->t) {
    memset(m->dk, 0, (size_t)(rows * p->dp) * sizeof *m->dk);
    memset(m->dv, 0, (size_t)(rows * p->ep) * sizeof *m->dv);
  }
  for (int64_t g = 0; g < a->group; g++) {
    int64_t h = shared * a->group + g;
    task.q = head_of(a, x->in[0], a->h, b, h, a->t, a->d);
    task.y = head_of(a, x->in[3], a->h, b, h, a->t, a->e);
    task.dy = head_of(a, x->in[5], a->h, b, h, a->t, a->e);
    task.out_dq = head_of(a, x->dq, a->h, b, h, a->t, a->d);
    task.lse = (const float *)x->in[4] + (b * a->h + h) * a->t;
    task.mask = attention_mask(a, a->has_mask ? x->in[6] : NULL, b, h);
    task.dq = dq ? dq + g * a->t * a->d : NULL;
    for (int64_t i = 0; i < a->t; i += LANES) {
      back_block(p, &task, i, m);
      task.first = false;
    }
  }
  attention_store(a, head_of(a, x->dk, kv_heads, b, shared, a->s, a->d), keys.from, rows, a->d,
                  m->dk, p->dp, NULL);
  attention_store(a, head_of(a, x->dv, kv_heads, b, shared, a->s, a->e), keys.from, rows, a->e,
                  m->dv, p->ep, NULL);
}

// Starts to read the operands of a head.
static void prefetch_head(const Back *p, const void *const *in, int64_t b, int64_t shared) {
  const Attention *a = &p->attention;
  int64_t kv_heads = a->h / a->group, h = shared * a->group;
  int64_t keys = a->s < 2 * KEYS ? a->s : 2 * KEYS, rows = a->t < LANES ? a->t : LANES;
  attention_prefetch(a, head_of(a, in[1], kv_heads, b, shared, a->s, a->d), 0, keys, a->d);
  attention_prefetch(a, head_of(a, in[2], kv_heads, b, shared, a->s, a->e), 0, keys, a->e);
  attention_prefetch(a, head_of(a, in[0], a->h, b, h, a->t, a->d), 0, rows, a->d);
  attention_prefetch(a, head_of(a, in[3], a->h, b, h, a->t, a->e), 0, rows, a->e);
  attention_prefetch(a, head_of(a, in[5], a->h, b, h, a->t, a->e), 0, rows, a->e);
}

// Stores dQ (group, t, d) of the heads of q that read head `shared` of k and v.
static void store_heads(const Back *p, void *out, int64_t b, int64_t shared, const float *dq) {
  const Attention *a = &p->attention;
  for (int64_t g = 0; g < a->group; g++)
    attention_store(a, head_of(a, out, a->h, b, shared * a->group + g, a->t, a->d), 0, a->t, a->d,
                    dq + g * a->t * a->d, a->d, NULL);
}

// All ranges of a head, by one thread.
static void back_head(const Back *p, const Tensors *x, int64_t b, int64_t shared, const Memory *m) {
  for (int64_t r = 0; r < p->ranges; r++)
    back_task(p, x, b, shared, r, p->ranges > 1 ? m->dq_sum : NULL, r > 0, m);
  if (p->ranges > 1) store_heads(p, x->dq, b, shared, m->dq_sum);
}

static int back_run(NnrtPrep *prep, void *dq, void *dk, void *dv, const void *const *in) {
  const Back *p = (const Back *)prep;
  const Attention *a = &p->attention;
  int threads = threads_for(a->b * a->h * a->t * a->s);
  int64_t kv_heads = a->h / a->group, heads = a->b * kv_heads;
  // Ranges of few heads are divided among threads.
  bool shared = heads < threads && p->ranges > 1;
  Memory none;
  int64_t each = divide(p, p->ranges > 1 && !shared, NULL, &none);
  int64_t head_size = a->group * a->t * a->d;
  int64_t all_parts = shared ? heads * p->ranges * head_size : 0;
  size_t bytes = (size_t)(threads * each + all_parts) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
  Tensors x = {.in = in, .dq = dq, .dk = dk, .dv = dv, .parts = memory + threads * each};
  int64_t tasks = shared ? heads * p->ranges : heads;
#pragma omp parallel num_threads(threads)
  {
    Memory m;
    divide(p, p->ranges > 1 && !shared, memory + omp_get_thread_num() * each, &m);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < tasks; i++) {
      int64_t head = shared ? i / p->ranges : i, next = head + threads;
      if (!shared && next < heads) prefetch_head(p, in, next / kv_heads, next % kv_heads);
      if (shared)
        back_task(p, &x, head / kv_heads, head % kv_heads, i % p->ranges, x.parts + i * head_size,
                  false, &m);
      else
        back_head(p, &x, head / kv_heads, head % kv_heads, &m);
    }
    // The parts of dQ of a head, in order.
#pragma omp for
    for (int64_t head = 0; head < (shared ? heads : 0); head++) {
      float *sum = x.parts + head * p->ranges * head_size;
      for (int64_t r = 1; r < p->ranges; r++)
        add_rows(sum, sum + r * head_size, head_size);
      store_heads(p, dq, head / kv_heads, head % kv_heads, sum);
    }
  }
  return NNRT_OK;
}

#define KERNELS(type, T)                                                                           \
  NnrtPrep *nnrt_attention_back_prep_##type(int64_t n, int64_t ndim, const int64_t *q_shape,       \
                                            const int64_t *k_shape, const int64_t *v_shape,        \
                                            const int64_t *mask_shape, double scale, bool causal,  \
                                            bool seq_major) {                                      \
    return back_prep(GEMM_##type, n, ndim, q_shape, k_shape, v_shape, mask_shape, scale, causal,   \
                     seq_major);                                                                   \
  }                                                                                                \
  int nnrt_attention_back_##type(NnrtPrep *p, T *dq, T *dk, T *dv, const void *const *in) {        \
    return back_run(p, dq, dk, dv, in);                                                            \
  }

KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)
