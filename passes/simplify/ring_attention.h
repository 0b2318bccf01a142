// Attention over a sequence that ranks have blocks of: see ring_attention.c.

#ifndef RING_ATTENTION_H
#define RING_ATTENTION_H

#include "base/vec.h"
#include "ir/graph.h"

typedef Vec(Op *) RingOps;

// Whether an attention can be computed by a ring of `ranks`; if not, `*why` has the reason.
bool ring_possible(const Op *op, int ranks, const char **why);

// Replaces `op`, an attention of a module before sharding for which a ring is possible, and the
// attention_back ops that read its log-sum-exp, by rounds of a ring, and erases them.  Adds the ops
// with a letter of the blocks, which a plan splits, to `*out`, if that is not NULL.
bool ring_attention(Op *op, int ranks, Arena *a, RingOps *out, Diag *d);

// That letter: of permute_blocks, or of an attention in blocks.
char ring_letter(const Op *op);

#endif
