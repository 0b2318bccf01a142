// The space of `--plan auto`: all points that can be, in a fixed order.
//
//     8 ranks, 16 rows     1 stage                  dp=8  zero1=8 …  dp=4,sp=2 …
//                          2 stages of 4 ranks      pp=2,dp=4 in 2, 4 micro-batches   pp_zb_h1=2,dp=4 …
//                          4 stages of 2 ranks      …
//
//                          experts                  dp=4,ep=2 …  pp=2,dp=2,ep=2 in 2, 4 micro-batches …
//                          long sequences           dp=4,cp=2 …  dp=2,cp=2,sp=2 …
//                          large tables of words    dp=4,vp=2 …  pp_interlaced=2,dp=4 …
//                          chunks                   pp_interleaved=2,dp=4 …  pp_interleaved:4=2,dp=4 …
//
// Fewer micro-batches than stages leave ranks idle most of the time. They are points of small
// models alone: their ops may take as long for one row as for two.
//
// Points that do not fit get variants with recomputation, and with states and saved activations in
// host memory, while the search runs (auto.c). Those with sp of which all layers are recomputed, or
// that the passes refuse, get variants with tp.
//
// Numbers of ranks are divisors of all ranks, and micro-batches divide the rows of a replica. Ranks
// inside of a layer are in one node, as links between nodes are slower; experts may be far apart,
// as each row goes to few of them. The user's own numbers are fixed here as well.

#ifndef SPACE_H
#define SPACE_H

#include "base/vec.h"
#include "model_features.h"
#include "point.h"

typedef struct SpaceOptions {
  int64_t ranks;
  int64_t rows;          // of a batch; 0: unknown, and not divided then
  int64_t micro_batches; // 0: open
  int per_node;          // devices of a node
  int units;             // the most stages, of all chunks: products and lookups of the model
  ModelFeatures has;     // without a subject there are no points for it
  int capacity;          // of points with expert ranks
  bool few_slices;       // also fewer micro-batches than stages
} SpaceOptions;

typedef Vec(Point) Points;

void space_list(const SpaceOptions *o, Arena *a, Points *out);

#endif
