// Resident memory of ranks over time: the live ranges of step_lives.h at the times of a timeline.
//
//     moments     F0 0 | op 3   + 4 MB of forward     3.1 ms   4 MB
//                 F0 1 | op 3   + 4 MB of forward     5.2 ms   8 MB      the peak
//                 B0 0 | op 9   - 4 MB of forward     6.0 ms   4 MB
//
// Each live range becomes an increase and a decrease, sorted by moment.  Their running sum is the
// curve, and its maximum the peak.  A second pass over the live ranges lists the values resident at
// the peak.

#include <limits.h>
#include <stdlib.h>

#include "ir/analysis/deferred.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "step_lives.h"

const char *const memory_kind_name[N_MEMORY_KINDS] = {
    "weights", "optimizer states", "inputs", "forward", "backward", "update", "moved"};

typedef struct Delta {
  Moment when;
  int64_t bytes; // negative: freed after the moment; positive: allocated before it
  MemoryKind kind;
} Delta;

typedef struct Memory {
  const StepTimeline *t;
  const Module *m;
  const Graph *g;
  Arena *a, *scratch; // scratch of one lane
  const StepPart *part;
  const LaneLives *lives;
  const int64_t *due; // by op id, of deferred ops
  const LaneRun *run;
  Vec(Delta) delta;
} Memory;

// -- Increases and decreases ---------------------------------------------------------------------

static void add_life(const MemBlock *b, Lived life, void *context) {
  Memory *s = context;
  int64_t bytes = b->to - b->from;
  vec_push(s->scratch, &s->delta, (Delta){life.from, bytes, b->kind});
  // A block that lives to the end of the step lives on into the next one.
  if (moment_before(life.to, s->run->end))
    vec_push(s->scratch, &s->delta, (Delta){life.to, -bytes, b->kind});
}

// Sorts increases before decreases, since operands live while their op produces its results.
static int by_moment(const void *x, const void *y) {
  const Delta *a = x, *b = y;
  if (moment_before(a->when, b->when)) return -1;
  if (moment_before(b->when, a->when)) return 1;
  return (a->bytes < 0) - (b->bytes < 0);
}

// -- Times -------------------------------------------------------------------------------------

// The times of a lane's moments: of its ops, and of its segments.
typedef struct Times {
  const StepEvent **op; // in order
  int n_ops, at;
  double *from, *to; // by action
  double now;
} Times;

static double later(double a, double b) {
  return a > b ? a : b;
}

static Times find_times(const Memory *s, int lane) {
  const LaneRun *r = s->run;
  Times t = {.op = arena_array(s->scratch, const StepEvent *, s->t->event.n),
             .from = arena_array(s->scratch, double, r->n_actions),
             .to = arena_array(s->scratch, double, r->n_actions)};
  for (int i = 0; i < s->t->event.n; i++) {
    const StepEvent *e = &s->t->event.at[i];
    if (e->lane != lane || e->line != LINE_computes) continue;
    // Begin and update are the first and the last action.
    int action = e->part == STEP_begin    ? 0
                 : e->part == STEP_update ? r->n_actions - 1
                                          : r->run_of[e->segment][e->slice];
    if (action < 0) continue;
    if (e->op) t.op[t.n_ops++] = e;
    if (t.to[action] == 0) t.from[action] = e->from;
    t.from[action] = e->from < t.from[action] ? e->from : t.from[action];
    t.to[action] = later(t.to[action], e->to);
  }
  // Actions that compute nothing, such as gets, take place at the end of the previous one.
  for (int i = 0; i < r->n_actions; i++) {
    double last = i ? t.to[i - 1] : 0;
    if (t.to[i] == 0) t.from[i] = t.to[i] = last;
  }
  return t;
}

// The time of a moment.  Callers ask in the order of moments.
static double time_of(const Memory *s, Times *t, Moment when) {
  double from = t->from[when.action], to = t->to[when.action];
  if (when.at == INT64_MAX) return t->now = later(t->now, to);
  for (; t->at < t->n_ops && t->op[t->at]->from < to; t->at++) {
    const StepEvent *e = t->op[t->at];
    // A deferred op runs when it is due.
    int64_t at = e->op->deferred ? s->due[e->op->id] : op_time(e->op);
    if (e->from < from || at < when.at) continue;
    from = e->from;
    break;
  }
  return t->now = later(t->now, from);
}

// -- Points and the peak -----------------------------------------------------------------------

typedef struct Peak {
  Arena *a;
  Moment when;
  LaneMemory *out;
  const MemBlock *last; // the block counted last; its further slices follow
} Peak;

static void add_held(const MemBlock *b, Lived life, void *context) {
  Peak *peak = context;
  if (moment_before(peak->when, life.from) || moment_before(life.to, peak->when)) return;
  // A block of the loop is resident once per slice.
  if (peak->last == b) {
    peak->out->at_peak.at[peak->out->at_peak.n - 1].slices++;
    return;
  }
  peak->last = b;
  vec_push(peak->a, &peak->out->at_peak, (MemoryHeld){b->shown, b->kind, b->to - b->from, 1});
}

static int by_bytes(const void *x, const void *y) {
  const MemoryHeld *a = x, *b = y;
  int64_t of_a = a->bytes * a->slices, of_b = b->bytes * b->slices;
  if (of_a != of_b) return of_a < of_b ? 1 : -1;
  return (a->value->id > b->value->id) - (a->value->id < b->value->id);
}

static void add_points(Memory *s, int lane, LaneMemory *out) {
  Times times = find_times(s, lane);
  MemoryPoint is = {0};
  int64_t all = 0;
  Moment peak = {0, 0};
  if (s->delta.n) qsort(s->delta.at, (size_t)s->delta.n, sizeof *s->delta.at, by_moment);
  for (int i = 0; i < s->delta.n; i++) {
    const Delta *d = &s->delta.at[i], *next = i + 1 < s->delta.n ? d + 1 : NULL;
    is.bytes[d->kind] += d->bytes;
    all += d->bytes;
    // Increases at the same moment become one point, and so do decreases.
    if (next && !moment_before(d->when, next->when) && (d->bytes < 0) == (next->bytes < 0))
      continue;
    is.time = time_of(s, &times, d->when);
    if (all > out->peak) {
      out->peak = all;
      out->peak_time = is.time;
      peak = d->when;
    }
    vec_push(s->a, &out->point, is);
  }
  // The peak is explained by the blocks that are resident then, the largest first, and the op.
  Peak held = {.a = s->a, .when = peak, .out = out};
  for_each_life(s->lives, add_held, &held);
  if (out->at_peak.n)
    qsort(out->at_peak.at, (size_t)out->at_peak.n, sizeof *out->at_peak.at, by_bytes);
  for_each_op(op, s->g)
    if (!out->peak_op && op_time(op) == peak.at) out->peak_op = op;
  out->peak_slice = s->run->slice[peak.action];
}

static LaneMemory *lanes_memory(const StepTimeline *t, const Module *m, bool host, Arena *a) {
  Memory s = {.t = t, .m = m, .g = m->graphs, .a = a};
  LaneMemory *out = arena_array(a, LaneMemory, t->n_lanes);
  const int64_t *ends = host ? mesh_host_ends(m, a) : mesh_ends(m, a);
  s.part = graph_step_parts(s.g, a);
  s.due = graph_deferred_due(s.g, a);
  for (int i = 0; i < t->n_lanes; i++) {
    // The devices of a lane have equal memories, so the first stands for all.
    int device = t->lane[i].device[0];
    s.scratch = arena_new();
    s.delta.n = s.delta.cap = 0;
    s.lives = lane_lives_new(s.scratch, s.g, s.part, device, host);
    s.run = lane_lives_run(s.lives);
    for_each_life(s.lives, add_life, &s);
    add_points(&s, i, &out[i]);
    out[i].planned = device_end(m, ends, device);
    arena_free(s.scratch);
  }
  return out;
}

LaneMemory *step_memory(const StepTimeline *t, const Module *m, Arena *a) {
  return lanes_memory(t, m, false, a);
}

LaneMemory *step_host_memory(const StepTimeline *t, const Module *m, Arena *a) {
  return lanes_memory(t, m, true, a);
}
