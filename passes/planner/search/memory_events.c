// See memory_events.h.
//
// For each mesh, one walk along the sorted beginnings and ends makes the rows. Rows at which the
// same buffers begin belong to repeated layers, and those between others are left out. A row has a
// number for every buffer, so it pays to leave out many.

#include "memory_events.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/analysis/place.h"
#include "ir/op.h"

typedef struct Moments {
  const Span *span;
  int n, n_buffers;
  Arena *scratch;
} Moments;

static int by_from(const void *x, const void *y) {
  const Span *a = x, *b = y;
  if (a->from != b->from) return a->from < b->from ? -1 : 1;
  return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

static int by_to(const void *x, const void *y) {
  const Span *a = x, *b = y;
  return (a->to > b->to) - (a->to < b->to);
}

// A time at which a buffer begins, and after which one ends before another begins.
typedef struct Row {
  int64_t time;
  uint64_t begun; // hash of the buffers that begin then: the same for repeated layers
  int *count;     // of each buffer
  bool needed;
} Row;

typedef Vec(Row) Rows;

// Finds the rows of buffers on devices of one mesh.
static void find_rows(const Moments *k, const Meets *meets, int mesh, Rows *out) {
  int n = 0, n_buffers = k->n_buffers, end = 0, *now = arena_array(k->scratch, int, n_buffers);
  // Values on a mesh with a common device are in its memory, too.
  Span *from = arena_array(k->scratch, Span, k->n);
  for (int i = 0; i < k->n; i++)
    if (meets->pair[k->span[i].mesh * meets->n + mesh]) from[n++] = k->span[i];
  Span *to = arena_copy(k->scratch, from, (size_t)n * sizeof *from);
  qsort(from, (size_t)n, sizeof *from, by_from);
  qsort(to, (size_t)n, sizeof *to, by_to);
  // A sweep over beginnings, with the buffers that are live at each.
  for (int i = 0; i < n;) {
    Row row = {.time = from[i].from, .begun = 14695981039346656037u, .needed = true};
    for (; end < n && to[end].to < row.time; end++)
      now[to[end].buffer]--;
    for (; i < n && from[i].from == row.time; i++) {
      now[from[i].buffer]++;
      row.begun = (row.begun ^ (uint64_t)from[i].buffer) * 1099511628211u;
    }
    if (i < n && to[end].to >= from[i].from) continue; // no buffer ends before another begins
    row.count = arena_copy(k->scratch, now, (size_t)n_buffers * sizeof *now);
    vec_push(k->scratch, out, row);
  }
}

// Repeated layers fill memory evenly: a row between the first and the last of them cannot peak
// before one of these two does. The first layers may differ from those that follow.
static void drop_between(Row *const *row, int n_rows, int n) {
  for (int first = 0, last = n_rows - 1; first + 1 < last; first++, last--) {
    bool any = false;
    for (int i = first + 1; i < last; i++) {
      // A row is needed if a count exceeds the interpolation of the first and the last row.
      double share = (double)(i - first) / (last - first);
      const int *from = row[first]->count, *to = row[last]->count;
      row[i]->needed = false;
      for (int k = 0; k < n && !row[i]->needed; k++)
        row[i]->needed = row[i]->count[k] > (1 - share) * from[k] + share * to[k] + 1e-6;
      any |= row[i]->needed;
    }
    if (!any) return;
  }
}

static int by_begun(const void *x, const void *y) {
  const Row *a = *(Row *const *)x, *b = *(Row *const *)y;
  if (a->begun != b->begun) return a->begun < b->begun ? -1 : 1;
  return (a->time > b->time) - (a->time < b->time);
}

int *moments_count(const Span *span, int n, int n_buffers, const Module *m, Arena *scratch,
                   Arena *a, int *out_n) {
  const Moments k = {span, n, n_buffers, scratch};
  Meets meets = module_meets(m, scratch);
  Rows all = {0};
  // Mesh by mesh, as values on meshes without a common device do not add up.
  bool *done = arena_array(k.scratch, bool, meets.n);
  for (int i = 0; i < k.n; i++) {
    int mesh = k.span[i].mesh;
    Rows rows = {0};
    if (done[mesh]) continue;
    done[mesh] = true;
    find_rows(&k, &meets, mesh, &rows);
    // Rows at which the same buffers begin are those of repeated layers.
    Row **order = arena_array(k.scratch, Row *, rows.n);
    for (int r = 0; r < rows.n; r++)
      order[r] = &rows.at[r];
    qsort(order, (size_t)rows.n, sizeof(Row *), by_begun);
    for (int lo = 0, hi; lo < rows.n; lo = hi) {
      for (hi = lo + 1; hi < rows.n && order[hi]->begun == order[lo]->begun; hi++)
        ;
      drop_between(order + lo, hi - lo, k.n_buffers);
    }
    for (int r = 0; r < rows.n; r++)
      if (rows.at[r].needed) vec_push(k.scratch, &all, rows.at[r]);
  }
  int *count = arena_array(a, int, (int64_t)all.n *n_buffers);
  for (int r = 0; r < all.n; r++)
    memcpy(count + (int64_t)r * n_buffers, all.at[r].count, (size_t)n_buffers * sizeof *count);
  *out_n = all.n;
  return count;
}
