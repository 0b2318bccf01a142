// Parameter groups, as --group and --no-decay have them: weights with settings of their own.
//
//     norm*,*.bias:weight_decay=0      weights by name; the settings of --optimizer, and
//     head.*:lr=0.1x                   lr: a learning rate, or x times the one of the others
//
// Of the groups that match a weight the last counts; --no-decay stands before them all.  A name
// that holds one of  , : ;  stands in double quotes.

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
  int n;            // weights that it has
} ParamGroup;

typedef Vec(ParamGroup) ParamGroups;

// The first is `optimizer` itself, of all weights.  `groups`: as --group, with `;` between several;
// `no_decay`: as --no-decay; either may be NULL.  `lr`: what a group's own learning rate is a part
// of, or 0: that of `optimizer`.
bool param_groups_parse(ParamGroups *out, const char *optimizer, double lr, const char *groups,
                        const char *no_decay, Arena *a, Diag *d);
// The group of a weight of the model, in which it is counted.
const ParamGroup *param_group_of(ParamGroups *groups, const Value *w);
// Groups without a weight are warned of.
void param_groups_check(const ParamGroups *groups, Diag *d);

#endif
