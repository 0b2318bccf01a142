// Parts that operators of ai.onnx.ml share: rows of features, scores, and labels of classes.

#ifndef FRONTEND_ONNX_OPS_ML_H
#define FRONTEND_ONNX_OPS_ML_H

#include "frontend/onnx_node.h"

// Returns operand 0 as a matrix of floating-point numbers; NULL after a report.
Value *ml_rows(Node *n);
// Applies a post_transform, "SOFTMAX", to scores, a row for each sample.
Value *ml_transformed(Node *n, Value *x, const char *how);

// The labels of a classifier's classes.
typedef struct Labels {
  int n;
  bool strings;      // they are, and `at` is NULL
  const int64_t *at; // [n]
} Labels;

// Reads them.  False after a report: there are none, or strings are wanted as result 0.
bool ml_labels(Node *n, const char *integers, const char *strings, Labels *out);
// Returns the label of the largest score of each row; NULL for strings.
Value *ml_label(Node *n, const Labels *labels, Value *scores);

#endif
