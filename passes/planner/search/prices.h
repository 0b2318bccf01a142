// Costs of choices: kernels, updates of weights and transfers, in seconds and in the problem's
// unit.

#ifndef SEARCH_PRICES_H
#define SEARCH_PRICES_H

#include "ir/analysis/work.h"
#include "problem.h"

// The work of an op's kernel on a single device, and its seconds under the current split.
OpWork kernel_work(const Problem *p, const Op *op);
double kernel_seconds(const Problem *p, const Op *op, const OpWork *work);
// Seconds of all runs of the op in a step, on a single device.
double whole_seconds(const Problem *p, const Op *op);
// Set the cost of an op's kernels, and add the cost of its gradient's ops, given in order.
void price_op(const Problem *p, Node *n);
void price_gradients(const Problem *p, Node *n, Op *const *gradient, int count);
// Add the cost of a weight's update, and set the costs of the norm, each shared by several weights.
void price_weight(Problem *p, Node *n);
void price_norms(Problem *p);

// A transfer of a value: all of it at once; in a bucket, axis by axis, without start latency; or
// one transfer per time slice.
typedef enum Moves { AT_ONCE, WITH_OTHERS, BY_SLICE } Moves;

// Seconds of a reshard; infinite if comm has no route.
double reshard_seconds(Problem *p, const Type *whole, const Layout *from, const Layout *to,
                       Moves moves);
int64_t cost_of(const Problem *p, double seconds);
int64_t times_cost(int64_t cost, int n); // infinite costs stay infinite

#endif
