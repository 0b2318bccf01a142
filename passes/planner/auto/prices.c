// See prices.h.

#include "prices.h"

#include <math.h>

#include "borrowed.h"
#include "bounds.h"
#include "candidates.h"
#include "deal.h"
#include "deal_text.h"
#include "evaluate.h"
#include "interlaced.h"
#include "least_work.h"
#include "pass.h"
#include "tables.h"

// Timelines of a deal that is compiled. GPT-3 on 1,024 H200 gains 0.02 % in 1,018 of them, on 32
// H200 nothing in 961, and Mixtral on 64 H100 1.4 % in 32.
enum { IMPROVED = 100 };

// Of a table by those borrowed, at least: kernels do not divide exactly. Tests compare both
// (`test_unit auto 1-20`).
#define LENT_BYTES   1.1
#define LENT_SECONDS 0.99
// Of its own table, by recomputation or states of another shape: kept bytes of the level are a part
// of the shape's own, as in the other.
#define OWN_BYTES 1.02
// Of a table's recomputation by that of another shape, relative to forward. It is a bound for
// shapes with the same part of collectives in forward: recomputation has few of them. Measured
// without the factor: 1.02 to 1.04 of GPT-3's layers, 0.37 of Mixtral's with dp=2,ep=4,sp=8.
#define LEAST_AGAIN 0.9
// Of the best deal of units, at most: one in the plan's text. Those of GPT-3 on 1,024 H200 take up
// to 1.08 of it, and two of them 1.145.
#define TEXT 1.1
// Of the memory, in which a deal may be limited by it: of GPT-3 on 1,024 and 32 H200 and of Mixtral
// on 64 H100, no deal with a stage below 0.923 was shorter without the limit.
#define FULL 0.9
// Of its bound: one that is lower by more, without the limit. The bounds of the same models are
// equal or lower by 0.6 % and more.
#define LIMITED 0.998
// Of the best deal of parts of layers, at most: one of whole layers. If it is not as good, it
// takes 1.007 and more of it in the same models, but one of 1.0022.
#define WHOLE 1.002
// Of the memory: stages that have states, or saved activations, of just enough layers in host
// memory are all full, so one of them would exceed it by the gaps between values.
#define FILLED 0.997

// Tables of a shape without recomputation, and at a level. The level changes about the same part of
// a unit's saved bytes and seconds in every shape.
typedef struct LevelPair {
  const Table *without, *with;
} LevelPair;

// Tables of a shape with states on devices, and in host memory. Copies take place once per step: in
// any number of micro-batches they are the same.
typedef struct AwayPair {
  Point at; // with states on devices
  const Table *here, *away;
} AwayPair;

struct Prices {
  const ChooseOptions *o;
  const StepWork *work;
  Arena *a;
  Module *front;
  Tables *tables;
  Lenders lenders;
  Stop stop;
  bool deals_layers;     // the texts of plans have deals of layers
  bool refuses_deals;    // or none can have them
  const WordsUse *words; // by unit; NULL: tables of words cannot be spread over stages
  LevelPair level[N_RECOMPUTE_LEVELS]; // of the first point with the level; or NULL
  Vec(AwayPair) away;
};

Prices *prices_new(const Module *model, const ChooseOptions *o, const StepWork *w, Arena *a) {
  if (!o->tables || model->phase != PHASE_typed) return NULL;
  PipelineOptions run = {.bisect_limit = -1};
  Module *front = module_clone(model);
  front->annotations = NULL;
  if (!pipeline_run_quietly(front, "simplify,raise,simplify", &run)) {
    module_free(front);
    return NULL;
  }
  Prices *p = arena_one(a, Prices);
  *p = (Prices){.o = o, .work = w, .a = a, .front = front, .stop = choice_stop(o)};
  // Layers of several forwards are one for stages, and several in a text.
  p->refuses_deals = model_recycles(model);
  p->deals_layers = model->graphs->n_ops > SMALL_OPS && !p->refuses_deals;
  TableOptions t = {o->cluster, o->ranks, o->target, o->tables, o->context, o->paths, &p->stop};
  p->tables = tables_new(front, &t, a);
  p->words = units_of_words(tables_blocks(p->tables), a);
  return p;
}

void prices_refuse_deals(Prices *p) {
  p->deals_layers = false;
  p->refuses_deals = true;
}

bool prices_have_deals(const Prices *p) {
  return !p->refuses_deals;
}

void prices_free(Prices *p) {
  tables_free(p->tables);
  module_free(p->front);
}

const Module *prices_front(const Prices *p) {
  return p->front;
}

int prices_tables(const Prices *p) {
  return tables_built(p->tables);
}

static TableShape shape_of(const Prices *p, const Point *inside) {
  double slices = step_slices(p->work, inside->micro_batches);
  return (TableShape){point_plan(p->a, inside), point_inside(inside), inside->micro_batches,
                      RECOMPUTE_none, inside->offload && slices <= 1};
}

// The table of a plan without stages. NULL: the passes refuse it.
static const Table *table_inside(Prices *p, const Point *inside) {
  const char *why;
  int built = tables_built(p->tables);
  TableShape shape = shape_of(p, inside);
  const Table *t = tables_get(p->tables, &shape, &why);
  if (t && tables_built(p->tables) > built) vec_push(p->a, &p->lenders, (Lender){*inside, t});
  return t;
}

// The plan of the point inside of a stage.
static Point inside_of(const Point *at) {
  Point inside = *at;
  inside.stages = inside.chunks = 1;
  inside.kind = POINT_1f1b;
  inside.fewest = false;
  return inside;
}

static Point without_savers(const Point *at) {
  Point plain = *at;
  plain.recompute = RECOMPUTE_none;
  plain.offload = plain.swap = plain.fewest = false;
  return plain;
}

// The table of the point's plan inside of a stage.
static const Table *table_of(Prices *p, const Point *at) {
  Point inside = inside_of(at);
  return table_inside(p, &inside);
}

// The same if it is there already, or NULL.
static const Table *known_table(const Prices *p, const Point *at) {
  Point inside = inside_of(at);
  TableShape shape = shape_of(p, &inside);
  return tables_find(p->tables, &shape);
}

// The table of units of words: on all ranks that have the same rows. These units are in no layer,
// so nothing of them is recomputed.
static const Table *table_of_words(Prices *p, const Point *at) {
  Point inside = inside_of(at);
  inside.tensor *= at->stages;
  inside.inner = inside.tensor > 1 ? POINT_vp : POINT_sp;
  inside.recompute = RECOMPUTE_none;
  return table_inside(p, &inside);
}

// The costs if all layers are recomputed: a stage that begins within one keeps its input, which has
// as many bytes as that of a layer.
static UnitCosts with_entries(const UnitCosts *units, Arena *a) {
  UnitCost *unit = arena_array(a, UnitCost, units->n);
  double input = 0;
  for (int i = 0; i < units->n; i++) {
    bool within = i && units->at[i].layer && units->at[i].layer == units->at[i - 1].layer;
    unit[i] = units->at[i];
    if (!within) input = unit[i].kept[RECOMPUTE_none];
    if (within) unit[i].entry += fmax(0, input - unit[i].kept[RECOMPUTE_none]);
  }
  UnitCosts out = *units;
  out.at = unit;
  return out;
}

// Conditions of a price.
typedef struct Wish {
  double memory;        // bytes of a rank
  bool timeline;        // also the seconds of the timeline, not the bound alone
  bool limited;         // also whether the memory makes the bound longer
  bool text;            // a deal in the plan's text, improved by timelines
  const Lender *lender; // of borrowed costs; NULL: they are the point's own
} Wish;

// Whether some stage has little memory left, so that another deal may be shorter but not fit.
static bool is_full(const DealProblem *p, const Deal *d) {
  for (int i = 0; i < d->n && !isinf(p->memory); i++)
    if (d->bytes[i] > FULL * p->memory) return true;
  return false;
}

// Whether another deal is shorter, but does not fit.
static bool is_limited(const DealProblem *p, const Deal *d, Arena *a) {
  DealProblem any = *p;
  Deal shorter;
  any.memory = INFINITY;
  return is_full(p, d) && deal_find(&any, a, &shorter) && shorter.bound < LIMITED * d->bound;
}

// Sets the costs of words on all stages. False: the passes refuse them.
static bool set_words(Prices *p, const Point *at, const UnitCosts *units, const Lender *lender,
                      InterlacedProblem *out) {
  const Table *own = lender ? NULL : table_of_words(p, at);
  out->handed = 0;
  for (int i = 0; i < units->n; i++)
    out->handed = fmax(out->handed, units->at[i].handed);
  // A lender's ranks inside of layers may all have whole tables.
  if (lender)
    out->words = words_bound(p->words, units, (double)at->stages * lender->at.tensor);
  else if (own)
    out->words = words_cost(p->words, &own->costs);
  return lender || own;
}

// Finds the best deal, and the rest of its price.
static PriceStatus find_best(Prices *p, const Point *at, const UnitCosts *units,
                             const DealProblem *problem, const Wish *wish, Arena *a, Deal *deal,
                             Price *out) {
  InterlacedProblem words = {.deal = *problem};
  bool ok, interlaced = at->kind == POINT_interlaced;
  if (interlaced && !set_words(p, at, units, wish->lender, &words)) return PRICE_refused;
  ok = interlaced ? interlaced_find(&words, a, deal) : deal_find(problem, a, deal);
  if (!ok) return PRICE_unfit;
  out->bound = deal->bound;
  if (!interlaced && wish->limited) out->limited = is_limited(problem, deal, a);
  if (!interlaced && wish->text) deal_improve(problem, deal, IMPROVED);
  if (!wish->timeline) return PRICE_known;
  if (interlaced)
    interlaced_price(&words, deal, &out->seconds, &out->bytes);
  else
    ok = makespan_find(problem, deal, INFINITY, &out->seconds, &out->bytes);
  return ok && out->bytes <= wish->memory * (1 + 1e-9) ? PRICE_known : PRICE_unfit;
}

// Whether stages have no more of their states or activations in host memory than they need to.
static bool fills(const Point *at) {
  return at->fewest && (at->offload || at->swap);
}

// Prices the best deal with stages that end at such borders, and finds its text unless they are of
// units.
static PriceStatus price_deal(Prices *p, const Point *at, const UnitCosts *units, Borders borders,
                              const Wish *wish, Price *out) {
  if (at->fewest && p->refuses_deals) return PRICE_refused;
  Arena *scratch = arena_new();
  bool interlaced = at->kind == POINT_interlaced, has_text = borders != BORDER_units;
  UnitCosts dealt = interlaced ? units_without_words(p->words, units, scratch) : *units;
  UnitCosts own = costs_between(&dealt, borders, scratch);
  if (at->recompute == RECOMPUTE_layer && !at->fewest) own = with_entries(&own, scratch);
  DealProblem problem = {.units = &own,
                         .kind = point_schedule(at),
                         .stages = at->stages,
                         .chunks = at->chunks,
                         .micro_batches = p->work->batches * at->micro_batches,
                         .memory = wish->memory * (fills(at) && wish->timeline ? FILLED : 1),
                         .recompute = at->fewest ? at->recompute : RECOMPUTE_none,
                         .per_stage_recompute = at->fewest && at->recompute > RECOMPUTE_none,
                         .offload = !at->offload ? OFFLOAD_none
                                    : at->fewest ? OFFLOAD_fewest
                                                 : OFFLOAD_all,
                         .swap = at->swap};
  Deal deal;
  Wish own_wish = *wish;
  own_wish.text &= has_text;
  PriceStatus status = find_best(p, at, units, &problem, &own_wish, scratch, &deal, out);
  if (status == PRICE_known && wish->timeline && has_text) {
    Point plain = *at;
    if (at->fewest) plain.recompute = RECOMPUTE_none;
    plain.offload = plain.swap = false;
    out->plan = deal_text(point_plan(scratch, &plain), &problem, &deal, p->a);
    if (!out->plan) status = PRICE_refused;
  }
  arena_free(scratch);
  return status;
}

// Prices a deal of units to stages.  With the timeline it is of parts of layers, or of whole ones
// if that costs little: such a deal is in the plan's text, so the plan is built as it is priced.
// `place` makes the others, with stages of nothing but the ends of the model, unless only texts are
// wanted.
static PriceStatus find_deal(Prices *p, const Point *at, const UnitCosts *units, const Wish *wish,
                             Price *out) {
  if (at->fewest) return price_deal(p, at, units, BORDER_layers, wish, out);
  PriceStatus status = price_deal(p, at, units, BORDER_units, wish, out);
  if (status != PRICE_known || !wish->timeline || !p->deals_layers) return status;
  Price parts = {0}, whole = {0}, *best = NULL;
  if (price_deal(p, at, units, BORDER_parts, wish, &parts) == PRICE_known) best = &parts;
  if (price_deal(p, at, units, BORDER_layers, wish, &whole) == PRICE_known &&
      (!best || whole.seconds <= best->seconds * WHOLE))
    best = &whole;
  if (!best && wish->text) return PRICE_unfit;
  if (!best || (best->seconds > out->seconds * TEXT && !wish->text)) return status;
  best->bound = out->bound;
  *out = *best;
  return PRICE_known;
}

// The units that are dealt to stages: none if words cannot be spread over these.
static int dealt_units(const Prices *p, const Point *at) {
  int n = tables_blocks(p->tables)->n_units, words = 0;
  if (at->kind != POINT_interlaced) return n;
  for (int i = 0; i < n && p->words; i++)
    words += p->words[i];
  return p->words ? n - words : 0;
}

bool prices_has_units(const Prices *p, const Point *at) {
  return at->stages == 1 || dealt_units(p, at) >= at->stages * at->chunks;
}

static double seconds_of(const UnitCost *u) {
  return u->forward + u->backward + u->weight_grad;
}

// The costs of both tables: units may be recomputed at the level or not.
static UnitCosts with_level(const UnitCosts *without, const UnitCosts *with, RecomputeLevel level,
                            Arena *a) {
  UnitCost *unit = arena_array(a, UnitCost, without->n);
  for (int i = 0; i < without->n; i++) {
    const UnitCost *x = &without->at[i], *y = &with->at[i];
    unit[i] = *x;
    unit[i].again[level] = fmax(seconds_of(y) - seconds_of(x), 0);
    unit[i].kept[level] = fmin(y->kept[RECOMPUTE_none], x->kept[RECOMPUTE_none]);
    unit[i].again_working[level] = y->working[1];
    unit[i].split_working[level] = y->split_working[RECOMPUTE_none];
  }
  UnitCosts out = *without;
  out.at = unit;
  return out;
}

// The tables of a shape in any number of micro-batches but one, if they are there, or NULL.
static const AwayPair *known_away(const Prices *p, const Point *plain) {
  Point inside = inside_of(plain);
  for (int i = 0; i < p->away.n; i++) {
    Point same = p->away.at[i].at;
    if (same.micro_batches > 1 && plain->micro_batches > 1)
      same.micro_batches = plain->micro_batches;
    if (point_equal(&same, &inside)) return &p->away.at[i];
  }
  return NULL;
}

// The same; they are made if they are not there. NULL: the passes refuse one.
static const AwayPair *find_away(Prices *p, const Point *plain) {
  const AwayPair *known = known_away(p, plain);
  if (known) return known;
  AwayPair new = {.at = inside_of(plain)};
  Point away = new.at;
  away.offload = true;
  if (!(new.here = table_of(p, &new.at)) || !(new.away = table_of(p, &away))) return NULL;
  vec_push(p->a, &p->away, new);
  return &p->away.at[p->away.n - 1];
}

// The costs of units that may have their states in host memory.
static UnitCosts with_away(const UnitCosts *units, const AwayPair *pair, Arena *a) {
  UnitCost *unit = arena_array(a, UnitCost, units->n);
  for (int i = 0; i < units->n; i++) {
    const UnitCost *x = &pair->here->costs.at[i], *y = &pair->away->costs.at[i];
    unit[i] = units->at[i];
    unit[i].away = fmax(x->lasting - y->lasting, 0);
    unit[i].moves = fmax(y->sums + y->update - x->sums - x->update, 0);
    unit[i].piece = y->piece;
  }
  UnitCosts out = *units;
  out.at = unit;
  return out;
}

// Whether all states are in host memory, not those of the fewest layers that fit: in one
// micro-batch without stages, as updates run in backward then.
static bool all_away(const Prices *p, const Point *at) {
  return at->offload && at->fewest && at->stages == 1 &&
         step_slices(p->work, at->micro_batches) <= 1;
}

// The costs of units that may have saved activations in host memory, by the table of a shape with
// all of them there. `waited`: the seconds that it takes longer. Those that copies do not explain
// are of all layers: others wait for the link to host memory, too, such as updates in backward.
static UnitCosts with_swapped(const UnitCosts *units, const UnitCosts *plain, const UnitCosts *with,
                              double waited, Arena *a) {
  UnitCost *unit = arena_array(a, UnitCost, units->n);
  double copies = 0;
  for (int i = 0; i < units->n; i++) {
    const UnitCost *x = &plain->at[i], *y = &with->at[i];
    unit[i] = units->at[i];
    unit[i].swapped = fmax(x->kept[RECOMPUTE_none] - y->kept[RECOMPUTE_none], 0);
    unit[i].swapped_working = fmax(y->working[0], y->working[1]);
    unit[i].copies[0] = y->copies[0];
    unit[i].copies[1] = y->copies[1];
    copies += y->copies[0];
  }
  UnitCosts alone = *plain;
  alone.at = unit;
  double more = fmax(waited - deal_all_swapped(&alone, a), 0);
  for (int i = 0; i < units->n && copies > 0; i++)
    unit[i].waits = more * unit[i].copies[0] / copies;
  UnitCosts out = *units;
  out.at = unit;
  return out;
}

// The costs of units that a point's deal chooses from.  False: the passes refuse a table.
static bool costs_of(Prices *p, const Point *at, Arena *a, UnitCosts *out) {
  Point plain = *at, level = *at;
  bool away = all_away(p, at);
  double slices = step_slices(p->work, at->micro_batches);
  plain.offload = level.offload = away;
  plain.swap = level.swap = false;
  if (at->fewest) plain.recompute = RECOMPUTE_none;
  const Table *t = table_of(p, &plain), *other;
  if (!t) return false;
  *out = t->costs;
  if (at->fewest && at->recompute > RECOMPUTE_none) {
    if (!(other = table_of(p, &level))) return false;
    *out = with_level(out, &other->costs, at->recompute, a);
  }
  if (at->swap) {
    Point swapped = plain;
    swapped.swap = true;
    if (!(other = table_of(p, &swapped))) return false;
    double waited = at->stages == 1 ? (other->seconds - t->seconds) / slices : 0;
    *out = with_swapped(out, &t->costs, &other->costs, waited, a);
  }
  if (!at->offload || away) return true;
  plain.recompute = RECOMPUTE_none;
  plain.fewest = false;
  const AwayPair *pair = find_away(p, &plain);
  if (!pair) return false;
  *out = with_away(out, pair, a);
  return true;
}

// The savers of a plan without stages: as of a deal to one stage.
typedef struct OneStage {
  double seconds, bytes; // besides those of the plan without them
  const char *savers;    // in the plan's text; NULL: there are too many numbers
} OneStage;

// Finds the fewest layers in host memory, or recomputed, that fit. `bytes`: of the plan without
// savers, by its table; 0: as its units say. False: it does not fit.
static bool deal_one_stage(const Prices *p, const Point *at, const UnitCosts *units, double memory,
                           double bytes, bool offload, OneStage *out) {
  Arena *scratch = arena_new();
  Deal deal;
  Price without = {0}, with = {0};
  DealProblem problem = {.units = units,
                         .kind = STAGED_1f1b,
                         .stages = 1,
                         .chunks = 1,
                         .micro_batches = p->work->batches * at->micro_batches,
                         .memory = INFINITY};
  bool ok = deal_find(&problem, scratch, &deal) &&
            makespan_find(&problem, &deal, INFINITY, &without.seconds, &without.bytes);
  problem.memory = memory - (bytes > 0 ? bytes - without.bytes : 0);
  problem.recompute = at->recompute;
  problem.per_stage_recompute = at->recompute > RECOMPUTE_none;
  problem.offload = offload ? OFFLOAD_fewest : OFFLOAD_none;
  problem.swap = at->swap;
  ok = ok && deal_find(&problem, scratch, &deal) &&
       makespan_find(&problem, &deal, INFINITY, &with.seconds, &with.bytes);
  if (ok)
    *out = (OneStage){with.seconds - without.seconds, with.bytes - without.bytes,
                      deal_savers(&problem, &deal, p->a)};
  arena_free(scratch);
  return ok;
}

// Prices the plan without stages that has as few layers in host memory, or recomputed, as fit: as
// the table of the plan without savers says, and the difference of both in a deal to one stage. In
// one micro-batch updates run in backward if states are in host memory, so all of them are.
static PriceStatus price_one_stage(Prices *p, const Point *at, const Wish *wish, Price *out) {
  Point plain = without_savers(at);
  plain.offload = all_away(p, at);
  const Table *t = table_of(p, &plain);
  if (p->refuses_deals || !t) return PRICE_refused;
  Arena *scratch = arena_new();
  UnitCosts units;
  OneStage one;
  bool ok = costs_of(p, at, scratch, &units);
  PriceStatus status = ok ? PRICE_known : PRICE_refused;
  bool few_away = at->offload && !plain.offload;
  if (ok && !deal_one_stage(p, at, &units, wish->memory * FILLED, t->bytes, few_away, &one))
    status = PRICE_unfit;
  if (status == PRICE_known) {
    const char *savers = one.savers;
    out->seconds = out->bound = t->seconds + one.seconds;
    out->bytes = t->bytes + one.bytes;
    if (savers && plain.offload) savers = str_format(scratch, "%s,%s=1", savers, offload_program);
    plain.offload = false;
    if (savers) out->plan = point_plan_with(p->a, &plain, savers);
    if (!savers) status = PRICE_refused;
  }
  arena_free(scratch);
  return status;
}

// Prices a plan that fits into so much memory, with `text` a deal that is in its text.
static PriceStatus find_price(Prices *p, const Point *at, const Wish *wish, Price *out) {
  *out = (Price){0};
  if (!prices_has_units(p, at)) return PRICE_unknown;
  if (at->stages == 1 && at->fewest) return price_one_stage(p, at, wish, out);
  if (at->stages == 1) {
    const Table *t = table_of(p, at);
    if (!t) return PRICE_refused;
    *out = (Price){.bound = t->seconds, .seconds = t->seconds, .bytes = t->bytes};
    return t->bytes > wish->memory ? PRICE_unfit : PRICE_known;
  }
  Arena *scratch = arena_new();
  UnitCosts units;
  bool ok = costs_of(p, at, scratch, &units);
  PriceStatus status = ok ? find_deal(p, at, &units, wish, out) : PRICE_refused;
  arena_free(scratch);
  return status;
}

PriceStatus prices_find(Prices *p, const Point *at, bool timeline, Price *out) {
  Wish wish = {.memory = choose_memory(p->o), .timeline = timeline, .limited = !timeline};
  return find_price(p, at, &wish, out);
}

PriceStatus prices_deal(Prices *p, const Point *at, double memory, Price *out) {
  if (at->stages == 1 || !p->deals_layers) return PRICE_unknown;
  Wish wish = {.memory = memory, .timeline = true, .text = true};
  return find_price(p, at, &wish, out);
}

bool prices_least(Prices *p, const Point *at, double *seconds, double *any_order) {
  if (at->stages == 1 || at->fewest || at->kind == POINT_interlaced || !prices_has_units(p, at))
    return false;
  const Table *t = table_of(p, at);
  if (!t) return false;
  DealProblem problem = {.units = &t->costs,
                         .kind = point_schedule(at),
                         .stages = at->stages,
                         .chunks = at->chunks,
                         .micro_batches = p->work->batches * at->micro_batches,
                         .memory = INFINITY};
  DealLeast least = deal_least(&problem);
  *seconds = least.seconds;
  *any_order = least.any_order;
  return true;
}

// The number of the nearest table; -1: none bounds the point's costs, or those `can` says.
static int find_nearest(const Prices *p, const Point *at,
                        bool (*can)(const Lender *l, const Point *at)) {
  int best = -1;
  for (int i = 0; i < p->lenders.n; i++) {
    const Lender *l = &p->lenders.at[i];
    if (can(l, at) && (best < 0 || is_nearer(l, &p->lenders.at[best], at))) best = i;
  }
  return best;
}

static int find_lender(const Prices *p, const Point *at) {
  return find_nearest(p, at, can_lend);
}

// Makes a table that bounds the costs of all points with as many tensor, expert and context ranks:
// one of the fewest parts of the batch, on enough nodes for sums over replicas to be those of many.
static void make_lender(Prices *p, const Point *at) {
  enum { ENOUGH_NODES = 16 };
  int64_t near = (int64_t)at->tensor * at->experts * at->context, parts = p->o->ranks / near;
  int64_t enough = (int64_t)ENOUGH_NODES * p->o->cluster->per_node / near;
  int64_t replicas = parts / 2;
  if (replicas > enough) replicas = enough;
  if (replicas < 2) replicas = 2;
  int64_t slices = parts / replicas;
  if (slices < 2 && parts >= 2 && at->micro_batches > 1) slices = 2;
  // Parts that have rows.
  while (slices > 2 && p->o->batch % (replicas * at->experts * slices) != 0)
    slices /= 2;
  while (replicas > 2 && p->o->batch % (replicas * at->experts * slices) != 0)
    replicas /= 2;
  if (parts < 2 || slices < (at->micro_batches > 1 ? 2 : 1)) return;
  Point q = *at;
  q.stages = q.chunks = 1;
  q.zero = at->zero > 1 ? 1 : at->zero;
  q.replicas = (int)replicas;
  q.micro_batches = slices;
  table_of(p, &q);
}

// Sets the pair of tables of a level, by the shape of a lender. False: the passes refuse it.
static bool find_level(Prices *p, RecomputeLevel level, const Lender *l) {
  LevelPair *pair = &p->level[level];
  if (pair->without) return true;
  Point at = l->at;
  at.recompute = level;
  const Table *with = table_of(p, &at);
  if (with) *pair = (LevelPair){l->table, with};
  return with;
}

// Gives costs that are borrowed the parts of a level: all units, or those that a deal chooses.
// Returns the seconds of recomputation of all.
static double recompute_units(const LevelPair *pair, const Point *at, UnitCosts *units, Arena *a) {
  RecomputeLevel level = at->fewest ? at->recompute : RECOMPUTE_none;
  UnitCost *unit = arena_array(a, UnitCost, units->n);
  double sum = 0;
  for (int i = 0; i < units->n; i++) {
    const UnitCost *x = &pair->without->costs.at[i], *y = &pair->with->costs.at[i];
    double kept = x->kept[RECOMPUTE_none], working = x->working[1], again = 0;
    unit[i] = units->at[i];
    if (x->forward > 0)
      again = LEAST_AGAIN * fmin(fmax(seconds_of(y) - seconds_of(x), 0) / x->forward, 1) *
              unit[i].forward;
    double kept_part = kept > 0 ? fmin(y->kept[RECOMPUTE_none] / kept, 1) : 1;
    double working_part = working > 0 ? fmin(y->working[1] / working, 1) : 1;
    double split = x->split_working[RECOMPUTE_none], split_part = 1;
    if (split > 0) split_part = fmin(y->split_working[RECOMPUTE_none] / split, 1);
    unit[i].kept[level] = kept_part * unit[i].kept[RECOMPUTE_none];
    if (at->fewest) {
      unit[i].again[level] = again;
      unit[i].again_working[level] = working_part * unit[i].working[1];
      unit[i].split_working[level] = split_part * unit[i].split_working[RECOMPUTE_none];
    } else {
      unit[i].backward += again;
      unit[i].working[1] *= working_part;
      unit[i].split_working[RECOMPUTE_none] *= split_part;
    }
    sum += again;
  }
  units->at = unit;
  return sum;
}

double prices_level_part(const Prices *p, RecomputeLevel level) {
  const LevelPair *pair = &p->level[level];
  double without = 0, with = 0;
  for (int i = 0; pair->without && i < pair->without->costs.n; i++) {
    without += pair->without->costs.at[i].kept[RECOMPUTE_none];
    with += pair->with->costs.at[i].kept[RECOMPUTE_none];
  }
  return without > 0 ? fmin(with / without, 1) : 0;
}

// Whether the table has the point's collectives within layers: one of fewer tensor or context ranks
// bounds its kernels alone.
static bool is_inner(const Lender *l, const Point *at) {
  return l->at.tensor == at->tensor && l->at.inner == at->inner && l->at.context == at->context &&
         l->at.along == at->along;
}

// The number of the nearest table, of which one is made if there is none, or if the only one is
// `before` and another may be nearer; -1: none can be made. A table of whole sequences comes before
// one of parts of them: it bounds all points with as many tensor and expert ranks.
static int need_lender(Prices *p, const Point *at, int before) {
  Point plain = *at, whole;
  plain.recompute = RECOMPUTE_none;
  plain.offload = plain.swap = false;
  plain.fewest = false;
  int i = find_lender(p, &plain);
  if (i >= 0 && (i != before || is_inner(&p->lenders.at[i], at))) return i;
  whole = plain;
  whole.context = 1;
  whole.along = POINT_cp;
  make_lender(p, &whole);
  i = find_lender(p, &plain);
  if (i >= 0 && i == before && at->context > 1) {
    make_lender(p, &plain);
    i = find_lender(p, &plain);
  }
  // Points with more stages than units have no price by tables.
  if (i < 0 && !prices_has_units(p, at) && table_of(p, &plain)) i = find_lender(p, &plain);
  return i;
}

// Whether the table is of the point's own shape, but for recomputation and states in host memory.
static bool is_own(const Lender *l, const Point *at) {
  Point plain = *at;
  plain.stages = plain.chunks = 1;
  plain.kind = POINT_1f1b;
  plain.recompute = RECOMPUTE_none;
  plain.offload = plain.swap = plain.fewest = false;
  return point_equal(&l->at, &plain);
}

// The bound of a point with more stages than units: parts of units are dealt, so stages do the mean
// of `seconds` at least, and wait for each other.
static double bound_parts(const Prices *p, const Lender *l, const Point *at, double seconds) {
  double mean = seconds / at->stages;
  double waits = borrow_loop(l, at, p->work) * chain_share(p->work, at);
  return LENT_SECONDS * fmax(mean, waits);
}

// The table for a quick bound: one that is there, also of the loop alone, or the one that is made.
static int quick_lender(Prices *p, const Point *at, bool *loop) {
  Point plain = without_savers(at);
  int i = find_lender(p, &plain), of_loop = i < 0 ? find_nearest(p, &plain, lends_loop) : -1;
  *loop = of_loop >= 0 && is_inner(&p->lenders.at[of_loop], at);
  return *loop ? of_loop : need_lender(p, at, -1);
}

bool prices_quick(Prices *p, const Point *at, double *bound) {
  if (at->stages > 1 && at->kind == POINT_interlaced) return false;
  bool saves = at->offload || at->swap, loop;
  Point plain = without_savers(at);
  if (at->swap) at = &plain;
  int i = quick_lender(p, at, &loop);
  // Without stages its own bound is as quick, unless it takes another table.
  if (i < 0 || (at->stages == 1 && !saves && !loop)) return false;
  const Lender lender = p->lenders.at[i];
  double seconds = loop ? borrow_loop(&lender, at, p->work)
                        : borrow_seconds(&lender, at, p->work, p->o->cluster);
  if (at->stages == 1 || !prices_has_units(p, at)) {
    *bound = at->stages == 1 ? LENT_SECONDS * seconds : bound_parts(p, &lender, at, seconds);
    return true;
  }
  bool recomputes = at->recompute > RECOMPUTE_none && !at->fewest;
  if (recomputes && !find_level(p, at->recompute, &lender)) return false;
  Arena *scratch = arena_new();
  UnitCosts units = loop ? borrow_loop_costs(&lender, at, p->work, p->o->cluster, scratch)
                         : borrow_costs(&lender, at, p->work, p->o->cluster, scratch);
  if (recomputes) recompute_units(&p->level[at->recompute], at, &units, scratch);
  DealProblem problem = {.units = &units,
                         .kind = point_schedule(at),
                         .stages = at->stages,
                         .chunks = at->chunks,
                         .micro_batches = p->work->batches * at->micro_batches,
                         .memory = INFINITY};
  *bound = LENT_SECONDS * deal_quick(&problem);
  if (saves) {
    // Savers take seconds, and such deals are of layers: the best one in any memory is a bound.
    UnitCosts layers = costs_between(&units, BORDER_layers, scratch);
    Deal deal;
    problem.units = &layers;
    if (deal_find(&problem, scratch, &deal)) *bound = fmax(*bound, LENT_SECONDS * deal.bound);
  }
  arena_free(scratch);
  return true;
}

static double units_away(const UnitCosts *units) {
  double away = 0;
  for (int i = 0; i < units->n; i++)
    away += units->at[i].away;
  return away;
}

static double units_moves(const UnitCosts *units) {
  double moves = 0;
  for (int i = 0; i < units->n; i++)
    moves += units->at[i].moves;
  return moves;
}

// Gives costs that are borrowed those of saved activations in host memory: all that are kept may be
// there, and nothing of them is on the device that is not counted anyhow.
static void borrow_swapped(const Prices *p, const Point *at, UnitCosts *units, Arena *a) {
  bool in_backward = all_away(p, at);
  UnitCost *unit = arena_array(a, UnitCost, units->n);
  for (int i = 0; i < units->n; i++) {
    UnitCost *u = &unit[i];
    *u = units->at[i];
    u->swapped = u->kept[RECOMPUTE_none];
    u->copies[0] = u->copies[1] = LEAST_AGAIN * copy_seconds(p->o->cluster, at, u->swapped);
    u->swapped_working = fmax(u->working[0], u->working[1]);
    // Copies of states then run beside backward.
    if (in_backward) u->moves = 0;
  }
  units->at = unit;
}

// The bound of a plan without stages by the least that its layers take longer, as price_one_stage.
static PriceStatus bound_one_stage(const Prices *p, const Lender *l, const Point *at,
                                   const UnitCosts *units, double memory, double *bound) {
  OneStage one;
  double more = is_own(l, at) ? l->table->bytes : 0;
  if (!deal_one_stage(p, at, units, memory, more, at->offload, &one)) return PRICE_unfit;
  *bound = LENT_SECONDS * fmax(borrow_seconds(l, at, p->work, p->o->cluster),
                               borrow_loop(l, at, p->work) + one.seconds);
  return PRICE_known;
}

// A bound of a plan without stages with swapped layers by those of its own tables that are there,
// and one more of these, as a point that is worse by the first one needs no others. Savers take no
// less than the plan without them: recomputation may run while that waits for collectives, so it
// has no seconds before its own table. Copies have those of their bytes, and states in host memory
// those of the lender's shape. PRICE_unknown: the price makes one more table at most, or the passes
// refuse one.
static PriceStatus bound_by_own(Prices *p, const Lender *l, const Point *at, double *bound) {
  Point plain = without_savers(at), level;
  plain.offload = all_away(p, at);
  level = plain;
  level.recompute = at->recompute;
  bool few_away = at->offload && !plain.offload;
  const Table *t = known_table(p, &plain), *with = known_table(p, &level);
  const AwayPair *away = few_away ? known_away(p, &plain) : NULL, *lent = NULL;
  if (!t) {
    if (!(t = table_of(p, &plain))) return PRICE_unknown;
    *bound = LENT_SECONDS * t->seconds;
    return PRICE_known;
  }
  if (!with)
    with = table_of(p, &level);
  else if (few_away && !away)
    away = find_away(p, &plain);
  else
    return PRICE_unknown;
  if (!with || (few_away && !away && !(lent = find_away(p, &l->at)))) return PRICE_unknown;
  Arena *scratch = arena_new();
  UnitCosts units = t->costs;
  if (at->recompute > RECOMPUTE_none)
    units = with_level(&units, &with->costs, at->recompute, scratch);
  if (few_away) units = with_away(&units, away ? away : lent, scratch);
  if (lent) borrow_away(l, at, &units, scratch);
  borrow_swapped(p, at, &units, scratch);
  OneStage one;
  double memory = OWN_BYTES * choose_memory(p->o);
  bool fits = deal_one_stage(p, at, &units, memory, t->bytes, few_away, &one);
  if (fits) *bound = LENT_SECONDS * (t->seconds + one.seconds);
  arena_free(scratch);
  return fits ? PRICE_known : PRICE_unfit;
}

PriceStatus prices_borrow(Prices *p, const Point *at, int *from, double *bound) {
  int before = *from, i = need_lender(p, at, before);
  if (i >= 0 && i == before && at->swap && at->stages == 1) {
    const Lender own = p->lenders.at[i];
    return bound_by_own(p, &own, at, bound);
  }
  // Its own table without savers, before the others that its price takes.
  if (i >= 0 && i == before && (at->swap || (at->offload && at->stages > 1))) {
    Point plain = without_savers(at);
    if (table_of(p, &plain)) i = find_lender(p, &plain);
  }
  if (i < 0 || i == before) return PRICE_unknown;
  const Lender lender = p->lenders.at[i], *l = &lender;
  *from = i;
  // Parts of units have no bytes, so tables of savers say nothing more.
  if (at->stages > 1 && !prices_has_units(p, at)) {
    *bound = bound_parts(p, l, at, borrow_seconds(l, at, p->work, p->o->cluster));
    return PRICE_known;
  }
  if (at->recompute > RECOMPUTE_none && !find_level(p, at->recompute, l)) return PRICE_unknown;
  const AwayPair *away = at->offload ? find_away(p, &l->at) : NULL;
  if (at->offload && !away) return PRICE_unknown;
  Arena *scratch = arena_new();
  UnitCosts units = borrow_costs(l, at, p->work, p->o->cluster, scratch);
  double memory = choose_memory(p->o), again = 0;
  memory *= is_own(l, at) ? OWN_BYTES : LENT_BYTES;
  PriceStatus status;
  if (at->recompute > RECOMPUTE_none)
    again = recompute_units(&p->level[at->recompute], at, &units, scratch);
  if (away) {
    units = with_away(&units, away, scratch);
    borrow_away(l, at, &units, scratch);
  }
  if (at->swap) borrow_swapped(p, at, &units, scratch);
  if (at->swap && at->stages == 1) {
    status = bound_one_stage(p, l, at, &units, memory, bound);
  } else if (at->stages > 1) {
    Price price = {0};
    Wish wish = {.memory = memory, .lender = l};
    status = find_deal(p, at, &units, &wish, &price);
    *bound = LENT_SECONDS * price.bound;
  } else {
    status = units_bytes(&units) - units_away(&units) > memory ? PRICE_unfit : PRICE_known;
    double slices = step_slices(p->work, at->micro_batches);
    // With several micro-batches updates are after the loop.
    double moves = slices > 1 ? units_moves(&units) : 0;
    *bound = LENT_SECONDS * fmax(borrow_seconds(l, at, p->work, p->o->cluster) + moves,
                                 borrow_loop(l, at, p->work) + again * slices);
  }
  arena_free(scratch);
  return status;
}
