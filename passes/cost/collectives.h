// The collectives of a step: what moves data between ranks, how many bytes of it, when and how
// often, between whom.  From PHASE_local on.
//
// Bytes of a collective are those of one rank's larger buffer: what is reduced, what is gathered in
// the end, what is exchanged; of a move, those of all its messages.  Along axes of one device
// nothing is sent, and a move whose parts all are where they must be sends nothing either: these
// are not among them.

#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include "base/vec.h"
#include "ir/analysis/boxes.h"
#include "paths/path_cost.h"

// In which part of a step an op runs: see ir/analysis/place.h.
typedef enum StepPart { STEP_begin, STEP_micro, STEP_update, N_STEP_PARTS } StepPart;

extern const char *const step_part_name[N_STEP_PARTS]; // "begin", "micro", "update"

// By op id; of deferred updates (ir/analysis/deferred.h), that in which the next step runs them.
StepPart *graph_step_parts(const Graph *g, Arena *a);

typedef struct Collective {
  const Op *op;
  StepPart part; // when it runs, as --traffic counts it: of one slice, sums of gradients in it
  int64_t bytes, count; // of one, in a step
  int64_t all_bytes;    // of one, over all ranks
} Collective;

typedef Vec(Collective) Collectives;

// Those of the first graph, in its order; none before PHASE_local.
void collectives_find(Arena *a, const Module *m, Collectives *out);

// The collectives of rt/collectives.def in its order, and move.
enum {
  N_COLLECTIVE_KINDS = 1
#define COLLECTIVE(op, from, to, from_dim, to_dim, job, nccl) +1
#include "rt/collectives.def"
};
extern const OpKind collective_kinds[N_COLLECTIVE_KINDS];
bool op_is_collective(const Op *op);

// Of any but a move: how many devices take part in each of its groups, and which, in the order of
// the mesh.
int collective_size(const Op *op);
Groups collective_groups(Arena *a, const Op *op);
// Of a move.  Messages from a device to itself are among them.
Messages messages_of(Arena *a, const Op *move);

#endif
