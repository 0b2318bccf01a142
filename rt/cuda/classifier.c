// The loss of a classifier, and its gradients, without the full logits in memory.
//
//     x (m, k)       chunk of rows ──► logits (rows, n) = x w        scratch, at most CHUNK_BYTES
//                                      loss, lse of the rows
//                                      dlogits, in place of the logits
//                                      dx of the rows = dlogits w'
//                                      dw (+)= x' dlogits            in f32
//
// For GPT-2 at 64 × 1024 tokens the logits would take 6.6 GB, and their adjoints as much.  The
// chunk size changes the results only by the order in which dw is accumulated, which is fixed.
//
// In scratch a row of logits begins at a multiple of ROW_BYTES, for every n: with the 50257 words
// of GPT-2 packed rows would begin at odd addresses, and tensor-core products, which load 16 bytes
// at a time, would not be possible.

#include <stdlib.h>

#include "loss.h"
#include "products.h"
#include "runtime.h"

#ifndef CHUNK_BYTES
#define CHUNK_BYTES (256 << 20)
#endif
enum { ROW_BYTES = 128, ROWS = 128 };

// The products of a chunk of some number of rows.
typedef struct Chunk {
  NnrtGemm *logits, *dx, *dw;
} Chunk;

typedef struct Classifier {
  NnrtPrep base;
  NnrtDtype type;
  int64_t m, k, n, width, ignore;
  bool trans;
  int64_t ld;          // of logits, in elements
  int64_t rows;        // of a chunk
  Chunk first;         // writes dw
  Chunk next, last;    // accumulate; the last may have fewer rows
  int64_t lse, logits; // bytes of scratch, before the products' own
} Classifier;

static void chunk_free(Chunk *c) {
  nnrt_gemm_free(c->logits);
  nnrt_gemm_free(c->dx);
  nnrt_gemm_free(c->dw);
}

static void classifier_free(NnrtPrep *prep) {
  Classifier *p = (Classifier *)prep;
  chunk_free(&p->first);
  chunk_free(&p->next);
  chunk_free(&p->last);
  free(p);
}

static bool chunk_new(Chunk *c, const Classifier *p, int64_t rows, bool back, bool adds) {
  NnrtDtype t = p->type;
  NnrtGemmSpec s = nnrt_gemm_packed(t, t, 1, rows, p->n, p->k, false, p->trans);
  s.ldd = p->ld;
  c->logits = nnrt_gemm_new(&s);
  if (!c->logits || !back) return c->logits;
  s = nnrt_gemm_packed(t, t, 1, rows, p->k, p->n, false, !p->trans);
  s.lda = p->ld;
  // dlogits are in place of the logits, with their row stride.
  c->dx = nnrt_gemm_new(&s);
  if (p->trans) {
    s = nnrt_gemm_packed(t, NNRT_f32, 1, p->n, p->k, rows, true, false);
    s.lda = p->ld;
  } else {
    s = nnrt_gemm_packed(t, NNRT_f32, 1, p->k, p->n, rows, true, false);
    s.ldb = p->ld;
  }
  // dw is accumulated over chunks.
  s.beta = adds;
  c->dw = nnrt_gemm_new(&s);
  return c->dx && c->dw;
}

static int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

static int64_t most_scratch(const Chunk *c) {
  int64_t most = nnrt_gemm_scratch(c->logits);
  if (!c->dx) return most;
  int64_t dx = nnrt_gemm_scratch(c->dx), dw = nnrt_gemm_scratch(c->dw);
  most = most > dx ? most : dx;
  return most > dw ? most : dw;
}

// The total bytes of scratch.
static int64_t scratch_of(const Classifier *p) {
  int64_t most = 0;
  const Chunk *chunk[] = {&p->first, &p->next, &p->last};
  for (int i = 0; i < 3; i++)
    if (chunk[i]->logits && most_scratch(chunk[i]) > most) most = most_scratch(chunk[i]);
  return p->lse + p->logits + most;
}

static NnrtPrep *classifier(NnrtDtype t, int64_t m, int64_t k, int64_t n, bool trans, int64_t width,
                            int64_t ignore, bool back) {
  Classifier *p = nnrt_must_alloc(sizeof *p);
  *p = (Classifier){.base = {.free = classifier_free},
                    .type = t,
                    .m = m,
                    .k = k,
                    .n = n,
                    .width = width,
                    .ignore = ignore,
                    .trans = trans};
  int64_t size = nnrt_dtype_size(t);
  p->ld = round_up(n, ROW_BYTES / size);
  // Chunks are as even as multiples of ROWS permit.
  int64_t most = CHUNK_BYTES / (p->ld * size) / ROWS * ROWS;
  if (most < ROWS) most = ROWS;
  int64_t n_even = (m + most - 1) / most;
  p->rows = n_even <= 1 ? m : round_up((m + n_even - 1) / n_even, ROWS);
  p->lse = round_up(p->rows * (int64_t)sizeof(float), 256);
  p->logits = round_up(p->rows * p->ld * size, 256);
  // The first chunk writes dw, later ones add to it, and the last may be shorter.
  int64_t chunks = p->rows > 0 ? (m + p->rows - 1) / p->rows : 0, rest = m - (chunks - 1) * p->rows;
  bool ok = chunks == 0 || chunk_new(&p->first, p, p->rows, back, false);
  if (ok && chunks > 2) ok = chunk_new(&p->next, p, p->rows, back, true);
  if (ok && chunks > 1) ok = chunk_new(&p->last, p, rest, back, true);
  if (ok && !nnrt_gpu()->planning) ok = chunks == 0 || nnrt_gpu_scratch(scratch_of(p));
  if (ok) return &p->base;
  classifier_free(&p->base);
  return NULL;
}

// dx and dw are NULL if no gradients are computed.
static int run(NnrtPrep *prep, float *loss, void *dx, float *dw, const void *x, const void *w,
               const void *labels, const float *dloss) {
  Classifier *p = (Classifier *)prep;
  int64_t size = nnrt_dtype_size(p->type);
  if (p->m == 0 && dw) return nnrt_zero(dw, p->k * p->n * (int64_t)sizeof *dw);
  char *scratch = p->m == 0 ? NULL : nnrt_gpu_scratch(scratch_of(p));
  if (!scratch) return p->m == 0 ? NNRT_OK : NNRT_MEMORY;
  float *lse = (float *)scratch;
  char *logits = scratch + p->lse, *rest = logits + p->logits;
  int code = NNRT_OK;
  for (int64_t from = 0; !code && from < p->m; from += p->rows) {
    bool last = from + p->rows >= p->m;
    const Chunk *c = from == 0 ? &p->first : last ? &p->last : &p->next;
    int64_t rows = last ? p->m - from : p->rows;
    // Labels out of range are reported by their row in the whole.
    nnrt_gpu()->row = from;
    const char *x_rows = (const char *)x + from * p->k * size;
    const char *label = (const char *)labels + from * p->width;
    code = nnrt_gemm_run(c->logits, logits, x_rows, w, NULL, NULL, rest);
    if (!code)
      code = nnrt_cross_entropy_ld(p->type, loss + from, lse, logits, p->ld, label, rows, p->n,
                                   p->width, p->ignore);
    if (code || !dx) continue;
    // The logits become their gradients, which both products read.
    code = nnrt_cross_entropy_back_ld(p->type, logits, logits, p->ld, label, lse, dloss + from,
                                      rows, p->n, p->width, p->ignore);
    if (!code)
      code = nnrt_gemm_run(c->dx, (char *)dx + from * p->k * size, logits, w, NULL, NULL, rest);
    if (!code)
      code = nnrt_gemm_run(c->dw, dw, p->trans ? logits : x_rows, p->trans ? x_rows : logits, NULL,
                           NULL, rest);
  }
  nnrt_gpu()->row = 0;
  return code;
}

#define CLASSIFIER(type, T)                                                                        \
  NnrtPrep *nnrt_classifier_prep_##type(int64_t m, int64_t k, int64_t n, bool trans,               \
                                        int64_t width, int64_t ignore) {                           \
    return classifier(NNRT_##type, m, k, n, trans, width, ignore, false);                          \
  }                                                                                                \
  int nnrt_classifier_##type(NnrtPrep *p, float *loss, const T *x, const T *w,                     \
                             const void *labels) {                                                 \
    return run(p, loss, NULL, NULL, x, w, labels, NULL);                                           \
  }                                                                                                \
  NnrtPrep *nnrt_classifier_back_prep_##type(int64_t m, int64_t k, int64_t n, bool trans,          \
                                             int64_t width, int64_t ignore) {                      \
    return classifier(NNRT_##type, m, k, n, trans, width, ignore, true);                           \
  }                                                                                                \
  int nnrt_classifier_back_##type(NnrtPrep *p, float *loss, T *dx, float *dw, const T *x,          \
                                  const T *w, const void *labels, const float *dloss) {            \
    return run(p, loss, dx, dw, x, w, labels, dloss);                                              \
  }
CLASSIFIER(f32, float)
CLASSIFIER(bf16, uint16_t)
CLASSIFIER(f16, uint16_t)
