// Deals of units to stages and their prices, compared with all deals: the timelines of a price with
// those of the kinds' files, and bounds with timelines.

#include "planner/auto/deal.h"

#include <math.h>

#include "base/vec.h"
#include "cost/cost.h"
#include "cost/cost_comm.h"
#include "cost/cost_step.h"
#include "draw.h"
#include "ir/schedule.h"
#include "pass.h"
#include "schedule/kinds.h"
#include "unit.h"

static double part(Random *r) {
  return below(r, 1 << 20) / (double)(1 << 20);
}

// -- Timelines by the kinds' files -------------------------------------------------------------

static StagedStage *random_stages(Arena *a, Random *r, int n, double spread, double hop) {
  StagedStage *s = arena_array(a, StagedStage, n);
  double f = 0.5 + part(r), b = 0.5 + part(r), w = 0.5 + part(r);
  for (int i = 0; i < n; i++)
    s[i] = (StagedStage){f * (1 + spread * part(r)),
                         b * (1 + spread * part(r)),
                         w * (1 + spread * part(r)),
                         hop * part(r),
                         1,
                         0,
                         0};
  return s;
}

// Our stage of one of the kind's: zb-v's two at the turn are one.
static int joined(const Staged *s, int stage) {
  return s->kind == STAGED_zb_v && stage >= s->n_devices ? stage - 1 : stage;
}

static int block_of(const Staged *s, const Blocks *ours, const Work *w, int m) {
  for (int k = ours->first[m]; k < ours->first[m + 1]; k++)
    if (ours->work[k]->kind == w->kind && ours->work[k]->stage == joined(s, w->stage)) return k;
  fail();
  return -1;
}

// The shortest timeline by the rules of the pass, under the orders of the kind's file.
static double file_makespan(Arena *a, const Staged *s) {
  Heard *h = heard_new();
  ScheduleAsk ask = {.n_devices = s->n_devices,
                     .n_micro_batches = s->n_micro_batches,
                     .chunks = s->chunks,
                     .f = 1,
                     .b = 1,
                     .w = 1,
                     .memory = INFINITY};
  SchedulePlan *plan = schedule_plan(a, schedule_text(staged_traits[s->kind].name), &ask, h->d);
  assert_non_null(plan);
  const Blocks *ours = blocks_new(a, staged_pipeline(a, s));
  Orders all = {0};
  for (int k = 0, n = ours->pipeline->route->n; k + n < ours->n; k++) {
    Order o = {k, k + n, NULL};
    vec_push(a, &all, o);
  }
  for (int i = 0; i < plan->orders.n; i++) {
    const Order *x = &plan->orders.at[i];
    Order o = {block_of(s, ours, plan->blocks->work[x->first], plan->blocks->micro_batch[x->first]),
               block_of(s, ours, plan->blocks->work[x->then], plan->blocks->micro_batch[x->then]),
               NULL};
    if (o.first != o.then) vec_push(a, &all, o);
  }
  double best = INFINITY;
  for (int i = 0; i < N_LIST_RULES; i++) {
    ListRule rule = list_rules[i];
    Timeline t;
    rule.room = plan->room;
    if (schedule_list(a, ours, &all, &rule, &t)) best = fmin(best, t.makespan);
  }
  heard_free(h);
  return best;
}

static void timelines_are_those_of_the_files(void **state) {
  Random r = {1};
  (void)state;
  for (int i = 0; i < 600; i++) {
    Arena *a = arena_new();
    Staged s = {
        .kind = (StagedKind)(i % N_STAGED_KINDS), .n_devices = 1 + below(&r, 6), .chunks = 1};
    if (s.kind == STAGED_interleaved) s.chunks = 1 + below(&r, 4);
    s.n_micro_batches = 1 + below(&r, 3 * s.n_devices);
    int n = staged_stages(s.kind, s.n_devices, s.chunks);
    s.stage = random_stages(a, &r, n, below(&r, 2) ? 0.1 : 20, below(&r, 2));
    StagedTimeline t;
    assert_true(staged_run(a, &s, &t));
    double want = file_makespan(a, &s);
    if (fabs(t.makespan - want) > 1e-12 * want)
      fail_msg("%s, %d devices, %d chunks, %d micro-batches: %.17g, not %.17g",
               staged_traits[s.kind].name, s.n_devices, s.chunks, s.n_micro_batches, t.makespan,
               want);
    // A cutoff drops no shorter timeline.
    s.cutoff = want * (1 + 1e-9);
    assert_true(staged_run(a, &s, &t) && fabs(t.makespan - want) <= 1e-12 * want);
    s.cutoff = want * (1 - 1e-9);
    assert_false(staged_run(a, &s, &t));
    arena_free(a);
  }
}

// -- Bounds ------------------------------------------------------------------------------------

static const StagedKind straight[] = {STAGED_gpipe, STAGED_1f1b, STAGED_zb_h1, STAGED_zb_h2};
enum { N_STRAIGHT = sizeof straight / sizeof *straight };

static PipelineCost random_pipeline(Arena *a, Random *r, StagedKind kind, double spread) {
  PipelineCost c = {.kind = kind, .stages = 1 + below(r, 8), .chunks = 1};
  if (kind == STAGED_interleaved) c.chunks = 1 + below(r, 4);
  c.micro_batches = 1 + below(r, 4 * c.stages);
  int n = staged_stages(kind, c.stages, c.chunks);
  StageCost *at = arena_array(a, StageCost, n);
  double f = 0.5 + part(r), b = 0.5 + part(r), w = 0.5 + part(r);
  double hop = below(r, 2) ? below(r, 3) : 0, behind = below(r, 3);
  for (int i = 0; i < n; i++) {
    at[i] = (StageCost){.forward = f * (1 + spread * part(r)),
                        .backward = b * (1 + spread * part(r)),
                        .weight_grad = w * (1 + spread * part(r)),
                        .hop = hop * part(r),
                        .sums = behind * part(r),
                        .update = behind * part(r)};
  }
  c.at = at;
  c.tied_sums = below(r, 2) ? part(r) : 0;
  c.joint_update = below(r, 2);
  return c;
}

static void bounds_are_below_timelines(void **state) {
  Random r = {2};
  (void)state;
  double sum[N_STAGED_KINDS] = {0};
  int count[N_STAGED_KINDS] = {0};
  for (int i = 0; i < 10000; i++) {
    Arena *a = arena_new();
    StagedKind kind = (StagedKind)(i % N_STAGED_KINDS);
    bool near = i % 7 > 1;
    PipelineCost c = random_pipeline(a, &r, kind, near ? 0.1 : 5);
    double seconds, peak, bound = makespan_bound(&c);
    assert_true(makespan_run(&c, INFINITY, &seconds, &peak));
    if (!(bound <= seconds * (1 + 1e-9)))
      fail_msg("%s, %d stages, %d micro-batches: bound %.9g of %.9g", staged_traits[kind].name,
               c.stages, (int)c.micro_batches, bound, seconds);
    // Transfers that wait for each other are not in the bound.
    if (near && !c.at[0].hop) {
      sum[kind] += seconds / bound - 1;
      count[kind]++;
    }
    arena_free(a);
  }
  // On average a timeline of nearly equal stages is a few percent longer.
  for (int k = 0; k < N_STAGED_KINDS; k++)
    assert_true(sum[k] <= (k == STAGED_zb_v ? 0.15 : 0.04) * count[k]);
}

// Equal stages without hops have timelines as long as the bound: of zero bubble, whose weight
// gradients fill the gaps by a rule, with the times of closed_forms.py.
static void bounds_of_equal_stages_are_exact(void **state) {
  static const double times[][3] = {{1, 1, 1}, {1, 2, 1}, {2, 2, 1}};
  Random r = {5};
  (void)state;
  for (int i = 0; i < 2000; i++) {
    Arena *a = arena_new();
    StagedKind kind = (StagedKind)(i % N_STAGED_KINDS);
    PipelineCost c = {.kind = kind, .stages = 1 + below(&r, 8), .chunks = 1};
    c.micro_batches = 1 + below(&r, 4 * c.stages);
    bool fixed = staged_traits[kind].split;
    const double *some = times[kind == STAGED_zb_v ? 0 : below(&r, 3)];
    if (kind == STAGED_zb_h2 || kind == STAGED_zb_v) c.micro_batches += 2 * c.stages - 2;
    if (kind == STAGED_interleaved) {
      c.chunks = 1 + below(&r, 4);
      c.micro_batches = c.stages * (1 + below(&r, 4));
    }
    int n = staged_stages(kind, c.stages, c.chunks);
    StageCost *at = arena_array(a, StageCost, n), one = {0};
    one.forward = fixed ? some[0] : 0.5 + part(&r);
    one.backward = fixed ? some[1] : 0.5 + part(&r);
    one.weight_grad = fixed ? some[2] : 0.5 + part(&r);
    for (int k = 0; k < n; k++)
      at[k] = one;
    // The stage at the turn is two.
    if (kind == STAGED_zb_v && n > 1)
      at[c.stages - 1] = (StageCost){.forward = 2, .backward = 2, .weight_grad = 2};
    c.at = at;
    double seconds, peak, bound = makespan_bound(&c);
    assert_true(makespan_run(&c, INFINITY, &seconds, &peak));
    if (!(fabs(seconds - bound) <= 1e-9 * bound))
      fail_msg("%s, %d stages, %d micro-batches, %g %g %g: bound %.9g of %.9g",
               staged_traits[kind].name, c.stages, (int)c.micro_batches, one.forward, one.backward,
               one.weight_grad, bound, seconds);
    arena_free(a);
  }
}

// -- Deals -------------------------------------------------------------------------------------

static UnitCosts random_units(Arena *a, Random *r, int n, bool same_hops) {
  UnitCost *at = arena_array(a, UnitCost, n);
  double behind = below(r, 2) * 5.0;
  for (int i = 0; i < n; i++) {
    at[i] = (UnitCost){.block = -1,
                       .forward = 0.2 + part(r),
                       .backward = 0.2 + part(r),
                       .weight_grad = 0.2 + part(r),
                       .may_end = below(r, 8) > 0};
    // Some units have no work in a direction, as an embedding has no backward.
    if (!below(r, 6)) at[i].forward = 0;
    if (!below(r, 6)) at[i].backward = at[i].weight_grad = 0;
    double kept = part(r);
    for (int k = 0; k < N_RECOMPUTE_LEVELS; k++) {
      at[i].kept[k] = kept;
      at[i].again[k] = k ? at[i].again[k - 1] + part(r) * 0.5 : 0;
      kept *= part(r);
    }
    at[i].working[0] = part(r);
    at[i].working[1] = part(r);
    at[i].handed = same_hops ? 1 : part(r);
    at[i].lasting = part(r) * 3;
    at[i].sums = behind * part(r);
    at[i].update = behind * part(r);
  }
  return (UnitCosts){.n = n,
                     .at = at,
                     .hop_start = below(r, 2) * part(r),
                     .hop_seconds_per_byte = below(r, 2) * part(r),
                     .tied_sums = below(r, 2) * part(r),
                     .joint_update = below(r, 2),
                     .tied_lasting = below(r, 2) * part(r)};
}

// Layers of a unit each, with states that may be in host memory.
static void add_states(UnitCosts *units, Arena *a, Random *r) {
  UnitCost *at = arena_array(a, UnitCost, units->n);
  for (int i = 0; i < units->n; i++) {
    at[i] = units->at[i];
    at[i].layer = i + 1;
    at[i].away = at[i].lasting * part(r);
    at[i].moves = 10 * at[i].away * part(r);
    at[i].piece = at[i].away * part(r);
    at[i].updating = 0.5 * part(r);
  }
  units->at = at;
}

// Bytes of a stage, from the definition.
static double stage_bytes(const DealProblem *p, int stage, int first, int last, int recomputed,
                          RecomputeLevel level, int offloaded) {
  double held = staged_held(p->kind, p->stages, (int)p->micro_batches, stage);
  double lasting = 0, kept = 0, working = 0, updating = 0, away = 0, piece = 0;
  for (int u = first; u < last; u++) {
    const UnitCost *x = &p->units->at[u];
    RecomputeLevel own = u - first < recomputed ? level : RECOMPUTE_none;
    lasting += x->lasting;
    kept += x->kept[own];
    updating += x->updating;
    if (u - first >= offloaded) continue;
    away += x->away;
    piece = fmax(piece, x->piece);
  }
  for (int u = first; u < last; u++) {
    const UnitCost *x = &p->units->at[u];
    // Any of the stage may be the one whose activations are in memory again.
    RecomputeLevel any = recomputed ? level : RECOMPUTE_none;
    working = fmax(working, fmax(x->working[0], x->working[1] + x->kept[0] - x->kept[any]));
  }
  if (first > 0 && last == p->units->n) lasting += p->units->tied_lasting;
  // Three of the largest updates are on the device, or all.
  return lasting - away + fmax(held * kept + working, updating + fmin(3 * piece, away));
}

typedef struct Trial {
  const DealProblem *p;
  Arena *arena;
  Deal deal;
  double best;
  double slowest; // of deals to devices with several stages: the least work of the slowest stage
} Trial;

// All deals, and all numbers of recomputed units at each level, and of those with states in host
// memory.
static void try_from(Trial *t, int stage) {
  const DealProblem *p = t->p;
  Deal *d = &t->deal;
  int n = p->units->n, first = d->first[stage];
  if (stage == p->stages) {
    if (first != n) return;
    PipelineCost c = deal_cost(p, d, t->arena);
    t->best = fmin(t->best, makespan_bound(&c));
    return;
  }
  for (int last = first + 1; last <= n - (p->stages - 1 - stage); last++) {
    if (last < n && !p->units->at[last - 1].may_end) continue;
    d->first[stage + 1] = last;
    RecomputeLevel least = p->per_stage_recompute ? RECOMPUTE_none : p->recompute;
    RecomputeLevel most = p->per_stage_recompute ? RECOMPUTE_layer : p->recompute;
    for (int level = (int)least; level <= (int)most; level++)
      for (int k = p->per_stage_recompute ? 0 : last - first; k <= last - first; k++) {
        if (k && !level && p->per_stage_recompute) continue;
        if (!k && level && p->per_stage_recompute) continue;
        d->level[stage] = (RecomputeLevel)level;
        d->recomputed[stage] = k;
        for (int o = 0; o <= (p->offload ? last - first : 0); o++) {
          d->offloaded[stage] = o;
          if (stage_bytes(p, stage, first, last, k, (RecomputeLevel)level, o) <= p->memory)
            try_from(t, stage + 1);
        }
      }
  }
}

// The work of the slowest stage; of zb-v that at the turn counts half.
static double slowest_stage(const DealProblem *p, const Deal *d) {
  double slowest = 0;
  for (int i = 0; i < d->n; i++) {
    double work = 0;
    for (int u = d->first[i]; u < d->first[i + 1]; u++) {
      const UnitCost *x = &p->units->at[u];
      work += x->forward + x->backward + x->weight_grad;
    }
    slowest = fmax(slowest, work * (p->kind == STAGED_zb_v && i == p->stages - 1 ? 0.5 : 1));
  }
  return slowest;
}

// The shortest timeline of all deals to devices with several stages, without recomputation.
static void try_chunks(Trial *t, int stage) {
  const DealProblem *p = t->p;
  Deal *d = &t->deal;
  int n = p->units->n;
  if (stage == d->n) {
    double seconds, peak;
    if (d->first[stage] != n || !makespan_find(p, d, INFINITY, &seconds, &peak)) return;
    t->slowest = fmin(t->slowest, slowest_stage(p, d));
    if (peak <= p->memory) t->best = fmin(t->best, seconds);
    return;
  }
  for (int last = d->first[stage] + 1; last <= n - (d->n - 1 - stage); last++) {
    if (last < n && !p->units->at[last - 1].may_end) continue;
    d->first[stage + 1] = last;
    try_chunks(t, stage + 1);
  }
}

static double try_all(const DealProblem *p, Arena *a) {
  Trial t = {.p = p, .arena = a, .best = INFINITY};
  t.deal = (Deal){.n = p->stages,
                  .first = arena_array(a, int, p->stages + 1),
                  .level = arena_array(a, RecomputeLevel, p->stages),
                  .recomputed = arena_array(a, int, p->stages),
                  .offloaded = arena_array(a, int, p->stages),
                  .swapped = arena_array(a, int, p->stages)};
  try_from(&t, 0);
  return t.best;
}

static void check_deal(const DealProblem *p, Arena *a, bool exact, int *fitting) {
  Deal d;
  bool found = deal_find(p, a, &d);
  double least = try_all(p, a);
  assert_true(deal_least(p).seconds <= least * (1 + 1e-9));
  if (found != !isinf(least))
    fail_msg("%s: %s, and the least of all deals is %g", staged_traits[p->kind].name,
             found ? "a deal" : "no deal", least);
  if (!found) return;
  ++*fitting;
  if (!(d.bound <= least * (1 + 1e-9)) || (exact && d.bound < least * (1 - 1e-9)))
    fail_msg("%s, %d stages, %d micro-batches, %d units: %.12g, not %.12g",
             staged_traits[p->kind].name, p->stages, (int)p->micro_batches, p->units->n, d.bound,
             least);
  // The deal itself fits, and has this bound, and a timeline that is no shorter.
  PipelineCost c = deal_cost(p, &d, a);
  double seconds, peak, bound = makespan_bound(&c);
  for (int i = 0; i < d.n; i++)
    assert_true(stage_bytes(p, i, d.first[i], d.first[i + 1], d.recomputed[i], d.level[i],
                            d.offloaded[i]) <= p->memory * (1 + 1e-6));
  assert_true(d.first[0] == 0 && d.first[d.n] == p->units->n);
  // Of states in host memory and recomputation, a stage of it takes the least seconds in sum.
  exact = exact && !p->offload;
  assert_true(d.bound <= bound * (1 + 1e-9) && (!exact || bound <= d.bound * (1 + 1e-9)));
  assert_true(makespan_find(p, &d, INFINITY, &seconds, &peak) && seconds >= bound * (1 - 1e-9));
  assert_true(peak <= p->memory * (1 + 1e-6));
  // Improvement keeps these promises.
  double better = deal_improve(p, &d, 50);
  assert_true(better <= seconds);
  assert_true(makespan_find(p, &d, INFINITY, &seconds, &peak) && seconds == better);
  assert_true(peak <= p->memory * (1 + 1e-6) && seconds >= least * (1 - 1e-9));
}

static DealProblem random_problem(Random *r, const UnitCosts *u, int most_stages) {
  DealProblem p = {.units = u, .kind = straight[below(r, N_STRAIGHT)], .chunks = 1};
  p.stages = 1 + below(r, most_stages < u->n ? most_stages : u->n);
  p.micro_batches = 1 + below(r, 3 * p.stages);
  p.memory = INFINITY;
  if (below(r, 2)) {
    double all = 0;
    for (int i = 0; i < u->n; i++)
      all += u->at[i].lasting +
             u->at[i].kept[0] * staged_held(p.kind, p.stages, (int)p.micro_batches, 0);
    p.memory = all / p.stages * (0.5 + 1.5 * part(r));
  }
  return p;
}

static void deals_are_the_best(void **state) {
  Random r = {3};
  int fitting = 0;
  (void)state;
  for (int i = 0; i < 600; i++) {
    Arena *a = arena_new();
    UnitCosts u = random_units(a, &r, 1 + below(&r, 12), i % 2);
    DealProblem p = random_problem(&r, &u, 5);
    p.recompute = (RecomputeLevel)below(&r, N_RECOMPUTE_LEVELS);
    check_deal(&p, a, i % 2, &fitting);
    arena_free(a);
  }
  assert_true(fitting > 300 && fitting < 600);
}

static void stages_recompute_as_little_as_fits(void **state) {
  Random r = {4};
  int fitting = 0;
  (void)state;
  for (int i = 0; i < 200; i++) {
    Arena *a = arena_new();
    UnitCosts u = random_units(a, &r, 1 + below(&r, 7), i % 2);
    DealProblem p = random_problem(&r, &u, 3);
    p.per_stage_recompute = true;
    check_deal(&p, a, i % 2, &fitting);
    arena_free(a);
  }
  assert_true(fitting > 100 && fitting < 200);
}

static void stages_offload_as_little_as_fits(void **state) {
  Random r = {7};
  int fitting = 0, without = 0;
  (void)state;
  for (int i = 0; i < 200; i++) {
    Arena *a = arena_new();
    UnitCosts u = random_units(a, &r, 1 + below(&r, 6), i % 2);
    DealProblem p = random_problem(&r, &u, 3);
    Deal d;
    p.memory *= 0.7;
    p.per_stage_recompute = below(&r, 2);
    add_states(&u, a, &r);
    without += deal_find(&p, a, &d);
    p.offload = OFFLOAD_fewest;
    check_deal(&p, a, i % 2, &fitting);
    arena_free(a);
  }
  assert_true(fitting > without + 10 && fitting < 200);
}

// With several stages per device a deal need not be the best; none is below its bound, and those
// with a complete order need the bytes that they say.
static void deals_of_chunks_are_above_their_bound(void **state) {
  Random r = {6};
  int fitting = 0;
  double sum = 0;
  (void)state;
  for (int i = 0; i < 400; i++) {
    Arena *a = arena_new();
    UnitCosts u = random_units(a, &r, 2 + below(&r, 9), i % 2);
    DealProblem p = {.units = &u, .kind = i % 3 ? STAGED_interleaved : STAGED_zb_v, .chunks = 1};
    p.stages = 1 + below(&r, 3);
    if (p.kind == STAGED_interleaved) p.chunks = 1 + below(&r, 3);
    p.micro_batches = 1 + below(&r, 4 * p.stages);
    double all = 0;
    for (int k = 0; k < u.n; k++)
      all += u.at[k].lasting + u.at[k].kept[0] * p.stages;
    p.memory = below(&r, 2) ? INFINITY : all / p.stages * (0.5 + 1.5 * part(&r));
    Deal d;
    Trial t = {.p = &p, .arena = a, .best = INFINITY, .slowest = INFINITY};
    int n = staged_stages(p.kind, p.stages, p.chunks);
    t.deal = (Deal){.n = n,
                    .first = arena_array(a, int, n + 1),
                    .level = arena_array(a, RecomputeLevel, n),
                    .recomputed = arena_array(a, int, n),
                    .offloaded = arena_array(a, int, n),
                    .swapped = arena_array(a, int, n)};
    bool found = deal_find(&p, a, &d);
    if (n <= u.n) try_chunks(&t, 0);
    if (found) {
      double seconds, peak;
      PipelineCost c = deal_cost(&p, &d, a);
      fitting++;
      assert_true(makespan_find(&p, &d, INFINITY, &seconds, &peak));
      assert_true(d.first[0] == 0 && d.first[d.n] == u.n);
      assert_true(makespan_bound(&c) <= seconds * (1 + 1e-9));
      assert_true(deal_least(&p).any_order <= t.best * (1 + 1e-9));
      if (n > p.stages) assert_true(fabs(slowest_stage(&p, &d) / t.slowest - 1) < 1e-9);
      if (!(d.bound <= t.best * (1 + 1e-9)))
        fail_msg("%s:%d on %d, %d micro-batches, %d units: bound %.9g of %.9g",
                 staged_traits[p.kind].name, p.chunks, p.stages, (int)p.micro_batches, u.n, d.bound,
                 t.best);
      if (p.kind == STAGED_interleaved) assert_true(peak <= p.memory * (1 + 1e-6));
      sum += deal_improve(&p, &d, 50) / seconds;
    }
    // With recomputation of single stages, more deals fit.
    p.per_stage_recompute = true;
    assert_true(deal_find(&p, a, &d) >= found);
    arena_free(a);
  }
  assert_true(fitting > 100 && sum < 0.995 * fitting);
}

// Stages of equal work in the orders of 1f1b wait for the earlier ones' first forward and last
// backward: (p - 1) / 2 stages in the mean.
static void parts_of_units_wait_for_each_other(void **state) {
  enum { N = 3, STAGES = 2, SLICES = 8 };
  UnitCost unit[N];
  (void)state;
  for (int i = 0; i < N; i++)
    unit[i] = (UnitCost){.forward = 1, .backward = 2, .weight_grad = 1, .sums = 0.5};
  UnitCosts u = {.n = N, .at = unit};
  DealProblem p = {.units = &u,
                   .kind = STAGED_1f1b,
                   .stages = STAGES,
                   .chunks = 1,
                   .micro_batches = SLICES,
                   .memory = INFINITY};
  // 12 seconds of a micro-batch. In a step of V seconds the first stage has 12 - V / 8 at least:
  //     V = 12 * 8 / 2 + (12 - V / 8) / 2
  DealLeast least = deal_least(&p);
  assert_float_equal(least.any_order, (12 * SLICES + 1.5) / 2, 1e-9);
  assert_float_equal(least.seconds, 54 * 16 / 17.0, 1e-6);
}

// Peaks from the order alone are those of timelines, if the order is complete.
static void peaks_are_those_of_timelines(void **state) {
  Random r = {7};
  (void)state;
  for (int i = 0; i < 2000; i++) {
    Arena *a = arena_new();
    Staged s = {
        .kind = (StagedKind)(i % N_STAGED_KINDS), .n_devices = 1 + below(&r, 6), .chunks = 1};
    if (s.kind == STAGED_interleaved) s.chunks = 1 + below(&r, 4);
    s.n_micro_batches = 1 + below(&r, 6 * s.n_devices);
    int n = staged_stages(s.kind, s.n_devices, s.chunks);
    StagedStage *stage = random_stages(a, &r, n, 0.5, below(&r, 2));
    bool same = s.kind == STAGED_zb_v;
    for (int k = 0; k < n; k++)
      stage[k].kept = same ? (k == s.n_devices - 1 ? 1 : 0.5) : part(&r);
    s.stage = stage;
    StagedTimeline t;
    assert_true(staged_run(a, &s, &t));
    for (int d = 0; d < s.n_devices; d++) {
      double kept[8];
      int count = 0;
      for (int k = 0; k < n; k++)
        if (staged_device(s.kind, s.n_devices, k) == d) kept[count++] = stage[k].kept;
      double peak = staged_peak(s.kind, s.n_devices, s.chunks, s.n_micro_batches, d, kept);
      bool complete = s.kind == STAGED_gpipe || s.kind == STAGED_interleaved ||
                      (s.kind == STAGED_1f1b && s.n_micro_batches >= s.n_devices);
      if (t.peak[d] > peak * (1 + 1e-9) || (complete && t.peak[d] < peak * (1 - 1e-9)))
        fail_msg("%s:%d, device %d of %d, %d micro-batches: %g, and %g in the timeline",
                 staged_traits[s.kind].name, s.chunks, d, s.n_devices, s.n_micro_batches, peak,
                 t.peak[d]);
    }
    arena_free(a);
  }
}

// Peaks are from the definition: each micro-batch has its kept bytes from forward to backward, and
// those that wait from there to the gradients of weights; some bytes do both. Each of the three has
// slots for the most micro-batches of its own, unless no two are live together; with zb-v's two
// stages on a device, the bytes share memory. Interleaved stages have memory of their own.
static void peaks_have_bytes_that_wait(void **state) {
  Random r = {8};
  (void)state;
  for (int i = 0; i < 1000; i++) {
    static const StagedKind kinds[] = {STAGED_1f1b, STAGED_zb_h1, STAGED_zb_h2, STAGED_zb_v,
                                       STAGED_interleaved};
    Arena *a = arena_new();
    Staged s = {.kind = kinds[i % 5], .n_devices = 1 + below(&r, 6), .chunks = 1};
    bool apart = s.kind == STAGED_interleaved;
    if (apart) s.chunks = 1 + below(&r, 4);
    bool split = staged_traits[s.kind].split;
    s.n_micro_batches = 1 + below(&r, 6 * s.n_devices);
    int n = staged_stages(s.kind, s.n_devices, s.chunks);
    StagedStage *stage = random_stages(a, &r, n, 0.5, below(&r, 2));
    for (int k = 0; k < n; k++)
      stage[k].waiting = 2 * part(&r);
    for (int k = 0; k < n; k++)
      stage[k].both = part(&r) * fmin(stage[k].kept, stage[k].waiting);
    s.stage = stage;
    StagedTimeline t;
    assert_true(staged_run(a, &s, &t));
    for (int d = 0; d < s.n_devices; d++) {
      double most = 0, of_stage[24] = {0};
      // Micro-batches from F to B, from F to W, and from B to W: now, and at most.
      int now[3] = {0}, held[3] = {0};
      for (int at = t.at[d]; at < t.at[d + 1]; at++) {
        double before = 0, after = 0;
        // The bytes that are held while this block runs, and after it.
        int stage_of = t.block[at].stage;
        for (int b = t.at[d]; b <= at; b++) {
          const StagedBlock *x = &t.block[b];
          if (apart && x->stage != stage_of) continue;
          const StagedStage *own = &stage[x->stage];
          double change = x->kind == WORK_F   ? own->kept
                          : x->kind == WORK_B ? (split ? own->waiting : 0) - own->kept
                                              : -own->waiting;
          before += b < at || x->kind == WORK_F ? change : 0;
          after += change;
        }
        WorkKind kind = t.block[at].kind;
        now[0] += (kind == WORK_F) - (kind == WORK_B);
        now[1] += (kind == WORK_F) - (kind == WORK_W);
        now[2] += (kind == WORK_B) - (kind == WORK_W);
        for (int k = 0; k < 3; k++)
          held[k] = now[k] > held[k] ? now[k] : held[k];
        most = fmax(most, fmax(before, after));
        of_stage[stage_of] = fmax(of_stage[stage_of], fmax(before, after));
      }
      const StagedStage *own = &stage[t.block[t.at[d]].stage];
      if (split && s.kind != STAGED_zb_v && held[1] > 1)
        most = held[0] * (own->kept - own->both) + held[1] * own->both +
               held[2] * (own->waiting - own->both);
      if (apart) most = 0;
      for (int k = 0; apart && k < n; k++)
        most += of_stage[k];
      if (fabs(most - t.peak[d]) > 1e-9 * (1 + most))
        fail_msg("%s, device %d of %d, %d micro-batches: %g, and %g in the timeline",
                 staged_traits[s.kind].name, d, s.n_devices, s.n_micro_batches, most, t.peak[d]);
    }
    arena_free(a);
  }
}

// -- Built plans -------------------------------------------------------------------------------

// Of so many rows and columns, on the devices of a stage.
#define VALUE  "f32[%d,%d] @s%d {S(0), B} split=[0,-]"
#define MOVED  "shape=[%d,%d] : f32[%d,%d] @s%d {S(0), B}"
#define WEIGHT "f32[%d,%d] @s%d {B, B}"

// A step of linear layers in stages, of so many layers each, before its schedule.
static Module *linear_stages(Arena *a, const Staged *s, const int *layers, int rows, int width,
                             Diag *d) {
  StrBuf b = {.arena = a}, update = {.arena = a}, ends = {.arena = a};
  int p = s->n_devices, m = s->n_micro_batches, n = staged_stages(s->kind, p, s->chunks), all = 0;
  int *device = arena_array(a, int, n);
  for (int i = 0; i < n; i++)
    device[i] = staged_device(s->kind, p, i);
  strbuf_addf(&b, "module phase=local\nmesh @all devices=0-%d (mb=%d:time, pp=%d)\n", p - 1, m, p);
  for (int i = 0; i < p; i++)
    strbuf_addf(&b, "mesh @s%d devices=%d (mb=%d:time, dp=1)\n", i, i, m);
  strbuf_addf(&b, "graph @train entry (%%x: f32[%d,%d] @s0 {S(0), B} input \"x\"", rows, width);
  for (int i = 0, layer = 0; i < n; i++)
    for (int j = 0; j < layers[i]; j++, layer++)
      strbuf_addf(&b, ",\n  %%w%d: " WEIGHT " weight \"w%d\" train = %d", layer, width, width,
                  device[i], layer, layer << 22);
  for (int i = 0; i < p; i++)
    strbuf_addf(&b, ",\n  %%lr%d: f32[] @s%d {B, B} scalar \"lr%d\"", i, i, i);
  strbuf_add(&b, ") {\n");
  // h: the value that the next layer reads.
  const char *h = "x";
  for (int i = 0; i < n; i++) {
    if (i) {
      strbuf_addf(&b, "  %%m%d = move %%%s " MOVED " of=%d\n", i, h, rows, width, rows, width,
                  device[i], all);
      h = str_format(a, "m%d", i);
    }
    for (int j = 0; j < layers[i]; j++) {
      const char *next = str_format(a, "h%d", ++all);
      strbuf_addf(&b, "  %%%s = linear %%%s, %%w%d : " VALUE " of=%d\n", next, h, all - 1, rows,
                  width, device[i], all);
      h = next;
    }
  }
  strbuf_addf(&b, "  %%g%d = mul %%%s, %%%s : " VALUE " backward of=%d\n", all + 1, h, h, rows,
              width, device[n - 1], all);
  const char *g = str_format(a, "g%d", all + 1);
  for (int i = n - 1, layer = all; i >= 0; i--) {
    for (int j = layers[i] - 1; j >= 0; j--, layer--) {
      const char *read = layer == 1 ? "x" : str_format(a, j ? "h%d" : "m%d", j ? layer - 1 : i);
      if (layer > 1)
        strbuf_addf(&b, "  %%g%d = linear %%%s, %%w%d : " VALUE " backward of=%d\n", layer, g,
                    layer - 1, rows, width, device[i], layer);
      strbuf_addf(&b,
                  "  %%d%d = linear_back_w %%%s, %%%s : f32[%d,%d] @s%d {P, B} split=[0,-] "
                  "backward of=%d\n  %%t%d = accumulate %%d%d axis=\"mb\" : " WEIGHT
                  " backward of=%d\n",
                  layer, read, g, width, width, device[i], layer, layer, layer, width, width,
                  device[i], layer);
      strbuf_addf(&update, "  %%u%d = sgd %%w%d, %%t%d, %%lr%d, %%lr%d : " WEIGHT " update\n",
                  layer - 1, layer - 1, layer, device[i], device[i], width, width, device[i]);
      strbuf_addf(&ends, "%s update %%w%d %%u%d", ends.n ? "," : "return", layer - 1, layer - 1);
      g = str_format(a, "g%d", layer);
    }
    if (i)
      strbuf_addf(&b, "  %%n%d = move %%%s " MOVED " backward of=%d\n", i, g, rows, width, rows,
                  width, device[i - 1], layer);
    g = str_format(a, "n%d", i);
  }
  strbuf_addf(&b, "%s  %s\n}\n", update.at, ends.at);
  return module_parse("stages.nn", b.at, b.n, d);
}

// Reads the costs of the stages from the ops of each segment.
static PipelineCost built_cost(Arena *a, const Module *m, const Cluster *cluster, const Staged *s) {
  StageCost *at = arena_array(a, StageCost, staged_stages(s->kind, s->n_devices, s->chunks));
  CommPrices *prices = comm_prices_new(a, cluster);
  for_each_op(op, m->graphs) {
    char name = 0;
    int stage = 0;
    if (op->segment)
      assert_int_equal(2, sscanf(segment_name(m->graphs, op->segment), "%c%d", &name, &stage));
    if (op->kind == OP_move) {
      if (name == 'F') at[stage - 1].hop = comm_price(prices, op)->cost.seconds;
      continue;
    }
    // Updates are of devices: of their first stage.
    if (!name) stage = *op_mesh(op)->device;
    double seconds = op_seconds(cluster, op);
    if (name == 'F') at[stage].forward += seconds;
    if (name == 'B') at[stage].backward += seconds;
    if (name == 'W') at[stage].weight_grad += seconds;
    if (!name) at[stage].update += seconds;
  }
  return (PipelineCost){s->kind, s->n_devices, s->chunks, s->n_micro_batches, at, 0, false};
}

// Also where transfers take as long as stages, and wait for each other.
static void timelines_are_those_of_built_plans(void **state) {
  int exact = 0;
  Random r = {8};
  (void)state;
  for (int i = 0; i < 60; i++) {
    Arena *a = arena_new();
    Heard *h = heard_new();
    Staged s = {
        .kind = (StagedKind)(i % N_STAGED_KINDS), .n_devices = 2 + below(&r, 3), .chunks = 1};
    if (s.kind == STAGED_interleaved) s.chunks = 2;
    s.n_micro_batches = s.n_devices + below(&r, 3 * s.n_devices);
    int layers[16];
    for (int k = 0; k < staged_stages(s.kind, s.n_devices, s.chunks); k++)
      layers[k] = 1 + below(&r, 3) + (k == 0);
    bool small = below(&r, 2);
    Module *m = linear_stages(a, &s, layers, small ? 8192 : 1024, small ? 128 : 1024, h->d);
    assert_non_null(m);
    const char *schedule = str_format(a, "schedule(kind=\"%s%s\" cluster=\"h200:1x8\")",
                                      staged_traits[s.kind].name, s.chunks > 1 ? ":2" : "");
    PipelineOptions o = {.bisect_limit = -1};
    bool ok;
    if (!pipeline_run(m, schedule, &o, h->d)) fail_msg("%s", h->text);
    const Cluster *cluster = cost_cluster("h200:1x8", m, a, h->d, &ok);
    PipelineCost c = built_cost(a, m, cluster, &s);
    StepCost step;
    double seconds, peak;
    assert_true(step_cost(m, cluster, TARGET_cuda, a, &step));
    assert_true(makespan_run(&c, INFINITY, &seconds, &peak));
    exact += fabs(seconds - step.seconds) <= 2e-6 * seconds;
    if (!(fabs(seconds - step.seconds) <= 0.005 * seconds))
      fail_msg("%s on %d, %d micro-batches: %.9g, and %.9g built", staged_traits[s.kind].name,
               s.n_devices, s.n_micro_batches, seconds, step.seconds);
    module_free(m);
    heard_free(h);
    arena_free(a);
  }
  // Blocks that end together by one sum of seconds do not by another.
  assert_true(exact >= 58);
}

TEST_GROUP(deal) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(timelines_are_those_of_the_files),
      cmocka_unit_test(bounds_are_below_timelines),
      cmocka_unit_test(bounds_of_equal_stages_are_exact),
      cmocka_unit_test(deals_are_the_best),
      cmocka_unit_test(stages_recompute_as_little_as_fits),
      cmocka_unit_test(stages_offload_as_little_as_fits),
      cmocka_unit_test(deals_of_chunks_are_above_their_bound),
      cmocka_unit_test(parts_of_units_wait_for_each_other),
      cmocka_unit_test(peaks_are_those_of_timelines),
      cmocka_unit_test(peaks_have_bytes_that_wait),
      cmocka_unit_test(timelines_are_those_of_built_plans),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
