// The ops that process a weight's gradient, once per step:
//
//     %n = sum_squares %g             each rank its part, if the states are sharded (ZeRO)
//     %w1, %m1 = sgd_momentum %w, %g, %m  the same part
//     %w2 = all_gather %w1            if the weight itself is replicated
//     %s = add %n, …
//     %t = all_reduce %s              if any rank had only a part of any gradient
//
// An update has the weight as operand 0 and the gradient as operand 1 (ops.def).
//
// These ops split the dimension along which the weight's states are sharded, so the choice of the
// weight decides all of them except the last. That one runs once for all weights with the same
// layout.

#include "base/vec.h"
#include "comm/hops.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "prices.h"
#include "problem.h"
#include "sharding/constraints.h"
#include "splits.h"
#include "value_layouts.h"

#include <string.h>

// An op of the update, and its operand, or result 0, with the layout of the weight's states.
typedef struct Updating {
  Op *op;
  int operand; // -1: result 0
} Updating;

typedef Vec(Updating) Updatings;

// Returns the update op of a weight, and the other ops of the update that read its gradient, such
// as its norm.
static Updatings updatings_of(const Problem *p, const Value *v) {
  Updatings all = {0};
  for_each_use(u, v) {
    Op *op = u->user;
    if (!op || op_part(op) != PART_update || u->index != 0 || op->n_in < 2) continue;
    vec_push(p->scratch, &all, ((Updating){op, -1}));
    for_each_use(r, op->in[1].value)
      if (r->user && r->user != op && op_part(r->user) == PART_update)
        vec_push(p->scratch, &all, ((Updating){r->user, r->index}));
  }
  return all;
}

// Sets the op's split, unless constraints forbid it.
static bool split_at(const Problem *p, const Updating *u, Sbp states, int axis) {
  Op *op = u->op;
  const Dims *dims = dims_of(p->s, op);
  if (p->s->decisions.fixed_by[op->id][axis]) return false;
  // The letter of the dimension that the states are sharded along; -1: it has none.
  const Term *t = u->operand < 0 ? &dims->out[0] : &dims->in[u->operand];
  bool has_letter = states.kind == SBP_S && states.dim < t->ndim && t->dim[states.dim].n;
  int letter = has_letter ? t->dim[states.dim].letter[0] : -1;
  if (states.kind == SBP_S && !split_legal(op, dims, letter, axis)) return false;
  char split = letter < 0 ? SPLIT_NONE : dims->letter[letter].name;
  if (!constraint_allows(p->s->constraints.op[op->id][axis], letter < 0 ? '-' : split))
    return false;
  op->split[axis] = split;
  return true;
}

void split_update(const Problem *p, const Value *v, Sbp states, int axis, Chosen *out) {
  Updatings all = updatings_of(p, v);
  for (int i = 0; i < all.n; i++)
    if (split_at(p, &all.at[i], states, axis)) out->op[all.at[i].op->id][axis] = true;
}

// -- Costs -------------------------------------------------------------------------------------

void price_weight(Problem *p, Node *n) {
  const Value *v = n->v;
  Updatings all = updatings_of(p, v);
  n->norm = arena_array(p->scratch, uint32_t, n->choices.n);
  // The new weight gets its own layout from that of its states.
  for (int k = 0; k < n->choices.n; k++) {
    const Choice *c = &n->choices.at[k];
    double seconds =
        reshard_seconds(p, v->type, back_as(p, v, c->back), layout_as(p, v, c->layout), AT_ONCE);
    n->cost[k] += cost_of(p, seconds);
  }
  for (int i = 0; i < all.n; i++) {
    OpWork work = kernel_work(p, all.at[i].op);
    // Under each choice of the weight, with the split of its states.
    for (int k = 0; k < n->choices.n; k++) {
      const Updating *u = &all.at[i];
      char before[MAX_AXES];
      memcpy(before, u->op->split, sizeof before);
      for (int a = 0; a < p->n_axes; a++)
        split_at(p, u, n->choices.at[k].back[p->axis[a]], p->axis[a]);
      n->cost[k] += cost_of(p, kernel_seconds(p, u->op, &work));
      // Axes over which its result is a partial sum: part of the norm.
      for (int a = 0; a < p->n_axes && u->operand >= 0; a++)
        if (split_gives(u->op, dims_of(p->s, u->op), 0, p->axis[a]).kind == SBP_P)
          n->norm[k] |= 1u << a;
      memcpy(u->op->split, before, sizeof before);
    }
  }
}

void price_norms(Problem *p) {
  Module *m = p->s->g->module;
  const Type *scalar = type_scalar(m, DT_f32);
  const Layout *all = layout_broadcast(m, p->s->mesh);
  int n = 1 << p->n_axes;
  p->norm = arena_array(p->scratch, int64_t, n);
  for (int axes = 1; axes < n; axes++) {
    const Layout *parts = all;
    for (int i = 0; i < p->n_axes; i++)
      if (axes >> i & 1) parts = with_axis(m, parts, p->axis[i], (Sbp){.kind = SBP_P});
    p->norm[axes] = cost_of(p, reshard_seconds(p, scalar, parts, all, AT_ONCE));
  }
}
