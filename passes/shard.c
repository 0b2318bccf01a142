// Sharding: a layout for every value, and for every op the letter each mesh axis splits.
//
//     graph @train entry (%x: f32[8,4] input "x", %w: f32[4,6] weight "w" train, …) {
//       %y = linear %x, %w        : f32[8,6]
//       %g = linear_back_w %x, %d : f32[4,6]
//
//   =>  shard(mesh=dp:2 plan=dp)
//
//     graph @train entry (%x: f32[8,4] {S(0)} input "x", %w: f32[4,6] {B} weight "w" train, …) {
//       %y = linear %x, %w        : f32[8,6] {S(0)} split=[0]
//       %g = linear_back_w %x, %d : f32[4,6] {P}    split=[0]
//
// The plan `dp` cuts the first dimension of every input over every axis, devices and time alike,
// and keeps weights whole.  From there on it is propagation along the einsums: an op splits the
// letter along which an operand comes in; where that letter is absent from a result, the result is
// a sum of partial results; partial sums pass through what is linear.  What a plan leaves open is
// replicated.
//
// Values made from nothing that is split (a broadcast bias, a filled mask) are cut when all their
// readers want them cut the same way: see `narrow`.
//
// Nothing moves here; comm.c inserts the collectives that these layouts imply.

#include "ir/op.h"
#include "ir/split.h"
#include "mesh.h"
#include "pass.h"

static const Sbp whole = {.kind = SBP_B};

// The letter by which an operand of `op` comes in split along `axis`, if the op can split it.
static int incoming_letter(const Op *op, const Dims *dims, int axis) {
  int parts = op_mesh(op)->axis[axis].size;
  for (int i = 0; i < op->n_in; i++) {
    Sbp have = op->in[i].value->layout->axis[axis];
    if (have.kind != SBP_S) continue;
    int letter = dims_splitter(dims, &dims->in[i], have.dim, parts);
    if (letter >= 0 && split_legal(op, dims, letter, axis)) return letter;
  }
  return -1;
}

// Whether the partial sums among the operands may pass through.
static bool partial_passes(const Op *op, int axis) {
  int partial = 0;
  for (int i = 0; i < op->n_in; i++) {
    Sbp have = op->in[i].value->layout->axis[axis];
    if (have.kind == SBP_S) return false;
    partial += have.kind == SBP_P;
  }
  if (!partial) return false;
  int traits = op_traits(op);
  return ((traits & SUM) && partial == op->n_in) || ((traits & EACH) && partial == 1);
}

static char choose(const Op *op, const Dims *dims, int axis) {
  int letter = incoming_letter(op, dims, axis);
  if (letter >= 0) return dims->letter[letter].name;
  return partial_passes(op, axis) ? SPLIT_PARTIAL : SPLIT_NONE;
}

static void set_layouts(Op *op, const Dims *dims) {
  const Mesh *mesh = op_mesh(op);
  for (int i = 0; i < op->n_out; i++) {
    Sbp axis[MAX_AXES];
    for (int a = 0; a < mesh->n_axes; a++)
      axis[a] = split_gives(op, dims, i, a);
    op->out[i]->layout = layout_new(op->graph->module, mesh, axis);
  }
}

// What every reader of `v` wants along `axis`, if they agree on a slice; otherwise B.
static Sbp wanted_by_all(const Value *v, const Dims *dims_of, int axis) {
  Sbp all = whole;
  for_each_use(u, v) {
    if (!u->user) return whole;
    Sbp want = split_wants(u->user, &dims_of[u->user->id], u->index, axis, whole);
    if (want.kind != SBP_S || (u != v->uses && !sbp_equal(want, all))) return whole;
    all = want;
  }
  return all;
}

// Ops made from whole operands: when all readers want the same slice of the only result, and no
// operand would have to be cut for it but those only this op reads, each device makes its slice.
static bool narrow(Op *op, const Dims *dims_of, int axis) {
  if (op->n_out != 1 || op->split[axis] != SPLIT_NONE) return false;
  const Dims *dims = &dims_of[op->id];
  Sbp want = wanted_by_all(op->out[0], dims_of, axis);
  if (want.kind != SBP_S) return false;
  int parts = op_mesh(op)->axis[axis].size;
  int letter = dims_splitter(dims, &dims->out[0], want.dim, parts);
  if (letter < 0 || !split_legal(op, dims, letter, axis)) return false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (v->layout->axis[axis].kind != SBP_B) return false;
    if (dims_position(dims, &dims->in[i], letter) >= 0 && (!v->def || v->uses->next)) return false;
  }
  op->split[axis] = dims->letter[letter].name;
  return true;
}

static void shard_inputs(Graph *g) {
  const Mesh *mesh = module_mesh(g->module);
  for (int i = 0; i < g->n_params; i++) {
    Value *v = g->params[i];
    Sbp axis[MAX_AXES];
    for (int a = 0; a < mesh->n_axes; a++)
      axis[a] = v->role == ROLE_input ? (Sbp){.kind = SBP_S, .dim = 0} : whole;
    v->layout = layout_new(g->module, mesh, axis);
  }
}

static bool check_inputs(const Graph *g, Diag *d) {
  const Mesh *mesh = module_mesh(g->module);
  int64_t parts = 1;
  for (int a = 0; a < mesh->n_axes; a++)
    parts *= mesh->axis[a].size;
  bool ok = true;
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->role != ROLE_input || parts == 1) continue;
    if (v->type->rank == 0)
      ok = diag_error(d, v->loc, "input '%s' is a scalar, so it has no batch to cut in %lld",
                      v->label, (long long)parts);
    else if (v->type->dim[0] % parts) {
      ok = diag_error(d, v->loc, "the batch of input '%s' is %lld, which cannot be cut in %lld",
                      v->label, (long long)v->type->dim[0], (long long)parts);
      diag_hint(d, "give a --batch that ranks times micro-batches divides");
    }
  }
  return ok;
}

static bool shard_graph(Graph *g, Arena *scratch, Diag *d) {
  int n_axes = module_mesh(g->module)->n_axes;
  if (!check_inputs(g, d)) return false;
  shard_inputs(g);
  graph_renumber(g);
  Dims *dims_of = arena_array(scratch, Dims, g->n_ops);
  for_each_op(op, g) {
    Dims *dims = &dims_of[op->id];
    if (!op_dims(op, dims, d)) return false;
    for (int a = 0; a < n_axes && a < MAX_AXES; a++)
      op->split[a] = choose(op, dims, a);
    set_layouts(op, dims);
  }
  for (Op *op = g->last; op; op = op->prev)
    for (int a = 0; a < n_axes; a++)
      if (narrow(op, dims_of, a)) set_layouts(op, &dims_of[op->id]);
  return true;
}

bool pass_shard(Module *m, const PassOptions *o, Diag *d) {
  const char *plan = opt_str(o, "plan"), *text = opt_str(o, "mesh");
  if (plan && !str_equal(plan, "dp") && !str_equal(plan, "auto")) {
    diag_error(d, NULL, "there is no plan '%s'", plan);
    diag_hint(d, "the plans are: auto, dp");
    return false;
  }
  if (m->meshes)
    return diag_error(d, NULL, "the module is sharded already, on a mesh of %d device%s",
                      m->meshes->n_devices, m->meshes->n_devices == 1 ? "" : "s");
  Mesh *mesh = mesh_parse(m, text ? text : "1", d);
  if (!mesh) return false;
  module_add_mesh(m, mesh);
  for_each_graph(g, m)
    if (g->entry && !shard_graph(g, opt_scratch(o), d)) return false;
  return true;
}
