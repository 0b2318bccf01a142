// Seconds and bytes of a built step, by unit of the model: see tables.h.

#ifndef UNIT_SAMPLE_H
#define UNIT_SAMPLE_H

#include "blocks.h"
#include "cluster/cluster.h"
#include "ir/op.h"
#include "schedule/schedule.h"

// Of one unit and one micro-batch.
typedef struct UnitSample {
  double seconds[WORK_W + 1]; // forward, backward of inputs, gradients of weights
  double kept;                // bytes from forward to backward, of values that its backward reads
  double waiting, both;       // bytes that gradients of weights read, and the kept ones of these
  double working[2];          // the largest other bytes during its forward, and its backward
  double split_working;       // and besides those that gradients of weights read
  double handed;              // bytes to later units
  // Further seconds and kept bytes of a stage that begins with it, and reads values of earlier
  // units that others read, too.
  double entry_seconds[WORK_W + 1], entry_kept;
  // Elements of weights that an earlier unit reads, too, on a rank, and the nearest such unit.
  double tied;
  int tied_unit;
  double weights;   // elements of the weights that it reads first
  double piece;     // bytes that the largest of their updates copies to the device; 0: none does
  double copies[2]; // seconds of copies of saved activations to host memory, and back
  // Bytes of the whole step: of these weights' gradients, of their states, and of all.
  double gradients, states, lasting;
} UnitSample;

typedef struct Sample {
  UnitSample *unit; // by unit; zero for those that are not in the module
  double updating;  // further bytes in sums and updates, at most
  double lasting;   // bytes of the whole step
  double gradients, states;
  double sums, update;   // seconds outside of the loop: transfers, ops
  double seconds, bytes; // of the step, and of the rank that needs the most
  double tied;           // elements of weights that the last unit reads, and an earlier one
  int tied_unit;         // the first unit that reads them
  double tied_whole;     // elements of these with the shards that a rank gathers
  bool joint_update;     // updates run after the norm of all gradients
} Sample;

// Reads a planned module without stages, whose ops have the numbers of the model.  The number of
// its time slices is lost.  Returns false if its step cannot be simulated.
bool sample_step(Module *m, const ModelUnits *b, const Cluster *c, Target target, Arena *a,
                 Sample *out);

#endif
