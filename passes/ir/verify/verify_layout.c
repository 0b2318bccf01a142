// The promises about layouts: 10 to 14 of verify.c.

#include "ir/analysis/boxes.h"
#include "ir/analysis/place.h"
#include "ir/collective.h"
#include "ir/loop.h"
#include "ir/op.h"
#include "ir/split.h"
#include "verify.h"
#include "verify_schedule.h"

static int n_axes(const Mesh *mesh) {
  return mesh ? mesh->n_axes : 0;
}

static bool each_value(Value *const *v, int n, bool check(const Value *, Diag *), Diag *d) {
  for (int i = 0; i < n; i++)
    if (!check(v[i], d)) return false;
  return true;
}

static bool wrong(const Value *v, const char *what, Diag *d) {
  const Loc *loc = v->def ? v->def->loc : v->loc;
  Arena *a = arena_new();
  diag_error(d, loc, "'%s' %s%s%s", value_text(a, v), what, v->layout ? ": " : "",
             v->layout ? layout_text(a, v->layout) : "");
  arena_free(a);
  return false;
}

static bool has_no_layout(const Value *v, Diag *d) {
  return !v->layout || wrong(v, "has a layout before the module is sharded", d);
}

// `*io_known` is a mesh of the module, that of the value before, or NULL: most values are on it.
static bool has_layout(const Value *v, const Mesh **io_known, Diag *d) {
  const Module *m = v->graph->module;
  if (!v->layout) return wrong(v, "has no layout", d);
  const Mesh *of = *io_known == v->layout->mesh ? *io_known : m->meshes;
  while (of && of != v->layout->mesh)
    of = of->next;
  *io_known = of;
  bool known = of || (!v->layout->mesh && !m->meshes);
  if (!known || v->layout->n_axes != n_axes(v->layout->mesh))
    return wrong(v, "has a layout that is not of a mesh of the module", d);
  // A bucket has the layout of its members; the layout's split dimensions are theirs.
  const Value *root = v;
  while (root->def && (op_info[root->def->kind].traits & COMM))
    root = root->def->in[0].value;
  bool bucket = root->def && root->def->kind == OP_pack;
  // Each axis: partial sums, splits along time, and the length of split dimensions.
  int64_t parts[MAX_NDIM];
  for (int i = 0; i < MAX_NDIM; i++)
    parts[i] = 1;
  for (int i = 0; i < v->layout->n_axes; i++) {
    Sbp sbp = v->layout->axis[i];
    if (sbp.kind == SBP_P && !v->def && v->graph->entry)
      return wrong(v, "is a parameter, and a partial sum", d);
    if (sbp.kind != SBP_B && v->layout->mesh->axis[i].time && value_lasts(v))
      return wrong(v, "is persistent, and is split along time", d);
    if (sbp.kind != SBP_S || bucket) continue;
    if (sbp.dim < 0 || sbp.dim >= v->type->ndim)
      return wrong(v, "lacks a dimension that its layout splits", d);
    parts[sbp.dim] *= v->layout->mesh->axis[i].size;
    // From local on the length is that of a shard.
    if (m->phase < PHASE_local && v->type->dim[sbp.dim] % parts[sbp.dim] != 0)
      return wrong(v, "has a dimension that its layout cannot split", d);
  }
  return true;
}

static bool have_layouts(Value *const *v, int n, const Mesh **io_known, Diag *d) {
  for (int i = 0; i < n; i++)
    if (!has_layout(v[i], io_known, d)) return false;
  return true;
}

static bool check_split(const Op *op, const Dims *dims, Diag *d) {
  const char *name = op_info[op->kind].name;
  bool whole = op->graph->module->phase < PHASE_local;
  for (int axis = 0; axis < MAX_AXES; axis++) {
    char letter = op->split[axis];
    if (letter == SPLIT_NONE) continue;
    if (axis >= n_axes(op_mesh(op)))
      return diag_error(d, op->loc, "%s: splits an axis that the mesh lacks", name);
    if (letter == SPLIT_PARTIAL) {
      // A partial sum may be rounded: legalize_types does so after an op that computes it in f32 in
      // place of 16 bits.  shard reduces before it rounds.
      int traits = op_traits(op), partial = 0, last = 0;
      bool rounds = op->kind == OP_cast && dtype_class[op->in[0].value->type->dtype] == 'F' &&
                    dtype_class[op->out[0]->type->dtype] == 'F';
      if (!(traits & (ADDITIVE | MULTILINEAR)) && !rounds)
        return diag_error(d, op->loc, "%s: cannot pass partial sums on", name);
      // f(a) + f(a') is f(a + a') if all operands are partial sums, or if one is and `op` is linear
      // in each.
      for (int i = 0; i < op->n_in; i++) {
        if (op->in[i].value->layout->axis[axis].kind != SBP_P) continue;
        partial++;
        last = i;
      }
      if (!op_passes_sums(op, partial, last) && !(rounds && partial == 1))
        return diag_error(d, op->loc, "%s: %d of %d operands are partial sums along %s", name,
                          partial, op->n_in, op_mesh(op)->axis[axis].name);
      continue;
    }
    // A letter of the einsum, of which shards have equal parts.
    int i = dims_find(dims, letter);
    if (i < 0 || dims->letter[i].whole || !dims_leads(dims, i) ||
        (whole && !split_legal(op, dims, i, axis)))
      return diag_error(d, op->loc, "%s: '%c' cannot be split along %s", name, letter,
                        op_mesh(op)->axis[axis].name);
  }
  return true;
}

static bool check_wants(const Op *op, const Dims *dims, Diag *d) {
  const char *name = op_info[op->kind].name;
  Arena *a = op->graph->module->arena;
  for (int i = 0; i < op->n_in; i++)
    for (int axis = 0; axis < n_axes(op_mesh(op)); axis++) {
      // The layout before, and the one that the op's split needs.
      Sbp have = op->in[i].value->layout->axis[axis];
      Sbp want = split_wants(op, dims, i, axis, have);
      if (sbp_equal(have, want)) continue;
      diag_error(d, op->loc, "%s: operand %d is %s along '%s', and must be %s", name, i,
                 sbp_text(a, have), op_mesh(op)->axis[axis].name, sbp_text(a, want));
      op_note_operand(op, i, d);
      if (have.kind == SBP_P) diag_hint(d, "P is a part of a sum: it is no value yet");
      return false;
    }
  return true;
}

// Checks that each rank has the block of operand 0 that is its block of the result: the operand is
// on the mesh of the result with its devices in that order.
static bool check_permuted(const Op *op, Diag *d) {
  const Layout *from = op->in[0].value->layout, *to = op->out[0]->layout;
  Arena *a = arena_new();
  const Mesh *want = permuted_mesh(op, to->mesh, a);
  bool same = want && from->n_axes == to->n_axes && mesh_is_alike(want, from->mesh);
  for (int i = 0; same && i < to->n_axes; i++)
    same = sbp_equal(from->axis[i], to->axis[i]);
  if (!want)
    diag_error(d, op->loc, "permute_blocks: '@%s' does not split dimension %lld into %d blocks",
               to->mesh->name, (long long)attr_i(op, "dim"), attr_n(op, "sources"));
  else if (!same)
    diag_error(d, op->loc,
               "permute_blocks: operand 0 is on '@%s', whose ranks do not have the blocks of the "
               "result in this order",
               from->mesh->name);
  if (!same) op_note_operand(op, 0, d);
  arena_free(a);
  return same;
}

// Checks that an op runs on one mesh.  Before local its operands may still be on other meshes.
static bool check_mesh(const Op *op, bool local, Diag *d) {
  const Mesh *mesh = op_mesh(op);
  for (int i = 0; i < op->n_out; i++)
    if (op->out[i]->layout->mesh != mesh)
      return diag_error(d, op->loc, "%s: one result is on '@%s' and another on '@%s'",
                        op_info[op->kind].name, mesh->name, op->out[i]->layout->mesh->name);
  if (local && op->kind == OP_permute_blocks) return check_permuted(op, d);
  // Only `move` reads from other meshes.
  for (int i = 0; local && op->kind != OP_move && i < op->n_in; i++) {
    const Mesh *of = op->in[i].value->layout->mesh;
    if (of == mesh) continue;
    diag_error(d, op->loc, "%s: runs on '@%s', and operand %d is on '@%s'", op_info[op->kind].name,
               mesh->name, i, of->name);
    op_note_operand(op, i, d);
    return false;
  }
  return true;
}

// Checks that ops that communicate, or accumulate over time, are over an axis of their mesh.
static bool check_axis(const Op *op, bool local, Diag *d) {
  const char *name = op_info[op->kind].name;
  int traits = op_info[op->kind].traits;
  if (!(traits & (COMM | ACCUMULATES))) return true;
  if (!local) return diag_error(d, op->loc, "%s: is here before the module is local", name);
  if (op->kind == OP_move) return true;
  // The axis must be one of the mesh; that of an accumulation, time.
  MeshAxes axes;
  if (!op_axes(op, &axes, d)) return false;
  if ((traits & ACCUMULATES) && op_time_axis(op) < 0)
    return diag_error(d, op->loc, "%s: axis '%s' is not bound to time", name, attr_s(op, "axis"));
  return true;
}

// Checks that `move` preserves the global shape, and the part of each time slice.
static bool check_move(const Op *op, Diag *d) {
  const Value *x = op->in[0].value, *y = op->out[0];
  for (int i = 0; i < x->type->ndim; i++) {
    // The global length is the local one times the number of parts.
    int64_t before, after, parts = layout_parts(x->layout, i);
    if (__builtin_mul_overflow(x->type->dim[i], parts, &before) ||
        __builtin_mul_overflow(y->type->dim[i], layout_parts(y->layout, i), &after))
      return diag_error(d, op->loc, "move: dimension %d is too long", i);
    if (before != after)
      return diag_error(d, op->loc, "move: dimension %d is %lld before and %lld after, as a whole",
                        i, (long long)before, (long long)after);
  }
  return same_in_time(x->layout, y->layout) ||
         diag_error(d, op->loc, "move: a slice of time has other parts before than after: %s, %s",
                    layout_text(op->graph->module->arena, x->layout),
                    layout_text(op->graph->module->arena, y->layout));
}

// Whether a value of a body has the layout of the value that it stands for.  Without axes there is
// nothing to split, and a body may have no layouts.
static bool same_layout(const Value *v, const Value *in_body) {
  return v->layout == in_body->layout || (!in_body->layout && v->layout->n_axes == 0);
}

// Checks that the body of a loop reads and returns slices of the layouts of its operands and
// results.
static bool same_slice_layout(const Value *v, const Value *in_body, bool sliced) {
  if (!sliced || v->layout->n_axes == 0) return same_layout(v, in_body);
  // Iterations are no parts of ranks.
  for (int axis = 0; axis < v->layout->n_axes; axis++)
    if (v->layout->axis[axis].kind == SBP_S && v->layout->axis[axis].dim == 0) return false;
  return loop_slice_layout(v->graph->module, v->layout) == in_body->layout;
}

// Checks that a body reads and returns values of the layouts of the op that runs it.
static bool check_body(const Op *op, Diag *d) {
  const char *name = op_info[op->kind].name;
  Arena *a = op->graph->module->arena;
  bool loop = op->kind == OP_loop;
  LoopForm f = loop ? loop_form(op) : (LoopForm){0};
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value, *want = op->callee->params[i];
    if (same_slice_layout(v, want, i >= f.carried && i < f.carried + f.sliced)) continue;
    diag_error(d, op->loc, "%s: operand %d is %s, and its body '@%s' reads %s", name, i,
               layout_text(a, v->layout), op->callee->name,
               want->layout ? layout_text(a, want->layout) : "no layout");
    op_note_operand(op, i, d);
    return false;
  }
  // The memory of a loop's body has no layout of its own.
  for (int i = 0; i < op->callee->n_results; i++)
    if (!same_slice_layout(op->out[i], op->callee->results[i]->use.value,
                           loop && i >= f.carried && i < f.carried + f.stacked))
      return wrong(op->out[i], "has not the layout of its body's result", d);
  return true;
}

static bool check_op(const Op *op, bool local, Arena *a, Diag *d) {
  int traits = op_info[op->kind].traits, axes = n_axes(op_mesh(op));
  if (!check_mesh(op, local, d) || !check_axis(op, local, d)) return false;
  if (op->kind == OP_move) return check_move(op, d);
  // A collective: its rule gives the layout of the result.
  if (local && (traits & COMM)) {
    Sbp gives[MAX_AXES];
    if (!collective_gives(op, gives, d)) return false;
    for (int axis = 0; axis < axes; axis++)
      if (!sbp_equal(op->out[0]->layout->axis[axis], gives[axis]))
        return wrong(op->out[0], "has not the layout of its collective's result", d);
    return true;
  }
  // The end of the copy of a sum: its operand 1 is the term, a partial sum along time.
  if (local && op_waits_for_sum(op))
    return op->out[0]->layout == op->in[0].value->layout ||
           wrong(op->out[0], "has not the layout of the sum that it waits for", d);
  // A bucket has the layout of all its members, and an unpacked member that of the bucket.
  if (local && (op->kind == OP_pack || op->kind == OP_unpack)) {
    for (int i = 0; i < op->n_in; i++)
      if (op->in[i].value->layout != op->out[0]->layout)
        return wrong(op->in[i].value,
                     op->kind == OP_pack ? "has not the layout of the bucket that it is packed into"
                                         : "has not the layout of the gradient unpacked from it",
                     d);
    return true;
  }
  // A fill is the same in every shard, but the shares of a partial sum would add up.
  if (local && op->kind == OP_fill) {
    for (int axis = 0; axis < axes; axis++)
      if (op->out[0]->layout->axis[axis].kind == SBP_P)
        return wrong(op->out[0], "is a fill, and a partial sum", d);
    return true;
  }
  if (local && op->callee) return check_body(op, d);
  // All other ops: their split decides the layouts of operands and results.
  const Dims *dims = op_dims_kept(op, a, d);
  if (!dims || !check_split(op, dims, d)) return false;
  // A kernel is of one block.
  int64_t blocks = local ? attention_blocks(op) : 0;
  if (blocks > 1)
    return diag_error(d, op->loc, "%s: a rank has %lld of %lld blocks, and must have one",
                      op_info[op->kind].name, (long long)blocks, (long long)attr_i(op, "blocks"));
  // Every slice has a term of an accumulation.
  if (traits & ACCUMULATES) {
    int time = op_time_axis(op);
    if (op->split[time] == SPLIT_NONE || split_gives(op, dims, 0, time).kind != SBP_B)
      return diag_error(d, op->loc, "%s: a slice of '%s' has no part of the sum",
                        op_info[op->kind].name, attr_s(op, "axis"));
  }
  for (int i = 0; i < op->n_out; i++)
    for (int axis = 0; axis < axes; axis++)
      if (!sbp_equal(op->out[i]->layout->axis[axis], split_gives(op, dims, i, axis)))
        return wrong(op->out[i], "has not the layout of its op's result", d);
  return !local || check_wants(op, dims, d);
}

// Results of an op are checked before the op, so its operands are already checked.
bool verify_sharded(const Graph *g, Features *has, Diag *d) {
  Phase phase = g->module->phase;
  // Before, there are no layouts, splits or communication.
  if (phase < PHASE_sharded) {
    if (!has->layouts && !has->splits && !has->shares) return true;
    if (!each_value(g->params, g->n_params, has_no_layout, d)) return false;
    for_each_op(op, g) {
      for (int i = 0; i < MAX_AXES; i++)
        if (op->split[i])
          return diag_error(d, op->loc, "%s: is split before the module is sharded",
                            op_info[op->kind].name);
      if (!check_axis(op, false, d) || !each_value(op->out, op->n_out, has_no_layout, d))
        return false;
    }
    return true;
  }
  // Values of entry graphs have layouts, and from local on those of bodies: see check_body.
  bool body = !g->entry && phase >= PHASE_local;
  const Value *one = g->first ? g->first->out[0] : NULL;
  if (!g->entry && !(body && one && one->layout)) return true;
  Arena *a = arena_new();
  const Mesh *known = NULL;
  bool ok = have_layouts(g->params, g->n_params, &known, d);
  for (const Op *op = g->first; ok && op; op = op->next)
    ok = have_layouts(op->out, op->n_out, &known, d) && check_op(op, phase >= PHASE_local, a, d);
  arena_free(a);
  return ok;
}

// Whether the value differs by time slice: it is a slice, or a slice's share of a sum.
static bool per_slice(const Value *v) {
  const Layout *l = v->layout;
  for (int axis = 0; axis < l->n_axes; axis++)
    if (l->mesh->axis[axis].time && l->axis[axis].kind != SBP_B) return true;
  return false;
}

// A sum over time is complete only after the last slice, and the ops of the update run after it.
static bool check_time(const Graph *g, Diag *d) {
  bool time = false;
  for_each_mesh(mesh, g->module)
    for (int i = 0; i < mesh->n_axes; i++)
      time |= mesh->axis[i].time;
  if (!time) return true;
  Arena *a = arena_new();
  bool *late = arena_array(a, bool, g->n_values), ok = true; // by value: it depends on such a sum
  const bool *update = graph_update_ops(g, a);
  for (const Op *op = g->first; ok && op; op = op->next) {
    // The op runs for every time slice if an operand or a result differs by slice.
    bool reads = false, runs_per_slice = false;
    for (int i = 0; i < op->n_in; i++) {
      reads |= late[op->in[i].value->id];
      runs_per_slice |= per_slice(op->in[i].value);
    }
    for (int i = 0; i < op->n_out; i++) {
      late[op->out[i]->id] = reads || update[op->id] || value_accumulates(op->out[i]);
      runs_per_slice |= per_slice(op->out[i]);
    }
    // The end of a copy of the sum reads the term of its slice, and lets it go.
    if (reads && runs_per_slice && !op_waits_for_sum(op))
      ok = diag_error(d, op->loc, "%s: reads a sum over slices of time in every slice",
                      op_info[op->kind].name);
  }
  arena_free(a);
  return ok;
}

bool verify_local(const Graph *g, Features *has, Diag *d) {
  (void)has;
  if (g->module->phase < PHASE_local || !g->entry) return true;
  for (int i = 0; i < g->n_results; i++) {
    const Result *r = g->results[i];
    const Value *v = r->use.value;
    // Results leave the step, so they are complete values.
    for (int axis = 0; axis < v->layout->n_axes; axis++)
      if (v->layout->axis[axis].kind == SBP_P) return wrong(v, "is a result, and a partial sum", d);
    if (r->target && v->layout != r->target->layout)
      return wrong(v, "has not the layout of the parameter it updates", d);
  }
  return check_time(g, d) && verify_schedule(g, d);
}
