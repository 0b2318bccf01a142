// Pieces of the model's values: the results of ops on slices.  See piece.c.

#ifndef PIECE_H
#define PIECE_H

#include "index_set.h"
#include "ir/dims.h"
#include "ir/graph.h"

enum { MAX_SUMS = 3, MAX_SUM_TERMS = 32 };

// A box of the value `number` of the model's program, or a share of the box.  A share is the sum
// over the indices `at` of the `sum` letters of the op that produces the value.  The elements keep
// their order; their shape may be another.
typedef struct Piece {
  int number;
  int ndim;
  IndexSet dim[MAX_NDIM];
  int n_sums; // 0: not a share
  struct {
    char letter;
    IndexSet at;
  } sum[MAX_SUMS];
  struct Piece *plus;  // the other terms, if it is a sum of several
  struct Piece *other; // an alternative: the same elements as a piece of another value
} Piece;

// Returns the whole of value `number`, of type `whole`.
Piece piece_all(int number, const Type *whole);
bool piece_is_all(const Piece *p, const Type *whole);
// Whether it is a share, or a sum of several terms.
bool piece_is_part_of_sum(const Piece *p);
bool piece_fits(const Piece *p, const Type *t); // whether it has this shape, dimension by dimension
// "[0:4,0:8] of linear '%y'", "the share of k=0:4 in [0:8,0:6] of linear '%y'"
const char *piece_text(Arena *a, const Piece *p, const char *of);

// The piece that slice yields from a piece of shape `x`, or concat from pieces.  False if the
// result is no piece.
bool piece_slice(const Op *slice, const Piece *p, const Type *x, Piece *out);
bool piece_concat(const Op *concat, const Piece *in, Piece *out);

// The terms of x + y: those of both, but shares of one value become one, as far as they are a box
// of its indices, and the value itself when they are complete.  Returns their number; 0 if it is
// more than MAX_SUM_TERMS, or both have the same share.
int piece_terms(const Piece *x, const Piece *y, Piece *term, const char **why);
Piece piece_sum(const Piece *term, int n, Arena *a);

// Of a piece of a slice, the piece of the sliced value; and the reverse, if it is within the slice.
bool piece_of_sliced(const Op *slice, int number, Piece *p);
bool piece_of_slice(const Op *slice, int number, Piece *p);

// Of a piece of shape `x`, the piece of a broadcast along dimensions of length 1: `number` is left
// to the caller.  False if the shape is not that of the piece.
bool piece_of_broadcast(const Op *broadcast, const Piece *p, const Type *x, Piece *out);

// Computes the results of an op like `is`, of the model's program, on pieces of its operands:
// `out`, one per result, with numbers from `first`.  `op` gives the lengths of letters that no
// operand has. On failure `why` is the reason, in `a`.
bool piece_op(const Op *is, int first, const Op *op, const Piece *in, Piece *out, const char **why,
              Arena *a, Diag *d);

#endif
