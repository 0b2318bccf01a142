// Kernels: what an op and its gradient take under each choice of the op.
//
//     %1 = broadcast %b      nothing: the kernel of the add reads %b
//     %2 = add %y, %1        no launch, and nothing written: it is part of gelu's
//     %3 = gelu %2           reads %y and %b, writes %3; one launch
//
// Which values are in memory is as on one device (lives.h); others are neither read nor written,
// and an op that makes no other has no launch of its own.  Each op of a gradient splits what its op
// of the model does, and has its own work: what that leaves whole is not less for it, nor is a
// launch.

#include "cost.h"
#include "ir/op.h"
#include "ir/split.h"
#include "lives.h"
#include "part.h"
#include "problem.h"

#include <string.h>

// -- What gradients split ----------------------------------------------------------------------

// How an operand of a gradient lies as far as its op of the model says, or another part of the
// gradient that was chosen before: d b^T of a matmul reads what transposes its operand.
static Sbp shown(const Problem *p, const Op *op, const Op *of, const Value *v, int axis) {
  const Sbp whole = {.kind = SBP_B};
  const Op *def = v->def;
  if (def && def->split[axis] != SPLIT_NONE && op_is_gradient_of(def, of) && def != op)
    return split_gives(def, dims_of(p->s, def), v->index, axis);
  for (int i = 0; i < of->n_in; i++)
    if (of->in[i].value == v) return split_wants(of, dims_of(p->s, of), i, axis, whole);
  for (int i = 0; i < of->n_out; i++)
    if (of->out[i]->type == v->type) return split_gives(of, dims_of(p->s, of), i, axis);
  return whole;
}

// A gradient splits what its op of the model does.
static char gradient_split(const Problem *p, const Op *op, const Op *of, int axis) {
  char split = of->split[axis];
  if (split == SPLIT_NONE || split == SPLIT_PARTIAL) return SPLIT_NONE;
  for (int i = 0; i < op->n_in; i++) {
    Sbp lies = shown(p, op, of, op->in[i].value, axis);
    int letter = lies.kind == SBP_S ? letter_of_operand(p->s, op, i, lies.dim, axis) : -1;
    if (letter >= 0) return dims_of(p->s, op)->letter[letter].name;
  }
  return SPLIT_NONE;
}

void choose_gradient_split(const Problem *p, Op *op, const Op *of) {
  for (int i = 0; i < p->n_axes; i++)
    op->split[p->axis[i]] = SPLIT_NONE;
  for (int i = 0; i < p->n_axes; i++)
    op->split[p->axis[i]] = gradient_split(p, op, of, p->axis[i]);
}

Op *model_of(const Op *op) {
  for (int i = 0; i < op->n_in; i++)
    for_each_use(u, op->in[i].value)
      if (u->user && op_is_gradient_of(op, u->user)) return u->user;
  return NULL;
}

// -- What they take ----------------------------------------------------------------------------

static bool is_there(const Problem *p, const Value *v) {
  return !v->def || !p->lives || p->lives->there[v->id];
}

// The part of an op that its kernel has to do with memory.
OpWork kernel_work(const Problem *p, const Op *op) {
  OpWork w = op_work(op, dims_of(p->s, op));
  double read = 0, all_read = 0, written = 0, all_written = 0;
  for (int i = 0; i < op->n_in; i++) {
    double bytes = (double)type_bytes(op->in[i].value->type);
    all_read += bytes;
    if (is_there(p, op->in[i].value)) read += bytes;
  }
  for (int i = 0; i < op->n_out; i++) {
    double bytes = (double)type_bytes(op->out[i]->type);
    all_written += bytes;
    if (is_there(p, op->out[i])) written += bytes;
  }
  for (int i = 0; i < w.n; i++) {
    if (all_read > 0) w.part[i].read *= read / all_read;
    if (all_written > 0) w.part[i].written *= written / all_written;
  }
  if (written == 0) w.launches = 0;
  return w;
}

double kernel_seconds(const Problem *p, const Op *op, const OpWork *work) {
  Cut cut = op_cut(op, dims_of(p->s, op));
  return work_seconds(p->c, work, &cut);
}

void price_op(const Problem *p, Node *n) {
  OpWork work = kernel_work(p, n->op);
  for (int k = 0; k < n->choices.n; k++) {
    choose_split(p, n, &n->choices.at[k]);
    n->cost[k] = cost_of(p, kernel_seconds(p, n->op, &work));
  }
}

// The first gradients of a choice are what later ones read, so all of them are chosen together.
void price_gradients(const Problem *p, Node *n, Op *const *gradient, int count) {
  char(*before)[MAX_AXES] = arena_alloc_array(p->scratch, (size_t)count, sizeof *before);
  OpWork *work = arena_alloc_array(p->scratch, (size_t)count, sizeof *work);
  for (int i = 0; i < count; i++) {
    work[i] = kernel_work(p, gradient[i]);
    memcpy(before[i], gradient[i]->split, sizeof *before);
  }
  n->n_gradients = count;
  n->back = arena_array(p->scratch, int64_t, (int64_t)count * n->choices.n);
  for (int k = 0; k < n->choices.n; k++) {
    choose_split(p, n, &n->choices.at[k]);
    for (int i = 0; i < count; i++) {
      choose_gradient_split(p, gradient[i], n->op);
      int64_t cost = cost_of(p, kernel_seconds(p, gradient[i], &work[i]));
      n->back[i * n->choices.n + k] = cost;
      n->cost[k] += cost;
    }
  }
  for (int i = 0; i < count; i++)
    memcpy(gradient[i]->split, before[i], sizeof *before);
}
