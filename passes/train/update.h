// The state of pass `optimizer` while it builds the update, shared by its files.

#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include "base/table.h"
#include "base/vec.h"
#include "ir/build.h"
#include "optimizer_spec.h"
#include "param_groups.h"

typedef struct Gradient {
  Value *weight, *gradient;
  const ParamGroup *group;
  Value *frozen; // true in frozen rows, with the shape of the weight; or NULL
} Gradient;

typedef struct Update {
  Graph *g;
  Builder b;
  Origin origin; // of ops that belong to no single weight
  Arena *scratch;
  ParamGroups groups;
  Value **lr;    // by group, or NULL: not made yet
  Table *params; // by role and label: parameters from before the pass, and all scalars
  Vec(Gradient) gradients;
  Value *factor; // common to all gradients and removed from them, or NULL
  Value *gscale;
  Value *loss_scale; // the state, or NULL
  Value *updates;    // earlier updates: the scalar `step`, or a state if steps may be skipped
} Update;

// The origin of an update op.  `weight`: the location of the only weight that it concerns, or NULL.
Origin update_origin(const Update *p, const Loc *weight);
// Adds an output; an error if the graph has one of this label.  False if `v` is NULL.
bool update_add_output(Update *p, Value *v, const char *label);

// frozen_rows.c
// Freezes rows.  `rows`: as for --freeze, "emb.weight[1],*.table[0]".  Their gradients become zero,
// in the norm of all gradients as well.
bool update_freeze_rows(Update *p, const char *rows);

// loss_scale.c
// Skips the update if a gradient is not finite, and chooses the next scale.  `norm`: of all
// gradients.  `growth`: the good steps in a row after which the scale doubles.
bool update_scale_loss(Update *p, Value *norm, int64_t growth);

#endif
