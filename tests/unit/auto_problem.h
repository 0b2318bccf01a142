// Problems for the search of `--plan auto`: small models, devices, and the options of a choice.

#ifndef AUTO_PROBLEM_H
#define AUTO_PROBLEM_H

#include "unit.h"

#include "planner/auto/choose.h"

enum { RANKS = 4, ROWS = 16, SLICES = 2 };

// A chain of products and GELUs: x (rows, width), `layers` of them, and the sum of squares.
const char *chain_model(Arena *a, const int *width, int layers);

// Layers of a norm, two products and a residual sum, on sequences: x (rows, tokens, width).
const char *sequence_model(Arena *a, int tokens, int width, int layers);

// A chain of mixtures: each row goes to one of `experts` products.
const char *mixture_model(Arena *a, int width, int experts, int layers);

// Layers between a table of words, by which rows are looked up, and the product of their logits.
const char *word_model(Arena *a, int words, int width, int layers);

// A problem: a model, the devices of its plans, and their options.
typedef struct Problem {
  Arena *a;
  const char *text; // of the model
  const char *cluster;
  Target target;
  const char *dtype;     // of mixed precision; NULL: f32
  const char *optimizer; // NULL: sgd
  int64_t micro_batches; // 0: open
  double memory;         // of a device; 0: no limit
  int asked, most_asked; // whether to stop: yes after so many times
  int shown;             // calls of progress without a candidate
} Problem;

// The pipeline of a candidate: ChooseOptions.pipeline of the problem, which is `context`.
const char *problem_pipeline(void *context, const Candidate *c);

// The options of a choice of the problem's plan, as nnaot has them.
ChooseOptions problem_options(Problem *p, Diag *d);

// Reads the model's text; fails the test if it is wrong.
Module *problem_module(const Problem *p);

// Frees the problem's arena, its module, and the messages.
void problem_free(const Problem *p, Module *m, Heard *h);

#endif
