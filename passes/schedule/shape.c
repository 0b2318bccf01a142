// Pipelines of equal stages, for `nnaot-plan schedule`.
//
//     forward    [E1]  F(0) … F(S-1)  again for each forward  [E2]
//     backward   [E3]  B(S-1) … B(0)  [E4]                    W of a stage any time after its B
//
// Times are per device and micro-batch: the stages of a device share them equally.  So a device
// with three stages, in a shape with mostly two, has the same total time.  If micro-batches are in
// pieces, times and memory of one are those of all its pieces together, and a stage runs them in
// this order:
//
//     forward    F(i, 0) F(i, 1) … F(i, N-1)
//     backward   B(i, N-1) … B(i, 1) B(i, 0)

#include <string.h>

#include "base/vec.h"
#include "schedule/schedule.h"

typedef struct Builder {
  Arena *arena;
  const Shape *s;
  const int *device; // per stage, of this route
  int *shares;       // number of stages per device
  const int *all;    // 0, 1, …
  Work *work;
  int n;
} Builder;

// Adds a work that depends on `after` and `second`; -1: none.
static int add(Builder *b, Work w, int after, int second) {
  WorkAfter *list = arena_array(b->arena, WorkAfter, 2);
  const int wanted[] = {after, second};
  w.after = list;
  for (int i = 0; i < 2; i++) {
    if (wanted[i] < 0) continue;
    // A result moves only to other devices.
    const Work *from = &b->work[wanted[i]];
    bool same_devices = w.n_devices == from->n_devices &&
                        !memcmp(w.device, from->device, (size_t)w.n_devices * sizeof *w.device);
    list[w.n_after++] = (WorkAfter){wanted[i], same_devices ? 0 : b->s->latency};
  }
  b->work[b->n] = w;
  return b->n++;
}

static int add_embedding(Builder *b, int pass, int after) {
  if (!b->s->embedding) return after;
  return add(b,
             (Work){.kind = WORK_E,
                    .pass = pass,
                    .time = b->s->e / b->s->pieces,
                    .device = b->all,
                    .n_devices = b->s->n_devices},
             after, -1);
}

static Work stage_work(const Builder *b, WorkKind kind, int stage, int pass, double time) {
  const int *device = &b->device[stage];
  return (Work){.kind = kind,
                .stage = stage,
                .pass = pass,
                .time = time / b->shares[*device] / b->s->pieces,
                .device = device,
                .n_devices = 1};
}

static Route build_route(Arena *a, const Shape *s, const int *device, const int *all) {
  Builder b = {.arena = a, .s = s, .device = device, .all = all};
  b.work = arena_array(a, Work, s->n_stages * (s->forwards + 2) + 4);
  b.shares = arena_array(a, int, s->n_devices);
  int *forward = arena_array(a, int, s->n_stages);
  for (int i = 0; i < s->n_stages; i++)
    b.shares[device[i]]++;
  // All forwards; the last of a stage takes the memory that its backward needs.
  int last = add_embedding(&b, 1, -1);
  for (int pass = 1; pass <= s->forwards; pass++)
    for (int i = 0; i < s->n_stages; i++) {
      Work w = stage_work(&b, WORK_F, i, pass, s->f);
      if (pass == s->forwards) w.takes = 1.0 / b.shares[device[i]] / s->pieces;
      last = forward[i] = add(&b, w, last, -1);
    }
  last = add_embedding(&b, 3, add_embedding(&b, 2, last));
  // Backwards in reverse; the weight gradient, if it is a work of its own, frees the memory.
  for (int i = s->n_stages - 1; i >= 0; i--) {
    double held = 1.0 / b.shares[device[i]] / s->pieces;
    Work w = stage_work(&b, WORK_B, i, 1, s->split ? s->b : s->b + s->w);
    if (!s->split) w.frees = held;
    last = add(&b, w, last, forward[i] == last ? -1 : forward[i]);
    if (!s->split) continue;
    w = stage_work(&b, WORK_W, i, 1, s->w);
    w.frees = held;
    add(&b, w, last, -1);
  }
  add_embedding(&b, 4, last);
  return (Route){b.work, b.n};
}

Pipeline *shape_pipeline(Arena *a, const Shape *s) {
  Pipeline *p = arena_one(a, Pipeline);
  Route *route = arena_array(a, Route, s->n_micro_batches);
  const int **devices = arena_array(a, const int *, s->n_micro_batches);
  int *route_of = arena_array(a, int, s->n_micro_batches), *all = arena_array(a, int, s->n_devices);
  size_t row = (size_t)s->n_stages;
  for (int d = 0; d < s->n_devices; d++)
    all[d] = d;
  // Micro-batches with the same devices share a route.
  for (int m = 0; m < s->n_micro_batches; m++) {
    const int *device = s->device + (size_t)m * row;
    int r = 0;
    while (r < p->n_routes && memcmp(devices[r], device, row * sizeof *device) != 0)
      r++;
    route_of[m] = r;
    if (r < p->n_routes) continue;
    devices[r] = device;
    route[p->n_routes++] = build_route(a, s, device, all);
  }
  p->n_devices = s->n_devices;
  p->n_micro_batches = s->n_micro_batches;
  p->route = route;
  p->route_of = route_of;
  p->pieces = s->pieces;
  return p;
}

int shape_block(const Shape *s, const Blocks *b, WorkKind kind, int stage, int micro_batch,
                int pass) {
  if (micro_batch < 0 || micro_batch >= s->n_micro_batches) return -1;
  // The order of the works is that of build_route.
  int forwards = s->n_stages * s->forwards, parts = s->split ? 2 : 1, e = s->embedding;
  int first = b->first[micro_batch];
  switch (kind) {
  case WORK_F: return first + e + (pass - 1) * s->n_stages + stage;
  case WORK_B: return first + forwards + 3 * e + (s->n_stages - 1 - stage) * parts;
  case WORK_W: return first + forwards + 3 * e + (s->n_stages - 1 - stage) * parts + 1;
  case WORK_E:
    if (pass == 1) return first;
    return first + (pass < 4 ? forwards + pass - 1 : forwards + 3 + s->n_stages * parts);
  case N_WORK_KINDS: break;
  }
  BUG("no kind of work");
}

static void add_order(Arena *a, Orders *o, int first, int then) {
  Order order = {first, then, NULL};
  vec_push(a, o, order);
}

void shape_order_pieces(Arena *a, const Shape *s, const Blocks *b, Orders *o) {
  for (int m = 0; m + 1 < s->n_micro_batches; m++) {
    // Forwards of a micro-batch's pieces run in order, backwards in reverse.
    if (m % s->pieces == s->pieces - 1) continue;
    for (int i = 0; i < s->n_stages; i++) {
      for (int pass = 1; pass <= s->forwards; pass++)
        add_order(a, o, shape_block(s, b, WORK_F, i, m, pass),
                  shape_block(s, b, WORK_F, i, m + 1, pass));
      add_order(a, o, shape_block(s, b, WORK_B, i, m + 1, 1), shape_block(s, b, WORK_B, i, m, 1));
    }
  }
}
