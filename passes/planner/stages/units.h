// Units: groups of ops of the model that stay together on a stage.
//
//     norm qkv attention add | norm up gelu down add | norm qkv … | head loss
//
// A unit begins at an op that reads a trained weight or sums products. Ops computed from its
// results follow it, up to the next such op, or one that is dealt to another stage. In a large
// model a unit is a layer: an occurrence of a repeated subgraph (repeats.h), or a part of one that
// is too large for one rank.
//
// Parts of one product of the model, such as those of queries, keys and values, are in one unit.
//
// Ops that a program has assigned or split along the axis, or left out of its list, are held: they
// are in no unit, and neither are ops that read from held ops only. Masks and positions, which
// depend on no weight, have no unit: they run on the ranks of their readers (assign.h).
//
// A broadcast is in the first unit that reads it, as its operand has fewer bytes to send.
//
// Of chained units, which several stages on each rank need, each depends on the one before it, so
// that each run of units waits for the one before: units that do not, such as the first layer of a
// decoder beside its encoder, or experts beside one another, are one with the unit before them.
//
// In a model that goes through the same layers several times, as AlphaFold recycles, a layer of all
// these forwards is one unit: an op that reads a weight joins the earlier reader with the same
// operand of an op of the same kind; an op that reads none joins the op at its position after such
// an op. Ops before the first of these layers, and after the last, are in one unit with it. So are
// ops on the recycled value, such as a norm, which all forwards but the first begin with.

#ifndef STAGES_UNITS_H
#define STAGES_UNITS_H

#include "repeats/repeats.h"
#include "sharding/sharding.h"

enum { UNIT_none = -1, UNIT_held = -2 }; // instead of a unit's number

typedef struct Units {
  int n;
  const int *of_op;   // by op id, of the model and its gradients: a unit, or one of the above
  Op **first, **last; // of the model, by unit
} Units;

// In a model in pieces that all go through the stages, an op of a later piece is in the unit of the
// same op of the first piece. Ops without a counterpart in the first piece, such as the
// concatenation of several pieces' keys, have no unit: they run on the ranks of their operands.

typedef struct UnitOptions {
  int least;  // the least number of units, if the model has as many
  bool again; // a layer of all forwards is one unit
  bool pieces;
  bool chained; // each unit depends on the one before it, if that leaves `least`; not with `dealt`
  bool fine;    // as many units as chain.h can have: products, not layers
  const bool *among; // by op id: others are held; NULL: all are in units
  const int *dealt;  // by op id: a number, or 0; units of different numbers are not merged. Or NULL
} UnitOptions;

Units units_find(const Sharding *s, int axis, const UnitOptions *wish, Arena *a);

#endif
