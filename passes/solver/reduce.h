// Exact simplification of a model: it keeps at least one optimal choice, memory included.

#ifndef SOLVER_REDUCE_H
#define SOLVER_REDUCE_H

#include "solver/model.h"

void model_reduce(Model *m);

#endif
