// See annotate.h.
//
// First all ops are checked for stages that annotations can express. Then one walk adds the
// operands and results of each op to the plan of its node. That node is searched for from the last
// one on, as ops of a node are close together.

#include "annotate.h"

#include <string.h>

#include "annotated.h"
#include "base/vec.h"
#include "ir/analysis/origin.h"
#include "ir/analysis/work.h"
#include "ir/op.h"
#include "ir/split.h"

typedef Vec(AnnotatedValue) Values;

// The operands and results of the ops of one node of the model.
typedef struct NodePlan {
  const char *node;
  int stage;    // of its op with most work; at least that of nodes that it reads from
  double flops; // of that op; -1: all ops are on all ranks
  Values in, out;
  bool passes_sums; // one of its ops passes sums on
} NodePlan;

typedef struct Annotate {
  const Module *m;
  const Mesh *mesh; // of all ranks
  Arena *a;
  int axis[MAX_AXES]; // of the mesh, by axis of the annotations
  Annotations *all;
  Vec(NodePlan *) nodes; // in the order of the model
} Annotate;

// -- Axes and stages ---------------------------------------------------------------------------

// Returns the rank of the axis that the op runs on; -1: several.
static int rank_of(const Annotate *p, const Op *op, int axis) {
  const Mesh *mesh = op_mesh(op);
  if (mesh->axis[axis].size != 1) return -1;
  int inner = 1, place = 0;
  for (int a = axis + 1; a < p->mesh->n_axes; a++)
    if (!p->mesh->axis[a].time) inner *= p->mesh->axis[a].size;
  while (p->mesh->device[place] != mesh->device[0])
    place++;
  return place / inner % p->mesh->axis[axis].size;
}

// Whether the op runs on the ranks of its readers, and needs no annotation: it has no operands.
static bool goes_along(const Op *op) {
  return op->n_in == 0;
}

static bool is_partial(const Annotate *p, const Op *op, int axis) {
  return op_mesh(op)->axis[axis].size < p->mesh->axis[axis].size;
}

// Checks that all ops of the model run on ranks that annotations can express: on one rank of one
// axis, as their stage, or on all. Reports the first op that does not.
static bool check_stages(const Annotate *p, const Graph *g, int axis, Diag *d) {
  const char *along = p->mesh->axis[axis].name;
  for_each_op(op, g) {
    if (!annotated_node(op) || goes_along(op)) continue;
    int ranks = op_mesh(op)->axis[axis].size;
    if (is_partial(p, op, axis) && ranks > 1)
      return diag_error(d, op->loc,
                        "%s runs on %d of %d ranks of %s: annotations can say that it runs on one, "
                        "as its stage, or on all",
                        op_info[op->kind].name, ranks, p->mesh->axis[axis].size, along);
    for (int a = 0; a < p->mesh->n_axes; a++)
      if (a != axis && is_partial(p, op, a))
        return diag_error(d, op->loc,
                          "%s runs on some ranks of %s, and others on some of %s: annotations have "
                          "stages along one axis",
                          op_info[op->kind].name, p->mesh->axis[a].name, along);
  }
  // Then the order: no op reads from a later stage.
  for_each_op(op, g) {
    if (!annotated_node(op) || goes_along(op)) continue;
    int rank = op_mesh(op) == p->mesh ? 0 : rank_of(p, op, axis);
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      if (!def || goes_along(def) || op_mesh(def) == p->mesh) continue;
      int from = rank_of(p, def, axis);
      if (from <= rank) continue;
      return diag_error(d, op->loc,
                        "%s runs on rank %d of %s and reads a result of rank %d: that is no order "
                        "of stages, and annotations cannot say it",
                        op_info[op->kind].name, rank, along, from);
    }
  }
  return true;
}

// -- Values ------------------------------------------------------------------------------------

// Translates the names and dimensions of channels_last to those of the model.
static const char *model_name(Arena *a, const char *name, const Type *t, Sbp *axis) {
  if (t->ndim < 3 || !str_ends(name, ".last")) return name;
  for (int i = 0; i < MAX_AXES; i++)
    if (axis[i].kind == SBP_S && axis[i].dim > 0)
      axis[i].dim = axis[i].dim == t->ndim - 1 ? 1 : axis[i].dim + 1;
  return str_copy_n(a, name, strlen(name) - strlen(".last"));
}

static void add_value(const Annotate *p, Values *to, const Value *v, const Sbp *axis) {
  AnnotatedValue add = {0};
  if (!v->name || v->as) return;
  memcpy(add.axis, axis, sizeof add.axis);
  add.name = model_name(p->a, v->name, v->type, add.axis);
  for (int i = 0; i < to->n; i++)
    if (str_equal(to->at[i].name, add.name)) return;
  vec_push(p->a, to, add);
}

// Translates a layout of `v` to the operand of its op; false if that is impossible.
static bool lies_above(const Value *v, Sbp *axis) {
  Dims dims;
  Diag *d = diag_new(stderr);
  bool ok = op_dims(v->def, &dims, d);
  diag_free(d);
  for (int i = 0; ok && i < MAX_AXES; i++) {
    if (axis[i].kind != SBP_S) continue;
    // The same letter, at its position in the operand.
    const Term *t = &dims.out[v->index];
    int letter = t->dim[axis[i].dim].n ? t->dim[axis[i].dim].letter[0] : -1;
    int dim = letter < 0 ? -1 : dims_position(&dims, &dims.in[0], letter);
    ok = dim >= 0;
    axis[i].dim = dim;
  }
  return ok;
}

static NodePlan *plan_of(Annotate *p, const char *node) {
  for (int i = p->nodes.n - 1; i >= 0; i--)
    if (str_equal(p->nodes.at[i]->node, node)) return p->nodes.at[i];
  NodePlan *made = arena_one(p->a, NodePlan);
  made->node = node;
  made->stage = -1;
  made->flops = -1;
  vec_push(p->a, &p->nodes, made);
  return made;
}

static void add_op(Annotate *p, const Op *op) {
  if (!annotated_node(op) || op->piece) return;
  bool some = op_mesh(op) != p->mesh;
  NodePlan *node = plan_of(p, annotated_node(op));
  Dims dims;
  Diag *d = diag_new(stderr);
  // A node is on the stage of its op with most work, but on none before those that it reads from.
  if (some && !goes_along(op)) {
    double flops = op_flops(op);
    int least = -1;
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      const NodePlan *from =
          def && annotated_node(def) && !goes_along(def) ? plan_of(p, annotated_node(def)) : NULL;
      if (from && from != node && from->stage > least) least = from->stage;
    }
    if (flops > node->flops) {
      node->stage = rank_of(p, op, p->axis[p->all->stages]);
      node->flops = flops;
    }
    if (node->stage < least) node->stage = least;
  }
  for (int k = 0; k < p->all->n_axes; k++)
    node->passes_sums |= op->split[p->axis[k]] == SPLIT_PARTIAL;
  if (op_dims(op, &dims, d)) {
    // The layout that the op wants of an operand, and those of the values that this is cast,
    // transposed or reshaped from.
    for (int i = 0; i < op->n_in; i++) {
      const Value *v = op->in[i].value;
      Sbp axis[MAX_AXES] = {{0}};
      for (int k = 0; k < p->all->n_axes; k++) {
        Sbp want = split_wants(op, &dims, i, p->axis[k], (Sbp){.kind = SBP_B});
        if (want.kind == SBP_S) axis[k] = want;
      }
      add_value(p, &node->in, v, axis);
      while (v->def && annotated_between(v->def) && lies_above(v, axis)) {
        v = v->def->in[0].value;
        add_value(p, &node->in, v, axis);
      }
    }
    // The layout of a result.
    for (int i = 0; i < op->n_out; i++) {
      const Value *v = op->out[i];
      Sbp axis[MAX_AXES] = {{0}};
      for (int k = 0; k < p->all->n_axes; k++)
        if (v->layout->axis[p->axis[k]].kind == SBP_S) axis[k] = v->layout->axis[p->axis[k]];
      add_value(p, &node->out, v, axis);
    }
  }
  diag_free(d);
}

// -- Losses --------------------------------------------------------------------------------------

// Whether an op of the model wants the weight sharded along the axis, or its cast.
static bool is_read_in_parts(const Value *v, int axis) {
  bool parts = false;
  Diag *d = diag_new(stderr);
  for_each_use(u, v) {
    Dims dims;
    if (!u->user || op_part(u->user) != PART_forward || !op_dims(u->user, &dims, d)) continue;
    if (u->user->kind == OP_cast) {
      parts |= is_read_in_parts(u->user->out[0], axis);
      continue;
    }
    Sbp want = split_wants(u->user, &dims, u->index, axis, (Sbp){.kind = SBP_B});
    parts |= want.kind == SBP_S;
  }
  diag_free(d);
  return parts;
}

// Whether the parameter is stored sharded, but read replicated by the model.
static bool is_stored(const Annotate *p, const Value *v) {
  const Value *w = v->role == ROLE_weight ? v : NULL;
  // The weight of a state: the one that the reader of the state updates.
  for_each_use(u, v) {
    const Value *first = u->user && u->user->n_in ? u->user->in[0].value : NULL;
    bool updated = first && !first->def && first->role == ROLE_weight;
    if (v->role == ROLE_state && updated && !w) w = first;
  }
  bool stored = false;
  for (int k = 0; w && k < p->all->n_axes; k++)
    stored |= v->layout->axis[p->axis[k]].kind == SBP_S && !is_read_in_parts(w, p->axis[k]);
  return stored;
}

// Whether each rank updates a shard of a weight that the model reads replicated.
static bool is_updated_in_parts(const Annotate *p, const Value *v) {
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op || op_part(op) != PART_update || v->role != ROLE_weight) continue;
    for (int k = 0; k < p->all->n_axes; k++)
      if (op->split[p->axis[k]] && !is_read_in_parts(v, p->axis[k])) return true;
  }
  return false;
}

// Numbers of ops with marks that annotations cannot express.
typedef struct Marked {
  int recomputed, offloaded, piece;
} Marked;

static Marked find_marked(const Graph *g) {
  Marked n = {0};
  for_each_op(op, g) {
    n.recomputed += op->recompute_group > 0 && op->part == PART_backward;
    n.offloaded += op->offload_group > 0;
    n.piece += op->piece > 0;
  }
  return n;
}

// Annotations describe the operands and results of nodes, not the state between steps, its updates,
// or the order of execution.
static void warn_of_lost(const Annotate *p, const Graph *g, Diag *d) {
  int n[N_ROLES] = {0}, updated = 0, hosted = 0, gradients = 0;
  Marked marked = find_marked(g);
  StrBuf lost = {.arena = p->a};
  for (int i = 0; i < g->n_params; i++) {
    n[g->params[i]->role] += is_stored(p, g->params[i]);
    updated += is_updated_in_parts(p, g->params[i]);
    hosted += g->params[i]->host && g->params[i]->role == ROLE_weight;
    gradients += g->params[i]->host_gradient;
  }
  // One warning for all losses.
  const struct {
    int n;
    const char *what;
  } parts[] = {{n[ROLE_weight], "weights are sharded"},
               {n[ROLE_state], "states of the optimizer are sharded"},
               {updated, "weights are updated in parts"},
               {marked.recomputed, "ops are recomputed"},
               {marked.offloaded, "ops are swapped"},
               {hosted, "weights have their states offloaded"},
               {gradients, "weights have their gradients offloaded"},
               {marked.piece, "ops are in pieces"}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i].n) strbuf_addf(&lost, "%s%d %s", lost.n ? ", " : "", parts[i].n, parts[i].what);
  if (p->m->schedule)
    strbuf_addf(&lost, "%sstages run as '%s'", lost.n ? ", " : "", p->m->schedule);
  if (p->m->cross_barrier)
    strbuf_addf(&lost, "%supdates are done in the step after", lost.n ? ", " : "");
  if (p->m->optimizer_in_backward)
    strbuf_addf(&lost, "%supdates are done in backward", lost.n ? ", " : "");
  if (!lost.n) return;
  diag_warning(d, NULL, "annotations do not say all of this plan: not that %s", lost.at);
  diag_hint(d, "--emit plan -o FILE.lua writes all of the plan");
}

// -- All of it ---------------------------------------------------------------------------------

static void add_values(AnnotatedValue *to, int *n, const Values *from, bool result) {
  for (int i = 0; i < from->n; i++) {
    to[*n] = from->at[i];
    to[(*n)++].result = result;
  }
}

Annotations *annotations_of_module(const Module *m, const char *name, Arena *a, Diag *d) {
  const Graph *g = module_first_entry(m);
  Annotate p = {.m = m, .mesh = m->meshes, .a = a, .all = arena_one(a, Annotations)};
  p.all->name = name;
  // The axis with stages as its ranks; -1: there is none.
  int stages = -1;
  for (int k = 0; k < p.mesh->n_axes && stages < 0; k++)
    for_each_op(op, g)
      if (annotated_node(op) && !goes_along(op) && is_partial(&p, op, k)) stages = k;
  if (stages >= 0 && !check_stages(&p, g, stages, d)) return NULL;
  // Annotations have all axes but those of time.
  p.all->stages = -1;
  for (int k = 0; k < p.mesh->n_axes; k++) {
    if (p.mesh->axis[k].time) continue;
    if (k == stages) p.all->stages = p.all->n_axes;
    p.axis[p.all->n_axes] = k;
    p.all->axis[p.all->n_axes++] = p.mesh->axis[k];
  }
  for_each_op(op, g)
    add_op(&p, op);
  // Ops in pieces have no annotations.
  if (!p.nodes.n && find_marked(g).piece) {
    diag_error(d, NULL, "annotations can say nothing of this plan: all that it does is in pieces");
    diag_hint(d, "--emit plan -o FILE.lua writes all of the plan");
    return NULL;
  }
  warn_of_lost(&p, g, d);
  // The plan of each node is an annotation; results of one that passes sums on are left open.
  for (int i = 0; i < p.nodes.n; i++) {
    NodePlan *node = p.nodes.at[i];
    if (node->passes_sums) node->out.n = 0;
    Annotation *one = arena_one(p.a, Annotation);
    one->node = node->node;
    one->stage = node->stage;
    one->value = arena_array(p.a, AnnotatedValue, node->in.n + node->out.n);
    add_values(one->value, &one->n_values, &node->in, false);
    add_values(one->value, &one->n_values, &node->out, true);
    annotations_add(p.all, one);
  }
  return p.all;
}
