// Memory use of the choices of a search, at every time of the step.
//
// The choice of its producer, or of a reader with another layout, decides the size of a value.
// lives.h has its live range.
//
//     %y = linear   {S(1)}     ├─ as made ─┤
//     all_gather    {B}              ├──── as %z wants it ─────┤
//     %z = linear                          z          gradient of z
//
//     as made     until the last op that reads this layout: the gradient of its producer
//     as wanted   from then on, until its reader's gradient has read it; with several readers, in the
//                 layout of their shared node
//     both        before that, if the two differ: a copy, which depends on two nodes
//
// A weight is always resident; a reader that wants another layout adds a copy while it reads. A
// gradient has the layout that its op produces, then the one that its reader wants: the gradient of
// a weight, that of the weight's states.
//
// The estimate errs both ways. It is too low by intermediate layouts of a reshard, and by gaps
// between values. It is too high by a copy for two readers with a layout that differs from the
// other readers' and the produced one. Fusion is as on a single device, except that a copy
// separates two ops of a kernel. tests/passes/peaks.py measures the error.
//
// Copies are left to the caller of the solver: it counts those that the answer needs, and solves
// again (memory_refine.c).

#ifndef MEMORY_H
#define MEMORY_H

#include "lives.h"
#include "problem.h"
#include "shares.h"

// Bytes of a rank that one choice decides, or, for a copy, two choices together.
typedef struct Buffer {
  const Share *from; // NULL unless it is a copy: the layouts of the original
  const Share *as;   // NULL: the size is the same under every choice
  int64_t bytes;     // of the global value
} Buffer;

// Times of possible peaks, and the number of each buffer at these times.
typedef struct Memory {
  Vec(Buffer) buffer;
  int n_rows;
  int *count; // [row * buffer.n + buffer]
} Memory;

Memory *memory_of(Problem *p, const Lives *lives);
// Bytes of one buffer under a choice of its node; of a copy, under the choices of both nodes.
int64_t buffer_bytes(const Buffer *b, int choice);
int64_t copy_bytes(const Buffer *b, int from, int as);
// Returns the bytes at the time at which any choices need the most. Copies may be avoided.
int64_t memory_least(const Problem *p, const Memory *m);
// Returns the peak under a choice for all nodes. Sets `out_copies` for the copies at times above
// the limit.
int64_t memory_peak(const Memory *m, const int *choice, int64_t limit, bool *out_copies);

#endif
