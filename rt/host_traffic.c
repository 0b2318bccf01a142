// A note if collectives of a step send more between hosts than they need: see host_traffic.h.

#include "host_traffic.h"

#include <string.h>

#include "comm.h"

// With fewer bytes, the latency of a second level costs more than it saves.
static const double LEAST_SAVED = 1e6;

void nnrt_host_traffic_open(NnrtRank *r) {
  const Launch *l = &r->run->launch;
  const NnrtProgram *p = r->program;
  int here = l->local_world;
  bool several = here > 1 && here < l->world && l->world % here == 0;
  // The program of a surplus process has no target.
  bool cpu = p->target && strncmp(p->target, "cpu", 3) == 0;
  // Rank 0 is enough: hosts have equal numbers of ranks.
  if (r->rank == 0 && l->world == r->ranks && several && cpu && p->per_node != here)
    r->comm->hosts.per_host = here;
}

// Returns the number of the group's ranks on each host; 1 if hosts differ in it, or there is one.
static int ranks_per_host(const Group *g, int per_host) {
  int here = 0;
  for (int i = 0; i < g->n; i++) {
    int there = 0;
    for (int k = 0; k < g->n; k++)
      there += g->rank[k] / per_host == g->rank[i] / per_host;
    if (here && there != here) return 1;
    here = there;
  }
  return here < g->n ? here : 1;
}

void nnrt_host_traffic_count(NnrtRank *r, int group, JobKind kind, int64_t bytes) {
  HostTraffic *h = &r->comm->hosts;
  const Group *g = &r->comm->group[group];
  // Every byte of an all_to_all is for one rank only.
  if (!h->per_host || kind == JOB_all_to_all) return;
  int here = ranks_per_host(g, h->per_host);
  if (here == 1) return;
  // An all_reduce is a reduce_scatter and an all_gather.
  double from_others = (double)bytes * (g->n - here) / g->n * (kind == JOB_all_reduce ? 2 : 1);
  h->at_once += from_others;
  h->host_first += from_others / here;
}

void nnrt_host_traffic_step(NnrtRank *r) {
  HostTraffic *h = &r->comm->hosts;
  if (!h->per_host) return;
  // Every step sends the same.
  if (h->at_once - h->host_first >= LEAST_SAVED)
    nnrt_say_note("rank 0 receives %.1f MB of a step from other hosts in collectives; inside hosts "
                  "first it would be %.1f MB\n"
                  "hint: compile with --per-node %d",
                  h->at_once / 1e6, h->host_first / 1e6, h->per_host);
  h->per_host = 0;
}
