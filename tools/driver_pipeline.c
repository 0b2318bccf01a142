// The text of the pipeline of a training step, for the settings and a plan.
//
//     nnaot m.onnx -g 8 --loss 'mse(y)' --plan dp=2,tp=4 …   =>
//     …,loss(spec="mse(y)"),…,shard(mesh="acc:1:time+dp:2+tp:4" plan="dp,tp" …),comm,…
//
// With a text, candidates are made, priced and compiled in the same way, and nnaot-opt can run the
// pipeline of nnaot.  The target's row lists the passes.

#include <string.h>

#include "driver.h"

const char *strings_joined(Arena *a, const Strings *s, const char *between) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < s->n; i++)
    strbuf_addf(&b, "%s%s", i ? between : "", s->at[i]);
  return b.at;
}

bool is_text(const Settings *s) {
  return str_ends(s->model, ".nn") || !strcmp(s->model, "-");
}

// "acc:2:time+dp:2+tp:4".  Time is the outermost axis: a micro-batch is a run of neighbouring rows.
static const char *mesh_text(Arena *a, const Settings *s, const Choice *c) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "acc:%lld:time", (long long)(s->accumulate * c->micro_batches));
  for (int i = 0; i < c->plan.n; i++)
    strbuf_addf(&b, "+%s:%lld", c->plan.at[i].axis, (long long)c->plan.at[i].size);
  return b.at;
}

// "dp,tp": the programs of axes of `least` ranks or more.
static const char *programs_text(Arena *a, const Plan *plan, int64_t least) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < plan->n; i++)
    if (plan->at[i].size >= least) strbuf_addf(&b, "%s%s", b.n ? "," : "", plan->at[i].program);
  return b.n ? b.at : "dp";
}

// "2,4": the ranks of these programs.
static const char *ranks_text(Arena *a, const Plan *plan, int64_t least) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < plan->n; i++)
    if (plan->at[i].size >= least)
      strbuf_addf(&b, "%s%lld", b.n ? "," : "", (long long)plan->at[i].size);
  return b.n ? b.at : NULL;
}

static const TargetInfo *target_of(const Settings *s) {
  return &target_info[s->backend.target.target];
}

// The patterns of --freeze for rows, or those for whole weights.
static const char *frozen(Arena *a, const Settings *s, bool rows) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < s->freeze.n; i++)
    if ((str_row_glob(s->freeze.at[i]) > 0) == rows)
      strbuf_addf(&b, "%s%s", b.n ? "," : "", s->freeze.at[i]);
  return b.n ? b.at : NULL;
}

typedef struct Asked {
  const Settings *s;
  const Choice *c;
} Asked;

// The value of a pass's option, or NULL for its default.
static const char *option_value(Arena *a, const char *pass, const char *option, const void *from) {
  const Settings *s = ((const Asked *)from)->s;
  const Choice *c = ((const Asked *)from)->c;
  bool grouped = s->groups.n > 0;
#define OPTION(of, name, value)                                                                    \
  if ((!*of || !strcmp(of, pass)) && !strcmp(name, option)) return value
#define WHOLE(value) str_format(a, "%lld", (long long)(value))
  OPTION("loss", "spec", s->loss);
  OPTION("init", "seed", s->init[6] == ':' ? s->init + 7 : "0"); // of random or random:SEED
  // A program may change the model of a single rank, as pieces and recompute do.
  OPTION("transform", "plan", programs_text(a, &c->plan, 1));
  OPTION("transform", "ranks", ranks_text(a, &c->plan, 1));
  OPTION("eval_graph", "metrics", s->loss);
  OPTION("autodiff", "freeze", frozen(a, s, false));
  // The import does it for a model, whose nodes may have no op.
  OPTION("autodiff", "detach",
         is_text(s) && s->detach.n ? strings_joined(a, &s->detach, ",") : NULL);
  // The initial scale of torch.amp.GradScaler; bf16 has the range of f32.
  OPTION("autodiff", "scale", !strcmp(s->dtype, "f16") ? "65536" : NULL);
  OPTION("autodiff", "apart", s->accumulate * c->micro_batches > 1 ? "true" : NULL);
  OPTION("optimizer", "name", s->optimizer);
  OPTION("optimizer", "clip", str_format(a, "%.17g", s->clip_norm));
  OPTION("optimizer", "rows", frozen(a, s, true));
  OPTION("optimizer", "no_decay", s->no_decay);
  OPTION("optimizer", "groups", grouped ? strings_joined(a, &s->groups, ";") : NULL);
  OPTION("optimizer", "lr", grouped ? str_format(a, "%.17g", s->lr) : NULL);
  OPTION("mixed_precision", "to", s->dtype);
  OPTION("shard", "mesh", mesh_text(a, s, c));
  OPTION("shard", "plan", programs_text(a, &c->plan, 2));
  OPTION("shard", "unlimited", s->cluster ? NULL : "true");
  OPTION("shard", "routed", s->network ? "true" : NULL);
  OPTION("shard", "factoring", c->factoring >= 0 ? WHOLE(c->factoring) : NULL);
  OPTION("shard", "memory", c->memory ? WHOLE(c->memory) : NULL);
  OPTION("shard", "work", c->work ? WHOLE(c->work) : NULL);
  OPTION("shard", "wanted", c->wanted > 0 ? str_format(a, "%.17g", c->wanted) : NULL);
  OPTION("shard", "seconds",
         s->search_seconds > 0 ? str_format(a, "%.17g", s->search_seconds) : NULL);
  OPTION("shard", "explain", s->explain);
  OPTION("comm", "reshard", strcmp(s->reshard, "rvd") != 0 ? s->reshard : NULL);
  OPTION("stash_weights", "accumulate", s->accumulate > 1 ? WHOLE(s->accumulate) : NULL);
  OPTION("optimizer_in_backward", "early",
         s->ranks == 1 && !target_of(s)->multi_tensor ? "true" : NULL);
  OPTION("overlap", "limited", s->cluster ? "true" : NULL);
  // Passes that always need prices use the target's default cluster if none is given.
  const char *cluster = s->network ? s->network : target_of(s)->cluster;
  OPTION("shard", "cluster", cluster);
  OPTION("prioritize_comm", "cluster", cluster);
  OPTION("overlap", "cluster", cluster);
  // The others, comm among them, choose by price only if the user says how hosts are connected.
  OPTION("", "cluster", s->network);
  OPTION("", "target", target_of(s)->name);
#undef OPTION
#undef WHOLE
  return NULL;
}

const char *train_pipeline(Arena *a, const Settings *s, const Choice *c) {
  return train_pipeline_from(a, s, c, NULL);
}

const char *train_pipeline_from(Arena *a, const Settings *s, const Choice *c, const char *first) {
  unsigned conditions = (str_starts(s->init, "random") ? PIPELINE_FRESH_WEIGHTS : 0) |
                        (strcmp(s->dtype, "f32") != 0 ? PIPELINE_LOW_PRECISION : 0);
  return pipeline_text(a, target_of(s)->pipeline, first, conditions, option_value,
                       &(Asked){.s = s, .c = c});
}
