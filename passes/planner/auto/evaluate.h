// What a candidate is worth: it is compiled up to its places in memory, and measured.
//
//     zero1 in 1 micro-batch     9.4 ms   2.1 GB of 2.0 GB: does not fit
//     zero1 in 2 micro-batches   9.9 ms   1.6 GB
//
// With more micro-batches where it does not fit; and searches are asked again on more or less
// memory (memory_budget.h).

#ifndef EVALUATE_H
#define EVALUATE_H

#include "choose.h"

#define NO_GAIN 1.01 // times the cheapest: what ranks are not left without work for

// Candidate.why of those that share nothing.
extern const char all_same[];

// The best of some rounds, in as many micro-batches as it says.  With `kept`, what was made is
// there if it fits.
void candidate_make(const Module *model, const ChooseOptions *o, Arena *a, Candidate *c,
                    Module **kept);
// Appends it, and, where it does not fit, the same in more micro-batches.
void candidate_try(const Module *model, const ChooseOptions *o, Arena *a, Candidates *all,
                   Candidate c, Module **kept);

bool any_fits(const Candidates *all);
// Seconds of the cheapest that fits; 0: none does.
double least_fitting(const Candidates *all);
// Whether a search would rather have all ranks do the same.
bool any_alike(const Candidates *all);

#endif
