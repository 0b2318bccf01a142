// Attention as cuDNN's fused graph.  cuDNN matches the graph by its form, so it has the form of
// cuDNN's own attention, with exactly the operations that its engines expect.
//
//     forward    S = q k' scale + mask; causal: S = row + s - t >= column ? S : -inf
//                top = max S; E = e^(S - top); sum = sum E; lse = top + log sum; y = (E / sum) v
//     backward   delta = sum dy y; P = e^(S - lse); dv = P' dy
//                dS = P (dy v' - delta) scale; dk = dS' q; dq = dS k
//
// The backward graph computes dq by a product of its own, for which cuDNN keeps dS in its
// workspace: the other form adds the blocks' contributions to dq in f32, in no fixed order.
//
// cuDNN's plain formulas yield NaN for a row with all keys hidden.  A causal mask alone hides a
// whole row only if s < t, which is refused here; for other masks attention.c ensures that no score
// is -inf.

#include "attention.h"

#include <float.h>
#include <math.h>

typedef struct Graph {
  DnnGraph *g;
  const AttentionShape *a;
  int64_t b, h, kv; // of the part
  cudnnDataType_t type;
  int64_t scores[4], score_stride[4], row[4], row_stride[4];
} Graph;

static Graph begin(const char *name, const AttentionShape *a, AttentionPart part) {
  int64_t h = part.kv * a->group;
  // Scores are (b, h, t, s), statistics of rows (b, h, t, 1).
  return (Graph){.g = dnn_graph_new(name),
                 .a = a,
                 .b = part.b,
                 .h = h,
                 .kv = part.kv,
                 .type = a->type == NNRT_bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
                 .scores = {part.b, h, a->t, a->s},
                 .score_stride = {h * a->t * a->s, a->t * a->s, a->s, 1},
                 .row = {part.b, h, a->t, 1},
                 .row_stride = {h * a->t, a->t, 1, 1}};
}

// The part's heads of a tensor in memory: (b, heads, rows, n)
static DnnTensor of_q(const Graph *x) {
  return dnn_tensor(x->g, x->type, 4, (int64_t[]){x->b, x->h, x->a->t, x->a->d},
                    strides_q(x->a).at);
}
static DnnTensor of_k(const Graph *x) {
  return dnn_tensor(x->g, x->type, 4, (int64_t[]){x->b, x->kv, x->a->s, x->a->d},
                    strides_k(x->a).at);
}
static DnnTensor of_v(const Graph *x) {
  return dnn_tensor(x->g, x->type, 4, (int64_t[]){x->b, x->kv, x->a->s, x->a->e},
                    strides_v(x->a).at);
}
static DnnTensor of_y(const Graph *x) {
  return dnn_tensor(x->g, x->type, 4, (int64_t[]){x->b, x->h, x->a->t, x->a->e},
                    strides_y(x->a).at);
}
// k or v as (b, heads, n, rows).
static DnnTensor transposed(const Graph *x, int64_t n, Strides s) {
  return dnn_tensor(x->g, x->type, 4, (int64_t[]){x->b, x->kv, n, x->a->s},
                    (int64_t[]){s.at[0], s.at[1], s.at[3], s.at[2]});
}

static DnnTensor mask(const Graph *x) {
  const int64_t *dim = x->a->mask_dim;
  return dnn_tensor(x->g, CUDNN_DATA_FLOAT, 4,
                    (int64_t[]){dim[0] == 1 ? 1 : x->b, dim[1] == 1 ? 1 : x->h, dim[2], dim[3]},
                    (int64_t[]){dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1});
}

// Statistics of rows in memory, f32
static DnnTensor rows_in_memory(const Graph *x) {
  return dnn_tensor(x->g, CUDNN_DATA_FLOAT, 4, x->row, x->row_stride);
}
static DnnTensor rows(const Graph *x) {
  return dnn_virtual(x->g, CUDNN_DATA_FLOAT, 4, x->row, x->row_stride);
}
static DnnTensor scores(const Graph *x, cudnnDataType_t type) {
  return dnn_virtual(x->g, type, 4, x->scores, x->score_stride);
}

static DnnTensor apply(const Graph *x, cudnnPointwiseMode_t mode, DnnTensor p, DnnTensor q) {
  DnnTensor y = scores(x, CUDNN_DATA_FLOAT);
  dnn_pointwise(x->g, mode, p, q, y);
  return y;
}

static DnnTensor hide_later(const Graph *x, DnnTensor p) {
  const AttentionShape *a = x->a;
  if (!a->causal) return p;
  DnnTensor row = scores(x, CUDNN_DATA_INT32), column = scores(x, CUDNN_DATA_INT32);
  DnnTensor sees = scores(x, CUDNN_DATA_BOOLEAN), y = scores(x, CUDNN_DATA_FLOAT);
  // cuDNN before 9.10 requires the lowest float instead.
  DnnTensor nothing = dnn_number(x->g, 4, cudnnGetVersion() < 91000 ? -FLT_MAX : -INFINITY);
  // Query and key of each score, by position.
  dnn_index(x->g, 2, p, row);
  dnn_index(x->g, 3, p, column);
  // The last query sees the last key.
  if (a->s != a->t) {
    DnnTensor moved = scores(x, CUDNN_DATA_INT32);
    DnnTensor by = dnn_integer(x->g, 4, (int32_t)(a->s - a->t));
    dnn_add_integers(x->g, row, by, moved);
    row = moved;
  }
  dnn_pointwise(x->g, CUDNN_POINTWISE_CMP_GE, row, column, sees);
  dnn_select(x->g, sees, p, nothing, y);
  return y;
}

const char *attention_refused(const AttentionShape *a, bool back) {
  int64_t version = (int64_t)cudnnGetVersion(), widest = nnrt_gpu()->sm / 10 == 9 ? 256 : 128;

  if (a->type != NNRT_bf16 && a->type != NNRT_f16) return "its type is not of 16 bits";
  if (version < 90000) return "cudnn is older than 9.0";
  if (version == 91000 || version == 91001) return "cudnn 9.10.0 and 9.10.1 do it wrong";
  if (a->d % 8 != 0 || a->e % 8 != 0) return "heads are not a multiple of 8 wide";
  if (a->d > widest || a->e > widest) return "heads are too wide";
  if (a->causal && a->t > a->s) return "it is causal and there are more queries than keys";
  if (a->causal && a->t != a->s && a->has_mask)
    return "it has a mask, and is causal with other lengths of queries and keys";
  if (back && a->t == 1 && a->s == 1) return "there is one query and one key";
  if (back && version <= 91500 && a->s % 128 != 0)
    return "cudnn up to 9.15 needs a multiple of 128 keys";
  return NULL;
}

DnnPlan *attention_plan(const AttentionShape *a, AttentionPart part) {
  Graph x = begin(a->type == NNRT_bf16 ? "attention_bf16" : "attention_f16", a, part);
  DnnGraph *g = x.g;
  DnnTensor q = of_q(&x), k = transposed(&x, a->d, strides_k(a)), v = of_v(&x);
  DnnTensor m = a->has_mask ? mask(&x) : DNN_NONE;
  DnnTensor y = of_y(&x), lse = rows_in_memory(&x);
  // The scores.
  DnnTensor p = scores(&x, CUDNN_DATA_FLOAT);
  dnn_matmul(g, q, k, p);
  p = apply(&x, CUDNN_POINTWISE_MUL, p, dnn_number(g, 4, a->scale));
  if (a->has_mask) p = apply(&x, CUDNN_POINTWISE_ADD, p, m);
  p = hide_later(&x, p);
  // Maxima are subtracted before the exponential.
  DnnTensor top = rows(&x), sum = rows(&x), log_sum = rows(&x);
  dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, p, top);
  // Softmax in f32; the probabilities are rounded for the second product.
  p = apply(&x, CUDNN_POINTWISE_EXP, apply(&x, CUDNN_POINTWISE_SUB, p, top), DNN_NONE);
  dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, p, sum);
  dnn_pointwise(g, CUDNN_POINTWISE_LOG, sum, DNN_NONE, log_sum);
  dnn_pointwise(g, CUDNN_POINTWISE_ADD, top, log_sum, lse);
  DnnTensor share = scores(&x, x.type);
  dnn_pointwise(g, CUDNN_POINTWISE_DIV, p, sum, share);
  dnn_matmul(g, share, v, y);
  return dnn_plan(g, &(DnnLimits){.workspace = ATTENTION_MOST_WORKSPACE});
}

// p transposed: (b, h, s, t)
static DnnTensor turned(const Graph *x, DnnTensor p) {
  int64_t t = x->a->t, s = x->a->s;
  DnnTensor y = dnn_virtual(x->g, x->type, 4, (int64_t[]){x->b, x->h, s, t},
                            (int64_t[]){x->h * t * s, t * s, 1, s});
  dnn_reshape(x->g, p, y);
  return y;
}

// dk or dv (b, kv, s, n) = p' q.  Heads that share one are computed separately, and then added.
static void back_to_k(const Graph *x, DnnTensor p, DnnTensor q, DnnTensor y, int64_t n) {
  int64_t s = x->a->s;
  if (x->a->group == 1) {
    dnn_matmul(x->g, turned(x, p), q, y);
    return;
  }
  // Heads of q that share one of k add up.
  DnnTensor all = dnn_virtual(x->g, x->type, 4, (int64_t[]){x->b, x->h, s, n},
                              (int64_t[]){x->h * s * n, s * n, n, 1});
  dnn_matmul(x->g, turned(x, p), q, all);
  dnn_reduce(x->g, CUDNN_REDUCE_TENSOR_ADD, all, y);
}

DnnPlan *attention_back_plan(const AttentionShape *a, AttentionPart part) {
  Graph x = begin(a->type == NNRT_bf16 ? "attention_back_bf16" : "attention_back_f16", a, part);
  DnnGraph *g = x.g;
  DnnTensor q = of_q(&x), k = transposed(&x, a->d, strides_k(a));
  DnnTensor v = transposed(&x, a->e, strides_v(a));
  DnnTensor y = of_y(&x), lse = rows_in_memory(&x), dy = of_y(&x);
  DnnTensor m = a->has_mask ? mask(&x) : DNN_NONE, delta = rows_in_memory(&x);
  DnnTensor dq = of_q(&x), dk = of_k(&x), dv = of_v(&x);
  DnnTensor scale = dnn_number(g, 4, a->scale), one = dnn_number(g, 4, 1);

  // delta = sum dy y
  DnnTensor products = dnn_virtual(g, CUDNN_DATA_FLOAT, 4, (int64_t[]){x.b, x.h, a->t, a->e},
                                   (int64_t[]){x.h * a->t * a->e, a->t * a->e, a->e, 1});
  DnnTensor sums = rows(&x);
  dnn_pointwise(g, CUDNN_POINTWISE_MUL, dy, y, products);
  dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, products, sums);
  dnn_pointwise(g, CUDNN_POINTWISE_MUL, sums, one, delta);

  // P = e^(S - lse), and dv = P' dy
  DnnTensor p = scores(&x, CUDNN_DATA_FLOAT);
  dnn_matmul(g, q, k, p);
  p = apply(&x, CUDNN_POINTWISE_MUL, p, scale);
  if (a->has_mask) p = apply(&x, CUDNN_POINTWISE_ADD, p, m);
  p = apply(&x, CUDNN_POINTWISE_SUB, p, lse);
  p = hide_later(&x, p);
  p = apply(&x, CUDNN_POINTWISE_EXP, p, DNN_NONE);
  back_to_k(&x, p, dy, dv, a->e);

  // dS = P (dy v' - delta) scale, and from it dk and dq
  DnnTensor dp = scores(&x, CUDNN_DATA_FLOAT), ds = scores(&x, x.type);
  dnn_matmul(g, dy, v, dp);
  dp = apply(&x, CUDNN_POINTWISE_SUB, dp, delta);
  dp = apply(&x, CUDNN_POINTWISE_MUL, dp, p);
  dnn_pointwise(g, CUDNN_POINTWISE_MUL, dp, scale, ds);
  back_to_k(&x, ds, q, dk, a->d);
  Strides ks = strides_k(a);
  DnnTensor k_rows = dnn_virtual(g, x.type, 4, (int64_t[]){x.b, x.kv, a->s, a->d}, ks.at);
  dnn_reshape(g, k, k_rows);
  dnn_matmul(g, ds, k_rows, dq);
  return dnn_plan(g, &(DnnLimits){.workspace = ATTENTION_MOST_WORKSPACE});
}
