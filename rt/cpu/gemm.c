// Products of matrices: see gemm.h.  The registers of a processor determine the size of a tile:
// see tile.h.

#include "gemm.h"

#include "kernel.h"
#include "tile.h"

// A thread keeps HELD rows of a packed, in the L2 cache, and COLUMNS columns of b, for the steps of
// k that a kind of processor allows: a panel of b is then in the L1 cache.
enum { HELD = 224, COLUMNS = 1024, MOST_TILE = 14 * 32 };

// A 16-bit result of more steps is summed in f32, a block of this size at a time.
enum { SUM_ROWS = 1024, SUM_COLUMNS = 256 };

// -- One thread ----------------------------------------------------------------------------------

// Some rows and columns of a product, of one thread.
typedef struct Block {
  const TileKind *v;
  const Gemm *g;
  const char *a, *b;
  char *y;
  Part rows, columns;
  float *packed_a, *packed_b;
  float *sums; // (SUM_ROWS, SUM_COLUMNS), or NULL: sums are in y
} Block;

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// The rows of a panel of a, at most those of a tile: `rows` in even parts.
static int64_t panel_rows(const TileKind *v, int64_t rows) {
  int64_t panels = (rows + v->rows - 1) / v->rows;
  return panels ? (rows + panels - 1) / panels : 1;
}

// A panel's floats, and a cache line more: panels a power of two apart would be in the same sets of
// a cache.
static int64_t panel_floats(int64_t steps, int64_t width) {
  return steps * width + 16;
}

// Computes one tile at y, and rounds it if `last`.
static void run_tile(const Block *t, int64_t rows, int64_t columns, int64_t steps, const float *a,
                     const float *b, char *y, float *sum, int64_t sum_row, bool first, bool last) {
  // A partial tile goes through memory of a whole one.
  float tile[MOST_TILE] __attribute__((aligned(64)));
  GemmType out = t->g->out;
  bool whole = columns == t->v->lanes;
  if (sum && whole) {
    t->v->panels((int)rows, steps, a, b, sum, sum_row, !first);
    if (out == GEMM_f32 || !last) return;
    for (int64_t r = 0; r < rows; r++)
      t->v->store(out, y + r * t->g->n * type_bytes(out), sum + r * sum_row, columns);
    return;
  }
  t->v->panels((int)rows, steps, a, b, tile, t->v->lanes, false);
  for (int64_t r = 0; r < rows; r++) {
    float *of = tile + r * t->v->lanes, *to = sum ? sum + r * sum_row : NULL;
    for (int64_t j = 0; to && j < columns; j++)
      of[j] = to[j] = first ? of[j] : to[j] + of[j];
    if (out != GEMM_f32 && last) t->v->store(out, y + r * t->g->n * type_bytes(out), of, columns);
  }
}

// Multiplies the packed rows with the packed columns.  `summed_rows` are those of `sums`.
static void run_panels(const Block *t, Part rows, Part columns, Part steps, int64_t panel,
                       Part summed_rows) {
  const Gemm *g = t->g;
  int64_t depth = steps.to - steps.from, out = type_bytes(g->out);
  for (int64_t j = columns.from; j < columns.to; j += t->v->lanes)
    for (int64_t i = rows.from; i < rows.to; i += panel) {
      char *y = t->y + (i * g->n + j) * out;
      float *sum = (float *)(void *)y;
      int64_t sum_row = g->n;
      if (g->out != GEMM_f32) {
        sum_row = SUM_COLUMNS;
        sum = t->sums ? t->sums + (i - summed_rows.from) * sum_row + j - columns.from : NULL;
      }
      run_tile(t, least(panel, rows.to - i), least(t->v->lanes, columns.to - j), depth,
               t->packed_a + (i - rows.from) / panel * panel_floats(depth, panel),
               t->packed_b + (j - columns.from) / t->v->lanes * panel_floats(depth, t->v->lanes), y,
               sum, sum_row, steps.from == 0, steps.to == g->k);
    }
}

static void run_block(const Block *t) {
  const Gemm *g = t->g;
  int64_t in = type_bytes(g->in), panel = panel_rows(t->v, t->rows.to - t->rows.from);
  int64_t held = HELD / t->v->rows * panel, wide = t->sums ? SUM_COLUMNS : COLUMNS;
  int64_t high = t->sums ? SUM_ROWS / panel * panel : t->rows.to - t->rows.from;
  // k in even slices.
  int64_t slices = (g->k + t->v->depth - 1) / t->v->depth;
  for (int64_t top = t->rows.from; top < t->rows.to; top += high)
    for (int64_t j = t->columns.from; j < t->columns.to; j += wide)
      for (int64_t s = 0; s < slices; s++) {
        Part summed = {top, least(top + high, t->rows.to)};
        Part columns = {j, least(j + wide, t->columns.to)}, steps = part_of(g->k, 4, s, slices);
        TilePack b = {.from = t->b + (j * g->b_column + steps.from * g->b_row) * in,
                      .lane = g->b_column,
                      .step = g->b_row,
                      .lanes = columns.to - j,
                      .steps = steps.to - steps.from,
                      .width = t->v->lanes,
                      .panel = panel_floats(steps.to - steps.from, t->v->lanes),
                      .padded = true};
        t->v->pack(g->in, &b, t->packed_b);
        for (int64_t i = top; i < summed.to; i += held) {
          Part rows = {i, least(i + held, summed.to)};
          TilePack a = {.from = t->a + (i * g->a_row + steps.from * g->a_column) * in,
                        .lane = g->a_row,
                        .step = g->a_column,
                        .lanes = rows.to - i,
                        .steps = steps.to - steps.from,
                        .width = panel,
                        .panel = panel_floats(steps.to - steps.from, panel)};
          t->v->pack(g->in, &a, t->packed_a);
          run_panels(t, rows, columns, steps, panel, summed);
        }
      }
}

// -- Threads -------------------------------------------------------------------------------------

// Parts of rows and of columns: of all grids of `threads` parts, that with the least work of a
// part.  A packed element costs about as much as half a vector of products.
typedef struct Grid {
  int64_t rows, columns;
} Grid;

static Grid grid_of(const TileKind *v, const Gemm *g, int64_t threads) {
  Grid best = {1, 1};
  double least_work = 0;
  for (int64_t rows = 1; rows <= threads; rows++) {
    if (threads % rows) continue;
    int64_t columns = threads / rows;
    Part r = part_of(g->m, v->rows, rows - 1, rows),
         c = part_of(g->n, v->lanes, columns - 1, columns);
    double m = (double)(r.to - r.from + v->rows), n = (double)(c.to - c.from + v->lanes);
    double work = m * n / v->lanes + (m + n) / 2;
    if (rows > 1 && work >= least_work) continue;
    least_work = work;
    best = (Grid){rows, columns};
  }
  return best;
}

int gemm_run(const Gemm *g, int threads, void *y, const void *a, const void *b) {
  if (!g->batch || !g->m || !g->n) return NNRT_OK;
  if (!g->k) {
    memset(y, 0, (size_t)(g->batch * g->m * g->n * type_bytes(g->out)));
    return NNRT_OK;
  }
  const TileKind *v = tile_kind();
  // Matrices of a batch are parts, too.
  Grid grid =
      g->batch >= threads ? (Grid){1, 1} : grid_of(v, g, (threads + g->batch - 1) / g->batch);
  int64_t parts = grid.rows * grid.columns, tasks = g->batch * parts;
  if (tasks < threads) threads = (int)tasks;
  bool sums = g->out != GEMM_f32 && g->k > v->depth;
  // Sizes of packed operands: the panels of a thread may be one more than those of the whole.
  int64_t depth = least(g->k, v->depth), rows = least(g->m, HELD),
          columns = least(g->n, sums ? SUM_COLUMNS : COLUMNS);
  size_t of_a = round_64((size_t)((rows + 1) * panel_floats(depth, 1)) * 4);
  size_t of_b = round_64((size_t)((columns / v->lanes + 1) * panel_floats(depth, v->lanes)) * 4);
  size_t each = of_a + of_b + (sums ? (size_t)SUM_ROWS * SUM_COLUMNS * 4 : 0);
  char *scratch = kernel_scratch(each * (size_t)threads);
  if (!scratch) return scratch_failed(each * (size_t)threads);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < tasks; i++) {
    int64_t matrix = i / parts, part = i % parts, in = type_bytes(g->in);
    char *own = scratch + each * (size_t)omp_get_thread_num();
    run_block(&(Block){.v = v,
                       .g = g,
                       .a = (const char *)a + matrix * g->m * g->k * in,
                       .b = (const char *)b + matrix * g->k * g->n * in,
                       .y = (char *)y + matrix * g->m * g->n * type_bytes(g->out),
                       .rows = part_of(g->m, 1, part / grid.columns, grid.rows),
                       .columns = part_of(g->n, v->lanes, part % grid.columns, grid.columns),
                       .packed_a = (float *)(void *)own,
                       .packed_b = (float *)(void *)(own + of_a),
                       .sums = sums ? (float *)(void *)(own + of_a + of_b) : NULL});
  }
  return NNRT_OK;
}
