// Ops in pieces, one after the other on the same device: co-shard (nnScaler, table 5).
//
//     %h = linear %x, %a                     %a0 = slice %a …             %a1 = slice %a …
//     %g = gelu %h                  =>       %h0 = linear %x, %a0         %h1 = linear %x, %a1
//     %y = linear %g, %b                     %g0 = gelu %h0               %g1 = gelu %h1
//                                            %y0 = linear %g0, %b0        %y1 = linear %g1, %b1
//                                            %y = add %y0, %y1
//
// The first product is split along its columns, and so is what follows from them until it is summed
// over. So less of it is there at a time, and its gradients are pieces, too.  Pieces need not be
// equal: 7 columns are 3 and 4.  And they need not be on one device, when op_assign says otherwise.
//
// Rows that are dealt go to the pieces in turn, so that each has as many of every micro-batch:
//
//     %0 = reshape %x shape=[4,2,6]       rows 0, 2, 4 and 6 of 8 are piece 0
//     %1 = slice %0 starts=[0,0,0] shape=[4,1,6]
//     %x0 = reshape %1 shape=[4,6]
//
// A token of a causal attention reads only keys and values of tokens up to itself.  So it can be
// cut along its queries: a piece reads those of the pieces before it, and `causal`, which counts
// from the last key, hides the same of them.
//
//     %y = attention %q, %k, %v causal=true  =>  %y0 = attention %q0, %k0, %v0 causal=true
//                                                %k01 = concat %k0, %k1     %v01 = concat %v0, %v1
//                                                %y1 = attention %q1, %k01, %v01 causal=true
//
// What depends on where an element lies, as a dropout does, says of which whole it is a piece.
// Where a model makes one dimension of rows and tokens, the tokens of each row are cut.

#ifndef PIECES_H
#define PIECES_H

#include "ir/graph.h"

typedef struct PieceStart {
  Op *op;
  char letter; // of its einsum
} PieceStart;

// How long pieces are: so many of them, in parts of the whole, which is `sum` of such parts.
typedef struct PieceSizes {
  int n;
  const int *at; // [n], positive
  int sum;
  bool dealt; // in turn; all are equal
} PieceSizes;

// Cuts these ops in pieces, and what follows from them.  `*done` is false, and nothing changed,
// where that cannot be cut so: where it leads to an op that needs a whole, to an output, or to
// random numbers; `*wall` is that op, or NULL.  False, having reported why, when it failed.
bool cut_in_pieces(const PieceStart *start, int n, const PieceSizes *pieces, bool *done, Op **wall,
                   Diag *d);

#endif
