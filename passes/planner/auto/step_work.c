// See step_work.h.

#include "step_work.h"

#include <string.h>

#include "cost/cost.h"
#include "ir/analysis/place.h"

// Whether the value is a weight, or made from weights alone by ops with one operand: a cast.
static bool is_weight(const Value *v) {
  while (v->def && v->def->n_in == 1 && (op_is_view(v->def) || v->def->kind == OP_cast))
    v = v->def->in[0].value;
  return !v->def && (v->role == ROLE_weight || v->role == ROLE_copy);
}

static double bytes_of(const Value *v) {
  return (double)type_bytes(v->type);
}

// Finds backward ops that only serve the gradient of one weight, by id: that op of the gradient
// itself, plus one; 0 of others.
static uint32_t *find_weight_grads(const Graph *g, Arena *a) {
  uint32_t *of = arena_array(a, uint32_t, g->n_ops);
  for (Op *op = g->last; op; op = op->prev) {
    if (op->part != PART_backward) continue;
    uint32_t one = 0;
    bool serves = true;
    for (int i = 0; i < op->n_out && serves; i++)
      for_each_use(u, op->out[i]) {
        uint32_t its = !u->user || u->user->part == PART_update ? op->id + 1 : of[u->user->id];
        serves &= its && (!one || its == one);
        one = its;
      }
    of[op->id] = serves ? one : 0;
  }
  return of;
}

// Marks ops that depend on rows of the batch. Others, such as casts of weights, run once in a step.
static bool *find_rows(const Graph *g, Arena *a) {
  bool *rows = arena_array(a, bool, g->n_ops);
  for_each_op(op, g)
    for (int i = 0; i < op->n_in; i++) {
      const Value *v = op->in[i].value;
      rows[op->id] |= v->def ? rows[v->def->id] : v->role == ROLE_input;
    }
  return rows;
}

static bool is_equal(const KernelWork *x, const KernelWork *y) {
  return x->phase == y->phase && x->flops == y->flops && x->rows_bytes == y->rows_bytes &&
         x->weight_bytes == y->weight_bytes && x->launches == y->launches && x->narrow == y->narrow;
}

static void add_kernel(StepWork *w, Arena *a, KernelWork k) {
  for (int i = 0; i < w->kernels.n; i++)
    if (is_equal(&w->kernels.at[i], &k)) {
      w->kernels.at[i].count++;
      return;
    }
  vec_push(a, &w->kernels, k);
}

// Adds a product with a weight to the sums of them. A product has more flops for each element than
// any other op.
static void add_product(StepWork *w, const Op *op, WorkPhase phase, double flops) {
  w->product_flops[phase] += flops;
  w->narrow |= dtype_narrow(op->in[0].value->type->dtype);
  if (phase != PHASE_OF_forward) return;
  double in = bytes_of(op->in[0].value), out = bytes_of(op->out[0]);
  w->products++;
  w->reduced += in < out ? in : out;
  if (out > w->largest) w->largest = out;
}

static WorkPhase phase_of(const Op *op, const uint32_t *weight_grad, const bool *rows) {
  if (op->part == PART_update || !rows[op->id]) return PHASE_OF_update;
  if (op->part == PART_forward) return PHASE_OF_forward;
  return weight_grad[op->id] ? PHASE_OF_weight_grad : PHASE_OF_backward;
}

static void add_op(StepWork *w, Arena *a, const Op *op, WorkPhase phase) {
  OpWork work = op_work_alone(op);
  WorkSum sum = work_sum(&work, NULL);
  KernelWork k = {.phase = phase, .flops = sum.flops, .launches = work.launches, .count = 1};
  k.narrow = work.narrow;
  // The bytes that do not shrink with the rows: weights, and the sums of their gradients.
  double bytes = sum.read + sum.written, elements = 0;
  bool reads_weight = false, reads_matrix = false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    elements += (double)type_count(v->type);
    if (!is_weight(v)) continue;
    reads_weight = true;
    reads_matrix |= v->type->ndim > 1;
    if (bytes_of(v) <= sum.read) k.weight_bytes += bytes_of(v);
  }
  for (int i = 0; i < op->n_out; i++) {
    elements += (double)type_count(op->out[i]->type);
    if (phase == PHASE_OF_weight_grad) k.weight_bytes += bytes_of(op->out[i]);
  }
  if (k.weight_bytes > bytes) k.weight_bytes = bytes;
  k.rows_bytes = bytes - k.weight_bytes;
  if (k.launches) add_kernel(w, a, k);
  w->units += phase == PHASE_OF_forward && reads_matrix;
  enum { LEAST_REUSE = 16 }; // flops for each element of a product
  bool is_product = sum.flops > LEAST_REUSE * elements && op->n_in > 1;
  if (is_product && (reads_weight || phase == PHASE_OF_weight_grad))
    add_product(w, op, phase, sum.flops);
}

// Adds the bytes of values that backward reads from forward, each once.
static void add_saved(StepWork *w, const Graph *g, Arena *a) {
  bool *seen = arena_array(a, bool, g->n_values);
  for_each_op(op, g) {
    if (op->part != PART_backward) continue;
    for (int i = 0; i < op->n_in; i++) {
      int64_t at;
      const Value *v = view_root(op->in[i].value, &at);
      if (!v->def || v->def->part != PART_forward || seen[v->id] || is_weight(v)) continue;
      seen[v->id] = true;
      w->saved += bytes_of(v);
    }
  }
}

StepWork *step_work_find(const Module *m, int64_t batches, Arena *a) {
  StepWork *w = arena_one(a, StepWork);
  w->batches = batches;
  const Graph *g = m->graphs;
  while (g && !g->entry)
    g = g->next;
  if (!g) BUG("a module without a step");
  const uint32_t *weight_grad = find_weight_grads(g, a);
  const bool *rows = find_rows(g, a);
  for_each_op(op, g)
    add_op(w, a, op, phase_of(op, weight_grad, rows));
  add_saved(w, g, a);
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->role == ROLE_weight) w->weights += bytes_of(v);
    if (v->role == ROLE_state) w->states += bytes_of(v);
    if (v->role == ROLE_weight && v->train) {
      w->gradients += (double)type_count(v->type) * dtype_bytes[DT_f32];
      w->low_weights += w->narrow ? bytes_of(v) / 2 : bytes_of(v);
    }
  }
  return w;
}

double step_work_seconds(const StepWork *w, const Device *d, WorkPhase phase, double share,
                         double parts) {
  double seconds = 0;
  for (int i = 0; i < w->kernels.n; i++) {
    const KernelWork *k = &w->kernels.at[i];
    if (k->phase != phase) continue;
    OpWork one = {.narrow = k->narrow, .launches = k->launches, .n = 1};
    one.part[0].flops = k->flops * share;
    one.part[0].read = k->rows_bytes * share + k->weight_bytes / parts;
    seconds += k->count * work_seconds_on(d, &one, NULL);
  }
  return seconds;
}
