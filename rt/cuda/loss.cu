// Cross-entropy of logits (m, c) with labels (m), the negative log-likelihood of log-probabilities,
// and their gradients.
//
// A warp computes a row of up to 1024 classes, a block a longer one.  Forward computes the maximum
// and the sum of exponentials in one read (ExpSum), and saves one number per row for the gradient.
// The probabilities are never stored: the gradient is computed from the logits, in place if they
// are not needed again.
//
//     cross_entropy        reads logits and labels, writes loss and lse
//     cross_entropy_back   reads logits, labels, lse, dloss, writes dlogits
//     lse_parts            reads logits, writes lse of each part of a row
//
// In all but cross_entropy itself the classes may be a shard: see Classes.
//
// Rows of a vocabulary of 50257 do not begin at multiples of 16 bytes; packs begin at the first
// multiple in the row.
//
// A label that is neither a class nor `ignore` is reported (Finder); the loss of its row is NaN.

#include "loss.h"
#include "rows.cuh"

// Packs that a thread reads before it writes one.  The compiler cannot reorder reads in place.
enum { AT_ONCE = 4 };

// The elements of a row of n that are accessed in packs: from `head` to before `end`.
struct RowPacks {
  int64_t head, end;
};
template <class T, int V> static __device__ inline RowPacks row_packs(const T *row, int64_t n) {
  int64_t head = (int64_t)((16 - (uintptr_t)row % 16) % 16 / sizeof(T));
  head = head < n ? head : n;
  return RowPacks{head, head + (n - head) / V * V};
}

// Maximal threads of a block that computes a row.  Such blocks get enough registers only if the
// compiler knows the maximum.
enum { LARGE = 4 * BLOCK };

// The labels from 0 to `all` are classes; c columns are local, from number `from` on.  Columns from
// number `all` on are padding: they do not count, and have gradient 0.
struct Classes {
  int64_t c, from, all, ignore;
};
// The columns before the padding, of c columns from `from` on.
static __host__ __device__ inline int64_t unpadded(int64_t c, int64_t from, int64_t all) {
  int64_t n = all - from;
  return n < 0 ? 0 : n > c ? c : n;
}
enum LabelKind { IGNORED, OUTSIDE, ELSEWHERE, HERE };
static __device__ inline LabelKind label_kind(int64_t label, Classes k) {
  if (label == k.ignore) return IGNORED;
  if (label < 0 || label >= k.all) return OUTSIDE;
  return label < k.from || label >= k.from + k.c ? ELSEWHERE : HERE;
}

// The sum of exponentials of a row of c, by a warp or a block: all its threads get it.
template <class T, bool BY_WARPS>
static __device__ inline ExpSum row_exp_sum(const T *x, int64_t c, int64_t lane, int64_t threads) {
  constexpr int V = Width<T>::most;
  RowPacks at = row_packs<T, V>(x, c);
  ExpSum s = {-INFINITY, 0};
  // The elements before the first pack, then the packs, then the rest.
  if (lane < at.head) {
    float v[1] = {load(x + lane)};
    add_exps<T, 1>(s, v);
  }
  UNROLL_4
  for (int64_t i = at.head + lane * V; i < at.end; i += threads * V) {
    Pack<T, V> p = read_pack<T, V>(x + i);
    float v[V];
    UNROLL
    for (int k = 0; k < V; k++)
      v[k] = load(&p.at[k]);
    add_exps<T, V>(s, v);
  }
  if (lane < c - at.end) {
    float v[1] = {load(x + at.end + lane)};
    add_exps<T, 1>(s, v);
  }
  return group_exp_sum<T>(s, !BY_WARPS);
}

template <class T, bool BY_WARPS>
static __global__ void __launch_bounds__(BY_WARPS ? BLOCK : LARGE)
    cross_entropy_rows(float *loss, float *lse, const T *logits, int64_t ld, const void *labels,
                       int64_t m, Classes k, int64_t width, Finder f) {
  int64_t threads = BY_WARPS ? WARP : blockDim.x;
  int64_t first = BY_WARPS ? first_thread() / WARP : blockIdx.x;
  int64_t rows = BY_WARPS ? all_threads() / WARP : gridDim.x;
  int64_t lane = BY_WARPS ? threadIdx.x % WARP : threadIdx.x;
  for (int64_t row = first; row < m; row += rows) {
    const T *x = logits + row * ld;
    // The log-sum-exp of the row.
    float whole = log_of(row_exp_sum<T, BY_WARPS>(x, k.all, lane, threads));
    if (lane > 0) continue;
    int64_t label = index_at(labels, width, row);
    LabelKind kind = label_kind(label, k);
    if (kind == OUTSIDE) find_label(f, label, row, k.all);
    lse[row] = whole;
    loss[row] = kind == IGNORED ? 0.0f : kind == OUTSIDE ? NAN : whole - load(x + label);
  }
}

// x (rows, c) -> the log-sum-exp of each row, of which g are those of a row of classes
template <class T, bool BY_WARPS>
static __global__ void __launch_bounds__(BY_WARPS ? BLOCK : LARGE)
    lse_rows(float *lse, const T *x, int64_t rows, int64_t g, int64_t c, int64_t from,
             int64_t all) {
  int64_t threads = BY_WARPS ? WARP : blockDim.x;
  int64_t lane = BY_WARPS ? threadIdx.x % WARP : threadIdx.x;
  for (int64_t row = BY_WARPS ? first_thread() / WARP : blockIdx.x; row < rows;
       row += BY_WARPS ? all_threads() / WARP : gridDim.x) {
    int64_t n = unpadded(c, from + row % g * c, all);
    float whole = log_of(row_exp_sum<T, BY_WARPS>(x + row * c, n, lane, threads));
    if (lane == 0) lse[row] = whole;
  }
}

// (e^(x - lse) - [j is the label]) dloss; 0 in a row that is ignored
struct RowBack {
  float lse, dloss;
  int64_t label; // relative to the first local class
  bool counts;
};
template <class T>
static __device__ inline void back_one(T *y, float x, bool is_label, const RowBack &r) {
  float p = exp_for<T>(x - r.lse);
  store(y, r.counts ? (p - (is_label ? 1.0f : 0.0f)) * r.dloss : 0.0f);
}

template <class T, bool BY_WARPS>
static __global__ void __launch_bounds__(BY_WARPS ? BLOCK : LARGE)
    cross_entropy_back_rows(T *dlogits, const T *logits, int64_t ld, const void *labels,
                            const float *lse, const float *dloss, int64_t m, Classes classes,
                            int64_t width, Finder f) {
  constexpr int V = Width<T>::most;
  int64_t c = unpadded(classes.c, classes.from, classes.all);
  int64_t threads = BY_WARPS ? WARP : blockDim.x;
  int64_t first = BY_WARPS ? first_thread() / WARP : blockIdx.x;
  int64_t rows = BY_WARPS ? all_threads() / WARP : gridDim.x;
  int64_t lane = BY_WARPS ? threadIdx.x % WARP : threadIdx.x;
  for (int64_t row = first; row < m; row += rows) {
    const T *x = logits + row * ld;
    T *y = dlogits + row * ld;
    int64_t label = index_at(labels, width, row);
    LabelKind kind = label_kind(label, classes);
    if (kind == OUTSIDE && lane == 0) find_label(f, label, row, classes.all);
    // A label in another shard has no local class, but its row counts.
    RowBack r = {lse[row], dloss[row], label - classes.from, kind == HERE || kind == ELSEWHERE};
    RowPacks at = row_packs<T, V>(x, c);
    // Packs need the same alignment in both.
    if ((uintptr_t)x % 16 != (uintptr_t)y % 16) at = RowPacks{0, 0};
    if (lane < at.head) back_one(y + lane, load(x + lane), lane == r.label, r);
    // AT_ONCE packs are read before the first is written.
    for (int64_t from = at.head + lane * V; from < at.end; from += AT_ONCE * threads * V) {
      Pack<T, V> p[AT_ONCE];
      UNROLL
      for (int u = 0; u < AT_ONCE; u++)
        if (from + u * threads * V < at.end) p[u] = read_pack<T, V>(x + from + u * threads * V);
      UNROLL
      for (int u = 0; u < AT_ONCE; u++) {
        int64_t i = from + u * threads * V;
        if (i >= at.end) continue;
        // The label's position in this pack; -1: elsewhere.
        int64_t from_label = r.label - i;
        int label = from_label >= 0 && from_label < V ? (int)from_label : -1;
        UNROLL
        for (int k = 0; k < V; k++)
          back_one(&p[u].at[k], load(&p[u].at[k]), k == label, r);
        write_pack(y + i, p[u]);
      }
    }
    // The elements after the last pack, and the padding.
    for (int64_t i = at.end + lane; i < c; i += threads)
      back_one(y + i, load(x + i), i == r.label, r);
    for (int64_t i = c + lane; i < classes.c; i += threads)
      store(y + i, 0.0f);
  }
}

// loss = -logp[label]
template <class T>
static __global__ void nll_rows(float *loss, const T *logp, const void *labels, int64_t m,
                                Classes k, int64_t width, Finder f) {
  for (int64_t row = first_thread(); row < m; row += all_threads()) {
    int64_t label = index_at(labels, width, row);
    LabelKind kind = label_kind(label, k);
    if (kind == OUTSIDE) find_label(f, label, row, k.all);
    // A label in another shard adds 0: the shards' losses are added up.
    loss[row] = kind == HERE      ? -load(logp + row * k.c + label - k.from)
                : kind == OUTSIDE ? NAN
                                  : 0.0f;
  }
}

// dlogp is zero already.
static __global__ void nll_back_rows(float *dlogp, const void *labels, const float *dloss,
                                     int64_t m, Classes k, int64_t width, Finder f) {
  for (int64_t row = first_thread(); row < m; row += all_threads()) {
    int64_t label = index_at(labels, width, row);
    LabelKind kind = label_kind(label, k);
    if (kind == OUTSIDE) find_label(f, label, row, k.all);
    if (kind == HERE) dlogp[row * k.c + label - k.from] = -dloss[row];
  }
}

// Threads of a block for rows: more if there are few rows.
static int row_threads(int64_t m) {
  return m < 4 * (int64_t)nnrt_gpu()->processors ? (int)LARGE : (int)BLOCK;
}

template <class T>
static int cross_entropy(float *loss, float *lse, const T *logits, int64_t ld, const void *labels,
                         int64_t m, int64_t c, int64_t all, int64_t width, int64_t ignore) {
  Classes k = {c, 0, all, ignore};
  if (m == 0) return NNRT_OK;
  if (c <= WARP * HELD)
    return launch(cross_entropy_rows<T, true>, blocks_for_rows(m, ROWS), BLOCK, 0, loss, lse,
                  logits, ld, labels, m, k, width, finder());
  return launch(cross_entropy_rows<T, false>, blocks_for_rows(m, 1), row_threads(m), 0, loss, lse,
                logits, ld, labels, m, k, width, finder());
}

template <class T>
static int lse_parts(float *lse, const T *x, int64_t rows, int64_t g, int64_t c, int64_t from,
                     int64_t all) {
  if (rows == 0) return NNRT_OK;
  if (c <= WARP * HELD)
    return launch(lse_rows<T, true>, blocks_for_rows(rows, ROWS), BLOCK, 0, lse, x, rows, g, c,
                  from, all);
  return launch(lse_rows<T, false>, blocks_for_rows(rows, 1), row_threads(rows), 0, lse, x, rows, g,
                c, from, all);
}

template <class T>
static int cross_entropy_back(T *dlogits, const T *logits, int64_t ld, const void *labels,
                              const float *lse, const float *dloss, int64_t m, Classes k,
                              int64_t width) {
  if (m == 0) return NNRT_OK;
  if (k.c <= WARP * HELD)
    return launch(cross_entropy_back_rows<T, true>, blocks_for_rows(m, ROWS), BLOCK, 0, dlogits,
                  logits, ld, labels, lse, dloss, m, k, width, finder());
  return launch(cross_entropy_back_rows<T, false>, blocks_for_rows(m, 1), row_threads(m), 0,
                dlogits, logits, ld, labels, lse, dloss, m, k, width, finder());
}

template <class T>
static int nll(float *loss, const T *logp, const void *labels, int64_t m, Classes k,
               int64_t width) {
  if (m == 0) return NNRT_OK;
  return launch(nll_rows<T>, blocks_for(m), BLOCK, 0, loss, logp, labels, m, k, width, finder());
}

#define LOSSES(suffix, C, T)                                                                       \
  int nnrt_cross_entropy_##suffix(float *loss, float *lse, const C *logits, const void *labels,    \
                                  int64_t m, int64_t c, int64_t width, int64_t ignore,             \
                                  int64_t classes) {                                               \
    return cross_entropy(loss, lse, (const T *)logits, c, labels, m, c, classes ? classes : c,     \
                         width, ignore);                                                           \
  }                                                                                                \
  int nnrt_cross_entropy_back_##suffix(C *dlogits, const C *logits, const void *labels,            \
                                       const float *lse, const float *dloss, int64_t m, int64_t c, \
                                       int64_t from, int64_t all, int64_t width, int64_t ignore) { \
    return cross_entropy_back((T *)dlogits, (const T *)logits, c, labels, lse, dloss, m,           \
                              Classes{c, from, all, ignore}, width);                               \
  }                                                                                                \
  int nnrt_nll_##suffix(float *loss, const C *logp, const void *labels, int64_t m, int64_t c,      \
                        int64_t from, int64_t all, int64_t width, int64_t ignore) {                \
    return nll(loss, (const T *)logp, labels, m, Classes{c, from, all, ignore}, width);            \
  }                                                                                                \
  int nnrt_lse_parts_##suffix(float *y, const C *x, int64_t m, int64_t g, int64_t c, int64_t from, \
                              int64_t all) {                                                       \
    return lse_parts(y, (const T *)x, m * g, g, c, from, all);                                     \
  }
FOR_FLOATS(LOSSES)

int nnrt_cross_entropy_ld(NnrtDtype t, float *loss, float *lse, const void *logits, int64_t ld,
                          const void *labels, int64_t m, int64_t c, int64_t width, int64_t ignore) {
  return with_type(t, [&](auto element) {
    using T = decltype(element);
    return cross_entropy(loss, lse, (const T *)logits, ld, labels, m, c, c, width, ignore);
  });
}

int nnrt_cross_entropy_back_ld(NnrtDtype t, void *dlogits, const void *logits, int64_t ld,
                               const void *labels, const float *lse, const float *dloss, int64_t m,
                               int64_t c, int64_t width, int64_t ignore) {
  return with_type(t, [&](auto element) {
    using T = decltype(element);
    return cross_entropy_back((T *)dlogits, (const T *)logits, ld, labels, lse, dloss, m,
                              Classes{c, 0, c, ignore}, width);
  });
}

int nnrt_nll_back_f32(float *dlogp, const void *labels, const float *dloss, int64_t m, int64_t c,
                      int64_t from, int64_t all, int64_t width, int64_t ignore) {
  if (m * c == 0) return NNRT_OK;
  // One element per row is not 0.
  int code = nnrt_zero(dlogp, m * c * (int64_t)sizeof *dlogp);
  if (code) return code;
  return launch(nll_back_rows, blocks_for(m), BLOCK, 0, dlogp, labels, dloss, m,
                Classes{c, from, all, ignore}, width, finder());
}
