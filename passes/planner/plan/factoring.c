// The number of a plan's factoring, and its text: see factoring.h for both.
//
//     dp=2,search=4    dp has one factoring of 2, search has 4, 2x2:  number 0 is dp=2,search=4
//                                                                     number 1 is dp=2,search=2x2

#include "factoring.h"

#include <inttypes.h>
#include <stdlib.h>

// All factorings of one entry of the plan; 0, having reported why.
static int open_factors(Arena *a, const PlanAxes *p, Factors out[MAX_FACTORINGS], Diag *d) {
  PlanProgram *program = program_open(a, p->program, d);
  int n = program ? program_factors(program, p->size, out) : 0;
  if (program) program_close(program);
  return n;
}

// Whether the sizes are equal, ignoring sizes of 1.
static bool has_sizes(const Factors *f, const PlanAxes *p) {
  int i = 0, k = 0;
  for (;; i++, k++) {
    while (i < f->n && f->size[i] == 1)
      i++;
    while (k < p->n_factors && p->factor[k] == 1)
      k++;
    if (i == f->n || k == p->n_factors) return i == f->n && k == p->n_factors;
    if (f->size[i] != p->factor[k]) return false;
  }
}

static const char *sizes_text(Arena *a, const Factors *f) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < f->n; i++)
    strbuf_addf(&b, "%s%" PRId64, i ? "x" : "", f->size[i]);
  if (f->n == 1) strbuf_add(&b, "x1"); // not open
  return b.at;
}

bool factoring_number(Arena *a, const Plan *plan, int *out, Diag *d) {
  const char *open = NULL;
  bool says_any = false;
  *out = FACTORING_OPEN;
  for (int i = 0; i < plan->n; i++)
    says_any |= plan->at[i].n_factors > 1;
  if (!says_any) return true;
  Factors *all = arena_array(a, Factors, MAX_FACTORINGS);
  int64_t number = 0;
  // A mixed-radix number: one digit per program, the last program's is the lowest.
  for (int i = 0; i < plan->n; i++) {
    const PlanAxes *p = &plan->at[i];
    if (p->size == 1) continue; // no axis of the mesh
    int n = open_factors(a, p, all, d), pick = 0;
    if (!n) return false;
    if (p->n_factors <= 1 && n > 1) open = p->program;
    // The entry's factoring among all of its program.
    while (p->n_factors > 1 && pick < n && !has_sizes(&all[pick], p))
      pick++;
    if (pick == n) {
      StrBuf asked = {.arena = a}, known = {.arena = a};
      for (int k = 0; k < p->n_factors; k++)
        strbuf_addf(&asked, "%s%" PRId64, k ? "x" : "", p->factor[k]);
      for (int k = 0; k < n; k++)
        strbuf_addf(&known, "%s%s", k ? ", " : "", sizes_text(a, &all[k]));
      diag_error(d, NULL, "the plan '%s' does not cut %" PRId64 " ranks into %s", p->program,
                 p->size, asked.at);
      diag_hint(d, "it cuts them into %s", known.at);
      return false;
    }
    number = number * n + pick;
    if (number > INT32_MAX) number = INT32_MAX; // more than shard tries
  }
  *out = (int)number;
  return !open || diag_error(d, NULL,
                             "the plan says into which sizes one of its programs cuts its ranks, "
                             "and '%s' leaves that open: say it of all, or of none",
                             open);
}

const char *factoring_text(Arena *a, const char *text, int64_t ranks, int number) {
  Diag *d = diag_new(stderr);
  Plan plan;
  if (!plan_parse(a, text, ranks, &plan, d)) BUG("the plan '%s' is none", text);
  Factors *all = arena_array(a, Factors, MAX_FACTORINGS);
  const char *out = "";
  // The lowest digit first: that of the last program.
  for (int i = plan.n - 1; i >= 0; i--) {
    const PlanAxes *p = &plan.at[i];
    int n = p->size > 1 ? open_factors(a, p, all, d) : 0;
    const char *sizes = n ? sizes_text(a, &all[number % n]) : str_format(a, "%" PRId64, p->size);
    if (n) number /= n;
    out = str_format(a, "%s=%s%s%s", p->program, sizes, *out ? "," : "", out);
  }
  diag_free(d);
  return out;
}
