// --timings: a table of the operations of a run, by the time that each took on rank 0.
//
//     times on rank 0 of 2, in ms of a step (mean of 19 steps after the first)
//     limits of this machine, measured at the end, by all ranks at once
//          242.1 GFLOP/s  f32     sums in registers, operands in the L1 cache
//          …
//          ms   share   calls   GFLOP/s     GB/s  of peak  limit   operations of a kind
//       1.204   61.3%       4     178.4     3.12    73.7%  f32     linear_back_w
//       0.402   20.5%       2     …
//       …
//          ms   share   calls   GFLOP/s     GB/s  of peak  limit   operation
//       0.761   38.7%       2     181.2     3.02    74.8%  f32     linear_back_w  mlp.onnx:/fc1/MatMul
//       …
//       1.998  101.7%      31     …                                the step, …
//
// The times are those of the events of --trace (trace.c): of operations, and of communication,
// which may overlap operations.  The first step counts only if there is no other: it maps memory.
// A share is of the sum of all times.  The work is the compiler's count (NnrtWork), and `of peak`
// is the least time that the machine needs for it (roofline.c), as a share of the time taken.
// `limit` names the limit; in a sum, that of most of the least time.

#include <stdlib.h>
#include <string.h>

#include "runtime.h"
#include "utf8.h"

enum { MOST_ROWS = 20 };

// Sums of one operation or kind.
typedef struct Row {
  const char *name;
  int length; // of the name
  double us;
  int64_t calls;
  double flops, bytes;
  double least[N_LIMITS]; // in us: the least time, by the limit
} Row;

typedef struct Rows {
  Row *at;
  int n, room;
} Rows;

struct NnrtTimings {
  const NnrtGraph *graph;
  double *us; // [n_ops], and so are the calls
  int64_t *calls;
  int64_t steps;
  double steps_us;
  bool without_first; // the times of the first step are dropped
};

NnrtTimings *nnrt_timings_new(const NnrtGraph *g) {
  NnrtTimings *t = nnrt_must_alloc(sizeof *t);
  t->graph = g;
  t->us = nnrt_must_alloc((size_t)g->n_ops * sizeof *t->us);
  t->calls = nnrt_must_alloc((size_t)g->n_ops * sizeof *t->calls);
  return t;
}

static void drop_first(NnrtTimings *t) {
  memset(t->us, 0, (size_t)t->graph->n_ops * sizeof *t->us);
  memset(t->calls, 0, (size_t)t->graph->n_ops * sizeof *t->calls);
  t->steps = 0;
  t->steps_us = 0;
  t->without_first = true;
}

void nnrt_timings_add(NnrtTimings *t, int op, double us) {
  if (t->steps == 1 && !t->without_first) drop_first(t); // this is of the second
  t->us[op] += us;
  t->calls[op]++;
}

void nnrt_timings_step(NnrtTimings *t, double us) {
  t->steps++;
  t->steps_us += us;
}

static Row *add_row(Rows *rows, const char *name, int length) {
  if (rows->n == rows->room) {
    rows->room = rows->room ? 2 * rows->room : 256;
    rows->at = realloc(rows->at, (size_t)rows->room * sizeof *rows->at);
    if (!rows->at) nnrt_out_of_memory((size_t)rows->room * sizeof *rows->at);
  }
  rows->at[rows->n] = (Row){.name = name, .length = length};
  return &rows->at[rows->n++];
}

static void add_to(Row *sum, const Row *row) {
  sum->us += row->us;
  sum->calls += row->calls;
  sum->flops += row->flops;
  sum->bytes += row->bytes;
  for (int i = 0; i < N_LIMITS; i++)
    sum->least[i] += row->least[i];
}

static int by_name(const void *x, const void *y) {
  const Row *a = x, *b = y;
  return strcmp(a->name, b->name);
}

// Sums of the operations with one name, such as of the parts of a tensor.
static Rows ops_of(const NnrtTimings *t, const NnrtRoofline *f) {
  const NnrtGraph *g = t->graph;
  Rows calls = {0}, ops = {0};
  for (int i = 0; i < g->n_ops; i++) {
    if (!t->calls[i]) continue;
    Row *row = add_row(&calls, g->ops[i], (int)strlen(g->ops[i]));
    row->us = t->us[i];
    row->calls = t->calls[i];
    if (!g->work) continue;
    row->flops = (double)g->work[i].flops * (double)row->calls;
    row->bytes = (double)g->work[i].bytes * (double)row->calls;
    int limit = 0;
    double least = nnrt_roofline_us(f, &g->work[i], &limit);
    row->least[limit] = least * (double)row->calls;
  }
  if (calls.n) qsort(calls.at, (size_t)calls.n, sizeof *calls.at, by_name);
  for (int i = 0; i < calls.n; i++) {
    const Row *row = &calls.at[i];
    bool same = i > 0 && strcmp(row->name, row[-1].name) == 0;
    add_to(same ? &ops.at[ops.n - 1] : add_row(&ops, row->name, row->length), row);
  }
  free(calls.at);
  return ops;
}

static int by_time(const void *x, const void *y) {
  const Row *a = x, *b = y;
  if (a->us != b->us) return a->us > b->us ? -1 : 1;
  return strcmp(a->name, b->name);
}

// Sums of the operations with one kind: the text before their origin.
static Rows kinds_of(const Rows *ops) {
  Rows kinds = {0};
  for (int i = 0; i < ops->n; i++) {
    const char *name = ops->at[i].name, *origin = strstr(name, "  ");
    int length = origin ? (int)(origin - name) : ops->at[i].length, k = 0;
    while (k < kinds.n &&
           (kinds.at[k].length != length || strncmp(kinds.at[k].name, name, (size_t)length) != 0))
      k++;
    add_to(k < kinds.n ? &kinds.at[k] : add_row(&kinds, name, length), &ops->at[i]);
  }
  return kinds;
}

// Prints a rate in 1e9 a second, with at least four digits.
static void print_rate(double of, double us) {
  double rate = us > 0 ? of / us / 1e3 : 0;
  if (of <= 0 || us <= 0)
    printf(" %9s", "-");
  else
    printf(" %9.*f", rate < 10 ? 3 : rate < 100 ? 2 : 1, rate);
}

static void print_row(const Row *r, double all, int64_t steps) {
  printf("%10.3f %6.1f%% %7.4g", r->us / 1e3 / (double)steps, all > 0 ? 100 * r->us / all : 0,
         (double)r->calls / (double)steps);
  print_rate(r->flops, r->us);
  print_rate(r->bytes, r->us);
  double least = 0;
  int limit = 0;
  for (int i = 0; i < N_LIMITS; i++) {
    least += r->least[i];
    if (r->least[i] > r->least[limit]) limit = i;
  }
  if (least > 0 && r->us > 0)
    printf(" %7.1f%%  %-6s  ", 100 * least / r->us, nnrt_limit_name[limit]);
  else
    printf(" %8s  %-6s  ", "-", "-");
  // Names of a model may hold any bytes.
  char shown[UTF8_SHOWN];
  for (const char *at = r->name; at < r->name + r->length;)
    fwrite(shown, 1, (size_t)nnrt_utf8_shown(&at, shown), stdout);
  putchar('\n');
}

static void print_rows(const Rows *rows, const char *title, double all, int64_t steps) {
  if (rows->n) qsort(rows->at, (size_t)rows->n, sizeof *rows->at, by_time);
  printf("%10s %7s %7s %9s %9s %8s  %-6s  %s\n", "ms", "share", "calls", "GFLOP/s", "GB/s",
         "of peak", "limit", title);
  for (int i = 0; i < rows->n && i < MOST_ROWS; i++)
    print_row(&rows->at[i], all, steps);
  if (rows->n > MOST_ROWS)
    printf("%10s %7s %7s %9s %9s %8s  %-6s  and %d more\n", "", "", "", "", "", "", "",
           rows->n - MOST_ROWS);
}

static void print_tables(const NnrtTimings *t, const NnrtRank *r, const NnrtRoofline *f) {
  static const char step[] = "the step, from its first operation to the end of its last";
  Rows ops = ops_of(t, f), kinds = kinds_of(&ops);
  Row sum = {.name = step, .length = sizeof step - 1};
  for (int i = 0; i < ops.n; i++)
    add_to(&sum, &ops.at[i]);
  double all = sum.us;
  printf("times on rank 0 of %d, in ms of a step (mean of %lld step%s%s)\n", r->ranks,
         (long long)t->steps, t->steps == 1 ? "" : "s", t->without_first ? " after the first" : "");
  nnrt_roofline_print(f, r);
  print_rows(&kinds, "operations of a kind", all, t->steps);
  print_rows(&ops, "operation", all, t->steps);
  // Operations have gaps between them, and communication overlaps them.
  sum.us = t->steps_us;
  print_row(&sum, all, t->steps);
  fflush(stdout);
  free(kinds.at);
  free(ops.at);
}

void nnrt_timings_end(NnrtTimings *t, NnrtRank *r) {
  if (t->steps > 0) {
    NnrtRoofline *f = nnrt_roofline_measure(r);
    if (r->rank == 0) print_tables(t, r, f);
    nnrt_roofline_free(f);
  }
  free(t->us);
  free(t->calls);
  free(t);
}
