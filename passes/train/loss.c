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
// appends one of ignored labels.  The number of labels that count is known, B * (T - 1).
//
// The graph is called @train from here on, and its only output is the loss.

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/build.h"
#include "pass.h"

// No label is this: nothing is ignored.
static const int64_t no_label = INT64_MIN;

typedef struct LossPass {
  Graph *g;
  Builder b;
  Arena *scratch;
  Diag *d;
  // What the specification says.
  const char *spec, *kind;
  Vec(const char *) words; // OUTPUT, INPUT
  int64_t axis, ignore_index;
  bool has_axis, has_ignore;
  double delta;
} LossPass;

// -- The specification -----------------------------------------------------------------------

typedef Value *LossFn(LossPass *p, Value *x);
static LossFn cross_entropy, nll, next_token, mse, l1, huber, bce_with_logits;

// words: how many names stand in parentheses; options: what may follow them.
static const struct LossKind {
  const char *name;
  int words;
  const char *options, *usage;
  LossFn *build;
} kinds[] = {
    {"cross_entropy", 1, "axis ignore_index", "cross_entropy(OUTPUT[,axis=A][,ignore_index=I])",
     cross_entropy},
    {"nll", 1, "axis ignore_index", "nll(OUTPUT[,axis=A][,ignore_index=I])", nll},
    {"next_token", 2, "", "next_token(OUTPUT,INPUT)", next_token},
    {"mse", 1, "", "mse(OUTPUT)", mse},
    {"l1", 1, "", "l1(OUTPUT)", l1},
    {"huber", 1, "delta", "huber(OUTPUT[,delta=D])", huber},
    {"bce_with_logits", 1, "", "bce_with_logits(OUTPUT)", bce_with_logits},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const struct LossKind *find_kind(const char *name) {
  for (int i = 0; i < N_KINDS; i++)
    if (!strcmp(kinds[i].name, name)) return &kinds[i];
  return NULL;
}

static bool bad_spec(LossPass *p, const struct LossKind *kind, const char *what) {
  diag_error(p->d, NULL, "loss '%s': %s", p->spec, what);
  if (kind) diag_hint(p->d, "write %s", kind->usage);
  return false;
}

static bool has_option(const struct LossKind *kind, const char *name) {
  size_t n = strlen(name);
  for (const char *at = kind->options; *at; at += strspn(at, " ")) {
    size_t length = strcspn(at, " ");
    if (length == n && !strncmp(at, name, n)) return true;
    at += length;
  }
  return false;
}

static bool read_option(LossPass *p, const struct LossKind *kind, const char *name,
                        const char *value) {
  char *end = NULL;
  if (!has_option(kind, name))
    return bad_spec(p, kind, str_format(p->scratch, "there is no option '%s'", name));
  errno = 0;
  if (!strcmp(name, "axis")) {
    p->has_axis = true;
    p->axis = strtoll(value, &end, 10);
  } else if (!strcmp(name, "ignore_index")) {
    p->has_ignore = true;
    p->ignore_index = strtoll(value, &end, 10);
  } else {
    p->delta = strtod(value, &end);
    if (!(p->delta > 0)) end = NULL;
  }
  if (!*value || !end || *end || errno)
    return bad_spec(p, kind, str_format(p->scratch, "'%s' cannot be %s", value, name));
  return true;
}

static const char *trimmed(Arena *a, const char *from, const char *to) {
  while (from < to && *from == ' ')
    from++;
  while (to > from && to[-1] == ' ')
    to--;
  return str_copy_n(a, from, (size_t)(to - from));
}

// NAME(word,word,option=value): what stands between the parentheses.
static bool read_arguments(LossPass *p, const struct LossKind *kind, const char *at) {
  const char *close = at + strlen(at) - 1;
  while (close > at && *close == ' ')
    close--;
  if (close < at || *close != ')') return bad_spec(p, kind, "the parenthesis is not closed");
  while (at < close) {
    const char *end = memchr(at, ',', (size_t)(close - at));
    if (!end) end = close;
    const char *word = trimmed(p->scratch, at, end), *equals = strchr(word, '=');
    if (p->words.n < kind->words) {
      vec_push(p->scratch, &p->words, word);
    } else if (!equals) {
      return bad_spec(p, kind, str_format(p->scratch, "'%s' is one name too many", word));
    } else if (!read_option(p, kind, trimmed(p->scratch, word, equals), equals + 1)) {
      return false;
    }
    at = end + (end < close);
  }
  if (p->words.n < kind->words)
    return bad_spec(p, kind, p->words.n ? "an input is missing" : "an output is missing");
  return true;
}

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
  diag_error(p->d, NULL, "loss '%s': the model has no output '%s'", p->spec, label);
  diag_hint(p->d, "its outputs are: %s", outputs_text(p));
  return NULL;
}

static bool is_floating(LossPass *p, const Value *v, const char *label) {
  if (dtype_class[v->type->dtype] == 'F') return true;
  return diag_error(p->d, v->def ? v->def->loc : v->loc, "output '%s' is %s, and no loss can be",
                    label, type_text(p->scratch, v->type));
}

static Value *add_input(LossPass *p, const char *label, DType dtype, int rank, const int64_t *dim) {
  const Value *same = graph_find_role(p->g, ROLE_input, label);
  if (same) {
    diag_error(p->d, same->loc, "loss '%s' needs an input '%s', but the model has one of this name",
               p->spec, label);
    return NULL;
  }
  Module *m = p->g->module;
  Value *v = graph_param(p->g, label, type_new(m, dtype, rank, dim), ROLE_input, p->b.origin.loc);
  v->label = str_copy(m->arena, label);
  return v;
}

// -- Pieces ----------------------------------------------------------------------------------

static Value *sum_all(Builder *b, Value *x) {
  int64_t axes[MAX_RANK];
  for (int i = 0; x && i < x->type->rank; i++)
    axes[i] = i;
  return x ? build_reduce_sum(b, x, axes, x->type->rank, false) : NULL;
}

// The mean over `n` of the elements; the others are 0.
static Value *mean_of(Builder *b, Value *x, double n) {
  return build_scale(b, sum_all(b, x), 1 / n);
}

static Value *mean_all(Builder *b, Value *x) {
  return x ? mean_of(b, x, (double)type_count(x->type)) : NULL;
}

static Value *like(Builder *b, Value *x, double value) {
  return build_fill(b, x->type->dtype, x->type->rank, x->type->dim, value);
}

static Value *unary(Builder *b, OpKind kind, Value *x) {
  return build(b, kind, IN(x), NO_ATTRS);
}

static Value *binary(Builder *b, OpKind kind, Value *x, Value *y) {
  return build(b, kind, IN(x, y), NO_ATTRS);
}

// How many labels are not ignored, as a sum over rows.
static Value *count_labels(Builder *b, Value *labels, int64_t ignore, DType dtype) {
  Value *ignored = binary(b, OP_equal, labels, like(b, labels, (double)ignore));
  Value *kept = unary(b, OP_not, ignored);
  return kept ? sum_all(b, build_cast(b, kept, dtype)) : NULL;
}

// -- The losses ------------------------------------------------------------------------------

// Logits or log-probabilities x, with the classes last, against a label for each row.
static Value *classes(LossPass *p, OpKind kind, Value *x, Value *labels, int64_t ignore) {
  return build(&p->b, kind, IN(x, labels), ATTRS(a_i("ignore", ignore)));
}

static Value *labelled(LossPass *p, OpKind kind, Value *x) {
  Builder *b = &p->b;
  int rank = x->type->rank;
  int64_t axis = p->has_axis ? p->axis : -1, perm[MAX_RANK], dim[MAX_RANK];
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) {
    diag_error(p->d, b->origin.loc, "loss '%s': output '%s' is %s and has no axis %lld", p->spec,
               p->words.at[0], type_text(p->scratch, x->type),
               (long long)(p->has_axis ? p->axis : -1));
    return NULL;
  }
  for (int i = 0; i < rank - 1; i++) {
    perm[i] = i < axis ? i : i + 1;
    dim[i] = x->type->dim[perm[i]];
  }
  perm[rank - 1] = axis;
  x = build_transpose(b, x, perm);
  Value *labels = add_input(p, "labels", DT_i64, rank - 1, dim);
  if (!labels) return NULL;
  Value *losses = classes(p, kind, x, labels, p->has_ignore ? p->ignore_index : no_label);
  if (!p->has_ignore) return mean_all(b, losses);
  Value *sum = sum_all(b, losses);
  if (!sum) return NULL;
  return binary(b, OP_div, sum, count_labels(b, labels, p->ignore_index, sum->type->dtype));
}

static Value *cross_entropy(LossPass *p, Value *x) {
  return labelled(p, OP_cross_entropy, x);
}

static Value *nll(LossPass *p, Value *x) {
  return labelled(p, OP_nll, x);
}

static Value *next_token(LossPass *p, Value *x) {
  const Value *tokens = graph_find_role(p->g, ROLE_input, p->words.at[1]);
  if (!tokens) {
    diag_error(p->d, NULL, "loss '%s': the model has no input '%s'", p->spec, p->words.at[1]);
    StrBuf names = {.arena = p->scratch};
    strbuf_add(&names, "");
    for (int i = 0; i < p->g->n_params; i++)
      if (p->g->params[i]->role == ROLE_input)
        strbuf_addf(&names, "%s%s", *names.at ? ", " : "", p->g->params[i]->label);
    diag_hint(p->d, "its inputs are: %s", names.at);
    return NULL;
  }
  const Type *t = tokens->type;
  int rank = t->rank;
  bool fits = rank >= 1 && x->type->rank == rank + 1 &&
              !memcmp(t->dim, x->type->dim, (size_t)rank * sizeof *t->dim) &&
              dtype_class[t->dtype] == 'I' && t->dim[rank - 1] >= 2;
  if (!fits) {
    diag_error(p->d, p->b.origin.loc, "loss '%s': logits %s cannot predict tokens %s", p->spec,
               type_text(p->scratch, x->type), type_text(p->scratch, t));
    diag_hint(p->d, "logits are [B,T,classes] and tokens integers [B,T], with T at least 2");
    return NULL;
  }
  // The last position has a label that no data has.  -100 among tokens, which other programs
  // ignore, is an index out of range.
  int64_t no_token = t->dtype == DT_i32 ? INT32_MIN : INT64_MIN, low[MAX_RANK] = {0};
  low[rank - 1] = -1;
  Value *labels = build(&p->b, OP_pad, IN(p->g->params[tokens->index]),
                        ATTRS(a_list("low", low, rank), a_list("shape", t->dim, rank),
                              a_s("mode", "constant"), a_f("value", (double)no_token)));
  double n = (double)type_count(t);
  n -= n / (double)t->dim[rank - 1];
  return mean_of(&p->b, classes(p, OP_cross_entropy, x, labels, no_token), n);
}

static Value *add_target(LossPass *p, const Value *x) {
  return add_input(p, "target", x->type->dtype, x->type->rank, x->type->dim);
}

static Value *difference(LossPass *p, Value *x) {
  return binary(&p->b, OP_sub, x, add_target(p, x));
}

static Value *mse(LossPass *p, Value *x) {
  return mean_all(&p->b, unary(&p->b, OP_square, difference(p, x)));
}

static Value *l1(LossPass *p, Value *x) {
  return mean_all(&p->b, unary(&p->b, OP_abs, difference(p, x)));
}

// a^2 / 2 up to delta and delta * (a - delta / 2) beyond, which is c * (a - c / 2) with
// c = min(a, delta).
static Value *huber(LossPass *p, Value *x) {
  Builder *b = &p->b;
  Value *a = unary(b, OP_abs, difference(p, x));
  Value *c = build(b, OP_clip, IN(a), ATTRS(a_f("low", 0), a_f("high", p->delta)));
  Value *half = c ? build_scale(b, c, 0.5) : NULL;
  return mean_all(b, binary(b, OP_mul, c, binary(b, OP_sub, a, half)));
}

// log(1 + exp(x)) - x t
static Value *bce_with_logits(LossPass *p, Value *x) {
  Builder *b = &p->b;
  Value *product = binary(b, OP_mul, x, add_target(p, x));
  return mean_all(b, binary(b, OP_sub, unary(b, OP_softplus, x), product));
}

// An output of the model that is the loss already.
static Value *by_output(LossPass *p, const char *label) {
  Value *x = find_output(p, label);
  if (!x || !is_floating(p, x, label)) return NULL;
  if (type_count(x->type) == 1) return build_reshape(&p->b, x, 0, NULL);
  diag_error(p->d, p->b.origin.loc, "output '%s' is %s and not one number, so it is no loss", label,
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

static Value *build_loss(LossPass *p) {
  if (!p->spec) {
    const char *label = only_scalar(p);
    return label ? by_output(p, label) : NULL;
  }
  size_t n = strcspn(p->spec, "(");
  const struct LossKind *kind = find_kind(str_copy_n(p->scratch, p->spec, n));
  bool is_output = graph_find_output(p->g, p->spec) != NULL;
  if (is_output || (!kind && !p->spec[n])) return by_output(p, p->spec);
  if (!kind) {
    StrBuf names = {.arena = p->scratch};
    for (int i = 0; i < N_KINDS; i++)
      strbuf_addf(&names, "%s%s", i ? ", " : "", kinds[i].usage);
    diag_error(p->d, NULL, "loss '%s' is unknown", p->spec);
    diag_hint(p->d, "there are OUTPUT, %s", names.at);
    return NULL;
  }
  if (!p->spec[n]) {
    bad_spec(p, kind, "an output is missing");
    return NULL;
  }
  if (!read_arguments(p, kind, p->spec + n + 1)) return NULL;
  Value *x = find_output(p, p->words.at[0]);
  if (!x || !is_floating(p, x, p->words.at[0])) return NULL;
  p->b.origin = origin_for(p->g->module->arena, value_origin(x), "loss");
  return kind->build(p, x);
}

bool pass_loss(Module *m, const PassOptions *o, Diag *d) {
  Graph *g = m->graphs;
  LossPass p = {.g = g, .scratch = opt_scratch(o), .d = d, .spec = opt_str(o, "spec"), .delta = 1};
  p.b = (Builder){.g = g, .d = d};
  if (!g->entry) return diag_error(d, NULL, "'@%s' is no entry, so it has no loss", g->name);
  Value *loss = build_loss(&p);
  if (!loss || p.b.failed) return false;
  // What becomes of parameters, running statistics, stays.
  for (int i = g->n_results - 1; i >= 0; i--)
    if (g->results[i]->label) graph_erase_result(g, i);
  graph_output(g, loss, "loss");
  if (!graph_find(m, "train")) g->name = "train";
  return true;
}
