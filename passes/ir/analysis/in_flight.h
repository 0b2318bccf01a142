// Collectives in flight: the op before which each asynchronous collective (trait ASYNC), or round
// of a ring, is waited for.
//
//     %s = reduce_scatter %g     at 0     starts: from here on it reads %g and writes %s
//     %d = linear %e, %w         at 512   overlaps
//     %f = gelu %d               at 256   waits, if these are bytes of %g: it would overwrite them
//     %v1 = sgd %v, %s                    waits otherwise: it reads %s
//
// The wait precedes the first op that uses the memory of the result, or overwrites that of the
// operand, unless this is small: then the runtime copies it (rt/small_operand.h). So offsets decide
// how long a collective overlaps: plan_memory keeps operands until the first reader of the result
// as far as the peak of memory allows (memory/plan_in_flight.c).  Before offsets exist, only
// readers count.
//
// A collective is waited for at the latest
//
//     of begin           at its end
//     of the loop        at the end of the slice or segment, if these repeat; else as of the update
//     of the update      at the end of the step, unless the next one waits (reduce_is_in_flight)
//     of deferred ops    at the end of their group

#ifndef IR_IN_FLIGHT_H
#define IR_IN_FLIGHT_H

#include "ir/op.h"
#include "place.h"

// A move of blocks that are permuted, as in a ring: it starts when it is reached, with a copy of
// the operand, and ends before its result is read.  Between segments it starts with others
// (schedule.h).
bool move_is_round(const Op *op);
// Whether the call of the op only starts it.
bool op_is_async(const Op *op);
// Whether it overlaps with the ops up to its wait on this target; else the rank ends it at once,
// and the wait does nothing.
bool op_overlaps(const Op *op, Target target);
// Whether the start of it copies the operand, which may be overwritten then.
bool op_copies_operand(const Op *op);
// Whether `op` must not run before the end of the collective `started`.
bool op_waits_for(const Meets *meets, const Op *op, const Op *started);
// By op id, of asynchronous collectives: the op before which it is waited for; NULL: it is waited
// for at the latest possible time.  A deferred op stands for the flush of its group, unless it
// reads the result of a collective of the previous step.
const Op **graph_waits(const Graph *g, Arena *a);

#endif
