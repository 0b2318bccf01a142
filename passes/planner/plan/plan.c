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

// The end of the program's name, where its numbers begin. A file's name may have colons.
static const char *name_end(const char *text) {
  const char *end = text;
  for (const char *at = text; (at = strstr(at, ".lua")); at++)
    end = at;
  return end + strcspn(end, ":");
}

static bool read_number(const char **at, int64_t *out) {
  char *end;
  if (!isdigit((unsigned char)**at)) return false;
  long long n = strtoll(*at, &end, 10);
  *at = end;
  *out = n;
  return n > 0 && n <= INT32_MAX;
}

// number = count ["@" layer ["-" layer]]
bool plan_call(Arena *a, const char *text, PlanCall *out, Diag *d) {
  const char *at = name_end(text);
  *out = (PlanCall){.text = text, .name = str_copy_n(a, text, (size_t)(at - text))};
  int most = 0;
  for (const char *c = at; *c; c++)
    most += *c == ':';
  if (most > MAX_NUMBERS)
    return diag_error(d, NULL, "a program takes at most %d numbers", MAX_NUMBERS);
  out->at = arena_array(a, PlanNumber, most);
  while (*at) {
    PlanNumber number = {0};
    const char *start = ++at;
    number.column = (int)(start - text) + 1;
    bool ok = read_number(&at, &number.n);
    if (ok && *at == '@') {
      at++;
      ok = read_number(&at, &number.first);
      number.last = number.first;
      if (ok && *at == '-') {
        at++;
        ok = read_number(&at, &number.last);
      }
    }
    bool whole = ok && (!*at || *at == ':');
    if (!whole || number.last < number.first) {
      if (!plan_may_have_numbers(out->name, a, d)) return false;
      int shown = (int)strcspn(start, ":");
      if (whole)
        diag_error(d, NULL, "the layers of '%.*s' of '%s' end before they begin", shown, start,
                   text);
      else
        diag_error(d, NULL, "'%.*s' of '%s' is no number with layers, such as 4 or 4@1-2", shown,
                   start, text);
      diag_hint(
          d,
          "write %s:4, or, for a program with numbers of layers, %s:4@1-4:2@5 for layers 1 to 4 "
          "and 5; numbers and layers count from 1",
          out->name, out->name);
      return false;
    }
    out->at[out->n++] = number;
  }
  return true;
}

// sizes = size {"x" size}: ranks, and their factors.
static bool read_sizes(const char *text, PlanAxes *out) {
  // No factor and no product exceeds a number of ranks, which is an int.
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
    // entry = program {":" number} ["=" sizes]
    const char *equals = memchr(entry, '=', n);
    size_t name_n = equals ? (size_t)(equals - entry) : n;
    if (out->n == MAX_PLAN) {
      diag_error(d, NULL, "a plan has at most %d programs", MAX_PLAN);
      diag_hint(d, "a program in a file can be several: its 'factors' cuts the ranks into axes, "
                   "and apply(\"tp\", axis) does along one of them what another program does");
      return false;
    }
    PlanAxes *own = &out->at[out->n];
    *own = (PlanAxes){.program = str_copy_n(a, entry, name_n)};
    if (name_n == 0) return bad_entry(entry, n, d);
    PlanCall call;
    if (!plan_call(a, own->program, &call, d)) return false;
    // Its axis has its name, or that of the file without folder and extension.
    const char *slash = strrchr(call.name, '/');
    const char *base = slash ? slash + 1 : call.name;
    size_t base_n = strlen(base) - (str_ends(base, ".lua") ? 4 : 0);
    StrBuf axis = {.arena = a};
    for (size_t i = 0; i < base_n; i++)
      strbuf_add_n(&axis, isalnum((unsigned char)base[i]) ? &base[i] : "_", 1);
    own->axis = axis.n ? axis.at : "plan";
    if (equals && !read_sizes(str_copy_n(a, equals + 1, n - name_n - 1), own))
      return bad_entry(entry, n, d);
    // The axis name is the program's, so a program may appear only once.
    for (int i = 0; i < out->n; i++)
      if (str_equal(out->at[i].axis, own->axis))
        return diag_error(d, NULL, "the plan has '%s' twice", own->axis);
    out->n++;
  }
  // The one entry without a size gets the remaining factor of the ranks.
  int64_t product = 1;
  PlanAxes *open = NULL;
  for (int i = 0; i < out->n; i++) {
    PlanAxes *own = &out->at[i];
    if (!own->size && open) {
      diag_error(d, NULL, "the plan '%s' does not say how many ranks '%s' and '%s' have", text,
                 open->program, own->program);
      diag_hint(d, "one of its programs may leave that open, as %s=2,%s", open->program,
                own->program);
      return false;
    }
    if (!own->size)
      open = own;
    else if (__builtin_mul_overflow(product, own->size, &product))
      return diag_error(d, NULL, "the plan '%s' is for too many ranks", text);
  }
  if (open && ranks % product == 0) open->size = ranks / product;
  if (open ? ranks % product == 0 : product == ranks) return true;
  diag_error(d, NULL, "the plan '%s' is for %s%" PRId64 " rank%s, not for %" PRId64, text,
             open ? "multiples of " : "", product, product == 1 ? "" : "s", ranks);
  diag_hint(d, "the sizes in a plan multiply to the ranks of -g");
  return false;
}

const char *plan_program(Arena *a, const char *plan, int i) {
  // Without a plan, rows are split over all ranks.
  if (!plan || str_equal(plan, "auto")) return "dp";
  for (; strchr(plan, ',') && i > 0; i--)
    plan = strchr(plan, ',') + 1;
  size_t n;
  plan = entry_at(plan, &n);
  return str_copy_n(a, plan, n);
}
