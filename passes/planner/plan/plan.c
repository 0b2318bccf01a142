// The text of a plan: see plan.h.

#include "plan.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool bad_entry(const char *text, size_t n, Diag *d) {
  diag_error(d, NULL, "'%.*s' is no part of a plan", (int)n, text);
  diag_hint(d, "write dp, dp=2,tp=4 or my.lua=4: programs and how many ranks each has");
  return false;
}

// The axis name of a program: its name, or that of the file without folder and extension.
static const char *axis_name(Arena *a, const char *program) {
  const char *slash = strrchr(program, '/');
  const char *base = slash ? slash + 1 : program;
  size_t n = strlen(base) - (str_ends(base, ".lua") ? 4 : 0);
  StrBuf b = {.arena = a};
  for (size_t i = 0; i < n; i++)
    strbuf_add_n(&b, isalnum((unsigned char)base[i]) ? &base[i] : "_", 1);
  return b.n ? b.at : "plan";
}

// sizes = size {"x" size}: ranks, and their factors.
static bool read_sizes(const char *text, PlanAxes *out) {
  int64_t product = 1;
  for (out->n_factors = 0;; text++) {
    char *end;
    long long size = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)*text) || size < 1 || size > INT32_MAX) return false;
    if (out->n_factors == MAX_AXES || product * size > INT32_MAX) return false;
    out->factor[out->n_factors++] = size;
    product *= size;
    text = end;
    if (*text != 'x') break;
  }
  out->size = product;
  return !*text;
}

// entry = program ["=" sizes]
static bool read_entry(Arena *a, const char *text, size_t n, Plan *out, Diag *d) {
  const char *equals = memchr(text, '=', n);
  size_t name_n = equals ? (size_t)(equals - text) : n;
  if (out->n == MAX_PLAN) {
    diag_error(d, NULL, "a plan has at most %d programs", MAX_PLAN);
    diag_hint(d, "a program in a file can be several: its 'factors' cuts the ranks into axes, and "
                 "apply(\"tp\", axis) does along one of them what another program does");
    return false;
  }
  // The axis name is the program's, so a program may appear only once.
  PlanAxes *p = &out->at[out->n];
  *p = (PlanAxes){.program = str_copy_n(a, text, name_n)};
  if (name_n == 0) return bad_entry(text, n, d);
  p->axis = axis_name(a, p->program);
  if (equals && !read_sizes(str_copy_n(a, equals + 1, n - name_n - 1), p))
    return bad_entry(text, n, d);
  for (int i = 0; i < out->n; i++)
    if (str_equal(out->at[i].axis, p->axis))
      return diag_error(d, NULL, "the plan has '%s' twice", p->axis);
  out->n++;
  return true;
}

// Gives the one entry without a size the remaining factor of the ranks.
static bool fit_ranks(const char *text, int64_t ranks, Plan *out, Diag *d) {
  int64_t product = 1;
  PlanAxes *open = NULL;
  for (int i = 0; i < out->n; i++) {
    PlanAxes *p = &out->at[i];
    if (!p->size && open)
      return diag_error(d, NULL, "the plan '%s' does not say how many ranks '%s' and '%s' have",
                        text, open->program, p->program);
    if (!p->size)
      open = p;
    else if (__builtin_mul_overflow(product, p->size, &product))
      return diag_error(d, NULL, "the plan '%s' is for too many ranks", text);
  }
  if (open && ranks % product == 0) open->size = ranks / product;
  if (open ? ranks % product == 0 : product == ranks) return true;
  diag_error(d, NULL, "the plan '%s' is for %s%" PRId64 " rank%s, not for %" PRId64, text,
             open ? "multiples of " : "", product, product == 1 ? "" : "s", ranks);
  diag_hint(d, "the sizes in a plan multiply to what -g says");
  return false;
}

// The entry at `p`, without surrounding blanks: its beginning and its length.
static const char *entry_at(const char *p, size_t *n) {
  *n = strcspn(p, ",");
  for (; *n && isspace((unsigned char)*p); ++p)
    --*n;
  while (*n && isspace((unsigned char)p[*n - 1]))
    --*n;
  return p;
}

bool plan_parse(Arena *a, const char *text, int64_t ranks, Plan *out, Diag *d) {
  *out = (Plan){0};
  for (const char *p = text; p; p = strchr(p, ',')) {
    size_t n;
    p += p > text;
    const char *entry = entry_at(p, &n);
    if (!read_entry(a, entry, n, out, d)) return false;
  }
  return fit_ranks(text, ranks, out, d);
}

const char *plan_program(Arena *a, const char *plan, int i) {
  if (!plan || str_equal(plan, "auto")) return "dp";
  for (; strchr(plan, ',') && i > 0; i--)
    plan = strchr(plan, ',') + 1;
  size_t n;
  plan = entry_at(plan, &n);
  return str_copy_n(a, plan, n);
}
