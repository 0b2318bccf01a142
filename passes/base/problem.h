// The kinds of problems, from problems.def, and lists of problems that are reported together.
//
//     m.onnx:/image: error: ImageDecoder is not supported (17 nodes) [NN101]
//     m.onnx:/image: note: ImageDecoder, opset 20, of u8[4096]
//     m.onnx:/image_1: note: ImageDecoder, opset 20, of u8[4096]
//     m.onnx:/image_2: note: ImageDecoder, opset 20, of u8[4096]
//     note: … and 14 more
//     hint: …
//
// Problems with one cause are one error, with at most three of its places; diag_record keeps all.

#ifndef BASE_PROBLEM_H
#define BASE_PROBLEM_H

#include "base/diag.h"
#include "base/vec.h"

typedef struct ModelProblem {
  ProblemKind kind;
  const Loc *loc;
  const char *cause, *hint; // hint NULL: none
  const char *detail;       // of this place: "Gemm, opset 13, of f32[8,16]"; or NULL
  const char *op, *domain;  // operator of the model; op NULL: none
  int opset;                // 0: unknown
} ModelProblem;

typedef struct ProblemList {
  Arena *arena;
  Vec(ModelProblem) all;
} ProblemList;

void problem_add(ProblemList *list, ModelProblem p);
// Reports the problems from index `from` on.  False if there are any.
bool problems_report(const ProblemList *list, int from, Diag *d);

#endif
