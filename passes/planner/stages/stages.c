// See stages.h.
//
// In this order: the units, the checks of the options (options.c), the candidate runs (runs.c), the
// solution (solution.c, dealt.c), and its effects on ops and parameters (write_stages.c). Nothing
// of the program changes before the last step. The time goes to the solver, and to the hint after a
// request for too many stages, which solves for fewer and fewer.

#include "stages.h"

#include "batch_letter.h"
#include "cost/cost.h"
#include "forwards.h"
#include "placing.h"
#include "sharding/assign.h"

// An axis is placed once. Costs need the speeds of a device for each rank.
static bool check_axis(const Sharding *s, int axis, const Loc *why, Diag *d) {
  const Cluster *c = s->env.cluster;
  if (s->decisions.placed[axis].why) {
    diag_error(d, why, "%s is placed already", s->mesh->axis[axis].name);
    diag_note(d, s->decisions.placed[axis].why, "here");
    return false;
  }
  if (!cost_known(c))
    return diag_error(
        d, why, "'%s' does not say how fast its devices are: give memory_speed and f32", c->name);
  return s->mesh->n_devices <= cluster_devices(c) ||
         diag_error(d, why, "'%s' has %d devices for %d ranks", c->name, cluster_devices(c),
                    s->mesh->n_devices);
}

// Finds the units of the model; with chunks every rank counts as several.
static void find_units(Placing *p, int forwards, bool chain) {
  const StageOptions *w = p->wish;
  bool chunks = w->chunks > 1;
  if (chunks) p->n_ranks *= w->chunks;
  p->batch = splittable_batch_dims(p->s, p->s->scratch);
  UnitOptions units = {forwards * (w->n ? w->n : p->n_ranks),
                       forwards > 1,
                       w->ways || w->pieces,
                       chunks,
                       chain,
                       w->among,
                       w->dealt};
  p->units = units_find(p->s, p->axis, &units, p->s->scratch);
}

// Finds the candidate runs, and the loads of all units on each. Returns the ranks of chunks; NULL:
// each rank has one stage.
static const Run *load_runs(Placing *p) {
  const StageOptions *w = p->wish;
  const Run *on = w->chunks > 1 ? placing_chunk_runs(p) : NULL;
  if (!on) placing_find_runs(p, w);
  p->loads = loads_new(p->s, p->axis, &p->units, p->batch, on ? on : p->run, p->n_runs, NULL,
                       p->s->scratch);
  p->loads->p.n_stages = on ? p->n_ranks : w->n;
  if (on) placing_chunk_loads(p, on);
  // With two ways every rank has a stage of each.
  for (int i = 0; i < p->n_runs && w->ways; i++)
    p->loads->p.limit[i] /= 2;
  return on;
}

// Records that the axis is placed, for its explanation and for other graphs.
static void record_placed(const Placing *p, const Stages *out) {
  const Sharding *s = p->s;
  bool *on_stages = arena_array(s->scratch, bool, s->g->n_ops);
  for_each_op(op, s->g)
    on_stages[op->id] = p->units.of_op[op->id] >= 0;
  struct Placed placed = {p->why, out->n, out->size, p->load.slowest, 0};
  for (int i = 0; i < p->n_runs; i++)
    if (p->load.seconds[i] > 0 && p->load.bytes[i] > placed.bytes) placed.bytes = p->load.bytes[i];
  assign_placed(p->s, p->axis, &placed, on_stages);
}

bool stages_place(Sharding *s, int axis, const StageOptions *wish, const Loc *why, Stages *out,
                  Diag *d) {
  Placing p = {.s = s, .axis = axis, .why = why, .wish = wish, .n_ranks = s->mesh->axis[axis].size};
  *out = (Stages){0};
  if (!check_axis(s, axis, why, d)) return false;
  // Other graphs are placed like the first.
  if (s->first) {
    const struct Placed *placed = &s->first->decisions.placed[axis];
    placing_as_first(s, axis, why);
    assign_placed(s, axis, placed, NULL);
    *out = (Stages){.n = placed->n_stages, .size = placed->size};
    return true;
  }
  int forwards = wish->forwards > 1 ? wish->forwards : 1;
  bool chain = placing_is_chain(s, wish, p.n_ranks);
  find_units(&p, forwards, chain);
  if (!placing_check(&p, d)) return false;
  if (forwards > 1 && !forwards_check(s, forwards, why, d)) return false;
  const Run *on = load_runs(&p);
  // Other schedules have other numbers of micro-batches in flight.
  bool solved = chain && !wish->dealt && placing_solve_chain(&p, out);
  bool closely = !on && !wish->ways && !wish->pieces && forwards == 1;
  if (!solved && closely && !wish->dealt) placing_limit_closely(&p);
  if (!solved &&
      (wish->dealt ? !placing_take_dealt(&p, closely, out, d) : !placing_solve(&p, out, d)))
    return false;
  if (s->env.explain) out->searched.explained = placing_explain(&p, s->env.explain);
  if (on) p.run = on;
  placing_write(&p);
  record_placed(&p, out);
  return true;
}
