// Evaluates a candidate: compiles it up to its offsets in memory, and measures it.
//
//     zero1 in 1 micro-batch     9.4 ms   2.1 GB of 2.0 GB: does not fit
//     zero1 in 2 micro-batches   9.9 ms   1.6 GB
//
// A candidate that does not fit is tried with more micro-batches, and a search again with more or
// less memory (memory_budget.h).

#ifndef EVALUATE_H
#define EVALUATE_H

#include "base/stop.h"
#include "choose.h"

#define NO_GAIN 1.01 // times the cheapest: a gain too small to leave ranks without work

// The module of a candidate that may be the result.
typedef struct Kept {
  Module *m;     // or NULL
  Module *model; // that its proof needs, or NULL
  bool verified; // the module was, after the last pass
  char *messages;
  void *findings; // ChooseOptions.keep
  int candidate;  // its index
  double seconds;
} Kept;

void kept_free(Kept *k);
// Proves the module and returns it, after its messages were printed. NULL: the proof fails, and
// another compilation says so.
Module *kept_take(const ChooseOptions *o, Kept *k);

// Candidate.why if all ranks do the same.
extern const char all_same[];

// Evaluates a candidate in its number of micro-batches, in several rounds, and keeps the best. With
// `kept`, its module is there if it fits, instead of an earlier one.
void candidate_make(const Module *model, const ChooseOptions *o, Arena *a, Candidate *c,
                    Kept *kept);
// Appends the candidate, and, if it does not fit, the same in more micro-batches: of a search none,
// if a plan of another kind fits and the search proves that it lacks memory in the most of them.
void candidate_try(const Module *model, const ChooseOptions *o, Arena *a, Candidates *all,
                   Candidate c, Kept *kept);

// Returns the first error of the messages, as a reason: "mlp.onnx:x: the batch of …", without the
// lines after it.
const char *first_error(Arena *a, const char *text);

bool any_fits(const Candidates *all);
// Returns the seconds of the cheapest that fits; 0: none does.
double least_fitting(const Candidates *all);
// Whether the ranks with rows of their own have whole ones in so many micro-batches: passes refuse
// others.
bool has_whole_rows(const ChooseOptions *o, const Candidate *c, int64_t n);
// Whether the best so far is to be taken, as there is one.
bool choice_ends(const ChooseOptions *o, const Candidates *all);
// Whether it would be, but there is no plan that fits yet.
bool choice_is_late(const ChooseOptions *o, const Candidates *all);
// The same as choice_ends for passes, during a compilation.
Stop choice_stop(const ChooseOptions *o);
// Whether a search prefers that all ranks do the same.
bool any_alike(const Candidates *all);

#endif
