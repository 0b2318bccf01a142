// Metrics of an evaluation: see metrics.h.

#include "metrics.h"

#include "ir/op.h"
#include "loss_spec.h"

// Larger logits are not classified: it would take too much memory.
enum { MOST_CLASSIFIED = 1 << 24 };

typedef struct Metric {
  const char *output;
  Value *right, *wrong; // sums so far
} Metric;

typedef struct Metrics {
  Builder b;
  Arena *a;
  Vec(Metric) metric;       // of different outputs
  Vec(int) of_loss;         // by loss of classes of other logits or labels: its metric
  Vec(const Op *) class_op; // for each of these, of each piece, in the order of the graph
} Metrics;

// Whether two losses have the same logits and labels.
static bool is_alike(const LossSpec *x, const LossSpec *y) {
  bool tokens = x->kind == LOSS_next_token;
  if (tokens != (y->kind == LOSS_next_token) || !str_equal(x->output, y->output)) return false;
  if (!tokens)
    return str_equal(x->labels, y->labels) && x->has_axis == y->has_axis && x->axis == y->axis;
  return str_equal(x->input, y->input) && x->has_ignore == y->has_ignore &&
         x->ignore_index == y->ignore_index;
}

// Adds the number of true rows to *io_sum.
static void count(Builder *b, Value **io_sum, Value *rows) {
  *io_sum = build_add(b, *io_sum, build_sum(b, build_cast(b, rows, DT_f32)));
}

static void add_counts(Metrics *m, Metric *metric, const Op *op) {
  Builder *b = &m->b;
  Value *x = op->in[0].value, *labels = op->in[1].value;
  const Type *t = labels->type;
  if (type_count(x->type) > MOST_CLASSIFIED) return;
  b->origin = op_origin(op);
  // Padding is no class.
  int64_t classes = attr_i(op, "classes");
  if (classes) x = build_slice(b, x, x->type->ndim - 1, 0, classes);
  if (!x) return;
  Value *best =
      build_op(b, OP_arg_max, IN(x),
               ATTRS(a_i("axis", x->type->ndim - 1), a_b("keep", false), a_b("last", false)));
  Value *right = build_binary(b, OP_equal, build_cast(b, best, t->dtype), labels);
  Value *none = build_full_like(b, labels, (double)attr_i(op, "ignore"));
  Value *counted = build_unary(b, OP_not, build_binary(b, OP_equal, labels, none));
  Value *wrong = build_unary(b, OP_not, right);
  count(b, &metric->right, build_binary(b, OP_and, right, counted));
  count(b, &metric->wrong, build_binary(b, OP_and, wrong, counted));
}

bool add_metrics(Graph *g, const char *spec, Arena *a, Diag *d) {
  Metrics m = {.b = {.g = g, .d = d}, .a = a};
  LossSpecs specs = {0};
  if (!loss_spec_parse(&specs, spec, g, a, d)) return false;
  // Losses of classes have metrics, once for each pair of logits and labels.
  for (int i = 0; i < specs.n; i++) {
    const LossSpec *s = &specs.at[i];
    bool classes =
        s->kind == LOSS_cross_entropy || s->kind == LOSS_nll || s->kind == LOSS_next_token;
    for (int k = 0; k < i; k++)
      classes &= !is_alike(s, &specs.at[k]);
    if (!classes) continue;
    int at = 0;
    while (at < m.metric.n && !str_equal(m.metric.at[at].output, s->output))
      at++;
    Metric one = {.output = s->output};
    if (at == m.metric.n) vec_push(m.a, &m.metric, one);
    vec_push(m.a, &m.of_loss, at);
  }
  // One op per pair of operands: label smoothing has an nll beside its cross entropy.
  for_each_op(op, g) {
    if (op->kind != OP_cross_entropy && op->kind != OP_nll) continue;
    bool first = true;
    for (int i = 0; i < m.class_op.n; i++)
      first &= m.class_op.at[i]->in[0].value != op->in[0].value ||
               m.class_op.at[i]->in[1].value != op->in[1].value;
    if (first) vec_push(m.a, &m.class_op, op);
  }
  for (int i = 0; i < m.class_op.n && !m.b.failed; i++) {
    // The index of the loss that the op computes; negative: none.  The ops of the loss are the last
    // of each piece: a model may have losses of its own before them.
    int after = 0;
    for (int later = i + 1; later < m.class_op.n; later++)
      after += m.class_op.at[later]->piece == m.class_op.at[i]->piece;
    int loss = m.of_loss.n - 1 - after;
    // Only the first of several losses of one output counts.
    bool first = loss >= 0;
    for (int k = 0; k < loss; k++)
      first &= m.of_loss.at[k] != m.of_loss.at[loss];
    if (first) add_counts(&m, &m.metric.at[m.of_loss.at[loss]], m.class_op.at[i]);
  }
  if (m.b.failed) return false;
  for (int i = 0; i < m.metric.n; i++) {
    const Metric *one = &m.metric.at[i];
    if (!one->right) continue;
    graph_output(g, one->right, str_format(g->module->arena, "accuracy(%s).right", one->output));
    graph_output(g, one->wrong, str_format(g->module->arena, "accuracy(%s).wrong", one->output));
  }
  return true;
}
