// What programs have said of an op or a parameter, and which of it contradicts.
//
//     op_trans(fc, {"n", "k"}, "tp")     fc splits n or k along tp, and a later call leaves it n only
//     op_trans(fc, {"n", "-"}, "tp")
//
//     op_trans(fc, "n", "a")             fc has 8 of n, and a, b and c have 2, 2 and 4 ranks: two of these can be
//     op_trans(fc, "n", "b")             had together and three cannot, so the error names three lines
//     op_trans(fc, "n", "c")
//
// A split is one character: of an op the letter that it splits, `-` or `+`; of a parameter the
// digit of the dimension that is cut, or `-`.
//
// What is named is a smallest part of all that was said: it contradicts, and nothing can be left
// out of it.  It is found by leaving out one after the other as long as the rest still contradicts;
// those that were said last go first, so that what is named was said early.

#ifndef CONSTRAINTS_H
#define CONSTRAINTS_H

#include "base/vec.h"
#include "sharding.h"

// One call that leaves several splits open.
struct Said {
  const char *splits; // in the order in which they are preferred
  const Loc *line;
  const Said *before; // what was said of the same before
};

// Of all that was said, NULL if nothing was.
bool said_allows(const Said *said, char split);
// The splits that all of it allows, in the order in which they were first said.
const char *said_splits(const Said *said, Arena *a);
// "n, k or -"
const char *splits_text(Arena *a, const char *splits);
// How a parameter lies, as a split; and back.
char split_of(Sbp lies);
Sbp lies_of(char split);

// One thing that was said, along one axis.
typedef struct Claim {
  int axis;
  const char *splits; // or, where this is NULL:
  const Ranks *ranks; // where it runs
  const Loc *line;
} Claim;

typedef Vec(Claim) Claims;

// A smallest part of what was said of the op, or parameter, and of `more` that cannot be; it has
// `more` in it, where that contradicts at all.  Empty: all of it can be.
Claims op_contradiction(const Sharding *s, const Op *op, const Claim *more);
Claims param_contradiction(const Sharding *s, const Value *v, const Claim *more);
// "to split n along tp", "to run on rank 1 of pp"
const char *claim_text(const Sharding *s, const Claim *c, const char *verb);

// Leaves out of kept[n], the last first, what is not needed for the rest to be impossible.
void keep_least(bool *kept, int n, bool (*possible)(void *context, const bool *kept),
                void *context);

#endif
