// The training step that a saved plan belongs to, besides the model and the number of ranks: the
// batch of a step, and the kind of its updates.

#ifndef PLAN_FINGERPRINT_H
#define PLAN_FINGERPRINT_H

#include "ir/graph.h"

typedef struct MadeFor {
  const char *update; // the kind of op that updates weights, "adamw"; NULL: none is trained
  int64_t batch;      // of the first input with one; 0: there is none
} MadeFor;

MadeFor made_for(const Graph *g);

#endif
