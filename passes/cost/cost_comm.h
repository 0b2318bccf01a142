// What a collective costs on a cluster, by the prices of path_cost.h: those by which comm chose it,
// and which `nnaot-plan rvd` says of the same devices and bytes.  All groups of a collective run at
// the same time and share the links.
//
//     all_reduce of 96 MB along tp, on an h100, 8 devices of a node:
//       6.6 us + 14 * 0.6 us + 2 * 7/8 * 96e6 / 450e9 s = 388 us
//
// Equal collectives are priced once: those of one kind, along the same axes, of values that have
// equal types and layouts.

#ifndef COST_COMM_H
#define COST_COMM_H

#include "cluster/cluster.h"
#include "ir/graph.h"
#include "paths/path_cost.h"

// The devices that take part: of each group, or of a move those that send or get anything.
typedef struct Parties {
  Groups groups;          // of all but a move
  int *sender, *receiver; // of a move: devices, each once
  int n_senders, n_receivers;
} Parties;

typedef struct CommPrice {
  Cost cost; // all 0 where nothing is sent
  Parties parties;
  int id; // of prices of one CommPrices, from 0
} CommPrice;

typedef struct CommPrices CommPrices;
CommPrices *comm_prices_new(Arena *a, const Cluster *c);
// Of a collective, from PHASE_local on.  The cluster must have its devices.
const CommPrice *comm_price(CommPrices *p, const Op *op);

#endif
