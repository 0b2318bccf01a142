// See cost_step.h.

#include "cost_step.h"

#include <math.h>
#include <string.h>

#include "collectives.h"
#include "cost.h"
#include "cost_comm.h"
#include "ir/place.h"

typedef struct Span {
  double from, to;
} Span;

// Ranks that are on the same meshes, and of the same kind of device.
typedef struct Class {
  Device device;
  int kind;       // of it, in the cluster
  double now;     // until when its ops run
  double queued;  // until when its queue of collectives runs
  double reduced; // until when its last all_reduce runs
  RankCost cost;
  Vec(Span) busy; // with collectives, in order; those before `past` are over
  int past;
} Class;

typedef struct Classes {
  int n, *at;
} Classes;

// Who of a collective waits for whom: classes that have ranks in the same groups; of a move those
// that send, and those that get.
typedef struct Meeting {
  int n;
  Classes *set;
} Meeting;

// An op, as it runs.
typedef struct Event {
  const Op *op;
  StepPart part;
  const Classes *on;      // its mesh
  double seconds;         // of what moves data
  const double *computes; // seconds of what computes, by class
  const Meeting *meeting; // of what moves data, else NULL
  int n_waits, *wait;     // op ids of all_reduces
} Event;

typedef struct Step {
  const Module *m;
  const Graph *g;
  const Cluster *c;
  Target target;
  Arena *a;
  CommPrices *prices;
  int n_devices, *device;
  int *class_of; // by device of the cluster
  int n_classes;
  Class *class_at;
  Classes *on_mesh;        // by mesh id
  Vec(Meeting *) meetings; // by id of price
  double **ready;          // of an all_reduce, by op id: when it is done, by class
  Vec(Event) events;
} Step;

static double later(double a, double b) {
  return a > b ? a : b;
}

// -- Classes ---------------------------------------------------------------------------------

// Devices of one class that differ in whether they are among these become two.
static void tell_apart(Step *s, const int *device, int n_devices) {
  Arena *scratch = arena_new();
  int n = s->n_classes;
  int *split = arena_array(scratch, int, n), *size = arena_array(scratch, int, n);
  int *on = arena_array(scratch, int, n);
  for (int i = 0; i < s->n_devices; i++)
    size[s->class_of[s->device[i]]]++;
  for (int i = 0; i < n_devices; i++)
    on[s->class_of[device[i]]]++;
  for (int k = 0; k < n; k++)
    split[k] = on[k] == 0 || on[k] == size[k] ? k : s->n_classes++;
  for (int i = 0; i < n_devices; i++)
    s->class_of[device[i]] = split[s->class_of[device[i]]];
  arena_free(scratch);
}

static void tell_kinds_apart(Step *s) {
  int *device = arena_array(s->a, int, s->n_devices);
  for (int kind = 1; kind <= s->c->n_kinds; kind++) {
    int n = 0;
    for (int i = 0; i < s->n_devices; i++)
      if (cluster_kind(s->c, s->device[i]) == kind) device[n++] = s->device[i];
    if (n) tell_apart(s, device, n);
  }
}

// The classes of some devices, each once.
static Classes classes_of(const Step *s, const int *device, int n) {
  Classes out = {.at = arena_array(s->a, int, s->n_classes)};
  bool *there = arena_array(s->a, bool, s->n_classes);
  for (int i = 0; i < n; i++) {
    int k = s->class_of[device[i]];
    if (!there[k]) out.at[out.n++] = k;
    there[k] = true;
  }
  return out;
}

static void find_classes(Step *s) {
  s->class_of = arena_array(s->a, int, cluster_devices(s->c));
  s->n_classes = 1;
  for_each_mesh(mesh, s->m)
    tell_apart(s, mesh->device, mesh->n_devices);
  tell_kinds_apart(s);
  s->class_at = arena_array(s->a, Class, s->n_classes);
  for (int i = 0; i < s->n_devices; i++) {
    Class *k = &s->class_at[s->class_of[s->device[i]]];
    k->device = cluster_device(s->c, s->device[i]);
    k->kind = cluster_kind(s->c, s->device[i]);
  }
  int n = module_n_meshes(s->m);
  s->on_mesh = arena_array(s->a, Classes, n ? n : 1);
  if (!n) s->on_mesh[0] = classes_of(s, s->device, s->n_devices);
  for_each_mesh(mesh, s->m)
    s->on_mesh[mesh->id] = classes_of(s, mesh->device, mesh->n_devices);
}

// -- Meetings --------------------------------------------------------------------------------

static int root_of(const int *above, int k) {
  while (above[k] != k)
    k = above[k];
  return k;
}

// Classes that have ranks in one group meet, and so do those that meet the same.
static void meet_groups(const Step *s, const Groups *groups, Meeting *out) {
  int *above = arena_array(s->a, int, s->n_classes), n = groups->n * groups->size;
  for (int k = 0; k < s->n_classes; k++)
    above[k] = k;
  for (int i = 0; i < n; i++) {
    int first = s->class_of[groups->device[i - i % groups->size]];
    above[root_of(above, s->class_of[groups->device[i]])] = root_of(above, first);
  }
  Classes all = classes_of(s, groups->device, n);
  out->set = arena_array(s->a, Classes, all.n);
  for (int i = 0; i < all.n; i++) {
    if (root_of(above, all.at[i]) != all.at[i]) continue;
    Classes *set = &out->set[out->n++];
    set->at = arena_array(s->a, int, all.n);
    for (int k = 0; k < all.n; k++)
      if (root_of(above, all.at[k]) == all.at[i]) set->at[set->n++] = all.at[k];
  }
}

static const Meeting *meeting_of(Step *s, const Op *op, const CommPrice *price) {
  while (s->meetings.n <= price->id)
    vec_push(s->a, &s->meetings, NULL);
  if (s->meetings.at[price->id]) return s->meetings.at[price->id];
  Meeting *meeting = arena_one(s->a, Meeting);
  const Parties *p = &price->parties;
  if (op->kind == OP_move) {
    meeting->n = 2;
    meeting->set = arena_array(s->a, Classes, 2);
    meeting->set[0] = classes_of(s, p->sender, p->n_senders);
    meeting->set[1] = classes_of(s, p->receiver, p->n_receivers);
  } else
    meet_groups(s, &p->groups, meeting);
  return s->meetings.at[price->id] = meeting;
}

// -- Events ----------------------------------------------------------------------------------

// The all_reduces that generated code waits for before `op`.
static void add_waits(const Step *s, Event *e) {
  for (int i = 0; i < e->op->n_in; i++) {
    int64_t skip;
    const Op *made = view_root(e->op->in[i].value, &skip)->def;
    if (!made || made->kind != OP_all_reduce || !s->ready[made->id]) continue;
    if (!e->wait) e->wait = arena_array(s->a, int, e->op->n_in);
    e->wait[e->n_waits++] = (int)made->id;
  }
}

static void add_event(Step *s, const Op *op, StepPart part) {
  const Mesh *mesh = op_mesh(op);
  Event e = {.op = op, .part = part, .on = &s->on_mesh[mesh ? mesh->id : 0]};
  if (op_info[op->kind].traits & VIEW) return;
  add_waits(s, &e);
  if (mesh && op_is_collective(op)) {
    const CommPrice *price = comm_price(s->prices, op);
    e.seconds = price->cost.seconds;
    if (e.seconds > 0) e.meeting = meeting_of(s, op, price);
    if (e.meeting && op->kind == OP_all_reduce)
      s->ready[op->id] = arena_array(s->a, double, s->n_classes);
  } else {
    double *computes = arena_array(s->a, double, s->n_classes);
    for (int i = 0; i < e.on->n; i++) {
      int k = e.on->at[i];
      bool known = i && s->class_at[k].kind == s->class_at[e.on->at[0]].kind;
      computes[k] = known ? computes[e.on->at[0]] : op_seconds_on(&s->class_at[k].device, op);
      e.seconds = later(e.seconds, computes[k]);
    }
    e.computes = computes;
  }
  if (e.seconds > 0 || e.n_waits) vec_push(s->a, &s->events, e);
}

static void add_events(Step *s) {
  const StepPart *part = graph_step_parts(s->g, s->a);
  s->ready = arena_array(s->a, double *, s->g->n_ops);
  for_each_op(op, s->g)
    add_event(s, op, part[op->id]);
}

// -- Time ------------------------------------------------------------------------------------

// For how long of this time the queue was busy.
static double busy_seconds(Class *k, double from, double to) {
  double seconds = 0;
  while (k->past < k->busy.n && k->busy.at[k->past].to <= from)
    k->past++;
  for (int i = k->past; i < k->busy.n && k->busy.at[i].from < to; i++)
    seconds += fmin(k->busy.at[i].to, to) - fmax(k->busy.at[i].from, from);
  return seconds;
}

static void wait_until(Class *k, double time) {
  if (time <= k->now) return;
  double idle = time - k->now - busy_seconds(k, k->now, time);
  k->cost.idle += fmax(idle, 0);
  k->now = time;
}

// The queue does a collective, which ends then.
static void queue_until(const Step *s, Class *k, double seconds, double end) {
  vec_push(s->a, &k->busy, (Span){end - seconds, end});
  k->queued = end;
  k->cost.comm += seconds;
}

static double begin_of(const Step *s, const Classes *on) {
  double begin = 0;
  for (int i = 0; i < on->n; i++)
    begin = later(begin, later(s->class_at[on->at[i]].now, s->class_at[on->at[i]].queued));
  return begin;
}

static void run_collective(Step *s, const Event *e, const Classes *on) {
  double end = begin_of(s, on) + e->seconds;
  for (int i = 0; i < on->n; i++) {
    Class *k = &s->class_at[on->at[i]];
    queue_until(s, k, e->seconds, end);
    if (e->op->kind == OP_all_reduce)
      s->ready[e->op->id][on->at[i]] = k->reduced = end;
    else
      wait_until(k, end);
  }
}

static bool have(const Classes *on, int k) {
  for (int i = 0; i < on->n; i++)
    if (on->at[i] == k) return true;
  return false;
}

// On processors what is sent is there when the last sender has sent it.
static void run_sent(Step *s, const Event *e, const Classes *from, const Classes *to) {
  double there = begin_of(s, from) + e->seconds;
  for (int i = 0; i < to->n; i++) {
    Class *k = &s->class_at[to->at[i]];
    double begin = later(k->now, k->queued);
    double end = later(have(from, to->at[i]) ? begin + e->seconds : begin, there);
    queue_until(s, k, fmin(e->seconds, end - begin), end);
    wait_until(k, end);
  }
  for (int i = 0; i < from->n; i++) {
    Class *k = &s->class_at[from->at[i]];
    if (!have(to, from->at[i]))
      queue_until(s, k, e->seconds, later(k->now, k->queued) + e->seconds);
  }
}

// On gpus both ends are there together.
static void run_move(Step *s, const Event *e) {
  const Classes *from = &e->meeting->set[0], *to = &e->meeting->set[1];
  if (s->target == TARGET_cpu) {
    run_sent(s, e, from, to);
    return;
  }
  double end = later(begin_of(s, from), begin_of(s, to)) + e->seconds;
  for (int i = 0; i < from->n + to->n; i++) {
    int at = i < from->n ? from->at[i] : to->at[i - from->n];
    if (i >= from->n && have(from, at)) continue;
    queue_until(s, &s->class_at[at], e->seconds, end);
    wait_until(&s->class_at[at], end);
  }
}

static void run_op(Step *s, const Event *e) {
  for (int i = 0; i < e->on->n; i++) {
    Class *k = &s->class_at[e->on->at[i]];
    double seconds = e->computes ? e->computes[e->on->at[i]] : 0;
    k->now += seconds;
    k->cost.compute += seconds;
  }
}

static void run_event(Step *s, const Event *e) {
  for (int i = 0; i < e->n_waits; i++)
    for (int k = 0; k < s->n_classes; k++)
      wait_until(&s->class_at[k], s->ready[e->wait[i]][k]);
  if (!e->meeting)
    run_op(s, e);
  else if (e->op->kind == OP_move)
    run_move(s, e);
  else
    for (int i = 0; i < e->meeting->n; i++)
      run_collective(s, e, &e->meeting->set[i]);
}

static void run_part(Step *s, StepPart part) {
  for (int i = 0; i < s->events.n; i++)
    if (s->events.at[i].part == part) run_event(s, &s->events.at[i]);
}

// For every all_reduce.
static void run_waits(Step *s) {
  for (int i = 0; i < s->n_classes; i++) {
    Class *k = &s->class_at[i];
    wait_until(k, k->reduced);
    if (k->queued <= k->now) k->busy.n = k->past = 0;
  }
}

// -- Micro-batches ---------------------------------------------------------------------------

// What a micro-batch did to a class.
typedef struct Advance {
  double now, queued, reduced;
  RankCost cost;
} Advance;

static Advance advance_since(const Class *k, const Class *before) {
  return (Advance){k->now - before->now,
                   k->queued - before->queued,
                   k->reduced - before->reduced,
                   {k->cost.compute - before->cost.compute, k->cost.comm - before->cost.comm,
                    k->cost.idle - before->cost.idle}};
}

static bool same(double a, double b, double scale) {
  return fabs(a - b) <= 1e-9 * scale;
}

// Does every class do as in the micro-batch before, and take as long as all others?  Then nothing
// changes any more but the time.  `last` becomes what this one did.
static bool is_steady(const Step *s, const Class *before, Advance *last) {
  double all = 0;
  bool steady = true;
  for (int i = 0; i < s->n_classes; i++) {
    Advance is = advance_since(&s->class_at[i], &before[i]);
    if (all == 0) all = is.now;
    steady &= same(is.now, last[i].now, all) && same(is.queued, last[i].queued, all) &&
              same(is.cost.idle, last[i].cost.idle, all) && (is.now == 0 || same(is.now, all, all));
    last[i] = is;
  }
  return steady;
}

static void repeat(Step *s, const Advance *as, int times) {
  for (int i = 0; i < s->n_classes; i++) {
    Class *k = &s->class_at[i];
    k->now += times * as[i].now;
    k->queued += times * as[i].queued;
    k->reduced += times * as[i].reduced;
    k->cost.compute += times * as[i].cost.compute;
    k->cost.comm += times * as[i].cost.comm;
    k->cost.idle += times * as[i].cost.idle;
    for (int x = 0; x < k->busy.n; x++) {
      k->busy.at[x].from += times * as[i].now;
      k->busy.at[x].to += times * as[i].now;
    }
  }
}

static void run_slices(Step *s) {
  int n = module_slices(s->m);
  Class *before = arena_array(s->a, Class, s->n_classes);
  Advance *last = arena_array(s->a, Advance, s->n_classes);
  for (int i = 0; i < n; i++) {
    memcpy(before, s->class_at, sizeof *before * (size_t)s->n_classes);
    run_part(s, STEP_micro);
    if (n > 1) run_waits(s);
    if (!is_steady(s, before, last)) continue;
    repeat(s, last, n - 1 - i);
    return;
  }
}

// -- The step --------------------------------------------------------------------------------

static bool has_devices(const Step *s) {
  for (int i = 0; i < s->n_devices; i++)
    if (s->device[i] >= cluster_devices(s->c)) return false;
  return true;
}

static void report(Step *s, StepCost *out) {
  double idle = 0;
  out->seconds = 0;
  for (int i = 0; i < s->n_classes; i++)
    out->seconds = later(out->seconds, later(s->class_at[i].now, s->class_at[i].queued));
  for (int i = 0; i < s->n_classes; i++)
    wait_until(&s->class_at[i], out->seconds);
  out->n_ranks = s->n_devices;
  out->device = s->device;
  out->rank = arena_array(s->a, const RankCost *, s->n_devices);
  for (int i = 0; i < s->n_devices; i++) {
    out->rank[i] = &s->class_at[s->class_of[s->device[i]]].cost;
    idle += out->rank[i]->idle;
  }
  out->bubble = out->seconds > 0 ? idle / (s->n_devices * out->seconds) : 0;
}

bool step_cost(const Module *m, const Cluster *c, Target target, Arena *a, StepCost *out) {
  Step s = {.m = m, .g = m->graphs, .c = c, .target = target, .a = a};
  if (!m->graphs || m->phase < PHASE_local || !cost_known(c)) return false;
  s.device = module_devices(m, a, &s.n_devices);
  if (!has_devices(&s)) return false;
  s.prices = comm_prices_new(a, c);
  find_classes(&s);
  add_events(&s);
  run_part(&s, STEP_begin);
  run_waits(&s);
  run_slices(&s);
  run_part(&s, STEP_update);
  run_waits(&s);
  report(&s, out);
  return true;
}
