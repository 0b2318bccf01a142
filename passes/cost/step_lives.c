// See step_lives.h.
//
// First the blocks are found, by linking overlapping values; then the lane's order; then the
// touches, which are sorted by block, so that the touches of one block are adjacent.

#include "step_lives.h"

#include <limits.h>
#include <stdlib.h>

#include "ir/analysis/deferred.h"
#include "ir/analysis/in_flight.h"
#include "ir/op.h"
#include "ir/schedule.h"

// An op's write or read of a block.
typedef struct Touch {
  MemBlock *block;
  int segment; // of the loop, under a schedule
  const Op *get;
  StepPart part;
  int64_t at;
  bool deferred; // in the next step, or at its end
} Touch;

struct LaneLives {
  const Graph *g;
  Arena *scratch;
  const StepPart *part;
  int n_slices, device;
  const int64_t *due;  // by op id, of deferred ops; NULL: none
  bool host;           // values in host memory
  int *above;          // by value id: union-find over the values of one block
  MemBlock **block_of; // by the root's value id
  int n_blocks;
  Vec(Touch) touch;
  const RankRun *says; // the device's run in the schedule; NULL: none
  LaneRun run;
};

// -- Blocks ------------------------------------------------------------------------------------

static bool is_here(const LaneLives *s, const Value *v) {
  const Mesh *mesh = v->layout ? v->layout->mesh : NULL;
  return v->offset >= 0 && value_on_host(v) == s->host && (!mesh || mesh_has(mesh, s->device));
}

static int64_t end_of(const Value *v) {
  return v->offset + type_bytes(v->type);
}

static int root_of(const LaneLives *s, int v) {
  while (s->above[v] != v)
    v = s->above[v] = s->above[s->above[v]];
  return v;
}

static int64_t bytes_of(const Value *v) {
  return type_bytes(v->type);
}

// A bucket has the kind of its largest member; a value accumulated over slices is a gradient.
static MemoryKind kind_of(const Value *v) {
  if (v->def && v->def->kind == OP_pack) {
    const Value *most = v->def->in[0].value;
    for (int i = 1; i < v->def->n_in; i++)
      if (bytes_of(v->def->in[i].value) > bytes_of(most)) most = v->def->in[i].value;
    return kind_of(most);
  }
  if (value_accumulates(v)) return MEMORY_backward;
  // A parameter has the kind of its role; scalars count as inputs.
  if (!v->def) {
    if (v->role == ROLE_weight || v->role == ROLE_copy) return MEMORY_weight;
    return v->role == ROLE_state ? MEMORY_state : MEMORY_input;
  }
  if (op_is_collective(v->def) && v->def->kind != OP_all_reduce) return MEMORY_moved;
  switch (v->def->part) {
  case PART_forward: return MEMORY_forward;
  case PART_backward: return MEMORY_backward;
  case PART_update:
  case N_TRAIN_PARTS: break;
  }
  return MEMORY_update;
}

// The bytes of persistent parameters.  A value produced in place over them counts as the parameter.
typedef struct Kept {
  int64_t from, to;
} Kept;

static int by_from(const void *x, const void *y) {
  const Kept *a = x, *b = y;
  return (a->from > b->from) - (a->from < b->from);
}

static bool is_kept(const Kept *kept, int n, const Value *v) {
  int low = 0, high = n; // the first that ends after the beginning of v
  while (low < high) {
    int middle = (low + high) / 2;
    if (kept[middle].to <= v->offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low < n && kept[low].from < end_of(v);
}

static void add_value(LaneLives *s, const Kept *kept, int n_kept, const Value *v) {
  if (!is_here(s, v) || (v->def && is_kept(kept, n_kept, v))) return;
  MemBlock **b = &s->block_of[root_of(s, (int)v->id)];
  // The first value starts the block; a larger one gives it its kind.
  if (!*b) {
    *b = arena_one(s->scratch, MemBlock);
    **b = (MemBlock){.id = s->n_blocks++,
                     .value = v,
                     .shown = v,
                     .kind = kind_of(v),
                     .from = v->offset,
                     .to = end_of(v)};
  }
  if (bytes_of(v) > bytes_of((*b)->shown)) {
    (*b)->shown = v;
    (*b)->kind = kind_of(v);
  }
  (*b)->from = v->offset < (*b)->from ? v->offset : (*b)->from;
  (*b)->to = end_of(v) > (*b)->to ? end_of(v) : (*b)->to;
}

static int by_offset(const void *x, const void *y) {
  const Value *a = *(const Value *const *)x, *b = *(const Value *const *)y;
  return (a->offset > b->offset) - (a->offset < b->offset);
}

// Divides a bucket into a block per member, each up to the beginning of the next.
static void take_apart(LaneLives *s, const Op *pack) {
  MemBlock **at = &s->block_of[root_of(s, (int)pack->out[0]->id)];
  const Value **part = arena_array(s->scratch, const Value *, pack->n_in);
  if (!*at || (*at)->next || param_kept((*at)->value)) return;
  // The bucket's own block is replaced by the list of its members.
  MemBlock whole = **at;
  for (int i = 0; i < pack->n_in; i++)
    part[i] = pack->in[i].value;
  qsort(part, (size_t)pack->n_in, sizeof *part, by_offset);
  for (int i = 0; i < pack->n_in; i++) {
    MemBlock *b = *at = arena_one(s->scratch, MemBlock);
    *b = (MemBlock){.id = s->n_blocks++,
                    .value = part[i],
                    .shown = part[i],
                    .kind = kind_of(part[i]),
                    .from = i ? part[i]->offset : whole.from,
                    .to = i + 1 < pack->n_in ? part[i + 1]->offset : whole.to};
    at = &b->next;
  }
}

static void find_blocks(LaneLives *s) {
  Kept *kept = arena_array(s->scratch, Kept, s->g->n_params);
  int n = 0;
  for (int i = 0; i < s->g->n_params; i++) {
    const Value *p = s->g->params[i];
    if (param_kept(p) && is_here(s, p)) kept[n++] = (Kept){p->offset, end_of(p)};
  }
  if (n) qsort(kept, (size_t)n, sizeof *kept, by_from);
  // Values are linked if an op reads one and produces the other, and their bytes overlap.
  s->above = arena_array(s->scratch, int, s->g->n_values);
  s->block_of = arena_array(s->scratch, MemBlock *, s->g->n_values);
  for (uint32_t i = 0; i < s->g->n_values; i++)
    s->above[i] = (int)i;
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_in * op->n_out; i++) {
      const Value *in = op->in[i / op->n_out].value, *out = op->out[i % op->n_out];
      if (!is_here(s, in) || !is_here(s, out)) continue;
      if (in->offset < end_of(out) && out->offset < end_of(in))
        s->above[root_of(s, (int)out->id)] = root_of(s, (int)in->id);
    }
  // Linked values form one block.  A bucket is divided once all its values are known.
  for (int i = 0; i < s->g->n_params; i++)
    add_value(s, kept, n, s->g->params[i]);
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_out; i++)
      add_value(s, kept, n, op->out[i]);
  for_each_op(op, s->g)
    if (op->kind == OP_pack && is_here(s, op->out[0])) take_apart(s, op);
}

// -- Touches -----------------------------------------------------------------------------------

static void touch(LaneLives *s, const Value *v, Touch t) {
  for (MemBlock *b = s->block_of[root_of(s, (int)v->id)]; b; b = b->next) {
    if (v->offset >= b->to || b->from >= end_of(v)) continue;
    t.block = b;
    b->lasts |= t.part != STEP_micro || t.deferred || value_accumulates(v);
    vec_push(s->scratch, &s->touch, t);
  }
}

// The point at which a move of the loop reads its operand, on devices that have it.
static Touch start_of(const LaneLives *s, const Op *move) {
  if (!move_leads_on(move)) return (Touch){.segment = move->segment, .at = op_time(move)};
  return (Touch){.segment = s->says ? move_start(move, s->says) : 0, .at = INT64_MAX};
}

static Touch touch_of(const LaneLives *s, const Op *op, int64_t at) {
  return (Touch){.segment = op->segment,
                 .at = op->deferred ? s->due[op->id] : at,
                 .part = s->part[op->id],
                 .deferred = op->deferred};
}

// The first op that reads the result of an all_reduce in flight, or a view of it.
static const Op *first_deferred_reader(const Value *v) {
  const Op *first = NULL;
  for_each_use(u, v) {
    const Op *op =
        u->user && op_is_view(u->user) ? first_deferred_reader(u->user->out[0]) : u->user;
    if (op && (!first || op->id < first->id)) first = op;
  }
  return first;
}

// The last read of its operand by a collective: before the op that waits for it, or else at the end
// of its part of the step.
static Touch last_read(const LaneLives *s, const Op *op, const Op *before) {
  bool repeated = s->n_slices > 1 || s->g->schedule;
  Touch t = touch_of(s, op, INT64_MAX);
  if (op->deferred) t.at = s->due[op->id];
  // With one slice, a collective of the loop overlaps with the update.
  if (t.part == STEP_micro && !repeated) t.part = before ? s->part[before->id] : STEP_update;
  if (before && !op->deferred) t.at = (before->deferred ? s->due[before->id] : op_time(before)) - 1;
  return t;
}

static void find_touches(LaneLives *s) {
  const Op **before = graph_waits(s->g, s->scratch);
  for_each_op(op, s->g) {
    bool leads_on = op->kind == OP_move && op->segment, in_flight = reduce_is_in_flight(op);
    Touch read = touch_of(s, op, op_time(op));
    if (op_is_async(op) && !in_flight && !op_copies_operand(op))
      read = last_read(s, op, before[op->id]);
    for (int i = 0; i < op->n_in; i++) {
      const Value *v = op->in[i].value;
      if (!is_here(s, v)) continue;
      Touch t = leads_on ? start_of(s, op) : read;
      if (leads_on) t.part = s->part[op->id];
      touch(s, v, t);
      // One in flight also reads it in the next step, up to the first reader of its result.
      if (in_flight) touch(s, v, touch_of(s, first_deferred_reader(op->out[0]), 0));
    }
    // A rank that only receives a move has its result from the `get` on.
    for (int i = 0; i < op->n_out; i++) {
      if (!is_here(s, op->out[i])) continue;
      Touch t = touch_of(s, op, op_time(op));
      if (leads_on && is_here(s, op->in[0].value)) t = start_of(s, op);
      if (leads_on && !is_here(s, op->in[0].value)) t.get = op;
      t.part = s->part[op->id];
      touch(s, op->out[i], t);
    }
  }
  // Results live to the end of the step.
  for (int i = 0; i < s->g->n_results; i++) {
    const Value *v = s->g->results[i]->use.value;
    bool deferred = v->def && v->def->deferred;
    if (is_here(s, v))
      touch(s, v, (Touch){.part = STEP_update, .at = INT64_MAX, .deferred = deferred});
  }
  // Persistent parameters occupy memory even without a reader.
  for (int i = 0; i < s->g->n_params; i++) {
    const Value *v = s->g->params[i];
    if (is_here(s, v) && param_kept(v)) touch(s, v, (Touch){.part = STEP_begin});
  }
}

// -- The lane's order --------------------------------------------------------------------------

static void add_action(LaneLives *s, int segment, const Op *get, int slice) {
  LaneRun *r = &s->run;
  int i = r->n_actions++;
  r->segment[i] = segment;
  r->get[i] = get;
  r->slice[i] = slice;
  // Begin and update belong to no slice.
  if (slice < 0) return;
  if (r->first_of[slice] < 0) r->first_of[slice] = i;
  if (!get) r->run_of[segment][slice] = i;
  r->last = i;
}

// Lists the lane's actions: begin, the loop, update.
static void find_run(LaneLives *s) {
  const Schedule *schedule = s->g->schedule;
  const RankRun *run = s->says = schedule ? graph_run_of(s->g, s->device) : NULL;
  int n_segments = schedule ? schedule->segment.n : 0;
  int n = 2 + (schedule ? run ? run->action.n : 0 : s->n_slices);
  LaneRun *r = &s->run;
  *r = (LaneRun){.get = arena_array(s->scratch, const Op *, n),
                 .segment = arena_array(s->scratch, int, n),
                 .slice = arena_array(s->scratch, int, n),
                 .run_of = arena_array(s->scratch, int *, n_segments + 1),
                 .first_of = arena_array(s->scratch, int, s->n_slices)};
  int *n_run = arena_array(s->scratch, int, n_segments + 1);
  int *n_got = arena_array(s->scratch, int, s->g->n_ops);
  // -1: the lane does not run that segment for that slice.
  for (int i = 0; i < s->n_slices; i++)
    r->first_of[i] = -1;
  for (int i = 0; i <= n_segments; i++) {
    r->run_of[i] = arena_array(s->scratch, int, s->n_slices);
    for (int m = 0; m < s->n_slices; m++)
      r->run_of[i][m] = -1;
  }
  add_action(s, 0, NULL, -1);
  for (int i = 0; !schedule && i < s->n_slices; i++)
    add_action(s, 0, NULL, i);
  // The n-th occurrence of a segment or a get is for slice n.
  for (int i = 0; run && i < run->action.n; i++) {
    const Action *action = &run->action.at[i];
    const Op *get = action->get ? action->get->def : NULL;
    add_action(s, action->segment, get, get ? n_got[get->id]++ : n_run[action->segment]++);
  }
  add_action(s, 0, NULL, -1);
  r->end = (Moment){r->n_actions - 1, INT64_MAX};
}

// -- Lives -------------------------------------------------------------------------------------

// The moment of a touch in one slice; false: the lane has no such action.
static bool find_moment(const LaneLives *s, const Touch *t, int slice, Moment *out) {
  const LaneRun *r = &s->run;
  if (t->part != STEP_micro) {
    *out = (Moment){t->part == STEP_begin ? 0 : r->n_actions - 1, t->at};
    return true;
  }
  // A received value has its memory from its `get` on.
  if (t->get) {
    for (int i = r->first_of[slice]; i >= 0 && i < r->n_actions; i++)
      if (r->get[i] == t->get && r->slice[i] == slice) {
        *out = (Moment){i, 0};
        return true;
      }
    return false;
  }
  *out = (Moment){r->run_of[t->segment][slice], t->at};
  return out->action >= 0;
}

// The live range of a block that lasts: from its first touch in the first slice to its last in the
// last.  Deferred ops run in the first slice.
static Lived life_of_lasting(const LaneLives *s, const MemBlock *b, const Touch *t, int n,
                             bool deferred) {
  Lived life = {false, s->run.end, {0, 0}};
  for (int i = 0; i < n; i++) {
    Moment from, to;
    if (t[i].deferred != deferred) continue;
    life.lives = true;
    if (!find_moment(s, &t[i], 0, &from) ||
        !find_moment(s, &t[i], deferred ? 0 : s->n_slices - 1, &to))
      continue;
    if (moment_before(from, life.from)) life.from = from;
    if (moment_before(life.to, to)) life.to = to;
  }
  // Parameters are there from the beginning.
  if (!b->value->def) life.from = (Moment){0, 0};
  return life;
}

static Lived life_in_slice(const LaneLives *s, const MemBlock *b, const Touch *t, int n,
                           int slice) {
  Lived life = {false, s->run.end, {0, 0}};
  for (int i = 0; i < n; i++) {
    Moment at;
    if (!find_moment(s, &t[i], slice, &at)) continue;
    life.lives = true;
    if (moment_before(at, life.from)) life.from = at;
    if (moment_before(life.to, at)) life.to = at;
  }
  // An input arrives with the first action of its slice.
  if (life.lives && !b->value->def) life.from = (Moment){s->run.first_of[slice], 0};
  return life;
}

static int by_block(const void *x, const void *y) {
  const MemBlock *a = ((const Touch *)x)->block, *b = ((const Touch *)y)->block;
  return (a->id > b->id) - (a->id < b->id);
}

void for_each_life(const LaneLives *s, EachLife *then, void *context) {
  for (int i = 0, n; i < s->touch.n; i += n) {
    const Touch *t = &s->touch.at[i];
    const MemBlock *b = t->block;
    for (n = 1; i + n < s->touch.n && t[n].block == b;)
      n++;
    for (int m = 0; !b->lasts && m < s->n_slices; m++) {
      Lived life = life_in_slice(s, b, t, n, m);
      if (life.lives) then(b, life, context);
    }
    if (!b->lasts) continue;
    // Persistent parameters are resident in the whole step.
    if (!b->value->def && param_kept(b->value)) {
      then(b, (Lived){true, {0, 0}, s->run.end}, context);
      continue;
    }
    // Operands of deferred ops live to the end of their step, and in the next step to the op that
    // reads them.
    Lived life = life_of_lasting(s, b, t, n, false), deferred = life_of_lasting(s, b, t, n, true);
    if (life.lives && deferred.lives) {
      life.to = s->run.end;
      deferred.from = (Moment){0, 0};
    }
    if (life.lives) then(b, life, context);
    if (deferred.lives) then(b, deferred, context);
  }
}

LaneLives *lane_lives_new(Arena *a, const Graph *g, const StepPart *part, int device, bool host) {
  LaneLives *s = arena_one(a, LaneLives);
  *s = (LaneLives){.g = g, .scratch = a, .part = part, .device = device, .host = host};
  s->n_slices = module_slices(g->module);
  s->due = graph_deferred_due(g, a);
  find_blocks(s);
  find_run(s);
  find_touches(s);
  // The touches of a block become adjacent.
  if (s->touch.n) qsort(s->touch.at, (size_t)s->touch.n, sizeof *s->touch.at, by_block);
  return s;
}

const LaneRun *lane_lives_run(const LaneLives *s) {
  return &s->run;
}
