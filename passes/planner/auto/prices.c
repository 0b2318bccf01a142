// See prices.h.

#include "prices.h"

#include <math.h>

#include "deal.h"
#include "pass.h"
#include "tables.h"

struct Prices {
  const ChooseOptions *o;
  Arena *a;
  Module *front;
  Tables *tables;
};

Prices *prices_new(const Module *model, const ChooseOptions *o, Arena *a) {
  FILE *nowhere = o->tables && model->phase == PHASE_typed ? fopen("/dev/null", "w") : NULL;
  if (!nowhere) return NULL;
  Diag *d = diag_new(nowhere);
  PipelineOptions run = {.bisect_limit = -1, .out = nowhere};
  Module *front = module_clone(model);
  front->annotations = NULL;
  bool ok = pipeline_run(front, "simplify,raise,simplify", &run, d);
  diag_free(d);
  fclose(nowhere);
  if (!ok) {
    module_free(front);
    return NULL;
  }
  Prices *p = arena_one(a, Prices);
  TableOptions t = {o->cluster, o->target, o->tables, o->context};
  *p = (Prices){o, a, front, tables_new(front, &t, a)};
  return p;
}

void prices_free(Prices *p) {
  module_free(p->front);
}

int prices_tables(const Prices *p) {
  return tables_built(p->tables);
}

static double memory_of(const Prices *p) {
  return p->o->limited && p->o->cluster->memory > 0 ? p->o->cluster->memory : INFINITY;
}

// Prices a deal of the table's units to stages.
static PriceStatus find_deal(const Prices *p, const Point *at, const Table *t, bool timeline,
                             Price *out) {
  static const StagedKind kind[N_POINT_KINDS] = {STAGED_1f1b, STAGED_zb_h1, STAGED_zb_h2,
                                                 STAGED_interleaved};
  DealProblem problem = {.units = &t->costs,
                         .kind = kind[at->kind],
                         .stages = at->stages,
                         .chunks = at->chunks,
                         .micro_batches = at->micro_batches,
                         .memory = memory_of(p)};
  Arena *scratch = arena_new();
  Deal deal;
  double peak;
  bool ok = deal_find(&problem, scratch, &deal);
  if (ok) out->bound = deal.bound;
  if (ok && timeline)
    ok = makespan_find(&problem, &deal, INFINITY, &out->seconds, &peak) && peak <= memory_of(p);
  arena_free(scratch);
  return ok ? PRICE_known : PRICE_unfit;
}

PriceStatus prices_find(Prices *p, const Point *at, bool timeline, Price *out) {
  *out = (Price){0};
  if (at->stages > 1 && tables_blocks(p->tables)->n_units < at->stages * at->chunks)
    return PRICE_unknown;
  Point inside = *at;
  inside.stages = inside.chunks = 1;
  inside.kind = POINT_1f1b;
  const char *why;
  TableShape shape = {point_plan(p->a, &inside), (int64_t)at->replicas * at->tensor,
                      at->micro_batches, RECOMPUTE_none};
  const Table *t = tables_get(p->tables, &shape, &why);
  if (!t) return PRICE_refused;
  if (at->stages > 1) return find_deal(p, at, t, timeline, out);
  *out = (Price){t->seconds, t->seconds};
  return t->bytes > memory_of(p) ? PRICE_unfit : PRICE_known;
}
