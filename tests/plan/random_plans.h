// Shared by the files of random_plans.
//
//     random_model.c    a training step of random ops
//     random_cut.c      ops in unequal chunks
//     random_layout.c   a random mesh, and random layouts and splits on it
//     random_moves.c    values moved to other meshes and back
//     mutate.c          single changes of a plan
//     random_plans.c    the experiment

#ifndef RANDOM_PLANS_H
#define RANDOM_PLANS_H

#include "ir/graph.h"

typedef struct Random {
  uint64_t state;
} Random;

static inline int below(Random *r, int n) { // splitmix64
  uint64_t x = r->state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (int)((x ^ x >> 31) >> 33) % n;
}

static inline bool chance(Random *r, int percent) {
  return below(r, 100) < percent;
}

// -- random_model.c --------------------------------------------------------------------------

// Returns a module in phase typed; NULL if the model has no derivative, or its result is NaN.
Module *random_model(Random *r, Diag *d);

// -- random_cut.c ----------------------------------------------------------------------------

// Returns the number of added ops.
int random_cuts(Graph *g, Random *r, Diag *quiet);

// -- random_layout.c -------------------------------------------------------------------------

// Replaces some losses by ops that can be split by classes.
void random_losses(Graph *g, Random *r, Diag *d);
// Gives `m` a mesh, every value a layout and every op a split, as shard does.
void random_layout(Module *m, Random *r, bool time, Diag *d);

// -- random_moves.c --------------------------------------------------------------------------

// Moves values of a local module.  Returns their number.
int random_moves(Graph *g, Random *r, Diag *d);

// -- mutate.c --------------------------------------------------------------------------------

#define MUTATIONS                                                                                  \
  MUTATION(identity, "what reads a collective, or one reader of it, reads its operand instead")    \
  MUTATION(collective, "is one of another kind")                                                   \
  MUTATION(repeat, "a sum is summed once more, a value counts in every slice, or in one alone")    \
  MUTATION(attribute, "is another number, word, type, byte")                                       \
  MUTATION(operand, "is another value of its type and layout")                                     \
  MUTATION(swap, "of two operands, two results of an op, two results of the graph")                \
  MUTATION(drop, "of an op: its readers read an operand")                                          \
  MUTATION(result, "of the graph is lost, or is another value")                                    \
  MUTATION(kind, "is that of the next elementwise op of as many operands")                         \
  MUTATION(insert, "an op that nobody asked for")                                                  \
  MUTATION(split, "is of another letter, and the results lie so")                                  \
  MUTATION(layout, "of a value is another")                                                        \
  MUTATION(parameter, "has other contents, another label or shape, is trained, changes in slices") \
  MUTATION(mesh, "has axes of other sizes, or of time instead of devices, or ranks exchanged")     \
  MUTATION(place, "in memory is another, or a slot is missing")                                    \
  MUTATION(order, "an op comes one earlier")                                                       \
  MUTATION(part, "of the step is another")

enum {
#define MUTATION(name, means) MUTATE_##name,
  MUTATIONS
#undef MUTATION
      N_MUTATIONS
};
extern const char *const mutation_name[N_MUTATIONS];

// Returns the number of mutations of a kind of `m`.
int64_t n_mutations(const Module *m, int kind);
// Applies one of them and returns its description; NULL if the result would not be a program.
const char *mutate(Module *m, int kind, int64_t which, Arena *a);

#endif
