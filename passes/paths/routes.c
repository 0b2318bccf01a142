// See routes.h.
//
// A net is what one mesh allows, of values of so many dimensions: states (path_state.h), and hops
// between them.  A hop's seconds grow evenly with the bytes of the value, so that one net serves
// all types; a tariff is what it costs for one of them.

#include "routes.h"

#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "path_edges.h"
#include "path_search.h"

enum { MOST_AXES = 4, CUT_AXES = 3 }; // of a net; of one with axes that are cut where nodes end

typedef struct Hop {
  int to;
  double start, byte; // seconds; of each byte of the value
  Edge edge;
} Hop;

typedef struct Net {
  const Mesh *mesh;
  int rank;
  Group group[2];             // the second is empty
  uint8_t of_axis[PATH_AXES]; // of the group's axes: that of the mesh
  TensorShape shape;          // which every axis can cut everywhere
  Vec(State) state;
  int *first; // of each state: of its hops; and one more
  Vec(Hop) hop;
  int *at;                // by layout_number: its state + 1
  int *table, table_size; // state + 1 by hash; a power of two
  struct Net *next;
} Net;

// The routes from one state to all others.
typedef struct Reach {
  double *seconds;
  int *n_steps, *hop, *before; // the last hop, and where that begins
} Reach;

typedef struct Tariff {
  const Net *net;
  TensorShape shape;
  int64_t slices; // in which it is moved
  double bytes;   // of one of them
  bool *fits;     // by state: whether the dimensions can be cut so
  Reach **from;   // by state; NULL: not asked for yet
  struct Tariff *next;
} Tariff;

enum { TARIFFS = 1024 };

struct Routes {
  Arena *arena;
  const Cluster *c;
  Traffic *traffic;
  Net *nets;
  Tariff *tariff[TARIFFS];
};

Routes *routes_new(Arena *a, const Cluster *c) {
  Routes *r = arena_one(a, Routes);
  *r = (Routes){.arena = a, .c = c, .traffic = traffic_new(a, c)};
  return r;
}

// -- Axes ----------------------------------------------------------------------------------------

static int stride_of(const Mesh *mesh, int axis) {
  int stride = 1;
  for (int a = axis + 1; a < mesh->n_axes; a++)
    if (!mesh->axis[a].time) stride *= mesh->axis[a].size;
  return stride;
}

static bool is_contiguous(const Cluster *c, const Mesh *mesh) {
  for (int i = 0; i < mesh->n_devices; i++)
    if (mesh->device[i] != mesh->device[0] + i) return false;
  return mesh->device[0] % c->per_node == 0;
}

// How many of the axis' ranks are in one node; all, where no node ends inside of it.
static int inside_node(const Cluster *c, const Mesh *mesh, int axis) {
  int size = mesh->axis[axis].size, stride = stride_of(mesh, axis);
  if (c->per_node <= stride || c->per_node % stride || !is_contiguous(c, mesh)) return size;
  int inside = c->per_node / stride;
  return size % inside ? size : inside;
}

static void add_axis(Net *net, int axis, int size, int stride) {
  Group *g = &net->group[0];
  if (size == 1) return;
  net->of_axis[g->n_axes] = (uint8_t)axis;
  g->size[g->n_axes] = size;
  g->stride[g->n_axes++] = stride;
}

// The axes of the mesh, or with those that nodes cut as two each.
static void set_axes(const Cluster *c, Net *net, bool cut) {
  const Mesh *mesh = net->mesh;
  net->group[0].n_axes = 0;
  for (int a = 0; a < mesh->n_axes; a++) {
    if (mesh->axis[a].time) continue;
    int size = mesh->axis[a].size, stride = stride_of(mesh, a);
    int inside = cut ? inside_node(c, mesh, a) : size;
    add_axis(net, a, size / inside, stride * inside);
    add_axis(net, a, inside, stride);
  }
}

static bool set_group(Routes *r, Net *net) {
  Group *g = &net->group[0];
  int *position = arena_array(r->arena, int, cluster_devices(r->c)), n_axes = 0;
  for (int a = 0; a < net->mesh->n_axes; a++)
    n_axes += !net->mesh->axis[a].time && net->mesh->axis[a].size > 1;
  if (n_axes > MOST_AXES) return false;
  set_axes(r->c, net, true);
  if (g->n_axes > CUT_AXES) set_axes(r->c, net, false);
  for (int i = 0; i < cluster_devices(r->c); i++)
    position[i] = -1;
  for (int i = 0; i < net->mesh->n_devices; i++)
    position[net->mesh->device[i]] = i;
  g->n = net->mesh->n_devices;
  g->device = net->mesh->device;
  g->position = net->group[1].position = position;
  return true;
}

// -- Layouts as states ---------------------------------------------------------------------------

static int digit_of(Sbp sbp) {
  return sbp.kind == SBP_B ? 0 : sbp.kind == SBP_P ? 1 : 2 + sbp.dim;
}

static int layout_number(const Net *net, const Layout *l) {
  int number = 0;
  for (int a = 0; a < l->n_axes; a++)
    if (!l->mesh->axis[a].time && l->mesh->axis[a].size > 1)
      number = number * (net->rank + 2) + digit_of(l->axis[a]);
  return number;
}

// The state in which axis `a` of the mesh has digit[a].
static State state_of(const Net *net, const int *digit) {
  State s = {0};
  int places[PLACEMENT_DIMS] = {0};
  for (int i = 0; i < net->group[0].n_axes; i++) {
    int d = digit[net->of_axis[i]];
    s.label[i] = (uint8_t)(d < 2 ? (d ? LABEL_P : LABEL_B) : label_of(d - 2, places[d - 2]++));
  }
  return s;
}

static void grow(Arena *a, Net *net) {
  net->table_size = net->table_size ? 2 * net->table_size : 256;
  net->table = arena_array(a, int, net->table_size);
  for (int i = 0; i < net->state.n; i++) {
    uint64_t h = path_hash(14695981039346656037u, net->state.at[i].label, MOST_AXES);
    while (net->table[h & (uint64_t)(net->table_size - 1)])
      h++;
    net->table[h & (uint64_t)(net->table_size - 1)] = i + 1;
  }
}

static int find_state(Arena *a, Net *net, const State *s) {
  if (2 * (net->state.n + 1) > net->table_size) grow(a, net);
  for (uint64_t h = path_hash(14695981039346656037u, s->label, MOST_AXES);; h++) {
    int *slot = &net->table[h & (uint64_t)(net->table_size - 1)];
    if (!*slot) {
      vec_push(a, &net->state, *s);
      return (*slot = net->state.n) - 1;
    }
    if (!memcmp(net->state.at[*slot - 1].label, s->label, MOST_AXES)) return *slot - 1;
  }
}

static void add_layouts(Routes *r, Net *net) {
  int axis[MAX_AXES], digit[MAX_AXES] = {0}, n_axes = 0, n = 1;
  for (int a = 0; a < net->mesh->n_axes; a++)
    if (!net->mesh->axis[a].time && net->mesh->axis[a].size > 1) axis[n_axes++] = a;
  for (int i = 0; i < n_axes; i++)
    n *= net->rank + 2;
  net->at = arena_array(r->arena, int, n);
  for (int number = 0; number < n; number++) {
    for (int i = n_axes - 1, left = number; i >= 0; i--, left /= net->rank + 2)
      digit[axis[i]] = left % (net->rank + 2);
    State s = state_of(net, digit);
    net->at[number] = find_state(r->arena, net, &s) + 1;
  }
}

// -- Hops ----------------------------------------------------------------------------------------

// Costs of a collective over one set of axes.
typedef struct Rate {
  bool known;
  double start, byte; // seconds, of a byte that path_cost.h multiplies with
} Rate;

// Of parts of a dimension in another order, by the orders of the axes that cut it.
typedef struct OrderRate {
  int n, from[MOST_AXES], to[MOST_AXES];
  Rate rate;
} OrderRate;

// Of pieces that change places, by where each axis goes (Edge.map).
typedef struct SwapRate {
  uint8_t map[MOST_AXES];
  Rate rate;
} SwapRate;

typedef struct Growing {
  Routes *r;
  Net *net;
  State from;
  Groups groups; // scratch
  Rate rate[4][1 << MOST_AXES];
  Vec(OrderRate) orders;
  Vec(SwapRate) swaps;
} Growing;

// Pieces that change places, of which every device has one and each has one sender.
static bool is_swap(const Group *g, const State *before, const State *after) {
  bool any = false;
  for (int i = 0; i < g->n_axes; i++) {
    if (before->label[i] == after->label[i]) continue;
    if (before->label[i] < LABEL_DIM || after->label[i] < LABEL_DIM) return false;
    any = true;
  }
  return any;
}

// Whether it is one op at this price: all axes of the mask leave one dimension for one, and keep
// their order.  What is whole becomes a sum of it and zeros; parts become sums for more than that.
static bool is_one_op(const Group *g, const State *before, const State *after, const Edge *e) {
  int first = -1;
  if (e->prim == PATH_permute) return is_swap(g, before, after);
  if (e->prim < PATH_all_reduce) return e->prim != PATH_pad_sum;
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

static Rate find_rate(Growing *g, const State *after, const Edge *e) {
  Routes *r = g->r;
  edge_groups(&g->net->shape, g->net->group, &g->from, after, e, r->c, &g->groups);
  double start = groups_cost(r->traffic, e->prim, &g->groups, 0, 0).seconds;
  double more = groups_cost(r->traffic, e->prim, &g->groups, 1e9, 1e9).seconds;
  return (Rate){true, start, (more - start) / 1e9};
}

static Rate swap_rate(Growing *g, const State *after, const Edge *e) {
  size_t size = (size_t)g->net->group[0].n_axes;
  for (int i = 0; i < g->swaps.n; i++)
    if (!memcmp(g->swaps.at[i].map, e->map, size)) return g->swaps.at[i].rate;
  SwapRate swap = {.rate = find_rate(g, after, e)};
  memcpy(swap.map, e->map, size);
  vec_push(g->r->arena, &g->swaps, swap);
  return swap.rate;
}

static Rate rate_of(Growing *g, const State *after, const Edge *e) {
  if (e->prim < PATH_all_reduce) return (Rate){true, 0, 0};
  if (e->prim == PATH_permute) return swap_rate(g, after, e);
  Rate *rate = &g->rate[e->prim - PATH_all_reduce][e->mask];
  if (!rate->known) *rate = find_rate(g, after, e);
  return *rate;
}

// Of a value of so many parts.
static double part_of(const Net *net, const State *s) {
  double part = 1;
  for (int i = 0; i < net->group[0].n_axes; i++)
    if (s->label[i] >= LABEL_DIM) part /= net->group[0].size[i];
  return part;
}

static bool add_hop(void *context, const Edge *e, const State *after) {
  Growing *g = context;
  Net *net = g->net;
  if (!is_one_op(&net->group[0], &g->from, after, e)) return true;
  Rate rate = rate_of(g, after, e);
  double part = part_of(net, e->prim == PATH_all_gather ? after : &g->from);
  int to = find_state(g->r->arena, net, after);
  vec_push(g->r->arena, &net->hop, ((Hop){to, rate.start, rate.byte * part, *e}));
  return true;
}

// -- Parts in another order ----------------------------------------------------------------------

// The axes that cut a dimension, outermost first.
static int axes_of(const Group *g, const State *s, int dim, int axis[MOST_AXES]) {
  int n = state_places(g, s, dim);
  for (int i = 0; i < g->n_axes; i++)
    if (label_dim(s->label[i]) == dim) axis[label_place(s->label[i])] = i;
  return n;
}

// Who has what the device at this position is to have, when axes that were nested as in `from` are
// nested as in `to`.
static int owner_of(const Group *g, int position, int n, const int *from, const int *to) {
  int part = 0, owner = position;
  for (int i = 0; i < n; i++) {
    int digit = position / g->stride[to[i]] % g->size[to[i]];
    part = part * g->size[to[i]] + digit;
    owner -= digit * g->stride[to[i]];
  }
  for (int i = n - 1; i >= 0; i--) {
    owner += part % g->size[from[i]] * g->stride[from[i]];
    part /= g->size[from[i]];
  }
  return owner;
}

static double order_seconds(const Growing *g, int n, const int *from, const int *to, double bytes) {
  const Group *group = &g->net->group[0];
  for (int x = 0; x < group->n; x++)
    traffic_message(g->r->traffic, group->device[owner_of(group, x, n, from, to)], group->device[x],
                    bytes);
  return traffic_cost(g->r->traffic).seconds;
}

static Rate order_rate(Growing *g, int n, const int *from, const int *to) {
  size_t size = sizeof *from * (size_t)n;
  for (int i = 0; i < g->orders.n; i++) {
    const OrderRate *known = &g->orders.at[i];
    if (known->n == n && !memcmp(known->from, from, size) && !memcmp(known->to, to, size))
      return known->rate;
  }
  double start = order_seconds(g, n, from, to, 0), more = order_seconds(g, n, from, to, 1e9);
  OrderRate order = {.n = n, .rate = {true, start, (more - start) / 1e9}};
  memcpy(order.from, from, size);
  memcpy(order.to, to, size);
  vec_push(g->r->arena, &g->orders, order);
  return order.rate;
}

// The k-th of all orders.
static void reorder(const int *from, int n, int k, int *to) {
  memcpy(to, from, sizeof *to * (size_t)n);
  for (int i = 0; i < n; i++) {
    int chosen = i + k % (n - i), axis = to[chosen];
    k /= n - i;
    memmove(to + i + 1, to + i, sizeof *to * (size_t)(chosen - i));
    to[i] = axis;
  }
}

// Axes that cut one dimension come to be nested otherwise, as where what is scattered along the
// outer one had to come second.
static void add_orders(Growing *g, int dim) {
  const Group *group = &g->net->group[0];
  int from[MOST_AXES], to[MOST_AXES], n = axes_of(group, &g->from, dim, from), n_orders = 1;
  for (int i = 2; i <= n; i++)
    n_orders *= i;
  for (int k = 1; k < n_orders; k++) {
    State after = g->from;
    reorder(from, n, k, to);
    for (int i = 0; i < n; i++)
      after.label[to[i]] = (uint8_t)label_of(dim, i);
    Rate rate = order_rate(g, n, from, to);
    Hop hop = {.start = rate.start, .byte = rate.byte * part_of(g->net, &g->from)};
    hop.to = find_state(g->r->arena, g->net, &after);
    hop.edge.prim = PATH_permute;
    vec_push(g->r->arena, &g->net->hop, hop);
  }
}

static void add_hops(Routes *r, Net *net) {
  Growing *g = arena_one(r->arena, Growing);
  *g = (Growing){.r = r, .net = net};
  g->groups.device = arena_array(r->arena, int, 2 * net->group[0].n);
  Vec(int) first = {0};
  for (int i = 0; i < net->state.n; i++) { // which become more
    g->from = net->state.at[i];
    vec_push(r->arena, &first, net->hop.n);
    path_edges(&net->shape, net->group, &g->from, add_hop, g);
    for (int dim = 0; dim < net->rank; dim++)
      add_orders(g, dim);
  }
  vec_push(r->arena, &first, net->hop.n);
  net->first = first.at;
}

static Net *net_new(Routes *r, const Mesh *mesh, int rank) {
  Net *net = arena_one(r->arena, Net);
  *net = (Net){.mesh = mesh, .rank = rank, .next = r->nets};
  r->nets = net;
  if (!set_group(r, net)) return net;
  net->shape = (TensorShape){.rank = rank, .bytes = 1};
  for (int d = 0; d < rank; d++)
    net->shape.dim[d] = mesh->n_devices;
  add_layouts(r, net);
  add_hops(r, net);
  return net;
}

static Net *net_of(Routes *r, const Mesh *mesh, int rank) {
  for (Net *net = r->nets; net; net = net->next)
    if (net->mesh == mesh && net->rank == rank) return net;
  return net_new(r, mesh, rank);
}

// -- What it costs -------------------------------------------------------------------------------

TensorShape shape_in_slice(const Type *whole, const Layout *l) {
  TensorShape s = {.rank = whole->rank ? whole->rank : 1, .dim = {1}};
  s.bytes = dtype_bytes[whole->dtype];
  for (int d = 0; d < whole->rank; d++)
    s.dim[d] = whole->dim[d];
  for (int a = 0; a < l->n_axes; a++)
    if (l->mesh->axis[a].time && l->axis[a].kind == SBP_S)
      s.dim[l->axis[a].dim] /= l->mesh->axis[a].size;
  return s;
}

static bool shape_equal(const TensorShape *a, const TensorShape *b) {
  return a->rank == b->rank && a->bytes == b->bytes &&
         !memcmp(a->dim, b->dim, sizeof(int64_t) * (size_t)a->rank);
}

static Tariff *tariff_new(Routes *r, const Net *net, const TensorShape *shape, int64_t slices) {
  Tariff *t = arena_one(r->arena, Tariff);
  int n = net->state.n;
  *t = (Tariff){.net = net, .shape = *shape, .slices = slices};
  t->bytes = (double)shape->bytes / (double)slices;
  for (int d = 0; d < shape->rank; d++)
    t->bytes *= (double)shape->dim[d];
  t->fits = arena_array(r->arena, bool, n);
  t->from = arena_array(r->arena, Reach *, n);
  for (int i = 0; i < n; i++)
    t->fits[i] = state_fits(shape, &net->group[0], &net->state.at[i]);
  return t;
}

static Tariff *tariff_of(Routes *r, const Mesh *mesh, const TensorShape *shape, int64_t slices) {
  uint64_t h = path_hash((uintptr_t)mesh, shape->dim, sizeof(int64_t) * (size_t)shape->rank);
  Tariff **bucket = &r->tariff[h % TARIFFS];
  for (Tariff *t = *bucket; t; t = t->next)
    if (t->net->mesh == mesh && t->slices == slices && shape_equal(&t->shape, shape)) return t;
  Tariff *t = tariff_new(r, net_of(r, mesh, shape->rank), shape, slices);
  t->next = *bucket;
  return *bucket = t;
}

// -- The routes out of one state -----------------------------------------------------------------

typedef struct Waiting {
  double seconds;
  int n_steps, state;
} Waiting;

typedef Vec(Waiting) Queue;

static bool sooner(const Waiting *a, const Waiting *b) {
  return a->seconds != b->seconds ? a->seconds < b->seconds : a->n_steps < b->n_steps;
}

static void queue_push(Arena *a, Queue *q, Waiting w) {
  vec_push(a, q, w);
  int i = q->n - 1;
  for (; i > 0 && sooner(&w, &q->at[(i - 1) / 2]); i = (i - 1) / 2)
    q->at[i] = q->at[(i - 1) / 2];
  q->at[i] = w;
}

static Waiting queue_pop(Queue *q) {
  Waiting top = q->at[0], last = q->at[--q->n];
  int i = 0;
  for (int child; (child = 2 * i + 1) < q->n; i = child) {
    if (child + 1 < q->n && sooner(&q->at[child + 1], &q->at[child])) child++;
    if (!sooner(&q->at[child], &last)) break;
    q->at[i] = q->at[child];
  }
  if (q->n) q->at[i] = last;
  return top;
}

static Reach *reach_new(Arena *a, int n) {
  Reach *reach = arena_one(a, Reach);
  *reach = (Reach){arena_array(a, double, n), arena_array(a, int, n), arena_array(a, int, n),
                   arena_array(a, int, n)};
  for (int i = 0; i < n; i++) {
    reach->seconds[i] = INFINITY;
    reach->before[i] = -1;
  }
  return reach;
}

// Dijkstra's algorithm; of routes that cost the same, the one of fewest steps.
static const Reach *reach_from(Routes *r, Tariff *t, int from) {
  if (t->from[from]) return t->from[from];
  const Net *net = t->net;
  Reach *reach = t->from[from] = reach_new(r->arena, net->state.n);
  Arena *scratch = arena_new();
  Queue queue = {0};
  reach->seconds[from] = 0;
  queue_push(scratch, &queue, (Waiting){0, 0, from});
  while (queue.n) {
    Waiting w = queue_pop(&queue);
    if (w.seconds > reach->seconds[w.state] || w.n_steps > reach->n_steps[w.state]) continue;
    for (int i = net->first[w.state]; i < net->first[w.state + 1]; i++) {
      const Hop *hop = &net->hop.at[i];
      Waiting next = {w.seconds + hop->start + hop->byte * t->bytes, w.n_steps + 1, hop->to};
      Waiting known = {reach->seconds[hop->to], reach->n_steps[hop->to], hop->to};
      if (!t->fits[hop->to] || !sooner(&next, &known)) continue;
      reach->seconds[hop->to] = next.seconds;
      reach->n_steps[hop->to] = next.n_steps;
      reach->hop[hop->to] = i;
      reach->before[hop->to] = w.state;
      queue_push(scratch, &queue, next);
    }
  }
  arena_free(scratch);
  return reach;
}

// False where the mesh has too many axes.
static bool find_ends(Routes *r, const Type *whole, const Layout *from, const Layout *want,
                      int64_t slices, Tariff **out, int *out_from, int *out_to) {
  TensorShape shape = shape_in_slice(whole, from);
  Tariff *t = *out = tariff_of(r, from->mesh, &shape, slices);
  if (!t->net->at) return false;
  *out_from = t->net->at[layout_number(t->net, from)] - 1;
  *out_to = t->net->at[layout_number(t->net, want)] - 1;
  return true;
}

double route_seconds(Routes *r, const Type *whole, const Layout *from, const Layout *want,
                     int64_t slices) {
  Tariff *t;
  int first, last;
  if (!find_ends(r, whole, from, want, slices, &t, &first, &last)) return INFINITY;
  return (double)slices * reach_from(r, t, first)->seconds[last];
}

Reduces route_reduces(Routes *r, const Type *whole, const Layout *from, const Layout *want) {
  Tariff *t;
  int first, last;
  Reduces sum = {0, 0};
  if (!find_ends(r, whole, from, want, 1, &t, &first, &last)) return sum;
  const Reach *reach = reach_from(r, t, first);
  for (int s = last; isfinite(reach->seconds[last]) && s != first; s = reach->before[s]) {
    const Hop *hop = &t->net->hop.at[reach->hop[s]];
    if (hop->edge.prim != PATH_all_reduce) break;
    sum.start += hop->start;
    sum.bytes += hop->byte * t->bytes;
  }
  return sum;
}

// -- Step by step --------------------------------------------------------------------------------

static bool joins(const PathStep *last, const Hop *next) {
  return last && last->edge.prim == PATH_slice && next->edge.prim == PATH_slice;
}

static void fill_steps(Routes *r, const Tariff *t, const Reach *reach, int last, Path *p) {
  int n = reach->n_steps[last], *at = arena_array(r->arena, int, n + 1);
  for (int i = n, s = last; i >= 0; s = reach->before[s])
    at[i--] = s;
  p->step = arena_array(r->arena, PathStep, n);
  for (int i = 0; i < n; i++) {
    const Hop *hop = &t->net->hop.at[reach->hop[at[i + 1]]];
    PathStep *before = p->n_steps ? &p->step[p->n_steps - 1] : NULL;
    if (joins(before, hop)) {
      before->after = t->net->state.at[at[i + 1]];
      before->edge.mask |= hop->edge.mask;
    } else
      p->step[p->n_steps++] = (PathStep){.edge = hop->edge,
                                         .before = t->net->state.at[at[i]],
                                         .after = t->net->state.at[at[i + 1]],
                                         .cost = {.seconds = hop->start + hop->byte * t->bytes}};
  }
}

const Path *route_path(Routes *r, const Type *whole, const Layout *from, const Layout *want) {
  Tariff *t;
  int first, last;
  if (!find_ends(r, whole, from, want, 1, &t, &first, &last)) return NULL;
  const Reach *reach = reach_from(r, t, first);
  if (isinf(reach->seconds[last])) return NULL;
  Path *p = arena_one(r->arena, Path);
  *p = (Path){.shape = t->shape, .group = {t->net->group[0], t->net->group[1]}, .complete = true};
  p->first = t->net->state.at[first];
  p->last = t->net->state.at[last];
  p->total.seconds = reach->seconds[last];
  fill_steps(r, t, reach, last, p);
  return p;
}
