// The price of a point from tables of the model's units (tables.h): before its plan is compiled.
//
//     with stages      the best deal of units to stages (deal.h): a bound by the closed form of the
//                      schedule, then the deal's timeline
//     without stages   the simulated step of cut-outs, extended to all layers
//
// Tables come from the passes, so a price is that of what they build; it differs where `place`
// deals otherwise than deal.h.

#ifndef PRICES_H
#define PRICES_H

#include "choose.h"
#include "point.h"

typedef struct Prices Prices;

// NULL: the model has no tables.
Prices *prices_new(const Module *model, const ChooseOptions *o, Arena *a);
void prices_free(Prices *p);

typedef enum PriceStatus {
  PRICE_unknown, // the model has fewer units than the point has stages
  PRICE_refused, // the passes refuse it
  PRICE_unfit,   // it lacks memory
  PRICE_known
} PriceStatus;

typedef struct Price {
  double bound, seconds; // of the closed form; of the timeline, 0 if not asked for
} Price;

// With `timeline` also the seconds.
PriceStatus prices_find(Prices *p, const Point *at, bool timeline, Price *out);

int prices_tables(const Prices *p); // plans inside of stages that were priced

#endif
