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
//     P -> B     all_reduce; on an axis bound to time, accumulate
//     S -> B     all_gather
//     B -> S     local_slice (of a fill: a smaller fill)
//     other      through B
//
// Where two axes cut one dimension, rows gathered along the outer one first would be out of order:
// gathering goes from the inside out, slicing from the outside in.
//
// Time axes come first in a mesh, so partial sums are added up over micro-batches before they are
// added up over ranks.  An op that is repeated for every micro-batch cannot read what is known only
// after the last one: that is an op that couples rows of different micro-batches, and an error.
//
// Nothing is merged or moved here; see pack_grads.c.

#include "ir/op.h"
#include "ir/split.h"
#include "pass.h"

// A value moved to another layout, kept for later readers.
typedef struct Moved {
  const Layout *layout;
  Value *value;
  struct Moved *next;
} Moved;

typedef struct Comm {
  Module *m;
  Graph *g;
  Arena *scratch;
  Diag *d;
  Moved **moved; // by id of the original value
  int64_t inserted;
} Comm;

static Op *after(const Comm *c, const Value *v) {
  return v->def ? v->def->next : c->g->first;
}

static bool is_time(const Comm *c, int axis) {
  return c->m->mesh->axis[axis].time;
}

static const Layout *with_axis(const Comm *c, const Layout *l, int axis, Sbp sbp) {
  Sbp all[MAX_AXES];
  for (int a = 0; a < l->n_axes; a++)
    all[a] = l->axis[a];
  all[axis] = sbp;
  return layout_new(c->m, l->n_axes, all);
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
static Value *move_axis(Comm *c, Value *v, int axis, Sbp to, const Op *reader) {
  Sbp from = v->layout->axis[axis];
  const char *name = c->m->mesh->axis[axis].name;
  Builder b = {.g = c->g, .at = after(c, v), .d = c->d};
  Value *out;
  if (from.kind == SBP_P) {
    OpKind kind = is_time(c, axis) ? OP_accumulate : OP_all_reduce;
    b.loc = loc_from(c->m->arena, reader->loc, op_info[kind].name);
    out = build(&b, kind, IN(v), ATTRS(a_s("axis", name)));
    to = (Sbp){.kind = SBP_B};
  } else if (from.kind == SBP_S) {
    if (is_time(c, axis)) {
      cannot_cut(c, reader);
      return NULL;
    }
    b.loc = loc_from(c->m->arena, reader->loc, "all_gather");
    out = build(&b, OP_all_gather, IN(v), ATTRS(a_s("axis", name), a_i("dim", from.dim)));
    to = (Sbp){.kind = SBP_B};
  } else if (v->def && v->def->kind == OP_fill) {
    Type t = *v->type;
    t.dim[to.dim] /= c->m->mesh->axis[axis].size;
    b.loc = v->def->loc;
    out = build_fill(&b, t.dtype, t.rank, t.dim, attr_f(v->def, "value"));
  } else {
    b.loc = loc_from(c->m->arena, reader->loc, "local_slice");
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

// The value as `reader` wants it: moved axis by axis, or as an earlier reader had it moved.
static Value *moved_to(Comm *c, Value *v, const Layout *want, const Op *reader) {
  uint32_t original = v->id;
  while (v->layout != want) {
    int a = next_axis(v->layout, want);
    Value *next = NULL;
    const Sbp to = want->axis[a];
    const Layout *step =
        with_axis(c, v->layout, a, v->layout->axis[a].kind == SBP_B ? to : (Sbp){.kind = SBP_B});
    for (Moved *k = c->moved[original]; k; k = k->next)
      if (k->layout == step) next = k->value;
    if (!next) {
      next = move_axis(c, v, a, to, reader);
      if (!next) return NULL;
      Moved *k = arena_one(c->scratch, Moved);
      *k = (Moved){.layout = step, .value = next, .next = c->moved[original]};
      c->moved[original] = k;
    }
    v = next;
  }
  return v;
}

static const Layout *wanted(const Comm *c, const Op *op, const Dims *dims, int i) {
  const Layout *have = op->in[i].value->layout;
  Sbp axis[MAX_AXES];
  for (int a = 0; a < have->n_axes; a++)
    axis[a] = split_wants(op, dims, i, a, have->axis[a]);
  return layout_new(c->m, have->n_axes, axis);
}

// An attribute `shape` says the shape of result 0, so it becomes the local one.
static void localise_shape(const Comm *c, Op *op) {
  if (!op_has_attr(op, "shape")) return;
  const Type *t = type_local(c->m, op->out[0]->type, op->out[0]->layout);
  op_set_attr(op, a_list("shape", t->dim, t->rank));
}

static bool localise_op(Comm *c, Op *op, const Dims *dims) {
  for (int i = 0; i < op->n_in; i++) {
    const Layout *want = wanted(c, op, dims, i);
    Value *v = moved_to(c, op->in[i].value, want, op);
    if (!v) return false;
    if (v != op->in[i].value) op_set_in(op, i, v);
  }
  localise_shape(c, op);
  return op_retype(op, c->d);
}

// Outputs are whole sums; what becomes of a parameter lies as the parameter does.
static bool localise_results(Comm *c) {
  for (int i = 0; i < c->g->n_results; i++) {
    Result *r = c->g->results[i];
    Value *v = r->use.value;
    const Layout *want = r->target ? r->target->layout : v->layout;
    for (int a = 0; a < want->n_axes; a++)
      if (want->axis[a].kind == SBP_P) want = with_axis(c, want, a, (Sbp){.kind = SBP_B});
    if (want == v->layout) continue;
    Value *moved = moved_to(c, v, want, v->def);
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
    for (int a = 0; a < c->m->mesh->n_axes; a++) {
      if (!is_time(c, a)) continue;
      for (int i = 0; i < op->n_in; i++)
        repeated |= op->in[i].value->layout->axis[a].kind != SBP_B;
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
  Dims *dims_of = arena_array(c->scratch, Dims, g->n_ops);
  for_each_op(op, g)
    if (!op_dims(op, &dims_of[op->id], c->d)) return false;
  for (int i = 0; i < g->n_params; i++)
    g->params[i]->type = type_local(c->m, g->params[i]->type, g->params[i]->layout);
  // Ops that are inserted come right after values already seen, and are local as they are made.
  uint32_t n_ops = g->n_ops;
  for_each_op_safe(op, g)
    if (op->id < n_ops && !localise_op(c, op, &dims_of[op->id])) return false;
  return localise_results(c) && check_time(c);
}

bool pass_comm(Module *m, const PassOptions *o, Diag *d) {
  Comm c = {.m = m, .scratch = opt_scratch(o), .d = d};
  for_each_graph(g, m) {
    c.g = g;
    if (g->entry && !localise_graph(&c)) return false;
  }
  opt_stat(o, c.inserted, "ops inserted");
  return true;
}
