// Fused bodies in CUDA C: a function of some neighbouring points, and a kernel that shares the
// points out among threads (kernels.cu; rt/cuda/fused.cuh has the functions that they call).
//
//     template <int n>
//     static __device__ inline void fused_0_points(uint32_t i, float *y0, const float *x0) {…}
//     static __global__ void fused_0_kernel(float *y0, const float *x0) {
//       for (uint32_t i = 4 * (uint32_t)first_thread(); i < 24; i += 4 * (uint32_t)all_threads())
//         fused_0_points<4>(i, y0, x0);
//     }
//     extern "C" int fused_0(float *y0, const float *x0) { // 24 points
//       return launch(fused_0_kernel, blocks_for(6), BLOCK, 0, y0, x0);
//     }
//
// The claims that are checked:
//
//     the points function computes the body's formulas at points i, i + 1, …, i + n - 1, and loads
//     all operands before it stores a result; a load of neighbours is of neighbours, and a load for
//     all points is of the same element for all
//     the packs of all threads are the points of the body, each once, and begin at multiples of the
//     pack, which divides a row
//     a sum adds all packs of its row or column: lanes, blocks or parts are the whole row; each part
//     has a place of its own in scratch, and all parts are added

#include <inttypes.h>
#include <string.h>

#include "bodies.h"
#include "ir/op.h"

enum { BLOCK = 256, WARP = 32, MOST_BLOCKS = 1 << 20, SCRATCH_ALIGN = 256 };

typedef enum LoadKind { LOAD_one, LOAD_all, LOAD_each } LoadKind;

typedef struct Load {
  LoadKind kind;
  CToken place; // the function of its index; n = 0: none
  bool flat;    // at the number of the point
} Load;

typedef struct Cuda {
  BodyFacts *f;
  Check *c;
  Cursor at;
  const char *name, *index;
  Load load[MAX_READS];
  int64_t pack;
} Cuda;

static const char *format(Cuda *k, const char *text, ...) PRINTF_LIKE(2, 3);
static const char *format(Cuda *k, const char *text, ...) {
  va_list args;
  va_start(args, text);
  const char *s = str_vformat(k->c->arena, text, args);
  va_end(args);
  return s;
}

static bool due(Cuda *k, const char *pattern) {
  return want(k->c, &k->at, pattern);
}

static bool check(Cuda *k, const Cursor *at, bool ok, const char *what) {
  return ok || mismatch(k->c, at, "%s", what);
}

// In kernels, floating types of 16 bits have names of their own.
static const char *element(const Value *v) {
  DType t = v->type->dtype;
  return computed_dtype(t) == t ? dtype_ctype[t] : dtype_name[t];
}

static const char *sum_type(const Value *v) {
  return dtype_class[v->type->dtype] == 'F' ? computed_ctype(v) : "long long";
}

static int sum_bytes(const Value *v) {
  DType t = v->type->dtype;
  return dtype_class[t] == 'F' ? dtype_bytes[computed_dtype(t)] : 8;
}

static bool is_power(int64_t n) {
  return n > 0 && (n & (n - 1)) == 0;
}

// Opens a function of the file at its parameters.
static bool enter(Cuda *k, const char *suffix, const char *type) {
  const char *name = format(k, "%s_%s", k->name, suffix);
  Unit *u = unit_find_typed(k->c, &k->at, name, UNIT_leaf, type);
  if (!u) return false;
  k->at = u->at;
  k->c->function = u->name;
  return true;
}

// -- Points ------------------------------------------------------------------------------------

// "x1", "x1 + i" or "x1 + fused_0_at1(i)".
static bool take_place(Cuda *k, ReadText *r, Load *load, const char *point) {
  if (!take(&k->at, "%w", &r->pointer)) return unexpected(k->c, &k->at, "an operand");
  if (!take(&k->at, "+")) return true;
  load->flat = take(&k->at, point);
  if (load->flat) return true;
  return (take(&k->at, "%w(", &load->place) || unexpected(k->c, &k->at, "an index")) &&
         due(k, point) && due(k, ")");
}

static bool take_loads(Cuda *k, Reads *reads) {
  for (;;) {
    Cursor before = k->at;
    CToken type, name, same;
    if (reads->n == MAX_READS) return mismatch(k->c, &before, "the body has too many loads");
    ReadText *r = &reads->at[reads->n];
    Load *load = &k->load[reads->n];
    *r = (ReadText){0};
    *load = (Load){0};
    if (take(&k->at, "const %w %w = load_one(", &type, &name)) {
      load->kind = LOAD_one;
      if (!take_place(k, r, load, "i") || !due(k, ");")) return false;
    } else if (take(&k->at, "%w %w[n]; load_all(%w,", &type, &name, &same)) {
      load->kind = LOAD_all;
      if (!take_place(k, r, load, "i") || !due(k, ");")) return false;
    } else if (take(&k->at, "%w %w[n]; for (int j = 0; j < n; j++) %w[j] = load_one(", &type, &name,
                    &same)) {
      load->kind = LOAD_each;
      if (!take_place(k, r, load, format(k, "i + (%s)j", k->index)) || !due(k, ");")) return false;
    } else
      return true;
    if (load->kind != LOAD_one &&
        (same.n != name.n || memcmp(same.at, name.at, (size_t)name.n) != 0))
      return mismatch(k->c, &before, "the load is of another value");
    if (!is_free_name(k->f, reads, &name, 'u'))
      return mismatch(k->c, &before, "'%s' is no name of a new load, which u and a number are",
                      ctoken_text(&name, k->c->arena));
    r->name = name;
    r->each = load->kind != LOAD_one;
    r->type = ctoken_text(&type, k->c->arena);
    reads->n++;
  }
}

// "return i / 6 % 4 * 12 + i % 6;": the digits of an operand's index.
static bool check_index(Cuda *k, const CToken *name, const Digits *need) {
  Check *c = k->c;
  Unit *u = unit_find_typed(c, &k->at, ctoken_text(name, c->arena), UNIT_leaf, k->index);
  if (!u) return false;
  const char *function = c->function;
  c->function = u->name;
  Cursor at = u->at;
  if (!want(c, &at, str_format(c->arena, "(%s i) { return", k->index))) return false;
  bool first = true;
  for (int d = 0; d < need->n; d++) {
    if (!need->stride[d]) continue;
    int64_t inner = 1, by = 1, radix = 0, stride = 1;
    for (int e = d + 1; e < need->n; e++)
      inner *= need->extent[e];
    const Cursor term = at;
    if ((!first && !want(c, &at, "+")) || !want(c, &at, "i")) return false;
    first = false;
    take(&at, "/ %i", &by);
    bool wraps = take(&at, "%% %i", &radix);
    take(&at, "* %i", &stride);
    // The outermost digit needs no radix: points are fewer.
    if (by != inner || stride != need->stride[d] || (wraps ? radix != need->extent[d] : d > 0))
      return mismatch(c, &term, "this is not the digit that the operand is read at");
  }
  if (!want(c, &at, "; }")) return false;
  c->function = function;
  return true;
}

static bool is_flat(const Digits *d) {
  return d->n == 0 || (d->n == 1 && d->stride[0] == 1);
}

static bool is_uniform(const Digits *d) {
  for (int i = 0; i < d->n; i++)
    if (d->stride[i]) return false;
  return true;
}

// Whether the load is that of the operand's digits, for packs of k->pack points.
static bool check_load(Cuda *k, const ReadText *r, const Load *load) {
  Check *c = k->c;
  const Cursor here = {k->at.file, r->name.at, r->name.line};
  if (!r->bound) return mismatch(c, &here, "no formula reads this");
  const Value *x = k->f->g->params[r->param];
  const Digits *d = &r->at;
  if (!ctoken_is(&r->pointer, format(k, "x%d", r->param)))
    return mismatch(c, &here, "this is not operand %d", r->param);
  if (!str_equal(r->type, computed_ctype(x)))
    return mismatch(c, &here, "operand %d is computed in %s", r->param, computed_ctype(x));
  // The index.  One element at all points has none, and a flat one is the number of the point.
  if (load->flat ? !is_flat(d) : !load->place.n && !is_uniform(d))
    return mismatch(c, &here, "operand %d is read at another index", r->param);
  if (load->place.n && !check_index(k, &load->place, d)) return false;
  // Neighbours of a pack.
  int64_t inner = d->n ? d->extent[d->n - 1] : 1, stride = d->n ? d->stride[d->n - 1] : 0;
  bool whole = inner % k->pack == 0 || k->pack == 1, aligned = true;
  for (int i = 0; i + 1 < d->n; i++)
    aligned &= d->stride[i] % k->pack == 0;
  bool ok = load->kind == LOAD_each ||
            (load->kind == LOAD_one ? is_uniform(d) || (stride == 0 && whole) || k->pack == 1
                                    : is_flat(d) || (stride == 1 && whole && aligned));
  return ok || mismatch(c, &here, "operand %d is not so at neighbouring points", r->param);
}

// "(uint32_t i, float *y0, float (&s1)[1], const float *x0) {"
static bool want_points_params(Cuda *k) {
  const Graph *g = k->f->g;
  if (!due(k, format(k, "(%s i", k->index))) return false;
  for (int i = 0; i < g->n_results; i++) {
    const Value *v = facts_result(k->f, i);
    const char *param = facts_is_sum(k->f, i)
                            ? format(k, ", %s (&s%d)[%s]", sum_type(v), i, k->f->rows ? "1" : "n")
                            : format(k, ", %s *y%d", element(v), i);
    if (!due(k, param)) return false;
  }
  for (int i = 0; i < g->n_params; i++)
    if (!due(k, format(k, ", const %s *x%d", element(g->params[i]), i))) return false;
  return due(k, ") {");
}

static bool check_points(Cuda *k) {
  BodyFacts *f = k->f;
  Reads *reads = arena_one(k->c->arena, Reads);
  if (!enter(k, "points", TYPE_points) || !want_points_params(k) || !take_loads(k, reads))
    return false;
  for (int i = 0; i < f->g->n_results; i++)
    if (!facts_is_sum(f, i) &&
        !due(k, format(k, "%s w%d[n];", computed_ctype(facts_result(f, i)), i)))
      return false;
  if (!due(k, "for (int j = 0; j < n; j++) {") || !take_formulas(f, &k->at, reads)) return false;
  for (int i = 0; i < f->g->n_results; i++) {
    const Value *v = facts_result(f, i);
    bool sum = facts_is_sum(f, i);
    const char *to =
        sum ? format(k, "s%d[%s] +=", i, f->rows ? "0" : "j") : format(k, "w%d[j] =", i);
    const Value *from = sum ? f->value[v->id].source->def->in[0].value : v;
    if (!due(k, to) || !take_value(f, &k->at, from, reads) || !due(k, ";")) return false;
  }
  if (!due(k, "}")) return false;
  for (int i = 0; i < f->g->n_results; i++)
    if (!facts_is_sum(f, i) && !due(k, format(k, "store_all(y%d + i, w%d);", i, i))) return false;
  if (!due(k, "}")) return false;
  for (int i = 0; i < reads->n; i++)
    if (!check_load(k, &reads->at[i], &k->load[i])) return false;
  return true;
}

// -- Kernels -----------------------------------------------------------------------------------

// "(float *y0, float *t1, const float *x0) {"; `parts`: sums go to scratch.
static bool want_kernel_params(Cuda *k, bool parts) {
  const Graph *g = k->f->g;
  if (!due(k, "(")) return false;
  for (int i = 0; i < g->n_results + g->n_params; i++) {
    bool y = i < g->n_results;
    int n = y ? i : i - g->n_results;
    const Value *v = y ? facts_result(k->f, n) : g->params[n];
    const char *param = !y                               ? format(k, "const %s *x%d", element(v), n)
                        : parts && facts_is_sum(k->f, n) ? format(k, "%s *t%d", sum_type(v), n)
                                                         : format(k, "%s *y%d", element(v), n);
    if ((i && !due(k, ",")) || !due(k, param)) return false;
  }
  return due(k, ") {");
}

// "fused_0_points<4>(PLACE, y0, s1, x0);"
static bool want_points(Cuda *k, int64_t pack, const char *place) {
  const Graph *g = k->f->g;
  if (!due(k, format(k, "%s_points<%" PRId64 ">(%s", k->name, pack, place))) return false;
  for (int i = 0; i < g->n_results; i++)
    if (!due(k, format(k, ", %c%d", facts_is_sum(k->f, i) ? 's' : 'y', i))) return false;
  for (int i = 0; i < g->n_params; i++)
    if (!due(k, format(k, ", x%d", i))) return false;
  return due(k, ");");
}

static bool want_zero_sums(Cuda *k, int64_t n) {
  for (int i = 0; i < k->f->g->n_results; i++)
    if (facts_is_sum(k->f, i) &&
        !due(k, format(k, "%s s%d[%" PRId64 "] = {0};", sum_type(facts_result(k->f, i)), i, n)))
      return false;
  return true;
}

// The pack of the first call of the points: "fused_0_points<4>(".
static bool find_pack(Cuda *k) {
  const char *pattern = format(k, "%s_points<%%i>(", k->name);
  Cursor p = k->at;
  for (CToken t; t = cursor_peek(&p), t.kind != C_end && !ctoken_is(&t, "{");)
    cursor_next(&p);
  for (int depth = 0;;) {
    if (take(&p, pattern, &k->pack)) break;
    CToken t = cursor_next(&p);
    depth += ctoken_is(&t, "{") ? 1 : ctoken_is(&t, "}") ? -1 : 0;
    if (t.kind == C_end || depth == 0)
      return mismatch(k->c, &k->at, "the kernel computes no points");
  }
  return check(k, &k->at, is_power(k->pack) && k->pack <= 8, "no pack has this size");
}

static bool kernel_elementwise(Cuda *k, int64_t *threads) {
  int64_t n = k->f->count, packed = 0, rest = 0;
  const char *index = k->index;
  const char *times = k->pack > 1 ? format(k, "%" PRId64 " *", k->pack) : "";
  const Cursor before = k->at;
  *threads = 0;
  // Whole packs, then the rest, a thread for each.
  if (take(&k->at,
           format(k, "for (%s i = %s (%s)first_thread(); i < %%i; i += %s (%s)all_threads())",
                  index, times, index, times, index),
           &packed)) {
    if (!want_points(k, k->pack, "i")) return false;
    *threads = packed / k->pack;
  }
  if (take(&k->at, "if (first_thread() < %i)", &rest)) {
    const char *place =
        format(k, "%s(%s)first_thread()", packed ? format(k, "%" PRId64 " + ", packed) : "", index);
    if (!want_points(k, 1, place)) return false;
    if (rest > *threads) *threads = rest;
  }
  return check(k, &before,
               packed % k->pack == 0 && packed >= 0 && packed <= n && rest == n - packed,
               "the threads do not compute each point once");
}

// Rows by lanes of a warp.
static bool kernel_short_rows(Cuda *k, int64_t *threads) {
  BodyFacts *f = k->f;
  int64_t rows = f->n_kept, length = f->count / rows, lanes, at_once;
  const Cursor before = k->at;
  if (!take(&k->at, format(k, "const %s lane = threadIdx.x %%%% %%i;", k->index), &lanes))
    return unexpected(k->c, &k->at, "the lane");
  at_once = lanes > 0 ? BLOCK / lanes : 0;
  if (!check(k, &before, is_power(lanes) && lanes <= WARP && length % k->pack == 0,
             "the lanes are not the row"))
    return false;
  *threads = rows * lanes;
  if (!due(k, format(k,
                     "for (%s first = blockIdx.x * %" PRId64 "; first < %" PRId64
                     "; first += gridDim.x * %" PRId64 ") {",
                     k->index, at_once, rows, at_once)) ||
      !due(k, format(k, "const %s row = first + threadIdx.x / %" PRId64 ";", k->index, lanes)) ||
      !want_zero_sums(k, 1) ||
      !due(k, format(k,
                     "for (%s at = lane * %" PRId64 "; at < %" PRId64 " && row < %" PRId64
                     "; at += %" PRId64 ")",
                     k->index, k->pack, length, rows, lanes * k->pack)) ||
      !want_points(k, k->pack, format(k, "row * %" PRId64 " + at", length)))
    return false;
  for (int i = 0; i < f->g->n_results; i++)
    if (facts_is_sum(f, i) &&
        (!due(k, format(k, "s%d[0] = lanes_sum<%" PRId64 ">(s%d[0]);", i, lanes, i)) ||
         !due(k, format(k, "if (lane == 0 && row < %" PRId64 ") store_one(y%d + row, s%d[0]);",
                        rows, i, i))))
      return false;
  return due(k, "}");
}

// A range in parts: "const IDX from = PART * EACH; const IDX end = PART == LAST ? N : from + EACH;"
// Parts begin at multiples of `unit`.
static bool want_range(Cuda *k, const char *part, int64_t n, int64_t parts, int64_t unit) {
  int64_t each, last, end, again;
  const Cursor before = k->at;
  if (!take(&k->at,
            format(k, "const %s from = %s * %%i; const %s end = %s == %%i ? %%i : from + %%i;",
                   k->index, part, k->index, part),
            &each, &last, &end, &again))
    return unexpected(k->c, &k->at, "the range of a part");
  return check(k, &before,
               each > 0 && each % unit == 0 && again == each && last == parts - 1 && end == n &&
                   last <= n / each && last * each < n,
               "the parts are not the whole range");
}

// Rows by blocks.
static bool kernel_long_rows(Cuda *k, int64_t parts) {
  BodyFacts *f = k->f;
  int64_t rows = f->n_kept, length = f->count / rows;
  if (!check(k, &k->at, length % k->pack == 0, "the packs are not the row")) return false;
  if (parts > 1) {
    if (!due(k,
             format(k,
                    "const %s row = blockIdx.x / %" PRId64 ", part = blockIdx.x %%%% %" PRId64 ";",
                    k->index, parts, parts)) ||
        !want_range(k, "part", length, parts, k->pack))
      return false;
  } else if (!due(k, format(k,
                            "for (%s row = blockIdx.x; row < %" PRId64 "; row += gridDim.x) { "
                            "const %s from = 0, end = %" PRId64 ";",
                            k->index, rows, k->index, length)))
    return false;
  if (!want_zero_sums(k, 1) ||
      !due(k,
           format(k, "for (%s at = from + threadIdx.x * %" PRId64 "; at < end; at += %" PRId64 ")",
                  k->index, k->pack, BLOCK * k->pack)) ||
      !want_points(k, k->pack, format(k, "row * %" PRId64 " + at", length)))
    return false;
  for (int i = 0; i < f->g->n_results; i++) {
    if (!facts_is_sum(f, i)) continue;
    const char *store = parts > 1 ? format(k, "t%d[part * %" PRId64 " + row] = s%d[0];", i, rows, i)
                                  : format(k, "store_one(y%d + row, s%d[0]);", i, i);
    if (!due(k, format(k, "block_sums<1>(s%d);", i)) ||
        !due(k, format(k, "if (threadIdx.x == 0) %s", store)))
      return false;
  }
  return parts > 1 || due(k, "}");
}

static bool kernel_columns(Cuda *k, int64_t tiles, int64_t parts) {
  BodyFacts *f = k->f;
  int64_t columns = f->n_kept, rows = f->count / columns, wide;
  const Cursor before = k->at;
  if (!due(k, format(k, "for (%s tile = blockIdx.x; tile < %" PRId64 "; tile += gridDim.x) {",
                     k->index, tiles)))
    return false;
  if (!take(&k->at, format(k, "const %s column = (tile * %%i +", k->index), &wide))
    return unexpected(k->c, &k->at, "the column");
  if (!check(k, &before,
             is_power(wide) && wide <= WARP && columns % k->pack == 0 &&
                 tiles == (columns + wide * k->pack - 1) / (wide * k->pack),
             "the tiles are not the columns"))
    return false;
  if (!due(k, format(k, "threadIdx.x %%%% %" PRId64 ") * %" PRId64 ";", wide, k->pack)))
    return false;
  if (parts > 1 ? !want_range(k, "blockIdx.y", rows, parts, 1)
                : !due(k, format(k, "const %s from = 0, end = %" PRId64 ";", k->index, rows)))
    return false;
  if (!want_zero_sums(k, k->pack) ||
      !due(k, format(k,
                     "for (%s row = from + threadIdx.x / %" PRId64
                     "; row < end && column < %" PRId64 "; row += %" PRId64 ")",
                     k->index, wide, columns, BLOCK / wide)) ||
      !want_points(k, k->pack, format(k, "row * %" PRId64 " + column", columns)))
    return false;
  for (int i = 0; i < f->g->n_results; i++) {
    if (!facts_is_sum(f, i)) continue;
    const char *to =
        parts > 1 ? format(k, "t%d + blockIdx.y * (%s)%" PRId64 " + column", i, k->index, columns)
                  : format(k, "y%d + column", i);
    if (!due(k, format(k, "block_sums<%" PRId64 ">(s%d);", wide, i)) ||
        !due(k,
             format(k, "if (threadIdx.x < %" PRId64 " && column < %" PRId64 ") store_all(%s, s%d);",
                    wide, columns, to, i)))
      return false;
  }
  return due(k, "}");
}

// -- Launches ----------------------------------------------------------------------------------

// "launch(fused_0_kernel, GRID, BLOCK, 0, y0, parts + 256, x0)": after the grid.  `place`: the
// offsets of sums in scratch, or NULL.
static bool want_launch_args(Cuda *k, int64_t *place) {
  const Graph *g = k->f->g;
  if (!due(k, ", BLOCK, 0")) return false;
  for (int i = 0; i < g->n_results; i++) {
    if (!place || !facts_is_sum(k->f, i)) {
      if (!due(k, format(k, ", y%d", i))) return false;
      continue;
    }
    if (!due(k, ", parts")) return false;
    place[i] = 0;
    take(&k->at, "+ %i", &place[i]);
  }
  for (int i = 0; i < g->n_params; i++)
    if (!due(k, format(k, ", x%d", i))) return false;
  return due(k, ")");
}

// Enters the kernel of a launch.
static bool check_kernel(Cuda *k, bool parts) {
  return enter(k, "kernel", TYPE_kernel) && find_pack(k) && want_kernel_params(k, parts);
}

// "if (!code) code = launch(add_parts<32, float, float>, 4, BLOCK, 0, y1, parts, 100, 8);"
static bool want_added(Cuda *k, const int64_t *place, int64_t parts, int64_t bytes) {
  BodyFacts *f = k->f;
  int64_t n = f->n_kept, end = 0;
  for (int i = 0; i < f->g->n_results; i++) {
    if (!facts_is_sum(f, i)) continue;
    const Value *v = facts_result(f, i);
    const Cursor before = k->at;
    int64_t columns, blocks;
    // Places in scratch are aligned and disjoint.
    int64_t size;
    if (!check(k, &before, place[i] >= end && place[i] % SCRATCH_ALIGN == 0,
               "the parts of two sums overlap") ||
        !check(k, &before,
               !__builtin_mul_overflow(parts * sum_bytes(v), n, &size) &&
                   !__builtin_add_overflow(place[i], size, &end),
               "the parts are too large"))
      return false;
    if (!take(&k->at, "if (!code) code = launch(add_parts<%i,", &columns))
      return unexpected(k->c, &k->at, "the addition of parts");
    if (!due(k, format(k, "%s, %s>,", element(v), sum_type(v)))) return false;
    if (!take(&k->at, "%i", &blocks)) return unexpected(k->c, &k->at, "the number of blocks");
    if (!check(k, &before,
               is_power(columns) && columns <= WARP && blocks == (n + columns - 1) / columns,
               "the blocks do not add each sum"))
      return false;
    const char *from = place[i] ? format(k, "parts + %" PRId64, place[i]) : "parts";
    if (!due(k, format(k, ", BLOCK, 0, y%d, %s, %" PRId64 ", %" PRId64 ");", i, from, n, parts)))
      return false;
  }
  // No larger than what they need, aligned.
  return check(k, &k->at, end <= bytes && bytes - end < SCRATCH_ALIGN && bytes % SCRATCH_ALIGN == 0,
               "scratch is not of the size of the parts");
}

static bool launch_parts(Cuda *k) {
  BodyFacts *f = k->f;
  int64_t bytes, parts, x = 0, blocks;
  int64_t *place = arena_array(k->c->arena, int64_t, f->g->n_results + 1);
  if (!take(&k->at, "char *parts = (char *)nnrt_gpu_scratch(%i);", &bytes))
    return unexpected(k->c, &k->at, "scratch");
  if (!due(k, "if (!parts) return NNRT_MEMORY;") ||
      !due(k, format(k, "int code = launch(%s_kernel,", k->name)))
    return false;
  const Cursor grid = k->at;
  if (f->columns ? !take(&k->at, "dim3(%i, %i)", &x, &parts) : !take(&k->at, "%i", &blocks))
    return unexpected(k->c, &k->at, "the grid");
  if (f->rows) {
    // Each block has one part of one row.
    parts = blocks / f->n_kept;
    if (!check(k, &grid, parts * f->n_kept == blocks, "the blocks are not the parts")) return false;
  }
  if (!check(k, &grid, parts > 1 && parts < MOST_BLOCKS, "the parts are none")) return false;
  if (!want_launch_args(k, place) || !due(k, ";")) return false;
  if (!want_added(k, place, parts, bytes) || !due(k, "return code; }")) return false;
  if (!check_kernel(k, true)) return false;
  if (f->rows) return kernel_long_rows(k, parts) && due(k, "}");
  int64_t tiles;
  Cursor p = k->at;
  if (!take(&p, format(k, "for (%s tile = blockIdx.x; tile < %%i;", k->index), &tiles))
    return unexpected(k->c, &p, "the tiles");
  return check(k, &grid, x == (tiles < MOST_BLOCKS ? tiles : MOST_BLOCKS),
               "the grid is not the tiles") &&
         kernel_columns(k, tiles, parts) && due(k, "}");
}

static bool launch_once(Cuda *k) {
  BodyFacts *f = k->f;
  int64_t threads = 0, blocks = 0, x = 0, y = 0, need = 0;
  if (!due(k, format(k, "return launch(%s_kernel,", k->name))) return false;
  const Cursor grid = k->at;
  bool by_threads = take(&k->at, "blocks_for(%i)", &threads);
  bool by_tiles = !by_threads && take(&k->at, "dim3(%i, %i)", &x, &y);
  if (!by_threads && !by_tiles && !take(&k->at, "%i", &blocks))
    return unexpected(k->c, &k->at, "the grid");
  if (!want_launch_args(k, NULL) || !due(k, "; }") || !check_kernel(k, false)) return false;
  if (f->columns) {
    int64_t tiles;
    Cursor p = k->at;
    if (!take(&p, format(k, "for (%s tile = blockIdx.x; tile < %%i;", k->index), &tiles))
      return unexpected(k->c, &p, "the tiles");
    return check(k, &grid, by_tiles && y == 1 && x == (tiles < MOST_BLOCKS ? tiles : MOST_BLOCKS),
                 "the grid is not the tiles") &&
           kernel_columns(k, tiles, 1) && due(k, "}");
  }
  if (f->rows && !by_threads) {
    need = f->n_kept < MOST_BLOCKS ? f->n_kept : MOST_BLOCKS;
    return check(k, &grid, !by_tiles && blocks == need, "the grid is not the rows") &&
           kernel_long_rows(k, 1) && due(k, "}");
  }
  bool ok = f->rows ? kernel_short_rows(k, &need) : kernel_elementwise(k, &need);
  return ok && due(k, "}") &&
         check(k, &grid, by_threads && threads == need, "the threads are not the points");
}

static bool check_empty(Cuda *k) {
  const Graph *g = k->f->g;
  for (int i = 0; i < g->n_params; i++)
    if (!due(k, format(k, "(void)x%d;", i))) return false;
  if (!due(k, "int code = NNRT_OK;")) return false;
  for (int i = 0; i < g->n_results; i++) {
    int64_t bytes = type_bytes(facts_result(k->f, i)->type);
    if (!due(k, bytes > 0 ? format(k, "if (!code) code = nnrt_zero(y%d, %" PRId64 ");", i, bytes)
                          : format(k, "(void)y%d;", i)))
      return false;
  }
  return due(k, "return code; }");
}

bool body_check_cuda(BodyFacts *f, Unit *unit) {
  Cuda *k = arena_one(f->c->arena, Cuda);
  *k = (Cuda){.f = f, .c = f->c, .at = unit->at, .name = unit->name, .pack = 1};
  k->index = f->count <= INT32_MAX ? "uint32_t" : "int64_t";
  const Graph *g = f->g;
  if (!due(k, "(")) return false;
  if (g->n_results + g->n_params == 0 && !due(k, "void")) return false;
  for (int i = 0; i < g->n_results + g->n_params; i++) {
    bool y = i < g->n_results;
    int n = y ? i : i - g->n_results;
    const char *param = y ? format(k, "%s *y%d", stored_ctype(facts_result(f, n)), n)
                          : format(k, "const %s *x%d", stored_ctype(g->params[n]), n);
    if ((i && !due(k, ",")) || !due(k, param)) return false;
  }
  if (!due(k, ") {")) return false;
  if (f->count == 0) return check_empty(k);
  CToken next = cursor_peek(&k->at);
  bool parts = ctoken_is(&next, "char");
  // The kernel tells the pack, for which the points are judged.
  return (parts ? launch_parts(k) : launch_once(k)) && check_points(k);
}
