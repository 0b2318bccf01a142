// What the edges of one search cost, as path_cost.h prices them.
//
//     all_reduce over a mask   start + bytes * rate of the mask: found once for a group of devices,
//                              for all searches that have the group
//     send_recv                as path_p2p.h plans it, up to a limit; who has what is found once for
//                              all edges out of a state
//     all else                 put on the links each time
//
// How many devices were looked at for that is counted, so that a search can end.

#ifndef EDGE_PRICES_H
#define EDGE_PRICES_H

#include "path_p2p.h"
#include "path_search.h"

typedef struct EdgePrices EdgePrices;

// `work`: to which the devices are added that are looked at.
EdgePrices *edge_prices_new(Arena *a, const PathRules *rules, const Path *p, int64_t *work);
void edge_prices_free(EdgePrices *p);

// More than the limit, but too little, where a send/recv exceeds that.
Cost edge_price(EdgePrices *p, const State *before, const State *after, const Edge *e,
                double limit);
// `out` may be NULL.
Cost send_recv_price(EdgePrices *p, const State *before, const State *after, double limit,
                     Sends *out);

#endif
