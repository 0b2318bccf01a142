// Selections of a length that depends on data, up to a bound, with their count.  A block selects
// from a row.

#include "rows.cuh"

// Each thread counts the true elements of a range of the row; a scan of these counts gives the
// places of its own.
static __global__ void select_true(int64_t *index, int64_t *count, const uint8_t *x, int64_t m,
                                   int64_t n, int64_t k, Finder f) {
  __shared__ int64_t counts[BLOCK];
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    int64_t per = (n + BLOCK - 1) / BLOCK, from = threadIdx.x * per, to = from + per, mine = 0;
    if (from > n) from = n;
    if (to > n) to = n;
    for (int64_t i = from; i < to; i++)
      mine += x[row * n + i] != 0;
    __syncthreads(); // all reads of the previous row are done
    counts[threadIdx.x] = mine;
    for (int by = 1; by < BLOCK; by *= 2) {
      __syncthreads();
      int64_t more = (int)threadIdx.x >= by ? counts[threadIdx.x - by] : 0;
      __syncthreads();
      counts[threadIdx.x] += more;
    }
    __syncthreads();
    int64_t place = counts[threadIdx.x] - mine, found = counts[BLOCK - 1];
    for (int64_t i = from; i < to; i++) {
      if (!x[row * n + i]) continue;
      if (place < k) index[row * k + place] = i;
      place++;
    }
    __syncthreads();
    int64_t first = found && k ? index[row * k] : 0;
    for (int64_t j = found + threadIdx.x; j < k; j += BLOCK)
      index[row * k + j] = first;
    if (threadIdx.x == 0) {
      count[row] = found;
      if (found > k) find_count(f, found, row, k);
    }
  }
}

int nnrt_nonzero_bool(int64_t *index, int64_t *count, const uint8_t *x, int64_t m, int64_t n,
                      int64_t k) {
  if (m == 0) return NNRT_OK;
  return launch(select_true, blocks_for_rows(m, 1), BLOCK, 0, index, count, x, m, n, k, finder());
}

// -- Non-maximum suppression -----------------------------------------------------------------

// Low corner, high corner.
struct BoxOf {
  double y0, x0, y1, x1;
};

static __device__ inline BoxOf box_of(const float *b, bool center) {
  double p = b[0], q = b[1], r = b[2], s = b[3];
  if (center) return {p - r / 2, q - s / 2, p + r / 2, q + s / 2};
  return {p < r ? p : r, q < s ? q : s, p < r ? r : p, q < s ? s : q};
}

static __device__ inline bool overlaps(const float *a, const float *b, NnrtNms attrs) {
  BoxOf p = box_of(a, attrs.center), q = box_of(b, attrs.center);
  double height = (p.y1 < q.y1 ? p.y1 : q.y1) - (p.y0 > q.y0 ? p.y0 : q.y0);
  double width = (p.x1 < q.x1 ? p.x1 : q.x1) - (p.x0 > q.x0 ? p.x0 : q.x0);
  double area_p = (p.y1 - p.y0) * (p.x1 - p.x0), area_q = (q.y1 - q.y0) * (q.x1 - q.x0);
  double both = height > 0 && width > 0 ? height * width : 0;
  if (!(area_p > 0) || !(area_q > 0)) return attrs.iou < 0;
  return both / (area_p + area_q - both) > attrs.iou;
}

// Whether score a at i comes before score b at j; index -1: none.
static __device__ inline bool is_before(float a, int64_t i, float b, int64_t j) {
  if (i < 0 || j < 0) return i >= 0;
  return a != b ? a > b : i < j;
}

// The threads find the best box after the last one, and compare it with those selected so far.
static __global__ void select_boxes(int64_t *index, int64_t *count, const float *boxes,
                                    const float *scores, int64_t rows, int64_t c, int64_t n,
                                    int64_t k, NnrtNms attrs) {
  __shared__ float best[BLOCK];
  __shared__ int64_t place[BLOCK];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float *box = boxes + row / c * n * 4, *score = scores + row * n;
    int64_t found = 0, last = -1;
    while (found < k) {
      int64_t mine = -1;
      for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        bool fits = score[i] == score[i] && (!attrs.scored || score[i] > attrs.score);
        bool after = last < 0 || is_before(score[last], last, score[i], i);
        if (fits && after && is_before(score[i], i, mine < 0 ? 0 : score[mine], mine)) mine = i;
      }
      __syncthreads(); // all reads of the previous box are done
      best[threadIdx.x] = mine < 0 ? 0 : score[mine];
      place[threadIdx.x] = mine;
      for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        int other = threadIdx.x + half;
        if ((int)threadIdx.x < half &&
            is_before(best[other], place[other], best[threadIdx.x], place[threadIdx.x])) {
          best[threadIdx.x] = best[other];
          place[threadIdx.x] = place[other];
        }
      }
      __syncthreads();
      last = place[0];
      if (last < 0) break;
      int64_t hits = 0;
      for (int64_t j = threadIdx.x; j < found; j += BLOCK)
        hits += overlaps(box + index[row * k + j] * 4, box + last * 4, attrs);
      __syncthreads();
      place[threadIdx.x] = hits;
      for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) place[threadIdx.x] += place[threadIdx.x + half];
      }
      __syncthreads();
      if (place[0]) continue;
      if (threadIdx.x == 0) index[row * k + found] = last;
      found++;
    }
    for (int64_t j = found + threadIdx.x; j < k; j += BLOCK)
      index[row * k + j] = 0;
    if (threadIdx.x == 0) count[row] = found;
  }
}

int nnrt_nms_f32(int64_t *index, int64_t *count, const float *boxes, const float *scores, int64_t m,
                 int64_t c, int64_t n, int64_t k, const NnrtNms *attrs) {
  if (m * c == 0) return NNRT_OK;
  return launch(select_boxes, blocks_for_rows(m * c, 1), BLOCK, 0, index, count, boxes, scores,
                m * c, c, n, k, *attrs);
}
