// Plans that lack memory, with less of it: saved activations recomputed or offloaded, optimizer
// states offloaded.
//
//     zero1=2,sp=2 in 16 micro-batches                  44.8 ms   1.31 MB of 1.03 MB
//     zero1=2,sp=2,offload=1                            the states are 0.24 MB: it may fit
//     zero1=2,sp=2,swap=1, …,swap=1,offload=1           weights and states take 0.4 MB: they may fit
//
// Each plan that was compiled is a base: with a saver it needs no less than its weights, and those
// of its activations and states that the saver leaves, and takes no less time. Its needs in other
// micro-batches follow from those that were compiled: activations shrink with the rows at best.
//
// If something fits, the variants that may be faster are compiled, those with the least expected
// time first. If nothing fits, those that need least are, each in the most micro-batches that its
// replicas have whole rows for, until one fits.

#ifndef RELIEF_H
#define RELIEF_H

#include "candidates.h"

// Appends the variants that could be made.
void try_relief(const Module *model, const ChooseOptions *o, Arena *a, Candidates *all);

#endif
