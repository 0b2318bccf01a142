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
//
// Where time is cut in slices, a kernel runs in each: what it reads or writes whole, a weight or
// its gradient, it does so every time, and gradients are added up.

#include "cost/cost.h"
#include "ir/analysis/loops.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "lives.h"
#include "lower/legalize_types.h"
#include "prices.h"
#include "problem.h"
#include "sharding/microbatch_cut.h"
#include "splits.h"

#include <string.h>

static bool is_there(const Problem *p, const Value *v) {
  return !v->def || !p->lives || p->lives->there[v->id];
}

// Of all operands, or all results, in f32 where they are in 16 bits.
static double wide_bytes(const Op *op, bool operands) {
  double bytes = 0;
  for (int i = 0; i < (operands ? op->n_in : op->n_out); i++) {
    const Type *t = operands ? op->in[i].value->type : op->out[i]->type;
    bytes += (double)type_bytes(t) * (dtype_narrow(t->dtype) ? 2 : 1);
  }
  return bytes;
}

static Summed summed(const Problem *p, const Value *v) {
  return p->lives && p->slices > 1 ? p->lives->summed[v->id] : (Summed){0};
}

// What a product that adds reads of its result, for each byte of that.
static double read_again(const Problem *p, const Op *op) {
  Summed s = op->n_out ? summed(p, op->out[0]) : (Summed){0};
  return s.launches ? 0 : s.moved;
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
  if (must_widen(op, p->s->target)) {
    w.narrow = false;
    read = wide_bytes(op, true);
    written = wide_bytes(op, false);
  }
  double again = read_again(p, op);
  for (int i = 0; i < w.n; i++) {
    if (all_read > 0) w.part[i].read *= read / all_read;
    if (all_written > 0) w.part[i].written *= written / all_written;
    w.part[i].read += again * w.part[i].written;
  }
  if (written == 0) w.launches = 0;
  return w;
}

// Bytes of one rank's part of an operand, or of a result, as the op splits now.
static double own_bytes(const Problem *p, const Op *op, const Type *t, int i, bool operand) {
  const Mesh *mesh = op_mesh(op);
  const Sbp whole = {.kind = SBP_B};
  double bytes = (double)type_bytes(t);
  for (int a = 0; a < mesh->n_axes; a++) {
    Sbp lies = operand ? split_wants(op, dims_of(p->s, op), i, a, whole)
                       : split_gives(op, dims_of(p->s, op), i, a);
    if (lies.kind == SBP_S) bytes /= mesh->axis[a].size;
  }
  return bytes;
}

// What brings operands in 16 bits to f32, and results back, is done by the elementwise kernels that
// make the ones and read the others, where there are such: these write, and read, f32.
static double casts_seconds(const Problem *p, const Op *op, double times) {
  double bytes = 0;
  int launches = 0;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (!dtype_narrow(v->type->dtype)) continue;
    bool joined = v->def && op_is_elementwise(v->def);
    bytes += own_bytes(p, op, v->type, i, true) * (joined && !is_there(p, v) ? 2 : 3);
    launches += !joined;
  }
  for (int i = 0; i < op->n_out; i++)
    if (dtype_narrow(op->out[i]->type->dtype))
      bytes += own_bytes(p, op, op->out[i]->type, i, false) * (is_there(p, op->out[i]) ? 3 : 2);
  return bytes / p->c->memory_speed + times * launches * p->c->launch;
}

static bool time_cut(const Op *op) {
  const Mesh *mesh = op_mesh(op);
  for (int a = 0; a < mesh->n_axes; a++)
    if (mesh->axis[a].time && op->split[a] != SPLIT_NONE) return true;
  return false;
}

// How often an op runs in a step; adds to the cut what time will cut, unless it does already.
static double cut_in_time(const Problem *p, const Op *op, bool is_cut, Cut *cut) {
  char split = p->timed ? p->timed->split[op->id] : SPLIT_NONE;
  if (split == SPLIT_NONE) return 1;
  int letter = dims_find(dims_of(p->s, op), split);
  if (letter >= 0 && !is_cut) {
    cut->at[cut->n].letter = letter;
    cut->at[cut->n++].parts = p->timed->slices;
  }
  return (double)p->timed->slices;
}

double kernel_seconds(const Problem *p, const Op *op, const OpWork *work) {
  Cut cut = op_cut(op, dims_of(p->s, op));
  double times = cut_in_time(p, op, time_cut(op), &cut);
  double seconds = times * work_seconds(p->c, work, &cut);
  return must_widen(op, p->s->target) ? seconds + casts_seconds(p, op, times) : seconds;
}

double whole_seconds(const Problem *p, const Op *op) {
  OpWork work = kernel_work(p, op);
  Cut cut = {0};
  double times = cut_in_time(p, op, false, &cut);
  return times * work_seconds(p->c, &work, &cut);
}

// What ops of their own take that add up what a gradient's op makes.
static double sum_seconds(const Problem *p, const Op *op) {
  double bytes = 0;
  int launches = 0;
  for (int i = 0; i < op->n_out; i++) {
    Summed s = summed(p, op->out[i]);
    if (!s.launches) continue;
    bytes += s.moved * own_bytes(p, op, op->out[i]->type, i, false);
    launches += s.launches;
  }
  return (double)p->slices * (bytes / p->c->memory_speed + launches * p->c->launch);
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
      double seconds = kernel_seconds(p, gradient[i], &work[i]) + sum_seconds(p, gradient[i]);
      int64_t cost = cost_of(p, seconds);
      n->back[i * n->choices.n + k] = cost;
      n->cost[k] += cost;
    }
  }
  for (int i = 0; i < count; i++)
    memcpy(gradient[i]->split, before[i], sizeof *before);
}
