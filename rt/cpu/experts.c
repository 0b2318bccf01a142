// Sparse experts: slots of rows, rows at their slots, and products of each row with the matrix of
// its own expert.
//
// A product sorts the rows by expert.  Rows of one expert are copied together, multiplied by the
// library (library.h), and the results copied to their places: two copies of a row beside n or k
// products of it.  The number of rows of an expert differs from step to step, so nothing is
// prepared.

#include "expert_slots.h"
#include "indices.h"
#include "library.h"

// -- Slots -----------------------------------------------------------------------------------

#define EXPERT_SLOTS(name, type)                                                                   \
  int nnrt_expert_slots_##name(int64_t *y, const type *x, int64_t groups, int64_t rows,            \
                               const NnrtSlots *s) {                                               \
    int64_t choices = s->choices ? s->choices : 1, per = s->experts / s->parts;                    \
    size_t bytes = (size_t)s->parts * sizeof(int64_t);                                             \
    int64_t *taken = kernel_scratch(bytes);                                                        \
    if (!taken) return scratch_failed(bytes);                                                      \
    for (int64_t g = 0; g < groups; g++) {                                                         \
      memset(taken, 0, bytes);                                                                     \
      /* First choices first. */                                                                   \
      for (int64_t c = 0; c < choices; c++)                                                        \
        for (int64_t i = g * rows + c; i < (g + 1) * rows; i += choices) {                         \
          int64_t expert = x[i];                                                                   \
          y[i] = -1;                                                                               \
          if (expert == -1) continue;                                                              \
          if (expert < 0 || expert >= s->experts)                                                  \
            return nnrt_found(FOUND_index, expert, i, -1, s->experts);                             \
          int64_t part = expert / per, at = taken[part]++;                                         \
          if (at < s->capacity)                                                                    \
            y[i] = part * s->capacity + at;                                                        \
          else if (!s->drop)                                                                       \
            return nnrt_found(FOUND_capacity, part, g, 0, s->capacity + 1);                        \
        }                                                                                          \
    }                                                                                              \
    return NNRT_OK;                                                                                \
  }
EXPERT_SLOTS(i32, int32_t)
EXPERT_SLOTS(i64, int64_t)

static int check_slots(const Slots *s) {
  for (int64_t i = 0; i < s->groups * s->rows; i++)
    if (s->at[i] < -1 || s->at[i] >= s->all * s->capacity)
      return nnrt_found(FOUND_index, s->at[i], i, -1, s->all * s->capacity);
  return NNRT_OK;
}

// The place of row i among those of all slots; -1: it has none here.
static inline int64_t place_of(const Slots *s, int64_t i) {
  int64_t slot = s->at[i];
  if (slot < 0) return -1;
  int64_t part = slot / s->capacity - s->from;
  if (part < 0 || part >= s->parts) return -1;
  return (part * s->groups + i / s->rows) * s->capacity + slot % s->capacity;
}

// The row of each of all slots, in scratch; -1: none.  Of rows with equal slots the last one stays.
static int64_t *rows_of(const Slots *s) {
  int64_t n = s->parts * s->groups * s->capacity;
  int64_t *row = kernel_scratch((size_t)n * sizeof *row);
  if (!row) return NULL;
  memset(row, 0xff, (size_t)n * sizeof *row);
  for (int64_t i = 0; i < s->groups * s->rows; i++) {
    int64_t place = place_of(s, i);
    if (place >= 0) row[place] = i;
  }
  return row;
}

#define SLOT_ROWS(size)                                                                            \
  int nnrt_dispatch_##size(void *y, const void *x, const int64_t *slots, int64_t y_ndim,           \
                           const int64_t *y_shape, const int64_t *slots_shape, int64_t from,       \
                           int64_t all, bool none) {                                               \
    Slots s = slots_of(slots, slots_shape, y_ndim, y_shape, from, all);                            \
    int64_t count = product(y_shape, 3);                                                           \
    int code = check_slots(&s);                                                                    \
    if (code) return code;                                                                         \
    const int64_t *row = rows_of(&s);                                                              \
    if (!row) return scratch_failed((size_t)count * sizeof *row);                                  \
    _Pragma("omp parallel for num_threads(threads_for(count * s.inner))") for (int64_t i = 0;      \
                                                                               i < count; i++) {   \
      size *to = (size *)y + i * s.inner;                                                          \
      if (row[i] >= 0)                                                                             \
        memcpy(to, (const size *)x + row[i] * s.inner, (size_t)s.inner * sizeof *to);              \
      else                                                                                         \
        memset(to, none ? 0xff : 0, (size_t)s.inner * sizeof *to);                                 \
    }                                                                                              \
    return NNRT_OK;                                                                                \
  }                                                                                                \
  int nnrt_collect_##size(void *y, const void *x, const int64_t *slots, int64_t x_ndim,            \
                          const int64_t *x_shape, const int64_t *slots_shape, int64_t from,        \
                          int64_t all) {                                                           \
    Slots s = slots_of(slots, slots_shape, x_ndim, x_shape, from, all);                            \
    int64_t count = s.groups * s.rows;                                                             \
    int code = check_slots(&s);                                                                    \
    if (code) return code;                                                                         \
    _Pragma("omp parallel for num_threads(threads_for(count * s.inner))") for (int64_t i = 0;      \
                                                                               i < count; i++) {   \
      int64_t place = place_of(&s, i);                                                             \
      size *to = (size *)y + i * s.inner;                                                          \
      if (place >= 0)                                                                              \
        memcpy(to, (const size *)x + place * s.inner, (size_t)s.inner * sizeof *to);               \
      else                                                                                         \
        memset(to, 0, (size_t)s.inner * sizeof *to);                                               \
    }                                                                                              \
    return NNRT_OK;                                                                                \
  }
NNRT_BY_SIZE(SLOT_ROWS)

// -- Products --------------------------------------------------------------------------------

// The rows of each expert: those of expert e are row[start[e]] to row[start[e + 1]].
typedef struct Groups {
  int64_t *start, *row, rows, most;
  float *x, *y; // of the largest group
} Groups;

// Sorts the rows by expert, stably.  Scratch is for one group of rows of `k` and of `n` numbers.
static int sort_rows(Groups *s, const void *index, int64_t width, int64_t rows, int64_t experts,
                     int64_t from, int64_t all, int64_t parts, int64_t k, int64_t n) {
  int64_t per_rows = parts ? rows / parts : rows, per = parts ? experts / parts : experts;
  // The sizes of groups, before there is scratch for them.
  int64_t *count = calloc((size_t)experts + 2, sizeof *count);
  if (!count) {
    scratch_failed((size_t)(experts + 2) * sizeof *count);
    return NNRT_MEMORY;
  }
  int code = NNRT_OK;
  for (int64_t i = 0; i < rows && !code; i++) {
    int64_t expert = index_at(index, width, i);
    if (expert < -1 || expert >= all) code = nnrt_found(FOUND_index, expert, i, -1, all);
    int64_t low = parts ? i / per_rows * per : 0, local = expert - from - low;
    if (expert >= 0 && local >= 0 && local < per) count[low + local + 2]++;
  }
  s->rows = rows;
  s->most = 0;
  for (int64_t e = 0; e < experts; e++)
    if (count[e + 2] > s->most) s->most = count[e + 2];
  size_t starts = round_64((size_t)(experts + 2) * sizeof(int64_t));
  size_t list = round_64((size_t)rows * sizeof(int64_t));
  size_t panel = round_64((size_t)(s->most * k) * sizeof(float));
  size_t bytes = starts + list + panel + round_64((size_t)(s->most * n) * sizeof(float));
  // Products run meanwhile, and may use the other block.
  char *scratch = code ? NULL : kernel_outer_scratch(bytes);
  if (!scratch) {
    free(count);
    if (code) return code;
    scratch_failed(bytes);
    return NNRT_MEMORY;
  }
  s->start = (int64_t *)scratch;
  s->row = (int64_t *)(scratch + starts);
  s->x = (float *)(scratch + starts + list);
  s->y = (float *)(scratch + starts + list + panel);
  // start[e + 1] is the next place of expert e, and so at last the start of expert e + 1.
  for (int64_t e = 0; e < experts; e++)
    count[e + 2] += count[e + 1];
  memcpy(s->start, count, (size_t)(experts + 2) * sizeof *count);
  free(count);
  for (int64_t i = 0; i < rows; i++) {
    int64_t expert = index_at(index, width, i);
    int64_t low = parts ? i / per_rows * per : 0, local = expert - from - low;
    if (expert >= 0 && local >= 0 && local < per) s->row[s->start[low + local + 1]++] = i;
  }
  return NNRT_OK;
}

static void take_rows(float *to, const float *x, const int64_t *row, int64_t n, int64_t k) {
#pragma omp parallel for num_threads(threads_for(n *k))
  for (int64_t i = 0; i < n; i++)
    memcpy(to + i * k, x + row[i] * k, (size_t)k * sizeof *to);
}

int nnrt_grouped_linear_f32(float *y, const float *w, const float *x, const void *index,
                            int64_t at_ndim, const int64_t *at_shape, const int64_t *w_shape,
                            int64_t from, int64_t all, int64_t width, bool trans, bool parts) {
  int64_t rows = product(at_shape, at_ndim), k = w_shape[trans ? 2 : 1], n = w_shape[trans ? 1 : 2];
  Groups s;
  int code =
      sort_rows(&s, index, width, rows, w_shape[0], from, all, parts ? at_shape[0] : 0, k, n);
  if (code) return code;
  // Rows without an expert here are zero.
  memset(y, 0, (size_t)(rows * n) * sizeof *y);
  for (int64_t e = 0; e < w_shape[0] && !code; e++) {
    const int64_t *row = s.row + s.start[e];
    int64_t m = s.start[e + 1] - s.start[e];
    if (m == 0 || n == 0 || k == 0) continue;
    take_rows(s.x, x, row, m, k);
    code = library_multiply(false, trans, m, n, k, s.x, k, w + e * k * n, trans ? k : n, s.y);
#pragma omp parallel for num_threads(threads_for(m *n))
    for (int64_t i = 0; i < m; i++)
      memcpy(y + row[i] * n, s.y + i * n, (size_t)n * sizeof *y);
  }
  return code;
}

int nnrt_grouped_linear_back_w_f32(float *dw, const void *index, const float *x, const float *dy,
                                   int64_t at_ndim, const int64_t *at_shape, const int64_t *w_shape,
                                   int64_t from, int64_t all, int64_t width, bool trans,
                                   bool parts) {
  int64_t rows = product(at_shape, at_ndim), k = w_shape[trans ? 2 : 1], n = w_shape[trans ? 1 : 2];
  Groups s;
  int code =
      sort_rows(&s, index, width, rows, w_shape[0], from, all, parts ? at_shape[0] : 0, k, n);
  if (code) return code;
  for (int64_t e = 0; e < w_shape[0] && !code; e++) {
    const int64_t *row = s.row + s.start[e];
    int64_t m = s.start[e + 1] - s.start[e];
    float *to = dw + e * k * n;
    // An expert without rows has no gradient.
    if (m == 0 || n == 0 || k == 0) {
      memset(to, 0, (size_t)(k * n) * sizeof *to);
      continue;
    }
    take_rows(s.x, x, row, m, k);
    take_rows(s.y, dy, row, m, n);
    code = trans ? library_multiply(true, false, n, k, m, s.y, n, s.x, k, to)
                 : library_multiply(true, false, k, n, m, s.x, k, s.y, n, to);
  }
  return code;
}
