// Pieces of the model's values: the results of ops on slices.  See piece.c.

#ifndef PIECE_H
#define PIECE_H

#include "ir/dims.h"
#include "ir/graph.h"

enum { ANYWHERE = -1 };

typedef struct Interval {
  int64_t from, length; // from == ANYWHERE: equal at every position
} Interval;

// A box of the value `number` of the model's program, or a share of the box.  A share is the sum
// over the interval `sums` of letter `letter` of the op that produces the value.
typedef struct Piece {
  int number;
  int ndim;
  Interval dim[MAX_NDIM];
  char letter; // 0: not a share
  Interval sums;
  struct Piece *other; // an alternative: the same elements as a piece of another value
} Piece;

// Returns the whole of value `number`, of type `whole`.
Piece piece_all(int number, const Type *whole);
bool piece_is_all(const Piece *p, const Type *whole);
bool piece_fits(const Piece *p, const Type *t); // whether the lengths are equal
// "[0:4,0:8] of linear '%y'"
const char *piece_text(Arena *a, const Piece *p, const char *of);

// The piece that slice yields from a piece, concat from pieces, or add from shares.  False if the
// result is no piece.
bool piece_slice(const Op *slice, const Piece *p, Piece *out);
bool piece_concat(const Op *concat, const Piece *in, Piece *out);
bool piece_add(const Piece *in, int64_t letter_size, Piece *out);

// Computes the results of an op like `is`, of the model's program, on pieces of its operands:
// `out`, one per result, with numbers from `first`.  `op` gives the lengths of letters that no
// operand has. On failure `why` is the reason.
bool piece_op(const Op *is, int first, const Op *op, const Piece *in, Piece *out, const char **why,
              Diag *d);

#endif
