// Pieces of the model's values: what an op makes that was given slices.  See piece.c.

#ifndef PIECE_H
#define PIECE_H

#include "ir/dims.h"
#include "ir/graph.h"

enum { ANYWHERE = -1 };

typedef struct Interval {
  int64_t from, length; // from ANYWHERE: what lies there is the same wherever it is
} Interval;

// A box of the value `number` of the model's program; or a share of it, to which others must be
// added: what the part `sums` of letter `letter` of the op that makes the value gives.
typedef struct Piece {
  int number;
  int rank;
  Interval dim[MAX_RANK];
  char letter; // 0: it is no share
  Interval sums;
  struct Piece *other; // what the same elements are a piece of, too
} Piece;

// All of the value `number`, of type `whole`.
Piece piece_all(int number, const Type *whole);
bool piece_is_all(const Piece *p, const Type *whole);
bool piece_fits(const Piece *p, const Type *t); // has it these lengths?
// "[0:4,0:8] of linear '%y'"
const char *piece_text(Arena *a, const Piece *p, const char *of);

// What `slice` takes of `p`, concat makes of pieces, and add of shares.  False when that is none.
bool piece_slice(const Op *slice, const Piece *p, Piece *out);
bool piece_concat(const Op *concat, const Piece *in, Piece *out);
bool piece_add(const Piece *in, int64_t letter_size, Piece *out);

// What an op like `is`, of the model's program, makes of pieces of its operands: `out`, one for
// each result, the first of number `first`.  `op` is asked for the lengths that `is` has no letters
// of in its operands.  Says in `why` what is in the way.
bool piece_op(const Op *is, int first, const Op *op, const Piece *in, Piece *out, const char **why,
              Diag *d);

#endif
