// The graph for --eval-every: the loss as in inference, in parts that add up over batches.
//
//     graph @train entry (…) {                        graph @eval entry (…) {
//       %y = dropout %x, %step, %seed ratio=0.1         %z = batch_norm %x, %g, %b, %mean, %var
//       %z, … = batch_norm_train %y, %g, …       =>     …
//       …                                               …
//       %l = div %sum, %count                           return output "loss.sum.1" %sum,
//                                                              output "loss.count.1" %count
//
// A copy of the forward pass, made before autodiff adds the backward one.  Dropout is removed,
// batch normalisation takes the running statistics, and nothing is updated.  Parameters are those
// of @train with the same label: weights are shared, inputs are fed from other files.  An op keeps
// its number of @train.
//
// The loss over all samples of a file is not the mean of the batches' losses if these are divided
// by counts of their own.  So the terms of the loss (loss_terms.h) are outputs:
//
//     loss                       the mean over samples, of all terms that are one
//     loss.sum.K, loss.count.K   a quotient of the sums of both over all batches; the count is 1 for
//                                terms that read no samples, such as a regularizer
//     loss.batch                 instead of all these, if a term couples the samples of a batch: the
//                                mean over whole batches
//
// With metrics=SPEC, the loss's specification, there are also the metrics of metrics.h.

#include "ir/analysis/batch_dim.h"
#include "ir/analysis/origin.h"
#include "ir/build.h"
#include "ir/op.h"
#include "loss_terms.h"
#include "metrics.h"
#include "pass.h"
#include "sharding/single_device.h"

static bool replace(Op *op, Builder *b) {
  b->at = op;
  b->origin = op_origin(op);
  if (op->kind == OP_dropout) {
    value_replace(op->out[0], op->in[0].value);
    op_erase(op);
    return true;
  }
  if (op->kind != OP_batch_norm_train) return true;
  // The op stays only if the loss reads the statistics of the batch itself.
  Value *in[5];
  for (int i = 0; i < 5; i++)
    in[i] = op->in[i].value;
  Value *y = build_op(b, OP_batch_norm, in, 5, ATTRS(*op_attr(op, "axis"), *op_attr(op, "eps")));
  if (!y) return false;
  value_replace(op->out[0], y);
  // Running statistics are not updated.
  for (int i = 3; i < 5; i++)
    value_replace(op->out[i], in[i]);
  if (!value_used(op->out[1]) && !value_used(op->out[2])) op_erase(op);
  return true;
}

// -- Parts of the loss -------------------------------------------------------------------------

enum { MAX_QUOTIENTS = 3 }; // limit of the executable's report

// The dependence of a value on samples: a sum over them, none, or coupled.
typedef enum Samples { SAMPLES_sum, SAMPLES_none, SAMPLES_coupled } Samples;

typedef struct Parts {
  Graph *g;
  Builder b;
  Arena *scratch;
  bool *varied, *fed; // by value id: depends on weights, on inputs
  Value *mean, *batch, *constant;
  int n_quotients;
  Value *sum[MAX_QUOTIENTS], *count[MAX_QUOTIENTS];
} Parts;

static void add_quotient(Parts *p, Value *sum, Value *count) {
  int k = 0;
  while (k < p->n_quotients && p->count[k] != count)
    k++;
  if (k == p->n_quotients) p->count[p->n_quotients++] = count;
  p->sum[k] = build_add(&p->b, p->sum[k], sum);
}

// Adds a term to the parts.  Returns false if it couples the samples of the batch, or there are too
// many counts.
static bool add_term(Parts *p, const LossTerm *t, const Samples *samples, int64_t n_values) {
  Builder *b = &p->b;
  Value *x = build_scale(b, build_scalar(b, t->start), t->by);
  // The divisor, if the factor is 1 / divisor; otherwise NULL.
  const Op *op = t->factor ? t->factor->def : NULL;
  Value *count = op && op->kind == OP_reciprocal ? op->in[0].value : NULL;
  if (count && count->def && count->def->kind == OP_reshape) count = count->def->in[0].value;
  Samples is = samples[t->start->id];
  bool counted = count && count->id < n_values && samples[count->id] == SAMPLES_sum;
  if (is == SAMPLES_sum && !t->factor)
    p->mean = build_add(b, p->mean, x);
  else if (is == SAMPLES_none && !t->factor)
    p->constant = build_add(b, p->constant, x);
  else if (is == SAMPLES_sum && counted && p->n_quotients < MAX_QUOTIENTS)
    add_quotient(p, x, build_scalar(b, count));
  else
    return false;
  return true;
}

static bool split_loss(Parts *p, Value *loss) {
  // The values that depend on weights, and those that depend on inputs.
  graph_renumber(p->g);
  p->varied = arena_array(p->scratch, bool, p->g->n_values);
  p->fed = arena_array(p->scratch, bool, p->g->n_values);
  for (int i = 0; i < p->g->n_params; i++) {
    const Value *v = p->g->params[i];
    p->varied[v->id] = v->role == ROLE_weight;
    p->fed[v->id] = value_has_batch(v);
  }
  for_each_op(op, p->g)
    for (int i = 0; i < op->n_out; i++)
      for (int k = 0; k < op->n_in; k++) {
        p->varied[op->out[i]->id] |= p->varied[op->in[k].value->id];
        p->fed[op->out[i]->id] |= p->fed[op->in[k].value->id];
      }
  int64_t n_values = p->g->n_values;
  // The kinds of values, by value id.  Sharding along time alone finds them, with as many slices as
  // possible: a plan may have cut the model into pieces of several samples.
  Samples *samples = arena_array(p->scratch, Samples, p->g->n_values);
  Module *copy = NULL;
  int64_t batch = graph_batch_size(p->g), most = batch < MAX_DEVICES ? batch : MAX_DEVICES;
  for (int64_t n = most; n > 1 && !copy; n--)
    if (batch % n == 0) copy = graph_on_one_device(p->g, n, "");
  const Op *same = copy ? copy->graphs->first : NULL;
  for_each_op(op, p->g) {
    for (int i = 0; i < op->n_out; i++) {
      Value *v = op->out[i];
      bool sum = same && same->out[i]->layout->axis[0].kind == SBP_P;
      samples[v->id] = !p->fed[v->id] ? SAMPLES_none : sum ? SAMPLES_sum : SAMPLES_coupled;
    }
    if (same) same = same->next;
  }
  if (copy) module_free(copy);

  // A loss with a single part stays as it is.
  if (samples[loss->id] == SAMPLES_sum) p->mean = loss;
  if (samples[loss->id] == SAMPLES_sum) return true;
  LossTerms terms = find_loss_terms(&p->b, loss, p->varied, p->scratch);
  bool apart = true;
  for (int i = 0; i < terms.n && apart && !p->b.failed; i++)
    apart = add_term(p, &terms.at[i], samples, n_values);
  apart = apart && (!p->constant || p->n_quotients < MAX_QUOTIENTS);
  if (!apart)
    *p = (Parts){.g = p->g, .b = p->b, .scratch = p->scratch, .batch = loss};
  else if (p->constant)
    add_quotient(p, p->constant, build_fill(&p->b, p->constant->type->dtype, 0, NULL, 1));
  return !p->b.failed;
}

bool pass_eval_graph(Module *m, const PassOptions *o, Diag *d) {
  Graph *train = graph_find(m, "train");
  if (!train || !graph_find_output(train, "loss")) {
    diag_error(d, NULL, "there is no graph '@train' with an output 'loss'");
    diag_hint(d, "run 'loss' before 'eval_graph'");
    return false;
  }
  if (graph_find(m, "eval")) return diag_error(d, NULL, "there is a graph '@eval' already");
  number_model(train);
  Graph *g = graph_clone(train, "eval");
  g->entry = true;
  for (int i = g->n_results - 1; i >= 0; i--)
    if (!str_equal(g->results[i]->label, "loss")) graph_erase_result(g, i);
  Builder b = {.g = g, .d = d};
  for_each_op_safe(op, g) {
    op->recompute_group = op->offload_group = 0; // no saved activations in @eval
    op->by_piece = false;
    if (!replace(op, &b)) return false;
  }
  Value *loss = graph_find_output(g, "loss")->use.value;
  Parts p = {.g = g, .scratch = opt_scratch(o)};
  p.b = (Builder){.g = g, .d = d, .origin = value_origin(loss)};
  if (!split_loss(&p, loss)) return false;
  graph_erase_result(g, 0);
  // The parts of the loss add up over batches.
  Arena *a = p.g->module->arena;
  if (p.mean) graph_output(p.g, p.mean, "loss");
  for (int k = 0; k < p.n_quotients; k++) {
    graph_output(p.g, p.sum[k], str_format(a, "loss.sum.%d", k + 1));
    graph_output(p.g, p.count[k], str_format(a, "loss.count.%d", k + 1));
  }
  if (p.batch) graph_output(p.g, p.batch, "loss.batch");
  if (opt_str(o, "metrics") && !add_metrics(g, opt_str(o, "metrics"), p.scratch, d)) return false;
  for (Op *op = g->last, *prev; op; op = prev) {
    prev = op->prev;
    if (!op_used(op)) op_erase(op);
  }
  for (int i = g->n_params - 1; i >= 0; i--) {
    g->params[i]->train = false;
    // Inputs are fed even if they are dead.
    if (!value_used(g->params[i]) && g->params[i]->role != ROLE_input) graph_erase_param(g, i);
  }
  return true;
}
