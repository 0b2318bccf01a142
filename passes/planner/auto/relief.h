// Plans that lack memory, with less of it: saved activations recomputed or offloaded, optimizer
// states offloaded, sums of gradients offloaded.
//
//     zero1=2,sp=2 in 16 micro-batches                  44.8 ms   1.31 MB of 1.03 MB
//     zero1=2,sp=2,offload=1                            the states are 0.24 MB: it may fit
//     zero1=2,sp=2,swap=1, …,swap=1,offload=1           weights and states take 0.4 MB: they may fit
//
// Each plan that was compiled is a base, unless it has a saver, or is the same as an earlier one in
// all micro-batches. One with numbers in its text is a base for the savers that it lacks: with
// offload:4=1 for offload_gradients=1. With a saver it needs no less than its weights, summed
// gradients, and those of its activations and states that the saver leaves, and takes no less time.
// Its needs in other micro-batches follow from those that were compiled: activations shrink with
// the rows at best.
//
// A saver is expected to leave as few activations, and to take as little time, as with any plan
// that was compiled with it and without:
//
//     dp 41.4 ms, dp,swap=1 42.5 ms      with swap=1: 75 % of the activations, 1.03 times the seconds
//
// If something fits, the variants that are expected to fit and to be faster are compiled, those
// with the least expected time first; of a large model a few, if nothing fits without host memory.
// If nothing fits, those that are expected to need least are, each in the most micro-batches that
// its replicas have whole rows for, until one fits. Of those that cannot fit by their least bytes
// (least_bytes.h) a few are, as the nearest miss is reported. If still nothing fits, so are the
// variants with sums of gradients in host memory, in several micro-batches.

#ifndef RELIEF_H
#define RELIEF_H

#include "auto.h"
#include "candidates.h"

// Appends the variants that could be made. `search`: bounds of plans; NULL: there are none.
void try_relief(const Module *model, const ChooseOptions *o, const AutoSearch *search, Arena *a,
                Candidates *all);

#endif
