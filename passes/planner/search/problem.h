// The optimization problem of a graph: nodes, their choices, and costs of pairs of choices.
// README.md says which file makes which part of it.

#ifndef PROBLEM_H
#define PROBLEM_H

#include "base/vec.h"
#include "comm/transition.h"
#include "ir/analysis/origin.h"
#include "repeats/repeats.h"
#include "search.h"

// One alternative of a node: `split` for an op; `layout` for a parameter or a value with
// several readers.
typedef struct Choice {
  char split[MAX_AXES];
  int via; // the operand with the partial sums that pass through a multilinear op
  Sbp layout[MAX_AXES];
  // The wanted layout of its gradient: for a weight, the layout of its states; for a value, that of
  // the sum of its readers' gradients, which may still be partial.
  Sbp back[MAX_AXES];
} Choice;

typedef Vec(Choice) Choices;

typedef struct Node {
  Op *op;   // or
  Value *v; // a parameter, or a value with several readers
  bool shared;
  int n; // ops or values decided together, including this one
  Choices choices;
  int64_t *cost; // of each choice, per step, in Problem.unit
  // Part of the cost, of one: of each op of its gradient, [op][choice].
  int n_gradients;
  int64_t *back;
  // Of a weight, by choice: the searched axes over which its part of the norm is reduced, as bits.
  uint32_t *norm;
} Node;

// An edge between two nodes: for a value of that type, result `from_index` of one, operand
// `to_index` of the other. Repeated layers have many such edges, with equal costs.
typedef struct Pair {
  int from, to, from_index, to_index;
  const Type *type;
  int64_t *cost; // row-major, as in SolverEdge; of one edge until all are counted
  // Parts of the cost, of one edge, in backward: the second gather of a weight, and the transfer of
  // the gradient. Only the end of the step waits for `reduced`: the reduction of a weight's
  // gradient, or, if `late`, of the loss; NULL: none.
  int64_t *again, *back, *reduced;
  bool late;
  const Layout **gradient; // by choice of `to`: its produced layout
  const Layout **wanted;   // by choice of `from`: its wanted layout
  int n;
  int next; // edge that begins at the same node, an index + 1
} Pair;

typedef struct Problem {
  const Sharding *s; // constraints and decisions; those of outer axes may be assumed (outer.h)
  const SearchEnv *env;
  const struct Outer *outer; // the assumptions, or NULL
  Arena *scratch;
  const Cluster *c;
  Transitions *prices, *joined; // joined: with collectives that have no start latency
  const int *axis;              // the searched axes
  int n_axes;
  bool sums;      // partial sums may be passed on or kept
  bool routed;    // comm takes the cheapest routes over the cluster, not one axis after the other
  int64_t slices; // time slices
  int64_t memory; // bytes of a rank; SOLVER_NO_LIMIT: any
  double unit;    // seconds per unit of cost
  double least;   // lower bound of the seconds of a step
  SolverOptions options;
  const struct Lives *lives; // lives.h; NULL: the values in memory are unknown
  const struct Timed *timed; // microbatch_cut.h; NULL: no time axis
  Repeats *repeats;
  int64_t *norm;   // cost of reducing the norm over axes, by their bits, once per step
  double bucket;   // bytes of a bucket of bucket_grads, at most those of all gradients
  double exposed;  // the exposed part of gradient reductions: overlap.c
  bool late_hides; // whether late reductions are hidden
  Op **model_op;   // by op id: the op of the model with this gradient, or NULL
  // By op id, the letter of that op for each letter of this one; -1: unknown.
  int8_t **model_letter;
  Op **first_op;      // by op id, of the model: the first op like it, which has the node
  bool *has_gradient; // by value id
  // By op id, of the model: the ops of a sub-space, those that it decides and those that are
  // decided; NULL: all.  Other ops have no node, and values between them and these have no cost.
  bool *inside;
  bool *late; // by op id, of the model: only outputs depend on it
  Vec(Node) nodes;
  int *op_node, *value_node, *shared_node; // by op and value id: an index into nodes, or -1
  Vec(Pair) pairs;
  int *first_pair;     // by node: its first edge, an index + 1
  struct Known *known; // cached prices
  int n_known, known_size;
} Problem;

// Returns the same problem under other constraints, without nodes and edges.
Problem problem_about(const Problem *p, const Sharding *s);
void nodes_make(Problem *p);
void edges_make(Problem *p);
// Whether a use is by an op of the model, in the sub-space if there is one.
static inline bool use_counts(const Problem *p, const Use *u) {
  return u->user && op_part(u->user) == PART_forward && (!p->inside || p->inside[u->user->id]);
}
// Makes both. False if a node has no choice at all, which the solver does not accept.
bool choices_make(Problem *p);

// Returns the edge from a value's producer, or its shared node, to a reader, an op of the model;
// with `reader` NULL, the edge from the producer to the shared node. NULL: there is none.
const Pair *pair_between(const Problem *p, const Value *v, const Use *reader);
// Returns the cost matrix of an edge for the solver.
int64_t *pair_cost(const Problem *p, const Pair *e);

#endif
