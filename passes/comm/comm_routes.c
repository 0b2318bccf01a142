// Reshards over a cluster: from one mesh to another, or within one if the costs of routes are
// known.
//
// Each route has a cost in seconds (transition.h). All layouts wanted of a value, by forward and by
// backward, are chosen together: a layout made for one reader may be the source of another
// (route_tree.h). Within a mesh the cost is that of routes.h, by which layouts were chosen, or less
// if sums for updates start together with others.
//
// Nothing else needs a joint choice. Layouts were chosen before; a gradient is a separate value,
// and neither its layout nor those of its readers depend on the route of the forward value; and no
// op here moves two values. So the sum over all values is least if that of each value is.
//
// A value visits meshes in the order in which a pipeline reaches their readers:
//
//     %h @s1, read on @s2 and, later, on @s3     @s1 -> @s2 -> @s3, or @s1 -> @s2 and @s1 -> @s3
//
// By way of @s3, stage 2 would wait for a later stage, and orders of schedules forbid that.

#include <limits.h>
#include <math.h>

#include "comm_state.h"
#include "ir/analysis/boxes.h"
#include "overlap/bucket_grads.h"
#include "route_tree.h"

// The routes of a value to all its wanted layouts: each is reached from another one, or from the
// value.
typedef struct Tree {
  const Value *from; // the value, accumulated over time if wanted
  TrainPart part;
  bool is_summed; // a gradient: bucket_grads joins its all_reduces with others
  Vec(const Layout *) layouts;
  int *turn;         // by mesh id: the turn of the first reader there; of the value's mesh: 0
  int *parent;       // by layout; -1: the value
  struct Tree *next; // for the same original
} Tree;

typedef struct Pricing {
  Comm *c;
  const Tree *tree;
  const Type *whole;
} Pricing;

// The cost of the cheapest route within a mesh, and its hops. A gradient is one of many sums that
// start together, so reducing it axis by axis costs no more than its bytes. NO_ROUTE to another
// mesh, and if the path is cheaper.
enum { NO_ROUTE = -1 };

static double best_seconds(Comm *c, const Tree *t, const Type *whole, const Layout *from,
                           const Layout *want, int *out_hops) {
  double best = transition_seconds(c->paths, whole, from, want) * (1 - 1e-9);
  bool joined = t->is_summed && from->mesh == want->mesh && is_all_reduced(from, want);
  *out_hops = NO_ROUTE;
  if (transition_is_move(c->paths, from, want)) return best;
  for (Hops hops = NO_HOPS; from->mesh == want->mesh && hops <= ALL_HOP; hops++) {
    double seconds = hops_seconds(c->m, joined ? c->joined : c->paths, whole, from, want, hops);
    if (seconds > (*out_hops == NO_ROUTE ? best * (1 + 2e-9) : best * (1 - 1e-9))) continue;
    best = seconds;
    *out_hops = (int)hops;
  }
  return best;
}

// The layout that a parameter has on a mesh of some of its ranks without a transfer; NULL: none.
static const Layout *layout_as_is(Comm *c, const Value *v, const Type *whole, const Mesh *mesh) {
  const Layout *have = v->layout;
  if (v->def || mesh == have->mesh || mesh->n_axes != have->mesh->n_axes) return NULL;
  const Layout *l = layout_new(c->m, mesh, have->axis);
  return module_move_stays(c->m, whole, have, l) ? l : NULL;
}

// Whether an axis has partial sums in the first layout alone: they cannot come back.
static bool splits_sums(const Layout *from, const Layout *want) {
  for (int a = 0; from->mesh == want->mesh && a < want->n_axes; a++)
    if (want->axis[a].kind == SBP_P && from->axis[a].kind != SBP_P) return true;
  return false;
}

// The cost between two layouts of the tree. Some ranks of a parameter gather it among themselves:
// otherwise a stage's ranks would have to send, before they begin, a value that only others have
// begun to receive.
static double tree_cost(void *context, int from, int to) {
  const Pricing *p = context;
  int hops;
  const Layout *want = p->tree->layouts.at[to], *here = NULL;
  if (from < 0) here = layout_as_is(p->c, p->tree->from, p->whole, want->mesh);
  if (here && here != want) return INFINITY;
  const Mesh *station = from < 0 ? want->mesh : p->tree->layouts.at[from]->mesh;
  if (station != want->mesh && p->tree->turn[station->id] > p->tree->turn[want->mesh->id])
    return INFINITY;
  const Layout *before = from < 0 ? p->tree->from->layout : p->tree->layouts.at[from];
  if (splits_sums(before, want)) return INFINITY;
  return best_seconds(p->c, p->tree, p->whole, before, want, &hops);
}

// A lower bound of that.
static double tree_least(void *context, int from, int to) {
  const Pricing *p = context;
  const Layout *before = from < 0 ? p->tree->from->layout : p->tree->layouts.at[from];
  return transition_least(p->c->paths, p->whole, before, p->tree->layouts.at[to]) * (1 - 1e-6);
}

// `have`, with the split over time of `want`.
static const Layout *timed_as(const Comm *c, const Layout *have, const Layout *want) {
  const Layout *l = have;
  for (int a = 0; a < have->n_axes; a++) {
    if (!is_time(have, a)) continue;
    Sbp sbp = {.kind = SBP_B};
    for (int k = 0; k < want->n_axes; k++)
      if (is_time(want, k)) sbp = want->axis[k];
    l = with_axis(c->m, l, a, sbp);
  }
  return l;
}

static void add_layout(Comm *c, Tree *t, const Layout *l) {
  for (int i = 0; i < t->layouts.n; i++)
    if (t->layouts.at[i] == l) return;
  if (l != t->from->layout) vec_push(c->scratch, &t->layouts, l);
}

// Adds a layout that `reader` wants of the original, if it has the same split over time as the
// tree's value. NULL: the graph's result.
static void add_wanted(Comm *c, Tree *t, const Value *original, const Layout *want,
                       const Op *reader) {
  if (timed_as(c, original->layout, want) != t->from->layout) return;
  add_layout(c, t, want);
  int turn = c->turn && reader && op_part(reader) != PART_update ? c->turn[reader->id] : INT_MAX;
  if (turn < t->turn[want->mesh->id]) t->turn[want->mesh->id] = turn;
}

static bool is_update(const Op *op) {
  return op && op_part(op) == PART_update;
}

static Tree *tree_of(Comm *c, const Value *original, const Value *from, TrainPart part) {
  for (Tree *t = c->trees[original->id]; t; t = t->next)
    if (t->from == from && t->part == part) return t;
  Tree *t = arena_one(c->scratch, Tree);
  *t = (Tree){.from = from, .part = part, .next = c->trees[original->id]};
  int n_meshes = module_n_meshes(c->m);
  t->turn = arena_array(c->scratch, int, n_meshes);
  for (int i = 0; i < n_meshes; i++)
    t->turn[i] = INT_MAX;
  t->turn[from->layout->mesh->id] = 0;
  // All layouts that readers in this part of the step need.
  t->is_summed = original->uses != NULL;
  for_each_use(u, original) {
    const Op *op = u->user;
    if (!op || op->id >= c->n_ops || part_of(original, op) != t->part) continue;
    t->is_summed &= is_update(op) && !is_update(original->def);
    for (int i = 0; i < op->n_in; i++)
      if (op->in[i].value == original) add_wanted(c, t, original, comm_wanted_layout(c, op, i), op);
  }
  for_each_use(u, original)
    if (!u->user && part_of(original, original->def) == t->part)
      add_wanted(c, t, original, wanted_result(c, c->g->results[u->index]), NULL);
  int n_wanted = t->layouts.n;
  Pricing p = {c, t, type_whole(c->m, from->type, from->layout)};
  // Intermediate layouts may pay: reduced sums, on every mesh; full replication; and the present
  // layouts of parameters.
  for (int i = 0, n = t->layouts.n; i < n; i++) {
    const Layout *here = layout_as_is(c, t->from, p.whole, t->layouts.at[i]->mesh);
    if (here) add_layout(c, t, here);
  }
  for (int i = -1, n = t->layouts.n; i < n; i++) {
    const Layout *sum = i < 0 ? t->from->layout : t->layouts.at[i], *all = sum;
    for (int a = 0; a < sum->n_axes; a++) {
      if (is_time(sum, a)) continue;
      if (sum->axis[a].kind == SBP_P) sum = with_axis(c->m, sum, a, (Sbp){.kind = SBP_B});
      all = with_axis(c->m, all, a, (Sbp){.kind = SBP_B});
    }
    add_layout(c, t, sum);
    add_layout(c, t, all);
  }
  t->parent = arena_array(c->scratch, int, t->layouts.n);
  route_tree_choose(c->scratch, n_wanted, t->layouts.n, tree_cost, tree_least, &p, t->parent);
  return c->trees[original->id] = t;
}

// The i-th layout of the tree, made unless an earlier reader needed it.
static Value *grown(Comm *c, uint32_t original, const Tree *t, int i, Value *from, Op *reader) {
  // The tree grows from its root to this layout.
  if (i < 0) return from;
  Value *known = moved_before(c, original, t->layouts.at[i], t->part);
  if (known) return known;
  Value *v = grown(c, original, t, t->parent[i], from, reader);
  if (!v) return NULL;
  int hops;
  const Type *whole = type_whole(c->m, v->type, v->layout);
  best_seconds(c, t, whole, v->layout, t->layouts.at[i], &hops);
  // Hops within the mesh may be cheapest.
  if (hops != NO_ROUTE)
    return reshard_by_hops(c, original, t->part, v, t->layouts.at[i], (Hops)hops, reader);
  // Otherwise a route over the cluster.
  Builder b = {.g = c->g, .at = place_of(v, reader), .d = c->d};
  b.origin = origin_for(c->m->arena, reader ? op_origin(reader) : value_origin(v), "move");
  v = transition_build(c->paths, &b, v, t->layouts.at[i]);
  return v ? comm_remember(c, original, t->part, v) : NULL;
}

Value *reshard_by_route(Comm *c, Value *original, const Layout *want, Op *reader) {
  TrainPart part = part_of(original, reader);
  Value *known = moved_before(c, original->id, want, part);
  if (known) return known;
  // Time axes come first.
  const Layout *timed = timed_as(c, original->layout, want);
  Value *v = reshard_by_hops(c, original->id, part, original, timed, NO_HOPS, reader);
  if (!v) return NULL;
  // Costs of links are read once.
  if (!c->paths) {
    const StoredPaths *s = path_store_find(c->store, cluster_or_default(c->cluster), c->d);
    if (!s) return NULL;
    c->paths = transitions_of(c->m, s->cluster, s->paths, c->scratch);
    c->joined = transitions_of(c->m, s->joined, s->joined_paths, c->scratch);
    transitions_reshard_by(c->paths, c->by);
  }
  Tree *t = tree_of(c, original, v, part);
  // The tree has all layouts that readers want.
  int i = t->layouts.n - 1;
  while (i >= 0 && t->layouts.at[i] != want)
    i--;
  return grown(c, original->id, t, i, v, reader);
}

// Whether the value has a reader on another mesh, or an option asks for routes.
bool needs_route(const Comm *c, const Value *v) {
  if (c->cluster || c->by != RESHARD_rvd || c->trees[v->id]) return true;
  for_each_use(u, v) {
    const Mesh *mesh = u->user ? op_mesh(u->user) : wanted_result(c, c->g->results[u->index])->mesh;
    if (mesh != v->layout->mesh) return true;
  }
  return false;
}
