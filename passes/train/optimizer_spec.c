// Reads --optimizer, NAME[:key=value,…], by the table of optimizers.c.
//
// A key of torch.optim that is not compiled is in the table, too, with the only value it may have,
// so that its error can say so.

#include "optimizer_spec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rt/nearest.h"

// One text of --optimizer while it is read.
typedef struct Reading {
  const char *subject; // the subject of errors
  OptimizerSpec *spec;
  Arena *arena;
  Diag *d;
} Reading;

static bool is_key(const Setting *s) {
  return s->kind != SETTING_constant;
}

const char *optimizer_usage(Arena *a, const char *between) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < n_optimizers; i++) {
    strbuf_addf(&b, "%s%s:lr=%g", i ? between : "", optimizers[i].name, optimizers[i].lr);
    for (const Setting *s = optimizers[i].settings; s->key; s++)
      switch (s->kind) {
      case SETTING_number: strbuf_addf(&b, ",%s=%g", s->key, s->value); break;
      case SETTING_boolean: strbuf_addf(&b, ",%s=%s", s->key, s->value ? "true" : "false"); break;
      case SETTING_betas: strbuf_addf(&b, ",%s=%g/%g", s->key, s->value, s->second); break;
      case SETTING_variant: strbuf_addf(&b, ",%s=torch|onnx", s->key); break;
      case SETTING_fixed:
      case SETTING_constant: break;
      }
  }
  return b.at;
}

static bool bad(const Reading *r, const char *what) {
  diag_error(r->d, NULL, "%s: %s", r->subject, what);
  // The keys that may be set.
  const Optimizer *o = r->spec->optimizer;
  StrBuf b = {.arena = r->arena};
  strbuf_add(&b, "lr");
  for (const Setting *s = o->settings; s->key; s++)
    if (is_key(s) && s->kind != SETTING_fixed) strbuf_addf(&b, ", %s", s->key);
  diag_hint(r->d, "%s has %s", o->name, b.at);
  return false;
}

static bool read_number(const char *text, double *to) {
  char *end;
  *to = strtod(text, &end);
  return *text && !*end && isfinite(*to);
}

static bool read_boolean(const char *text, double *to) {
  bool yes = !strcmp(text, "true") || !strcmp(text, "True") || !strcmp(text, "1");
  *to = yes;
  return yes || !strcmp(text, "false") || !strcmp(text, "False") || !strcmp(text, "0");
}

static bool is_beta(double x) {
  return x >= 0 && x < 1;
}

static bool read_setting(Reading *r, const char *key, const char *text) {
  const char *wanted = NULL;
  if (!strcmp(key, "lr")) {
    if (read_number(text, &r->spec->lr) && r->spec->lr >= 0) return true;
    return bad(
        r, str_format(r->arena, "lr wants a finite number that is not negative, not '%s'", text));
  }
  const Setting *s = r->spec->optimizer->settings;
  while (s->key && (!is_key(s) || strcmp(s->key, key) != 0))
    s++;
  double *value = &r->spec->value[s - r->spec->optimizer->settings];
  double *second = &r->spec->second[s - r->spec->optimizer->settings];
  if (!s->key) return bad(r, str_format(r->arena, "there is no '%s'", key));
  switch (s->kind) {
  case SETTING_number:
    if (!read_number(text, value) || *value < s->low)
      wanted = s->low == 0 ? "a finite number that is not negative" : "a finite number";
    break;
  case SETTING_boolean:
    if (!read_boolean(text, value)) wanted = "true or false";
    break;
  case SETTING_betas: {
    // "0.9/0.95"
    const char *slash = strchr(text, '/');
    if (!slash || !read_number(str_copy_n(r->arena, text, (size_t)(slash - text)), value) ||
        !read_number(slash + 1, second) || !is_beta(*value) || !is_beta(*second))
      wanted = "two numbers from 0 to below 1, as in 0.9/0.999";
    break;
  }
  case SETTING_variant:
    *value = !strcmp(text, "onnx");
    if (!*value && strcmp(text, "torch") != 0) wanted = "torch or onnx";
    break;
  case SETTING_fixed:
    if (!read_boolean(text, value))
      wanted = "true or false";
    else if (*value != s->value)
      return bad(r, str_format(r->arena, "%s is not supported", key));
    break;
  case SETTING_constant: break;
  }
  if (!wanted) return true;
  return bad(r, str_format(r->arena, "%s wants %s, not '%s'", key, wanted, text));
}

bool optimizer_parse(const char *text, const char *subject, OptimizerSpec *out, Arena *a, Diag *d) {
  size_t n = strcspn(text, ":");
  StrBuf names = {.arena = a};
  NnrtNearest near = {0};
  const Optimizer *found = NULL;
  for (int i = 0; i < n_optimizers; i++) {
    nnrt_nearest(&near, text, n, optimizers[i].name);
    strbuf_addf(&names, "%s%s", i ? ", " : "", optimizers[i].name);
    if (strlen(optimizers[i].name) == n && !strncmp(optimizers[i].name, text, n))
      found = &optimizers[i];
  }
  if (!found) {
    diag_error(d, NULL, "there is no optimizer '%.*s'%s", (int)n, text,
               str_did_you_mean(a, near.name));
    diag_hint(d, "there are %s", names.at);
    return false;
  }

  // The defaults first, then the text's settings.
  *out = (OptimizerSpec){.optimizer = found, .op = found->op, .lr = found->lr};
  for (int i = 0; found->settings[i].key; i++) {
    out->value[i] = found->settings[i].value;
    out->second[i] = found->settings[i].second;
  }
  while (out->n_states < MAX_STATES && found->states[out->n_states].name)
    out->n_states++;
  Reading r = {subject ? subject : str_format(a, "optimizer '%s'", text), out, a, d};
  const char *at = text + n + (text[n] == ':');
  while (*at) {
    size_t length = strcspn(at, ",");
    const char *word = str_copy_n(r.arena, at, length), *equals = strchr(word, '=');
    if (!equals) return bad(&r, str_format(r.arena, "'%s' has no value", word));
    if (!read_setting(&r, str_copy_n(r.arena, word, (size_t)(equals - word)), equals + 1))
      return false;
    at += length + (at[length] == ',');
  }
  const char *why;
  return !found->adjust || found->adjust(out, &why) || bad(&r, why);
}
