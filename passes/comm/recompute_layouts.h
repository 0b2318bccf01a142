// What is computed anew stays on its devices.
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
// A list of ops that are computed anew (recompute.c) is one of the model, and borders of stages
// fall where loads are even, so also inside of lists.  There %h, which @s1 was sent in forward,
// would be made and sent once more for backward; then backward of @s0 is two segments, one before
// and one after that of @s1, and every micro-batch waits for both ways.  So what others were sent
// they keep, as if the list had been cut at the border.  Who makes it still need not: %1 is there
// for gradients of its own.
//
// That is memory for what goes over a border, of each micro-batch that is between forward and
// backward; a list that is as long as its stage keeps as much.

#ifndef RECOMPUTE_LAYOUTS_H
#define RECOMPUTE_LAYOUTS_H

#include "sharding/sharding.h"

// When it is known where all ops run.  Erases what nobody needs any more.
void keep_at_borders(const Sharding *s);

#endif
