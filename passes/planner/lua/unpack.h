// Products that are several in one, such as that of q, k and v:
//
//     %y = linear %x, %w : f32[8,192]              %w0 = slice %w …          %b0 = slice %b …
//     %c = broadcast %b shape=[8,192]              %y0 = linear %x, %w0      %c0 = broadcast %b0
//     %z = add %y, %c                         =>   %q = add %y0, %c0
//     %q = slice %z starts=[0,0] shape=[8,64]      …
//     %k = slice %z starts=[0,64] shape=[8,64]
//
// The result of the one is cut along columns that belong to different products, so a part of its
// columns is no part of q, k and v; parts of the columns of each are.
//
// A weight or bias of equal parts that nothing else reads gets a dimension more, so that it can lie
// as the products want it:
//
//     %w: f32[64,192] weight "w"       =>       %w: f32[64,3,64] weight "w" as f32[64,192]
//
//                                               %w0 = slice %w starts=[0,0,0] shape=[64,1,64]
//                                               %w1 = reshape %w0 shape=[64,64]     …

#ifndef UNPACK_H
#define UNPACK_H

#include "ir/graph.h"

// Makes `op` several products if it is a `linear` whose result, perhaps with a bias, is read by
// slices of its columns only; `*done` says whether.  False, having reported why, when that failed.
bool unpack_product(Op *op, bool *done, Diag *d);

#endif
