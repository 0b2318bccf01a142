// At which moments memory may be full, of buffers that come and go.
//
//     buffer 0   ├─────────────────┤
//     buffer 1       ├────┤   ├────┤
//     buffer 2            ├─┤
//     moments         1    2   3        1 is part of 2; after 3 nothing begins
//
// A moment at which something begins, and after which something ends before more begins, is a row:
// how many there are of each buffer then.  Of layers that are alike only the first and the last may
// be full, and rows between them are left out.

#ifndef SEARCH_MEMORY_EVENTS_H
#define SEARCH_MEMORY_EVENTS_H

#include "ir/graph.h"

// One of a buffer in [from, to], on that mesh.
typedef struct Span {
  int buffer;
  int64_t from, to;
  int mesh;
} Span;

// [*out_n rows][n_buffers], in `a`.
int *moments_count(const Span *span, int n, int n_buffers, const Module *m, Arena *scratch,
                   Arena *a, int *out_n);

#endif
