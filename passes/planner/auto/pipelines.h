// Stages where something else fits, too: only those that may be faster.
//
//     gpt, 4 ranks, 4 micro-batches     dp 0.80 ms, the best so far        all of it on one rank: 1.44 ms
//         2 stages      not less than 1.44 / 4 * (1 + 1/12) = 0.39 ms      tried: pp=2,dp 0.67 ms
//         4 stages      not less than 1.44 / 4 * (1 + 3/12) = 0.45 ms      tried: pp 0.79 ms
//     then with what else may be in a stage, and in other orders: pp_zb_h2=2,dp 0.53 ms
//
// What one rank takes for as many micro-batches is divided by all ranks at best, and a part of the
// time a pipeline fills and drains: of m micro-batches on k stages (k - 1) / m, of which gradients
// of weights can fill two thirds (Qi et al. 2023).  In large models that are not held up by what
// they send, no plan is left that is worth a try.  Of the others, it is a few of each number of
// stages, the best of three numbers in other orders, which change what number is best, and more of
// that one only if it is near, a search inside of its stages among them.  Where nobody says how
// many micro-batches, it is also tried in four for each stage, or as many as leave rows for the
// ranks of a stage; and where devices differ, on stages of unequal numbers of ranks.

#ifndef PIPELINES_H
#define PIPELINES_H

#include "evaluate.h"

// Appends what was tried, in as many micro-batches as the best so far, or more.
void try_pipelines(const Module *model, const ChooseOptions *o, Arena *a, Candidates *all);

#endif
