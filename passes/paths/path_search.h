// One search for the cheapest path (path.h); path.c caches the results.

#ifndef PATH_SEARCH_H
#define PATH_SEARCH_H

#include "base/hash.h"
#include "path.h"

// Parameters of a search, besides the tensor and its placements.
typedef struct PathRules {
  Arena *arena; // of the results
  const Cluster *c;
  Traffic *traffic;
  struct GroupRates **rates; // cache of groups' costs from earlier searches: edge_prices.c
  bool only_collectives;     // no send/recv among the devices of one group
} PathRules;

const Path *path_search(const PathRules *rules, const TensorShape *shape, const Placement *from,
                        const Placement *to);

static inline uint64_t path_hash(uint64_t h, const void *bytes, size_t n) {
  h = fnv1a(h, bytes, n);
  return h ^ h >> 29;
}

#endif
