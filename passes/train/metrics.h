// Metrics of an evaluation: the number of rows that a classified output has right, and wrong.
//
//     %15, %16 = cross_entropy %logits, %labels      %17 = arg_max %logits
//                                               =>   return output "accuracy(logits).right" …,
//                                                           output "accuracy(logits).wrong" …

#ifndef METRICS_H
#define METRICS_H

#include "ir/build.h"

// Adds metrics to @eval.  `spec`: that of the loss.  Its ops are in the graph in the order of the
// specification, once in each piece.
bool add_metrics(Graph *g, const char *spec, Arena *a, Diag *d);

#endif
