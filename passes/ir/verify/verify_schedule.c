// The promises about schedules: 15 and 16 of verify.c.  verify_waits.c checks for deadlocks.

#include "verify_schedule.h"

#include <stdlib.h>

#include "ir/analysis/place.h"
#include "ir/op.h"
#include "verify.h"

static bool wrong(const Graph *g, const Op *op, Diag *d, const char *what) {
  return diag_error(d, op ? op->loc : NULL, "the schedule of '@%s': %s", g->name, what);
}

BySegment group_by_segment(const Scheduled *s, const int *segment, int n) {
  BySegment by = {arena_array(s->arena, int, s->n + 3), arena_array(s->arena, int, n)};
  // Counts are two places ahead, so that filling the groups leaves `at` as their starts.
  for (int i = 0; i < n; i++)
    if (segment[i]) by.at[segment[i] + 2]++;
  for (int k = 0; k <= s->n; k++)
    by.at[k + 2] += by.at[k + 1];
  for (int i = 0; i < n; i++)
    if (segment[i]) by.item[by.at[segment[i] + 1]++] = i;
  return by;
}

// -- 15: segments ------------------------------------------------------------------------------

static bool check_segments(const Scheduled *s, Diag *d) {
  const Graph *g = s->g;
  const bool *early = graph_begin_ops(g, s->arena), *late = graph_update_ops(g, s->arena);
  int last = 0;
  // An op that runs in every slice needs a segment; others must not have one.
  for_each_op(op, g) {
    bool loops = !early[op->id] && !late[op->id];
    const char *name = op->segment ? segment_name(g, op->segment) : "";
    if (!loops && op->segment)
      return wrong(g, op, d,
                   str_format(s->arena, "%s runs once in a step, and has segment %s",
                              op_info[op->kind].name, name));
    if (loops && !op->segment)
      return wrong(g, op, d,
                   str_format(s->arena, "%s runs in every slice, and has no segment",
                              op_info[op->kind].name));
    if (!loops) continue;
    const Mesh *mesh = s->mesh[op->segment];
    // Segments are contiguous and on the same devices.
    if (mesh && op->segment != last)
      return wrong(g, op, d,
                   str_format(s->arena, "the ops of segment %s do not stand together", name));
    if (mesh && !mesh_same_devices(mesh, op_mesh(op)))
      return wrong(g, op, d,
                   str_format(s->arena, "the ops of segment %s are on different devices", name));
    if (!mesh) s->mesh[op->segment] = op_mesh(op);
    last = op->segment;
  }
  return true;
}

// -- 16: runs ----------------------------------------------------------------------------------

// Whether the run's devices receive the result of the move but do not have its operand.
static bool run_gets(const RankRun *run, const Op *move) {
  int device = run->device[0];
  return mesh_has(move->out[0]->layout->mesh, device) &&
         !mesh_has(move->in[0].value->layout->mesh, device);
}

typedef struct RunCheck {
  Scheduled *s;
  const RankRun *run;
  int *count; // by segment: how often it has run
  int *got;   // by move that is ahead: how often it was received
  Diag *d;
} RunCheck;

static bool bad_run(const RunCheck *c, const char *what) {
  return wrong(c->s->g, NULL, c->d, str_format(c->s->arena, "device %d %s", *c->run->device, what));
}

static bool check_action(const RunCheck *c, const Action *action) {
  const Scheduled *s = c->s;
  const Graph *g = s->g;
  // A get: of a move that this run's devices only receive.
  if (action->get) {
    int k = s->ahead_of[action->get->id];
    const char *name = value_text(s->arena, action->get);
    if (!k || !run_gets(c->run, s->ahead.at[k - 1]))
      return bad_run(c, str_format(s->arena, "gets %s, which no other device sends it", name));
    c->got[k - 1]++;
    return true;
  }
  int n = ++c->count[action->segment];
  const char *name = segment_name(g, action->segment);
  // Producer segments on the same devices must have run for this slice.
  const BySegment *reads = &s->reads_of, *ahead = &s->ahead_in;
  for (int i = reads->at[action->segment]; i < reads->at[action->segment + 1]; i++) {
    const SegmentRead *read = &s->reads.at[reads->item[i]];
    if (c->count[read->made] >= n || !mesh_has(s->mesh[read->made], *c->run->device)) continue;
    return bad_run(c,
                   str_format(s->arena, "runs %s of slice %d before %s, which computes its operand",
                              name, n - 1, segment_name(g, read->made)));
  }
  // Moves into the segment must have been received, or must have been started here.
  for (int i = ahead->at[action->segment]; i < ahead->at[action->segment + 1]; i++) {
    const Op *move = s->ahead.at[ahead->item[i]];
    if (run_gets(c->run, move) && c->got[ahead->item[i]] < n)
      return bad_run(c, str_format(s->arena, "runs %s of slice %d before it gets %s", name, n - 1,
                                   value_text(s->arena, move->out[0])));
    if (!run_gets(c->run, move) && c->count[move_start(move, c->run)] < n)
      return bad_run(c, str_format(s->arena,
                                   "runs %s of slice %d before it can send the operand of %s", name,
                                   n - 1, value_text(s->arena, move->out[0])));
  }
  return true;
}

static bool check_run(Scheduled *s, const RankRun *run, Diag *d) {
  RunCheck c = {s, run, arena_array(s->arena, int, s->n + 1),
                arena_array(s->arena, int, s->ahead.n), d};
  for (int i = 0; i < run->action.n; i++)
    if (!check_action(&c, &run->action.at[i])) return false;
  // All devices of the run are on the meshes of its segments, which it runs once per slice.
  for (int k = 1; k <= s->n; k++) {
    for (int i = 0; s->mesh[k] && i < run->n_devices; i++) {
      int times = mesh_has(s->mesh[k], run->device[i]) ? s->slices : 0;
      if (c.count[k] == times) continue;
      return wrong(s->g, NULL, d,
                   str_format(s->arena, "device %d runs %s %d times instead of %d", run->device[i],
                              segment_name(s->g, k), c.count[k], times));
    }
    if (!s->mesh[k])
      return bad_run(&c, str_format(s->arena, "runs %s, which no op has", segment_name(s->g, k)));
  }
  // So are values that it only receives.
  for (int i = 0; i < s->ahead.n; i++)
    if (run_gets(run, s->ahead.at[i]) && c.got[i] != s->slices)
      return bad_run(&c,
                     str_format(s->arena, "gets %s %d times instead of %d",
                                value_text(s->arena, s->ahead.at[i]->out[0]), c.got[i], s->slices));
  return true;
}

static int compare_ints(const void *x, const void *y) {
  return (*(const int *)x > *(const int *)y) - (*(const int *)x < *(const int *)y);
}

// Checks that each device of a segment's mesh is in one run, and other devices in none.
static bool check_devices(const Scheduled *s, Diag *d) {
  int n;
  const int *device = module_devices(s->g->module, s->arena, &n);
  int *sorted = arena_copy(s->arena, device, sizeof *sorted * (size_t)n);
  qsort(sorted, (size_t)n, sizeof *sorted, compare_ints);
  // How many runs have each device, and whether a segment needs it; by position in `sorted`.
  int *times = arena_array(s->arena, int, n);
  bool *takes_part = arena_array(s->arena, bool, n);
  for (int r = 0; r < s->g->schedule->run.n; r++) {
    const RankRun *run = &s->g->schedule->run.at[r];
    for (int k = 0; k < run->n_devices; k++) {
      const int *at = bsearch(&run->device[k], sorted, (size_t)n, sizeof *sorted, compare_ints);
      if (at) times[at - sorted]++;
    }
  }
  bool *seen = arena_array(s->arena, bool, module_n_meshes(s->g->module));
  for (int k = 1; k <= s->n; k++) {
    const Mesh *mesh = s->mesh[k];
    if (!mesh || seen[mesh->id]) continue;
    seen[mesh->id] = true;
    for (int i = 0; i < mesh->n_devices; i++) {
      const int *at = bsearch(&mesh->device[i], sorted, (size_t)n, sizeof *sorted, compare_ints);
      takes_part[at - sorted] = true;
    }
  }
  for (int i = 0; i < n; i++) {
    const int *at = bsearch(&device[i], sorted, (size_t)n, sizeof *sorted, compare_ints);
    if (times[at - sorted] == takes_part[at - sorted]) continue;
    return wrong(s->g, NULL, d,
                 str_format(s->arena, "device %d is in %d runs", device[i], times[at - sorted]));
  }
  return true;
}

// -- All ---------------------------------------------------------------------------------------

bool verify_schedule(const Graph *g, Diag *d) {
  if (!g->schedule) return true;
  bool any = false;
  for_each_op(op, g)
    any |= op->segment != 0;
  if (!g->entry || g->module->phase < PHASE_local || !g->module->meshes || !any)
    return wrong(g, NULL, d, "only an entry graph of local types has one, on some mesh");
  Scheduled s = {.g = g, .arena = arena_new(), .n = g->schedule->segment.n};
  s.slices = module_slices(g->module);
  s.mesh = arena_array(s.arena, const Mesh *, s.n + 1);
  s.ahead_of = arena_array(s.arena, int, g->n_values);
  bool ok = check_segments(&s, d) && check_devices(&s, d);
  // The pairs of a segment and a producer segment of its operands.  Each pair is listed once,
  // except if ops of different segments alternate.
  for (const Op *op = ok ? g->first : NULL; op; op = op->next)
    for (int i = 0; op->segment && i < op->n_in; i++) {
      const Op *made = op->in[i].value->def;
      if (!made || !made->segment || made->segment == op->segment) continue;
      SegmentRead read = {op->segment, made->segment};
      bool known = false;
      for (int k = s.reads.n - 1; k >= 0 && s.reads.at[k].reader == op->segment && !known; k--)
        known = s.reads.at[k].made == made->segment;
      if (!known) vec_push(s.arena, &s.reads, read);
    }
  // Moves that start before their segments: a run that only receives has gets of them.
  for (const Op *op = ok ? g->first : NULL; op; op = op->next)
    if (op->segment && move_is_ahead(op)) {
      vec_push(s.arena, &s.ahead, op);
      s.ahead_of[op->out[0]->id] = s.ahead.n;
    }
  int *reader = arena_array(s.arena, int, s.reads.n), *into = arena_array(s.arena, int, s.ahead.n);
  for (int i = 0; i < s.reads.n; i++)
    reader[i] = s.reads.at[i].reader;
  for (int i = 0; i < s.ahead.n; i++)
    into[i] = s.ahead.at[i]->segment;
  s.reads_of = group_by_segment(&s, reader, s.reads.n);
  s.ahead_in = group_by_segment(&s, into, s.ahead.n);
  for (int i = 0; ok && i < g->schedule->run.n; i++)
    ok = check_run(&s, &g->schedule->run.at[i], d);
  ok = ok && verify_waits(&s, d);
  arena_free(s.arena);
  return ok;
}
