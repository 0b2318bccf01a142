// A specification of a loss, as --loss has it: see loss_spec.h.

#include "loss_spec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "base/str.h"
#include "rt/nearest.h"

static const struct LossRow {
  const char *name;
  int names;
  const char *options, *usage;
} rows[N_LOSSES] = {
#define LOSS(name, names, options, usage) {#name, names, options, #name "(" usage ")"},
#include "train/losses.def"
#undef LOSS
};

typedef struct Parser {
  const char *text, *at;
  Graph *g;
  Arena *a;
  Diag *d;
} Parser;

static bool fail(const Parser *p, const struct LossRow *row, const char *why) {
  diag_problem(p->d, PROBLEM_loss, NULL, "loss '%s': %s", p->text, why);
  if (row) diag_hint(p->d, "write %s", row->usage);
  return false;
}

const char *loss_usage(Arena *a, const char *between) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < N_LOSSES; i++)
    strbuf_addf(&b, "%s%s", i ? between : "", rows[i].usage);
  return b.at;
}

static void skip_spaces(Parser *p) {
  p->at += strspn(p->at, " ");
}

static bool take(Parser *p, char c) {
  skip_spaces(p);
  if (*p->at != c) return false;
  p->at++;
  return true;
}

static const char *take_word(Parser *p, const char *ends) {
  return str_take_word(p->a, &p->at, ends);
}

static bool set_option(const Parser *p, LossSpec *s, const struct LossRow *row, const char *name,
                       const char *value) {
  char *end = (char *)(uintptr_t)value + strlen(value);
  bool known = false;
  size_t n = strlen(name);
  for (const char *at = row->options; *at; at += strspn(at, " ")) {
    size_t length = strcspn(at, " ");
    known |= length == n && !strncmp(at, name, n);
    at += length;
  }
  if (!known) return fail(p, row, str_format(p->a, "there is no option '%s'", name));
  errno = 0;
  if (!strcmp(name, "axis")) {
    s->has_axis = true;
    s->axis = strtoll(value, &end, 10);
  } else if (!strcmp(name, "ignore_index")) {
    s->has_ignore = true;
    s->ignore_index = strtoll(value, &end, 10);
  } else if (!strcmp(name, "delta")) {
    s->delta = strtod(value, &end);
    if (!(s->delta > 0)) end = NULL;
  } else if (!strcmp(name, "label_smoothing")) {
    s->label_smoothing = strtod(value, &end);
    if (!(s->label_smoothing >= 0 && s->label_smoothing <= 1)) end = NULL;
  } else if (!strcmp(name, "weight")) {
    s->weight = value;
  } else {
    s->labels = value;
  }
  if (*value && end && !*end && !errno) return true;
  return fail(p, row, str_format(p->a, "invalid value '%s' of option '%s'", value, name));
}

// Reads the arguments in parentheses: the output, the second name, and options.
static bool take_arguments(Parser *p, LossSpec *s, const struct LossRow *row) {
  const char **name[] = {&s->output, &s->input};
  for (int n = 0; n < row->names || !take(p, ')'); n++) {
    if (n > 0 && !take(p, ',')) {
      if (*p->at == ')')
        return fail(p, row, n == 1 ? "an input is missing" : "an output is missing");
      return fail(p, row, "the parenthesis is not closed");
    }
    skip_spaces(p);
    // The first names are positional; options follow as NAME=VALUE.
    bool quoted = *p->at == '"';
    const char *word = take_word(p, n < row->names ? ",)" : ",=)");
    if (!word) return fail(p, row, "a quote is not closed");
    if (n < row->names && !quoted && !*word)
      return fail(p, row,
                  !*p->at  ? "the parenthesis is not closed"
                  : n == 0 ? "an output is missing"
                           : "an input is missing");
    if (n < row->names) {
      *name[n] = word;
      continue;
    }
    if (!take(p, '=')) return fail(p, row, str_format(p->a, "unexpected '%s'", word));
    const char *value = take_word(p, ",)");
    if (!value) return fail(p, row, "a quote is not closed");
    if (!set_option(p, s, row, word, value)) return false;
  }
  return true;
}

static bool take_loss(Parser *p, LossSpec *s) {
  // Factors come first.
  for (;;) {
    skip_spaces(p);
    char *end;
    double factor = strtod(p->at, &end);
    end += strspn(end, " ");
    if (end == p->at || *end != '*') break;
    s->factor *= factor;
    p->at = end + 1;
  }
  if (!(s->factor > -INFINITY && s->factor < INFINITY))
    return fail(p, NULL, "a factor is not finite");
  skip_spaces(p);
  bool quoted = *p->at == '"';
  bool negative = *p->at == '-';
  const char *word = take_word(p, "(+*");
  if (!word) return fail(p, NULL, "a quote is not closed");
  // The name of a loss without a parenthesis may still be an output of the model.
  for (int i = 0; i < N_LOSSES && !quoted; i++) {
    if (strcmp(rows[i].name, word) != 0) continue;
    s->kind = (LossKind)i;
    if (take(p, '(')) return take_arguments(p, s, &rows[i]);
    if (!graph_find_output(p->g, word)) return fail(p, &rows[i], "an output is missing");
  }
  // No loss has this name: an output, unless a parenthesis shows that a loss was meant.
  skip_spaces(p);
  if (*p->at == '(' && negative) {
    fail(p, NULL, "a loss cannot begin with '-'");
    diag_hint(p->d, "a factor makes it negative: -1*%s(…", word + 1);
    return false;
  }
  if (*p->at == '(' && !*word) {
    fail(p, NULL, "a loss is missing before a parenthesis");
    diag_hint(p->d, "parentheses are for the outputs of a loss, as in 0.5*mse(a)+0.5*mse(b)");
    return false;
  }
  if (*p->at == '(') {
    // The nearest name may be meant.
    NnrtNearest near = {0};
    for (int i = 0; i < N_LOSSES; i++)
      nnrt_nearest(&near, word, strlen(word), rows[i].name);
    diag_problem(p->d, PROBLEM_loss, NULL, "loss '%s' is unknown%s", word,
                 str_did_you_mean(p->a, near.name));
    diag_hint(p->d, "there are OUTPUT, %s, and sums such as a+0.3*b", loss_usage(p->a, ", "));
    return false;
  }
  if (!*word && !quoted) return fail(p, NULL, "a loss is missing");
  s->kind = LOSS_output;
  s->output = word;
  return true;
}

bool loss_spec_parse(LossSpecs *out, const char *text, Graph *g, Arena *a, Diag *d) {
  Parser p = {text, text, g, a, d};
  bool is_output = graph_find_output(g, text) != NULL;
  do {
    LossSpec s = {.text = text, .kind = LOSS_output, .factor = 1, .delta = 1};
    if (is_output)
      s.output = text;
    else if (!take_loss(&p, &s))
      return false;
    vec_push(a, out, s);
  } while (!is_output && take(&p, '+'));
  skip_spaces(&p);
  if (is_output || !*p.at) return true;
  fail(&p, NULL, str_format(a, "unexpected '%s' at its end", p.at));
  if (*p.at == '*') diag_hint(d, "a factor stands before its loss, as in 0.3*mse(y)");
  if (*p.at == '/') diag_hint(d, "a loss is divided by a factor: 0.5*a");
  if (*p.at == '-') diag_hint(d, "a loss is subtracted by a factor: a+-1*b");
  return false;
}
