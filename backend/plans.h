// Plans of cuDNN made ahead of time, by the linked program itself: see rt/cuda/plans.h.

#ifndef BACKEND_PLANS_H
#define BACKEND_PLANS_H

#include "build.h"

// Makes the file `plans` in the folder of the sources; none when there is nothing to plan.  False,
// having reported it, when that fails and b->o->plans is PLANS_yes; else failing is a note.
bool plans_make(Build *b);

#endif
