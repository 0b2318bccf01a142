// See tables.h.

#include "tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "base/vec.h"
#include "cut_out.h"
#include "evaluate.h"
#include "pass.h"
#include "paths/path_cost.h"
#include "unit_sample.h"

// Occurrences of each run in the smaller cut-out: the second has neighbours of its kind.
enum { FEW = 2 };

typedef struct Entry {
  TableShape shape;
  Table table;
  const char *why; // NULL: the table is there
} Entry;

// A cut-out that has been made: those of further shapes are copies.
typedef struct MadeCutOut {
  const int *keep; // by run
  Module *m;
} MadeCutOut;

struct Tables {
  Arena *arena;
  const ModelUnits *blocks;
  TableOptions o;
  Vec(Entry *) entry;
  Vec(MadeCutOut) cut_out;
  int n_built;
};

// -- Cut-outs ----------------------------------------------------------------------------------

// Returns a cut-out, which the caller frees. The model is copied and shortened once for each.
static Module *copy_cut_out(Tables *t, const int *keep) {
  size_t bytes = (size_t)t->blocks->n_runs * sizeof *keep;
  for (int i = 0; i < t->cut_out.n; i++)
    if (!memcmp(t->cut_out.at[i].keep, keep, bytes)) return module_clone(t->cut_out.at[i].m);
  MadeCutOut made = {arena_copy(t->arena, keep, bytes), cut_out(t->blocks, keep)};
  vec_push(t->arena, &t->cut_out, made);
  return module_clone(made.m);
}

// The cluster with host memory as fast as if all ranks of the plan read it: a cut-out is of one
// stage, which may have few devices of a node.
static Cluster with_shared_host(const Tables *t, const TableShape *shape) {
  Cluster c = *t->o.cluster;
  double all = fmin((double)t->o.ranks, c.per_node), own = fmin((double)shape->ranks, c.per_node);
  c.host_node *= own / all;
  c.host_update *= own / all;
  return c;
}

// Takes a cut-out through the passes.  False: *why is the first error.
static bool build(Tables *t, const TableShape *shape, const char *plan, const int *keep,
                  Sample *out, Arena *a, const char **why) {
  char *messages = NULL;
  size_t n;
  FILE *f = open_memstream(&messages, &n);
  if (!f) BUG("no memory for messages");
  Diag *d = diag_new(f);
  Module *m = copy_cut_out(t, keep);
  PipelineOptions run = {
      .bisect_limit = -1, .unproved = true, .out = f, .paths = t->o.paths, .stop = t->o.stop};
  run.layers = &t->blocks->layers;
  const char *text = t->o.pipeline(t->o.context, a, plan, shape->ranks, shape->micro_batches, d);
  t->n_built++;
  bool ok = text && pipeline_run(m, text, &run, d);
  Cluster cluster = with_shared_host(t, shape);
  *why = NULL;
  if (ok && module_has_stages(m))
    *why = "the plan has stages of its own";
  else if (ok && !sample_step(m, t->blocks, &cluster, t->o.target, a, out))
    *why = "its step cannot be priced";
  ok = ok && !*why;
  diag_free(d);
  fclose(f);
  if (!ok && !*why) *why = first_error(t->arena, messages);
  free(messages);
  module_free(m);
  return ok;
}

// A few occurrences of each run: the cut-out that is built first. A run with one more has all of
// them, as another cut-out takes longer.
static int *few_of_each(const ModelUnits *b, int few, Arena *a) {
  int *keep = arena_array(a, int, b->n_runs);
  for (int i = 0; i < b->n_runs; i++)
    keep[i] = b->run[i].n <= few + 1 ? b->run[i].n : few;
  return keep;
}

void tables_report(const Tables *t, const TableShape *shape, const char *why, Diag *d) {
  Arena *a = arena_new();
  int errors = diag_errors(d);
  const char *text =
      t->o.pipeline(t->o.context, a, shape->plan, shape->ranks, shape->micro_batches, d);
  if (text) {
    Module *m = cut_out(t->blocks, few_of_each(t->blocks, FEW, a));
    PipelineOptions run = {.bisect_limit = -1, .unproved = true, .layers = &t->blocks->layers};
    pipeline_run(m, text, &run, d);
    module_free(m);
  }
  // Else it is another level of recomputation, or the result is no stage.
  if (diag_errors(d) == errors) diag_error(d, NULL, "--plan '%s': %s", shape->plan, why);
  arena_free(a);
}

// The built cut-outs of one plan.
typedef struct CutOuts {
  int *keep;  // by run: of `few`
  Sample few; // a few occurrences of every block
  bool *more; // by run: whether it has one more occurrence in a cut-out of its own
  Sample *one_more;
} CutOuts;

static bool build_all(Tables *t, const TableShape *shape, const char *plan, CutOuts *c, Arena *a,
                      const char **why) {
  const ModelUnits *b = t->blocks;
  c->keep = few_of_each(b, shape->late ? FEW + 1 : FEW, a);
  c->more = arena_array(a, bool, b->n_runs);
  c->one_more = arena_array(a, Sample, b->n_runs);
  for (int i = 0; i < b->n_runs; i++)
    c->more[i] = b->run[i].n > c->keep[i];
  if (!build(t, shape, plan, c->keep, &c->few, a, why)) return false;
  for (int i = 0; i < b->n_runs; i++) {
    if (!c->more[i]) continue;
    c->keep[i]++;
    bool ok = build(t, shape, plan, c->keep, &c->one_more[i], a, why);
    c->keep[i]--;
    if (!ok) return false;
  }
  return true;
}

// -- Differences -------------------------------------------------------------------------------

// A number of each unit and its sum over a module.
typedef enum Figure {
  FIG_forward,
  FIG_backward,
  FIG_weight_grad,
  FIG_kept,
  FIG_waiting,
  FIG_both,
  FIG_lasting,
  FIG_updating,
  FIG_sums,
  FIG_update,
  N_FIGURES,
} Figure;

// A unit's own part of a figure.  Those of all ops together are shared by weights.
static double own(const Sample *s, int unit, Figure f) {
  const UnitSample *u = &s->unit[unit];
  switch (f) {
  case FIG_forward: return u->seconds[WORK_F];
  case FIG_backward: return u->seconds[WORK_B];
  case FIG_weight_grad: return u->seconds[WORK_W];
  case FIG_kept: return u->kept;
  case FIG_waiting: return u->waiting;
  case FIG_both: return u->both;
  case FIG_lasting: return u->lasting;
  case FIG_sums: return s->gradients > 0 ? u->gradients : u->weights;
  case FIG_update: return s->states > 0 ? u->states : u->weights;
  case FIG_updating:
  case N_FIGURES: break;
  }
  return u->weights;
}

static double whole(const Sample *s, int n_units, Figure f) {
  double sum = 0;
  if (f == FIG_lasting) return s->lasting;
  if (f == FIG_updating) return s->updating;
  if (f == FIG_sums) return s->sums;
  if (f == FIG_update) return s->update;
  for (int i = 0; i < n_units; i++)
    sum += own(s, i, f);
  return sum;
}

// The unit of part `part` of an occurrence of a run.
static int unit_of(const ModelUnits *b, int run, int index, int part) {
  for (int i = 0; i < b->n_units; i++)
    if (b->unit[i].run == run && b->unit[i].index == index && b->unit[i].part == part) return i;
  BUG("a run without unit %d.%d", index, part);
}

// The part that one more layer of a run adds to each earlier time of the model in it, in the unit
// of that time. Weights count for the run itself.
static double once_more(const Tables *t, const CutOuts *c, int r, Figure f) {
  int times = t->blocks->run[r].times;
  if (times < 0 || !c->more[r] || f > FIG_both) return 0;
  int unit = unit_of(t->blocks, times, 0, 0);
  return fmax(own(&c->one_more[r], unit, f) - own(&c->few, unit, f), 0);
}

// Adds the layers that are left out of the times before.
static void add_times(const Tables *t, const CutOuts *c, Figure f, double *out) {
  const ModelUnits *b = t->blocks;
  for (int r = 0; r < b->n_runs; r++) {
    double one = once_more(t, c, r, f);
    for (int i = 0; one > 0 && i < b->n_units; i++)
      if (b->unit[i].run == b->run[r].times) out[i] += (b->run[r].n - c->keep[r]) * one;
  }
}

// How often a cut-out has the run before, and so its layers; 0: they run once.
static int times_before(const Tables *t, const CutOuts *c, int r) {
  int times = t->blocks->run[r].times;
  return times < 0 ? 0 : c->keep[times];
}

// Sets a figure of all units of the model, out[unit].
static void share_out(const Tables *t, const CutOuts *c, Figure f, double *out, Arena *a) {
  const ModelUnits *b = t->blocks;
  double rest = whole(&c->few, b->n_units, f), own_rest = 0;
  for (int r = 0; r < b->n_runs; r++) {
    if (!c->more[r]) continue;
    // One more occurrence, shared by its units as the second one's ops are.
    const Sample *s = &c->one_more[r];
    double one = whole(s, b->n_units, f) - whole(&c->few, b->n_units, f), sum = 0;
    one = fmax(one - times_before(t, c, r) * once_more(t, c, r, f), 0);
    int n = b->run[r].n_parts;
    int *second = arena_array(a, int, n);
    for (int p = 0; p < n; p++)
      sum += own(s, second[p] = unit_of(b, r, 1, p), f);
    for (int i = 0; i < b->n_units; i++)
      if (b->unit[i].run == r)
        out[i] = sum > 0 ? one * own(s, second[b->unit[i].part], f) / sum : one / n;
    rest -= c->keep[r] * one;
  }
  // The others share the remainder.
  for (int i = 0; i < b->n_units; i++)
    if (b->unit[i].run < 0 || !c->more[b->unit[i].run]) own_rest += own(&c->few, i, f);
  for (int i = 0; i < b->n_units; i++) {
    int r = b->unit[i].run;
    if (r >= 0 && c->more[r]) continue;
    out[i] = own_rest > 0 ? fmax(rest, 0) * own(&c->few, i, f) / own_rest : 0;
  }
  // Nothing of the rest is of an op: all of it is of the last unit.
  if (own_rest <= 0 && rest > 0) out[b->n_units - 1] += rest;
  // Occurrences that are all there cost the mean of them.
  for (int r = 0; r < b->n_runs; r++)
    for (int p = 0; !c->more[r] && p < b->run[r].n_parts; p++) {
      double sum = 0;
      for (int i = 0; i < b->run[r].n; i++)
        sum += out[unit_of(b, r, i, p)];
      for (int i = 0; i < b->run[r].n; i++)
        out[unit_of(b, r, i, p)] = sum / b->run[r].n;
    }
  add_times(t, c, f, out);
}

// The sample of a unit, as it is among neighbours of its kind.
static const UnitSample *typical(const Tables *t, const CutOuts *c, int unit) {
  const ModelUnits *b = t->blocks;
  const Unit *u = &b->unit[unit];
  if (u->run < 0) return &c->few.unit[unit];
  // The last occurrence of all that are there, the second of three.
  if (!c->more[u->run]) return &c->few.unit[unit_of(b, u->run, b->run[u->run].n - 1, u->part)];
  return &c->one_more[u->run].unit[unit_of(b, u->run, 1, u->part)];
}

// A number of a unit if a stage begins with it. Sums of terms grow with each layer, which is in the
// costs of layers. The first occurrence has no earlier ones that read the same values.
static double entry_of(const Tables *t, const CutOuts *c, int unit, size_t offset) {
  const ModelUnits *b = t->blocks;
  const Unit *u = &b->unit[unit];
  const char *few = (const char *)c->few.unit, *more;
  size_t size = sizeof(UnitSample);
  if (u->run < 0 || !c->more[u->run]) return *(const double *)(few + (size_t)unit * size + offset);
  more = (const char *)c->one_more[u->run].unit;
  size_t second = (size_t)unit_of(b, u->run, 1, 0) * size + offset;
  double each = *(const double *)(more + second) - *(const double *)(few + second);
  size_t own = (size_t)unit_of(b, u->run, u->index > 0, u->part) * size + offset;
  return fmax(*(const double *)(more + own) - (c->keep[u->run] + 1) * fmax(each, 0), 0);
}

// A figure of the whole step for all occurrences: a line through two cut-outs for each run.
static double extended(const Tables *t, const CutOuts *c, double few, size_t offset) {
  double all = few;
  for (int r = 0; r < t->blocks->n_runs; r++) {
    if (!c->more[r]) continue;
    double more = *(const double *)((const char *)&c->one_more[r] + offset);
    all += (t->blocks->run[r].n - c->keep[r]) * (more - few);
  }
  return all;
}

// -- Transfers between stages ------------------------------------------------------------------

// The seconds in which each rank of a stage sends so many bytes to the same rank of the next.
static double message_seconds(const Tables *t, int n, double bytes, Arena *a) {
  Groups pairs = {.n = n, .size = 2, .device = arena_array(a, int, 2 * n)};
  for (int i = 0; i < n; i++) {
    pairs.device[2 * i] = i;
    pairs.device[2 * i + 1] = n + i;
  }
  Traffic *traffic = traffic_new(a, t->o.cluster);
  return groups_cost(traffic, PATH_move, &pairs, bytes, bytes).seconds;
}

static void price_hops(const Tables *t, const TableShape *shape, UnitCosts *out, Arena *a) {
  enum { LARGE = 1 << 20 };
  int n = (int)shape->ranks;
  if (2 * shape->ranks > cluster_devices(t->o.cluster)) return; // there is no other stage
  out->hop_start = message_seconds(t, n, 0, a);
  out->hop_seconds_per_byte = (message_seconds(t, n, LARGE, a) - out->hop_start) / LARGE;
}

// The bytes of weights that a unit reads as an earlier one does, as those of that one's others.
static double tied_bytes(const UnitSample *with, double tied) {
  return with->weights > 0 ? with->lasting * tied / with->weights : 0;
}

// The seconds in which the n ranks of a stage gather so many bytes, of which each has a part: over
// nodes first, then inside of each.
static double gather_seconds(const Tables *t, int n, double bytes, Arena *a) {
  const Cluster *c = t->o.cluster;
  int inside = n % c->per_node ? n : c->per_node, nodes = n / inside;
  double seconds = 0;
  for (int k = 0; k < 2; k++) {
    Groups g = {.n = k ? nodes : inside, .size = k ? inside : nodes};
    double whole = k ? bytes : bytes / inside;
    g.device = arena_array(a, int, n);
    for (int i = 0; i < n; i++)
      g.device[i] = k ? i : i % nodes * inside + i / nodes;
    if (g.size < 2) continue;
    Traffic *traffic = traffic_new(a, c);
    seconds += groups_cost(traffic, PATH_all_gather, &g, whole / g.size, whole).seconds;
  }
  return seconds;
}

// Two stages that read one weight add up its gradients: the last one sends a part of its terms from
// each rank to the first, which gathers them. Unless ranks update shards, all others get the sum.
static void price_tied(const Tables *t, const TableShape *shape, const Sample *few, UnitCosts *out,
                       Arena *a) {
  int n = (int)shape->ranks, others = 0;
  double bytes = few->tied_whole * sizeof(float);
  if (few->tied <= 0) return;
  for (int i = 0; i < t->blocks->n_units; i++)
    others += few->unit[i].tied > 0;
  if (2 * shape->ranks <= cluster_devices(t->o.cluster)) {
    double gather = gather_seconds(t, n, bytes, a);
    out->tied_sums = message_seconds(t, n, bytes / n, a) + gather;
    if (few->tied_whole <= few->tied)
      out->tied_sums += message_seconds(t, n, others * bytes / n, a) + gather;
  }
  out->tied_lasting = tied_bytes(&few->unit[few->tied_unit], few->tied);
}

// -- Tables ------------------------------------------------------------------------------------

// Sets the changes by a level of recomputation: seconds of backward, and saved bytes.
static bool add_level(Tables *t, const TableShape *shape, RecomputeLevel level, UnitCost *unit,
                      Arena *a, const char **why) {
  static const char *const program[] = {
      [RECOMPUTE_attention] = "recompute_attention", [RECOMPUTE_layer] = "recompute"};
  int n = t->blocks->n_units;
  CutOuts c;
  if (!build_all(t, shape, str_format(a, "%s,%s=1", shape->plan, program[level]), &c, a, why))
    return false;
  double *kept = arena_array(a, double, n), *seconds = arena_array(a, double, n);
  share_out(t, &c, FIG_kept, kept, a);
  for (int i = 0; i < n; i++)
    unit[i].again[level] = -(unit[i].forward + unit[i].backward + unit[i].weight_grad);
  for (Figure f = FIG_forward; f <= FIG_weight_grad; f++) {
    share_out(t, &c, f, seconds, a);
    for (int i = 0; i < n; i++)
      unit[i].again[level] += seconds[i];
  }
  for (int i = 0; i < n; i++) {
    unit[i].kept[level] = kept[i];
    unit[i].again_working[level] = typical(t, &c, i)->working[1];
    unit[i].split_working[level] = typical(t, &c, i)->split_working;
    unit[i].again[level] = fmax(unit[i].again[level], 0);
  }
  return true;
}

double units_bytes(const UnitCosts *c) {
  double lasting = 0, kept = 0, most = 0, updating = 0;
  for (int i = 0; i < c->n; i++) {
    const UnitCost *u = &c->at[i];
    lasting += u->lasting;
    kept += u->kept[RECOMPUTE_none];
    updating += u->updating;
    most = fmax(most, kept + fmax(u->working[0], u->working[1]));
  }
  return lasting + fmax(most, updating);
}

static bool make_table(Tables *t, const TableShape *shape, Table *out, const char **why) {
  const ModelUnits *b = t->blocks;
  Arena *a = arena_new();
  CutOuts c;
  bool ok = build_all(t, shape, shape->plan, &c, a, why);
  UnitCost *unit = arena_array(t->arena, UnitCost, b->n_units);
  double *figure[N_FIGURES];
  for (Figure f = 0; ok && f < N_FIGURES; f++)
    share_out(t, &c, f, figure[f] = arena_array(a, double, b->n_units), a);
  for (int i = 0, layers = 0; ok && i < b->n_units; i++) {
    const UnitSample *s = typical(t, &c, i);
    bool in_layer = b->unit[i].run >= 0;
    layers += in_layer && b->unit[i].part == 0;
    unit[i] = (UnitCost){
        .name = b->unit[i].name,
        .block = unit_block(b, i),
        .layer = in_layer ? layers : 0,
        .forward = figure[FIG_forward][i],
        .backward = figure[FIG_backward][i],
        .weight_grad = figure[FIG_weight_grad][i],
        .waiting = figure[FIG_waiting][i],
        .both = figure[FIG_both][i],
        .entry = entry_of(t, &c, i, offsetof(UnitSample, entry_kept)),
        .entry_forward = entry_of(t, &c, i, offsetof(UnitSample, entry_seconds[WORK_F])),
        .entry_backward = entry_of(t, &c, i, offsetof(UnitSample, entry_seconds[WORK_B])),
        .entry_weight_grad = entry_of(t, &c, i, offsetof(UnitSample, entry_seconds[WORK_W])),
        .working = {s->working[0], s->working[1]},
        .handed = i + 1 < b->n_units ? s->handed : 0,
        .may_end = i + 1 < b->n_units,
        .lasting = figure[FIG_lasting][i],
        .updating = figure[FIG_updating][i],
        .sums = figure[FIG_sums][i],
        .piece = s->piece,
        .copies = {s->copies[0], s->copies[1]},
        .update = figure[FIG_update][i]};
    if (!in_layer && i + 1 < b->n_units && s->tied > 0) {
      unit[i].tied_unit = s->tied_unit;
      unit[i].tied_lasting = tied_bytes(&c.few.unit[c.few.tied_unit], s->tied);
    }
    unit[i].kept[RECOMPUTE_none] = figure[FIG_kept][i];
    unit[i].split_working[RECOMPUTE_none] = s->split_working;
    // Unknown levels save nothing and take forever.
    for (int k = RECOMPUTE_none + 1; k < N_RECOMPUTE_LEVELS; k++) {
      unit[i].kept[k] = unit[i].kept[RECOMPUTE_none];
      unit[i].again[k] = INFINITY;
    }
  }
  for (RecomputeLevel k = RECOMPUTE_attention; ok && k <= shape->recompute; k++)
    ok = add_level(t, shape, k, unit, a, why);
  if (ok) {
    out->costs = (UnitCosts){
        .n = b->n_units, .at = unit, .knows_waiting = true, .joint_update = c.few.joint_update};
    price_hops(t, shape, &out->costs, a);
    price_tied(t, shape, &c.few, &out->costs, a);
    out->seconds = extended(t, &c, c.few.seconds, offsetof(Sample, seconds));
    // Cut-outs may need the most at another place than the model, as at the loss.
    double bytes = extended(t, &c, c.few.bytes, offsetof(Sample, bytes));
    out->bytes = fmax(bytes, units_bytes(&out->costs));
  }
  arena_free(a);
  return ok;
}

Tables *tables_new(Module *front, const TableOptions *o, Arena *a) {
  Tables *t = arena_one(a, Tables);
  *t = (Tables){.arena = a, .blocks = blocks_find(front, a), .o = *o};
  return t;
}

void tables_free(Tables *t) {
  for (int i = 0; i < t->cut_out.n; i++)
    module_free(t->cut_out.at[i].m);
}

const ModelUnits *tables_blocks(const Tables *t) {
  return t->blocks;
}

int tables_built(const Tables *t) {
  return t->n_built;
}

static const Entry *find_entry(const Tables *t, const TableShape *shape) {
  for (int i = 0; i < t->entry.n; i++) {
    const Entry *e = t->entry.at[i];
    if (e->shape.ranks == shape->ranks && e->shape.micro_batches == shape->micro_batches &&
        e->shape.recompute == shape->recompute && e->shape.late == shape->late &&
        str_equal(e->shape.plan, shape->plan))
      return e;
  }
  return NULL;
}

const Table *tables_find(const Tables *t, const TableShape *shape) {
  const Entry *e = find_entry(t, shape);
  return e && !e->why ? &e->table : NULL;
}

const Table *tables_get(Tables *t, const TableShape *shape, const char **why) {
  const Entry *known = find_entry(t, shape);
  *why = known ? known->why : NULL;
  if (known) return known->why ? NULL : &known->table;
  Entry *e = arena_one(t->arena, Entry);
  e->shape = *shape;
  e->shape.plan = str_copy(t->arena, shape->plan);
  if (make_table(t, &e->shape, &e->table, why)) *why = NULL;
  e->why = *why;
  // Not refused, but ended.
  if (e->why && stop_wanted(t->o.stop)) return NULL;
  vec_push(t->arena, &t->entry, e);
  return e->why ? NULL : &e->table;
}
