// What is put on stages: the ops of the model, in units that stay together.
//
//     norm qkv attention add | norm up gelu down add | norm qkv … | head loss
//
// A unit begins at an op that reads a trained weight or sums products; what is computed of its
// results alone follows it, so a unit is such an op and what comes behind it until the next.  Where
// there are many, a unit is a layer: an occurrence of what repeats (repeats.h), or a part of one
// where it is too much for one rank.
//
// Ops that a program has assigned or split along the axis are held: they are in no unit, and
// neither is what only they give something to.  Masks and positions, that no weight reaches, are
// nobody's: they run wherever they are read (assign.h).
//
// Of a model that goes through the same layers several times, as AlphaFold recycles, a layer of all
// these forwards is one unit: what reads a weight stays with what has read it in the same way, by
// the same operand of an op of the same kind; and what reads none, with what has its place behind
// such an op.  What comes before the first of them, and behind the last, is one unit with it.

#ifndef STAGES_UNITS_H
#define STAGES_UNITS_H

#include "repeats/repeats.h"
#include "sharding/sharding.h"

enum { UNIT_none = -1, UNIT_held = -2 }; // in place of a unit's number

typedef struct Units {
  int n;
  const int *of_op;   // by op id, of the model and its gradients: a unit, or one of the above
  Op **first, **last; // of the model, by unit
} Units;

// Of a model in pieces, of which each goes through the stages, an op of another than the first is
// in the unit of the same op of the first.  What the first has none of, such as the keys of several
// pieces put together, is nobody's: it runs where these are.

typedef struct UnitOptions {
  int least;  // units, where the model has as many
  bool again; // a layer of all forwards is one
  bool pieces;
} UnitOptions;

Units units_find(const Sharding *s, int axis, const UnitOptions *wish, Arena *a);

#endif
