// Times at which memory may peak, for buffers with given live ranges.
//
//     buffer 0   ├─────────────────┤
//     buffer 1       ├────┤   ├────┤
//     buffer 2            ├─┤
//     moments         1    2   3        1 is part of 2; after 3 nothing begins
//
// A time at which a buffer begins, and after which one ends before another begins, is a row: the
// number of each buffer at that time. Of repeated layers only the first and the last may peak, and
// rows between them are left out.

#ifndef SEARCH_MEMORY_EVENTS_H
#define SEARCH_MEMORY_EVENTS_H

#include "ir/graph.h"

// A live range [from, to] of a buffer, on that mesh.
typedef struct Span {
  int buffer;
  int64_t from, to;
  int mesh;
} Span;

// Returns the counts, [*out_n rows][n_buffers], in `a`.
int *moments_count(const Span *span, int n, int n_buffers, const Module *m, Arena *scratch,
                   Arena *a, int *out_n);

#endif
