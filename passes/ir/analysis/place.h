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
// Results of swap_out, views of them, and parameters marked `host` are in host memory: their
// offsets are of a slab of their own.

#ifndef IR_PLACE_H
#define IR_PLACE_H

#include "ir/graph.h"

typedef struct Life {
  int64_t from, to;
} Life;

int64_t op_time(const Op *op);     // 1, 2, … in the order of the graph (ids must be in order)
int64_t graph_end(const Graph *g); // after the last op
// The time of the first op that reads `v` or a view of it, or the graph's end: an all_reduce is
// waited for there.
int64_t value_first_read(const Value *v);
// A parameter with an offset of its own, the same in all graphs: a persistent one, or a scalar.
bool param_kept(const Value *param);
// Lives by value id, of ops in the order of their parts.
Life *graph_lives(const Graph *g, Arena *a);

// The value that `v` is a view of, or `v` itself, and how many bytes into it `v` begins.
Value *view_root(Value *v, int64_t *bytes);

// The id of its mesh; without meshes 0.
int value_mesh_id(const Value *v);
// Whether the value is in host memory.
bool value_on_host(const Value *v);

// Whether some device is on the meshes of both values, for all pairs of meshes of a module.
typedef struct Meets {
  int n;            // meshes
  const bool *pair; // [a * n + b]
} Meets;
Meets module_meets(const Module *m, Arena *a);
bool values_meet(const Meets *meets, const Value *a, const Value *b);

// Where the last value on each mesh ends, by mesh id, of all entry graphs; where there is no mesh,
// one number.  And where the last one on a device does.
int64_t *mesh_ends(const Module *m, Arena *a);
int64_t *mesh_host_ends(const Module *m, Arena *a); // of what is in host memory
int64_t device_end(const Module *m, const int64_t *ends, int device);

// May result `result` of `op` lie exactly where operand `operand` lies, when that is read no more?
// A move may if every device of its target has its part already: nothing is left to do then.
bool op_inplace(const Op *op, int result, int operand, Arena *scratch);

// The ops of begin, by op id: none without slices of time.  They read weights, states, copies,
// constants and what ops of begin make; nothing is cut over time or a sum over it.  Inputs are of
// one slice, and scalars are left to the loop: what reads the seed is to differ from slice to
// slice.
//
// What is kept through the loop is not to cost more than what it is made of: an op whose results
// have more bytes than its operands is in the loop, and so is all that reads them.  Casts to 16
// bits, slices, transposes and what is sent to another mesh are made once; a weight that is
// gathered is there only while it is used, as is what is broadcast or filled.
bool *graph_begin_ops(const Graph *g, Arena *a);

// The first op that runs once per step, after the last micro-batch: from here on are the ops that
// read what was accumulated, the ones that make the new parameters, those of the update that read
// nothing but what is the same in all slices, and all that follows from them.
// plan_memory orders them so.  NULL when there is none, as where updates are early: then they stand
// among the ops of the one slice there is.
Op *graph_update_start(const Graph *g);
// Those ops of any order, by op id.
bool *graph_update_ops(const Graph *g, Arena *a);

// The first op that stands behind one of a later turn (Origin), or NULL.
const Op *graph_out_of_turn(const Graph *g);

#endif
