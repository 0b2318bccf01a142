// Where the rows of the batch are in each value: dimension 0 of an input, and from there along the
// einsums of the ops that read it.
//
//     %x f32[8,16,64] input     rows 0
//     %y = reshape %x           f32[128,64], rows 0: "a b c -> (a b) c"
//     %w f32[64,64] weight      none

#ifndef STAGES_ROWS_H
#define STAGES_ROWS_H

#include "sharding/sharding.h"

// By value id the dimension, or -1.
const int *rows_find(const Sharding *s, Arena *a);
// The letter (an index) of the op's einsum that is the rows; -1: it has none that can be split.
int rows_letter(const Sharding *s, const int *rows, const Op *op);

#endif
