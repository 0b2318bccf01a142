// The cells of recurrent layers: recurrent.h.  A thread computes an element of the state of a row.
//
//     lstm_step            a product with four columns per element; writes y, sums and c
//     lstm_step_back       reads sums, c and dy; writes the adjoints of the sums
//     gru_step_gates, gru_step, gru_step_back, gru_step_back_reset
//     rnn_step, rnn_step_back

#include "device.cuh"
#include "recurrent.h"

namespace {

__device__ inline float act(const NnrtActivation &f, float x) {
  return activation_at(f.kind, f, x);
}
__device__ inline float slope(const NnrtActivation &f, float x) {
  return activation_slope(f.kind, f, x);
}

// Element j of row `row`: at `at` in (b, h), `y` in (all, b, h), `wide` times the columns further
// apart in (all, b, n h).
struct Place {
  int64_t row, j, at, y;
  bool active;
};

__device__ inline Place place_of(const RecurrentStep &s, int64_t i) {
  Place p;
  p.row = i / s.h;
  p.j = i % s.h;
  p.at = i;
  p.y = s.t * s.b * s.h + i;
  p.active = s.t < s.lengths[p.row];
  return p;
}

// The offset of block `k` of `n` blocks of h.
__device__ inline int64_t block_at(const RecurrentStep &s, const Place &p, int64_t n, int64_t k) {
  return ((s.t * s.b + p.row) * n + k) * s.h + p.j;
}
__device__ inline int64_t product_at(const RecurrentStep &s, const Place &p, int64_t n, int64_t k) {
  return (p.row * n + k) * s.h + p.j;
}

// The state that the step read.
template <class T>
__device__ inline float state_before(const RecurrentStep &s, const Place &p, const T *y,
                                     const T *h0) {
  bool first = s.before < 0 || s.before >= s.lengths[p.row];
  return first ? load(h0 + p.at) : load(y + s.before * s.b * s.h + p.at);
}

template <class T>
__device__ inline void set_state(const Place &p, float h, T *y, float *state, T *last) {
  state[p.at] = h;
  store(last + p.at, h);
  store(y + p.y, h);
}

// -- LSTM: blocks i o f c

enum { INPUT, OUTPUT, FORGET, CELL };

__device__ inline float peephole(const LstmCell &c, const RecurrentStep &s, int k, const Place &p) {
  return c.peephole ? c.peephole[k * s.h + p.j] : 0.0f;
}

template <class T>
__global__ void lstm_forward(RecurrentStep s, LstmCell c, const float *product, const T *gx, T *y,
                             T *sums, float *cells, float *state, T *last, float *cell) {
  for (int64_t n = first_thread(); n < s.b * s.h; n += all_threads()) {
    Place p = place_of(s, n);
    float old = cell[p.at], sum[4];
    if (!p.active) {
      store(y + p.y, 0);
      for (int k = 0; k < 4; k++)
        store(sums + block_at(s, p, 4, k), 0);
      cells[p.y] = old;
      continue;
    }
    for (int k = 0; k < 4; k++)
      sum[k] = load(gx + block_at(s, p, 4, k)) + product[product_at(s, p, 4, k)];
    sum[INPUT] += peephole(c, s, INPUT, p) * old;
    sum[FORGET] += peephole(c, s, FORGET, p) * old;
    float i = act(c.f, sum[INPUT]), keep = c.coupled ? 1 - i : act(c.f, sum[FORGET]);
    float next = keep * old + i * act(c.g, sum[CELL]);
    // The output gate sees the new cell.
    sum[OUTPUT] += peephole(c, s, OUTPUT, p) * next;
    for (int k = 0; k < 4; k++)
      store(sums + block_at(s, p, 4, k), sum[k]);
    cell[p.at] = cells[p.y] = next;
    set_state(p, act(c.f, sum[OUTPUT]) * act(c.h, next), y, state, last);
  }
}

template <class T>
__global__ void lstm_backward(RecurrentStep s, LstmCell c, const T *sums, const float *cells,
                              const T *y, const T *h0, const float *c0, const T *dy, T *dgx,
                              T *before, float *dh, float *dc) {
  for (int64_t n = first_thread(); n < s.b * s.h; n += all_threads()) {
    Place p = place_of(s, n);
    if (!p.active) {
      for (int k = 0; k < 4; k++)
        store(dgx + block_at(s, p, 4, k), 0);
      store(before + p.y, 0);
      continue;
    }
    float sum[4], cell = cells[p.y];
    for (int k = 0; k < 4; k++)
      sum[k] = load(sums + block_at(s, p, 4, k));
    float old = s.before < 0 ? c0[p.at] : cells[s.before * s.b * s.h + p.at];
    float i = act(c.f, sum[INPUT]), o = act(c.f, sum[OUTPUT]);
    float keep = c.coupled ? 1 - i : act(c.f, sum[FORGET]);
    // h' = o h(c'), then all that reached c'.
    float d = dh[p.at] + load(dy + p.y);
    float d_o = d * act(c.h, cell) * slope(c.f, sum[OUTPUT]);
    float d_c = dc[p.at] + d * o * slope(c.h, cell) + d_o * peephole(c, s, OUTPUT, p);
    // c' = k c + i g
    float d_k = d_c * old, d_i = d_c * act(c.g, sum[CELL]);
    if (c.coupled) d_i -= d_k;
    d_i *= slope(c.f, sum[INPUT]);
    d_k = c.coupled ? 0.0f : d_k * slope(c.f, sum[FORGET]);
    store(dgx + block_at(s, p, 4, INPUT), d_i);
    store(dgx + block_at(s, p, 4, OUTPUT), d_o);
    store(dgx + block_at(s, p, 4, FORGET), d_k);
    store(dgx + block_at(s, p, 4, CELL), d_c * i * slope(c.g, sum[CELL]));
    dc[p.at] = d_c * keep + d_i * peephole(c, s, INPUT, p) + d_k * peephole(c, s, FORGET, p);
    dh[p.at] = 0;
    store(before + p.y, state_before(s, p, y, h0));
  }
}

// -- GRU: blocks z r n, and of the saved sums the product of n

enum { UPDATE, RESET, NEW, PRODUCT };

__device__ inline int blocks_of(const GruCell &c) {
  return c.after ? 4 : 3;
}

template <class T>
__global__ void gru_gates(RecurrentStep s, GruCell c, const float *product, const T *gx, T *sums,
                          T *kept, const float *state) {
  for (int64_t n = first_thread(); n < s.b * s.h; n += all_threads()) {
    Place p = place_of(s, n);
    float sum[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
      if (p.active) sum[k] = load(gx + block_at(s, p, 3, k)) + product[product_at(s, p, 2, k)];
      store(sums + block_at(s, p, blocks_of(c), k), sum[k]);
    }
    if (kept) store(kept + p.at, p.active ? act(c.f, sum[RESET]) * state[p.at] : 0.0f);
  }
}

template <class T>
__global__ void gru_forward(RecurrentStep s, GruCell c, const float *product, const float *bias,
                            const T *gx, T *y, T *sums, float *state, T *last) {
  for (int64_t n = first_thread(); n < s.b * s.h; n += all_threads()) {
    Place p = place_of(s, n);
    int blocks = blocks_of(c);
    float inner = p.active ? product[p.at] + bias[p.j] : 0.0f, sum = 0;
    if (p.active) {
      float r = c.after ? act(c.f, load(sums + block_at(s, p, blocks, RESET))) : 1.0f;
      sum = load(gx + block_at(s, p, 3, NEW)) + r * inner;
    }
    store(sums + block_at(s, p, blocks, NEW), sum);
    if (c.after) store(sums + block_at(s, p, blocks, PRODUCT), inner);
    if (!p.active) {
      store(y + p.y, 0);
      continue;
    }
    float z = act(c.f, load(sums + block_at(s, p, blocks, UPDATE)));
    set_state(p, (1 - z) * act(c.g, sum) + z * state[p.at], y, state, last);
  }
}

template <class T>
__global__ void gru_backward(RecurrentStep s, GruCell c, const T *sums, const T *y, const T *h0,
                             const T *dy, T *dgx, T *before, T *inner, float *dh) {
  for (int64_t n = first_thread(); n < s.b * s.h; n += all_threads()) {
    Place p = place_of(s, n);
    int blocks = blocks_of(c);
    if (!p.active) {
      for (int k = 0; k < 3; k++)
        store(dgx + block_at(s, p, 3, k), 0);
      store(before + p.y, 0);
      store(inner + p.y, 0);
      continue;
    }
    float sum_z = load(sums + block_at(s, p, blocks, UPDATE));
    float sum_n = load(sums + block_at(s, p, blocks, NEW));
    float z = act(c.f, sum_z), past = state_before(s, p, y, h0);
    float d = dh[p.at] + load(dy + p.y), d_n = d * (1 - z) * slope(c.g, sum_n);
    store(dgx + block_at(s, p, 3, UPDATE), d * (past - act(c.g, sum_n)) * slope(c.f, sum_z));
    store(dgx + block_at(s, p, 3, NEW), d_n);
    store(before + p.y, past);
    dh[p.at] = d * z;
    if (!c.after) continue;
    float sum_r = load(sums + block_at(s, p, blocks, RESET));
    float d_r = d_n * load(sums + block_at(s, p, blocks, PRODUCT)) * slope(c.f, sum_r);
    store(dgx + block_at(s, p, 3, RESET), d_r);
    store(inner + p.y, d_n * act(c.f, sum_r));
  }
}

template <class T>
__global__ void gru_backward_reset(RecurrentStep s, GruCell c, const T *sums, const float *kept,
                                   T *dgx, const T *before, T *inner, float *dh) {
  for (int64_t n = first_thread(); n < s.b * s.h; n += all_threads()) {
    Place p = place_of(s, n);
    if (!p.active) continue;
    float sum = load(sums + block_at(s, p, 3, RESET)), r = act(c.f, sum);
    float past = load(before + p.y);
    store(dgx + block_at(s, p, 3, RESET), kept[p.at] * past * slope(c.f, sum));
    store(inner + p.y, r * past);
    dh[p.at] += kept[p.at] * r;
  }
}

// -- RNN

template <class T>
__global__ void rnn_forward(RecurrentStep s, NnrtActivation f, const float *product, const T *gx,
                            T *y, T *sums, float *state, T *last) {
  for (int64_t n = first_thread(); n < s.b * s.h; n += all_threads()) {
    Place p = place_of(s, n);
    float sum = p.active ? load(gx + p.y) + product[p.at] : 0.0f;
    store(sums + p.y, sum);
    if (p.active)
      set_state(p, act(f, sum), y, state, last);
    else
      store(y + p.y, 0);
  }
}

template <class T>
__global__ void rnn_backward(RecurrentStep s, NnrtActivation f, const T *sums, const T *y,
                             const T *h0, const T *dy, T *dgx, T *before, float *dh) {
  for (int64_t n = first_thread(); n < s.b * s.h; n += all_threads()) {
    Place p = place_of(s, n);
    float d = p.active ? (dh[p.at] + load(dy + p.y)) * slope(f, load(sums + p.y)) : 0.0f;
    store(dgx + p.y, d);
    store(before + p.y, p.active ? state_before(s, p, y, h0) : 0.0f);
    if (p.active) dh[p.at] = 0;
  }
}

// -- Around the loop

__global__ void check_lengths(Finder f, const int32_t *lengths, int64_t b, int64_t all) {
  for (int64_t i = first_thread(); i < b; i += all_threads())
    if (lengths[i] < 0 || lengths[i] > all) find_length(f, lengths[i], i, all);
}

template <class T> __global__ void widen(float *to, const T *from, int64_t n) {
  for (int64_t i = first_thread(); i < n; i += all_threads())
    to[i] = load(from + i);
}

template <class T> __global__ void narrow(T *to, const float *from, int64_t n) {
  for (int64_t i = first_thread(); i < n; i += all_threads())
    store(to + i, from[i]);
}

int blocks_of_step(const RecurrentStep *s) {
  return blocks_for(s->b * s->h);
}

} // namespace

int lstm_step(NnrtDtype type, const RecurrentStep *s, const LstmCell *c, const float *product,
              const void *gx, void *y, void *sums, float *cells, float *state, void *last,
              float *cell) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(lstm_forward<T>, blocks_of_step(s), BLOCK, 0, *s, *c, product, (const T *)gx,
                  (T *)y, (T *)sums, cells, state, (T *)last, cell);
  });
}

int lstm_step_back(NnrtDtype type, const RecurrentStep *s, const LstmCell *c, const void *sums,
                   const float *cells, const void *y, const void *h0, const float *c0,
                   const void *dy, void *dgx, void *before, float *dh, float *dc) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(lstm_backward<T>, blocks_of_step(s), BLOCK, 0, *s, *c, (const T *)sums, cells,
                  (const T *)y, (const T *)h0, c0, (const T *)dy, (T *)dgx, (T *)before, dh, dc);
  });
}

int gru_step_gates(NnrtDtype type, const RecurrentStep *s, const GruCell *c, const float *product,
                   const void *gx, void *sums, void *kept, const float *state) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(gru_gates<T>, blocks_of_step(s), BLOCK, 0, *s, *c, product, (const T *)gx,
                  (T *)sums, (T *)kept, state);
  });
}

int gru_step(NnrtDtype type, const RecurrentStep *s, const GruCell *c, const float *product,
             const float *bias, const void *gx, void *y, void *sums, float *state, void *last) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(gru_forward<T>, blocks_of_step(s), BLOCK, 0, *s, *c, product, bias, (const T *)gx,
                  (T *)y, (T *)sums, state, (T *)last);
  });
}

int gru_step_back(NnrtDtype type, const RecurrentStep *s, const GruCell *c, const void *sums,
                  const void *y, const void *h0, const void *dy, void *dgx, void *before,
                  void *inner, float *dh) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(gru_backward<T>, blocks_of_step(s), BLOCK, 0, *s, *c, (const T *)sums,
                  (const T *)y, (const T *)h0, (const T *)dy, (T *)dgx, (T *)before, (T *)inner,
                  dh);
  });
}

int gru_step_back_reset(NnrtDtype type, const RecurrentStep *s, const GruCell *c, const void *sums,
                        const float *kept, void *dgx, const void *before, void *inner, float *dh) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(gru_backward_reset<T>, blocks_of_step(s), BLOCK, 0, *s, *c, (const T *)sums, kept,
                  (T *)dgx, (const T *)before, (T *)inner, dh);
  });
}

int rnn_step(NnrtDtype type, const RecurrentStep *s, const NnrtActivation *f, const float *product,
             const void *gx, void *y, void *sums, float *state, void *last) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(rnn_forward<T>, blocks_of_step(s), BLOCK, 0, *s, *f, product, (const T *)gx,
                  (T *)y, (T *)sums, state, (T *)last);
  });
}

int rnn_step_back(NnrtDtype type, const RecurrentStep *s, const NnrtActivation *f, const void *sums,
                  const void *y, const void *h0, const void *dy, void *dgx, void *before,
                  float *dh) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(rnn_backward<T>, blocks_of_step(s), BLOCK, 0, *s, *f, (const T *)sums,
                  (const T *)y, (const T *)h0, (const T *)dy, (T *)dgx, (T *)before, dh);
  });
}

int recurrent_check(const int32_t *lengths, int64_t b, int64_t all) {
  return launch(check_lengths, blocks_for(b), BLOCK, 0, finder(), lengths, b, all);
}

int recurrent_widen(NnrtDtype type, float *to, const void *from, int64_t n) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(widen<T>, blocks_for(n), BLOCK, 0, to, (const T *)from, n);
  });
}

int recurrent_store(NnrtDtype type, void *to, const float *from, int64_t n) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(narrow<T>, blocks_for(n), BLOCK, 0, (T *)to, from, n);
  });
}
