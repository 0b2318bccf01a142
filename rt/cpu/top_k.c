// The indices of the k best elements of each row, by a heap with the worst of them at its root,
// which is sorted at the end.  The heap is the row's result.

#include "kernel.h"

// Whether element i of row x comes before element j.  A NaN is larger than every number; of equal
// elements the lower index comes first.
#define PRECEDES(name, type)                                                                       \
  static inline bool precedes_##name(const type *x, int64_t i, int64_t j, bool smallest) {         \
    type a = x[smallest ? j : i], b = x[smallest ? i : j];                                         \
    bool a_nan = a != a, b_nan = b != b;                                                           \
    if (a_nan || b_nan) return a_nan == b_nan ? i < j : a_nan;                                     \
    return a == b ? i < j : a > b;                                                                 \
  }
// Moves the root of a heap of n down to its place.
#define SINK(name, type)                                                                           \
  static void sink_##name(int64_t *heap, int64_t n, const type *x, bool smallest) {                \
    int64_t i = 0, moved = heap[0];                                                                \
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {                                      \
      if (child + 1 < n && precedes_##name(x, heap[child], heap[child + 1], smallest)) child++;    \
      if (!precedes_##name(x, moved, heap[child], smallest)) break;                                \
      heap[i] = heap[child];                                                                       \
    }                                                                                              \
    heap[i] = moved;                                                                               \
  }
#define ROW(name, type)                                                                            \
  static void row_##name(int64_t *heap, const type *x, int64_t n, int64_t k, bool smallest) {      \
    for (int64_t i = 0; i < k; i++) {                                                              \
      int64_t at = i;                                                                              \
      for (; at > 0 && precedes_##name(x, heap[(at - 1) / 2], i, smallest); at = (at - 1) / 2)     \
        heap[at] = heap[(at - 1) / 2];                                                             \
      heap[at] = i;                                                                                \
    }                                                                                              \
    for (int64_t i = k; i < n; i++) {                                                              \
      if (!precedes_##name(x, i, heap[0], smallest)) continue;                                     \
      heap[0] = i;                                                                                 \
      sink_##name(heap, k, x, smallest);                                                           \
    }                                                                                              \
    for (int64_t i = k - 1; i > 0; i--) {                                                          \
      int64_t worst = heap[0];                                                                     \
      heap[0] = heap[i];                                                                           \
      sink_##name(heap, i, x, smallest);                                                           \
      heap[i] = worst;                                                                             \
    }                                                                                              \
  }
#define TOP_K(name, type)                                                                          \
  PRECEDES(name, type)                                                                             \
  SINK(name, type)                                                                                 \
  ROW(name, type)                                                                                  \
  int nnrt_top_k_##name(int64_t *y, const type *x, int64_t m, int64_t n, int64_t k,                \
                        bool smallest) {                                                           \
    int threads = threads_for(m * n);                                                              \
    if (k == 0) return NNRT_OK;                                                                    \
    _Pragma("omp parallel for num_threads(threads)") for (int64_t i = 0; i < m; i++)               \
        row_##name(y + i * k, x + i * n, n, k, smallest);                                          \
    return NNRT_OK;                                                                                \
  }
TOP_K(f32, float)
TOP_K(i32, int32_t)
TOP_K(i64, int64_t)
