// The optimizers: one pass over a tensor, with one read and one write.  The arithmetic is that of
// torch.optim, in its order, so that losses agree: numbers that depend on the step are computed in
// double and rounded once, the rest is float.
//
// Results may share the memory of w and of the states.  The gradient is first multiplied by
// *gscale, the factor of clipping by the global norm; if that is NaN the update is skipped.

#include "kernel.h"

enum { CHUNK = 8192 };

// Runs leaf(…) over chunks of the tensor; `at` and `n` are the chunk.
#define CHUNKS(call)                                                                               \
  int threads = threads_for(n);                                                                    \
  int64_t chunks = (n + CHUNK - 1) / CHUNK;                                                        \
  _Pragma("omp parallel for num_threads(threads)") for (int64_t i = 0; i < chunks; i++) {          \
    int64_t at = i * CHUNK, length = n - at < CHUNK ? n - at : CHUNK;                              \
    call;                                                                                          \
  }                                                                                                \
  return NNRT_OK

static void keep(float *to, const float *from, int64_t n) {
  if (to != from) memcpy(to, from, (size_t)n * sizeof *to);
}

NNRT_CLONES static void sgd(float *w2, const float *w, const float *g, int64_t n, float lr,
                            float gscale, float decay) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    // The decay is added to the gradient, as in torch.optim.SGD.
    float d = g[i] * gscale + decay * w[i];
    w2[i] = w[i] - lr * d;
  }
}

int nnrt_sgd_f32(float *w2, const float *w, const float *g, const float *lr, const float *gscale,
                 int64_t n, double weight_decay) {
  if (isnan(*gscale)) {
    keep(w2, w, n);
    return NNRT_OK;
  }
  CHUNKS(sgd(w2 + at, w + at, g + at, length, *lr, *gscale, (float)weight_decay));
}

typedef struct Momentum {
  float lr, gscale, decay;
  float keep, take; // of the old and the new
  bool nesterov;
  float momentum;
} Momentum;

NNRT_CLONES static void sgd_momentum(float *w2, float *m2, const float *w, const float *g,
                                     const float *m, int64_t n, Momentum k) {
  // Nesterov's variant looks one step ahead.
  if (k.nesterov) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
      float d = g[i] * k.gscale + k.decay * w[i];
      float b = m[i] * k.keep + d * k.take;
      m2[i] = b;
      w2[i] = w[i] - k.lr * (d + k.momentum * b);
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
      float d = g[i] * k.gscale + k.decay * w[i];
      float b = m[i] * k.keep + d * k.take;
      m2[i] = b;
      w2[i] = w[i] - k.lr * b;
    }
  }
}

int nnrt_sgd_momentum_f32(float *w2, float *m2, const float *w, const float *g, const float *m,
                          const float *lr, const float *gscale, const int64_t *step, int64_t n,
                          const NnrtSgdMomentum *hyper) {
  if (isnan(*gscale)) {
    keep(w2, w, n);
    keep(m2, m, n);
    return NNRT_OK;
  }
  // The first gradient has full weight.
  bool first = *step == 0;
  Momentum k = {.lr = *lr,
                .gscale = *gscale,
                .decay = (float)hyper->weight_decay,
                .keep = first ? 0.0f : (float)hyper->momentum,
                .take = first ? 1.0f : (float)(1.0 - hyper->dampening),
                .nesterov = hyper->nesterov,
                .momentum = (float)hyper->momentum};
  CHUNKS(sgd_momentum(w2 + at, m2 + at, w + at, g + at, m + at, length, k));
}

typedef struct Adam {
  float gscale;
  float decay;  // added to the gradient
  float shrink; // of the weight before the update: 1 - lr decay
  float beta1_rest, beta2, beta2_rest;
  float step_size, root_scale, eps; // w -= step_size m / (sqrt(v) / root_scale + eps)
} Adam;

NNRT_CLONES static void adam(float *w2, float *m2, float *v2, const float *w, const float *g,
                             const float *m, const float *v, int64_t n, Adam k) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    // Decoupled decay (AdamW) shrinks the weight, coupled decay adds to the gradient.
    float wi = w[i] * k.shrink;
    float d = g[i] * k.gscale + k.decay * wi;
    float mi = m[i] + (d - m[i]) * k.beta1_rest;
    float vi = v[i] * k.beta2 + d * d * k.beta2_rest;
    m2[i] = mi;
    v2[i] = vi;
    w2[i] = wi - k.step_size * mi / (sqrtf(vi) / k.root_scale + k.eps);
  }
}

int nnrt_adam_f32(float *w2, float *m2, float *v2, const float *w, const float *g, const float *m,
                  const float *v, const float *lr, const float *gscale, const int64_t *step,
                  int64_t n, const NnrtAdam *hyper) {
  if (isnan(*gscale)) {
    keep(w2, w, n);
    keep(m2, m, n);
    keep(v2, v, n);
    return NNRT_OK;
  }
  // Bias corrections, in double as in torch.optim.
  double t = (double)(*step + 1), rate = (double)*lr;
  double correct1 = 1.0 - pow(hyper->beta1, t), correct2 = sqrt(1.0 - pow(hyper->beta2, t));
  // ONNX's operator corrects the rate, torch.optim the root, before eps is added to it.
  Adam k = {.gscale = *gscale,
            .decay = hyper->decoupled ? 0.0f : (float)hyper->weight_decay,
            .shrink = hyper->decoupled ? (float)(1.0 - rate * hyper->weight_decay) : 1.0f,
            .beta1_rest = (float)(1.0 - hyper->beta1),
            .beta2 = (float)hyper->beta2,
            .beta2_rest = (float)(1.0 - hyper->beta2),
            .step_size = (float)(hyper->onnx ? rate * correct2 / correct1 : rate / correct1),
            .root_scale = hyper->onnx ? 1.0f : (float)correct2,
            .eps = (float)hyper->eps};
  CHUNKS(adam(w2 + at, m2 + at, v2 + at, w + at, g + at, m + at, v + at, length, k));
}

NNRT_CLONES static void adagrad(float *w2, float *s2, const float *w, const float *g,
                                const float *s, int64_t n, float rate, float gscale, float decay,
                                float eps) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    float d = g[i] * gscale + decay * w[i];
    float si = s[i] + d * d;
    s2[i] = si;
    w2[i] = w[i] - rate * d / (sqrtf(si) + eps);
  }
}

int nnrt_adagrad_f32(float *w2, float *s2, const float *w, const float *g, const float *s,
                     const float *lr, const float *gscale, const int64_t *step, int64_t n,
                     const NnrtAdagrad *hyper) {
  if (isnan(*gscale)) {
    keep(w2, w, n);
    keep(s2, s, n);
    return NNRT_OK;
  }
  // The rate decays with the step.
  float rate = (float)((double)*lr / (1.0 + (double)*step * hyper->lr_decay));
  CHUNKS(adagrad(w2 + at, s2 + at, w + at, g + at, s + at, length, rate, *gscale,
                 (float)hyper->weight_decay, (float)hyper->eps));
}

// direction = m^ / (sqrt(v^) + eps) + decay w
NNRT_CLONES static void lamb(float *direction, float *m2, float *v2, const float *w, const float *g,
                             const float *m, const float *v, int64_t n, Adam k) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    float d = g[i] * k.gscale;
    float mi = m[i] + (d - m[i]) * k.beta1_rest;
    float vi = v[i] * k.beta2 + d * d * k.beta2_rest;
    direction[i] = k.step_size * mi / (sqrtf(vi) / k.root_scale + k.eps) + k.decay * w[i];
    m2[i] = mi;
    v2[i] = vi;
  }
}

int nnrt_lamb_f32(float *direction, float *m2, float *v2, const float *w, const float *g,
                  const float *m, const float *v, const float *gscale, const int64_t *step,
                  int64_t n, const NnrtLamb *hyper) {
  // The direction of a skipped update is 0.
  if (isnan(*gscale)) {
    memset(direction, 0, (size_t)n * sizeof *direction);
    keep(m2, m, n);
    keep(v2, v, n);
    return NNRT_OK;
  }
  double t = (double)(*step + 1);
  Adam k = {.gscale = *gscale,
            .decay = (float)hyper->weight_decay,
            .beta1_rest = (float)(1.0 - hyper->beta1),
            .beta2 = (float)hyper->beta2,
            .beta2_rest = (float)(1.0 - hyper->beta2),
            .step_size = (float)(1.0 / (1.0 - pow(hyper->beta1, t))),
            .root_scale = (float)sqrt(1.0 - pow(hyper->beta2, t)),
            .eps = (float)hyper->eps};
  CHUNKS(lamb(direction + at, m2 + at, v2 + at, w + at, g + at, m + at, v + at, length, k));
}

// y = w - rate x
NNRT_CLONES static void step_along(float *y, const float *w, const float *x, int64_t n,
                                   float rate) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    y[i] = w[i] - rate * x[i];
}

int nnrt_lamb_apply_f32(float *w2, const float *w, const float *direction, const float *w_square,
                        const float *direction_square, const float *lr, int64_t n) {
  // If either norm is 0 the trust ratio is 1.
  double trust = *w_square > 0 && *direction_square > 0
                     ? sqrt((double)*w_square) / sqrt((double)*direction_square)
                     : 1.0;
  float rate = (float)((double)*lr * trust);
  CHUNKS(step_along(w2 + at, w + at, direction + at, length, rate));
}

#define ADD(name, type, sum_type)                                                                  \
  NNRT_CLONES static void add_##name(type *restrict y, const type *restrict x, int64_t n) {        \
    for (int64_t i = 0; i < n; i++)                                                                \
      y[i] = (type)((sum_type)y[i] + (sum_type)x[i]);                                              \
  }                                                                                                \
  int nnrt_accumulate_##name(type *y, const type *x, int64_t n) {                                  \
    CHUNKS(add_##name(y + at, x + at, length));                                                    \
  }
ADD(f32, float, float)
ADD(i64, int64_t, uint64_t)
