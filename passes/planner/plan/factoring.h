// Which axes a program cuts its ranks into, as the text of a plan says it.
//
//     search        the factoring that is best, of those that the program's `factors` returns
//     search=8      the same, of 8 ranks
//     search=2x4    the one that has these sizes, outermost first
//     search=8x1    the one that has a single axis: sizes of 1 are none
//
// shard knows a factoring of a whole plan by its number: all combinations of its programs' are
// counted, the last program's first.  So a candidate whose factoring was found by a search can be
// asked for by a text, and a text be handed to shard.

#ifndef FACTORING_H
#define FACTORING_H

#include "plan.h"

enum { FACTORING_OPEN = -1 }; // the plan's text leaves it to shard

// The number of the factoring that the plan says.  False, having reported why there is none.
bool factoring_number(Arena *a, const Plan *plan, int *out, Diag *d);
// The text of the same plan with the factoring of this number.
const char *factoring_text(Arena *a, const char *text, int64_t ranks, int number);

#endif
