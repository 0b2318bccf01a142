// Loops with the states that their gradients read: loop_states.c.

#ifndef TRAIN_LOOP_STATES_H
#define TRAIN_LOOP_STATES_H

#include "ir/graph.h"

// Makes the loops of a graph stack their states.  False after an error.
bool loops_save_states(Graph *g, Diag *d);

#endif
