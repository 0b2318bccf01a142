// The units of a model, in the order in which they run, and which of them cost the same.
//
//     rest   %mask, %x = gather        unit 0    once
//     run    h.0 h.1 h.2 … h.95        units 1 2 | 3 4 | 5 6 …    attention, mlp of each layer
//     rest   norm, linear, loss        the last unit
//
// A run is the occurrences of one block of repeats.h, outermost ones only; ops in none are rest,
// cut at the begin and the end of each run.  An occurrence is divided into its parts
// (repeats/parts.h).  A stage may end after each unit.
//
// A model that goes through its layers several times has them in one run, if it trains them once,
// and earlier times in another one, each of which is one occurrence and one unit:
//
//     run    once more without gradients: [h.0 … h.47], [h.0 … h.47]     two units
//     run    h.0 h.1 … h.47                                              `times` is the run above
//
// Every op of the model has its number (Origin.of), which the ops made from it keep through the
// passes, so the seconds and bytes of a built step belong to units.

#ifndef BLOCKS_H
#define BLOCKS_H

#include "repeats/parts.h"

typedef struct Unit {
  const char *name; // the common path of its ops; or "unit 3"
  int run;          // -1: rest
  int index, part;  // of a run: the occurrence, and the part of it
  double across;    // elements of activations, of all rows, from it and earlier units to later ones
} Unit;

// Occurrences of one block, in their order.
typedef struct BlockRun {
  int n;
  const Occurrence **at; // [n]
  int n_parts, first;    // units of each occurrence; the common number of those of part 0
  int times;             // each occurrence of that run goes through these layers, too; -1: none
  const Block *layer;    // there
} BlockRun;

typedef struct ModelUnits {
  Module *front; // numbered
  int n_units;
  Unit *unit;
  int n_numbers, *unit_of; // by the number of an op of the model; -1: none
  int n_runs;
  BlockRun *run;
  int n_order;
  Op **order;            // all ops, unit by unit
  NumberedLayers layers; // outermost occurrences, also those in no run
} ModelUnits;

// `front`: before the first pass that depends on a plan; it gets numbers.  All is in the arena.
const ModelUnits *blocks_find(Module *front, Arena *a);
// Units with equal costs have equal numbers; -1: no other unit is like this one.
int unit_block(const ModelUnits *b, int unit);
// The same layer as occurrence `i` of a run, in an occurrence of the run `times`.
const Occurrence *same_layer(const BlockRun *run, const Occurrence *time, int i);

#endif
