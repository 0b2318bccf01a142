// The loss: the last ops of the forward pass, as --loss describes them.
//
//     graph @main entry (%x: f32[8,4] input "x", …) {        loss(spec=cross_entropy(logits))
//       %y = linear %x, %w : f32[8,10]
//       return output "logits" %y
//
//   =>
//
//     graph @train entry (%x: f32[8,4] input "x", …, %labels: i64[8] input "labels") {
//       %y = linear %x, %w                 : f32[8,10]
//       %0, %1 = cross_entropy %y, %labels : f32[8], f32[8]
//       %2 = reduce_sum %0 axes=[0]        : f32[]
//       %3 = scale %2 by=0.125             : f32[]
//       return output "loss" %3
//
// The ops are chosen so that the batch can be split, over ranks and over micro-batches, with
// results that add up.  A mean is a sum, then its scale by 1/n with n of the whole batch.  With
// ignored labels, n depends on the data:
//
//     loss = div(sum of losses, count of labels that are not ignored)
//
// Both are sums over rows, so both add up, and the division is done once, after the last
// micro-batch; autodiff.c divides the gradient there, too.
//
// The graph is called @train from here on, and its only output is the loss.

#include <string.h>

#include "loss_builders.h"
#include "pass.h"

static LossFn *const builders[N_LOSSES] = {
#define LOSS(name, names, options, usage) loss_##name,
#include "train/losses.def"
#undef LOSS
};

// -- Outputs and inputs ----------------------------------------------------------------------

static const char *outputs_text(LossPass *p) {
  StrBuf b = {.arena = p->scratch};
  strbuf_add(&b, "");
  for (int i = 0; i < p->g->n_results; i++) {
    const Result *r = p->g->results[i];
    if (r->label)
      strbuf_addf(&b, "%s%s %s", *b.at ? ", " : "", r->label,
                  type_text(p->scratch, r->use.value->type));
  }
  return b.at;
}

Value *loss_input(LossPass *p, const char *label, DType dtype, int ndim, const int64_t *dim,
                  int batch) {
  Module *m = p->g->module;
  const Type *t = type_new(m, dtype, ndim, dim);
  const char *option = label;
  if (p->spec->labels) label = p->spec->labels;
  Value *same = graph_find_role(p->g, ROLE_input, label);
  if (same && same->type == t) return same;
  if (same) {
    diag_problem(p->d, PROBLEM_loss, same->loc,
                 "loss '%s' needs an input '%s' of %s, but there is one of %s", p->spec->text,
                 label, type_text(p->scratch, t), type_text(p->scratch, same->type));
    diag_hint(p->d, "give the loss's another name, as in %s=NAME", option);
    return NULL;
  }
  // Dimension 0 of labels is the batch if it corresponds to the output's batch; if that is unknown,
  // equal lengths decide.

  bool whole = ndim > 0 && !(batch >= 0 ? batch == 0 : t->dim[0] == graph_batch_size(p->g));
  Value *v = graph_param(p->g, label, t, ROLE_input, p->b.origin.loc);
  v->label = str_copy(m->arena, label);
  v->whole = whole;
  if (whole)
    diag_warning(
        p->d, v->loc,
        "loss '%s': every step reads all of '%s', %s, since the batch is not dimension 0 of "
        "the output",
        p->spec->text, label, type_text(p->scratch, t));
  return v;
}

Value *loss_mean_of(Builder *b, Value *x, double n) {
  return build_scale(b, build_sum(b, x), 1 / n);
}

// One loss of the sum, times its factor.
static Value *build_one(LossPass *p, const LossSpec *s) {
  p->spec = s;
  const Result *r = graph_find_output(p->g, s->output);
  if (!r) {
    diag_problem(p->d, PROBLEM_loss, NULL, "loss '%s': the model has no output '%s'", s->text,
                 s->output);
    diag_hint(p->d, "its outputs are: %s%s", outputs_text(p),
              strchr(s->output, '-') ? "; a loss is subtracted by a factor: a+-1*b" : "");
    return NULL;
  }
  Value *x = r->use.value;
  const Loc *loc = x->def ? x->def->loc : x->loc;
  // Its padding would count as rows.
  if (graph_find_output(p->g, str_format(p->scratch, "%s.count", s->output))) {
    diag_error(p->d, loc, "output '%s' has a length that depends on data, and no loss can be of it",
               s->output);
    diag_hint(p->d, "compute the loss in the model, as a mean of the selected rows");
    return NULL;
  }
  if (dtype_class[x->type->dtype] != 'F') {
    diag_problem(p->d, PROBLEM_loss, loc, "output '%s' is %s, and no loss can be", s->output,
                 type_text(p->scratch, x->type));
    return NULL;
  }
  p->b.origin = origin_for(p->g->module->arena, value_origin(x), "loss");
  // An output that is the loss already must be one number.
  if (s->kind == LOSS_output && type_count(x->type) != 1) {
    diag_problem(p->d, PROBLEM_loss, loc, "output '%s' is %s and not one number, so it is no loss",
                 s->output, type_text(p->scratch, x->type));
    diag_hint(p->d, "say how it becomes one, such as --loss 'cross_entropy(%s)'", s->output);
    return NULL;
  }
  Value *loss = s->kind == LOSS_output ? build_scalar(&p->b, x) : builders[s->kind](p, x);
  return loss && s->factor != 1 ? build_scale(&p->b, loss, s->factor) : loss;
}

static Value *build_loss(LossPass *p, const char *text) {
  LossSpecs specs = {0};
  Value *sum = NULL;
  if (!text) {
    // The only scalar output is the loss without a specification.
    const char *label = NULL;
    int n = 0;
    for (int i = 0; i < p->g->n_results; i++) {
      const Result *r = p->g->results[i];
      const Type *t = r->use.value->type;
      if (!r->label || type_count(t) != 1 || dtype_class[t->dtype] != 'F') continue;
      label = r->label;
      n++;
    }
    if (n != 1) {
      diag_problem(p->d, PROBLEM_loss, NULL, "no loss is given, and the model has %s scalar output",
                   n ? "more than one" : "no");
      diag_hint(p->d, "say which with --loss, or loss(spec=…) in a pipeline; the outputs are: %s",
                outputs_text(p));
      return NULL;
    }
    LossSpec only = {.text = label, .output = label, .kind = LOSS_output, .factor = 1};
    return build_one(p, &only);
  }
  if (!loss_spec_parse(&specs, text, p->g, p->scratch, p->d)) return NULL;
  for (int i = 0; i < specs.n; i++) {
    Value *one = build_one(p, &specs.at[i]);
    sum = one ? build_add(&p->b, sum, one) : NULL;
    if (!sum) return NULL;
  }
  return sum;
}

bool pass_loss(Module *m, const PassOptions *o, Diag *d) {
  Graph *g = m->graphs;
  LossPass p = {.g = g, .scratch = opt_scratch(o), .d = d};
  p.batch = batch_dims(g, p.scratch);
  p.b = (Builder){.g = g, .d = d};
  if (!g->entry) return diag_error(d, NULL, "'@%s' is no entry, so it has no loss", g->name);
  Value *loss = build_loss(&p, opt_str(o, "spec"));
  if (!loss || p.b.failed) return false;
  // Updates of parameters, the running statistics, stay.
  for (int i = g->n_results - 1; i >= 0; i--)
    if (g->results[i]->label) graph_erase_result(g, i);
  graph_output(g, loss, "loss");
  if (!graph_find(m, "train")) g->name = "train";
  return true;
}
