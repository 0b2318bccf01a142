// The schedule of a kind: its orders, completed by the rule with the least makespan.  If a kind
// sets `room` and has more memory than that, a search follows.  Or the shortest schedule found: of
// all kinds that fit, and of searches in their shapes, without their orders.

#include "schedule/best.h"

#include <math.h>

#include "base/clock.h"

// Limit of all searches together: about half a second.
#define SEARCH_WORK INT64_C(100000000)
#define KIND_WORK   INT64_C(15000000) // for a search within a kind's orders

static const Orders no_orders;

// -- With given orders -------------------------------------------------------------------------

// The best of the schedules that the rules fill in, up to `end`; false if none completes.
static bool list_plan(Arena *a, const SchedulePlan *p, double room, double end, Timeline *out) {
  bool has = false;
  for (int i = 0; i < N_LIST_RULES && !(has && clock_seconds() > end); i++) {
    ListRule rule = list_rules[i];
    Timeline t;
    rule.room = room;
    if (!schedule_list(a, p->blocks, &p->orders, &rule, &t)) continue;
    if (has && t.makespan > out->makespan) continue;
    if (has && t.makespan == out->makespan && t.span >= out->span) continue;
    has = true;
    *out = t;
  }
  return has;
}

// Reports that nothing fits, and the memory that would suffice.
static bool too_little(const ScheduleChoice *c, const SchedulePlan *p, Diag *d) {
  Arena *a = c->arena;
  double least = pipeline_least_room(a, p->pipeline);
  const Loc *loc = loc_line(a, "--memory", 0, 0);
  Timeline t;
  if (c->ask.memory < least * (1 - 1e-9)) {
    diag_error(d, loc, "no order fits into %.6g: a micro-batch alone needs %.6g", c->ask.memory,
               least);
    return false;
  }
  // Without the user's limit, its orders may still contradict the kind's own.
  if (!list_plan(a, p, p->room, c->end, &t))
    return diag_error(d, p->loc, "its orders leave no way in the room that it wants, %.6g",
                      p->room);
  diag_error(d, loc, "'%s' does not fit into %.6g: it needs %.6g", p->name, c->ask.memory,
             timeline_peak(p->blocks, &t));
  diag_hint(d, "--kind search finds an order that fits");
  return false;
}

static void take(ScheduleBest *x, SchedulePlan *p, const Timeline *t, const char *how) {
  // Of equal makespans the shorter span: the longest time from a device's first block to its last.
  double best = x->plan ? x->timeline.makespan : INFINITY;
  bool shorter = t->makespan < best * (1 - 1e-9);
  bool as_short = x->plan && t->makespan <= best && t->span < x->timeline.span * (1 - 1e-9);
  if (!shorter && !as_short) return;
  x->plan = p;
  x->timeline = *t;
  x->how = how;
}

// Searches this shape, under these orders.  Returns whether the result is proven optimal for it.
static bool search_plan(const ScheduleChoice *c, SchedulePlan *p, const Orders *o, double room,
                        int64_t work, ScheduleBest *x) {
  double cutoff = x->plan ? x->timeline.makespan : INFINITY;
  SearchResult r =
      schedule_search(c->arena, p->blocks, o, room, cutoff, (SearchLimit){work, c->end});
  if (r.has) take(x, p, &r.best, "searched");
  return r.optimal;
}

// The best schedule of a kind, the same for an explicit kind and for a candidate of a search.
static bool kind_best(const ScheduleChoice *c, SchedulePlan *p, ScheduleBest *x) {
  Timeline t;
  if (!list_plan(c->arena, p, fmin(p->room, c->ask.memory), c->end, &t)) return false;
  take(x, p, &t, "as it is");
  // More memory than the kind was made for: its own orders are searched with all of it.
  if (p->room < c->ask.memory && c->ask.memory < INFINITY)
    search_plan(c, p, &p->orders, c->ask.memory, KIND_WORK, x);
  return true;
}

// -- Answers -----------------------------------------------------------------------------------

// Kinds that are tried first, for each number of chunks; and those with a searched shape: this
// finds the orders of the other kinds, too.
static const struct {
  const char *kind;
  int least_chunks, searched_chunks; // > 1: up to ask.chunks; 0: none
} candidates[] = {
    {"1f1b", 1, 0},  {"gpipe", 1, 0}, {"interleaved", 2, 2}, {"chimera", 1, 0},
    {"zb-h1", 1, 1}, {"zb-h2", 1, 0}, {"zb-v", 1, 1},        {"dualpipe", 1, 1},
};
enum { N_KINDS = sizeof candidates / sizeof *candidates };

// The shape of a candidate.  NULL after an error; if an earlier shape has a schedule, one that is
// too large is left out: `x->left_out`.
static SchedulePlan *candidate_plan(const ScheduleChoice *c, const char *kind,
                                    const ScheduleAsk *ask, ScheduleBest *x, Diag *d) {
  bool before = diag_quiet(d, x->plan != NULL);
  SchedulePlan *p = schedule_plan(c->arena, schedule_text(kind), ask, d);
  diag_quiet(d, before);
  if (!p && x->plan && (!x->left_out || ask->chunks < x->left_out)) x->left_out = ask->chunks;
  return p;
}

// Tries all candidates, and searches in the shapes of some.
static bool search_shapes(const ScheduleChoice *c, ScheduleBest *x, Diag *d) {
  SchedulePlan *searched[N_KINDS], *first = NULL;
  int n_searched = 0;
  x->bound = INFINITY;
  for (int i = 0; i < N_KINDS; i++) {
    // A candidate's best does not depend on the others, so that it is that of --kind.
    ScheduleAsk ask = c->ask;
    int least = candidates[i].least_chunks, most = least > 1 ? c->ask.chunks : least;
    for (ask.chunks = least; ask.chunks <= most; ask.chunks++) {
      if (x->plan && clock_seconds() > c->end) break;
      SchedulePlan *p = candidate_plan(c, candidates[i].kind, &ask, x, d);
      ScheduleBest alone = {0};
      if (!p && !x->plan) return false;
      if (!p) break; // more chunks are larger still
      if (!first) first = p;
      if (kind_best(c, p, &alone)) take(x, p, &alone.timeline, alone.how);
      x->bound = fmin(x->bound, pipeline_bound(c->arena, p->pipeline));
      if (ask.chunks == candidates[i].searched_chunks) searched[n_searched++] = p;
    }
  }
  // The searches share the limit, and each must beat the best so far.
  for (int i = 0; i < n_searched && clock_seconds() <= c->end; i++)
    search_plan(c, searched[i], &no_orders, c->ask.memory, SEARCH_WORK / n_searched, x);
  if (!x->plan) return too_little(c, first, d);
  return true;
}

bool schedule_best(const ScheduleChoice *c, ScheduleBest *out, Diag *d) {
  *out = (ScheduleBest){0};
  bool ok;
  if (c->kind) {
    SchedulePlan *p = schedule_plan(c->arena, c->kind, &c->ask, d);
    if (!p) return false;
    out->bound = pipeline_bound(c->arena, p->pipeline);
    ok = kind_best(c, p, out) || too_little(c, p, d);
  } else if (c->constraints || c->ask.e > 0) {
    // The open choices of a file's schedule; embeddings have the shape of 'interlaced'.
    SchedulePlan *p = c->constraints
                          ? schedule_plan_file(c->arena, c->constraints, &c->ask, d)
                          : schedule_plan(c->arena, schedule_text("interlaced"), &c->ask, d);
    if (!p) return false;
    double room = fmin(p->room, c->ask.memory);
    Timeline t;
    out->bound = pipeline_bound(c->arena, p->pipeline);
    if (list_plan(c->arena, p, room, c->end, &t)) take(out, p, &t, "as it is");
    const Orders *o = c->constraints ? &p->orders : &no_orders;
    out->optimal = search_plan(c, p, o, room, SEARCH_WORK, out);
    ok = out->plan || too_little(c, p, d);
  } else {
    ok = search_shapes(c, out, d);
  }
  out->late = clock_seconds() > c->end;
  // Shapes that were not tried have the bound of all: each device does its part of the work.
  if (out->late && !c->kind)
    out->bound = fmin(out->bound, c->ask.n_micro_batches * (c->ask.f + c->ask.b + c->ask.w));
  // A schedule as long as the bound is optimal, however it was found.
  if (ok) out->optimal |= out->timeline.makespan <= out->bound * (1 + 1e-9);
  return ok;
}

int schedule_best_chunks(const ScheduleBest *x) {
  return x->plan->shape.n_stages / x->plan->shape.n_devices;
}

const char *schedule_best_text(Arena *a, const ScheduleChoice *c, const ScheduleBest *x) {
  int chunks = schedule_best_chunks(x);
  const char *in = chunks > 1 ? str_format(a, " in %d chunks", chunks) : "";
  const char *of = c->constraints || c->ask.e > 0
                       ? ""
                       : str_format(a, " in at most %d chunks a device",
                                    x->left_out ? x->left_out - 1 : c->ask.chunks);
  const char *less =
      x->left_out ? str_format(a, "; shapes of %d or more chunks are too large", x->left_out) : "";
  return str_format(a, "found in the shape of '%s'%s, %s; nothing%s ends before %.9g%s",
                    x->plan->name, in, x->how, of, x->bound, less);
}
