// Maps the blocks of a kind of schedule to segments: see fit_kind.h.

#include "fit_kind.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/vec.h"

enum { N_EMBEDDINGS = 4, NO_SET = -1, ANY_WAY = -1, BOTH_WAYS = 2 };

bool fit_declined(const Fit *f, const char *why) {
  if (!f->asked && f->slices > 1)
    diag_warning(f->d, NULL,
                 "micro-batches go through the stages one after another: the default schedule '%s' "
                 "does not fit the plan: %s",
                 f->kind, why);
  if (!f->asked) return false;
  return diag_error(f->d, f->loc, "the schedule '%s' does not fit the plan: %s", f->kind, why);
}

// -- Stages ------------------------------------------------------------------------------------

// The set that contains the devices of all segments; NO_SET: none.
static int wide_set(const Segments *s) {
  const Segment *most = s->at;
  for (int i = 1; i < s->n; i++)
    if (s->at[i].mesh->n_devices > most->mesh->n_devices) most = &s->at[i];
  for (int i = 0; i < s->n; i++)
    if (!mesh_covers(most->mesh, s->at[i].mesh)) return NO_SET;
  return most->set;
}

static bool is_stage(const Fit *f, int segment, int way) {
  const Segment *k = &f->segments->at[segment];
  if (k->kind != WORK_F || k->set == f->embedding || k->is_common || k->is_relay) return false;
  // A segment that only adds up pieces, such as losses, follows a stage of its piece on the same
  // ranks, and a route visits these once.
  const Segment *at = f->segments->at, *own = &at[segment];
  for (int i = 0; i < segment && f->slices == 1; i++)
    if (at[i].kind == WORK_F && !at[i].is_common && at[i].set == own->set &&
        at[i].piece == own->piece)
      return false;
  return !f->way || way == ANY_WAY || f->way[segment] == way;
}

static int count_stages(const Fit *f, int way) {
  int n = 0;
  for (int i = 0; i < f->segments->n; i++)
    n += is_stage(f, i, way);
  return n;
}

int fit_places(const Fit *f) {
  bool *there = arena_array(f->arena, bool, f->segments->n_sets);
  int n = 0;
  for (int i = 0; i < f->segments->n; i++) {
    const Segment *k = &f->segments->at[i];
    if (!is_stage(f, i, ANY_WAY)) continue;
    n += !there[k->set];
    there[k->set] = true;
  }
  return n;
}

// The segments of the stages, in order.
static const Segment **list_stages(const Fit *f, int way) {
  const Segment **stage = arena_array(f->arena, const Segment *, f->segments->n);
  for (int i = 0, n = 0; i < f->segments->n; i++)
    if (is_stage(f, i, way)) stage[n++] = &f->segments->at[i];
  return stage;
}

// Our stage of each of the kind's stages: consecutive ones on one device are one.
static int *join_stages(const Fit *f, const Shape *shape, int *n) {
  int *of = arena_array(f->arena, int, shape->n_stages);
  *n = 0;
  for (int i = 0; i < shape->n_stages; i++) {
    bool joined = i > 0 && shape->device[i] == shape->device[i - 1];
    of[i] = joined ? of[i - 1] : (*n)++;
  }
  return of;
}

// -- Embeddings --------------------------------------------------------------------------------

// Whether `stage` is a stage of the same direction as `segment`.
static bool is_stage_of(const Fit *f, int stage, int segment) {
  const Segment *a = &f->segments->at[stage], *b = &f->segments->at[segment];
  if (a->set == f->embedding || a->is_common) return false;
  return (a->kind == WORK_F) == (b->kind == WORK_F);
}

// Whether a stage of its direction depends on `segment` (`behind`), or `segment` on such a stage,
// directly or through other segments.
static bool meets_stage(const Fit *f, const bool *reads, int segment, bool behind) {
  int n = f->segments->n;
  bool *there = arena_array(f->arena, bool, n);
  there[segment] = true;
  for (int i = 1; i < n; i++) {
    int k = behind ? segment + i : segment - i;
    if (k < 0 || k >= n) break;
    for (int j = 0; j < n && !there[k]; j++)
      there[k] = there[j] && reads[behind ? k * n + j : j * n + k];
    if (there[k] && is_stage_of(f, k, segment)) return true;
  }
  return false;
}

// The number of the E work that a segment on all devices is: 1 and 2 before and after the forward
// stages, 3 and 4 the backward stages; 0: it is between stages.
static int find_turn(const Fit *f, const bool *reads, int segment) {
  bool before = meets_stage(f, reads, segment, true);
  bool behind = meets_stage(f, reads, segment, false);
  if (before && behind) return 0;
  return (f->segments->at[segment].kind == WORK_F ? 1 : 3) + behind;
}

// -- Two routes --------------------------------------------------------------------------------

bool fit_by_piece(const Fit *f) {
  return f->pieces > 1 || f->slices == 1;
}

static void find_ways(Fit *f) {
  int n = f->segments->n, *ops = arena_array(f->arena, int, 2 * n);
  f->way = arena_array(f->arena, int, n);
  for (int i = 0; i < n; i++)
    f->way[i] = f->segments->at[i].piece - 1;
  if (fit_by_piece(f)) return;
  for_each_op(op, f->g) {
    int k = f->segments->of[op->id] - 1;
    if (k >= 0 && op->piece >= 1 && op->piece <= 2) ops[2 * k + op->piece - 1]++;
  }
  for (int i = 0; i < n; i++) {
    // The route of a segment is the piece with at least twice as many of its ops as the other: ops
    // on inputs alone may be in either.
    const int *own = &ops[2 * i];
    if (!own[0] && !own[1])
      f->way[i] = ANY_WAY;
    else if (own[0] >= 2 * own[1])
      f->way[i] = 0;
    else
      f->way[i] = own[1] >= 2 * own[0] ? 1 : BOTH_WAYS;
  }
}

static bool same_each_time(const Shape *s, int ways) {
  size_t n = (size_t)s->n_stages;
  for (int m = ways; m < s->n_micro_batches; m++)
    if (memcmp(s->device + (size_t)(m % ways) * n, s->device + (size_t)m * n,
               n * sizeof *s->device) != 0)
      return false;
  return true;
}

// -- Checks ------------------------------------------------------------------------------------

// Checks that every forward has the same stages, and that gradients go back through the last only.
static bool check_forwards(const Fit *f, const Shape *shape, int n_joined) {
  const Segment **stage = list_stages(f, ANY_WAY);
  // Stages of all forwards, in order.
  int n = n_joined * shape->forwards;
  for (int i = n_joined; i < n; i++)
    if (stage[i]->set != stage[i - n_joined]->set)
      return fit_declined(f, str_format(f->arena,
                                        "stage %d of forward %d is not on the ranks of forward %d",
                                        i % n_joined, i / n_joined + 1, i / n_joined));
  for (int i = 0; i < f->segments->n && shape->forwards > 1; i++) {
    const Segment *k = &f->segments->at[i];
    if (k->kind == WORK_F || k->set == f->embedding || k->is_common) continue;
    if (k->stage >= stage[n - n_joined]->stage) continue;
    fit_declined(f, str_format(f->arena, "gradients go back through forward %d of %d",
                               k->stage / n_joined + 1, shape->forwards));
    if (f->asked) diag_hint(f->d, "--detach NODE stops them at the results of this node");
    return false;
  }
  return true;
}

static bool miscounted(const Fit *f, const Shape *shape, int wanted) {
  // The message counts stages in the terms of the kind: per piece, per route, or per forward.
  int n = count_stages(f, ANY_WAY), places = fit_places(f);
  // Pieces are routes with stages of their own.
  if (f->pieces > 1)
    return fit_declined(f, str_format(f->arena,
                                      "each piece has %d stages in it, and there are %d of %d "
                                      "pieces",
                                      wanted, n, f->pieces));
  // Two routes have equally many stages.
  if (f->ways > 1)
    return fit_declined(f,
                        str_format(f->arena, "it has %d stages each way, and there are %d and %d",
                                   wanted, count_stages(f, 0), count_stages(f, 1)));
  if (shape->forwards > 1) {
    fit_declined(f, str_format(f->arena,
                               "it goes forward %d times through %d stages, which makes %d, and "
                               "there are %d, on %d ranks or groups of them",
                               shape->forwards, wanted, wanted * shape->forwards, n, places));
    if (f->asked)
      diag_hint(f->d,
                "place(axis, {forwards = %d}) makes them of a model that goes through the "
                "same layers %d times",
                shape->forwards, shape->forwards);
    return false;
  }
  fit_declined(f, str_format(f->arena,
                             "it has %d stages on %d ranks or groups of them, and there are %d",
                             wanted, places, n));
  if (f->asked && n == places)
    diag_hint(f->d, "place(axis, {chunks = %d}) puts several on each",
              f->read.count > 1 ? f->read.count : 2);
  return false;
}

static SchedulePlan *plan_of(const Fit *f, int n_devices, int micro_batches) {
  ScheduleAsk ask = {n_devices, micro_batches, f->read.count, 1, 1, 1, 0, 0, INFINITY};
  return schedule_plan(f->arena, f->read.text, &ask, f->d);
}

static SchedulePlan *plan_for(const Fit *f, int n_devices) {
  return plan_of(f, n_devices, f->slices * f->ways / f->pieces);
}

static bool check_kind(Fit *f, SchedulePlan *plan) {
  int n_stages = count_stages(f, f->ways > 1 ? 0 : ANY_WAY), places = fit_places(f), n_joined;
  if (f->asynchronous && n_stages > places)
    return fit_declined(f, str_format(f->arena,
                                      "it updates the weights of one stage on each rank, and there "
                                      "are %d stages on %d ranks or groups of them",
                                      n_stages, places));
  // The orders of a kind with one stage per device hold as well if stages share devices.
  bool one_each = plan->shape.n_stages == places && plan->shape.forwards == 1 && f->ways == 1;
  if (one_each && n_stages != places) plan = plan_for(f, n_stages);
  if (!plan) return false;
  const Shape *shape = &plan->shape;
  join_stages(f, shape, &n_joined);
  bool counted = n_joined * shape->forwards == n_stages;
  for (int way = 1; way < f->ways; way++)
    counted &= count_stages(f, way) == n_stages;
  if (!counted) return miscounted(f, shape, n_joined);
  // Two stages, of one route or two, must be on the same ranks exactly if the kind has them on one
  // device.
  int n;
  const int *of = join_stages(f, shape, &n), *device = shape->device;
  const Segment ***stage = arena_array(f->arena, const Segment **, f->ways);
  for (int way = 0; way < f->ways; way++)
    stage[way] = list_stages(f, way);
  for (int i = 0; i < shape->n_stages * f->ways && !one_each; i++)
    for (int k = 0; k < i; k++) {
      const Segment *a = stage[i / shape->n_stages][of[i % shape->n_stages]];
      const Segment *b = stage[k / shape->n_stages][of[k % shape->n_stages]];
      if ((device[i] == device[k]) == (a->set == b->set)) continue;
      return fit_declined(f, str_format(f->arena, "%s and %s are %s the same ranks in it", b->name,
                                        a->name, device[i] == device[k] ? "on" : "not on"));
    }
  if (!check_forwards(f, shape, n_joined)) return false;
  f->plan = plan;
  return true;
}

// Fits a kind with pieces: each piece has its own route, along the same devices.
static bool fit_pieces(Fit *f) {
  // The number of pieces of the model.
  int n = 1;
  for (int i = 0; i < f->segments->n; i++)
    if (f->segments->at[i].piece > n) n = f->segments->at[i].piece;
  f->ways = f->pieces;
  if (n != f->pieces) {
    fit_declined(
        f, str_format(f->arena, "it needs a model in %d pieces, and this is in %d", f->pieces, n));
    if (f->asked)
      diag_hint(f->d, "pieces(list, %d) in 'model' cuts one along its tokens, as pp_terapipe does",
                f->pieces);
    return false;
  }
  find_ways(f);
  SchedulePlan *plan = plan_for(f, fit_places(f));
  return plan && check_kind(f, plan);
}

bool fit_kind(Fit *f) {
  f->embedding = NO_SET;
  f->ways = 1;
  if (f->pieces > 1) return f->slices > 1 && fit_pieces(f);
  // The halves of a single slice may take different routes, too.
  SchedulePlan *plan = plan_of(f, fit_places(f), f->slices > 1 ? f->slices : 2);
  if (plan && !same_each_time(&plan->shape, 1)) {
    // Half of each slice takes each of two routes, as a micro-batch of its own.
    f->ways = 2;
    find_ways(f);
    if (!count_stages(f, 0) || !count_stages(f, 1))
      return fit_declined(f, "it needs a model in two pieces, each with a route of its own");
    SchedulePlan *halves = plan_for(f, fit_places(f));
    if (!halves) return false;
    if (!same_each_time(&halves->shape, f->ways))
      return fit_declined(f, "in it a stage is on other ranks for every third micro-batch");
    // Every segment must be on one of the two routes.
    for (int i = 0; i < f->segments->n; i++) {
      if (!f->segments->at[i].is_common && (f->way[i] == ANY_WAY || f->way[i] >= BOTH_WAYS))
        return fit_declined(f, str_format(f->arena, "%s is of %s of its two ways",
                                          f->segments->at[i].name,
                                          f->way[i] == ANY_WAY ? "none" : "both"));
    }
    return check_kind(f, halves);
  }
  if (!plan || f->slices == 1) return false;
  if (!plan->shape.embedding) return check_kind(f, plan);
  f->embedding = wide_set(f->segments);
  if (f->embedding == NO_SET)
    return fit_declined(f, "it needs an embedding on all ranks, and the model has none");
  plan = plan_for(f, fit_places(f));
  if (!plan) return false;
  // Work on all ranks must run between stages.
  const bool *reads = segments_reads(f->segments, f->g, f->arena);
  for (int i = 0; i < f->segments->n; i++) {
    const Segment *k = &f->segments->at[i];
    if (k->set == f->embedding && !k->is_relay && !find_turn(f, reads, i))
      return fit_declined(f,
                          str_format(f->arena, "%s is on all ranks and between stages", k->name));
  }
  return check_kind(f, plan);
}

// -- Segments of the kind's works --------------------------------------------------------------

struct Fitted {
  const int *joined; // by stage of the kind: our stage
  int n_joined, n_passes, ways;
  SegmentList *of; // by route, kind of work, our stage and pass
};

static SegmentList *list_at(const Fitted *f, int way, WorkKind kind, int stage, int pass) {
  return &f->of[((way * N_WORK_KINDS + (int)kind) * f->n_joined + stage) * f->n_passes + pass - 1];
}

Fitted *fit_segments(Fit *f) {
  const Shape *shape = &f->plan->shape;
  const bool *reads = segments_reads(f->segments, f->g, f->arena);
  Fitted *to = arena_one(f->arena, Fitted);
  if (f->ways > 1) find_ways(f);
  to->ways = f->ways;
  // Stages that the kind always has on one device one after the other are joined.
  to->joined = join_stages(f, shape, &to->n_joined);
  to->n_passes = shape->forwards > N_EMBEDDINGS ? shape->forwards : N_EMBEDDINGS;
  to->of =
      arena_array(f->arena, SegmentList, to->ways * N_WORK_KINDS * to->n_joined * to->n_passes);
  for (int i = 0; i < f->segments->n; i++) {
    // A forward that is common to stages runs with the first of them; its gradient may wait. So
    // may a relay.
    SegmentList *list;
    const Segment *k = &f->segments->at[i];
    if (k->is_relay)
      list = NULL;
    else if (k->set == f->embedding)
      list = list_at(to, 0, WORK_E, 0, find_turn(f, reads, i));
    else {
      int way = f->way ? f->way[i] : 0, before = 0;
      if (way < 0 || way >= to->ways || (k->is_common && (to->ways > 1 || k->kind != WORK_F)))
        list = NULL;
      else {
        for (int j = 0; j < f->segments->n; j++)
          before += is_stage(f, j, way) && f->segments->at[j].stage < k->stage;
        bool forward = k->kind == WORK_F;
        list = list_at(to, way, k->kind, before % to->n_joined,
                       forward ? before / to->n_joined + 1 : 1);
      }
    }
    if (!list) continue;
    if (!list->at) list->at = arena_array(f->arena, int, f->segments->n);
    list->at[list->n++] = i;
  }
  return to;
}

const SegmentList *fitted_to(const Fitted *f, const Blocks *b, int block, int *slice) {
  const Work *work = b->work[block];
  int stage = work->kind == WORK_E ? 0 : f->joined[work->stage];
  if (slice) *slice = b->micro_batch[block] / f->ways;
  return list_at(f, b->micro_batch[block] % f->ways, work->kind, stage, work->pass);
}

// -- Orders ------------------------------------------------------------------------------------

// Lists the orders that put a block before `block`, or after it, each such block once. `seen`: the
// stamp of the last call that met a block.
static int list_next(const Orders *o, int block, bool before, int stamp, int *seen, int *out) {
  int n = 0;
  for (int i = 0; i < o->n; i++) {
    const Order *k = &o->at[i];
    int other = before ? k->first : k->then;
    if ((before ? k->then : k->first) != block || seen[other] == stamp) continue;
    seen[other] = stamp;
    out[n++] = i;
  }
  return n;
}

Orders fit_orders(const Fit *f, const Fitted *to) {
  const Blocks *b = f->plan->blocks;
  Orders all = {0};
  int *seen = arena_array(f->arena, int, b->n);
  for (int i = 0; i < f->plan->orders.n; i++)
    vec_push(f->arena, &all, f->plan->orders.at[i]);
  for (int k = 0; k < b->n; k++) {
    // An order over a block without segments connects those before it with those after it.
    if (fitted_to(to, b, k, NULL)->n) continue;
    int *before = arena_array(f->arena, int, b->n), *behind = arena_array(f->arena, int, b->n);
    int n_before = list_next(&all, k, true, 2 * k + 1, seen, before);
    int n_behind = list_next(&all, k, false, 2 * k + 2, seen, behind);
    for (int x = 0; x < n_before; x++)
      for (int y = 0; y < n_behind; y++) {
        Order o = {all.at[before[x]].first, all.at[behind[y]].then, all.at[before[x]].line};
        if (o.first != o.then) vec_push(f->arena, &all, o);
      }
  }
  return all;
}
