// Convolutions on small maps and their gradients, as products of matrices per tap of the filter.
//
//     y[p]  = sum over taps t of  x[q] w[t]      (batch, c) (c, o)      q = p stride - low + t dilation
//     dx[q] = sum over taps t of dy[p] w[t]'     (batch, o) (o, c)
//     dw[t] = sum over p of      dy[p]' x[q]     (o, batch) (batch, c)
//
// Only pairs (p, q) inside of both maps are summed: on a map of 2 x 2, a filter of 3 x 3 has 16 of
// them, and 36 with the padding that a loop over all taps multiplies by zeros.  The pairs of each
// result are listed once, and one call of tile_product computes the sum of all.
//
// For y and dx a thread takes the outputs `lanes` at a time: it packs their weights for all taps,
// (taps, steps, lanes), which then stay in its L2 cache for all positions, so that all weights are
// read once.  For dw a thread takes a tile (o, c) of all taps, and writes it in the order of w.
// The small tensors are packed before, position by position, and so is the result of y and dx.
//
// No sum depends on the number of threads.

#include "taps.h"

#include "tile.h"
#include "transpose.h"

enum {
  PANEL = 320 << 10, // bytes of the packed weights of a thread: they stay in an L2 cache of 512 KiB
  LINE = 16,         // floats in a cache line
  AHEAD = 4 * LINE,  // weights are prefetched so far ahead in a row,
  NEXT = 4           // or this many rows ahead
};

typedef struct Taps {
  NnrtPrep base;
  Direction direction;
  int64_t batch, group, c, o; // channels of one group
  int64_t taps, x_positions, y_positions;
  bool channels_last;
  int64_t lanes, rows;  // of a tile
  int64_t n_results;    // positions of y or of x, or taps
  const int64_t *first; // (n_results + 1): result i has the pairs first[i] .. first[i + 1]
  const TilePair *pair; // FORWARD: q, t; BACK_X: p, t; BACK_W: p, q
} Taps;

static void taps_free(NnrtPrep *p) {
  free(p);
}

bool taps_is(const NnrtPrep *p) {
  return p->free == taps_free;
}

static int64_t taps_of(const Conv *c) {
  return product(c->w + c->w_ndim - c->ndim + 2, c->ndim - 2);
}

bool taps_fit(const Conv *c, Direction direction) {
  // oneDNN is as fast on maps of 8 x 8, except in the gradient of w, and faster for a few channels,
  // for less rows than sums of a tile need to hide their latency, and for 1 x 1, which is a product
  // of plain matrices.
  enum { POSITIONS = 64, CHANNELS = 32, BATCH = 4 };
  int64_t positions = product(c->y + 2, c->ndim - 2), taps = taps_of(c);
  return (direction == BACK_W ? positions <= POSITIONS : positions < POSITIONS) && taps > 1 &&
         c->x[1] / c->group >= CHANNELS && c->y[1] / c->group >= CHANNELS && c->x[0] >= BATCH;
}

// Returns the position of x that tap t reads for position p of y, or -1.
static int64_t position_of_x(const Conv *c, int64_t p, int64_t t) {
  const int64_t *filter = c->w + c->w_ndim - c->ndim;
  int64_t q = 0, stride = 1;
  // The last dimension is the fastest.
  for (int64_t i = c->ndim - 1; i >= 2; i--) {
    int64_t at =
        p % c->y[i] * c->stride[i - 2] - c->low[i - 2] + t % filter[i] * (c->dilation[i - 2] + 1);
    if (at < 0 || at >= c->x[i]) return -1;
    q += at * stride;
    stride *= c->x[i];
    p /= c->y[i];
    t /= filter[i];
  }
  return q;
}

// Lists the pairs by result, in the order of taps and positions; `next` counts those of each.
static void list_pairs(const Taps *s, const Conv *c, int64_t *next, TilePair *pair) {
  for (int64_t t = 0; t < s->taps; t++)
    for (int64_t p = 0; p < s->y_positions; p++) {
      int64_t q = position_of_x(c, p, t);
      if (q < 0) continue;
      int64_t result = s->direction == FORWARD ? p : s->direction == BACK_X ? q : t;
      TilePair of = s->direction == FORWARD  ? (TilePair){q, t}
                    : s->direction == BACK_X ? (TilePair){p, t}
                                             : (TilePair){p, q};
      if (pair) pair[next[result]] = of;
      next[result]++;
    }
}

NnrtPrep *taps_prep(const char *name, const Conv *c, Direction direction) {
  Taps s = {.base.free = taps_free,
            .direction = direction,
            .batch = c->x[0],
            .group = c->group,
            .c = c->x[1] / c->group,
            .o = c->y[1] / c->group,
            .taps = taps_of(c),
            .x_positions = product(c->x + 2, c->ndim - 2),
            .y_positions = product(c->y + 2, c->ndim - 2),
            .channels_last = c->channels_last,
            .lanes = tile_kind()->lanes,
            .rows = tile_kind()->rows};
  s.n_results = direction == FORWARD ? s.y_positions : direction == BACK_X ? s.x_positions : s.taps;
  // One block: the struct, the pairs, of which there is at most one per tap and position of y, the
  // starts of the results, and a place for each result's next pair.
  size_t pairs = (size_t)(s.taps * s.y_positions), results = (size_t)s.n_results + 1;
  Taps *all = malloc(sizeof s + pairs * sizeof(TilePair) + 2 * results * sizeof(int64_t));
  if (!all) {
    nnrt_error(NNRT_MEMORY, "%s: no memory", name);
    return NULL;
  }
  TilePair *pair = (TilePair *)(all + 1);
  int64_t *first = (int64_t *)(pair + pairs), *next = first + results;
  s.pair = pair;
  s.first = first;
  *all = s;
  // Counts them, then places them.
  memset(next, 0, results * sizeof *next);
  list_pairs(&s, c, next, NULL);
  first[0] = 0;
  for (int64_t i = 0; i < s.n_results; i++) {
    first[i + 1] = first[i] + next[i];
    next[i] = first[i];
  }
  list_pairs(&s, c, next, pair);
  return &all->base;
}

// -- Packing ---------------------------------------------------------------------------------

// to (columns, rows) = from (rows, columns), transposed.
static void transpose(float *to, int64_t to_row, const float *from, int64_t from_row, int64_t rows,
                      int64_t columns) {
  for (int64_t i = 0; i < rows; i += 4)
    for (int64_t j = 0; j < columns; j += 4) {
      if (i + 4 <= rows && columns >= 4) {
        // The last block overlaps the one before.
        int64_t at = j + 4 <= columns ? j : columns - 4;
        Vec4 v[4];
        for (int64_t k = 0; k < 4; k++)
          v[k] = *(const Vec4 *)(from + (i + k) * from_row + at);
        transpose_4(v);
        for (int64_t k = 0; k < 4; k++)
          *(Vec4 *)(to + (at + k) * to_row + i) = v[k];
        continue;
      }
      for (int64_t k = i; k < i + 4 && k < rows; k++)
        for (int64_t l = j; l < j + 4 && l < columns; l++)
          to[l * to_row + k] = from[k * from_row + l];
    }
}

// The length of a packed row of n channels: an odd number of cache lines, so that rows of the same
// column are in different sets of the cache.
static int64_t row_of(int64_t n) {
  return ((n + LINE - 1) / LINE | 1) * LINE;
}

// The distance of the packed weights of two taps, for the same reason.
static int64_t matrix_of(int64_t steps, int64_t lanes) {
  return steps * lanes + LINE;
}

// rows (positions, batch, row) = image b of a tensor with `channels` channels
static void pack_image(const Taps *s, float *rows, const float *x, int64_t b, int64_t positions,
                       int64_t channels) {
  int64_t row = row_of(channels);
  const float *image = x + b * positions * channels;
  if (!s->channels_last) {
    transpose(rows + b * row, s->batch * row, image, positions, channels, positions);
    return;
  }
  for (int64_t p = 0; p < positions; p++)
    memcpy(rows + (p * s->batch + b) * row, image + p * channels, (size_t)channels * sizeof *rows);
}

// panels (blocks of lanes of each group, positions, batch, lanes) = image b of x
static void pack_panels(const Taps *s, float *panels, const float *x, int64_t b) {
  int64_t positions = s->x_positions, channels = s->group * s->c;
  int64_t row = s->batch * s->lanes;
  const float *image = x + b * positions * channels;
  for (int64_t g = 0; g < s->group; g++)
    for (int64_t c = 0; c < s->c; c += s->lanes) {
      int64_t n = s->c - c < s->lanes ? s->c - c : s->lanes, at = g * s->c + c;
      float *panel = panels + b * s->lanes;
      // Lanes beyond the channels are multiplied too, and must not be NaN by chance.
      for (int64_t p = 0; n < s->lanes && p < positions; p++)
        memset(panel + p * row, 0, (size_t)s->lanes * sizeof *panel);
      if (!s->channels_last)
        transpose(panel, row, image + at * positions, positions, n, positions);
      else
        for (int64_t p = 0; p < positions; p++)
          memcpy(panel + p * row, image + p * channels + at, (size_t)n * sizeof *panel);
      panels += positions * row;
    }
}

// panel (taps, steps, lanes) of w (o, c, taps): `n` outputs, `steps` inputs, rows `row` apart.
// Four elements of four rows at a time; they have consecutive taps.
static void pack_outputs(float *panel, const float *w, int64_t row, int64_t n, int64_t lanes,
                         int64_t steps, int64_t taps) {
  int64_t t = 0, k = 0, matrix = matrix_of(steps, lanes), all = steps * taps;
  for (int64_t j = 0; j < all; j += 4) {
    int64_t count = all - j < 4 ? all - j : 4;
    float *to[4];
    for (int64_t i = 0; i < count; i++) {
      to[i] = panel + t * matrix + k * lanes;
      if (++t < taps) continue;
      t = 0;
      k++;
    }
    int64_t l = 0;
    if (j % LINE == 0)
      for (int64_t i = 0; i < n; i++)
        __builtin_prefetch(w + i * row + j + AHEAD);
    for (; count == 4 && l + 4 <= n; l += 4) {
      Vec4 v[4];
      for (int64_t i = 0; i < 4; i++)
        v[i] = *(const Vec4 *)(w + (l + i) * row + j);
      transpose_4(v);
      for (int64_t i = 0; i < 4; i++)
        *(Vec4 *)(to[i] + l) = v[i];
    }
    for (; l < lanes; l++)
      for (int64_t i = 0; i < count; i++)
        to[i][l] = l < n ? w[l * row + j + i] : 0;
  }
}

// panel (taps, steps, lanes) of w (o, c, taps): `steps` outputs, rows `row` apart, `n` inputs.
static void pack_inputs(float *panel, const float *w, int64_t row, int64_t n, int64_t lanes,
                        int64_t steps, int64_t taps) {
  int64_t matrix = matrix_of(steps, lanes);
  for (int64_t k = 0; k < steps; k++) {
    float *to = panel + k * lanes;
    for (int64_t i = 0; i < n * taps; i += LINE)
      __builtin_prefetch(w + (k + NEXT) * row + i);
    for (int64_t t = 0; n < lanes && t < taps; t++)
      memset(to + t * matrix, 0, (size_t)lanes * sizeof *to);
    transpose(to, matrix, w + k * row, taps, n, taps);
  }
}

// -- y, and the gradient of x ----------------------------------------------------------------

// The roles of the tensors: `in` is read by the products, `out` is their result.
typedef struct Data {
  int64_t in, out; // channels of one group
  int64_t in_positions, out_positions;
  int64_t blocks; // of `lanes` outputs in a group
  int64_t pieces; // of the inputs: a panel has the weights of one
} Data;

static Data data_of(const Taps *s) {
  bool forward = s->direction == FORWARD;
  Data d = {.in = forward ? s->c : s->o,
            .out = forward ? s->o : s->c,
            .in_positions = forward ? s->x_positions : s->y_positions,
            .out_positions = s->n_results};
  int64_t most = PANEL / (int64_t)sizeof(float) / (s->taps * s->lanes);
  d.blocks = (d.out + s->lanes - 1) / s->lanes;
  d.pieces = most < 1 ? d.in : (d.in + most - 1) / most;
  return d;
}

// out (positions from .. to, batch, lanes) of one block of outputs.
static void data_block(const Taps *s, const Data *d, float *out, const float *rows, const float *w,
                       float *panel, int64_t g, int64_t block, Part positions) {
  int64_t row = row_of(s->group * d->in), l = block * s->lanes;
  int64_t n = d->out - l < s->lanes ? d->out - l : s->lanes;
  // Blocks of rows of about equal size.
  int64_t row_blocks = (s->batch + s->rows - 1) / s->rows;
  for (int64_t i = 0; i < d->pieces; i++) {
    Part k = part_of(d->in, 1, i, d->pieces);
    int64_t steps = k.to - k.from, w_row = s->c * s->taps;
    if (s->direction == FORWARD)
      pack_outputs(panel, w + (g * s->o + l) * w_row + k.from * s->taps, w_row, n, s->lanes, steps,
                   s->taps);
    else
      pack_inputs(panel, w + (g * s->o + k.from) * w_row + l * s->taps, w_row, n, s->lanes, steps,
                  s->taps);
    for (int64_t p = positions.from; p < positions.to; p++)
      for (int64_t j = 0; j < row_blocks; j++) {
        Part r = part_of(s->batch, 1, j, row_blocks);
        tile_product(&(TileProduct){.c = out + (p * s->batch + r.from) * s->lanes,
                                    .c_row = s->lanes,
                                    .a = rows + r.from * row + g * d->in + k.from,
                                    .a_matrix = s->batch * row,
                                    .a_row = row,
                                    .a_step = 1,
                                    .b = panel,
                                    .b_row = s->lanes,
                                    .b_matrix = matrix_of(steps, s->lanes),
                                    .pair = s->pair + s->first[p],
                                    .pairs = s->first[p + 1] - s->first[p],
                                    .rows = r.to - r.from,
                                    .lanes = s->lanes,
                                    .steps = steps,
                                    .add = i > 0});
      }
  }
}

// Moves a block of outputs to its place in the result.
static void unpack_block(const Taps *s, const Data *d, float *result, const float *out, int64_t g,
                         int64_t block, Part positions) {
  int64_t l = block * s->lanes, n = d->out - l < s->lanes ? d->out - l : s->lanes;
  int64_t channels = s->group * d->out, at = g * d->out + l, row = s->batch * s->lanes;
  for (int64_t b = 0; b < s->batch; b++) {
    float *image = result + b * d->out_positions * channels;
    const float *from = out + b * s->lanes;
    if (!s->channels_last)
      transpose(image + at * d->out_positions + positions.from, d->out_positions,
                from + positions.from * row, row, positions.to - positions.from, n);
    else
      for (int64_t p = positions.from; p < positions.to; p++)
        memcpy(image + p * channels + at, from + p * row, (size_t)n * sizeof *from);
  }
}

static int run_data(const Taps *s, float *result, const float *in, const float *w, int threads) {
  Data d = data_of(s);
  int64_t row = row_of(s->group * d.in), block = s->n_results * s->batch * s->lanes;
  int64_t panel = s->taps * matrix_of((d.in + d.pieces - 1) / d.pieces, s->lanes);
  // Threads share a block of outputs if there are fewer blocks than threads.
  int64_t blocks = s->group * d.blocks, parts = (threads + blocks - 1) / blocks;
  if (parts > d.out_positions) parts = d.out_positions;
  size_t rows_bytes = round_64((size_t)(d.in_positions * s->batch * row) * sizeof(float));
  size_t out_bytes = round_64((size_t)(blocks * block) * sizeof(float));
  size_t panel_bytes = round_64((size_t)panel * sizeof(float));
  size_t bytes = rows_bytes + out_bytes + (size_t)threads * panel_bytes;
  char *scratch = kernel_scratch(bytes);
  if (!scratch) return scratch_failed(bytes);
  float *rows = (float *)scratch, *out = (float *)(scratch + rows_bytes);
  char *panels = scratch + rows_bytes + out_bytes;
#pragma omp parallel num_threads(threads)
  {
    float *mine = (float *)(panels + (size_t)omp_get_thread_num() * panel_bytes);
#pragma omp for
    for (int64_t b = 0; b < s->batch; b++)
      pack_image(s, rows, in, b, d.in_positions, s->group * d.in);
#pragma omp for
    for (int64_t i = 0; i < blocks * parts; i++) {
      int64_t at = i / parts, g = at / d.blocks;
      Part positions = part_of(d.out_positions, 1, i % parts, parts);
      data_block(s, &d, out + at * block, rows, w, mine, g, at % d.blocks, positions);
      unpack_block(s, &d, result, out + at * block, g, at % d.blocks, positions);
    }
  }
  return NNRT_OK;
}

// -- The gradient of w -----------------------------------------------------------------------

// dw (o, c, taps) of outputs from .. to and one block of inputs; tile (taps, rows, lanes) is
// temporary.
static void weights_block(const Taps *s, float *dw, const float *rows, const float *panel,
                          float *tile, int64_t g, int64_t block, Part o) {
  int64_t row = row_of(s->group * s->o), n_rows = o.to - o.from, c = block * s->lanes;
  int64_t n = s->c - c < s->lanes ? s->c - c : s->lanes;
  for (int64_t r = 0; r < n_rows; r++)
    for (int64_t i = 0; i < n * s->taps; i += LINE)
      __builtin_prefetch(dw + ((g * s->o + o.from + r) * s->c + c) * s->taps + i, 1);
  for (int64_t t = 0; t < s->taps; t++)
    tile_product(&(TileProduct){.c = tile + t * n_rows * s->lanes,
                                .c_row = s->lanes,
                                .a = rows + g * s->o + o.from,
                                .a_matrix = s->batch * row,
                                .a_row = 1,
                                .a_step = row,
                                .b = panel,
                                .b_row = s->lanes,
                                .b_matrix = s->batch * s->lanes,
                                .pair = s->pair + s->first[t],
                                .pairs = s->first[t + 1] - s->first[t],
                                .rows = n_rows,
                                .lanes = s->lanes,
                                .steps = s->batch});
  for (int64_t r = 0; r < n_rows; r++)
    transpose(dw + ((g * s->o + o.from + r) * s->c + c) * s->taps, s->taps, tile + r * s->lanes,
              n_rows * s->lanes, s->taps, n);
}

static int run_weights(const Taps *s, float *dw, const float *x, const float *dy, int threads) {
  int64_t blocks = (s->c + s->lanes - 1) / s->lanes, parts = (s->o + s->rows - 1) / s->rows;
  int64_t panel = s->x_positions * s->batch * s->lanes, outputs = s->group * s->o;
  size_t rows_bytes =
      round_64((size_t)(s->y_positions * s->batch * row_of(outputs)) * sizeof(float));
  size_t panels_bytes = round_64((size_t)(s->group * blocks * panel) * sizeof(float));
  size_t tile_bytes = round_64((size_t)(s->taps * s->rows * s->lanes) * sizeof(float));
  size_t bytes = rows_bytes + panels_bytes + (size_t)threads * tile_bytes;
  char *scratch = kernel_scratch(bytes);
  if (!scratch) return scratch_failed(bytes);
  float *rows = (float *)scratch, *panels = (float *)(scratch + rows_bytes);
  char *tiles = scratch + rows_bytes + panels_bytes;
#pragma omp parallel num_threads(threads)
  {
    float *mine = (float *)(tiles + (size_t)omp_get_thread_num() * tile_bytes);
#pragma omp for
    for (int64_t b = 0; b < s->batch; b++) {
      pack_image(s, rows, dy, b, s->y_positions, outputs);
      pack_panels(s, panels, x, b);
    }
#pragma omp for
    for (int64_t i = 0; i < s->group * blocks * parts; i++) {
      int64_t at = i / parts;
      weights_block(s, dw, rows, panels + at * panel, mine, at / blocks, at % blocks,
                    part_of(s->o, 1, i % parts, parts));
    }
  }
  return NNRT_OK;
}

int taps_run(NnrtPrep *p, float *result, const float *first, const float *second) {
  const Taps *s = (const Taps *)p;
  // A team costs some microseconds, as much as a million multiplications.
  double work = (double)s->first[s->n_results] * (double)(s->batch * s->group * s->c * s->o);
  int threads = work < 1 << 20 ? 1 : omp_get_max_threads();
  switch (s->direction) {
  case FORWARD: return run_data(s, result, first, second, threads);
  case BACK_X: return run_data(s, result, second, first, threads);
  case BACK_W: break;
  }
  return run_weights(s, result, first, second, threads);
}
