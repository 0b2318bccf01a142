// See step_work.h.

#include "step_work.h"

#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "ir/analysis/place.h"
#include "model_features.h"
#include "series.h"

// Whether the value is a weight, or made from weights alone: a cast. `of_weights`: of ops.
static bool is_weight(const bool *of_weights, const Value *v) {
  if (v->def) return of_weights[v->def->id];
  return v->role == ROLE_weight || v->role == ROLE_copy;
}

// Marks ops of forward and backward that read weights alone: casts, also several in one kernel.
static bool *find_of_weights(const Graph *g, Arena *a) {
  bool *of = arena_array(a, bool, g->n_ops);
  for_each_op(op, g) {
    of[op->id] = op->n_in > 0 && op->part != PART_update;
    for (int i = 0; i < op->n_in; i++)
      of[op->id] &= is_weight(of, op->in[i].value);
  }
  return of;
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
         x->weight_bytes == y->weight_bytes && x->launches == y->launches &&
         x->narrow == y->narrow && x->words == y->words;
}

static void add_kernel(StepWork *w, Arena *a, KernelWork k) {
  for (int i = 0; i < w->kernels.n; i++)
    if (is_equal(&w->kernels.at[i], &k)) {
      w->kernels.at[i].count++;
      return;
    }
  vec_push(a, &w->kernels, k);
}

// The index of the products of this size.
static int find_size(StepWork *w, Arena *a, double flops, bool narrow, bool attended) {
  int i = 0;
  for (; i < w->sizes.n; i++) {
    const ProductWork *k = &w->sizes.at[i];
    if (k->flops == flops && k->narrow == narrow && k->attended == attended) return i;
  }
  vec_push(a, &w->sizes, (ProductWork){.flops = flops, .narrow = narrow, .attended = attended});
  return i;
}

static void add_size(StepWork *w, Arena *a, const KernelWork *k, bool attended) {
  double flops = k->flops;
  if (attended && k->phase == PHASE_OF_backward) flops /= ATTENTION_BACK;
  int size = find_size(w, a, flops, k->narrow, attended);
  ProductWork *p = &w->sizes.at[size];
  bool first = !p->n[k->phase]++;
  if (first || k->weight_bytes < p->weight_bytes[k->phase])
    p->weight_bytes[k->phase] = k->weight_bytes;
}

// Adds a product with a weight to the sums of them. A product has more flops for each element than
// any other op.
static void add_product(StepWork *w, const Op *op, WorkPhase phase, bool narrow) {
  w->narrow |= narrow;
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

static bool has_columns(const Value *v, int64_t n) {
  return v->type->ndim && v->type->dim[v->type->ndim - 1] == n;
}

// Whether the op reads logits, a table of words or their gradients, or makes them. 0 words: none.
static bool is_of_words(const Op *op, WorkPhase phase, const bool *of_weights, int64_t words) {
  bool of = false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    bool is_table = is_weight(of_weights, v) && v->type->ndim == 2 && v->type->dim[0] == words;
    of |= is_table || has_columns(v, words);
  }
  for (int i = 0; i < op->n_out; i++) {
    const Type *t = op->out[i]->type;
    bool is_table = phase == PHASE_OF_weight_grad && t->ndim == 2 && t->dim[0] == words;
    of |= is_table || has_columns(op->out[i], words);
  }
  return words && of;
}

// Returns whether it is one of the products of step_work.h.
static bool add_op(StepWork *w, Arena *a, const Op *op, WorkPhase phase, const bool *of_weights,
                   int64_t words) {
  OpWork work = op_work_alone(op);
  WorkSum sum = work_sum(&work, NULL);
  KernelWork k = {.phase = phase, .flops = sum.flops, .launches = work.launches, .count = 1};
  k.narrow = work.narrow;
  k.words = is_of_words(op, phase, of_weights, words);
  // The bytes that do not shrink with the rows: weights, and the sums of their gradients.
  double bytes = sum.read + sum.written, elements = 0;
  bool reads_weight = false, reads_matrix = false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    elements += (double)type_count(v->type);
    if (!is_weight(of_weights, v)) continue;
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
  w->word_units += phase == PHASE_OF_forward && reads_matrix && k.words;
  enum { LEAST_REUSE = 16 }; // flops for each element of a product
  bool is_product = sum.flops > LEAST_REUSE * elements && op->n_in > 1;
  bool has_weight = is_product && (reads_weight || phase == PHASE_OF_weight_grad);
  if (has_weight) add_product(w, op, phase, work.narrow);
  if (has_weight || sum.attended > 0) add_size(w, a, &k, sum.attended > 0);
  return has_weight || sum.attended > 0;
}

// Counts the forwards that are in series, and the others by their groups.
static void add_series(StepWork *w, const Graph *g, const Op *const *op, int n, Arena *a) {
  const int *group = series_groups(g, op, n, a);
  int *n_group = arena_array(a, int, (size_t)w->sizes.n + 1);
  bool all = true;
  for (int i = 0; i < n; i++)
    all &= !group[i];
  for (int i = 0; i < n; i++) {
    OpWork work = op_work_alone(op[i]);
    WorkSum sum = work_sum(&work, NULL);
    int size = find_size(w, a, sum.flops, work.narrow, sum.attended > 0);
    ProductWork *p = &w->sizes.at[size];
    if (all) vec_push(a, &w->chain, size);
    if (i && group[i] != group[i - 1])
      for (int k = 0; k < w->sizes.n; k++)
        n_group[k] = 0;
    p->n_series += !group[i];
    n_group[size] += group[i] > 0;
    if (n_group[size] > p->n_group) p->n_group = n_group[size];
  }
}

// Adds the bytes of values that backward reads from forward, each once.
static void add_saved(StepWork *w, const Graph *g, const bool *of_weights, Arena *a) {
  bool *seen = arena_array(a, bool, g->n_values);
  for_each_op(op, g) {
    if (op->part != PART_backward) continue;
    for (int i = 0; i < op->n_in; i++) {
      int64_t at;
      const Value *v = view_root(op->in[i].value, &at);
      if (!v->def || v->def->part != PART_forward || seen[v->id]) continue;
      if (is_weight(of_weights, v)) continue;
      seen[v->id] = true;
      w->saved += bytes_of(v);
    }
  }
}

// Elements of distinct gradients: those of two weights may be one value, which is summed up once.
static double gradient_elements(const Graph *g) {
  double elements = 0;
  for_each_op(op, g)
    for (int i = 0; op->part == PART_backward && i < op->n_out; i++) {
      bool is_gradient = false;
      for_each_use(u, op->out[i])
        is_gradient |= !u->user || u->user->part == PART_update;
      if (is_gradient) elements += (double)type_count(op->out[i]->type);
    }
  return elements;
}

// Whether some values are in 16 bits, though a target may compute with them in f32.
static bool has_narrow(const Graph *g) {
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      if (dtype_narrow(op->out[i]->type->dtype)) return true;
  return false;
}

StepWork *step_work_find(const Module *m, int64_t batches, Arena *a) {
  StepWork *w = arena_one(a, StepWork);
  w->batches = batches;
  const Graph *g = m->graphs;
  while (g && !g->entry)
    g = g->next;
  if (!g) BUG("a module without a step");
  const uint32_t *weight_grad = find_weight_grads(g, a);
  const bool *rows = find_rows(g, a), *of_weights = find_of_weights(g, a);
  const Op **forward = arena_array(a, const Op *, (size_t)g->n_ops + 1);
  int n_forward = 0;
  int64_t words = graph_words(g);
  for_each_op(op, g) {
    WorkPhase phase = phase_of(op, weight_grad, rows);
    bool is_product = add_op(w, a, op, phase, of_weights, words);
    if (is_product && phase == PHASE_OF_forward) forward[n_forward++] = op;
  }
  add_series(w, g, forward, n_forward, a);
  add_saved(w, g, of_weights, a);
  bool narrow = has_narrow(g);
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->role == ROLE_weight) w->weights += bytes_of(v);
    if (v->role == ROLE_state) w->states += bytes_of(v);
    if (v->role == ROLE_weight && v->train) {
      w->gradients += (double)type_count(v->type) * dtype_bytes[DT_f32];
      w->trained += bytes_of(v);
      w->low_weights += narrow ? bytes_of(v) / 2 : bytes_of(v);
    }
  }
  w->gradients = fmin(w->gradients, gradient_elements(g) * dtype_bytes[DT_f32]);
  return w;
}

static double kernel_seconds(const StepWork *w, const Device *d, WorkPhase phase, double share,
                             double parts, bool words_alone) {
  double seconds = 0;
  for (int i = 0; i < w->kernels.n; i++) {
    const KernelWork *k = &w->kernels.at[i];
    if (k->phase != phase || (words_alone && !k->words)) continue;
    OpWork one = {.narrow = k->narrow, .launches = k->launches, .n = 1};
    one.part[0].flops = k->flops * share;
    one.part[0].read = k->rows_bytes * share + k->weight_bytes / parts;
    seconds += k->count * work_seconds_on(d, &one, NULL);
  }
  return seconds;
}

double step_work_seconds(const StepWork *w, const Device *d, WorkPhase phase, double share,
                         double parts) {
  return kernel_seconds(w, d, phase, share, parts, false);
}

double step_words_seconds(const StepWork *w, const Device *d, WorkPhase phase, double share,
                          double parts) {
  return kernel_seconds(w, d, phase, share, parts, true);
}
