// The points of the search of auto (auto.h), each with its numbers so far, and errors of these.
//
//     zero1=8              bound 4.1 ms   borrowed 4.9   closed 5.2   priced 5.3   built 5.4 ms
//     pp_zb_h1=2,dp=4      bound 4.0 ms   borrowed 5.6                             above 5.4: it stays
//
// A point is in the heap under its key: the number of its last tier. Built plans correct the keys
// of points like them, as they show by how much estimates miss.

#ifndef PRICED_POINTS_H
#define PRICED_POINTS_H

#include "auto.h"
#include "evaluate.h"
#include "model_features.h"
#include "prices.h"

// The error of prices, or of estimates, of points with as many parts of the model, the same level
// of ZeRO, the same recomputation, and states or activations in host memory or not: the least
// factor by which plans that were built took longer. It corrects the numbers of points like them;
// if it is more than 1, only of those with the same ranks inside of layers as one of these plans.
typedef struct Correction {
  int parts, zero;         // stages times chunks
  bool interlaced, tabled; // by tables, or an estimate
  RecomputeLevel recompute;
  bool offload, swap;
  Vec(Point) of; // built points, of which no two have the same ranks inside of layers
  double least;
  double err; // by which later plans were faster than the price that it corrects
} Correction;

// The number by which a point is in the heap.
typedef enum Tier { TIER_bound, TIER_borrowed, TIER_closed, TIER_priced } Tier;

// A point, and its numbers so far.
typedef struct Priced {
  Point at;
  Bound bound;
  Tier tier;
  double seconds;   // of that tier, but the first
  double bytes;     // of its price; 0: it says none
  const char *plan; // of its price; NULL: the point's own
  double estimate;  // seconds, if the search hurries; 0: it was added since
  double work;      // seconds of its work, by the table of another point; 0: none says
  double tabled;    // seconds that no plan of it is below, by tables; 0: none says
  int lender;       // the table that it borrowed from; -1: none
  bool quick;       // `work` was asked for
  bool out;         // the bound proves that it lacks memory
  bool dropped;     // it lacks memory, or is refused, by tables or an estimate
  bool unfit;       // it lacks memory by its own table
  bool lacks;       // it lacks memory, if it was asked for beside the heap
  bool built;
  bool skipped;    // its key was too large by the errors so far
  int dealt_again; // times, as its deal did not fit when it was built
  bool recomputed; // points with its layers recomputed were added
  bool offloaded;  // the same with states in host memory was added
  bool swapped;    // the same with saved activations in host memory was added
  bool has_tensor; // the same with tp instead of sp was added
} Priced;

// By how much a plan without stages differed from its price, by tables.
typedef struct WholeError {
  Point at;
  double err;
} WholeError;

struct AutoSearch {
  const Module *model;
  const ChooseOptions *o;
  Arena *a;
  const StepWork *work;
  Prices *prices; // or NULL
  Vec(Priced) points;
  Vec(int) heap; // of points: a binary heap by key
  Vec(Correction) seconds;
  double bytes[N_POINT_KINDS];
  double err; // by how much plans were faster than their price
  Vec(WholeError) whole;
  Kept kept; // the best that was built
  ModelFeatures has;
  bool goes_first;  // before candidates without stages
  bool hurries;     // the time is over: the first plan that fits is the result
  double one_stage; // seconds of the fastest of these so far, built or priced; 0: none was
  int n_recomputed; // points that were added: with recomputation
  int n_offloaded;  // and with states in host memory, of these or others
  int n_swapped;    // and with saved activations there
  int n_same;       // points with a plan that was built for another one
  int n_impossible, n_unlikely, n_refused, n_estimated, n_built, n_failed, n_excluded;
};

// Whether candidates are compiled in milliseconds: then more are, and searches in any case.
bool auto_is_small(const AutoSearch *s);

// The seconds of a point's price by the errors of prices of points like it.
double auto_corrected(const AutoSearch *s, const Point *p, double seconds);

// Whether two points have the same ranks inside of layers.
bool auto_same_inside(const Point *p, const Point *q);

// Whether a plan with stages that have the point's ranks inside of layers was built.
bool auto_has_staged(const AutoSearch *s, const Point *p);

// By how much the plan of a point may be faster than its corrected price, by earlier ones.
double auto_error(const AutoSearch *s, const Point *p);

// The number by which the point is in the heap.
double auto_key(const AutoSearch *s, const Priced *p);

typedef struct PointPrice {
  PriceStatus status;
  double seconds, bytes; // bytes 0: it says none
  double tabled;         // the closed form by tables; INFINITY: they refuse it; 0: there are none
  const char *plan;      // of the price; NULL: the point's own
  bool limited;          // a closed form that memory makes longer
} PointPrice;

// Finds the closed form of a point, or its price: by tables of the model's units, or else an
// estimate for both.
PointPrice auto_price(AutoSearch *s, const Point *p, bool closed);
PointPrice auto_estimate(const AutoSearch *s, const Point *p);

// Whether a point is estimated to need so much that no table is made for it.
bool auto_is_hopeless(const AutoSearch *s, const Point *p);

// Notes the error of the price `expected` of a point's plan.
void auto_note_built(AutoSearch *s, const Point *p, double expected, const Candidate *c);

// Notes the seconds of a named plan without stages.
void auto_note_one_stage(AutoSearch *s, double seconds);

#endif
