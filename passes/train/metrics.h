// Metrics of an evaluation: how many rows an output that the loss classifies has right, and wrong.
//
//     %15, %16 = cross_entropy %logits, %labels      %17 = arg_max %logits
//                                               =>   return output "accuracy(logits).right" …,
//                                                           output "accuracy(logits).wrong" …

#ifndef METRICS_H
#define METRICS_H

#include "ir/build.h"

// Adds them to @eval.  `spec`: that of the loss, whose ops stand in the graph in its order, once in
// each piece.
bool add_metrics(Graph *g, const char *spec, Arena *a, Diag *d);

#endif
