// The classes of ranks, the participants of transfers, and the events with their seconds: see
// step_state.h.

#include "step_state.h"

#include <math.h>
#include <string.h>

#include "cost.h"
#include "host_copies.h"
#include "ir/analysis/deferred.h"
#include "ir/analysis/in_flight.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "ir/schedule.h"

// -- Classes ---------------------------------------------------------------------------------

// Splits each class that has devices both in and outside of this list.
static void tell_apart(StepState *s, const int *device, int n_devices) {
  Arena *scratch = arena_new();
  int n = s->n_classes;
  int *split = arena_array(scratch, int, n), *size = arena_array(scratch, int, n);
  int *on = arena_array(scratch, int, n);
  // A class is split if it has devices on the list, but not only.
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

// The classes of some devices, without duplicates.
static Classes classes_of(const StepState *s, const int *device, int n) {
  Classes out = {.at = arena_array(s->a, int, s->n_classes)};
  bool *there = arena_array(s->a, bool, s->n_classes);
  for (int i = 0; i < n; i++) {
    int k = s->class_of[device[i]];
    if (!there[k]) out.at[out.n++] = k;
    there[k] = true;
  }
  return out;
}

void step_find_classes(StepState *s) {
  s->class_of = arena_array(s->a, int, cluster_devices(s->c));
  s->n_classes = 1;
  for_each_mesh(mesh, s->m)
    tell_apart(s, mesh->device, mesh->n_devices);
  for (int i = 0; s->g->schedule && i < s->g->schedule->run.n; i++)
    tell_apart(s, s->g->schedule->run.at[i].device, s->g->schedule->run.at[i].n_devices);
  // Kinds of devices have different speeds.
  int *device = arena_array(s->a, int, s->n_devices);
  for (int kind = 1; kind <= s->c->n_kinds; kind++) {
    int n = 0;
    for (int i = 0; i < s->n_devices; i++)
      if (cluster_kind(s->c, s->device[i]) == kind) device[n++] = s->device[i];
    if (n) tell_apart(s, device, n);
  }
  // All devices of a class are alike, so any of them describes it.
  s->class_at = arena_array(s->a, Class, s->n_classes);
  for (int i = 0; i < s->n_devices; i++) {
    Class *k = &s->class_at[s->class_of[s->device[i]]];
    k->device = cluster_device(s->c, s->device[i]);
    k->kind = cluster_kind(s->c, s->device[i]);
  }
  // A module without a mesh runs on all its devices.
  int n_meshes = module_n_meshes(s->m);
  s->on_mesh = arena_array(s->a, Classes, n_meshes ? n_meshes : 1);
  if (!n_meshes) s->on_mesh[0] = classes_of(s, s->device, s->n_devices);
  for_each_mesh(mesh, s->m)
    s->on_mesh[mesh->id] = classes_of(s, mesh->device, mesh->n_devices);
}

// -- Meetings --------------------------------------------------------------------------------

static int root_of(const int *above, int k) {
  while (above[k] != k)
    k = above[k];
  return k;
}

// Returns the meeting of a transfer; equal collectives share it.
static const Meeting *meeting_of(StepState *s, const Op *op, const CommPrice *price) {
  while (s->meetings.n <= price->id)
    vec_push(s->a, &s->meetings, NULL);
  Meeting *meeting = s->meetings.at[price->id];
  if (meeting) return meeting;
  meeting = s->meetings.at[price->id] = arena_one(s->a, Meeting);
  const Parties *p = &price->parties;
  if (op->kind == OP_move) {
    meeting->n = 2;
    meeting->set = arena_array(s->a, Classes, 2);
    meeting->set[0] = classes_of(s, p->sender, p->n_senders);
    meeting->set[1] = classes_of(s, p->receiver, p->n_receivers);
    return meeting;
  }
  // Classes with ranks in a common group form one set, transitively.
  const Groups *groups = &p->groups;
  int *above = arena_array(s->a, int, s->n_classes), n = groups->n * groups->size;
  for (int k = 0; k < s->n_classes; k++)
    above[k] = k;
  for (int i = 0; i < n; i++) {
    int first = s->class_of[groups->device[i - i % groups->size]];
    above[root_of(above, s->class_of[groups->device[i]])] = root_of(above, first);
  }
  // Each root has a set: the classes below it, in the order of the groups.
  Classes all = classes_of(s, groups->device, n);
  meeting->set = arena_array(s->a, Classes, all.n);
  for (int i = 0; i < all.n; i++) {
    if (root_of(above, all.at[i]) != all.at[i]) continue;
    Classes *set = &meeting->set[meeting->n++];
    set->at = arena_array(s->a, int, all.n);
    for (int k = 0; k < all.n; k++)
      if (root_of(above, all.at[k]) == all.at[i]) set->at[set->n++] = all.at[k];
  }
  return meeting;
}

// -- Events ------------------------------------------------------------------------------------

int step_room(const StepState *s, StepPart part, int slice) {
  if (part != STEP_micro || s->n_rooms == 1) return 0;
  return slice < 0 ? s->n_rooms - 1 : slice;
}

// The number of classes that must arrive: on CPUs the senders of a move, elsewhere both ends.
static int n_wanted(const StepState *s, const Event *e, int set) {
  const Classes *from = &e->meeting->set[0], *to = &e->meeting->set[1];
  if (e->op->kind != OP_move) return e->meeting->set[set].n;
  // A class with both ends arrives once.
  int n = from->n;
  for (int i = 0; !target_info[s->target].eager_sends && i < to->n; i++) {
    bool both = false;
    for (int j = 0; j < from->n; j++)
      both |= from->at[j] == to->at[i];
    n += !both;
  }
  return n;
}

typedef Vec(const Op *) Ops;

// By op id: whether result 0 is read by the op in `before`, directly or through views.
static bool *read_by(const StepState *s, const Op *const *before) {
  bool *is_read = arena_array(s->a, bool, s->g->n_ops);
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_in; i++) {
      int64_t skip;
      const Value *root = view_root(op->in[i].value, &skip);
      if (root->def && root->index == 0 && before[root->def->id] == op)
        is_read[root->def->id] = true;
    }
  return is_read;
}

// Lists the collectives that the op waits for: those with results that it reads, directly or
// through views, and `overwritten`, those with memory that it would overwrite.
static void add_waits(const StepState *s, const Op *op, const Ops *overwritten, Event *e) {
  e->wait = arena_array(s->a, int, op->n_in + overwritten->n);
  for (int i = 0; i < op->n_in; i++) {
    int64_t skip;
    const Op *made = view_root(op->in[i].value, &skip)->def;
    if (made && step_overlaps(s, made) && s->event_of[made->id] >= 0)
      e->wait[e->n_waits++] = s->event_of[made->id];
  }
  for (int i = 0; i < overwritten->n; i++)
    if (s->event_of[overwritten->at[i]->id] >= 0)
      e->wait[e->n_waits++] = s->event_of[overwritten->at[i]->id];
}

// -- Host memory ---------------------------------------------------------------------------------

// The seconds in which a reader of offloaded weights gets them, if they stay in host memory.  So do
// sums of gradients over micro-batches: each goes to the device and back, in 16 bits, to be added
// to (DeepSpeed, runtime/zero/stage3.py).
static double fetch_seconds(const StepState *s, const Device *d, const Op *op) {
  double bytes = 0;
  for (int i = 0; s->on_host && op->part != PART_update && i < op->n_in; i++) {
    int64_t skip;
    const Value *v = view_root(op->in[i].value, &skip);
    if (!v->def && v->role == ROLE_copy && v->label && table_find(s->on_host, 0, v->label))
      bytes += (double)type_bytes(v->type);
  }
  const Value *sum = s->on_host && op->n_out ? op->out[0] : NULL;
  if (sum && value_accumulates(sum) && type_count(sum->type) > 1)
    bytes += 2 * 2 * (double)type_count(sum->type);
  return bytes / host_speed(s->c, d, s->in_node);
}

static void find_host(StepState *s) {
  s->in_node = host_sharing(s->c, s->device, s->n_devices);
  if (!s->c->host_weights) return;
  Table *t = table_new(s->a);
  for (int i = 0; i < s->g->n_params; i++) {
    Value *v = s->g->params[i];
    if (!v->host || v->role != ROLE_weight || !v->label) continue;
    table_add(t, 0, v->label, v);
    s->on_host = t;
  }
}

// -- Gathers of weights ahead of their use -------------------------------------------------------

// Each gather is queued at the one `prefetch` gathers before it, in the same program; the first of
// a program at its beginning.
static void find_gathers(StepState *s) {
  int n = s->c->prefetch;
  for (int i = 0; n && i < s->events.n; i++) {
    Event *e = &s->events.at[i];
    if (!e->meeting || !gathers_ahead(s->c, e->op)) continue;
    int before = 0;
    for (int k = i - 1; k >= 0 && before < n; k--) {
      Event *x = &s->events.at[k];
      if (!x->meeting || !gathers_ahead(s->c, x->op) || x->part != e->part ||
          x->op->segment != e->op->segment || op_mesh(x->op) != op_mesh(e->op))
        continue;
      if (++before == n) x->next_gather = i;
    }
    e->is_first = before < n;
  }
}

static void add_event(StepState *s, const Op *op, StepPart part, const int64_t *due,
                      const Ops *overwritten) {
  const Mesh *mesh = op_mesh(op);
  Event e = {.op = op, .part = part, .on = &s->on_mesh[mesh ? mesh->id : 0], .next_gather = -1};
  e.in_flight = !s->c->blocking && reduce_is_in_flight(op);
  if (op->deferred) e.due = due[op->id];
  // Views take no time, except that a swap_wait synchronises.
  if ((op_info[op->kind].traits & VIEW) && op->kind != OP_swap_wait) return;
  add_waits(s, op, overwritten, &e);
  if (mesh && op_is_collective(op)) {
    const CommPrice *price = comm_price(s->prices, op);
    e.seconds = price->cost.seconds;
    if (e.seconds > 0) e.seconds += fetch_seconds(s, &s->class_at[e.on->at[0]].device, op);
    // A free collective involves no other rank.
    if (e.seconds > 0) {
      e.meeting = meeting_of(s, op, price);
      int n = op->kind == OP_move ? 1 : e.meeting->n, rooms = step_room(s, part, -1) + 1;
      e.meet = arena_array(s->a, Meet, n * rooms);
      e.n_wanted = arena_array(s->a, int, n);
      for (int i = 0; i < n; i++)
        e.n_wanted[i] = n_wanted(s, &e, i);
      s->event_of[op->id] = s->events.n;
    }
    e.ahead = e.meeting && op->kind == OP_move && op->segment && move_leads_on(op);
  } else {
    double *computes = arena_array(s->a, double, s->n_classes);
    for (int i = 0; i < e.on->n; i++) {
      int k = e.on->at[i];
      const Device *d = &s->class_at[k].device;
      // Classes of one kind of device need the same time.  A swap runs at the bandwidth of the
      // device's link to the host; a swap_wait takes no time.
      if (i && s->class_at[k].kind == s->class_at[e.on->at[0]].kind)
        computes[k] = computes[e.on->at[0]];
      else if (op_starts_copy(op))
        computes[k] = host_copy_seconds(s->c, d, s->in_node, op);
      else if (op->kind != OP_swap_wait)
        computes[k] = op_seconds_on(d, op) + fetch_seconds(s, d, op);
      e.seconds = fmax(e.seconds, computes[k]);
    }
    e.computes = computes;
  }
  if (op->kind == OP_swap_wait) e.starts = s->event_of[op->in[0].value->def->id];
  if (op_starts_copy(op)) s->event_of[op->id] = s->events.n;
  // Events without any effect on a clock are left out.
  if (e.seconds > 0 || e.n_waits || op_starts_copy(op) || op->kind == OP_swap_wait)
    vec_push(s->a, &s->events, e);
}

void step_add_events(StepState *s) {
  find_host(s);
  const StepPart *part = graph_step_parts(s->g, s->a);
  const int64_t *due = graph_deferred_due(s->g, s->a);
  s->event_of = arena_array(s->a, int, s->g->n_ops);
  for (uint32_t i = 0; i < s->g->n_ops; i++)
    s->event_of[i] = -1;
  // By op id: the collectives that end before it since it would overwrite their memory.
  const Op **before = graph_waits(s->g, s->a);
  const bool *is_read = read_by(s, before);
  Ops *overwritten = arena_array(s->a, Ops, s->g->n_ops);
  for_each_op(op, s->g)
    if (before[op->id] && op_overlaps(op, s->target) && !is_read[op->id])
      vec_push(s->a, &overwritten[before[op->id]->id], op);
  for_each_op(op, s->g)
    add_event(s, op, part[op->id], due, &overwritten[op->id]);
  find_gathers(s);
  for (int i = 0; i < s->n_classes; i++) {
    s->class_at[i].done = arena_array(s->a, double *, s->events.n);
    s->class_at[i].copied = arena_array(s->a, double, s->events.n);
    s->class_at[i].before = arena_array(s->a, double, s->events.n);
  }
  // Only classes that take part in a transfer can wait for it.
  for (int i = 0; i < s->events.n; i++) {
    const Event *e = &s->events.at[i];
    int rooms = step_room(s, e->part, -1) + 1;
    for (int set = 0; e->meeting && set < e->meeting->n; set++)
      for (int j = 0; j < e->meeting->set[set].n; j++) {
        Class *k = &s->class_at[e->meeting->set[set].at[j]];
        if (!k->done[i]) k->done[i] = arena_array(s->a, double, rooms);
      }
  }
}
