// Attention without cuDNN: for f32, and for shapes that cuDNN does not support.
//
//     scores = q k' scale                      f32, in scratch
//     p = softmax(scores + mask)               a kernel; also lse
//     y = p v
//
// and backward, with the probabilities recomputed from lse,
//
//     scores = q k' scale,   dp = dy v'
//     p = e^(scores + mask - lse),   ds = p (dp - sum dy y) scale
//     dv = p' dy,   dk = ds' q,   dq = ds k
//
// Products are batched over heads.  The scores of all heads would be b h t s numbers.  So the work
// is divided into chunks of heads of k, one head of q of each group at a time, and into chunks of
// queries if one head is too large.  dk and dv are sums over those chunks, in that order; with
// 16-bit results they are accumulated in f32.

#include <stdlib.h>

#include "attention.h"
#include "products.h"
#include "runtime.h"

enum { SCORES, GRADS, VALUES, TO_Q, TO_K, TO_V, N_PRODUCTS };
// The variants of a product: for the first chunk of queries, which sets the result; for later ones,
// which may add to it; for the last, which may be shorter.
enum { FIRST, LATER, LAST, N_CHUNKS };

struct AttentionOwn {
  AttentionShape a;
  bool back;
  int64_t outer, heads;                            // heads are contiguous within each of `outer`
  int64_t n, rows;                                 // heads and queries of a chunk
  bool sums;                                       // dk and dv are accumulated in f32
  int64_t floats, halves, sums_k, sums_v, product; // bytes in scratch
  NnrtGemm *gemm[N_PRODUCTS][N_CHUNKS];
  Strides q, k, v, y;
};

#ifndef CHUNK_BYTES                      // a test uses many chunks
#define CHUNK_BYTES ((int64_t)256 << 20) // of scores and probabilities
#endif

// Builds one product, for chunks of m queries.
static NnrtGemm *product(const AttentionOwn *o, int what, int64_t m, float beta) {
  const AttentionShape *a = &o->a;
  int64_t chunk = m * a->s;
  NnrtGemmSpec s = {.batch = o->n, .in = a->type, .out = a->type, .alpha = 1, .beta = beta};
  // The power of two, at most 16, that divides the addresses of all operands.
  int64_t all = 16;
  const Strides *strides[] = {&o->q, &o->k, &o->v, &o->y};
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 3; j++)
      all |= strides[i]->at[j] * nnrt_dtype_size(a->type);
  s.align = (int)(all & -all);
  switch (what) {
  case SCORES:
  case GRADS: { // (m, d) (s, d)'
    // Queries of the chunk by all keys; f32 for the softmax.
    const Strides *x = what == SCORES ? &o->q : &o->y, *w = what == SCORES ? &o->k : &o->v;
    s.m = m;
    s.n = a->s;
    s.k = what == SCORES ? a->d : a->e;
    s.trans_b = true;
    s.out = NNRT_f32;
    s.alpha = what == SCORES ? a->scale : 1;
    s.lda = x->at[2];
    s.a_step = x->at[1] * a->group;
    s.ldb = w->at[2];
    s.b_step = w->at[1];
    s.ldd = a->s;
    s.d_step = chunk;
    break;
  }
  case VALUES:
  case TO_Q: { // (m, s) (s, d)
    const Strides *w = what == VALUES ? &o->v : &o->k, *y = what == VALUES ? &o->y : &o->q;
    s.m = m;
    s.n = what == VALUES ? a->e : a->d;
    s.k = a->s;
    s.lda = a->s;
    s.a_step = chunk;
    s.ldb = w->at[2];
    s.b_step = w->at[1];
    s.ldd = y->at[2];
    s.d_step = y->at[1] * a->group;
    break;
  }
  default: { // (m, s)' (m, d)
    // A sum over queries, so later chunks accumulate, in f32 if the results have 16 bits.
    const Strides *x = what == TO_K ? &o->q : &o->y, *y = what == TO_K ? &o->k : &o->v;
    s.m = a->s;
    s.n = what == TO_K ? a->d : a->e;
    s.k = m;
    s.trans_a = true;
    s.lda = a->s;
    s.a_step = chunk;
    s.ldb = x->at[2];
    s.b_step = x->at[1] * a->group;
    s.ldd = o->sums ? s.n : y->at[2];
    s.d_step = o->sums ? s.n * a->s : y->at[1];
    if (o->sums) s.out = NNRT_f32;
    break;
  }
  }
  return nnrt_gemm_new(&s);
}

AttentionOwn *attention_own_new(const AttentionShape *a, bool back) {
  AttentionOwn *o = nnrt_must_alloc(sizeof *o);
  o->a = *a;
  o->back = back;
  o->outer = a->seq_major ? a->b : 1;
  o->heads = a->seq_major ? a->kv : a->b * a->kv;
  o->q = strides_q(a);
  o->k = strides_k(a);
  o->v = strides_v(a);
  o->y = strides_y(a);
  // The largest chunk within CHUNK_BYTES: as many rows as possible, then as many heads, which must
  // divide all heads.
  int64_t short_bytes = a->type == NNRT_f32 ? 0 : 2;
  int64_t row_bytes = a->s * (4 + short_bytes) * (back ? 2 : 1);
  o->rows = CHUNK_BYTES / row_bytes < a->t ? CHUNK_BYTES / row_bytes : a->t;
  if (o->rows < 1) o->rows = 1;
  o->n = CHUNK_BYTES / (row_bytes * o->rows);
  if (o->n > o->heads) o->n = o->heads;
  if (o->n < 1) o->n = 1;
  while (o->heads % o->n != 0)
    o->n--;
  // 16-bit results cannot be added up without rounding each sum.
  o->sums = back && short_bytes > 0 && (o->rows < a->t || a->group > 1);
  o->floats = round_256(o->n * o->rows * a->s * 4);
  o->halves = round_256(o->n * o->rows * a->s * short_bytes);
  o->sums_k = o->sums ? round_256(o->n * a->s * a->d * 4) : 0;
  o->sums_v = o->sums ? round_256(o->n * a->s * a->e * 4) : 0;
  // A product per kind and kind of chunk: dk and dv are added up over all chunks but the first.
  int64_t last = a->t % o->rows ? a->t % o->rows : o->rows;
  int64_t chunks = (a->t + o->rows - 1) / o->rows * a->group;
  for (int what = 0; what < N_PRODUCTS; what++) {
    bool wanted = what == SCORES || (what == VALUES) != back;
    bool adds = what == TO_K || what == TO_V;
    const int64_t m[N_CHUNKS] = {o->rows, o->rows, last};
    for (int i = 0; wanted && i < N_CHUNKS; i++) {
      if (i > FIRST && chunks == 1) continue;
      NnrtGemm *g = o->gemm[what][i] = product(o, what, m[i], adds && i > FIRST ? 1 : 0);
      if (!g) {
        attention_own_free(o);
        return NULL;
      }
      if (nnrt_gemm_scratch(g) > o->product) o->product = nnrt_gemm_scratch(g);
    }
  }
  return o;
}

void attention_own_free(AttentionOwn *o) {
  if (!o) return;
  for (int i = 0; i < N_PRODUCTS; i++)
    for (int j = 0; j < N_CHUNKS; j++)
      nnrt_gemm_free(o->gemm[i][j]);
  free(o);
}

int64_t attention_own_scratch(const AttentionOwn *o) {
  return (o->back ? 2 : 1) * (o->floats + o->halves) + o->sums_k + o->sums_v + o->product;
}

// A chunk: heads of k from `g` of `outer`, head j of those of q that share each, queries from i.
typedef struct Chunk {
  int64_t outer, g, j, i;
  int which; // FIRST, LATER or LAST
} Chunk;

static AttentionRows rows_of(const AttentionOwn *o, Chunk c) {
  const AttentionShape *a = &o->a;
  int64_t left = a->t - c.i;
  AttentionRows x = {.n = o->n,
                     .rows = left < o->rows ? left : o->rows,
                     .s = a->s,
                     .head = (c.outer * o->heads + c.g) * a->group + c.j,
                     .head_step = a->group,
                     .first = c.i,
                     .h = a->h,
                     .t = a->t,
                     .e = a->e,
                     .causal = a->causal,
                     .seq_major = a->seq_major};
  int64_t stride = 1;
  // Stride 0 broadcasts the mask.
  for (int d = 3; d >= 0 && a->has_mask; d--) {
    x.mask_stride[d] = a->mask_dim[d] == 1 ? 0 : stride;
    stride *= a->mask_dim[d];
  }
  return x;
}

// The offset of a chunk in a tensor with the heads and rows of q, or of k.
static int64_t in_q(const AttentionOwn *o, Chunk c, const Strides *s) {
  return (c.outer * s->at[0] + (c.g * o->a.group + c.j) * s->at[1] + c.i * s->at[2]) *
         nnrt_dtype_size(o->a.type);
}
static int64_t in_k(const AttentionOwn *o, Chunk c, const Strides *s) {
  return (c.outer * s->at[0] + c.g * s->at[1]) * nnrt_dtype_size(o->a.type);
}

// Calls `work` for all chunks.  Chunks that add to the same rows of dk are consecutive.
static int for_chunks(const AttentionOwn *o, int (*work)(const AttentionOwn *o, Chunk c, void *x),
                      int (*end)(const AttentionOwn *o, Chunk c, void *x), void *x) {
  for (int64_t outer = 0; outer < o->outer; outer++)
    for (int64_t g = 0; g < o->heads; g += o->n) {
      for (int64_t j = 0; j < o->a.group; j++)
        for (int64_t i = 0; i < o->a.t; i += o->rows) {
          int which = i == 0 && j == 0 ? FIRST : i + o->rows >= o->a.t ? LAST : LATER;
          int code = work(o, (Chunk){outer, g, j, i, which}, x);
          if (code) return code;
        }
      // All chunks that add to these rows of dk and dv are done.
      int code = end ? end(o, (Chunk){.outer = outer, .g = g}, x) : NNRT_OK;
      if (code) return code;
    }
  return NNRT_OK;
}

typedef struct Forward {
  char *y;
  float *lse, *scores;
  void *p, *workspace;
  const char *q, *k, *v;
  const void *mask;
} Forward;

static int forward_chunk(const AttentionOwn *o, Chunk c, void *arg) {
  const Forward *f = arg;
  AttentionRows x = rows_of(o, c);
  // Two products, with the softmax of the scores between them.
  int code = nnrt_gemm_run(o->gemm[SCORES][c.which], f->scores, f->q + in_q(o, c, &o->q),
                           f->k + in_k(o, c, &o->k), NULL, NULL, f->workspace);
  if (!code) code = attention_softmax(&x, o->a.type, f->p, f->lse, f->scores, f->mask);
  if (!code)
    code = nnrt_gemm_run(o->gemm[VALUES][c.which], f->y + in_q(o, c, &o->y), f->p,
                         f->v + in_k(o, c, &o->v), NULL, NULL, f->workspace);
  return code;
}

int attention_own_run(const AttentionOwn *o, void *y, float *lse, const void *const *in,
                      char *scratch) {
  Forward f = {.y = y, .lse = lse, .q = in[0], .k = in[1], .v = in[2]};
  f.mask = o->a.has_mask ? in[3] : NULL;
  // Scratch: scores, probabilities of 16 bits (f32: in place of the scores), then the products'
  // own.
  f.scores = (float *)(void *)scratch;
  f.p = o->halves ? scratch + o->floats : scratch;
  f.workspace = scratch + o->floats + o->halves;
  return for_chunks(o, forward_chunk, NULL, &f);
}

typedef struct Back {
  char *dq, *dk, *dv;
  const char *q, *k, *v, *y, *dy;
  const float *lse;
  const void *mask;
  float *scores, *dp, *sums_k, *sums_v;
  void *p, *ds, *workspace;
} Back;

static int back_chunk(const AttentionOwn *o, Chunk c, void *arg) {
  const Back *b = arg;
  AttentionRows x = rows_of(o, c);
  const char *q = b->q + in_q(o, c, &o->q), *dy = b->dy + in_q(o, c, &o->y);
  const char *k = b->k + in_k(o, c, &o->k);
  void *dk = o->sums ? (char *)b->sums_k : b->dk + in_k(o, c, &o->k);
  void *dv = o->sums ? (char *)b->sums_v : b->dv + in_k(o, c, &o->v);
  // The products and the softmax of the formulas at the top, in their order.
  int code = nnrt_gemm_run(o->gemm[SCORES][c.which], b->scores, q, k, NULL, NULL, b->workspace);
  if (!code)
    code = nnrt_gemm_run(o->gemm[GRADS][c.which], b->dp, dy, b->v + in_k(o, c, &o->v), NULL, NULL,
                         b->workspace);
  if (!code)
    code = attention_softmax_back(&x, o->a.type, b->p, b->ds, b->scores, b->dp, b->lse, b->mask,
                                  b->y, b->dy, o->a.scale);
  if (!code) code = nnrt_gemm_run(o->gemm[TO_V][c.which], dv, b->p, dy, NULL, NULL, b->workspace);
  if (!code) code = nnrt_gemm_run(o->gemm[TO_K][c.which], dk, b->ds, q, NULL, NULL, b->workspace);
  if (!code)
    code = nnrt_gemm_run(o->gemm[TO_Q][c.which], b->dq + in_q(o, c, &o->q), b->ds, k, NULL, NULL,
                         b->workspace);
  return code;
}

static int back_end(const AttentionOwn *o, Chunk c, void *arg) {
  const Back *b = arg;
  const AttentionShape *a = &o->a;
  if (!o->sums) return NNRT_OK;
  // The sums in f32 become the results of 16 bits.
  int code = attention_store(a->type, b->dk + in_k(o, c, &o->k), o->k.at[1], o->k.at[2], b->sums_k,
                             o->n, a->s, a->d);
  if (!code)
    code = attention_store(a->type, b->dv + in_k(o, c, &o->v), o->v.at[1], o->v.at[2], b->sums_v,
                           o->n, a->s, a->e);
  return code;
}

int attention_own_run_back(const AttentionOwn *o, void *dq, void *dk, void *dv,
                           const void *const *in, char *scratch) {
  Back b = {.dq = dq, .dk = dk, .dv = dv, .q = in[0], .k = in[1], .v = in[2], .y = in[3]};
  b.lse = in[4];
  b.dy = in[5];
  b.mask = o->a.has_mask ? in[6] : NULL;
  // Scratch: scores and dp, both in 16 bits (f32: in place), the sums, then the products' own.
  b.scores = (float *)(void *)scratch;
  b.dp = (float *)(void *)(scratch + o->floats);
  char *at = scratch + 2 * o->floats;
  b.p = o->halves ? at : (char *)b.scores;
  b.ds = o->halves ? at + o->halves : (char *)b.dp;
  at += 2 * o->halves;
  b.sums_k = (float *)(void *)at;
  b.sums_v = (float *)(void *)(at + o->sums_k);
  b.workspace = at + o->sums_k + o->sums_v;
  return for_chunks(o, back_chunk, back_end, &b);
}
