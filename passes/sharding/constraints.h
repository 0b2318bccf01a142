// Constraints of programs on an op or a parameter, and contradictions among them.
//
//     op_trans(fc, {"n", "k"}, "tp")     fc splits n or k along tp, and a later call leaves it n only
//     op_trans(fc, {"n", "-"}, "tp")
//
//     op_trans(fc, "n", "a")             fc has 8 of n, and a, b and c have 2, 2 and 4 ranks: two of these can be
//     op_trans(fc, "n", "b")             had together and three cannot, so the error names three lines
//     op_trans(fc, "n", "c")
//
// A split is one character: for an op the letter that it splits, `-` or `+`; for a parameter the
// digit of the sharded dimension, or `-`.
//
// An error names a minimal contradictory set of constraints: none of them can be left out. To find
// it, one constraint after the other is left out as long as the rest still contradicts. The latest
// go first, so that the named ones are early.

#ifndef CONSTRAINTS_H
#define CONSTRAINTS_H

#include "base/vec.h"
#include "sharding.h"

// One call that restricts the splits to several.
struct Constraint {
  const char *splits; // in order of preference
  const Loc *line;
  const Constraint *before; // the previous constraint on the same op or parameter
};

// Add the constraint of a line of a program, or NULL, once it contradicts no earlier one (below).
//
// One of several splits is left to propagation and to searches. A single split is decided at once:
// checks of later calls, and their queries, depend on it by Op.split and by the layout. The
// decision and its line (Decisions.fixed_by, param_by) are the record of that constraint:
// contradictions read it from there. Ranks are put in force at once, too, as splits depend on their
// number.
void constrain_split(Sharding *s, Op *op, int axis, const char *splits, const Loc *line);
void constrain_layout(Sharding *s, const Value *v, int axis, const char *splits, ParamChoice how,
                      const Loc *line);
void constrain_ranks(Sharding *s, Op *op, int axis, const Ranks *ranks, const Loc *line);
void constrain_order(Sharding *s, Order order);

// Whether all constraints allow the split. NULL: no constraints.
bool constraint_allows(const Constraint *constraint, char split);
// The splits that all constraints allow, in the order of the first constraint.
const char *constraint_splits(const Constraint *constraint, Arena *a);
// "'n', 'k' or '-'"
const char *splits_text(Arena *a, const char *splits);
// The layout of a parameter as a split, and back.
char split_of_sbp(Sbp sbp);
Sbp sbp_of_split(char split);

// One constraint along one axis.
typedef struct ConstraintClaim {
  int axis;
  const char *splits; // NULL: a constraint on ranks
  const Ranks *ranks; // the ranks of the op
  const Loc *line;
} ConstraintClaim;

typedef Vec(ConstraintClaim) ConstraintClaims;

// A minimal contradictory set of the constraints on the op, or parameter, and `more`, which it
// contains. Empty: there is no contradiction.
ConstraintClaims op_contradiction(const Sharding *s, const Op *op, const ConstraintClaim *more);
ConstraintClaims param_contradiction(const Sharding *s, const Value *v,
                                     const ConstraintClaim *more);
// "to split 'n' along tp", "to run on rank 1 of pp"
const char *claim_text(const Sharding *s, const ConstraintClaim *c, const char *verb);

// Clears in kept[n], from the last, each element without which the rest is still impossible.
void keep_least(bool *kept, int n, bool (*possible)(void *context, const bool *kept),
                void *context);

#endif
