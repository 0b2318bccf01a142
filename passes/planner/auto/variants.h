// Points that are added while the search of auto runs, as another one does not fit or may be
// better with them: with recomputation, with states or saved activations in host memory, with tp.
//
//     pp=16,zero1=2 lacks memory        pp=16,zero1=2,recompute=1             all layers
//     that fits                         pp:6:6:…=16,zero1=2,recompute:2=1     as few as fit
//     pp=16,zero1=2 lacks memory        …,recompute:1=1,offload:29@1-30=1     as few of both as fit
//     pp=16,zero1=2 lacks memory        …,recompute:2@3=1,swap:1@1-2:1@4-6=1  and saved activations
//     sp=4,recompute=1 fits             tp=4,recompute=1

#ifndef VARIANTS_H
#define VARIANTS_H

#include "priced_points.h"

// Adds the points of the same plan with recomputation, as it does not fit, or only with stages that
// take longer. They take no less than the bound, as they compute the same and more.
void add_recomputed(AutoSearch *s, int i);

// Adds the point that recomputes as few layers of each stage as fit, as all of them fit.
void add_fewest(AutoSearch *s, int i);

// Adds the point of the same plan with states in host memory and all layers recomputed, as it does
// not fit; with stages, a deal chooses the layers of both. And the point of which a deal chooses
// layers with saved activations in host memory beside these, also without stages.
void add_least(AutoSearch *s, int i);

// Adds those with less recomputation, as this one may fit: they need more memory. Deals without
// any are among those of each level.
void add_less_recomputed(AutoSearch *s, int i);

// Whether tp may be better than sp inside of the point's layers. Without recomputation it repeats
// the norms of sp on each rank, and saves as many bytes or more. Recomputed layers save their
// inputs alone, and those of tp run beside its sums: of 8 stages of GPT-3 on 4 H200s each, in 512
// micro-batches, sp takes 55.9 s and tp 55.1 s.
bool may_gain_by_tensor(const AutoSearch *s, const Priced *p);

// Adds the point with tp inside of layers, as that with sp is refused, or fits by its own table.
void add_tensor(AutoSearch *s, int i);

#endif
