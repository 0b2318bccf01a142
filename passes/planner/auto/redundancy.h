// The number of ranks that share the work of a step.
//
//     dp=2,search=2      ranks 0 and 2 send each other partial gradients; so do 1 and 3, which repeat them: 2 of 4
//     pp=2,sp            ranks 0 and 1 do the same if nothing is split over 'sp', for any receiver: 2 of 4
//     dp                 4 of 4
//     inputs in shards   gathered first, and all ranks compute with all rows: 1 of 4
//
// Ranks without messages between them, direct or through others, are independent: each such group
// does all of the work, or none. In a group, ranks that differ only along axes over which nothing
// that is computed is split count once.

#ifndef REDUNDANCY_H
#define REDUNDANCY_H

#include "ir/op.h"

// Returns the number in the largest group; 1: all ranks do the same, or no rank sends anything. For
// modules from PHASE_local on.
int ranks_sharing(const Module *m);

#endif
