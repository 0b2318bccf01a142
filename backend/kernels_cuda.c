// Fused bodies to CUDA C: one function that computes some neighbouring points, and a kernel that
// shares the points out among threads.
//
//     graph @fused_0 (%0: f32[4,6], %1: f32[4,1]) {
//       %2 = broadcast %1 shape=[4,6] : f32[4,6]
//       %3 = add %0, %2               : f32[4,6]
//       %4 = gelu %3                  : f32[4,6]
//       return %4
//     }
//
//   =>
//
//     static __device__ inline uint32_t fused_0_at1(uint32_t i) {  // index of u1 for point i
//       return i / 6;
//     }
//     template <int n>
//     static __device__ inline void fused_0_points(uint32_t i, float *y0, const float *x0, …) {
//       float u0[n], w0[n];
//       load_all(u0, x0 + i);
//       const float u1 = load_one(x1 + fused_0_at1(i));
//       for (int j = 0; j < n; j++) {
//         const float v3 = u0[j] + u1; // add
//         const float v4 = m_gelu(v3); // gelu
//         w0[j] = v4;
//       }
//       store_all(y0 + i, w0);
//     }
//     static __global__ void fused_0_kernel(float *y0, const float *x0, const float *x1) {
//       for (uint32_t i = 2 * (uint32_t)first_thread(); i < 24; i += 2 * (uint32_t)all_threads())
//         fused_0_points<2>(i, y0, x0, x1);
//     }
//     extern "C" int fused_0(float *y0, const float *x0, const float *x1) { // 24 points
//       return launch(fused_0_kernel, blocks_for(12), BLOCK, 0, y0, x0, x1);
//     }
//
// A thread takes as many neighbours as make 16 bytes of the smallest element type.  Indices of
// broadcast operands are divisions by constants, which the compiler turns into multiplications; 32
// bits suffice for all but the largest tensors.
//
// Sums over rows use some lanes of a warp for short rows, a block for long ones, and several blocks
// if there are too few rows for a gpu.  Sums over columns use blocks that go down a part of the
// rows with some neighbouring columns.  Partial sums of several blocks go through scratch: see
// rt/cuda/fused.cuh.
//
// A grid has no more than MOST_BLOCKS blocks, or FEW_BLOCKS + BLOCKS with partial sums, and BLOCKS
// in y: a gpu takes 2^31 - 1, and 65535 in y.

#include "kernels.h"

#include <inttypes.h>

#include "bodies.h"

enum {
  BLOCK = 256, // threads, as in rt/cuda/device.cuh
  WARP = 32,
  MAX_PACK = 8,          // points of one thread at a time
  LONG_ROW = 2048,       // points worth a block
  BLOCKS = 1024,         // enough for any gpu
  FEW_BLOCKS = 256,      // too few for a large gpu
  MOST_BLOCKS = 1 << 20, // of a grid; they go on to further rows or columns
  LEAST_PASSES = 4,      // of a block over its part of a long row, to be worth a second reduction
  LEAST_ROWS = 64,       // of a part, in sums over columns
  SCRATCH_ALIGN = 256,
};

typedef struct CudaKernel {
  Kernel k;
  const char *index; // the type of a point's number
  int pack;          // points per thread and iteration
} CudaKernel;

// How an operand is read at `pack` neighbouring points.
typedef enum Reading {
  READ_all,  // neighbours, in one vector load
  READ_one,  // one element for all
  READ_each, // one load each
} Reading;

static bool is_uniform(const Access *a) {
  for (int i = 0; i < a->n; i++)
    if (a->stride[i]) return false;
  return true;
}

static Reading reading(const Access *a, int pack) {
  if (access_is_flat(a)) return READ_all;
  if (is_uniform(a)) return READ_one;
  int last = a->n - 1;
  // Neighbours must not continue in the next row.
  if (a->extent[last] % pack) return READ_each;
  if (a->stride[last] == 0) return READ_one;
  bool aligned = a->stride[last] == 1;
  for (int i = 0; i < last; i++)
    aligned &= a->stride[i] % pack == 0;
  return aligned ? READ_all : READ_each;
}

// -- Types -------------------------------------------------------------------------------------

// In kernels 16-bit floating types are structs.
static const char *element(const Value *v) {
  DType t = v->type->dtype;
  return kernel_dtype(t) == t ? dtype_ctype[t] : dtype_name[t];
}

// The accumulator type of one thread or block.
static const char *sum_type(const Value *v) {
  return dtype_class[v->type->dtype] == 'F' ? kernel_ctype(v) : "long long";
}

static int64_t most_blocks(int64_t n) {
  return n < MOST_BLOCKS ? n : MOST_BLOCKS;
}

static int smaller(int a, int b) {
  return a < b ? a : b;
}

// -- Points ------------------------------------------------------------------------------------

static const char *read_text(Kernel *k, int i) {
  const CudaKernel *c = (const CudaKernel *)k;
  bool one = reading(&k->read.at[i].access, c->pack) == READ_one;
  return str_format(k->arena, one ? "u%d" : "u%d[j]", i);
}

static bool has_place(const Read *r) {
  return !access_is_flat(&r->access) && !is_uniform(&r->access);
}

static void emit_places(CudaKernel *c) {
  Kernel *k = &c->k;
  for (int i = 0; i < k->read.n; i++) {
    const Read *r = &k->read.at[i];
    if (!has_place(r)) continue;
    kernel_line(k, "static __device__ inline %s %s_at%d(%s i) { // where u%d of point i is",
                c->index, k->name, i, c->index, i);
    // "i / 6 % 4 * 12 + i % 6": the index that point i reads.
    const Access *a = &r->access;
    StrBuf b = {.arena = k->arena};
    int64_t inner = 1;
    for (int d = a->n - 1; d >= 0; inner *= a->extent[d--]) {
      if (!a->stride[d]) continue;
      const char *before = b.at;
      b = (StrBuf){.arena = k->arena};
      strbuf_add(&b, "i");
      if (inner > 1) strbuf_addf(&b, " / %" PRId64, inner);
      if (d > 0) strbuf_addf(&b, " %% %" PRId64, a->extent[d]);
      if (a->stride[d] > 1) strbuf_addf(&b, " * %" PRId64, a->stride[d]);
      if (before) strbuf_addf(&b, " + %s", before);
    }
    kernel_line(k, "  return %s;", b.at);
    kernel_line(k, "}");
  }
}

// "x1 + fused_0_at1(i)"
static const char *read_place(Kernel *k, int i, const char *point) {
  const Read *r = &k->read.at[i];
  if (access_is_flat(&r->access)) return str_format(k->arena, "x%d + %s", r->param->index, point);
  if (!has_place(r)) return str_format(k->arena, "x%d", r->param->index);
  return str_format(k->arena, "x%d + %s_at%d(%s)", r->param->index, k->name, i, point);
}

// Writes all loads before any store: a result may share the memory of an operand.
static void emit_loads(CudaKernel *c) {
  Kernel *k = &c->k;
  for (int i = 0; i < k->read.n; i++) {
    const Read *r = &k->read.at[i];
    const char *type = kernel_ctype(r->param);
    // One load for all points, one vector load, or a load for each point.
    switch (reading(&r->access, c->pack)) {
    case READ_one:
      kernel_line(k, "const %s u%d = load_one(%s);", type, i, read_place(k, i, "i"));
      break;
    case READ_all:
      kernel_line(k, "%s u%d[n];", type, i);
      kernel_line(k, "load_all(u%d, %s);", i, read_place(k, i, "i"));
      break;
    case READ_each:
      kernel_line(k, "%s u%d[n];", type, i);
      kernel_line(k, "for (int j = 0; j < n; j++)");
      kernel_line(k, "  u%d[j] = load_one(%s);", i,
                  read_place(k, i, str_format(k->arena, "i + (%s)j", c->index)));
      break;
    }
  }
}

static void emit_points(CudaKernel *c) {
  Kernel *k = &c->k;
  // Write the formulas first: they record the operands that they read.
  StrBuf *out = k->out, inside = {.arena = k->arena};
  k->out = &inside;
  k->indent = 2;
  kernel_formulas(k);
  for (int i = 0; i < k->g->n_results; i++) {
    if (!kernel_is_sum(k, i))
      kernel_line(k, "w%d[j] = %s;", i, kernel_value(k, kernel_result(k, i)));
    else
      kernel_line(k, "s%d[%s] += %s;", i, k->body.sum == SUM_rows ? "0" : "j", kernel_addend(k, i));
  }
  k->out = out;
  k->indent = 0;
  emit_places(c);
  // The parameters of the points: results and operands; for sums, the accumulators.
  StrBuf b = {.arena = k->arena};
  for (int i = 0; i < k->g->n_results; i++) {
    const Value *v = kernel_result(k, i);
    if (!kernel_is_sum(k, i))
      strbuf_addf(&b, ", %s *y%d", element(v), i);
    else
      strbuf_addf(&b, ", %s (&s%d)[%s]", sum_type(v), i, k->body.sum == SUM_rows ? "1" : "n");
  }
  for (int i = 0; i < k->g->n_params; i++)
    strbuf_addf(&b, ", const %s *x%d", element(k->g->params[i]), i);
  kernel_line(k, "template <int n>");
  kernel_line(k, "static __device__ inline void %s_points(%s i%s) {", k->name, c->index,
              b.at ? b.at : "");
  k->indent = 1;
  emit_loads(c);
  for (int i = 0; i < k->g->n_results; i++)
    if (!kernel_is_sum(k, i)) kernel_line(k, "%s w%d[n];", kernel_ctype(kernel_result(k, i)), i);
  kernel_line(k, "for (int j = 0; j < n; j++) {");
  // Points are computed in registers, and stored together.
  strbuf_add(k->out, inside.at ? inside.at : "");
  kernel_line(k, "}");
  for (int i = 0; i < k->g->n_results; i++)
    if (!kernel_is_sum(k, i)) kernel_line(k, "store_all(y%d + i, w%d);", i, i);
  k->indent = 0;
  kernel_line(k, "}");
}

// Writes a call of the points from number `i`.
static void emit_points_call(CudaKernel *c, int pack, const char *i) {
  Kernel *k = &c->k;
  StrBuf b = {.arena = k->arena};
  for (int r = 0; r < k->g->n_results; r++)
    strbuf_addf(&b, ", %c%d", kernel_is_sum(k, r) ? 's' : 'y', r);
  for (int x = 0; x < k->g->n_params; x++)
    strbuf_addf(&b, ", x%d", x);
  kernel_line(k, "%s_points<%d>(%s%s);", k->name, pack, i, b.at ? b.at : "");
}

// -- Kernels -----------------------------------------------------------------------------------

// Opens a kernel.  `parts`: sums go to scratch, as t0, t1, …
static void open_kernel(CudaKernel *c, bool parts) {
  Kernel *k = &c->k;
  StrBuf b = {.arena = k->arena};
  for (int i = 0; i < k->g->n_results; i++) {
    const Value *v = kernel_result(k, i);
    strbuf_add(&b, b.n ? ", " : "");
    // Partial sums have the accumulator's type.
    if (parts && kernel_is_sum(k, i))
      strbuf_addf(&b, "%s *t%d", sum_type(v), i);
    else
      strbuf_addf(&b, "%s *y%d", element(v), i);
  }
  for (int i = 0; i < k->g->n_params; i++)
    strbuf_addf(&b, "%sconst %s *x%d", b.n ? ", " : "", element(k->g->params[i]), i);
  kernel_line(k, "static __global__ void %s_kernel(%s) {", k->name, b.at);
  k->indent = 1;
}

static void close_kernel(CudaKernel *c) {
  c->k.indent = 0;
  kernel_line(&c->k, "}");
}

static void open_function(CudaKernel *c) {
  Kernel *k = &c->k;
  kernel_line(k, "extern \"C\" int %s(%s) { // %" PRId64 " points", k->name, kernel_params(k),
              k->body.count);
  k->indent = 1;
}

// The address in scratch of the partial sums of a result.
static const char *part_place(Kernel *k, int64_t at) {
  return at ? str_format(k->arena, "parts + %" PRId64, at) : "parts";
}

// "launch(fused_0_kernel, GRID, BLOCK, 0, y0, x0)"; `part_at`: offsets of sums in scratch, or NULL.
static const char *launch_text(CudaKernel *c, const char *grid, const int64_t *part_at) {
  Kernel *k = &c->k;
  StrBuf b = {.arena = k->arena};
  strbuf_addf(&b, "launch(%s_kernel, %s, BLOCK, 0", k->name, grid);
  for (int i = 0; i < k->g->n_results; i++) {
    // A kernel of partial sums writes to scratch.
    if (part_at && kernel_is_sum(k, i))
      strbuf_addf(&b, ", %s", part_place(k, part_at[i]));
    else
      strbuf_addf(&b, ", y%d", i);
  }
  for (int i = 0; i < k->g->n_params; i++)
    strbuf_addf(&b, ", x%d", i);
  strbuf_add(&b, ")");
  return b.at;
}

static void emit_elementwise(CudaKernel *c) {
  Kernel *k = &c->k;
  int64_t n = k->body.count, rest = n % c->pack, packs = n / c->pack;
  const char *times = c->pack > 1 ? str_format(k->arena, "%d * ", c->pack) : "";
  open_kernel(c, false);
  // Whole packs first; the remaining points, fewer than a pack, take a thread each.
  if (packs > 0) {
    kernel_line(k, "for (%s i = %s(%s)first_thread(); i < %" PRId64 "; i += %s(%s)all_threads())",
                c->index, times, c->index, n - rest, times, c->index);
    k->indent++;
    emit_points_call(c, c->pack, "i");
    k->indent--;
  }
  if (rest > 0) {
    kernel_line(k, "if (first_thread() < %" PRId64 ")", rest);
    k->indent++;
    const char *before = packs > 0 ? str_format(k->arena, "%" PRId64 " + ", n - rest) : "";
    emit_points_call(c, 1, str_format(k->arena, "%s(%s)first_thread()", before, c->index));
    k->indent--;
  }
  close_kernel(c);
  open_function(c);
  // The grid has a thread for each pack.
  const char *grid = str_format(k->arena, "blocks_for(%" PRId64 ")", packs > rest ? packs : rest);
  kernel_line(k, "return %s;", launch_text(c, grid, NULL));
  close_kernel(c);
}

static void emit_sums_at_zero(CudaKernel *c, int n) {
  Kernel *k = &c->k;
  for (int i = 0; i < k->g->n_results; i++)
    if (kernel_is_sum(k, i))
      kernel_line(k, "%s s%d[%d] = {0};", sum_type(kernel_result(k, i)), i, n);
}

// -- Several blocks for one sum

// Writes the launching function if each sum has `parts` partial sums.
static void emit_parts(CudaKernel *c, const char *grid, int64_t parts) {
  Kernel *k = &c->k;
  int64_t n = k->body.n_kept, bytes = 0;
  int64_t *at = arena_array(k->arena, int64_t, k->g->n_results);
  // Offsets in scratch: each sum has `parts` rows of n partial sums.
  for (int i = 0; i < k->g->n_results; i++) {
    if (!kernel_is_sum(k, i)) continue;
    at[i] = bytes;
    DType t = kernel_result(k, i)->type->dtype;
    int sum_bytes = dtype_class[t] == 'F' ? dtype_bytes[kernel_dtype(t)] : 8;
    bytes += (parts * n * sum_bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
  }
  // The second kernel takes a power of two of columns per block.
  int columns = 1;
  while (columns < WARP && columns < n)
    columns *= 2;
  // The kernel writes partial sums; a second one adds them.
  open_function(c);
  kernel_line(k, "char *parts = (char *)nnrt_gpu_scratch(%" PRId64 ");", bytes);
  kernel_line(k, "if (!parts) return NNRT_MEMORY;");
  kernel_line(k, "int code = %s;", launch_text(c, grid, at));
  for (int i = 0; i < k->g->n_results; i++) {
    if (!kernel_is_sum(k, i)) continue;
    const Value *v = kernel_result(k, i);
    kernel_line(k,
                "if (!code) code = launch(add_parts<%d, %s, %s>, %" PRId64
                ", BLOCK, 0, y%d, %s, %" PRId64 ", %" PRId64 ");",
                columns, element(v), sum_type(v), (n + columns - 1) / columns, i,
                part_place(k, at[i]), n, parts);
  }
  kernel_line(k, "return code;");
  close_kernel(c);
}

// Writes the function that launches the kernel once, or for partial sums, which it then adds.
static void emit_launch(CudaKernel *c, const char *grid, int64_t parts) {
  if (parts > 1) {
    emit_parts(c, grid, parts);
    return;
  }
  open_function(c);
  kernel_line(&c->k, "return %s;", launch_text(c, grid, NULL));
  close_kernel(c);
}

// -- Rows

// Short rows: some lanes of a warp for each.
static void emit_short_rows(CudaKernel *c) {
  Kernel *k = &c->k;
  int64_t rows = k->body.n_kept, length = k->body.count / rows;
  // A row has a power of two of lanes, so that a warp has whole rows.
  int lanes = 1;
  while (lanes < WARP && lanes * c->pack < length)
    lanes *= 2;
  int at_once = BLOCK / lanes;
  open_kernel(c, false);
  kernel_line(k, "const %s lane = threadIdx.x %% %d;", c->index, lanes);
  // All lanes of a warp take part in a sum, also lanes without a row.
  kernel_line(k, "for (%s first = blockIdx.x * %d; first < %" PRId64 "; first += gridDim.x * %d) {",
              c->index, at_once, rows, at_once);
  k->indent++;
  kernel_line(k, "const %s row = first + threadIdx.x / %d;", c->index, lanes);
  emit_sums_at_zero(c, 1);
  kernel_line(k, "for (%s at = lane * %d; at < %" PRId64 " && row < %" PRId64 "; at += %d)",
              c->index, c->pack, length, rows, lanes * c->pack);
  k->indent++;
  emit_points_call(c, c->pack, str_format(k->arena, "row * %" PRId64 " + at", length));
  k->indent--;
  // Reduce over the lanes of a row; its first lane stores the sum.
  for (int i = 0; i < k->g->n_results; i++) {
    if (!kernel_is_sum(k, i)) continue;
    kernel_line(k, "s%d[0] = lanes_sum<%d>(s%d[0]);", i, lanes, i);
    kernel_line(k, "if (lane == 0 && row < %" PRId64 ") store_one(y%d + row, s%d[0]);", rows, i, i);
  }
  k->indent--;
  kernel_line(k, "}");
  close_kernel(c);
  open_function(c);
  const char *grid = str_format(k->arena, "blocks_for(%" PRId64 ")", rows * lanes);
  kernel_line(k, "return %s;", launch_text(c, grid, NULL));
  close_kernel(c);
}

// Long rows: a block for each, or several.
static void emit_long_rows(CudaKernel *c) {
  Kernel *k = &c->k;
  int64_t rows = k->body.n_kept, length = k->body.count / rows;
  int64_t pass = (int64_t)BLOCK * c->pack, passes = (length + pass - 1) / pass, parts = 1;
  // Too few rows for a gpu: several blocks per row, each with at least LEAST_PASSES passes.
  if (rows < FEW_BLOCKS) {
    parts = (BLOCKS + rows - 1) / rows;
    if (parts > passes / LEAST_PASSES) parts = passes / LEAST_PASSES;
    if (parts < 1) parts = 1;
  }
  int64_t each = (passes + parts - 1) / parts * pass;
  parts = (length + each - 1) / each;
  open_kernel(c, parts > 1);
  // With parts, a block has one part of one row; otherwise it loops over whole rows.
  if (parts > 1) {
    kernel_line(k, "const %s row = blockIdx.x / %" PRId64 ", part = blockIdx.x %% %" PRId64 ";",
                c->index, parts, parts);
    kernel_line(k, "const %s from = part * %" PRId64 ";", c->index, each);
    kernel_line(k, "const %s end = part == %" PRId64 " ? %" PRId64 " : from + %" PRId64 ";",
                c->index, parts - 1, length, each);
  } else {
    kernel_line(k, "for (%s row = blockIdx.x; row < %" PRId64 "; row += gridDim.x) {", c->index,
                rows);
    k->indent++;
    kernel_line(k, "const %s from = 0, end = %" PRId64 ";", c->index, length);
  }
  emit_sums_at_zero(c, 1);
  kernel_line(k, "for (%s at = from + threadIdx.x * %d; at < end; at += %" PRId64 ")", c->index,
              c->pack, pass);
  k->indent++;
  emit_points_call(c, c->pack, str_format(k->arena, "row * %" PRId64 " + at", length));
  k->indent--;
  // Reduce over the block.  A partial sum goes to scratch, a whole one to the result.
  for (int i = 0; i < k->g->n_results; i++) {
    if (!kernel_is_sum(k, i)) continue;
    kernel_line(k, "block_sums<1>(s%d);", i);
    if (parts > 1)
      kernel_line(k, "if (threadIdx.x == 0) t%d[part * %" PRId64 " + row] = s%d[0];", i, rows, i);
    else
      kernel_line(k, "if (threadIdx.x == 0) store_one(y%d + row, s%d[0]);", i, i);
  }
  if (parts == 1) {
    k->indent--;
    kernel_line(k, "}");
  }
  close_kernel(c);
  const char *grid = str_format(k->arena, "%" PRId64, most_blocks(rows * parts));
  emit_launch(c, grid, parts);
}

// -- Columns

static void emit_columns(CudaKernel *c) {
  Kernel *k = &c->k;
  int64_t columns = k->body.n_kept, rows = k->body.count / columns;
  int wide = 1; // packs of a block, side by side
  // A block is `wide` packs of columns by `high` rows; a tile is its columns.
  while (wide < WARP && (int64_t)wide * c->pack < columns)
    wide *= 2;
  int high = BLOCK / wide;
  int64_t tile = (int64_t)wide * c->pack, tiles = (columns + tile - 1) / tile;
  // Too few tiles for a gpu: rows are split into parts of at least LEAST_ROWS, along y of the grid.
  int64_t parts = (BLOCKS + tiles - 1) / tiles, most = rows / LEAST_ROWS;
  if (parts > most) parts = most;
  if (parts < 1) parts = 1;
  int64_t each = (rows + parts - 1) / parts;
  parts = (rows + each - 1) / each;
  open_kernel(c, parts > 1);
  kernel_line(k, "for (%s tile = blockIdx.x; tile < %" PRId64 "; tile += gridDim.x) {", c->index,
              tiles);
  k->indent++;
  kernel_line(k, "const %s column = (tile * %d + threadIdx.x %% %d) * %d;", c->index, wide, wide,
              c->pack);
  if (parts > 1) {
    kernel_line(k, "const %s from = blockIdx.y * %" PRId64 ";", c->index, each);
    kernel_line(k, "const %s end = blockIdx.y == %" PRId64 " ? %" PRId64 " : from + %" PRId64 ";",
                c->index, parts - 1, rows, each);
  } else {
    kernel_line(k, "const %s from = 0, end = %" PRId64 ";", c->index, rows);
  }
  emit_sums_at_zero(c, c->pack);
  kernel_line(
      k, "for (%s row = from + threadIdx.x / %d; row < end && column < %" PRId64 "; row += %d)",
      c->index, wide, columns, high);
  k->indent++;
  emit_points_call(c, c->pack, str_format(k->arena, "row * %" PRId64 " + column", columns));
  k->indent--;
  // Reduce over the rows of the block.  A partial sum goes to scratch, a whole one to the result.
  for (int i = 0; i < k->g->n_results; i++) {
    if (!kernel_is_sum(k, i)) continue;
    kernel_line(k, "block_sums<%d>(s%d);", wide, i);
    kernel_line(k, "if (threadIdx.x < %d && column < %" PRId64 ")", wide, columns);
    if (parts > 1)
      kernel_line(k, "  store_all(t%d + blockIdx.y * (%s)%" PRId64 " + column, s%d);", i, c->index,
                  columns, i);
    else
      kernel_line(k, "  store_all(y%d + column, s%d);", i, i);
  }
  k->indent--;
  kernel_line(k, "}");
  close_kernel(c);
  // Tiles are along x, parts of the rows along y.
  const char *grid =
      str_format(k->arena, "dim3(%" PRId64 ", %" PRId64 ")", most_blocks(tiles), parts);
  emit_launch(c, grid, parts);
}

// -- A kernel ----------------------------------------------------------------------------------

static void emit_nothing(CudaKernel *c) {
  Kernel *k = &c->k;
  open_function(c);
  for (int i = 0; i < k->g->n_params; i++)
    kernel_line(k, "(void)x%d;", i);
  kernel_line(k, "int code = NNRT_OK;");
  for (int i = 0; i < k->g->n_results; i++) {
    int64_t bytes = type_bytes(kernel_result(k, i)->type);
    if (bytes > 0)
      kernel_line(k, "if (!code) code = nnrt_zero(y%d, %" PRId64 "); // an empty sum", i, bytes);
    else
      kernel_line(k, "(void)y%d;", i);
  }
  kernel_line(k, "return code;");
  close_kernel(c);
}

void kernel_emit_cuda(StrBuf *out, const Graph *body, const char *name) {
  CudaKernel c = {
      .k = {.out = out, .arena = out->arena, .g = body, .name = name, .read_text = read_text}};
  Body *b = &c.k.body;
  if (!body_read(body, b, out->arena)) BUG("@%s is no fused body", body->name);
  if (out->n) strbuf_add(out, "\n");
  // The index type must hold the largest point number plus one step.
  c.index = b->count <= INT32_MAX ? "uint32_t" : "int64_t";
  if (b->count == 0) {
    emit_nothing(&c);
    return;
  }
  int64_t unit = b->sum == SUM_rows      ? b->count / b->n_kept
                 : b->sum == SUM_columns ? b->n_kept
                                         : MAX_PACK;
  // A thread takes 16 bytes of neighbours of the smallest element type, if they divide the unit.
  int bytes = 8;
  for (int i = 0; i < c.k.g->n_results; i++)
    if (!kernel_is_sum(&c.k, i))
      bytes = smaller(bytes, dtype_bytes[kernel_result(&c.k, i)->type->dtype]);
  for (int i = 0; i < c.k.g->n_params; i++)
    if (type_count(c.k.g->params[i]->type) == c.k.body.count)
      bytes = smaller(bytes, dtype_bytes[c.k.g->params[i]->type->dtype]);
  int pack = smaller(16 / bytes, MAX_PACK);
  while (unit % pack)
    pack /= 2;
  c.pack = pack;
  emit_points(&c);
  if (b->sum == SUM_columns)
    emit_columns(&c);
  else if (b->sum == SUM_rows && b->count / b->n_kept < LONG_ROW)
    emit_short_rows(&c);
  else if (b->sum == SUM_rows)
    emit_long_rows(&c);
  else
    emit_elementwise(&c);
}
