// Attention and its gradient against naive loops: sizes that end within blocks and tiles, masks
// that broadcast in every way, shared heads, more threads than heads; and the same bits every time.

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

typedef struct Naive {
  double *y, *lse, *dq, *dk, *dv;
} Naive;

// Computes one row of queries: probabilities by the definition, then the gradients.
static void naive_row(const Case *c, const void *const *in, double scale, Naive *out, int64_t b,
                      int64_t h, int64_t i) {
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

static void check(const Case *c, int threads) {
  int64_t heads = c->h / c->group;
  int64_t nq = c->b * c->h * c->t * c->d, nk = c->b * heads * c->s * c->d;
  int64_t nv = c->b * heads * c->s * c->e, ny = c->b * c->h * c->t * c->e, nl = c->b * c->h * c->t;
  int64_t first[] = {c->b, c->h, c->t, c->d}, mask_shape[4], n_mask = 1;
  int64_t q_shape[4], k_shape[4], v_shape[4];
  const int64_t *all[] = {&c->b, &c->h, &c->t, &c->s};
  for (int i = 0; i < 4; i++) {
    int from = c->seq_major && (i == 1 || i == 2) ? 3 - i : i;
    int64_t k_first[] = {c->b, heads, c->s, c->d}, v_first[] = {c->b, heads, c->s, c->e};
    q_shape[i] = first[from];
    k_shape[i] = k_first[from];
    v_shape[i] = v_first[from];
    mask_shape[i] = c->mask_whole[i] ? *all[i] : 1;
    n_mask *= mask_shape[i];
  }
  float *q = floats(nq, 1), *k = floats(nk, 2), *v = floats(nv, 3), *dy = floats(ny, 4);
  float *mask = floats(n_mask, 5), *y = results(ny), *lse = results(nl);
  float *dq = results(nq), *dk = results(nk), *dv = results(nv), *again = results(nq);
  for (int64_t i = 0; i < n_mask; i += 3) // hides keys, or whole rows without a key axis
    mask[i] = -INFINITY;
  double scale = 1.0 / sqrt((double)c->d);
  Naive want = {zeros(ny), zeros(nl), zeros(nq), zeros(nk), zeros(nv)};
  const void *in[] = {q, k, v, c->mask ? mask : NULL};
  const void *in_back[] = {q, k, v, y, lse, dy, c->mask ? mask : NULL};
  for (int64_t b = 0; b < c->b; b++)
    for (int64_t h = 0; h < c->h; h++)
      for (int64_t i = 0; i < c->t; i++)
        naive_row(c, in_back, scale, &want, b, h, i);
  omp_set_num_threads(threads);
  const int64_t *ms = c->mask ? mask_shape : NULL;
  NnrtPrep *p = nnrt_attention_prep_f32(c->mask ? 4 : 3, 4, q_shape, k_shape, v_shape, ms, scale,
                                        c->causal, c->seq_major);
  NnrtPrep *back = nnrt_attention_back_prep_f32(c->mask ? 7 : 6, 4, q_shape, k_shape, v_shape, ms,
                                                scale, c->causal, c->seq_major);
  assert_true(p && back);
  assert_int_equal(nnrt_attention_f32(p, y, lse, in), 0);
  assert_near("attention", y, want.y, ny, 2e-6);
  assert_near_lse(lse, want.lse, nl);
  assert_int_equal(nnrt_attention_back_f32(back, dq, dk, dv, in_back), 0);
  assert_near("dq", dq, want.dq, nq, 3e-6);
  assert_near("dk", dk, want.dk, nk, 3e-6);
  assert_near("dv", dv, want.dv, nv, 3e-6);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(nnrt_attention_back_f32(back, again, dk, dv, in_back), 0);
    assert_same_bits("dq again", dq, again, (size_t)nq * sizeof *dq);
  }
  nnrt_prep_free(p);
  nnrt_prep_free(back);
  free(q), free(k), free(v), free(dy), free(mask), free(y), free(lse), free(dq), free(dk), free(dv);
  free(again), free(want.y), free(want.lse), free(want.dq), free(want.dk), free(want.dv);
}

static void one_thread(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    check(&cases[i], 1);
}

// More threads than heads share the keys of a head.
static void several_threads(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    check(&cases[i], 3);
}

TEST_GROUP(kernels_attention) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_thread),
      cmocka_unit_test(several_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
