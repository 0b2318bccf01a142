// Seconds and bytes of a model's units on each rank of a stage: the input of the deal of units to
// stages (deal.h).
//
//     unit     0 embed   1 attention  2 mlp  3 attention  4 mlp  …  n-1 head
//     block      -1          0          1        0          1         -1
//
// A unit is a layer, or a part of a layer that a stage may end after. All stages have the same
// inner plan, so a unit costs the same on each of them.

#ifndef UNIT_COST_H
#define UNIT_COST_H

#include <stdbool.h>

typedef enum RecomputeLevel {
  RECOMPUTE_none,
  RECOMPUTE_attention, // products of queries and keys, and the ops after them
  RECOMPUTE_layer,     // everything but the unit's input
  N_RECOMPUTE_LEVELS,
} RecomputeLevel;

typedef struct UnitCost {
  const char *name; // for dumps: the path of its ops
  int block;        // units of one block have equal costs; -1: it occurs once
  int layer;        // of the model, from 1, which may be several units; 0: it is in none
  // Seconds of a micro-batch, with the collectives within the stage; `backward` is of inputs only.
  double forward, backward, weight_grad;
  double again[N_RECOMPUTE_LEVELS]; // additional seconds in backward, if it is recomputed so far
  // Bytes saved from forward to backward, per micro-batch: its input included, its output not.
  double kept[N_RECOMPUTE_LEVELS];
  // Further ones if a stage begins with it: its input, within a layer that is recomputed as a
  // whole; and values of earlier units that later ones read, too, of which each stage has a copy.
  double entry;
  // Likewise: seconds of a micro-batch, as those values or their shards are made on each stage, and
  // the terms of their gradients reduced.
  double entry_forward, entry_backward, entry_weight_grad;
  // Bytes per micro-batch from backward to the gradients of weights, if these run later: what they
  // read, which is a part of what is kept, and gradients.
  double waiting;
  double both;       // the part of these that is kept
  double working[2]; // the largest other bytes during forward, and during backward
  // The same in backward if it is recomputed so far, with others of its layer; 0: not known.
  double again_working[N_RECOMPUTE_LEVELS];
  // In backward, and in the gradients of weights, if these run later: besides bytes that wait for
  // them.
  double split_working[N_RECOMPUTE_LEVELS];
  double handed;  // bytes per rank from it to the next unit, and of their gradient
  bool may_end;   // a stage may end after it
  double lasting; // bytes of the whole step: weights, masters, states, gradients
  // Further ones if its stage begins after unit `tied_unit`, which reads the same weights; not of
  // the last unit (UnitCosts.tied_lasting).
  double tied_lasting;
  int tied_unit;
  double updating; // further bytes after the last micro-batch, at most
  double sums;     // seconds after the last micro-batch: sums over replicas, gathers
  double update;   // seconds of the optimizer
  // If the states of its weights are in host memory, and f32 weights of which the step has copies:
  double away;  // the part of `lasting` that is there
  double moves; // further seconds of updates
  double piece; // bytes of the largest update on the device
  // If its saved activations are in host memory from forward to backward:
  double swapped;   // the part of `kept` that is there, if it is not recomputed
  double copies[2]; // seconds of a micro-batch of copies there, and back, which run beside compute
  double waits;     // seconds of a micro-batch that other ops wait for the link to host memory
  double swapped_working; // as the larger of `working`, with its layer's and the one's before it
} UnitCost;

typedef struct UnitCosts {
  int n;
  const UnitCost *at;
  double hop_start, hop_seconds_per_byte; // of a transfer between neighbouring stages
  double tied_sums; // seconds of sums of the first and the last stage (tied embedding), or 0
  // `waiting`, `both` and `split_working` are known: else gradients of weights that run later read
  // the kept bytes.
  bool knows_waiting;
  // All updates wait for all sums, as for the norm of all gradients.
  bool joint_update;
  double tied_lasting; // bytes of the tied embedding on the device of the last stage, too
} UnitCosts;

#endif
