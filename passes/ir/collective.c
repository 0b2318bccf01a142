// See collective.h.
//
// rt/collectives.def has a row for each; collective_gives checks the operand against it, and
// applies it.

#include "ir/collective.h"

#include "ir/op.h"
#include "ir/split.h"
#include "ir/verify/verify.h"

// The axes that a collective may run over.
enum { DEVICES = 1, TIME_AXIS = 2, ANY_AXIS = 3 };

enum { CHANGED, KEPT };

// The attribute of a column with a dimension.
#define DIM_none NULL
#define DIM_dim  "dim"
#define DIM_from "from"
#define DIM_to   "to"

static const CollectiveRule rules[] = {
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl)                                           \
  {OP_##op, SBP_##from, SBP_##to, DIM_##from_dim, DIM_##to_dim, DEVICES, KEPT},
#define LAYOUT_CHANGE(op, from, to, from_dim, to_dim, over, value)                                 \
  {OP_##op, SBP_##from, SBP_##to, DIM_##from_dim, DIM_##to_dim, over, value},
#include "rt/collectives.def"
};
enum { N_RULES = sizeof rules / sizeof *rules };

const CollectiveRule *collective_rule(OpKind kind) {
  for (int i = 0; i < N_RULES; i++)
    if (rules[i].op == kind) return &rules[i];
  return NULL;
}

OpKind collective_between(Sbp from, Sbp to, bool time) {
  for (int i = 0; i < N_RULES; i++)
    if (rules[i].from == (int)from.kind && rules[i].to == (int)to.kind &&
        (rules[i].over & (time ? TIME_AXIS : DEVICES)))
      return rules[i].op;
  BUG("no collective takes %d to %d", from.kind, to.kind);
}

void collective_ends(const Op *op, Sbp *from, Sbp *to) {
  const CollectiveRule *rule = collective_rule(op->kind);
  if (!rule) BUG("%s has no rule", op_info[op->kind].name);
  *from = (Sbp){.kind = rule->from, .dim = rule->from_dim ? (int)attr_i(op, rule->from_dim) : 0};
  *to = (Sbp){.kind = rule->to, .dim = rule->to_dim ? (int)attr_i(op, rule->to_dim) : 0};
}

Value *build_collective(Builder *b, OpKind kind, Value *v, const char *axes, Sbp from, Sbp to) {
  const CollectiveRule *rule = collective_rule(kind);
  if (!rule) BUG("%s has no rule", op_info[kind].name);
  Attr attr[3] = {a_s("axis", axes)};
  int n = 1;
  if (rule->from_dim) attr[n++] = a_i(rule->from_dim, from.dim);
  if (rule->to_dim) attr[n++] = a_i(rule->to_dim, to.dim);
  return build_op(b, kind, IN(v), (Attrs){attr, n});
}

// Checks that no axis inside of the first of the op's axes splits the same dimension.
static bool innermost(const Op *op, const MeshAxes *axes, Sbp cut, Diag *d) {
  const Layout *have = op->in[0].value->layout;
  const Mesh *mesh = op_mesh(op);
  int axis = axes->at[0];
  // Only a split of the same dimension interferes.
  for (int inner = axis + 1; cut.kind == SBP_S && inner < have->n_axes; inner++)
    if (!axes_have(axes, inner) && sbp_equal(have->axis[inner], cut))
      return diag_error(d, op->loc, "%s: dimension %d is split along '%s' inside of '%s'",
                        op_info[op->kind].name, cut.dim, mesh->axis[inner].name,
                        mesh->axis[axis].name);
  return true;
}

bool collective_gives(const Op *op, Sbp *axis, Diag *d) {
  Sbp from, to;
  collective_ends(op, &from, &to);
  const Value *in = op->in[0].value;
  const Layout *have = in->layout;
  const Mesh *mesh = op_mesh(op);
  // The kind of axis: collectives between devices cannot run along time.
  MeshAxes axes;
  if (!op_axes(op, &axes, d)) return false;
  bool time = mesh->axis[axes.at[0]].time;
  if (!(collective_rule(op->kind)->over & (time ? TIME_AXIS : DEVICES)))
    return diag_error(d, op->loc, "%s: axis '%s' is %sbound to time", op_info[op->kind].name,
                      attr_s(op, "axis"), time ? "" : "not ");
  // The operand has the layout of the rule along every axis of the op.
  for (int i = 0; i < axes.n; i++) {
    Sbp found = have->axis[axes.at[i]];
    if (sbp_equal(found, from)) continue;
    Arena *a = arena_new();
    diag_error(d, op->loc, "%s: '%s' is %s along '%s', and must be %s", op_info[op->kind].name,
               value_text(a, in), sbp_text(a, found), mesh->axis[axes.at[i]].name,
               sbp_text(a, from));
    arena_free(a);
    op_note_operand(op, 0, d);
    return false;
  }
  // Shards of inner axes would interleave with those of the op.
  if (!innermost(op, &axes, from, d) || !innermost(op, &axes, to, d)) return false;
  for (int i = 0; i < have->n_axes; i++)
    axis[i] = axes_have(&axes, i) ? to : have->axis[i];
  return true;
}

Mesh *permuted_mesh(const Op *op, const Mesh *mesh, Arena *a) {
  int axis = -1, n = attr_n(op, "sources"), n_splits = 0;
  for (int i = 0; mesh && i < mesh->n_axes; i++)
    if (op->split[i] == PERMUTED_BLOCKS) axis = i, n_splits++;
  if (n_splits != 1 || mesh->axis[axis].time || mesh->axis[axis].size != n) return NULL;
  Mesh *out = arena_copy(a, mesh, sizeof *mesh);
  out->name = NULL;
  out->device = arena_array(a, int, mesh->n_devices);
  int stride = mesh_stride(mesh, axis);
  for (int k = 0; k < mesh->n_devices; k++) {
    // The device has another place along the axis only.
    int i = k / stride % n;
    out->device[k + ((int)attr_list(op, "sources")[i] - i) * stride] = mesh->device[k];
  }
  return out;
}
