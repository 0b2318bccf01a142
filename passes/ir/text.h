// What print.c and parse.c must agree on beyond the grammar: numbers that read back exactly, and
// locations as comments.

#ifndef IR_TEXT_H
#define IR_TEXT_H

#include "ir/graph.h"

enum { MAX_LISTED = 64 }; // typed bytes with at most so many elements print as [1,2,3]

// As a graph's text names it: "%h", or "%12" of a value without a name.
const char *value_name(Arena *a, const Value *v);
// "0-3,8"
const char *device_list(Arena *a, const int *device, int n);

// The shortest text that float_read turns into the same bits: 0.1, 1e-05, -inf, nan.
const char *float_text(Arena *a, double x);

// The elements of `n` bytes of type `t` as [1,2.5]; NULL when they had better print as x"…".
const char *elements_text(Arena *a, DType t, const void *at, int64_t n);
// One element from its text, into dtype_bytes[t] bytes; false when it is none, or out of range.
bool element_read(DType t, const char *text, void *to);

// What stands behind `name=` of an attribute of `op`.
const char *attr_text(Arena *a, const Op *op, const Attr *attr);

// "mlp.onnx:/fc1/MatMul", or of something derived "? <- gradient mlp.onnx:/fc1/MatMul".
// An unknown one is "?".  loc_read is false when the comment is not of this form.
const char *loc_comment(Arena *a, const Loc *loc);
bool loc_read(Arena *a, const char *comment, const Loc **loc);

#endif
