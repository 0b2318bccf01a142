// The best-first search of `--plan auto`: over points (space.h), priced in tiers.
//
//     tier 1   bound       no plan of the point is below it (bounds.h)           all points
//     tier 2   borrowed    a bound by the table of another point (borrowed.h)    points below the best
//     tier 3   closed      the best deal of units by the closed form (prices.h)  the same
//     tier 4   priced      the timeline of that deal                             the same
//     built                compiled through all passes                           a few, the lowest price first
//
// Tier 2 begins with a bound of the work of a point with stages, before a deal is found, or with
// states in host memory, before their table is made. A point without stages with swapped layers
// gets its own tables one by one, each with a bound.
//
// A heap has each point under its latest number. A point that comes out with a price is built; the
// search ends when the best built plan costs no more than the least number that is left. Then the
// least numbers of all points say how much better any plan of the space can be, but those of built
// points without stages, which have one plan each. With stages one deal of units to them was built,
// and the bounds are of all deals:
//
//     built 2,933 ms; no plan left is priced below 3,002 ms; none takes less than 2,684 ms by tables;
//     none can take less than 2,207 ms
//
// By tables: as far as costs of units are right. Tiers 2 and 3 are below all deals of these, and
// the points that lack memory by tables are left out. Prices are of points that were not built.
//
// Models with fewer units than stages have no tables, and get an estimate (estimate.h) instead.
//
// Bounds and prices also exclude other plans, the candidates of candidates.def (exclusion.h).

#ifndef AUTO_H
#define AUTO_H

#include "bounds.h"
#include "choose.h"

typedef struct AutoSearch AutoSearch;

// Prepares the search. NULL: bounds do not hold, as devices differ, or have no known speed; or the
// model has no step.
AutoSearch *auto_new(const Module *model, const ChooseOptions *o, Arena *a);

// Compiles the step of one rank up to its fused kernels. NULL: it cannot be made.
StepWork *auto_find_work(const Module *model, const ChooseOptions *o, Arena *a);

// The seconds that no plan of the space can be below; 0: no plan can have the memory.
double auto_bound(const AutoSearch *s);

// The work of a step, from which its bounds follow.
const StepWork *auto_work(const AutoSearch *s);

// The bytes that a rank takes at least under any plan and with all savers, if they exceed its
// memory: then no plan can fit. Else 0.
double auto_lacks(const AutoSearch *s);

// The part of all weights in f32 that stays on the device if states are offloaded, beside copies in
// 16 bits: 1 without those.
double auto_weights_left(const AutoSearch *s);

Bound auto_bound_of(const AutoSearch *s, const Point *p);
// The numbers of a plan, and its bound. If its axes are in another order than those of a point, the
// ranks of a sum have other links: then the seconds are those of products. False: it has programs
// that a point cannot express.
bool auto_bound_plan(const AutoSearch *s, const char *plan, int64_t ranks, int64_t micro_batches,
                     Point *p, Bound *b);

// Whether the search runs before the candidates: the model is large, or some plan with stages is
// estimated to be faster than all without.
bool auto_goes_first(AutoSearch *s);

// Builds the plans with the lowest estimates, and adds them to `all`.
void auto_build(AutoSearch *s, Candidates *all);

// If no plan with stages fits with sums of gradients, and states of some layers, on the device,
// builds a few with these in host memory, beside the other savers: deals into the memory and that
// of the sums, if they are priced faster than the best plan.
void auto_build_without_sums(AutoSearch *s, Candidates *all);

// Notes the price of a candidate without stages, for the estimates of others.
void auto_note(AutoSearch *s, const Candidate *c);

// The module of the best plan that auto_build built, which is the caller's then: with
// ChooseOptions.run, of a large model.
struct Kept auto_kept(AutoSearch *s);

void auto_end(AutoSearch *s);

// The result so far, for the best plan of all.
Certificate auto_certificate(const AutoSearch *s, const Candidates *all);

#endif
