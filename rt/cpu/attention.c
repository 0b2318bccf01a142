// Attention with at most one tile of scores in memory: y = softmax(scale q k' + mask) v, one block
// of queries after another, over the keys in tiles.  When a tile raises the running maximum, the
// previous sums are scaled down (Milakov and Gimelshein, "Online normalizer calculation for
// softmax"; Dao et al., "FlashAttention", algorithm 1).  Tiles that a causal mask hides from all
// queries of the block are skipped.  Each score takes one exponential.

#include "attention.h"

#define KIND_FILE "attention_of.h"
#include "kinds.h"

const AttentionKind *attention_kind(void) {
  static const AttentionKind *const kinds[] = KIND_LIST(&attention_kind);
  return kinds[kind_here()];
}

static void prep_free(NnrtPrep *p) {
  free(p);
}

Attention *attention_new(GemmType type, int64_t ndim, const int64_t *q_shape,
                         const int64_t *k_shape, const int64_t *v_shape, const int64_t *mask_shape,
                         double scale, bool causal, bool seq_major) {
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
  p->type = type;
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

const char *attention_mask(const Attention *p, const void *mask, int64_t b, int64_t h) {
  if (!p->has_mask) return NULL;
  return (const char *)mask + (b * p->mask_stride[0] + h * p->mask_stride[1]) * type_bytes(p->type);
}

// -- Operands ------------------------------------------------------------------------------------

bool attention_copies(const Attention *p, int64_t row, int64_t n, bool vectors) {
  if (p->type != GEMM_f32) return true;
  // The last vector of a row is whole.  Rows a multiple of 4 KiB apart are in the same sets of the
  // L1 cache: narrow tiles, which read them more often, gain more than the copy costs.
  return vectors && (n % TILE_UNIT || (row % 1024 == 0 && tile_kind()->lanes < TILE_LANES));
}

Rows attention_rows(const Attention *p, Head x, int64_t from, int64_t count, int64_t n,
                    bool vectors, float *copy) {
  int64_t size = type_bytes(p->type), padded = round_unit(n);
  const char *at = x.at + from * x.row * size;
  if (!attention_copies(p, x.row, n, vectors))
    return (Rows){(const float *)(const void *)at, x.row};
  const TileKind *kind = tile_kind();
  for (int64_t i = 0; i < count; i++) {
    kind->load(p->type, copy + i * padded, at + i * x.row * size, n);
    memset(copy + i * padded + n, 0, (size_t)(padded - n) * sizeof *copy);
  }
  return (Rows){copy, padded};
}

void attention_prefetch(const Attention *p, Head x, int64_t from, int64_t count, int64_t n) {
  enum { LINE = 64 };
  int64_t size = type_bytes(p->type);
  const char *at = x.at + from * x.row * size;
  for (int64_t i = 0; i < count; i++, at += x.row * size)
    for (int64_t c = 0; c < n * size; c += LINE)
      __builtin_prefetch(at + c, 0, 2);
}

NNRT_CLONES static void scale_row(float *restrict y, const float *restrict x, float by, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = x[i] * by;
}

void attention_store(const Attention *p, Head x, int64_t from, int64_t count, int64_t n,
                     const float *rows, int64_t row, const float *factor) {
  const TileKind *kind = tile_kind();
  // The head is one of a result.
  char *to = (char *)(uintptr_t)x.at + from * x.row * type_bytes(p->type);
  for (int64_t i = 0; i < count; i++, to += x.row * type_bytes(p->type), rows += row) {
    if (factor && p->type == GEMM_f32) {
      scale_row((float *)(void *)to, rows, factor[i], n);
      continue;
    }
    // 16 bits are rounded from a scaled row.
    enum { SOME = 128 };
    float some[SOME];
    for (int64_t c = 0; c < n; c += SOME) {
      int64_t m = n - c < SOME ? n - c : SOME;
      if (factor) scale_row(some, rows + c, factor[i], m);
      kind->store(p->type, to + c * type_bytes(p->type), factor ? some : rows + c, m);
    }
  }
}

void attention_pack(const Attention *p, float *block, Head x, int64_t from, int64_t count,
                    int64_t n) {
  const TileKind *kind = tile_kind();
  kind->pack(p->type,
             &(TilePack){.from = x.at + from * x.row * type_bytes(p->type),
                         .lane = x.row,
                         .step = 1,
                         .lanes = count,
                         .steps = n,
                         .width = kind->lanes,
                         .panel = n * kind->lanes,
                         .padded = true},
             block);
}

void attention_product(float *to, Rows x, const float *block, int64_t keys, int64_t n,
                       int64_t count) {
  int64_t width = tile_kind()->lanes;
  for (int64_t l = 0; l < count; l += width, block += n * width) {
    int64_t lanes = round_unit(count - l);
    tile_product(&(TileProduct){.c = to + l,
                                .c_row = LANES,
                                .a = x.at,
                                .a_row = x.row,
                                .a_step = 1,
                                .b = block,
                                .b_row = width,
                                .rows = keys,
                                .lanes = lanes < width ? lanes : width,
                                .steps = n});
  }
}

// -- Scores --------------------------------------------------------------------------------------

// scores = scale scores + mask, of (keys, LANES)
NNRT_CLONES static void add_mask(float *restrict scores, const float *restrict mask, float scale,
                                 int64_t keys) {
  for (int64_t i = 0; i < keys * LANES; i++)
    scores[i] = scores[i] * scale + mask[i];
}

// to (keys, LANES) = the mask of `count` queries; `mask` begins at the first query and key.
static void read_mask(const Attention *p, float *to, const char *mask, int64_t keys,
                      int64_t count) {
  int64_t query = p->mask_stride[2], key = p->mask_stride[3];
  if (!query && !key) {
    float all = element_at(p->type, mask, 0);
    for (int64_t i = 0; i < keys * LANES; i++)
      to[i] = all;
    return;
  }
  tile_kind()->pack(p->type,
                    &(TilePack){.from = mask,
                                .lane = query,
                                .step = key,
                                .lanes = count,
                                .steps = keys,
                                .width = LANES,
                                .panel = keys * LANES,
                                .padded = true},
                    to);
}

float attention_scores(const Attention *p, float *scores, const float *block, Rows k,
                       const char *mask, int64_t i, int64_t j, int64_t keys, float *tile) {
  int64_t count = p->t - i < LANES ? p->t - i : LANES;
  attention_product(scores, k, block, keys, p->d, count);
  bool hides = p->causal && visible(p, i) < j + keys;
  if (!mask && !hides) return p->scale;
  // Scores are scaled before others are added, or are -inf.
  if (mask)
    read_mask(p, tile, mask + (i * p->mask_stride[2] + j * p->mask_stride[3]) * type_bytes(p->type),
              keys, count);
  else
    memset(tile, 0, (size_t)(keys * LANES) * sizeof *tile);
  add_mask(scores, tile, p->scale, keys);
  // The causal mask: keys after the last visible one.
  for (int64_t l = 0; p->causal && l < count; l++) {
    int64_t hidden = visible(p, i + l) - j;
    if (hidden >= keys) break; // later queries attend to more
    for (int64_t c = hidden < 0 ? 0 : hidden; c < keys; c++)
      scores[c * LANES + l] = -INFINITY;
  }
  return 1.0f;
}

// -- Forward -------------------------------------------------------------------------------------

enum { KEYS = 128 }; // of a tile

// A thread's memory, and the operands of one head of k and v.
typedef struct Forward {
  Head y, q, k, v; // y and q of one head of q
  float *lse;      // of this head
  const char *mask;
  Rows keys, values; // all of them, if they are held; else `at` is NULL
  float *k_copy, *v_copy;
  float *queries, *sums, *scores, *tile;
} Forward;

// (LANES, e) rows times a factor each
NNRT_CLONES static void shrink_rows(float *x, int64_t row, const float *by, int64_t count) {
  for (int64_t l = 0; l < count; l++)
    for (int64_t c = 0; by[l] != 1.0f && c < row; c++)
      x[l * row + c] *= by[l];
}

// Computes queries i .. i + LANES of one head.
static void forward_block(const Attention *p, const Forward *f, int64_t i) {
  float top[LANES], sum[LANES], shrink[LANES];
  int64_t count = p->t - i < LANES ? p->t - i : LANES, padded = round_unit(p->e);
  attention_pack(p, f->queries, f->q, i, count, p->d);
  for (int l = 0; l < LANES; l++) {
    top[l] = -INFINITY;
    sum[l] = 0;
  }
  // Keys that no query of the block sees are skipped.
  int64_t seen = visible(p, i + count - 1);
  if (!seen) memset(f->sums, 0, (size_t)(padded * LANES) * sizeof *f->sums);
  for (int64_t j = 0; j < seen; j += KEYS) {
    int64_t keys = seen - j < KEYS ? seen - j : KEYS;
    Rows k = f->keys.at ? rows_from(f->keys, j)
                        : attention_rows(p, f->k, j, keys, p->d, false, f->k_copy);
    Rows v = f->values.at ? rows_from(f->values, j)
                          : attention_rows(p, f->v, j, keys, p->e, true, f->v_copy);
    float scale = attention_scores(p, f->scores, f->queries, k, f->mask, i, j, keys, f->tile);
    attention_kind()->softmax(f->scores, keys, round_unit(count), scale, top, sum, shrink);
    if (j > 0) shrink_rows(f->sums, padded, shrink, count);
    // sums += scores' v, one row per query
    tile_product(&(TileProduct){.c = f->sums,
                                .c_row = padded,
                                .a = f->scores,
                                .a_row = 1,
                                .a_step = LANES,
                                .b = v.at,
                                .b_row = v.row,
                                .rows = count,
                                .lanes = padded,
                                .steps = keys,
                                .add = j > 0});
  }
  // The log-sum-exp is saved for the gradient.
  for (int64_t l = 0; l < count; l++) {
    f->lse[i + l] = top[l] + logf(sum[l]); // -inf without visible keys
    shrink[l] = sum[l] > 0 ? 1.0f / sum[l] : sum[l];
  }
  attention_store(p, f->y, i, count, p->e, f->sums, padded, shrink);
}

// Starts to read the operands of a task.
static void prefetch_task(const Attention *p, const void *const *in, int64_t b, int64_t shared,
                          Part blocks) {
  int64_t kv_heads = p->h / p->group, each = (p->t + LANES - 1) / LANES;
  int64_t keys = p->s < KEYS ? p->s : KEYS, from = blocks.from % each * LANES;
  int64_t h = shared * p->group + blocks.from / each;
  attention_prefetch(p, head_of(p, in[1], kv_heads, b, shared, p->s, p->d), 0, keys, p->d);
  attention_prefetch(p, head_of(p, in[2], kv_heads, b, shared, p->s, p->e), 0, keys, p->e);
  attention_prefetch(p, head_of(p, in[0], p->h, b, h, p->t, p->d), from,
                     p->t - from < LANES ? p->t - from : LANES, p->d);
}

static NnrtPrep *attention_prep(GemmType type, int64_t n, int64_t ndim, const int64_t *q_shape,
                                const int64_t *k_shape, const int64_t *v_shape,
                                const int64_t *mask_shape, double scale, bool causal,
                                bool seq_major) {
  Attention *p = attention_new(type, ndim, q_shape, k_shape, v_shape, n > 3 ? mask_shape : NULL,
                               scale, causal, seq_major);
  return p ? &p->base : NULL;
}

// Computes some blocks of the heads of q that share head `shared` of k and v: of all of them, one
// head after another.
static void forward_task(const Attention *p, void *y, float *lse, const void *const *in, int64_t b,
                         int64_t shared, Part blocks, bool held, float *memory) {
  int64_t kv_heads = p->h / p->group, each = (p->t + LANES - 1) / LANES;
  int64_t rows = held ? p->s : KEYS;
  Forward f = {.k = head_of(p, in[1], kv_heads, b, shared, p->s, p->d),
               .v = head_of(p, in[2], kv_heads, b, shared, p->s, p->e),
               .queries = memory};
  f.sums = f.queries + p->d * LANES;
  f.scores = f.sums + round_unit(p->e) * LANES;
  f.tile = f.scores + KEYS * LANES;
  f.k_copy = f.tile + KEYS * LANES;
  f.v_copy = f.k_copy + rows * (attention_copies(p, f.k.row, p->d, false) ? round_unit(p->d) : 0);
  if (held) {
    // Only keys that a query of the task sees.
    bool one_head = blocks.from / each == (blocks.to - 1) / each;
    int64_t last = one_head ? ((blocks.to - 1) % each + 1) * LANES : p->t;
    int64_t seen = visible(p, (last < p->t ? last : p->t) - 1);
    f.keys = attention_rows(p, f.k, 0, seen, p->d, false, f.k_copy);
    f.values = attention_rows(p, f.v, 0, seen, p->e, true, f.v_copy);
  }
  for (int64_t i = blocks.from; i < blocks.to; i++) {
    int64_t h = shared * p->group + i / each, next = i + 1;
    if (next < blocks.to) {
      int64_t from = next % each * LANES, count = p->t - from < LANES ? p->t - from : LANES;
      attention_prefetch(p, head_of(p, in[0], p->h, b, shared * p->group + next / each, p->t, p->d),
                         from, count, p->d);
    }
    f.q = head_of(p, in[0], p->h, b, h, p->t, p->d);
    f.y = head_of(p, y, p->h, b, h, p->t, p->e);
    f.lse = lse + (b * p->h + h) * p->t;
    f.mask = attention_mask(p, p->has_mask ? in[3] : NULL, b, h);
    forward_block(p, &f, i % each * LANES);
  }
}

static int attention_run(NnrtPrep *prep, void *y, float *lse, const void *const *in) {
  // Copies of longer heads would leave the L2 cache: they are made tile by tile.
  enum { HELD = 1024 };
  const Attention *p = (const Attention *)prep;
  int threads = threads_for(p->b * p->h * p->t * p->s);
  int64_t kv_heads = p->h / p->group, heads = p->b * kv_heads;
  int64_t blocks = p->group * ((p->t + LANES - 1) / LANES);
  // Some tasks for each thread, because under a causal mask later blocks attend to more; blocks are
  // independent, so the result does not depend on the tasks.
  int64_t parts = heads ? (4 * threads + heads - 1) / heads : 1;
  if (threads == 1 || heads >= 4 * threads) parts = 1;
  if (parts > blocks) parts = blocks;
  bool held = p->s <= HELD;
  int64_t copied =
      (attention_copies(p, row_of(p, kv_heads, p->d), p->d, false) ? round_unit(p->d) : 0) +
      (attention_copies(p, row_of(p, kv_heads, p->e), p->e, true) ? round_unit(p->e) : 0);
  int64_t each =
      (p->d + round_unit(p->e) + 2 * KEYS) * LANES + copied * (held ? p->s : KEYS) + TILE_UNIT;
  each = each / TILE_UNIT * TILE_UNIT;
  size_t bytes = (size_t)(threads * each) * sizeof(float);
  float *memory = kernel_scratch(bytes);
  if (!memory) return scratch_failed(bytes);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t i = 0; i < heads * parts; i++) {
    Part of = part_of(blocks, 1, i % parts, parts);
    int64_t head = i / parts, next = i + threads, next_head = next / parts;
    if (next < heads * parts)
      prefetch_task(p, in, next_head / kv_heads, next_head % kv_heads,
                    part_of(blocks, 1, next % parts, parts));
    forward_task(p, y, lse, in, head / kv_heads, head % kv_heads, of, held,
                 memory + omp_get_thread_num() * each);
  }
  return NNRT_OK;
}

#define KERNELS(type, T)                                                                           \
  NnrtPrep *nnrt_attention_prep_##type(int64_t n, int64_t ndim, const int64_t *q_shape,            \
                                       const int64_t *k_shape, const int64_t *v_shape,             \
                                       const int64_t *mask_shape, double scale, bool causal,       \
                                       bool seq_major) {                                           \
    return attention_prep(GEMM_##type, n, ndim, q_shape, k_shape, v_shape, mask_shape, scale,      \
                          causal, seq_major);                                                      \
  }                                                                                                \
  int nnrt_attention_##type(NnrtPrep *p, T *y, float *lse, const void *const *in) {                \
    return attention_run(p, y, lse, in);                                                           \
  }

KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)
