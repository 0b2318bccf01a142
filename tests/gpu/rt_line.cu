// Kernels of rt_line.c: one thread computes everything, in the order of regression.c.  Of labels
// outside of -100..99, one below makes the loss NaN, as in cross-entropy, and one above does not,
// like an index of a gather.

#include "rt_line.h"

#include "device.cuh"
#include "nnrt_random.h"

static __global__ void rows_of(float *g, const float *x, const int64_t *labels, const float *w,
                               const float *b, const float *zeros, int64_t rows, float batch,
                               bool first, Finder f) {
  if (first)
    for (int j = 0; j < N + 3; j++)
      g[j] = zeros[j];
  for (int64_t i = 0; i < rows; i++) {
    if (labels[i] < -100 || labels[i] > 99) find_index(f, labels[i], i, -100, 100);
    float e = labels[i] < -100 ? NAN : b[0] - (float)labels[i];
    for (int j = 0; j < N; j++)
      e += x[i * N + j] * w[j];
    for (int j = 0; j < N; j++)
      g[j] += 2 * e * x[i * N + j] / batch;
    g[N] += 2 * e / batch;
    g[N + 1] += e * e / batch;
  }
}

int line_rows(float *g, const float *x, const int64_t *labels, const float *w, const float *b,
              const float *zeros, int64_t rows, int64_t batch, bool first) {
  return launch(rows_of, 1, 1, 0, g, x, labels, w, b, zeros, rows, (float)batch, first, finder());
}

static __global__ void given(float *big, int64_t n, float *mine, int64_t *one, int64_t rank) {
  for (int64_t i = first_thread(); i < n; i += all_threads())
    big[i] = (float)((rank + 1) * (i % 1000));
  if (first_thread() < 4)
    mine[first_thread()] = (float)(100 * rank + 10 * (first_thread() / 2) + first_thread() % 2);
  if (first_thread() == 0) *one = (int64_t)1 << 40;
}

int line_given(float *big, int64_t n, float *mine, int64_t *one, int64_t rank) {
  return launch(given, blocks_for(n), BLOCK, 0, big, n, mine, one, rank);
}

static __global__ void taken(int64_t *bad, const float *big, int64_t n, const float *spread,
                             const float *back, const int64_t *one, int64_t rank, int64_t ranks) {
  *bad = *one != ranks << 40;
  for (int64_t i = 0; i < n; i++)
    *bad += big[i] != (float)(ranks * (ranks + 1) / 2 * (i % 1000));
  for (int row = 0; row < 2; row++)
    for (int from = 0; from < ranks; from++)
      for (int j = 0; j < 2; j++)
        *bad += spread[(row * ranks + from) * 2 + j] != (float)(100 * from + 10 * row + j);
  for (int i = 0; i < 4; i++)
    *bad += back[i] != (float)(100 * rank + 10 * (i / 2) + i % 2);
}

int line_taken(int64_t *bad, const float *big, int64_t n, const float *spread, const float *back,
               const int64_t *one, int64_t rank, int64_t ranks) {
  return launch(taken, 1, 1, 0, bad, big, n, spread, back, one, rank, ranks);
}

static __global__ void terms(float *x, int64_t n, int64_t rank) {
  for (int64_t i = first_thread(); i < n; i += all_threads())
    x[i] = (float)((rank + 1) * (i % 1000));
}

int line_terms(float *x, int64_t n, int64_t rank) {
  return launch(terms, blocks_for(n), BLOCK, 0, x, n, rank);
}

static __global__ void summed(int64_t *bad, const float *sum, int64_t part, int64_t rank,
                              int64_t dp, int64_t tp) {
  int64_t all = dp * tp, by = all * (all + 1) / 2;
  for (int64_t row = 0; row < 2; row++)
    for (int64_t j = 0; j < part; j++) {
      int64_t i = ((row * dp + rank / tp) * tp + rank % tp) * part + j;
      *bad += sum[row * part + j] != (float)(by * (i % 1000));
    }
}

int line_summed(int64_t *bad, const float *sum, int64_t part, int64_t rank, int64_t dp,
                int64_t tp) {
  return launch(summed, 1, 1, 0, bad, sum, part, rank, dp, tp);
}

static __device__ float cube_at(int64_t i, int64_t n, int64_t cut, int64_t at) {
  int64_t d1 = cut == 1 ? 2 : 2 * n, d2 = cut == 2 ? 3 : 3 * n;
  int64_t x = i / d2 / d1, y = i / d2 % d1, z = i % d2;
  if (cut == 0) x += at;
  if (cut == 1) y += 2 * at;
  if (cut == 2) z += 3 * at;
  return (float)((x * 2 * n + y) * 3 * n + z);
}

static __global__ void cube(float *x, int64_t n, int64_t cut, int64_t at) {
  for (int64_t i = first_thread(); i < 6 * n * n; i += all_threads())
    x[i] = cube_at(i, n, cut, at);
}

int line_cube(float *x, int64_t n, int64_t cut, int64_t at) {
  return launch(cube, blocks_for(6 * n * n), BLOCK, 0, x, n, cut, at);
}

static __global__ void cubed(int64_t *bad, const float *x, int64_t n, int64_t cut, int64_t at) {
  for (int64_t i = 0; i < 6 * n * n; i++)
    *bad += x[i] != cube_at(i, n, cut, at);
}

int line_cubed(int64_t *bad, const float *x, int64_t n, int64_t cut, int64_t at) {
  return launch(cubed, 1, 1, 0, bad, x, n, cut, at);
}

static __global__ void update(float *w, float *b, float *v, float *part, int64_t n_part,
                              int64_t *count, float *loss, float *norm, const float *g,
                              const float *lr, const int64_t *step, const int64_t *seed,
                              const int64_t *bad, int64_t nan_at) {
  float squares = 0;
  for (int j = 0; j <= N; j++)
    squares += g[j] * g[j];
  *norm = sqrtf(squares);
  *loss = g[N + 1] + (float)nnrt_random_uniform(*seed, *step, 1, 0) * 0.01f;
  if (*step == nan_at || *bad) *loss = NAN;
  for (int j = 0; j <= N; j++) {
    v[j] = 0.9f * v[j] + g[j];
    *(j < N ? &w[j] : b) -= *lr * v[j];
  }
  for (int64_t j = 0; j < n_part; j++)
    part[j] -= *lr * part[j];
  ++*count;
}

int line_update(float *w, float *b, float *v, float *part, int64_t n_part, int64_t *count,
                float *loss, float *norm, const float *g, const float *lr, const int64_t *step,
                const int64_t *seed, const int64_t *bad, int64_t nan_at) {
  return launch(update, 1, 1, 0, w, b, v, part, n_part, count, loss, norm, g, lr, step, seed, bad,
                nan_at);
}

// Like a library call that cannot be captured.
int line_allocates(void) {
  void *p = NULL;
  int code = nnrt_cuda(cudaMalloc(&p, 256), "a library");
  return code ? code : nnrt_cuda(cudaFree(p), "a library");
}

static __global__ void loss_of(float *loss, const float *g) {
  *loss = g[N + 1];
}

int line_loss(float *loss, const float *g) {
  return launch(loss_of, 1, 1, 0, loss, g);
}
