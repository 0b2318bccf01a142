// Updates that a step owes to the next one: there is no barrier between the two (ByteScheduler:
// Peng et al. 2019, section 3).
//
//     %y  = linear %x, %w                       the next step settles what it owes of %w before this
//     %z  = linear %y, %v                       … and of %v before this: until then %s is on its way
//     …
//     %r  = all_reduce %h  backward             nobody waits for it in its step
//     %s  = all_reduce %g  backward
//     %l  = stash %lr      update               as it is in the step that owes
//     %w1 = sgd %w, %r, %l update owed
//     %v1 = sgd %v, %s, %l update owed
//     return update %w %w1, update %v %v1
//
// The graph is the step all the same: owed ops are its last, and whoever runs them where they stand
// gets what the step means.  A program leaves them to the next step.  There they run in their
// order, each as late as it may: right before the first op that reads a parameter which it, or an
// owed op behind it, updates; and what nobody waits for before the next step's own update.  Those
// that are due before one op are a group.
//
// So what an owed op reads of its step must be there until then.  The next step makes it anew only
// behind the op before which it is due.

#ifndef IR_DEFERRED_H
#define IR_DEFERRED_H

#include "base/vec.h"
#include "ir/graph.h"

// Owed ops that are due before the same op of the next step.
typedef struct OwedGroup {
  Op *first, *due;
  int n; // neighbours in the order of the graph
} OwedGroup;

typedef Vec(OwedGroup) OwedGroups;

// The first of them, behind which there are no others; NULL: there are none.
Op *graph_first_owed(const Graph *g);
// In their order, and so in that of what they are due before.  Ops are in the order of their parts
// (place.h).
void graph_owed_groups(const Graph *g, Arena *a, OwedGroups *out);
// By op id, of owed ops: the time (place.h) of the op that they are due before.  NULL without any.
int64_t *graph_owed_due(const Graph *g, Arena *a);

// By op id: the place of an op in the order in which a step runs its parts.
int64_t *step_order(const Graph *g, Arena *a);
// The first in that order that is not owed and reads a parameter which the op makes anew; or NULL.
Op *first_to_want(const Op *op, const int64_t *order);

// Whether others, ranks or slices of time, are waited for where it stands.
bool op_meets_others(const Op *op);
// Whether ops that are not owed make what the parameter is after the step.
bool param_changes_in_step(const Value *param);
// Of an all_reduce: it is still under way when its step ends.
bool reduce_is_carried(const Op *reduce);

#endif
