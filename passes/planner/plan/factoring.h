// Factorings of a program's ranks into axes, as text of a plan.
//
//     search        the best of the factorings that the program's `factors` returns
//     search=8      the same, of 8 ranks
//     search=2x4    the one with these sizes, outermost first
//     search=8x1    the one with a single axis: sizes of 1 are ignored
//
// shard identifies a factoring of a whole plan by its number: it enumerates all combinations of the
// programs' factorings, the last program's first.  So the factoring that a search found for a
// candidate can be written as text, and the text passed to shard.

#ifndef FACTORING_H
#define FACTORING_H

#include "plan.h"

enum { FACTORING_OPEN = -1 }; // the plan's text leaves it to shard

// The number of the plan's factoring.  False after an error, if there is none.
bool factoring_number(Arena *a, const Plan *plan, int *out, Diag *d);
// The text of the same plan with the factoring of this number.
const char *factoring_text(Arena *a, const char *text, int64_t ranks, int number);

#endif
