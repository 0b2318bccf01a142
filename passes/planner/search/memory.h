// What the choices of a search need of memory, at every moment of the step.
//
// A value is as large as a choice makes it: that of the op that makes it, or of a reader that gets
// it in another layout.  lives.h says when it is there.
//
//     %y = linear   {S(1)}     ├─ as made ─┤
//     all_gather    {B}              ├──── as %z wants it ─────┤
//     %z = linear                          z          gradient of z
//
//     as made     until the last op that reads it so: the gradient of what made it
//     as wanted   from then on, until its reader's gradient has read it.  Where several read it, the
//                 node for all of them says how it lies then.
//     both        before that, where the two differ: a copy, which depends on two nodes
//
// A weight is there all the time, and where a reader wants it otherwise there is a copy while that
// reads it.  A gradient lies as the op that makes it gives it, then as its reader wants it: the
// gradient of a weight as the weight's states lie.
//
// It errs both ways.  Less than there will be: of copies on the way from one layout to another, and
// of gaps between values.  More: of a copy for two readers that want neither what others do nor
// what is made.  Fusion is as on one device, but where a copy stands between the ops of a kernel.
// tests/passes/peaks.py says how far off it is.
//
// Copies are left to whoever solves: he counts those that his answer needs, and asks again
// (memory_refine.c).

#ifndef MEMORY_H
#define MEMORY_H

#include "lives.h"
#include "problem.h"
#include "shares.h"

// Bytes of a rank that a choice decides; of a copy those that two decide together.
typedef struct Buffer {
  const Share *from; // NULL unless it is a copy: how it lies otherwise
  const Share *as;   // NULL: as large whatever is chosen
  int64_t bytes;     // of the whole
} Buffer;

// Moments at which memory may be full, and how many of each buffer there are then.
typedef struct Memory {
  Vec(Buffer) buffer;
  int n_rows;
  int *count; // [row * buffer.n + buffer]
} Memory;

Memory *memory_of(Problem *p, const Lives *lives);
// Bytes of one of them; in the second case when its nodes choose these.
int64_t buffer_bytes(const Buffer *b, int choice);
int64_t copy_bytes(const Buffer *b, int from, int as);
// Of a choice for all nodes; and which copies there are where that is more than the limit.
int64_t memory_peak(const Memory *m, const int *choice, int64_t limit, bool *out_copies);

#endif
