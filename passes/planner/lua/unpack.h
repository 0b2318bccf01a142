// Unpacks fused products, such as that of q, k and v:
//
//     %y = linear %x, %w : f32[8,192]              %w0 = slice %w …          %b0 = slice %b …
//     %c = broadcast %b shape=[8,192]              %y0 = linear %x, %w0      %c0 = broadcast %b0
//     %z = add %y, %c                         =>   %q = add %y0, %c0
//     %q = slice %z starts=[0,0] shape=[8,64]      …
//     %k = slice %z starts=[0,64] shape=[8,64]
//
// A shard of the fused product's columns is no shard of q, k and v. The separate products can be
// sharded along the columns of each.
//
// The slices may be those of a reshape that keeps the columns together, as libraries take q, k and
// v apart: shape=[8,3,4,16] of three times four heads, or [8,6,16] of four heads and one each of k
// and v.
//
// A weight or bias with no other reader gets another dimension, so that it can have the layout of
// the products: groups of as many columns as divide all slices.
//
//     %w: f32[64,192] weight "w"       =>       %w: f32[64,3,64] weight "w" as f32[64,192]
//
//                                               %w0 = slice %w starts=[0,0,0] shape=[64,1,64]
//                                               %w1 = reshape %w0 shape=[64,64]     …
//
// Split within the groups, each rank has its columns of q, k and v: it stores its part of the
// weight, and computes its heads.  With fewer heads of keys, as q of 128 columns and k of 32, the
// groups are those of k: q has four.  Of k and v a rank has its heads; of q it has a part of each
// group, and needs whole groups: an all_to_all of the columns of q, once in a step (tp.lua).

#ifndef UNPACK_H
#define UNPACK_H

#include "ir/graph.h"

// Whether `op` is a `linear` and slices of columns alone read its result, perhaps plus a bias, or a
// reshape of it.
bool is_packed_product(Op *op);
// Replaces such an op by several products.  False after an error.
bool unpack_product(Op *op, Diag *d);

#endif
