// See routes_net.h.
//
// The states of all layouts are added first; path_edges.h lists the edges out of each, which may
// lead to more states, until all have their hops.  Hops of one primitive over the same axes have
// the same cost per byte sent, so few are priced, and only when a route may take one.

#include "routes_net.h"

#include <string.h>

#include "path_edges.h"
#include "path_search.h"

enum { MOST_AXES = 4, CUT_AXES = 3 }; // of a net; after splitting axes at node boundaries

// -- Axes ----------------------------------------------------------------------------------------

// The number of the axis' ranks within a node; all, if there is no node boundary inside of it.
static int inside_node(const Cluster *c, const Mesh *mesh, int axis) {
  int size = mesh->axis[axis].size, stride = mesh_stride(mesh, axis);
  if (c->per_node <= stride || c->per_node % stride) return size;
  // The devices must be consecutive, from the first of a node on.
  if (mesh->device[0] % c->per_node) return size;
  for (int i = 0; i < mesh->n_devices; i++)
    if (mesh->device[i] != mesh->device[0] + i) return size;
  int inside = c->per_node / stride;
  return size % inside ? size : inside;
}

static void add_axis(RouteNet *net, int axis, int size, int stride) {
  Group *g = &net->group[0];
  if (size == 1) return;
  net->of_axis[g->n_axes] = (uint8_t)axis;
  g->size[g->n_axes] = size;
  g->stride[g->n_axes++] = stride;
}

// The axes of the mesh; with `cut`, those that cross node boundaries as two each.
static void set_axes(const Cluster *c, RouteNet *net, bool cut) {
  const Mesh *mesh = net->mesh;
  net->group[0].n_axes = 0;
  for (int a = 0; a < mesh->n_axes; a++) {
    if (mesh->axis[a].time) continue;
    int size = mesh->axis[a].size, stride = mesh_stride(mesh, a);
    int inside = cut ? inside_node(c, mesh, a) : size;
    add_axis(net, a, size / inside, stride * inside);
    add_axis(net, a, inside, stride);
  }
}

// -- Layouts as states ---------------------------------------------------------------------------

static int find_state(Arena *a, RouteNet *net, const State *s) {
  // A table that becomes more than half full is doubled.
  if (2 * (net->state.n + 1) > net->table_size) {
    net->table_size = net->table_size ? 2 * net->table_size : 256;
    net->table = arena_array(a, int, net->table_size);
    for (int i = 0; i < net->state.n; i++) {
      uint64_t h = path_hash(FNV1A_EMPTY, net->state.at[i].label, MOST_AXES);
      while (net->table[h & (uint64_t)(net->table_size - 1)])
        h++;
      net->table[h & (uint64_t)(net->table_size - 1)] = i + 1;
    }
  }
  for (uint64_t h = path_hash(FNV1A_EMPTY, s->label, MOST_AXES);; h++) {
    int *slot = &net->table[h & (uint64_t)(net->table_size - 1)];
    if (!*slot) {
      vec_push(a, &net->state, *s);
      return (*slot = net->state.n) - 1;
    }
    if (!memcmp(net->state.at[*slot - 1].label, s->label, MOST_AXES)) return *slot - 1;
  }
}

// Adds the states of all layouts, in the order of their numbers (route_net_state).
static void add_layouts(Arena *a, RouteNet *net) {
  int axis[MAX_AXES], digit[MAX_AXES] = {0}, n_axes = 0, n = 1;
  for (int i = 0; i < net->mesh->n_axes; i++)
    if (!net->mesh->axis[i].time && net->mesh->axis[i].size > 1) axis[n_axes++] = i;
  for (int i = 0; i < n_axes; i++)
    n *= net->ndim + 2;
  net->at = arena_array(a, int, n);
  for (int number = 0; number < n; number++) {
    // Digits of the mesh's axes: 0 is B, 1 is P, 2 + dim is S(dim).
    for (int i = n_axes - 1, left = number; i >= 0; i--, left /= net->ndim + 2)
      digit[axis[i]] = left % (net->ndim + 2);
    State s = {0};
    int places[PLACEMENT_DIMS] = {0};
    for (int i = 0; i < net->group[0].n_axes; i++) {
      int d = digit[net->of_axis[i]];
      s.label[i] = (uint8_t)(d < 2 ? (d ? LABEL_P : LABEL_B) : label_of(d - 2, places[d - 2]++));
    }
    net->at[number] = find_state(a, net, &s) + 1;
  }
}

// -- Hops ----------------------------------------------------------------------------------------

// The cost of a collective over one set of axes, or of reordered parts: that of its first hop.
typedef struct Rate {
  bool is_hop, known;
  double start, byte; // if known: seconds; per byte of the size used by path_cost.h
  State from, after;  // of a collective
  Edge edge;
  int n, order[2][MOST_AXES]; // of reordered parts: the axes, and their order before and after
} Rate;

// Of a permutation of pieces, by the map of axes (Edge.map).
typedef struct SwapRate {
  uint8_t map[MOST_AXES];
  Rate *rate;
} SwapRate;

typedef struct Growing {
  Arena *arena;
  const Cluster *c;
  Traffic *traffic;
  RouteNet *net;
  State from;
  Groups groups; // scratch
  Rate rate[N_PATH_COLLECTIVES][1 << MOST_AXES], free;
  Vec(Rate *) orders;
  Vec(SwapRate) swaps;
} Growing;

// Whether the edge is one op at this cost: all axes of the mask go from one dimension to one, in
// the same order.  A replicated value becomes a partial sum of it and zeros; from a sharded value
// that costs more.
static bool is_one_op(const Group *g, const State *before, const State *after, const Edge *e) {
  int first = -1;
  // A permute moves shards only: every device has one, and each has one sender.
  if (e->prim == PATH_permute) {
    bool any = false;
    for (int i = 0; i < g->n_axes; i++) {
      if (before->label[i] == after->label[i]) continue;
      if (before->label[i] < LABEL_DIM || after->label[i] < LABEL_DIM) return false;
      any = true;
    }
    return any;
  }
  if (e->prim < PATH_all_reduce) return e->prim != PATH_pad_sum;
  // The first axis of the mask decides for all.
  for (int i = 0; i < g->n_axes; i++) {
    if (!(e->mask >> i & 1)) continue;
    if (first < 0) first = i;
    if (label_dim(before->label[i]) != label_dim(before->label[first]) ||
        label_dim(after->label[i]) != label_dim(after->label[first]))
      return false;
    for (int k = first; k < i && e->prim == PATH_all_to_all; k++)
      if ((e->mask >> k & 1) &&
          (before->label[k] < before->label[i]) != (after->label[k] < after->label[i]))
        return false;
  }
  return true;
}

// Begins the rate of a hop like `edge`, if it has none yet.
static Rate *begin_rate(Growing *g, Rate *rate, const State *after, const Edge *edge) {
  if (!rate->is_hop)
    *rate = (Rate){.is_hop = true, .from = g->from, .after = *after, .edge = *edge};
  return rate;
}

// The rate of an edge: one for all edges that are alike.
static Rate *rate_of(Growing *g, const State *after, const Edge *e) {
  if (e->prim < PATH_all_reduce) return &g->free;
  // Of permutations, those with the same map.
  if (e->prim == PATH_permute) {
    size_t size = (size_t)g->net->group[0].n_axes;
    for (int i = 0; i < g->swaps.n; i++)
      if (!memcmp(g->swaps.at[i].map, e->map, size)) return g->swaps.at[i].rate;
    SwapRate swap = {.rate = begin_rate(g, arena_one(g->arena, Rate), after, e)};
    memcpy(swap.map, e->map, size);
    vec_push(g->arena, &g->swaps, swap);
    return swap.rate;
  }
  // Of collectives, those over the same axes.
  return begin_rate(g, &g->rate[e->prim - PATH_all_reduce][e->mask], after, e);
}

// The fraction of a value that one device has.
static double part_of(const RouteNet *net, const State *s) {
  double part = 1;
  for (int i = 0; i < net->group[0].n_axes; i++)
    if (s->label[i] >= LABEL_DIM) part /= net->group[0].size[i];
  return part;
}

static bool add_hop(void *context, const Edge *e, const State *after) {
  Growing *g = context;
  RouteNet *net = g->net;
  if (!is_one_op(&net->group[0], &g->from, after, e)) return true;
  Rate *rate = rate_of(g, after, e);
  double part = part_of(net, path_grows(e->prim) ? after : &g->from);
  vec_push(g->arena, &net->to, find_state(g->arena, net, after));
  vec_push(g->arena, &net->hop, ((Hop){rate, part, *e}));
  return true;
}

// -- Reordered parts -----------------------------------------------------------------------------

// Seconds of the transfers if the nesting of n axes changes from `from` to `to`.
static double order_seconds(const Growing *g, int n, const int *from, const int *to, double bytes) {
  const Group *group = &g->net->group[0];
  for (int x = 0; x < group->n; x++) {
    // The part of this position in the new nesting, and its owner in the old one.
    int part = 0, owner = x;
    for (int i = 0; i < n; i++) {
      int digit = x / group->stride[to[i]] % group->size[to[i]];
      part = part * group->size[to[i]] + digit;
      owner -= digit * group->stride[to[i]];
    }
    for (int i = n - 1; i >= 0; i--) {
      owner += part % group->size[from[i]] * group->stride[from[i]];
      part /= group->size[from[i]];
    }
    traffic_message(g->traffic, group->device[owner], group->device[x], bytes);
  }
  return traffic_cost(g->traffic).seconds;
}

// The rate of a reordering.
static Rate *order_rate(Growing *g, int n, const int *from, const int *to) {
  size_t size = sizeof *from * (size_t)n;
  for (int i = 0; i < g->orders.n; i++) {
    Rate *known = g->orders.at[i];
    if (known->n == n && !memcmp(known->order[0], from, size) && !memcmp(known->order[1], to, size))
      return known;
  }
  Rate *rate = arena_one(g->arena, Rate);
  *rate = (Rate){.is_hop = true, .n = n};
  memcpy(rate->order[0], from, size);
  memcpy(rate->order[1], to, size);
  vec_push(g->arena, &g->orders, rate);
  return rate;
}

// Prices a rate, which is linear in the bytes.
static const Rate *priced(const RouteNet *net, Rate *rate) {
  enum { MANY = 1000000000 };
  Growing *g = net->prices;
  if (rate->known) return rate;
  double more;
  if (rate->n) {
    rate->start = order_seconds(g, rate->n, rate->order[0], rate->order[1], 0);
    more = order_seconds(g, rate->n, rate->order[0], rate->order[1], MANY);
  } else {
    const RouteNet *own = g->net;
    edge_groups(&own->shape, own->group, &rate->from, &rate->after, &rate->edge, g->c, &g->groups);
    rate->start = groups_cost(g->traffic, rate->edge.prim, &g->groups, 0, 0).seconds;
    more = groups_cost(g->traffic, rate->edge.prim, &g->groups, MANY, MANY).seconds;
  }
  rate->byte = (more - rate->start) / MANY;
  rate->known = true;
  return rate;
}

double hop_start(const RouteNet *net, const Hop *hop) {
  return priced(net, hop->rate)->start;
}

double hop_bytes(const RouteNet *net, const Hop *hop, double bytes) {
  return priced(net, hop->rate)->byte * hop->part * bytes;
}

// Adds changes of the nesting of a dimension's axes, for example after a scatter along the outer
// axis that had to come second.
static void add_orders(Growing *g, int dim) {
  const Group *group = &g->net->group[0];
  int from[MOST_AXES], to[MOST_AXES], n = state_places(group, &g->from, dim), n_orders = 1;
  // The axes that split the dimension, outermost first.
  for (int i = 0; i < group->n_axes; i++)
    if (label_dim(g->from.label[i]) == dim) from[label_place(g->from.label[i])] = i;
  for (int i = 2; i <= n; i++)
    n_orders *= i;
  for (int k = 1; k < n_orders; k++) {
    // The k-th permutation.
    memcpy(to, from, sizeof *to * (size_t)n);
    for (int i = 0, left = k; i < n; i++) {
      int chosen = i + left % (n - i), axis = to[chosen];
      left /= n - i;
      memmove(to + i + 1, to + i, sizeof *to * (size_t)(chosen - i));
      to[i] = axis;
    }
    State after = g->from;
    for (int i = 0; i < n; i++)
      after.label[to[i]] = (uint8_t)label_of(dim, i);
    Hop hop = {.rate = order_rate(g, n, from, to), .part = part_of(g->net, &g->from)};
    vec_push(g->arena, &g->net->to, find_state(g->arena, g->net, &after));
    hop.edge.prim = PATH_permute;
    vec_push(g->arena, &g->net->hop, hop);
  }
}

// The devices of the mesh, and their positions.
static void set_devices(Arena *a, const Cluster *c, RouteNet *net) {
  const Mesh *mesh = net->mesh;
  Group *group = &net->group[0];
  int *position = arena_array(a, int, cluster_devices(c));
  for (int i = 0; i < cluster_devices(c); i++)
    position[i] = -1;
  for (int i = 0; i < mesh->n_devices; i++)
    position[mesh->device[i]] = i;
  group->n = mesh->n_devices;
  group->device = mesh->device;
  group->position = net->group[1].position = position;
}

RouteNet *route_net_shifted(Arena *a, const Cluster *c, const RouteNet *of, const Mesh *mesh) {
  int by;
  if (c->n_kinds || !of->at || !mesh_shifted(of->mesh, mesh, &by) || by % c->per_node) return NULL;
  RouteNet *net = arena_copy(a, of, sizeof *of);
  net->mesh = mesh;
  net->next = NULL;
  set_devices(a, c, net);
  return net;
}

RouteNet *route_net_new(Arena *a, const Cluster *c, Traffic *traffic, const Mesh *mesh, int ndim) {
  RouteNet *net = arena_one(a, RouteNet);
  *net = (RouteNet){.mesh = mesh, .ndim = ndim};
  // Without states, if the mesh has too many axes.
  Group *group = &net->group[0];
  int n_axes = 0;
  for (int i = 0; i < mesh->n_axes; i++)
    n_axes += !mesh->axis[i].time && mesh->axis[i].size > 1;
  if (n_axes > MOST_AXES) return net;
  // Axes that cross node boundaries are split in two, if that does not make too many.
  set_axes(c, net, true);
  if (group->n_axes > CUT_AXES) set_axes(c, net, false);
  set_devices(a, c, net);
  // A shape that every state divides; rates are per byte.
  net->shape = (TensorShape){.ndim = ndim, .bytes = 1};
  for (int d = 0; d < ndim; d++)
    net->shape.dim[d] = mesh->n_devices;
  add_layouts(a, net);
  Growing *g = arena_one(a, Growing);
  *g = (Growing){.arena = a, .c = c, .traffic = traffic, .net = net, .free = {.known = true}};
  net->prices = g;
  g->groups.device = arena_array(a, int, 2 * group->n);
  // The hops out of each state; they may lead to states that are not in the list yet.
  Vec(int) first = {0};
  for (int i = 0; i < net->state.n; i++) { // grows meanwhile
    g->from = net->state.at[i];
    vec_push(a, &first, net->hop.n);
    path_edges(&net->shape, net->group, &g->from, add_hop, g);
    for (int dim = 0; dim < ndim; dim++)
      add_orders(g, dim);
  }
  vec_push(a, &first, net->hop.n);
  net->first = first.at;
  return net;
}

int route_net_state(const RouteNet *net, const Layout *l) {
  // Digits of all axes of devices: 0 is B, 1 is P, 2 + dim is S(dim).
  int number = 0;
  for (int a = 0; a < l->n_axes; a++) {
    if (l->mesh->axis[a].time || l->mesh->axis[a].size <= 1) continue;
    Sbp sbp = l->axis[a];
    int digit = sbp.kind == SBP_B ? 0 : sbp.kind == SBP_P ? 1 : 2 + sbp.dim;
    number = number * (net->ndim + 2) + digit;
  }
  return net->at[number] - 1;
}
