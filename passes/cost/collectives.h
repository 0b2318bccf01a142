// The collectives of a step: kind, bytes, part of the step, number of executions, and participants.
// From PHASE_local on.
//
// The bytes of a collective are those of one rank's larger buffer: the reduced, the gathered or the
// exchanged tensor.  The bytes of a move are those of all its messages.  Collectives along axes of
// size 1 and moves without messages between devices send nothing; they are left out.

#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include "base/vec.h"
#include "ir/analysis/boxes.h"
#include "paths/path_cost.h"

// The part of a step in which an op runs: see ir/analysis/place.h.
typedef enum StepPart { STEP_begin, STEP_micro, STEP_update, N_STEP_PARTS } StepPart;

extern const char *const step_part_name[N_STEP_PARTS]; // "begin", "micro", "update"

// The part of each op, by op id.  A deferred update (ir/analysis/deferred.h) has the part in which
// the next step runs it.
StepPart *graph_step_parts(const Graph *g, Arena *a);

typedef struct Collective {
  const Op *op;
  StepPart part; // as --traffic counts it; with a single slice, gradient sums are in STEP_micro
  int64_t bytes, count; // bytes of one execution; executions in a step
  int64_t all_bytes;    // of one execution, over all ranks
} Collective;

typedef Vec(Collective) Collectives;

// Finds the collectives of the first graph, in its order; none before PHASE_local.
void collectives_find(Arena *a, const Module *m, Collectives *out);

// The collectives of rt/collectives.def in its order, and move.
enum {
  N_COLLECTIVE_KINDS = 1
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) +1
#include "rt/collectives.def"
};
extern const OpKind collective_kinds[N_COLLECTIVE_KINDS];
bool op_is_collective(const Op *op);

// The number of devices in each group of a collective other than a move, and the groups, with
// devices in the order of the mesh.
int collective_size(const Op *op);
Groups collective_groups(Arena *a, const Op *op);
// Whether a system that prefetches (Cluster.prefetch) gathers the result before its use:
// all_gathers of weights, which are known since the last update, and their steps between nodes.
bool gathers_ahead(const Cluster *c, const Op *op);
// The bytes by mesh id (as mesh_ends) that such weights take besides the plan's memory.
int64_t *gathered_ahead_bytes(const Module *m, const Cluster *c, Arena *a);
// The messages of a move, including those from a device to itself.
Messages messages_of(Arena *a, const Op *move);
// The same without their list.
void visit_messages(const Op *move, MessageVisitor *visit, void *context);

#endif
