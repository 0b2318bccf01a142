// The seconds that products of a step take at least, on each rank of a stage.
//
//     GPT-3 175B, 1,024 H200s, 16 stages of 64 ranks, 32 micro-batches
//         a product    max(its part of the flops at the speed of its size,
//                          the bytes of its part of the weights)  + the start of its kernel
//         loop         all of them, in all micro-batches
//         step         the loop on 16 stages that wait for each other
//
// Every plan computes each product, and a rank of its stage has its part of rows and weights at
// least. Products are those of weights and of attention (step_work.h); other kernels are left out.
//
// A bound of stages, for all deals of products to them. Stage s has its own products in all
// micro-batches, w_s, after the first forward of stages before it, and then its sums and updates:
//
//     T >= f_0 + … + f_(s-1) + w_s + a_s
//
// A mean of these with weights l_s is a bound as well, and least if each product is where
// l_s w + (l_(s+1) + …) f  is least. Weights in a geometric series,  l_s ~ (1-r)^(p-1-s), make
// these equal for products with f/w = r, as those of most models are: then T >= f / (1 - (1-r)^p),
// if f are the forwards of all.
//
// It takes products in series, each of which depends on all before it, so that stages do. Others
// (products of one input, or branches) count for w, not for f. A stage without any in series has no
// more than one group of others, between two in series; then fewer stages have the rest.
//
// If all products are in series, their best deal to stages is a bound, too: products are whole.
// With one forward and one backward (1f1b), earlier stages also do their backwards after those of a
// stage.

#ifndef LEAST_WORK_H
#define LEAST_WORK_H

#include "point.h"
#include "step_work.h"

typedef struct LeastWork {
  double loop; // seconds of all micro-batches, if one stage did all
  double step; // of the whole step; its `after` seconds too are those of one stage that has all
} LeastWork;

LeastWork least_work(const StepWork *w, const Cluster *c, const Point *p, double after);

// The part of the seconds of the loop, if one stage did all of it, that a step in stages takes at
// least, whatever the units are. 1 / stages unless products are in series.
double chain_share(const StepWork *w, const Point *p);

#endif
