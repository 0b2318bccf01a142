// One function for each phase of phases.def; the head of verify.c lists the promises.
//
// The first walk over a graph, verify_typed, notes which features the graph has.  A promise about a
// feature that it has not holds, and needs no walk of its own.

#ifndef IR_VERIFY_H
#define IR_VERIFY_H

#include "ir/graph.h"

// Whether any op or value of a graph has these.
typedef struct Features {
  bool layouts, splits; // values with a layout, ops with a split
  bool shares;          // ops that communicate, or accumulate over time
  bool places;          // values with an offset
  bool host;            // swaps, or parameters in host memory
  bool each_slice;      // parameters that change in every slice
  bool deferred, loops; // ops of these kinds
} Features;

// verify_typed fills `has`, and the others read it.
#define PHASE(name, means) bool verify_##name(const Graph *g, Features *has, Diag *d);
#include "ir/phases.def"
#undef PHASE

// Promises 6 and 7: parameters and results.
bool verify_ends(const Graph *g, Arena *a, Diag *d);

// Promise 8: the callee of each op; and at the end, that no graph calls itself.
typedef struct Calls Calls;
Calls *calls_new(Arena *a, const Graph *g);
bool calls_check(Calls *c, const Op *op, Diag *d);
bool calls_end(Calls *c, Diag *d);

// 21: values in host memory.
bool verify_swap(const Graph *g, const Features *has, Diag *d);

// 22: updates in every time slice.
bool verify_versions(const Graph *g, const Features *has, Diag *d);

// 23: deferred updates.
bool verify_deferred(const Graph *g, const Features *has, Diag *d);

// 27: the types, and later the places, of parameters in several entry graphs.
bool verify_kept(const Module *m, Diag *d);

// "%x" or "%12", for messages.
const char *value_text(Arena *a, const Value *v);

// Promise 28, of a loop in a planned module: verify_loops.c.
bool verify_loop_places(const Op *op, int64_t align, Diag *d);

#endif
