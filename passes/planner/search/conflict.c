// The constraints that leave a search no solution: see solved.h.
//
//     op_trans(fc, "0", axis)         then every weight of fc and proj is replicated, which exceeds
//     op_trans(proj, "0", axis)       a device's memory; either line alone is feasible
//     search(axis)
//
// Constraints are removed line by line, as one line may hold for every layer, as long as the rest
// is still infeasible (constraints.h). Each attempt searches for any plan at all. A set that takes
// too long to refute counts as feasible, so the result may have a line too many, but none that is
// unrelated.

#include <string.h>

#include "base/clock.h"
#include "ir/analysis/op_names.h"
#include "ir/op.h"
#include "problem.h"
#include "sharding/constraints.h"
#include "sharding/decide.h"
#include "solved.h"
#include "splits.h"

enum { SECONDS_EACH = 2, SECONDS_ALL = 30, MAX_LINES = 64 };
#define ANY_PLAN 1e9 // a gap that any plan is within

// One line of a program, and an op or parameter that it constrains.
typedef struct Line {
  const Loc *loc;
  const Op *op;
  const Value *v;
  int n; // ops or parameters that it constrains
} Line;

typedef struct Conflict {
  const Problem *p;
  Vec(Line) lines;
  double end; // in processor seconds; a set not refuted by then counts as feasible
} Conflict;

// -- Lines ------------------------------------------------------------------------------------

static int find_line(const Conflict *c, const Loc *loc) {
  for (int i = 0; loc && i < c->lines.n; i++)
    if (loc_same(c->lines.at[i].loc, loc)) return i;
  return -1;
}

static void add_line(Conflict *c, const Loc *loc, const Op *op, const Value *v) {
  int i = find_line(c, loc);
  if (i >= 0)
    c->lines.at[i].n++;
  else if (loc && c->lines.n < MAX_LINES)
    vec_push(c->p->scratch, &c->lines, (Line){loc, op, v, 1});
}

// -- Problem without some lines ---------------------------------------------------------------

static bool is_out(const Conflict *c, const bool *kept, const Loc *loc) {
  int i = find_line(c, loc);
  return i >= 0 && !kept[i];
}

static const Constraint *constraint_without(const Conflict *c, const bool *kept,
                                            const Constraint *constraint) {
  if (!constraint) return NULL;
  const Constraint *before = constraint_without(c, kept, constraint->before);
  if (is_out(c, kept, constraint->line)) return before;
  Constraint *copy = arena_copy(c->p->scratch, constraint, sizeof *constraint);
  copy->before = before;
  return copy;
}

// Returns the constraints without the removed lines. Also sets Op.split, which is in the graph.
static const Sharding *without(const Conflict *c, const bool *kept) {
  Sharding *s = sharding_copy(c->p->s);
  for (int k = 0; k < c->p->n_axes; k++) {
    int a = c->p->axis[k];
    for_each_op(op, s->g) {
      s->constraints.op[op->id][a] = constraint_without(c, kept, s->constraints.op[op->id][a]);
      // A decision of a removed line is open again.
      if (is_out(c, kept, s->decisions.fixed_by[op->id][a])) reopen_split(s, op, a);
    }
    for (int i = 0; i < s->g->n_params; i++) {
      const Value *v = s->g->params[i];
      s->constraints.value[v->id][a] = constraint_without(c, kept, s->constraints.value[v->id][a]);
      if (s->decisions.param[v->id][a] != PARAM_open &&
          is_out(c, kept, s->decisions.param_by[v->id][a]))
        reopen_layout(s, v, a);
    }
  }
  return s;
}

static bool is_possible(void *context, const bool *kept) {
  const Conflict *c = context;
  if (thread_seconds() > c->end) return true;
  // Op.split changes with the removed lines and under the choices; it is restored after.
  SavedSplits before = splits_save(c->p->s);
  Problem p = problem_about(c->p, without(c, kept));
  // Only a proof that there is no plan refutes the set.
  p.options = (SolverOptions){.seconds = SECONDS_EACH, .gap = ANY_PLAN};
  bool possible = false;
  if (choices_make(&p)) {
    SolverResult found = search_any(&p);
    possible = found.choice || found.status != SOLVER_infeasible;
  }
  splits_restore(&before);
  return possible;
}

// -- Notes ------------------------------------------------------------------------------------

bool search_conflict(const Problem *p, Diag *d) {
  Conflict c = {.p = p, .end = thread_seconds() + SECONDS_ALL};
  // Each line that constrains an op or a parameter along a searched axis.
  const Sharding *s = c.p->s;
  for (int k = 0; k < c.p->n_axes; k++) {
    int a = c.p->axis[k];
    for_each_op(op, s->g) {
      add_line(&c, s->decisions.fixed_by[op->id][a], op, NULL);
      for (const Constraint *constraint = s->constraints.op[op->id][a]; constraint;
           constraint = constraint->before)
        add_line(&c, constraint->line, op, NULL);
    }
    for (int i = 0; i < s->g->n_params; i++) {
      const Value *v = s->g->params[i];
      if (s->decisions.param[v->id][a] != PARAM_open)
        add_line(&c, s->decisions.param_by[v->id][a], NULL, v);
      for (const Constraint *constraint = s->constraints.value[v->id][a]; constraint;
           constraint = constraint->before)
        add_line(&c, constraint->line, NULL, v);
    }
  }
  // Lines without which the rest is feasible are kept.
  bool *kept = arena_array(p->scratch, bool, c.lines.n + 1);
  if (!c.lines.n || !is_possible(&c, kept)) return false; // infeasible without constraints, too
  memset(kept, true, (size_t)c.lines.n);
  keep_least(kept, c.lines.n, is_possible, &c);
  // Each line of the minimal set, with one op or parameter that it constrains.
  for (int i = 0; i < c.lines.n; i++) {
    const Line *line = &c.lines.at[i];
    if (!kept[i]) continue;
    const char *more = line->n > 1 ? str_format(p->scratch, ", and of %d more", line->n - 1) : "";
    if (line->op)
      diag_note(d, line->loc, "it was said here of %s '%s'%s", op_info[line->op->kind].name,
                op_node(line->op), more);
    else
      diag_note(d, line->loc, "it was said here of '%s'%s", line->v->label, more);
  }
  return true;
}
