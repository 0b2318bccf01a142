// Convolutions of any shape and their gradients by kernels of our own: products of packed panels
// (conv_own.c), and sums per channel if each channel is a group (conv_depthwise.c).

#ifndef NNRT_CONV_OWN_H
#define NNRT_CONV_OWN_H

#include "conv.h"
#include "kernel.h"

enum { CONV_SPATIAL = MAX_DIMS - 2 };

typedef struct ConvOwn {
  NnrtPrep base;
  Direction direction;
  int64_t batch, group, c, o; // channels of one group
  int64_t taps, x_positions, y_positions;
  bool channels_last;
  bool small; // run by one thread
  bool plain; // one tap, and the positions of x are those of y
  // Positions of y, and taps, in three dimensions, of which the first may be 1; for the gradient of
  // x, positions of x.
  int64_t size[CONV_SPATIAL], filter[CONV_SPATIAL];
  // (size, filter): what a position of the other map has of this dimension; -1: it is outside.
  const int64_t *source[CONV_SPATIAL];
  // The gradient of x with strides: positions by the taps that reach them.  NULL: as in memory.
  const int64_t *order;
} ConvOwn;

// Prepares one; NULL, with an error: out of memory.
NnrtPrep *conv_own_prep(const char *name, const Conv *c, Direction direction);
// Whether `p` comes from conv_own_prep.
bool conv_own_is(const NnrtPrep *p);
// Computes `result` from the two other tensors, in the order x, w, y.
int conv_own_run(NnrtPrep *p, float *result, const float *first, const float *second);

// Sets out[t] to the position of the other map that tap t of this position reads, or -1.
void conv_own_sources(const ConvOwn *s, int64_t position, int64_t *out);
// Each channel is a group.  Operands are in the order x, w, y.
int conv_depthwise_run(const ConvOwn *s, float *result, const float *first, const float *second);

#endif
