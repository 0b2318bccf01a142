// The declared inputs of a model's graph, for onnx_shape.c and onnx_batch.c.

#ifndef ONNX_SHAPE_H
#define ONNX_SHAPE_H

#include "frontend/onnx_walk.h"

typedef Onnx__TensorShapeProto__Dimension Dimension;

typedef struct Shapes {
  Import *im;
  const Onnx__ValueInfoProto **input;
  int n;
  const char *batch;      // the symbol of the batch dimension, or NULL
  NameMap at_0;           // the symbols on axis 0
  const Dimension *first; // of axis 0: the first symbolic one, else the first
  bool *dim_used;         // of the options' dims
} Shapes;

size_t input_ndim(const Onnx__ValueInfoProto *input); // 0 without a tensor type or a shape
const Dimension *input_dim(const Onnx__ValueInfoProto *input, size_t axis);
bool dim_is_fixed(const Dimension *dim);
const char *dim_symbol(const Dimension *dim); // "" without one
const Loc *input_loc(const Shapes *s, const Onnx__ValueInfoProto *input);

int dim_option(const Shapes *s, const char *name);    // the last --dim NAME=SIZE, or -1
int64_t dim_option_size(const Shapes *s, int option); // its SIZE, or -1
void hint_at_symbols(const Shapes *s);                // lists the symbols of the inputs

// onnx_batch.c: the symbol of the batch, or NULL; the batch dimension of input `i`, or -1; whether
// an unbound dimension is the batch; whether --batch would bind some dimension; and contradictions
// among the options about the batch.
const char *batch_symbol(const Shapes *s);
int input_batch(const Shapes *s, int i);
bool dim_is_batch(const Shapes *s, const char *symbol, size_t axis);
bool takes_batch(const Shapes *s);
bool check_batch(const Shapes *s);

#endif
