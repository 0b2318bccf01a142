// Recomputation on the devices that read it, from values received in forward.
//
//     recompute { a, b }, and a border of stages between them:
//
//     %h = a %x         : … @s0                      %h = a %x    : … @s0
//     %y = b %h         : … @s1                      %y = b %h    : … @s1
//     …                                              …
//     %1 = a %x         : … @s0 backward recompute_group=1
//     %2 = b %1         : … @s1 backward recompute_group=1      %2 = b %h    : … @s1 backward recompute_group=1
//     %3 = b_back %2, … : … @s1 backward         =>  %3 = b_back %2, … : … @s1 backward
//     …                                              %1 = a %x    : … @s0 backward recompute_group=1
//     %4 = a_back %1, … : … @s0 backward             %4 = a_back %1, … : … @s0 backward
//
// A recompute group (recompute.c) is chosen in the model, and borders of stages balance loads, so a
// border may be inside of a group. There %h, which @s1 received in forward, would be recomputed and
// sent again for backward. Then the backward of @s0 would be two segments, one before and one after
// that of @s1, and every micro-batch would wait for both transfers. So a receiver saves a value
// that it was sent, as if the group had been cut at the border. The producer still does not save
// it: %1 is recomputed for the producer's own gradients.
//
// That costs memory for the values that cross a border, of each micro-batch between forward and
// backward; a group as long as its stage takes as much.

#ifndef RECOMPUTE_LAYOUTS_H
#define RECOMPUTE_LAYOUTS_H

#include "sharding/sharding.h"

// Called once the ranks of all ops are known. Erases dead recomputations.
void keep_at_borders(const Sharding *s);

#endif
