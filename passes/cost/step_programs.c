// The program of each class of ranks: the order of its ops, as in generated code and the runtime,
// and the waits for queued transfers.  See step_state.h.
//
//     %s = all_reduce %p      queue %s              the rank goes on
//     %y = linear %s, %w      wait %s, compute %y
//     %g = all_gather %y      queue %g, and wait %g if the target does not overlap it
//     end                     wait for every collective
//
// Under a schedule (ir/schedule.h) a segment is a program, and a move to another segment has steps
// in three programs:
//
//     the segment that produces x    … queue the move             ranks that have x
//     get                            queue the move               ranks that only receive
//     the segment of the move        wait for the move, …         all receivers

#include "ir/analysis/in_flight.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "step_state.h"

static bool have(const Classes *on, int k) {
  for (int i = 0; i < on->n; i++)
    if (on->at[i] == k) return true;
  return false;
}

// -- Ops in program order ----------------------------------------------------------------------

static void add_step(StepState *s, Program *p, Step step) {
  vec_push(s->a, &p->step, step);
}

// Adds a wait, if the class takes part in the event.
static void add_wait(StepState *s, Program *of_class, int k, int event) {
  if (s->class_at[k].done[event])
    add_step(s, &of_class[k], (Step){.what = DO_wait, .event = event});
}

static void add_queue(StepState *s, Program *of_class, int k, Step step) {
  step.what = DO_queue;
  add_step(s, &of_class[k], step);
}

// Returns the i-th class that takes part in the move, and whether it sends or receives.  False for
// the second entry of a class that does both: it is listed as a sender.
static bool end_of(const StepState *s, int event, int i, int *k, Step *out) {
  const Classes *from = &s->events.at[event].meeting->set[0];
  const Classes *to = &s->events.at[event].meeting->set[1];
  *k = i < from->n ? from->at[i] : to->at[i - from->n];
  *out = (Step){.event = event, .sends = i < from->n, .gets = i >= from->n || have(to, *k)};
  return i < from->n || !have(from, *k);
}

static int n_ends(const Event *e) {
  return e->meeting->set[0].n + e->meeting->set[1].n;
}

// Queues a gather of a weight ahead of its use.
static void queue_gather(StepState *s, Program *of_class, int event) {
  const Meeting *meeting = s->events.at[event].meeting;
  for (int i = 0; i < meeting->n; i++)
    for (int j = 0; j < meeting->set[i].n; j++)
      add_queue(s, of_class, meeting->set[i].at[j], (Step){.event = event, .meet = i});
}

static void add_op(StepState *s, Program *of_class, int event) {
  const Event *e = &s->events.at[event];
  bool moves = e->meeting && e->op->kind == OP_move;
  // The op waits for collectives in flight, on the classes that take part in these.
  for (int set = 0; set < (moves ? 2 : 1); set++) {
    const Classes *on = moves ? &e->meeting->set[set] : e->on;
    for (int i = 0; i < on->n; i++)
      for (int w = 0; w < e->n_waits; w++)
        add_wait(s, of_class, on->at[i], e->wait[w]);
  }
  if (moves) {
    // A move blocks its ranks, unless it is the round of a ring; on CPUs a rank that only sends
    // continues at once.
    Step step;
    for (int i = 0, k; i < n_ends(e); i++) {
      if (!end_of(s, event, i, &k, &step)) continue;
      add_queue(s, of_class, k, step);
      if (step_overlaps(s, e->op)) continue;
      if (step.gets || !target_info[s->target].eager_sends) add_wait(s, of_class, k, event);
    }
  } else if (e->meeting && gathers_ahead(s->c, e->op)) {
    // It was queued before; the one `prefetch` gathers further begins here.
    if (e->next_gather >= 0) queue_gather(s, of_class, e->next_gather);
  } else if (e->meeting) {
    // One that overlaps is waited for later, any other at once.
    for (int i = 0; i < e->meeting->n; i++)
      for (int j = 0; j < e->meeting->set[i].n; j++) {
        int k = e->meeting->set[i].at[j];
        add_queue(s, of_class, k, (Step){.event = event, .meet = i});
        if (!step_overlaps(s, e->op)) add_wait(s, of_class, k, event);
      }
  } else if (e->computes) {
    // A swap_wait waits for the copy of its swap.
    Step step = {.what = op_starts_copy(e->op) ? DO_copy : DO_compute, .event = event};
    if (e->op->kind == OP_swap_wait) step = (Step){.what = DO_copied, .event = e->starts};
    for (int i = 0; i < e->on->n; i++)
      add_step(s, &of_class[e->on->at[i]], step);
  }
}

static void wait_at_end(StepState *s, Program *of_class, int event) {
  const Event *e = &s->events.at[event];
  if (e->in_flight) return;
  for (int k = 0; e->meeting && step_overlaps(s, e->op) && k < s->n_classes; k++)
    add_wait(s, of_class, k, event);
}

// -- Parts of a step ---------------------------------------------------------------------------

// Adds deferred ops of the previous step, from event `at` on, that are due at time `then`; returns
// the next.
static int flush(StepState *s, Program *of_class, StepPart part, int at, int64_t then) {
  for (; at < s->events.n; at++) {
    const Event *e = &s->events.at[at];
    if (!e->due || e->part != part) continue;
    if (e->due > then) break;
    add_op(s, of_class, at);
  }
  return at;
}

// Every collective is waited for before the next slice and at the end, unless it stays in flight.
Program *step_part_programs(StepState *s, StepPart part, bool flushes) {
  Program *of_class = arena_array(s->a, Program, s->n_classes);
  bool one_slice = module_slices(s->m) == 1;
  int deferred = flushes ? 0 : s->events.n;
  for (int k = 0; k < s->n_classes; k++)
    of_class[k].part = part;
  for (int i = 0; i < s->events.n; i++)
    if (s->events.at[i].is_first && s->events.at[i].part == part) queue_gather(s, of_class, i);
  // Deferred ops of the previous step run before the op that they are due before.
  for (int i = 0; i < s->events.n; i++) {
    if (s->events.at[i].part != part || s->events.at[i].due) continue;
    deferred = flush(s, of_class, part, deferred, op_time(s->events.at[i].op));
    add_op(s, of_class, i);
  }
  flush(s, of_class, part, deferred, INT64_MAX);
  // With one slice, the collectives of the loop overlap with the update, and are waited for after
  // it.
  if (part == STEP_micro && one_slice) return of_class;
  for (int i = 0; i < s->events.n; i++) {
    StepPart of = s->events.at[i].part;
    if (s->events.at[i].due && !flushes) continue;
    if (of == part || (part == STEP_update && of == STEP_micro && one_slice))
      wait_at_end(s, of_class, i);
  }
  return of_class;
}

// -- Segments ----------------------------------------------------------------------------------

typedef struct Segments {
  StepState *s;
  Program **program;   // by segment from 1, and by class
  const RankRun **run; // of each class, or NULL
  Program **get;       // of moves, by event and class
} Segments;

// Queues a move in the program of its `get`, which is made with the first of its classes.
static void get_move(Segments *g, int k, Step step) {
  Program **get = &g->get[step.event];
  if (!*get) {
    *get = arena_array(g->s->a, Program, g->s->n_classes);
    for (int i = 0; i < g->s->n_classes; i++)
      (*get)[i] = (Program){.part = STEP_micro, .gets = true};
  }
  add_queue(g->s, *get, k, step);
}

// The steps of a segment in order: waits, ops, waits for collectives, and the moves that start.
static void add_segments(Segments *g) {
  StepState *s = g->s;
  for (int i = 0; i < s->events.n; i++) {
    const Event *e = &s->events.at[i];
    for (int k = 0; e->ahead && k < e->meeting->set[1].n; k++)
      add_wait(s, g->program[e->op->segment], e->meeting->set[1].at[k], i);
  }
  for (int i = 0; i < s->events.n; i++)
    if (s->events.at[i].is_first && s->events.at[i].op->segment)
      queue_gather(s, g->program[s->events.at[i].op->segment], i);
  for (int i = 0; i < s->events.n; i++)
    if (s->events.at[i].op->segment && !s->events.at[i].ahead)
      add_op(s, g->program[s->events.at[i].op->segment], i);
  for (int i = 0; i < s->events.n; i++)
    if (s->events.at[i].op->segment) wait_at_end(s, g->program[s->events.at[i].op->segment], i);
  for (int i = 0; i < s->events.n; i++) {
    const Event *e = &s->events.at[i];
    if (!e->ahead) continue;
    const Layout *layout = e->op->in[0].value->layout;
    const Classes *owners = &s->on_mesh[layout && layout->mesh ? layout->mesh->id : 0];
    Step step;
    for (int n = 0, k; n < n_ends(e); n++) {
      if (!end_of(s, i, n, &k, &step)) continue;
      // Ranks that have the value start its move after the segment that produces it; others get it.
      bool owns = have(owners, k);
      int segment = owns && g->run[k] ? move_start(e->op, g->run[k]) : 0;
      if (!owns)
        get_move(g, k, step);
      else if (segment)
        add_queue(s, g->program[segment], k, step);
    }
  }
}

// -- Runs --------------------------------------------------------------------------------------

// Lists the tasks of a class with their slices, by counting the occurrences of each segment and
// get. Returns false if a slice is out of range.
static bool add_run(Segments *g, int k, const RankRun *run) {
  StepState *s = g->s;
  Arena *scratch = arena_new();
  int *n_run = arena_array(scratch, int, s->g->schedule->segment.n + 1);
  int *n_got = arena_array(scratch, int, s->events.n);
  bool ok = true;
  for (int i = 0; ok && i < run->action.n; i++) {
    // An action runs a segment or is a get.
    const Action *action = &run->action.at[i];
    const Op *move = action->get ? action->get->def : NULL;
    int event = move ? s->event_of[move->id] : -1;
    Task task = {NULL, 0};
    if (action->segment)
      task = (Task){&g->program[action->segment][k], n_run[action->segment]++};
    else if (event >= 0 && g->get[event])
      task = (Task){&g->get[event][k], n_got[event]++};
    else
      continue; // no transfer
    ok = task.slice < s->n_rooms;
    if (ok) vec_push(s->a, &s->class_at[k].task, task);
  }
  arena_free(scratch);
  return ok;
}

bool step_add_runs(StepState *s) {
  int n = s->g->schedule->segment.n;
  Segments g = {s, arena_array(s->a, Program *, n + 1),
                arena_array(s->a, const RankRun *, s->n_classes),
                arena_array(s->a, Program *, s->events.n)};
  for (int i = 1; i <= n; i++) {
    g.program[i] = arena_array(s->a, Program, s->n_classes);
    for (int k = 0; k < s->n_classes; k++)
      g.program[i][k] = (Program){.part = STEP_micro, .segment = i};
  }
  // All devices of a class have the same run.
  for (int i = 0; i < s->n_devices; i++) {
    const RankRun **run = &g.run[s->class_of[s->device[i]]];
    if (!*run) *run = graph_run_of(s->g, s->device[i]);
  }
  add_segments(&g);
  for (int k = 0; k < s->n_classes; k++)
    if (g.run[k] && !add_run(&g, k, g.run[k])) return false;
  return true;
}
