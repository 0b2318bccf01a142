// The simulation of the classes of ranks: see step_state.h.
//
// A class advances on three lines: its ops in order, and its two queues of transfers in order.
// Each line advances until it needs an unknown time.  Ops wait for jobs of their own queues, jobs
// for the other participants.  All times are maxima and sums, so the order of simulation does not
// matter.  A class is resumed whenever a time that it takes part in becomes known.

#include <math.h>

#include "ir/op.h"
#include "step_state.h"

// -- Recording and idle time -------------------------------------------------------------------

// Records an event on the timeline.  Computations without duration are left out, transfers are
// kept.
static void record(StepState *s, const Class *k, StepEvent e) {
  if (!s->timeline || (e.to <= e.from && e.line == LINE_computes)) return;
  e.lane = (int)(k - s->class_at);
  if (e.part != STEP_micro) e.slice = -1;
  vec_push(s->a, &s->timeline->event, e);
}

// The seconds between `from` and `to` in which any of the queues was busy.
static double busy_seconds(Class *k, double from, double to) {
  double seconds = 0;
  while (from < to) {
    // Each round covers the time to the next change of the busy queues: `end` of the queues that
    // are busy now, or else `next` start of a span.
    double end = from, next = to;
    for (int i = 0; i < N_QUEUES; i++) {
      Queue *q = &k->queue[i];
      while (q->past < q->busy.n && q->busy.at[q->past].to <= from)
        q->past++;
      if (q->past == q->busy.n) continue;
      const Span *span = &q->busy.at[q->past];
      if (span->from <= from)
        end = fmax(end, fmin(span->to, to));
      else
        next = fmin(next, span->from);
    }
    seconds += end - from;
    from = end > from ? end : next;
  }
  return seconds;
}

static void wait_until(StepState *s, Class *k, double time) {
  if (time <= k->now) return;
  vec_push(s->a, &k->gap, (Span){k->now, time});
  k->now = time;
}

// Counts the idle time in gaps.  The busy times of the queues in a gap are known once all jobs are
// complete.
static void look_at_gaps(Class *k) {
  for (int i = 0; i < k->gap.n; i++) {
    // Only the rest of a gap is idle: transfers are communication.
    const Span *gap = &k->gap.at[i];
    k->cost.idle += fmax(gap->to - gap->from - busy_seconds(k, gap->from, gap->to), 0);
  }
  k->gap.n = 0;
}

void step_end(StepState *s, double time) {
  for (int i = 0; i < s->n_classes; i++) {
    wait_until(s, &s->class_at[i], time);
    look_at_gaps(&s->class_at[i]);
  }
}

static void compute(StepState *s, Class *k, const Event *e, const Task *task) {
  double seconds = e->computes[k - s->class_at];
  // The span of a step begins with the first op or transfer.
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

// Copies in one direction run one after the other, overlapped with all else.
static void copy(StepState *s, Class *k, const Event *e, const Task *task, int event) {
  bool in = e->op->kind == OP_swap_in;
  double *busy = &k->copying[in], from = fmax(*busy, k->now);
  k->copied[event] = *busy = from + e->computes[k - s->class_at];
  record(s, k,
         (StepEvent){.op = e->op,
                     .line = in ? LINE_in : LINE_out,
                     .segment = e->op->segment,
                     .part = e->part,
                     .slice = task->slice,
                     .from = from,
                     .to = *busy});
}

// -- Queues ------------------------------------------------------------------------------------

static void go_on(StepState *s, int k) {
  if (s->is_queued[k]) return;
  s->is_queued[k] = true;
  vec_push(s->a, &s->ready, k);
}

static void wake(StepState *s, const Event *e, int set) {
  bool both = e->op->kind == OP_move;
  for (int i = both ? 0 : set; i <= (both ? 1 : set); i++)
    for (int j = 0; j < e->meeting->set[i].n; j++)
      go_on(s, e->meeting->set[i].at[j]);
}

// On CPUs only senders arrive at a move: the data is complete when the last sender has sent it.
static bool only_senders(const StepState *s, const Event *e) {
  return e->op->kind == OP_move && target_info[s->target].eager_sends;
}

// The first time from `from` on at which a queue has been idle for so long.
static double first_gap(const Queue *q, double from, double seconds) {
  int i = q->busy.n;
  while (i > 0 && q->busy.at[i - 1].to > from)
    i--;
  for (; i < q->busy.n && q->busy.at[i].from < from + seconds; i++)
    from = q->busy.at[i].to;
  return from;
}

// The end of a job that can begin at `begin`; NAN: not yet known.
static double end_of(const StepState *s, const Event *e, const Job *job, const Meet *meet,
                     double begin) {
  bool all = meet->n_come == meet->n_wanted;
  if (!only_senders(s, e)) return all ? meet->latest + e->seconds : NAN;
  double own = job->step->sends ? begin + e->seconds : begin;
  if (!job->step->gets) return own;
  return all ? fmax(own, meet->latest) : NAN;
}

// Completes the next job of a queue, if its end is known.
static bool do_job(StepState *s, Class *k, int queue) {
  Queue *q = &k->queue[queue];
  if (q->n_done == q->job.n) return false;
  Job *job = &q->job.at[q->n_done];
  const Event *e = &s->events.at[job->step->event];
  int room = step_room(s, e->part, job->slice);
  // Each set of the meeting has its own arrivals per slice.
  Meet *meet = &e->meet[job->step->meet * (step_room(s, e->part, -1) + 1) + room];
  double begin = fmax(job->since, q->until);
  // All transfers of a rank in one stream: it begins between those of the other queue.
  if (s->c->queues == 1 && !job->has_come)
    begin = first_gap(&k->queue[N_QUEUES - 1 - queue], begin, e->seconds);
  if (!job->has_come && (job->step->sends || !only_senders(s, e))) {
    // The last arrival lets the others go on.
    meet->latest = fmax(meet->latest, only_senders(s, e) ? begin + e->seconds : begin);
    if (++meet->n_come == meet->n_wanted) wake(s, e, job->step->meet);
  }
  job->has_come = true;
  double end = end_of(s, e, job, meet, begin);
  if (isnan(end)) return false;
  // The transfer occupies the time before its end; any earlier time is waiting.  Time in which the
  // other queue is busy, too, counts once.
  Span span = {end - fmin(e->seconds, end - begin), end};
  const Queue *other = &k->queue[N_QUEUES - 1 - queue];
  double seconds = span.to - span.from;
  for (int i = other->busy.n - 1; i >= 0 && other->busy.at[i].to > span.from; i--)
    seconds -=
        fmax(fmin(other->busy.at[i].to, span.to) - fmax(other->busy.at[i].from, span.from), 0);
  vec_push(s->a, &q->busy, span);
  k->cost.comm += seconds;
  record(s, k,
         (StepEvent){.op = e->op,
                     .line = e->ahead ? LINE_ahead : LINE_moves,
                     .segment = e->op->segment,
                     .part = e->part,
                     .slice = job->slice,
                     .from = span.from,
                     .to = end});
  k->first = fmin(k->first, span.from);
  q->until = end;
  k->done[job->step->event][room] = end;
  q->n_done++;
  return true;
}

// -- Programs ----------------------------------------------------------------------------------

// Runs the next step of the task, if its time is known.
static bool do_step(StepState *s, Class *k, const Task *task) {
  const Step *step = &task->program->step.at[k->at];
  const Event *e = &s->events.at[step->event];
  if (step->what == DO_wait && e->in_flight) {
    wait_until(s, k, k->before[step->event]);
    return true;
  }
  if (step->what == DO_wait) {
    // A transfer of another part of the step was completed in the last slice of that part.
    int slice = e->part == task->program->part ? task->slice : -1;
    double done = k->done[step->event][step_room(s, e->part, slice)];
    if (isnan(done)) return false;
    wait_until(s, k, done);
    return true;
  }
  if (step->what == DO_copied) {
    wait_until(s, k, k->copied[step->event]);
    return true;
  }
  // A computation takes time here; copies and transfers take time in their queues.
  if (isnan(k->began)) k->began = k->now;
  if (step->what == DO_compute)
    compute(s, k, e, task);
  else if (step->what == DO_copy)
    copy(s, k, e, task, step->event);
  else
    vec_push(s->a, &k->queue[e->ahead ? QUEUE_ahead : QUEUE_here].job,
             (Job){.step = step, .slice = task->slice, .since = k->now});
  return true;
}

// Runs the next task as far as times are known.  Returns whether it is complete.
static bool do_task(StepState *s, Class *k) {
  if (k->n_tasks == k->task.n) return false;
  const Task *task = &k->task.at[k->n_tasks];
  for (; k->at < task->program->step.n; k->at++)
    if (!do_step(s, k, task)) return false;
  // The timeline shows the slices and segments of the loop; gets only wait.
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
  return true;
}

// -- All classes -------------------------------------------------------------------------------

bool step_walk(StepState *s, StepPart part, bool flushes) {
  // All transfers in this part of the step have no arrivals and no completion times yet.
  int rooms = step_room(s, part, -1) + 1;
  for (int i = 0; i < s->events.n; i++) {
    const Event *e = &s->events.at[i];
    if (!e->meet || e->part != part || (e->due && !flushes)) continue;
    for (int at = 0; at < (e->op->kind == OP_move ? 1 : e->meeting->n) * rooms; at++)
      e->meet[at] = (Meet){.n_wanted = e->n_wanted[at / rooms]};
    for (int set = 0; set < e->meeting->n; set++)
      for (int j = 0; j < e->meeting->set[set].n * rooms; j++)
        s->class_at[e->meeting->set[set].at[j / rooms]].done[i][j % rooms] = NAN;
  }
  for (int i = 0; i < s->n_classes; i++) {
    s->class_at[i].began = NAN;
    go_on(s, i);
  }
  // A class runs until each of its lines needs an unknown time.
  while (s->ready.n) {
    int k = s->ready.at[--s->ready.n];
    s->is_queued[k] = false;
    for (bool moved = true; moved;) {
      moved = do_task(s, &s->class_at[k]);
      for (int queue = 0; queue < N_QUEUES; queue++)
        while (do_job(s, &s->class_at[k], queue))
          moved = true;
    }
  }
  // The part ends with empty queues, unless there is a deadlock.
  bool ok = true;
  for (int i = 0; i < s->n_classes; i++) {
    Class *k = &s->class_at[i];
    ok &= k->n_tasks == k->task.n;
    look_at_gaps(k);
    k->task.n = k->n_tasks = 0;
    for (int x = 0; x < N_QUEUES; x++) {
      Queue *q = &k->queue[x];
      ok &= q->n_done == q->job.n;
      q->job.n = q->n_done = 0;
      if (q->until <= k->now) q->busy.n = q->past = 0;
    }
  }
  return ok;
}
