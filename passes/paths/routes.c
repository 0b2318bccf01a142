// See routes.h.
//
// A net (routes_net.h) belongs to a mesh; a tariff has the costs of its hops for values of one
// shape. The routes out of a state are computed as far as queries need them.

#include "routes.h"

#include <math.h>
#include <string.h>

#include "path_search.h"
#include "routes_net.h"

typedef struct Waiting {
  double seconds;
  int n_steps, state;
} Waiting;

typedef Vec(Waiting) Queue;

// The routes from one state to others, as far as they are known.
typedef struct Reach {
  double *seconds;
  int *n_steps, *hop, *before; // the last hop, and its start state
  bool *done;  // by state: no other route to it is sooner, or it does not divide the dimensions
  Queue queue; // states that may be next
} Reach;

typedef struct Tariff {
  const RouteNet *net;
  TensorShape shape;
  int64_t slices; // number of equal slices of the value
  double bytes;   // per slice
  bool *fits;     // by state: whether it divides the dimensions
  Reach **from;   // by state; NULL: not computed yet
  struct Tariff *next;
} Tariff;

enum { TARIFFS = 1024 };

struct Routes {
  Arena *arena;
  const Cluster *c;
  Traffic *traffic;
  RouteNet *nets;
  Tariff *tariff[TARIFFS];
};

Routes *routes_new(Arena *a, const Cluster *c) {
  Routes *r = arena_one(a, Routes);
  *r = (Routes){.arena = a, .c = c, .traffic = traffic_new(a, c)};
  return r;
}

// -- Tariffs -------------------------------------------------------------------------------------

TensorShape shape_in_slice(const Type *whole, const Layout *l) {
  TensorShape s = {.ndim = whole->ndim ? whole->ndim : 1, .dim = {1}};
  s.bytes = dtype_bytes[whole->dtype];
  for (int d = 0; d < whole->ndim; d++)
    s.dim[d] = whole->dim[d];
  // Axes of time split it into slices.
  for (int a = 0; a < l->n_axes; a++)
    if (l->mesh->axis[a].time && l->axis[a].kind == SBP_S)
      s.dim[l->axis[a].dim] /= l->mesh->axis[a].size;
  return s;
}

// The costs of a shape in a mesh, new on the first query.
static Tariff *tariff_of(Routes *r, const Mesh *mesh, const TensorShape *shape, int64_t slices) {
  uint64_t h = path_hash((uintptr_t)mesh, shape->dim, sizeof(int64_t) * (size_t)shape->ndim);
  Tariff **bucket = &r->tariff[h % TARIFFS];
  for (Tariff *t = *bucket; t; t = t->next)
    if (t->net->mesh == mesh && t->slices == slices && shape_equal(&t->shape, shape)) return t;
  // The net of the mesh, for all shapes of so many dimensions.
  RouteNet *net = r->nets;
  while (net && (net->mesh != mesh || net->ndim != shape->ndim))
    net = net->next;
  if (!net) {
    // The stages of a pipeline have equal meshes, on other nodes.
    for (const RouteNet *x = r->nets; x && !net; x = x->next)
      if (x->ndim == shape->ndim) net = route_net_shifted(r->arena, r->c, x, mesh);
    if (!net) net = route_net_new(r->arena, r->c, r->traffic, mesh, shape->ndim);
    net->next = r->nets;
    r->nets = net;
  }
  // Its states that divide the dimensions, and the bytes of a slice.
  Tariff *t = arena_one(r->arena, Tariff);
  int n = net->state.n;
  *t = (Tariff){.net = net, .shape = *shape, .slices = slices};
  t->bytes = (double)shape->bytes / (double)slices;
  for (int d = 0; d < shape->ndim; d++)
    t->bytes *= (double)shape->dim[d];
  t->fits = arena_array(r->arena, bool, n);
  t->from = arena_array(r->arena, Reach *, n);
  for (int i = 0; i < n; i++)
    t->fits[i] = state_fits(shape, &net->group[0], &net->state.at[i]);
  t->next = *bucket;
  return *bucket = t;
}

// -- Routes out of one state ---------------------------------------------------------------------

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

static Reach *reach_new(Routes *r, const Tariff *t, int from) {
  int n = t->net->state.n;
  Reach *reach = arena_one(r->arena, Reach);
  *reach = (Reach){.seconds = arena_array(r->arena, double, n),
                   .n_steps = arena_array(r->arena, int, n),
                   .hop = arena_array(r->arena, int, n),
                   .before = arena_array(r->arena, int, n),
                   .done = arena_array(r->arena, bool, n)};
  for (int i = 0; i < n; i++) {
    reach->seconds[i] = INFINITY;
    reach->before[i] = -1;
    reach->done[i] = !t->fits[i];
  }
  reach->seconds[from] = 0;
  queue_push(r->arena, &reach->queue, (Waiting){0, 0, from});
  return reach;
}

// Dijkstra's algorithm; ties go to fewer steps.  It goes on from query to query, until the state
// `to` is reached, so that hops which no route takes are not priced.
static const Reach *reach_to(Routes *r, Tariff *t, int from, int to) {
  const RouteNet *net = t->net;
  if (!t->from[from]) t->from[from] = reach_new(r, t, from);
  Reach *reach = t->from[from];
  if (!t->fits[to]) return reach;
  while (reach->queue.n && !reach->done[to]) {
    // A state may be queued several times: only the entry with its final cost counts.
    Waiting w = queue_pop(&reach->queue);
    if (w.seconds > reach->seconds[w.state] || w.n_steps > reach->n_steps[w.state]) continue;
    reach->done[w.state] = true;
    for (int i = net->first[w.state]; i < net->first[w.state + 1]; i++) {
      int at = net->to.at[i];
      if (reach->done[at]) continue;
      // No hop makes a better way to a state that is as near as this one.
      Waiting known = {reach->seconds[at], reach->n_steps[at], at};
      Waiting next = {w.seconds, w.n_steps + 1, at};
      if (!sooner(&next, &known)) continue;
      const Hop *hop = &net->hop.at[i];
      next.seconds = w.seconds + hop_start(net, hop) + hop_bytes(net, hop, t->bytes);
      if (!sooner(&next, &known)) continue;
      // A better way to this state.
      reach->seconds[at] = next.seconds;
      reach->n_steps[at] = next.n_steps;
      reach->hop[at] = i;
      reach->before[at] = w.state;
      queue_push(r->arena, &reach->queue, next);
    }
  }
  return reach;
}

// False if the mesh has too many axes.
static bool find_ends(Routes *r, const Type *whole, const Layout *from, const Layout *want,
                      int64_t slices, Tariff **out, int *out_from, int *out_to) {
  TensorShape shape = shape_in_slice(whole, from);
  Tariff *t = *out = tariff_of(r, from->mesh, &shape, slices);
  if (!t->net->at) return false;
  *out_from = route_net_state(t->net, from);
  *out_to = route_net_state(t->net, want);
  return true;
}

double route_seconds(Routes *r, const Type *whole, const Layout *from, const Layout *want,
                     int64_t slices) {
  Tariff *t;
  int first, last;
  if (!find_ends(r, whole, from, want, slices, &t, &first, &last)) return INFINITY;
  return (double)slices * reach_to(r, t, first, last)->seconds[last];
}

Reduces route_reduces(Routes *r, const Type *whole, const Layout *from, const Layout *want) {
  Tariff *t;
  int first, last;
  Reduces sum = {0, 0};
  if (!find_ends(r, whole, from, want, 1, &t, &first, &last)) return sum;
  // The last steps of the route, as long as they are all_reduce.
  const Reach *reach = reach_to(r, t, first, last);
  for (int s = last; isfinite(reach->seconds[last]) && s != first; s = reach->before[s]) {
    const Hop *hop = &t->net->hop.at[reach->hop[s]];
    if (hop->edge.prim != PATH_all_reduce) break;
    sum.start += hop_start(t->net, hop);
    sum.bytes += hop_bytes(t->net, hop, t->bytes);
  }
  return sum;
}

const Path *route_path(Routes *r, const Type *whole, const Layout *from, const Layout *want) {
  Tariff *t;
  int first, last;
  if (!find_ends(r, whole, from, want, 1, &t, &first, &last)) return NULL;
  const Reach *reach = reach_to(r, t, first, last);
  if (isinf(reach->seconds[last])) return NULL;
  Path *p = arena_one(r->arena, Path);
  *p = (Path){.shape = t->shape, .group = {t->net->group[0], t->net->group[1]}, .complete = true};
  p->first = t->net->state.at[first];
  p->last = t->net->state.at[last];
  p->total.seconds = reach->seconds[last];
  // The states from the last one back, then a step for each hop.
  int n = reach->n_steps[last], *at = arena_array(r->arena, int, n + 1);
  for (int i = n, s = last; i >= 0; s = reach->before[s])
    at[i--] = s;
  p->step = arena_array(r->arena, PathStep, n);
  for (int i = 0; i < n; i++) {
    const Hop *hop = &t->net->hop.at[reach->hop[at[i + 1]]];
    PathStep *before = p->n_steps ? &p->step[p->n_steps - 1] : NULL;
    // Slices along several axes are one step.
    if (before && before->edge.prim == PATH_slice && hop->edge.prim == PATH_slice) {
      before->after = t->net->state.at[at[i + 1]];
      before->edge.mask |= hop->edge.mask;
    } else {
      p->step[p->n_steps++] = (PathStep){
          .edge = hop->edge,
          .before = t->net->state.at[at[i]],
          .after = t->net->state.at[at[i + 1]],
          .cost = {.seconds = hop_start(t->net, hop) + hop_bytes(t->net, hop, t->bytes)}};
    }
  }
  return p;
}
