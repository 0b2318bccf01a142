// Sharding: a layout for every value, and for every op the letter each mesh axis splits.
//
//     graph @train entry (%x: f32[8,4] input "x", %w: f32[4,6] weight "w" train, …) {
//       %y = linear %x, %w        : f32[8,6]
//       %g = linear_back_w %x, %d : f32[4,6]
//
//   =>  shard(mesh=dp:2 plan=dp)
//
//     graph @train entry (%x: f32[8,4] {S(0)} input "x", %w: f32[4,6] {B} weight "w" train, …) {
//       %y = linear %x, %w        : f32[8,6] {S(0)} split=[0]
//       %g = linear_back_w %x, %d : f32[4,6] {P}    split=[0]
//
// Programs fix a part: layouts of inputs and weights, splits of some ops (plan.h). The rest
// follows along the einsums (propagate.h).
//
// Axes are decided one after the other, the innermost first, so that programs of outer axes know
// the splits so far: ZeRO picks a dimension of a weight that tensor parallelism leaves whole.
//
// An axis may be divided among ops instead: each runs on some of its ranks (assign.h), and may
// split over those. Then there are several meshes, and the ranks along each axis are decided before
// the splits.
//
// No data moves here; comm.c inserts the collectives that these layouts imply.

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/stop.h"
#include "comm/mesh.h"
#include "comm/recompute_layouts.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "pass.h"
#include "planner/plan/sections.h"
#include "planner/saved/plan_fingerprint.h"
#include "planner/saved/record.h"
#include "planner/search/lives.h"
#include "planner/search/search.h"
#include "sharding/assign.h"
#include "sharding/constraints.h"
#include "sharding/decide.h"
#include "sharding/propagate.h"

// -- One graph ---------------------------------------------------------------------------------

// Checks that all other decisions left a split that the programs' constraints allow.
static bool check_allowed(const Sharding *s, const Constraint *constraint, char split,
                          const char *what, const Loc *about, const Loc *runs, int axis, Diag *d) {
  if (constraint_allows(constraint, split)) return true;
  diag_error(d, constraint->line, "%s %s along %s cannot be%s", what,
             splits_text(s->scratch, constraint_splits(constraint, s->scratch)),
             s->mesh->axis[axis].name,
             s->mesh->n_axes > 1 ? ", besides the splits of other axes" : "");
  diag_note(d, about, "this one");
  for (const Constraint *more = constraint->before; more; more = more->before)
    diag_note(d, more->line, "it was said here %s %s", what, splits_text(s->scratch, more->splits));
  if (runs) diag_note(d, runs, "its ranks were set here");
  return false;
}

static bool check_program(const Sharding *s, Diag *d) {
  bool ok = true;
  for_each_op(op, s->g)
    for (int a = 0; a < s->mesh->n_axes; a++) {
      char split = op->split[a] ? op->split[a] : '-';
      // Partial sums must arrive at an op that passes them on by a program's request: the request
      // precedes the decision about the operands.
      const Loc *loc = s->decisions.fixed_by[op->id][a];
      int n = 0, last = 0, want = op_traits(op) & MULTILINEAR ? 1 : op->n_in;
      for (int i = 0; i < op->n_in; i++)
        if (s->decisions.layout[op->in[i].value->id][a].kind == SBP_P) {
          n++;
          last = i;
        }
      bool lacks_sums = loc && split == SPLIT_PARTIAL && !op_passes_sums(op, n, last);
      if (lacks_sums) {
        diag_error(d, loc,
                   "%s passes sums on when %d of its operands are partial sums along %s, not %d",
                   op_info[op->kind].name, want, s->mesh->axis[a].name, n);
        diag_note(d, op->loc, "this one");
      }
      for (int i = 0; i < op->n_in && lacks_sums; i++) {
        const Op *def = op->in[i].value->def;
        const Loc *line = def ? s->decisions.fixed_by[def->id][a] : NULL;
        if (line && s->decisions.layout[op->in[i].value->id][a].kind != SBP_P)
          diag_note(d, line, "the producer of operand %d was set here, so it is no partial sum",
                    i + 1);
      }
      ok &= !lacks_sums;
      ok &= check_allowed(s, s->constraints.op[op->id][a], split, "to split", op->loc,
                          s->decisions.assigned_by[op->id][a], a, d);
    }
  for (int i = 0; i < s->g->n_params; i++)
    for (int a = 0; a < s->mesh->n_axes; a++) {
      const Value *v = s->g->params[i];
      ok &= check_allowed(s, s->constraints.value[v->id][a],
                          split_of_sbp(s->decisions.layout[v->id][a]), "to split dimension", v->loc,
                          NULL, a, d);
    }
  return ok;
}

static void lay(Module *m, Value *v, const Sbp *layout) {
  v->layout = layout_new(m, v->layout->mesh, layout);
}

// -- Factorings of the ranks ---------------------------------------------------------------------

// One factoring of the ranks. Programs may leave several open, and the cheapest is taken.
typedef struct Attempt {
  const char *mesh, *plan, *explain, *lp, *problem;
  bool limited, routed;
  int64_t memory, work; // for searches; 0: the devices' memory, no limit of work
  double seconds;       // limit of each search by the clock; 0: one in work
  double wanted;        // seconds of a step beyond which no plan is wanted; 0: any
  const Cluster *cluster;
  Target target;
  Arena *scratch;
  int n, n_factorings[MAX_AXES], pick[MAX_AXES]; // of each program
  int n_best, best[N_FACTORINGS];                // the cheapest combinations of picks, by number
  double took[N_FACTORINGS];
  const struct Stop *stop; // ends it without a result, or NULL
  bool price_only;         // the module is not needed afterwards
  double worth;            // seconds of a step; slower factorings are useless; 0: no limit
  SolutionCache *answers;  // of the searches of this factoring
  LifetimeCache *lives;    // of all factorings
  bool ordered; // some graph is reordered: its ids are out of order until all graphs are done
  Record *record;
  double others_work; // work of factorings that were tried before one was taken
  bool any_faster;    // some of them may be faster than `wanted`, in more memory
  double needed;      // the least bytes that one of these takes (SearchStats); 0: unknown
  SolverEnd ended;    // of the one whose search was cut off the most
  SearchStats searched;
  const char *otherwise; // explanation if no search gives one
  int n_stages;          // of a pipeline, of the ranks of an axis
} Attempt;

static bool shard_graph(Graph *g, const Sections *sections, Attempt *t, Sharding **first, Diag *d) {
  Sharding *s = arena_one(t->scratch, Sharding);
  *s = (Sharding){
      .g = g, .mesh = g->module->meshes, .scratch = t->scratch, .env.cluster = t->cluster};
  s->env.target = t->target;
  s->record = t->price_only ? NULL : t->record;
  s->env.limited = t->limited;
  s->env.routed = t->routed;
  s->env.memory = t->memory;
  s->env.work = t->work;
  s->env.seconds = t->seconds;
  s->env.stop = t->stop;
  s->first = *first;
  graph_renumber(g);
  sharding_grow(s);
  decide_as_first(s);
  if (!*first) {
    *first = s;
    s->env.stats = &t->searched; // the training step; others follow
    s->env.lives = t->lives;
    s->env.solutions = t->answers;
    s->env.worth = t->wanted;
    if (t->price_only && t->worth > 0 && !(t->wanted > 0 && t->wanted < t->worth))
      s->env.worth = t->worth;
    s->env.tried = t->price_only;
    s->env.explain = t->price_only ? NULL : t->explain;
    s->env.lp_file = t->price_only ? NULL : t->lp;
    s->env.problem_file = t->price_only ? NULL : t->problem;
  }
  s->sections = sections;
  // The innermost program first.
  for (int i = sections->n - 1; i >= 0; i--) {
    const Section *own = &sections->at[i];
    s->section = i;
    // Programs of outer axes may constrain the axes inside of theirs.
    for (int k = 0; k < i; k++)
      if (!program_inside(sections->at[k].program, s, own->axis, own->n)) return false;
    if (!program_step(own->program, s, own->axis, own->n)) return false;
    if (i == 0 && t->price_only) return true;
    decide_axes(s, own->axis, own->n);
  }
  // All splits and layouts are decided from here on.
  if (!check_program(s, d)) return false;
  if (s->env.explain && s == *first && !t->searched.explained)
    t->otherwise = search_otherwise(s, s->env.explain);
  record_decided(s->record, s);
  for (int i = 0; i < g->n_params; i++)
    lay(g->module, g->params[i], s->decisions.layout[g->params[i]->id]);
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      lay(g->module, op->out[i], s->decisions.layout[op->out[i]->id]);
  t->ordered |= s->constraints.orders.n > 0;
  if (!order_ops(g, &s->constraints.orders, s->scratch, d)) return false;
  keep_at_borders(s);
  return true;
}

// Shards the module with the attempt's picks.
static bool attempt(Module *m, Attempt *t, Diag *d) {
  Sections sections;
  Sharding *first = NULL;
  const Mesh *mesh = mesh_parse(m, t->mesh, d);
  bool ok = mesh && sections_open(t->scratch, mesh, t->plan, &sections, d);
  if (!ok) return false;
  ok = sections_factor(&sections, m, t->pick, d);
  for_each_graph(g, m)
    if (ok && g->entry && !(t->price_only && first)) ok = shard_graph(g, &sections, t, &first, d);
  sections_close(&sections);
  for_each_graph(g, m)
    if (ok && g->entry && t->ordered) graph_renumber(g);
  // Several stages on a rank count once.
  t->n_stages = 1;
  for (int a = 0; ok && first && a < mesh->n_axes; a++) {
    int n = first->decisions.placed[a].n_stages, ranks = mesh->axis[a].size;
    if (first->decisions.placed[a].why && n > 1) t->n_stages = n < ranks ? n : ranks;
  }
  return ok;
}

#define AS_GOOD 1e-3 // of a step: searches err by more than that

static void pick_number(Attempt *t, int number) {
  for (int i = t->n - 1; i >= 0; i--) {
    t->pick[i] = number % t->n_factorings[i];
    number /= t->n_factorings[i];
  }
}

static int64_t n_picks(const Attempt *t) {
  int64_t n = 1;
  for (int i = 0; i < t->n; i++)
    n *= t->n_factorings[i];
  return n;
}

// Returns the answers of a factoring, which are known if the module was sharded before.
static SolutionCache *answers_of(const Attempt *t, int way) {
  LifetimeCache *k = t->lives;
  if (!k->answers) k->answers = arena_array(k->lasting, SolutionCache, MAX_ATTEMPTS);
  SolutionCache *all = &k->answers[way];
  all->arena = k->lasting;
  all->known = all->all.n > 0;
  all->next = 0;
  return all;
}

// Picks the cheapest factoring by the searches' estimates, of equally good ones the first; if none
// succeeds, the first, which will report the error.
static bool pick_factors(const Module *m, Attempt *t, Diag *d) {
  Attempt each = *t;
  bool searches = true;
  double work = 0;
  int64_t n = n_picks(t);
  if (n == 1) return true;
  if (n > MAX_ATTEMPTS)
    return diag_error(
        d, NULL,
        "the plan's programs have %lld factorings of the ranks together; at most %d are tried",
        (long long)n, MAX_ATTEMPTS);
  // Each factoring is priced on a copy of the module, without error messages.
  each.price_only = true;
  t->answers = NULL; // those of the best factoring, if there is one
  bool quiet = diag_quiet(d, true);
  bool *slow = t->lives->slow;
  t->needed = INFINITY;
  for (int i = 0; i < n && !stop_wanted(t->stop); i++) {
    if (slow && slow[i]) continue; // more micro-batches take no less
    Module *copy = module_clone(m);
    each.searched = (SearchStats){0};
    each.scratch = arena_new();
    each.answers = answers_of(t, i);
    each.worth = t->n_best ? WORTH_TRYING * t->took[0] : 0;
    pick_number(&each, i);
    bool ok = attempt(copy, &each, d);
    searches &= !ok || each.searched.n;
    t->any_faster |= ok || !each.searched.slow;
    if (!ok && !each.searched.slow) t->needed = fmin(t->needed, each.searched.needed);
    t->ended = each.searched.ended > t->ended ? each.searched.ended : t->ended;
    // Slower than `wanted`, not than another factoring.
    if (slow && !ok && !t->n_best) slow[i] = each.searched.slow;
    work += each.searched.all_work;
    arena_free(each.scratch);
    module_free(copy);
    if (!ok) continue;
    // It is inserted into the best, if it is one of them; of equally good ones the first stays
    // ahead.
    double step = each.searched.step;
    int at = t->n_best < N_FACTORINGS ? t->n_best++ : N_FACTORINGS;
    for (; at > 0 && step < (1 - AS_GOOD) * t->took[at - 1]; at--)
      if (at < N_FACTORINGS) {
        t->took[at] = t->took[at - 1];
        t->best[at] = t->best[at - 1];
      }
    if (at == N_FACTORINGS) continue;
    t->took[at] = step;
    t->best[at] = i;
  }
  diag_quiet(d, quiet);
  t->others_work = work;
  if (t->n_best) pick_number(t, t->best[0]);
  if (t->n_best) t->answers = answers_of(t, t->best[0]);
  if (searches) return true;
  diag_error(d, NULL, "the plan '%s' leaves the factors of the ranks open, and searches nothing",
             t->plan ? t->plan : "dp");
  diag_hint(d,
            "a program whose 'factors' returns several lists says which is cheapest by a search");
  return false;
}

// -- Ranks without work --------------------------------------------------------------------------

// A plan may not suit a model: then ranks do the same or nothing, which is rarely intended. Of the
// choice of --plan auto it is no mistake: more ranks are no gain.
static void warn_of_idle(const Module *m, bool auto_plan, Arena *scratch, Diag *d) {
  const Mesh *mesh = m->meshes;
  const Graph *g = module_first_entry(m);
  if (!g) return;
  // Ranks without an op of the model, if there are several meshes.
  int n_idle = mesh->next ? mesh->n_devices : 0;
  bool *busy = arena_array(scratch, bool, mesh->n_devices); // by device, which are 0 … n-1
  bool *seen = arena_array(scratch, bool, module_n_meshes(m));
  for_each_op(op, g) {
    const Mesh *of = op_mesh(op);
    if (!mesh->next || op_part(op) != PART_forward || seen[of->id]) continue;
    seen[of->id] = true;
    for (int i = 0; i < of->n_devices; i++) {
      n_idle -= !busy[of->device[i]];
      busy[of->device[i]] = true;
    }
  }
  if (n_idle)
    (auto_plan ? diag_note : diag_warning)(d, NULL, "%d of %d ranks %s nothing to do", n_idle,
                                           mesh->n_devices, n_idle == 1 ? "has" : "have");
  // Axes that split nothing.
  int used = mesh->n_devices;
  for (int a = 0; a < mesh->n_axes; a++) {
    bool split = mesh->axis[a].time || mesh->axis[a].size == 1;
    for_each_op(op, g)
      split |= op->split[a] != SPLIT_NONE || op_ranks(op, a) < mesh->axis[a].size;
    if (split) continue;
    if (!auto_plan)
      diag_warning(d, NULL, "nothing is split over '%s': its %d ranks all do the same",
                   mesh->axis[a].name, mesh->axis[a].size);
    used /= mesh->axis[a].size;
  }
  if (auto_plan && used < mesh->n_devices)
    diag_note(d, NULL,
              "the model gains nothing from more than %d rank%s: the others do the same work", used,
              used == 1 ? "" : "s");
  if (used < mesh->n_devices) diag_hint(d, "%d rank%s as fast", used, used == 1 ? " is" : "s are");
}

// -- Pipelines that wait -------------------------------------------------------------------------

// The ranks of a stage that have different rows of the batch.
static int row_shards(const Graph *g) {
  int most = 1;
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    int n = 1;
    for (int a = 0; v->role == ROLE_input && a < v->layout->n_axes; a++)
      if (v->layout->axis[a].kind == SBP_S && v->layout->axis[a].dim == 0 &&
          !v->layout->mesh->axis[a].time)
        n *= v->layout->mesh->axis[a].size;
    most = n > most ? n : most;
  }
  return most;
}

// Remarks that a pipeline has fewer micro-batches than stages, if its rows are enough for more. The
// choice of --plan auto has compared their numbers.
static void note_bubbles(const Module *m, int n_stages, Diag *d) {
  const Graph *g = module_first_entry(m);
  int64_t n = module_slices(m), more = 0;
  if (!g || n_stages <= n) return;
  int64_t rows = made_for(g).batch / row_shards(g);
  // Twice as many as stages, or else the most.
  for (int64_t k = n + 1; k <= rows && k <= MAX_MICRO_BATCHES && more < 2 * n_stages; k++)
    if (rows % k == 0) more = k;
  if (!more) return;
  diag_note(d, NULL,
            "%d stages wait for one another most of the time: there %s %" PRId64 " micro-batch%s",
            n_stages, n == 1 ? "is" : "are", n, n == 1 ? "" : "es");
  diag_hint(d, "--micro-batches %" PRId64 " keeps them busier", more);
}

// -- The pass ------------------------------------------------------------------------------------

static bool read_options(const PassOptions *o, Attempt *t, Diag *d) {
  const char *mesh = opt_str(o, "mesh");
  t->mesh = mesh ? mesh : "1";
  t->plan = opt_str(o, "plan");
  t->scratch = opt_scratch(o);
  t->explain = opt_str(o, "explain");
  t->record = opt_record(o);
  t->stop = opt_stop(o);
  t->lp = opt_str(o, "lp");
  t->limited = !opt_bool(o, "unlimited", false);
  t->routed = opt_bool(o, "routed", false);
  t->problem = opt_str(o, "problem");
  t->memory = opt_int(o, "memory", 0);
  t->work = opt_int(o, "work", 0);
  t->seconds = opt_float(o, "seconds", 0);
  t->wanted = opt_float(o, "wanted", 0);
  if (!(t->seconds >= 0)) return diag_error(d, NULL, "a search cannot take %g seconds", t->seconds);
  return opt_target(o, &t->target, d);
}

// Each op has its own split, also ops inside of calls.
static bool check_unsharded(const Module *m, Diag *d) {
  if (m->meshes)
    return diag_error(d, NULL, "the module is sharded already, on a mesh of %d device%s",
                      m->meshes->n_devices, m->meshes->n_devices == 1 ? "" : "s");
  for_each_graph(g, m)
    for_each_op(op, g)
      if (g->entry && op->kind == OP_call) {
        diag_error(d, op->loc, "shard: the ops inside of '@%s' are called, and cannot be split",
                   op->callee->name);
        diag_hint(d, "run 'inline_calls' first");
        return false;
      }
  return true;
}

// Shards the module by the factoring with that number, or the cheapest one if it is negative.
static bool shard_factored(Module *m, Attempt *t, int64_t factoring, Diag *d) {
  Sections sections;
  const Mesh *mesh = mesh_parse(m, t->mesh, d);
  if (!mesh || !sections_open(t->scratch, mesh, t->plan, &sections, d)) return false;
  t->n = sections.n;
  for (int i = 0; i < t->n; i++)
    t->n_factorings[i] = sections.at[i].n_factorings;
  sections_close(&sections);
  if (factoring >= n_picks(t))
    return diag_error(d, NULL, "there are %lld factorings of the ranks, and no number %lld",
                      (long long)n_picks(t), (long long)factoring);
  if (factoring >= 0) pick_number(t, (int)factoring);
  t->answers = answers_of(t, 0);
  bool ok = factoring >= 0 || pick_factors(m, t, d);
  t->lives->used = t->answers;
  return ok && attempt(m, t, d);
}

// Reports the searches, also those of factorings that were tried before.
static void report_searched(const PassOptions *o, Attempt *t, bool ok) {
  SearchStats *s = &t->searched;
  s->slow &= !t->any_faster;
  if (t->any_faster) s->needed = t->n_best || isinf(t->needed) ? 0 : t->needed;
  if (!t->n_best && t->ended > s->ended) s->ended = t->ended;
  if (t->n_best) s->all_work = 0; // counted among those that were tried
  s->all_work += t->others_work;
  s->n_factorings = t->n_best;
  memcpy(s->factoring, t->best, sizeof t->best);
  memcpy(s->took, t->took, sizeof t->took);
  if (ok && !s->explained) s->explained = t->otherwise;
  if (s->n || (ok && s->explained)) opt_searched(o, s);
  if (ok && s->n) opt_stat(o, (int64_t)s->peak, "bytes at the peak, as the search sees it");
}

bool pass_shard(Module *m, const PassOptions *o, Diag *d) {
  Attempt t = {0};
  if (!read_options(o, &t, d) || !check_unsharded(m, d)) return false;
  t.cluster = cluster_read(t.scratch, cluster_or_default(opt_str(o, "cluster")), "cluster", d);
  if (!t.cluster) return false;
  LifetimeCache here = {.arena = t.scratch, .lasting = t.scratch};
  t.lives = opt_lives(o) ? opt_lives(o) : &here;
  bool ok = shard_factored(m, &t, opt_int(o, "factoring", -1), d);
  report_searched(o, &t, ok);
  if (!ok) return false;
  warn_of_idle(m, opt_auto_plan(o), t.scratch, d);
  if (!opt_auto_plan(o) && m->meshes) note_bubbles(m, t.n_stages, d);
  m->annotations = NULL; // of the unsharded model; layouts replace them
  return true;
}
