// A specification of a loss, as --loss has it: a sum of losses of outputs (losses.def), each with a
// factor.
//
//     cross_entropy(logits,ignore_index=-100) + 0.4*cross_entropy(aux) + 0.01*"a, b"
//
// A name that holds one of  , ( ) + * =  or a space stands in double quotes, in which \" is a quote
// and \\ a backslash.

#ifndef LOSS_SPEC_H
#define LOSS_SPEC_H

#include "base/vec.h"
#include "ir/graph.h"

typedef enum LossKind {
#define LOSS(name, names, options, usage) LOSS_##name,
#include "train/losses.def"
#undef LOSS
  N_LOSSES,
  LOSS_output = N_LOSSES // an output of the model that is a loss
} LossKind;

typedef struct LossSpec {
  const char *text; // the whole specification
  LossKind kind;
  double factor;
  const char *output, *input; // input: of tokens
  const char *labels;         // the input of labels or targets
  const char *weight;         // a file, or NULL
  int64_t axis, ignore_index;
  bool has_axis, has_ignore;
  double delta, label_smoothing;
} LossSpec;

typedef Vec(LossSpec) LossSpecs;

// Parses `text`, which may also be the name of an output of `g` as a whole.  Reports all mistakes
// as one error, with the alternatives.
bool loss_spec_parse(LossSpecs *out, const char *text, Graph *g, Arena *a, Diag *d);

// The names and options of all losses, each as it is written, with `between` in between.
const char *loss_usage(Arena *a, const char *between);

#endif
