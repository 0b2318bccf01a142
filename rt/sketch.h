// Sketches: a few numbers from which the distance of two arrays is estimated, without the arrays.
//
// A sketch adds each element, or its negative, to one of its sums.  Hashes of the element's index
// choose the sum and the sign, the same on all ranks:
//
//     x                    3    1    4    1    5        s[hash(i)] += sign(i) * x[i]
//     sums of 3            4-1       3-1       5
//
// The sketch of x - y is the difference of theirs, and the square of its norm estimates that of
// x - y: every element counts with its square, and products of two elements in one sum have random
// signs, so they cancel on average.  With 256 sums the standard deviation of the norm is 4 % at
// most; a difference in one element is exact.  An array with a value that is not finite has such a
// sketch.  (Charikar, Chen and Farach-Colton, "Finding Frequent Items in Data Streams", 2002.)

#ifndef NNRT_SKETCH_H
#define NNRT_SKETCH_H

#include "nnrt.h"

enum { SKETCH = 256 };

// Adds the elements first .. first + n - 1 of an array, which are at `at`.
void nnrt_sketch_add(double s[SKETCH], NnrtDtype type, const void *at, int64_t first, int64_t n);
// Returns the estimate of |x - y|^2 from the sketches of x and y; not finite if one is not.  y
// NULL: of |x|^2.
double nnrt_sketch_square(const double x[SKETCH], const double y[SKETCH]);

#endif
