// Pads a vocabulary, so that it can be split into equal parts (Megatron-LM pads it likewise):
//
//     %w: f32[50,8] weight "w"                   %w: f32[56,8] weight "w" as f32[50,8]
//     %e = gather %w, %words             =>      %e = gather %w, %words rows=50
//     %y = linear %x, %w trans=true              %y = linear %x, %w trans=true
//     %l, %s = cross_entropy %y, %t              %l, %s = cross_entropy %y, %t classes=50
//     return output "logits" %y                  %z = slice %y starts=[0,0] shape=[4,50]
//                                                return output "logits" %z
//
// Padding is zero and stays zero.  A lookup has no index of it.  The logits of padding do not count
// in the loss, so their gradients are 0, and so are those of the rows; an update of 0 by 0 is 0,
// and so are its norms.  Files and users know the weight without padding.
//
// Readers that cannot leave padding out, such as outputs, get a slice without it.  Elementwise ops
// on the logits are padded too, with the bias that they add, if their derivatives are finite
// (FINITE): 0 times the infinite derivative of a logarithm would be no number.

#ifndef PAD_H
#define PAD_H

#include "ir/graph.h"

// Pads the vocabulary of `op`, the rows of the table of a gather or the columns of a product with a
// weight, to a multiple of `multiple`.  `*why` is the reason why not; NULL: it is a multiple now.
// False after an error.
bool pad_vocabulary(Op *op, int64_t multiple, const char **why, Diag *d);

#endif
