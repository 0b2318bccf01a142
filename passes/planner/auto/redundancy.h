// How many ranks share the work of a step.
//
//     dp=2,search=2      ranks 0 and 2 send each other sums of gradients; so do 1 and 3, which do the same: 2 of 4
//     pp=2,sp            ranks 0 and 1 do the same where nothing is split over 'sp', whoever they send it to: 2 of 4
//     dp                 4 of 4
//
// Ranks that nothing is sent between, not over others either, have nothing to do with each other:
// each such group does all of the work, or none.  Of a group, those count once that differ only
// along axes over which nothing is split.

#ifndef REDUNDANCY_H
#define REDUNDANCY_H

#include "ir/op.h"

// Of the group where it is most; 1: no rank sends anything.  Of a module from PHASE_local on.
int ranks_sharing(const Module *m);

#endif
