// Gradients of one op in double, by its row and by central differences:
//
//     L = sum over a result of y * r          dL/dx = (L(x + h) - L(x - h)) / 2h

#ifndef TESTS_OPS_GRADIENTS_H
#define TESTS_OPS_GRADIENTS_H

#include "harness.h"

// Computes dL/dx of every operand by the row's gradient, in `din`, for r on result `result`; `data`
// is NULL for operands without one.  Returns false, with a message, if the row refuses.
bool gradients_by_row(const Op *op, int result, const Tensor *in, const Tensor *r, Tensor *din,
                      Arena *a, Diag *d);

// Returns dL/dx of one floating operand by differences; by definition zero for detach, and r for
// narrow.
Tensor gradient_by_differences(const Op *op, int result, int operand, const Tensor *in,
                               const Tensor *r, Arena *a, Diag *d);

#endif
