// The price of a point from tables of the model's units (tables.h): before its plan is compiled.
//
//     borrowed         a bound, by the table of another point (borrowed.h)
//     with stages      the best deal of units to stages (deal.h): a bound by the closed form of the
//                      schedule, then the deal's timeline
//     some recomputed  such a deal with the units of two tables, and the plan with that deal
//     some offloaded   likewise; a table with all states in host memory has their bytes and seconds
//     some swapped     likewise, of saved activations; without stages, too
//     without stages   the simulated step of cut-outs, extended to all layers
//
// Tables come from the passes, so a price is that of the built plan. A deal of layers, or of parts
// of them, is in the plan's text, so its price is exact. Of a much better one with a stage of the
// model's ends alone the price differs from the built one if `place` deals otherwise.

#ifndef PRICES_H
#define PRICES_H

#include "choose.h"
#include "point.h"
#include "step_work.h"

typedef struct Prices Prices;

// Of a small model at most: its candidates are compiled in milliseconds, and its layers differ too
// much from each other, and from the ends, for tables to be right.
enum { SMALL_OPS = 128 };

// NULL: the model has no tables.
Prices *prices_new(const Module *model, const ChooseOptions *o, const StepWork *w, Arena *a);
void prices_free(Prices *p);

typedef enum PriceStatus {
  PRICE_unknown, // the model has fewer units than the point has stages
  PRICE_refused, // the passes refuse it
  PRICE_unfit,   // it lacks memory
  PRICE_known
} PriceStatus;

typedef struct Price {
  double bound, seconds; // of the closed form; of the timeline, 0 if not asked for
  double bytes;          // of the rank with the most; 0 if not asked for
  const char *plan;      // with the timeline of a deal that is in its text (deal_text.h)
  bool limited; // without the limit of memory the bound is lower; not of timelines, nor borrowed
} Price;

// Whether the model has a unit for each stage and chunk: else the price is PRICE_unknown.
bool prices_has_units(const Prices *p, const Point *at);

// Plans have no deals in their texts from now on: the passes found other layers than the units are.
void prices_refuse_deals(Prices *p);
// Whether texts of plans have deals, by which few layers are recomputed.
bool prices_have_deals(const Prices *p);

// With `timeline` also the seconds.
PriceStatus prices_find(Prices *p, const Point *at, bool timeline, Price *out);

// The timeline of a deal of layers or parts of them, which is in the plan's text, into so much
// memory: improved, as it is to be compiled. PRICE_unknown: plans of the point have no such text.
PriceStatus prices_deal(Prices *p, const Point *at, double memory, Price *out);

// Bounds in seconds of all deals to the point's stages, also of parts of units, which `place` may
// deal: in the orders of its schedule, and in any order of the stages' blocks. False: there are
// none, as words are on all stages, or few layers are recomputed.
bool prices_least(Prices *p, const Point *at, double *seconds, double *any_order);

// A bound by the nearest table that is there, or one that is made for many points. *from: the
// number of that table; -1 before the first call. Then, of a point without stages with swapped
// layers, a bound by its own tables, of which each call makes one. PRICE_unknown: there is none
// that is nearer than *from, or one table is left.
PriceStatus prices_borrow(Prices *p, const Point *at, int *from, double *bound);

// A lower bound by the same table, or one that bounds the loop, of the point's work alone: found at
// once, without tables of savers, but that of the first point with all layers recomputed. Without
// stages, and with the fewest of a stage recomputed, it holds for less recomputation, too. Of
// stages with states or saved activations in host memory it is the best deal in any memory. False:
// there is none, or another bound is as quick.
bool prices_quick(Prices *p, const Point *at, double *bound);

// The part of kept bytes that a level of recomputation leaves; 0: it is not known yet.
double prices_level_part(const Prices *p, RecomputeLevel level);

const Module *prices_front(const Prices *p); // the typed model after `raise`
int prices_tables(const Prices *p);          // plans inside of stages that were priced

#endif
