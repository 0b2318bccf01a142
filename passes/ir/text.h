// Conventions of print.c and parse.c beyond the grammar: numbers that read back exactly, and
// locations as comments.

#ifndef IR_TEXT_H
#define IR_TEXT_H

#include "ir/graph.h"

enum { MAX_LISTED = 64 }; // typed bytes with at most this many elements print as [1,2,3]

// The name in the text of the graph: "%h", or "%12" of a value without a name.
const char *value_name(Arena *a, const Value *v);
// "0-3,8"
const char *device_list(Arena *a, const int *device, int n);

// The shortest text that float_read turns into the same bits: 0.1, 1e-05, -inf, nan.
const char *float_text(Arena *a, double x);

// The elements of `n` bytes of type `t` as [1,2.5]; NULL if they should print as x"…".
const char *elements_text(Arena *a, DType t, const void *at, int64_t n);
// Parses one element into dtype_bytes[t] bytes; false if the text is not a number, or out of range.
bool element_read(DType t, const char *text, void *to);

// The text after `name=` of an attribute of `op`.
const char *attr_text(Arena *a, const Op *op, const Attr *attr);

// "mlp.onnx:/fc1/MatMul", or if derived "? <- gradient mlp.onnx:/fc1/MatMul".  An unknown location
// is "?".  loc_read returns false if the comment does not have this form.
const char *loc_comment(Arena *a, const Loc *loc);
bool loc_read(Arena *a, const char *comment, const Loc **loc);

#endif
