// Selections of a length that depends on data, up to a bound, with their count.

#include <math.h>

#include "kernel.h"

int nnrt_nonzero_bool(int64_t *index, int64_t *count, const uint8_t *x, int64_t m, int64_t n,
                      int64_t k) {
  for (int64_t row = 0; row < m; row++) {
    int64_t found = 0, *to = index + row * k;
    const uint8_t *from = x + row * n;
    for (int64_t i = 0; i < n; i++) {
      if (!from[i]) continue;
      if (found < k) to[found] = i;
      found++;
    }
    count[row] = found;
    if (found > k) return nnrt_found(FOUND_count, found, row, 0, k + 1);
    int64_t first = found ? to[0] : 0;
    for (int64_t j = found; j < k; j++)
      to[j] = first;
  }
  return NNRT_OK;
}

// -- Non-maximum suppression -----------------------------------------------------------------

// Low corner, high corner.
typedef struct BoxOf {
  double y0, x0, y1, x1;
} BoxOf;

static BoxOf box_of(const float *b, bool center) {
  if (center)
    return (BoxOf){b[0] - b[2] / 2.0, b[1] - b[3] / 2.0, b[0] + b[2] / 2.0, b[1] + b[3] / 2.0};
  return (BoxOf){fminf(b[0], b[2]), fminf(b[1], b[3]), fmaxf(b[0], b[2]), fmaxf(b[1], b[3])};
}

static bool overlaps(const float *a, const float *b, const NnrtNms *attrs) {
  BoxOf p = box_of(a, attrs->center), q = box_of(b, attrs->center);
  double height = fmin(p.y1, q.y1) - fmax(p.y0, q.y0);
  double width = fmin(p.x1, q.x1) - fmax(p.x0, q.x0);
  double area_p = (p.y1 - p.y0) * (p.x1 - p.x0), area_q = (q.y1 - q.y0) * (q.x1 - q.x0);
  double both = height > 0 && width > 0 ? height * width : 0;
  if (!(area_p > 0) || !(area_q > 0)) return attrs->iou < 0;
  return both / (area_p + area_q - both) > attrs->iou;
}

// Selects the best box that is left, and removes those that overlap it.
static int64_t select_boxes(int64_t *to, const float *boxes, const float *scores, uint8_t *left,
                            int64_t n, int64_t k, const NnrtNms *attrs) {
  int64_t found = 0;
  for (int64_t i = 0; i < n; i++)
    left[i] = scores[i] == scores[i] && (!attrs->scored || scores[i] > attrs->score);
  for (; found < k; found++) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
      if (left[i] && (best < 0 || scores[i] > scores[best])) best = i;
    if (best < 0) break;
    to[found] = best;
    left[best] = 0;
    for (int64_t i = 0; i < n; i++)
      left[i] = left[i] && !overlaps(boxes + best * 4, boxes + i * 4, attrs);
  }
  for (int64_t j = found; j < k; j++)
    to[j] = 0;
  return found;
}

int nnrt_nms_f32(int64_t *index, int64_t *count, const float *boxes, const float *scores, int64_t m,
                 int64_t c, int64_t n, int64_t k, const NnrtNms *attrs) {
  int threads = threads_for(m * c * n * (k + 1));
  uint8_t *left = kernel_scratch((size_t)(m * c * n));
  if (!left) return scratch_failed((size_t)(m * c * n));
#pragma omp parallel for num_threads(threads)
  for (int64_t row = 0; row < m * c; row++)
    count[row] = select_boxes(index + row * k, boxes + row / c * n * 4, scores + row * n,
                              left + row * n, n, k, attrs);
  return NNRT_OK;
}
