// See live_ranges.h.
//
// Every run is simulated once, which records the action of each segment of each slice.  Live ranges
// are derived from these on demand, by value and run, and cached.

#include "live_ranges.h"

#include "ir/op.h"
#include "place.h"

// The actions of a run, by segment and by received value, for each slice.
typedef struct RunTimes {
  const RankRun *run;
  int **segment, **get, *first; // [slice]; NULL: none.  `first`: the first segment of a slice
} RunTimes;

struct LiveRanges {
  const Graph *g;
  Arena *arena;
  int slices;
  int64_t scale; // the number of op times per action
  RunTimes *run;
  const LiveRange **known; // by value id and run
  bool *looked;
  bool *ahead; // by op id: move_is_ahead
};

// -- Times -------------------------------------------------------------------------------------

static int *new_times(const LiveRanges *s) {
  return arena_array(s->arena, int, s->slices);
}

LiveRanges *stays_new(const Graph *g, Arena *a) {
  LiveRanges *s = arena_one(a, LiveRanges);
  int n = g->schedule->run.n;
  *s = (LiveRanges){.g = g, .arena = a, .slices = module_slices(g->module)};
  s->scale = graph_end(g) + 1;
  s->run = arena_array(a, RunTimes, n);
  s->known = arena_array(a, const LiveRange *, (int64_t)g->n_values *n);
  s->looked = arena_array(a, bool, (int64_t)g->n_values *n);
  s->ahead = arena_array(a, bool, g->n_ops);
  for_each_op(op, g)
    s->ahead[op->id] = op->segment && move_is_ahead(op);
  // Simulates each run.
  for (int i = 0; i < n; i++) {
    RunTimes *t = &s->run[i];
    t->run = &g->schedule->run.at[i];
    int *count = arena_array(a, int, g->schedule->segment.n + 1);
    int *got = arena_array(a, int, g->n_values);
    t->segment = arena_array(a, int *, g->schedule->segment.n + 1);
    t->get = arena_array(a, int *, g->n_values);
    t->first = new_times(s);
    for (int m = 0; m < s->slices; m++)
      t->first[m] = -1;
    // The k-th time that an action occurs, it is of slice k.
    for (int k = 0; k < t->run->action.n; k++) {
      const Action *action = &t->run->action.at[k];
      int slice = action->get ? got[action->get->id]++ : count[action->segment]++;
      int **times = action->get ? &t->get[action->get->id] : &t->segment[action->segment];
      if (slice >= s->slices) continue; // the verifier reports it
      if (!*times) *times = new_times(s);
      (*times)[slice] = k;
      if (!action->get && t->first[slice] < 0) t->first[slice] = k;
    }
  }
  return s;
}

int live_range_action(const LiveRanges *s, int64_t time) {
  return (int)(time / s->scale);
}

int64_t live_range_op_time(const LiveRanges *s, int64_t time) {
  return time % s->scale;
}

static int64_t time_of(const LiveRanges *s, int action, int64_t op_time) {
  return action * s->scale + op_time;
}

int64_t live_range_time(const LiveRanges *s, const Op *op, int run, int slice) {
  return time_of(s, s->run[run].segment[op->segment][slice], op_time(op));
}

int64_t live_range_segment_end(const LiveRanges *s, const Op *op, int run, int slice) {
  return time_of(s, s->run[run].segment[op->segment][slice], s->scale - 1);
}

// -- Values ------------------------------------------------------------------------------------

bool value_escapes(const Value *v) {
  if (!v->def || !v->def->segment || value_accumulates(v)) return false;
  for_each_use(u, v) {
    // The next value of an each_slice parameter is in the memory of the parameter.
    const Value *target = u->user ? NULL : v->graph->results[u->index]->target;
    if (target && target->each_slice) continue;
    if (!u->user || !u->user->segment) return true;
    bool view = (op_info[u->user->kind].traits & VIEW) && u->index == 0;
    if (view && value_escapes(u->user->out[0])) return true;
  }
  return false;
}

// Excludes constants, which are part of the program.
bool value_stays(const Value *v) {
  if (!v->def) return !param_kept(v);
  return v->def->segment && !value_accumulates(v) && !value_escapes(v);
}

static int64_t begin_of(const LiveRanges *s, const Value *v, const RunTimes *t, int slice) {
  if (!v->def) return time_of(s, t->first[slice], 0);
  // The op writes it, unless a move started earlier: it is received, or sent at a segment's end.
  if (!s->ahead[v->def->id]) return time_of(s, t->segment[v->def->segment][slice], op_time(v->def));
  if (t->get[v->id]) return time_of(s, t->get[v->id][slice], 0);
  return time_of(s, t->segment[move_start(v->def, t->run)][slice], s->scale - 1);
}

// The read actions by slice; NULL if the run does not run the reader.
static const int *read_at(const LiveRanges *s, const Op *reader, const RunTimes *t,
                          int64_t *op_at) {
  bool ahead = s->ahead[reader->id];
  *op_at = ahead ? s->scale - 1 : op_time(reader);
  // The sum is waited for at its first reader in the segment, at the latest at the segment's end.
  if (reader->kind == OP_all_reduce && reader->in[0].value->offset != reader->out[0]->offset) {
    *op_at = s->scale - 1;
    for_each_use(u, reader->out[0])
      if (u->user && u->user->segment == reader->segment && op_time(u->user) < *op_at)
        *op_at = op_time(u->user);
  }
  return t->segment[ahead ? move_start(reader, t->run) : reader->segment];
}

const LiveRange *live_ranges_of(LiveRanges *s, const Value *v, int run) {
  int64_t at = (int64_t)v->id * s->g->schedule->run.n + run;
  if (s->looked[at]) return s->known[at];
  s->looked[at] = true;
  const RunTimes *t = &s->run[run];
  bool there = v->layout && mesh_has(v->layout->mesh, t->run->device[0]);
  if (!there || !value_stays(v) || t->first[0] < 0) return NULL;
  // From the write of each slice.
  LiveRange *stay = arena_array(s->arena, LiveRange, s->slices);
  for (int m = 0; m < s->slices; m++) {
    stay[m].from = stay[m].to = begin_of(s, v, t, m);
    // A received value is live until its segment begins, even if it is dead.
    if (v->def && s->ahead[v->def->id])
      stay[m].to = time_of(s, t->segment[v->def->segment][m], op_time(v->def));
  }
  // To its last read.
  for_each_use(u, v) {
    int64_t op_at;
    const int *reads = u->user && u->user->segment ? read_at(s, u->user, t, &op_at) : NULL;
    // A move reads its operand when it starts, so only on the devices that have the operand.
    for (int m = 0; reads && m < s->slices; m++)
      if (time_of(s, reads[m], op_at) > stay[m].to) stay[m].to = time_of(s, reads[m], op_at);
  }
  return s->known[at] = stay;
}
