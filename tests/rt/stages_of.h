// The functions of the kernels of stages.h, in C and CUDA C.

#ifndef TESTS_RT_STAGES_OF_H
#define TESTS_RT_STAGES_OF_H

#include "nnrt_random.h"
#include "stages.h"

M_FN void forward_of(float *h, float *g, const float *x, const float *w, const float *b,
                     Rows rows) {
  for (int j = 0; j < 8 && rows.first; j++)
    g[j] = 0;
  for (int64_t i = 0; i < rows.n; i++) {
    h[i] = b[0];
    for (int j = 0; j < N; j++)
      h[i] += x[i * N + j] * w[j];
  }
}

M_FN void error_of(float *e, float *squares, const float *h, const int64_t *labels, Rows rows) {
  if (rows.first) *squares = 0;
  for (int64_t i = 0; i < rows.n; i++) {
    e[i] = h[i] - (float)labels[i];
    *squares += e[i] * e[i] / (float)rows.batch;
  }
}

M_FN void backward_of(float *g, const float *e, const float *x, Rows rows) {
  for (int64_t i = 0; i < rows.n; i++)
    for (int j = 0; j <= N; j++)
      g[j] += 2 * e[i] * (j < N ? x[i * N + j] : 1) / (float)rows.batch;
}

M_FN void update_of(float *w, float *b, float *v, float *norm, const float *g, const float *lr) {
  float squares = 0;
  for (int j = 0; j <= N; j++) {
    squares += g[j] * g[j];
    v[j] = 0.9f * v[j] + g[j];
    *(j < N ? &w[j] : b) -= *lr * v[j];
  }
  *norm = sqrtf(squares);
}

M_FN void decay_of(float *x, int64_t n, const float *lr) {
  for (int64_t i = 0; i < n; i++)
    x[i] -= *lr * x[i];
}

M_FN void loss_of(float *loss, const float *sum, const int64_t *bad) {
  *loss = *bad ? NAN : *sum;
}

// -- Moves

M_FN int64_t count_of(int ndim, const int64_t *dim) {
  int64_t n = 1;
  for (int d = 0; d < ndim; d++)
    n *= dim[d];
  return n;
}

// 64 bits, of which an element uses the first `width` bytes.
typedef union Element {
  float f;
  int64_t i;
} Element;

// Returns element i of a rank's part before the move; the terms of a sum give other bits in another
// order.
M_FN Element element_of(const Lot *l, int rank, int64_t i, int64_t step) {
  Element e = {.i = 0};
  double term = 1.0 / (double)(1 + rank + (i + step) % 1000);
  if (l->m.sums && l->width == 4)
    e.f = (float)term;
  else if (l->m.sums)
    e.i = (int64_t)(1e9 * term);
  else
    e.i = (int64_t)nnrt_random_mix((uint64_t)(64 * i + rank + 100000 * (step + l->move)));
  return e;
}

M_FN void put_element(void *at, int64_t i, const Element *e, int width) {
  for (int byte = 0; byte < width; byte++)
    ((char *)at)[i * width + byte] = ((const char *)e)[byte];
}

M_FN void give_of(void *x, void *y, const int64_t *step, Lot l) {
  for (int64_t i = 0, n = count_of(l.m.ndim, l.m.from_dim); i < n; i++) {
    Element e = element_of(&l, l.rank, i, *step);
    put_element(x, i, &e, l.width);
  }
  for (int64_t i = 0, n = count_of(l.m.ndim, l.m.to_dim) * l.width; i < n; i++)
    ((char *)y)[i] = 77;
}

// Returns the index, in the part before, of the source of element `i` of the part after; -1: it is
// not in the message's box.
M_FN int64_t origin_of(const NnrtMove *m, const NnrtMessage *what, int64_t i) {
  int64_t from = 0, stride = 1;
  for (int d = m->ndim - 1; d >= 0; d--) {
    int64_t at = i % m->to_dim[d] - what->at_to[d];
    i /= m->to_dim[d];
    if (at < 0 || at >= what->size[d]) return -1;
    from += (what->at_from[d] + at) * stride;
    stride *= m->from_dim[d];
  }
  return from;
}

M_FN Element expected_of(const Lot *l, const NnrtMessage *messages, int64_t i, int64_t step) {
  Element sum = {.i = l->m.sums && l->gets ? 0 : 77 * 0x0101010101010101};
  for (int k = 0; k < l->m.n; k++) {
    int64_t from = messages[k].to == l->rank ? origin_of(&l->m, &messages[k], i) : -1;
    if (from < 0) continue;
    Element e = element_of(l, messages[k].from, from, step);
    if (!l->m.sums)
      sum = e;
    else if (l->width == 4)
      sum.f += e.f;
    else
      sum.i += e.i;
  }
  return sum;
}

M_FN void check_of(int64_t *bad, const void *y, const NnrtMessage *messages, const int64_t *step,
                   Lot l) {
  for (int64_t i = 0, n = count_of(l.m.ndim, l.m.to_dim); i < n; i++) {
    Element e = expected_of(&l, messages, i, *step);
    bool same = true;
    for (int byte = 0; byte < l.width; byte++)
      same &= ((const char *)y)[i * l.width + byte] == ((const char *)&e)[byte];
    *bad += !same;
  }
}

#endif
