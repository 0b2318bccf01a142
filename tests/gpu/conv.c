// Convolutions and their gradients on a GPU against sums in double: through cuDNN, and directly.

#include "cuda/conv.h"
#include "check.h"
#include "cuda/dnn.h"

typedef struct Case {
  int spatial;
  int64_t n, c, o, group;
  int64_t x[3], w[3], stride[3], dilation[3], low[3], high[3];
  bool last;
} Case;

#define ONES                                                                                       \
  { 1, 1, 1 }
static const Case cases[] = {
    {2, 2, 8, 16, 1, {6, 7}, {3, 3}, ONES, ONES, {1, 1}, {1, 1}, true},
    {2, 2, 8, 16, 1, {6, 7}, {3, 3}, ONES, ONES, {1, 1}, {1, 1}, false},
    {2, 2, 3, 8, 1, {9, 9}, {5, 5}, {2, 2}, ONES, {2, 2}, {2, 2}, true},
    {2, 2, 8, 8, 1, {8, 8}, {1, 1}, {2, 2}, ONES, {0}, {0}, true},     // the last rows are not read
    {2, 1, 8, 8, 8, {7, 7}, {3, 3}, ONES, ONES, {1, 1}, {1, 1}, true}, // each channel alone
    {2, 2, 8, 12, 4, {7, 5}, {3, 2}, {1, 2}, {2, 1}, {2, 0}, {1, 1}, true},
    {2, 2, 8, 12, 4, {7, 5}, {3, 2}, {1, 2}, {2, 1}, {2, 0}, {1, 1}, false},
    {1, 3, 4, 6, 1, {11}, {4}, {3}, ONES, {2}, {0}, true},
    {1, 3, 4, 6, 2, {11}, {3}, ONES, {2}, {2}, {2}, false},
    {3, 1, 4, 6, 1, {4, 5, 6}, {3, 2, 3}, {1, 2, 1}, ONES, {1, 0, 1}, {1, 1, 1}, true},
    {3, 1, 4, 6, 2, {4, 5, 6}, {3, 2, 3}, {2, 1, 1}, {1, 1, 2}, {1, 0, 2}, {0, 1, 2}, false},
    // Asymmetric padding, as in TensorFlow's SAME.
    {2, 2, 16, 32, 1, {12, 12}, {3, 3}, {2, 2}, ONES, {0, 0}, {1, 1}, true},
    {2, 2, 16, 32, 1, {12, 12}, {3, 3}, {2, 2}, ONES, {0, 0}, {1, 1}, false},
    {2, 2, 32, 32, 32, {12, 12}, {5, 5}, {2, 2}, ONES, {1, 1}, {2, 2}, true},
    {2, 2, 32, 32, 32, {12, 12}, {5, 5}, {2, 2}, ONES, {1, 1}, {2, 2}, false},
    {2, 2, 64, 64, 1, {28, 27}, {2, 2}, ONES, ONES, {0, 1}, {1, 0}, true},
    {1, 2, 16, 24, 1, {30}, {4}, ONES, {2}, {6}, {0}, true}, // causal
    {2, 1, 3, 16, 1, {33, 32}, {7, 7}, {2, 2}, ONES, {3, 2}, {3, 3}, true},
    // Channels that are no multiple of 8, each alone.
    {2, 2, 19, 19, 19, {14, 13}, {5, 5}, ONES, ONES, {2, 2}, {2, 2}, false},
    {2, 2, 19, 19, 19, {14, 13}, {5, 5}, ONES, ONES, {2, 2}, {2, 2}, true},
};

// All three spatial dimensions; the last ones are the convolution's.
typedef struct Full {
  ConvShape s;
  int64_t n_x, n_w, n_y;
  double *x, *w, *y, *dx, *dw, *dy;
} Full;

static void strides(int64_t *to, int64_t channels, const int64_t *spatial, bool last) {
  int64_t n = last ? channels : 1;
  for (int i = 2; i >= 0; i--) {
    to[2 + i] = n;
    n *= spatial[i];
  }
  to[1] = last ? 1 : n;
  to[0] = last ? n : n * channels;
}

static Full full_of(const Case *c) {
  Full f = {.s = {.n = c->n, .c = c->c, .o = c->o, .group = c->group}};
  ConvShape *s = &f.s;
  f.n_x = c->n * c->c;
  f.n_w = c->o * c->c / c->group;
  f.n_y = c->n * c->o;
  for (int i = 0; i < 3; i++) {
    int from = i - (3 - c->spatial);
    s->x[i] = from < 0 ? 1 : c->x[from];
    s->w[i] = from < 0 ? 1 : c->w[from];
    s->stride[i] = from < 0 ? 1 : c->stride[from];
    s->dilation[i] = from < 0 ? 1 : c->dilation[from];
    s->low[i] = from < 0 ? 0 : c->low[from];
    int64_t high = from < 0 ? 0 : c->high[from];
    s->y[i] = (s->x[i] + s->low[i] + high - (s->w[i] - 1) * s->dilation[i] - 1) / s->stride[i] + 1;
    f.n_x *= s->x[i];
    f.n_w *= s->w[i];
    f.n_y *= s->y[i];
  }
  strides(s->x_stride, s->c, s->x, c->last);
  strides(s->y_stride, s->o, s->y, c->last);
  return f;
}

static void reference(Full *f) {
  const ConvShape *s = &f->s;
  int64_t plane = s->y[0] * s->y[1] * s->y[2], window = s->w[0] * s->w[1] * s->w[2];
  int64_t channels = s->c / s->group, each = s->o / s->group;
  for (int64_t i = 0; i < s->n * s->o * plane * window; i++) {
    int64_t w = i % window, y = i / window % plane, o = i / window / plane % s->o;
    int64_t n = i / window / plane / s->o;
    int64_t y_place[3] = {y / s->y[2] / s->y[1], y / s->y[2] % s->y[1], y % s->y[2]};
    int64_t w_place[3] = {w / s->w[2] / s->w[1], w / s->w[2] % s->w[1], w % s->w[2]};
    int64_t x_at = n * s->x_stride[0], y_at = n * s->y_stride[0] + o * s->y_stride[1];
    bool inside = true;
    for (int d = 0; d < 3; d++) {
      int64_t from = y_place[d] * s->stride[d] - s->low[d] + w_place[d] * s->dilation[d];
      inside = inside && from >= 0 && from < s->x[d];
      x_at += from * s->x_stride[2 + d];
      y_at += y_place[d] * s->y_stride[2 + d];
    }
    for (int64_t j = 0; inside && j < channels; j++) {
      int64_t from = x_at + (o / each * channels + j) * s->x_stride[1];
      int64_t w_at = (o * channels + j) * window + w;
      f->y[y_at] += f->x[from] * f->w[w_at];
      f->dx[from] += f->w[w_at] * f->dy[y_at];
      f->dw[w_at] += f->x[from] * f->dy[y_at];
    }
  }
}

static double *exact(const void *x, NnrtDtype t, int64_t n) {
  double *y = malloc((size_t)n * sizeof *y);
  for (int64_t i = 0; i < n; i++)
    y[i] = element(x, t, i);
  return y;
}

// The shape of x or y in the form that kernels take.
static void shape_of(int64_t *to, const Case *c, int64_t channels, const int64_t *spatial) {
  int n = 0;
  to[n++] = c->n;
  if (!c->last) to[n++] = channels;
  for (int i = 3 - c->spatial; i < 3; i++)
    to[n++] = spatial[i];
  if (c->last) to[n++] = channels;
}

static void compare(const char *what, const char *name, const char *by, void *at, NnrtDtype t,
                    const double *want, int64_t n, double most) {
  void *got = gpu_get(at, n * size_of(t));
  double off = distance(got, t, want, n);
  CHECK(off <= most, "%s: %s, %s: off by %.2e", what, name, by, off);
  free(got);
  MUST_CUDA(cudaMemset(at, 0xff, (size_t)(n * size_of(t))));
}

static void check_case(int number, NnrtDtype t) {
  const Case *c = &cases[number];
  Full f = full_of(c);
  char what[64];
  snprintf(what, sizeof what, "case %d, %s", number, name_of(t));
  void *x = numbers(t, f.n_x, 1), *w = numbers(t, f.n_w, 2), *dy = numbers(t, f.n_y, 3);
  f.x = exact(x, t, f.n_x);
  f.w = exact(w, t, f.n_w);
  f.dy = exact(dy, t, f.n_y);
  f.y = calloc((size_t)f.n_y, sizeof(double));
  f.dx = calloc((size_t)f.n_x, sizeof(double));
  f.dw = calloc((size_t)f.n_w, sizeof(double));
  reference(&f);
  int64_t size = size_of(t), x_shape[5], w_shape[5] = {c->o, c->c / c->group}, y_shape[5], pads[6];
  shape_of(x_shape, c, c->c, f.s.x);
  shape_of(y_shape, c, c->o, f.s.y);
  for (int i = 0; i < c->spatial; i++) {
    w_shape[2 + i] = c->w[i];
    pads[i] = c->low[i];
    pads[c->spatial + i] = c->high[i];
  }
  void *gx = gpu_put(x, f.n_x * size), *gw = gpu_put(w, f.n_w * size);
  void *gdy = gpu_put(dy, f.n_y * size), *gy = gpu_new(f.n_y * size), *gdx = gpu_new(f.n_x * size);
  float *gdw = gpu_new(f.n_w * 4);
  NnrtPrep *p[3] = {NULL};
  char by[3][128];
#define CALL(name, type, i, ...)                                                                   \
  do {                                                                                             \
    p[i] = nnrt_##name##_prep_##type(c->spatial + 2, x_shape, w_shape, y_shape, c->stride, pads,   \
                                     c->dilation, c->group, c->last);                              \
    snprintf(by[i], sizeof by[i], "%s", dnn_plan_chosen());                                        \
    CHECK(by[i][0], "%s: %s: not by cudnn", what, #name);                                          \
    CHECK(p[i] && !nnrt_##name##_##type(p[i], __VA_ARGS__), "%s: %s failed", what, #name);         \
  } while (0)
#define CALLS(type)                                                                                \
  do {                                                                                             \
    CALL(conv, type, 0, gy, gx, gw);                                                               \
    CALL(conv_back_x, type, 1, gdx, gw, gdy);                                                      \
    CALL(conv_back_w, type, 2, gdw, gx, gdy);                                                      \
  } while (0)
  if (t == NNRT_f32) CALLS(f32);
  if (t == NNRT_bf16) CALLS(bf16);
  if (t == NNRT_f16) CALLS(f16);
  compare(what, "y", by[0], gy, t, f.y, f.n_y, tolerance(t));
  compare(what, "dx", by[1], gdx, t, f.dx, f.n_x, tolerance(t));
  compare(what, "dw", by[2], gdw, NNRT_f32, f.dw, f.n_w, tolerance(t));
  CHECK(!conv_direct(t, &f.s, gy, gx, gw) && !conv_direct_back_x(t, &f.s, gdx, gw, gdy) &&
            !conv_direct_back_w(t, &f.s, gdw, gx, gdy),
        "%s: directly: failed", what);
  compare(what, "y", "directly", gy, t, f.y, f.n_y, tolerance(t));
  compare(what, "dx", "directly", gdx, t, f.dx, f.n_x, tolerance(t));
  compare(what, "dw", "directly", gdw, NNRT_f32, f.dw, f.n_w, 1e-5);
  for (int i = 0; i < 3; i++)
    nnrt_prep_free(p[i]);
  void *const there[] = {gx, gw, gdy, gy, gdx, gdw};
  for (size_t i = 0; i < sizeof there / sizeof *there; i++)
    gpu_free(there[i]);
  void *const here[] = {x, w, dy, f.x, f.w, f.dy, f.y, f.dx, f.dw};
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
