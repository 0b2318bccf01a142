// Stamps of the contents of a module and of its graphs: two equal stamps, before and after a pass,
// say that the pass changed nothing there.
//
//     channels_last    of a model without convolutions: the stamps are the same, and no promise is
//                      broken
//     optimizer        changes @train: the stamp of @eval is the same, and @train is verified
//
// About half of the passes of a pipeline change nothing, others one entry graph of two, and a walk
// over the bytes of ops and values takes a tenth of the time of the verifier's checks.

#ifndef MANAGER_STAMP_H
#define MANAGER_STAMP_H

#include "base/vec.h"
#include "ir/graph.h"

typedef struct GraphStamp {
  const Graph *g; // perhaps erased since
  bool entry;
  uint64_t stamp;
} GraphStamp;

typedef struct ModuleStamp {
  bool known;
  bool ordered;          // whether any op of an entry graph has an order
  uint64_t module;       // of the module and its meshes
  Vec(GraphStamp) graph; // in the order of the module
} ModuleStamp;

// Covers ops, values, uses, graphs and the module. Objects that these share, such as types,
// layouts, lists of attributes, initial contents and locations, are never changed after they are
// made: their addresses count. False, and not `known`: the module has annotations, which are
// changed in place.
bool module_stamp(const Module *m, Arena *a, ModuleStamp *out);
bool stamp_same(const ModuleStamp *before, const ModuleStamp *now);
// Whether each graph is as it was, and so are all that it calls; by its position in the module.
// NULL: the module, a mesh, or a graph that ops may call is another one now, or is gone.
const bool *stamp_kept_graphs(const ModuleStamp *before, const ModuleStamp *now, Arena *a);

#endif
