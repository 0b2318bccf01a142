// Predicts the constraints of outer axes' programs before inner axes are decided.
//
//     plan zero3=16,search=2      search runs first, zero3 shards a remaining dimension
//
//       %w: f32[512,512]          zero3 will keep shards of 32 rows: 1/16 of weight, state, gradient
//       %x: f32[64,512]           dp, which is part of zero3, will take 4 of its rows
//
// The time and memory that a search estimates are those of one rank, so they depend on outer axes.
// The graph is cloned in its present state, its open axes are propagated, the outer programs
// constrain the clone, and the search assumes the resulting layouts, in a copy of the decisions.
// These axes stay open: the programs' real decisions follow from the result of the search.  They
// may differ from the prediction, as ZeRO shards a free dimension of a weight, but shard equally
// much.
//
// There is no prediction for time axes, which a search models itself (planner/search/lives.h); for
// outer searches, which are not run; for stages; or if a program fails.  Then outer axes count as
// if nothing was split over them.

#ifndef OUTER_H
#define OUTER_H

#include "sharding/sharding.h"

// Predicted layouts and splits along the axes of outer programs.
typedef struct Outer {
  bool axis[MAX_AXES];
  char (*split)[MAX_AXES]; // by op id
  Sbp (*layout)[MAX_AXES]; // by value id
  bool *parts; // by value id: a gradient that is sharded before accumulation over slices
} Outer;

// The prediction for the program that runs now; NULL if there is none.  In s->scratch.
Outer *outer_guess(const Sharding *s);
// Returns a copy of the sharding with the outer axes decided as predicted. Op.split of the graph
// has the predicted splits; the caller restores it.
const Sharding *outer_assume(const Sharding *s, const Outer *o);

#endif
