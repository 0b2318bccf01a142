// Strings of a model, as numbers.
//
//     ["cat", "dog", "cat"]      =>   i64[3]  0, 1, 0        and the list "cat", "dog"
//
// The IR has no strings.  A tensor of strings is a tensor of their numbers in a list that grows
// while the model is read: equal strings have one number.  Operators that move elements, compare
// them or look them up work on the numbers as on any i64, also when a program runs.  Operators on
// the text (StringConcat) need strings that are known at compile time.  The element type STRING of
// a Binding tells such a tensor from one of numbers.

#ifndef FRONTEND_ONNX_STRINGS_H
#define FRONTEND_ONNX_STRINGS_H

#include "base/vec.h"
#include "frontend/onnx_names.h"
#include "ir/op.h"

typedef struct OnnxStrings {
  Arena *arena;
  NameMap numbers;
  Vec(const char *) at;
} OnnxStrings;

OnnxStrings onnx_strings_new(Arena *a);
// Returns the number of a string, which it adds to the list.
int64_t onnx_string_number(OnnxStrings *s, const char *text);

#endif
