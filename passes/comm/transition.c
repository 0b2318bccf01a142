// See transition.h.
//
// Three steps: the two layouts as placements for path.h, the states of its path as layouts on
// meshes, and the steps between them as ops. Routes and costs are cached by type and layouts, as
// layers repeat the same requests.

#include "transition.h"

#include <math.h>
#include <string.h>

#include "ir/analysis/boxes.h"
#include "ir/collective.h"
#include "ir/op.h"
#include "ir/split.h"
#include "paths/routes.h"

const char *const reshard_name[N_RESHARDS + 1] = {"rvd", "intra", "p2p", NULL};

// The cost of a collective over these axes of a mesh: linear in the bytes.
typedef struct Rate {
  PathPrim prim;
  const Mesh *mesh;
  uint32_t axes;
  double start, byte; // seconds
} Rate;

// A route that was asked for before. Types and layouts are interned, so equal pointers mean
// equality; layers of a model repeat the same routes.
typedef struct Known {
  const Type *whole;
  const Layout *from, *to;
  const Path *path; // NULL: no transfer
  double messages;  // seconds of send/recv; -1: not asked for yet
  struct Known *next;
} Known;

enum { KNOWN_BUCKETS = 1024 };

struct Transitions {
  Module *m;
  Arena *arena;
  const Cluster *c;
  Traffic *traffic;
  Paths *paths;
  Routes *routes;
  Vec(Rate) rates;
  Known *known[KNOWN_BUCKETS];
  int n_known;
  int n_meshes; // added
  ReshardBy by;
};

// One transition.
typedef struct Walk {
  Transitions *t;
  Builder *b;
  const Path *path;
  Value *v;           // its present value
  int n_added;        // ops
  State state;        // the same in terms of the path
  const Layout *time; // a layout with the value's split over time
} Walk;

// -- Layouts as placements -----------------------------------------------------------------------

static bool is_device_axis(const Layout *l, int axis) {
  return !l->mesh->axis[axis].time;
}

// The placement of a layout: its devices in the order copies, shares, parts of each dimension.
static Placement placement_of(Arena *a, const Layout *l, int ndim) {
  Placement p = {.copies = 1, .shares = 1, .n = l->mesh->n_devices};
  for (int d = 0; d < PLACEMENT_DIMS; d++)
    p.part[d] = d < ndim ? 1 : 0;
  int order[MAX_AXES];
  // Axes are in the order of a placement: copies, shares, then those of each dimension.
  int n = 0;
  for (int key = -2; key < ndim; key++)
    for (int x = 0; x < l->n_axes; x++) {
      Sbp sbp = l->axis[x];
      int own = sbp.kind == SBP_B ? -2 : sbp.kind == SBP_P ? -1 : sbp.dim;
      if (is_device_axis(l, x) && own == key) order[n++] = x;
    }
  for (int i = 0; i < n; i++) {
    Sbp sbp = l->axis[order[i]];
    int size = l->mesh->axis[order[i]].size;
    *(sbp.kind == SBP_B ? &p.copies : sbp.kind == SBP_P ? &p.shares : &p.part[sbp.dim]) *= size;
  }
  int *device = arena_array(a, int, p.n);
  // Position `at` of the placement in mixed radix, as a position in the mesh's list of devices.
  for (int at = 0; at < p.n; at++) {
    int position = 0, left = at;
    for (int i = n - 1; i >= 0; i--) {
      int size = l->mesh->axis[order[i]].size;
      position += left % size * mesh_stride(l->mesh, order[i]);
      left /= size;
    }
    device[at] = l->mesh->device[position];
  }
  p.device = device;
  return p;
}

// -- States as layouts ---------------------------------------------------------------------------

// The axes of a group, ordered so that axes that shard one dimension are nested as in `s`.
typedef struct Order {
  int n, axis[PATH_AXES];
} Order;

static Order order_of(const Group *g, const State *s) {
  Order o = {.n = g->n_axes};
  for (int i = 0; i < g->n_axes; i++) {
    int k = i;
    for (; k > 0 && s->label[o.axis[k - 1]] > s->label[i]; k--)
      o.axis[k] = o.axis[k - 1];
    o.axis[k] = i;
  }
  return o;
}

// The layout of a state, on the mesh with the group's axes in this order.
static const Layout *layout_of(Walk *w, const Mesh *mesh, const Order *o, const State *s) {
  Sbp axis[MAX_AXES];
  int n = 0;
  for (int a = 0; a < w->time->n_axes; a++)
    if (!is_device_axis(w->time, a)) axis[n++] = w->time->axis[a];
  for (int i = 0; i < o->n; i++) {
    int label = s->label[o->axis[i]];
    if (label == LABEL_B)
      axis[n++] = (Sbp){.kind = SBP_B};
    else if (label == LABEL_P)
      axis[n++] = (Sbp){.kind = SBP_P};
    else
      axis[n++] = (Sbp){.kind = SBP_S, .dim = label_dim(label)};
  }
  return layout_new(w->t->m, mesh, axis);
}

// Whether a mesh can have the group's axes besides the time axes.
static bool has_room(const Walk *w, const Group *g) {
  int n = g->n_axes;
  for (int a = 0; a < w->time->n_axes; a++)
    n += !is_device_axis(w->time, a);
  return n <= MAX_AXES;
}

// -- Ops -----------------------------------------------------------------------------------------

// Continues with the result of an op, which has layout `to`; false for NULL.
static bool go_on(Walk *w, Value *out, const Layout *to) {
  if (!out) return false;
  out->layout = to;
  w->v = out;
  w->n_added++;
  return true;
}

// Removes the last move if it or the next one, to `to`, has no messages and only renames parts by
// another mesh: two such moves are one.
static void join_moves(Walk *w, const Layout *to) {
  Op *last = w->v->def;
  if (!w->n_added || last->kind != OP_move) return;
  Value *before = last->in[0].value;
  const Type *whole = type_whole(w->t->m, w->v->type, w->v->layout);
  if (!module_move_stays(w->t->m, whole, w->v->layout, to) &&
      !module_move_stays(w->t->m, whole, before->layout, w->v->layout))
    return;
  w->v = before;
  w->n_added--;
  op_erase(last);
}

static bool move_to(Walk *w, const Layout *to) {
  if (w->v->layout == to) return true;
  join_moves(w, to);
  if (w->v->layout == to) return true;
  const Type *part = type_local(w->t->m, type_whole(w->t->m, w->v->type, w->v->layout), to);
  Attr shape = a_list("shape", part->dim, part->ndim);
  return go_on(w, build_op(w->b, OP_move, IN(w->v), ATTRS(shape)), to);
}

// The names on the mesh of `axes`, a set of the group's: "x0+x2".
static const char *names_of(Walk *w, const Mesh *mesh, const Order *o, uint32_t axes) {
  StrBuf b = {.arena = w->t->m->arena};
  int skip = mesh->n_axes - o->n;
  for (int i = 0; i < o->n; i++)
    if (axes >> o->axis[i] & 1) strbuf_addf(&b, "%s%s", b.n ? "+" : "", mesh->axis[skip + i].name);
  return b.at;
}

// The axes of `mask` that shard dimension `dim` in `s`.
static uint32_t cutting(const State *s, uint32_t mask, int dim) {
  uint32_t axes = 0;
  for (int i = 0; i < PATH_AXES; i++)
    if ((mask >> i & 1) && label_dim(s->label[i]) == dim) axes |= 1u << i;
  return axes;
}

// Adds one collective over `axes` of the mesh, after which these have the labels of `after`.
static bool collective(Walk *w, OpKind kind, const Mesh *mesh, const Order *o, uint32_t axes,
                       const State *after, int from, int to) {
  const char *names = names_of(w, mesh, o, axes);
  for (int i = 0; i < PATH_AXES; i++)
    if (axes >> i & 1) w->state.label[i] = after->label[i];
  Value *out = build_collective(w->b, kind, w->v, names, (Sbp){.dim = from}, (Sbp){.dim = to});
  return go_on(w, out, layout_of(w, mesh, o, &w->state));
}

// Adds one collective for each dimension that `cut`, the state before or after, shards by axes of
// the mask.
static bool by_dims(Walk *w, OpKind kind, const Mesh *mesh, const Order *o, const PathStep *s,
                    const State *cut) {
  for (int dim = 0; dim < w->path->shape.ndim; dim++) {
    uint32_t axes = cutting(cut, s->edge.mask, dim);
    if (axes && !collective(w, kind, mesh, o, axes, &s->after, dim, dim)) return false;
  }
  return true;
}

// Whether the step exchanges one dimension for one other, over axes nested alike in both.
static bool exchanges_one(const Walk *w, const PathStep *s, int *from, int *to) {
  *from = *to = -1;
  for (int dim = 0; dim < w->path->shape.ndim; dim++) {
    // All axes of the step shard one dimension.
    if (cutting(&s->before, s->edge.mask, dim) == s->edge.mask) *from = dim;
    if (cutting(&s->after, s->edge.mask, dim) == s->edge.mask) *to = dim;
  }
  Order o = order_of(&w->path->group[s->after.group], &s->after);
  // Axes that shard one dimension must be nested alike in both.
  bool nested = true;
  for (int i = 0; i < o.n; i++)
    for (int k = i + 1; k < o.n; k++) {
      int outer = s->before.label[o.axis[i]], inner = s->before.label[o.axis[k]];
      if (label_dim(outer) >= 0 && label_dim(outer) == label_dim(inner) && outer > inner)
        nested = false;
    }
  return *from >= 0 && *to >= 0 && nested;
}

// Whether axes outside of the step keep their labels: a step that combines several may have
// renumbered the shards of devices.
static bool others_stay(const PathStep *s) {
  for (int i = 0; i < PATH_AXES; i++)
    if (!(s->edge.mask >> i & 1) && s->before.label[i] != s->after.label[i]) return false;
  for (int i = 0; i < PATH_AXES; i++)
    if ((s->edge.mask >> i & 1) && s->edge.prim == PATH_slice && s->before.label[i] != LABEL_B)
      return false;
  return true;
}

static bool walk_step(Walk *w, const PathStep *s) {
  const Group *g = &w->path->group[s->after.group];
  int from = -1, to = -1;
  OpKind kind = path_op(s->edge.prim);
  const CollectiveRule *rule = collective_rule(kind);
  bool is_op = kind != 0, splits_both = rule && rule->from_dim && rule->to_dim;
  bool word = is_op && others_stay(s) && (!splits_both || exchanges_one(w, s, &from, &to));
  // A gather reads the nesting of axes before it, other steps produce the one after.
  Order o = order_of(g, rule && rule->to == SBP_B ? &s->before : &s->after);
  // The mesh has the group's devices with its axes in this order, after time axes.
  Module *m = w->t->m;
  Mesh *own = arena_one(m->arena, Mesh);
  for (int a = 0; a < w->time->n_axes; a++)
    if (!is_device_axis(w->time, a)) own->axis[own->n_axes++] = w->time->mesh->axis[a];
  for (int i = 0; i < o.n; i++)
    own->axis[own->n_axes++] =
        (MeshAxis){str_format(m->arena, "x%d", o.axis[i]), g->size[o.axis[i]], false};
  own->n_devices = g->n;
  own->device = arena_array(m->arena, int, g->n);
  // Devices in row-major order of the mesh's axes.
  for (int at = 0; at < g->n; at++) {
    int position = 0, left = at;
    for (int i = o.n - 1; i >= 0; i--) {
      position += left % g->size[o.axis[i]] * g->stride[o.axis[i]];
      left /= g->size[o.axis[i]];
    }
    own->device[at] = g->device[position];
  }
  const Mesh *mesh = module_find_alike(m, own);
  if (!mesh) {
    do
      own->name = str_format(m->arena, "p%d", w->t->n_meshes++);
    while (module_find_mesh(m, own->name));
    module_add_mesh(m, own);
    mesh = own;
  }
  w->state = s->before;
  // A step that is no single op of the language becomes a move.
  if (!word) return move_to(w, layout_of(w, mesh, &o, &s->after));
  if (!move_to(w, layout_of(w, mesh, &o, &s->before))) return false;
  // One collective for each dimension that it splits or joins, or one for all axes.
  if (splits_both || (!rule->from_dim && !rule->to_dim))
    return collective(w, kind, mesh, &o, s->edge.mask, &s->after, from, to);
  return by_dims(w, kind, mesh, &o, s, rule->from_dim ? &s->before : &s->after);
}

// -- Complete routes -----------------------------------------------------------------------------

Transitions *transitions_of(Module *m, const Cluster *c, Paths *paths, Arena *a) {
  Transitions *t = arena_one(a, Transitions);
  *t = (Transitions){.m = m, .arena = a, .c = c, .traffic = traffic_new(a, c), .paths = paths};
  t->routes = routes_new(a, c);
  return t;
}

Transitions *transitions_new(Module *m, const Cluster *c, Arena *a) {
  Paths *paths = paths_new(a, c);
  paths_without_send_recv(paths);
  return transitions_of(m, c, paths, a);
}

void transitions_reshard_by(Transitions *t, ReshardBy by) {
  t->by = by;
}

bool transition_is_move(const Transitions *t, const Layout *from, const Layout *want) {
  return t->by == RESHARD_p2p || (t->by == RESHARD_intra && from->mesh != want->mesh);
}

static Known *known_between(Transitions *t, const Type *whole, const Layout *from,
                            const Layout *want) {
  uint64_t h = layouts_hash(whole, from, want);
  Known **bucket = &t->known[h % KNOWN_BUCKETS];
  for (Known *k = *bucket; k; k = k->next)
    if (k->whole == whole && k->from == from && k->to == want) return k;
  Known *k = arena_one(t->arena, Known);
  // Within a mesh the route is that of routes.h, which a search of layouts has estimated;
  // otherwise, and for too many axes, that of path.h.
  const Path *path;
  if (module_move_stays(t->m, whole, from, want))
    path = NULL;
  else {
    const Path *routed = from->mesh == want->mesh ? route_path(t->routes, whole, from, want) : NULL;
    if (routed)
      path = routed;
    else {
      TensorShape shape = shape_in_slice(whole, from);
      Placement a = placement_of(t->arena, from, shape.ndim);
      Placement b = placement_of(t->arena, want, shape.ndim);
      path = path_find(t->paths, &shape, &a, &b);
    }
  }
  *k = (Known){whole, from, want, path, -1, *bucket};
  *bucket = k;
  t->n_known++;
  return k;
}

// The path between two layouts; NULL: no transfer.
static const Path *path_between(Transitions *t, const Type *whole, const Layout *from,
                                const Layout *want) {
  return known_between(t, whole, from, want)->path;
}

Value *transition_build(Transitions *t, Builder *b, Value *v, const Layout *want) {
  Walk w = {.t = t, .b = b, .v = v, .time = v->layout};
  if (v->layout == want) return v;
  if (transition_is_move(t, v->layout, want)) return move_to(&w, want) ? w.v : NULL;
  w.path = path_between(t, type_whole(t->m, v->type, v->layout), v->layout, want);
  bool room = w.path && has_room(&w, &w.path->group[0]) && has_room(&w, &w.path->group[1]);
  for (int i = 0; room && i < w.path->n_steps; i++)
    if (!walk_step(&w, &w.path->step[i])) return NULL;
  return move_to(&w, want) ? w.v : NULL;
}

// -- Costs ---------------------------------------------------------------------------------------

int transitions_known(const Transitions *t) {
  return t->n_known;
}

double transition_seconds(Transitions *t, const Type *whole, const Layout *from,
                          const Layout *want) {
  if (transition_is_move(t, from, want)) return transition_messages(t, whole, from, want);
  const Path *p = path_between(t, whole, from, want);
  return p ? p->total.seconds : 0;
}

// The bytes of a device's part; of a partial sum, its share of it.
static double part_bytes(const Type *whole, const Layout *l) {
  double bytes = (double)type_bytes(whole);
  for (int d = 0; d < whole->ndim; d++)
    bytes /= (double)layout_parts(l, d);
  return bytes;
}

// A device must receive its part, by its link to its node and by the adapter in parallel; if it has
// another part, no less than the bytes by which its own is larger. A part of a partial sum may be
// zeros.
double transition_least(Transitions *t, const Type *whole, const Layout *from, const Layout *want) {
  if (from->mesh == want->mesh || transition_is_move(t, from, want)) return 0;
  double bytes = part_bytes(whole, want), in = cluster_fastest_inside(t->c).beta,
         across = cluster_fastest_across(t->c).beta;
  for (int a = 0; a < want->n_axes; a++)
    if (want->axis[a].kind == SBP_P) return 0;
  if (in <= 0 || across <= 0) return 0;
  if (mesh_covers(from->mesh, want->mesh)) bytes -= part_bytes(whole, from);
  return 0.999 * fmax(bytes, 0) / (1 / in + 1 / across);
}

double transition_routed(Transitions *t, const Type *whole, const Layout *from, const Layout *want,
                         int64_t slices) {
  return route_seconds(t->routes, whole, from, want, slices);
}

Reduces transition_reduces(Transitions *t, const Type *whole, const Layout *from,
                           const Layout *want) {
  return route_reduces(t->routes, whole, from, want);
}

double transition_messages(Transitions *t, const Type *whole, const Layout *from,
                           const Layout *want) {
  Known *k = known_between(t, whole, from, want);
  if (k->messages < 0) k->messages = k->path ? path_p2p(t->paths, k->path).seconds : 0;
  return k->messages;
}

static const Rate *rate_of(Transitions *t, PathPrim prim, const Mesh *mesh, uint32_t axes) {
  for (int i = 0; i < t->rates.n; i++) {
    // Rates are known per primitive, mesh and axes.
    const Rate *r = &t->rates.at[i];
    if (r->prim == prim && r->mesh == mesh && r->axes == axes) return r;
  }
  Edge e = {.prim = prim};
  // All device axes of the mesh are in the group, those that communicate in the mask.
  Group devices = {.n = mesh->n_devices, .device = mesh->device};
  for (int a = 0; a < mesh->n_axes; a++) {
    if (mesh->axis[a].time) continue;
    if (axes >> a & 1) e.mask |= 1u << devices.n_axes;
    devices.size[devices.n_axes] = mesh->axis[a].size;
    devices.stride[devices.n_axes++] = mesh_stride(mesh, a);
  }
  Group group[2] = {devices};
  State none = {0};
  Groups groups = {.device = arena_array(t->arena, int, mesh->n_devices)};
  edge_groups(NULL, group, &none, &none, &e, t->c, &groups);
  // Costs are linear: a start, and a time per byte.
  double start = groups_cost(t->traffic, prim, &groups, 0, 0).seconds;
  double more = groups_cost(t->traffic, prim, &groups, 1e9, 1e9).seconds - start;
  vec_push(t->arena, &t->rates, (Rate){prim, mesh, axes, start, more / 1e9});
  return &t->rates.at[t->rates.n - 1];
}

double transition_collective(Transitions *t, OpKind kind, const Type *whole, const Layout *before,
                             const Layout *after, uint32_t axes) {
  PathPrim prim = path_prim_of(kind);
  if (prim == PATH_slice) return 0;
  const Rate *r = rate_of(t, prim, before->mesh, axes);
  // A gather counts the bytes of its result, others those of their operand.
  const Layout *l = path_grows(prim) ? after : before;
  const Type *piece = type_local(t->m, whole, l);
  double bytes = (double)type_count(piece) * (double)dtype_bytes[piece->dtype];
  return r->start + r->byte * bytes;
}
