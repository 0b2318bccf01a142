// The promises about memory: 18 to 20 of verify.c; 25, the order of ops; and 27.
//
// Live ranges are in the order of execution.  With a time axis, ops with the same result in all
// micro-batches run once, before the first; ops that depend on a sum over time, or compute a new
// parameter, run once, after the last; all others run between them, once per micro-batch.  An
// accumulation lives through all of that.  A value from before the first micro-batch, if one reads
// it, lives until the last has ended.
//
//     %h = cast %w …             0    once
//     %g = linear_back_w …, %h   2    every micro-batch; %h is alive to 6
//     %s = accumulate %g         3
//     %l = reduce_sum …          4    every micro-batch
//     %m = accumulate %l         5
//     %w1 = sgd %w, %s …         7    after the last; %s is alive from the start to here
//
// Values on meshes without a common device share no memory.
//
// A deferred update (deferred.h) runs in the next step, before its due op.  Its results live from
// then on; its operands live to the end of their own step, and in the next step until then.
//
// With a schedule, ranks are in several slices at once.  For two values that differ by slice, the
// live range of each slice of one is compared with those of all slices of the other, run by run
// (live_ranges.h); a value is also compared with itself.

#include <limits.h>
#include <stdlib.h>

#include "base/table.h"
#include "ir/analysis/deferred.h"
#include "ir/analysis/in_flight.h"
#include "ir/analysis/live_ranges.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "verify.h"

enum { START = -1, END = INT_MAX };

// The bytes and the live range of a value.
typedef struct Allocation {
  Value *v;
  int64_t from, to; // bytes of the slab, of all slots
  int born, dies;   // the times of the write and of the last read
  int made;         // the first write in a step: `born`, except for sums over slices
  int again;        // the last read in the next step; START: none
  int order, last;  // order among deferred ops: of the producer, of the last reader
  bool lasts;       // it is, or is a view of, persistent state
  bool by_slice;    // with a schedule: each slice has a live range of its own
} Allocation;

static bool is_view(const Value *v) {
  return v->def && v->index == 0 && (op_info[v->def->kind].traits & VIEW);
}

// The root of a chain of views.
static const Value *viewed(const Value *v) {
  while (is_view(v))
    v = v->def->in[0].value;
  return v;
}

// The time at which each op runs; see above.  Begin and end of the loop are times without an op.
typedef struct Times {
  int *of;  // by op id
  int *due; // by op id: the time of the due op of a deferred op; NULL: none
  int loop, loop_end;
} Times;

static Times find_times(const Graph *g, Arena *a) {
  const bool *late = graph_update_ops(g, a), *early = graph_begin_ops(g, a);
  Times t = {.of = arena_array(a, int, g->n_ops)};
  int now = 0;
  // Ops before the loop over micro-batches, of the loop, and after it.
  for_each_op(op, g) {
    if (early[op->id]) t.of[op->id] = now++;
  }
  t.loop = now++;
  for_each_op(op, g) {
    if (!early[op->id] && !late[op->id]) t.of[op->id] = now++;
  }
  t.loop_end = now++;
  for_each_op(op, g) {
    if (late[op->id]) t.of[op->id] = now++;
  }
  // Deferred ops run before their due ops.
  if (graph_first_deferred(g)) {
    DeferredGroups groups = {0};
    t.due = arena_array(a, int, g->n_ops);
    graph_deferred_groups(g, a, &groups);
    for (int i = 0; i < groups.n; i++) {
      const Op *op = groups.at[i].first;
      for (int k = 0; k < groups.at[i].n; k++, op = op->next)
        t.due[op->id] = t.of[groups.at[i].due->id];
    }
  }
  return t;
}

// The time of the first read of `v`, or of a view of it.
static int first_read(const Value *v, const Times *time) {
  int first = END;
  for_each_use(u, v) {
    if (!u->user) continue;
    // A view is no read, but its readers are.
    bool view = is_view(u->user->out[0]) && u->index == 0;
    int t = view ? first_read(u->user->out[0], time) : time->of[u->user->id];
    if (t < first) first = t;
  }
  return first;
}

static int64_t slots_end(const Value *v) {
  int64_t more = v->slots > 1 ? (v->slots - 1) * v->stride : 0;
  return v->offset + more + type_bytes(v->type);
}

// Extends live ranges for deferred ops.  Their results live when they run.  Operands from their own
// step live twice; so does a view that a deferred op produces of such an operand.
static void live_deferred(Allocation *p, const Times *time) {
  const Op *made = p->v->def, *root = viewed(p->v)->def, *last = NULL;
  if (!time->due) return;
  if (made && made->deferred) {
    p->born = p->made = time->due[made->id];
    p->order = time->of[made->id];
  }
  // The last reader, if it is deferred; deferred ops are the last of the graph.
  for (const Op *op = p->v->graph->last; op && op->deferred && !last; op = op->prev)
    if (time->of[op->id] == p->dies) last = op;
  if (!last || p->lasts) return;
  p->last = time->of[last->id];
  p->dies = time->due[last->id];
  if (root && root->deferred) return;
  // An operand of its own step lives to the end of that, and in the next step until the due op.
  p->again = p->dies;
  p->dies = END;
  if (made && made->deferred) p->born = p->made = END;
}

static Allocation allocation_of(Value *v, const Times *time) {
  Allocation p = {.v = v, .from = v->offset, .to = slots_end(v), .lasts = value_lasts(viewed(v))};
  p.born = p.dies = p.again = p.order = START;
  int made = v->def ? time->of[v->def->id] : START;
  // A sum over slices, and a value that leaves its slice, live from the start.
  bool all_slices = value_accumulates(v) || (v->graph->schedule && value_escapes(v));
  if (v->def && !all_slices) p.born = made;
  p.dies = made;
  // A dead result of a collective is waited for at the end.
  if (v->def && op_is_async(v->def) && first_read(v, time) == END) p.dies = END;
  for_each_use(u, v) {
    int t = u->user ? time->of[u->user->id] : END;
    // A reduction that is not in place reads until the first use of the sum, at the latest until
    // the end of the reduction's part.
    if (u->user && u->user->kind == OP_all_reduce && u->user->out[0]->offset != v->offset) {
      bool once = t < time->loop;
      t = first_read(u->user->out[0], time);
      if (once && t > time->loop) t = time->loop;
    }
    if (t > p.dies) p.dies = t;
  }
  // Read in the loop, a value from before it lives until the last micro-batch has ended.  Only
  // their own updates may overwrite persistent parameters, and inputs differ by micro-batch.
  if ((v->def || v->role == ROLE_scalar) && made < time->loop && p.dies > time->loop &&
      p.dies < time->loop_end)
    p.dies = time->loop_end;
  p.made = made;
  live_deferred(&p, time);
  return p;
}

static bool misplaced(const Value *v, const char *how, Diag *d) {
  Arena *a = arena_new();
  diag_error(d, v->def ? v->def->loc : v->loc, "'%s' at %lld %s", value_text(a, v),
             (long long)v->offset, how);
  arena_free(a);
  return false;
}

// The least alignment of all targets, in bytes: a module is not bound to a target, and plan_memory
// aligns its values for the one that it is given.
static int64_t least_align(void) {
  int64_t least = target_info[0].align;
  for (int i = 1; i < N_TARGETS; i++)
    if (target_info[i].align < least) least = target_info[i].align;
  return least;
}

static bool check_place(const Value *v, Diag *d) {
  const Module *m = v->graph->module;
  if (m->phase < PHASE_planned || !v->graph->entry)
    return v->offset == -1 || misplaced(v, "must not have a place", d);
  // Constants and fills need no memory, and nor do their views.
  const Op *root = viewed(v)->def;
  if (v->offset == -1 && root && (root->kind == OP_constant || root->kind == OP_fill)) return true;
  // The range of all slots is in the slab, or in that of host memory.
  if (v->offset < 0 || slots_end(v) > (value_on_host(v) ? m->host_bytes : m->slab_bytes))
    return misplaced(v, "is not in the slab", d);
  // Only a value of a single slice under a schedule has slots.
  if (v->slots && (!v->graph->schedule || !value_stays(v) || v->stride < type_bytes(v->type) ||
                   v->stride % least_align()))
    return misplaced(v, "has slots that it cannot have", d);
  if (v->offset % least_align() != 0) return misplaced(v, "is not aligned", d);
  // A view is at its offset in the operand, with the same slots.
  if (is_view(v)) {
    const Value *of = v->def->in[0].value;
    int64_t into =
        op_has_attr(v->def, "offset") ? attr_i(v->def, "offset") * dtype_bytes[of->type->dtype] : 0;
    bool as_slots = v->slots == of->slots && v->stride == of->stride;
    if (of->offset >= 0 && (v->offset != of->offset + into || !as_slots))
      return misplaced(v, "is a view with another offset than its source", d);
  }
  return true;
}

// Whether `v`, or a view of it, is the value of the parameter after the step.
static bool becomes(const Value *v, const Value *param) {
  for_each_use(u, v) {
    if (!u->user && v->graph->results[u->index]->target == param) return true;
    if (u->user && (op_info[u->user->kind].traits & VIEW) && becomes(u->user->out[0], param))
      return true;
  }
  return false;
}

// A deferred update is at the offset of its parameter, for the next step: verify_deferred.c.
static bool is_deferred_update(const Value *v) {
  if (!v->def || !v->def->deferred) return false;
  for_each_use(u, v)
    if (!u->user && v->graph->results[u->index]->target) return true;
  return false;
}

// Whether the op of `next` runs in place on each operand that is `v` or a view of it.
static bool runs_in_place(const Value *v, const Allocation *next, Arena *a) {
  const Op *op = next->v->def;
  for_each_use(u, v) {
    if (!u->user) continue;
    if (u->user == op && !op_inplace(op, next->v->index, u->index, a)) return false;
    if (u->index == 0 && is_view(u->user->out[0]) && !runs_in_place(u->user->out[0], next, a))
      return false;
  }
  return true;
}

// Whether the op of `next` reads `v` or a view of it.
static bool is_read_by(const Value *v, const Op *op) {
  for_each_use(u, v)
    if (u->user == op ||
        (u->user && u->index == 0 && is_view(u->user->out[0]) && is_read_by(u->user->out[0], op)))
      return true;
  return false;
}

// Whether `next` may overwrite `first`: the op of `next` is its last reader. Operands are found
// from the value, as a batch of updates has thousands.
static bool may_replace(const Allocation *first, const Allocation *next, Arena *a) {
  const Op *op = next->v->def;
  const Value *root = viewed(first->v);
  if (!op || !is_read_by(root, op)) return op != NULL;
  // An operand of pack may be produced at its position in the bucket.
  if (op->kind == OP_pack) return first->from >= next->from && first->to <= next->to;
  return next->from == first->from && runs_in_place(root, next, a);
}

// Whether `b` does not conflict with the rest of `a` in the next step: `b` is produced after the
// last read of `a`, or by its last reader in place.  The due op runs after the deferred ops.
static bool is_behind(const Allocation *a, const Allocation *b, Arena *scratch) {
  if (a->again == START || viewed(a->v) == viewed(b->v)) return true;
  if (b->again != START) return false;
  if (b->made != a->again || b->order == START) return b->made >= a->again;
  return b->order > a->last || (b->order == a->last && may_replace(a, b, scratch));
}

static int by_offset(const void *x, const void *y) {
  const Allocation *a = x, *b = y;
  return (a->from > b->from) - (a->from < b->from);
}

// -- Slices --------------------------------------------------------------------------------------

static int64_t slot_of(const Value *v, int slice) {
  return v->offset + (v->slots > 1 ? slice % v->slots * v->stride : 0);
}

// For two values that differ by slice, or for one and itself.
static bool slices_may_share(const Graph *g, LiveRanges *stays, const Allocation *a,
                             const Allocation *b, Arena *scratch) {
  int slices = module_slices(g->module);
  bool one = viewed(a->v) == viewed(b->v);
  for (int r = 0; r < g->schedule->run.n; r++) {
    const LiveRange *x = live_ranges_of(stays, a->v, r), *y = live_ranges_of(stays, b->v, r);
    for (int m = 0, first = 0; x && y && m < slices; m++) {
      // Slices of `b` that end before this one of `a` end before all later ones.
      while (first < slices && y[first].to < x[m].from)
        first++;
      for (int k = first; k < slices && y[k].from <= x[m].to; k++) {
        int64_t at_a = slot_of(a->v, m), at_b = slot_of(b->v, k);
        bool overlap = at_a < at_b + type_bytes(b->v->type) && at_b < at_a + type_bytes(a->v->type);
        if (!overlap || (m == k && one)) continue;
        if (m != k) return false;
        // The same slice of both: the later one may replace the other.
        bool a_first = x[m].from <= y[k].from;
        int64_t dies = a_first ? x[m].to : y[k].to, born = a_first ? y[k].from : x[m].from;
        if (dies != born || !may_replace(a_first ? a : b, a_first ? b : a, scratch)) return false;
      }
    }
  }
  return true;
}

static bool both_may_share(const Graph *g, LiveRanges *stays, const Meets *meets,
                           const Allocation *a, const Allocation *b, Arena *scratch) {
  if (value_on_host(a->v) != value_on_host(b->v)) return true;
  if (stays && a->by_slice && b->by_slice) return slices_may_share(g, stays, a, b, scratch);
  if (!values_meet(meets, a->v, b->v)) return true;
  if (!is_behind(a, b, scratch) || !is_behind(b, a, scratch)) return false;
  const Allocation *first = a->born <= b->born ? a : b, *next = first == a ? b : a;
  const Value *root = viewed(first->v);
  if (root == viewed(next->v)) return true;
  // Only its own update may overwrite persistent state.
  if (value_lasts(root) && (!becomes(next->v, root) || next->from != first->from)) return false;
  return first->dies < next->born ||
         (first->dies == next->born && may_replace(first, next, scratch));
}

// For a quick test of live ranges; most values that share bytes have disjoint ones, one layer after
// the other.
typedef struct Quick {
  int *kind; // 0: the test does not apply; SAME_TIME; or else the segment in which all of it is
  int *from, *to;
} Quick;

enum { SAME_TIME = -1 };

// Whether every slice of the value begins and ends in one run of the segment of its op, which runs
// one segment after the other.  Sets the op times there.
static bool within_segment(const Graph *g, LiveRanges *stays, const Value *v, int *from, int *to) {
  bool any = false;
  int slices = module_slices(g->module);
  for (int r = 0; v->def && r < g->schedule->run.n; r++) {
    const LiveRange *x = live_ranges_of(stays, v, r);
    for (int m = 0; x && m < slices; m++) {
      // It begins at its op and ends before the action does.
      int64_t begins = op_time(v->def), ends = x[m].to - x[m].from + begins;
      if (x[m].from != live_range_time(stays, v->def, r, m) ||
          x[m].to > live_range_segment_end(stays, v->def, r, m))
        return false;
      if (any && ends != *to) return false;
      *from = (int)begins;
      *to = (int)ends;
      any = true;
    }
  }
  return any;
}

static Quick quick_of(const Graph *g, LiveRanges *stays, const Allocation *all, int n, Arena *a) {
  Quick q = {arena_array(a, int, n), arena_array(a, int, n), arena_array(a, int, n)};
  for (int i = 0; i < n; i++) {
    const Allocation *p = &all[i];
    // Persistent state and deferred operands need more than that.
    if (!p->by_slice && !p->lasts && p->again == START) {
      q.kind[i] = SAME_TIME;
      q.from[i] = p->born;
      q.to[i] = p->dies;
    } else if (p->by_slice && within_segment(g, stays, p->v, &q.from[i], &q.to[i])) {
      q.kind[i] = p->v->def->segment;
    }
  }
  return q;
}

static bool quick_disjoint(const Quick *q, int i, int k) {
  if (!q->kind[i] || !q->kind[k]) return false;
  if (q->kind[i] == q->kind[k]) return q->to[i] < q->from[k] || q->to[k] < q->from[i];
  return q->kind[i] != SAME_TIME && q->kind[k] != SAME_TIME;
}

static bool check_overlaps(const Graph *g, Diag *d) {
  Arena *a = arena_new();
  const Meets meets = module_meets(g->module, a);
  const Times time = find_times(g, a);
  int n = 0;
  Allocation *all = arena_array(a, Allocation, g->n_values);
  // Values with memory of their own; a deferred update is checked as its parameter.
  for (int i = 0; i < g->n_params; i++)
    if (type_bytes(g->params[i]->type) > 0) all[n++] = allocation_of(g->params[i], &time);
  for_each_op(op, g) {
    for (int i = 0; i < op->n_out; i++)
      if (op->out[i]->offset >= 0 && type_bytes(op->out[i]->type) > 0 &&
          !is_deferred_update(op->out[i]))
        all[n++] = allocation_of(op->out[i], &time);
  }
  qsort(all, (size_t)n, sizeof *all, by_offset);
  bool ok = true;
  LiveRanges *stays = g->schedule ? stays_new(g, a) : NULL;
  for (int i = 0; i < n; i++)
    all[i].by_slice = stays && value_stays(all[i].v);
  const Quick quick = quick_of(g, stays, all, n, a);
  // Sorted by offset, so each value is compared only with those that begin before its end.
  for (int i = 0; ok && i < n; i++)
    for (int k = stays ? i : i + 1; ok && k < n && all[k].from < all[i].to; k++)
      if (!quick_disjoint(&quick, i, k) && (k > i || all[i].by_slice) &&
          !both_may_share(g, stays, &meets, &all[i], &all[k], a))
        ok = diag_error(d, all[k].v->def ? all[k].v->def->loc : all[k].v->loc,
                        "'%s' at %lld and '%s' at %lld overlap while both are alive",
                        value_text(a, all[i].v), (long long)all[i].from, value_text(a, all[k].v),
                        (long long)all[k].from);
  arena_free(a);
  return ok;
}

// Whether a loop runs the graph.
static bool is_loop_body(const Graph *g) {
  for_each_graph(caller, g->module)
    for_each_op(op, caller)
      if (op->kind == OP_loop && op->callee == g) return true;
  return false;
}

bool verify_planned(const Graph *g, Features *has, Diag *d) {
  bool planned = g->module->phase >= PHASE_planned;
  if ((!planned || !g->entry) && !has->places && !(planned && has->loops)) return true;
  // Values of bodies of loops have places relative to their loop; those of other bodies have none.
  bool body = planned && !g->entry && has->places && is_loop_body(g);
  for (int i = 0; i < g->n_params && !body; i++)
    if (!check_place(g->params[i], d)) return false;
  for_each_op(op, g) {
    for (int i = 0; i < op->n_out && !body; i++)
      if (!check_place(op->out[i], d)) return false;
    if (op->kind == OP_loop && planned && !verify_loop_places(op, least_align(), d)) return false;
  }
  if (g->module->phase < PHASE_planned || !g->entry) return true;
  const Op *late = graph_out_of_parts(g);
  if (late)
    return diag_error(
        d, late->loc,
        "%s: stands after an op that runs later in a step: before the loop over slices, in "
        "it, or after it",
        op_info[late->kind].name);
  return check_overlaps(g, d);
}

static bool same_place(const Value *x, const Value *y) {
  return x->offset == y->offset && x->host == y->host;
}

// `v` and `is` are of one role and name, in two entry graphs.
static bool same_kept_type(const Value *v, const Value *is, Diag *d) {
  if ((v->role != ROLE_weight && v->role != ROLE_state) || type_equal(v->type, is->type))
    return true;
  Arena *a = arena_new();
  diag_error(d, v->loc, "%s '%s' is %s in '@%s', and %s in '@%s'", role_name[v->role], v->label,
             type_text(a, v->type), v->graph->name, type_text(a, is->type), is->graph->name);
  arena_free(a);
  return false;
}

static bool same_kept_place(const Value *v, const Value *is, Diag *d) {
  if (!param_kept(v) || same_place(v, is)) return true;
  // Several meshes may have a scalar each.
  for (int k = 0; k < is->graph->n_params; k++) {
    const Value *p = is->graph->params[k];
    if (p->role == v->role && str_equal(p->label, v->label) && same_place(v, p)) return true;
  }
  return diag_error(d, v->loc, "%s '%s' is at %lld in '@%s', and at %lld in '@%s'",
                    role_name[v->role], v->label, (long long)v->offset, v->graph->name,
                    (long long)is->offset, is->graph->name);
}

bool verify_kept(const Module *m, Diag *d) {
  if (m->phase != PHASE_typed && m->phase < PHASE_planned) return true;
  bool (*same)(const Value *, const Value *, Diag *) =
      m->phase == PHASE_typed ? same_kept_type : same_kept_place;
  Arena *a = arena_new();
  const Graph *first = module_first_entry(m);
  const Table *params = first ? graph_params_by_label(first, a) : NULL;
  bool ok = true;
  for (const Graph *g = m->graphs; g && ok; g = g->next)
    for (int i = 0; g->entry && g != first && i < g->n_params && ok; i++) {
      const Value *v = g->params[i];
      const Value *is = v->label ? table_find(params, (int)v->role, v->label) : NULL;
      ok = !is || same(v, is, d);
    }
  arena_free(a);
  return ok;
}
