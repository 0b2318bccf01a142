// See unit_sample.h.
//
// The simulated timeline has the ops and collectives of a slice.  In the order of the program, a
// rank computes, or waits.  It waits for the collective that stands there, or, if there is none,
// for one that started earlier and that the next op needs: the seconds belong to that collective or
// op.

#include "unit_sample.h"

#include <math.h>
#include <stdlib.h>

#include "cost/step_lives.h"
#include "ir/analysis/place.h"
#include "memory_breakdown.h"
#include "pipeline/segments.h"

enum { NO_READER = -2 };    // instead of a unit
enum { ENOUGH_SLICES = 3 }; // the second is like all others between the first and the last

// Bytes of a slice.
typedef struct SliceBlock {
  const MemBlock *block;
  int64_t from, to;    // op times
  bool kept;           // from forward to backward
  bool given;          // to the unit that keeps it
  bool waits;          // a gradient of weights reads it
  int lowest, highest; // units that read it in backward, if it is kept
} SliceBlock;

typedef struct Reader {
  Module *m;
  Graph *g;
  const ModelUnits *b;
  const StepPart *part; // by op id
  Arena *a;
  int *unit;     // by op id
  int *of_param; // by index: the first unit that reads it in forward, or its weight; -1: none
  Segments segments;
  double *seconds; // by op id: of the slice that is read
  int n_slices;    // of the step
  int slice;       // that is read
  int64_t border;  // op time of the first op of backward
  Sample *out;
  // Of the live ranges:
  int action, last_action;
  double *outside[2];    // by op time: bytes of all values in the first action and in the last
  Vec(SliceBlock) block; // of the slice
} Reader;

static int unit_of(const Reader *r, const Op *op) {
  return r->unit[op->id];
}

// Finds the unit of each op.  A collective, or a cast for it, has no number: it is of the first
// unit that reads it, and a sum over slices of the one that makes it.  Ops of the loss, which the
// model has not, are of the last unit.
static void find_units(Reader *r) {
  r->unit = arena_array(r->a, int, r->g->n_ops);
  for (const Op *op = r->g->last; op; op = op->prev) {
    int unit = -1;
    if (op->of) unit = op->of < r->b->n_numbers ? r->b->unit_of[op->of] : -1;
    const Op *first = NULL;
    for (int i = 0; !op->of && i < op->n_out; i++)
      for_each_use(u, op->out[i])
        if (u->user && (!first || u->user->id < first->id)) first = u->user;
    if (first) unit = r->unit[first->id];
    r->unit[op->id] = unit >= 0 || op->of || first ? unit : NO_READER;
  }
  for_each_op(op, r->g) {
    int *unit = &r->unit[op->id], made = -1;
    for (int i = 0; *unit == NO_READER && i < op->n_in; i++)
      if (op->in[i].value->def) made = r->unit[op->in[i].value->def->id];
    if (*unit == NO_READER) *unit = made;
    if (*unit < 0) *unit = r->b->n_units - 1;
  }
}

static bool loops(const Reader *r, const Op *op) {
  return r->part[op->id] == STEP_micro;
}

// The first unit that reads the value in forward, or else in a slice, as the fused loss does its
// weight; -1: none.
static int first_unit(const Reader *r, const Value *v) {
  int first = -1, any = -1;
  for_each_use(u, v) {
    if (!u->user) continue;
    int unit = unit_of(r, u->user);
    if (loops(r, u->user) && (any < 0 || unit < any)) any = unit;
    if (u->user->part == PART_forward && (first < 0 || unit < first)) first = unit;
  }
  return first < 0 ? any : first;
}

// Finds the units of weights and states.  A weight that forward reads as a copy is of the copy's
// unit, and its states come from the same place of the model.
static void find_params(const Reader *r) {
  const Graph *g = r->g;
  for (int i = 0; i < g->n_params; i++)
    r->of_param[i] = value_lasts(g->params[i]) ? first_unit(r, g->params[i]) : -1;
  for (int i = 0; i < g->n_params; i++) {
    const Value *p = g->params[i];
    for (int k = 0; k < g->n_params && value_lasts(p) && r->of_param[i] < 0; k++) {
      const Value *q = g->params[k];
      if (q->role == ROLE_copy && str_equal(q->label, p->label)) r->of_param[i] = r->of_param[k];
    }
  }
  for (int i = 0; i < g->n_params; i++) {
    const Value *p = g->params[i];
    for (int k = 0; k < g->n_params && value_lasts(p) && r->of_param[i] < 0; k++) {
      const Value *q = g->params[k];
      if (q->role == ROLE_weight && q->loc && q->loc == p->loc) r->of_param[i] = r->of_param[k];
    }
  }
}

static WorkKind kind_of(const Reader *r, const Op *op) {
  int segment = r->segments.of[op->id];
  if (segment) return r->segments.at[segment - 1].kind;
  return op->part == PART_forward ? WORK_F : WORK_B;
}

// -- Seconds -----------------------------------------------------------------------------------

static int by_op(const void *x, const void *y) {
  const StepEvent *a = *(const StepEvent *const *)x, *b = *(const StepEvent *const *)y;
  return (a->op->id > b->op->id) - (a->op->id < b->op->id);
}

static void add_seconds(const Reader *r, const Op *op, double seconds) {
  r->out->unit[unit_of(r, op)].seconds[kind_of(r, op)] += seconds;
  r->seconds[op->id] += seconds;
}

// Reads the ops of a slice that takes from `from` to `to`.
static void read_slice(const Reader *r, const StepTimeline *t, double from, double to) {
  Vec(const StepEvent *) event = {0};
  for (int i = 0; i < t->event.n; i++) {
    const StepEvent *e = &t->event.at[i];
    if (e->lane != 0 || !e->op || e->part != STEP_micro || e->slice != r->slice) continue;
    if (e->line == LINE_computes || e->line == LINE_moves) vec_push(r->a, &event, e);
    if (e->line == LINE_out || e->line == LINE_in)
      r->out->unit[unit_of(r, e->op)].copies[e->line == LINE_in] += e->to - e->from;
  }
  if (event.n) qsort(event.at, (size_t)event.n, sizeof *event.at, by_op);
  double now = from;
  const Op *move = NULL; // the last one since the last op
  for (int i = 0; i < event.n; i++) {
    const StepEvent *e = event.at[i];
    if (e->line == LINE_moves) {
      move = e->op;
      continue;
    }
    add_seconds(r, move ? move : e->op, fmax(e->from - now, 0));
    add_seconds(r, e->op, e->to - e->from);
    now = e->to;
    move = NULL;
  }
  // The slice ends when its last collectives do.
  const Op *last = move ? move : event.n ? event.at[event.n - 1]->op : NULL;
  if (last) add_seconds(r, last, fmax(to - now, 0));
}

static void read_seconds(const Reader *r, const StepTimeline *t) {
  // Of the first slice, of `slice`, and of the last.
  double from[3] = {0}, to[3] = {0}, end = 0, begin = INFINITY;
  const int slices[3] = {0, r->slice, module_slices(r->m) - 1};
  double computes = 0;
  for (int i = 0; i < t->event.n; i++) {
    const StepEvent *e = &t->event.at[i];
    if (e->lane != 0) continue;
    if (e->part != STEP_micro) {
      if (e->op && e->line == LINE_computes) computes += e->to - e->from;
      continue;
    }
    if (e->op) continue;
    begin = fmin(begin, e->from);
    end = fmax(end, e->to);
    for (int k = 0; k < 3; k++)
      if (e->slice == slices[k]) {
        from[k] = e->from;
        to[k] = e->to;
      }
  }
  read_slice(r, t, from[1], to[1]);
  double outside = t->cost.seconds - (end > begin ? end - begin : 0);
  r->out->sums = fmax(outside - computes, 0);
  // The first slice writes sums of gradients that the others add to.
  r->out->update = fmax(computes + (to[0] - from[0]) - (to[1] - from[1]), 0);
  // The slices that were left out take as long as the last one.
  r->out->seconds = t->cost.seconds + (r->n_slices - module_slices(r->m)) * (to[2] - from[2]);
}

// -- Bytes -------------------------------------------------------------------------------------

static void add_lasting(const Reader *r, const MemBlock *b) {
  const Value *v = b->value;
  int unit = v->def ? unit_of(r, v->def) : r->of_param[v->index];
  double bytes = (double)(b->to - b->from);
  r->out->lasting += bytes;
  if (unit < 0) return;
  UnitSample *own = &r->out->unit[unit];
  own->lasting += bytes;
  if (v->def) {
    own->gradients += bytes;
    r->out->gradients += bytes;
  } else if (v->role == ROLE_state) {
    own->states += bytes;
    r->out->states += bytes;
  }
}

static void add_life(const MemBlock *b, Lived life, void *context) {
  Reader *r = context;
  double bytes = (double)(b->to - b->from);
  Moment border = {r->action, r->border};
  int64_t end = graph_end(r->g);
  // Resident outside of the loop: in the first action, before it, and in the last, the update.
  for (int k = 0; k < 2; k++) {
    int action = k ? r->last_action : 0;
    if (life.from.action > action || life.to.action < action) continue;
    int64_t to = life.to.action > action || life.to.at > end ? end : life.to.at;
    r->outside[k][life.from.action < action ? 0 : life.from.at] += bytes;
    r->outside[k][to + 1] -= bytes;
  }
  bool at_border = !moment_before(border, life.from) && !moment_before(life.to, border);
  if (b->lasts) {
    if (at_border) add_lasting(r, b);
    return;
  }
  if (life.from.action != r->action) return;
  // With one slice, gradients live up to the updates after it.
  if (life.to.action != r->action) {
    add_lasting(r, b);
    return;
  }
  bool kept = at_border && life.from.at < r->border;
  int64_t to = life.to.at < end ? life.to.at : end;
  vec_push(r->a, &r->block,
           ((SliceBlock){.block = b, .from = life.from.at, .to = to, .kept = kept}));
}

static double block_bytes(const SliceBlock *b) {
  return (double)(b->block->to - b->block->from);
}

// The block that has a value when an op reads it; NULL: none of the slice.
static SliceBlock *block_of(const Reader *r, const Value *v, const Op *op) {
  for (int i = 0; i < r->block.n; i++) {
    SliceBlock *b = &r->block.at[i];
    if (v->offset >= b->block->from && v->offset < b->block->to && b->from <= op_time(op) &&
        op_time(op) <= b->to)
      return b;
  }
  return NULL;
}

// Gives the kept bytes to the unit whose backward reads them first: it needs them, also if another
// stage produces them. Further stages with a unit that reads them have copies.
static void read_kept(const Reader *r) {
  for (int i = 0; i < r->block.n; i++)
    r->block.at[i].lowest = r->b->n_units;
  for_each_op(op, r->g) {
    if (!loops(r, op) || op_time(op) < r->border) continue;
    for (int i = 0; i < op->n_in; i++) {
      const Value *v = op->in[i].value;
      bool before = v->def ? loops(r, v->def) && op_time(v->def) < r->border : !value_lasts(v);
      SliceBlock *b = before ? block_of(r, v, op) : NULL;
      int unit = unit_of(r, op);
      if (!b || !b->kept) continue;
      if (unit < b->lowest) b->lowest = unit;
      if (unit > b->highest) b->highest = unit;
      if (b->given) continue;
      r->out->unit[unit].kept += block_bytes(b);
      b->given = true;
    }
  }
  for (int k = 0; k < r->block.n; k++) {
    const SliceBlock *b = &r->block.at[k];
    for (int u = b->lowest + 1; u <= b->highest; u++)
      r->out->unit[u].entry_kept += block_bytes(b);
    const Op *def = b->block->value->def;
    if (b->kept && !b->given) r->out->unit[def ? unit_of(r, def) : 0].kept += block_bytes(b);
  }
}

// Sums up the bytes of a slice that gradients of weights read, each value or view once. One that is
// produced in place of a kept value has its bytes; but if gradients of weights run later, not those
// of another one that they read.
static void read_waiting(const Reader *r) {
  bool *seen = arena_array(r->a, bool, r->g->n_values);
  for_each_op(op, r->g) {
    if (!loops(r, op) || kind_of(r, op) != WORK_W) continue;
    UnitSample *unit = &r->out->unit[unit_of(r, op)];
    for (int i = 0; i < op->n_in; i++) {
      int64_t from;
      const Value *v = view_root(op->in[i].value, &from);
      bool of_slice = v->def ? loops(r, v->def) && kind_of(r, v->def) != WORK_W : !value_lasts(v);
      if (!of_slice || seen[v->id]) continue;
      seen[v->id] = true;
      SliceBlock *b = block_of(r, op->in[i].value, op);
      bool has_block = b && !b->waits;
      unit->waiting += has_block ? block_bytes(b) : (double)type_bytes(v->type);
      if (has_block && b->kept) unit->both += block_bytes(b);
      if (b) b->waits = true;
    }
  }
}

// Finds the most bytes during each unit: in forward besides those that it and earlier units keep;
// in backward likewise, as it frees its own by and by, and if gradients of weights run later,
// besides all that are kept or wait for them.
static void read_working(const Reader *r) {
  int64_t end = graph_end(r->g);
  double *change = arena_array(r->a, double, end + 2), *apart = arena_array(r->a, double, end + 2);
  for (int i = 0; i < r->block.n; i++) {
    const SliceBlock *b = &r->block.at[i];
    change[b->from] += block_bytes(b);
    change[b->to + 1] -= block_bytes(b);
    if (b->kept || b->waits) continue;
    apart[b->from] += block_bytes(b);
    apart[b->to + 1] -= block_bytes(b);
  }
  double *kept = arena_array(r->a, double, r->b->n_units), now = 0, now_apart = 0;
  for (int i = 0; i < r->b->n_units; i++)
    kept[i] = r->out->unit[i].kept + (i ? kept[i - 1] : 0);
  int64_t at = 0;
  for_each_op(op, r->g) {
    for (; at <= op_time(op); at++) {
      now += change[at];
      now_apart += apart[at];
    }
    UnitSample *unit = &r->out->unit[unit_of(r, op)];
    bool back = kind_of(r, op) != WORK_F;
    double *most = &unit->working[back];
    if (!loops(r, op)) continue;
    *most = fmax(*most, now - kept[unit_of(r, op)]);
    if (back) unit->split_working = fmax(unit->split_working, now_apart);
  }
}

static void read_bytes(Reader *r) {
  int n;
  int device = module_devices(r->m, r->a, &n)[0];
  LaneLives *lives = lane_lives_new(r->a, r->g, r->part, device, false);
  r->action = lane_lives_run(lives)->run_of[0][r->slice];
  r->last_action = lane_lives_run(lives)->n_actions - 1;
  for (int k = 0; k < 2; k++)
    r->outside[k] = arena_array(r->a, double, graph_end(r->g) + 2);
  for_each_life(lives, add_life, r);
  read_kept(r);
  read_waiting(r);
  read_working(r);
  for (int k = 0; k < 2; k++) {
    double now = 0;
    for (int64_t at = 0; at <= graph_end(r->g); at++) {
      now += r->outside[k][at];
      r->out->updating = fmax(r->out->updating, now - r->out->lasting);
    }
  }
}

// -- Values between units, and weights ---------------------------------------------------------

// Finds the activations: values of the loop that depend on an input. The others, such as masks and
// biases of positions, are no part of Unit.across.
static bool *find_activations(const Reader *r) {
  bool *varies = arena_array(r->a, bool, r->g->n_values);
  for (int i = 0; i < r->g->n_params; i++)
    varies[r->g->params[i]->id] = r->g->params[i]->role == ROLE_input;
  for_each_op(op, r->g) {
    bool any = false;
    for (int i = 0; i < op->n_in; i++)
      any |= varies[op->in[i].value->id];
    for (int i = 0; i < op->n_out && any; i++)
      varies[op->out[i]->id] = true;
  }
  return varies;
}

static bool is_partial(const Value *v) {
  const Layout *l = v->layout;
  for (int i = 0; l && i < l->n_axes; i++)
    if (l->axis[i].kind == SBP_P && !l->mesh->axis[i].time) return true;
  return false;
}

// The number of parts of a value, of all ranks and slices.
static double count_parts(const Reader *r, const Value *v) {
  const Layout *l = v->layout;
  double parts = l ? 1 : r->n_slices;
  for (int i = 0; l && i < l->n_axes; i++)
    if (l->axis[i].kind == SBP_S)
      parts *= l->mesh->axis[i].time ? r->n_slices : l->mesh->axis[i].size;
  return parts;
}

// Whether a value is more like the activations between stages: it has more elements, or as many in
// more parts, as stages gather the parts that they read.
static bool is_larger(const Reader *r, const Value *v, const Value *most) {
  if (!most) return true;
  double parts = count_parts(r, v), most_parts = count_parts(r, most);
  double n = (double)type_count(v->type) * parts,
         most_n = (double)type_count(most->type) * most_parts;
  return n > most_n || (n == most_n && parts > most_parts);
}

// Sets the bytes that go from a unit to later ones: as many elements as in the model, in the layout
// and the type of the largest activation that does.  Fused ops produce more than one of them. A
// partial sum is reduced before it leaves a stage.
static void read_handed(const Reader *r) {
  int n = r->b->n_units;
  const Value **most = arena_array(r->a, const Value *, n);
  const bool *varies = find_activations(r);
  for_each_op(op, r->g) {
    if (!loops(r, op) || kind_of(r, op) != WORK_F) continue;
    for (int i = 0; i < op->n_out; i++) {
      const Value *v = op->out[i];
      int last = -1;
      if (!varies[v->id] || is_partial(v)) continue;
      for_each_use(u, v)
        if (u->user && loops(r, u->user) && kind_of(r, u->user) == WORK_F &&
            unit_of(r, u->user) > last)
          last = unit_of(r, u->user);
      for (int k = unit_of(r, op); k < last; k++)
        if (is_larger(r, v, most[k])) most[k] = v;
    }
  }
  for (int k = 0; k < n; k++)
    if (most[k])
      r->out->unit[k].handed =
          r->b->unit[k].across * dtype_bytes[most[k]->type->dtype] / count_parts(r, most[k]);
}

// -- Values of several units -------------------------------------------------------------------
//
//     %m = rms_norm …      unit 8             read by units 10, 12 and 14 after one all_gather: if a
//     %g = all_gather %m   10                 stage begins with unit 11 … 14, it gathers %m as well,
//     %k = linear %g, …    10, 12, 14         and reduces a part of the gradient of %m
//
// Values that depend on no input, such as biases of positions, are made on each stage that reads
// them.

// Units from which a value is read, directly or through collectives. None if high < low.
typedef struct Span {
  int low, high;
} Span;

static Span span_join(Span x, Span y) {
  if (x.high < x.low || y.high < y.low) return x.high < x.low ? y : x;
  return (Span){x.low < y.low ? x.low : y.low, x.high > y.high ? x.high : y.high};
}

typedef struct Entries {
  const Reader *r;
  const bool *varies; // by value id
  Span *of_op;        // by op id: of the first result's readers in forward
  Span *of_number;    // by number of the model: of the value that has the gradient
} Entries;

static bool has_number(const Reader *r, const Op *op) {
  return op->of && op->of < r->b->n_numbers;
}

static bool is_forward(const Reader *r, const Op *op) {
  return loops(r, op) && op->part == PART_forward;
}

// Whether each stage that reads the result runs the op: a collective on activations, or an op of
// the model without these.
static bool is_common(const Entries *e, const Op *op) {
  return (op->of == 0) == e->varies[op->out[0]->id];
}

static bool is_of_several(Span s) {
  return s.low < s.high;
}

// Finds the spans of all results of forward, and the ops of the model with terms of gradients of
// such values.
static void find_spans(Entries *e) {
  const Reader *r = e->r;
  for (const Op *op = r->g->last; op; op = op->prev) {
    Span *own = &e->of_op[op->id];
    *own = (Span){0, -1};
    if (!is_forward(r, op)) continue;
    for_each_use(u, op->out[0]) {
      if (!u->user || !is_forward(r, u->user)) continue;
      int unit = unit_of(r, u->user);
      *own = span_join(*own, is_common(e, u->user) ? e->of_op[u->user->id] : (Span){unit, unit});
    }
    if (!is_of_several(*own)) continue;
    if (has_number(r, op) && is_common(e, op)) e->of_number[op->of] = *own;
    for_each_use(u, op->out[0])
      if (u->user && is_forward(r, u->user) && has_number(r, u->user) && e->varies[op->out[0]->id])
        e->of_number[u->user->of] = span_join(e->of_number[u->user->of], *own);
  }
}

static void add_entry(const Reader *r, const Op *op, Span s) {
  for (int u = s.low + 1; u <= s.high; u++)
    r->out->unit[u].entry_seconds[kind_of(r, op)] += r->seconds[op->id];
}

// Gives further seconds to all units but the first that a stage may begin with between readers of a
// value: of the ops in forward that it runs itself, and of those that add up its own terms of the
// gradient, before any reader.
static void read_entries(const Reader *r) {
  Entries e = {r, find_activations(r), arena_array(r->a, Span, r->g->n_ops),
               arena_array(r->a, Span, r->b->n_numbers)};
  Span *root = arena_array(r->a, Span, r->g->n_ops); // by op id: of the value that has the gradient
  for (int i = 0; i < r->b->n_numbers; i++)
    e.of_number[i] = (Span){0, -1};
  find_spans(&e);
  for_each_op(op, r->g) {
    if (!loops(r, op)) continue;
    if (op->part == PART_forward) {
      if (is_common(&e, op)) add_entry(r, op, e.of_op[op->id]);
      continue;
    }
    root[op->id] = has_number(r, op) ? e.of_number[op->of] : (Span){0, -1};
    for (int i = 0; i < op->n_in && !op->of; i++) {
      const Op *def = op->in[i].value->def;
      if (def && loops(r, def) && def->part != PART_forward)
        root[op->id] = span_join(root[op->id], root[def->id]);
    }
    if (unit_of(r, op) < root[op->id].low) add_entry(r, op, root[op->id]);
  }
}

// Marks the units that read a value in forward: in the loop, directly or through collectives and
// casts. Returns the elements that they read: more than a shard has if it is gathered before.
static double mark_readers(const Reader *r, const Value *v, bool *reads) {
  double whole = (double)type_count(v->type);
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op || op->part != PART_forward) continue;
    if (loops(r, op)) reads[unit_of(r, op)] = true;
    for (int i = 0; i < op->n_out && !(op->of && loops(r, op)); i++)
      whole = fmax(whole, mark_readers(r, op->out[i], reads));
  }
  return whole;
}

static void read_weights(const Reader *r) {
  int n = r->b->n_units;
  for (int i = 0; i < r->g->n_params; i++) {
    const Value *p = r->g->params[i];
    int first = r->of_param[i], before = first;
    double count = (double)type_count(p->type);
    if (!value_lasts(p) || first < 0) continue;
    bool *reads = arena_array(r->a, bool, n);
    double whole = mark_readers(r, p, reads);
    bool any = false;
    for (int k = 0; k < n; k++)
      any |= reads[k];
    if (!any) continue;
    r->out->unit[first].weights += count;
    for (int k = first + 1; k < n; k++) {
      if (!reads[k]) continue;
      r->out->unit[k].tied += count;
      r->out->unit[k].tied_unit = before;
      before = k;
    }
    if (first == n - 1 || !reads[n - 1]) continue;
    r->out->tied += count;
    r->out->tied_unit = first;
    r->out->tied_whole += whole;
  }
}

// Sets the bytes in host memory of the weight with the most of them, its states and itself: its
// update has them on the device together.
static void read_pieces(const Reader *r) {
  const Graph *g = r->g;
  for (int i = 0; i < g->n_params; i++) {
    const Value *p = g->params[i];
    double bytes = 0;
    if (!p->host || r->of_param[i] < 0) continue;
    for (int k = 0; k < g->n_params; k++)
      if (g->params[k]->host && g->params[k]->loc == p->loc)
        bytes += (double)type_bytes(g->params[k]->type);
    UnitSample *own = &r->out->unit[r->of_param[i]];
    own->piece = fmax(own->piece, bytes);
  }
}

// -- The step ----------------------------------------------------------------------------------

// Whether collectives agree with their types: those over micro-batches have as many parts as there
// are.
static bool agrees(const Module *m) {
  Diag *d = diag_new(stderr);
  diag_quiet(d, true);
  bool ok = true;
  for_each_op(op, m->graphs) {
    Dims dims;
    if (op_traits(op) & COMM) ok = ok && op_dims(op, &dims, d);
  }
  diag_free(d);
  return ok;
}

// Shortens the loop, unless the program depends on its length.
static void limit_slices(Module *m, int most, Arena *a) {
  int n = 0;
  for_each_mesh(mesh, m)
    n += mesh->n_axes;
  int *before = arena_array(a, int, n), k = 0;
  for (Mesh *mesh = m->meshes; mesh; mesh = mesh->next)
    for (int i = 0; i < mesh->n_axes; i++) {
      before[k++] = mesh->axis[i].size;
      if (mesh->axis[i].time && mesh->axis[i].size > most) mesh->axis[i].size = most;
    }
  if (agrees(m)) return;
  k = 0;
  for (Mesh *mesh = m->meshes; mesh; mesh = mesh->next)
    for (int i = 0; i < mesh->n_axes; i++)
      mesh->axis[i].size = before[k++];
}

bool sample_step(Module *m, const ModelUnits *b, const Cluster *c, Target target, Arena *a,
                 Sample *out) {
  Reader r = {.m = m, .g = m->graphs, .b = b, .a = arena_new(), .out = out};
  *out = (Sample){.unit = arena_array(a, UnitSample, b->n_units)};
  r.of_param = arena_array(r.a, int, r.g->n_params + 1);
  StepTimeline t;
  graph_renumber(r.g);
  out->bytes = (double)needs_most(m, c).peak_bytes;
  out->joint_update = graph_find_output(r.g, "grad_norm") != NULL;
  r.n_slices = module_slices(m);
  limit_slices(m, ENOUGH_SLICES, r.a);
  bool ok = step_timeline(m, c, target, r.a, &t);
  if (ok) {
    find_units(&r);
    r.part = graph_step_parts(r.g, r.a);
    find_params(&r);
    r.segments = segments_find(r.g, true, false, r.a);
    r.slice = module_slices(m) > 1;
    r.seconds = arena_array(r.a, double, r.g->n_ops);
    r.border = graph_end(r.g);
    for (const Op *op = r.g->last; op; op = op->prev)
      if (loops(&r, op) && kind_of(&r, op) != WORK_F) r.border = op_time(op);
    read_seconds(&r, &t);
    read_bytes(&r);
    read_handed(&r);
    read_entries(&r);
    read_weights(&r);
    read_pieces(&r);
  }
  arena_free(r.a);
  return ok;
}
