// The uses of a rank's memory: see memory_breakdown.h.

#include "memory_breakdown.h"

#include <inttypes.h>

#include "cost/collectives.h"
#include "ir/analysis/place.h"

// Returns the bytes that the rank needs beyond its device's memory; below 0: there is more memory.
static double lacks(const Needs *n, const Cluster *c) {
  return (double)n->peak_bytes - cluster_device(c, n->rank).memory;
}

Needs needs_most(const Module *m, const Cluster *c) {
  Arena *a = arena_new();
  Needs most = {0};
  int n;
  const int *device = module_devices(m, a, &n);
  const int64_t *ends = mesh_ends(m, a), *ahead = gathered_ahead_bytes(m, c, a);
  // The rank that lacks most, which is not the one that needs most if devices differ.
  for (int i = 0; i < n; i++) {
    Needs here = {.rank = device[i]};
    here.peak_bytes = device_end(m, ends, device[i]) + device_end(m, ahead, device[i]);
    if (i == 0 || lacks(&here, c) > lacks(&most, c)) most = here;
  }
  // The persistent values on that rank.
  const Graph *g = m->graphs;
  for (int i = 0; g && i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->layout && v->layout->mesh && !mesh_has(v->layout->mesh, most.rank)) continue;
    if (value_on_host(v)) continue;
    if (v->role == ROLE_weight) most.weight_bytes += type_bytes(v->type);
    if (v->role == ROLE_state) most.state_bytes += type_bytes(v->type);
  }
  arena_free(a);
  return most;
}

bool needs_fit(const Needs *n, const Cluster *c) {
  return cluster_device(c, n->rank).memory <= 0 || lacks(n, c) <= 0;
}

const char *needs_text(Arena *a, const Needs *n) {
  return str_format(a,
                    "%" PRId64 " bytes are weights, %" PRId64 " the optimizer's states, %" PRId64
                    " gradients and saved activations",
                    n->weight_bytes, n->state_bytes,
                    n->peak_bytes - n->weight_bytes - n->state_bytes);
}
