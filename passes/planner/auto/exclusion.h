// Candidates that cannot be the best plan, by the search of auto (auto.h): they are not compiled.
//
//     best so far   2,933 ms
//     dp            weights and states of a rank take 2,800 GB at least     by its bound
//     zero3=1024    a step is expected to take 9,120 ms                     by its price
//     search        plans without stages take 9,120 ms and more             by prices of all these
//
//     nothing fits yet, and a rank has 85 GB
//     search        weights and states of a rank take 263 GB at least       any plan's
//     dp            weights of a rank take 351 GB at least, with states offloaded
//
// A candidate that is a point has a bound and a price. A search is judged by the named plans
// without stages, which it improves by at most a known factor. If a plan with stages is the best
// one of the space, no other trial with stages is needed.

#ifndef EXCLUSION_H
#define EXCLUSION_H

#include "auto.h"

// Returns the reason for which the plan cannot be the best one, as a plan takes `worth` seconds and
// fits; 0: none does yet, and the reason is that it cannot fit. Or NULL. Sets c->lacks.
const char *auto_excludes(AutoSearch *s, Candidate *c, double worth);

// Returns the best plan so far, if it has stages and is of a point of a large model; or NULL.
const Candidate *auto_best_of_space(const AutoSearch *s, const Candidates *all);

// Whether the best plan has stages, and was found by tables that hold for this model:
// other plans with stages are then no better.
bool auto_covers(const AutoSearch *s, const Candidates *all);

// Whether the best plan is one of the space, by tables: then the space has all numbers of stages
// with the plans inside of them, and the search has gone through these.
bool auto_has_best(const AutoSearch *s, const Candidates *all);

#endif
