// Runs one step of a graph on simulated devices.
//
// Before PHASE_local there is one device.  From then on every device of a mesh is a rank with
// values of its own, and takes part in the ops of its meshes.  All ranks run the ops in lock-step,
// so that a collective finds all operands:
//
//     once before   ops that depend on no slice of the inputs     %w16 = cast %w
//     per slice     ops that depend on one: the micro-batch loop   %y = linear %x, %w16
//                   sums over the slices                           %g = accumulate %gy axis=acc
//     once after    ops that depend on the sums                    %w1 = sgd %w, %g, …
//
// Results are assembled from the shards of all ranks and slices.  Replicas are checked to be equal.

#include "eval.h"

#include <string.h>

#include "ir/analysis/place.h"
#include "ir/collective.h"
#include "ir/split.h"

enum { BEFORE, PER_SLICE, AFTER };

typedef struct Run {
  const Graph *g;
  const Module *m;
  const EvalOptions *o;
  bool parts; // values are sharded by their layouts
  int ranks, slices, slice;
  int *device;   // [rank]
  int **rank_of; // [mesh id][position]
  Tensor **of;   // [rank][value id]; empty if the rank has no shard
  uint8_t *when; // [op id]
  Values *out;
  Arena *a;    // lasts as long as the results
  Arena *once; // as long as the run
  Arena *loop; // as long as a slice
  Diag *d;
} Run;

const Tensor *values_find(const Values *v, const char *name) {
  for (int i = 0; v && i < v->n; i++)
    if (str_equal(v->at[i].name, name)) return &v->at[i].t;
  return NULL;
}

// -- When an op runs -------------------------------------------------------------------------

static const Layout *layout_of(const Run *r, const Value *v) {
  return r->parts ? v->layout : NULL;
}

static bool sliced(const Run *r, const Value *v) {
  const Layout *l = layout_of(r, v);
  for (int i = 0; l && i < l->n_axes; i++)
    if (l->mesh->axis[i].time && l->axis[i].kind != SBP_B) return true;
  return false;
}

static uint8_t when_defined(const Run *r, const Value *v) {
  if (value_accumulates(v)) return AFTER;
  return v->def ? r->when[v->def->id] : sliced(r, v) || v->each_slice ? PER_SLICE : BEFORE;
}

static bool decide_when(Run *r) {
  // Of a local module the ops of the update are those of the executable.
  const bool *update = r->g->module->phase >= PHASE_local ? graph_update_ops(r->g, r->once) : NULL;
  for_each_op(op, r->g) {
    bool per_slice = op_info[op->kind].traits & ACCUMULATES, after = update && update[op->id];
    // The end of a copy of a sum only lets its term go.
    for (int i = 0; i < (op_waits_for_sum(op) ? 1 : op->n_in); i++) {
      uint8_t when = when_defined(r, op->in[i].value);
      per_slice |= when == PER_SLICE || sliced(r, op->in[i].value);
      after |= when == AFTER;
    }
    for (int i = 0; i < op->n_out; i++)
      per_slice |= sliced(r, op->out[i]);
    if (after && per_slice)
      return diag_error(r->d, op->loc, "%s: reads a sum over slices of time in every slice",
                        op_info[op->kind].name);
    r->when[op->id] = per_slice ? PER_SLICE : after ? AFTER : BEFORE;
  }
  return true;
}

// -- Devices ---------------------------------------------------------------------------------

// The mesh of a value; NULL: one device.
static const Mesh *mesh_of(const Run *r, const Value *v) {
  const Layout *l = layout_of(r, v);
  return l ? l->mesh : NULL;
}

static int n_places(const Mesh *mesh) {
  return mesh ? mesh->n_devices : 1;
}

static int rank_at(const Run *r, const Mesh *mesh, int position) {
  return mesh ? r->rank_of[mesh->id][position] : 0;
}

static int rank_of_device(const Run *r, int device) {
  int rank = 0;
  while (r->device[rank] != device)
    rank++;
  return rank;
}

// -- Collectives -----------------------------------------------------------------------------

static int place_along(const Mesh *mesh, const MeshAxes *axes, const Place *at) {
  int place = 0;
  for (int i = 0; i < axes->n; i++)
    place = place * mesh->axis[axes->at[i]].size + at->coord[axes->at[i]];
  return place;
}

static void add_to(Tensor *sum, const Tensor *x) {
  bool floating = dtype_class[sum->type->dtype] == 'F';
  for (int64_t i = 0; i < type_count(sum->type); i++)
    if (floating)
      tensor_set_f(sum, i, tensor_f(sum, i) + tensor_f(x, i));
    else
      tensor_set_i(sum, i, (int64_t)((uint64_t)tensor_i(sum, i) + (uint64_t)tensor_i(x, i)));
}

static Tensor copy_of(const Tensor *t, Arena *a) {
  return (Tensor){t->type, arena_copy(a, t->data, (size_t)type_bytes(t->type))};
}

// Stores a result; of an accumulated value, adds the share of this slice.
static void set_value(Run *r, int rank, const Value *v, const Tensor *t) {
  Tensor *to = &r->of[rank][v->id];
  if (!value_accumulates(v))
    *to = *t;
  else if (r->slice == 0)
    *to = copy_of(t, r->once);
  else
    add_to(to, t);
}

// The sum of the peers' values, in the order of peers.
static Tensor sum_of(const Run *r, const Value *v, int n, const int *peers, Arena *a) {
  Tensor sum = copy_of(&r->of[peers[0]][v->id], a);
  for (int i = 1; i < n; i++)
    add_to(&sum, &r->of[peers[i]][v->id]);
  return sum;
}

// Shard `i` of `whole` along `dim`, of type `t`.
static Tensor part_of(const Tensor *whole, int dim, int i, const Type *t, Arena *a) {
  Tensor part = tensor_new(a, t);
  Box box = {0};
  memcpy(box.whole, whole->type->dim, sizeof box.whole);
  box.start[dim] = i * t->dim[dim];
  box_cut(whole, &box, &part);
  return part;
}

static void put_part_of(Tensor *whole, int dim, int i, const Tensor *part) {
  Box box = {0};
  memcpy(box.whole, whole->type->dim, sizeof box.whole);
  box.start[dim] = i * part->type->dim[dim];
  box_put(whole, &box, part);
}

// The result on `rank`, the `me`th of n `peers`, which have the operands: the value of the group by
// the layout before, and of it the part by the layout after.
static Tensor collect(const Run *r, const Op *op, bool time, int rank, int me, int n,
                      const int *peers, Arena *a) {
  const Value *in = op->in[0].value, *out = op->out[0];
  Sbp from, to;
  collective_ends(op, &from, &to);
  // Over time each slice has its own partial sum: set_value accumulates.
  Tensor whole = r->of[rank][in->id];
  if (from.kind == SBP_P && !time) whole = sum_of(r, in, n, peers, a);
  if (from.kind == SBP_S) {
    Type *joined = arena_copy(a, in->type, sizeof *joined);
    joined->dim[from.dim] *= n;
    whole = tensor_new(a, to.kind == SBP_S ? joined : out->type);
    for (int i = 0; i < n; i++)
      put_part_of(&whole, from.dim, i, &r->of[peers[i]][in->id]);
  }
  return to.kind == SBP_S ? part_of(&whole, to.dim, me, out->type, a) : whole;
}

static void run_collective(Run *r, const Op *op, Arena *a) {
  const Mesh *mesh = op_mesh(op);
  MeshAxes axes;
  if (!op_axes(op, &axes, r->d)) BUG("an axis that is not there, in a module that verifies");
  int n = axes_size(mesh, &axes), *peers = arena_array(r->once, int, n);
  for (int position = 0; position < mesh->n_devices; position++) {
    Place at = mesh_place(mesh, position, r->slice);
    int rank = rank_at(r, mesh, position);
    // The peers differ from this rank along the axes only, and are in order.
    Place me = mesh_place(mesh, position, 0);
    for (int other = 0; other < mesh->n_devices; other++) {
      Place p = mesh_place(mesh, other, 0);
      bool same = true;
      for (int i = 0; i < mesh->n_axes; i++)
        same &= axes_have(&axes, i) || p.coord[i] == me.coord[i];
      if (same) peers[place_along(mesh, &axes, &p)] = rank_at(r, mesh, other);
    }
    Tensor got = collect(r, op, mesh->axis[axes.at[0]].time, rank, place_along(mesh, &axes, &at), n,
                         peers, a);
    set_value(r, rank, op->out[0], &got);
  }
}

// -- Moves -----------------------------------------------------------------------------------

static void run_move(Run *r, const Op *op, Arena *a) {
  const Value *in = op->in[0].value, *out = op->out[0];
  const Mesh *to = out->layout->mesh;
  const Type *whole = type_whole(out->graph->module, in->type, in->layout);
  Messages messages;
  move_messages(whole, in->layout, out->layout, NULL, a, &messages);
  // A rank may be sender and receiver, but of different values.
  for (int i = 0; i < n_places(to); i++) {
    Tensor t = tensor_new(a, out->type);
    set_value(r, rank_at(r, to, i), out, &t);
  }
  for (int i = 0; i < messages.n; i++) {
    const Message *m = &messages.at[i];
    // A message of a partial sum is added to the sum of earlier ones.
    const Tensor *from = &r->of[rank_of_device(r, m->from)][in->id];
    Tensor *target = &r->of[rank_of_device(r, m->to)][out->id];
    bool add = false;
    for (int k = 0; k < in->layout->n_axes; k++)
      add |= in->layout->axis[k].kind == SBP_P;
    Type *t = arena_copy(a, target->type, sizeof *t);
    memcpy(t->dim, m->size, sizeof t->dim);
    Box here = {0}, there = {0};
    memcpy(there.start, m->at_from, sizeof there.start);
    memcpy(there.whole, from->type->dim, sizeof there.whole);
    memcpy(here.start, m->at_to, sizeof here.start);
    memcpy(here.whole, target->type->dim, sizeof here.whole);
    Tensor sent = tensor_new(a, t);
    box_cut(from, &there, &sent);
    if (add) {
      Tensor sum = tensor_new(a, t);
      box_cut(target, &here, &sum);
      add_to(&sum, &sent);
      sent = sum;
    }
    box_put(target, &here, &sent);
  }
}

// -- Other ops -------------------------------------------------------------------------------

static bool run_ops(Run *r, int when, Arena *a) {
  for_each_op(op, r->g) {
    if (r->when[op->id] != when) continue;
    const Mesh *mesh = r->parts ? op_mesh(op) : NULL;
    if (mesh && op->kind == OP_move) {
      run_move(r, op, a);
      continue;
    }
    if (mesh && (op_info[op->kind].traits & COMM)) {
      run_collective(r, op, a);
      continue;
    }
    for (int i = 0; i < n_places(mesh); i++) {
      // Every device of the mesh computes its shard.
      int rank = rank_at(r, mesh, i);
      Tensor *in = arena_array(a, Tensor, op->n_in), *out = arena_array(a, Tensor, op->n_out);
      Box box;
      const Value *boxed = op_boxed(op);
      bool done = false;
      for (int k = 0; k < op->n_in; k++)
        in[k] = r->of[rank][op->in[k].value->id];
      if (boxed) {
        Place at = mesh_place(mesh, i, r->slice);
        box = place_box(value_whole(boxed), layout_of(r, boxed), &at);
      }
      if (r->o->kernels && !kernel_run(op, in, out, boxed ? &box : NULL, &done, a, r->d))
        return false;
      if (!done && !op_evaluate(op, in, out, boxed ? &box : NULL, a, r->d)) return false;
      for (int k = 0; k < op->n_out; k++)
        set_value(r, rank, op->out[k], &out[k]);
    }
  }
  return true;
}

// -- Parameters and results ------------------------------------------------------------------

// The box of the first elements of a tensor.
static Box first_box(const Type *whole) {
  Box box = {0};
  memcpy(box.whole, whole->dim, sizeof box.whole);
  return box;
}

// The elements of a tensor, with zeros after them up to type `to`; and the reverse.
static Tensor with_padding(const Tensor *t, const Type *to, Arena *a) {
  Tensor padded = tensor_new(a, to);
  const Box first = first_box(to);
  box_put(&padded, &first, t);
  return padded;
}

static Tensor without_padding(const Tensor *t, const Type *to, Arena *a) {
  Tensor known = tensor_new(a, to);
  const Box first = first_box(t->type);
  box_cut(t, &first, &known);
  return known;
}

static void set_params(Run *r, const Values *in, bool per_slice, Arena *a) {
  for (int i = 0; i < r->g->n_params; i++) {
    const Value *v = r->g->params[i];
    if (sliced(r, v) != per_slice) continue;
    Tensor whole = *values_find(in, param_label(v, r->once));
    if (value_padded(v)) whole = with_padding(&whole, value_whole(v), a);
    whole.type = value_whole(v);
    const Mesh *mesh = mesh_of(r, v);
    for (int k = 0; k < n_places(mesh); k++) {
      Place at = mesh_place(mesh, k, r->slice);
      Box box = place_box(whole.type, layout_of(r, v), &at);
      Tensor part = tensor_new(a, v->type);
      box_cut(&whole, &box, &part);
      r->of[rank_at(r, mesh, k)][v->id] = part;
    }
  }
}

static bool put_results(Run *r, bool per_slice) {
  for (int i = 0; i < r->g->n_results; i++) {
    const Value *v = r->g->results[i]->use.value;
    if ((when_defined(r, v) == PER_SLICE) != per_slice) continue;
    Tensor *whole = &r->out->at[i].t;
    for (int k = 0; k < n_places(mesh_of(r, v)); k++) {
      const Layout *l = layout_of(r, v);
      Place at = mesh_place(mesh_of(r, v), k, r->slice);
      Box box = place_box(whole->type, l, &at);
      int rank = rank_at(r, mesh_of(r, v), k);
      const Tensor *part = &r->of[rank][v->id];

      // The first of the ranks with the same shard gives it; the others must equal it.
      bool is_first = true;
      for (int axis = 0; l && axis < l->n_axes; axis++)
        if (!l->mesh->axis[axis].time && l->axis[axis].kind == SBP_B && at.coord[axis] != 0)
          is_first = false;
      if (is_first) {
        box_put(whole, &box, part);
        continue;
      }
      Tensor first = tensor_new(r->once, part->type);
      box_cut(whole, &box, &first);
      double apart = tensor_difference(part, &first);
      if (apart <= r->o->tolerance ||
          memcmp(part->data, first.data, (size_t)type_bytes(part->type)) == 0)
        continue;
      return diag_error(r->d, v->def ? v->def->loc : v->loc,
                        "'%s' should be the same on all ranks: rank %d differs by %g",
                        r->out->at[i].name, rank, apart);
    }
  }
  return true;
}

static bool run_slices(Run *r, const Values *in) {
  bool ok = true;
  for (r->slice = 0; ok && r->slice < r->slices; r->slice++) {
    r->loop = arena_new();
    set_params(r, in, true, r->loop);
    ok = run_ops(r, PER_SLICE, r->loop) && put_results(r, true);
    if (ok) {
      // The next slice gets the new values of parameters that every slice updates.
      for (int i = 0; i < r->g->n_results; i++) {
        const Result *result = r->g->results[i];
        const Value *to = result->target;
        if (!to || !to->each_slice) continue;
        for (int k = 0; k < n_places(mesh_of(r, to)); k++) {
          Tensor *of = r->of[rank_at(r, mesh_of(r, to), k)];
          memcpy(of[to->id].data, of[result->use.value->id].data, (size_t)type_bytes(to->type));
        }
      }
    }
    arena_free(r->loop);
  }
  r->slice = 0;
  return ok;
}

bool eval_run(const Graph *g, const EvalOptions *o, const Values *in, Values *out, Arena *a,
              Diag *d) {
  Run r = {.g = g, .m = g->module, .o = o, .out = out, .a = a, .once = arena_new(), .d = d};
  r.parts = r.m->phase >= PHASE_local && r.m->meshes;
  r.slices = r.parts ? module_slices(r.m) : 1;
  // Ranks are the devices of all meshes, in ascending order.
  int n = 0;
  for_each_mesh(mesh, r.m)
    n++;
  r.device = module_devices(r.m, r.once, &r.ranks);
  if (!r.parts) r.ranks = 1;
  r.rank_of = arena_array(r.once, int *, n);
  for_each_mesh(mesh, r.m) {
    int *rank = r.rank_of[mesh->id] = arena_array(r.once, int, mesh->n_devices);
    for (int i = 0; i < mesh->n_devices; i++)
      rank[i] = rank_of_device(&r, mesh->device[i]);
  }
  r.of = arena_array(r.once, Tensor *, r.ranks);
  r.when = arena_array(r.once, uint8_t, g->n_ops);
  for (int rank = 0; rank < r.ranks; rank++)
    r.of[rank] = arena_array(r.once, Tensor, g->n_values);
  *out = (Values){0};
  for (int i = 0; i < g->n_results; i++) {
    const Result *result = g->results[i];
    const char *name = result->label ? result->label : str_format(a, "result %d", i);
    if (result->target) name = str_format(a, "update %s", param_label(result->target, a));
    Tensor whole = tensor_new(a, value_whole(result->use.value));
    vec_push(a, out, (Named){name, whole});
  }
  set_params(&r, in, false, r.once);
  // A schedule may have no updates in every slice.  Slices run one after the other here, so ops
  // would read other versions of the weights than in the schedule.
  bool ok = true;
  for (int i = 0; ok && g->schedule && i < g->n_params; i++)
    if (g->params[i]->each_slice)
      ok = diag_error(r.d, g->params[i]->loc,
                      "'%s' changes in every slice, and the schedule has several at once: slices "
                      "are evaluated one after the other",
                      param_label(g->params[i], r.once));
  ok = ok && decide_when(&r) && run_ops(&r, BEFORE, r.once) && run_slices(&r, in) &&
       run_ops(&r, AFTER, r.once) && put_results(&r, false);

  // Types of updated parameters outlive the module.
  for (int i = 0; i < g->n_results; i++) {
    const Value *target = g->results[i]->target;
    if (!target) continue;
    const Type *known = arena_copy(a, value_known(target), sizeof(Type));
    Tensor *t = &out->at[i].t;
    *t = value_padded(target) ? without_padding(t, known, a) : (Tensor){known, t->data};
  }
  arena_free(r.once);
  return ok;
}
