// How the price of a step was made: its kernels and transfers on one rank, grouped by the figure
// that set their price.
//
//     kernels bound by 16-bit peak             96 runs    3.1 ms     flops / half
//     kernels bound by memory                 410 runs    1.2 ms     bytes / memory_speed
//     launches                                506         1.0 ms
//     all_reduce in a node, ring               24 runs    0.9 ms     nccl: nvls simple, 1.1 ms
//     move across nodes, messages              16 runs    0.2 ms
//
// A kernel costs the largest of its terms (cost.h) beside its launches; the sum over all kernels is
// RankCost.compute of the rank.  Transfers overlap, so their sum is no less than RankCost.comm.
// What hosts do for systems other than nnaot's (Cluster.host_weights, host_update) is left out.

#ifndef PRICE_TERMS_H
#define PRICE_TERMS_H

#include "base/vec.h"
#include "cluster/cluster.h"
#include "ir/op.h"

typedef struct PriceTerm {
  const char *what; // "kernels", "launches", "copies", or a collective
  // The figure: "f32 peak", "16-bit peak", "half_efficiency", "attention_efficiency",
  // "products", "memory_speed", "dispatch", "launch", "host"; of a transfer: "nccl", its choice;
  // "ring", with the latency of LL and the bandwidth of Simple, below all rings of NCCL;
  // "messages", the busiest link.
  const char *by;
  // Of a collective in rings: NCCL's choice for it on these links; else NULL.
  const char *algorithm, *protocol;
  int nodes;     // of a transfer: the most nodes that a group spans
  int64_t count; // runs in a step
  double bytes;  // of a transfer: of all runs, of the rank's larger buffer; a move: of all ranks
  double seconds, nccl_seconds; // of all runs; and with NCCL's choice
} PriceTerm;

typedef Vec(PriceTerm) PriceTerms;

// Lists the terms of the device's rank, kernels first.  Returns false if a step has no price
// (step_cost).
bool price_terms(const Module *m, const Cluster *c, int device, Arena *a, PriceTerms *out);

#endif
