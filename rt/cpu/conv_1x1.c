// Convolutions with filters of 1 x 1 and their gradients, channels last: a position of y reads one
// position of x, so each of the three is a product of plain matrices (linear.c).
//
//     y (rows, o) = x w'       dx (rows, c) = dy w       dw (o, c) = dy' x
//
// The rows are the positions of y of all images.  With a stride, x has positions between them: the
// rows that y reads are copied to a matrix of their own, and rows of dx are copied back, with zeros
// between them.
//
// oneDNN's convolutions read weights in a blocked format and write their gradient in one, so every
// step reorders them, at the speed of memory, and slower if rows are a power of two apart.  With
// many rows that does not matter.  Milliseconds of one core of a Zen 5 with AVX-512, oneDNN 3.2's
// convolution and the product, batch 8:
//
//     x: channels               forward      dx           dw
//     24x24: 64 > 256    f32    0.66 0.65    0.85 0.76    1.20 1.09
//                        bf16   0.32 0.33    0.32 0.33    0.48 0.65
//     12x12: 512 > 128   f32    0.69 0.73    0.66 0.63    0.81 0.85
//                        bf16   0.37 0.33    0.35 0.32    0.47 0.42
//     6x6: 1024 > 512    f32    1.78 1.32    1.49 1.37    2.56 1.34
//                        bf16   0.90 0.72    0.92 0.69    1.90 0.69
//     3x3: 2048 > 512    f32    1.83 0.74    1.00 0.82    2.87 0.68
//                        bf16   1.31 0.38    0.97 0.41    2.94 0.35

#include "conv_1x1.h"

#include "linear.h"

typedef struct Conv1x1 {
  NnrtPrep base;
  NnrtPrep *product;
  Direction direction;
  int64_t batch, rows, c;        // rows and c: of the matrix of x
  int64_t element;               // bytes of an element of x
  bool strided;                  // x has positions that y does not read
  int64_t x[3], y[3], stride[3]; // spatial, as three dimensions
} Conv1x1;

static void conv_1x1_free(NnrtPrep *p) {
  nnrt_prep_free(((Conv1x1 *)p)->product);
  free(p);
}

bool conv_1x1_is(const NnrtPrep *p) {
  return p->free == conv_1x1_free;
}

static int64_t rows_of(const Conv *c) {
  return c->y[0] * product(c->y + 2, c->ndim - 2);
}

bool conv_1x1_fits(NnrtDtype type, const Conv *c, Direction direction) {
  if (!c->channels_last || c->group > 1 || product(c->w + 2, c->ndim - 2) != 1) return false;
  for (int64_t i = 0; i < c->ndim - 2; i++)
    if (c->low[i] || c->high[i]) return false;
  // With more rows oneDNN's convolution is as fast or faster; see the table above.
  enum { ROWS = 4096, SUMMED_ROWS = 2048, CHANNELS = 64 };
  int64_t rows = rows_of(c);
  if (direction != BACK_W) return rows <= ROWS;
  return rows <= SUMMED_ROWS || (type == NNRT_f32 && c->x[1] >= CHANNELS);
}

// --fpmath is for products alone, not for convolutions.
static NnrtPrep *product_of(NnrtDtype type, Direction direction, int64_t rows, int64_t c,
                            int64_t o) {
  GemmType t = type == NNRT_f32 ? GEMM_f32 : GEMM_bf16;
  switch (direction) {
  case FORWARD: return linear_prep(t, rows, c, o, true, false);
  case BACK_X: return matmul_prep(t, 1, rows, c, o, false, false, false);
  case BACK_W: return linear_back_w_prep(t, rows, c, o, true, false);
  }
  return NULL;
}

NnrtPrep *conv_1x1_prep(NnrtDtype type, const Conv *c, Direction direction) {
  Conv1x1 *s = malloc(sizeof *s);
  if (!s) {
    nnrt_error(NNRT_MEMORY, "conv: no memory");
    return NULL;
  }
  *s = (Conv1x1){.base = {conv_1x1_free},
                 .direction = direction,
                 .rows = rows_of(c),
                 .c = c->x[1],
                 .element = type == NNRT_f32 ? 4 : 2,
                 .batch = c->x[0],
                 .x = {1, 1, 1},
                 .y = {1, 1, 1},
                 .stride = {1, 1, 1}};
  // The last spatial dimension is the last of the three.
  for (int64_t i = c->ndim - 1, to = 2; i >= 2; i--, to--) {
    s->x[to] = c->x[i];
    s->y[to] = c->y[i];
    s->stride[to] = c->stride[i - 2];
    if (c->x[i] != c->y[i]) s->strided = true;
  }
  s->product = product_of(type, direction, s->rows, s->c, c->y[1]);
  if (s->product) return &s->base;
  free(s);
  return NULL;
}

// Runs the product on matrices of rows.
static int run_product(const Conv1x1 *s, void *result, const void *first, const void *second) {
  // dx is dy w, but the operands are in the order w, dy.
  bool swap = s->direction == BACK_X;
  return product_run(s->product, result, swap ? second : first, swap ? first : second);
}

// matrix (batch, y, c) = the positions of x that y reads; y_line is one of the last dimension of y.
static void gather_line(const Conv1x1 *s, char *matrix, const char *x, int64_t y_line) {
  int64_t j = y_line % s->y[1], i = y_line / s->y[1] % s->y[0], b = y_line / s->y[1] / s->y[0];
  int64_t bytes = s->c * s->element;
  x += ((b * s->x[0] + i * s->stride[0]) * s->x[1] + j * s->stride[1]) * s->x[2] * bytes;
  matrix += y_line * s->y[2] * bytes;
  for (int64_t k = 0; k < s->y[2]; k++)
    memcpy(matrix + k * bytes, x + k * s->stride[2] * bytes, (size_t)bytes);
}

// dx (batch, x, c) = the rows of matrix, and zeros at positions that y does not read.
static void scatter_line(const Conv1x1 *s, char *dx, const char *matrix, int64_t x_line) {
  int64_t j = x_line % s->x[1], i = x_line / s->x[1] % s->x[0], b = x_line / s->x[1] / s->x[0];
  int64_t bytes = s->c * s->element;
  dx += x_line * s->x[2] * bytes;
  bool read = i % s->stride[0] == 0 && j % s->stride[1] == 0;
  if (!read) {
    memset(dx, 0, (size_t)(s->x[2] * bytes));
    return;
  }
  int64_t y_line = (b * s->y[0] + i / s->stride[0]) * s->y[1] + j / s->stride[1];
  matrix += y_line * s->y[2] * bytes;
  for (int64_t k = 0; k < s->x[2]; k++)
    if (k % s->stride[2] == 0)
      memcpy(dx + k * bytes, matrix + k / s->stride[2] * bytes, (size_t)bytes);
    else
      memset(dx + k * bytes, 0, (size_t)bytes);
}

static void gather(const Conv1x1 *s, char *matrix, const char *x) {
#pragma omp parallel for num_threads(threads_for(s->rows * s->c))
  for (int64_t i = 0; i < s->batch * s->y[0] * s->y[1]; i++)
    gather_line(s, matrix, x, i);
}

static void scatter(const Conv1x1 *s, char *dx, const char *matrix) {
#pragma omp parallel for num_threads(threads_for(s->rows * s->c))
  for (int64_t i = 0; i < s->batch * s->x[0] * s->x[1]; i++)
    scatter_line(s, dx, matrix, i);
}

int conv_1x1_run(NnrtPrep *p, void *result, const void *first, const void *second) {
  const Conv1x1 *s = (Conv1x1 *)p;
  if (!s->strided) return run_product(s, result, first, second);
  size_t bytes = (size_t)(s->rows * s->c * s->element);
  char *matrix = kernel_outer_scratch(bytes);
  if (!matrix) return scratch_failed(bytes);
  if (s->direction == BACK_X) {
    int code = run_product(s, matrix, first, second);
    if (!code) scatter(s, result, matrix);
    return code;
  }
  gather(s, matrix, first);
  return run_product(s, result, matrix, second);
}
