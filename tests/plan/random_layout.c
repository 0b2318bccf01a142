// Random plans: a mesh of one to three axes, possibly with a time axis; for every parameter any
// legal layout; for every op any legal split to which its operands can be resharded.
//
// Along a time axis nothing can be resharded, only accumulated.  There an op splits the letter by
// which an operand is split, if it can; comm refuses other cases.

#include "random_plans.h"

#include "comm/mesh.h"
#include "ir/op.h"
#include "ir/split.h"
#include "simplify/split_classes.h"

static Mesh *random_mesh(Module *m, Random *r, bool time, Diag *d) {
  StrBuf text = {.arena = m->arena};
  if (time) strbuf_addf(&text, "mb:%d:time+", 2 + below(r, 2));
  int n = 1 + below(r, time ? 2 : 3), left = 8;
  for (int i = 0; i < n && left > 1; i++) {
    int size = 2 + below(r, left >= 4 ? 3 : left - 1);
    strbuf_addf(&text, "%s%c:%d", i ? "+" : "", 'a' + i, size);
    left /= size;
  }
  return mesh_parse(m, text.at, d);
}

static bool is_time(const Module *m, int axis) {
  return m->meshes->axis[axis].time;
}

// -- Parameters ------------------------------------------------------------------------------

// Returns S of a dimension that `axis` can split in addition to `before`, or B.
static Sbp random_cut(const Value *v, const Sbp *before, int axis, Random *r) {
  const Mesh *mesh = v->graph->module->meshes;
  if (v->type->ndim == 0 || chance(r, 35)) return (Sbp){.kind = SBP_B};
  int dim = mesh->axis[axis].time ? 0 : below(r, v->type->ndim), parts = mesh->axis[axis].size;
  for (int a = 0; a < axis; a++)
    if (before[a].kind == SBP_S && before[a].dim == dim) parts *= mesh->axis[a].size;
  if (v->type->dim[dim] % parts) return (Sbp){.kind = SBP_B};
  return (Sbp){.kind = SBP_S, .dim = dim};
}

static void lay_out_params(Graph *g, Random *r) {
  Module *m = g->module;
  for (int i = 0; i < g->n_params; i++) {
    Value *v = g->params[i];
    Sbp axis[MAX_AXES] = {{SBP_B, 0}};
    for (int a = 0; a < m->meshes->n_axes; a++) {
      axis[a] = (Sbp){.kind = SBP_B};
      if (v->role == ROLE_input || !is_time(m, a)) axis[a] = random_cut(v, axis, a, r);
    }
    v->layout = layout_new(m, m->meshes, axis);
  }
}

// -- Ops -------------------------------------------------------------------------------------

static bool partial_passes(const Op *op, int axis) {
  int partial = 0, last = 0;
  for (int i = 0; i < op->n_in; i++) {
    if (op->in[i].value->layout->axis[axis].kind != SBP_P) continue;
    partial++;
    last = i;
  }
  return op_passes_sums(op, partial, last);
}

static char incoming(const Op *op, const Dims *dims, int axis) {
  int parts = op_mesh(op)->axis[axis].size;
  for (int i = 0; i < op->n_in; i++) {
    Sbp have = op->in[i].value->layout->axis[axis];
    if (have.kind != SBP_S) continue;
    int letter = dims_splitter(dims, &dims->in[i], have.dim, parts);
    if (letter >= 0 && split_legal(op, dims, letter, axis)) return dims->letter[letter].name;
  }
  return SPLIT_NONE;
}

static char random_split(const Op *op, const Dims *dims, int axis, Random *r) {
  bool time = is_time(op->graph->module, axis), passes = partial_passes(op, axis);
  char in = incoming(op, dims, axis);
  if (in && (time || chance(r, 60))) return in;
  if (passes && (time || chance(r, 70))) return SPLIT_PARTIAL;
  if (time || dims->n_letters == 0 || chance(r, 20)) return SPLIT_NONE;
  for (int tries = 0; tries < 3; tries++) {
    int letter = below(r, dims->n_letters);
    if (split_legal(op, dims, letter, axis)) return dims->letter[letter].name;
  }
  return SPLIT_NONE;
}

static void lay_out_op(Op *op, Random *r, Diag *d) {
  Module *m = op->graph->module;
  Dims dims;
  if (!op_dims(op, &dims, d)) BUG("an op of a random model does not fit");
  for (int a = 0; a < m->meshes->n_axes; a++)
    op->split[a] = random_split(op, &dims, a, r);
  for (int i = 0; i < op->n_out; i++) {
    Sbp axis[MAX_AXES];
    for (int a = 0; a < m->meshes->n_axes; a++)
      axis[a] = split_gives(op, &dims, i, a);
    op->out[i]->layout = layout_new(m, m->meshes, axis);
  }
}

void random_losses(Graph *g, Random *r, Diag *d) {
  for_each_op_safe(op, g) {
    int classes = op->kind == OP_cross_entropy ? (int)op->in[0].value->type->dim[1] : 0;
    if (!classes || chance(r, 40)) continue;
    if (!split_classes(op, classes % 4 ? classes : 4, d)) BUG("a loss cannot be split");
  }
}

void random_layout(Module *m, Random *r, bool time, Diag *d) {
  module_add_mesh(m, random_mesh(m, r, time, d));
  for_each_graph(g, m) {
    if (!g->entry) continue;
    lay_out_params(g, r);
    for_each_op(op, g)
      lay_out_op(op, r, d);
  }
  m->phase = PHASE_sharded;
}
