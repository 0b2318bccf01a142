// See borders.h.
//
// Costs of kernels first, op by op; then those of values: each with the layout that its op gives
// it, and those that its readers want. Reshards between two layouts are priced once, as layers
// repeat them. Gradients that updates read are summed after the loop.

#include "borders.h"

#include <math.h>

#include "base/vec.h"
#include "cost/cost.h"
#include "ir/analysis/loops.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "overlap/bucket_grads.h"
#include "planner/search/prices.h"
#include "planner/search/value_layouts.h"

typedef struct Pricer {
  const Sharding *s;
  int axis;
  const Units *units;
  const Loads *loads;
  const Partition *p;
  Chain *out;
  Arena *arena;
  Problem prices; // for reshard_seconds
  Mesh *mesh;     // of the first stage
  bool *late;     // by op id: only gradients of weights depend on this op of backward
  Vec(Transfer) transfers;
} Pricer;

static int unit_of(const Pricer *b, const Op *op) {
  return b->units->of_op[op->id];
}

// -- Layouts -------------------------------------------------------------------------------------

// The mesh of one rank of the axis.
static Mesh *stage_mesh(const Sharding *s, int axis) {
  const Mesh *all = s->mesh;
  Mesh *m = arena_one(s->g->module->arena, Mesh);
  *m = *all;
  int inner = 1, n = 0;
  for (int a = axis + 1; a < all->n_axes; a++)
    if (!all->axis[a].time) inner *= all->axis[a].size;
  m->axis[axis].size = 1;
  m->n_devices = all->n_devices / all->axis[axis].size;
  m->device = arena_array(s->g->module->arena, int, m->n_devices);
  for (int i = 0; i < all->n_devices; i++)
    if (i / inner % all->axis[axis].size == 0) m->device[n++] = all->device[i];
  return m;
}

// Whether layouts along the axis are decided, and concern devices of a stage.
static bool is_inner(const Pricer *b, int a) {
  return a != b->axis && !b->s->mesh->axis[a].time && b->s->decisions.final[a];
}

static const Layout *layout_of(const Pricer *b, const Value *v) {
  Sbp sbp[MAX_AXES] = {{0}};
  for (int a = 0; a < b->mesh->n_axes; a++)
    if (is_inner(b, a)) sbp[a] = b->s->decisions.layout[v->id][a];
  return layout_new(b->s->g->module, b->mesh, sbp);
}

static const Layout *layout_wanted(const Pricer *b, const Op *op, int i) {
  const Sbp *have = b->s->decisions.layout[op->in[i].value->id];
  Sbp sbp[MAX_AXES] = {{0}};
  for (int a = 0; a < b->mesh->n_axes; a++)
    if (is_inner(b, a)) sbp[a] = split_wants(op, dims_of(b->s, op), i, a, have[a]);
  return layout_new(b->s->g->module, b->mesh, sbp);
}

// The largest dimension that one more axis can split; -1: none.
static int free_dim(const Pricer *b, const Type *type, const Sbp *sbp, int axis) {
  int best = -1;
  for (int d = 0; d < type->ndim; d++) {
    int64_t parts = b->mesh->axis[axis].size * (d == 0 ? b->prices.slices : 1);
    for (int a = 0; a < b->mesh->n_axes; a++)
      if (sbp[a].kind == SBP_S && sbp[a].dim == d) parts *= b->mesh->axis[a].size;
    if (type->dim[d] % parts) continue;
    if (best < 0 || type->dim[d] > type->dim[best]) best = d;
  }
  return best;
}

// The layout in which a value crosses a border: in parts, where it is copied or will be. `copies`:
// ranks that have and want the same copy send all of it.
static const Layout *crossing(const Pricer *b, const Type *type, const Layout *from,
                              const Layout *to, bool copies) {
  Sbp sbp[MAX_AXES] = {{0}};
  for (int a = 0; a < from->n_axes; a++)
    if (from->axis[a].kind == SBP_S) sbp[a] = from->axis[a];
  for (int a = 0; a < from->n_axes; a++) {
    if (!is_inner(b, a) || from->axis[a].kind == SBP_S || b->mesh->axis[a].size == 1) continue;
    bool whole = from->axis[a].kind == SBP_B && to->axis[a].kind == SBP_B;
    if (to->axis[a].kind == SBP_S) {
      sbp[a] = to->axis[a];
    } else if (!whole || !copies) {
      int dim = free_dim(b, type, sbp, a);
      if (dim >= 0) sbp[a] = (Sbp){.kind = SBP_S, .dim = dim};
    }
  }
  return layout_new(b->s->g->module, b->mesh, sbp);
}

// -- Seconds -------------------------------------------------------------------------------------

static double reshard_slice(Pricer *b, const Type *type, const Layout *from, const Layout *to) {
  if (from == to) return 0;
  double seconds = reshard_seconds(&b->prices, type, from, to, BY_SLICE);
  return isfinite(seconds) ? seconds / (double)b->prices.slices : 0;
}

// Once in a step; small values share the start of a bucket.
static double reshard_once(Pricer *b, const Type *type, const Layout *from, const Layout *to) {
  if (from == to) return 0;
  bool packed = (double)type_bytes(type) / parts_of(to) < PACK_BUCKET;
  double seconds = reshard_seconds(&b->prices, type, from, to, packed ? WITH_OTHERS : AT_ONCE);
  return isfinite(seconds) ? seconds : 0;
}

// The work of a kernel, or of its part of a fused one.
static OpWork fused_work(const Pricer *b, const Op *op) {
  OpWork w = op_work(op, dims_of(b->s, op));
  if (!op_is_elementwise(op)) return w;
  double all = 0, there = 0;
  bool stored = false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    double bytes = (double)type_bytes(v->type);
    all += bytes;
    if (!v->def || !loads_is_fused(v)) there += bytes;
  }
  for (int i = 0; i < op->n_out; i++)
    stored |= !loads_is_fused(op->out[i]);
  for (int i = 0; i < w.n; i++) {
    if (all > 0) w.part[i].read *= there / all;
    if (!stored) w.part[i].written = 0;
  }
  if (!stored) w.launches = 0;
  return w;
}

static void add_seconds(const Pricer *b, double *of_unit, int unit, double seconds) {
  for (int s = 0; s < b->p->n_runs; s++)
    of_unit[unit * b->p->n_runs + s] += seconds;
}

// Adds the seconds of a kernel; of a step, or of a micro-batch.
static void add_kernel(const Pricer *b, double *of_unit, int unit, const Op *op, double slices) {
  const Dims *dims = dims_of(b->s, op);
  OpWork w = fused_work(b, op);
  Cut cut = op_cut(op, dims);
  double seconds = 0;
  for (int s = 0; s < b->p->n_runs; s++) {
    if (!s || b->loads->class_of[s] != b->loads->class_of[s - 1])
      seconds = work_seconds_in(&b->loads->device[s], &w, &cut, slices) / slices;
    of_unit[unit * b->p->n_runs + s] += seconds;
  }
}

// -- Kernels -------------------------------------------------------------------------------------

// Finds the ops of backward that serve a single gradient of a weight, as segments.h has them.
static void find_late(Pricer *b) {
  const Graph *g = b->s->g;
  b->late = arena_array(b->arena, bool, g->n_ops);
  // By op id, the op that computes that gradient; `many` of several.
  const Op **serves = arena_array(b->arena, const Op *, g->n_ops);
  static const Op many;
  for (const Op *op = g->last; op; op = op->prev) {
    const Op **own = &serves[op->id];
    for (int i = 0; i < op->n_out && op_part(op) == PART_backward; i++)
      for_each_use(u, op->out[i]) {
        const Op *to = !u->user                          ? &many
                       : op_part(u->user) == PART_update ? op
                                                         : serves[u->user->id];
        *own = !*own || *own == to ? to : &many;
      }
    b->late[op->id] = *own && *own != &many;
  }
}

// Adds seconds after the loop to the unit of a weight, or to the units that share it.
static void add_sums(Pricer *b, const Value *weight, double seconds) {
  int unit = b->loads->unit_of[weight->id];
  if (unit >= 0)
    add_seconds(b, b->out->sums, unit, seconds);
  else if (unit != UNIT_none)
    b->out->shared[-3 - unit] += seconds;
}

static const Value *updated_weight(const Op *op) {
  for (int i = 0; i < op->n_in; i++)
    if (!op->in[i].value->def && op->in[i].value->role == ROLE_weight) return op->in[i].value;
  return NULL;
}

static void add_kernels(Pricer *b) {
  for_each_op(op, b->s->g) {
    int unit = unit_of(b, op);
    if (op_part(op) == PART_update) {
      const Value *weight = updated_weight(op);
      if (!weight) continue;
      OpWork w = op_work(op, dims_of(b->s, op));
      Cut cut = op_cut(op, dims_of(b->s, op));
      add_sums(b, weight, work_seconds_in(&b->loads->device[0], &w, &cut, 1));
    } else if (unit >= 0) {
      Chain *c = b->out;
      double *to = op_part(op) == PART_forward ? c->forward
                   : b->late[op->id]           ? c->weights
                                               : c->backward;
      add_kernel(b, to, unit, op, (double)b->prices.slices);
    }
  }
}

// -- Values --------------------------------------------------------------------------------------

// The readers of a value in units, with the layouts that they want.
typedef struct Readers {
  int n, n_wants;
  int *unit, *want;
  bool *back; // the reader is in backward
  const Layout *layout[MAX_WANTS];
} Readers;

static Readers readers_of(const Pricer *b, const Value *v) {
  Readers r = {0};
  for_each_use(u, v)
    r.n++;
  r.unit = arena_array(b->arena, int, r.n);
  r.want = arena_array(b->arena, int, r.n);
  r.back = arena_array(b->arena, bool, r.n);
  r.n = 0;
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op || op_part(op) == PART_update || unit_of(b, op) < 0) continue;
    const Layout *want = layout_wanted(b, op, u->index);
    int w = 0;
    while (w < r.n_wants && r.layout[w] != want)
      w++;
    if (w == MAX_WANTS) continue;
    if (w == r.n_wants) r.layout[r.n_wants++] = want;
    r.unit[r.n] = unit_of(b, op);
    r.want[r.n] = w;
    r.back[r.n++] = op_part(op) == PART_backward;
  }
  return r;
}

static Want price_want(Pricer *b, const Type *type, const Layout *from, const Layout *to,
                       const Layout **via) {
  Want best = {0};
  double here = reshard_slice(b, type, from, to), least = INFINITY;
  // Copies go as a whole, or in parts.
  for (int copies = 0; copies < 2; copies++) {
    const Layout *cross = crossing(b, type, from, to, copies);
    if (copies && cross == *via) continue;
    Want w = {here,
              reshard_slice(b, type, from, cross),
              reshard_slice(b, type, cross, to),
              0,
              -1,
              (double)type_bytes(type) / parts_of(cross) / (double)b->prices.slices};
    double seconds = w.sent + w.got;
    if (b->p->n_runs > 1) seconds += w.bytes * b->p->by_whole[1];
    if (seconds >= least) continue;
    least = seconds;
    best = w;
    *via = cross;
  }
  return best;
}

static void add_transfer(Pricer *b, const Value *v, int from, const Layout *have,
                         const Readers *r) {
  Want *at = arena_array(b->arena, Want, r->n_wants);
  const Layout *via[MAX_WANTS] = {NULL};
  for (int w = 0; w < r->n_wants; w++) {
    at[w] = price_want(b, v->type, have, r->layout[w], &via[w]);
    at[w].via = w;
    for (int k = w - 1; k >= 0; k--)
      if (via[k] == via[w]) at[w].via = k;
    for (int k = 0; k < r->n_wants; k++)
      if (r->layout[k] == via[w]) at[w].same = k;
  }
  bool back = op_part(v->def) == PART_backward;
  vec_push(b->arena, &b->transfers, (Transfer){from, back, r->n, r->unit, r->want, r->n_wants, at});
}

// Adds reshards of a value that are in the loop.
static void add_value(Pricer *b, const Value *v) {
  int from = v->def ? unit_of(b, v->def) : UNIT_none;
  const Layout *have = layout_of(b, v);
  Readers r = readers_of(b, v);
  bool leaves = false;
  for (int i = 0; i < r.n; i++)
    leaves |= r.unit[i] != from;
  if (from >= 0 && leaves) {
    add_transfer(b, v, from, have, &r);
    return;
  }
  // Each unit reshards it for itself: a weight in each micro-batch.
  for (int i = 0; i < r.n; i++) {
    bool first = true;
    for (int k = 0; k < i; k++)
      first &= r.unit[k] != r.unit[i] || r.want[k] != r.want[i];
    if (!first || have == r.layout[r.want[i]]) continue;
    double seconds = weight_of(v) ? reshard_once(b, v->type, have, r.layout[r.want[i]])
                                  : reshard_slice(b, v->type, have, r.layout[r.want[i]]);
    add_seconds(b, r.back[i] ? b->out->backward : b->out->forward, r.unit[i], seconds);
  }
}

// Adds the kernels that add up micro-batches of a gradient, unless its product does so itself, and
// the op that packs gradients of parts of a weight.
static void add_accumulation(Pricer *b, const Value *v, const Value *weight) {
  const Op *op = v->def;
  int unit = unit_of(b, op) >= 0 ? unit_of(b, op) : weight ? b->loads->unit_of[weight->id] : -1;
  if (unit < 0) return;
  if (unit_of(b, op) < 0 && !op_is_view(op))
    add_kernel(b, b->out->weights, unit, op, (double)b->prices.slices);
  double elements = (double)type_count(v->type) / parts_of(layout_of(b, v));
  bool itself = op_flops(op) > 2 * (double)type_count(v->type) || op->kind == OP_gather_back;
  if (itself || b->prices.slices == 1) return;
  // It reads the gradient and the sum so far, and writes a sum in f32.
  double bytes = elements * (8 + (double)type_bytes(v->type) / (double)type_count(v->type));
  add_seconds(b, b->out->weights, unit, moving_seconds(b->prices.c, bytes, 1));
}

// Adds the sum of a gradient that updates read.
static void add_gradient(Pricer *b, const Value *v) {
  if (!v->def || op_part(v->def) != PART_backward) return;
  const Layout *have = layout_of(b, v), *done[MAX_WANTS];
  int n = 0;
  for_each_use(u, v) {
    if (!u->user || op_part(u->user) != PART_update || n == MAX_WANTS) continue;
    const Layout *want = layout_wanted(b, u->user, u->index);
    bool known = false;
    for (int i = 0; i < n; i++)
      known |= done[i] == want;
    if (known) continue;
    done[n++] = want;
    const Value *weight = updated_weight(u->user);
    if (n == 1) add_accumulation(b, v, weight);
    double seconds = reshard_once(b, v->type, have, want);
    if (weight)
      add_sums(b, weight, seconds);
    else if (unit_of(b, v->def) >= 0)
      add_seconds(b, b->out->sums, unit_of(b, v->def), seconds);
  }
}

// -- All together --------------------------------------------------------------------------------

Chain *borders_price(const Sharding *s, int axis, const Units *units, const Loads *loads,
                     Arena *a) {
  const Graph *g = s->g;
  const Cluster *c = s->env.cluster;
  Chain *out = arena_one(a, Chain);
  Pricer b = {.s = s, .axis = axis, .units = units, .loads = loads, .out = out, .arena = a};
  b.p = &loads->p;
  b.prices = (Problem){.s = s, .env = &s->env, .scratch = a, .c = c, .routed = s->env.routed};
  b.prices.slices = module_slices(g->module);
  b.prices.prices = transitions_new(g->module, c, a);
  b.prices.joined = transitions_new(g->module, cluster_without_starts(a, c), a);
  b.mesh = stage_mesh(s, axis);
  *out = (Chain){.p = b.p, .kind = chain_kind(g->module->schedule)};
  out->slices = (double)b.prices.slices;
  int n = b.p->n_units * b.p->n_runs;
  out->forward = arena_array(a, double, n);
  out->backward = arena_array(a, double, n);
  out->weights = arena_array(a, double, n);
  out->sums = arena_array(a, double, n);
  out->shared = arena_array(a, double, b.p->n_shared);
  out->apart = arena_array(a, double, b.p->n_shared);
  // The partial gradient of one stage, and the sum.
  for (int i = 0; i < b.p->n_shared; i++)
    if (loads->shared_gradient[i] > 0)
      out->apart[i] = 2 * (b.p->start[1] + loads->shared_gradient[i] * b.p->by_whole[1]);
  find_late(&b);
  add_kernels(&b);
  for (int i = 0; i < g->n_params; i++)
    add_value(&b, g->params[i]);
  for_each_op(op, g) {
    for (int i = 0; i < op->n_out && op_part(op) != PART_update; i++) {
      add_value(&b, op->out[i]);
      add_gradient(&b, op->out[i]);
    }
  }
  // Updated weights return to their layout.
  for (int i = 0; i < g->n_results; i++) {
    const Value *weight = g->results[i]->target, *v = g->results[i]->use.value;
    if (weight && weight->role == ROLE_weight && v->def)
      add_sums(&b, weight, reshard_once(&b, weight->type, layout_of(&b, v), layout_of(&b, weight)));
  }
  out->transfer = b.transfers.at;
  out->n_transfers = b.transfers.n;
  return out;
}
