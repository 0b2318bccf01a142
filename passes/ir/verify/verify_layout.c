// The promises about layouts: 10 to 14 of verify.c.

#include "ir/analysis/boxes.h"
#include "ir/collective.h"
#include "ir/op.h"
#include "ir/split.h"
#include "verify.h"
#include "verify_schedule.h"

static int n_axes(const Mesh *mesh) {
  return mesh ? mesh->n_axes : 0;
}

static bool is_of_module(const Mesh *mesh, const Module *m) {
  const Mesh *of = m->meshes;
  while (of && of != mesh)
    of = of->next;
  return of || (!mesh && !m->meshes);
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

// A bucket has the layout of its members; the layout's split dimensions are theirs.
static bool is_bucket(const Value *v) {
  while (v->def && (op_info[v->def->kind].traits & COMM))
    v = v->def->in[0].value;
  return v->def && v->def->kind == OP_pack;
}

static bool has_layout(const Value *v, Diag *d) {
  const Module *m = v->graph->module;
  if (!v->layout) return wrong(v, "has no layout", d);
  if (!is_of_module(v->layout->mesh, m) || v->layout->n_axes != n_axes(v->layout->mesh))
    return wrong(v, "has a layout that is not of a mesh of the module", d);
  int64_t parts[MAX_RANK];
  for (int i = 0; i < MAX_RANK; i++)
    parts[i] = 1;
  for (int i = 0; i < v->layout->n_axes; i++) {
    Sbp sbp = v->layout->axis[i];
    if (sbp.kind == SBP_P && !v->def) return wrong(v, "is a parameter, and a partial sum", d);
    if (sbp.kind != SBP_B && v->layout->mesh->axis[i].time && value_lasts(v))
      return wrong(v, "lasts from step to step, and is cut along time", d);
    if (sbp.kind != SBP_S || is_bucket(v)) continue;
    if (sbp.dim < 0 || sbp.dim >= v->type->rank)
      return wrong(v, "lacks a dimension that its layout splits", d);
    parts[sbp.dim] *= v->layout->mesh->axis[i].size;
    // From local on the length is that of a shard.
    if (m->phase < PHASE_local && v->type->dim[sbp.dim] % parts[sbp.dim] != 0)
      return wrong(v, "has a dimension that cannot be cut as its layout says", d);
  }
  return true;
}

// A partial sum may be rounded: legalize_types does so after an op that computes it in f32 in place
// of 16 bits.  shard reduces before it rounds.
static bool is_rounding(const Op *op) {
  return op->kind == OP_cast && dtype_class[op->in[0].value->type->dtype] == 'F' &&
         dtype_class[op->out[0]->type->dtype] == 'F';
}

// f(a) + f(a') is f(a + a') if all operands are partial sums, or if one is and `op` is linear in
// each.
static bool check_partial(const Op *op, int axis, Diag *d) {
  const char *name = op_info[op->kind].name;
  int traits = op_traits(op), partial = 0;
  if (!(traits & (ADDITIVE | MULTILINEAR)) && !is_rounding(op))
    return diag_error(d, op->loc, "%s: cannot pass partial sums on", name);
  for (int i = 0; i < op->n_in; i++)
    partial += op->in[i].value->layout->axis[axis].kind == SBP_P;
  if (partial == (traits & MULTILINEAR ? 1 : op->n_in)) return true;
  return diag_error(d, op->loc, "%s: %d of %d operands are partial sums along %s", name, partial,
                    op->n_in, op_mesh(op)->axis[axis].name);
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
      if (!check_partial(op, axis, d)) return false;
      continue;
    }
    int i = dims_find(dims, letter);
    if (i < 0 || dims->letter[i].whole || !dims_leads(dims, i) ||
        (whole && !split_legal(op, dims, i, axis)))
      return diag_error(d, op->loc, "%s: '%c' cannot be split along %s", name, letter,
                        op_mesh(op)->axis[axis].name);
  }
  return true;
}

static bool check_gives(const Op *op, const Dims *dims, Diag *d) {
  for (int i = 0; i < op->n_out; i++)
    for (int axis = 0; axis < n_axes(op_mesh(op)); axis++)
      if (!sbp_equal(op->out[i]->layout->axis[axis], split_gives(op, dims, i, axis)))
        return wrong(op->out[i], "does not lie as its op leaves it", d);
  return true;
}

static bool check_wants(const Op *op, const Dims *dims, Diag *d) {
  const char *name = op_info[op->kind].name;
  Arena *a = op->graph->module->arena;
  for (int i = 0; i < op->n_in; i++)
    for (int axis = 0; axis < n_axes(op_mesh(op)); axis++) {
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

// Checks the result of a collective against its rule.
static bool check_collective(const Op *op, Diag *d) {
  Sbp gives[MAX_AXES];
  if (!collective_gives(op, gives, d)) return false;
  for (int axis = 0; axis < n_axes(op_mesh(op)); axis++)
    if (!sbp_equal(op->out[0]->layout->axis[axis], gives[axis]))
      return wrong(op->out[0], "does not lie as its collective leaves it", d);
  return true;
}

// Checks that a bucket has the layout of all its members, and an unpacked member that of the
// bucket.
static bool check_bucket(const Op *op, Diag *d) {
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->layout != op->out[0]->layout)
      return wrong(op->in[i].value,
                   op->kind == OP_pack ? "does not lie as the bucket that it is packed into"
                                       : "does not lie as what is read back from it",
                   d);
  return true;
}

// A fill is the same in every shard, but the shares of a partial sum would add up.
static bool check_fill(const Op *op, Diag *d) {
  for (int axis = 0; axis < n_axes(op_mesh(op)); axis++)
    if (op->out[0]->layout->axis[axis].kind == SBP_P)
      return wrong(op->out[0], "is a fill, and a partial sum", d);
  return true;
}

// Checks that an op runs on one mesh.  Before local its operands may still be on other meshes.
static bool check_mesh(const Op *op, bool local, Diag *d) {
  const Mesh *mesh = op_mesh(op);
  for (int i = 0; i < op->n_out; i++)
    if (op->out[i]->layout->mesh != mesh)
      return diag_error(d, op->loc, "%s: one result is on '@%s' and another on '@%s'",
                        op_info[op->kind].name, mesh->name, op->out[i]->layout->mesh->name);
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
  MeshAxes axes;
  if (!op_axes(op, &axes, d)) return false;
  if ((traits & ACCUMULATES) && op_time_axis(op) < 0)
    return diag_error(d, op->loc, "%s: axis '%s' is not bound to time", name, attr_s(op, "axis"));
  return true;
}

// Checks that every slice has a term of an accumulation.
static bool check_adds_up(const Op *op, const Dims *dims, Diag *d) {
  if (!(op_info[op->kind].traits & ACCUMULATES)) return true;
  int axis = op_time_axis(op);
  if (op->split[axis] != SPLIT_NONE && split_gives(op, dims, 0, axis).kind == SBP_B) return true;
  return diag_error(d, op->loc, "%s: a slice of '%s' has no part of the sum",
                    op_info[op->kind].name, attr_s(op, "axis"));
}

// Checks that `move` preserves the global shape, and the part of each time slice.
static bool check_move(const Op *op, Diag *d) {
  const Value *x = op->in[0].value, *y = op->out[0];
  for (int i = 0; i < x->type->rank; i++) {
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

static bool check_op(const Op *op, bool local, Arena *a, Diag *d) {
  if (!check_mesh(op, local, d) || !check_axis(op, local, d)) return false;
  if (op->kind == OP_move) return check_move(op, d);
  if (local && (op_info[op->kind].traits & COMM)) return check_collective(op, d);
  if (local && (op->kind == OP_pack || op->kind == OP_unpack)) return check_bucket(op, d);
  if (local && op->kind == OP_fill) return check_fill(op, d);
  if (local && op->callee) return true; // layouts in a fused body were checked before fusion
  const Dims *dims = op_dims_kept(op, a, d);
  if (!dims || !check_split(op, dims, d) || !check_adds_up(op, dims, d) ||
      !check_gives(op, dims, d))
    return false;
  return !local || check_wants(op, dims, d);
}

static bool check_nothing_split(const Op *op, Diag *d) {
  const char *name = op_info[op->kind].name;
  for (int i = 0; i < MAX_AXES; i++)
    if (op->split[i])
      return diag_error(d, op->loc, "%s: is split before the module is sharded", name);
  return check_axis(op, false, d);
}

static bool verify_before(const Graph *g, Diag *d) {
  if (!each_value(g->params, g->n_params, has_no_layout, d)) return false;
  for_each_op(op, g) {
    if (!check_nothing_split(op, d) || !each_value(op->out, op->n_out, has_no_layout, d))
      return false;
  }
  return true;
}

// Results of an op are checked before the op, so its operands are already checked.
bool verify_sharded(const Graph *g, Diag *d) {
  Phase phase = g->module->phase;
  if (phase < PHASE_sharded) return verify_before(g, d);
  if (!g->entry) return true;
  Arena *a = arena_new();
  bool ok = each_value(g->params, g->n_params, has_layout, d);
  for (const Op *op = g->first; ok && op; op = op->next)
    ok = each_value(op->out, op->n_out, has_layout, d) && check_op(op, phase >= PHASE_local, a, d);
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

// Whether the op runs for every time slice: an operand or a result differs by slice.
static bool runs_per_slice(const Op *op) {
  bool runs = false;
  for (int i = 0; i < op->n_in; i++)
    runs |= per_slice(op->in[i].value);
  for (int i = 0; i < op->n_out; i++)
    runs |= per_slice(op->out[i]);
  return runs;
}

static bool has_time(const Module *m) {
  for_each_mesh(mesh, m)
    for (int i = 0; i < mesh->n_axes; i++)
      if (mesh->axis[i].time) return true;
  return false;
}

// A sum over time is complete only after the last slice.
static bool check_time(const Graph *g, Diag *d) {
  if (!has_time(g->module)) return true;
  Arena *a = arena_new();
  bool *late = arena_array(a, bool, g->n_values), ok = true;
  for (const Op *op = g->first; ok && op; op = op->next) {
    bool reads = false;
    for (int i = 0; i < op->n_in; i++)
      reads |= late[op->in[i].value->id];
    for (int i = 0; i < op->n_out; i++)
      late[op->out[i]->id] = reads || value_accumulates(op->out[i]);
    if (reads && runs_per_slice(op))
      ok = diag_error(d, op->loc, "%s: reads a sum over slices of time in every slice",
                      op_info[op->kind].name);
  }
  arena_free(a);
  return ok;
}

bool verify_local(const Graph *g, Diag *d) {
  if (g->module->phase < PHASE_local || !g->entry) return true;
  for (int i = 0; i < g->n_results; i++) {
    const Result *r = g->results[i];
    const Value *v = r->use.value;
    for (int axis = 0; axis < v->layout->n_axes; axis++)
      if (v->layout->axis[axis].kind == SBP_P) return wrong(v, "is a result, and a partial sum", d);
    if (r->target && v->layout != r->target->layout)
      return wrong(v, "does not lie as the parameter it updates", d);
  }
  return check_time(g, d) && verify_schedule(g, d);
}
