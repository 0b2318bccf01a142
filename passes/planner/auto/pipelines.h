// Stages although something else fits: only those that may be faster.
//
//     gpt, 4 ranks, 4 micro-batches     dp 0.80 ms, the best so far        all of it on one rank: 1.44 ms
//         2 stages      not less than 1.44 / 4 * (1 + 1/12) = 0.39 ms      tried: pp=2,dp 0.67 ms
//         4 stages      not less than 1.44 / 4 * (1 + 3/12) = 0.45 ms      tried: pp 0.79 ms
//     then with other plans inside of a stage, and in other orders: pp_zb_h2=2,dp 0.53 ms
//
// The lower bound is the time of one rank for as many micro-batches, divided by the number of
// ranks, plus a part of the time in which a pipeline fills and drains: for m micro-batches on k
// stages (k - 1) / m, of which gradients of weights can fill two thirds (Qi et al. 2023). In large
// models that are not limited by communication, no plan is left that is worth a try. Otherwise a
// few plans of each number of stages are tried, and the best of three numbers in other orders,
// which change the best number; more plans of that number are tried only if it is near, a search
// inside of its stages among them. If the number of micro-batches is open, four for each stage are
// tried as well, or as many as leave rows for the ranks of a stage; if devices differ, also stages
// of unequal numbers of ranks. If the best is of the space that the search of auto has gone
// through by its tables, only other orders of stages that it has built are tried.

#ifndef PIPELINES_H
#define PIPELINES_H

#include "auto.h"
#include "evaluate.h"

#define LEAST_GAIN 0.99 // times the best so far: longer bounds are not worth a try

// Appends the trials, in as many micro-batches as the best so far, or more. `search` excludes some,
// and has built others; or NULL.
void try_pipelines(const Module *model, const ChooseOptions *o, Arena *a, AutoSearch *search,
                   Candidates *all);

#endif
