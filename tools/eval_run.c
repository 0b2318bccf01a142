// One step of a graph on simulated devices.
//
// Before PHASE_local there is one device.  From then on every rank of the mesh has its own values,
// and all ranks go through the ops in step, so that a collective finds the operands of all:
//
//     once before   what depends on no slice of the inputs        %w16 = cast %w
//     per slice     what does: the micro-batch loop                %y = linear %x, %w16
//                   what adds the slices up                        %g = accumulate %gy axis=acc
//     once after    what depends on the sums                       %w1 = sgd %w, %g, …
//
// Results are put together from the parts of all ranks and slices.  Ranks that should have the same
// part are checked to have it.

#include "eval.h"

#include <string.h>

#include "ir/split.h"

enum { BEFORE, PER_SLICE, AFTER };

typedef struct Run {
  const Graph *g;
  const Module *m;
  const EvalOptions *o;
  int ranks, slices, slice;
  Tensor **of;   // [rank][value id]
  uint8_t *when; // [op id]
  Values *out;
  Arena *a;    // lasts as long as the results
  Arena *once; // as long as the run
  Arena *loop; // as long as the slice
  Diag *d;
} Run;

const Tensor *values_find(const Values *v, const char *name) {
  for (int i = 0; v && i < v->n; i++)
    if (str_equal(v->at[i].name, name)) return &v->at[i].t;
  return NULL;
}

// -- When an op runs -------------------------------------------------------------------------

static bool sliced(const Module *m, const Value *v) {
  for (int i = 0; m->phase >= PHASE_local && v->layout && i < v->layout->n_axes; i++)
    if (m->mesh->axis[i].time && v->layout->axis[i].kind != SBP_B) return true;
  return false;
}

static uint8_t when_defined(const Run *r, const Value *v) {
  if (value_accumulates(v)) return AFTER;
  return v->def ? r->when[v->def->id] : sliced(r->m, v) ? PER_SLICE : BEFORE;
}

static bool decide_when(Run *r) {
  for_each_op(op, r->g) {
    bool per_slice = op_info[op->kind].traits & TIME, after = false;
    for (int i = 0; i < op->n_in; i++) {
      uint8_t when = when_defined(r, op->in[i].value);
      per_slice |= when == PER_SLICE || sliced(r->m, op->in[i].value);
      after |= when == AFTER;
    }
    for (int i = 0; i < op->n_out; i++)
      per_slice |= sliced(r->m, op->out[i]);
    if (after && per_slice)
      return diag_error(r->d, op->loc, "%s: reads a sum over slices of time in every slice",
                        op_info[op->kind].name);
    r->when[op->id] = per_slice ? PER_SLICE : after ? AFTER : BEFORE;
  }
  return true;
}

// -- Collectives -----------------------------------------------------------------------------

// The ranks that differ from `rank` along `axis` only, in order.
static void peers_of(const Run *r, int rank, int axis, int *peers) {
  Place me = place_of(r->m, rank, 0);
  for (int other = 0; other < r->ranks; other++) {
    Place p = place_of(r->m, other, 0);
    bool same = true;
    for (int i = 0; i < r->m->mesh->n_axes; i++)
      same &= i == axis || p.coord[i] == me.coord[i];
    if (same) peers[p.coord[axis]] = other;
  }
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

// A result; of one that is added up, the part of this slice.
static void set_value(Run *r, int rank, const Value *v, const Tensor *t) {
  Tensor *to = &r->of[rank][v->id];
  if (!value_accumulates(v))
    *to = *t;
  else if (r->slice == 0)
    *to = copy_of(t, r->once);
  else
    add_to(to, t);
}

// The sum of what the peers have, in their order.
static Tensor sum_of(const Run *r, const Value *v, int n, const int *peers, Arena *a) {
  Tensor sum = copy_of(&r->of[peers[0]][v->id], a);
  for (int i = 1; i < n; i++)
    add_to(&sum, &r->of[peers[i]][v->id]);
  return sum;
}

// Part `i` of `whole` along `dim`, of type `t`.
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

// What rank `rank` gets; `peers` have the operands.
static Tensor collect(const Run *r, const Op *op, int rank, int axis, const int *peers, Arena *a) {
  int n = r->m->mesh->axis[axis].size;
  const Value *in = op->in[0].value, *out = op->out[0];
  int me = place_of(r->m, rank, r->slice).coord[axis];
  switch ((int)op->kind) {
  case OP_all_reduce: return sum_of(r, in, n, peers, a);
  case OP_accumulate: return r->of[rank][in->id];
  case OP_local_slice:
    return part_of(&r->of[rank][in->id], (int)attr_i(op, "dim"), me, out->type, a);
  case OP_reduce_scatter: {
    Tensor sum = sum_of(r, in, n, peers, a);
    return part_of(&sum, (int)attr_i(op, "dim"), me, out->type, a);
  }
  case OP_all_gather: {
    Tensor t = tensor_new(a, out->type);
    for (int i = 0; i < n; i++)
      put_part_of(&t, (int)attr_i(op, "dim"), i, &r->of[peers[i]][in->id]);
    return t;
  }
  case OP_all_to_all: {
    Tensor t = tensor_new(a, out->type);
    int from = (int)attr_i(op, "from"), to = (int)attr_i(op, "to");
    Type given = *in->type;
    given.dim[to] /= n;
    for (int i = 0; i < n; i++) {
      Tensor part = part_of(&r->of[peers[i]][in->id], to, me, &given, a);
      put_part_of(&t, from, i, &part);
    }
    return t;
  }
  default: BUG("no such collective: %s", op_info[op->kind].name);
  }
}

static void run_collective(Run *r, const Op *op, Arena *a) {
  int axis = op_mesh_axis(op);
  int *peers = arena_array(r->once, int, r->m->mesh->axis[axis].size);
  for (int rank = 0; rank < r->ranks; rank++) {
    peers_of(r, rank, axis, peers);
    Tensor got = collect(r, op, rank, axis, peers, a);
    set_value(r, rank, op->out[0], &got);
  }
}

// -- Other ops -------------------------------------------------------------------------------

static bool run_on(Run *r, const Op *op, int rank, Arena *a) {
  Tensor *in = arena_array(a, Tensor, op->n_in), *out = arena_array(a, Tensor, op->n_out);
  Box box;
  const Value *boxed = op_boxed(op);
  bool done = false;
  for (int i = 0; i < op->n_in; i++)
    in[i] = r->of[rank][op->in[i].value->id];
  if (boxed) {
    Place at = place_of(r->m, rank, r->slice);
    box = place_box(r->m, value_whole(boxed), boxed->layout, &at);
  }
  if (r->o->kernels && !kernel_run(op, in, out, boxed ? &box : NULL, &done, a, r->d)) return false;
  if (!done && !op_evaluate(op, in, out, boxed ? &box : NULL, a, r->d)) return false;
  for (int i = 0; i < op->n_out; i++)
    set_value(r, rank, op->out[i], &out[i]);
  return true;
}

static bool run_ops(Run *r, int when, Arena *a) {
  for_each_op(op, r->g) {
    if (r->when[op->id] != when) continue;
    if ((op_info[op->kind].traits & COMM) && r->m->mesh && r->m->phase >= PHASE_local) {
      run_collective(r, op, a);
      continue;
    }
    for (int rank = 0; rank < r->ranks; rank++)
      if (!run_on(r, op, rank, a)) return false;
  }
  return true;
}

// -- Parameters and results ------------------------------------------------------------------

static void set_params(Run *r, const Values *in, bool per_slice, Arena *a) {
  for (int i = 0; i < r->g->n_params; i++) {
    const Value *v = r->g->params[i];
    if (sliced(r->m, v) != per_slice) continue;
    const Tensor *whole = values_find(in, param_label(v, r->once));
    for (int rank = 0; rank < r->ranks; rank++) {
      Place at = place_of(r->m, rank, r->slice);
      Box box = place_box(r->m, whole->type, v->layout, &at);
      Tensor part = tensor_new(a, v->type);
      box_cut(whole, &box, &part);
      r->of[rank][v->id] = part;
    }
  }
}

// Is this the first of the ranks that have this part?
static bool is_first(const Run *r, const Layout *l, const Place *at) {
  for (int i = 0; r->m->phase >= PHASE_local && l && i < l->n_axes; i++)
    if (!r->m->mesh->axis[i].time && l->axis[i].kind == SBP_B && at->coord[i] != 0) return false;
  return true;
}

static bool put_part(Run *r, const Value *v, int rank, Tensor *whole, const char *name) {
  Place at = place_of(r->m, rank, r->slice);
  Box box = place_box(r->m, whole->type, v->layout, &at);
  const Tensor *part = &r->of[rank][v->id];
  if (is_first(r, v->layout, &at)) {
    box_put(whole, &box, part);
    return true;
  }
  Tensor first = tensor_new(r->once, part->type);
  box_cut(whole, &box, &first);
  double apart = tensor_difference(part, &first);
  if (apart <= r->o->tolerance ||
      memcmp(part->data, first.data, (size_t)type_bytes(part->type)) == 0)
    return true;
  return diag_error(r->d, v->def ? v->def->loc : v->loc,
                    "'%s' should be the same on all ranks: rank %d differs by %g", name, rank,
                    apart);
}

// What a result is called.
static const char *result_name(const Run *r, int i) {
  const Result *result = r->g->results[i];
  if (result->target) return str_format(r->a, "update %s", param_label(result->target, r->a));
  return result->label ? result->label : str_format(r->a, "result %d", i);
}

static bool put_results(Run *r, bool per_slice) {
  for (int i = 0; i < r->g->n_results; i++) {
    const Value *v = r->g->results[i]->use.value;
    if ((when_defined(r, v) == PER_SLICE) != per_slice) continue;
    for (int rank = 0; rank < r->ranks; rank++)
      if (!put_part(r, v, rank, &r->out->at[i].t, r->out->at[i].name)) return false;
  }
  return true;
}

static bool run_slices(Run *r, const Values *in) {
  bool ok = true;
  for (r->slice = 0; ok && r->slice < r->slices; r->slice++) {
    r->loop = arena_new();
    set_params(r, in, true, r->loop);
    ok = run_ops(r, PER_SLICE, r->loop) && put_results(r, true);
    arena_free(r->loop);
  }
  r->slice = 0;
  return ok;
}

bool eval_run(const Graph *g, const EvalOptions *o, const Values *in, Values *out, Arena *a,
              Diag *d) {
  Run r = {.g = g, .m = g->module, .o = o, .out = out, .a = a, .once = arena_new(), .d = d};
  r.ranks = mesh_ranks(r.m);
  r.slices = mesh_slices(r.m);
  r.of = arena_array(r.once, Tensor *, r.ranks);
  r.when = arena_array(r.once, uint8_t, g->n_ops);
  for (int rank = 0; rank < r.ranks; rank++)
    r.of[rank] = arena_array(r.once, Tensor, g->n_values);
  *out = (Values){0};
  for (int i = 0; i < g->n_results; i++) {
    Tensor whole = tensor_new(a, value_whole(g->results[i]->use.value));
    vec_push(a, out, (Named){result_name(&r, i), whole});
  }
  set_params(&r, in, false, r.once);
  bool ok = decide_when(&r) && run_ops(&r, BEFORE, r.once) && run_slices(&r, in) &&
            run_ops(&r, AFTER, r.once) && put_results(&r, false);
  arena_free(r.once);
  return ok;
}
