// Plans of cuDNN made ahead of time, by the linked program itself: see rt/cuda/cudnn_plans.h.

#ifndef BACKEND_CUDNN_PLANS_H
#define BACKEND_CUDNN_PLANS_H

#include "build.h"

// Makes the file `plans` in the folder of the sources, or none if there is nothing to plan.
// Returns false, having reported it, on a failure with b->o->plans PLANS_yes; else a failure is a
// note.
bool plans_make(Build *b);

#endif
