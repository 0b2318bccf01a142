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
} PieceSizes;

// Cuts these ops in pieces, and what follows from them.  `*done` is false, and nothing changed,
// where that cannot be cut so: where it leads to an op that needs a whole, to an output, or to
// random numbers.  False, having reported why, when it failed.
bool cut_in_pieces(const PieceStart *start, int n, const PieceSizes *pieces, bool *done, Diag *d);

#endif
