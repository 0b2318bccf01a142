// The text of the pipeline that makes a training step, by the settings and a plan.
//
//     nnaot m.onnx -g 8 --loss 'mse(y)' --plan dp=2,tp=4 …   =>
//     …,loss(spec="mse(y)"),…,shard(mesh="acc:1:time+dp:2+tp:4" plan="dp,tp" …),comm,…
//
// It is a text so that candidates are made, priced and compiled in the same way, and so that what
// nnaot runs can be given to nnaot-opt.  Which passes there are is the target's row.

#include <string.h>

#include "driver.h"

// A value of a pass's option, in quotes.
static const char *quoted(Arena *a, const char *s) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "\"");
  for (; *s; s++)
    strbuf_addf(&b, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
  strbuf_add(&b, "\"");
  return b.at;
}

const char *joined(Arena *a, const Strings *s, const char *between) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < s->n; i++)
    strbuf_addf(&b, "%s%s", i ? between : "", s->at[i]);
  return b.at;
}

// "acc:2:time+dp:2+tp:4".  Time is the outermost axis: a micro-batch is a run of neighbouring rows.
static const char *mesh_text(Arena *a, const Settings *s, const Choice *c) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "acc:%lld:time", (long long)(s->accumulate * c->micro_batches));
  for (int i = 0; i < c->plan.n; i++)
    strbuf_addf(&b, "+%s:%lld", c->plan.at[i].axis, (long long)c->plan.at[i].size);
  return b.at;
}

// "dp,tp": of axes of `least` ranks or more.
static const char *programs_text(Arena *a, const Plan *plan, int64_t least) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < plan->n; i++)
    if (plan->at[i].size >= least) strbuf_addf(&b, "%s%s", b.n ? "," : "", plan->at[i].program);
  return b.n ? b.at : "dp";
}

static const TargetInfo *target_of(const Settings *s) {
  return &target_info[s->backend.target.target];
}

// Plans are priced on the target's own cluster where none was given.
static const char *shard_options(Arena *a, const Settings *s, const Choice *c) {
  return str_format(a, "(mesh=%s plan=%s cluster=%s%s%s%s%s%s%s)", quoted(a, mesh_text(a, s, c)),
                    quoted(a, programs_text(a, &c->plan, 2)),
                    quoted(a, s->cluster ? s->cluster : target_of(s)->cluster),
                    s->cluster ? "" : " unlimited=true", s->cluster ? " routed=true" : "",
                    c->factoring >= 0 ? str_format(a, " factoring=%d", c->factoring) : "",
                    c->memory ? str_format(a, " memory=%lld", (long long)c->memory) : "",
                    c->work ? str_format(a, " work=%lld", (long long)c->work) : "",
                    s->explain ? str_format(a, " explain=%s", quoted(a, s->explain)) : "");
}

// The patterns of --freeze that are of rows, or the others.
static const char *frozen(Arena *a, const Settings *s, bool rows) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < s->freeze.n; i++)
    if ((str_row_glob(s->freeze.at[i]) > 0) == rows)
      strbuf_addf(&b, "%s%s", b.n ? "," : "", s->freeze.at[i]);
  return b.n ? b.at : NULL;
}

static const char *autodiff_options(Arena *a, const Settings *s, const Choice *c) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "");
  if (frozen(a, s, false)) strbuf_addf(&b, " freeze=%s", quoted(a, frozen(a, s, false)));
  if (s->detach.n) strbuf_addf(&b, " detach=%s", quoted(a, joined(a, &s->detach, ",")));
  // As torch.amp.GradScaler begins; bf16 has the range of f32.
  if (!strcmp(s->dtype, "f16")) strbuf_add(&b, " scale=65536");
  if (s->accumulate * c->micro_batches > 1) strbuf_add(&b, " apart=true");
  return *b.at ? str_format(a, "(%s)", b.at + 1) : "";
}

static const char *optimizer_options(Arena *a, const Settings *s) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "(name=%s clip=%.17g", quoted(a, s->optimizer), s->clip_norm);
  if (frozen(a, s, true)) strbuf_addf(&b, " rows=%s", quoted(a, frozen(a, s, true)));
  if (s->no_decay) strbuf_addf(&b, " no_decay=%s", quoted(a, s->no_decay));
  if (s->groups.n)
    strbuf_addf(&b, " groups=%s lr=%.17g", quoted(a, joined(a, &s->groups, ";")), s->lr);
  strbuf_add(&b, ")");
  return b.at;
}

// What is said to a pass of the pipeline.
static const char *pass_options(Arena *a, const char *pass, const Settings *s, const Choice *c) {
  if (!strcmp(pass, "loss") && s->loss) return str_format(a, "(spec=%s)", quoted(a, s->loss));
  if (!strcmp(pass, "eval_graph") && s->loss)
    return str_format(a, "(metrics=%s)", quoted(a, s->loss));
  if (!strcmp(pass, "autodiff")) return autodiff_options(a, s, c);
  if (!strcmp(pass, "optimizer")) return optimizer_options(a, s);
  if (!strcmp(pass, "shard")) return shard_options(a, s, c);
  bool routes = !strcmp(pass, "comm") || !strcmp(pass, "fuse_comm") || !strcmp(pass, "schedule");
  if (routes && s->cluster) return str_format(a, "(cluster=%s)", quoted(a, s->cluster));
  if (!strcmp(pass, "stash") && s->accumulate > 1)
    return str_format(a, "(accumulate=%lld)", (long long)s->accumulate);
  if (!strcmp(pass, "hurry"))
    return str_format(a, "(cluster=%s)",
                      quoted(a, s->cluster ? s->cluster : target_of(s)->cluster));
  if (!strcmp(pass, "overlap"))
    return str_format(a, "(cluster=%s%s)",
                      quoted(a, s->cluster ? s->cluster : target_of(s)->cluster),
                      s->cluster ? " limited=true" : "");
  // What a program does to the model may need no ranks, as pieces and recompute.
  if (!strcmp(pass, "transform"))
    return str_format(a, "(plan=%s)", quoted(a, programs_text(a, &c->plan, 1)));
  return "";
}

// `given` with the target, if the pass wants to know it.
static const char *with_target(Arena *a, const char *pass, const char *given, const char *target) {
  for (int i = 0; i < n_passes; i++) {
    if (strcmp(passes[i].name, pass) != 0 || !strstr(passes[i].options, "target:s")) continue;
    if (!*given) return str_format(a, "(target=%s)", target);
    return str_format(a, "%.*s target=%s)", (int)strlen(given) - 1, given, target);
  }
  return given;
}

const char *train_pipeline(Arena *a, const Settings *s, const Choice *c) {
  StrBuf b = {.arena = a};
  for (const char *p = pipeline_named(target_of(s)->pipeline); *p;) {
    size_t n = strcspn(p, ",");
    const char *pass = str_copy_n(a, p, n);
    if (!strcmp(pass, "recompute") && strcmp(s->dtype, "f32") != 0)
      strbuf_addf(&b, ",lower_precision(to=%s)", s->dtype);
    strbuf_addf(&b, "%s%s%s", b.n ? "," : "", pass,
                with_target(a, pass, pass_options(a, pass, s, c), target_of(s)->name));
    if (!strcmp(pass, "loss") && str_starts(s->init, "random"))
      strbuf_addf(&b, ",init(seed=%s)", s->init[6] == ':' ? s->init + 7 : "0");
    p += n + (p[n] == ',');
  }
  return b.at;
}
