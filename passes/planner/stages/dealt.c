// Stages to which a program deals ops itself: {deal = {list, …}}.

#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "placing.h"

// The place of an error about the ops of a stage, from 1: its number in the plan's text, if there
// is one, or else the line that places it.
static const Loc *stage_loc(const Placing *p, int stage) {
  const Loc *number = p->wish->number ? p->wish->number[stage - 1] : NULL;
  return number ? number : p->why;
}

// Returns the runs of units that a program deals to stages; NULL, with an error reported, if an op
// would be on a stage before one that it depends on.
static const int *dealt_runs(const Placing *p, Diag *d) {
  int n = p->units.n, *run_of = arena_array(p->s->scratch, int, n);
  const Op **by = arena_array(p->s->scratch, const Op *, n); // the op with the unit's stage
  for_each_op(op, p->s->g) {
    int unit = op_part(op) == PART_forward ? p->units.of_op[op->id] : UNIT_none;
    int stage = p->wish->dealt[op->id];
    if (unit < 0 || !stage) continue;
    if (by[unit] && run_of[unit] != stage - 1) {
      int other = run_of[unit] + 1, earlier = stage < other ? stage : other;
      diag_error(d, stage_loc(p, earlier),
                 "%s is dealt to stage %d, and stays with one of stage %d", op_info[op->kind].name,
                 stage, other);
      diag_note(d, op->loc, "this one");
      diag_note(d, by[unit]->loc, "of stage %d", other);
      if (p->wish->number)
        diag_hint(d, "no stage can end between these two: give stage %d another number of layers",
                  earlier);
      return NULL;
    }
    if (!by[unit]) by[unit] = op;
    run_of[unit] = stage - 1;
  }
  // Units of no list are on the stage of the one before them, and no stage is empty.
  for (int u = 1; u < n; u++)
    if (!by[u]) run_of[u] = run_of[u - 1];
  for (int r = 0; r < p->n_runs; r++) {
    bool used = false;
    for (int u = 0; u < n; u++)
      used |= run_of[u] == r;
    if (used) continue;
    diag_error(d, stage_loc(p, r + 1), "nothing is dealt to stage %d of %d that can be placed",
               r + 1, p->n_runs);
    return NULL;
  }
  // Values go forward only.
  for_each_op(op, p->s->g) {
    int unit = op_part(op) == PART_forward ? p->units.of_op[op->id] : UNIT_none;
    for (int i = 0; unit >= 0 && i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      int from = def ? p->units.of_op[def->id] : UNIT_none;
      if (from < 0 || run_of[from] <= run_of[unit]) continue;
      diag_error(d, stage_loc(p, run_of[unit] + 1),
                 "%s is on stage %d, and reads a result of stage %d", op_info[op->kind].name,
                 run_of[unit] + 1, run_of[from] + 1);
      diag_note(d, op->loc, "this one");
      diag_note(d, def->loc, "it reads this");
      return NULL;
    }
  }
  return run_of;
}

bool placing_take_dealt(Placing *p, bool closely, Stages *out, Diag *d) {
  p->run_of = dealt_runs(p, d);
  if (!p->run_of) return false;
  if (closely) placing_limit_dealt(p);
  p->load = partition_load(p->s->scratch, &p->loads->p, p->run_of);
  out->size = placing_sizes(p, &out->n);
  return true;
}
