// Memory of values: which values share an offset, and the live range of each.
//
// Time is counted in ops: a value lives from its op to the last reader of it or of a view of it.
// Parameters live from 0, results of the graph to its end.  Two rules extend that: an accumulation
// over time (trait ACCUMULATES) survives while the ops before it run again for the next
// micro-batch, so it lives from 0; and an `all_reduce` that is not in place reads its operand until
// its result is waited for, which graph_lives does not count.
//
// A step with time slices has three parts, in the order of plan_memory:
//
//     begin    once, before the first slice    values that are the same in all slices
//     loop     for every slice                 values that depend on its rows
//     update   once, after the last            values that depend on sums over slices, or serve only those
//
// The updates that the step defers to the next one follow (deferred.h).
//
// A parameter that is updated in every slice (Value.each_slice) is updated in the loop, so its
// readers are not in `begin`.  A result of `begin` that the loop reads lives as long as the loop,
// since the next slice reads it too.
//
// A result may take the memory of an operand that dies at the op, if the op may run in place.
//
// A value has one offset, on all devices of its mesh.  Values on disjoint meshes never meet in one
// memory, so they may have the same offset; the slab of a device ends with the last value of its
// meshes.
//
// Results of swap_out and swap_out_accumulate, views of them, and parameters marked `host` are in
// host memory: their offsets are of a slab of their own.

#ifndef IR_PLACE_H
#define IR_PLACE_H

#include "ir/graph.h"

typedef struct Life {
  int64_t from, to;
} Life;

int64_t op_time(const Op *op);     // 1, 2, … in the order of the graph (ids must be in order)
int64_t graph_end(const Graph *g); // after the last op
// The time of the first op that reads `v` or a view of it, or the graph's end: the result of a
// collective is waited for there at the latest (in_flight.h).
int64_t value_first_read(const Value *v);
// A parameter with an offset of its own, the same in all graphs: a persistent one, or a scalar.
bool param_kept(const Value *param);
// Live ranges by value id.  Ops must be in the order of their parts.
Life *graph_lives(const Graph *g, Arena *a);

// The source of the view `v`, or `v` itself; and the byte offset of `v` in it.
Value *view_root(Value *v, int64_t *bytes);

// The id of the value's mesh; 0 without meshes.
int value_mesh_id(const Value *v);
// Whether the value is in host memory.
bool value_on_host(const Value *v);
// Whether the value is a sum of gradients that host_gradients selected
// (memory/offload_gradients.c), or a bucket of them, or follows from such values by communication
// and views alone.
bool gradient_on_host(const Value *v);

// Whether two meshes share a device, for all pairs of meshes of a module.
typedef struct Meets {
  int n;            // meshes
  const bool *pair; // [a * n + b]
} Meets;
Meets module_meets(const Module *m, Arena *a);
bool values_meet(const Meets *meets, const Value *a, const Value *b);

// The end of the last value on each mesh, by mesh id, over all entry graphs; one number if there
// are no meshes.  device_end: the end of the last value on a device.
int64_t *mesh_ends(const Module *m, Arena *a);
int64_t *mesh_host_ends(const Module *m, Arena *a); // in host memory
int64_t device_end(const Module *m, const int64_t *ends, int device);

// Whether result `result` of `op` may have exactly the memory of operand `operand`, if that dies
// here.  A move may if every device of its target already has its shard, since it is a no-op then.
bool op_inplace(const Op *op, int result, int operand, Arena *scratch);

// The ops of begin, by op id; none without time slices.  They read weights, states, copies,
// constants and results of other ops of begin, and neither operands nor results are split or
// partial along time. Inputs differ by slice.  Scalars are left to the loop: readers of the seed
// must differ from slice to slice.
//
// A value that lives through the loop must not take more memory than its sources.  So an op with
// more bytes of results than of operands is in the loop, and so are all its readers.  Casts to 16
// bits, slices, transposes and transfers to another mesh run once; a gathered weight, a broadcast
// or a fill lives only during its use.  A weight that a plan pins (op_is_pin) is gathered once.
bool *graph_begin_ops(const Graph *g, Arena *a);

// The first op that runs once per step, after the last micro-batch.  From it on are the readers of
// accumulated values, the ops that compute new parameters, the ops of the update whose operands are
// the same in all slices, and everything that depends on these.  plan_memory establishes this
// order. NULL if there is none, as with early updates: they are among the ops of the only slice.
Op *graph_update_start(const Graph *g);
// The same ops by op id, for any order of the graph.
bool *graph_update_ops(const Graph *g, Arena *a);

// Both: one pass less than each by itself.
typedef struct PartOps {
  bool *begin, *update;
} PartOps;
PartOps graph_part_ops(const Graph *g, Arena *a);

// The first op after an op of a later order (Origin), or NULL.
const Op *graph_out_of_order(const Graph *g);

// The first op after an op of a later part of the step: begin, loop, update; or NULL.
const Op *graph_out_of_parts(const Graph *g);

#endif
