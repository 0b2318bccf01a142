// Convolutions of any shape and their gradients, as products of packed panels (tile.h).
//
//     y[p]  = sum over taps t of  x[q] w[t]       (rows of positions, c) (c, o)
//     dx[q] = sum over taps t of dy[p] w[t]'      (rows of positions, o) (o, c)
//     dw[t] = sum over p of      dy[p]' x[q]      (o, positions) (positions, c)
//
// with q = p stride - low + t dilation.  Operands are packed from the tensors themselves: position
// q of a row and a tap is known from small tables, one per dimension, and a tap outside of the map
// is zeros.  No matrix of all taps of all positions is made (im2col).
//
// For y and dx, all weights are packed first, (taps, inputs, lanes) for each `lanes` outputs.  A
// thread then takes some rows, of all images, and some outputs; it packs slices of (taps, inputs),
// as long as the processor's kind has it (tile.h), and adds their products in its scratch.  A tap
// that no row of a panel reads is skipped.  With strides, most taps of dx are such: its rows are
// ordered by their remainders, so that rows of a panel have the same taps.
//
// For dw a thread takes some outputs and some of (taps, inputs), and packs slices of positions.
//
// No sum depends on the number of threads.

#include "conv_own.h"

#include "gemm.h"
#include "transpose.h"

enum {
  HELD = 96,       // rows that a thread packs together, in the L2 cache
  COLUMNS = 256,   // outputs, or of (taps, inputs), of a thread
  LINE = 16,       // floats in a cache line
  MOST_ROWS = 16,  // of a panel, of all kinds of processors
  MOST_DEPTH = 512 // of a slice
};

static void own_free(NnrtPrep *p) {
  free(p);
}

bool conv_own_is(const NnrtPrep *p) {
  return p->free == own_free;
}

// -- Positions ---------------------------------------------------------------------------------

// The index in the other map that tap `t` of index `at` reads in a dimension, or -1.
static int64_t source_in(const Conv *c, Direction direction, int64_t dim, int64_t at, int64_t t) {
  int64_t stride = c->stride[dim], step = t * (c->dilation[dim] + 1) - c->low[dim];
  if (direction != BACK_X) {
    int64_t q = at * stride + step;
    return q >= 0 && q < c->x[dim + 2] ? q : -1;
  }
  // Of the positions of y, the one that reads x here, if there is one.
  int64_t p = at - step;
  return p >= 0 && p % stride == 0 && p / stride < c->y[dim + 2] ? p / stride : -1;
}

void conv_own_sources(const ConvOwn *s, int64_t position, int64_t *out) {
  const int64_t *of[CONV_SPATIAL];
  // The last dimension is the fastest.
  for (int i = CONV_SPATIAL - 1; i >= 0; i--) {
    of[i] = s->source[i] + position % s->size[i] * s->filter[i];
    position /= s->size[i];
  }
  for (int64_t t0 = 0; t0 < s->filter[0]; t0++)
    for (int64_t t1 = 0; t1 < s->filter[1]; t1++)
      for (int64_t t2 = 0; t2 < s->filter[2]; t2++) {
        int64_t a = of[0][t0], b = of[1][t1], c = of[2][t2];
        *out++ = a < 0 || b < 0 || c < 0 ? -1 : a + b + c;
      }
}

// Fills the tables, in units of positions of the other map.
static void fill_sources(ConvOwn *s, const Conv *c, int64_t *table) {
  const int64_t *other = s->direction == BACK_X ? c->y : c->x;
  int64_t unit = 1, first = CONV_SPATIAL - (c->ndim - 2);
  for (int64_t i = CONV_SPATIAL - 1; i >= 0; i--) {
    s->source[i] = table;
    for (int64_t at = 0; at < s->size[i]; at++)
      for (int64_t t = 0; t < s->filter[i]; t++) {
        int64_t q = i < first ? 0 : source_in(c, s->direction, i - first, at, t);
        *table++ = q < 0 ? -1 : q * unit;
      }
    if (i >= first) unit *= other[i - first + 2];
  }
}

// Orders positions of x by their remainders, with which they are read by the same taps.
static void fill_order(ConvOwn *s, const Conv *c, int64_t *order) {
  int64_t stride[CONV_SPATIAL] = {1, 1, 1}, n = 0, first = CONV_SPATIAL - (c->ndim - 2);
  for (int64_t i = first; i < CONV_SPATIAL; i++)
    stride[i] = c->stride[i - first];
  s->order = order;
  for (int64_t r0 = 0; r0 < stride[0]; r0++)
    for (int64_t r1 = 0; r1 < stride[1]; r1++)
      for (int64_t r2 = 0; r2 < stride[2]; r2++)
        for (int64_t i0 = r0; i0 < s->size[0]; i0 += stride[0])
          for (int64_t i1 = r1; i1 < s->size[1]; i1 += stride[1])
            for (int64_t i2 = r2; i2 < s->size[2]; i2 += stride[2])
              order[n++] = (i0 * s->size[1] + i1) * s->size[2] + i2;
}

NnrtPrep *conv_own_prep(const char *name, const Conv *c, Direction direction) {
  int64_t spatial = c->ndim - 2, first = CONV_SPATIAL - spatial;
  const int64_t *filter = c->w + c->w_ndim - spatial;
  const int64_t *mine = direction == BACK_X ? c->x + 2 : c->y + 2;
  ConvOwn s = {.base.free = own_free,
               .direction = direction,
               .batch = c->x[0],
               .group = c->group,
               .c = c->x[1] / c->group,
               .o = c->y[1] / c->group,
               .taps = product(filter, spatial),
               .x_positions = product(c->x + 2, spatial),
               .y_positions = product(c->y + 2, spatial),
               .channels_last = c->channels_last,
               .plain = true};
  s.small =
      kernel_small(product(c->y, c->ndim) * s.c * s.taps,
                   product(c->x, c->ndim) + product(c->w, c->w_ndim) + product(c->y, c->ndim));
  size_t entries = 0, positions = (size_t)product(mine, spatial);
  bool strided = false;
  for (int64_t i = 0; i < CONV_SPATIAL; i++) {
    s.size[i] = i < first ? 1 : mine[i - first];
    s.filter[i] = i < first ? 1 : filter[i - first];
    entries += (size_t)(s.size[i] * s.filter[i]);
    if (i < first) continue;
    int64_t dim = i - first;
    strided |= c->stride[dim] > 1;
    s.plain &= filter[dim] == 1 && c->stride[dim] == 1 && !c->low[dim] && !c->high[dim];
  }
  strided &= direction == BACK_X;
  // One block: the struct, the tables, the order.
  ConvOwn *all = malloc(sizeof s + (entries + (strided ? positions : 0)) * sizeof(int64_t));
  if (!all) {
    nnrt_error(NNRT_MEMORY, "%s: no memory", name);
    return NULL;
  }
  *all = s;
  int64_t *table = (int64_t *)(all + 1);
  fill_sources(all, c, table);
  if (strided) fill_order(all, c, table + entries);
  return &all->base;
}

// -- Tensors -----------------------------------------------------------------------------------

// An activation: element (image, position, channel).
typedef struct Map {
  int64_t positions, channels; // of all groups
  int64_t position, channel;   // strides
} Map;

static Map map_of(const ConvOwn *s, int64_t positions, int64_t channels) {
  return (Map){positions, channels, s->channels_last ? channels : 1,
               s->channels_last ? 1 : positions};
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// The rows that a thread packs together: whole panels.
static int64_t held_rows(const TileKind *v) {
  return HELD / v->rows * v->rows;
}

// -- y, and the gradient of x ------------------------------------------------------------------

// The roles of the tensors: `in` is read by the products, `out` is their result.
typedef struct Data {
  const ConvOwn *s;
  const TileKind *v;
  Map in, out;
  int64_t ins, outs;       // channels of one group
  int64_t blocks;          // of `lanes` outputs in a group
  int64_t panel;           // floats of a packed block of weights
  int64_t rows;            // of all images
  const float *x, *panels; // the operands: the weights are packed
  float *y;
} Data;

// Some inputs of some taps, whose products are added together: all inputs, or some of one tap.
typedef struct Slice {
  Part taps, ins;
} Slice;

static int64_t slices_per_tap(const Data *d) {
  return (d->ins + d->v->depth - 1) / d->v->depth;
}

static int64_t taps_per_slice(const Data *d) {
  int64_t n = d->v->depth / d->ins;
  return n < 1 ? 1 : n;
}

static int64_t slices_of(const Data *d) {
  int64_t per = taps_per_slice(d);
  return slices_per_tap(d) * ((d->s->taps + per - 1) / per);
}

static Slice slice_of(const Data *d, int64_t i) {
  int64_t pieces = slices_per_tap(d), per = taps_per_slice(d), tap = i / pieces * per;
  return (Slice){{tap, least(tap + per, d->s->taps)}, part_of(d->ins, 1, i % pieces, pieces)};
}

// panel (taps, ins, lanes) of the weights of one block of outputs; lanes beyond them are zeros.
static void pack_weights(const Data *d, float *panel, const float *w, int64_t g, int64_t block) {
  const ConvOwn *s = d->s;
  bool forward = s->direction == FORWARD;
  int64_t lanes = d->v->lanes, from = block * lanes, n = least(d->outs - from, lanes);
  // w is (group, o, c, taps).
  int64_t of_out = forward ? s->c * s->taps : s->taps, of_in = forward ? s->taps : s->c * s->taps;
  const float *first = w + g * s->o * s->c * s->taps + from * of_out;
  for (int64_t k = 0; k < d->ins; k++)
    for (int64_t l = 0; l < lanes; l++)
      for (int64_t t = 0; t < s->taps; t++)
        panel[(t * d->ins + k) * lanes + l] = l < n ? first[l * of_out + k * of_in + t] : 0;
}

// Memory of a thread.
typedef struct Own {
  int64_t *image, *source; // of the rows; source is (rows, taps)
  char *used;              // (panels, taps): some row of the panel reads the tap
  float *packed, *sums;
} Own;

static int64_t packed_panel(const TileKind *v) {
  return v->depth * v->rows + LINE;
}

static size_t own_bytes(const ConvOwn *s, const TileKind *v, Own *own, char *at) {
  size_t held = (size_t)held_rows(v), panels = held / (size_t)v->rows, taps = (size_t)s->taps;
  size_t images = round_64(held * sizeof(int64_t)),
         sources = round_64(held * taps * sizeof(int64_t)), used = round_64(panels * taps),
         packed = round_64(panels * (size_t)packed_panel(v) * sizeof(float));
  if (own) {
    *own = (Own){.image = (int64_t *)(void *)at,
                 .source = (int64_t *)(void *)(at + images),
                 .used = at + images + sources,
                 .packed = (float *)(void *)(at + images + sources + used),
                 .sums = (float *)(void *)(at + images + sources + used + packed)};
  }
  return images + sources + used + packed + round_64(held * COLUMNS * sizeof(float));
}

// Finds the positions that the rows read.
static void find_rows(const Data *d, Own *own, Part rows) {
  const ConvOwn *s = d->s;
  memset(own->used, 0, (size_t)(held_rows(d->v) / d->v->rows * s->taps));
  for (int64_t i = 0; i < rows.to - rows.from; i++) {
    int64_t at = rows.from + i, position = at % d->out.positions;
    int64_t *source = own->source + i * s->taps;
    char *used = own->used + i / d->v->rows * s->taps;
    own->image[i] = at / d->out.positions;
    conv_own_sources(s, s->order ? s->order[position] : position, source);
    for (int64_t t = 0; t < s->taps; t++)
      used[t] |= source[t] >= 0;
  }
}

static const float outside[MOST_DEPTH]; // zeros

// to (ins, n) of n rows of `ins` floats.
static void interleave(float *to, const float *const *from, int64_t n, int64_t ins) {
  int64_t k = 0;
  for (; n >= 4 && k + 4 <= ins; k += 4)
    for (int64_t r = 0; r < n; r += 4) {
      // The last four rows overlap those before.
      int64_t at = r + 4 <= n ? r : n - 4;
      Vec4 v[4];
      for (int64_t i = 0; i < 4; i++)
        v[i] = *(const Vec4 *)(from[at + i] + k);
      transpose_4(v);
      for (int64_t i = 0; i < 4; i++)
        *(Vec4 *)(to + (k + i) * n + at) = v[i];
    }
  for (; k < ins; k++)
    for (int64_t r = 0; r < n; r++)
      to[k * n + r] = from[r][k];
}

// Packs (taps, ins, n) of the n rows from `row` on; taps that none of them reads are left out.
static void pack_rows(const Data *d, const Own *own, float *to, int64_t row, int64_t n, Slice of,
                      int64_t g) {
  int64_t taps = d->s->taps, ins = of.ins.to - of.ins.from, channel = d->in.channel;
  const char *used = own->used + row / d->v->rows * taps;
  for (int64_t t = of.taps.from; t < of.taps.to; t++, to += ins * n) {
    if (!used[t]) continue;
    const float *from[MOST_ROWS];
    int64_t step[MOST_ROWS]; // 0: outside of the map
    for (int64_t r = 0; r < n; r++) {
      int64_t q = own->source[(row + r) * taps + t];
      from[r] = q < 0 ? outside
                      : d->x + own->image[row + r] * d->in.positions * d->in.channels +
                            q * d->in.position + (g * d->ins + of.ins.from) * channel;
      step[r] = q < 0 ? 0 : channel;
    }
    if (channel == 1)
      interleave(to, from, n, ins);
    else
      for (int64_t k = 0; k < ins; k++)
        for (int64_t r = 0; r < n; r++)
          to[k * n + r] = from[r][k * step[r]];
  }
}

// Adds the products of a slice with all blocks of outputs.  `sums` are (rows, width).
static void add_slice(const Data *d, const Own *own, Part rows, Part blocks, Slice of, bool first,
                      int64_t g) {
  const TileKind *v = d->v;
  int64_t ins = of.ins.to - of.ins.from, width = (blocks.to - blocks.from) * v->lanes;
  for (int64_t b = blocks.from; b < blocks.to; b++) {
    const float *panel = d->panels + (g * d->blocks + b) * d->panel;
    for (int64_t row = 0; row < rows.to - rows.from; row += v->rows) {
      int n = (int)least(v->rows, rows.to - rows.from - row);
      const float *packed = own->packed + row / v->rows * packed_panel(v);
      const char *used = own->used + row / v->rows * d->s->taps;
      float *sum = own->sums + row * width + (b - blocks.from) * v->lanes;
      bool add = !first;
      for (int64_t t = of.taps.from, end; t < of.taps.to; t = end) {
        for (end = t; end < of.taps.to && used[end];)
          end++;
        // Without taps, the first slice sets the sums to zero.
        if (end > t) {
          v->panels(n, (end - t) * ins, packed + (t - of.taps.from) * ins * n,
                    panel + (t * d->ins + of.ins.from) * v->lanes, sum, width, add);
          add = true;
        } else {
          end++;
        }
      }
      if (!add) v->panels(n, 0, packed, panel, sum, width, false);
    }
  }
}

static void store_rows(const Data *d, const Own *own, Part rows, Part blocks, int64_t g) {
  int64_t lanes = d->v->lanes, width = (blocks.to - blocks.from) * lanes;
  int64_t from = blocks.from * lanes, n = least(d->outs - from, width);
  for (int64_t i = 0; i < rows.to - rows.from; i++) {
    int64_t position = (rows.from + i) % d->out.positions;
    if (d->s->order) position = d->s->order[position];
    float *to = d->y + own->image[i] * d->out.positions * d->out.channels +
                position * d->out.position + (g * d->outs + from) * d->out.channel;
    const float *sum = own->sums + i * width;
    if (d->out.channel == 1)
      memcpy(to, sum, (size_t)n * sizeof *to);
    else
      for (int64_t j = 0; j < n; j++)
        to[j * d->out.channel] = sum[j];
  }
}

// Some rows of all groups.
static void data_task(const Data *d, Own *own, Part rows, Part blocks) {
  const TileKind *v = d->v;
  find_rows(d, own, rows);
  for (int64_t g = 0; g < d->s->group; g++) {
    for (int64_t i = 0; i < slices_of(d); i++) {
      Slice of = slice_of(d, i);
      for (int64_t row = 0; row < rows.to - rows.from; row += v->rows)
        pack_rows(d, own, own->packed + row / v->rows * packed_panel(v), row,
                  least(v->rows, rows.to - rows.from - row), of, g);
      add_slice(d, own, rows, blocks, of, i == 0, g);
    }
    store_rows(d, own, rows, blocks, g);
  }
}

static int run_data(const ConvOwn *s, float *y, const float *x, const float *w, int threads) {
  const TileKind *v = tile_kind();
  bool forward = s->direction == FORWARD;
  Data d = {.s = s, .v = v, .ins = forward ? s->c : s->o, .outs = forward ? s->o : s->c};
  d.in = map_of(s, forward ? s->x_positions : s->y_positions, s->group * d.ins);
  d.out = map_of(s, forward ? s->y_positions : s->x_positions, s->group * d.outs);
  d.rows = s->batch * d.out.positions;
  d.blocks = (d.outs + v->lanes - 1) / v->lanes;
  d.panel = s->taps * d.ins * v->lanes + LINE;
  size_t panels = round_64((size_t)(s->group * d.blocks * d.panel) * sizeof(float));
  size_t each = own_bytes(s, v, NULL, NULL), bytes = panels + (size_t)threads * each;
  char *scratch = kernel_scratch(bytes);
  if (!scratch) return scratch_failed(bytes);
  d.x = x;
  d.y = y;
  float *packed = (float *)(void *)scratch;
  d.panels = packed;
  // Tasks: rows, and parts of the blocks of outputs.
  int64_t row_parts = (d.rows + held_rows(v) - 1) / held_rows(v);
  int64_t parts = (d.blocks * v->lanes + COLUMNS - 1) / COLUMNS;
#pragma omp parallel num_threads(threads)
  {
    Own own;
    own_bytes(s, v, &own, scratch + panels + (size_t)omp_get_thread_num() * each);
#pragma omp for
    for (int64_t i = 0; i < s->group * d.blocks; i++)
      pack_weights(&d, packed + i * d.panel, w, i / d.blocks, i % d.blocks);
#pragma omp for
    for (int64_t i = 0; i < row_parts * parts; i++) {
      int64_t from = i / parts * held_rows(v);
      data_task(&d, &own, (Part){from, least(from + held_rows(v), d.rows)},
                part_of(d.blocks, 1, i % parts, parts));
    }
  }
  return NNRT_OK;
}

// -- The gradient of w -------------------------------------------------------------------------

typedef struct Weights {
  const ConvOwn *s;
  const TileKind *v;
  Map x, dy;
  const float *from_x, *from_dy;
  float *dw;
} Weights;

// Packs `outs` of dy, (steps, rows of a panel), of some positions of all images.
static void pack_dy(const Weights *f, float *to, Part outs, Part steps, int64_t g) {
  const TileKind *v = f->v;
  for (int64_t row = outs.from; row < outs.to; row += v->rows, to += packed_panel(v)) {
    int64_t n = least(v->rows, outs.to - row);
    for (int64_t i = steps.from; i < steps.to; i++) {
      const float *from = f->from_dy + i / f->dy.positions * f->dy.positions * f->dy.channels +
                          i % f->dy.positions * f->dy.position +
                          (g * f->s->o + row) * f->dy.channel;
      float *at = to + (i - steps.from) * n;
      if (f->dy.channel == 1)
        memcpy(at, from, (size_t)n * sizeof *at);
      else
        for (int64_t r = 0; r < n; r++)
          at[r] = from[r * f->dy.channel];
    }
  }
}

// Packs columns (taps, c) of x, in panels (steps, lanes); columns beyond the last one are zeros.
static void pack_x(const Weights *f, float *to, int64_t *source, Part columns, Part steps,
                   int64_t g) {
  const ConvOwn *s = f->s;
  int64_t lanes = f->v->lanes, panel = f->v->depth * lanes + LINE, n = columns.to - columns.from;
  for (int64_t i = steps.from; i < steps.to; i++) {
    conv_own_sources(s, i % f->dy.positions, source);
    const float *image = f->from_x + i / f->dy.positions * f->x.positions * f->x.channels;
    float *step = to + (i - steps.from) * lanes;
    // Runs of channels of one tap in one panel.
    for (int64_t j = 0, run; j < round_up(n, lanes); j += run) {
      int64_t tap = (columns.from + j) / s->c, c = (columns.from + j) % s->c;
      float *at = step + j / lanes * panel + j % lanes;
      run = lanes - j % lanes;
      if (j < n) run = least(run, least(s->c - c, n - j));
      if (j >= n || source[tap] < 0) {
        memset(at, 0, (size_t)run * sizeof *at);
        continue;
      }
      const float *from = image + source[tap] * f->x.position + (g * s->c + c) * f->x.channel;
      if (f->x.channel == 1)
        memcpy(at, from, (size_t)run * sizeof *at);
      else
        for (int64_t l = 0; l < run; l++)
          at[l] = from[l * f->x.channel];
    }
  }
}

// Moves sums (outs, width) of columns (taps, c) to dw (group, o, c, taps).
static void store_weights(const Weights *f, const float *sums, Part outs, Part columns,
                          int64_t width, int64_t g) {
  const ConvOwn *s = f->s;
  for (int64_t o = outs.from; o < outs.to; o++) {
    float *to = f->dw + (g * s->o + o) * s->c * s->taps;
    const float *sum = sums + (o - outs.from) * width;
    for (int64_t j = columns.from; j < columns.to; j++)
      to[j % s->c * s->taps + j / s->c] = sum[j - columns.from];
  }
}

static void weights_task(const Weights *f, char *scratch, Part outs, Part columns, int64_t g) {
  const TileKind *v = f->v;
  int64_t held = held_rows(v), width = round_up(columns.to - columns.from, v->lanes);
  int64_t panel = v->depth * v->lanes + LINE, all = f->s->batch * f->dy.positions;
  float *sums = (float *)(void *)scratch, *dy = sums + held * COLUMNS;
  float *x = dy + round_up(held / v->rows * packed_panel(v), LINE);
  int64_t *source = (int64_t *)(void *)(x + COLUMNS / v->lanes * panel);
  // One slice at least, which sets the sums.
  int64_t slices = all ? (all + v->depth - 1) / v->depth : 1;
  for (int64_t i = 0; i < slices; i++) {
    Part steps = part_of(all, 4, i, slices);
    pack_dy(f, dy, outs, steps, g);
    pack_x(f, x, source, columns, steps, g);
    for (int64_t j = 0; j < width; j += v->lanes)
      for (int64_t row = 0; row < outs.to - outs.from; row += v->rows)
        v->panels((int)least(v->rows, outs.to - outs.from - row), steps.to - steps.from,
                  dy + row / v->rows * packed_panel(v), x + j / v->lanes * panel,
                  sums + row * width + j, width, i > 0);
  }
  store_weights(f, sums, outs, columns, width, g);
}

static int run_weights(const ConvOwn *s, float *dw, const float *x, const float *dy, int threads) {
  const TileKind *v = tile_kind();
  Weights f = {.s = s, .v = v, .from_x = x, .from_dy = dy, .dw = dw};
  f.x = map_of(s, s->x_positions, s->group * s->c);
  f.dy = map_of(s, s->y_positions, s->group * s->o);
  int64_t held = held_rows(v);
  size_t floats = (size_t)(held * COLUMNS + round_up(held / v->rows * packed_panel(v), LINE) +
                           COLUMNS / v->lanes * (v->depth * v->lanes + LINE));
  size_t each = round_64(floats * sizeof(float) + (size_t)s->taps * sizeof(int64_t));
  char *scratch = kernel_scratch((size_t)threads * each);
  if (!scratch) return scratch_failed((size_t)threads * each);
  int64_t columns = s->taps * s->c;
  int64_t row_parts = (s->o + held - 1) / held, parts = (columns + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < s->group * row_parts * parts; i++)
    weights_task(&f, scratch + (size_t)omp_get_thread_num() * each,
                 part_of(s->o, v->rows, i / parts % row_parts, row_parts),
                 part_of(columns, v->lanes, i % parts, parts), i / parts / row_parts);
  return NNRT_OK;
}

// -- 1x1 ---------------------------------------------------------------------------------------

// Whether it is a product of plain matrices: one tap of each position, and channels last.
static bool is_product(const ConvOwn *s) {
  return s->plain && s->group == 1 && s->channels_last;
}

// The result and its operands, in the order x (rows, c), w (o, c), dy (rows, o).
static int run_product(const ConvOwn *s, float *result, const float *first, const float *second,
                       int threads) {
  int64_t rows = s->batch * s->x_positions, c = s->c, o = s->o;
  Gemm g = {.batch = 1, .in = GEMM_f32, .out = GEMM_f32};
  switch (s->direction) {
  case FORWARD:
    g.m = rows, g.n = o, g.k = c;
    g.a_row = c, g.a_column = 1, g.b_row = 1, g.b_column = c;
    return gemm_run(&g, threads, result, first, second);
  case BACK_X:
    g.m = rows, g.n = c, g.k = o;
    g.a_row = o, g.a_column = 1, g.b_row = c, g.b_column = 1;
    return gemm_run(&g, threads, result, second, first);
  case BACK_W: break;
  }
  g.m = o, g.n = c, g.k = rows;
  g.a_row = 1, g.a_column = o, g.b_row = c, g.b_column = 1;
  return gemm_run(&g, threads, result, second, first);
}

int conv_own_run(NnrtPrep *p, float *result, const float *first, const float *second) {
  const ConvOwn *s = (const ConvOwn *)p;
  int threads = s->small ? 1 : omp_get_max_threads();
  if (s->group > 1 && s->c == 1 && s->o == 1) return conv_depthwise_run(s, result, first, second);
  if (is_product(s)) return run_product(s, result, first, second, threads);
  switch (s->direction) {
  case FORWARD: return run_data(s, result, first, second, threads);
  case BACK_X: return run_data(s, result, second, first, threads);
  case BACK_W: break;
  }
  return run_weights(s, result, first, second, threads);
}
