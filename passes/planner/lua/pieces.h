// Splits ops into pieces that run in sequence on one device: co-shard (nnScaler, table 5).
//
//     %h = linear %x, %a                     %a0 = slice %a …             %a1 = slice %a …
//     %g = gelu %h                  =>       %h0 = linear %x, %a0         %h1 = linear %x, %a1
//     %y = linear %g, %b                     %g0 = gelu %h0               %g1 = gelu %h1
//                                            %y0 = linear %g0, %b0        %y1 = linear %g1, %b1
//                                            %y = add %y0, %y1
//
// The first product is split along its columns, and so are its transitive readers up to a sum over
// this dimension.  So fewer intermediate values are resident at a time, and gradients are pieces,
// too. Pieces may differ in size: 7 columns are 3 and 4.  op_assign may place them on different
// devices.
//
// Interleaved rows: pieces take rows in turn, so that each has equally many of every micro-batch:
//
//     %0 = reshape %x shape=[4,2,6]       rows 0, 2, 4 and 6 of 8 are piece 0
//     %1 = slice %0 starts=[0,0,0] shape=[4,1,6]
//     %x0 = reshape %1 shape=[4,6]
//
// A token of a causal attention reads the keys and values of tokens up to itself only.  So it can
// be split along its queries: a piece reads the keys of earlier pieces too, and `causal`, which
// counts from the last key, masks the same elements.
//
//     %y = attention %q, %k, %v causal=true  =>  %y0 = attention %q0, %k0, %v0 causal=true
//                                                %k01 = concat %k0, %k1     %v01 = concat %v0, %v1
//                                                %y1 = attention %q1, %k01, %v01 causal=true
//
// An op that depends on the global index of an element, such as dropout, gets attributes `whole`
// and `start`.  If a model merges rows and tokens into one dimension, the tokens of each row are
// split.

#ifndef PIECES_H
#define PIECES_H

#include "ir/graph.h"

typedef struct PieceStart {
  Op *op;
  char letter; // of its einsum
} PieceStart;

// Relative sizes of `n` pieces; `sum` is their total.
typedef struct PieceSizes {
  int n;
  const int *at; // [n], positive
  int sum;
  bool dealt; // rows are interleaved; all sizes are equal
} PieceSizes;

// An op that is gone, and the ops that replaced it, in order: its pieces, the slices of their
// operands, and the sums of their results.
typedef struct CutOp {
  const Op *op;
  Op **now;
  int n;
} CutOp;

typedef struct PiecesMade {
  bool done; // false: the graph is unchanged
  Op *wall;  // not done: the op that prevents it, or NULL
  // Not 0: all ops could be split, but this length of letter `letter` of the wall is no multiple of
  // the sum of sizes.
  int64_t length;
  char letter;
  CutOp *cut; // [n]
  int n;
} PiecesMade;

// Splits these ops and their transitive readers into pieces.  It is impossible if it reaches an op
// that needs a whole dimension, an output, or random numbers.  False after an error.  `out` has
// memory in `a`.
bool cut_in_pieces(const PieceStart *start, int n, const PieceSizes *pieces, Arena *a,
                   PiecesMade *out, Diag *d);

#endif
