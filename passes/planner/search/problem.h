// The problem that is made of a graph: nodes, what each may choose, and what two of them cost
// together.  README.md says which file makes which part of it.

#ifndef PROBLEM_H
#define PROBLEM_H

#include "base/vec.h"
#include "comm/transition.h"
#include "repeats/repeats.h"
#include "search.h"

// How one node may be: of an op `split`; of a parameter or a value that several read `lies`.
typedef struct Choice {
  char split[MAX_AXES];
  int via; // the operand of which partial sums pass through an op that is linear in each
  Sbp lies[MAX_AXES];
  // How its gradient is wanted: of a weight, how its states lie; of a value, how the gradients of
  // its readers are added up, which may be a sum still.
  Sbp back[MAX_AXES];
} Choice;

typedef Vec(Choice) Choices;

typedef struct Node {
  Op *op;   // or
  Value *v; // a parameter, or what several ops read
  bool shared;
  int n; // that are decided alike, of which this is one
  Choices choices;
  int64_t *cost; // of a step, in Problem.unit, of each choice
  // Of that, of one: what each op of its gradient takes, [op][choice].
  int n_gradients;
  int64_t *back;
  // Of a weight, by choice: the searched axes over which its part of the norm is added up, as bits.
  uint32_t *norm;
} Node;

// Between two nodes: of a value of that type, result `from_index` of the one, operand `to_index` of
// the other.  Layers that repeat have many of them, and they cost the same.
typedef struct Pair {
  int from, to, from_index, to_index;
  const Type *type;
  int64_t *cost; // row-major, as SolverEdge has it; of one of them until all are known
  // Of that, of one, in backward: what brings a weight again, and what brings the gradient.  What
  // only the end of the step waits for: what reduces a weight's gradient, or, if `late`, the loss;
  // NULL: none.
  int64_t *again, *back, *reduced;
  bool late;
  const Layout **gradient; // by choice of `to`; how it is
  const Layout **wanted;   // by choice of `from`
  int n;
  int next; // of those that begin at the same node, an index + 1
} Pair;

typedef struct Problem {
  Sharding *s;
  Arena *scratch;
  const Cluster *c;
  Transitions *prices, *joined; // joined: as if collectives took no time to start
  const int *axis;              // that are searched
  int n_axes;
  bool sums;      // may be passed on or kept
  bool routed;    // comm takes the cheapest routes over the cluster, not one axis after the other
  int64_t slices; // of time
  int64_t memory; // bytes of a rank; SOLVER_NO_LIMIT: any
  double unit;    // seconds of a cost of 1
  double least;   // seconds that a step takes at least
  SolverOptions options;
  const struct Lives *lives; // lives.h; NULL: it is not known which values are in memory
  const struct Timed *timed; // microbatch_cut.h; NULL: time is not cut
  Repeats *repeats;
  int64_t *norm;   // cost of adding up the norm over axes, by their bits, once per step
  double bucket;   // bytes of gradients that bucket_grads reduces together, at most all there are
  double exposed;  // the part of such reducing that a step waits for: overlap.c
  bool late_hides; // but for what is late: whether a step does not wait for that
  Op **model_op;   // by op id: whose gradient it is, or NULL
  // By op id, the letter of that op that each letter of it is, or -1: that is not known.
  int8_t **model_letter;
  Op **first_op;      // by op id, of the model: the one like it that has the node
  bool *has_gradient; // by value id
  bool *late;         // by op id, of the model: only outputs come of it
  Vec(Node) nodes;
  int *op_node, *value_node, *shared_node; // by op and value id: an index into nodes, or -1
  Vec(Pair) pairs;
  int *first_pair;     // by node: of those that begin there, an index + 1
  struct Known *known; // prices that were asked for
  int n_known, known_size;
} Problem;

// The same question about what was said otherwise: nothing of it is made yet.
Problem problem_about(const Problem *p, Sharding *s);
void nodes_make(Problem *p);
void edges_make(Problem *p);
// Both.  False where a node has no choice at all, which the solver must not be given.
bool choices_make(Problem *p);

// The edge between what makes a value, or makes it for all, and a reader, an op of the model; or,
// with NULL for that, what makes it for all.  NULL where there is none.
const Pair *pair_between(const Problem *p, const Value *v, const Use *reader);
// What it costs as the solver has it.
int64_t *pair_cost(const Problem *p, const Pair *e);

#endif
