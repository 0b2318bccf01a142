// The dimension of the batch's rows in each value: dimension 0 of an input, and from there along
// the einsums of its readers.
//
//     %x f32[8,16,64] input     rows 0
//     %y = reshape %x           f32[128,64], rows 0: "a b c -> (a b) c"
//     %w f32[64,64] weight      none

#ifndef STAGES_ROWS_H
#define STAGES_ROWS_H

#include "sharding/sharding.h"

// Returns the dimension by value id, or -1.
const int *rows_find(const Sharding *s, Arena *a);
// Returns the letter (an index) of the rows in the op's einsum; -1: none that can be split.
int rows_letter(const Sharding *s, const int *rows, const Op *op);

#endif
