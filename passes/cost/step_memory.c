// What is in the memory of ranks when, from the places that plan_memory gave and the times that a
// timeline says.
//
//     F0 0   F0 1   F0 2   B0 0   F0 3 …         slice 0 of %h is there from the first F0 to the
//     %h 0 ────────────────┘                     first B0, which is the last to read it: three
//            %h 1 ──────────────────── …         slices of it at once
//
// Values that share a place, made in place, as views or in a bucket, are one block: they are linked
// where an op reads one and makes the other, and their bytes overlap.  A block lives from the first
// op that makes something in it to the last that reads something of it, in every slice of time
// anew, unless it lasts: what is added up over slices, what begin makes, what update reads.
//
// The life of a slice is counted in places of the lane's own order, action by action, and op by op
// in them.  A move reads what it takes at the end of the segment that makes it, and what it brings
// takes memory from there, or from its `get` on (ir/schedule.h).

#include <limits.h>
#include <stdlib.h>

#include "ir/op.h"
#include "ir/place.h"
#include "ir/schedule.h"
#include "timeline.h"

const char *const memory_kind_name[N_MEMORY_KINDS] = {
    "weights", "optimizer states", "inputs", "forward", "backward", "update", "moved"};

// Where in what a lane does something happens: the op of a time in an action.
typedef struct Moment {
  int action;
  int64_t at; // op_time; 0: before all ops, INT64_MAX: behind them
} Moment;

typedef struct MemBlock {
  const Value *value; // the first
  const Value *shown; // the largest: of a bucket, the bucket
  MemoryKind kind;
  int64_t from, to; // bytes in the slab
  bool lasts;       // is there for all slices, or has nothing to do with them
} MemBlock;

// Something that makes or reads a block.
typedef struct Touch {
  MemBlock *block;
  int segment; // of the loop, with a schedule
  const Op *get;
  StepPart part;
  int64_t at;
  bool makes;
} Touch;

typedef struct Delta {
  Moment when;
  int64_t bytes; // less behind the moment, more before it
  MemoryKind kind;
} Delta;

typedef struct LaneRun {
  int n_actions;
  const Op **get; // of each action, or NULL
  int *segment, *slice;
  int **run_of;  // by segment, slice: the action; without a schedule segment 0 is the loop
  int *first_of; // by slice
  int last;      // action of the loop
  Moment end;    // of the step
} LaneRun;

typedef struct Memory {
  const StepTimeline *t;
  const Module *m;
  const Graph *g;
  Arena *a, *scratch; // of one lane
  const StepPart *part;
  int n_slices, device;
  int *above;          // by value id: of the values of one block
  MemBlock **block_of; // by value id of the first
  Vec(Touch) touch;
  Vec(Delta) delta;
  LaneRun run;
} Memory;

// -- Blocks ------------------------------------------------------------------------------------

static bool is_here(const Memory *s, const Value *v) {
  const Mesh *mesh = v->layout ? v->layout->mesh : NULL;
  return v->offset >= 0 && (!mesh || mesh_has(mesh, s->device));
}

static int64_t end_of(const Value *v) {
  return v->offset + type_bytes(v->type);
}

static bool overlap(const Value *x, const Value *y) {
  return x->offset < end_of(y) && y->offset < end_of(x);
}

static int root_of(const Memory *s, int v) {
  while (s->above[v] != v)
    v = s->above[v] = s->above[s->above[v]];
  return v;
}

static int64_t bytes_of(const Value *v) {
  return type_bytes(v->type);
}

// What a bucket is packed of is what most of it is; what is added up over slices are gradients.
static MemoryKind kind_of(const Value *v) {
  if (v->def && v->def->kind == OP_pack) {
    const Value *most = v->def->in[0].value;
    for (int i = 1; i < v->def->n_in; i++)
      if (bytes_of(v->def->in[i].value) > bytes_of(most)) most = v->def->in[i].value;
    return kind_of(most);
  }
  if (value_accumulates(v)) return MEMORY_backward;
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

// What is made where something lies that lasts from step to step is that.
typedef struct Kept {
  int64_t from, to;
} Kept;

static int by_from(const void *x, const void *y) {
  const Kept *a = x, *b = y;
  return (a->from > b->from) - (a->from < b->from);
}

static bool is_kept(const Kept *kept, int n, const Value *v) {
  int low = 0, high = n; // the first that ends behind the beginning of v
  while (low < high) {
    int middle = (low + high) / 2;
    if (kept[middle].to <= v->offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low < n && kept[low].from < end_of(v);
}

static void link_values(Memory *s) {
  for (uint32_t i = 0; i < s->g->n_values; i++)
    s->above[i] = (int)i;
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_in * op->n_out; i++) {
      const Value *in = op->in[i / op->n_out].value, *out = op->out[i % op->n_out];
      if (is_here(s, in) && is_here(s, out) && overlap(in, out))
        s->above[root_of(s, (int)out->id)] = root_of(s, (int)in->id);
    }
}

static void add_value(Memory *s, const Kept *kept, int n_kept, const Value *v) {
  if (!is_here(s, v) || (v->def && is_kept(kept, n_kept, v))) return;
  MemBlock **b = &s->block_of[root_of(s, (int)v->id)];
  if (!*b) {
    *b = arena_one(s->scratch, MemBlock);
    **b =
        (MemBlock){.value = v, .shown = v, .kind = kind_of(v), .from = v->offset, .to = end_of(v)};
  }
  if (bytes_of(v) > bytes_of((*b)->shown)) {
    (*b)->shown = v;
    (*b)->kind = kind_of(v);
  }
  (*b)->from = v->offset < (*b)->from ? v->offset : (*b)->from;
  (*b)->to = end_of(v) > (*b)->to ? end_of(v) : (*b)->to;
}

static void find_blocks(Memory *s) {
  Kept *kept = arena_array(s->scratch, Kept, s->g->n_params);
  int n = 0;
  for (int i = 0; i < s->g->n_params; i++) {
    const Value *p = s->g->params[i];
    if (param_kept(p) && is_here(s, p)) kept[n++] = (Kept){p->offset, end_of(p)};
  }
  if (n) qsort(kept, (size_t)n, sizeof *kept, by_from);
  s->above = arena_array(s->scratch, int, s->g->n_values);
  s->block_of = arena_array(s->scratch, MemBlock *, s->g->n_values);
  link_values(s);
  for (int i = 0; i < s->g->n_params; i++)
    add_value(s, kept, n, s->g->params[i]);
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_out; i++)
      add_value(s, kept, n, op->out[i]);
}

// -- What makes and reads them -----------------------------------------------------------------

static void touch(Memory *s, const Value *v, Touch t) {
  t.block = s->block_of[root_of(s, (int)v->id)];
  if (!t.block) return;
  t.block->lasts |= t.part != STEP_micro || value_accumulates(v);
  vec_push(s->scratch, &s->touch, t);
}

static int first_segment(const Memory *s) {
  for (int i = 0; i < s->run.n_actions; i++)
    if (s->run.segment[i]) return s->run.segment[i];
  return 0;
}

// Where a move of the loop takes what it moves, on those that have that.
static Touch start_of(const Memory *s, const Op *move) {
  const Op *made = move->in[0].value->def;
  int segment = made ? made->segment : 0;
  if (segment == move->segment) return (Touch){.segment = segment, .at = op_time(move)};
  return (Touch){.segment = segment ? segment : first_segment(s), .at = INT64_MAX};
}

// An all_reduce reads its operand until somebody waits for it: at the end of its segment at last.
static int64_t read_until(const Memory *s, const Op *op) {
  if (op->kind != OP_all_reduce) return op_time(op);
  int64_t first = value_first_read(op->out[0]);
  for_each_use(u, op->out[0])
    if (u->user && u->user->segment == op->segment) return first;
  return s->g->schedule ? INT64_MAX : first;
}

static void touch_reads(Memory *s, const Op *op, bool leads_on) {
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (!is_here(s, v)) continue;
    Touch t = {.segment = op->segment, .at = read_until(s, op)};
    if (leads_on) t = start_of(s, op);
    t.part = s->part[op->id];
    touch(s, v, t);
  }
}

static void touch_op(Memory *s, const Op *op) {
  bool leads_on = op->kind == OP_move && op->segment;
  touch_reads(s, op, leads_on);
  for (int i = 0; i < op->n_out; i++) {
    if (!is_here(s, op->out[i])) continue;
    Touch t = {.segment = op->segment, .at = op_time(op)};
    if (leads_on && is_here(s, op->in[0].value)) t = start_of(s, op);
    if (leads_on && !is_here(s, op->in[0].value)) t.get = op;
    t.part = s->part[op->id];
    t.makes = true;
    touch(s, op->out[i], t);
  }
}

static void find_touches(Memory *s) {
  for_each_op(op, s->g)
    touch_op(s, op);
  for (int i = 0; i < s->g->n_results; i++) {
    const Value *v = s->g->results[i]->use.value;
    if (is_here(s, v)) touch(s, v, (Touch){.part = STEP_update, .at = INT64_MAX});
  }
  // What lasts is there even if nobody reads it.
  for (int i = 0; i < s->g->n_params; i++) {
    const Value *v = s->g->params[i];
    if (is_here(s, v) && param_kept(v)) touch(s, v, (Touch){.part = STEP_begin});
  }
}

// -- The lane's order --------------------------------------------------------------------------

static void add_action(Memory *s, int segment, const Op *get, int slice) {
  LaneRun *r = &s->run;
  int i = r->n_actions++;
  r->segment[i] = segment;
  r->get[i] = get;
  r->slice[i] = slice;
  if (slice < 0) return;
  if (r->first_of[slice] < 0) r->first_of[slice] = i;
  if (!get) r->run_of[segment][slice] = i;
  r->last = i;
}

// Begin, the loop, update.
static void find_run(Memory *s) {
  const Schedule *schedule = s->g->schedule;
  const RankRun *run = schedule ? graph_run_of(s->g, s->device) : NULL;
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
  for (int i = 0; run && i < run->action.n; i++) {
    const Action *action = &run->action.at[i];
    const Op *get = action->get ? action->get->def : NULL;
    add_action(s, action->segment, get, get ? n_got[get->id]++ : n_run[action->segment]++);
  }
  add_action(s, 0, NULL, -1);
  r->end = (Moment){r->n_actions - 1, INT64_MAX};
}

// -- Lives -------------------------------------------------------------------------------------

static bool before(Moment x, Moment y) {
  return x.action != y.action ? x.action < y.action : x.at < y.at;
}

// Where in the lane's order a touch is, in a slice; false: the lane does nothing of the kind.
static bool find_moment(const Memory *s, const Touch *t, int slice, Moment *out) {
  const LaneRun *r = &s->run;
  if (t->part != STEP_micro) {
    *out = (Moment){t->part == STEP_begin ? 0 : r->n_actions - 1, t->at};
    return true;
  }
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

typedef struct Lived {
  bool lives;
  Moment from, to;
} Lived;

// Of a block that lasts: what the loop reads the next slice reads, too.
static Lived life_of_lasting(const Memory *s, const MemBlock *b, const Touch *t, int n) {
  if (!b->value->def && param_kept(b->value)) return (Lived){true, {0, 0}, s->run.end};
  Lived life = {true, s->run.end, {0, 0}};
  for (int i = 0; i < n; i++) {
    Moment at;
    if (!find_moment(s, &t[i], 0, &at)) continue;
    bool again = t[i].part == STEP_micro && s->n_slices > 1;
    Moment from = again ? (Moment){0, 0} : at, to = again ? (Moment){s->run.last, INT64_MAX} : at;
    if (before(from, life.from)) life.from = from;
    if (before(life.to, to)) life.to = to;
  }
  return life;
}

static Lived life_in_slice(const Memory *s, const MemBlock *b, const Touch *t, int n, int slice) {
  Lived life = {false, s->run.end, {0, 0}};
  for (int i = 0; i < n; i++) {
    Moment at;
    if (!find_moment(s, &t[i], slice, &at)) continue;
    life.lives = true;
    if (before(at, life.from)) life.from = at;
    if (before(life.to, at)) life.to = at;
  }
  if (life.lives && !b->value->def) life.from = (Moment){s->run.first_of[slice], 0};
  return life;
}

static int by_block(const void *x, const void *y) {
  const MemBlock *a = ((const Touch *)x)->block, *b = ((const Touch *)y)->block;
  return (a->value->id > b->value->id) - (a->value->id < b->value->id);
}

typedef void EachLife(Memory *s, const MemBlock *b, Lived life, void *to);

// Every block, and of one that does not last every slice.
static void for_each_life(Memory *s, EachLife *then, void *to) {
  for (int i = 0, n; i < s->touch.n; i += n) {
    const Touch *t = &s->touch.at[i];
    const MemBlock *b = t->block;
    for (n = 1; i + n < s->touch.n && t[n].block == b;)
      n++;
    if (b->lasts) then(s, b, life_of_lasting(s, b, t, n), to);
    for (int m = 0; !b->lasts && m < s->n_slices; m++) {
      Lived life = life_in_slice(s, b, t, n, m);
      if (life.lives) then(s, b, life, to);
    }
  }
}

static void add_life(Memory *s, const MemBlock *b, Lived life, void *to) {
  (void)to;
  int64_t bytes = b->to - b->from;
  vec_push(s->scratch, &s->delta, (Delta){life.from, bytes, b->kind});
  // What is there at the end is there when the next step begins.
  if (before(life.to, s->run.end))
    vec_push(s->scratch, &s->delta, (Delta){life.to, -bytes, b->kind});
}

// More comes before less, as an op has its operands while it makes its results.
static int by_moment(const void *x, const void *y) {
  const Delta *a = x, *b = y;
  if (before(a->when, b->when)) return -1;
  if (before(b->when, a->when)) return 1;
  return (a->bytes < 0) - (b->bytes < 0);
}

// -- Times -------------------------------------------------------------------------------------

// When moments of a lane are: those of its ops, and of its segments.
typedef struct Times {
  const StepEvent **op; // of the lane, in order
  int n_ops, at;
  double *from, *to; // by action, of segments
  double now;
} Times;

static double later(double a, double b) {
  return a > b ? a : b;
}

static Times find_times(const Memory *s, int lane) {
  const LaneRun *r = &s->run;
  Times t = {.op = arena_array(s->scratch, const StepEvent *, s->t->event.n),
             .from = arena_array(s->scratch, double, r->n_actions),
             .to = arena_array(s->scratch, double, r->n_actions)};
  for (int i = 0; i < s->t->event.n; i++) {
    const StepEvent *e = &s->t->event.at[i];
    if (e->lane != lane || e->moves) continue;
    int action = e->part == STEP_begin    ? 0
                 : e->part == STEP_update ? r->n_actions - 1
                                          : r->run_of[e->segment][e->slice];
    if (action < 0) continue;
    if (e->op) t.op[t.n_ops++] = e;
    if (t.to[action] == 0) t.from[action] = e->from;
    t.from[action] = e->from < t.from[action] ? e->from : t.from[action];
    t.to[action] = later(t.to[action], e->to);
  }
  for (int i = 0; i < r->n_actions; i++) {
    double last = i ? t.to[i - 1] : 0;
    if (t.to[i] == 0) t.from[i] = t.to[i] = last;
  }
  return t;
}

// Moments come in order.
static double time_of(Times *t, Moment when) {
  double from = t->from[when.action], to = t->to[when.action];
  if (when.at == INT64_MAX) return t->now = later(t->now, to);
  for (; t->at < t->n_ops && t->op[t->at]->from < to; t->at++) {
    const StepEvent *e = t->op[t->at];
    if (e->from < from || op_time(e->op) < when.at) continue;
    from = e->from;
    break;
  }
  return t->now = later(t->now, from);
}

// -- Points and the peak -----------------------------------------------------------------------

typedef struct Peak {
  Moment when;
  LaneMemory *out;
  const MemBlock *last; // whose slices were counted
} Peak;

static void add_held(Memory *s, const MemBlock *b, Lived life, void *to) {
  Peak *peak = to;
  if (before(peak->when, life.from) || before(life.to, peak->when)) return;
  if (peak->last == b) {
    peak->out->at_peak.at[peak->out->at_peak.n - 1].slices++;
    return;
  }
  peak->last = b;
  vec_push(s->a, &peak->out->at_peak, (MemoryHeld){b->shown, b->kind, b->to - b->from, 1});
}

static int by_bytes(const void *x, const void *y) {
  const MemoryHeld *a = x, *b = y;
  int64_t of_a = a->bytes * a->slices, of_b = b->bytes * b->slices;
  if (of_a != of_b) return of_a < of_b ? 1 : -1;
  return (a->value->id > b->value->id) - (a->value->id < b->value->id);
}

static const Op *op_at(const Memory *s, int64_t time) {
  for_each_op(op, s->g)
    if (op_time(op) == time) return op;
  return NULL;
}

static void explain_peak(Memory *s, Moment when, LaneMemory *out) {
  Peak peak = {.when = when, .out = out};
  for_each_life(s, add_held, &peak);
  if (out->at_peak.n)
    qsort(out->at_peak.at, (size_t)out->at_peak.n, sizeof *out->at_peak.at, by_bytes);
  out->peak_op = op_at(s, when.at);
  out->peak_slice = s->run.slice[when.action];
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
    // All that begins at a moment is one point, and so is all that ends there.
    if (next && !before(d->when, next->when) && (d->bytes < 0) == (next->bytes < 0)) continue;
    is.time = time_of(&times, d->when);
    if (all > out->peak) {
      out->peak = all;
      out->peak_time = is.time;
      peak = d->when;
    }
    vec_push(s->a, &out->point, is);
  }
  explain_peak(s, peak, out);
}

static LaneMemory lane_memory(Memory *s, int lane, const int64_t *ends) {
  LaneMemory out = {0};
  s->scratch = arena_new();
  s->device = s->t->lane[lane].device[0];
  s->touch.n = s->touch.cap = s->delta.n = s->delta.cap = 0;
  find_blocks(s);
  find_run(s);
  find_touches(s);
  if (s->touch.n) qsort(s->touch.at, (size_t)s->touch.n, sizeof *s->touch.at, by_block);
  for_each_life(s, add_life, NULL);
  add_points(s, lane, &out);
  out.planned = device_end(s->m, ends, s->device);
  arena_free(s->scratch);
  return out;
}

LaneMemory *step_memory(const StepTimeline *t, const Module *m, Arena *a) {
  Memory s = {.t = t, .m = m, .g = m->graphs, .a = a, .n_slices = module_slices(m)};
  LaneMemory *out = arena_array(a, LaneMemory, t->n_lanes);
  const int64_t *ends = mesh_ends(m, a);
  s.part = graph_step_parts(s.g, a);
  for (int i = 0; i < t->n_lanes; i++)
    out[i] = lane_memory(&s, i, ends);
  return out;
}
