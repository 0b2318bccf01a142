// Weight stashing: stages that do not wait for each other's updates (PipeDream: Narayanan et al.
// 2019, section 3.3).
//
// If the plan's kind of schedule is asynchronous (schedule/kinds.h), every time slice is a batch of
// its own, and each stage updates its weights at the end of the slice's backward:
//
//     %h  = linear %x, %w                         %s  = stash %w
//     …                                           %h  = linear %x, %w
//     %d  = linear %e, %w       backward          %d  = linear %e, %s       backward
//     %p  = linear_back_w %x, %e backward   =>    %p  = linear_back_w %x, %e backward
//     %a  = accumulate %p       update            %g  = take_partial %p        update
//     %w1 = sgd %w, %a, %lr, %1 update            %w1 = sgd %w, %g, %lr, %4 update
//     %q  = sum_squares %a      update            %q  = sum_squares %g      update
//     …                                           %b  = as_partial %q         update
//     …                                           %n  = accumulate %b       update
//
// Results change, and are meant to: this is no plan of the same step, and the proof (prove.c)
// covers only earlier passes. A gradient is that of an older version of the weights, by as many
// updates as the stage is slices ahead: P - 1 - s for stage s of P. The loss of a slice is the mean
// over its own rows, so its gradients are those of a mean over all rows times the number of slices
// (if a loss is a sum, a slice thus stands for all of them). The step number of optimizers with
// bias correction counts slices. grad_norm is the root of the mean, over the slices, of their
// squared norms; the loss remains the mean over slices. The learning rate is per step.
//
// A weight that backward reads is copied in each forward. `schedule` keeps as many copies as live
// slices, P - s, and removes a copy if no update comes between (stage P - 1).
//
// An update that waits for other stages is an error: gradients clipped by a norm of all, a weight
// that several stages use, a mean over a number of rows that only all slices know, a loss scale.

#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "ir/analysis/local.h"
#include "ir/analysis/place.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"
#include "ir/split.h"
#include "pass.h"
#include "schedule/kinds.h"

// The scalars that an optimizer op read, and the op, which now reads their replacements.
typedef struct Scalars {
  const Value *gscale, *step; // no step: NULL
  const Op *op;
} Scalars;

typedef struct Stasher {
  Graph *g;
  Arena *scratch;
  Diag *d;
  const char *kind;
  int slices;
  const bool *late; // by op id: it ran once per step
  bool *ours;       // by op id: a weight's update depends on it
  uint32_t n_ops;   // number of ops with such ids
  Vec(Scalars) scalars;
  int64_t stashes;
} Stasher;

static const char *label_of(const Value *v) {
  return v->label ? v->label : v->name ? v->name : "a weight";
}

static bool is_ours(const Stasher *s, const Op *op) {
  return op && op->id < s->n_ops && s->ours[op->id];
}

static int time_axis(const Mesh *mesh) {
  for (int i = 0; i < mesh->n_axes; i++)
    if (mesh->axis[i].time) return i;
  BUG("slices without an axis of time");
}

static const char *time_name(const Mesh *mesh) {
  return mesh->axis[time_axis(mesh)].name;
}

static const Layout *along_time(const Value *v, int kind) {
  Sbp axis[MAX_AXES];
  memcpy(axis, v->layout->axis, sizeof axis);
  axis[time_axis(v->layout->mesh)] = (Sbp){.kind = kind};
  return layout_new(v->graph->module, v->layout->mesh, axis);
}

// -- Operands of a weight's update ----------------------------------------------------------------

// Whether the op moves a value to other devices that do not have it already.
static bool goes_elsewhere(const Stasher *s, const Op *op) {
  return op->kind == OP_move && !op_inplace(op, 0, 0, s->scratch) &&
         !mesh_same_devices(op->in[0].value->layout->mesh, op_mesh(op));
}

// Marks the ops that ran once per step and lead to `v`, except for scalars, which are replaced.
static void mark(Stasher *s, const Value *v) {
  Op *op = v->def;
  if (!op || !s->late[op->id] || s->ours[op->id]) return;
  s->ours[op->id] = true;
  for (int i = 0; i < op->n_in; i++)
    if (!op_optimizes(op) || i < op_gscale(op)) mark(s, op->in[i].value);
}

// The constant that a scalar has; false: it is computed.
static bool is_number(const Value *v, double *number) {
  const Op *op = v->def;
  while (op && (op->kind == OP_move || op->kind == OP_cast))
    op = op->in[0].value->def;
  if (!op || op->kind != OP_fill) return false;
  *number = attr_f(op, "value");
  return true;
}

// -- Errors ---------------------------------------------------------------------------------------

static bool wrong(const Stasher *s, const Value *w, const char *why, const char *hint) {
  diag_error(s->d, w->loc, "'%s' cannot be updated after each micro-batch, as '%s' does: %s",
             label_of(w), s->kind, why);
  if (hint) diag_hint(s->d, "%s", hint);
  return false;
}

static bool check_gscale(const Stasher *s, const Value *w, const Op *op) {
  const Value *scale = op->in[op_gscale(op)].value;
  double number;
  if (is_number(scale, &number)) return true;
  if (graph_find_output(s->g, "loss_scale"))
    return wrong(s, w, "whether gradients are finite in f16 is known when all stages have theirs",
                 "compile with --dtype bf16 or f32");
  if (value_leads_from(scale, OP_sum_squares, arena_array(s->scratch, bool, s->g->n_ops)))
    return wrong(s, w,
                 "the norm that gradients are clipped by is known when all stages have theirs",
                 "compile without --clip-norm");
  return wrong(s, w, "the loss is a mean over a number of labels that the whole step is to count",
               "leave ignore_index out of the loss");
}

// Whether `op` depends on a value from other devices.
static bool comes_from_elsewhere(const Stasher *s, const Op *op) {
  if (goes_elsewhere(s, op)) return true;
  for (int i = 0; i < op->n_in; i++) {
    const Op *made = op->in[i].value->def;
    if (is_ours(s, made) && comes_from_elsewhere(s, made)) return true;
  }
  return false;
}

// Whether the weight, or a forward value computed from it alone, is sent to other devices.
static bool is_sent(const Stasher *s, const Value *v) {
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op || op->part != PART_forward) continue;
    if (goes_elsewhere(s, op)) return true;
    bool alone = op->n_in == 1 && op->n_out == 1;
    if (alone && is_sent(s, op->out[0])) return true;
  }
  return false;
}

static bool check_alone(const Stasher *s, const Value *w, const Op *update) {
  return (!is_sent(s, w) && !comes_from_elsewhere(s, update)) ||
         wrong(s, w, "several stages use it",
               "place its readers on one stage, or give each stage a weight");
}

// -- Scalars -------------------------------------------------------------------------------------

// The number of the slice, from 0: its own share of the sum over the numbers of all slices.
static Value *slice_number(const Stasher *s, Builder *b, const Layout *layout) {
  static const int64_t first[] = {0};
  Module *m = s->g->module;
  const char *time = time_name(layout->mesh);
  int64_t n = s->slices, *number = arena_array(s->scratch, int64_t, n);
  for (int64_t i = 0; i < n; i++)
    number[i] = i;
  // Each slice has its own number of the list.
  Value *all = build_constant(b, type_new(m, DT_i64, 1, &n), number);
  all->layout = layout;
  Value *own = build_op(b, OP_local_slice, IN(all), ATTRS(a_s("axis", time), a_i("dim", 0)));
  if (!own) BUG("local_slice does not fit");
  own->layout = along_time(all, SBP_S);
  char split[MAX_AXES] = {0};
  split[time_axis(layout->mesh)] = 'a'; // the letter of the first dimension that reduce_sum sums
  // The list is sharded over time: the sum of a shard is the number itself.
  Op *sum = local_op(b, OP_reduce_sum, IN(own), ATTRS(a_list("axes", first, 1)), split);
  if (!sum) BUG("reduce_sum does not fit");
  // It is a share, not a sum over all slices.
  Value *share = build_op(b, OP_take_partial, IN(sum->out[0]), ATTRS(a_s("axis", time)));
  share->layout = layout;
  return share;
}

// Replaces the scalars of an optimizer op. Ops that read the same scalars share the replacements.
static void make_scalars(Stasher *s, Op *op) {
  Scalars is = {op->in[op_gscale(op)].value,
                op_gscale(op) + 1 < op->n_in ? op->in[op->n_in - 1].value : NULL, op};
  // Another op may have the same scalars.
  for (int i = 0; i < s->scalars.n; i++) {
    const Scalars *made = &s->scalars.at[i];
    if (made->gscale != is.gscale || made->step != is.step) continue;
    for (int k = op_gscale(op); k < op->n_in; k++)
      op_set_in(op, k, made->op->in[k].value);
    return;
  }
  vec_push(s->scratch, &s->scalars, is);
  Builder b = {.g = s->g, .at = op, .origin = op_origin(op), .d = s->d};
  // Gradients are multiplied by the number of slices: from means over all slices to means over one.
  const Value *scale = op->in[op_gscale(op)].value;
  double number = 1;
  is_number(scale, &number);
  Value *times = build_fill(&b, scale->type->dtype, 0, NULL, number * s->slices);
  if (!times) BUG("fill does not fit");
  times->layout = scale->layout;
  op_set_in(op, op_gscale(op), times);
  // The step counts earlier updates: one for each slice of earlier steps, and each earlier slice.
  static const char nothing[MAX_AXES];
  int at = op_gscale(op) + 1;
  if (at >= op->n_in) return;
  Value *step = op->in[at].value, *slice = slice_number(s, &b, step->layout);
  Op *steps = local_op(&b, OP_scale, IN(step), ATTRS(a_f("by", s->slices)), nothing);
  Op *sum = steps ? local_op(&b, OP_add, IN(steps->out[0], slice), NO_ATTRS, nothing) : NULL;
  if (!sum) BUG("add does not fit");
  op_set_in(op, at, sum->out[0]);
}

// -- Updates -------------------------------------------------------------------------------------

// Makes the selected readers of `v` read its sum over slices.
static void add_up(const Stasher *s, Value *v, bool for_use(const Stasher *s, const Use *u)) {
  Vec(const Use *) uses = {0};
  for_each_use(u, v)
    if (for_use(s, u)) vec_push(s->scratch, &uses, u);
  // Only then is the sum needed.
  if (!uses.n) return;
  const char *time = time_name(v->layout->mesh);
  Builder b = {.g = s->g, .at = v->def->next, .origin = op_origin(v->def), .d = s->d};
  // The value is a partial sum, which accumulate reduces over time.
  Value *part = build_op(&b, OP_as_partial, IN(v), ATTRS(a_s("axis", time)));
  Value *sum = build_op(&b, OP_accumulate, IN(part), ATTRS(a_s("axis", time)));
  if (!sum) BUG("accumulate does not fit");
  part->layout = along_time(v, SBP_P);
  sum->layout = v->layout;
  for (int i = 0; i < uses.n; i++) {
    if (uses.at[i]->user)
      op_set_in(uses.at[i]->user, uses.at[i]->index, sum);
    else
      graph_set_result(s->g, uses.at[i]->index, sum);
  }
}

static bool any_use(const Stasher *s, const Use *u) {
  (void)s, (void)u;
  return true;
}

static bool squares_gradient(const Stasher *s, const Op *op) {
  return op->kind == OP_sum_squares && op->part == PART_update && !is_ours(s, op);
}

// Whether the use runs once per step: an op on another value of a gradient bucket, such as the
// loss.
static bool runs_once(const Stasher *s, const Use *u) {
  if (!u->user) return s->g->results[u->index]->label != NULL;
  return u->user->id < s->n_ops && s->late[u->user->id] && !is_ours(s, u->user) &&
         !squares_gradient(s, u->user);
}

static void update_each_slice(Stasher *s) {
  // An update reads the slice's own share of a sum over slices.
  for_each_op_safe(op, s->g) {
    if (op->kind != OP_accumulate) continue;
    bool leads = false;
    for_each_use(u, op->out[0])
      leads |= is_ours(s, u->user);
    if (!leads) continue;
    Builder b = {.g = s->g, .at = op, .origin = op_origin(op), .d = s->d};
    b.origin.part = PART_update;
    Value *share =
        build_op(&b, OP_take_partial, IN(op->in[0].value), ATTRS(a_s("axis", attr_s(op, "axis"))));
    if (!share) BUG("take_partial does not fit");
    share->layout = op->out[0]->layout;
    value_replace(op->out[0], share);
    op_erase(op);
  }
  // Ops that run once per step still read sums.
  for_each_op_safe(op, s->g) {
    for (int i = 0; is_ours(s, op) && i < op->n_out; i++)
      add_up(s, op->out[i], runs_once);
    if (op->id < s->n_ops && squares_gradient(s, op)) add_up(s, op->out[0], any_use);
  }
  // The norm becomes the root of the mean, over slices, of the squared norms of their gradients.
  Result *norm = graph_find_output(s->g, "grad_norm");
  if (norm) {
    Value *v = norm->use.value;
    Builder b = {.g = s->g, .origin = value_origin(v), .d = s->d};
    Value *scaled =
        local_value(&b, OP_scale, IN(v), ATTRS(a_f("by", sqrt((double)s->slices))), v->layout);
    if (!scaled) BUG("scale does not fit");
    graph_set_result(s->g, norm->use.index, scaled);
  }
  for_each_op_safe(op, s->g)
    if (is_ours(s, op) && op_optimizes(op)) make_scalars(s, op);
  for (int i = 0; i < s->g->n_results; i++) {
    const Result *r = s->g->results[i];
    if (r->target && is_ours(s, r->use.value->def)) r->target->each_slice = true;
  }
}

// -- Stashes -------------------------------------------------------------------------------------

// Finds the first forward reader of the value or its views, and whether backward reads these.
static void find_readers(const Value *v, Op **forward, bool *backward) {
  for_each_use(u, v) {
    Op *op = u->user;
    if (!op || op->part == PART_update) continue;
    *backward |= op->part == PART_backward;
    if (op->part != PART_forward) continue;
    if (!*forward || op->id < (*forward)->id) *forward = op;
    if (op_is_view(op)) find_readers(op->out[0], forward, backward);
  }
}

// Makes backward readers of `v`, or of its views, read the copy.
static void read_copy(const Stasher *s, Value *v, Value *copy) {
  Vec(Use *) uses = {0};
  for_each_use(u, v)
    if (u->user) vec_push(s->scratch, &uses, u);
  for (int i = 0; i < uses.n; i++) {
    Op *op = uses.at[i]->user, *forward = NULL;
    int index = uses.at[i]->index;
    bool backward = false;
    if (op->part == PART_backward) op_set_in(op, index, copy);
    if (op->part != PART_forward || !op_is_view(op)) continue;
    find_readers(op->out[0], &forward, &backward);
    // A view that backward reads is rebuilt on the copy.
    if (!backward) continue;
    Op *view = op_copy(s->g, op, op, &copy, s->d);
    if (!view) BUG("a copy of %s does not fit", op_info[op->kind].name);
    memcpy(view->split, op->split, sizeof view->split);
    view->out[0]->layout = op->out[0]->layout;
    read_copy(s, op->out[0], view->out[0]);
  }
}

// -- The pass ------------------------------------------------------------------------------------

static bool check_step(const Stasher *s, int64_t accumulate) {
  if (accumulate > 1) {
    diag_error(s->d, s->g->module->schedule_loc,
               "'%s' updates weights after each micro-batch: gradients cannot be accumulated over "
               "%lld batches",
               s->kind, (long long)accumulate);
    diag_hint(s->d, "compile without --accumulate, with a larger --batch");
    return false;
  }
  if (s->slices > 1) return true;
  diag_error(s->d, s->g->module->schedule_loc,
             "'%s' updates weights after each micro-batch, and the batch is in one", s->kind);
  diag_hint(s->d, "--micro-batches M cuts it in M, each of which is a batch to train on");
  return false;
}

static bool check_updates(Stasher *s) {
  for (int i = 0; i < s->g->n_results; i++) {
    const Result *r = s->g->results[i];
    bool trained = r->target && r->target->role == ROLE_weight && r->target->train;
    if (trained) {
      const Op *op = value_optimizer(r->use.value);
      if (!op) BUG("no optimizer updates '%s'", label_of(r->target));
      mark(s, r->use.value);
      if (!check_gscale(s, r->target, op) || !check_alone(s, r->target, r->use.value->def))
        return false;
    }
  }
  return true;
}

static void say_what_changes(const Stasher *s) {
  // The number of sets of devices with updated weights.
  const Module *m = s->g->module;
  Vec(const Mesh *) stage = {0};
  for (int i = 0; i < s->g->n_params; i++) {
    const Mesh *mesh = s->g->params[i]->layout->mesh;
    bool known = !s->g->params[i]->each_slice;
    for (int k = 0; k < stage.n && !known; k++)
      known = mesh_same_devices(stage.at[k], mesh);
    if (!known) vec_push(s->scratch, &stage, mesh);
  }
  int stages = m->meshes ? stage.n : 1;
  diag_warning(s->d, NULL,
               "'%s' updates weights after each of %d micro-batches: losses are not those of one "
               "rank, which no proof covers, and gradients are of weights up to %d update%s old",
               s->kind, s->slices, stages - 1, stages == 2 ? "" : "s");
}

bool pass_stash_weights(Module *m, const PassOptions *o, Diag *d) {
  Stasher s = {.g = module_first_entry(m), .scratch = opt_scratch(o), .d = d, .kind = m->schedule};
  ScheduleKind kind;
  ScheduleNature nature = {0};
  // The pass `schedule` reports errors in the kind.
  bool known = m->schedule && !schedule_kind(s.scratch, m->schedule, &kind);
  if (known && !schedule_nature(s.scratch, &kind, &nature, d)) return false;
  if (!nature.asynchronous) return true;
  s.slices = (int)module_slices(m);
  // Slices must be batches of their own, and no update may depend on other stages.
  if (!check_step(&s, opt_int(o, "accumulate", 1))) return false;
  graph_renumber(s.g);
  s.late = graph_update_ops(s.g, s.scratch);
  s.n_ops = s.g->n_ops;
  s.ours = arena_array(s.scratch, bool, s.n_ops);
  if (!check_updates(&s)) return false;
  // From here on each slice updates the weights.
  update_each_slice(&s);
  graph_renumber(s.g);
  for (int i = 0; i < s.g->n_params; i++)
    if (s.g->params[i]->each_slice) {
      // Backward reads the version of the weight that forward has read.
      Value *w = s.g->params[i];
      Op *forward = NULL;
      bool backward = false;
      find_readers(w, &forward, &backward);
      if (forward && backward) {
        Builder b = {.g = s.g, .at = forward, .d = s.d};
        b.origin = origin_for(s.g->module->arena, op_origin(forward), "stash");
        Value *copy = local_value(&b, OP_stash, IN(w), NO_ATTRS, w->layout);
        if (!copy) BUG("stash does not fit");
        read_copy(&s, w, copy);
        s.stashes++;
      }
    }
  // Each update follows its last operand, so that gradients die early. Updates are in order, and
  // each follows the ones moved before it, so none precedes its operands.
  graph_renumber(s.g);
  const bool *late = graph_update_ops(s.g, s.scratch);
  uint32_t *behind =
      arena_array(s.scratch, uint32_t, s.g->n_ops); // 1 + id of the op that it follows; 0: none
  Op **last = arena_array(s.scratch, Op *, s.g->n_ops + 1); // the last op placed after it
  Op *first = s.g->first;
  for_each_op(op, s.g) {
    last[op->id + 1] = op;
    behind[op->id] = op->id + 1;
  }
  // Updates are visited in order; all other ops stay.
  for_each_op_safe(op, s.g) {
    if (op->part != PART_update || late[op->id]) continue;
    behind[op->id] = 0;
    for (int i = 0; i < op->n_in; i++) {
      const Op *made = op->in[i].value->def;
      if (made && behind[made->id] > behind[op->id]) behind[op->id] = behind[made->id];
    }
    Op **after = &last[behind[op->id]], *at = *after ? (*after)->next : first;
    if (at != op) op_move_before(op, at);
    *after = op;
  }
  graph_renumber(s.g);
  drop_dead(s.g);
  graph_renumber(s.g);
  say_what_changes(&s);
  opt_stat(o, s.stashes, "weights stashed");
  return true;
}
