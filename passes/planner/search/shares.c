// See shares.h.
//
// The split of a gradient follows from that of its op, so its layouts are computed under each
// choice of the op; identical gradients, as of repeated layers, are computed once.

#include "shares.h"

#include <string.h>

#include "ir/op.h"
#include "ir/split.h"
#include "splits.h"
#include "value_layouts.h"

// Cache of a node, for its repeated layers: the shares of its op's results and operands, or of its
// value and the value's gradient; NULL until computed.
typedef struct OfNode {
  const Share **gives, **wants, *layout, *back;
} OfNode;

// Gradients with the same layouts under the choices of their op of the model: see gradient_of.
typedef struct Gradient {
  int node;
  const Dims *dims, *of_dims;
  const Mesh *mesh;
  char split[MAX_AXES];
  const int8_t *letter; // for each letter of its own, that of the op of the model
  const Share **share;  // of operands and results; NULL until requested
  struct Gradient *next;
} Gradient;

enum { N_GRADIENTS = 1024 }; // buckets of a hash

struct Shares {
  Problem *p;
  Arena *scratch;
  const Share **shares; // by node
  OfNode *of_node;
  Gradient *gradients[N_GRADIENTS];
  Gradient **gradient_of; // by op id, or NULL
  const Share **given;    // by value id, once requested
  bool *asked;
};

Shares *shares_new(Problem *p, Arena *scratch) {
  const Graph *g = p->s->g;
  Shares *k = arena_one(scratch, Shares);
  k->p = p;
  k->scratch = scratch;
  k->shares = arena_array(scratch, const Share *, p->nodes.n);
  k->of_node = arena_array(scratch, OfNode, p->nodes.n);
  k->gradient_of = arena_array(scratch, Gradient *, g->n_ops);
  k->given = arena_array(scratch, const Share *, g->n_values);
  k->asked = arena_array(scratch, bool, g->n_values);
  return k;
}

// -- Layouts of values -------------------------------------------------------------------------

// Values with the same layouts under the choices of one node have the same share.
const Share *share_of(Shares *k, int node, const Layout **layout) {
  size_t size = (size_t)k->p->nodes.at[node].choices.n * sizeof *layout;
  for (const Share *s = k->shares[node]; s; s = s->next)
    if (!memcmp(s->layout, layout, size)) return s;
  Share *s = arena_one(k->p->scratch, Share);
  *s = (Share){node, arena_copy(k->p->scratch, layout, size), k->shares[node]};
  return k->shares[node] = s;
}

// Returns the share of a result or an operand of an op of the model; NULL: it has no node.
static const Share *share_of_op(Shares *k, const Op *op, int i, bool result) {
  Problem *p = k->p;
  int node = p->op_node[op->id];
  if (node < 0) return NULL;
  const Share ***all = result ? &k->of_node[node].gives : &k->of_node[node].wants;
  if (!*all) *all = arena_array(k->scratch, const Share *, result ? op->n_out : op->n_in);
  if ((*all)[i]) return (*all)[i];
  // Computed once for all ops of the node.
  const Node *n = &p->nodes.at[node];
  const Layout **layout = arena_array(k->scratch, const Layout *, n->choices.n);
  for (int c = 0; c < n->choices.n; c++) {
    choose_split(p, n, &n->choices.at[c]);
    layout[c] = result ? op_gives(p, n->op, i) : op_wants(p, n->op, i, &n->choices.at[c]);
  }
  return (*all)[i] = share_of(k, node, layout);
}

const Share *share_of_node(Shares *k, int node, bool back) {
  if (node < 0) return NULL;
  const Share **known = back ? &k->of_node[node].back : &k->of_node[node].layout;
  if (*known) return *known;
  // Computed once for each node.
  const Node *n = &k->p->nodes.at[node];
  const Layout **layout = arena_array(k->scratch, const Layout *, n->choices.n);
  for (int c = 0; c < n->choices.n; c++)
    layout[c] = back ? back_as(k->p, n->v, n->choices.at[c].back)
                     : layout_as(k->p, n->v, n->choices.at[c].layout);
  return *known = share_of(k, node, layout);
}

// -- Gradients ---------------------------------------------------------------------------------

static bool same_gradient(const Gradient *x, const Gradient *y) {
  return x->node == y->node && x->dims == y->dims && x->of_dims == y->of_dims &&
         x->mesh == y->mesh && !memcmp(x->split, y->split, sizeof x->split) &&
         !memcmp(x->letter, y->letter, (size_t)x->dims->n_letters);
}

// Returns the class of a gradient op. Gradients of repeated layers have one class: the same node,
// einsums and matching letters.
static Gradient *gradient_of(Shares *k, const Op *op, const Op *of) {
  if (k->gradient_of[op->id]) return k->gradient_of[op->id];
  const Problem *p = k->p;
  Gradient g = {.node = p->op_node[of->id], .mesh = op_mesh(op)};
  g.letter = p->model_letter[op->id];
  g.dims = dims_of(p->s, op);
  g.of_dims = dims_of(p->s, of);
  memcpy(g.split, op->split, sizeof g.split);
  for (int i = 0; i < p->n_axes; i++)
    g.split[p->axis[i]] = 0; // set by the choices
  // The first op of a class adds it.
  uint64_t h = ((uintptr_t)g.dims * 0x9e3779b97f4a7c15u ^ (uint64_t)g.node) * 0xbf58476d1ce4e5b9u;
  Gradient **bucket = &k->gradients[h >> 32 & (N_GRADIENTS - 1)], *at = *bucket;
  while (at && !same_gradient(at, &g))
    at = at->next;
  if (!at) {
    g.share = arena_array(k->scratch, const Share *, op->n_in + op->n_out);
    g.next = *bucket;
    *bucket = at = arena_copy(k->scratch, &g, sizeof g);
  }
  return k->gradient_of[op->id] = at;
}

// Finds the share of operand or result `i` of a gradient op, under each choice of its op of the
// model.
static const Share *find_share_of_gradient(Shares *k, Op *op, Op *of, int i, bool result) {
  Problem *p = k->p;
  int node = p->op_node[of->id];
  const Sbp whole = {.kind = SBP_B};
  const Node *n = &p->nodes.at[node];
  const Mesh *mesh = op_mesh(op);
  const Layout **layout = arena_array(k->scratch, const Layout *, n->choices.n);
  char before[MAX_AXES], of_before[MAX_AXES];
  memcpy(before, op->split, sizeof before);
  memcpy(of_before, of->split, sizeof of_before);
  // Both splits change under each choice, and are restored after.
  for (int c = 0; c < n->choices.n; c++) {
    Sbp sbp[MAX_AXES];
    for (int a = 0; a < p->n_axes; a++)
      of->split[p->axis[a]] = n->choices.at[c].split[p->axis[a]];
    choose_gradient_split(p, op, of);
    for (int a = 0; a < mesh->n_axes; a++)
      sbp[a] = result ? split_gives(op, dims_of(p->s, op), i, a)
                      : split_wants(op, dims_of(p->s, op), i, a, whole);
    layout[c] = layout_new(p->s->g->module, mesh, sbp);
  }
  memcpy(op->split, before, sizeof before);
  memcpy(of->split, of_before, sizeof of_before);
  return share_of(k, node, layout);
}

static const Share *share_of_gradient(Shares *k, Op *op, Op *of, int i, bool result) {
  if (k->p->op_node[of->id] < 0) return NULL;
  const Share **known = &gradient_of(k, op, of)->share[result ? op->n_in + i : i];
  if (!*known) *known = find_share_of_gradient(k, op, of, i, result);
  return *known;
}

// Returns the op of the model that decides the layouts of a gradient op; NULL: unknown.
static Op *said_by(const Problem *p, const Op *op) {
  Op *of = p->model_op[op->id];
  bool known = of && repeated_by(p->s, op) == of;
  for (int i = 0; of && !known && i < dims_of(p->s, op)->n_letters; i++)
    known = p->model_letter[op->id][i] >= 0;
  return known ? of : NULL;
}

// -- Producers and readers of a value ----------------------------------------------------------

// Returns the node of the weight that an op updates; -1: none.
int updated_by(const Problem *p, const Op *op) {
  const Value *v = op->n_in ? op->in[0].value : NULL;
  bool is = v && op_part(op) == PART_update && !v->def && v->role == ROLE_weight;
  return is ? p->value_node[v->id] : -1;
}

const Share *share_read(Shares *k, const Use *u) {
  Op *op = u->user, *of;
  switch (op_part(op)) {
  case PART_forward: return share_of_op(k, op, u->index, false);
  case PART_backward:
    of = said_by(k->p, op);
    return of ? share_of_gradient(k, op, of, u->index, false) : NULL;
  case PART_update: return share_of_node(k, updated_by(k->p, op), true);
  case N_TRAIN_PARTS: break;
  }
  return NULL;
}

// For example a sum of gradients: the layout that its reader wants, or that of an operand.
static const Share *given_by_others(Shares *k, const Value *v) {
  for_each_use(u, v) {
    const Share *s = u->user ? share_read(k, u) : NULL;
    if (s) return s;
  }
  for (int i = 0; i < v->def->n_in; i++)
    if (v->def->in[i].value->type == v->type) return share_made(k, v->def->in[i].value);
  return NULL;
}

static const Share *find_given(Shares *k, const Value *v) {
  Op *op = v->def, *of = NULL;
  if (!op) {
    // The states of a weight have the layout that its update gives them.
    const Problem *p = k->p;
    if (v->role != ROLE_state) return share_of_node(k, p->value_node[v->id], false);
    for_each_use(u, v)
      if (u->user && updated_by(p, u->user) >= 0)
        return share_of_node(k, updated_by(p, u->user), true);
    return share_of_node(k, p->value_node[v->id], false);
  }
  if (op_part(op) == PART_forward) return share_of_op(k, op, v->index, true);
  if (op_part(op) == PART_backward) of = said_by(k->p, op);
  if (of) return share_of_gradient(k, op, of, v->index, true);
  int node = updated_by(k->p, op);
  return node >= 0 ? share_of_node(k, node, true) : given_by_others(k, v);
}

// The layouts of a value as produced; NULL: no known node decides them.
const Share *share_made(Shares *k, const Value *v) {
  if (!k->asked[v->id]) k->given[v->id] = find_given(k, v);
  k->asked[v->id] = true;
  return k->given[v->id];
}
