// Products of matrices and convolutions: odd sizes against naive loops, and several ranks at once.

#include <pthread.h>

#include "kernels.h"

// y (m, n) += a (m, k) b (k, n), read through strides
static void product(double *y, const float *a, int64_t a_row, int64_t a_column, const float *b,
                    int64_t b_row, int64_t b_column, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t l = 0; l < k; l++)
        y[i * n + j] += (double)a[i * a_row + l * a_column] * (double)b[l * b_row + j * b_column];
}

static const int64_t sizes[][3] = {{1, 1, 1}, {1, 7, 3},    {5, 1, 9},
                                   {6, 4, 1}, {33, 65, 17}, {127, 31, 129}};

static void linear(void **state) {
  (void)state;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int trans = 0; trans < 2; trans++) {
      int64_t m = sizes[s][0], k = sizes[s][1], n = sizes[s][2];
      float *x = floats(m * k, 1), *w = floats(k * n, 2), *dy = floats(m * n, 3);
      float *y = results(m * n), *dw = results(k * n);
      double *want = zeros(m * n), *want_dw = zeros(k * n);
      NnrtPrep *p = nnrt_linear_prep_f32(m, k, n, trans);
      assert_non_null(p);
      assert_int_equal(nnrt_linear_f32(p, y, x, w), 0);
      product(want, x, k, 1, w, trans ? 1 : n, trans ? k : 1, m, n, k);
      assert_near("linear", y, want, m * n, 1e-6);
      NnrtPrep *back = nnrt_linear_back_w_prep_f32(m, k, n, trans);
      assert_non_null(back);
      assert_int_equal(nnrt_linear_back_w_f32(back, dw, x, dy), 0);
      if (trans)
        product(want_dw, dy, 1, n, x, k, 1, n, k, m);
      else
        product(want_dw, x, 1, k, dy, n, 1, k, n, m);
      assert_near("linear_back_w", dw, want_dw, k * n, 1e-6);
      nnrt_prep_free(p);
      nnrt_prep_free(back);
      free(x), free(w), free(dy), free(y), free(dw), free(want), free(want_dw);
    }
}

static void matmul(void **state) {
  (void)state;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int how = 0; how < 8; how++) {
      bool ta = how & 1, tb = how & 2;
      int64_t batch = how & 4 ? 3 : 1, m = sizes[s][0], k = sizes[s][1], n = sizes[s][2];
      float *a = floats(batch * m * k, 1), *b = floats(batch * k * n, 2);
      float *y = results(batch * m * n);
      double *want = zeros(batch * m * n);
      NnrtPrep *p = nnrt_matmul_prep_f32(batch, m, n, k, ta, tb);
      assert_non_null(p);
      assert_int_equal(nnrt_matmul_f32(p, y, a, b), 0);
      for (int64_t i = 0; i < batch; i++)
        product(want + i * m * n, a + i * m * k, ta ? 1 : k, ta ? m : 1, b + i * k * n, tb ? 1 : n,
                tb ? k : 1, m, n, k);
      assert_near("matmul", y, want, batch * m * n, 1e-6);
      nnrt_prep_free(p);
      free(a), free(b), free(y), free(want);
    }
}

// -- Convolution -----------------------------------------------------------------------------

typedef struct Case {
  int64_t spatial, n, c, o, group;
  int64_t x[3], k[3], stride[3], dilation[3], pads[6];
} Case;

static const Case cases[] = {
    {1, 2, 3, 4, 1, {11}, {3}, {1}, {1}, {1, 1}},
    {1, 1, 4, 6, 2, {9}, {2}, {2}, {2}, {0, 3}},
    {2, 2, 3, 5, 1, {9, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
    {2, 2, 16, 32, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {2, 1, 32, 16, 1, {8, 8}, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}},
    {2, 2, 8, 8, 8, {6, 7}, {3, 2}, {1, 2}, {1, 1}, {1, 0, 2, 1}},  // depthwise, uneven pads
    {2, 1, 6, 4, 2, {10, 9}, {3, 3}, {1, 1}, {2, 3}, {2, 3, 2, 3}}, // dilated groups
    {2, 3, 64, 64, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {3, 1, 2, 3, 1, {5, 4, 6}, {2, 3, 3}, {1, 1, 2}, {1, 1, 1}, {0, 1, 1, 1, 1, 0}},
    {1, 1, 390, 262, 1, {12}, {3}, {1}, {1}, {1, 1}},   // more channels than a slice or a block has
    {1, 1, 5, 3, 1, {150}, {200}, {1}, {1}, {99, 100}}, // and more taps
    {2, 3, 12, 10, 2, {17, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}}, // strided groups
    {2, 5, 9, 7, 1, {13, 11}, {2, 3}, {3, 2}, {1, 2}, {0, 2, 1, 2}},  // elements that no tap reads
    {2, 2, 40, 40, 40, {9, 8}, {5, 3}, {2, 1}, {1, 2}, {2, 1, 2, 2}}, // depthwise: more channels
    {2, 1, 20, 40, 20, {6, 7}, {3, 3}, {1, 2}, {1, 1}, {1, 1, 1, 1}}, // two outputs of each channel
    {3, 2, 6, 6, 6, {4, 5, 6}, {3, 2, 3}, {1, 2, 2}, {1, 1, 1}, {1, 0, 1, 1, 1, 1}},
};

// Small maps and many channels: on a CPU the products per tap.
static const Case small_maps[] = {
    {2, 5, 33, 47, 1, {1, 1}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}, // eight taps see padding alone
    {2, 16, 64, 96, 1, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {2, 7, 35, 70, 1, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {2, 13, 32, 64, 1, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {2, 4, 37, 33, 1, {7, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},  // stride 2 into 4 x 4
    {2, 4, 32, 36, 1, {5, 4}, {3, 2}, {1, 2}, {1, 1}, {1, 0, 2, 1}},  // uneven pads
    {2, 6, 34, 32, 1, {6, 5}, {3, 3}, {1, 1}, {2, 3}, {2, 3, 2, 3}},  // dilated
    {2, 4, 66, 102, 2, {3, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}, // groups
    {2, 5, 96, 129, 3, {2, 3}, {2, 3}, {1, 1}, {1, 2}, {1, 2, 0, 2}}, // groups, dilated
    {2, 4, 32, 32, 1, {5, 5}, {1, 2}, {3, 3}, {1, 1}, {0, 0, 0, 0}},  // elements that no tap reads
    {2, 4, 300, 40, 1, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}, // inputs in several pieces
    {2, 4, 33, 40, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},  // by taps the gradient of w
                                                                      // alone
    {1, 6, 33, 35, 1, {9}, {3}, {2}, {1}, {1, 1}},
    {3, 4, 32, 33, 1, {2, 3, 2}, {3, 2, 3}, {1, 1, 2}, {1, 1, 1}, {1, 0, 1, 1, 1, 1}},
};

// Filters of 1 x 1: on a CPU products of plain matrices.
static const Case small_filters[] = {
    {2, 3, 17, 33, 1, {5, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {2, 2, 64, 40, 1, {9, 8}, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}}, // x ends after and before
                                                                     // the last position of y
    {2, 2, 35, 65, 1, {7, 11}, {1, 1}, {3, 1}, {1, 1}, {0, 0, 0, 0}},
    {2, 2, 8, 24, 1, {6, 10}, {1, 1}, {1, 4}, {1, 1}, {0, 0, 0, 0}},
    {2, 2, 16, 20, 1, {5, 5}, {1, 1}, {2, 2}, {1, 1}, {1, 0, 1, 2}},   // padding
    {2, 2, 70, 36, 1, {46, 50}, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}}, // more rows than dw's
    {1, 4, 12, 5, 1, {13}, {1}, {2}, {1}, {0, 0}},
    {3, 2, 6, 16, 1, {5, 4, 7}, {1, 1, 1}, {2, 3, 2}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}},
};

// Returns the index of element (n, c, spatial position p) of a tensor.
static int64_t place(bool last, int64_t c_all, int64_t plane, int64_t n, int64_t c, int64_t p) {
  return last ? (n * plane + p) * c_all + c : (n * c_all + c) * plane + p;
}

typedef struct Shapes {
  int64_t ndim, x[5], w[5], y[5], y_space[3], x_plane, y_plane, k_plane;
} Shapes;

static Shapes shapes_of(const Case *c, bool last) {
  Shapes s = {.ndim = c->spatial + 2, .x_plane = 1, .y_plane = 1, .k_plane = 1};
  s.x[0] = s.y[0] = c->n;
  s.x[last ? c->spatial + 1 : 1] = c->c;
  s.y[last ? c->spatial + 1 : 1] = c->o;
  s.w[0] = c->o;
  s.w[1] = c->c / c->group;
  for (int64_t d = 0; d < c->spatial; d++) {
    int64_t reach = (c->k[d] - 1) * c->dilation[d] + 1;
    int64_t y = (c->x[d] + c->pads[d] + c->pads[c->spatial + d] - reach) / c->stride[d] + 1;
    s.x[(last ? 1 : 2) + d] = c->x[d];
    s.y[(last ? 1 : 2) + d] = s.y_space[d] = y;
    s.w[2 + d] = c->k[d];
    s.x_plane *= c->x[d];
    s.y_plane *= y;
    s.k_plane *= c->k[d];
  }
  return s;
}

// Returns the position in the plane of x for result p and element k of the kernel, or -1.
static int64_t meet(const Case *c, const Shapes *s, int64_t p, int64_t k) {
  int64_t at = 0, stride = 1;
  for (int64_t d = c->spatial - 1; d >= 0; d--) {
    int64_t i = p % s->y_space[d] * c->stride[d] - c->pads[d] + k % c->k[d] * c->dilation[d];
    if (i < 0 || i >= c->x[d]) return -1;
    at += i * stride;
    stride *= c->x[d];
    p /= s->y_space[d];
    k /= c->k[d];
  }
  return at;
}

// Computes all three: every product x w dy belongs to one element of each result.
static void naive_conv(const Case *c, const Shapes *s, bool last, const float *x, const float *w,
                       const float *dy, double *y, double *dx, double *dw) {
  int64_t c_group = c->c / c->group, o_group = c->o / c->group;
  for (int64_t n = 0; n < c->n; n++)
    for (int64_t o = 0; o < c->o; o++)
      for (int64_t i = 0; i < c_group; i++)
        for (int64_t p = 0; p < s->y_plane; p++)
          for (int64_t k = 0; k < s->k_plane; k++) {
            int64_t from = meet(c, s, p, k);
            if (from < 0) continue;
            int64_t xi = place(last, c->c, s->x_plane, n, o / o_group * c_group + i, from);
            int64_t yi = place(last, c->o, s->y_plane, n, o, p);
            int64_t wi = (o * c_group + i) * s->k_plane + k;
            y[yi] += (double)x[xi] * (double)w[wi];
            dx[xi] += (double)dy[yi] * (double)w[wi];
            dw[wi] += (double)dy[yi] * (double)x[xi];
          }
}

// A convolution with its operands and results; want: by naive_conv.
typedef struct Run {
  Shapes s;
  int64_t nx, ny, nw;
  float *x, *w, *dy, *y, *dx, *dw;
} Run;

static Run run_conv(const Case *c, bool last) {
  Run r = {.s = shapes_of(c, last)};
  const Shapes *s = &r.s;
  r.nx = c->n * c->c * s->x_plane;
  r.ny = c->n * c->o * s->y_plane;
  r.nw = c->o * c->c / c->group * s->k_plane;
  r.x = floats(r.nx, 1), r.w = floats(r.nw, 2), r.dy = floats(r.ny, 3);
  r.y = results(r.ny), r.dx = results(r.nx), r.dw = results(r.nw);
  NnrtPrep *p = nnrt_conv_prep_f32(s->ndim, s->x, s->w, s->y, c->stride, c->pads, c->dilation,
                                   c->group, last);
  NnrtPrep *bx = nnrt_conv_back_x_prep_f32(s->ndim, s->x, s->w, s->y, c->stride, c->pads,
                                           c->dilation, c->group, last);
  NnrtPrep *bw = nnrt_conv_back_w_prep_f32(s->ndim, s->x, s->w, s->y, c->stride, c->pads,
                                           c->dilation, c->group, last);
  assert_true(p && bx && bw);
  assert_int_equal(nnrt_conv_f32(p, r.y, r.x, r.w), 0);
  assert_int_equal(nnrt_conv_back_x_f32(bx, r.dx, r.w, r.dy), 0);
  assert_int_equal(nnrt_conv_back_w_f32(bw, r.dw, r.x, r.dy), 0);
  nnrt_prep_free(p);
  nnrt_prep_free(bx);
  nnrt_prep_free(bw);
  return r;
}

static void run_free(Run *r) {
  free(r->x), free(r->w), free(r->dy), free(r->y), free(r->dx), free(r->dw);
}

static void assert_conv(const Case *c, bool last) {
  Run r = run_conv(c, last);
  double *want = zeros(r.ny), *want_dx = zeros(r.nx), *want_dw = zeros(r.nw);
  naive_conv(c, &r.s, last, r.x, r.w, r.dy, want, want_dx, want_dw);
  assert_near("conv", r.y, want, r.ny, 1e-6);
  assert_near("conv_back_x", r.dx, want_dx, r.nx, 1e-6);
  assert_near("conv_back_w", r.dw, want_dw, r.nw, 1e-6);
  free(want), free(want_dx), free(want_dw);
  run_free(&r);
}

static void conv(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int last = 0; last < 2; last++)
      assert_conv(&cases[i], last);
}

static void conv_of_small_maps(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof small_maps / sizeof *small_maps; i++)
    for (int last = 0; last < 2; last++)
      assert_conv(&small_maps[i], last);
}

static void conv_of_small_filters(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof small_filters / sizeof *small_filters; i++)
    for (int last = 0; last < 2; last++)
      assert_conv(&small_filters[i], last);
}

// Returns x rounded to bf16, and rounds it.
static uint16_t *bf16_of(float *x, int64_t n) {
  uint16_t *h = malloc((size_t)n * sizeof *h);
  for (int64_t i = 0; i < n; i++) {
    h[i] = m_to_bf16(x[i]);
    x[i] = m_from_bf16(h[i]);
  }
  return h;
}

static void wide_of(float *x, const uint16_t *h, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    x[i] = m_from_bf16(h[i]);
}

// The same in bf16: sums are f32, and rounded once but for those of w.
static void assert_conv_bf16(const Case *c, bool last) {
  Run r = run_conv(c, last);
  const Shapes *s = &r.s;
  uint16_t *x = bf16_of(r.x, r.nx), *w = bf16_of(r.w, r.nw), *dy = bf16_of(r.dy, r.ny);
  // Results begin as NaN.
  float *y_start = results(r.ny), *dx_start = results(r.nx);
  uint16_t *y = bf16_of(y_start, r.ny), *dx = bf16_of(dx_start, r.nx);
  double *want = zeros(r.ny), *want_dx = zeros(r.nx), *want_dw = zeros(r.nw);
  naive_conv(c, s, last, r.x, r.w, r.dy, want, want_dx, want_dw);
  NnrtPrep *p = nnrt_conv_prep_bf16(s->ndim, s->x, s->w, s->y, c->stride, c->pads, c->dilation,
                                    c->group, last);
  NnrtPrep *bx = nnrt_conv_back_x_prep_bf16(s->ndim, s->x, s->w, s->y, c->stride, c->pads,
                                            c->dilation, c->group, last);
  NnrtPrep *bw = nnrt_conv_back_w_prep_bf16(s->ndim, s->x, s->w, s->y, c->stride, c->pads,
                                            c->dilation, c->group, last);
  assert_true(p && bx && bw);
  assert_int_equal(nnrt_conv_bf16(p, y, x, w), 0);
  assert_int_equal(nnrt_conv_back_x_bf16(bx, dx, w, dy), 0);
  assert_int_equal(nnrt_conv_back_w_bf16(bw, r.dw, x, dy), 0);
  wide_of(r.y, y, r.ny);
  wide_of(r.dx, dx, r.nx);
  assert_near("conv of bf16", r.y, want, r.ny, 0x1p-8);
  assert_near("conv_back_x of bf16", r.dx, want_dx, r.nx, 0x1p-8);
  assert_near("conv_back_w of bf16", r.dw, want_dw, r.nw, 1e-6);
  // A NaN of w is in all results of its channel that read it, and of all runs alike.
  w[0] = m_to_bf16(NAN);
  r.w[0] = NAN;
  assert_int_equal(nnrt_conv_bf16(p, y, x, w), 0);
  memset(want, 0, (size_t)r.ny * sizeof *want);
  naive_conv(c, s, last, r.x, r.w, r.dy, want, want_dx, want_dw);
  for (int64_t i = 0; i < r.ny; i++)
    if (isnan(want[i])) assert_true(isnan(m_from_bf16(y[i])));
  nnrt_prep_free(p), nnrt_prep_free(bx), nnrt_prep_free(bw);
  free(x), free(w), free(dy), free(y), free(dx), free(want), free(want_dx), free(want_dw);
  free(y_start), free(dx_start);
  run_free(&r);
}

static void conv_bf16(void **state) {
  (void)state;
  for (int last = 0; last < 2; last++) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
      assert_conv_bf16(&cases[i], last);
    for (size_t i = 0; i < sizeof small_maps / sizeof *small_maps; i++)
      assert_conv_bf16(&small_maps[i], last);
    for (size_t i = 0; i < sizeof small_filters / sizeof *small_filters; i++)
      assert_conv_bf16(&small_filters[i], last);
  }
}

// The sums of products per tap do not depend on the number of threads.
static void conv_threads(void **state) {
  (void)state;
  int most = omp_get_max_threads();
  for (size_t i = 1; i < 4; i++) {
    omp_set_num_threads(1);
    Run one = run_conv(&small_maps[i], true);
    for (int threads = 2; threads < 12; threads += 3) {
      omp_set_num_threads(threads);
      Run r = run_conv(&small_maps[i], true);
      assert_same_bits("conv", r.y, one.y, (size_t)r.ny * sizeof *r.y);
      assert_same_bits("conv_back_x", r.dx, one.dx, (size_t)r.nx * sizeof *r.dx);
      assert_same_bits("conv_back_w", r.dw, one.dw, (size_t)r.nw * sizeof *r.dw);
      run_free(&r);
    }
    run_free(&one);
  }
  omp_set_num_threads(most);
}

// Neither do y and dx with filters of 1 x 1, the sums of which are over channels.
static void conv_of_small_filters_threads(void **state) {
  (void)state;
  static const Case deep = {2, 2, 2048, 40, 1, {3, 4}, {1, 1}, {1, 2}, {1, 1}, {0, 0, 0, 0}};
  static const Case wide = {2, 3, 24, 1024, 1, {8, 8}, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}};
  const Case *some[] = {&deep, &wide};
  int most = omp_get_max_threads();
  for (size_t i = 0; i < 2; i++) {
    omp_set_num_threads(1);
    Run one = run_conv(some[i], true);
    for (int threads = 2; threads < 12; threads += 3) {
      omp_set_num_threads(threads);
      Run r = run_conv(some[i], true);
      assert_same_bits("conv", r.y, one.y, (size_t)r.ny * sizeof *r.y);
      assert_same_bits("conv_back_x", r.dx, one.dx, (size_t)r.nx * sizeof *r.dx);
      run_free(&r);
    }
    run_free(&one);
  }
  omp_set_num_threads(most);
}

// -- Ranks -----------------------------------------------------------------------------------

enum { RANKS = 4, M = 96, K = 130, N = 70 };

typedef struct Rank {
  pthread_t thread;
  float *x, *w, *y;
  int code;
} Rank;

// Prepares and runs on its own, as a rank does; its scratch and primitives are not shared.
static void *rank_run(void *arg) {
  Rank *r = arg;
  omp_set_num_threads(2);
  for (int i = 0; i < 5 && !r->code; i++) {
    NnrtPrep *p = nnrt_linear_prep_f32(M, K, N, false);
    r->code = p ? nnrt_linear_f32(p, r->y, r->x, r->w) : 1;
    nnrt_prep_free(p);
  }
  return NULL;
}

static void ranks_at_once(void **state) {
  (void)state;
  Rank rank[RANKS] = {0};
  for (int i = 0; i < RANKS; i++) {
    rank[i].x = floats((int64_t)M * K, i);
    rank[i].w = floats((int64_t)K * N, 100 + i);
    rank[i].y = results((int64_t)M * N);
    assert_int_equal(pthread_create(&rank[i].thread, NULL, rank_run, &rank[i]), 0);
  }
  for (int i = 0; i < RANKS; i++) {
    double *want = zeros((int64_t)M * N);
    pthread_join(rank[i].thread, NULL);
    assert_int_equal(rank[i].code, 0);
    product(want, rank[i].x, K, 1, rank[i].w, N, 1, M, N, K);
    assert_near("linear of a rank", rank[i].y, want, (int64_t)M * N, 1e-6);
    free(want), free(rank[i].x), free(rank[i].w), free(rank[i].y);
  }
}

TEST_GROUP(kernels_products) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(linear),
      cmocka_unit_test(matmul),
      cmocka_unit_test(conv),
      cmocka_unit_test(conv_of_small_maps),
      cmocka_unit_test(conv_of_small_filters),
      cmocka_unit_test(conv_of_small_filters_threads),
      cmocka_unit_test(conv_threads),
      cmocka_unit_test(ranks_at_once),
      cmocka_unit_test(conv_bf16),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
