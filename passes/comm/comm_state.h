// What the files of pass comm share: comm.c (the pass), comm_axes.c (within a mesh), comm_routes.c
// (over a cluster).

#ifndef COMM_STATE_H
#define COMM_STATE_H

#include "base/vec.h"
#include "hops.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"

// A value moved to another layout, kept for later readers: of a weight for those of one part of the
// step, so that what is gathered for the model is gathered again for its gradients.
typedef struct Moved {
  const Layout *layout;
  TrainPart part;
  Value *value;
  struct Moved *next;
} Moved;

typedef struct Comm {
  Module *m;
  Graph *g;
  Arena *scratch;
  Diag *d;
  const Dims **dims_of; // by id of the original op
  Moved **moved;        // by id of the original value
  Hops *hops;           // the same
  const char *cluster;  // what routes cost, or NULL
  Transitions *paths;   // NULL until one is wanted
  Transitions *joined;  // the same where neither starts nor hops take time
  struct Tree **trees;  // by id of the original value: its routes over the cluster
  uint32_t n_ops;       // before there were others
  int64_t inserted;
} Comm;

// Where the value is moved: right after it; a weight, or its cast, only where it is wanted, so that
// it is whole no longer than that.
Op *place_of(const Value *v, Op *reader);

// What operand `i` of an op must lie as; what a result of the graph must: outputs are whole sums,
// and what becomes of a parameter lies as the parameter does.
const Layout *wanted(const Comm *c, const Op *op, int i);
const Layout *wanted_result(const Comm *c, const Result *r);
// Reports that `reader` wants what no micro-batch has.  False.  Its dims, where they are known.
bool cannot_cut(Comm *c, const Op *reader, const Dims *dims);

// The part of the step that what `reader` has moved is for.
TrainPart part_of(const Value *v, const Op *reader);
Value *moved_before(const Comm *c, uint32_t original, const Layout *want, TrainPart part);
Value *remember(Comm *c, uint32_t original, TrainPart part, Value *v);

// `v`, made of the original, as it is wanted: axis by axis, or as an earlier reader had it moved.
Value *moved_by(Comm *c, uint32_t original, TrainPart part, Value *v, const Layout *want, Hops hops,
                Op *reader);
// The same of an original, by the hops that are best for all its readers.
Value *moved_to(Comm *c, Value *v, const Layout *want, Op *reader);

// Whether the value goes over a cluster; so, as it is wanted.  NULL, having reported why.
bool is_carried(const Comm *c, const Value *v);
Value *carried_to(Comm *c, Value *original, const Layout *want, Op *reader);

#endif
