// What the files of the proof share: prove.c goes through the ops, prove_pieces.c knows what slices
// stand for, prove_why.c (prove.h) says what is wrong.

#ifndef PROVE_STATE_H
#define PROVE_STATE_H

#include "ir/op.h"
#include "piece.h"
#include "prove.h"

enum { UNKNOWN = -1 };

// What a value of the distributed program stands for.
typedef struct Meaning {
  int number;                  // UNKNOWN of pieces and buckets, and where an error was reported
  Piece *piece;                // what it is a part of, NULL of any other
  const struct Bucket *bucket; // NULL of any other value
} Meaning;

// What was packed: where each begins, in elements, and what it stands for.
typedef struct Member {
  int64_t offset;
  const Type *type; // of a rank's part
  Meaning is;
} Member;

typedef struct Bucket {
  int n;
  Member *member;
} Bucket;

typedef struct Proof {
  const Graph *model, *g;
  const Numbers *numbers; // of `model`
  Meaning *of;            // by value id
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

void fails(Proof *p, const Loc *loc, const char *fmt, ...) PRINTF_LIKE(3, 4);
// Says what is wrong, and takes the op for what it was most likely meant to be.
void prove_wrong(Proof *p, const Op *op, const int *in);

// -- prove_pieces.c --------------------------------------------------------------------------

const Type *whole_of(const Proof *p, int number);
const char *piece_name(const Proof *p, const Piece *piece); // "[0:4,0:6] of linear '%y'"
// An op that is none of the model's program as it is; `in` are the operands' numbers, when all of
// them have one (`numbers`).
void prove_pieces(Proof *p, const Op *op, const int *in, bool numbers);
// What else an op may stand for: a fill is a part of every larger one, too, and a part may be
// reshaped to the shape that it has.
void prove_also_pieces(Proof *p, const Op *op);

#endif
