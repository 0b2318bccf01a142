// See fit_kind.h.

#include "fit_kind.h"

#include <math.h>
#include <string.h>

struct Fitted {
  const Segments *segments;
  const int *stage; // of each stage of the kind, ours
  SegmentList *of;  // by kind of work and our stage
};

bool fit_declined(const Fit *f, const char *why) {
  if (!f->asked) return false;
  return diag_error(f->d, NULL, "the schedule '%s' does not fit the plan: %s", f->kind, why);
}

int fit_places(const Fit *f) {
  bool *there = arena_array(f->arena, bool, f->segments->n_sets);
  int n = 0;
  for (int i = 0; i < f->segments->n_stages; i++) {
    n += !there[f->segments->at[i].set];
    there[f->segments->at[i].set] = true;
  }
  return n;
}

static SchedulePlan *plan_for(const Fit *f, const ScheduleText *text, int chunks, int n_devices) {
  ScheduleAsk ask = {n_devices, f->slices, chunks, 1, 1, 1, 0, 0, INFINITY};
  return schedule_plan(f->arena, text, &ask, f->d);
}

// Which of our stages each of the kind's is: those that follow each other on one device are one.
static int *join_stages(const Fit *f, const Shape *shape, int *n) {
  int *of = arena_array(f->arena, int, shape->n_stages);
  *n = 0;
  for (int i = 0; i < shape->n_stages; i++) {
    bool joined = i > 0 && shape->device[i] == shape->device[i - 1];
    of[i] = joined ? of[i - 1] : (*n)++;
  }
  return of;
}

// Whether stages are where the kind wants them: on the same ranks for all slices, and two on one
// device where the plan has them on the same ranks.
static bool check_places(const Fit *f, const Shape *shape, bool one_each) {
  int n;
  const Segment *stage = f->segments->at;
  const int *of = join_stages(f, shape, &n);
  for (int m = 1; m < shape->n_micro_batches; m++)
    if (memcmp(shape->device, shape->device + (size_t)m * (size_t)shape->n_stages,
               (size_t)shape->n_stages * sizeof *shape->device) != 0)
      return fit_declined(f, "in it a stage is on other ranks for other slices");
  for (int i = 0; i < shape->n_stages && !one_each; i++)
    for (int k = 0; k < i; k++)
      if ((shape->device[i] == shape->device[k]) != (stage[of[i]].set == stage[of[k]].set))
        return fit_declined(f,
                            str_format(f->arena, "stages %d and %d are %s the same ranks in it", k,
                                       i, shape->device[i] == shape->device[k] ? "on" : "not on"));
  return true;
}

static void miscounted(const Fit *f, int wanted, int places, int chunks) {
  int n = f->segments->n_stages;
  fit_declined(f, str_format(f->arena,
                             "it has %d stages on %d ranks or groups of them, and there are %d",
                             wanted, places, n));
  if (f->asked && n == places)
    diag_hint(f->d, "place(axis, {chunks = %d}) puts several on each", chunks > 1 ? chunks : 2);
}

bool fit_kind(Fit *f) {
  int chunks, n_stages = f->segments->n_stages, places = fit_places(f);
  const ScheduleText *text = schedule_kind(f->arena, f->kind, &chunks);
  if (!text) {
    diag_error(f->d, NULL, "there is no schedule '%s'", f->kind);
    diag_hint(f->d, "the schedules are %s, search; interleaved:2 has 2 chunks on each rank",
              schedule_names(f->arena));
    return false;
  }
  SchedulePlan *plan = plan_for(f, text, chunks, places);
  bool one_each = plan && plan->shape.n_stages == places;
  // Orders of stages that are on a device each are as good where some share theirs.
  if (one_each && n_stages != places) plan = plan_for(f, text, chunks, n_stages);
  if (!plan) return false;
  const Shape *shape = &plan->shape;
  int n_joined;
  join_stages(f, shape, &n_joined);
  if (shape->embedding || shape->forwards > 1)
    fit_declined(f, "it is of models with an embedding on all ranks, or with several forwards");
  else if (n_joined != n_stages)
    miscounted(f, n_joined, places, chunks);
  else if (check_places(f, shape, one_each))
    f->plan = plan;
  return f->plan != NULL;
}

Fitted *fit_segments(const Fit *f, const Segments *segments) {
  Fitted *to = arena_one(f->arena, Fitted);
  int n;
  to->segments = segments;
  to->stage = join_stages(f, &f->plan->shape, &n);
  to->of = arena_array(f->arena, SegmentList, N_WORK_KINDS * (segments->n_stages + 1));
  for (int i = 0; i < segments->n; i++) {
    const Segment *k = &segments->at[i];
    SegmentList *list = &to->of[(int)k->kind * segments->n_stages + k->stage];
    if (!list->at) list->at = arena_array(f->arena, int, segments->n);
    list->at[list->n++] = i;
  }
  return to;
}

const SegmentList *fitted_to(const Fitted *f, const Work *work) {
  return &f->of[(int)work->kind * f->segments->n_stages + f->stage[work->stage]];
}
