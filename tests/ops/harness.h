// What the tests of the op table share: instances of rows read from text, numbers for their
// operands, and tensors cut, joined and compared.

#ifndef TESTS_OPS_HARNESS_H
#define TESTS_OPS_HARNESS_H

#include "ir/op.h"

// A sequence of random numbers; the same seed gives the same ones everywhere.
typedef struct Random {
  uint64_t state;
} Random;

uint64_t random_next(Random *r);
double random_unit(Random *r); // from 0 up to 1

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

// All graphs of the files; ends the program when one cannot be read.
Examples examples_read(char **paths, int n_paths, Arena *a, Diag *d);
void examples_free(Examples *all);

// The op alone in a graph of `m`, with parameters of these types for operands.  NULL, having
// reported why, when they do not fit.
Op *op_alone(Module *m, const Op *op, const Type *const *in, Diag *d);

// The same, a part of `op`: its letter is cut in `n`.
Op *op_cut_alone(Module *m, const Op *op, const Dims *dims, int letter, int n, Diag *d);

// The same as op_alone with every floating type made f64; `op` itself when it holds typed bytes.
Op *op_double(Module *m, const Op *op, Diag *d);

// Numbers for the operands of `e.op`, in the types of `op`: as the parameters of the example say
// (see examples.nn), otherwise from -1 to 1.  Floating ones are a shuffled grid over all operands,
// so that no two are near each other, nor near 0.
Tensor *operands_new(const Example *e, const Op *op, Random *r, Arena *a);

// The reference of `op`; `box` is of op_boxed if there is one; NULL: the whole.  NULL when it
// fails. A box for op_boxed: all of it.
Box box_new(const Op *op);
Tensor *reference_new(const Op *op, const Tensor *in, const Box *box, Arena *a, Diag *d);

// The values of a graph by their references, by id: `values` holds those of its parameters.
bool graph_run(const Graph *g, Tensor *values, Arena *a, Diag *d);

Tensor tensor_copy(const Tensor *t, Arena *a);
// Part `i` of `n` equal ones along `dim`.
Tensor tensor_part(const Tensor *t, Module *m, int dim, int i, int n, Arena *a);
Tensor tensor_concat(const Tensor *t, const Tensor *u, Module *m, int dim, Arena *a);
Tensor tensor_sum(const Tensor *t, const Tensor *u, Arena *a);
bool tensor_floats(const Tensor *t);

// |t - u| / |u| over all elements, of u when that is 0; integers count as numbers.  Infinite where
// NaN stands against a number or infinities differ; two NaN are not equal either.
double tensor_distance(const Tensor *t, const Tensor *u);

#endif
