// --timings: a table of the operations of a run, by the time that each took on rank 0.
//
//     times on rank 0 of 2, in ms of a step (mean of 20 steps)
//          ms   share   calls  operations of a kind
//       1.204   61.3%       4  linear_back_w
//       0.402   20.5%       2  linear
//       …
//          ms   share   calls  operation
//       0.761   38.7%       2  linear_back_w  mlp.onnx:/fc1/MatMul
//       …
//
// The times are those of the events of --trace (trace.c): of operations, and of communication,
// which may overlap operations.  A share is of the sum of all times.

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
} Row;

typedef struct Rows {
  Row *at;
  int n, room;
} Rows;

struct NnrtTimings {
  Rows ops;
  int *slot, n_slots; // open addressing: index of a row, plus 1, by the address of its name
};

static Row *add_row(Rows *rows, const char *name, int length) {
  if (rows->n == rows->room) {
    rows->room = rows->room ? 2 * rows->room : 256;
    rows->at = realloc(rows->at, (size_t)rows->room * sizeof *rows->at);
    if (!rows->at) nnrt_out_of_memory((size_t)rows->room * sizeof *rows->at);
  }
  rows->at[rows->n] = (Row){.name = name, .length = length};
  return &rows->at[rows->n++];
}

NnrtTimings *nnrt_timings_new(void) {
  return nnrt_must_alloc(sizeof(NnrtTimings));
}

// The slot of a name, which is a text of the program: its address is its identity.
static int *slot_of(const NnrtTimings *t, const char *name) {
  uint64_t h = (uint64_t)(uintptr_t)name * 0x9e3779b97f4a7c15u;
  int i = (int)(h >> 32 & (uint64_t)(t->n_slots - 1));
  while (t->slot[i] && t->ops.at[t->slot[i] - 1].name != name)
    i = (i + 1) & (t->n_slots - 1);
  return &t->slot[i];
}

void nnrt_timings_add(NnrtTimings *t, const char *name, double us) {
  if (2 * (t->ops.n + 1) > t->n_slots) {
    free(t->slot);
    t->n_slots = t->n_slots ? 2 * t->n_slots : 512;
    t->slot = nnrt_must_alloc((size_t)t->n_slots * sizeof *t->slot);
    for (int i = 0; i < t->ops.n; i++)
      *slot_of(t, t->ops.at[i].name) = i + 1;
  }
  int *slot = slot_of(t, name);
  if (!*slot) {
    add_row(&t->ops, name, (int)strlen(name));
    *slot = t->ops.n;
  }
  Row *row = &t->ops.at[*slot - 1];
  row->us += us;
  row->calls++;
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
    Row *row = k < kinds.n ? &kinds.at[k] : add_row(&kinds, name, length);
    row->us += ops->at[i].us;
    row->calls += ops->at[i].calls;
  }
  return kinds;
}

static void print_rows(const Rows *rows, const char *title, int64_t steps) {
  double all = 0;
  for (int i = 0; i < rows->n; i++)
    all += rows->at[i].us;
  if (rows->n) qsort(rows->at, (size_t)rows->n, sizeof *rows->at, by_time);
  printf("%10s %7s %7s  %s\n", "ms", "share", "calls", title);
  for (int i = 0; i < rows->n && i < MOST_ROWS; i++) {
    const Row *r = &rows->at[i];
    printf("%10.3f %6.1f%% %7.4g  ", r->us / 1e3 / (double)steps, all > 0 ? 100 * r->us / all : 0,
           (double)r->calls / (double)steps);
    // Names of a model may hold any bytes.
    char shown[UTF8_SHOWN];
    for (const char *at = r->name; at < r->name + r->length;)
      fwrite(shown, 1, (size_t)nnrt_utf8_shown(&at, shown), stdout);
    putchar('\n');
  }
  if (rows->n > MOST_ROWS) printf("%10s %7s %7s  and %d more\n", "", "", "", rows->n - MOST_ROWS);
}

void nnrt_timings_end(NnrtTimings *t, const NnrtRank *r, int64_t steps) {
  if (r->rank == 0 && steps > 0) {
    Rows kinds = kinds_of(&t->ops);
    printf("times on rank 0 of %d, in ms of a step (mean of %lld step%s)\n", r->ranks,
           (long long)steps, steps == 1 ? "" : "s");
    print_rows(&kinds, "operations of a kind", steps);
    print_rows(&t->ops, "operation", steps);
    fflush(stdout);
    free(kinds.at);
  }
  free(t->ops.at);
  free(t->slot);
  free(t);
}
