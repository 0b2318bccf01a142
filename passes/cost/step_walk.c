// When what classes of ranks do is: see step_state.h.
//
// A class has two hands: its ops, one after the other, and its queue of what moves data, one job
// after the other.  Each goes on until it needs what is not known yet: ops wait for jobs of their
// own queue, jobs for others that have a part in them.  Times are maxima and sums of such, so it
// does not matter who goes on first; a class goes on whenever something that it has a part in
// becomes known.

#include <math.h>

#include "ir/op.h"
#include "step_state.h"

// -- What ranks do with their time -------------------------------------------------------------

// What takes no time is not seen; of what is moved it is told all the same.
static void record(StepState *s, const Class *k, StepEvent e) {
  if (!s->timeline || (e.to <= e.from && !e.moves)) return;
  e.lane = (int)(k - s->class_at);
  if (e.part != STEP_micro) e.slice = -1;
  vec_push(s->a, &s->timeline->event, e);
}

// For how long of this time the queue was busy.
static double busy_seconds(Class *k, double from, double to) {
  double seconds = 0;
  while (k->past < k->busy.n && k->busy.at[k->past].to <= from)
    k->past++;
  for (int i = k->past; i < k->busy.n && k->busy.at[i].from < to; i++)
    seconds += fmin(k->busy.at[i].to, to) - fmax(k->busy.at[i].from, from);
  return seconds;
}

void step_wait_until(Class *k, double time) {
  if (time <= k->now) return;
  double idle = time - k->now - busy_seconds(k, k->now, time);
  k->cost.idle += fmax(idle, 0);
  k->now = time;
}

static void compute(StepState *s, Class *k, const Event *e, const Task *task) {
  double seconds = e->computes[k - s->class_at];
  k->first = fmin(k->first, k->now);
  record(s, k,
         (StepEvent){.op = e->op,
                     .segment = task->program->segment,
                     .part = e->part,
                     .slice = task->slice,
                     .from = k->now,
                     .to = k->now + seconds});
  k->now += seconds;
  k->cost.compute += seconds;
}

// Copies in one direction follow one another, beside all else.
static void copy(Class *k, const Event *e, int event, double seconds) {
  double *busy = &k->copying[e->op->kind == OP_swap_in];
  k->copied[event] = *busy = fmax(*busy, k->now) + seconds;
}

// -- Queues ------------------------------------------------------------------------------------

static void go_on(StepState *s, int k) {
  if (s->is_todo[k]) return;
  s->is_todo[k] = true;
  vec_push(s->a, &s->todo, k);
}

static void wake(StepState *s, const Event *e, int set) {
  bool both = e->op->kind == OP_move;
  for (int i = both ? 0 : set; i <= (both ? 1 : set); i++)
    for (int j = 0; j < e->meeting->set[i].n; j++)
      go_on(s, e->meeting->set[i].at[j]);
}

// On processors only those that send come to a move: what is sent is there when the last has sent
// it.
static bool only_senders(const StepState *s, const Event *e) {
  return e->op->kind == OP_move && s->target == TARGET_cpu;
}

static void come(StepState *s, const Event *e, Job *job, Meet *meet, double begin) {
  job->has_come = true;
  if (only_senders(s, e) && !job->step->sends) return;
  meet->latest = fmax(meet->latest, only_senders(s, e) ? begin + e->seconds : begin);
  if (++meet->n_come == meet->n_wanted) wake(s, e, job->step->meet);
}

// When the job ends that could begin then; NAN: that is not known yet.
static double end_of(const StepState *s, const Event *e, const Job *job, const Meet *meet,
                     double begin) {
  bool all = meet->n_come == meet->n_wanted;
  if (!only_senders(s, e)) return all ? meet->latest + e->seconds : NAN;
  double own = job->step->sends ? begin + e->seconds : begin;
  if (!job->step->gets) return own;
  return all ? fmax(own, meet->latest) : NAN;
}

// Does the next job, if it is known when it ends.
static bool do_job(StepState *s, Class *k) {
  if (k->n_done == k->job.n) return false;
  Job *job = &k->job.at[k->n_done];
  const Event *e = &s->events.at[job->step->event];
  int room = step_room(s, e->part, job->slice);
  Meet *meet = &e->meet[job->step->meet * (step_room(s, e->part, -1) + 1) + room];
  double begin = fmax(job->since, k->queued);
  if (!job->has_come) come(s, e, job, meet, begin);
  double end = end_of(s, e, job, meet, begin);
  if (isnan(end)) return false;
  double seconds = fmin(e->seconds, end - begin);
  vec_push(s->a, &k->busy, (Span){end - seconds, end});
  record(s, k,
         (StepEvent){.op = e->op,
                     .moves = true,
                     .segment = e->op->segment,
                     .part = e->part,
                     .slice = job->slice,
                     .from = end - seconds,
                     .to = end});
  k->first = fmin(k->first, end - seconds);
  k->queued = end;
  k->cost.comm += seconds;
  k->done[job->step->event][room] = end;
  k->n_done++;
  return true;
}

// -- Programs ----------------------------------------------------------------------------------

// Takes the next step of the task, if it is known when.
static bool do_step(StepState *s, Class *k, const Task *task) {
  const Step *step = &task->program->step.at[k->at];
  const Event *e = &s->events.at[step->event];
  if (step->what == DO_wait) {
    // What another part of the step began was done in the last of its slices.
    int slice = e->part == task->program->part ? task->slice : -1;
    double done = k->done[step->event][step_room(s, e->part, slice)];
    if (isnan(done)) return false;
    step_wait_until(k, done);
    return true;
  }
  if (step->what == DO_copied) {
    step_wait_until(k, k->copied[step->event]);
    return true;
  }
  if (isnan(k->began)) k->began = k->now;
  if (step->what == DO_compute)
    compute(s, k, e, task);
  else if (step->what == DO_copy)
    copy(k, e, step->event, e->computes[k - s->class_at]);
  else
    vec_push(s->a, &k->job, (Job){.step = step, .slice = task->slice, .since = k->now});
  return true;
}

static void end_task(StepState *s, Class *k, const Task *task) {
  if (task->program->part == STEP_micro && !task->program->gets && !isnan(k->began))
    record(s, k,
           (StepEvent){.segment = task->program->segment,
                       .part = STEP_micro,
                       .slice = task->slice,
                       .from = k->began,
                       .to = k->now});
  k->at = 0;
  k->began = NAN;
  k->n_tasks++;
}

static bool do_task(StepState *s, Class *k) {
  if (k->n_tasks == k->task.n) return false;
  const Task *task = &k->task.at[k->n_tasks];
  for (; k->at < task->program->step.n; k->at++)
    if (!do_step(s, k, task)) return false;
  end_task(s, k, task);
  return true;
}

static void go(StepState *s, Class *k) {
  bool moved = true;
  while (moved) {
    moved = do_task(s, k);
    while (do_job(s, k))
      moved = true;
  }
}

// -- All classes -------------------------------------------------------------------------------

// Nobody has come anywhere yet, and nothing is done, of what is in this part of the step.
static void forget(StepState *s, StepPart part) {
  int rooms = step_room(s, part, -1) + 1;
  for (int i = 0; i < s->events.n; i++) {
    const Event *e = &s->events.at[i];
    if (!e->meet || e->part != part) continue;
    for (int at = 0; at < (e->op->kind == OP_move ? 1 : e->meeting->n) * rooms; at++)
      e->meet[at] = (Meet){.n_wanted = e->n_wanted[at / rooms]};
    for (int set = 0; set < e->meeting->n; set++)
      for (int j = 0; j < e->meeting->set[set].n * rooms; j++)
        s->class_at[e->meeting->set[set].at[j / rooms]].done[i][j % rooms] = NAN;
  }
}

// Jobs that are over are of no more use.
static bool end_class(Class *k) {
  bool ok = k->n_tasks == k->task.n && k->n_done == k->job.n;
  k->task.n = k->n_tasks = k->job.n = k->n_done = 0;
  if (k->queued <= k->now) k->busy.n = k->past = 0;
  return ok;
}

bool step_walk(StepState *s, StepPart part) {
  bool ok = true;
  forget(s, part);
  for (int i = 0; i < s->n_classes; i++) {
    s->class_at[i].began = NAN;
    go_on(s, i);
  }
  while (s->todo.n) {
    int k = s->todo.at[--s->todo.n];
    s->is_todo[k] = false;
    go(s, &s->class_at[k]);
  }
  for (int i = 0; i < s->n_classes; i++)
    ok &= end_class(&s->class_at[i]);
  return ok;
}
