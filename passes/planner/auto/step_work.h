// The work of a step on one rank, from which bounds.h derives that of each point.
//
//     forward          linear    8.2e15 flop   5.3 GB of activations   0.9 GB of weights    96 times
//                      fused     …
//     backward         of inputs
//     weight_grad      of weights, which nothing else waits for
//     update           after the last micro-batch; and ops that depend on no rows
//
// One rank's program is compiled up to the fusion of its kernels, so that they are those of a step;
// its memory does not matter. Equal kernels are counted.

#ifndef STEP_WORK_H
#define STEP_WORK_H

#include "base/vec.h"
#include "cluster/cluster.h"
#include "ir/op.h"

// The first three are the blocks F, B and W of schedules (schedule.h), which have no updates.
typedef enum WorkPhase {
  PHASE_OF_forward,
  PHASE_OF_backward,
  PHASE_OF_weight_grad,
  PHASE_OF_update,
  N_WORK_PHASES
} WorkPhase;

// A kernel, and how many there are of it.
typedef struct KernelWork {
  WorkPhase phase;
  double flops, rows_bytes; // of all rows
  double weight_bytes; // of weights, or sums of their gradients: each micro-batch has all of them
  int launches, count;
  bool narrow;
  bool words; // reads or writes a table of words, or values as wide as it has words
} KernelWork;

#define ATTENTION_BACK 2.5 // flops of its backward, by those of its forward (ir/analysis/work.c)

// Products with weights, or of attention, that have the same flops. No plan computes less.
typedef struct ProductWork {
  double flops; // of one, and all rows; of a forward of attention
  bool narrow, attended;
  int n[N_WORK_PHASES];
  double weight_bytes[N_WORK_PHASES]; // of one, at least; as in KernelWork
  // Forwards in series (series.h), and the most of one group that is not.
  int n_series, n_group;
} ProductWork;

typedef struct StepWork {
  Vec(KernelWork) kernels;
  Vec(ProductWork) sizes;
  Vec(int) chain; // the sizes of forwards, in order; none unless all are in series
  bool narrow;    // some products are in 16 bits
  int units;      // forward ops that read a matrix of weights
  int word_units; // of these: of words
  int products;   // of a forward
  double reduced; // bytes of the smaller ends of these products, of all rows
  double largest; // bytes of the largest result of a product, of all rows
  double saved;   // bytes from forward to backward, of all rows
  double weights, states, gradients; // bytes; gradients: of trained weights, in f32
  double trained;                    // bytes of trained weights
  double low_weights;                // bytes of trained weights, in 16 bits if some values are
  double expert_share; // of trained weights, at most, of routed experts; set by the search of auto
  int64_t batches;     // per update; the rows and flops above are those of one
} StepWork;

// Micro-batches of a step: those of all its batches.
static inline double step_slices(const StepWork *w, int64_t micro_batches) {
  return (double)(w->batches * micro_batches);
}

// Reads the graph of a step on one rank, from PHASE_local on, with its kernels fused.
StepWork *step_work_find(const Module *m, int64_t batches, Arena *a);

// Seconds of a phase of one micro-batch, on a device that has this share of the rows' work (of rows
// and of ranks inside of layers), and one of `parts` of each weight.
double step_work_seconds(const StepWork *w, const Device *d, WorkPhase phase, double share,
                         double parts);
// Of these: the seconds of kernels of words.
double step_words_seconds(const StepWork *w, const Device *d, WorkPhase phase, double share,
                          double parts);

#endif
