// Attention and its gradient, in each element type, against naive loops: sizes that end within
// blocks and tiles, masks that broadcast in every way, shared heads, more threads than heads; the
// same bits every time and for every number of threads; and NaN, which stays.
//
// NNRT_MAX_ISA chooses the version of the kernel.

#include "cpu/tile.h"
#include "device.h"
#include "kernels.h"

typedef struct Case {
  int64_t b, h, group, t, s, d, e; // k and v have h / group heads
  bool causal, seq_major;
  bool mask, mask_whole[4]; // of b, h, t, s: the mask is not broadcast
} Case;

static const Case cases[] = {
    {1, 1, 1, 1, 1, 1, 1, false, false, false, {0}},
    {2, 3, 1, 5, 7, 4, 4, false, false, false, {0}},
    {2, 3, 1, 33, 33, 8, 8, true, false, false, {0}},
    {1, 2, 1, 70, 133, 20, 36, false, true, false, {0}},
    {1, 2, 1, 70, 133, 20, 36, true, true, false, {0}},  // attends to 63 more than its own position
    {1, 2, 1, 133, 70, 64, 64, true, false, false, {0}}, // the first 63 attend to nothing
    {2, 4, 2, 40, 65, 16, 16, true, false, true, {1, 1, 1, 1}},
    {2, 6, 3, 40, 65, 16, 5, false, true, true, {1, 0, 0, 1}},
    {2, 2, 1, 31, 64, 12, 16, false, false, true, {0, 1, 1, 0}},
    {1, 2, 2, 129, 257, 64, 64, true, false, true, {0, 0, 1, 1}},
    {1, 1, 1, 200, 200, 64, 64, true, false, false, {0}},
    {2, 2, 1, 100, 300, 80, 48, false, true, false, {0}}, // tiles of half the width
    {1, 4, 4, 90, 700, 128, 96, true, true, false, {0}},  // several ranges of keys
    {1, 2, 1, 65, 1100, 24, 40, false, false, true, {0, 0, 1, 0}},
    {1, 1, 1, 1, 600, 64, 64, true, true, true, {0}},
    {1, 1, 1, 130, 130, 1, 1, false, true, true, {0, 0, 0, 1}},
    {1, 16, 1, 96, 96, 64, 64, true, true, false, {0}}, // rows 4 KiB apart
};

// Returns the index of element (b, h, i, c) of a tensor with `heads` heads of `rows` rows of n.
static int64_t at(const Case *c, int64_t heads, int64_t rows, int64_t n, int64_t b, int64_t h,
                  int64_t i, int64_t j) {
  return c->seq_major ? ((b * rows + i) * heads + h) * n + j : ((b * heads + h) * rows + i) * n + j;
}

static int64_t mask_at(const Case *c, int64_t b, int64_t h, int64_t i, int64_t j) {
  int64_t all[] = {c->b, c->h, c->t, c->s}, index[] = {b, h, i, j}, place = 0;
  for (int k = 0; k < 4; k++)
    place = place * (c->mask_whole[k] ? all[k] : 1) + (c->mask_whole[k] ? index[k] : 0);
  return place;
}

// Elements of one type, and their values.
typedef struct Tensor {
  void *at;
  int64_t n;
  float *value;
} Tensor;

static void put(GemmType type, void *x, int64_t i, float value) {
  if (type == GEMM_f32)
    ((float *)x)[i] = value;
  else
    ((uint16_t *)x)[i] = type == GEMM_bf16 ? m_to_bf16(value) : m_to_f16(value);
}

static Tensor tensor_of(GemmType type, float *value, int64_t n) {
  Tensor t = {malloc((size_t)(n * type_bytes(type))), n, value};
  for (int64_t i = 0; i < n; i++) {
    put(type, t.at, i, value[i]);
    value[i] = element_at(type, t.at, i);
  }
  return t;
}

// Reads the values that a kernel has written.
static void tensor_read(GemmType type, Tensor *t) {
  for (int64_t i = 0; i < t->n; i++)
    t->value[i] = element_at(type, t->at, i);
}

static void tensor_free(Tensor t) {
  free(t.at), free(t.value);
}

typedef struct Naive {
  double *y, *lse, *dq, *dk, *dv;
} Naive;

// Computes one row of queries: probabilities by the definition, then the gradients.
// Those of 16 bits read y as it was rounded.
static void naive_row(const Case *c, const float *const *in, bool rounded, double scale, Naive *out,
                      int64_t b, int64_t h, int64_t i) {
  int64_t kh = h / c->group, heads = c->h / c->group;
  const float *q = in[0], *k = in[1], *v = in[2], *dy = in[5], *mask = c->mask ? in[6] : NULL;
  double *p = zeros(c->s), *dp = zeros(c->s), top = -INFINITY, sum = 0, delta = 0;
  for (int64_t j = 0; j < c->s; j++) {
    double score = 0;
    for (int64_t n = 0; n < c->d; n++)
      score += (double)q[at(c, c->h, c->t, c->d, b, h, i, n)] *
               (double)k[at(c, heads, c->s, c->d, b, kh, j, n)];
    p[j] = score * scale + (mask ? (double)mask[mask_at(c, b, h, i, j)] : 0);
    if (c->causal && j > i + c->s - c->t) p[j] = -INFINITY;
    top = p[j] > top ? p[j] : top;
  }
  for (int64_t j = 0; j < c->s; j++)
    sum += p[j] = p[j] > -INFINITY ? exp(p[j] - top) : 0;
  out->lse[(b * c->h + h) * c->t + i] = top + log(sum);
  for (int64_t j = 0; j < c->s; j++) {
    p[j] = sum > 0 ? p[j] / sum : 0;
    for (int64_t n = 0; n < c->e; n++) {
      int64_t yi = at(c, c->h, c->t, c->e, b, h, i, n), vi = at(c, heads, c->s, c->e, b, kh, j, n);
      out->y[yi] += p[j] * (double)v[vi];
      out->dv[vi] += p[j] * (double)dy[yi];
      dp[j] += (double)dy[yi] * (double)v[vi];
    }
    delta += p[j] * dp[j];
  }
  if (rounded) delta = 0;
  for (int64_t n = 0; rounded && n < c->e; n++) {
    int64_t yi = at(c, c->h, c->t, c->e, b, h, i, n);
    delta += (double)dy[yi] * (double)in[3][yi];
  }
  for (int64_t j = 0; j < c->s; j++)
    for (int64_t n = 0; n < c->d; n++) {
      int64_t qi = at(c, c->h, c->t, c->d, b, h, i, n), ki = at(c, heads, c->s, c->d, b, kh, j, n);
      double ds = p[j] * (dp[j] - delta) * scale;
      out->dq[qi] += ds * (double)k[ki];
      out->dk[ki] += ds * (double)q[qi];
    }
  free(p), free(dp);
}

// lse may hold -inf, which norms do not like.
static void assert_near_lse(const float *got, const double *want, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    assert_true(isinf(want[i]) ? (double)got[i] == want[i]
                               : fabs((double)got[i] - want[i]) < 1e-5 * (1 + fabs(want[i])));
}

typedef NnrtPrep *PrepFn(int64_t n, int64_t ndim, const int64_t *q_shape, const int64_t *k_shape,
                         const int64_t *v_shape, const int64_t *mask_shape, double scale,
                         bool causal, bool seq_major);
typedef struct Kernels {
  GemmType type;
  double tolerance, tolerance_back; // as relative norms
  PrepFn *prep, *back_prep;
  int (*run)(NnrtPrep *p, void *y, float *lse, const void *const *in);
  int (*back)(NnrtPrep *p, void *dq, void *dk, void *dv, const void *const *in);
} Kernels;

#define KERNELS(type, T)                                                                           \
  static int run_##type(NnrtPrep *p, void *y, float *lse, const void *const *in) {                 \
    return nnrt_attention_##type(p, (T *)y, lse, in);                                              \
  }                                                                                                \
  static int back_##type(NnrtPrep *p, void *dq, void *dk, void *dv, const void *const *in) {       \
    return nnrt_attention_back_##type(p, (T *)dq, (T *)dk, (T *)dv, in);                           \
  }
KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)

#define KERNELS_OF(type, tolerance, tolerance_back)                                                \
  {                                                                                                \
    GEMM_##type, tolerance, tolerance_back, nnrt_attention_prep_##type,                            \
        nnrt_attention_back_prep_##type, run_##type, back_##type                                   \
  }
// Results of 16 bits are off by half a unit in the last place.
static const Kernels kernels[] = {
    KERNELS_OF(f32, 2e-6, 3e-6),
    KERNELS_OF(bf16, 0x1p-8, 0x1p-8),
    KERNELS_OF(f16, 0x1p-11, 0x1p-11),
};

// Operands and results of a case.
typedef struct Run {
  int64_t q_shape[4], k_shape[4], v_shape[4], mask_shape[4];
  Tensor q, k, v, dy, mask, y, dq, dk, dv;
  float *lse;
  double scale;
} Run;

static Run run_new(const Case *c, GemmType type) {
  int64_t heads = c->h / c->group, n_mask = 1;
  int64_t nq = c->b * c->h * c->t * c->d, nk = c->b * heads * c->s * c->d;
  int64_t nv = c->b * heads * c->s * c->e, ny = c->b * c->h * c->t * c->e;
  int64_t first[] = {c->b, c->h, c->t, c->d};
  Run r = {.scale = 1.0 / sqrt((double)c->d), .lse = results(c->b * c->h * c->t)};
  const int64_t *all[] = {&c->b, &c->h, &c->t, &c->s};
  for (int i = 0; i < 4; i++) {
    int from = c->seq_major && (i == 1 || i == 2) ? 3 - i : i;
    int64_t k_first[] = {c->b, heads, c->s, c->d}, v_first[] = {c->b, heads, c->s, c->e};
    r.q_shape[i] = first[from];
    r.k_shape[i] = k_first[from];
    r.v_shape[i] = v_first[from];
    r.mask_shape[i] = c->mask_whole[i] ? *all[i] : 1;
    n_mask *= r.mask_shape[i];
  }
  float *mask = floats(n_mask, 5);
  for (int64_t i = 0; i < n_mask; i += 3) // hides keys, or whole rows without a key axis
    mask[i] = -INFINITY;
  r.q = tensor_of(type, floats(nq, 1), nq);
  r.k = tensor_of(type, floats(nk, 2), nk);
  r.v = tensor_of(type, floats(nv, 3), nv);
  r.dy = tensor_of(type, floats(ny, 4), ny);
  r.mask = tensor_of(type, mask, n_mask);
  r.y = tensor_of(type, results(ny), ny);
  r.dq = tensor_of(type, results(nq), nq);
  r.dk = tensor_of(type, results(nk), nk);
  r.dv = tensor_of(type, results(nv), nv);
  return r;
}

static void run_free(Run *r) {
  Tensor all[] = {r->q, r->k, r->v, r->dy, r->mask, r->y, r->dq, r->dk, r->dv};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    tensor_free(all[i]);
  free(r->lse);
}

// Runs both kernels with this number of threads.
static void run_both(const Case *c, const Kernels *f, Run *r, int threads) {
  omp_set_num_threads(threads);
  const int64_t *ms = c->mask ? r->mask_shape : NULL;
  const void *mask = c->mask ? r->mask.at : NULL, *in[] = {r->q.at, r->k.at, r->v.at, mask};
  const void *in_back[] = {r->q.at, r->k.at, r->v.at, r->y.at, r->lse, r->dy.at, mask};
  NnrtPrep *p = f->prep(c->mask ? 4 : 3, 4, r->q_shape, r->k_shape, r->v_shape, ms, r->scale,
                        c->causal, c->seq_major);
  NnrtPrep *back = f->back_prep(c->mask ? 7 : 6, 4, r->q_shape, r->k_shape, r->v_shape, ms,
                                r->scale, c->causal, c->seq_major);
  assert_true(p && back);
  assert_int_equal(f->run(p, r->y.at, r->lse, in), 0);
  assert_int_equal(f->back(back, r->dq.at, r->dk.at, r->dv.at, in_back), 0);
  nnrt_prep_free(p);
  nnrt_prep_free(back);
  Tensor *all[] = {&r->y, &r->dq, &r->dk, &r->dv};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    tensor_read(f->type, all[i]);
}

static void check(const Case *c, const Kernels *f) {
  Run r = run_new(c, f->type);
  int64_t nl = c->b * c->h * c->t;
  run_both(c, f, &r, 1);
  Naive want = {zeros(r.y.n), zeros(nl), zeros(r.q.n), zeros(r.k.n), zeros(r.v.n)};
  const float *in[] = {r.q.value, r.k.value, r.v.value, r.y.value, r.lse, r.dy.value, r.mask.value};
  for (int64_t b = 0; b < c->b; b++)
    for (int64_t h = 0; h < c->h; h++)
      for (int64_t i = 0; i < c->t; i++)
        naive_row(c, in, f->type != GEMM_f32, r.scale, &want, b, h, i);
  assert_near("attention", r.y.value, want.y, r.y.n, f->tolerance);
  assert_near_lse(r.lse, want.lse, nl);
  assert_near("dq", r.dq.value, want.dq, r.q.n, f->tolerance_back);
  assert_near("dk", r.dk.value, want.dk, r.k.n, f->tolerance_back);
  assert_near("dv", r.dv.value, want.dv, r.v.n, f->tolerance_back);
  // More threads than heads share the queries, and the ranges of keys.
  for (int threads = 1; threads <= 5; threads++) {
    Run again = run_new(c, f->type);
    run_both(c, f, &again, threads);
    Tensor one[] = {r.y, r.dq, r.dk, r.dv}, other[] = {again.y, again.dq, again.dk, again.dv};
    assert_same_bits("lse", r.lse, again.lse, (size_t)nl * sizeof *r.lse);
    for (int i = 0; i < 4; i++)
      assert_same_bits((const char *[]){"y", "dq", "dk", "dv"}[i], one[i].at, other[i].at,
                       (size_t)(one[i].n * type_bytes(f->type)));
    run_free(&again);
  }
  run_free(&r);
  free(want.y), free(want.lse), free(want.dq), free(want.dk), free(want.dv);
}

static void references(void **state) {
  (void)state;
  for (size_t f = 0; f < sizeof kernels / sizeof *kernels; f++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
      check(&cases[i], &kernels[f]);
}

static int64_t count_nan(const Tensor *t, int64_t from, int64_t n) {
  int64_t count = 0;
  for (int64_t i = from; i < from + n; i++)
    count += isnan(t->value[i]);
  return count;
}

// A NaN of a query, a value or a gradient shows in all results that depend on it, and in no others.
static void nan_stays(void **state) {
  (void)state;
  static const Case c = {1, 1, 1, 70, 130, 32, 48, true, false, false, {0}};
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    const Kernels *f = &kernels[i];
    enum { ROW = 37 };
    Run r = run_new(&c, f->type);
    put(f->type, r.q.at, ROW * c.d + 5, NAN);
    run_both(&c, f, &r, 1);
    assert_int_equal(count_nan(&r.y, 0, r.y.n), c.e);
    assert_int_equal(count_nan(&r.y, ROW * c.e, c.e), c.e);
    assert_true(isnan(r.lse[ROW]));
    assert_int_equal(count_nan(&r.dq, 0, r.dq.n), c.d);
    assert_int_equal(count_nan(&r.dv, 0, (ROW + c.s - c.t + 1) * c.e), (ROW + c.s - c.t + 1) * c.e);
    run_free(&r);
    r = run_new(&c, f->type);
    put(f->type, r.v.at, 3, NAN); // all queries see key 0
    run_both(&c, f, &r, 1);
    assert_int_equal(count_nan(&r.y, 0, r.y.n), c.t);
    assert_int_equal(count_nan(&r.dq, 0, r.dq.n), r.dq.n);
    run_free(&r);
    r = run_new(&c, f->type);
    put(f->type, r.dy.at, ROW * c.e, NAN);
    run_both(&c, f, &r, 1);
    assert_int_equal(count_nan(&r.y, 0, r.y.n), 0);
    assert_int_equal(count_nan(&r.dq, 0, r.dq.n), c.d);
    run_free(&r);
  }
}

static int use_isa(void **state) {
  (void)state;
  int64_t set;
  Why w = {0};
  if (nnrt_device_isa(&set, &w) && nnrt_device_use_isa(set, &w)) return 0;
  fprintf(stderr, "%s\n", w.text);
  return 1;
}

TEST_GROUP(kernels_attention) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(references),
      cmocka_unit_test(nan_stays),
  };
  return cmocka_run_group_tests(tests, use_isa, NULL);
}
