// See annotated.h.
//
// Ops are found by node in a sorted list, values by name. Recursive functions follow a split:
// follow_down from operands to results, follow_up back. `fix` constrains splits; a split goes no
// further than an op that has one already.

#include "annotated.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/analysis/batch_dim.h"
#include "ir/analysis/origin.h"
#include "ir/annotations.h"
#include "ir/build.h"
#include "ir/op.h"
#include "sharding/assign.h"
#include "sharding/constraints.h"
#include "sharding/decide.h"

// An op by its node, in the order of the graph.
typedef struct NodeOp {
  const char *node;
  Op *op;
} NodeOp;

typedef struct Apply {
  Sharding *s;
  int axis, along; // of the mesh; of the annotations
  const Annotations *all;
  const Loc *line;
  Diag *d;
  Vec(NodeOp) ops; // by node
  // The current annotation.
  const Annotation *node;
  const char *ops_of; // the node with the ops to split: its own, unless that has none
  const AnnotatedValue *value;
  int n_fixed, n_errors;
  int n_lost; // nodes without effect
  const char *lost;
} Apply;

// -- The model ---------------------------------------------------------------------------------

static bool is_cut_along(const Annotations *all, const char *name, int dim) {
  for (const Annotation *one = all ? all->first : NULL; one; one = one->next)
    for (int i = 0; i < one->n_values; i++)
      for (int k = 0; k < all->n_axes && str_equal(one->value[i].name, name); k++)
        if (one->value[i].result && one->value[i].axis[k].kind == SBP_S &&
            one->value[i].axis[k].dim == dim)
          return true;
  return false;
}

// Whether columns of `v` are sliced, and the slice is sharded.
static bool is_apart(const Value *v) {
  const Annotations *all = v->graph->module->annotations;
  for_each_use(u, v)
    if (u->user && u->user->kind == OP_slice && u->user->out[0]->name &&
        is_cut_along(all, u->user->out[0]->name, v->type->ndim - 1))
      return true;
  return false;
}

bool annotated_apart(const Op *op) {
  const Value *y = op->out[0];
  if (is_apart(y)) return true;
  for_each_use(u, y)
    if (u->user && u->user->kind == OP_add && is_apart(u->user->out[0])) return true; // its bias
  return false;
}

// -- The present ops ---------------------------------------------------------------------------

const char *annotated_node(const Op *op) {
  return op_part(op) == PART_forward && op->loc ? op->loc->node : NULL;
}

bool annotated_between(const Op *op) {
  return op->kind == OP_cast || op->kind == OP_transpose || op->kind == OP_reshape;
}

static int by_node(const void *x, const void *y) {
  const NodeOp *a = x, *b = y;
  int order = strcmp(a->node, b->node);
  return order ? order : (a->op->id > b->op->id) - (a->op->id < b->op->id);
}

// Returns the value with this name; NULL: it is gone. After channels_last it has another name, and
// *dim is translated.
static Value *find_value(const Apply *p, const char *name, int *dim) {
  Value *v = graph_find_value(p->s->g, name);
  if (v) return v;
  v = graph_find_value(p->s->g, str_format(p->s->scratch, "%s.last", name));
  if (v && *dim > 0) *dim = *dim == 1 ? v->type->ndim - 1 : *dim - 1;
  return v;
}

// Returns the index of the node's first op; if it has none, the index at which one would be.
static int first_op(const Apply *p, const char *node) {
  int low = 0, high = p->ops.n;
  while (low < high) {
    int middle = (low + high) / 2;
    if (strcmp(p->ops.at[middle].node, node) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool is_of(const Apply *p, int i, const char *node) {
  return i < p->ops.n && str_equal(p->ops.at[i].node, node);
}

static bool belongs(const Apply *p, const Op *op) {
  const char *node = annotated_node(op);
  return node && str_equal(node, p->ops_of);
}

// -- Splits ------------------------------------------------------------------------------------

static const char *axis_name(const Apply *p) {
  return p->s->mesh->axis[p->axis].name;
}

static void wrong(Apply *p, const Op *op, const char *why) {
  diag_error(p->d, op->loc, "the annotation of '%s' cannot be followed: %s", p->value->name, why);
  p->n_errors++;
}

// Returns the letter that splits dimension `dim` of the term, or -1 and the reason.
static int letter_of(Apply *p, const Op *op, const Term *t, int dim, const char **why) {
  Arena *a = p->s->scratch;
  const Dims *dims = dims_of(p->s, op);
  const char *name = op_info[op->kind].name;
  int n = op_ranks(op, p->axis);
  if (dim >= t->ndim) {
    *why = str_format(a, "it has no dimension %d", dim);
    return -1;
  }
  int letter = dims_splitter(dims, t, dim, n);
  if (letter >= 0 && split_legal(op, dims, letter, p->axis)) return letter;
  // The reason: the op splits no such dimension, or its length is not divisible.
  bool whole = letter < 0 && t->dim[dim].n && dims->letter[t->dim[dim].letter[0]].whole;
  if (whole || (letter >= 0 && !dims_leads(dims, letter)))
    *why = str_format(a, "%s cannot be split along its dimension %d: it is %s", name, dim,
                      dims_text(a, dims));
  else
    *why = str_format(a, "dimension %d of %s, which is %s, cannot be split into %d along %s", dim,
                      name, dims_text(a, dims), n, axis_name(p));
  return -1;
}

static char split_name(const Op *op, int axis) {
  return op->split[axis] ? op->split[axis] : '-';
}

static bool splits_other(const Apply *p, const Op *op, int letter) {
  return p->s->decisions.fixed_by[op->id][p->axis] &&
         split_name(op, p->axis) != dims_of(p->s, op)->letter[letter].name;
}

// Sets the op's split; returns whether it was open. A value may be resharded between the ops of a
// node.
static bool fix(Apply *p, Op *op, int letter, bool first) {
  Sharding *s = p->s;
  char name = dims_of(s, op)->letter[letter].name;
  p->n_fixed++;
  if (!s->decisions.fixed_by[op->id][p->axis]) {
    constrain_split(s, op, p->axis, (char[]){name, 0}, p->line);
    return true;
  }
  // Only an op of the annotated value itself must follow.
  if (first && splits_other(p, op, letter))
    wrong(p, op,
          str_format(s->scratch, "%s would split '%c' along %s, and splits '%c'",
                     op_info[op->kind].name, name, axis_name(p), split_name(op, p->axis)));
  return false;
}

// `first`: the op reads or produces the annotated value itself, so that it must follow.
static void follow_down(Apply *p, const Value *v, int dim, bool first);

static void follow_down(Apply *p, const Value *v, int dim, bool first) {
  for_each_use(u, v) {
    Op *op = u->user;
    if (!op || op_part(op) != PART_forward) continue;
    bool own = belongs(p, op);
    if (!own && !annotated_between(op)) continue;
    const Dims *dims = dims_of(p->s, op);
    const char *why = NULL;
    int letter = letter_of(p, op, &dims->in[u->index], dim, &why);
    if (letter < 0 && first && own) wrong(p, op, why);
    if (letter < 0 || (own && !fix(p, op, letter, first))) continue;
    // On to the results that have the letter.
    for (int k = 0; k < op->n_out; k++) {
      int to = dims_position(dims, &dims->out[k], letter);
      if (to >= 0) follow_down(p, op->out[k], to, first && !own);
    }
  }
}

// Whether the dimension has so many equal parts, in addition to the splits of decided axes.
static bool cuts_evenly(const Apply *p, const Value *v, int dim) {
  int64_t parts = value_ranks(v, p->axis);
  for (int a = 0; a < p->s->mesh->n_axes; a++) {
    Sbp sbp = p->s->decisions.layout[v->id][a];
    if (a != p->axis && sbp.kind == SBP_S && sbp.dim == dim) parts *= value_ranks(v, a);
  }
  return dim < v->type->ndim && v->type->dim[dim] % parts == 0;
}

// Reshards a result that its op does not produce in this layout, by a new op after it.
static void cut_anew(Apply *p, Value *v, int dim) {
  Sharding *s = p->s;
  const char *name = v->name, *why = NULL;
  Builder b = {.g = s->g, .at = v->def->next, .origin = op_origin(v->def), .d = p->d};
  Value *cut = build_op(&b, OP_reshape, IN(v), ATTRS(a_list("shape", v->type->dim, v->type->ndim)));
  if (!cut) {
    p->n_errors++;
    return;
  }
  // The new value takes over the readers and the name.
  value_replace(v, cut);
  op_set_in(cut->def, 0, v);
  value_set_name(v, NULL);
  value_set_name(cut, name);
  sharding_grow(s);
  // It has the layout of the old one along decided axes.
  decide_as_operand(s, cut->def);
  int letter = letter_of(p, cut->def, &dims_of(s, cut->def)->out[0], dim, &why);
  if (letter < 0)
    wrong(p, v->def, why);
  else
    fix(p, cut->def, letter, true);
}

static void follow_up(Apply *p, const Value *v, int dim, bool first) {
  Op *op = v->def;
  if (!op || !(belongs(p, op) || annotated_between(op))) return;
  const Dims *dims = dims_of(p->s, op);
  const char *why = NULL;
  int letter = letter_of(p, op, &dims->out[v->index], dim, &why);
  // Its own op does not produce the result in this layout.
  bool other = first && belongs(p, op) && (letter < 0 || splits_other(p, op, letter));
  if (other && letter < 0 && !cuts_evenly(p, v, dim))
    wrong(p, op, why);
  else if (other)
    cut_anew(p, op->out[v->index], dim);
  if (other || letter < 0 || (belongs(p, op) && !fix(p, op, letter, first))) return;
  // On to the operands that have the letter.
  for (int i = 0; i < op->n_in; i++) {
    int to = dims_position(dims, &dims->in[i], letter);
    if (to >= 0) follow_up(p, op->in[i].value, to, first && !belongs(p, op));
  }
}

// Gives an input of the model the layout of its reader; the first annotation of it counts.
static void lay_input(const Apply *p, const Value *v, int dim) {
  Sharding *s = p->s;
  if (v->def || v->role != ROLE_input || s->decisions.param[v->id][p->axis] != PARAM_open) return;
  if (!param_cuts(s, v, dim, p->axis)) return;
  char split = split_of_sbp((Sbp){.kind = SBP_S, .dim = dim});
  constrain_layout(s, v, p->axis, (char[]){split, 0}, PARAM_fixed, NULL);
}

// For a node without ops: the op that produces the result now.
static void move_to(Apply *p, const Value *result) {
  const Op *op = result->def;
  p->ops_of = p->node->node;
  if (is_of(p, first_op(p, p->ops_of), p->ops_of)) return;
  while (op && !annotated_node(op) && annotated_between(op))
    op = op->in[0].value->def;
  if (op && annotated_node(op)) p->ops_of = annotated_node(op);
}

// -- Nodes -------------------------------------------------------------------------------------

static void keep_whole(const Apply *p, Op *op) {
  if (!p->s->decisions.fixed_by[op->id][p->axis]) constrain_split(p->s, op, p->axis, "-", p->line);
}

static void lose(Apply *p) {
  if (!p->n_lost++) p->lost = p->node->node;
}

static void follow_splits(Apply *p) {
  int errors = p->n_errors;
  bool is_cut = false;
  for (int i = 0; i < p->node->n_values; i++)
    is_cut |= p->node->value[i].axis[p->along].kind == SBP_S;
  p->ops_of = p->node->node;
  p->n_fixed = 0;
  // From an operand down to results, or from a result up to operands.
  for (int i = 0; i < p->node->n_values; i++) {
    const AnnotatedValue *value = &p->node->value[i];
    Sbp sbp = value->axis[p->along];
    int dim = sbp.dim;
    if (sbp.kind != SBP_S) continue;
    p->value = value;
    const Value *v = find_value(p, value->name, &dim);
    if (!v) continue;
    if (value->result) {
      move_to(p, v);
      follow_up(p, v, dim, true);
    } else {
      follow_down(p, v, dim, true);
      lay_input(p, v, dim);
    }
  }
  // An annotation without effect is lost.
  if (is_cut && !p->n_fixed && p->n_errors == errors) lose(p);
  // A replicated result fixes its op, and all ops of the node if none of them is split.
  for (int i = 0; i < p->node->n_values; i++) {
    const AnnotatedValue *value = &p->node->value[i];
    int dim = 0;
    if (!value->result || value->axis[p->along].kind == SBP_S) continue;
    const Value *v = find_value(p, value->name, &dim);
    Op *op = v ? v->def : NULL;
    if (v) move_to(p, v);
    while (op && !belongs(p, op) && annotated_between(op))
      op = op->in[0].value->def;
    if (!op || !belongs(p, op)) continue;
    keep_whole(p, op);
    for (int k = p->n_fixed ? p->ops.n : first_op(p, p->ops_of); is_of(p, k, p->ops_of); k++)
      keep_whole(p, p->ops.at[k].op);
  }
}

// An op without operands runs on the ranks of its readers.
static void assign(const Apply *p, Op *op) {
  if (p->s->decisions.assigned[op->id][p->axis] || op->n_in == 0) return;
  constrain_ranks(p->s, op, p->axis, ranks_new(p->s, p->axis, &p->node->stage, 1), NULL);
}

static void follow_stage(Apply *p) {
  int i = first_op(p, p->node->node), n = 0;
  if (p->node->stage < 0) return;
  for (; is_of(p, i, p->node->node); i++, n++)
    assign(p, p->ops.at[i].op);
  // A node without ops: the op that produces its result now.
  for (int k = 0; n == 0 && k < p->node->n_values; k++) {
    int dim = 0;
    const Value *v = p->node->value[k].result ? find_value(p, p->node->value[k].name, &dim) : NULL;
    if (!v || !v->def) continue;
    assign(p, v->def);
    n++;
  }
  if (!n) lose(p);
}

int annotated_apply(Sharding *s, int axis, const Loc *line, Diag *d) {
  const MeshAxis *along = &s->mesh->axis[axis];
  Apply p = {.s = s, .axis = axis, .along = -1, .line = line, .d = d};
  p.all = s->g->module->annotations;
  // The axis of the annotations with this name and size.
  for (int i = 0; p.all && i < p.all->n_axes; i++)
    if (str_equal(p.all->axis[i].name, along->name) && p.all->axis[i].size == along->size)
      p.along = i;
  if (p.along < 0) {
    diag_error(d, line, "the model is not annotated for an axis '%s' of %d", along->name,
               along->size);
    return 1;
  }
  // Ops are found by node.
  for_each_op(op, s->g)
    if (annotated_node(op)) vec_push(s->scratch, &p.ops, ((NodeOp){annotated_node(op), op}));
  if (p.ops.n) qsort(p.ops.at, (size_t)p.ops.n, sizeof *p.ops.at, by_node);
  // The axis of stages assigns ranks, all other axes split.
  for (p.node = p.all->first; p.node; p.node = p.node->next) {
    if (p.along == p.all->stages)
      follow_stage(&p);
    else
      follow_splits(&p);
  }
  // Inputs without annotations are sharded along the batch, like one that is.
  int64_t batch = -1;
  for (int i = 0; i < s->g->n_params; i++) {
    const Value *v = s->g->params[i];
    Sbp sbp = s->decisions.layout[v->id][p.axis];
    if (v->role == ROLE_input && sbp.kind == SBP_S && sbp.dim == 0) batch = v->type->dim[0];
  }
  for (int i = 0; i < s->g->n_params && batch > 0; i++) {
    const Value *v = s->g->params[i];
    if (value_has_batch(v) && v->type->dim[0] == batch) lay_input(&p, v, 0);
  }
  // Annotations without effect, once for the module.
  bool one = p.n_lost == 1;
  if (p.n_lost && s->g == module_first_entry(s->g->module))
    diag_warning(d, NULL,
                 "the annotation%s of %d node%s, '%s' the first, say%s nothing along %s: what %s "
                 "computed %s part of other ops",
                 one ? "" : "s", p.n_lost, one ? "" : "s", p.lost, one ? "s" : "", axis_name(&p),
                 one ? "it" : "they", one ? "is" : "are");
  return p.n_errors;
}
