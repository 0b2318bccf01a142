// Offloaded gradients: sums over micro-batches are in host memory, and on the device only when the
// update reads them.
//
//     %s = accumulate %g axis="acc" offload_group=1    %1 = swap_out_accumulate %g axis="acc"
//     …                                                …
//     %t = accumulate %h axis="acc" offload_group=1    %2 = swap_out_accumulate %h axis="acc"
//     …                                          =>    %3 = swap_wait %1, %g          %g is freed
//     %n = sum_squares %s     update                   …
//     %w1, … = adam %w, %s, … update                   %4 = swap_in %3                update
//                                                      %5 = swap_wait %4, %3          update
//                                                      %n = sum_squares %5            update
//                                                      %6 = swap_in %3                update
//                                                      %7 = swap_wait %6, %3          update
//                                                      %w1, … = adam %w, %7, …        update
//
// A sum is added to beside the computation of the next gradient; so the gradients of a micro-batch
// of two sums are on the device. Each reader in the update gets a copy of its own, which begins one
// reader ahead.
//
// Ranks add up some sums after the last micro-batch, as in dp and zero1: the norm of all gradients
// reads each result before the first update does. So the results go to host memory, too:
//
//     %s   = accumulate %g                             %1 = swap_out_accumulate %g …
//     %r   = reduce_scatter %s    update         =>    %r = reduce_scatter %3         update
//     %n   = sum_squares %r       update               %n = sum_squares %r            update
//     …                                                %4 = swap_out %r               update
//     %w1, … = adam %w, %r, …     update               %5 = swap_wait %4, %r          update  %r is freed
//                                                      …
//                                                      %6 = swap_in %5                update
//                                                      %7 = swap_wait %6, %5          update
//                                                      %w1, … = adam %w, %7, …        update
//
// A result that the next op updates with stays on the device.
//
// The ops of the norm move to the results that they read. host_gradients.c selects the sums, and
// multi_tensor.c launches few such ops at once.

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/analysis/local.h"
#include "ir/analysis/place.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"
#include "pass.h"

typedef Vec(Op *) Ops;
typedef Vec(Value *) Values;

typedef struct Gradients {
  Graph *g;
  Diag *d;
  Arena *scratch;
  Ops sum;        // the selected accumulates
  Values reduced; // gradients that follow from them, in the order of their ops
  int64_t bytes;
} Gradients;

// -- The ops -----------------------------------------------------------------------------------

// An op with one result, of layout `layout`, in the part, segment and place of `like`.
static Value *copy_op(const Gradients *s, Op *at, OpKind kind, Value *const *in, int n_in,
                      const Layout *layout, const Op *like) {
  Origin origin = origin_for(s->g->module->arena, op_origin(like), "kept in host memory");
  origin.offload_group = 0;
  Builder b = {.g = s->g, .at = at, .origin = origin, .d = s->d};
  Value *v = NULL;
  // A collective has no split, and nor has the end of the copy of a sum.
  if (kind == OP_swap_out_accumulate)
    v = build_op(&b, kind, in, n_in, ATTRS(a_s("axis", attr_s(like, "axis"))));
  else if (kind == OP_swap_wait && value_accumulates(in[0]))
    v = build_op(&b, kind, in, n_in, NO_ATTRS);
  else
    v = local_value(&b, kind, in, n_in, NO_ATTRS, layout);
  if (!v) BUG("%s does not fit", op_info[kind].name);
  v->layout = layout;
  v->def->segment = like->segment;
  v->def->order = like->order;
  return v;
}

// -- Views of sums -----------------------------------------------------------------------------

// Gives each reader of a view of `v`, or of a view of that, one of its own, directly before it.
static bool split_views(Gradients *s, Value *v) {
  for (Use *u = v->uses, *next; u; u = next) {
    next = u->next;
    Op *view = u->user;
    if (!view || !op_is_view(view) || view->kind == OP_unpack) continue;
    if (!split_views(s, view->out[0])) return false;
    Ops readers = {0};
    for_each_use(r, view->out[0])
      vec_push(s->scratch, &readers, r->user);
    for (int i = 0; i < readers.n; i++) {
      if (i == 0) {
        op_move_before(view, readers.at[i]);
        continue;
      }
      Op *copy = op_copy(s->g, readers.at[i], view, &v, s->d);
      if (!copy) return false;
      memcpy(copy->split, view->split, sizeof copy->split);
      copy->out[0]->layout = view->out[0]->layout;
      for (int k = 0; k < readers.at[i]->n_in; k++)
        if (readers.at[i]->in[k].value == view->out[0]) op_set_in(readers.at[i], k, copy->out[0]);
    }
  }
  return true;
}

// -- Gradients that follow from sums -----------------------------------------------------------

static bool optimizes(const Op *op) {
  if (op->kind == OP_multi_tensor) op = op->callee->first;
  return op && (op_info[op->kind].traits & (OPTIMIZER | APPLIES_STEP));
}

// The value that `v` is a view of, not of a part of a bucket.
static const Value *viewed(const Value *v) {
  while (v->def && op_is_view(v->def) && v->def->kind != OP_unpack)
    v = v->def->in[0].value;
  return v;
}

static void find_reduced(Gradients *s) {
  bool *known = arena_array(s->scratch, bool, s->g->n_values);
  for_each_op(op, s->g)
    for (int i = 0; optimizes(op) && i < op->n_in; i++) {
      const Value *v = op->in[i].value;
      const Op *made = viewed(v)->def;
      known[v->id] |= made && made->kind != OP_accumulate && gradient_on_host(v);
    }
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_out; i++)
      if (known[op->out[i]->id]) vec_push(s->scratch, &s->reduced, op->out[i]);
}

// Moves a view, and those that it is a view of, directly after the op that they are views of.
static void move_view_up(Op *op) {
  Op *source = op->in[0].value->def;
  if (!op_is_view(op) || !source) return;
  move_view_up(source);
  op_move_before(op, source->next);
}

// Whether the op, a reader of a reduced gradient, is one for the norm.
static bool reads_for_norm(const Op *op) {
  return op->part == PART_update && !optimizes(op) && !op_is_view(op) &&
         !(op_info[op->kind].traits & COMM);
}

// Moves readers for the norm after the last op that they depend on. An op and those moved after it
// are a group, in their old order; so the groups of an op's operands say which of these is last.
static void move_readers_up(Gradients *s) {
  graph_renumber(s->g);
  bool *reader = arena_array(s->scratch, bool, s->g->n_ops);
  for (int i = 0; i < s->reduced.n; i++)
    for_each_use(u, s->reduced.at[i])
      if (u->user) reader[u->user->id] = reads_for_norm(u->user);
  int *group = arena_array(s->scratch, int, s->g->n_ops); // the id of its first op
  Op **last = arena_array(s->scratch, Op *, s->g->n_ops); // of a group, by that id
  for (Op *op = s->g->first, *next; op; op = next) {
    next = op->next;
    int of = reader[op->id] ? 0 : op->id;
    for (int i = 0; reader[op->id] && i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      if (def && group[def->id] > of) of = group[def->id];
    }
    if (reader[op->id]) op_move_before(op, last[of]->next);
    group[op->id] = of;
    last[of] = op;
  }
  graph_renumber(s->g);
}

// The last of the op that computes the gradient and the readers for the norm.
static Op *last_for_norm(const Value *v) {
  Op *last = v->def;
  for_each_use(u, v)
    if (u->user && reads_for_norm(u->user) && u->user->id > last->id) last = u->user;
  return last;
}

// -- Copies ------------------------------------------------------------------------------------

// The op before which the wait of the sum is: after the start of the next copy in the same segment
// and on the same mesh, or at the end of the segment, or of the loop.
static Op *wait_at(const Gradients *s, int i, const Op *loop_end) {
  Op *sum = s->sum.at[i];
  for (int k = i + 1; k < s->sum.n; k++)
    if (s->sum.at[k]->segment == sum->segment && op_mesh(s->sum.at[k]) == op_mesh(sum))
      return s->sum.at[k]->next;
  if (!sum->segment) return loop_end->next;
  Op *at = sum->next;
  while (at && at->segment == sum->segment)
    at = at->next;
  return at;
}

// Moves the ops that run once per step after the loop, as plan_memory will. Returns the last op of
// the loop.
static const Op *put_update_last(Gradients *s) {
  const bool *update = graph_update_ops(s->g, s->scratch);
  Ops late = {0};
  for_each_op(op, s->g)
    if (update[op->id]) vec_push(s->scratch, &late, op);
  for (int i = 0; i < late.n; i++)
    op_move_before(late.at[i], NULL);
  graph_renumber(s->g);
  return late.n ? late.at[0]->prev : s->g->last;
}

// Replaces the sums by sums in host memory.
static void accumulate_in_host(Gradients *s) {
  const Op *loop_end = put_update_last(s);
  Op **at = arena_array(s->scratch, Op *, s->sum.n);
  for (int i = 0; i < s->sum.n; i++)
    at[i] = wait_at(s, i, loop_end);
  // The starts come first, so that each wait follows the start of the next copy.
  Value **out = arena_array(s->scratch, Value *, s->sum.n);
  for (int i = 0; i < s->sum.n; i++) {
    Op *op = s->sum.at[i];
    out[i] = copy_op(s, op, OP_swap_out_accumulate, &op->in[0].value, 1, op->out[0]->layout, op);
    s->bytes += type_bytes(out[i]->type);
  }
  for (int i = 0; i < s->sum.n; i++) {
    Op *op = s->sum.at[i];
    Value *in[] = {out[i], op->in[0].value};
    Value *there = copy_op(s, at[i], OP_swap_wait, in, 2, op->out[0]->layout, op);
    value_replace_uses(op->out[0], there);
  }
  for (int i = 0; i < s->sum.n; i++)
    op_erase(s->sum.at[i]);
}

// The first op after `start`, a copy to host memory, that reads the value; or NULL.
static Op *first_later_reader(const Value *v, const Op *start) {
  Op *first = NULL;
  for_each_use(u, v)
    if (u->user && u->user->id > start->id && (!first || u->user->id < first->id)) first = u->user;
  return first;
}

// Whether the next op but views is the only reader: the value is not kept for a later one.
static bool is_read_at_once(const Value *v) {
  const Op *next = v->def->next;
  while (next && op_is_view(next))
    next = next->next;
  for_each_use(u, v)
    if (!u->user || u->user != next) return false;
  return next != NULL;
}

// Copies reduced gradients to host memory, after the ops of the norm.
static void reduced_to_host(Gradients *s) {
  for (int i = 0; i < s->reduced.n; i++)
    move_view_up(s->reduced.at[i]->def);
  move_readers_up(s);
  int n = 0;
  for (int i = 0; i < s->reduced.n; i++)
    if (!is_read_at_once(s->reduced.at[i])) s->reduced.at[n++] = s->reduced.at[i];
  s->reduced.n = n;
  Op **start = arena_array(s->scratch, Op *, s->reduced.n + 1);
  for (int i = 0; i < s->reduced.n; i++) {
    Value *v = s->reduced.at[i];
    start[i] = copy_op(s, last_for_norm(v)->next, OP_swap_out, &v, 1, v->layout, v->def)->def;
    s->bytes += type_bytes(v->type);
  }
  graph_renumber(s->g);
  // Backward: the wait follows the start of the next copy of these devices, unless the value is
  // read earlier.
  Op **next = arena_array(s->scratch, Op *, module_n_meshes(s->g->module) + 1);
  Value **copied = arena_array(s->scratch, Value *, s->g->n_ops); // by the start's id
  for (int i = 0; i < s->reduced.n; i++)
    copied[start[i]->id] = s->reduced.at[i];
  for (Op *op = s->g->last; op; op = op->prev) {
    Value *v = copied[op->id];
    if (!v) continue;
    Op **after = &next[value_mesh_id(v)], *at = *after ? (*after)->next : op->next;
    Op *reader = first_later_reader(v, op);
    if (reader && *after && reader->id < (*after)->id) at = reader;
    *after = op;
    Value *in[] = {op->out[0], v};
    Value *there = copy_op(s, at, OP_swap_wait, in, 2, v->layout, v->def);
    // Later readers read the value in host memory.
    for (Use *u = v->uses, *rest; u; u = rest) {
      rest = u->next;
      if (u->user && u->user != there->def && u->user->id > op->id)
        op_set_in(u->user, u->index, there);
    }
  }
}

// A copy to the device, and the op that reads it.
typedef struct Copy {
  Op *in, *reader;
} Copy;
typedef Vec(Copy) Copies;

static int by_reader(const void *x, const void *y) {
  const Copy *a = x, *b = y;
  if (a->reader != b->reader) return a->reader->id < b->reader->id ? -1 : 1;
  return a->in->id < b->in->id ? -1 : 1;
}

// Gives each reader of a value in host memory a copy on the device.
static void copy_in(Gradients *s) {
  Copies copy = {0};
  Values there = {0};
  for_each_op(op, s->g)
    if (op->kind == OP_swap_wait && value_on_host(op->out[0]))
      vec_push(s->scratch, &there, op->out[0]);
  for (int i = 0; i < there.n; i++) {
    Value *v = there.at[i];
    for (Use *u = v->uses, *next; u; u = next) {
      next = u->next;
      Op *op = u->user;
      Value *in = copy_op(s, op, OP_swap_in, &v, 1, v->layout, op);
      Value *here = copy_op(s, op, OP_swap_wait, ((Value *[]){in, v}), 2, v->layout, op);
      op_set_in(op, u->index, here);
      vec_push(s->scratch, &copy, ((Copy){in->def, op}));
    }
  }
  graph_renumber(s->g);
  if (copy.n) qsort(copy.at, (size_t)copy.n, sizeof *copy.at, by_reader);
  // Copies begin one reader ahead, if the value is there then.
  Op **reader = arena_array(s->scratch, Op *, module_n_meshes(s->g->module) + 1);
  Op **before = arena_array(s->scratch, Op *, module_n_meshes(s->g->module) + 1);
  for (int i = 0; i < copy.n; i++) {
    const Copy *c = &copy.at[i];
    int mesh = value_mesh_id(c->in->out[0]);
    if (reader[mesh] != c->reader) {
      before[mesh] = reader[mesh];
      reader[mesh] = c->reader;
    }
    Op *at = before[mesh];
    if (at && c->in->in[0].value->def->id < at->id) op_move_before(c->in, at);
  }
  graph_renumber(s->g);
}

// -- The pass ----------------------------------------------------------------------------------

bool pass_offload_gradients(Module *m, const PassOptions *o, Diag *d) {
  Graph *g = module_first_entry(m);
  if (!g) return true;
  Gradients s = {.g = g, .d = d, .scratch = opt_scratch(o)};
  graph_renumber(g);
  for_each_op(op, g)
    if (op->kind == OP_accumulate && op->offload_group) vec_push(s.scratch, &s.sum, op);
  if (!s.sum.n) return true;
  for (int i = 0; i < s.sum.n; i++)
    if (!split_views(&s, s.sum.at[i]->out[0])) return false;
  graph_renumber(g);
  // Reduced gradients are found from the marks of the sums.
  find_reduced(&s);
  accumulate_in_host(&s);
  reduced_to_host(&s);
  copy_in(&s);
  opt_stat(o, s.sum.n, "sums of gradients in host memory");
  opt_stat(o, s.reduced.n, "gradients that ranks added up in host memory");
  opt_stat(o, s.bytes, "bytes of both");
  return true;
}
