// What of a training step a saved plan is bound to, beside the model and the number of ranks: how
// many rows a step has, and what its updates are.

#ifndef PLAN_FINGERPRINT_H
#define PLAN_FINGERPRINT_H

#include "ir/graph.h"

typedef struct MadeFor {
  const char *update; // the kind of op that updates weights, "adamw"; NULL: none is trained
  int64_t rows;       // of the first input that has any; 0: none has
} MadeFor;

MadeFor made_for(const Graph *g);

#endif
