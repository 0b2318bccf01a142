// Attention and its gradient: by cuDNN's fused graph if cuDNN supports the shape, else by our own
// products and softmax (attention.h).
//
// The backward graph keeps dS, b h t s numbers of 16 bits, in its workspace.  So the graph is built
// for a part of the batch, and of the heads if that is not enough, and run once per part.

#include "attention.h"

#include <stdlib.h>
#include <string.h>

#include "cudnn_plans.h"
#include "runtime.h"

// The maximal workspace of a part of the backward graph.  A part that still occupies all
// multiprocessors is no slower than the whole.
#ifndef PART_BYTES // a test uses many parts
#define PART_BYTES ((int64_t)512 << 20)
#endif

typedef struct Attention {
  NnrtPrep base;
  AttentionShape a;    // with the mask's shape in cuDNN's graph
  int64_t mask_dim[4]; // of the operand
  bool nothing;        // empty
  DnnPlan *plan;
  AttentionPart part;
  AttentionOwn *own; // if there is no plan
  // Sections of scratch, in bytes: the plan's workspace, then delta of a part, then mask and lse of
  // the whole
  int64_t workspace, delta, mask, lse;
} Attention;

static void prep_free(NnrtPrep *prep) {
  Attention *p = (Attention *)prep;
  dnn_plan_free(p->plan);
  attention_own_free(p->own);
  free(p);
}

static int64_t mask_count(const AttentionShape *a) {
  return a->has_mask ? a->mask_dim[0] * a->mask_dim[1] * a->mask_dim[2] * a->mask_dim[3] : 0;
}

static bool read_shape(AttentionShape *a, NnrtDtype type, int64_t ndim, const int64_t *q,
                       const int64_t *k, const int64_t *v, const int64_t *mask, double scale,
                       bool causal, bool seq_major) {
  if (ndim != 4) {
    nnrt_error(NNRT_UNSUPPORTED, "attention: operands have %lld dimensions, not 4",
               (long long)ndim);
    return false;
  }
  // The operands are (b, rows, heads, columns) if seq_major, else (b, heads, rows, columns).
  int heads = seq_major ? 2 : 1, seq = seq_major ? 1 : 2;
  *a = (AttentionShape){.type = type,
                        .b = q[0],
                        .h = q[heads],
                        .kv = k[heads],
                        .t = q[seq],
                        .s = k[seq],
                        .d = q[3],
                        .e = v[3],
                        .scale = (float)scale,
                        .causal = causal,
                        .seq_major = seq_major,
                        .has_mask = mask != NULL};
  // Every head of k and v is shared by the same number of heads of q.
  if (a->kv < 1 || a->h % a->kv != 0 || a->s < 1 || a->d < 1 || a->e < 1) {
    nnrt_error(NNRT_UNSUPPORTED, "attention: %lld heads of %lld read %lld of %lld, %lld keys",
               (long long)a->h, (long long)a->d, (long long)a->kv, (long long)a->e,
               (long long)a->s);
    return false;
  }
  a->group = a->h / a->kv;
  for (int i = 0; mask && i < 4; i++)
    a->mask_dim[i] = mask[i];
  return true;
}

// Whether all parts begin at multiples of 16 bytes, as cuDNN requires.
static bool aligned(const AttentionShape *a, AttentionPart part) {
  int64_t heads = part.kv * a->group, mask = mask_count(a), step = 4; // floats
  // The rows of a part follow those of the parts before it, in lse and in the mask.
  if (part.b < a->b && (part.b * a->h * a->t) % step) return false;
  if (part.kv < a->kv && (heads * a->t) % step) return false;
  if (mask && part.b < a->b && a->mask_dim[0] > 1 && (part.b * (mask / a->mask_dim[0])) % step)
    return false;
  if (mask && part.kv < a->kv && a->mask_dim[1] > 1 &&
      (heads * a->mask_dim[2] * a->mask_dim[3]) % step)
    return false;
  return true;
}

// The bytes of dS in cuDNN's workspace for a part.
static int64_t back_bytes(const AttentionShape *a, AttentionPart part) {
  int64_t t = (a->t + 63) / 64 * 64, s = (a->s + 127) / 128 * 128;
  return part.b * part.kv * a->group * t * s * 2;
}

static AttentionPart back_part(const AttentionShape *a) {
  AttentionPart best = {a->b, a->kv};
  // The largest part of the batch within the limit: a divisor, so that all parts are equal.
  for (int64_t b = a->b; b >= 1; b--) {
    AttentionPart part = {b, a->kv};
    if (a->b % b != 0 || !aligned(a, part)) continue;
    best = part;
    if (back_bytes(a, part) <= PART_BYTES) return part;
  }
  if (best.b > 1) return best;
  // One element of the batch is still too large, so its heads are divided, too.
  for (int64_t kv = a->kv; kv >= 1; kv--) {
    AttentionPart part = {1, kv};
    if (a->kv % kv != 0 || !aligned(a, part)) continue;
    best = part;
    if (back_bytes(a, part) <= PART_BYTES) return part;
  }
  return best;
}

static NnrtPrep *prepare(const AttentionShape *shape, bool back) {
  Attention *p = nnrt_must_alloc(sizeof *p);
  p->base.free = prep_free;
  p->a = *shape;
  // The backward graph broadcasts a mask along the batch and the heads only: with one row for all
  // queries, as in padding masks, gradients of cuDNN 9.19 are wrong.
  if (back && shape->has_mask) {
    p->a.mask_dim[2] = shape->t;
    p->a.mask_dim[3] = shape->s;
  }
  memcpy(p->mask_dim, shape->mask_dim, sizeof p->mask_dim);
  const AttentionShape *a = &p->a;
  p->nothing = a->b * a->h * a->t == 0;
  if (p->nothing) return &p->base;
  // Without a plan the reason is kept in nnrt_error: it is said at the start.
  const char *refused = attention_refused(a, back);
  if (!refused) {
    p->part = back ? back_part(a) : (AttentionPart){a->b, a->kv};
    p->plan = back ? attention_back_plan(a, p->part) : attention_plan(a, p->part);
  } else {
    nnrt_error(NNRT_UNSUPPORTED, "%s", refused);
  }
  // While planning, plans are only built: nothing is allocated on a GPU.
  int64_t scratch = 0;
  if (p->plan) {
    p->workspace = round_256(dnn_plan_workspace(p->plan) + 1); // never 0
    p->delta = back ? round_256(p->part.b * p->part.kv * a->group * a->t * 4) : 0;
    p->mask = round_256(mask_count(a) * 4);
    p->lse = back && a->has_mask ? round_256(a->b * a->h * a->t * 4) : 0;
    scratch = p->workspace + p->delta + p->mask + p->lse;
  } else {
    // The fallback is slow in 16 bits, so it is worth a note; f32 has no other.
    if (a->type != NNRT_f32) nnrt_plans_without(back ? "attention_back" : "attention");
    if (!nnrt_gpu()->planning && !(p->own = attention_own_new(shape, back))) {
      prep_free(&p->base);
      return NULL;
    }
    if (p->own) scratch = attention_own_scratch(p->own);
  }
  if (!nnrt_gpu()->planning && !nnrt_gpu_scratch(scratch)) {
    prep_free(&p->base);
    return NULL;
  }
  return &p->base;
}

static char *scratch_of(const Attention *p) {
  return nnrt_gpu_scratch(p->plan ? p->workspace + p->delta + p->mask + p->lse
                                  : attention_own_scratch(p->own));
}

static int forward(NnrtPrep *prep, void *y, float *lse, const void *const *in) {
  const Attention *p = (const Attention *)prep;
  const AttentionShape *a = &p->a;
  if (p->nothing) return NNRT_OK;
  char *scratch = scratch_of(p);
  if (!scratch) return NNRT_MEMORY;
  if (!p->plan) return attention_own_run(p->own, y, lse, in, scratch);
  float *mask = (float *)(void *)(scratch + p->workspace);
  int code =
      a->has_mask ? attention_mask_f32(a->type, mask, a->mask_dim, in[3], p->mask_dim) : NNRT_OK;
  // In the order of attention_plan.
  void *operands[6], **at = operands;
  for (int i = 0; i < 3; i++)
    *at++ = unconst(in[i]);
  if (a->has_mask) *at++ = mask;
  *at++ = y;
  *at++ = lse;
  if (!code) code = dnn_run(p->plan, operands, scratch);
  // Rows that see no key get zeros, as without cuDNN.
  if (!code && a->has_mask) code = attention_blind_rows(a, y, lse);
  return code;
}

// Bytes from the beginning of a tensor to the part that begins at batch `b` and head `head`.
static int64_t in_part(int64_t b, int64_t head, Strides s) {
  return (b * s.at[0] + head * s.at[1]) * 2;
}
static int backward(NnrtPrep *prep, void *dq, void *dk, void *dv, const void *const *in) {
  const Attention *p = (const Attention *)prep;
  const AttentionShape *a = &p->a;
  if (p->nothing) return NNRT_OK;
  char *scratch = scratch_of(p);
  if (!scratch) return NNRT_MEMORY;
  if (!p->plan) return attention_own_run_back(p->own, dq, dk, dv, in, scratch);
  char *at = scratch + p->workspace;
  float *delta = (float *)(void *)at, *mask = (float *)(void *)(at + p->delta);
  float *finite = (float *)(void *)(at + p->delta + p->mask);
  const float *lse = in[4];
  int code = NNRT_OK;
  // cuDNN needs a finite mask and a finite lse.
  if (a->has_mask) {
    code = attention_mask_f32(a->type, mask, a->mask_dim, in[6], p->mask_dim);
    if (!code) code = attention_finite_lse(finite, lse, a->b * a->h * a->t);
    lse = finite;
  }
  // A part is an offset into every operand; delta is reused.
  for (int64_t b = 0; b < a->b; b += p->part.b)
    for (int64_t kv = 0; !code && kv < a->kv; kv += p->part.kv) {
      int64_t q_at = in_part(b, kv * a->group, strides_q(a));
      int64_t y_at = in_part(b, kv * a->group, strides_y(a));
      int64_t k_at = in_part(b, kv, strides_k(a)), v_at = in_part(b, kv, strides_v(a));
      int64_t row = (b * a->h + kv * a->group) * a->t;
      const void *operand[] = {(const char *)in[0] + q_at,
                               (const char *)in[1] + k_at,
                               (const char *)in[2] + v_at,
                               (const char *)in[3] + y_at,
                               lse + row,
                               (const char *)in[5] + y_at};
      // In the order of attention_back_plan.
      void *data[11];
      int n = 0;
      for (int i = 0; i < 6; i++)
        data[n++] = unconst(operand[i]);
      if (a->has_mask) {
        // A dimension of 1 is broadcast: all parts read it.
        const int64_t *dim = a->mask_dim, matrix = dim[2] * dim[3];
        int64_t batch_at = dim[0] > 1 ? b * dim[1] * matrix : 0;
        data[n++] = mask + batch_at + (dim[1] > 1 ? kv * a->group * matrix : 0);
      }
      data[n++] = delta;
      data[n++] = (char *)dq + q_at;
      data[n++] = (char *)dk + k_at;
      data[n++] = (char *)dv + v_at;
      code = dnn_run(p->plan, data, scratch);
    }
  return code;
}

static NnrtPrep *prepare_packed(NnrtDtype type, const int64_t *shape, int64_t heads, double scale,
                                bool causal, bool back) {
  int64_t width = shape[2] / 3 / heads;
  // The thirds of a row are q, k and v, each with all heads.
  AttentionShape a = {.type = type,
                      .b = shape[0],
                      .h = heads,
                      .kv = heads,
                      .t = shape[1],
                      .s = shape[1],
                      .d = width,
                      .e = width,
                      .group = 1,
                      .scale = (float)scale,
                      .causal = causal,
                      .seq_major = true,
                      .packed = true};
  return prepare(&a, back);
}

// The bytes of one third of a packed row.
static int64_t third(const NnrtPrep *prep) {
  const AttentionShape *a = &((const Attention *)prep)->a;
  return a->h * a->d * nnrt_dtype_size(a->type);
}

static int forward_packed(NnrtPrep *prep, void *y, float *lse, const void *x) {
  const char *q = x, *k = q + third(prep), *v = k + third(prep);
  return forward(prep, y, lse, (const void *[]){q, k, v, NULL});
}

static int backward_packed(NnrtPrep *prep, void *dx, const void *x, const void *y, const float *lse,
                           const void *dy) {
  const char *q = x, *k = q + third(prep), *v = k + third(prep);
  char *dq = dx, *dk = dq + third(prep), *dv = dk + third(prep);
  return backward(prep, dq, dk, dv, (const void *[]){q, k, v, y, lse, dy, NULL});
}

#define KERNELS(suffix, T, dtype)                                                                  \
  NnrtPrep *nnrt_attention_prep_##suffix(int64_t n, int64_t ndim, const int64_t *q,                \
                                         const int64_t *k, const int64_t *v, const int64_t *mask,  \
                                         double scale, bool causal, bool seq_major) {              \
    AttentionShape a;                                                                              \
    if (!read_shape(&a, dtype, ndim, q, k, v, n > 3 ? mask : NULL, scale, causal, seq_major))      \
      return NULL;                                                                                 \
    return prepare(&a, false);                                                                     \
  }                                                                                                \
  int nnrt_attention_##suffix(NnrtPrep *p, T *y, float *lse, const void *const *in) {              \
    return forward(p, y, lse, in);                                                                 \
  }                                                                                                \
  NnrtPrep *nnrt_attention_back_prep_##suffix(                                                     \
      int64_t n, int64_t ndim, const int64_t *q, const int64_t *k, const int64_t *v,               \
      const int64_t *mask, double scale, bool causal, bool seq_major) {                            \
    AttentionShape a;                                                                              \
    if (!read_shape(&a, dtype, ndim, q, k, v, n > 6 ? mask : NULL, scale, causal, seq_major))      \
      return NULL;                                                                                 \
    return prepare(&a, true);                                                                      \
  }                                                                                                \
  int nnrt_attention_back_##suffix(NnrtPrep *p, T *dq, T *dk, T *dv, const void *const *in) {      \
    return backward(p, dq, dk, dv, in);                                                            \
  }                                                                                                \
  NnrtPrep *nnrt_attention_packed_prep_##suffix(const int64_t *shape, int64_t heads, double scale, \
                                                bool causal) {                                     \
    return prepare_packed(dtype, shape, heads, scale, causal, false);                              \
  }                                                                                                \
  int nnrt_attention_packed_##suffix(NnrtPrep *p, T *y, float *lse, const T *x) {                  \
    return forward_packed(p, y, lse, x);                                                           \
  }                                                                                                \
  NnrtPrep *nnrt_attention_packed_back_prep_##suffix(const int64_t *shape, int64_t heads,          \
                                                     double scale, bool causal) {                  \
    return prepare_packed(dtype, shape, heads, scale, causal, true);                               \
  }                                                                                                \
  int nnrt_attention_packed_back_##suffix(NnrtPrep *p, T *dx, const T *x, const T *y,              \
                                          const float *lse, const T *dy) {                         \
    return backward_packed(p, dx, x, y, lse, dy);                                                  \
  }

KERNELS(f32, float, NNRT_f32)
KERNELS(bf16, uint16_t, NNRT_bf16)
KERNELS(f16, uint16_t, NNRT_f16)
