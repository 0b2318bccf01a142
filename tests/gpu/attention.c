// Attention and its gradient on a GPU against sums in double: through cuDNN's graph, and without.
// Compiled with limits so small that the backward graph has several parts, and our own
// implementation several chunks of heads and of queries.

#include "check.h"
#include "cuda/dnn.h"
#include "runtime.h"

typedef enum Mask { NONE, OF_PLACES, OF_KEYS, OF_ALL } Mask; // (1, 1, t, s), (b, 1, 1, s), all

typedef struct Case {
  int64_t b, h, kv, t, s, d, e;
  bool causal, seq_major;
  Mask mask;
  bool by_cudnn; // in 16 bits
} Case;

static const Case cases[] = {
    {2, 3, 3, 16, 16, 8, 8, false, false, NONE, true},
    {2, 3, 3, 16, 16, 8, 8, true, true, NONE, true},
    {4, 2, 2, 20, 20, 16, 8, true, true, NONE, true},
    {2, 2, 2, 7, 20, 8, 16, true, true, NONE, true},  // more keys than queries
    {2, 2, 2, 20, 7, 8, 8, true, false, NONE, false}, // queries that see no key
    {2, 2, 2, 20, 7, 8, 8, false, true, NONE, true},
    {2, 6, 2, 12, 12, 8, 8, true, true, NONE, true}, // grouped heads
    {2, 6, 2, 12, 12, 8, 8, false, false, NONE, true},
    {2, 4, 1, 12, 12, 8, 8, false, true, OF_KEYS, true},
    {2, 2, 2, 12, 12, 8, 8, false, true, OF_PLACES, true},
    {4, 2, 2, 12, 12, 8, 8, true, true, OF_ALL, true},
    {2, 2, 2, 9, 13, 8, 8, false, false, OF_ALL, true},
    {2, 2, 2, 9, 13, 8, 8, true, false, OF_ALL, false},
    {2, 4, 2, 10, 10, 5, 5, true, true, NONE, false}, // heads of an odd width
    {2, 4, 2, 10, 10, 5, 7, true, false, OF_KEYS, false},
    {1, 2, 2, 1, 1, 8, 8, true, true, NONE, true}, // one place; not backwards
    {1, 4, 2, 40, 40, 8, 8, true, true, NONE, true},
    // Masks of keys, of places and of all, whether heads share keys or not.
    {2, 2, 2, 12, 12, 8, 8, false, true, OF_KEYS, true},
    {4, 2, 2, 12, 16, 8, 8, false, false, OF_KEYS, true},
    {2, 4, 2, 12, 12, 8, 8, false, true, OF_PLACES, true},
    {2, 4, 2, 12, 12, 8, 8, true, true, OF_ALL, true},
    {2, 4, 2, 12, 12, 8, 8, true, false, OF_KEYS, true},
    // Several tiles of a real kernel.
    {1, 2, 2, 200, 200, 64, 64, true, true, NONE, true},
    {2, 2, 1, 130, 200, 64, 64, false, true, OF_KEYS, true},
    {2, 2, 2, 256, 256, 64, 64, false, true, OF_KEYS, true},
    {2, 2, 2, 256, 256, 64, 64, true, true, OF_KEYS, true},
};

static int64_t q_at(const Case *c, int64_t heads, int64_t rows, int64_t n, int64_t b, int64_t h,
                    int64_t i) {
  return c->seq_major ? ((b * rows + i) * heads + h) * n : ((b * heads + h) * rows + i) * n;
}

// Numbers of a tensor, rounded to its type, in double.
static double *exact(const void *x, NnrtDtype t, int64_t n) {
  double *y = malloc((size_t)n * sizeof *y);
  for (int64_t i = 0; i < n; i++)
    y[i] = element(x, t, i);
  return y;
}

typedef struct Tensors {
  int64_t n_q, n_k, n_v, n_y, n_lse, n_mask;
  int64_t mask_dim[4];
  double *q, *k, *v, *mask, *dy, *y, *lse, *dq, *dk, *dv; // lse: 0 instead of -inf
  bool *blind;
} Tensors;

static void reference(const Case *c, double scale, Tensors *x) {
  double *p = malloc((size_t)c->s * sizeof *p), *dp = malloc((size_t)c->s * sizeof *dp);
  int64_t group = c->h / c->kv, step[4], stride = 1;
  for (int i = 3; i >= 0; i--) {
    step[i] = x->mask_dim[i] == 1 ? 0 : stride;
    stride *= x->mask_dim[i];
  }
  for (int64_t r = 0; r < c->b * c->h * c->t; r++) {
    int64_t b = r / c->t / c->h, h = r / c->t % c->h, i = r % c->t;
    const double *q = x->q + q_at(c, c->h, c->t, c->d, b, h, i);
    int64_t y_at = q_at(c, c->h, c->t, c->e, b, h, i);
    double top = -INFINITY, sum = 0, delta = 0;
    for (int64_t j = 0; j < c->s; j++) {
      const double *k = x->k + q_at(c, c->kv, c->s, c->d, b, h / group, j);
      p[j] = 0;
      for (int64_t l = 0; l < c->d; l++)
        p[j] += q[l] * k[l] * scale;
      if (c->mask) p[j] += x->mask[b * step[0] + h * step[1] + i * step[2] + j * step[3]];
      if (c->causal && j > i + c->s - c->t) p[j] = -INFINITY;
      top = p[j] > top ? p[j] : top;
    }
    x->blind[r] = top == -INFINITY;
    for (int64_t j = 0; j < c->s; j++)
      sum += p[j] = x->blind[r] ? 0 : exp(p[j] - top);
    x->lse[r] = x->blind[r] ? 0 : top + log(sum);
    for (int64_t j = 0; j < c->s; j++) {
      const double *v = x->v + q_at(c, c->kv, c->s, c->e, b, h / group, j);
      p[j] = x->blind[r] ? 0 : p[j] / sum;
      dp[j] = 0;
      for (int64_t l = 0; l < c->e; l++) {
        x->y[y_at + l] += p[j] * v[l];
        dp[j] += x->dy[y_at + l] * v[l];
      }
      delta += p[j] * dp[j];
    }
    for (int64_t j = 0; j < c->s; j++) {
      int64_t k_at = q_at(c, c->kv, c->s, c->d, b, h / group, j);
      int64_t v_at = q_at(c, c->kv, c->s, c->e, b, h / group, j);
      double ds = p[j] * (dp[j] - delta) * scale;
      for (int64_t l = 0; l < c->d; l++) {
        x->dq[q - x->q + l] += ds * x->k[k_at + l];
        x->dk[k_at + l] += ds * q[l];
      }
      for (int64_t l = 0; l < c->e; l++)
        x->dv[v_at + l] += p[j] * x->dy[y_at + l];
    }
  }
  free(p);
  free(dp);
}

static void set(void *x, NnrtDtype t, int64_t i, float v) {
  if (t == NNRT_f32)
    ((float *)x)[i] = v;
  else
    ((uint16_t *)x)[i] = t == NNRT_bf16 ? m_to_bf16(v) : m_to_f16(v);
}

// Hides some places; in masks that permit it, all of one query, or of one of the batch.
static void *mask_numbers(const Case *c, NnrtDtype t, Tensors *x) {
  void *m = numbers(t, x->n_mask, 4);
  for (int64_t i = 0; i < x->n_mask; i++)
    if (i % 5 == 2 || (c->mask != OF_PLACES && i < c->s)) set(m, t, i, -INFINITY);
  return m;
}

static NnrtPrep *prepare(NnrtDtype t, bool back, const Case *c, const Tensors *x, double scale) {
  int64_t q[4] = {c->b, c->h, c->t, c->d}, k[4] = {c->b, c->kv, c->s, c->d};
  int64_t v[4] = {c->b, c->kv, c->s, c->e};
  if (c->seq_major) {
    q[1] = c->t, q[2] = c->h;
    k[1] = v[1] = c->s, k[2] = v[2] = c->kv;
  }
  const int64_t *mask = c->mask ? x->mask_dim : NULL;
  int64_t n = (back ? 6 : 3) + (c->mask != NONE);
#define PREP(type)                                                                                 \
  (back ? nnrt_attention_back_prep_##type(n, 4, q, k, v, mask, scale, c->causal, c->seq_major)     \
        : nnrt_attention_prep_##type(n, 4, q, k, v, mask, scale, c->causal, c->seq_major))
  return t == NNRT_f32 ? PREP(f32) : t == NNRT_bf16 ? PREP(bf16) : PREP(f16);
#undef PREP
}

static int run_case(NnrtDtype t, NnrtPrep *p, void *y, float *lse, const void *const *in) {
  return t == NNRT_f32    ? nnrt_attention_f32(p, y, lse, in)
         : t == NNRT_bf16 ? nnrt_attention_bf16(p, y, lse, in)
                          : nnrt_attention_f16(p, y, lse, in);
}

static int run_back(NnrtDtype t, NnrtPrep *p, void *dq, void *dk, void *dv, const void *const *in) {
  return t == NNRT_f32    ? nnrt_attention_back_f32(p, dq, dk, dv, in)
         : t == NNRT_bf16 ? nnrt_attention_back_bf16(p, dq, dk, dv, in)
                          : nnrt_attention_back_f16(p, dq, dk, dv, in);
}

static void compare(const char *what, const char *name, const void *at, NnrtDtype t,
                    const double *want, int64_t n, double most) {
  void *got = gpu_get(at, n * size_of(t));
  double off = distance(got, t, want, n);
  CHECK(off <= most, "%s: %s is off by %.2e", what, name, off);
  free(got);
}

// The numbers of three tensors (b, t, h, d) as one (b, t, 3 h d).
static void *pack(const Case *c, int64_t size, const void *q, const void *k, const void *v) {
  int64_t row = c->h * c->d * size, rows = c->b * c->t;
  char *x = malloc((size_t)(3 * rows * row));
  const char *const from[] = {q, k, v};
  for (int64_t i = 0; i < 3 * rows; i++)
    memcpy(x + i * row, from[i % 3] + i / 3 * row, (size_t)row);
  return x;
}

// The same through one packed tensor of q, k and v.
static void check_packed(const char *what, const Case *c, NnrtDtype t, double scale, const void *in,
                         const double *y, const double *dx, const void *dy) {
  int64_t shape[] = {c->b, c->t, 3 * c->h * c->d}, n = c->b * c->t * c->h * c->d;
  int64_t size = size_of(t);
  void *gx = gpu_put(in, 3 * n * size), *gdy = gpu_put(dy, n * size);
  void *gy = gpu_new(n * size), *gdx = gpu_new(3 * n * size);
  float *glse = gpu_new(c->b * c->h * c->t * 4);
  NnrtPrep *p, *back;
  int code;
#define RUN_PACKED(type)                                                                           \
  p = nnrt_attention_packed_prep_##type(shape, c->h, scale, c->causal);                            \
  back = nnrt_attention_packed_back_prep_##type(shape, c->h, scale, c->causal);                    \
  code = p && back ? nnrt_attention_packed_##type(p, gy, glse, gx) : NNRT_LIBRARY;                 \
  if (!code) code = nnrt_attention_packed_back_##type(back, gdx, gx, gy, glse, gdy)
  if (t == NNRT_f32) {
    RUN_PACKED(f32);
  } else if (t == NNRT_bf16) {
    RUN_PACKED(bf16);
  } else {
    RUN_PACKED(f16);
  }
  CHECK(!code, "%s, packed: code %d: %s", what, code, nnrt_error_detail());
  compare(what, "y, packed,", gy, t, y, n, tolerance(t));
  compare(what, "dx, packed,", gdx, t, dx, 3 * n, 2 * tolerance(t));
  nnrt_prep_free(p);
  nnrt_prep_free(back);
  void *const there[] = {gx, gdy, gy, gdx, glse};
  for (size_t i = 0; i < sizeof there / sizeof *there; i++)
    gpu_free(there[i]);
}

static void check_case(int number, NnrtDtype t) {
  const Case *c = &cases[number];
  char what[64];
  double scale = 1 / sqrt((double)c->d);
  Tensors x = {.n_q = c->b * c->h * c->t * c->d,
               .n_k = c->b * c->kv * c->s * c->d,
               .n_v = c->b * c->kv * c->s * c->e,
               .n_y = c->b * c->h * c->t * c->e,
               .n_lse = c->b * c->h * c->t,
               .mask_dim = {1, 1, 1, 1}};
  if (c->mask == OF_KEYS || c->mask == OF_ALL) x.mask_dim[0] = c->b;
  if (c->mask == OF_ALL) x.mask_dim[1] = c->h;
  if (c->mask == OF_PLACES || c->mask == OF_ALL) x.mask_dim[2] = c->t;
  if (c->mask) x.mask_dim[3] = c->s;
  x.n_mask = x.mask_dim[0] * x.mask_dim[1] * x.mask_dim[2] * x.mask_dim[3];
  snprintf(what, sizeof what, "case %d, %s", number, name_of(t));
  void *q = numbers(t, x.n_q, 1), *k = numbers(t, x.n_k, 2), *v = numbers(t, x.n_v, 3);
  void *dy = numbers(t, x.n_y, 5), *mask = mask_numbers(c, t, &x);
  x.q = exact(q, t, x.n_q);
  x.k = exact(k, t, x.n_k);
  x.v = exact(v, t, x.n_v);
  x.dy = exact(dy, t, x.n_y);
  x.mask = exact(mask, t, x.n_mask);
  x.y = calloc((size_t)x.n_y, sizeof(double));
  x.lse = calloc((size_t)x.n_lse, sizeof(double));
  x.dq = calloc((size_t)x.n_q, sizeof(double));
  x.dk = calloc((size_t)x.n_k, sizeof(double));
  x.dv = calloc((size_t)x.n_v, sizeof(double));
  x.blind = calloc((size_t)x.n_lse, sizeof(bool));
  reference(c, scale, &x);

  int64_t size = size_of(t);
  void *gq = gpu_put(q, x.n_q * size), *gk = gpu_put(k, x.n_k * size);
  void *gv = gpu_put(v, x.n_v * size), *gdy = gpu_put(dy, x.n_y * size);
  void *gmask = gpu_put(mask, x.n_mask * size), *gy = gpu_new(x.n_y * size);
  float *glse = gpu_new(x.n_lse * 4);
  void *gdq = gpu_new(x.n_q * size), *gdk = gpu_new(x.n_k * size), *gdv = gpu_new(x.n_v * size);
  NnrtPrep *p = prepare(t, false, c, &x, scale);
  bool by_cudnn = dnn_plan_chosen()[0] != 0;
  CHECK(p, "%s: not prepared: %s", what, nnrt_error_detail());
  if (!p) return;
  CHECK(t == NNRT_f32 || by_cudnn || !c->by_cudnn, "%s: not by cudnn", what);
  int code = run_case(t, p, gy, glse, (const void *[]){gq, gk, gv, gmask});
  CHECK(!code, "%s: code %d", what, code);
  compare(what, "y", gy, t, x.y, x.n_y, tolerance(t));
  float *lse = gpu_get(glse, x.n_lse * 4);
  for (int64_t i = 0; i < x.n_lse; i++) {
    bool blind = lse[i] == -INFINITY;
    CHECK(blind == x.blind[i], "%s: row %lld sees nothing: %d", what, (long long)i, (int)blind);
    if (blind) lse[i] = 0;
  }
  double off = distance(lse, NNRT_f32, x.lse, x.n_lse);
  CHECK(off < 1e-4, "%s: lse is off by %.2e", what, off);

  NnrtPrep *back = prepare(t, true, c, &x, scale);
  CHECK(back, "%s: not prepared backwards: %s", what, nnrt_error_detail());
  if (!back) return;
  CHECK(t == NNRT_f32 || dnn_plan_chosen()[0] || !c->by_cudnn, "%s: not by cudnn backwards", what);
  const void *in[] = {gq, gk, gv, gy, glse, gdy, gmask};
  code = run_back(t, back, gdq, gdk, gdv, in);
  CHECK(!code, "%s: code %d backwards", what, code);
  compare(what, "dq", gdq, t, x.dq, x.n_q, 2 * tolerance(t));
  compare(what, "dk", gdk, t, x.dk, x.n_k, 2 * tolerance(t));
  compare(what, "dv", gdv, t, x.dv, x.n_v, 2 * tolerance(t));
  // The same bits again, in other memory.
  void *once = gpu_get(gdq, x.n_q * size), *again = gpu_new(x.n_q * size);
  code = run_back(t, back, again, gdk, gdv, in);
  void *twice = gpu_get(again, x.n_q * size);
  CHECK(!code && memcmp(once, twice, (size_t)(x.n_q * size)) == 0, "%s: dq has other bits", what);

  if (c->seq_major && !c->mask && c->kv == c->h && c->t == c->s && c->d == c->e) {
    void *packed = pack(c, size, q, k, v);
    double *dx = pack(c, sizeof *dx, x.dq, x.dk, x.dv);
    check_packed(what, c, t, scale, packed, x.y, dx, dy);
    free(packed);
    free(dx);
  }

  nnrt_prep_free(p);
  nnrt_prep_free(back);
  void *const there[] = {gq, gk, gv, gdy, gmask, gy, glse, gdq, gdk, gdv, again};
  for (size_t i = 0; i < sizeof there / sizeof *there; i++)
    gpu_free(there[i]);
  void *const here[] = {q,      k,     v,    dy,   mask, x.q,     x.k, x.v,  x.dy, x.y,
                        x.mask, x.lse, x.dq, x.dk, x.dv, x.blind, lse, once, twice};
  for (size_t i = 0; i < sizeof here / sizeof *here; i++)
    free(here[i]);
}

int main(void) {
  gpu_open();
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    check_case(i, NNRT_f32);
    check_case(i, NNRT_bf16);
    check_case(i, NNRT_f16);
  }
  nnrt_gpu_dnn_free(&gpu);
  return gpu_close();
}
