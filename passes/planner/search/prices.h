// What choices cost: kernels, updates of weights and what moves values, in seconds and in the
// problem's unit.

#ifndef SEARCH_PRICES_H
#define SEARCH_PRICES_H

#include "ir/analysis/work.h"
#include "problem.h"

// The work of an op's kernel as one device has it, and seconds of it as the op splits now.
OpWork kernel_work(const Problem *p, const Op *op);
double kernel_seconds(const Problem *p, const Op *op, const OpWork *work);
// Of all that it does in a step, on one device.
double whole_seconds(const Problem *p, const Op *op);
// The costs of an op's kernels; those of its gradient's ops, in order, are added.
void price_op(const Problem *p, Node *n);
void price_gradients(const Problem *p, Node *n, Op *const *gradient, int count);
// Of a weight's update; and of the norm, of which several may share each cost.
void price_weight(Problem *p, Node *n);
void price_norms(Problem *p);

// How a value is moved: all of it at once; with others, axis by axis, so that it takes no time to
// start; or each slice of time by itself.
typedef enum Moves { AT_ONCE, WITH_OTHERS, BY_SLICE } Moves;

// Seconds from one layout to another; infinite where comm has no route.
double price(Problem *p, const Type *whole, const Layout *from, const Layout *to, Moves moves);
int64_t cost_of(const Problem *p, double seconds);
int64_t times_cost(int64_t cost, int n); // infinite ones stay so

#endif
