// The optimizers: one pass over a tensor, or over all tensors of a model in one launch (batch.cuh).
// The arithmetic is that of torch.optim, in its order: scalars that depend on the step are computed
// in double, once per block, and rounded; the rest is float.
//
// Each is a Rule: the numbers of its results and operands, the values that it derives from the
// scalars, and the update of one element.  The first ELEMENTS operands are as long as the tensor,
// the others are scalars.  Results may be in place of w and of the states.
//
// The gradient is multiplied by *gscale first, which implements clipping by the global norm.  A NaN
// *gscale means that a gradient was infinite or NaN in 16 bits: then nothing changes.
//
// The batches can also write the new weights in 16 bits, for the products of the next step.
//
//     adam   reads w, g, m, v, writes w, m, v: 28 bytes per element, the minimum; and 2 more for the
//            16-bit copy

#include "batch.cuh"

// The scalar operands of the rules: operands from ELEMENTS on.
template <class Rule> static __device__ inline float scalar_of(const Pointers &p, int i) {
  return *(const float *)p.at[Rule::OUT + Rule::ELEMENTS + i];
}
template <class Rule> static __device__ inline int64_t steps_of(const Pointers &p, int i) {
  return *(const int64_t *)p.at[Rule::OUT + Rule::ELEMENTS + i];
}

struct Sgd { // w, g, lr, gscale
  enum { OUT = 1, ELEMENTS = 2, IN = 4 };
  double weight_decay;
  struct Constants {
    float lr, gscale, decay;
    bool stay;
  };
  __device__ Constants constants(const Pointers &p) const {
    float gscale = scalar_of<Sgd>(p, 1);
    return Constants{scalar_of<Sgd>(p, 0), gscale, (float)weight_decay, gscale != gscale};
  }
  static __device__ void step(const Constants &k, const float *in, float *out) {
    float w = in[0], d = in[1] * k.gscale + k.decay * w;
    out[0] = k.stay ? w : w - k.lr * d;
  }
};

struct SgdMomentum { // w, g, m, lr, gscale, step
  enum { OUT = 2, ELEMENTS = 3, IN = 6 };
  NnrtSgdMomentum hyper;
  struct Constants {
    float lr, gscale, decay, keep, take, momentum; // keep, take: of the momentum, of the gradient
    bool nesterov, stay;
  };
  __device__ Constants constants(const Pointers &p) const {
    // The first gradient becomes the momentum unscaled.
    bool first = steps_of<SgdMomentum>(p, 2) == 0;
    float gscale = scalar_of<SgdMomentum>(p, 1);
    return Constants{scalar_of<SgdMomentum>(p, 0),
                     gscale,
                     (float)hyper.weight_decay,
                     first ? 0.0f : (float)hyper.momentum,
                     first ? 1.0f : (float)(1.0 - hyper.dampening),
                     (float)hyper.momentum,
                     hyper.nesterov,
                     gscale != gscale};
  }
  static __device__ void step(const Constants &k, const float *in, float *out) {
    float w = in[0], m = in[2], d = in[1] * k.gscale + k.decay * w;
    float b = m * k.keep + d * k.take;
    out[0] = k.stay ? w : w - k.lr * (k.nesterov ? d + k.momentum * b : b);
    out[1] = k.stay ? m : b;
  }
};

// Shared by adam and lamb.
struct Moments {
  float gscale;
  float decay;  // added to the gradient; in lamb, to the direction
  float shrink; // factor of the weight before the update: 1 - lr decay
  float beta1_rest, beta2, beta2_rest;
  float step_size, root_scale, eps; // step_size m / (sqrt(v) / root_scale + eps)
  bool stay;
};
static __device__ inline float moments_step(const Moments &k, float d, float m, float v, float *m2,
                                            float *v2) {
  *m2 = m + (d - m) * k.beta1_rest;
  *v2 = v * k.beta2 + d * d * k.beta2_rest;
  return k.step_size * *m2 / (sqrtf(*v2) / k.root_scale + k.eps);
}

struct Adam { // w, g, m, v, lr, gscale, step
  enum { OUT = 3, ELEMENTS = 4, IN = 7 };
  NnrtAdam hyper;
  typedef Moments Constants;
  __device__ Constants constants(const Pointers &p) const {
    double t = (double)(steps_of<Adam>(p, 2) + 1), rate = (double)scalar_of<Adam>(p, 0);
    double correct1 = 1.0 - pow(hyper.beta1, t), correct2 = sqrt(1.0 - pow(hyper.beta2, t));
    Moments k = {};
    k.gscale = scalar_of<Adam>(p, 1);
    k.decay = hyper.decoupled ? 0.0f : (float)hyper.weight_decay;
    k.shrink = hyper.decoupled ? (float)(1.0 - rate * hyper.weight_decay) : 1.0f;
    k.beta1_rest = (float)(1.0 - hyper.beta1);
    k.beta2 = (float)hyper.beta2;
    k.beta2_rest = (float)(1.0 - hyper.beta2);
    k.step_size = (float)(hyper.onnx ? rate * correct2 / correct1 : rate / correct1);
    k.root_scale = hyper.onnx ? 1.0f : (float)correct2;
    k.eps = (float)hyper.eps;
    k.stay = k.gscale != k.gscale;
    return k;
  }
  static __device__ void step(const Constants &k, const float *in, float *out) {
    float w = in[0] * k.shrink, d = in[1] * k.gscale + k.decay * w, m, v;
    float by = moments_step(k, d, in[2], in[3], &m, &v);
    out[0] = k.stay ? in[0] : w - by;
    out[1] = k.stay ? in[2] : m;
    out[2] = k.stay ? in[3] : v;
  }
};

struct Adagrad { // w, g, s, lr, gscale, step
  enum { OUT = 2, ELEMENTS = 3, IN = 6 };
  NnrtAdagrad hyper;
  struct Constants {
    float rate, gscale, decay, eps;
    bool stay;
  };
  __device__ Constants constants(const Pointers &p) const {
    double steps = (double)steps_of<Adagrad>(p, 2), lr = (double)scalar_of<Adagrad>(p, 0);
    float gscale = scalar_of<Adagrad>(p, 1);
    return Constants{(float)(lr / (1.0 + steps * hyper.lr_decay)), gscale,
                     (float)hyper.weight_decay, (float)hyper.eps, gscale != gscale};
  }
  static __device__ void step(const Constants &k, const float *in, float *out) {
    float w = in[0], d = in[1] * k.gscale + k.decay * w, s = in[2] + d * d;
    out[0] = k.stay ? w : w - k.rate * d / (sqrtf(s) + k.eps);
    out[1] = k.stay ? in[2] : s;
  }
};

// direction = m^ / (sqrt(v^) + eps) + decay w; 0 if nothing changes
struct Lamb { // w, g, m, v, gscale, step
  enum { OUT = 3, ELEMENTS = 4, IN = 6 };
  NnrtLamb hyper;
  typedef Moments Constants;
  __device__ Constants constants(const Pointers &p) const {
    double t = (double)(steps_of<Lamb>(p, 1) + 1);
    Moments k = {};
    k.gscale = scalar_of<Lamb>(p, 0);
    k.decay = (float)hyper.weight_decay;
    k.beta1_rest = (float)(1.0 - hyper.beta1);
    k.beta2 = (float)hyper.beta2;
    k.beta2_rest = (float)(1.0 - hyper.beta2);
    k.step_size = (float)(1.0 / (1.0 - pow(hyper.beta1, t)));
    k.root_scale = (float)sqrt(1.0 - pow(hyper.beta2, t));
    k.eps = (float)hyper.eps;
    k.stay = k.gscale != k.gscale;
    return k;
  }
  static __device__ void step(const Constants &k, const float *in, float *out) {
    float m, v, by = moments_step(k, in[1] * k.gscale, in[2], in[3], &m, &v);
    out[0] = k.stay ? 0.0f : by + k.decay * in[0];
    out[1] = k.stay ? in[2] : m;
    out[2] = k.stay ? in[3] : v;
  }
};

struct LambApply { // w, direction, |w|^2, |direction|^2, lr
  enum { OUT = 1, ELEMENTS = 2, IN = 5 };
  struct Constants {
    float rate;
  };
  __device__ Constants constants(const Pointers &p) const {
    // If either norm is 0 the trust ratio is 1.
    float w = scalar_of<LambApply>(p, 0), direction = scalar_of<LambApply>(p, 1);
    double trust = w > 0 && direction > 0 ? sqrt((double)w) / sqrt((double)direction) : 1.0;
    return Constants{(float)((double)scalar_of<LambApply>(p, 2) * trust)};
  }
  static __device__ void step(const Constants &k, const float *in, float *out) {
    out[0] = in[0] - k.rate * in[1];
  }
};

// -- A piece of a tensor, by one block

// The 16-bit copy of the first result; NULL: none.
struct Narrow {
  void *at;
  bool half; // f16, not bf16
  __device__ void put(int64_t i, float x) const {
    if (half)
      store((f16 *)at + i, x);
    else
      store((bf16 *)at + i, x);
  }
  template <class T> __device__ void put_pack(int64_t i, const Pack<float, 4> &x) const {
    Pack<T, 4> y;
    UNROLL
    for (int j = 0; j < 4; j++)
      store(&y.at[j], x.at[j]);
    write_pack((T *)at + i, y);
  }
  __device__ void put_four(int64_t i, const Pack<float, 4> &x) const {
    if (half)
      put_pack<f16>(i, x);
    else
      put_pack<bf16>(i, x);
  }
};

template <class Rule>
static __device__ inline void step_one(const typename Rule::Constants &k, const Pointers &p,
                                       const Narrow &narrow, int64_t i) {
  float in[Rule::ELEMENTS], out[Rule::OUT];
  UNROLL
  for (int e = 0; e < Rule::ELEMENTS; e++)
    in[e] = ((const float *)p.at[Rule::OUT + e])[i];
  // All operands are read before a result is written: results may be in place.
  Rule::step(k, in, out);
  UNROLL
  for (int r = 0; r < Rule::OUT; r++)
    ((float *)p.at[r])[i] = out[r];
  if (narrow.at) narrow.put(i, out[0]);
}

template <class Rule>
static __device__ inline void step_four(const typename Rule::Constants &k, const Pointers &p,
                                        const Narrow &narrow, int64_t i) {
  Pack<float, 4> in[Rule::ELEMENTS], out[Rule::OUT];
  UNROLL
  for (int e = 0; e < Rule::ELEMENTS; e++)
    in[e] = read_pack<float, 4>((const float *)p.at[Rule::OUT + e] + i);
  UNROLL
  for (int j = 0; j < 4; j++) {
    // Element by element, in registers.
    float from[Rule::ELEMENTS], to[Rule::OUT];
    UNROLL
    for (int e = 0; e < Rule::ELEMENTS; e++)
      from[e] = in[e].at[j];
    Rule::step(k, from, to);
    UNROLL
    for (int r = 0; r < Rule::OUT; r++)
      out[r].at[j] = to[r];
  }
  UNROLL
  for (int r = 0; r < Rule::OUT; r++)
    write_pack((float *)p.at[r] + i, out[r]);
  if (narrow.at) narrow.put_four(i, out[0]);
}

template <class Rule>
static __device__ inline void step_piece(const Rule &rule, const Pointers &p, bool half,
                                         int64_t size, int64_t number) {
  // One thread computes the scalars, in double; all others wait for them.
  __shared__ typename Rule::Constants k;
  if (threadIdx.x == 0) k = rule.constants(p);
  __syncthreads();
  Narrow narrow = {p.at[Rule::OUT + Rule::IN], half};
  int64_t from = number * PIECE, to = from + PIECE < size ? from + PIECE : size;
  // Packs need all tensors at multiples of 16 bytes.
  uintptr_t low = (uintptr_t)narrow.at % 16;
  UNROLL
  for (int e = 0; e < Rule::OUT + Rule::ELEMENTS; e++)
    low |= (uintptr_t)p.at[e] % 16;
  if (low == 0) {
    for (int64_t i = from + (int64_t)threadIdx.x * 4; i + 4 <= to; i += BLOCK * 4)
      step_four<Rule>(k, p, narrow, i);
    from = from + (to - from) / 4 * 4;
  }
  for (int64_t i = from + threadIdx.x; i < to; i += BLOCK)
    step_one<Rule>(k, p, narrow, i);
}

template <class Rule> static __global__ void step_tensor(Rule rule, Pointers p, int64_t size) {
  step_piece(rule, p, false, size, blockIdx.x);
}

template <class Rule>
static __global__ void step_batch(Rule rule, bool half, const Piece *pieces, const int64_t *sizes,
                                  const Pointers *pointers) {
  Piece piece = pieces[blockIdx.x];
  Pointers p = pointers[piece.tensor];
  step_piece(rule, p, half, sizes[piece.tensor], piece.number);
}

// -- Calling

template <class Rule, class... P> static int run(Rule rule, int64_t n, P *...pointers) {
  static_assert(sizeof...(pointers) == Rule::OUT + Rule::IN, "results, then operands");
  if (n == 0) return NNRT_OK;
  Pointers p = {{(void *)(uintptr_t)pointers...}};
  return launch(step_tensor<Rule>, (unsigned)pieces_of(n), BLOCK, 0, rule, p, n);
}

template <class Rule> struct RuleBatch {
  Batch batch; // first member: it is freed by its address
  Rule rule;
  bool half;
};

// `narrow` is the type of the 16-bit copies; f32: none.
template <class Rule>
static NnrtPrep *batch_new(Rule rule, int64_t n, const int64_t *sizes, NnrtDtype narrow) {
  static_assert(Rule::OUT + Rule::IN + 1 <= MAX_POINTERS, "results, operands, and one in 16 bits");
  RuleBatch<Rule> *b = (RuleBatch<Rule> *)calloc(1, sizeof *b);
  if (b) {
    b->rule = rule;
    b->half = narrow == NNRT_f16;
    b->batch.narrows = narrow != NNRT_f32;
  }
  return batch_init(b ? &b->batch : NULL, n, sizes, Rule::OUT, Rule::IN);
}

template <class Rule> static int batch_run(NnrtPrep *p, void *const *out, const void *const *in) {
  RuleBatch<Rule> *b = (RuleBatch<Rule> *)p;
  if (b->batch.n_pieces == 0) return NNRT_OK;
  // The table of pointers, if it has changed.
  int code = batch_point(&b->batch, out, in);
  return code ? code
              : launch(step_batch<Rule>, (unsigned)b->batch.n_pieces, BLOCK, 0, b->rule, b->half,
                       b->batch.gpu_pieces, b->batch.gpu_sizes, b->batch.gpu_pointers);
}

void nnrt_batch_tensor(NnrtPrep *p, int64_t k, void *const *out, const void *const *in) {
  batch_tensor((Batch *)p, k, out, in);
}

int nnrt_sgd_f32(float *w2, const float *w, const float *g, const float *lr, const float *gscale,
                 int64_t n, double weight_decay) {
  return run(Sgd{weight_decay}, n, w2, w, g, lr, gscale);
}
NnrtPrep *nnrt_sgd_batch_prep_f32(int64_t n, const int64_t *sizes, NnrtDtype narrow,
                                  double weight_decay) {
  return batch_new(Sgd{weight_decay}, n, sizes, narrow);
}
int nnrt_sgd_batch_f32(NnrtPrep *p, void *const *out, const void *const *in) {
  return batch_run<Sgd>(p, out, in);
}

int nnrt_sgd_momentum_f32(float *w2, float *m2, const float *w, const float *g, const float *m,
                          const float *lr, const float *gscale, const int64_t *step, int64_t n,
                          const NnrtSgdMomentum *hyper) {
  return run(SgdMomentum{*hyper}, n, w2, m2, w, g, m, lr, gscale, step);
}
NnrtPrep *nnrt_sgd_momentum_batch_prep_f32(int64_t n, const int64_t *sizes, NnrtDtype narrow,
                                           const NnrtSgdMomentum *hyper) {
  return batch_new(SgdMomentum{*hyper}, n, sizes, narrow);
}
int nnrt_sgd_momentum_batch_f32(NnrtPrep *p, void *const *out, const void *const *in) {
  return batch_run<SgdMomentum>(p, out, in);
}

int nnrt_adam_f32(float *w2, float *m2, float *v2, const float *w, const float *g, const float *m,
                  const float *v, const float *lr, const float *gscale, const int64_t *step,
                  int64_t n, const NnrtAdam *hyper) {
  return run(Adam{*hyper}, n, w2, m2, v2, w, g, m, v, lr, gscale, step);
}
NnrtPrep *nnrt_adam_batch_prep_f32(int64_t n, const int64_t *sizes, NnrtDtype narrow,
                                   const NnrtAdam *hyper) {
  return batch_new(Adam{*hyper}, n, sizes, narrow);
}
int nnrt_adam_batch_f32(NnrtPrep *p, void *const *out, const void *const *in) {
  return batch_run<Adam>(p, out, in);
}

int nnrt_adagrad_f32(float *w2, float *s2, const float *w, const float *g, const float *s,
                     const float *lr, const float *gscale, const int64_t *step, int64_t n,
                     const NnrtAdagrad *hyper) {
  return run(Adagrad{*hyper}, n, w2, s2, w, g, s, lr, gscale, step);
}
NnrtPrep *nnrt_adagrad_batch_prep_f32(int64_t n, const int64_t *sizes, NnrtDtype narrow,
                                      const NnrtAdagrad *hyper) {
  return batch_new(Adagrad{*hyper}, n, sizes, narrow);
}
int nnrt_adagrad_batch_f32(NnrtPrep *p, void *const *out, const void *const *in) {
  return batch_run<Adagrad>(p, out, in);
}

int nnrt_lamb_f32(float *direction, float *m2, float *v2, const float *w, const float *g,
                  const float *m, const float *v, const float *gscale, const int64_t *step,
                  int64_t n, const NnrtLamb *hyper) {
  return run(Lamb{*hyper}, n, direction, m2, v2, w, g, m, v, gscale, step);
}
NnrtPrep *nnrt_lamb_batch_prep_f32(int64_t n, const int64_t *sizes, const NnrtLamb *hyper) {
  return batch_new(Lamb{*hyper}, n, sizes, NNRT_f32);
}
int nnrt_lamb_batch_f32(NnrtPrep *p, void *const *out, const void *const *in) {
  return batch_run<Lamb>(p, out, in);
}

int nnrt_lamb_apply_f32(float *w2, const float *w, const float *direction, const float *w_square,
                        const float *direction_square, const float *lr, int64_t n) {
  return run(LambApply{}, n, w2, w, direction, w_square, direction_square, lr);
}
NnrtPrep *nnrt_lamb_apply_batch_prep_f32(int64_t n, const int64_t *sizes, NnrtDtype narrow) {
  return batch_new(LambApply{}, n, sizes, narrow);
}
int nnrt_lamb_apply_batch_f32(NnrtPrep *p, void *const *out, const void *const *in) {
  return batch_run<LambApply>(p, out, in);
}
