// Kernel costs of an op and its gradient under each choice of the op.
//
//     %1 = broadcast %b      nothing: the kernel of the add reads %b
//     %2 = add %y, %1        no launch, and no write: part of gelu's kernel
//     %3 = gelu %2           reads %y and %b, writes %3; one launch
//
// The values in memory are those of a single device (lives.h); others are neither read nor written,
// and an op with no result in memory has no launch of its own. Each op of a gradient has the split
// of its op of the model, and its own work. Tensors that this split leaves replicated cost the full
// work, and so does each launch.
//
// With a time axis a kernel runs in each slice. It reads or writes in full, every time, each tensor
// that time does not split, such as a weight or its gradient; and gradients are accumulated.

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

// Bytes of all operands, or of all results, with 16-bit tensors in f32.
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

// The work of an op with only the memory traffic of its own kernel.
OpWork kernel_work(const Problem *p, const Op *op) {
  OpWork w = op_work(op, dims_of(p->s, op));
  double read = 0, all_read = 0, written = 0, all_written = 0;
  // Bytes of all operands and results, and of those in memory.
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
  // An op that the target does not run in 16 bits reads and writes f32.
  if (must_widen(op, p->env->target)) {
    w.narrow = false;
    read = wide_bytes(op, true);
    written = wide_bytes(op, false);
  }
  // An accumulating product reads its result again.
  Summed s = op->n_out ? summed(p, op->out[0]) : (Summed){0};
  double again = s.launches ? 0 : s.moved;
  // The traffic of each part of the work shrinks in proportion.
  for (int i = 0; i < w.n; i++) {
    if (all_read > 0) w.part[i].read *= read / all_read;
    if (all_written > 0) w.part[i].written *= written / all_written;
    w.part[i].read += again * w.part[i].written;
  }
  if (written == 0) w.launches = 0;
  return w;
}

// Bytes of one rank's shard of an operand or result, under the current split.
static double own_bytes(const Problem *p, const Op *op, const Type *t, int i, bool operand) {
  const Mesh *mesh = op_mesh(op);
  const Sbp whole = {.kind = SBP_B};
  double bytes = (double)type_bytes(t);
  for (int a = 0; a < mesh->n_axes; a++) {
    Sbp sbp = operand ? split_wants(op, dims_of(p->s, op), i, a, whole)
                      : split_gives(op, dims_of(p->s, op), i, a);
    if (sbp.kind == SBP_S) bytes /= mesh->axis[a].size;
  }
  return bytes;
}

// Seconds of the casts of 16-bit operands to f32, and of results back. An elementwise kernel that
// produces such an operand, or reads such a result, does the cast itself: it writes, or reads, f32.
static double casts_seconds(const Problem *p, const Op *op, double times) {
  double bytes = 0;
  int launches = 0;
  // A cast moves three times the bytes of the 16-bit tensor.
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
  return moving_seconds(p->c, bytes, times * launches);
}

// Returns the runs of an op per step; adds the split along time to the cut, unless it is there
// already.
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
  // A split along a time axis is in the cut already.
  const Mesh *mesh = op_mesh(op);
  bool time_cut = false;
  for (int a = 0; a < mesh->n_axes; a++)
    time_cut |= mesh->axis[a].time && op->split[a] != SPLIT_NONE;
  Cut cut = op_cut(op, dims_of(p->s, op));
  double times = cut_in_time(p, op, time_cut, &cut);
  double seconds = times * work_seconds(p->c, work, &cut);
  return must_widen(op, p->env->target) ? seconds + casts_seconds(p, op, times) : seconds;
}

double whole_seconds(const Problem *p, const Op *op) {
  OpWork work = kernel_work(p, op);
  Cut cut = {0};
  double times = cut_in_time(p, op, false, &cut);
  return times * work_seconds(p->c, &work, &cut);
}

// Seconds of separate ops that accumulate the results of a gradient op.
static double sum_seconds(const Problem *p, const Op *op) {
  double bytes = 0;
  int launches = 0;
  for (int i = 0; i < op->n_out; i++) {
    Summed s = summed(p, op->out[i]);
    if (!s.launches) continue;
    bytes += s.moved * own_bytes(p, op, op->out[i]->type, i, false);
    launches += s.launches;
  }
  return (double)p->slices * moving_seconds(p->c, bytes, launches);
}

void price_op(const Problem *p, Node *n) {
  OpWork work = kernel_work(p, n->op);
  for (int k = 0; k < n->choices.n; k++) {
    choose_split(p, n, &n->choices.at[k]);
    n->cost[k] = cost_of(p, kernel_seconds(p, n->op, &work));
  }
}

// Later ops of a gradient read the results of earlier ones, so each choice sets the splits of all
// of them together.
void price_gradients(const Problem *p, Node *n, Op *const *gradient, int count) {
  // The work is the same under all choices.
  char(*before)[MAX_AXES] = arena_alloc_array(p->scratch, (size_t)count, sizeof *before);
  OpWork *work = arena_alloc_array(p->scratch, (size_t)count, sizeof *work);
  for (int i = 0; i < count; i++) {
    work[i] = kernel_work(p, gradient[i]);
    memcpy(before[i], gradient[i]->split, sizeof *before);
  }
  n->n_gradients = count;
  n->back = arena_array(p->scratch, int64_t, (int64_t)count * n->choices.n);
  // A gradient's split follows from the split of its op under each choice.
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
