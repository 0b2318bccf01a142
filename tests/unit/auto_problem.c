// See auto_problem.h.

#include "auto_problem.h"

#include "planner/plan/plan.h"

// Ends a model with the sum of squares of the last layer; returns its text.
static const char *squares_of(StrBuf *b, int last) {
  strbuf_addf(b, "  %%q = mul %%h%d, %%h%d\n  %%l = reduce_sum %%q axes=[0,1]\n", last, last);
  strbuf_add(b, "  return output \"loss\" %l\n}\n");
  return b->at;
}

const char *chain_model(Arena *a, const int *width, int layers) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "module \"chain\" phase=typed\ngraph @main entry (%%x: f32[%d,%d] input \"x\"",
              ROWS, width[0]);
  for (int i = 0; i < layers; i++)
    strbuf_addf(&b, ",\n  %%w%d: f32[%d,%d] weight \"w%d\" train = normal(0,1)", i, width[i],
                width[i + 1], i);
  strbuf_add(&b, ") {\n");
  for (int i = 0; i < layers; i++)
    strbuf_addf(&b, "  %%p%d = linear %%%s, %%w%d\n  %%h%d = gelu %%p%d\n", i,
                i ? str_format(a, "h%d", i - 1) : "x", i, i, i);
  return squares_of(&b, layers - 1);
}

const char *sequence_model(Arena *a, int tokens, int width, int layers) {
  StrBuf b = {.arena = a};
  const char *of = str_format(a, "f32[%d,%d,%d]", ROWS, tokens, width);
  strbuf_addf(&b, "module \"sequences\" phase=typed\ngraph @main entry (%%h0: %s input \"x\"", of);
  for (int i = 0; i < layers; i++)
    strbuf_addf(&b,
                ",\n  %%g%d: f32[%d] weight \"g%d\" train = 1, %%b%d: f32[%d] weight \"b%d\" "
                "train = 0,\n  %%u%d: f32[%d,%d] weight \"u%d\" train = normal(0,1), "
                "%%d%d: f32[%d,%d] weight \"d%d\" train = normal(0,1)",
                i, width, i, i, width, i, i, width, 4 * width, i, i, 4 * width, width, i);
  strbuf_add(&b, ") {\n");
  for (int i = 0; i < layers; i++)
    strbuf_addf(&b,
                "  %%n%d, %%m%d, %%s%d = layer_norm %%h%d, %%g%d, %%b%d\n"
                "  %%p%d = linear %%n%d, %%u%d\n  %%a%d = gelu %%p%d\n"
                "  %%o%d = linear %%a%d, %%d%d\n  %%h%d = add %%h%d, %%o%d\n",
                i, i, i, i, i, i, i, i, i, i, i, i, i, i, i + 1, i, i);
  strbuf_addf(&b,
              "  %%q = mul %%h%d, %%h%d\n  %%l = reduce_sum %%q axes=[0,1,2]\n"
              "  return output \"loss\" %%l\n}\n",
              layers, layers);
  return b.at;
}

const char *mixture_model(Arena *a, int width, int experts, int layers) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "module \"mixtures\" phase=typed\ngraph @main entry (%%x: f32[%d,%d] input \"x\"",
              ROWS, width);
  for (int i = 0; i < layers; i++)
    strbuf_addf(&b,
                ",\n  %%r%d: f32[%d,%d] weight \"r%d\" train = normal(0,1), "
                "%%w%d: f32[%d,%d,%d] weight \"w%d\" train = normal(0,1)",
                i, width, experts, i, i, experts, width, width, i);
  strbuf_add(&b, ") {\n");
  for (int i = 0; i < layers; i++) {
    const char *x = i ? str_format(a, "h%d", i - 1) : "x";
    strbuf_addf(&b,
                "  %%s%d = linear %%%s, %%r%d\n  %%p%d = softmax %%s%d axis=1\n"
                "  %%k%d = top_k %%p%d k=1\n  %%e%d = reshape %%k%d shape=[%d]\n"
                "  %%y%d = grouped_linear %%w%d, %%%s, %%e%d\n  %%h%d = gelu %%y%d\n",
                i, x, i, i, i, i, i, i, i, ROWS, i, i, x, i, i, i);
  }
  return squares_of(&b, layers - 1);
}

const char *word_model(Arena *a, int words, int width, int layers) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b,
              "module \"words\" phase=typed\ngraph @main entry (%%ids: i64[%d] input \"ids\", "
              "%%y: i64[%d] input \"y\", %%t: f32[%d,%d] weight \"t\" train = normal(0,1)",
              ROWS, ROWS, words, width);
  for (int i = 0; i <= layers; i++)
    strbuf_addf(&b, ",\n  %%w%d: f32[%d,%d] weight \"w%d\" train = normal(0,1)", i, width,
                i < layers ? width : words, i);
  strbuf_add(&b, ") {\n  %h0 = gather %t, %ids axis=0\n");
  for (int i = 0; i < layers; i++)
    strbuf_addf(&b, "  %%p%d = linear %%h%d, %%w%d\n  %%h%d = gelu %%p%d\n", i, i, i, i + 1, i);
  strbuf_addf(&b,
              "  %%z = linear %%h%d, %%w%d\n  %%r, %%lse = cross_entropy %%z, %%y ignore=-100\n"
              "  %%l = reduce_sum %%r axes=[0]\n"
              "  return output \"loss\" %%l\n}\n",
              layers, layers);
  return b.at;
}

// A candidate's numbers, which decide options of passes.
typedef struct Numbers {
  const Problem *problem;
  const Plan *plan;
  int64_t slices, memory;
  double wanted;
} Numbers;

// The options of passes that a plan decides, as nnaot has them.
static const char *value_of(Arena *a, const char *pass, const char *option, const void *from) {
  const Numbers *s = from;
  const Problem *p = s->problem;
  StrBuf mesh = {.arena = a}, programs = {.arena = a};
  strbuf_addf(&mesh, "acc:%d:time", (int)s->slices);
  for (int i = 0; i < s->plan->n; i++) {
    strbuf_addf(&mesh, "+%s:%d", s->plan->at[i].axis, (int)s->plan->at[i].size);
    strbuf_addf(&programs, "%s%s", i ? "," : "", s->plan->at[i].program);
  }
  if (!strcmp(option, "mesh")) return mesh.at;
  if (!strcmp(option, "plan")) return programs.at;
  if (!strcmp(option, "cluster")) return p->cluster;
  if (!strcmp(option, "target")) return p->target == TARGET_cuda ? "cuda" : "cpu";
  if (!strcmp(option, "unlimited")) return p->memory > 0 ? NULL : "true";
  if (!strcmp(option, "memory") && s->memory) return str_format(a, "%lld", (long long)s->memory);
  if (!strcmp(option, "wanted") && s->wanted > 0) return str_format(a, "%.17g", s->wanted);
  if (!strcmp(pass, "mixed_precision")) return p->dtype;
  if (!strcmp(pass, "optimizer") && !strcmp(option, "name")) return p->optimizer;
  if (!strcmp(pass, "autodiff") && !strcmp(option, "apart")) return s->slices > 1 ? "true" : NULL;
  return NULL;
}

static const char *text_of(const Problem *p, Arena *a, const char *first, const Candidate *c,
                           Diag *d) {
  Plan axes = {0};
  if (!plan_parse(a, c->plan, c->ranks, &axes, d)) return NULL;
  const Numbers from = {p, &axes, c->micro_batches, c->memory, c->wanted};
  return pipeline_text(a, p->target == TARGET_cuda ? "train_cuda" : "train", first,
                       p->dtype ? PIPELINE_LOW_PRECISION : 0, value_of, &from);
}

const char *problem_pipeline(void *context, const Candidate *c) {
  const Problem *p = context;
  Diag *d = diag_new(stderr);
  const char *text = text_of(p, p->a, NULL, c, d);
  diag_free(d);
  return text;
}

static const char *table_pipeline_of(void *context, Arena *a, const char *plan, int64_t ranks,
                                     int64_t slices, Diag *d) {
  const Candidate c = {.plan = plan, .ranks = ranks, .micro_batches = slices};
  return text_of(context, a, "loss", &c, d);
}

ChooseOptions problem_options(Problem *p, Diag *d) {
  return (ChooseOptions){.ranks = RANKS,
                         .micro_batches = p->micro_batches,
                         .batch = ROWS,
                         .cluster = cluster_read(p->a, p->cluster, "--cluster", d),
                         .target = p->target,
                         .pipeline = problem_pipeline,
                         .tables = table_pipeline_of,
                         .context = p};
}

Module *problem_module(const Problem *p) {
  Heard *h = heard_new();
  Module *m = module_parse("model.nn", p->text, strlen(p->text), h->d);
  if (!m) heard(h, "no message");
  assert_non_null(m);
  heard_free(h);
  return m;
}

void problem_free(const Problem *p, Module *m, Heard *h) {
  module_free(m);
  arena_free(p->a);
  heard_free(h);
}
