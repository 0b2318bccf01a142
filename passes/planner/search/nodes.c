// The nodes of the problem, and the choices of each.
//
//     %y = linear %x, %w     an op         the letter of each axis: -, 0, n or k; or +: a partial sum
//                                          passes, if the op is linear in the operand with the sum
//     %w: weight             a parameter   its layout, {B}, {S(0)} or {S(1)}, and that of its states
//     %y, read by two ops    a value       the layout for both, and that of their gradients' sum
//
// With two axes a choice is a pair, except for combinations that lengths do not allow. Constraints
// of programs leave the choices that agree with them: one if they fix everything.
//
// In a large model repeated layers have one node together, so the problem is as large as the
// model's distinct parts. An op with constraints that differ from those of the first op like it has
// its own node. A small model is decided op by op.

#include <math.h>
#include <string.h>

#include "comm/hops.h"
#include "cost/cost.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "prices.h"
#include "problem.h"
#include "sharding/constraints.h"
#include "sharding/microbatch_cut.h"
#include "splits.h"
#include "value_layouts.h"

enum { MAX_OPS = 400 }; // more ops of the model than these are decided by repeated layers

static const Sbp whole = {.kind = SBP_B}, sum = {.kind = SBP_P};

static Sbp slice(int dim) {
  return (Sbp){.kind = SBP_S, .dim = dim};
}

int64_t cost_of(const Problem *p, double seconds) {
  return isfinite(seconds) && seconds < 1e5 ? llround(seconds / p->unit) : SOLVER_INFINITE;
}

int64_t times_cost(int64_t cost, int n) {
  return cost >= SOLVER_INFINITE / n ? SOLVER_INFINITE : cost * n;
}

// -- Ops ---------------------------------------------------------------------------------------

void choose_split(const Problem *p, const Node *n, const Choice *c) {
  for (int i = 0; i < p->n_axes; i++)
    n->op->split[p->axis[i]] = c->split[p->axis[i]];
}

static bool passes_sums(const Op *op, int i, const Choice *c) {
  return (op_traits(op) & ADDITIVE) || c->via == i;
}

const Layout *op_gives(const Problem *p, const Op *op, int i) {
  const Mesh *mesh = op_mesh(op);
  Sbp layout[MAX_AXES];
  for (int a = 0; a < mesh->n_axes; a++)
    layout[a] = split_gives(op, dims_of(p->s, op), i, a);
  return layout_new(p->s->g->module, mesh, layout);
}

const Layout *op_wants(const Problem *p, const Op *op, int i, const Choice *c) {
  const Mesh *mesh = op_mesh(op);
  Sbp layout[MAX_AXES];
  for (int a = 0; a < mesh->n_axes; a++)
    layout[a] = split_wants(op, dims_of(p->s, op), i, a, passes_sums(op, i, c) ? sum : whole);
  return layout_new(p->s->g->module, mesh, layout);
}

// Layout of the gradient of operand `i` along an axis: sharded if the operand has the split letter,
// else a partial sum.
static Sbp gradient_sbp(const Dims *dims, const Op *op, int i, int axis, const Choice *c) {
  if (op->split[axis] == SPLIT_NONE) return whole;
  if (op->split[axis] == SPLIT_PARTIAL) return passes_sums(op, i, c) ? whole : sum;
  int dim = dims_position(dims, &dims->in[i], dims_find(dims, op->split[axis]));
  return dim >= 0 ? slice(dim) : sum;
}

const Layout *op_gradient(const Problem *p, const Op *op, int i, const Choice *c) {
  const Mesh *mesh = op_mesh(op);
  Sbp layout[MAX_AXES];
  for (int a = 0; a < mesh->n_axes; a++)
    layout[a] = gradient_sbp(dims_of(p->s, op), op, i, a, c);
  return layout_new(p->s->g->module, mesh, layout);
}

// Whether the shards under this split are divisible into time slices.
static bool leaves_time(const Problem *p, const Op *op, int letter, int axis) {
  const Mesh *mesh = p->s->mesh;
  const Dims *dims = dims_of(p->s, op);
  char name = dims->letter[letter].name;
  int64_t parts = mesh->axis[axis].size;
  for (int a = 0; a < mesh->n_axes; a++)
    if (a != axis && op->split[a] == name) parts *= mesh->axis[a].size;
  return timed_letter(p->timed, op, name, dims->letter[letter].size, parts);
}

// Adds all splits along the axes from the k-th on.
static void add_splits(Problem *p, Node *n, Choice *c, int k) {
  if (k == p->n_axes) {
    vec_push(p->scratch, &n->choices, *c);
    return;
  }
  Op *op = n->op;
  int axis = p->axis[k];
  const Dims *dims = dims_of(p->s, op);
  // A fixed axis has one choice.
  if (p->s->decisions.fixed_by[op->id][axis]) {
    c->split[axis] = op->split[axis];
    add_splits(p, n, c, k + 1);
    return;
  }
  const Constraint *constraint = p->s->constraints.op[op->id][axis];
  c->split[axis] = op->split[axis] = SPLIT_NONE;
  if (constraint_allows(constraint, '-')) add_splits(p, n, c, k + 1);
  // One choice per letter; a letter of length 1 only if a constraint names it.
  for (int i = 0; i < dims->n_letters; i++) {
    bool is_open = constraint_allows(constraint, dims->letter[i].name) &&
                   (constraint || dims->letter[i].size != 1);
    if (!is_open || !split_legal(op, dims, i, axis)) continue;
    if (!leaves_time(p, op, i, axis)) continue;
    c->split[axis] = op->split[axis] = dims->letter[i].name;
    add_splits(p, n, c, k + 1);
  }
  // Partial sums pass an additive op through all operands, a multilinear op through one: the same
  // operand along all axes.
  c->split[axis] = op->split[axis] = SPLIT_PARTIAL;
  bool sums = p->sums && constraint_allows(constraint, SPLIT_PARTIAL);
  int traits = sums ? op_traits(op) : 0, via = c->via;
  if (traits & ADDITIVE) add_splits(p, n, c, k + 1);
  for (int i = 0; i < op->n_in && (traits & MULTILINEAR) && !(traits & ADDITIVE); i++) {
    if ((via >= 0 && i != via) || !op_linear_in(op, i)) continue;
    c->via = i;
    add_splits(p, n, c, k + 1);
    c->via = via;
  }
  c->split[axis] = op->split[axis] = SPLIT_NONE;
}

// -- Parameters and shared values --------------------------------------------------------------

static void add_layouts(Problem *p, Node *n, Choice *c, int k);

static void add_pair(Problem *p, Node *n, Choice *c, int k, Sbp sbp, Sbp back) {
  c->layout[p->axis[k]] = sbp;
  c->back[p->axis[k]] = back;
  add_layouts(p, n, c, k + 1);
}

// Sets the layout of a parameter, or of its states if they are sharded, with the choice along the
// first `k` axes.
static void layout_so_far(const Problem *p, const Value *v, const Choice *c, int k, Sbp *out) {
  memcpy(out, p->s->decisions.layout[v->id], MAX_AXES * sizeof *out);
  for (int i = 0; i < k; i++) {
    int axis = p->axis[i];
    out[axis] = c->back[axis].kind == SBP_S ? c->back[axis] : c->layout[axis];
  }
}

static bool is_trained(const Problem *p, const Value *v) {
  return !v->def && v->role == ROLE_weight && p->has_gradient[v->id];
}

// Returns the op that updates the weight, if a program fixed its split along the axis; or NULL.
static const Op *fixed_update(const Problem *p, const Value *v, int axis) {
  for_each_use(u, v)
    if (u->user && u->index == 0 && op_part(u->user) == PART_update &&
        p->s->decisions.fixed_by[u->user->id][axis])
      return u->user;
  return NULL;
}

// Whether constraints allow states sharded along this dimension; -1: replicated states.
static bool may_keep(const Problem *p, const Value *v, int dim, int axis) {
  const Op *op = fixed_update(p, v, axis);
  if (!op) return true;
  int found = op->split[axis] ? dims_find(dims_of(p->s, op), op->split[axis]) : -1;
  return dim ==
         (found < 0 ? -1 : dims_position(dims_of(p->s, op), &dims_of(p->s, op)->out[0], found));
}

// Adds all layouts of a parameter along the axes from the k-th on. A replicated weight may have
// states sharded along their first divisible dimension, or as a program fixed it: ZeRO.
static void add_param(Problem *p, Node *n, Choice *c, int k) {
  int axis = p->axis[k], n_before = n->choices.n;
  const Value *v = n->v;
  const Constraint *constraint = p->s->constraints.value[v->id][axis];
  Sbp sbp = p->s->decisions.layout[v->id][axis], so_far[MAX_AXES];
  layout_so_far(p, v, c, k, so_far);
  bool open = p->s->decisions.param[v->id][axis] == PARAM_open;
  bool may_be_whole = open ? constraint_allows(constraint, '-') : sbp_equal(sbp, whole);
  // `keeps`: states that are sharded while the weight is replicated are still to be added.
  bool keeps = is_trained(p, v) && may_be_whole;
  if (may_be_whole && (!keeps || may_keep(p, v, -1, axis))) add_pair(p, n, c, k, whole, whole);
  // A dimension of length 1 only if a constraint names it.
  bool is_cut = v->role == ROLE_weight || v->role == ROLE_input || constraint;
  for (int dim = 0; dim < v->type->ndim && is_cut; dim++) {
    if ((v->type->dim[dim] == 1 && !constraint) || !layout_cuts(p->s, v, so_far, dim, axis))
      continue;
    if (open && constraint_allows(constraint, split_of_sbp(slice(dim))))
      add_pair(p, n, c, k, slice(dim), slice(dim));
    if (!keeps || !may_keep(p, v, dim, axis)) continue;
    add_pair(p, n, c, k, whole, slice(dim));
    keeps = false;
  }
  // A given layout is a choice even if no split leads to it.
  if (!open && n->choices.n == n_before) add_pair(p, n, c, k, sbp, sbp);
}

static void add_shared(Problem *p, Node *n, Choice *c, int k) {
  const Value *v = n->v;
  const Mesh *mesh = p->s->mesh;
  bool back = p->has_gradient[v->id];
  // Replicated, or a partial sum: of the value, or of its gradient.
  add_pair(p, n, c, k, whole, whole);
  if (back && p->sums) add_pair(p, n, c, k, whole, sum);
  if (v->def && p->sums) add_pair(p, n, c, k, sum, whole);
  // Sharded along a dimension that is divisible by all axes that shard it, and into time slices.
  for (int dim = 0; dim < v->type->ndim; dim++) {
    int64_t size = v->type->dim[dim], parts = mesh->axis[p->axis[k]].size;
    for (int i = 0; i < k; i++)
      if (sbp_equal(c->layout[p->axis[i]], slice(dim))) parts *= mesh->axis[p->axis[i]].size;
    for (int a = 0; a < mesh->n_axes; a++)
      if (p->s->decisions.final[a] && sbp_equal(p->s->decisions.layout[v->id][a], slice(dim)))
        parts *= mesh->axis[a].size;
    if (size > 1 && size % parts == 0 && timed_dim(p->timed, v, dim, parts))
      add_pair(p, n, c, k, slice(dim), slice(dim));
  }
}

static void add_layouts(Problem *p, Node *n, Choice *c, int k) {
  if (k == p->n_axes)
    vec_push(p->scratch, &n->choices, *c);
  else if (n->shared)
    add_shared(p, n, c, k);
  else
    add_param(p, n, c, k);
}

// Along axes that are not searched a value has its known layout, or is replicated.
const Layout *layout_as(const Problem *p, const Value *v, const Sbp *layout) {
  const Mesh *mesh = p->s->mesh;
  Sbp all[MAX_AXES];
  for (int a = 0; a < mesh->n_axes; a++)
    all[a] = p->s->decisions.final[a] ? p->s->decisions.layout[v->id][a] : whole;
  for (int i = 0; i < p->n_axes; i++)
    all[p->axis[i]] = layout[p->axis[i]];
  return layout_new(p->s->g->module, mesh, all);
}

// Layout that the update op gives a weight along an axis that is not searched.
static Sbp updated_as(const Problem *p, const Value *v, int axis) {
  for_each_use(u, v)
    if (u->user && u->index == 0 && op_part(u->user) == PART_update)
      return split_gives(u->user, dims_of(p->s, u->user), 0, axis);
  return p->s->decisions.layout[v->id][axis];
}

// The same for a gradient: a weight's gradient has the layout of its states; the gradient of a
// partial sum is replicated.
const Layout *back_as(const Problem *p, const Value *v, const Sbp *back) {
  const Layout *l = layout_as(p, v, back);
  for (int a = 0; a < l->n_axes; a++) {
    bool known = p->s->decisions.final[a], searched = false;
    for (int i = 0; i < p->n_axes; i++)
      searched |= p->axis[i] == a;
    if (!known || searched) continue;
    Sbp sbp = v->def ? p->s->decisions.layout[v->id][a] : updated_as(p, v, a);
    l = with_axis(p->s->g->module, l, a, sbp.kind == SBP_P ? whole : sbp);
  }
  return l;
}

// -- Costs of single nodes ---------------------------------------------------------------------

double parts_of(const Layout *l) {
  double parts = 1;
  for (int a = 0; a < l->n_axes; a++)
    if (l->axis[a].kind == SBP_S) parts *= l->mesh->axis[a].size;
  return parts;
}

// -- Shared decisions --------------------------------------------------------------------------

// Whether two ops, or two parameters, have the same constraints from programs and inner axes.
static bool same_sets(const Problem *p, const Constraint *x, const Constraint *y) {
  return x == y ||
         (x && y && str_equal(constraint_splits(x, p->scratch), constraint_splits(y, p->scratch)));
}

static bool params_constrained_alike(const Problem *p, const Value *x, const Value *y) {
  if (x->type != y->type || x->role != y->role || x->train != y->train) return false;
  for (int a = 0; a < p->s->mesh->n_axes; a++) {
    if (p->s->decisions.param[x->id][a] != p->s->decisions.param[y->id][a] ||
        !sbp_equal(p->s->decisions.layout[x->id][a], p->s->decisions.layout[y->id][a]))
      return false;
    // Their updates are fixed alike, or both are open.
    const Op *of_x = fixed_update(p, x, a), *of_y = fixed_update(p, y, a);
    bool same_update = of_x && of_y ? of_x->split[a] == of_y->split[a] : of_x == of_y;
    if (!same_update ||
        !same_sets(p, p->s->constraints.value[x->id][a], p->s->constraints.value[y->id][a]))
      return false;
  }
  return true;
}

// Returns the corresponding member of the first occurrence of the outermost block around `o`.
static const Occurrence *first_occurrence(const Occurrence *o) {
  if (!o->outer) return o->block->at[0];
  return first_occurrence(o->outer)->member[o->position].inner;
}

static int readers_of(const Problem *p, const Value *v) {
  int n = 0;
  for_each_use(u, v)
    n += use_counts(p, u);
  return n;
}

static Value *first_param(const Problem *p, Value *v) {
  // The parameter that the first op like its first reader reads.
  const Use *u = NULL;
  for_each_use(use, v)
    if (use_counts(p, use)) u = use;
  if (!u) return v;
  Value *param = p->first_op[u->user->id]->in[u->index].value;
  bool alike = !param->def && readers_of(p, param) == readers_of(p, v) &&
               params_constrained_alike(p, param, v);
  return alike ? param : v;
}

static Value *first_value(const Problem *p, Value *v) {
  if (v->def && p->inside && !p->inside[v->def->id]) return v;
  return v->def ? p->first_op[v->def->id]->out[v->index] : first_param(p, v);
}

// -- All nodes ---------------------------------------------------------------------------------

static int add_node(Problem *p, Op *op, Value *v, bool shared) {
  Node n = {.op = op, .v = v, .shared = shared};
  Choice c = {.via = -1};
  if (op)
    add_splits(p, &n, &c, 0);
  else
    add_layouts(p, &n, &c, 0);
  n.cost = arena_array(p->scratch, int64_t, n.choices.n);
  vec_push(p->scratch, &p->nodes, n);
  return p->nodes.n - 1;
}

static bool is_weight(const Value *v) {
  return !v->def && v->role == ROLE_weight;
}

const Value *weight_of(const Value *v) {
  while (v->def && v->def->kind == OP_cast)
    v = v->def->in[0].value;
  return is_weight(v) ? v : NULL;
}

// Marks values that have a gradient: trained weights, and values computed from them.
static void find_gradients(Problem *p) {
  const Graph *g = p->s->g;
  bool trains = false;
  // A graph without backward trains no weight.
  for_each_op(op, g)
    trains |= op_part(op) == PART_backward;
  p->has_gradient = arena_array(p->scratch, bool, g->n_values);
  for (int i = 0; trains && i < g->n_params; i++)
    p->has_gradient[g->params[i]->id] = is_weight(g->params[i]) && g->params[i]->train;
  for_each_op(op, g) {
    bool any = false;
    for (int i = 0; i < op->n_in; i++)
      any |= p->has_gradient[op->in[i].value->id];
    if (!any || op_info[op->kind].grad == zero_grad || op_part(op) != PART_forward) continue;
    for (int i = 0; i < op->n_out; i++)
      p->has_gradient[op->out[i]->id] = dtype_class[op->out[i]->type->dtype] == 'F';
  }
}

static bool constrained_alike(const Problem *p, const Op *x, const Op *y) {
  for (int a = 0; a < p->s->mesh->n_axes; a++)
    if (x->split[a] != y->split[a] ||
        !p->s->decisions.fixed_by[x->id][a] != !p->s->decisions.fixed_by[y->id][a] ||
        !same_sets(p, p->s->constraints.op[x->id][a], p->s->constraints.op[y->id][a]))
      return false;
  return true;
}

// Small models are searched op by op: alternating choices may be best for identical layers, one
// split by columns and the next by rows.
static void find_repeats(Problem *p) {
  const Graph *g = p->s->g;
  int n = 0;
  bool *model = arena_array(p->scratch, bool, g->n_ops);
  for_each_op(op, g)
    n += model[op->id] = op_part(op) == PART_forward;
  p->first_op = arena_array(p->scratch, Op *, g->n_ops);
  Op **inside = arena_array(p->scratch, Op *, g->n_ops);
  p->repeats = repeats_find(g, n > MAX_OPS ? LEAST_BLOCK : n + 1, model, p->scratch);
  // The first op like it, with the same constraints. Repeated layers are decided together;
  // repetitions within a layer, such as q, k and v, are not.
  for_each_op(op, g) {
    if (!model[op->id]) continue;
    const OpRepeat *r = &p->repeats->of_op[op->id];
    Op *first = r->occurrence ? first_occurrence(r->occurrence)->member[r->position].op : op;
    // In a sub-space, the first of those inside.
    Op **own = &inside[first->id];
    if (p->inside && p->inside[op->id] && !*own) *own = op;
    if (p->inside && p->inside[op->id]) first = *own;
    p->first_op[op->id] = constrained_alike(p, first, op) ? first : op;
  }
}

static int *no_nodes(const Problem *p, uint32_t n) {
  int *node = arena_array(p->scratch, int, n);
  for (uint32_t i = 0; i < n; i++)
    node[i] = -1;
  return node;
}

typedef Vec(Op *) Ops;

static bool splits_leave_time(const Problem *p, const Op *op) {
  const Dims *dims = dims_of(p->s, op);
  for (int i = 0; i < p->n_axes; i++) {
    int letter = dims_find(dims, op->split[p->axis[i]]);
    if (letter >= 0 && !leaves_time(p, op, letter, p->axis[i])) return false;
  }
  return true;
}

// Drops the choices with gradient ops that cannot be split in time. If these are all choices, keeps
// them: comm reports the op.
static void drop_untimed(Problem *p, Node *n, const Ops *gradient) {
  int kept = 0;
  Choice *choice = arena_array(p->scratch, Choice, n->choices.n);
  int64_t *cost = arena_array(p->scratch, int64_t, n->choices.n);
  for (int k = 0; k < n->choices.n; k++) {
    choose_split(p, n, &n->choices.at[k]);
    // The shards of all gradient ops, too, must be divisible into time slices.
    bool leave_time = true;
    for (int i = 0; i < gradient->n && leave_time; i++) {
      Op *op = gradient->at[i];
      char before[MAX_AXES];
      memcpy(before, op->split, sizeof before);
      choose_gradient_split(p, op, n->op);
      leave_time = splits_leave_time(p, op);
      memcpy(op->split, before, sizeof before);
    }
    if (!leave_time) continue;
    choice[kept] = n->choices.at[k];
    cost[kept++] = n->cost[k];
  }
  if (!kept) return;
  memcpy(n->choices.at, choice, (size_t)kept * sizeof *choice);
  memcpy(n->cost, cost, (size_t)kept * sizeof *cost);
  n->choices.n = kept;
}

// Adds the kernels of gradients to the node of their op of the model, which decides them.
static void add_gradients(Problem *p) {
  gradients_find(p);
  Ops *of_node = arena_alloc_array(p->scratch, (size_t)p->nodes.n, sizeof *of_node);
  for_each_op(op, p->s->g) {
    const Op *of = p->model_op[op->id];
    int node = of ? p->op_node[of->id] : -1;
    if (node >= 0 && p->nodes.at[node].op == of) vec_push(p->scratch, &of_node[node], op);
  }
  for (int i = 0; i < p->nodes.n; i++) {
    if (!of_node[i].n) continue;
    if (p->timed) drop_untimed(p, &p->nodes.at[i], &of_node[i]);
    price_gradients(p, &p->nodes.at[i], of_node[i].at, of_node[i].n);
  }
}

// Adds a shared node for a value with several readers; identical values have one together.
static void add_shared_nodes(Problem *p, Value *v) {
  // A value from outside of a sub-space may have any layout for each reader.
  if (v->def && p->inside && !p->inside[v->def->id]) return;
  if (readers_of(p, v) < 2 || is_weight(v)) return;
  Value *first = first_value(p, v);
  if (p->shared_node[first->id] < 0) p->shared_node[first->id] = add_node(p, NULL, first, true);
}

static void find_shared_node(Problem *p, Value *v) {
  int node = p->shared_node[first_value(p, v)->id];
  p->shared_node[v->id] = node;
  if (node >= 0) p->nodes.at[node].n++;
}

static void for_each_value(Problem *p, void (*visit)(Problem *p, Value *v)) {
  const Graph *g = p->s->g;
  for (int i = 0; i < g->n_params; i++)
    visit(p, g->params[i]);
  for_each_op(op, g)
    for (int i = 0; i < op->n_out && op_part(op) == PART_forward; i++)
      visit(p, op->out[i]);
}

void nodes_make(Problem *p) {
  const Graph *g = p->s->g;
  find_gradients(p);
  find_repeats(p);
  p->op_node = no_nodes(p, g->n_ops);
  p->value_node = no_nodes(p, g->n_values);
  p->shared_node = no_nodes(p, g->n_values);
  // One node per group of identical parameters, at the first of the group, in whatever order they
  // are visited.
  for (int i = 0; i < g->n_params; i++) {
    Value *v = g->params[i], *first = first_param(p, v);
    if (!readers_of(p, v)) continue;
    int *node = &p->value_node[first->id];
    if (*node < 0) {
      *node = add_node(p, NULL, first, false);
      // A weight costs its update, an input its reads: every rank reads its rows into memory, also
      // rows that other ranks read.
      Node *n = &p->nodes.at[*node];
      if (is_trained(p, n->v)) price_weight(p, n);
      double bytes = (double)type_bytes(n->v->type);
      for (int k = 0; n->v->role == ROLE_input && k < n->choices.n; k++) {
        double own = bytes / parts_of(layout_as(p, n->v, n->choices.at[k].layout));
        n->cost[k] = cost_of(p, own / p->c->memory_speed);
      }
    }
    p->value_node[v->id] = *node;
    p->nodes.at[*node].n++;
  }
  // One node per group of repeated ops, at the first of them.
  for_each_op(op, g) {
    if (op_part(op) != PART_forward || (p->inside && !p->inside[op->id])) continue;
    Op *first = p->first_op[op->id];
    int *node = &p->op_node[first->id];
    if (*node < 0) {
      *node = add_node(p, first, NULL, false);
      price_op(p, &p->nodes.at[*node]);
    }
    p->op_node[op->id] = *node;
    p->nodes.at[*node].n++;
  }
  add_gradients(p);
  for_each_value(p, add_shared_nodes);
  for_each_value(p, find_shared_node);
  price_norms(p);
  // A node decides all ops or values of its group: its costs count for each.
  for (int i = 0; i < p->nodes.n; i++) {
    Node *n = &p->nodes.at[i];
    for (int k = 0; k < n->choices.n; k++)
      n->cost[k] = times_cost(n->cost[k], n->n);
  }
}
