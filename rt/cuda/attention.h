// Shapes and layouts shared by the implementations of attention.
//
// attention.c prepares and runs.  It prefers cuDNN's fused graph (attention_dnn.c), which never
// writes the scores to memory.  Shapes that cuDNN does not support run in chunks of heads: matrix
// products write the scores of a chunk to scratch, and our own softmax runs between the products
// (attention_kernels.cu).  The choice is made when a kernel is prepared, from shapes alone.

#ifndef NNRT_CUDA_ATTENTION_H
#define NNRT_CUDA_ATTENTION_H

#include "dnn.h"
#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AttentionShape {
  NnrtDtype type;
  int64_t b, h, kv, t, s, d, e; // q (b, h, t, d), k (b, kv, s, d), v (b, kv, s, e), y (b, h, t, e)
  int64_t group;                // h / kv consecutive heads of q share one of k and v
  float scale;
  bool causal, seq_major, has_mask;
  bool packed;         // q, k and v are the thirds of each row of one tensor (b, t, 3 h d)
  int64_t mask_dim[4]; // each 1 or the dimension of the scores (b, h, t, s)
} AttentionShape;

// Strides in elements along batch, head, row and column of a tensor of `heads` heads of `rows` rows
// of `n`.
typedef struct Strides {
  int64_t at[4];
} Strides;
static inline Strides strides_of(bool seq_major, int64_t heads, int64_t rows, int64_t n) {
  return seq_major ? (Strides){{rows * heads * n, n, heads * n, 1}}
                   : (Strides){{rows * heads * n, rows * n, n, 1}};
}

// Strides of q and dq, k and dk, v and dv, y and dy.
static inline Strides packed_strides(const AttentionShape *a) {
  int64_t row = 3 * a->h * a->d;
  return (Strides){{a->t * row, a->d, row, 1}};
}
static inline Strides strides_q(const AttentionShape *a) {
  return a->packed ? packed_strides(a) : strides_of(a->seq_major, a->h, a->t, a->d);
}
static inline Strides strides_k(const AttentionShape *a) {
  return a->packed ? packed_strides(a) : strides_of(a->seq_major, a->kv, a->s, a->d);
}
static inline Strides strides_v(const AttentionShape *a) {
  return a->packed ? packed_strides(a) : strides_of(a->seq_major, a->kv, a->s, a->e);
}
static inline Strides strides_y(const AttentionShape *a) {
  return strides_of(a->seq_major, a->h, a->t, a->e);
}

// -- attention_dnn.c

// The part of the batch and of the heads of k that one run of a plan computes.
typedef struct AttentionPart {
  int64_t b, kv;
} AttentionPart;
#define ATTENTION_MOST_WORKSPACE ((int64_t)4 << 30)

// Returns the reason not to use cuDNN, a known limitation or error of it; else NULL.
const char *attention_refused(const AttentionShape *a, bool back);
// Returns the plan for a part, or NULL with nnrt_error set.  Operands of a run: q, k, v, mask (if
// any), y, lse.  The mask is f32 and has no infinities.
DnnPlan *attention_plan(const AttentionShape *a, AttentionPart part);
// Operands of a run: q, k, v, y, lse, dy, mask (if any), delta (b, h, t) f32 for its own use, dq,
// dk, dv.
DnnPlan *attention_back_plan(const AttentionShape *a, AttentionPart part);

// -- attention_own.c: without cuDNN, for every type

typedef struct AttentionOwn AttentionOwn;
AttentionOwn *attention_own_new(const AttentionShape *a, bool back); // NULL with nnrt_error set
void attention_own_free(AttentionOwn *o);
int64_t attention_own_scratch(const AttentionOwn *o);
int attention_own_run(const AttentionOwn *o, void *y, float *lse, const void *const *in,
                      char *scratch);
int attention_own_run_back(const AttentionOwn *o, void *dq, void *dk, void *dv,
                           const void *const *in, char *scratch);

// -- attention_kernels.cu

// Some rows of the scores of some heads: (n, rows, s), packed.  Heads are numbered through the
// whole batch, b h in total.
typedef struct AttentionRows {
  int64_t n, rows, s;
  int64_t head, head_step; // of q: the first, and the stride
  int64_t first;           // query of the first row
  int64_t h, t, e;         // of the whole
  bool causal, seq_major;
  int64_t mask_stride[4]; // of b, h, t, s; 0 for a mask dimension of 1
} AttentionRows;

// p = softmax(scores + mask), of `type`, and lse, at its position in the whole.  p may be scores.
int attention_softmax(const AttentionRows *x, NnrtDtype type, void *p, float *lse,
                      const float *scores, const void *mask);
// p = e^(scores + mask - lse), ds = p (dp - sum dy y) scale.  p may be scores, and ds dp.
int attention_softmax_back(const AttentionRows *x, NnrtDtype type, void *p, void *ds,
                           const float *scores, const float *dp, const float *lse, const void *mask,
                           const void *y, const void *dy, float scale);
// to (n, rows, columns) = from: head x at x * head, its rows `row` apart
int attention_store(NnrtDtype type, void *to, int64_t head, int64_t row, const float *from,
                    int64_t n, int64_t rows, int64_t columns);

// Converts a mask for cuDNN: f32 without infinities.  -1e38 hides a key completely; values below
// -1e37 count as that.  A dimension of 1 is broadcast to that of `to`.
int attention_mask_f32(NnrtDtype type, float *to, const int64_t *to_dim, const void *mask,
                       const int64_t *dim);
// Clears rows of y (b, h, t, e) with all keys hidden, and sets their lse to -inf.
int attention_blind_rows(const AttentionShape *a, void *y, float *lse);
// lse for the backward graph: -inf becomes a number for which all probabilities are 0.
int attention_finite_lse(float *to, const float *lse, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
