// Costs of the edges of one search, by the model of path_cost.h.
//
//     all_reduce over a mask   start + bytes * rate of the mask: computed once for a group of devices,
//                              for all searches with that group
//     send_recv                as planned by path_p2p.h, up to a limit; the producers' pieces are
//                              computed once for all edges out of a state
//     all other primitives     added up on the links each time
//
// The number of devices visited is counted, as the limit of a search.

#ifndef EDGE_PRICES_H
#define EDGE_PRICES_H

#include "path_p2p.h"
#include "path_search.h"

typedef struct EdgePrices EdgePrices;

// `work`: incremented by the number of devices visited.
EdgePrices *edge_prices_new(Arena *a, const PathRules *rules, const Path *p, int64_t *work);
void edge_prices_free(EdgePrices *s);

// The cost of an edge. For a send/recv above the limit, a value above the limit, but too small.
Cost edge_price(EdgePrices *s, const State *before, const State *after, const Edge *e,
                double limit);
// `out` may be NULL.
Cost send_recv_price(EdgePrices *s, const State *before, const State *after, double limit,
                     Sends *out);

#endif
