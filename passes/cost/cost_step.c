// See cost_step.h.
//
// The parts of a step run one after the other.  Each part is a program per class (step_programs.c),
// and all classes are simulated together (step_walk.c).  Without a schedule, slices are simulated
// until two take the same time; the others are extrapolated, unless a timeline is recorded.

#include "cost_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "ir/analysis/deferred.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "step_state.h"

// -- Micro-batches ---------------------------------------------------------------------------

// The change of a class's clocks and costs over one micro-batch.
typedef struct Advance {
  double now, queued;
  RankCost cost;
} Advance;

static bool same(double a, double b, double scale) {
  return fabs(a - b) <= 1e-9 * scale;
}

// Whether the loop is steady: every class repeats its previous micro-batch, and all classes take
// the same time.  Then only the clocks advance.  `last` becomes the advance of this micro-batch.
static bool is_steady(const StepState *s, const Class *before, Advance *last) {
  double all = 0;
  bool steady = true;
  for (int i = 0; i < s->n_classes; i++) {
    const Class *k = &s->class_at[i], *was = &before[i];
    Advance is = {k->now - was->now,
                  k->queue[QUEUE_here].until - was->queue[QUEUE_here].until,
                  {k->cost.compute - was->cost.compute, k->cost.comm - was->cost.comm,
                   k->cost.idle - was->cost.idle}};
    // A class without work in the loop does not count.
    if (all == 0) all = is.now;
    steady &= same(is.now, last[i].now, all) && same(is.queued, last[i].queued, all) &&
              same(is.cost.idle, last[i].cost.idle, all) && (is.now == 0 || same(is.now, all, all));
    last[i] = is;
  }
  return steady;
}

static bool run_part(StepState *s, const Program *of_class, StepPart part, int slice) {
  for (int k = 0; k < s->n_classes; k++)
    if (of_class[k].step.n) vec_push(s->a, &s->class_at[k].task, (Task){&of_class[k], slice});
  return step_walk(s, part, slice == 0);
}

static bool run_slices(StepState *s) {
  int n = module_slices(s->m);
  const Program *first = step_part_programs(s, STEP_micro, true);
  const Program *others = n > 1 ? step_part_programs(s, STEP_micro, false) : NULL;
  Class *before = arena_array(s->a, Class, s->n_classes);
  Advance *last = arena_array(s->a, Advance, s->n_classes);
  for (int i = 0; i < n; i++) {
    memcpy(before, s->class_at, sizeof *before * (size_t)s->n_classes);
    if (!run_part(s, i ? others : first, STEP_micro, i)) return false;
    // A timeline records every slice.
    if (s->timeline || !is_steady(s, before, last)) continue;
    // The other slices are extrapolated.  A loop without a schedule has no moves in QUEUE_ahead.
    int times = n - 1 - i;
    for (int c = 0; c < s->n_classes; c++) {
      Class *k = &s->class_at[c];
      const Advance *by = &last[c];
      Queue *q = &k->queue[QUEUE_here];
      k->now += times * by->now;
      k->cost.compute += times * by->cost.compute;
      k->cost.comm += times * by->cost.comm;
      k->cost.idle += times * by->cost.idle;
      q->until += times * by->queued;
      for (int x = 0; x < q->busy.n && by->queued > 0; x++) {
        q->busy.at[x].from += times * by->now;
        q->busy.at[x].to += times * by->now;
      }
    }
    break;
  }
  return true;
}

// -- The step --------------------------------------------------------------------------------

static void report_ranks(const StepState *s, StepCost *out) {
  double idle = 0;
  out->rank = arena_array(s->a, const RankCost *, s->n_devices);
  for (int i = 0; i < s->n_devices; i++) {
    out->rank[i] = &s->class_at[s->class_of[s->device[i]]].cost;
    idle += out->rank[i]->idle;
  }
  out->bubble = out->seconds > 0 ? idle / (s->n_devices * out->seconds) : 0;
}

static bool walk_parts(StepState *s) {
  for (int i = 0; i < s->n_classes; i++)
    s->class_at[i].first = INFINITY;
  if (!run_part(s, step_part_programs(s, STEP_begin, true), STEP_begin, 0)) return false;
  // Under a schedule each class has a run of its own, else all go through the slices together.
  if (s->g->schedule ? !step_add_runs(s) || !step_walk(s, STEP_micro, true) : !run_slices(s))
    return false;
  return run_part(s, step_part_programs(s, STEP_update, true), STEP_update, 0);
}

// -- Steps without a barrier in between --------------------------------------------------------

// Ends the step for all ranks at once, since they exchange their status once a step (rt/step.c).
// Returns the time.
static double end_of_step(StepState *s) {
  double end = 0;
  for (int i = 0; i < s->n_classes; i++)
    end = fmax(end, s->class_at[i].now);
  step_end(s, end);
  return end;
}

// Copies transfers in flight at the end of a step to its beginning, since all steps are equal.
static void wrap_timeline(StepState *s, double from, double seconds) {
  StepTimeline *t = s->timeline;
  StepTimeline all = {0};
  for (int pass = 0; t && pass < 2; pass++)
    for (int i = 0; i < t->event.n; i++) {
      StepEvent e = t->event.at[i];
      e.from -= from;
      e.to -= from;
      // Pass 0 adds the ends of those transfers, pass 1 all events, cut off at the end of the step.
      bool over = e.line != LINE_computes && e.to > seconds;
      if (pass == 0 && !over) continue;
      if (pass == 0) {
        e.from = fmax(e.from - seconds, 0);
        e.to -= seconds;
        e.before = true;
      }
      if (pass == 1 && over) e.to = seconds;
      if (e.from <= e.to) vec_push(s->a, &all.event, e);
    }
  if (t) memcpy(&t->event, &all.event, sizeof t->event);
}

// Simulates steps until two take the same time, then one more, which is the result.
static bool run_steady(StepState *s, StepCost *out) {
  enum { MOST = 32 };
  RankCost *cost = arena_array(s->a, RankCost, s->n_classes);
  StepTimeline *timeline = s->timeline;
  double from = 0, last = 0, seconds = 0;
  bool steady = false;
  // The first steps start without all_reduces in flight, so they are not representative.
  s->timeline = NULL;
  for (int i = 0; i < MOST && !steady; i++) {
    if (!walk_parts(s)) return false;
    double end = end_of_step(s);
    // The next step waits for the transfers that this one leaves in flight.
    for (int k = 0; k < s->n_classes; k++)
      for (int x = 0; x < s->events.n; x++)
        if (s->events.at[x].in_flight && s->class_at[k].done[x])
          s->class_at[k].before[x] = s->class_at[k].done[x][0];
    last = seconds;
    seconds = end - from;
    from = end;
    steady = i > 0 && same(seconds, last, seconds);
  }
  // Costs accumulate over steps: those of the last step are the difference.
  for (int i = 0; i < s->n_classes; i++)
    cost[i] = s->class_at[i].cost;
  s->timeline = timeline;
  if (!walk_parts(s)) return false;
  *out = (StepCost){.n_ranks = s->n_devices, .device = s->device};
  out->seconds = out->span = end_of_step(s) - from;
  for (int i = 0; i < s->n_classes; i++) {
    RankCost *is = &s->class_at[i].cost;
    *is =
        (RankCost){is->compute - cost[i].compute, is->comm - cost[i].comm, is->idle - cost[i].idle};
  }
  wrap_timeline(s, from, out->seconds);
  report_ranks(s, out);
  return true;
}

static bool run_step(StepState *s, StepCost *out) {
  s->prices = comm_prices_new(s->a, s->c);
  s->is_queued = arena_array(s->a, bool, s->n_devices);
  s->n_rooms = s->g->schedule ? module_slices(s->m) : 1;
  step_find_classes(s);
  step_add_events(s);
  if (graph_first_deferred(s->g)) return run_steady(s, out);
  if (!walk_parts(s)) return false;
  // The step ends with the last class: with its ops and both of its queues.
  *out = (StepCost){.n_ranks = s->n_devices, .device = s->device};
  for (int i = 0; i < s->n_classes; i++) {
    const Class *k = &s->class_at[i];
    double last = fmax(k->now, fmax(k->queue[QUEUE_here].until, k->queue[QUEUE_ahead].until));
    out->seconds = fmax(out->seconds, last);
    if (k->first < last) out->span = fmax(out->span, last - k->first);
  }
  step_end(s, out->seconds);
  report_ranks(s, out);
  return true;
}

// Returns false if the cluster is unknown or lacks a device of the module.
static bool state_new(StepState *s) {
  if (!s->g || s->m->phase < PHASE_local || !cost_known(s->c)) return false;
  s->device = module_devices(s->m, s->a, &s->n_devices);
  for (int i = 0; i < s->n_devices; i++)
    if (s->device[i] >= cluster_devices(s->c)) return false;
  return true;
}

bool step_cost(const Module *m, const Cluster *c, Target target, Arena *a, StepCost *out) {
  StepState s = {.m = m, .g = m->graphs, .c = c, .target = target, .a = a};
  return state_new(&s) && run_step(&s, out);
}

StepCost *step_cost_copy(const StepCost *cost, Arena *a) {
  StepCost *copy = arena_copy(a, cost, sizeof *cost);
  copy->device = arena_copy(a, cost->device, sizeof *cost->device * (size_t)cost->n_ranks);
  copy->rank = arena_array(a, const RankCost *, cost->n_ranks);
  // Ranks of a class are mostly neighbours, and share a cost.
  for (int i = 0; i < cost->n_ranks; i++)
    copy->rank[i] = i && cost->rank[i] == cost->rank[i - 1]
                        ? copy->rank[i - 1]
                        : arena_copy(a, cost->rank[i], sizeof *cost->rank[i]);
  return copy;
}

// -- Timelines ---------------------------------------------------------------------------------

static int by_number(const void *x, const void *y) {
  int a = *(const int *)x, b = *(const int *)y;
  return (a > b) - (a < b);
}

bool step_timeline(const Module *m, const Cluster *c, Target target, Arena *a, StepTimeline *out) {
  *out = (StepTimeline){0};
  StepState s = {.m = m, .g = m->graphs, .c = c, .target = target, .a = a, .timeline = out};
  if (!state_new(&s) || !run_step(&s, &out->cost)) return false;
  // A lane per class, in the order of their first devices.
  int *device = arena_copy(a, s.device, sizeof *device * (size_t)s.n_devices);
  int *lane_of = arena_array(a, int, s.n_classes);
  qsort(device, (size_t)s.n_devices, sizeof *device, by_number);
  out->lane = arena_array(a, StepLane, s.n_classes);
  for (int k = 0; k < s.n_classes; k++)
    lane_of[k] = -1;
  for (int i = 0; i < s.n_devices; i++) {
    int k = s.class_of[device[i]];
    if (lane_of[k] < 0) {
      lane_of[k] = out->n_lanes++;
      out->lane[lane_of[k]] =
          (StepLane){.device = arena_array(a, int, s.n_devices), .cost = &s.class_at[k].cost};
    }
    StepLane *lane = &out->lane[lane_of[k]];
    lane->device[lane->n_devices++] = device[i];
  }
  // The simulation recorded classes.
  for (int i = 0; i < out->event.n; i++)
    out->event.at[i].lane = lane_of[out->event.at[i].lane];
  return true;
}
