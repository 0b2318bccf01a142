// The paths of one cluster: a cache of results, which also covers equivalent queries.

#include "path.h"

#include <math.h>
#include <string.h>

#include "path_search.h"

typedef struct Known {
  TensorShape shape;
  Placement from, to;
  const Path *path;
} Known;

struct Paths {
  PathRules rules;
  Vec(Known) known;
  int *table, table_size; // known + 1 by hash
};

Paths *paths_new(Arena *a, const Cluster *c) {
  Paths *p = arena_one(a, Paths);
  p->rules = (PathRules){.arena = a, .c = c, .traffic = traffic_new(a, c)};
  p->rules.rates = arena_one(a, struct GroupRates *);
  return p;
}

void paths_without_send_recv(Paths *paths) {
  paths->rules.only_collectives = true;
}

Cost path_p2p(const Paths *paths, const Path *p) {
  // The search had it as an upper bound, unless it was to use collectives only.
  if (p->p2p.seconds > 0) return p->p2p;
  const Group *from = &p->group[p->first.group], *to = &p->group[p->last.group];
  Arena *scratch = arena_new();
  P2p q = {scratch, paths->rules.traffic, paths->rules.c, &p->shape, INFINITY};
  Cost cost = p2p_cost(&q, p2p_producers(scratch, &p->shape, from, &p->first), to, &p->last, NULL);
  arena_free(scratch);
  return cost;
}

static bool placement_equal(const Placement *a, const Placement *b) {
  return a->copies == b->copies && a->shares == b->shares && a->n == b->n &&
         !memcmp(a->part, b->part, sizeof a->part) &&
         !memcmp(a->device, b->device, sizeof(int) * (size_t)a->n);
}

static uint64_t placement_hash(uint64_t h, const Placement *p) {
  h = path_hash(h, &p->copies, sizeof p->copies);
  h = path_hash(h, &p->shares, sizeof p->shares);
  h = path_hash(h, p->part, sizeof p->part);
  return path_hash(h, p->device, sizeof(int) * (size_t)p->n);
}

static uint64_t known_hash(const TensorShape *shape, const Placement *from, const Placement *to) {
  // FNV-1a, from its offset basis.
  uint64_t h = path_hash(FNV1A_EMPTY, shape->dim, sizeof(int64_t) * (size_t)shape->ndim);
  return placement_hash(placement_hash(h, from), to);
}

// The slot of a query in the table, which holds its number + 1, or 0.
static int *known_slot(Paths *paths, const TensorShape *shape, const Placement *from,
                       const Placement *to) {
  // A table that becomes more than half full is doubled.
  if (2 * (paths->known.n + 1) > paths->table_size) {
    paths->table_size = paths->table_size ? 2 * paths->table_size : 64;
    paths->table = arena_array(paths->rules.arena, int, paths->table_size);
    for (int i = 0; i < paths->known.n; i++) {
      const Known *k = &paths->known.at[i];
      uint64_t h = known_hash(&k->shape, &k->from, &k->to);
      while (paths->table[h & (uint64_t)(paths->table_size - 1)])
        h++;
      paths->table[h & (uint64_t)(paths->table_size - 1)] = i + 1;
    }
  }
  for (uint64_t h = known_hash(shape, from, to);; h++) {
    int *slot = &paths->table[h & (uint64_t)(paths->table_size - 1)];
    if (!*slot) return slot;
    const Known *k = &paths->known.at[*slot - 1];
    if (shape_equal(&k->shape, shape) && placement_equal(&k->from, from) &&
        placement_equal(&k->to, to))
      return slot;
  }
}

static Placement placement_copy(Arena *a, const Placement *p) {
  Placement copy = *p;
  copy.device = arena_copy(a, p->device, sizeof(int) * (size_t)p->n);
  return copy;
}

// -- Renumbered nodes --------------------------------------------------------------------------

// If all nodes are equal, a path between two stages of a pipeline is that between the first two,
// with other devices.  The search runs once, with nodes renumbered in order of appearance.
typedef struct Renumbering {
  int per_node, n;
  int *node;   // [n] the original node of 0, 1, …
  int *number; // per original node: new number + 1; 0: none yet
} Renumbering;

static Placement renumber(Arena *a, Renumbering *r, const Placement *p) {
  int *device = arena_array(a, int, p->n);
  for (int i = 0; i < p->n; i++) {
    // The next number, if the node appears for the first time.
    int node = p->device[i] / r->per_node;
    if (!r->number[node]) {
      r->node[r->n++] = node;
      r->number[node] = r->n;
    }
    device[i] = (r->number[node] - 1) * r->per_node + p->device[i] % r->per_node;
  }
  Placement q = *p;
  q.device = device;
  return q;
}

static int *named_back(Arena *a, const Renumbering *r, const int *device, int n) {
  int *out = arena_array(a, int, n);
  for (int i = 0; i < n; i++)
    out[i] = r->node[device[i] / r->per_node] * r->per_node + device[i] % r->per_node;
  return out;
}

// Copies a path, with the original nodes.
static const Path *path_back(Paths *paths, const Renumbering *r, const Path *p) {
  Arena *a = paths->rules.arena;
  Path *q = arena_copy(a, p, sizeof *p);
  q->step = arena_copy(a, p->step, sizeof *p->step * (size_t)p->n_steps);
  for (int g = 0; g < 2; g++) {
    q->group[g].device = named_back(a, r, p->group[g].device, q->group[g].n);
    q->group[g].position = NULL;
  }
  // The devices of each step.
  for (int i = 0; i < q->n_steps; i++) {
    Groups *g = &q->step[i].groups;
    g->device = named_back(a, r, g->device, g->n * g->size);
  }
  return q;
}

// Finds the path between the renumbered nodes, if that is the same.
static const Path *find_alike(Paths *paths, const TensorShape *shape, const Placement *from,
                              const Placement *to) {
  if (paths->rules.c->links_differ) return path_search(&paths->rules, shape, from, to);
  Arena *a = arena_new();
  Renumbering r = {.per_node = paths->rules.c->per_node};
  r.node = arena_array(a, int, paths->rules.c->nodes);
  r.number = arena_array(a, int, paths->rules.c->nodes);
  Placement first = renumber(a, &r, from), last = renumber(a, &r, to);
  // In order of appearance already: search.
  bool ordered = true;
  for (int i = 0; i < r.n; i++)
    ordered &= r.node[i] == i;
  const Path *path = ordered ? path_search(&paths->rules, shape, from, to)
                             : path_back(paths, &r, path_find(paths, shape, &first, &last));
  arena_free(a);
  return path;
}

const Path *path_find(Paths *paths, const TensorShape *shape, const Placement *from,
                      const Placement *to) {
  int known = *known_slot(paths, shape, from, to);
  if (known) return paths->known.at[known - 1].path;
  Known k = {*shape, placement_copy(paths->rules.arena, from),
             placement_copy(paths->rules.arena, to), NULL};
  k.path = find_alike(paths, shape, &k.from, &k.to);
  vec_push(paths->rules.arena, &paths->known, k);
  *known_slot(paths, shape, from, to) = paths->known.n; // find_alike may have added others
  return k.path;
}
