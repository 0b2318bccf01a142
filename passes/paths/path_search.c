// See path_search.h.
//
// A* over the states of both groups, with the lower bounds of path_bounds.h.  Costs are in whole
// picoseconds, so that sums do not depend on their order; among equally cheap paths the one with
// fewer steps wins.  States as expensive as send/recv are pruned, including those whose bound makes
// them so. That keeps most searches small; a limit on the number of edges keeps the others small
// too (Path.complete). Send/recv may also start at any state on the way, or lead to a state from
// which one all_gather leads to the last: between groups of which neither size divides the other
// there are no other primitives, and in small groups it is cheaper for some permutations.

#include "path_search.h"

#include <string.h>

#include "base/vec.h"
#include "edge_prices.h"
#include "path_bounds.h"
#include "path_edges.h"

enum {
  MAX_EDGES = 400000,  // per search: below a second
  MAX_WORK = 20000000, // devices visited to compute costs
  MAX_MIXED = 64,      // producers times consumers
  // For all searches of other orders together: times the limits between groups of few devices, else
  // times what the first search visited. Of 200 paths of T5 on 16 V100s none got cheaper by another
  // order, though these visited up to 129 times as much.
  MAX_ORDERS = 5,
  FEW_DEVICES = 8,
};

// Counters of searches, for the limits.
typedef struct Looked {
  int64_t edges, work;
} Looked;

typedef struct Node {
  State state;
  int64_t picoseconds;
  int n_steps, from; // n_steps: sum of steps_of; from: node, or -1
  Edge edge;
  bool settled;
  int64_t lack; // bound_lack of the state, in picoseconds; -1: not computed
} Node;

typedef struct HeapEntry {
  int64_t picoseconds; // lower bound of the whole path
  int n_steps, node;
} HeapEntry;

typedef struct Search {
  const PathRules *rules;
  Arena *arena;
  Path *path;
  Vec(Node) nodes;
  Vec(HeapEntry) heap;
  int *table, table_size; // node + 1 by hash; a power of two
  int64_t bound;          // more expensive paths are pruned
  bool mixes;             // send/recv may follow other steps
  int at;                 // the node under expansion
  Looked looked;          // by this search and earlier ones with the same limits
  Looked most;            // the limits
  PathBounds *bounds;
  EdgePrices *prices;
} Search;

// -- Visited states ---------------------------------------------------------------------------

static int node_of(Search *s, const State *state) {
  // A table that becomes more than half full is doubled.
  if (2 * (s->nodes.n + 1) > s->table_size) {
    s->table_size = s->table_size ? 2 * s->table_size : 1024;
    s->table = arena_array(s->arena, int, s->table_size);
    for (int i = 0; i < s->nodes.n; i++) {
      uint64_t h = path_hash(FNV1A_EMPTY, &s->nodes.at[i].state, sizeof(State));
      while (s->table[h & (uint64_t)(s->table_size - 1)])
        h++;
      s->table[h & (uint64_t)(s->table_size - 1)] = i + 1;
    }
  }
  for (uint64_t h = path_hash(FNV1A_EMPTY, state, sizeof *state);; h++) {
    int *slot = &s->table[h & (uint64_t)(s->table_size - 1)];
    if (!*slot) {
      vec_push(s->arena, &s->nodes, (Node){*state, INT64_MAX, 0, -1, {0}, false, -1});
      return (*slot = s->nodes.n) - 1;
    }
    if (!memcmp(&s->nodes.at[*slot - 1].state, state, sizeof *state)) return *slot - 1;
  }
}

// -- The queue -------------------------------------------------------------------------------

static bool sooner(const HeapEntry *a, const HeapEntry *b) {
  if (a->picoseconds != b->picoseconds) return a->picoseconds < b->picoseconds;
  return a->n_steps != b->n_steps ? a->n_steps < b->n_steps : a->node < b->node;
}

static void heap_push(Search *s, HeapEntry e) {
  vec_push(s->arena, &s->heap, e);
  int i = s->heap.n - 1;
  for (; i > 0 && sooner(&e, &s->heap.at[(i - 1) / 2]); i = (i - 1) / 2)
    s->heap.at[i] = s->heap.at[(i - 1) / 2];
  s->heap.at[i] = e;
}

static HeapEntry heap_pop(Search *s) {
  HeapEntry top = s->heap.at[0], last = s->heap.at[--s->heap.n];
  int i = 0;
  for (int child; (child = 2 * i + 1) < s->heap.n; i = child) {
    if (child + 1 < s->heap.n && sooner(&s->heap.at[child + 1], &s->heap.at[child])) child++;
    if (!sooner(&s->heap.at[child], &last)) break;
    s->heap.at[i] = s->heap.at[child];
  }
  if (s->heap.n) s->heap.at[i] = last;
  return top;
}

// -- The search ------------------------------------------------------------------------------

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t least_ahead(Search *s, int node, const State *at) {
  int64_t ahead = bound_ahead(s->bounds, at);
  if (s->nodes.at[node].lack < 0) s->nodes.at[node].lack = bound_lack(s->bounds, at);
  return s->nodes.at[node].lack > ahead ? s->nodes.at[node].lack : ahead;
}

static bool is_enough(const Looked *l, const Looked *most) {
  return l->edges > most->edges || l->work > most->work;
}

// The tie-breaker: send/recv only if no other path is as cheap.
static int steps_of(const Edge *e) {
  return e->prim == PATH_send_recv ? 2 * PATH_AXES : 1;
}

static bool visit(void *context, const Edge *e, const State *after) {
  Search *s = context;
  int to = node_of(s, after);
  const Node *from = &s->nodes.at[s->at];
  s->looked.edges++;
  if (is_enough(&s->looked, &s->most)) return false;
  // Known to be no better.
  if (s->nodes.at[to].settled) return true;
  if (s->nodes.at[to].picoseconds <= from->picoseconds &&
      s->nodes.at[to].n_steps <= from->n_steps + steps_of(e))
    return true;
  // Bounds prune most edges before they are priced.
  int64_t ahead = least_ahead(s, to, after),
          soonest = from->picoseconds + bound_edge(s->bounds, &from->state, after, e);
  if (soonest + ahead > s->bound || soonest > s->nodes.at[to].picoseconds) return true;
  // Pricing stops above the limit that would make the edge useless.
  int64_t most = least(s->bound - ahead, s->nodes.at[to].picoseconds) - from->picoseconds;
  double seconds =
      edge_price(s->prices, &from->state, after, e, 1e-12 * (double)most + 2e-12).seconds;
  int64_t cost = from->picoseconds + picoseconds(seconds);
  int n_steps = from->n_steps + steps_of(e);
  Node *n = &s->nodes.at[to];
  if (cost + ahead > s->bound || cost > n->picoseconds) return true;
  if (cost == n->picoseconds && n_steps >= n->n_steps) return true;
  *n = (Node){*after, cost, n_steps, s->at, *e, false, n->lack};
  if (!memcmp(after, &s->path->last, sizeof *after)) s->bound = cost;
  heap_push(s, (HeapEntry){cost + bound_crossing(s->bounds, after), n_steps, to});
  return true;
}

static bool same_devices(const Group *a, const Group *b) {
  for (int x = 0; x < b->n; x++)
    if (a->position[b->device[x]] < 0) return false;
  return a->n == b->n || !b->n;
}

// Whether send/recv may follow other steps: if there are no other primitives between the groups, or
// if the groups are small enough for that search.
static bool may_mix(const Path *p) {
  int n = p->group[0].n, m = p->group[1].n;
  return m ? n * m <= MAX_MIXED || (n % m && m % n) : n * n <= MAX_MIXED;
}

// Send/recv from here to the last state, and to those from which one all_gather leads there.
static bool visit_send_recv(Search *s) {
  const Path *p = s->path;
  const Group *to = &p->group[p->last.group];
  Edge e = {.prim = PATH_send_recv};
  if (!visit(s, &e, &p->last)) return false;
  for (uint32_t mask = 1; mask < 1u << to->n_axes; mask++)
    for (int dim = 0; dim < p->shape.ndim; dim++) {
      // All axes of the mask are copies in the end, and shards of this dimension before.
      State after = p->last;
      bool copies = true;
      for (int i = 0; i < to->n_axes && copies; i++) {
        if (!(mask >> i & 1)) continue;
        copies = after.label[i] == LABEL_B;
        after.label[i] = (uint8_t)label_of(dim, state_places(to, &after, dim));
      }
      if (!copies || !state_fits(&p->shape, to, &after)) continue;
      if (!visit(s, &e, &after)) return false;
    }
  return true;
}

static bool search(Search *s) {
  const Path *p = s->path;
  int first = node_of(s, &p->first);
  s->nodes.at[first].picoseconds = 0;
  heap_push(s, (HeapEntry){0, 0, first});
  while (s->heap.n) {
    HeapEntry top = heap_pop(s);
    if (s->nodes.at[top.node].settled) continue;
    s->nodes.at[top.node].settled = true;
    // Dijkstra's invariant: a settled state has its final cost, so the last one ends the search.
    State state = s->nodes.at[top.node].state; // a copy: the array may be reallocated
    if (!memcmp(&state, &p->last, sizeof state)) return true;
    if (s->nodes.at[top.node].picoseconds + least_ahead(s, top.node, &state) > s->bound) continue;
    s->at = top.node;
    if (!path_edges(&p->shape, p->group, &state, visit, s)) return false;
    if (s->mixes && !visit_send_recv(s)) return false;
  }
  return true;
}

// -- The result ------------------------------------------------------------------------------

static void fill_step(Search *s, PathStep *step, const Node *from, const Node *to) {
  Arena *a = s->rules->arena;
  const Group *group = s->path->group;
  *step = (PathStep){.edge = to->edge, .before = from->state, .after = to->state};
  if (step->edge.prim == PATH_send_recv) {
    Sends messages = {0};
    step->cost = send_recv_price(s->prices, &from->state, &to->state, INFINITY, &messages);
    step->groups = (Groups){messages.n, 2, arena_array(a, int, 2 * messages.n)};
    for (int i = 0; i < messages.n; i++) {
      step->groups.device[2 * i] = messages.at[i].src;
      step->groups.device[2 * i + 1] = messages.at[i].dst;
    }
    return;
  }
  // Of all other primitives, the groups of devices.
  step->cost = edge_price(s->prices, &from->state, &to->state, &to->edge, INFINITY);
  step->groups.device = arena_array(a, int, 2 * (group[0].n + group[1].n));
  edge_groups(&s->path->shape, group, &from->state, &to->state, &to->edge, s->rules->c,
              &step->groups);
  // On the same devices in another order a move is a permute.
  if (step->edge.prim == PATH_move && same_devices(&group[0], &group[1]))
    step->edge.prim = PATH_permute;
}

// Writes the steps that lead to a node.
static void fill_path(Search *s, int last) {
  Path *p = s->path;
  int n = 0;
  for (int node = last; s->nodes.at[node].from >= 0; node = s->nodes.at[node].from)
    n++;
  PathStep *step = arena_array(s->rules->arena, PathStep, n);
  for (int i = n - 1, node = last; i >= 0; i--, node = s->nodes.at[node].from)
    fill_step(s, &step[i], &s->nodes.at[s->nodes.at[node].from], &s->nodes.at[node]);
  p->step = step;
  p->n_steps = 0;
  p->total = (Cost){0};
  for (int i = 0; i < n; i++) {
    // A permute without transfers only renumbers shares: it is dropped.
    const PathStep *next = &step[i];
    PathStep *before = p->n_steps ? &step[p->n_steps - 1] : NULL;
    if (next->edge.prim == PATH_permute && next->groups.n == 0) continue;
    // Local ops of one kind are joined into one step.
    if (before && next->edge.prim <= PATH_pad_sum && before->edge.prim == next->edge.prim) {
      before->after = next->after;
      before->edge.mask |= next->edge.mask;
      continue;
    }
    step[p->n_steps++] = *next;
    p->total.seconds += next->cost.seconds;
    p->total.bytes += next->cost.bytes;
    p->total.crossing += next->cost.crossing;
  }
}

static void set_whole(State *s, uint32_t mask) {
  for (int i = 0; i < PATH_AXES; i++)
    if (mask >> i & 1) s->label[i] = LABEL_B;
}

// The cost to reduce all partial sums, then to gather all shards: afterwards all further steps are
// local.
static int64_t replicating(Search *s) {
  const Group *g = &s->path->group[0];
  State whole = s->path->first, sum;
  // One all_reduce over all axes of partial sums, one all_gather over all shards.
  Edge reduce = {.prim = PATH_all_reduce}, gather = {.prim = PATH_all_gather};
  for (int i = 0; i < g->n_axes; i++) {
    if (whole.label[i] == LABEL_P) reduce.mask |= 1u << i;
    if (whole.label[i] >= LABEL_DIM) gather.mask |= 1u << i;
  }
  sum = whole;
  set_whole(&sum, reduce.mask);
  whole = sum;
  set_whole(&whole, gather.mask);
  double seconds =
      reduce.mask ? edge_price(s->prices, &s->path->first, &sum, &reduce, INFINITY).seconds : 0;
  if (gather.mask) seconds += edge_price(s->prices, &sum, &whole, &gather, INFINITY).seconds;
  return picoseconds(seconds) + 2; // rounded separately
}

// NULL if no path is below the limit.
static Path *find_once(const PathRules *rules, const TensorShape *shape, const Placement *from,
                       const Placement *to, int64_t limit, const Looked *most, Looked *looked) {
  Path *p = arena_one(rules->arena, Path);
  p->shape = *shape;
  path_groups(rules->arena, rules->c, shape, from, to, p->group, &p->first, &p->last);
  Search s = {.rules = rules, .arena = arena_new(), .path = p, .looked = *looked, .most = *most};
  s.prices = edge_prices_new(s.arena, rules, p, &s.looked.work);
  bool inside = same_devices(&p->group[0], &p->group[1]);
  bool sends = !rules->only_collectives || !inside;
  // The send/recv plan is the first upper bound; within one set of devices, replication is another.
  if (sends || from->n * to->n <= MAX_MIXED)
    p->p2p = send_recv_price(s.prices, &p->first, &p->last, INFINITY, NULL);
  s.bound = sends ? picoseconds(p->p2p.seconds) : INT64_MAX - 1;
  if (inside) s.bound = least(s.bound, replicating(&s));
  s.bound = least(s.bound, limit - 1);
  // Search for cheaper paths.
  s.mixes = sends && may_mix(p);
  s.bounds = path_bounds_new(s.arena, rules, p, s.mixes);
  p->complete = search(&s);
  *looked = s.looked;
  int last = node_of(&s, &p->last);
  bool found = s.nodes.at[last].from >= 0 || last == 0;
  if (found) {
    fill_path(&s, last);
  } else if (limit == INT64_MAX && sends) {
    // Nothing is cheaper than send/recv as the only step.
    Node start = {.state = p->first}, end = {.state = p->last, .edge.prim = PATH_send_recv};
    p->n_steps = 1;
    p->step = arena_one(rules->arena, PathStep);
    fill_step(&s, p->step, &start, &end);
    p->total = p->step->cost;
  } else if (limit == INT64_MAX) {
    // No result: no steps, at the cost of replication, which is always possible.
    p->total.seconds = (double)replicating(&s) * 1e-12;
  }
  edge_prices_free(s.prices);
  arena_free(s.arena);
  return found || limit == INT64_MAX ? p : NULL;
}

static int turned(int i, int n, int k) {
  return (n & (n - 1)) == 0 ? i ^ k : (i + k) % n;
}

// The number of equivalent orders of a placement's copies and shares.
static int orders_of(const Placement *p) {
  int n = p->copies * p->shares;
  return n < p->n ? n * n : n;
}

// The k-th order: rotates copies and shares, and those of every second part once more.
static Placement recounted(Arena *a, const Placement *p, int k) {
  Placement q = *p;
  int n = p->copies * p->shares, each = p->n / n, *device = arena_array(a, int, p->n);
  for (int i = 0; i < p->n; i++) {
    int part = i % each, copy = i / each / p->shares, share = i / each % p->shares;
    for (int turn = k % n, left = part & 1 ? 2 : 1; left > 0; turn = k / n, left--) {
      copy = turned(copy, p->copies, turn / p->shares);
      share = turned(share, p->shares, turn % p->shares);
    }
    device[i] = p->device[(copy * p->shares + share) * each + part];
  }
  q.device = device;
  return q;
}

// The node of all devices of the group, or -1.
static int node_of_all(const Cluster *c, const Group *g) {
  int node = cluster_node(c, g->device[0]);
  for (int x = 1; x < g->n; x++)
    if (cluster_node(c, g->device[x]) != node) return -1;
  return node;
}

// Whether all orders cost the same: each group is in a node of its own, of which the devices have
// equal links, so another order is the same with other names of devices.
static bool orders_are_alike(const Cluster *c, const Path *p) {
  if (c->links_differ || (c->nics != 1 && c->nics != c->per_node)) return false;
  int from = node_of_all(c, &p->group[0]), to = node_of_all(c, &p->group[1]);
  return from >= 0 && to >= 0 && from != to;
}

// Copies and shares are interchangeable, but devices are not: the cost depends on which part of a
// copy or sum a device keeps, if a nearby device needs it, or the device itself.  So for small
// groups it tries several orders, of both ends together if the groups overlap, up to a limit.
const Path *path_search(const PathRules *rules, const TensorShape *shape, const Placement *from,
                        const Placement *to) {
  Looked most = {MAX_EDGES, MAX_WORK}, looked = {0};
  Path *best = find_once(rules, shape, from, to, INT64_MAX, &most, &looked);
  if (!best->group[1].n || from->n * to->n > MAX_MIXED) return best;
  if (best->complete && orders_are_alike(rules->c, best)) return best;
  bool together = devices_outside(best) < best->group[1].n, complete = best->complete;
  if (from->n > FEW_DEVICES || to->n > FEW_DEVICES) most = looked;
  most = (Looked){MAX_ORDERS * most.edges, MAX_ORDERS * most.work};
  looked = (Looked){0};
  for (int i = 0; i < orders_of(from); i++)
    for (int k = 0; k < orders_of(to) && !is_enough(&looked, &most); k++) {
      // The first search had the original orders.
      if (i + k == 0 || (i && k && !together)) continue;
      Placement a = recounted(rules->arena, from, i), b = recounted(rules->arena, to, k);
      Path *p = find_once(rules, shape, &a, &b, picoseconds(best->total.seconds), &most, &looked);
      if (!p) continue;
      p->p2p = best->p2p; // of the original order
      best = p;
    }
  best->complete = complete && !is_enough(&looked, &most);
  return best;
}
