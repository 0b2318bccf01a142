// Cross-entropy of logits (m, c) with labels (m), and the negative log-likelihood of
// log-probabilities, with their gradients.  Labels are checked before anything is written.
//
// Except in cross_entropy itself, the classes may be a shard: those from number `from` on, of
// `all`. A row with a label in another shard contributes 0.  Columns from number `all` on are
// padding: they do not count, and have gradient 0.

#include "wide.h"

static int check_labels(const void *labels, int64_t width, int64_t m, int64_t all, int64_t ignore) {
  for (int64_t i = 0; i < m; i++) {
    int64_t label = index_at(labels, width, i);
    // All labels are checked before a result is written.
    if ((label < 0 || label >= all) && label != ignore)
      return nnrt_found(FOUND_label, label, i, 0, all);
  }
  return NNRT_OK;
}

// The columns before the padding, of c columns from `from` on.
static int64_t unpadded(int64_t c, int64_t from, int64_t all) {
  int64_t n = all - from;
  return n < 0 ? 0 : n > c ? c : n;
}

// Whether the label is one of the c classes of this shard.
static inline bool is_here(int64_t label, int64_t c, int64_t from, int64_t ignore) {
  return label != ignore && label >= from && label < from + c;
}

// -inf if all elements are; NaN if one is NaN or +inf
NNRT_CLONES static float log_sum_exp(const float *x, int64_t n) {
  float top = -INFINITY, sum = 0;
#pragma omp simd reduction(max : top)
  for (int64_t j = 0; j < n; j++)
    top = x[j] > top ? x[j] : top;
  // Otherwise -inf - -inf would be NaN.
  if (top == -INFINITY) top = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; j++)
    sum += m_exp_upto_88_f(x[j] - top);
  return top + m_log_f(sum);
}

// Blocks of a thread: one for logits, of at most WIDE_BLOCK, and one for the log-sum-exps of the
// pieces of a row.
static bool wide_logits(Wide *w, NnrtDtype type, int64_t n, int threads) {
  int64_t pieces = (n + WIDE_BLOCK - 1) / WIDE_BLOCK;
  return wide_new(w, type, 1, pieces > WIDE_BLOCK ? pieces : WIDE_BLOCK, threads, 2, 0);
}

// The log-sum-exp of elements at .. at + n of x.  A 16-bit row is read in pieces: the result is
// the log-sum-exp of theirs.
static float wide_log_sum_exp(const Wide *w, const void *x, int64_t at, int64_t n) {
  if (w->type == NNRT_f32) return log_sum_exp((const float *)x + at, n);
  int thread = omp_get_thread_num();
  float *block = wide_block(w, thread, 0), *of_piece = wide_block(w, thread, 1);
  int64_t pieces = 0;
  for (int64_t j = 0; j < n; j += WIDE_BLOCK) {
    int64_t some = n - j < WIDE_BLOCK ? n - j : WIDE_BLOCK;
    of_piece[pieces++] = log_sum_exp(wide_read(w, x, at + j, some, block), some);
  }
  return pieces == 1 ? of_piece[0] : log_sum_exp(of_piece, pieces);
}

// Element `at` of x.
static float wide_element(const Wide *w, const void *x, int64_t at) {
  float element;
  return *wide_read(w, x, at, 1, &element);
}

static int cross_entropy(NnrtDtype type, float *loss, float *lse, const void *logits,
                         const void *labels, int64_t m, int64_t c, int64_t width, int64_t ignore,
                         int64_t classes) {
  int64_t all = classes ? classes : c;
  int code = check_labels(labels, width, m, all, ignore);
  if (code) return code;
  int threads = threads_for(m * c);
  Wide w;
  if (!wide_logits(&w, type, all, threads)) return NNRT_MEMORY;
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < m; i++) {
    int64_t label = index_at(labels, width, i);
    // The log-sum-exp is saved for the gradient.
    lse[i] = wide_log_sum_exp(&w, logits, i * c, all);
    loss[i] = label == ignore ? 0.0f : lse[i] - wide_element(&w, logits, i * c + label);
  }
  return NNRT_OK;
}

static int lse_parts(NnrtDtype type, float *y, const void *x, int64_t m, int64_t g, int64_t c,
                     int64_t from, int64_t all) {
  int threads = threads_for(m * g * c);
  Wide w;
  if (!wide_logits(&w, type, c, threads)) return NNRT_MEMORY;
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < m * g; i++)
    y[i] = wide_log_sum_exp(&w, x, i * c, unpadded(c, from + i % g * c, all));
  return NNRT_OK;
}

// y = e^(x - lse) dloss; in place
NNRT_CLONES static void scaled_softmax(float *y, const float *x, float lse, float dloss,
                                       int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; j++)
    y[j] = m_exp_upto_88_f(x[j] - lse) * dloss;
}

static int cross_entropy_back(NnrtDtype type, void *dlogits, const void *logits, const void *labels,
                              const float *lse, const float *dloss, int64_t m, int64_t c,
                              int64_t from, int64_t all, int64_t width, int64_t ignore) {
  int code = check_labels(labels, width, m, all, ignore);
  if (code) return code;
  int threads = threads_for(m * c);
  int64_t n = unpadded(c, from, all), bytes = type == NNRT_f32 ? 4 : 2;
  int64_t piece = type == NNRT_f32 ? n : WIDE_BLOCK;
  Wide w;
  if (!wide_new(&w, type, 1, WIDE_BLOCK, threads, 1, 0)) return NNRT_MEMORY;
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < m; i++) {
    int64_t label = index_at(labels, width, i);
    char *row = (char *)dlogits + i * c * bytes;
    // An ignored row has gradient 0, even if its logits are not finite.
    if (label == ignore) {
      memset(row, 0, (size_t)(c * bytes));
      continue;
    }
    // dlogits = (softmax - onehot) dloss
    int64_t here = is_here(label, c, from, ignore) ? label - from : -1;
    float *block = wide_block(&w, omp_get_thread_num(), 0);
    for (int64_t j = 0; j < n; j += piece) {
      int64_t some = n - j < piece ? n - j : piece;
      const float *x = wide_read(&w, logits, i * c + j, some, block);
      float *dx = wide_place(&w, dlogits, i * c + j, block);
      scaled_softmax(dx, x, lse[i], dloss[i], some);
      if (here >= j && here < j + some) dx[here - j] -= dloss[i];
      wide_write(&w, dlogits, i * c + j, some, dx);
    }
    memset(row + n * bytes, 0, (size_t)((c - n) * bytes));
  }
  return NNRT_OK;
}

#define KERNELS(type, T)                                                                           \
  int nnrt_cross_entropy_##type(float *loss, float *lse, const T *logits, const void *labels,      \
                                int64_t m, int64_t c, int64_t width, int64_t ignore,               \
                                int64_t classes) {                                                 \
    return cross_entropy(NNRT_##type, loss, lse, logits, labels, m, c, width, ignore, classes);    \
  }                                                                                                \
  int nnrt_lse_parts_##type(float *y, const T *x, int64_t m, int64_t g, int64_t c, int64_t from,   \
                            int64_t all) {                                                         \
    return lse_parts(NNRT_##type, y, x, m, g, c, from, all);                                       \
  }                                                                                                \
  int nnrt_cross_entropy_back_##type(T *dlogits, const T *logits, const void *labels,              \
                                     const float *lse, const float *dloss, int64_t m, int64_t c,   \
                                     int64_t from, int64_t all, int64_t width, int64_t ignore) {   \
    return cross_entropy_back(NNRT_##type, dlogits, logits, labels, lse, dloss, m, c, from, all,   \
                              width, ignore);                                                      \
  }

KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)

int nnrt_nll_f32(float *loss, const float *logp, const void *labels, int64_t m, int64_t c,
                 int64_t from, int64_t all, int64_t width, int64_t ignore) {
  int code = check_labels(labels, width, m, all, ignore);
  if (code) return code;
  for (int64_t i = 0; i < m; i++) {
    int64_t label = index_at(labels, width, i);
    loss[i] = is_here(label, c, from, ignore) ? -logp[i * c + label - from] : 0.0f;
  }
  return NNRT_OK;
}

int nnrt_nll_back_f32(float *dlogp, const void *labels, const float *dloss, int64_t m, int64_t c,
                      int64_t from, int64_t all, int64_t width, int64_t ignore) {
  int code = check_labels(labels, width, m, all, ignore);
  if (code) return code;
  nnrt_zero(dlogp, m * c * (int64_t)sizeof *dlogp);
  for (int64_t i = 0; i < m; i++) {
    int64_t label = index_at(labels, width, i);
    if (is_here(label, c, from, ignore)) dlogp[i * c + label - from] = -dloss[i];
  }
  return NNRT_OK;
}
