// Shared state of pass comm: comm.c (the pass), comm_axes.c (within a mesh), comm_routes.c (over a
// cluster).

#ifndef COMM_STATE_H
#define COMM_STATE_H

#include "base/vec.h"
#include "hops.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "paths/path_store.h"

// A value in another layout, stored for later readers. For a weight these are readers in one part
// of the step, so that a weight gathered for the model is gathered again for its gradients.
typedef struct AxisReshard {
  const Layout *layout;
  TrainPart part;
  Value *value;
  struct AxisReshard *next;
} AxisReshard;

typedef struct Comm {
  Module *m;
  Graph *g;
  Arena *scratch;
  Diag *d;
  const Dims **dims_of; // by id of the original op
  AxisReshard **moved;  // by id of the original value
  Hops *hops;           // likewise
  const char *cluster;  // gives the costs of routes; or NULL
  ReshardBy by;
  PathStore *store;    // of paths that other modules asked for, too
  Transitions *paths;  // NULL until first used
  Transitions *joined; // the same without time for starts and hops
  struct Tree **trees; // by id of the original value: routes over the cluster
  uint32_t n_ops;      // before insertions
  // By id of the original op: the position of its segment in the step, from 1; 0: before the loop.
  // NULL: the module has one mesh.
  const int *turn;
  int64_t inserted;
} Comm;

// The op before which the value is moved: the one after its producer. A weight, or its cast, is
// moved before its reader, so that it is whole no longer than necessary.
Op *place_of(const Value *v, Op *reader);

// The layout that an op needs of operand `i`, and that a result of the graph needs: outputs are
// complete sums, and the new value of a parameter has the parameter's layout.
const Layout *comm_wanted_layout(const Comm *c, const Op *op, int i);
const Layout *wanted_result(const Comm *c, const Result *r);
// Reports that `reader` needs a value that no micro-batch has, and returns false. `dims` are those
// of the reader, or NULL.
bool cannot_cut(Comm *c, const Op *reader, const Dims *dims);

// The part of the step that a reshard for `reader` serves: of a weight, that of the reader.
TrainPart part_of(const Value *v, const Op *reader);
Value *moved_before(const Comm *c, uint32_t original, const Layout *want, TrainPart part);
Value *comm_remember(Comm *c, uint32_t original, TrainPart part, Value *v);

// Reshards `v`, derived from the original, axis by axis, or takes the result for an earlier reader.
Value *reshard_by_hops(Comm *c, uint32_t original, TrainPart part, Value *v, const Layout *want,
                       Hops hops, Op *reader);
// The same for an original, with the hops that are best for all its readers.
Value *reshard_by_axes(Comm *c, Value *v, const Layout *want, Op *reader);

// Whether the value is resharded over a cluster; and that reshard. NULL after reporting why.
bool needs_route(const Comm *c, const Value *v);
Value *reshard_by_route(Comm *c, Value *original, const Layout *want, Op *reader);

#endif
