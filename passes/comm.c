// Communication: makes every operand lie the way its op wants it, and types local.
//
//     %g = linear_back_w %x, %d : f32[4,6] {P} split=[0]
//     %w1 = sgd %w, %g, %lr, %s : f32[4,6] {B}
//
//   =>
//
//     %g = linear_back_w %x, %d : f32[4,6] {P} split=[0]
//     %0 = all_reduce %g axis=dp : f32[4,6] {B}
//     %w1 = sgd %w, %0, %lr, %s : f32[4,6] {B}
//
// For each operand whose value has layout A while the op wants B, one op per mesh axis is inserted
// right after the value, and shared by every later reader that wants the same:
//
//     P -> B           all_reduce; on an axis bound to time, accumulate
//     S -> B           all_gather
//     B -> S           local_slice (of a fill: a smaller fill)
//     P -> S           reduce_scatter  \  in one hop, or
//     S(i) -> S(j)     all_to_all      /  through B
//     other            through B
//
// Where two axes cut one dimension, rows gathered along the outer one first would be out of order:
// gathering goes from the inside out, slicing from the outside in.  So a hop to S(j) is taken only
// where no axis inside cuts j and those outside that cut it are the ones that are wanted to.
//
// A hop moves half the bytes of an all_reduce, or of an all_gather one part of n.  But where
// another reader wants the whole value the slice comes for nothing.  So both ways of all that is
// wanted of a value are added up, and the cheaper is taken.
//
// Time axes come first in a mesh, so partial sums are added up over micro-batches before they are
// added up over ranks.  An op that is repeated for every micro-batch cannot read what is known only
// after the last one: that is an op that couples rows of different micro-batches, and an error.
//
// A value with readers on another mesh goes over a cluster (transition.h), and so does every value
// where the option `cluster` says over which one.  Then each way has its price in seconds, and all
// that is wanted of a value, by forward and by backward, is chosen together: what was made for one
// reader may go on to another (ways.h).  Within a mesh the price is the lesser of those of the ops
// above and of the path's.
//
// That is all that there is to choose together.  Layouts were chosen before; a gradient is a value
// of its own, whose layout and whose readers' do not depend on the way that the forward value took;
// and no op here moves two values.  So the sum over all values is least when that of each value is.
//
// Nothing is merged or moved here; see pack_grads.c.

#include <math.h>

#include "base/vec.h"
#include "ir/op.h"
#include "ir/split.h"
#include "part.h"
#include "pass.h"
#include "transition.h"
#include "ways.h"

// A value moved to another layout, kept for later readers: of a weight for those of one part of the
// step, so that what is gathered for the model is gathered again for its gradients.
typedef struct Moved {
  const Layout *layout;
  Part part;
  Value *value;
  struct Moved *next;
} Moved;

// Whether values go in one hop where they can, by what they are before.
typedef enum Hops { NO_HOPS = 0, SUMS_HOP = 1, SLICES_HOP = 2, ALL_HOP = 3, UNDECIDED = 4 } Hops;

typedef struct Comm {
  Module *m;
  Graph *g;
  Arena *scratch;
  Diag *d;
  const Dims *dims_of; // by id of the original op
  Moved **moved;       // by id of the original value
  Hops *hops;          // the same
  const char *cluster; // what ways cost, or NULL
  Transitions *paths;  // NULL until one is wanted
  Transitions *joined; // the same where neither starts nor hops take time
  struct Tree **trees; // by id of the original value: its ways over the cluster
  uint32_t n_ops;      // before there were others
  int64_t inserted;
} Comm;

// Where the value is moved: right after it; a weight only where it is wanted, so that it is whole
// no longer than that.
static Op *place_of(const Value *v, Op *reader) {
  return v->def ? v->def->next : v->role == ROLE_weight && reader ? reader : v->graph->first;
}

static bool is_time(const Layout *l, int axis) {
  return l->mesh->axis[axis].time;
}

static const Layout *with_axis(const Comm *c, const Layout *l, int axis, Sbp sbp) {
  Sbp all[MAX_AXES];
  for (int a = 0; a < l->n_axes; a++)
    all[a] = l->axis[a];
  all[axis] = sbp;
  return layout_new(c->m, l->mesh, all);
}

// The op of the forward pass that `op` was made for.
static const Op *forward_op(const Comm *c, const Op *op) {
  const Loc *origin = loc_origin(op->loc);
  for_each_op(o, c->g)
    if (origin && o->loc == origin) return o;
  return op;
}

static bool cannot_cut(Comm *c, const Op *reader) {
  diag_error(c->d, reader->loc,
             "%s couples rows of the batch, so the batch cannot be cut into micro-batches",
             op_info[forward_op(c, reader)->kind].name);
  diag_hint(c->d, "compile without --accumulate and --micro-batches; ranks are no hindrance");
  return false;
}

// One change along one axis, of `v` (local already) for `reader`.
static Value *move_axis(Comm *c, Value *v, int axis, Sbp to, Op *reader) {
  Sbp from = v->layout->axis[axis];
  const MeshAxis *along = &v->layout->mesh->axis[axis];
  const char *name = along->name;
  const Loc *loc = reader ? reader->loc : v->loc;
  Builder b = {.g = c->g, .at = place_of(v, reader), .d = c->d};
  Value *out;
  if (from.kind == SBP_P && to.kind == SBP_S) {
    b.loc = loc_from(c->m->arena, loc, "reduce_scatter");
    out = build(&b, OP_reduce_scatter, IN(v), ATTRS(a_s("axis", name), a_i("dim", to.dim)));
  } else if (from.kind == SBP_P) {
    OpKind kind = along->time ? OP_accumulate : OP_all_reduce;
    b.loc = loc_from(c->m->arena, loc, op_info[kind].name);
    out = build(&b, kind, IN(v), ATTRS(a_s("axis", name)));
  } else if (from.kind == SBP_S && along->time) {
    cannot_cut(c, reader);
    return NULL;
  } else if (from.kind == SBP_S && to.kind == SBP_S) {
    b.loc = loc_from(c->m->arena, loc, "all_to_all");
    out = build(&b, OP_all_to_all, IN(v),
                ATTRS(a_s("axis", name), a_i("from", from.dim), a_i("to", to.dim)));
  } else if (from.kind == SBP_S) {
    b.loc = loc_from(c->m->arena, loc, "all_gather");
    out = build(&b, OP_all_gather, IN(v), ATTRS(a_s("axis", name), a_i("dim", from.dim)));
  } else if (v->def && v->def->kind == OP_fill) {
    Type t = *v->type;
    t.dim[to.dim] /= along->size;
    b.loc = v->def->loc;
    out = build_fill(&b, t.dtype, t.rank, t.dim, attr_f(v->def, "value"));
  } else {
    b.loc = loc_from(c->m->arena, loc, "local_slice");
    out = build(&b, OP_local_slice, IN(v), ATTRS(a_s("axis", name), a_i("dim", to.dim)));
  }
  if (!out) return NULL;
  out->layout = with_axis(c, v->layout, axis, to);
  c->inserted++;
  return out;
}

// Axes that cut the same dimension are nested, the first outermost, so a slice is only taken back
// when none lies inside it: whether `axis`, along which `have` is cut, must be gathered because it
// is not wanted or because something outside of it changes.
static bool must_gather(const Layout *have, const Layout *want, int axis) {
  Sbp cut = have->axis[axis];
  if (cut.kind != SBP_S) return false;
  for (int a = 0; a <= axis; a++)
    if (sbp_equal(have->axis[a], cut) != sbp_equal(want->axis[a], cut)) return true;
  return false;
}

// The axis to change first: sums, then gathering from the inside out, then slicing from the outside
// in.
static int next_axis(const Layout *have, const Layout *want) {
  for (int a = 0; a < have->n_axes; a++)
    if (have->axis[a].kind == SBP_P && want->axis[a].kind != SBP_P) return a;
  for (int a = have->n_axes - 1; a >= 0; a--)
    if (must_gather(have, want, a)) return a;
  int a = 0;
  while (sbp_equal(have->axis[a], want->axis[a]))
    a++;
  return a;
}

// Whether `axis`, which is P or S(i), may become the S(j) that it is wanted to be without being B
// between.  (What else cuts i inside of it next_axis has gathered.)
static bool may_hop(const Layout *have, const Layout *want, int axis) {
  Sbp to = want->axis[axis];
  if (to.kind != SBP_S || is_time(have, axis)) return false;
  for (int a = 0; a < have->n_axes; a++) {
    bool cuts = sbp_equal(have->axis[a], to);
    if (a < axis && cuts != sbp_equal(want->axis[a], to)) return false;
    if (a > axis && cuts) return false;
  }
  return true;
}

typedef struct Step {
  int axis;
  const Layout *layout; // after it
} Step;

static Step next_step(const Comm *c, const Layout *have, const Layout *want, Hops hops) {
  int axis = next_axis(have, want);
  Sbp from = have->axis[axis];
  int hop = from.kind == SBP_P ? SUMS_HOP : SLICES_HOP;
  bool at_once = from.kind == SBP_B || ((hops & hop) && may_hop(have, want, axis));
  Sbp to = at_once ? want->axis[axis] : (Sbp){.kind = SBP_B};
  return (Step){axis, with_axis(c, have, axis, to)};
}

static const Layout *wanted(const Comm *c, const Op *op, int i) {
  const Layout *have = op->in[i].value->layout;
  const Mesh *mesh = op_mesh(op);
  Sbp axis[MAX_AXES], whole = {.kind = SBP_B};
  for (int a = 0; mesh && a < mesh->n_axes; a++)
    axis[a] =
        split_wants(op, &c->dims_of[op->id], i, a, have->mesh == mesh ? have->axis[a] : whole);
  return layout_new(c->m, mesh, axis);
}

// Outputs are whole sums; what becomes of a parameter lies as the parameter does.
static const Layout *wanted_result(const Comm *c, const Result *r) {
  const Layout *want = r->target ? r->target->layout : r->use.value->layout;
  for (int a = 0; a < want->n_axes; a++)
    if (want->axis[a].kind == SBP_P) want = with_axis(c, want, a, (Sbp){.kind = SBP_B});
  return want;
}

// -- Which hops pay ----------------------------------------------------------------------------

typedef struct Price {
  double elements; // that a rank sends
  int ops;
} Price;

typedef struct Estimate {
  const Comm *c;
  const Type *whole;
  const Layout *from;
  Hops hops;
  Vec(const Layout *) made;
  Price price;
} Estimate;

static double sent(const Estimate *e, const Layout *before, const Step *s) {
  const Comm *c = e->c;
  Sbp from = before->axis[s->axis], to = s->layout->axis[s->axis];
  if (from.kind == SBP_B || is_time(before, s->axis)) return 0;
  double n = before->mesh->axis[s->axis].size;
  double part = (double)type_count(type_local(c->m, e->whole, before)) / n;
  return (n - 1) * part * (to.kind == SBP_S ? 1 : from.kind == SBP_P ? 2 : n);
}

// What is on the way to `want` and was not made for another.
static void add_way(Estimate *e, const Layout *want) {
  if (want->mesh != e->from->mesh) return;
  for (const Layout *have = e->from; have != want;) {
    Step s = next_step(e->c, have, want, e->hops);
    bool made = false;
    for (int i = 0; i < e->made.n; i++)
      made |= e->made.at[i] == s.layout;
    if (!made) {
      e->price.elements += sent(e, have, &s);
      e->price.ops++;
      vec_push(e->c->scratch, &e->made, s.layout);
    }
    have = s.layout;
  }
}

// Of all that readers want of `v`, which none of them has got yet.
static Price price_of(const Comm *c, const Value *v, Hops hops) {
  Estimate e = {.c = c, .from = v->layout, .hops = hops};
  e.whole = type_whole(c->m, v->type, v->layout);
  for_each_use(u, v) {
    const Op *op = u->user;
    for (int i = 0; op && i < op->n_in; i++)
      if (op->in[i].value == v) add_way(&e, wanted(c, op, i));
  }
  for (int i = 0; i < c->g->n_results; i++)
    if (c->g->results[i]->use.value == v) add_way(&e, wanted_result(c, c->g->results[i]));
  return e.price;
}

static Hops best_hops(const Comm *c, const Value *v) {
  Hops best = NO_HOPS;
  Price least = price_of(c, v, best);
  for (Hops hops = SUMS_HOP; hops <= ALL_HOP; hops++) {
    Price p = price_of(c, v, hops);
    if (p.elements > least.elements || (p.elements == least.elements && p.ops >= least.ops))
      continue;
    best = hops;
    least = p;
  }
  return best;
}

// -- Moving ------------------------------------------------------------------------------------

static bool is_weight(const Value *v) {
  while (v->def && v->def->kind == OP_cast)
    v = v->def->in[0].value;
  return !v->def && v->role == ROLE_weight;
}

static Value *moved_before(const Comm *c, uint32_t original, const Layout *want, Part part) {
  for (Moved *k = c->moved[original]; k; k = k->next)
    if (k->layout == want && k->part == part) return k->value;
  return NULL;
}

static Value *remember(Comm *c, uint32_t original, Part part, Value *v) {
  Moved *k = arena_one(c->scratch, Moved);
  *k = (Moved){.layout = v->layout, .part = part, .value = v, .next = c->moved[original]};
  return (c->moved[original] = k)->value;
}

// The part of the step that what `reader` has moved is for.
static Part part_of(const Value *v, const Op *reader) {
  return is_weight(v) && reader ? op_part(reader) : PART_forward;
}

// `v`, made of the original, as it is wanted: axis by axis, or as an earlier reader had it moved.
static Value *moved_by(Comm *c, uint32_t original, Part part, Value *v, const Layout *want,
                       Hops hops, Op *reader) {
  while (v->layout != want) {
    Step s = next_step(c, v->layout, want, hops);
    Value *next = moved_before(c, original, s.layout, part);
    if (!next) {
      next = move_axis(c, v, s.axis, s.layout->axis[s.axis], reader);
      if (!next) return NULL;
      remember(c, original, part, next);
    }
    v = next;
  }
  return v;
}

static Value *moved_to(Comm *c, Value *v, const Layout *want, Op *reader) {
  if (v->layout != want && c->hops[v->id] == UNDECIDED) c->hops[v->id] = best_hops(c, v);
  return moved_by(c, v->id, part_of(v, reader), v, want, c->hops[v->id], reader);
}

// -- Over a cluster ------------------------------------------------------------------------------

// The ways of a value to all that is wanted of it: each layout is reached from another one of them,
// or from the value as it is.
typedef struct Tree {
  const Value *from; // the value, accumulated over time if that is wanted
  Part part;
  bool is_summed; // for the update only: pack_grads joins its collectives with those of others
  Vec(const Layout *) layouts;
  int *parent;       // of each of them; -1: the value
  struct Tree *next; // of the same original
} Tree;

typedef struct Pricing {
  Comm *c;
  const Tree *tree;
  const Type *whole;
} Pricing;

static OpKind kind_of_step(Sbp from, Sbp to) {
  if (from.kind == SBP_P) return to.kind == SBP_S ? OP_reduce_scatter : OP_all_reduce;
  if (from.kind == SBP_B) return OP_local_slice;
  return to.kind == SBP_S ? OP_all_to_all : OP_all_gather;
}

// Axis by axis within the mesh, with those collectives together that fuse_comm will join.
static double own_seconds(Comm *c, const Type *whole, const Layout *from, const Layout *want,
                          Hops hops, Transitions *prices) {
  double sum = 0;
  for (const Layout *have = from; have != want;) {
    Step s = next_step(c, have, want, hops), next = s;
    Sbp before = have->axis[s.axis], after = s.layout->axis[s.axis];
    OpKind kind = kind_of_step(before, after);
    uint32_t axes = 0;
    const Layout *first = have;
    do {
      axes |= 1u << next.axis;
      have = next.layout;
      if (have == want || kind == OP_all_to_all) break;
      next = next_step(c, have, want, hops);
    } while (sbp_equal(have->axis[next.axis], before) &&
             sbp_equal(next.layout->axis[next.axis], after));
    sum += transition_collective(prices, kind, whole, first, have, axes);
  }
  return sum;
}

// The cheapest of the ways within a mesh, and how it hops.  A sum for the update is one of many
// that start together, so that axis by axis it costs no more than its bytes.  NO_WAY to another
// mesh, and where the path is cheaper.
enum { NO_WAY = -1 };

static double best_seconds(Comm *c, const Tree *t, const Type *whole, const Layout *from,
                           const Layout *want, int *out_hops) {
  double best = transition_seconds(c->paths, whole, from, want) * (1 - 1e-9);
  *out_hops = NO_WAY;
  for (Hops hops = NO_HOPS; from->mesh == want->mesh && hops <= ALL_HOP; hops++) {
    double seconds = own_seconds(c, whole, from, want, hops, t->is_summed ? c->joined : c->paths);
    if (seconds > (*out_hops == NO_WAY ? best * (1 + 2e-9) : best * (1 - 1e-9))) continue;
    best = seconds;
    *out_hops = (int)hops;
  }
  return best;
}

static double tree_cost(void *context, int from, int to) {
  const Pricing *p = context;
  int hops;
  const Layout *before = from < 0 ? p->tree->from->layout : p->tree->layouts.at[from];
  return best_seconds(p->c, p->tree, p->whole, before, p->tree->layouts.at[to], &hops);
}

// `have`, but cut over time as `want` is.
static const Layout *timed_as(const Comm *c, const Layout *have, const Layout *want) {
  const Layout *l = have;
  for (int a = 0; a < have->n_axes; a++) {
    if (!is_time(have, a)) continue;
    Sbp sbp = {.kind = SBP_B};
    for (int k = 0; k < want->n_axes; k++)
      if (is_time(want, k)) sbp = want->axis[k];
    l = with_axis(c, l, a, sbp);
  }
  return l;
}

static void add_layout(Comm *c, Tree *t, const Layout *l) {
  for (int i = 0; i < t->layouts.n; i++)
    if (t->layouts.at[i] == l) return;
  if (l != t->from->layout) vec_push(c->scratch, &t->layouts, l);
}

// What is wanted of the original where it is cut over time as the tree's value is.
static void add_wanted(Comm *c, Tree *t, const Value *original, const Layout *want) {
  if (timed_as(c, original->layout, want) == t->from->layout) add_layout(c, t, want);
}

static bool is_update(const Op *op) {
  return op && op_part(op) == PART_update;
}

static void add_all_wanted(Comm *c, Tree *t, const Value *original) {
  t->is_summed = original->uses != NULL;
  for_each_use(u, original) {
    const Op *op = u->user;
    if (!op || op->id >= c->n_ops || part_of(original, op) != t->part) continue;
    t->is_summed &= is_update(op) || is_update(original->def);
    for (int i = 0; i < op->n_in; i++)
      if (op->in[i].value == original) add_wanted(c, t, original, wanted(c, op, i));
  }
  for (int i = 0; i < c->g->n_results; i++) {
    const Result *r = c->g->results[i];
    if (r->use.value == original && part_of(original, original->def) == t->part)
      add_wanted(c, t, original, wanted_result(c, r));
  }
}

// What may be worth a visit: sums added up, on every mesh, and everything on every device.
static void add_between(Comm *c, Tree *t) {
  for (int i = -1, n = t->layouts.n; i < n; i++) {
    const Layout *sum = i < 0 ? t->from->layout : t->layouts.at[i], *all = sum;
    for (int a = 0; a < sum->n_axes; a++) {
      if (is_time(sum, a)) continue;
      if (sum->axis[a].kind == SBP_P) sum = with_axis(c, sum, a, (Sbp){.kind = SBP_B});
      all = with_axis(c, all, a, (Sbp){.kind = SBP_B});
    }
    add_layout(c, t, sum);
    add_layout(c, t, all);
  }
}

static Tree *tree_of(Comm *c, const Value *original, const Value *from, Part part) {
  for (Tree *t = c->trees[original->id]; t; t = t->next)
    if (t->from == from && t->part == part) return t;
  Tree *t = arena_one(c->scratch, Tree);
  *t = (Tree){.from = from, .part = part, .next = c->trees[original->id]};
  add_all_wanted(c, t, original);
  int n_wanted = t->layouts.n;
  add_between(c, t);
  Pricing p = {c, t, type_whole(c->m, from->type, from->layout)};
  t->parent = arena_array(c->scratch, int, t->layouts.n);
  ways_choose(c->scratch, n_wanted, t->layouts.n, tree_cost, &p, t->parent);
  return c->trees[original->id] = t;
}

static bool open_paths(Comm *c) {
  if (c->paths) return true;
  const Cluster *cluster =
      cluster_read(c->scratch, c->cluster ? c->cluster : "h100", "cluster", c->d);
  if (!cluster) return false;
  Cluster *joined = arena_copy(c->scratch, cluster, sizeof *cluster);
  joined->start = joined->inside.alpha = joined->across.alpha = 0;
  c->paths = transitions_new(c->m, cluster, c->scratch);
  c->joined = transitions_new(c->m, joined, c->scratch);
  return true;
}

// The i-th layout of the tree, made if nobody wanted it before.
static Value *grown(Comm *c, uint32_t original, const Tree *t, int i, Value *from, Op *reader) {
  if (i < 0) return from;
  Value *known = moved_before(c, original, t->layouts.at[i], t->part);
  if (known) return known;
  Value *v = grown(c, original, t, t->parent[i], from, reader);
  if (!v) return NULL;
  int hops;
  const Type *whole = type_whole(c->m, v->type, v->layout);
  best_seconds(c, t, whole, v->layout, t->layouts.at[i], &hops);
  if (hops != NO_WAY)
    return moved_by(c, original, t->part, v, t->layouts.at[i], (Hops)hops, reader);
  Builder b = {.g = c->g, .at = place_of(v, reader), .d = c->d};
  b.loc = loc_from(c->m->arena, reader ? reader->loc : v->loc, "move");
  v = transition(c->paths, &b, v, t->layouts.at[i]);
  return v ? remember(c, original, t->part, v) : NULL;
}

static Value *carried_to(Comm *c, Value *original, const Layout *want, Op *reader) {
  Part part = part_of(original, reader);
  Value *known = moved_before(c, original->id, want, part);
  if (known) return known;
  const Layout *timed = timed_as(c, original->layout, want);
  Value *v = moved_by(c, original->id, part, original, timed, NO_HOPS, reader);
  if (!v || !open_paths(c)) return NULL;
  Tree *t = tree_of(c, original, v, part);
  int i = t->layouts.n - 1;
  while (i >= 0 && t->layouts.at[i] != want)
    i--;
  return grown(c, original->id, t, i, v, reader);
}

// Whether anybody wants the value on another mesh.
static bool is_carried(const Comm *c, const Value *v) {
  if (c->cluster || c->trees[v->id]) return true;
  for_each_use(u, v)
    if (u->user && op_mesh(u->user) != v->layout->mesh) return true;
  for (int i = 0; i < c->g->n_results; i++) {
    const Result *r = c->g->results[i];
    if (r->use.value == v && wanted_result(c, r)->mesh != v->layout->mesh) return true;
  }
  return false;
}

static Value *brought_to(Comm *c, Value *v, const Layout *want, Op *reader) {
  if (v->layout == want) return v;
  return is_carried(c, v) ? carried_to(c, v, want, reader) : moved_to(c, v, want, reader);
}

// An attribute `shape` says the shape of result 0, so it becomes the local one.
static void localise_shape(const Comm *c, Op *op) {
  if (!op_has_attr(op, "shape")) return;
  const Type *t = type_local(c->m, op->out[0]->type, op->out[0]->layout);
  op_set_attr(op, a_list("shape", t->dim, t->rank));
}

static bool localise_op(Comm *c, Op *op) {
  for (int i = 0; i < op->n_in; i++) {
    const Layout *want = wanted(c, op, i);
    Value *v = brought_to(c, op->in[i].value, want, op);
    if (!v) return false;
    if (v != op->in[i].value) op_set_in(op, i, v);
  }
  localise_shape(c, op);
  return op_retype(op, c->d);
}

static bool localise_results(Comm *c) {
  for (int i = 0; i < c->g->n_results; i++) {
    Result *r = c->g->results[i];
    Value *v = r->use.value;
    const Layout *want = wanted_result(c, r);
    if (want == v->layout) continue;
    Value *moved = brought_to(c, v, want, v->def);
    if (!moved) return false;
    graph_set_result(c->g, i, moved);
  }
  return true;
}

// An op repeated for every micro-batch must not read what is known after the last one.
static bool check_time(Comm *c) {
  graph_renumber(c->g);
  bool *late = arena_array(c->scratch, bool, c->g->n_values);
  for_each_op(op, c->g) {
    const Op *source = NULL;
    for (int i = 0; i < op->n_in; i++)
      if (late[op->in[i].value->id]) source = op;
    bool repeated = false;
    for (int i = 0; i < op->n_in; i++) {
      const Layout *l = op->in[i].value->layout;
      for (int a = 0; a < l->n_axes; a++)
        repeated |= is_time(l, a) && l->axis[a].kind != SBP_B;
    }
    if (source && repeated) return cannot_cut(c, op);
    for (int i = 0; i < op->n_out; i++)
      late[op->out[i]->id] = source || value_accumulates(op->out[i]);
  }
  return true;
}

static bool localise_graph(Comm *c) {
  Graph *g = c->g;
  graph_renumber(g);
  c->moved = arena_array(c->scratch, Moved *, g->n_values);
  c->hops = arena_array(c->scratch, Hops, g->n_values);
  for (uint32_t i = 0; i < g->n_values; i++)
    c->hops[i] = UNDECIDED;
  Dims *dims_of = arena_array(c->scratch, Dims, g->n_ops);
  for_each_op(op, g)
    if (!op_dims(op, &dims_of[op->id], c->d)) return false;
  c->dims_of = dims_of;
  for (int i = 0; i < g->n_params; i++)
    g->params[i]->type = type_local(c->m, g->params[i]->type, g->params[i]->layout);
  // Ops that are inserted come right after values already seen, and are local as they are made.
  c->trees = arena_array(c->scratch, Tree *, g->n_values);
  c->n_ops = g->n_ops;
  for_each_op_safe(op, g)
    if (op->id < c->n_ops && !localise_op(c, op)) return false;
  return localise_results(c) && check_time(c);
}

bool pass_comm(Module *m, const PassOptions *o, Diag *d) {
  Comm c = {.m = m, .scratch = opt_scratch(o), .d = d, .cluster = opt_str(o, "cluster")};
  for_each_graph(g, m) {
    c.g = g;
    if (g->entry && !localise_graph(&c)) return false;
  }
  module_drop_meshes(m); // of ways that were joined
  opt_stat(o, c.inserted, "ops inserted");
  return true;
}
