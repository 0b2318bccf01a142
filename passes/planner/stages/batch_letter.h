// The batch dimension of each value, if it can be split: dimension 0 of an input, and from there
// along the einsums of its readers.
//
//     %x f32[8,16,64] input     batch 0
//     %y = reshape %x           f32[128,64], batch 0: "a b c -> (a b) c"
//     %w f32[64,64] weight      none

#ifndef STAGES_BATCH_LETTER_H
#define STAGES_BATCH_LETTER_H

#include "sharding/sharding.h"

// Returns the dimension by value id, or -1.
const int *splittable_batch_dims(const Sharding *s, Arena *a);
// Returns the letter (an index) of the batch in the op's einsum; -1: none that can be split.
int batch_letter(const Sharding *s, const int *batch, const Op *op);

#endif
