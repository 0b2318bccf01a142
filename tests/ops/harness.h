// Shared by the tests of the op table: instances of rows read from text, numbers for their
// operands, and functions that split, join and compare tensors.

#ifndef TESTS_OPS_HARNESS_H
#define TESTS_OPS_HARNESS_H

#include "ir/dims.h"
#include "ir/op.h"

// A pseudorandom sequence; a seed gives the same sequence on every machine.
typedef struct Random {
  uint64_t state;
} Random;

uint64_t random_next(Random *r);
double random_unit(Random *r); // in [0, 1)

typedef struct Example {
  const Op *op; // the only op of its graph
  Module *module;
} Example;

typedef struct Examples {
  Example *at;
  int n;
  Module **modules;
  int n_modules;
} Examples;

// Reads all graphs of the files; ends the program on an error.
Examples examples_read(char **paths, int n_paths, Arena *a, Diag *d);
void examples_free(Examples *all);

// Returns a copy of the op alone in a graph of `m`, with parameters of these types for operands.
// NULL, with a message, if they do not fit.
Op *op_alone(Module *m, const Op *op, const Type *const *in, Diag *d);

// The dimension that has the letter as one of its factors, or -1.
int term_dim(const Term *t, int letter);
// The same for a part of `op`: its letter is split in `n`.
Op *op_cut_alone(Module *m, const Op *op, const Dims *dims, int letter, int n, Diag *d);

// Like op_alone, with every floating type made f64; `op` itself if it holds typed bytes.
Op *op_double(Module *m, const Op *op, Diag *d);

// Returns operands of `e.op`, in the types of `op`: as specified by the example's parameters (see
// examples.nn), otherwise from -1 to 1.  Floating ones are a shuffled grid over all operands, so
// that no two are near each other, nor near 0.
Tensor *operands_new(const Example *e, const Op *op, Random *r, Arena *a);

// reference_new returns the results of the reference of `op`, or NULL if it fails; `box` is of
// op_boxed if there is one; NULL: the whole.  box_new returns a box for op_boxed that covers all.
Box box_new(const Op *op);
Tensor *reference_new(const Op *op, const Tensor *in, const Box *box, Arena *a, Diag *d);

// Evaluates a graph by its references; `values`, by id, holds the parameters.
bool graph_run(const Graph *g, Tensor *values, Arena *a, Diag *d);

Tensor tensor_copy(const Tensor *t, Arena *a);
// Returns elements `from` to `to` along `dim`.
Tensor tensor_interval(const Tensor *t, Module *m, int dim, int64_t from, int64_t to, Arena *a);
// Returns part `i` of `n` equal parts along `dim`.
Tensor tensor_part(const Tensor *t, Module *m, int dim, int i, int n, Arena *a);
Tensor tensor_concat(const Tensor *t, const Tensor *u, Module *m, int dim, Arena *a);
Tensor tensor_sum(const Tensor *t, const Tensor *u, Arena *a);
bool tensor_floats(const Tensor *t);

// Returns |t - u| / |u| over all elements, |t - u| if |u| is 0; integers count as numbers.
// Infinite if only one is NaN or infinities differ; two NaN are not equal either.
double tensor_distance(const Tensor *t, const Tensor *u);

#endif
