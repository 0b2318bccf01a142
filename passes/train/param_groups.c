// Groups of weights with settings of their own: see param_groups.h.

#include "param_groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"

// -- Kinds of weights --------------------------------------------------------------------------

// Operands of normalizations that are scales and shifts.
static const struct {
  OpKind op;
  int first, last;
} norms[] = {
    {OP_layer_norm, 1, 2},
    {OP_rms_norm, 1, 1},
    {OP_batch_norm, 1, 2},
    {OP_batch_norm_train, 1, 2},
};

// The kinds of a weight by the ops that read it; `along`: a broadcast repeats it as a row.
static WeightKinds kinds_of(const Value *v, bool along) {
  WeightKinds kinds = 0;
  for_each_use(u, v) {
    const Op *op = u->user;
    // Only readers of the forward pass tell the kind: gradients read weights in other roles.
    if (!op || op_part(op) != PART_forward) continue;
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
      if (norms[i].op == op->kind && u->index >= norms[i].first && u->index <= norms[i].last)
        kinds |= WEIGHT_norms;
    switch (op->kind) {
    case OP_gather: kinds |= u->index == 0 ? WEIGHT_embeddings : 0; break;
    case OP_add:
    case OP_sub: kinds |= along ? WEIGHT_biases : 0; break;
    case OP_mul:
    case OP_div: kinds |= along ? WEIGHT_norms : 0; break;
    case OP_broadcast: kinds |= kinds_of(op->out[0], true); break;
    case OP_reshape:
    case OP_transpose:
    case OP_slice:
    case OP_cast: kinds |= kinds_of(op->out[0], along); break;
    default: break;
    }
  }
  return kinds;
}

// -- Reading -----------------------------------------------------------------------------------

typedef struct Reader {
  const char *at, *optimizer;
  double lr;
  Arena *a;
  Diag *d;
} Reader;

static bool fail(const Reader *r, const char *text, const char *why) {
  diag_error(r->d, NULL, "group '%s': %s", text, why);
  diag_hint(r->d, "write GLOB[,GLOB…]:key=value[,…], as in '*norm*,*.bias:weight_decay=0,lr=0.1x'");
  return false;
}

static const char *take_word(Reader *r, const char *ends) {
  return str_take_word(r->a, &r->at, ends);
}

// Reads the settings of one group: those of --optimizer, followed by the group's own.
static bool read_settings(Reader *r, ParamGroup *g, const char *settings) {
  StrBuf b = {.arena = r->a};
  strbuf_add(&b, r->optimizer);
  for (const char *at = settings; *at;) {
    size_t n = strcspn(at, ",");
    const char *word = str_copy_n(r->a, at, n);
    at += n + (at[n] == ',');
    if (!str_starts(word, "lr="))
      strbuf_addf(&b, "%s%s", strchr(b.at, ':') ? "," : ":", word);
    else {
      // lr=0.1x, or a learning rate: a factor of that of --optimizer.
      char *end;
      double x = strtod(word + 3, &end);
      bool times = *end == 'x';
      g->lr_factor = times ? x : x / r->lr;
      bool ok = end != word + 3 && !end[times] && x >= 0 && (times || r->lr > 0) &&
                g->lr_factor < INFINITY;
      if (!ok)
        return fail(r, g->text, str_format(r->a, "lr is a number or as 0.1x, not '%s'", word + 3));
    }
  }
  return optimizer_parse(b.at, str_format(r->a, g->kinds ? "--no-decay %s" : "group '%s'", g->text),
                         &g->spec, r->a, r->d);
}

static bool read_no_decay(Reader *r, ParamGroups *out) {
  static const struct {
    const char *name;
    WeightKinds kind;
  } names[] = {
      {"norms", WEIGHT_norms}, {"biases", WEIGHT_biases}, {"embeddings", WEIGHT_embeddings}};
  ParamGroup g = {.text = r->at, .lr_factor = 1};
  const char *text = r->at;
  for (;; r->at++) {
    // Several kinds make one group.
    const char *word = take_word(r, ",");
    WeightKinds kind = 0;
    for (size_t i = 0; word && i < sizeof names / sizeof *names; i++)
      if (!strcmp(names[i].name, word)) kind = names[i].kind;
    if (!kind) {
      diag_error(r->d, NULL, "--no-decay %s: there is no '%s'", text, word ? word : text);
      diag_hint(r->d,
                "there are norms, biases and embeddings; --group 'GLOB:weight_decay=0' is for "
                "weights by name");
      return false;
    }
    g.kinds |= kind;
    if (!*r->at) break;
  }
  if (!read_settings(r, &g, "weight_decay=0")) return false;
  vec_push(r->a, out, g);
  return true;
}

bool param_groups_parse(ParamGroups *out, const char *optimizer, double lr, const char *groups,
                        const char *no_decay, Arena *a, Diag *d) {
  ParamGroup all = {.text = optimizer, .lr_factor = 1};
  if (!optimizer_parse(optimizer, NULL, &all.spec, a, d)) return false;
  vec_push(a, out, all);
  Reader r = {no_decay, optimizer, lr > 0 ? lr : all.spec.lr, a, d};
  if (no_decay && !read_no_decay(&r, out)) return false;
  for (r.at = groups; r.at && *r.at; r.at += *r.at == ';') {
    // GLOB[,GLOB…]:key=value[,…]
    ParamGroup g = {.lr_factor = 1};
    g.text = str_copy_n(r.a, r.at, strcspn(r.at, ";"));
    do {
      const char *pattern = take_word(&r, ",:;");
      if (!pattern) return fail(&r, g.text, "a quote is not closed");
      if (!*pattern) return fail(&r, g.text, "a name is missing");
      vec_push(r.a, &g.patterns, pattern);
    } while (*r.at == ',' && r.at++);
    if (*r.at != ':') return fail(&r, g.text, "there are no settings");
    r.at++;
    const char *settings = take_word(&r, ";");
    if (!settings || !*settings) return fail(&r, g.text, "there are no settings");
    if (!read_settings(&r, &g, settings)) return false;
    vec_push(r.a, out, g);
  }
  return true;
}

// -- Finding -----------------------------------------------------------------------------------

const ParamGroup *param_group_of(ParamGroups *groups, const Value *w) {
  int found = 0;
  // The kinds of the weight.  Scales, shifts and biases have at most one dimension longer than 1 in
  // the model.
  const Type *t = w->as ? w->as : w->type;
  int n = 0;
  for (int i = 0; i < t->ndim; i++)
    n += t->dim[i] > 1;
  WeightKinds kinds = groups->n > 1 ? kinds_of(w, false) : 0;
  if (n > 1) kinds &= WEIGHT_embeddings;
  for (int i = 1; i < groups->n; i++) {
    ParamGroup *g = &groups->at[i];
    bool has_weight = (g->kinds & kinds) != 0;
    for (int k = 0; k < g->patterns.n; k++)
      has_weight |= str_glob(g->patterns.at[k], w->label);
    if (!has_weight) continue;
    g->n++;
    found = i;
  }
  return &groups->at[found];
}

void param_groups_check(const ParamGroups *groups, Diag *d) {
  const ParamGroup *all = groups->at;
  for (int i = 1; i < groups->n; i++) {
    const ParamGroup *g = &groups->at[i];
    if (g->kinds && optimizer_value(&all->spec, "weight_decay") == 0) {
      diag_warning(d, NULL, "--no-decay %s has no effect: '%s' has no weight_decay", g->text,
                   all->text);
      diag_hint(d, "--optimizer %s%sweight_decay=X", all->text, strchr(all->text, ':') ? "," : ":");
    } else if (!g->n)
      diag_warning(d, NULL, "--%s '%s' matches no weight that is trained",
                   g->kinds ? "no-decay" : "group", g->text);
  }
}
