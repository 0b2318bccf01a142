// Costs of the edges of one search: see edge_prices.h.

#include "edge_prices.h"

#include <string.h>

// The cost of a collective over one set of axes, linear in the bytes.
typedef struct Rate {
  int64_t work;         // to compute it; 0: not computed
  Cost start, gigabyte; // of an empty message; per 1e9 bytes
} Rate;

// Rates of a group's collectives, by mask and primitive, shared by searches for other tensors.
typedef struct GroupRates {
  int n, n_axes, size[PATH_AXES];
  const int *device; // [n]
  Rate *rate;
  struct GroupRates *next;
} GroupRates;

// The pieces of a state's devices, for send/recv from there.
typedef struct Senders {
  Arena *arena;
  State state;
  const Producers *of;
} Senders;

struct EdgePrices {
  Arena *arena;
  const PathRules *rules;
  const Path *path;
  int64_t *work;
  Senders senders;
  Groups groups;  // scratch
  Rate *rate[2];  // of a group's collectives; see rate_of
  bool *asked[2]; // those that this search has used
};

EdgePrices *edge_prices_new(Arena *a, const PathRules *rules, const Path *p, int64_t *work) {
  EdgePrices *s = arena_one(a, EdgePrices);
  *s = (EdgePrices){.arena = a, .rules = rules, .path = p, .work = work};
  s->groups.device = arena_array(a, int, 2 * (p->group[0].n + p->group[1].n));
  return s;
}

void edge_prices_free(EdgePrices *s) {
  if (s->senders.arena) arena_free(s->senders.arena);
}

// -- Send/recv -----------------------------------------------------------------------------------

Cost send_recv_price(EdgePrices *s, const State *before, const State *after, double limit,
                     Sends *out) {
  const Group *group = s->path->group;
  *s->work += (int64_t)group[before->group].n * group[after->group].n;
  // Edges come state by state: the pieces of the last state often serve the next edge.
  Senders *from = &s->senders;
  if (!from->arena || memcmp(&from->state, before, sizeof *before) != 0) {
    if (from->arena) arena_free(from->arena);
    *from = (Senders){.arena = arena_new(), .state = *before};
    from->of = p2p_producers(from->arena, &s->path->shape, &group[before->group], before);
  }
  P2p q = {s->arena, s->rules->traffic, s->rules->c, &s->path->shape, limit};
  return p2p_cost(&q, from->of, &group[after->group], after, out);
}

// -- Collectives ---------------------------------------------------------------------------------

static Rate *rates_of(const PathRules *rules, const Group *g) {
  size_t axes = (size_t)g->n_axes * sizeof *g->size, devices = (size_t)g->n * sizeof *g->device;
  for (GroupRates *r = *rules->rates; r; r = r->next)
    if (r->n == g->n && r->n_axes == g->n_axes && !memcmp(r->size, g->size, axes) &&
        !memcmp(r->device, g->device, devices))
      return r->rate;
  // The first search with such a group; the rates are found as they are needed.
  GroupRates *r = arena_one(rules->arena, GroupRates);
  *r = (GroupRates){.n = g->n, .n_axes = g->n_axes, .next = *rules->rates};
  memcpy(r->size, g->size, axes);
  r->device = arena_copy(rules->arena, g->device, devices);
  r->rate = arena_array(rules->arena, Rate, N_PATH_COLLECTIVES << g->n_axes);
  *rules->rates = r;
  return r->rate;
}

// The work counts for a cached rate, too: the limit of a search must not depend on earlier
// searches.
static const Rate *rate_of(EdgePrices *s, const State *before, const State *after, const Edge *e) {
  const Group *g = &s->path->group[before->group];
  int index = (int)(e->mask * N_PATH_COLLECTIVES) + (int)(e->prim - PATH_all_reduce);
  if (!s->rate[before->group]) {
    s->rate[before->group] = rates_of(s->rules, g);
    s->asked[before->group] = arena_array(s->arena, bool, N_PATH_COLLECTIVES << g->n_axes);
  }
  Rate *r = &s->rate[before->group][index];
  bool *asked = &s->asked[before->group][index];
  // Linear in the bytes: priced empty, and with 1e9 bytes.
  if (!*asked && !r->work) {
    edge_groups(&s->path->shape, s->path->group, before, after, e, s->rules->c, &s->groups);
    Cost all = groups_cost(s->rules->traffic, e->prim, &s->groups, 1e9, 1e9);
    r->start = groups_cost(s->rules->traffic, e->prim, &s->groups, 0, 0);
    r->gigabyte = (Cost){all.seconds - r->start.seconds, all.bytes, all.crossing};
    r->work = 2 * (int64_t)g->n * (path_ring_rounds(e->prim) ? 1 : s->groups.size);
  }
  if (!*asked) *s->work += r->work;
  *asked = true;
  return r;
}

Cost edge_price(EdgePrices *s, const State *before, const State *after, const Edge *e,
                double limit) {
  const Path *p = s->path;
  double old = state_bytes(&p->shape, &p->group[before->group], before);
  double new = state_bytes(&p->shape, &p->group[after->group], after);
  // Local primitives are free.
  if (e->prim <= PATH_pad_sum) return (Cost){0};
  if (e->prim == PATH_send_recv) return send_recv_price(s, before, after, limit, NULL);
  if (path_is_collective(e->prim)) {
    const Rate *r = rate_of(s, before, after, e);
    double n = (path_grows(e->prim) ? new : old) / 1e9;
    return (Cost){r->start.seconds + n * r->gigabyte.seconds, n * r->gigabyte.bytes,
                  n * r->gigabyte.crossing};
  }
  // All others have messages of their own.
  edge_groups(&p->shape, p->group, before, after, e, s->rules->c, &s->groups);
  *s->work += 4 * (int64_t)(p->group[before->group].n + p->group[after->group].n);
  return groups_cost(s->rules->traffic, e->prim, &s->groups, old, new);
}
