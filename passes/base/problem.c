// Kinds of problems, and lists of problems that are reported together: see problem.h.

#include "base/problem.h"

#include <string.h>

#include "base/table.h"

enum { MOST_PLACES = 3 }; // shown of a cause

const ProblemInfo problem_info[N_PROBLEMS] = {
#define PROBLEM(code, name, sentence, way_out) [PROBLEM_##name] = {code, #name, sentence, way_out},
#include "base/problems.def"
};

void problem_add(ProblemList *list, ModelProblem p) {
  vec_push(list->arena, &list->all, p);
}

// Problems of one cause: indices into a list, linked by `next` in their order.
typedef struct Cause {
  int first, last, n;
} Cause;

static void report_cause(const ProblemList *list, const Cause *c, const int *next, Diag *d) {
  const ModelProblem *p = &list->all.at[c->first];
  // One error, at its first place; notes name the others.
  if (c->n == 1)
    diag_problem(d, p->kind, p->loc, "%s", p->cause);
  else
    diag_problem(d, p->kind, p->loc, "%s (%d nodes)", p->cause, c->n);
  diag_cause(d, p->cause, p->op, p->domain, p->opset);
  int shown = 0;
  for (int i = c->first, k = 0; k < c->n; i = next[i], k++) {
    const ModelProblem *at = &list->all.at[i];
    bool prints = (at->detail || k > 0) && shown < MOST_PLACES;
    diag_place(d, at->loc, at->detail, prints);
    shown += prints;
  }
  if (c->n > MOST_PLACES) diag_more_places(d, c->n - MOST_PLACES);
  if (p->hint) diag_hint(d, "%s", p->hint);
}

bool problems_report(const ProblemList *list, int from, Diag *d) {
  Arena *a = arena_new();
  Table *found = table_new(a);
  Vec(Cause *) causes = {0};
  int *next = arena_array(a, int, list->all.n);
  // Problems with the same cause form a list, in the order of their first occurrence.
  for (int i = from; i < list->all.n; i++) {
    const ModelProblem *p = &list->all.at[i];
    Cause *c = table_find(found, (int)p->kind, p->cause);
    if (c) {
      next[c->last] = i;
    } else {
      c = arena_one(a, Cause);
      c->first = i;
      table_add(found, (int)p->kind, p->cause, c);
      vec_push(a, &causes, c);
    }
    c->last = i;
    c->n++;
  }
  for (int i = 0; i < causes.n; i++)
    report_cause(list, causes.at[i], next, d);
  arena_free(a);
  return list->all.n <= from;
}
