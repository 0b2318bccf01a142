// See metrics.h.

#include "metrics.h"

#include <inttypes.h>

#include "ir/op.h"
#include "loss_spec.h"

// Of larger logits it would take more memory than it is worth.
enum { MOST_CLASSIFIED = 1 << 24 };

typedef struct Metric {
  const char *output;
  Value *right, *wrong; // sums so far
} Metric;

typedef struct Metrics {
  Builder b;
  Arena *a;
  Vec(Metric) metric;       // of different outputs
  Vec(int) of_loss;         // by loss of classes: its metric
  Vec(const Op *) class_op; // in the order of the graph
} Metrics;

static int find_metric(const Metrics *m, const char *output) {
  int i = 0;
  while (i < m->metric.n && !str_equal(m->metric.at[i].output, output))
    i++;
  return i;
}

static void list_losses(Metrics *m, const LossSpecs *specs) {
  for (int i = 0; i < specs->n; i++) {
    const LossSpec *s = &specs->at[i];
    bool classes =
        s->kind == LOSS_cross_entropy || s->kind == LOSS_nll || s->kind == LOSS_next_token;
    if (!classes) continue;
    int at = find_metric(m, s->output);
    Metric one = {.output = s->output};
    if (at == m->metric.n) vec_push(m->a, &m->metric, one);
    vec_push(m->a, &m->of_loss, at);
  }
}

// Label smoothing has an nll of the same operands beside its cross entropy.
static void list_ops(Metrics *m, const Graph *g) {
  for_each_op(op, g) {
    if (op->kind != OP_cross_entropy && op->kind != OP_nll) continue;
    const Op *last = m->class_op.n ? m->class_op.at[m->class_op.n - 1] : NULL;
    bool same = last && last->in[0].value == op->in[0].value &&
                last->in[1].value == op->in[1].value && last->kind != op->kind;
    if (!same) vec_push(m->a, &m->class_op, op);
  }
}

static Value *two(Builder *b, OpKind kind, Value *x, Value *y) {
  return build(b, kind, IN(x, y), NO_ATTRS);
}

static Value *count(Builder *b, Value *x) {
  int64_t axes[MAX_RANK];
  for (int i = 0; x && i < x->type->rank; i++)
    axes[i] = i;
  return x ? build_reduce_sum(b, build_cast(b, x, DT_f32), axes, x->type->rank, false) : NULL;
}

static void add(Builder *b, Value **sum, Value *x) {
  *sum = *sum ? two(b, OP_add, *sum, x) : x;
}

static void add_counts(Metrics *m, Metric *metric, const Op *op) {
  Builder *b = &m->b;
  Value *x = op->in[0].value, *labels = op->in[1].value;
  const Type *t = labels->type;
  if (type_count(x->type) > MOST_CLASSIFIED) return;
  b->origin = op_origin(op);
  Value *best =
      build(b, OP_arg_max, IN(x),
            ATTRS(a_i("axis", x->type->rank - 1), a_b("keep", false), a_b("last", false)));
  Value *right = two(b, OP_equal, build_cast(b, best, t->dtype), labels);
  Value *none = build_fill(b, t->dtype, t->rank, t->dim, (double)attr_i(op, "ignore"));
  Value *counts = build(b, OP_not, IN(two(b, OP_equal, labels, none)), NO_ATTRS);
  Value *wrong = build(b, OP_not, IN(right), NO_ATTRS);
  add(b, &metric->right, count(b, two(b, OP_and, right, counts)));
  add(b, &metric->wrong, count(b, two(b, OP_and, wrong, counts)));
}

bool add_metrics(Graph *g, const char *spec, Arena *a, Diag *d) {
  Metrics m = {.b = {.g = g, .d = d}, .a = a};
  LossSpecs specs = {0};
  if (!loss_spec_parse(&specs, spec, g, a, d)) return false;
  list_losses(&m, &specs);
  list_ops(&m, g);
  // Those of the loss are the last of each piece: a model may have losses of its own before it.
  for (int i = 0; i < m.class_op.n && !m.b.failed; i++) {
    const Op *op = m.class_op.at[i];
    int behind = 0;
    for (int k = i + 1; k < m.class_op.n; k++)
      behind += m.class_op.at[k]->piece == op->piece;
    if (behind >= m.of_loss.n) continue;
    int at = m.of_loss.at[m.of_loss.n - 1 - behind];
    // Of several losses of one output the first counts.
    bool first = true;
    for (int k = 0; k < m.of_loss.n - 1 - behind; k++)
      first &= m.of_loss.at[k] != at;
    if (first) add_counts(&m, &m.metric.at[at], op);
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
