// Parses the text of a pipeline, in LLVM's syntax:
//
//     autodiff(freeze="emb.*"),simplify,shard(mesh=4 plan=dp)
//
// A value ends at a blank, a comma or the closing parenthesis, except within parentheses of its
// own, as in loss(spec=cross_entropy(logits,axis=1)), or within quotes.  The name of a pipeline
// stands for its passes.

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"

enum { KEEP = -1, may = true, must = false };

const Pass passes[] = {
#define typed   PHASE_typed
#define sharded PHASE_sharded
#define local   PHASE_local
#define planned PHASE_planned
#define plain   PROOF_plain
#define alone   PROOF_alone
#define kept    PROOF_kept
#define proved  PROOF_proved
#define async   PROOF_async
#define ALIAS(old, name)
#define PASS(name, from, to, skip, proof, options, summary)                                        \
  {#name,                                                                                          \
   from,                                                                                           \
   (int)(to) == KEEP ? from : (Phase)(to),                                                         \
   (int)(to) == KEEP,                                                                              \
   skip,                                                                                           \
   proof,                                                                                          \
   options,                                                                                        \
   summary,                                                                                        \
   pass_##name},
#include "passes.def"
#undef PASS
#undef ALIAS
#undef typed
#undef sharded
#undef local
#undef planned
#undef plain
#undef alone
#undef kept
#undef proved
#undef async
};
const int n_passes = sizeof passes / sizeof *passes;

// -- Named pipelines ---------------------------------------------------------------------------

enum { always = 0, fresh_weights = PIPELINE_FRESH_WEIGHTS, low_precision = PIPELINE_LOW_PRECISION };
enum { no = false, yes = true };

static const struct {
  const char *name, *summary;
} pipelines[] = {
#define PIPELINE(name, summary) {#name, summary},
#define STEP(pass, train, train_cuda, infer, when)
#include "pipelines.def"
#undef PIPELINE
#undef STEP
};
enum { N_PIPELINES = sizeof pipelines / sizeof *pipelines };

static const struct {
  const char *pass;
  bool in[N_PIPELINES];
  unsigned when;
} pipeline_steps[] = {
#define PIPELINE(name, summary)
#define STEP(pass, train, train_cuda, infer, when) {#pass, {train, train_cuda, infer}, when},
#include "pipelines.def"
#undef PIPELINE
#undef STEP
};

static void add_options(StrBuf *b, const Pass *pass, OptionValue *value_of, const void *from) {
  bool any = false;
  for (const char *at = pass->options; *at;) {
    // "name:kind" pairs, separated by blanks.
    size_t n = strcspn(at, ":");
    const char *option = str_copy_n(b->arena, at, n);
    const char *value = value_of(b->arena, pass->name, option, from);
    if (value) {
      strbuf_addf(b, "%s%s=", any ? " " : "(", option);
      any = true;
      // Quoted if it has anything but letters, digits and a few other characters.
      bool plain_text = *value && !value[strspn(value, "abcdefghijklmnopqrstuvwxyz"
                                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                       "0123456789_.-+")];
      if (!plain_text) strbuf_add(b, "\"");
      for (const char *c = value; *c; c++)
        strbuf_addf(b, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
      if (!plain_text) strbuf_add(b, "\"");
    }
    at += n + 2;
    at += strspn(at, " ");
  }
  if (any) strbuf_add(b, ")");
}

const char *pipeline_text(Arena *a, const char *name, const char *first, unsigned conditions,
                          OptionValue *value_of, const void *from) {
  int pipeline = 0;
  while (pipeline < N_PIPELINES && strcmp(pipelines[pipeline].name, name) != 0)
    pipeline++;
  if (pipeline == N_PIPELINES) return NULL;
  StrBuf b = {.arena = a};
  bool begun = !first;
  for (size_t i = 0; i < sizeof pipeline_steps / sizeof *pipeline_steps; i++) {
    const char *pass = pipeline_steps[i].pass;
    unsigned when = pipeline_steps[i].when;
    if (first && !strcmp(pass, first)) begun = true;
    // A step is in some pipelines, and under some conditions.
    if (!begun || !pipeline_steps[i].in[pipeline] || (when & conditions) != when) continue;
    strbuf_addf(&b, "%s%s", b.n ? "," : "", pass);
    if (value_of) add_options(&b, pass_find(pass), value_of, from);
  }
  return b.at;
}

// -- Passes by name ----------------------------------------------------------------------------

const char *pass_name(const char *name) {
  static const struct {
    const char *old, *name;
  } aliases[] = {
#define PASS(name, from, to, skip, proof, options, summary)
#define ALIAS(old, name) {#old, #name},
#include "passes.def"
#undef PASS
#undef ALIAS
  };
  // An old name stands for the new one.
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    if (!strcmp(aliases[i].old, name)) return aliases[i].name;
  return name;
}

const Pass *pass_find(const char *name) {
  name = pass_name(name);
  for (int i = 0; i < n_passes; i++)
    if (!strcmp(passes[i].name, name)) return &passes[i];
  return NULL;
}

// -- Options ---------------------------------------------------------------------------------

// The kind in "loss:s mesh:s", or 0 if the pass has no such option.
static char option_kind(const Pass *pass, const char *name) {
  size_t n = strlen(name);
  for (const char *at = pass->options; *at;) {
    // "name:kind" pairs, separated by blanks.
    size_t length = strcspn(at, ":");
    if (length == n && !strncmp(at, name, n)) return at[length + 1];
    at += length + 2;
    at += strspn(at, " ");
  }
  return 0;
}

static const char *given(const PassOptions *o, const char *name, char kind) {
  if (option_kind(o->pass, name) != kind)
    BUG("pass '%s' has no option '%s' of kind '%c'", o->pass->name, name, kind);
  for (int i = 0; i < o->given.n; i++)
    if (!strcmp(o->given.at[i].name, name)) return o->given.at[i].value;
  return NULL;
}

static bool is_true(const char *s) {
  return !strcmp(s, "true") || !strcmp(s, "1");
}

const char *opt_str(const PassOptions *o, const char *name) {
  return given(o, name, 's');
}

int64_t opt_int(const PassOptions *o, const char *name, int64_t otherwise) {
  const char *value = given(o, name, 'i');
  return value ? strtoll(value, NULL, 10) : otherwise;
}

double opt_float(const PassOptions *o, const char *name, double otherwise) {
  const char *value = given(o, name, 'f');
  return value ? strtod(value, NULL) : otherwise;
}

bool opt_bool(const PassOptions *o, const char *name, bool otherwise) {
  const char *value = given(o, name, 'b');
  return value ? is_true(value) : otherwise;
}

bool opt_target(const PassOptions *o, Target *out, Diag *d) {
  const char *name = opt_str(o, "target");
  *out = TARGET_cpu;
  if (!name || target_parse(name, out)) return true;
  // The hint lists the known ones.
  diag_error(d, NULL, "there is no target '%s'", name);
  diag_hint(d, "the targets are: %s", target_names(opt_scratch(o)));
  return false;
}

Arena *opt_scratch(const PassOptions *o) {
  return o->scratch;
}

// NULL if the value is legal, else a description of legal values.
static const char *check_value(char kind, const char *value) {
  char *end = NULL;
  errno = 0;
  switch (kind) {
  case 'i': strtoll(value, &end, 10); break;
  case 'f': strtod(value, &end); break;
  case 'b':
    return is_true(value) || !strcmp(value, "false") || !strcmp(value, "0") ? NULL
                                                                            : "true or false";
  default: return NULL;
  }
  // The whole text must be the number.
  if (*value && !*end && !errno) return NULL;
  return kind == 'i' ? "an integer" : "a number";
}

// -- Reading ---------------------------------------------------------------------------------

typedef struct Reader {
  Arena *arena;
  Diag *d;
  const char *text, *at;
} Reader;

static bool fail(Reader *r, const char *at, size_t width, const char *fmt, ...) PRINTF_LIKE(4, 5);

static bool fail(Reader *r, const char *at, size_t width, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  diag_error(r->d, NULL, "%s", str_vformat(r->arena, fmt, args));
  va_end(args);
  diag_caret(r->d, r->text, (int)(at - r->text) + 1, width ? (int)width : 1);
  return false;
}

static void skip_blanks(Reader *r) {
  r->at += strspn(r->at, " \t\n");
}

static const char *read_word(Reader *r) {
  const char *start = r->at;
  r->at += strspn(r->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  return str_copy_n(r->arena, start, (size_t)(r->at - start));
}

static const char *read_value(Reader *r) {
  const char *start = r->at;
  // In quotes: anything, with escapes for quotes and backslashes.
  if (*r->at == '"') {
    StrBuf b = {.arena = r->arena};
    strbuf_add(&b, "");
    for (r->at++; *r->at && *r->at != '"'; r->at++) {
      if (*r->at == '\\' && (r->at[1] == '"' || r->at[1] == '\\')) r->at++;
      strbuf_add_n(&b, r->at, 1);
    }
    if (!*r->at) {
      fail(r, start, 1, "the quotes are not closed");
      return NULL;
    }
    r->at++;
    return b.at;
  }
  // Otherwise up to a blank or comma outside of its own parentheses.
  int depth = 0;
  for (; *r->at; r->at++) {
    if (*r->at == '(') depth++;
    if (*r->at == ')' && depth-- == 0) break;
    if (depth == 0 && strchr(", \t\n", *r->at)) break;
  }
  if (depth > 0) {
    fail(r, start, (size_t)(r->at - start), "a parenthesis is not closed");
    return NULL;
  }
  return str_copy_n(r->arena, start, (size_t)(r->at - start));
}

static bool read_option(Reader *r, PassOptions *o) {
  const char *start = r->at, *name = read_word(r);
  const Pass *pass = o->pass;
  if (!*name) return fail(r, start, 1, "expected the name of an option");
  char kind = option_kind(pass, name);
  if (!kind) {
    fail(r, start, strlen(name), "pass '%s' has no option '%s'", pass->name, name);
    // A comma in an unquoted value looks like the next option.
    if (o->given.n) diag_hint(r->d, "a value with commas or blanks must stand in quotes");
    return false;
  }
  for (int i = 0; i < o->given.n; i++)
    if (!strcmp(o->given.at[i].name, name))
      return fail(r, start, strlen(name), "option '%s' is given twice", name);
  // An option without a value is true.
  GivenOption option = {name, "true"};
  if (*r->at == '=') {
    const char *at = ++r->at;
    option.value = read_value(r);
    if (!option.value) return false;
    const char *wanted = check_value(kind, option.value);
    if (wanted)
      return fail(r, at, (size_t)(r->at - at), "option '%s' of pass '%s' wants %s", name,
                  pass->name, wanted);
  } else if (kind != 'b') {
    return fail(r, start, strlen(name), "option '%s' of pass '%s' wants a value", name, pass->name);
  }
  vec_push(r->arena, &o->given, option);
  return true;
}

static bool read_step(Reader *r, Steps *steps) {
  const char *start = r->at, *name = read_word(r),
             *named = pipeline_text(r->arena, name, NULL, 0, NULL, NULL);
  if (!*name) return fail(r, start, 1, "expected the name of a pass");
  // A pipeline stands for its passes, with their default options.
  if (named) {
    if (*r->at == '(') return fail(r, r->at, 1, "the pipeline '%s' has no options", name);
    return pipeline_parse(named, r->arena, steps, r->d);
  }
  // A pass, under its own name or an old one.
  PassOptions o = {.pass = pass_find(name)};
  if (!o.pass) {
    fail(r, start, strlen(name), "unknown pass '%s'", name);
    diag_hint(r->d, "nnaot-opt --list shows the passes");
    return false;
  }
  // Options in parentheses, separated by blanks or commas.
  if (*r->at == '(') {
    const char *open = r->at++;
    for (;;) {
      r->at += strspn(r->at, ", \t\n");
      if (*r->at == ')') break;
      if (!*r->at) return fail(r, open, 1, "the parenthesis is not closed");
      if (!read_option(r, &o)) return false;
    }
    r->at++;
  }
  vec_push(r->arena, steps, o);
  return true;
}

bool pipeline_parse(const char *text, Arena *a, Steps *steps, Diag *d) {
  Reader r = {.arena = a, .d = d, .text = text, .at = text};
  skip_blanks(&r);
  if (!*r.at) return true;
  for (;;) {
    skip_blanks(&r);
    if (!read_step(&r, steps)) return false;
    skip_blanks(&r);
    if (!*r.at) return true;
    // One comma between two steps, none after the last.
    if (*r.at != ',') return fail(&r, r.at, 1, "expected a comma between passes");
    r.at++;
  }
}

bool pipeline_check(const char *pipeline, Diag *d) {
  Arena *a = arena_new();
  Steps steps = {0};
  bool ok = pipeline_parse(pipeline, a, &steps, d);
  arena_free(a);
  return ok;
}

// -- Listing ---------------------------------------------------------------------------------

void passes_list(FILE *out) {
  Arena *a = arena_new();
  fprintf(out, "passes, in the order of the pipelines:\n");
  for (int i = 0; i < n_passes; i++) {
    // "spec:s seed:i" as "spec=TEXT seed=INTEGER".
    StrBuf b = {.arena = a};
    strbuf_add(&b, "");
    for (const char *at = passes[i].options; *at;) {
      int n = (int)strcspn(at, ":");
      char kind = at[n + 1];
      strbuf_addf(&b, "%s%.*s=%s", *b.at ? " " : "", n, at,
                  kind == 's'   ? "TEXT"
                  : kind == 'i' ? "INTEGER"
                  : kind == 'f' ? "NUMBER"
                                : "BOOL");
      at += n + 2;
      at += strspn(at, " ");
    }
    const char *name = *b.at ? str_format(a, "%s(%s)", passes[i].name, b.at) : passes[i].name;
    fprintf(out, "  %-36s %s\n", name, passes[i].summary);
  }
  // Each pipeline with its passes.
  fprintf(out, "pipelines:\n");
  for (int i = 0; i < N_PIPELINES; i++)
    fprintf(out, "  %-36s %s\n  %-36s   = %s\n", pipelines[i].name, pipelines[i].summary, "",
            pipeline_text(a, pipelines[i].name, NULL, 0, NULL, NULL));
  arena_free(a);
}
