// What is done with the gradient of a weight, once per step:
//
//     %n = sum_squares %g             each rank its part, where the states lie in parts (ZeRO)
//     %w1, %m1 = momentum %w, %g, %m  the same part
//     %w2 = all_gather %w1            where the weight itself is whole
//
// All of it follows from the choice of the weight: these ops split the dimension in which its
// states lie.

#include "base/vec.h"
#include "cost.h"
#include "ir/op.h"
#include "ir/split.h"
#include "part.h"
#include "problem.h"
#include "said.h"

#include <string.h>

// An op of the update, and the operand, or result 0, that lies as the weight's states do.
typedef struct Updating {
  Op *op;
  int operand; // -1: the result
} Updating;

typedef Vec(Updating) Updatings;

// The op that makes what the weight becomes, and what else reads the gradient for it, as its norm
// does.
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

// The letter of a dimension of what lies as the states do; -1: it has none.
static int letter_at(const Problem *p, const Updating *u, int dim) {
  const Dims *dims = dims_of(p->s, u->op);
  const Term *t = u->operand < 0 ? &dims->out[0] : &dims->in[u->operand];
  return dim < t->rank && t->dim[dim].n ? t->dim[dim].letter[0] : -1;
}

// Sets what the op splits where nobody said otherwise.  `why`: the line that may do so.
static bool split_at(const Problem *p, const Updating *u, Sbp states, int axis, const Loc *why) {
  Op *op = u->op;
  const Dims *dims = dims_of(p->s, op);
  const Loc *fixed = p->s->fixed[op->id][axis];
  int letter = states.kind == SBP_S ? letter_at(p, u, states.dim) : -1;
  if ((fixed && fixed != why) || !split_legal(op, dims, letter, axis)) return false;
  if (!said_allows(p->s->said[op->id][axis], dims->letter[letter].name)) return false;
  op->split[axis] = dims->letter[letter].name;
  return true;
}

void split_update(const Problem *p, const Value *v, Sbp states, int axis, const Loc *why) {
  Updatings all = updatings_of(p, v);
  for (int i = 0; i < all.n; i++)
    if (split_at(p, &all.at[i], states, axis, why)) p->s->fixed[all.at[i].op->id][axis] = why;
}

// -- What it takes -----------------------------------------------------------------------------

static double updating_seconds(const Problem *p, const Updating *u, const OpWork *work,
                               const Choice *c) {
  char before[MAX_AXES];
  memcpy(before, u->op->split, sizeof before);
  for (int i = 0; i < p->n_axes; i++)
    split_at(p, u, c->back[p->axis[i]], p->axis[i], NULL);
  double seconds = kernel_seconds(p, u->op, work);
  memcpy(u->op->split, before, sizeof before);
  return seconds;
}

void price_weight(Problem *p, Node *n) {
  const Value *v = n->v;
  Updatings all = updatings_of(p, v);
  for (int k = 0; k < n->choices.n; k++) {
    const Choice *c = &n->choices.at[k];
    double seconds = price(p, v->type, lies_as(p, v, c->back), lies_as(p, v, c->lies), false);
    n->cost[k] += cost_of(p, seconds);
  }
  for (int i = 0; i < all.n; i++) {
    OpWork work = kernel_work(p, all.at[i].op);
    for (int k = 0; k < n->choices.n; k++)
      n->cost[k] += cost_of(p, updating_seconds(p, &all.at[i], &work, &n->choices.at[k]));
  }
}
