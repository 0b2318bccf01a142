// Losses of classes: cross_entropy, nll and next_token.
//
// next_token shifts the labels, not the logits: `pad` drops the first column of the tokens and
// appends one of ignored labels.  Unless others are ignored, the number of counted labels is known:
// B * (T - 1).
//
// With label smoothing e and weights w of C classes, a row has PyTorch's
//
//     (1 - e) w[y] (lse - x[y])  +  e / C sum over c of w[c] (lse - x[c])
//
// and the mean divides by the sum of w[y].  lse is cross_entropy + x[y], and x[y] is -nll: no other
// op takes the labels.

#include <string.h>

#include "class_weights.h"
#include "loss_builders.h"

// No label has this value: nothing is ignored.
static const int64_t no_label = INT64_MIN;

// Logits or log-probabilities x, with the classes last, a label for each row, and their settings.
typedef struct Classes {
  Value *x, *labels;
  int64_t ignore, n;
  Value *ignored;    // by row; NULL: no label is ignored
  Value *weights;    // [n] of classes; NULL: all are 1
  double sum;        // of the weights
  Value *row_weight; // by row: the weight of its class, or NULL; 0 for an ignored label
} Classes;

static Value *row_op(LossPass *p, OpKind kind, const Classes *c) {
  return build_op(&p->b, kind, IN(c->x, c->labels), ATTRS(a_i("ignore", c->ignore)));
}

// Reads the file of class weights, and looks up the weights of the rows.
static bool weigh(LossPass *p, Classes *c) {
  Builder *b = &p->b;
  DType dtype = c->x->type->dtype;
  c->n = c->x->type->dim[c->x->type->ndim - 1];
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
  c->row_weight = build_op(b, OP_gather, IN(c->weights, labels), ATTRS(a_i("axis", 0)));
  if (c->ignored && c->row_weight)
    c->row_weight = build_where(b, c->ignored, build_full_like(b, c->row_weight, 0), c->row_weight);
  return !b->failed;
}

// e / C sum over c of w[c] (lse - x[c]), by row; `loss` is lse - x[y].
static Value *smooth(LossPass *p, const Classes *c, Value *loss) {
  Builder *b = &p->b;
  const Type *t = c->x->type;
  Value *x = c->x;
  if (c->weights) x = build_binary(b, OP_mul, x, build_broadcast(b, c->weights, t->ndim, t->dim));
  Value *sum = x ? build_reduce_sum(b, x, (int64_t[]){t->ndim - 1}, 1, false) : NULL;
  Value *lse = build_binary(b, OP_sub, loss, row_op(p, OP_nll, c));
  Value *all = lse ? build_binary(b, OP_sub, build_scale(b, lse, c->sum), sum) : NULL;
  if (all && c->ignored) all = build_where(b, c->ignored, build_full_like(b, all, 0), all);
  return all ? build_scale(b, all, p->spec->label_smoothing / (double)c->n) : NULL;
}

// The mean over the counted rows: `n`, or a count of the data.
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
  if (!c->row_weight && !p->spec->has_ignore) return loss_mean_of(b, total, n);
  Value *counts = c->row_weight;
  if (!counts) counts = build_cast(b, build_unary(b, OP_not, c->ignored), total->type->dtype);
  Value *sum = build_sum(b, total);
  return build_binary(b, OP_div, sum, build_sum(b, counts));
}

static Value *labelled(LossPass *p, OpKind kind, Value *x) {
  int ndim = x->type->ndim;
  int64_t axis = p->spec->has_axis ? p->spec->axis : -1, perm[MAX_NDIM], dim[MAX_NDIM];
  if (axis < 0) axis += ndim;
  if (axis < 0 || axis >= ndim) {
    diag_error(p->d, p->b.origin.loc, "loss '%s': output '%s' is %s and has no axis %lld",
               p->spec->text, p->spec->output, type_text(p->scratch, x->type),
               (long long)(p->spec->has_axis ? p->spec->axis : -1));
    return NULL;
  }
  // Classes move to the last dimension; labels have the remaining ones.
  for (int i = 0; i < ndim - 1; i++) {
    perm[i] = i < axis ? i : i + 1;
    dim[i] = x->type->dim[perm[i]];
  }
  perm[ndim - 1] = axis;
  Classes c = {.ignore = p->spec->has_ignore ? p->spec->ignore_index : no_label};
  c.x = build_transpose(&p->b, x, perm);
  // The batch dimension of the labels: that of the output, with the axis of classes removed.
  int batch = batch_dim(p->batch[x->id]);
  batch = batch == axis ? -1 : batch - (batch > axis);
  c.labels = loss_input(p, "labels", DT_i64, ndim - 1, dim, batch);
  if (!c.labels) return NULL;
  // If outputs with different numbers of classes share labels, most likely each needs its own.
  bool warned = false;
  int64_t n_classes = x->type->dim[axis];
  for (int i = 0; !warned && i < p->classified.n; i++) {
    const Classified *other = &p->classified.at[i];
    if (other->labels != c.labels || other->n == n_classes) continue;
    diag_warning(p->d, p->b.origin.loc,
                 "loss '%s': '%s', of %lld classes, and '%s', of %lld, have the same input '%s'",
                 p->spec->text, other->output, (long long)other->n, p->spec->output,
                 (long long)n_classes, c.labels->label);
    diag_hint(p->d, "give one of them labels of its own with labels=NAME");
    warned = true;
  }
  if (!warned)
    vec_push(p->scratch, &p->classified, (Classified){c.labels, n_classes, p->spec->output});
  return mean_of_rows(p, kind, &c, (double)type_count(c.labels->type));
}

Value *loss_cross_entropy(LossPass *p, Value *x) {
  return labelled(p, OP_cross_entropy, x);
}

Value *loss_nll(LossPass *p, Value *x) {
  return labelled(p, OP_nll, x);
}

Value *loss_next_token(LossPass *p, Value *x) {
  const LossSpec *s = p->spec;
  const Value *found = graph_find_role(p->g, ROLE_input, s->input);
  if (!found) {
    // The names of the inputs help to find a wrong one.
    StrBuf names = {.arena = p->scratch};
    diag_error(p->d, NULL, "loss '%s': the model has no input '%s'", p->spec->text, p->spec->input);
    strbuf_add(&names, "");
    for (int i = 0; i < p->g->n_params; i++)
      if (p->g->params[i]->role == ROLE_input)
        strbuf_addf(&names, "%s%s", *names.at ? ", " : "", p->g->params[i]->label);
    diag_hint(p->d, "its inputs are: %s", names.at);
    return NULL;
  }
  Value *tokens = p->g->params[found->index];
  const Type *t = tokens->type;
  int ndim = t->ndim;
  bool fits = ndim >= 1 && x->type->ndim == ndim + 1 &&
              !memcmp(t->dim, x->type->dim, (size_t)ndim * sizeof *t->dim) &&
              dtype_class[t->dtype] == 'I' && t->dim[ndim - 1] >= 2;
  if (!fits) {
    diag_error(p->d, p->b.origin.loc, "loss '%s': logits %s cannot predict tokens %s", s->text,
               type_text(p->scratch, x->type), type_text(p->scratch, t));
    diag_hint(p->d, "logits are [B,T,classes] and tokens integers [B,T], with T at least 2");
    return NULL;
  }
  bool no_class = s->has_ignore && (s->ignore_index < 0 || s->ignore_index >= x->type->dim[ndim]);
  if (no_class) {
    // The model looks up token 0 for an ignored token that is no class.
    Builder first = p->b;
    first.at = p->g->first;
    Value *ignored = build_binary(&first, OP_equal, tokens,
                                  build_full_like(&first, tokens, (double)p->spec->ignore_index));
    Value *known = build_where(&first, ignored, build_full_like(&first, tokens, 0), tokens);
    Use *next;
    for (Use *u = known ? tokens->uses : NULL; u; u = next) {
      next = u->next;
      bool ours = u->user && (u->user == ignored->def || u->user == known->def);
      if (u->user && !ours) op_set_in(u->user, u->index, known);
    }
  }
  // The last position gets a label that no data has.  Without ignore_index, -100 among tokens is an
  // index out of range.
  Classes c = {.x = x, .ignore = t->dtype == DT_i32 ? INT32_MIN : INT64_MIN};
  if (s->has_ignore) c.ignore = s->ignore_index;
  int64_t low[MAX_NDIM] = {0};
  low[ndim - 1] = -1;
  c.labels = build_op(&p->b, OP_pad, IN(tokens),
                      ATTRS(a_list("low", low, ndim), a_list("shape", t->dim, ndim),
                            a_s("mode", "constant"), a_f("value", (double)c.ignore)));
  double n = (double)type_count(t);
  n -= n / (double)t->dim[ndim - 1];
  if (!c.labels) return NULL;
  return mean_of_rows(p, OP_cross_entropy, &c, n);
}
