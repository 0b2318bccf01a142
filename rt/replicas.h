// --check-replicas: compares the shards of weights and states that several ranks hold.

#ifndef NNRT_REPLICAS_H
#define NNRT_REPLICAS_H

#include "runtime.h"

enum { CHECK_REPLICAS_EVERY = 100 }; // steps, without the flag

typedef struct Replicas Replicas;

// Collective: the shards of this rank; its device is open.  Rank 0 notes the differences of ranks
// that round differently.
Replicas *nnrt_replicas_new(NnrtRank *r);
void nnrt_replicas_free(Replicas *p); // NULL: nothing
// Collective: whether all copies of each shard are equal, or differ by rounding on ranks that round
// differently, after `steps` steps whose work, deferred updates included, is done.  False: rank 0
// has reported the tensors and the ranks.
bool nnrt_replicas_sound(Replicas *p, int64_t steps);

#endif
