// The state shared by the files of the proof: prove.c visits the ops, prove_pieces.c handles
// slices, prove_why.c (prove.h) writes the error messages.

#ifndef PROVE_STATE_H
#define PROVE_STATE_H

#include "ir/op.h"
#include "piece.h"
#include "prove.h"

enum { UNKNOWN = -1 };

// The meaning of a value of the distributed program.
typedef struct Meaning {
  int number;                  // UNKNOWN for pieces and buckets, and after an error
  Piece *piece;                // the values that it is a part of, or NULL
  const struct Bucket *bucket; // NULL unless it is a bucket
} Meaning;

// A member of a bucket: its offset in elements, and its meaning.
typedef struct Member {
  int64_t offset;
  const Type *type; // of a rank's shard
  Meaning is;
} Member;

typedef struct Bucket {
  int n;
  Member *member;
} Bucket;

typedef struct Proof {
  const Graph *model, *g;
  const Numbers *numbers;    // of `model`
  Meaning *of;               // by value id
  struct ReaderOf **readers; // by number, of `model`; NULL until the first piece
  Arena *a;
  Diag *d;
  bool ok;
} Proof;

static inline Meaning *meaning(const Proof *p, const Value *v) {
  return &p->of[v->id];
}

static inline const char *kind_name(const Op *op) {
  return op_info[op->kind].name;
}

// -- prove.c ---------------------------------------------------------------------------------

void prove_error(Proof *p, const Loc *loc, const char *fmt, ...) PRINTF_LIKE(3, 4);
// Reports the error, and continues with the results of the op that was most likely intended.
void prove_wrong(Proof *p, const Op *op, const int *in);

// -- prove_pieces.c --------------------------------------------------------------------------

const Type *whole_of(const Proof *p, int number);
const char *piece_name(const Proof *p, const Piece *piece); // "[0:4,0:6] of linear '%y'"
// Proves an op that has no equal in the model's program.  `in` are the numbers of the operands, if
// all have one (`numbers`).
void prove_pieces(Proof *p, const Op *op, const int *in, bool numbers);
// Gives `v` the meaning of value `number` in another shape.
void prove_reshaped(Proof *p, const Value *v, int number);
// Adds further meanings of an op: a fill is also a part of every larger one, and a piece may be
// reshaped to its own shape.
void prove_also_pieces(Proof *p, const Op *op);

#endif
