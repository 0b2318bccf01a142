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
// Everything here is made so that the batch can be cut, over ranks and over micro-batches, and the
// pieces' results add up.  A mean is a sum, then its scale by 1/n with n of the whole batch.  Where
// labels are ignored n is not known before the data is:
//
//     loss = div(sum of losses, count of labels that are not ignored)
//
// Both are sums over rows, so both add up, and the division is done once, after the last
// micro-batch; autodiff.c knows that the gradient has to be divided there too.
//
// next_token shifts the labels, not the logits: `pad` drops the first column of the tokens and
// appends one of ignored labels.  Where none else are ignored the number of labels that count is
// known, B * (T - 1).
//
// With label smoothing and weights of classes, C of them, a row has PyTorch's
//
//     (1 - e) w[y] (lse - x[y])  +  e / C sum over c of w[c] (lse - x[c])
//
// and the mean divides by the sum of w[y].  lse is cross_entropy + x[y], and x[y] is -nll: no
// other op takes the labels.
//
// The graph is called @train from here on, and its only output is the loss.

#include <string.h>

#include "class_weights.h"
#include "ir/batch_dim.h"
#include "ir/build.h"
#include "ir/op.h"
#include "loss_spec.h"
#include "pass.h"

// No label is this: nothing is ignored.
static const int64_t no_label = INT64_MIN;

// A loss of classes.
typedef struct Classified {
  const Value *labels;
  int64_t n; // classes
  const char *output;
} Classified;

typedef struct LossPass {
  Graph *g;
  Builder b;
  Arena *scratch;
  Diag *d;
  const LossSpec *spec;
  const BatchPlace *batch;    // of the model's values
  Vec(Classified) classified; // so far
} LossPass;

typedef Value *LossFn(LossPass *p, Value *x);
#define LOSS(name, names, options, usage) static LossFn name;
#include "train/losses.def"
#undef LOSS
static LossFn *const builders[N_LOSSES] = {
#define LOSS(name, names, options, usage) name,
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

static Value *find_output(LossPass *p, const char *label) {
  Result *r = graph_find_output(p->g, label);
  if (r) return r->use.value;
  diag_error(p->d, NULL, "loss '%s': the model has no output '%s'", p->spec->text, label);
  diag_hint(p->d, "its outputs are: %s%s", outputs_text(p),
            strchr(label, '-') ? "; a loss is subtracted by a factor: a+-1*b" : "");
  return NULL;
}

static bool is_floating(LossPass *p, const Value *v, const char *label) {
  if (dtype_class[v->type->dtype] == 'F') return true;
  return diag_error(p->d, v->def ? v->def->loc : v->loc, "output '%s' is %s, and no loss can be",
                    label, type_text(p->scratch, v->type));
}

// Whether dimension 0 of labels is the batch.  `batch`: the dimension of them that was the output's
// batch, or -1, and then equal lengths are all there is to go by.
static bool labels_have_rows(const LossPass *p, const Type *labels, int batch) {
  return batch >= 0 ? batch == 0 : labels->dim[0] == graph_rows(p->g);
}

// The input that the specification names, else `label`; one there is may serve.
static Value *find_input(LossPass *p, const char *label, DType dtype, int rank, const int64_t *dim,
                         int batch) {
  Module *m = p->g->module;
  const Type *t = type_new(m, dtype, rank, dim);
  const char *option = label;
  if (p->spec->labels) label = p->spec->labels;
  Value *same = graph_find_role(p->g, ROLE_input, label);
  if (same && same->type == t) return same;
  if (same) {
    diag_error(p->d, same->loc, "loss '%s' needs an input '%s' of %s, but there is one of %s",
               p->spec->text, label, type_text(p->scratch, t), type_text(p->scratch, same->type));
    diag_hint(p->d, "give the loss's another name, as in %s=NAME", option);
    return NULL;
  }
  bool whole = rank > 0 && !labels_have_rows(p, t, batch);
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

// -- Pieces ----------------------------------------------------------------------------------

// The mean over `n` of the elements; the others are 0.
static Value *mean_of(Builder *b, Value *x, double n) {
  return build_scale(b, build_sum(b, x), 1 / n);
}

static Value *mean_all(Builder *b, Value *x) {
  return x ? mean_of(b, x, (double)type_count(x->type)) : NULL;
}

// -- Losses of classes -------------------------------------------------------------------------

// Logits or log-probabilities x, with the classes last, a label for each row, and the settings of
// them.
typedef struct Classes {
  Value *x, *labels;
  int64_t ignore, n;
  Value *ignored;    // by row, or NULL where no label is
  Value *weights;    // [n] of classes, or NULL where all are 1
  double sum;        // of the weights
  Value *row_weight; // by row: the weight of its class, or NULL; also 0 where it is ignored
} Classes;

static Value *row_op(LossPass *p, OpKind kind, const Classes *c) {
  return build(&p->b, kind, IN(c->x, c->labels), ATTRS(a_i("ignore", c->ignore)));
}

// Reads the weights' file, and looks up those of the rows.
static bool weigh(LossPass *p, Classes *c) {
  Builder *b = &p->b;
  DType dtype = c->x->type->dtype;
  c->n = c->x->type->dim[c->x->type->rank - 1];
  c->sum = (double)c->n;
  // The last position of next_token is ignored in any case.
  bool last = p->spec->kind == LOSS_next_token && p->spec->label_smoothing > 0;
  if (p->spec->has_ignore || last)
    c->ignored =
        build_binary(b, OP_equal, c->labels, build_full_like(b, c->labels, (double)c->ignore));
  if (!p->spec->weight) return !b->failed;
  const float *w = read_class_weights(p->spec, c->n, p->scratch, p->d);
  if (!w) return false;
  c->sum = 0;
  for (int64_t i = 0; i < c->n; i++)
    c->sum += w[i];
  Value *f32 = build_constant(b, type_new(p->g->module, DT_f32, 1, &c->n), w);
  c->weights = build_cast(b, f32, dtype);
  Value *labels = c->labels;
  if (c->ignored) labels = build_where(b, c->ignored, build_full_like(b, labels, 0), labels);
  c->row_weight = build(b, OP_gather, IN(c->weights, labels), ATTRS(a_i("axis", 0)));
  if (c->ignored && c->row_weight)
    c->row_weight = build_where(b, c->ignored, build_full_like(b, c->row_weight, 0), c->row_weight);
  return !b->failed;
}

// e / C sum over c of w[c] (lse - x[c]), by row; `loss` is lse - x[y].
static Value *smooth(LossPass *p, const Classes *c, Value *loss) {
  Builder *b = &p->b;
  const Type *t = c->x->type;
  Value *x = c->x;
  if (c->weights) x = build_binary(b, OP_mul, x, build_broadcast(b, c->weights, t->rank, t->dim));
  Value *sum = x ? build_reduce_sum(b, x, (int64_t[]){t->rank - 1}, 1, false) : NULL;
  Value *lse = build_binary(b, OP_sub, loss, row_op(p, OP_nll, c));
  Value *all = lse ? build_binary(b, OP_sub, build_scale(b, lse, c->sum), sum) : NULL;
  if (all && c->ignored) all = build_where(b, c->ignored, build_full_like(b, all, 0), all);
  return all ? build_scale(b, all, p->spec->label_smoothing / (double)c->n) : NULL;
}

// The mean over the rows that count; `n` of them, or as many as the data says.
static Value *mean_of_rows(LossPass *p, OpKind kind, Classes *c, double n) {
  Builder *b = &p->b;
  if (!weigh(p, c)) return NULL;
  Value *loss = row_op(p, kind, c), *total = loss;
  double e = p->spec->label_smoothing;
  if (c->row_weight) total = build_binary(b, OP_mul, total, c->row_weight);
  if (e > 0 && total) {
    total = build_scale(b, total, 1 - e);
    total = build_binary(b, OP_add, total, smooth(p, c, loss));
  }
  if (!total) return NULL;
  if (!c->row_weight && !p->spec->has_ignore) return mean_of(b, total, n);
  Value *counts = c->row_weight;
  if (!counts) counts = build_cast(b, build_unary(b, OP_not, c->ignored), total->type->dtype);
  Value *sum = build_sum(b, total);
  return build_binary(b, OP_div, sum, build_sum(b, counts));
}

// Outputs of different classes have labels of their own, most likely.
static void warn_of_shared_labels(LossPass *p, const Value *labels, int64_t n) {
  for (int i = 0; i < p->classified.n; i++) {
    const Classified *other = &p->classified.at[i];
    if (other->labels != labels || other->n == n) continue;
    diag_warning(p->d, p->b.origin.loc,
                 "loss '%s': '%s', of %lld classes, and '%s', of %lld, have the same input '%s'",
                 p->spec->text, other->output, (long long)other->n, p->spec->output, (long long)n,
                 labels->label);
    diag_hint(p->d, "give one of them labels of its own with labels=NAME");
    return;
  }
  vec_push(p->scratch, &p->classified, (Classified){labels, n, p->spec->output});
}

static Value *labelled(LossPass *p, OpKind kind, Value *x) {
  int rank = x->type->rank;
  int64_t axis = p->spec->has_axis ? p->spec->axis : -1, perm[MAX_RANK], dim[MAX_RANK];
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) {
    diag_error(p->d, p->b.origin.loc, "loss '%s': output '%s' is %s and has no axis %lld",
               p->spec->text, p->spec->output, type_text(p->scratch, x->type),
               (long long)(p->spec->has_axis ? p->spec->axis : -1));
    return NULL;
  }
  for (int i = 0; i < rank - 1; i++) {
    perm[i] = i < axis ? i : i + 1;
    dim[i] = x->type->dim[perm[i]];
  }
  perm[rank - 1] = axis;
  Classes c = {.ignore = p->spec->has_ignore ? p->spec->ignore_index : no_label};
  c.x = build_transpose(&p->b, x, perm);
  int batch = batch_dim(p->batch[x->id]);
  batch = batch == axis ? -1 : batch - (batch > axis);
  c.labels = find_input(p, "labels", DT_i64, rank - 1, dim, batch);
  if (!c.labels) return NULL;
  warn_of_shared_labels(p, c.labels, x->type->dim[axis]);
  return mean_of_rows(p, kind, &c, (double)type_count(c.labels->type));
}

static Value *cross_entropy(LossPass *p, Value *x) {
  return labelled(p, OP_cross_entropy, x);
}

static Value *nll(LossPass *p, Value *x) {
  return labelled(p, OP_nll, x);
}

static Value *fail_no_tokens(const LossPass *p) {
  StrBuf names = {.arena = p->scratch};
  diag_error(p->d, NULL, "loss '%s': the model has no input '%s'", p->spec->text, p->spec->input);
  strbuf_add(&names, "");
  for (int i = 0; i < p->g->n_params; i++)
    if (p->g->params[i]->role == ROLE_input)
      strbuf_addf(&names, "%s%s", *names.at ? ", " : "", p->g->params[i]->label);
  diag_hint(p->d, "its inputs are: %s", names.at);
  return NULL;
}

// The model looks up token 0 where a token is ignored that is no class.
static void replace_ignored(LossPass *p, Value *tokens) {
  Builder first = p->b;
  first.at = p->g->first;
  Value *ignored = build_binary(&first, OP_equal, tokens,
                                build_full_like(&first, tokens, (double)p->spec->ignore_index));
  Value *known = build_where(&first, ignored, build_full_like(&first, tokens, 0), tokens);
  if (!known) return;
  Use *next;
  for (Use *u = tokens->uses; u; u = next) {
    next = u->next;
    bool ours = u->user && (u->user == ignored->def || u->user == known->def);
    if (u->user && !ours) op_set_in(u->user, u->index, known);
  }
}

static Value *next_token(LossPass *p, Value *x) {
  const LossSpec *s = p->spec;
  const Value *found = graph_find_role(p->g, ROLE_input, s->input);
  if (!found) return fail_no_tokens(p);
  Value *tokens = p->g->params[found->index];
  const Type *t = tokens->type;
  int rank = t->rank;
  bool fits = rank >= 1 && x->type->rank == rank + 1 &&
              !memcmp(t->dim, x->type->dim, (size_t)rank * sizeof *t->dim) &&
              dtype_class[t->dtype] == 'I' && t->dim[rank - 1] >= 2;
  if (!fits) {
    diag_error(p->d, p->b.origin.loc, "loss '%s': logits %s cannot predict tokens %s", s->text,
               type_text(p->scratch, x->type), type_text(p->scratch, t));
    diag_hint(p->d, "logits are [B,T,classes] and tokens integers [B,T], with T at least 2");
    return NULL;
  }
  bool no_class = s->has_ignore && (s->ignore_index < 0 || s->ignore_index >= x->type->dim[rank]);
  if (no_class) replace_ignored(p, tokens);
  // The last position has a label that no data has.  Where nothing is ignored -100 among tokens is
  // an index out of range.
  Classes c = {.x = x, .ignore = t->dtype == DT_i32 ? INT32_MIN : INT64_MIN};
  if (s->has_ignore) c.ignore = s->ignore_index;
  int64_t low[MAX_RANK] = {0};
  low[rank - 1] = -1;
  c.labels = build(&p->b, OP_pad, IN(tokens),
                   ATTRS(a_list("low", low, rank), a_list("shape", t->dim, rank),
                         a_s("mode", "constant"), a_f("value", (double)c.ignore)));
  double n = (double)type_count(t);
  n -= n / (double)t->dim[rank - 1];
  if (!c.labels) return NULL;
  return mean_of_rows(p, OP_cross_entropy, &c, n);
}

// -- Losses of numbers -------------------------------------------------------------------------

static Value *add_target(LossPass *p, const Value *x) {
  return find_input(p, "target", x->type->dtype, x->type->rank, x->type->dim,
                    batch_dim(p->batch[x->id]));
}

static Value *difference(LossPass *p, Value *x) {
  return build_binary(&p->b, OP_sub, x, add_target(p, x));
}

static Value *mse(LossPass *p, Value *x) {
  return mean_all(&p->b, build_unary(&p->b, OP_square, difference(p, x)));
}

static Value *l1(LossPass *p, Value *x) {
  return mean_all(&p->b, build_unary(&p->b, OP_abs, difference(p, x)));
}

// a^2 / 2 up to delta and delta * (a - delta / 2) beyond, which is c * (a - c / 2) with
// c = min(a, delta).
static Value *huber(LossPass *p, Value *x) {
  Builder *b = &p->b;
  Value *a = build_unary(b, OP_abs, difference(p, x));
  Value *c = build(b, OP_clip, IN(a), ATTRS(a_f("low", 0), a_f("high", p->spec->delta)));
  Value *half = c ? build_scale(b, c, 0.5) : NULL;
  return mean_all(b, build_binary(b, OP_mul, c, build_binary(b, OP_sub, a, half)));
}

// log(1 + exp(x)) - x t
static Value *bce_with_logits(LossPass *p, Value *x) {
  Builder *b = &p->b;
  Value *product = build_binary(b, OP_mul, x, add_target(p, x));
  return mean_all(b, build_binary(b, OP_sub, build_unary(b, OP_softplus, x), product));
}

// An output of the model that is the loss already.
static Value *by_output(LossPass *p, const char *label, Value *x) {
  if (type_count(x->type) == 1) return build_scalar(&p->b, x);
  diag_error(p->d, x->def ? x->def->loc : x->loc,
             "output '%s' is %s and not one number, so it is no loss", label,
             type_text(p->scratch, x->type));
  diag_hint(p->d, "say how it becomes one, such as --loss 'cross_entropy(%s)'", label);
  return NULL;
}

// Without a specification: the only scalar output.
static const char *only_scalar(LossPass *p) {
  const char *label = NULL;
  int n = 0;
  for (int i = 0; i < p->g->n_results; i++) {
    const Result *r = p->g->results[i];
    const Type *t = r->use.value->type;
    if (!r->label || type_count(t) != 1 || dtype_class[t->dtype] != 'F') continue;
    label = r->label;
    n++;
  }
  if (n == 1) return label;
  diag_error(p->d, NULL, "no loss is given, and the model has %s scalar output",
             n ? "more than one" : "no");
  diag_hint(p->d, "say which with --loss, or loss(spec=…) in a pipeline; the outputs are: %s",
            outputs_text(p));
  return NULL;
}

// One loss of the sum, times its factor.
static Value *build_one(LossPass *p, const LossSpec *s) {
  p->spec = s;
  Value *x = find_output(p, s->output);
  if (!x || !is_floating(p, x, s->output)) return NULL;
  p->b.origin = origin_for(p->g->module->arena, value_origin(x), "loss");
  Value *loss = s->kind == LOSS_output ? by_output(p, s->output, x) : builders[s->kind](p, x);
  return loss && s->factor != 1 ? build_scale(&p->b, loss, s->factor) : loss;
}

static Value *build_loss(LossPass *p, const char *text) {
  LossSpecs specs = {0};
  Value *sum = NULL;
  if (!text) {
    LossSpec only = {.text = only_scalar(p), .kind = LOSS_output, .factor = 1};
    only.output = only.text;
    return only.text ? build_one(p, &only) : NULL;
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
  p.batch = batch_places(g, p.scratch);
  p.b = (Builder){.g = g, .d = d};
  if (!g->entry) return diag_error(d, NULL, "'@%s' is no entry, so it has no loss", g->name);
  Value *loss = build_loss(&p, opt_str(o, "spec"));
  if (!loss || p.b.failed) return false;
  // What becomes of parameters, running statistics, stays.
  for (int i = g->n_results - 1; i >= 0; i--)
    if (g->results[i]->label) graph_erase_result(g, i);
  graph_output(g, loss, "loss");
  if (!graph_find(m, "train")) g->name = "train";
  return true;
}
