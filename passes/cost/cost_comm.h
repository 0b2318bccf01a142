// The cost of a collective on a cluster, by the prices of path_cost.h.  `comm` chose the collective
// by the same prices, and `nnaot-plan rvd` prints them for given devices and bytes.  All groups of
// a collective run at the same time and share the links.
//
//     all_reduce of 96 MB along tp, on an h100, 8 devices of a node:
//       6.6 us + 14 * 0.6 us + 2 * 7/8 * 96e6 / 450e9 s = 388 us
//
// Equal collectives are priced once: equal in kind, axes, types and layouts.

#ifndef COST_COMM_H
#define COST_COMM_H

#include "cluster/cluster.h"
#include "ir/graph.h"
#include "paths/nccl.h"

// The participating devices: of each group, or the senders and receivers of a move.
typedef struct Parties {
  Groups groups;          // of every kind but a move
  int *sender, *receiver; // of a move: devices, without duplicates
  int n_senders, n_receivers;
} Parties;

typedef struct CommPrice {
  Cost cost; // all 0 if nothing is sent
  Parties parties;
  int id; // among the prices of one CommPrices, from 0
} CommPrice;

typedef struct CommPrices CommPrices;
CommPrices *comm_prices_new(Arena *a, const Cluster *c);
// Returns the price of a collective, from PHASE_local on.  The cluster must have its devices.
const CommPrice *comm_price(CommPrices *p, const Op *op);
// NCCL's choice for an all_reduce, all_gather or reduce_scatter among more than one rank; and the
// nodes of its largest group.
NcclChoice comm_nccl(CommPrices *p, const Op *op, int *nodes);

#endif
