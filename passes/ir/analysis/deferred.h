// Deferred updates: a step leaves them to the next one, so there is no barrier between the two
// (ByteScheduler: Peng et al. 2019, section 3).
//
//     %y  = linear %x, %w                       the next step runs the update of %w before this
//     %z  = linear %y, %v                       … and of %v before this; %s may be in flight until then
//     …
//     %r  = all_reduce %h  backward             not waited for in its own step
//     %s  = all_reduce %g  backward
//     %l  = stash %lr      update               the learning rate of the deferring step
//     %w1 = sgd %w, %r, %l update deferred
//     %v1 = sgd %v, %s, %l update deferred
//     return update %w %w1, update %v %v1
//
// The graph is still the step: deferred ops are its last ops, and running them in that position
// gives the result of the step.  A program leaves them to the next step.  They run there in their
// order, each as late as possible: immediately before the first op that reads a parameter which it,
// or a later deferred op, updates.  Deferred ops without such a reader run before the next step's
// own update. Deferred ops that are due before the same op form a group.
//
// So every operand of a deferred op lives until its due op in the next step.  The next step
// overwrites it only after that op.

#ifndef IR_DEFERRED_H
#define IR_DEFERRED_H

#include "base/vec.h"
#include "ir/graph.h"

// Deferred ops that are due before the same op of the next step.
typedef struct DeferredGroup {
  Op *first, *due;
  int n; // adjacent in the graph
} DeferredGroup;

typedef Vec(DeferredGroup) DeferredGroups;

// The first deferred op; all ops after it are deferred too.  NULL: none.
Op *graph_first_deferred(const Graph *g);
// The groups in the order of their ops, which is also the order of their due ops.  The ops of the
// graph must be in the order of their parts (place.h).
void graph_deferred_groups(const Graph *g, Arena *a, DeferredGroups *out);
// The time (place.h) of the due op of each deferred op, by op id.  NULL if no op is deferred.
int64_t *graph_deferred_due(const Graph *g, Arena *a);

// The position of each op in the order in which a step runs its parts, by op id.
int64_t *step_order(const Graph *g, Arena *a);
// The first op in that order that is not deferred and reads a parameter which `op` updates; or
// NULL.
Op *first_to_want(const Op *op, const int64_t *order);

// Whether the op synchronises with other ranks or time slices.
bool op_meets_others(const Op *op);
// Whether an op that is not deferred produces the next value of the parameter.
bool param_changes_in_step(const Value *param);
// Whether an all_reduce is still in flight at the end of its step.
bool reduce_is_in_flight(const Op *reduce);

#endif
