// A deal of layers to stages that recompute some of them, as a plan's text.
//
//     stage 0   layers 1 to 11, of which 8 are recomputed      pp:11:13=2,recompute:8@1-11:2@12-24=1
//     stage 1   layers 12 to 24, of which 2 are
//
// Without a deal in the text `place` would deal the layers itself, by other costs of memory. A
// program is for all ranks, so its layers are those of the model.

#ifndef DEAL_TEXT_H
#define DEAL_TEXT_H

#include "deal.h"

// The same costs, if a stage may end after whole layers only, and has one at least. If the kind
// splits gradients of weights from backward, recomputed values wait for these.
UnitCosts whole_layers(const UnitCosts *units, bool splits, Arena *a);

// `plan`: of the stages, with its program first; all stages recompute at one level. NULL: there are
// too many numbers.
const char *deal_text(const char *plan, const DealProblem *p, const Deal *d, Arena *a);

#endif
