// Fused bodies to C: loops over the points of the body, and a leaf that is the innermost loop.
//
//     graph @fused_0 (%0: f32[4,6], %1: f32[6]) {
//       %2 = broadcast %1 shape=[4,6] : f32[4,6]
//       %3 = add %0, %2               : f32[4,6]
//       %4 = gelu %3                  : f32[4,6]
//       return %4
//     }
//
//   =>
//
//     NNRT_CLONES
//     static void fused_0_loop(int64_t n, float *y0, const float *x0, const float *x1) {
//     #pragma omp simd
//       for (int64_t i = 0; i < n; i++) {
//         const float u0 = x0[i];
//         const float u1 = x1[i];
//         const float v3 = u0 + u1;    // add
//         const float v4 = m_gelu(v3); // gelu
//         y0[i] = v4;
//       }
//     }
//     static int fused_0(float *y0, const float *x0, const float *x1) {  // 4 x 6 points
//       for (int64_t i0 = 0; i0 < 4; i0++)
//         fused_0_loop(6, y0 + i0 * 6, x0 + i0 * 6, x1);
//       return 0;
//     }
//
// Bodies that differ in sizes only have one leaf, which has none, except for strides over an
// operand.
//
// The leaf is compiled for several generations of processors and vectorised; `omp simd` says that
// points do not depend on each other, which holds although y0 may be x0 (in place).  The loops
// around it run in parallel if there is enough work.
//
// Sums over rows are made of partial sums of the leaf, in float and in vector lanes, at most
// LONGEST points each; partial sums are added up in double.  Sums over columns have an array of
// accumulators in double.  The work of each thread is fixed at compile time, not by the number of
// threads, and its results are added up in order: the same program gives the same bits.

#include "kernels.h"

#include <inttypes.h>

#include "bodies.h"

enum {
  LONGEST = 2048,   // points of one call of a leaf
  PARALLEL = 16384, // points worth waking threads for
  FEW = 8,          // iterations too few to share among threads
  TASKS = 64,       // parts of a sum, at most
  COLUMNS = 512,    // columns that one task adds up
  STACK = 16384,    // accumulators on the stack, at most
};

// The number of loops that the sums reduce: from the innermost (rows) or outermost (columns) on,
// until only kept loops are left.
static int count_summed(const Kernel *k) {
  const Loops *l = &k->body.loops;
  int64_t summed = k->body.n_kept ? k->body.count / k->body.n_kept : 0, n = 1;
  int i = 0;
  while (i < l->n && n < summed) {
    n *= l->extent[k->body.sum == SUM_rows ? l->n - 1 - i : i];
    i++;
  }
  return i;
}

// -- The leaf ----------------------------------------------------------------------------------

static const char *read_text(Kernel *k, int i) {
  return str_format(k->arena, "u%d", i);
}

// `x`, converted to the stored type of `v`, of which it is a number if `exact`.
static const char *stored(Kernel *k, const Value *v, const char *x, bool exact) {
  DType t = v->type->dtype;
  if (kernel_dtype(t) == t) return x;
  return str_format(k->arena, "m_%s_%s(%s)", exact ? "bits" : "to", dtype_name[t], x);
}

static const char *leaf_params(Kernel *k) {
  StrBuf b = {.arena = k->arena};
  for (int i = 0; i < k->g->n_results; i++) {
    const Value *v = kernel_result(k, i);
    // Sums go to accumulators, other results to their tensor.
    if (kernel_is_sum(k, i))
      strbuf_addf(&b, ", %s *t%d", kernel_sum_ctype(v), i);
    else
      strbuf_addf(&b, ", %s *y%d", kernel_stored_ctype(v), i);
  }
  for (int i = 0; i < k->read.n; i++)
    strbuf_addf(&b, ", const %s *x%d", kernel_stored_ctype(k->read.at[i].param), i);
  return b.at;
}

// Writes all loads before any store: a result may share the memory of an operand.
static void emit_loads(Kernel *k, bool moving) {
  for (int i = 0; i < k->read.n; i++) {
    const Read *r = &k->read.at[i];
    const Value *v = r->param;
    int64_t stride = loops_stride(&k->body.loops, k->body.loops.n - 1, &r->access);
    // Operands that are the same for all points are loaded before the loop.
    if ((stride != 0) != moving) continue;
    const char *place = stride == 0   ? "0"
                        : stride == 1 ? "i"
                                      : str_format(k->arena, "i * %" PRId64, stride);
    const char *element = str_format(k->arena, "x%d[%s]", i, place);
    // The formulas are in the computation type.
    DType t = v->type->dtype;
    if (kernel_dtype(t) != t)
      element = str_format(k->arena, "m_from_%s(%s)", dtype_name[t], element);
    kernel_line(k, "const %s u%d = %s;", kernel_ctype(v), i, element);
  }
}

// Writes the leaf, after its name.
static void emit_leaf(Kernel *k) {
  // Write the points first: they record the operands that they read.
  StrBuf *out = k->out, inside = {.arena = k->arena};
  k->out = &inside;
  k->indent = 2;
  kernel_formulas(k);
  for (int i = 0; i < k->g->n_results; i++) {
    const Value *v = kernel_result(k, i);
    if (!kernel_is_sum(k, i))
      kernel_line(k, "y%d[i] = %s;", i, stored(k, v, kernel_value(k, v), kernel_is_exact(k, v)));
    else if (k->body.sum == SUM_rows)
      kernel_line(k, "s%d += %s;", i, kernel_addend(k, i));
    else
      kernel_line(k, "t%d[i] += %s;", i, kernel_addend(k, i));
  }
  k->out = out;
  k->indent = 0;
  const char *params = leaf_params(k);
  kernel_line(k, "(int64_t n%s) {", params ? params : "");
  k->indent = 1;
  // The loop over points, with the loads before it.
  emit_loads(k, false);
  if (k->body.sum == SUM_rows) {
    // A row of points is summed in its own type, in vector lanes.
    StrBuf names = {.arena = k->arena};
    for (int i = 0; i < k->g->n_results; i++) {
      if (!kernel_is_sum(k, i)) continue;
      bool floating = dtype_class[kernel_result(k, i)->type->dtype] == 'F';
      kernel_line(k, "%s s%d = 0;", floating ? kernel_ctype(kernel_result(k, i)) : "int64_t", i);
      strbuf_addf(&names, "%ss%d", names.n ? ", " : "", i);
    }
    kernel_line(k, "#pragma omp simd reduction(+ : %s)", names.at);
  } else
    kernel_line(k, "#pragma omp simd");
  kernel_line(k, "for (int64_t i = 0; i < n; i++) {");
  k->indent = 2;
  emit_loads(k, true);
  k->indent = 1;
  strbuf_add(k->out, inside.at);
  kernel_line(k, "}");
  // Partial sums of a row are added to its accumulator in double.
  for (int i = 0; i < k->g->n_results; i++)
    if (k->body.sum == SUM_rows && kernel_is_sum(k, i)) kernel_line(k, "t%d[0] += s%d;", i, i);
  k->indent = 0;
  kernel_line(k, "}");
}

// -- The loops around the leaf -----------------------------------------------------------------

// " + i0 * 48 + i1 * 6" for the loops from `from` up to `to`, and " + at" by the stride of the
// last.
static void add_index(StrBuf *b, const Kernel *k, const Access *a, int from, int to, bool at) {
  for (int i = from; i < to; i++) {
    int64_t stride = loops_stride(&k->body.loops, i, a);
    if (stride == 1) strbuf_addf(b, " + i%d", i);
    if (stride > 1) strbuf_addf(b, " + i%d * %" PRId64, i, stride);
  }
  int64_t stride = loops_stride(&k->body.loops, k->body.loops.n - 1, a);
  if (at && stride == 1) strbuf_add(b, " + at");
  if (at && stride > 1) strbuf_addf(b, " + at * %" PRId64, stride);
}

// The number of points of the loops from `from` up to `to`.
static int64_t points(const Kernel *k, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; i++)
    n *= k->body.loops.extent[i];
  return n;
}

// The strides of an array that has one element for each iteration of loops `from` up to `to`.
static Access dense(const Kernel *k, int from, int to) {
  Access a = {.n = k->body.loops.n};
  for (int i = 0; i < k->body.loops.n; i++) {
    a.extent[i] = k->body.loops.extent[i];
    a.stride[i] = i >= from && i < to ? points(k, i + 1, to) : 0;
  }
  return a;
}

// Writes a call of the leaf at the current point of the loops.  `at`: the innermost loop begins at
// `at`.  `sums`: the index of the destination of sums, after "t%d".
static void emit_call(Kernel *k, const char *n, bool at, const char *sums) {
  StrBuf b = {.arena = k->arena};
  int last = k->body.loops.n - 1;
  const Access flat = dense(k, 0, k->body.loops.n);
  for (int i = 0; i < k->g->n_results; i++) {
    strbuf_add(&b, ", ");
    if (kernel_is_sum(k, i)) {
      strbuf_addf(&b, "%st%d%s", k->body.sum == SUM_rows && !*sums ? "&" : "", i, sums);
      continue;
    }
    // Results are dense; operands have their own strides.
    strbuf_addf(&b, "y%d", i);
    add_index(&b, k, &flat, 0, last, at);
  }
  for (int i = 0; i < k->read.n; i++) {
    const Read *r = &k->read.at[i];
    strbuf_addf(&b, ", x%d", r->param->index);
    add_index(&b, k, &r->access, 0, last, at);
  }
  kernel_line(k, "%s(%s%s);", k->leaf_name, n, b.at ? b.at : "");
}

static void open_loop(Kernel *k, int i, const char *brace) {
  kernel_line(k, "for (int64_t i%d = 0; i%d < %" PRId64 "; i%d++)%s", i, i, k->body.loops.extent[i],
              i, brace);
  k->indent++;
}

static void open_loops(Kernel *k, int from, int to) {
  for (int i = from; i < to; i++)
    open_loop(k, i, "");
}

static const char *piece_text(Kernel *k, int64_t piece) {
  int64_t n = k->body.loops.extent[k->body.loops.n - 1];
  if (n % piece == 0) return str_format(k->arena, "%" PRId64, piece);
  return str_format(k->arena, "%" PRId64 " - at < %" PRId64 " ? %" PRId64 " - at : %" PRId64, n,
                    piece, n, piece);
}

static void emit_parallel(Kernel *k, int n_loops) {
  if (n_loops > 1)
    kernel_line(k, "#pragma omp parallel for collapse(%d)", n_loops);
  else
    kernel_line(k, "#pragma omp parallel for");
}

// Calls the leaf over the whole innermost loop, in pieces if it is long.
static void emit_leaf_calls(Kernel *k, const char *sums) {
  int64_t n = k->body.loops.extent[k->body.loops.n - 1];
  bool pieces = n > LONGEST;
  if (pieces) {
    // A long innermost loop runs in pieces.
    kernel_line(k, "for (int64_t at = 0; at < %" PRId64 "; at += %d)", n, LONGEST);
    k->indent++;
  }
  emit_call(k, pieces ? piece_text(k, LONGEST) : str_format(k->arena, "%" PRId64, n), pieces, sums);
}

static void emit_elementwise(Kernel *k) {
  int last = k->body.loops.n - 1;
  int64_t n = k->body.loops.extent[last], around = points(k, 0, last);
  bool pieces = n > LONGEST;
  if (k->body.count >= PARALLEL && (around > 1 || pieces)) emit_parallel(k, last + pieces);
  int indent = k->indent;
  open_loops(k, 0, last);
  emit_leaf_calls(k, "");
  k->indent = indent;
}

// A sum, converted to its stored type.
static const char *sum_text(Kernel *k, int i, const char *at) {
  const Value *v = kernel_result(k, i);
  return stored(k, v, str_format(k->arena, "(%s)t%d%s", kernel_ctype(v), i, at), false);
}

static void emit_sum_stores(Kernel *k, const Access *kept, int from, int to, const char *index) {
  for (int i = 0; i < k->g->n_results; i++) {
    if (!kernel_is_sum(k, i)) continue;
    StrBuf b = {.arena = k->arena};
    add_index(&b, k, kept, from, to, false);
    kernel_line(k, "y%d[%s%s%s] = %s;", i, b.at ? b.at + 3 : "", b.at && *index ? " + " : "",
                b.at || *index ? index : "0", sum_text(k, i, *index ? "[i]" : ""));
  }
}

static void emit_sum_locals(Kernel *k, const char *what) {
  for (int i = 0; i < k->g->n_results; i++)
    if (kernel_is_sum(k, i))
      kernel_line(k, "%s t%d%s;", kernel_sum_ctype(kernel_result(k, i)), i, what);
}

// Rows: the innermost loops are summed, one sum for each iteration of the others.
static void emit_rows(Kernel *k) {
  int first = k->body.loops.n - count_summed(k); // first summed loop
  int64_t rows = points(k, 0, first), first_n = k->body.loops.extent[first];
  const Access kept = dense(k, 0, first);
  bool work = k->body.count >= PARALLEL;
  bool share_rows = rows >= FEW || !work;
  // Many rows are shared among threads, each summed by one.
  if (share_rows && work) emit_parallel(k, first);
  int indent = k->indent;
  for (int i = 0; i < first; i++)
    open_loop(k, i, i == first - 1 ? " {" : "");
  int body = k->indent;
  if (share_rows) {
    emit_sum_locals(k, " = 0");
    open_loops(k, first, k->body.loops.n - 1);
    emit_leaf_calls(k, "");
  } else {
    // Few long rows: each is split into parts with partial sums.
    bool pieces = count_summed(k) == 1; // of the innermost loop, else the first summed one
    int64_t unit = pieces ? LONGEST : 1, units = (first_n + unit - 1) / unit;
    int64_t each = (units + TASKS - 1) / TASKS * unit, tasks = (first_n + each - 1) / each;
    const char *var = pieces ? "at" : str_format(k->arena, "i%d", first);
    // Each part has its partial sum.
    emit_sum_locals(k, str_format(k->arena, "_of[%" PRId64 "] = {0}", tasks));
    kernel_line(k, "#pragma omp parallel for");
    kernel_line(k, "for (int64_t part = 0; part < %" PRId64 "; part++) {", tasks);
    k->indent++;
    kernel_line(k,
                "const int64_t end = part == %" PRId64 " ? %" PRId64 " : (part + 1) * %" PRId64 ";",
                tasks - 1, first_n, each);
    kernel_line(k, "for (int64_t %s = part * %" PRId64 "; %s < end; %s += %" PRId64 ")", var, each,
                var, var, unit);
    k->indent++;
    if (pieces) {
      emit_call(k, str_format(k->arena, "end - at < %d ? end - at : %d", LONGEST, LONGEST), true,
                "_of + part");
    } else {
      open_loops(k, first + 1, k->body.loops.n - 1);
      emit_leaf_calls(k, "_of + part");
    }
    k->indent = body;
    kernel_line(k, "}");
    // The partial sums are added in order.
    emit_sum_locals(k, " = 0");
    kernel_line(k, "for (int64_t part = 0; part < %" PRId64 "; part++) {", tasks);
    k->indent++;
    for (int i = 0; i < k->g->n_results; i++)
      if (kernel_is_sum(k, i)) kernel_line(k, "t%d += t%d_of[part];", i, i);
    k->indent--;
    kernel_line(k, "}");
  }
  k->indent = body;
  emit_sum_stores(k, &kept, 0, first, "");
  k->indent = first > 0 ? body - 1 : indent;
  if (first > 0) kernel_line(k, "}");
  k->indent = indent;
}

// Many columns: each task has some of them and goes down all rows.
static void emit_wide_columns(Kernel *k) {
  int first = count_summed(k), last = k->body.loops.n - 1;
  int64_t n = k->body.loops.extent[last], piece = n < COLUMNS ? n : COLUMNS;
  // Tasks are all iterations of the kept loops, the innermost in pieces of COLUMNS.
  const Access kept = dense(k, first, k->body.loops.n);
  bool pieces = n > piece;
  int n_loops = last - first + pieces;
  if (k->body.count >= PARALLEL && n_loops > 0) emit_parallel(k, n_loops);
  int indent = k->indent;
  for (int i = first; i < last; i++)
    open_loop(k, i, i == last - 1 && !pieces ? " {" : "");
  if (pieces) {
    kernel_line(k, "for (int64_t at = 0; at < %" PRId64 "; at += %" PRId64 ") {", n, piece);
    k->indent++;
    kernel_line(k, "const int64_t n = %s;", piece_text(k, piece));
  }
  const char *length = pieces ? "n" : str_format(k->arena, "%" PRId64, n);
  // Each task has an array of accumulators, which the leaf adds to row after row.
  emit_sum_locals(k, str_format(k->arena, "[%" PRId64 "] = {0}", piece));
  int body = k->indent;
  open_loops(k, 0, first);
  emit_call(k, length, pieces, "");
  k->indent = body;
  // Then the accumulators are stored.
  kernel_line(k, "for (int64_t i = 0; i < %s; i++) {", length);
  k->indent++;
  emit_sum_stores(k, &kept, first, last, pieces ? "at + i" : "i");
  k->indent = body;
  kernel_line(k, "}");
  if (n_loops > 0) {
    k->indent = body - 1;
    kernel_line(k, "}");
  }
  k->indent = indent;
}

// Few columns: each task has some of the rows, and all columns.
static void emit_narrow_columns(Kernel *k) {
  int first = count_summed(k), last = k->body.loops.n - 1;
  int64_t columns = points(k, first, k->body.loops.n), rows = k->body.loops.extent[0];
  // The number of tasks depends on the shape only, so sums do not depend on the number of threads.
  int64_t most = STACK / columns < TASKS ? STACK / columns : TASKS;
  int64_t each = (rows + most - 1) / most, tasks = (rows + each - 1) / each;
  emit_sum_locals(k, str_format(k->arena, "_of[%" PRId64 "][%" PRId64 "] = {{0}}", tasks, columns));
  // In parallel: each task adds up its rows in accumulators of its own.
  emit_parallel(k, 1);
  kernel_line(k, "for (int64_t part = 0; part < %" PRId64 "; part++) {", tasks);
  k->indent++;
  kernel_line(k,
              "const int64_t end = part == %" PRId64 " ? %" PRId64 " : (part + 1) * %" PRId64 ";",
              tasks - 1, rows, each);
  kernel_line(k, "for (int64_t i0 = part * %" PRId64 "; i0 < end; i0++)", each);
  int body = k->indent++;
  open_loops(k, 1, last);
  StrBuf column = {.arena = k->arena};
  const Access kept = dense(k, first, k->body.loops.n);
  strbuf_add(&column, "_of[part]");
  add_index(&column, k, &kept, first, last, false);
  emit_call(k, str_format(k->arena, "%" PRId64, k->body.loops.extent[last]), false, column.at);
  k->indent = body - 1;
  kernel_line(k, "}");
  // Then, in order of tasks: the sum over all of them.
  kernel_line(k, "for (int64_t i = 0; i < %" PRId64 "; i++) {", columns);
  k->indent++;
  emit_sum_locals(k, " = 0");
  kernel_line(k, "for (int64_t part = 0; part < %" PRId64 "; part++) {", tasks);
  k->indent++;
  for (int i = 0; i < k->g->n_results; i++)
    if (kernel_is_sum(k, i)) kernel_line(k, "t%d += t%d_of[part][i];", i, i);
  k->indent--;
  kernel_line(k, "}");
  for (int i = 0; i < k->g->n_results; i++)
    if (kernel_is_sum(k, i)) kernel_line(k, "y%d[i] = %s;", i, sum_text(k, i, ""));
  k->indent--;
  kernel_line(k, "}");
}

static void emit_nothing(Kernel *k) {
  for (int i = 0; i < k->g->n_results; i++) {
    int64_t bytes = type_bytes(kernel_result(k, i)->type);
    // The sum over no points is 0.
    if (bytes > 0)
      kernel_line(k, "memset(y%d, 0, %" PRId64 "); // an empty sum", i, bytes);
    else
      kernel_line(k, "(void)y%d;", i);
  }
  for (int i = 0; i < k->g->n_params; i++)
    kernel_line(k, "(void)x%d;", i);
}

// -- A kernel ----------------------------------------------------------------------------------

// The kernels with this leaf, which the kernel `name` may be the first of.
static LeafKernels *kernels_of_leaf(CpuKernels *all, const char *leaf, const char *name) {
  LeafKernels *k = leaf ? table_find(all->by_leaf, 0, leaf) : NULL;
  if (k) return k;
  k = arena_one(all->arena, LeafKernels);
  *k = (LeafKernels){0};
  vec_push(all->arena, &all->at, k);
  if (!leaf) return k;
  k->leaf_name = str_format(all->arena, "%s_loop", name);
  k->leaf = str_format(all->arena, "NNRT_CLONES static void %s%s", k->leaf_name, leaf);
  table_add(all->by_leaf, 0, leaf, k);
  return k;
}

void kernel_emit_cpu(CpuKernels *all, const Graph *body, const char *name) {
  StrBuf leaf = {.arena = all->arena}, outer = {.arena = all->arena};
  Kernel k = {.arena = all->arena, .g = body, .name = name, .read_text = read_text};
  if (!body_read(body, &k.body, k.arena)) BUG("@%s is no fused body", body->name);
  if (k.body.loops.n == 0) k.body.loops = (Loops){.n = 1, .extent = {1}};
  k.out = &leaf;
  if (k.body.count > 0) emit_leaf(&k);
  LeafKernels *kernels = kernels_of_leaf(all, leaf.at, name);
  k.leaf_name = kernels->leaf_name;
  k.out = &outer;
  // The function: loops around the leaf, by the kind of its sums.
  StrBuf space = {.arena = k.arena};
  for (int i = 0; i < k.body.loops.n; i++)
    strbuf_addf(&space, "%s%" PRId64, i ? " x " : "", k.body.loops.extent[i]);
  kernel_line(&k, "int %s(%s) { // %s points", k.name, kernel_params(&k), space.at);
  k.indent = 1;
  // Few columns give too few tasks, so tasks split the rows instead.
  bool few = k.body.sum == SUM_columns && k.body.n_kept < 4 * COLUMNS;
  if (k.body.count == 0)
    emit_nothing(&k);
  else if (k.body.sum == SUM_rows)
    emit_rows(&k);
  else if (k.body.sum == SUM_columns && few && k.body.count >= PARALLEL)
    emit_narrow_columns(&k);
  else if (k.body.sum == SUM_columns)
    emit_wide_columns(&k);
  else
    emit_elementwise(&k);
  kernel_line(&k, "return 0;");
  k.indent = 0;
  kernel_line(&k, "}");
  vec_push(all->arena, &kernels->kernels, outer.at);
}

CpuKernels *cpu_kernels_new(Arena *a) {
  CpuKernels *k = arena_one(a, CpuKernels);
  *k = (CpuKernels){.arena = a, .by_leaf = table_new(a)};
  return k;
}

void leaf_kernels_text(const LeafKernels *k, const char *linkage, StrBuf *out) {
  if (k->leaf) strbuf_addf(out, "%s\n", k->leaf);
  for (int i = 0; i < k->kernels.n; i++)
    strbuf_addf(out, "%s%s%s", i ? "\n" : "", linkage, k->kernels.at[i]);
}

void cpu_kernels_text(const CpuKernels *k, StrBuf *out) {
  for (int i = 0; i < k->at.n; i++) {
    if (i) strbuf_add(out, "\n");
    leaf_kernels_text(k->at.at[i], "static ", out);
  }
}
