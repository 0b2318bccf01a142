// Parameter groups, as --group and --no-decay have them: weights with settings of their own.
//
//     norm*,*.bias:weight_decay=0      weights by name; the settings of --optimizer, and
//     head.*:lr=0.1x                   lr: a learning rate, or a multiple of the default one
//
// The last group that matches a weight counts; --no-decay comes before all groups.  A name that
// holds one of  , : ;  is in double quotes.

#ifndef PARAM_GROUPS_H
#define PARAM_GROUPS_H

#include "base/vec.h"
#include "ir/graph.h"
#include "optimizer_spec.h"

// Kinds of weights, by the ops that read them.
typedef enum WeightKinds {
  WEIGHT_norms = 1,     // scales and shifts of normalizations, and other factors along one axis
  WEIGHT_biases = 2,    // added along one axis
  WEIGHT_embeddings = 4 // tables of rows that are looked up
} WeightKinds;

typedef struct ParamGroup {
  const char *text;           // as it was given
  Vec(const char *) patterns; // globs of names
  WeightKinds kinds;          // or these
  OptimizerSpec spec;
  double lr_factor; // of the learning rate of weights in no group
  int n;            // its weights so far
} ParamGroup;

typedef Vec(ParamGroup) ParamGroups;

// Parses groups.  The first is `optimizer` itself, for all weights.  `groups`: as --group, with `;`
// between several; `no_decay`: as --no-decay; either may be NULL.  `lr`: the base of a group's
// learning rate, or 0: that of `optimizer`.
bool param_groups_parse(ParamGroups *out, const char *optimizer, double lr, const char *groups,
                        const char *no_decay, Arena *a, Diag *d);
// The group of a weight of the model.  Counts the weight in each matching group.
const ParamGroup *param_group_of(ParamGroups *groups, const Value *w);
// Warns of groups without a weight.
void param_groups_check(const ParamGroups *groups, Diag *d);

#endif
