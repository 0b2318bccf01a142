// A deal of units to stages that recompute some layers, or offload their states, as a plan's text.
//
//     stage 0   layers 1 to 11, of which 8 are recomputed      pp:11:13=2,recompute:8@1-11:2@12-24=1
//     stage 1   layers 12 to 24, of which 2 are
//
//     stage 0   the states of layers 1 to 4 in host memory     pp:11:13=2,offload:4@1-24=1
//
//     stage 0   layers 1 to 11 and the attention of 12         pp:23:25=2
//     stage 1   the mlp of layer 12, and layers 13 to 24
//
// Without a deal in the text `place` would deal the layers itself, by other costs of memory. A
// program is for all ranks, so its layers are those of the model.

#ifndef DEAL_TEXT_H
#define DEAL_TEXT_H

#include "deal.h"

// The units that a stage may end after.
typedef enum Borders { BORDER_units, BORDER_parts, BORDER_layers } Borders;

// The same costs, if a stage may end after parts of layers only, or after whole ones, and has one
// at least.
UnitCosts costs_between(const UnitCosts *units, Borders borders, Arena *a);

// `plan`: of the stages, with its program first; all stages recompute at one level, and end after
// parts of layers. NULL: there are too many numbers.
// Its programs of savers alone: ",recompute:8@1-11=1,offload=1", or "". NULL: as above.
const char *deal_savers(const DealProblem *p, const Deal *d, Arena *a);
const char *deal_text(const char *plan, const DealProblem *p, const Deal *d, Arena *a);

#endif
