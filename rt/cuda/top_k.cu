// The indices of the k best elements of each row.  A block selects one after the other: the best of
// the elements that come after the last one.  That reads the row k times, which is little for the
// experts of a router or the samples of a beam.

#include "rows.cuh"

template <class T> struct Element {
  T x;
  int64_t at; // -1: none
};

// Whether a comes before b.  A NaN is larger than every number; of equal elements the lower index
// comes first.
template <class T>
static __device__ inline bool precedes(Element<T> a, Element<T> b, bool smallest) {
  if (a.at < 0 || b.at < 0) return a.at >= 0;
  bool a_nan = a.x != a.x, b_nan = b.x != b.x;
  if (a_nan != b_nan) return smallest ? b_nan : a_nan;
  if (!a_nan && a.x != b.x) return smallest ? a.x < b.x : a.x > b.x;
  return a.at < b.at;
}

template <class T>
static __global__ void select_rows(int64_t *y, const T *x, int64_t m, int64_t n, int64_t k,
                                   bool smallest) {
  __shared__ Element<T> best[BLOCK];
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    Element<T> last = {0, -1};
    for (int64_t j = 0; j < k; j++) {
      Element<T> mine = {0, -1};
      for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        Element<T> here = {x[row * n + i], i};
        if ((j == 0 || precedes(last, here, smallest)) && precedes(here, mine, smallest))
          mine = here;
      }
      __syncthreads(); // all reads of the previous one are done
      best[threadIdx.x] = mine;
      // Halves of the block, until one is left.
      for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half &&
            precedes(best[threadIdx.x + half], best[threadIdx.x], smallest))
          best[threadIdx.x] = best[threadIdx.x + half];
      }
      __syncthreads();
      last = best[0];
      if (threadIdx.x == 0) y[row * k + j] = last.at;
    }
  }
}

template <class T>
static int top_k(int64_t *y, const T *x, int64_t m, int64_t n, int64_t k, bool smallest) {
  if (m * k == 0) return NNRT_OK;
  return launch(select_rows<T>, blocks_for_rows(m, 1), BLOCK, 0, y, x, m, n, k, smallest);
}

#define TOP_K(name, T)                                                                             \
  int nnrt_top_k_##name(int64_t *y, const T *x, int64_t m, int64_t n, int64_t k, bool smallest) {  \
    return top_k(y, x, m, n, k, smallest);                                                         \
  }
TOP_K(f32, float)
TOP_K(i32, int32_t)
TOP_K(i64, int64_t)
