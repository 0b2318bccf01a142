// Reads --optimizer: NAME[:key=value,…] with the names and defaults of torch.optim.
//
// The table has for every optimizer its keys with their defaults.  A key of torch.optim without
// support here is in the table too, with its only legal value, so that the message can explain it.

#include "optimizer_spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ir/build.h"
#include "rt/nearest.h"

typedef struct Setting {
  const char *key;
  enum { NUMBER, BOOLEAN, BETAS, FIXED, VARIANT } kind;
  double value; // the default; of BETAS the first
  double low;   // the least legal value; of BETAS the default of the second
} Setting;

typedef struct Entry {
  const char *name;
  double lr;
  Setting settings[10];
} Entry;

// FIXED: anything but the default is refused.
static const Entry table[] = {
    {"sgd",
     1e-3,
     {{"momentum", NUMBER, 0, 0},
      {"dampening", NUMBER, 0, -1e300},
      {"weight_decay", NUMBER, 0, 0},
      {"nesterov", BOOLEAN, 0, 0},
      {"maximize", FIXED, 0, 0}}},
    {"adam",
     1e-3,
     {{"betas", BETAS, 0.9, 0.999},
      {"eps", NUMBER, 1e-8, 0},
      {"weight_decay", NUMBER, 0, 0},
      {"variant", VARIANT, 0, 0},
      {"amsgrad", FIXED, 0, 0},
      {"maximize", FIXED, 0, 0}}},
    {"adamw",
     1e-3,
     {{"betas", BETAS, 0.9, 0.999},
      {"eps", NUMBER, 1e-8, 0},
      {"weight_decay", NUMBER, 1e-2, 0},
      {"amsgrad", FIXED, 0, 0},
      {"maximize", FIXED, 0, 0}}},
    {"adagrad",
     1e-2,
     {{"lr_decay", NUMBER, 0, 0},
      {"weight_decay", NUMBER, 0, 0},
      {"initial_accumulator_value", NUMBER, 0, 0},
      {"eps", NUMBER, 1e-10, 0},
      {"maximize", FIXED, 0, 0}}},
    {"lamb",
     1e-3,
     {{"betas", BETAS, 0.9, 0.999}, {"eps", NUMBER, 1e-6, 0}, {"weight_decay", NUMBER, 0, 0}}},
};
enum { N_ENTRIES = sizeof table / sizeof *table, MAX_KEYS = 10 };

// The values of an entry's keys in a specification.
typedef struct Reading {
  const char *said;
  const Entry *entry;
  Arena *arena;
  Diag *d;
  double value[MAX_KEYS], second[MAX_KEYS]; // second: of BETAS
  double lr;
} Reading;

static const char *keys_text(Arena *a, const Entry *e) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "lr");
  for (const Setting *s = e->settings; s->key; s++)
    if (s->kind != FIXED) strbuf_addf(&b, ", %s", s->key);
  return b.at;
}

const char *optimizer_usage(Arena *a, const char *between) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < N_ENTRIES; i++) {
    strbuf_addf(&b, "%s%s:lr=%g", i ? between : "", table[i].name, table[i].lr);
    for (const Setting *s = table[i].settings; s->key; s++)
      switch (s->kind) {
      case NUMBER: strbuf_addf(&b, ",%s=%g", s->key, s->value); break;
      case BOOLEAN: strbuf_addf(&b, ",%s=%s", s->key, s->value ? "true" : "false"); break;
      case BETAS: strbuf_addf(&b, ",%s=%g/%g", s->key, s->value, s->low); break;
      case VARIANT: strbuf_addf(&b, ",%s=torch|onnx", s->key); break;
      case FIXED: break;
      }
  }
  return b.at;
}

static bool bad(const Reading *r, const char *what) {
  diag_error(r->d, NULL, "%s: %s", r->said, what);
  diag_hint(r->d, "%s has %s", r->entry->name, keys_text(r->arena, r->entry));
  return false;
}

static bool read_number(const char *text, double *to) {
  char *end;
  *to = strtod(text, &end);
  return *text && !*end && *to == *to;
}

static bool read_boolean(const char *text, double *to) {
  bool yes = !strcmp(text, "true") || !strcmp(text, "True") || !strcmp(text, "1");
  *to = yes;
  return yes || !strcmp(text, "false") || !strcmp(text, "False") || !strcmp(text, "0");
}

static bool is_beta(double x) {
  return x >= 0 && x < 1;
}

// Reads "0.9/0.95".
static bool read_betas(Arena *a, const char *text, double *first, double *second) {
  const char *slash = strchr(text, '/');
  return slash && read_number(str_copy_n(a, text, (size_t)(slash - text)), first) &&
         read_number(slash + 1, second) && is_beta(*first) && is_beta(*second);
}

static bool read_setting(Reading *r, const char *key, const char *text) {
  const char *wanted = NULL;
  if (!strcmp(key, "lr")) {
    if (read_number(text, &r->lr) && r->lr >= 0) return true;
    return bad(r, str_format(r->arena, "lr wants a number that is not negative, not '%s'", text));
  }
  // lr belongs to every optimizer; the other keys are in the entry's table.
  int i = 0;
  while (r->entry->settings[i].key && strcmp(r->entry->settings[i].key, key))
    i++;
  const Setting *s = &r->entry->settings[i];
  if (!s->key) return bad(r, str_format(r->arena, "there is no '%s'", key));
  switch (s->kind) {
  case NUMBER:
    if (!read_number(text, &r->value[i]) || r->value[i] < s->low)
      wanted = s->low == 0 ? "a number that is not negative" : "a number";
    break;
  case BOOLEAN:
    if (!read_boolean(text, &r->value[i])) wanted = "true or false";
    break;
  case BETAS:
    if (!read_betas(r->arena, text, &r->value[i], &r->second[i]))
      wanted = "two numbers from 0 to below 1, as in 0.9/0.999";
    break;
  case VARIANT:
    r->value[i] = !strcmp(text, "onnx");
    if (!r->value[i] && strcmp(text, "torch")) wanted = "torch or onnx";
    break;
  // A key of torch.optim that we do not compile: only its default is legal.
  case FIXED:
    if (!read_boolean(text, &r->value[i]))
      wanted = "true or false";
    else if (r->value[i] != s->value)
      return bad(r, str_format(r->arena, "%s is not supported", key));
    break;
  }
  if (!wanted) return true;
  return bad(r, str_format(r->arena, "%s wants %s, not '%s'", key, wanted, text));
}

static bool read_settings(Reading *r, const char *at) {
  for (const Setting *s = r->entry->settings; s->key; s++) {
    r->value[s - r->entry->settings] = s->value;
    r->second[s - r->entry->settings] = s->low;
  }
  while (*at) {
    size_t n = strcspn(at, ",");
    const char *word = str_copy_n(r->arena, at, n), *equals = strchr(word, '=');
    if (!equals) return bad(r, str_format(r->arena, "'%s' has no value", word));
    if (!read_setting(r, str_copy_n(r->arena, word, (size_t)(equals - word)), equals + 1))
      return false;
    at += n + (at[n] == ',');
  }
  return true;
}

// -- To the op -------------------------------------------------------------------------------

static double value_of(const Reading *r, const char *key) {
  for (int i = 0; r->entry->settings[i].key; i++)
    if (!strcmp(r->entry->settings[i].key, key)) return r->value[i];
  BUG("%s has no setting '%s'", r->entry->name, key);
}

static void add(OptimizerSpec *spec, Attr attr) {
  spec->attrs[spec->n_attrs++] = attr;
}

static void add_number(OptimizerSpec *spec, const Reading *r, const char *key) {
  add(spec, a_f(key, value_of(r, key)));
}

static void add_state(OptimizerSpec *spec, const char *name, double fill) {
  spec->state_fill[spec->n_states] = fill;
  spec->state[spec->n_states++] = name;
}

// betas come first in the entries that have them.
static void add_moments(OptimizerSpec *spec, const Reading *r) {
  add(spec, a_f("beta1", r->value[0]));
  add(spec, a_f("beta2", r->second[0]));
  add_number(spec, r, "eps");
  add_state(spec, "exp_avg", 0);
  add_state(spec, "exp_avg_sq", 0);
}

static bool to_sgd(OptimizerSpec *spec, const Reading *r) {
  double momentum = value_of(r, "momentum"), dampening = value_of(r, "dampening");
  bool nesterov = value_of(r, "nesterov") != 0;
  if (nesterov && (momentum <= 0 || dampening != 0))
    return bad(r, "nesterov wants a momentum and no dampening");
  spec->kind = momentum ? OP_sgd_momentum : OP_sgd;
  if (!momentum) return true;
  add(spec, a_f("momentum", momentum));
  add(spec, a_f("dampening", dampening));
  add(spec, a_b("nesterov", nesterov));
  add_state(spec, "momentum_buffer", 0);
  return true;
}

static bool to_op(OptimizerSpec *spec, const Reading *r) {
  const char *name = r->entry->name;
  add_number(spec, r, "weight_decay");
  if (!strcmp(name, "sgd")) return to_sgd(spec, r);
  if (!strcmp(name, "adagrad")) {
    spec->kind = OP_adagrad;
    add_number(spec, r, "lr_decay");
    add_number(spec, r, "eps");
    add_state(spec, "sum", value_of(r, "initial_accumulator_value"));
    return true;
  }
  add_moments(spec, r);
  spec->kind = !strcmp(name, "lamb") ? OP_lamb : OP_adam;
  if (spec->kind == OP_lamb) return true;
  bool decoupled = !strcmp(name, "adamw");
  add(spec, a_b("decoupled", decoupled));
  add(spec, a_b("onnx", !decoupled && value_of(r, "variant") != 0));
  return true;
}

bool optimizer_parse(const char *text, const char *said, OptimizerSpec *out, Arena *a, Diag *d) {
  Reading r = {.said = said ? said : str_format(a, "optimizer '%s'", text), .arena = a, .d = d};
  size_t n = strcspn(text, ":");
  StrBuf names = {.arena = a};
  NnrtNearest near = {0};
  // Look up the name, and collect names for the message meanwhile.
  for (int i = 0; i < N_ENTRIES; i++) {
    nnrt_nearest(&near, text, n, table[i].name);
    strbuf_addf(&names, "%s%s", i ? ", " : "", table[i].name);
    if (strlen(table[i].name) == n && !strncmp(table[i].name, text, n)) r.entry = &table[i];
  }
  if (!r.entry) {
    diag_error(d, NULL, "there is no optimizer '%.*s'%s", (int)n, text,
               str_did_you_mean(a, near.name));
    diag_hint(d, "there are %s", names.at);
    return false;
  }
  *out = (OptimizerSpec){0};
  r.lr = r.entry->lr;
  if (!read_settings(&r, text + n + (text[n] == ':')) || !to_op(out, &r)) return false;
  out->lr = r.lr;
  return true;
}
