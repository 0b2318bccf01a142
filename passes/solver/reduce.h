// Exact simplification of a model: no choice that could be the best goes, memory included.

#ifndef SOLVER_REDUCE_H
#define SOLVER_REDUCE_H

#include "solver/model.h"

void model_reduce(Model *m);

#endif
