// Cross-entropy of logits (m, c) with labels (m), and the negative log-likelihood of
// log-probabilities, with their gradients.  Labels are checked before anything is written.
//
// Except in cross_entropy itself, the classes may be a shard: those from number `from` on, of
// `all`. A row with a label in another shard contributes 0.  Columns from number `all` on are
// padding: they do not count, and have gradient 0.

#include "kernel.h"

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
    sum += m_exp_f(x[j] - top);
  return top + m_log_f(sum);
}

int nnrt_cross_entropy_f32(float *loss, float *lse, const float *logits, const void *labels,
                           int64_t m, int64_t c, int64_t width, int64_t ignore, int64_t classes) {
  int64_t all = classes ? classes : c;
  int code = check_labels(labels, width, m, all, ignore);
  if (code) return code;
  int threads = threads_for(m * c);
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < m; i++) {
    int64_t label = index_at(labels, width, i);
    // The log-sum-exp is saved for the gradient.
    lse[i] = log_sum_exp(logits + i * c, all);
    loss[i] = label == ignore ? 0.0f : lse[i] - logits[i * c + label];
  }
  return NNRT_OK;
}

int nnrt_lse_parts_f32(float *y, const float *x, int64_t m, int64_t g, int64_t c, int64_t from,
                       int64_t all) {
  int threads = threads_for(m * g * c);
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < m * g; i++)
    y[i] = log_sum_exp(x + i * c, unpadded(c, from + i % g * c, all));
  return NNRT_OK;
}

// y = e^(x - lse) dloss; in place
NNRT_CLONES static void scaled_softmax(float *y, const float *x, float lse, float dloss,
                                       int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; j++)
    y[j] = m_exp_f(x[j] - lse) * dloss;
}

int nnrt_cross_entropy_back_f32(float *dlogits, const float *logits, const void *labels,
                                const float *lse, const float *dloss, int64_t m, int64_t c,
                                int64_t from, int64_t all, int64_t width, int64_t ignore) {
  int code = check_labels(labels, width, m, all, ignore);
  if (code) return code;
  int threads = threads_for(m * c);
  int64_t n = unpadded(c, from, all);
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < m; i++) {
    int64_t label = index_at(labels, width, i);
    float *row = dlogits + i * c;
    // An ignored row has gradient 0, even if its logits are not finite.
    if (label == ignore) {
      memset(row, 0, (size_t)c * sizeof *row);
      continue;
    }
    // dlogits = (softmax - onehot) dloss
    scaled_softmax(row, logits + i * c, lse[i], dloss[i], n);
    memset(row + n, 0, (size_t)(c - n) * sizeof *row);
    if (is_here(label, c, from, ignore)) row[label - from] -= dloss[i];
  }
  return NNRT_OK;
}

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
