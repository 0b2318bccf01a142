// Elements of images at computed points.
//
// Points are values, so their elements are looked up by gather.  Along each dimension of the image
// a point has taps: positions and weights.  All combinations of taps of all dimensions are one
// index into the flattened image, and the result is a weighted sum:
//
//     image (n, d, c)   index (n, taps, p)   ->   gather (n, taps, p, c) * weight, summed over taps
//
// Gradients are those of gather, of the weights, and of the points that the weights come from.

#ifndef FRONTEND_ONNX_TAPS_H
#define FRONTEND_ONNX_TAPS_H

#include "frontend/onnx_node.h"

enum { MAX_TAPS = 4 };

// The taps of points along one dimension of an image.
typedef struct Taps {
  int n;
  Value *at[MAX_TAPS];     // i64, in range
  Value *weight[MAX_TAPS]; // of x's type
} Taps;

// Returns the type of constants that are computed during the import and then cast to that of `t`.
DType taps_constant_type(const Type *t);
// Converts a position, a whole number of a floating type, to an index.  A NaN becomes any element.
Value *taps_index(Node *n, Value *at, int64_t length);
// The two taps of each position for linear interpolation, with zeros outside of the image.
void taps_linear(Node *n, Value *at, int64_t length, Taps *out);
// The combinations of the taps of `n_axes` axes, of the image's lengths `dim`: their indices into
// the flattened image and their weights, stacked along a new dimension `place`.  The values of an
// axis are broadcast with the others.
bool taps_combine(Node *n, const Taps *axis, const int64_t *dim, int n_axes, int place,
                  Value **index, Value **weight);
// Returns an image (n, c, spatial) as (n, elements, c).
Value *taps_image(Node *n, Value *x);
// Multiplies the elements (…, c) that an index (…) selected by their weights (…).
Value *taps_weighted(Node *n, Value *x, Value *weight);

#endif
