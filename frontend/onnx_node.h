// One node of the model, for the functions that import ops.
//
//     // y = x, with dimensions of length 1 put in
//     bool import_unsqueeze(Node *n) {
//       Ints axes;
//       if (!node_axes(n, &axes)) return false;      // it has reported why
//       …
//       n->out[0] = build_reshape(n->b, n->in[0], ndim, dim);
//       return true;
//     }
//
// Operands are IR values of known types.  Values that an op needs at compile time (a shape, axes, a
// ratio) come from node_known and similar functions: every op with known operands is evaluated as
// it is imported, so the value is known if the exporter's shape arithmetic depends only on shapes
// and constants.

#ifndef FRONTEND_ONNX_NODE_H
#define FRONTEND_ONNX_NODE_H

#include "ir/build.h"
#include "ir/op.h"

#include "onnx.pb-c.h"

// A list of tensors, as the result of SplitToSequence, or an optional without a value.  Its length
// is known, and it exists only during the import: the IR has only the tensors.  An optional with a
// value is that value.
typedef struct Sequence {
  int n;
  Value *const *at; // [n]
  bool is_absent;
} Sequence;

// The dimension `axis` of a value has a length that depends on data: `count`, an i64 scalar.  The
// value's dimension is the bound; elements from the count on are padding.
typedef struct Counted {
  Value *count; // NULL: every length is fixed
  int axis;
  int64_t bound;
} Counted;

// An entry of a shape: a number, or the bound of a count.
typedef struct Length {
  int64_t number;
  Value *count; // NULL: known
} Length;

// The reason that an initializer is trained, frozen or a constant: rows of `reasons` in
// onnx_parameters.c.
typedef enum OnnxWhy {
  WHY_plain,
  WHY_parameter,
  WHY_buffer,
  WHY_frozen,
  WHY_folded,
  WHY_tied,
  WHY_number,
  WHY_integer,
  WHY_narrow,
  WHY_scalar,
  WHY_made_up,
  WHY_not_finite,
  WHY_statistic,
  WHY_class_weights,
  WHY_epsilon,
  WHY_image,
  WHY_quantizes,
  WHY_state,
  WHY_asked,
} OnnxWhy;

// What an attribute is read as.
typedef enum NodeRead {
  READ_int = 1,
  READ_float = 2,
  READ_text = 4,
  READ_ints = 8,
  READ_any = 16, // its reader looks at its type
} NodeRead;

typedef struct Node {
  const char *op; // "MatMul"
  int opset;      // of its domain
  int index;      // in the order of import, from 0
  OpKind kind;    // the op in a UNARY or BINARY row
  int n_in, n_out;
  Value **in;  // [n_in]; NULL if omitted, or a sequence
  Value **out; // [n_out]; to be set, at least those with node_wants
  const Sequence **in_sequence, **out_sequence; // the same; NULL for a tensor
  // [n_out] element types as in Binding, ONNX_STRING among them; NARROW_as_operand: that of the
  // first operand with one, if the result has its type in the module.
  int *out_narrow;
  Builder *b; // appends to the graph, at the node's location
  Arena *a;   // scratch
  const Onnx__NodeProto *proto;
  NodeRead *read; // by attribute: the types as which the import function has read it
  struct Scope *scope;
  struct Import *im;
} Node;

enum { NARROW_as_operand = -1 };

typedef bool ImportFn(Node *n);

#define ONNX(name, since, least, most, import)     ImportFn import_##import;
#define SEQUENCE(name, since, least, most, import) ImportFn import_##import;
#define ML(name, since, least, most, import)       ImportFn import_##import;
#define TRAINING(name, least, most, import)        ImportFn import_##import;
#define PREVIEW(name, least, most, import)         ImportFn import_##import;
#define MICROSOFT(name, least, most, import)       ImportFn import_##import;
#include "frontend/onnx_ops.def"

// onnx_parameters.c: whether the model's metadata calls the weight the table of an nn.Embedding.
bool node_of_embedding(const Node *n, const Value *table);
// onnx_parameters.c: reads the padding row of a weight used as a table, if the model's metadata has
// it.
bool node_padding_row(const Node *n, const Value *table, int64_t *row);

// Reports that the node cannot be compiled, and returns false.  Nodes with the same message are
// reported together.
bool node_fail(Node *n, const char *fmt, ...) PRINTF_LIKE(2, 3);
// The same for another kind of problem than PROBLEM_form.  Hint NULL: the way out of its row.
bool node_fail_as(Node *n, ProblemKind kind, const char *hint, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
// The same with a hint.
bool node_fail_hint(Node *n, const char *hint, const char *fmt, ...) PRINTF_LIKE(3, 4);

// -- Attributes --------------------------------------------------------------------------------

typedef struct Ints {
  int n;
  const int64_t *at;
} Ints;

// Returns NULL if the node lacks it; in the body of a function, references to attributes of the
// call are resolved.
const Onnx__AttributeProto *node_attr(const Node *n, const char *name);
// Reports an attribute that the import function has not read: newer than it, or misspelled.
bool node_check_attributes(Node *n);
int64_t node_int(const Node *n, const char *name, int64_t otherwise);
double node_float(const Node *n, const char *name, double otherwise);
const char *node_str(const Node *n, const char *name, const char *otherwise);
bool node_list(const Node *n, const char *name, Ints *out); // false if it is missing

// Reads the tensor of an attribute.  False after a report.
bool node_tensor(Node *n, const Onnx__TensorProto *proto, Tensor *out);

typedef struct Floats {
  int n;
  const double *at;
} Floats;

// Reads a list of floats, or, in newer opsets, the tensor in attribute NAME_as_tensor, or NAME
// itself; empty if the node lacks all of them.  False after a report.
bool node_floats(Node *n, const char *name, Floats *out);

// -- PyTorch's call (onnx_torch.c) -------------------------------------------------------------

// Whether an exporter of PyTorch wrote the model.
bool node_by_torch(const Node *n);
// Whether the node comes from a call of a function named like `function`, such as "aten.embedding",
// according to PyTorch's exporter.
bool node_from_torch(const Node *n, const char *function);
// Returns the text of positional argument `i` of that call; NULL if there is no call or no such
// argument.
const char *node_torch_arg(const Node *n, int i);

// -- Operands ----------------------------------------------------------------------------------

Value *node_in(const Node *n, int i);    // NULL if omitted or beyond the last
bool node_wants(const Node *n, int out); // the result has a reader
int node_narrow(const Node *n, int i);   // its element type in the model, as in Binding
// Freezes the operand for this reason, unless PyTorch's exporter or the user calls it a parameter.
void node_keep(Node *n, int i, OnnxWhy why);
int node_ndim(const Node *n, int i);

// Returns the value's contents, or NULL if they depend on inputs or weights.
const Tensor *node_known(const Node *n, const Value *v);
// The same for a setting of the op, also for an initializer that is a weight for other readers.
// `what` names it in the error; false after a report.
bool node_setting(Node *n, int i, const char *what, const Tensor **out);
bool node_setting_float(Node *n, int i, const char *what, double otherwise, double *out);
bool node_setting_int(Node *n, int i, const char *what, int64_t otherwise, int64_t *out);
// Reads integers of operand `i`, or of the attribute that older opsets have instead; `given` is
// false without either.
bool node_ints(Node *n, int i, const char *what, Ints *out, bool *given);

// -- Strings (onnx_strings.c) ------------------------------------------------------------------

typedef struct NodeStrings {
  const Type *type;
  int64_t n;
  const char *const *at; // [n]
} NodeStrings;

bool node_is_string(const Node *n, int i); // operand i is a tensor of numbers of strings
// Reads operand i, which must be known at compile time.  `what` names it in the error.
bool node_strings(Node *n, int i, const char *what, NodeStrings *out);
// Returns a constant of strings: their numbers.  The caller sets out_narrow.
Value *node_strings_value(Node *n, int ndim, const int64_t *dim, const char *const *at);
// Reads an attribute, as numbers of strings; false if it is missing or empty, or after a report.
bool node_string_list(Node *n, const char *name, Ints *out);

// -- Shapes ------------------------------------------------------------------------------------

// Converts an axis of a tensor of `ndim` dimensions to a nonnegative one; reports it if out of
// range.
bool node_axis(Node *n, int64_t axis, int ndim, int *out);
// Checks ndim and size of a shape that the model requests.
bool node_shape(Node *n, int ndim, const int64_t *dim);
// Checks that `count` elements are few enough to be computed at compile time.
bool node_small(Node *n, int64_t count);
// Returns 0, 1, 2 … as an i64 vector; NULL, with a report, if it is too long.
Value *node_count_up(Node *n, int64_t count);
// Sets the shape of the operands broadcast by numpy's rules.
bool node_broadcast_shape(Node *n, Value *const *in, int n_in, int *ndim, int64_t *dim);
// The same, and broadcasts the operands to it.
bool node_broadcast(Node *n, Value **in, int n_in);

Value *node_scalar(Node *n, DType dtype, double x);  // a fill
Value *node_like(Node *n, const Value *v, double x); // a fill of its type
Value *node_numbers(Node *n, DType dtype, int ndim, const int64_t *dim, const double *at);
Value *node_ints_value(Node *n, const int64_t *at, int count); // an i64 vector
// Returns `length` elements along `axis` from `start`, and all along the other axes.  NULL for
// NULL.
Value *node_part(Node *n, Value *x, int axis, int64_t start, int64_t length);
Value *node_unary(Node *n, OpKind kind, Value *x);
// Returns x as the graph in the attribute changes it, with its type; x itself without the
// attribute.
Value *node_modified(Node *n, const char *attribute, Value *x);
// Converts x to a type of the model, TensorProto.DataType.
Value *node_cast_to(Node *n, Value *x, int data_type);
Value *node_binary(Node *n, OpKind kind, Value *x, Value *y); // broadcasts; NULL gives NULL
static inline Value *node_add(Node *n, Value *x, Value *y) {
  return node_binary(n, OP_add, x, y);
}
static inline Value *node_sub(Node *n, Value *x, Value *y) {
  return node_binary(n, OP_sub, x, y);
}
static inline Value *node_mul(Node *n, Value *x, Value *y) {
  return node_binary(n, OP_mul, x, y);
}
static inline Value *node_div(Node *n, Value *x, Value *y) {
  return node_binary(n, OP_div, x, y);
}
Value *node_offset(Node *n, Value *x, double by);
Value *node_clip(Node *n, Value *x, double low, double high);
Value *node_between(Node *n, Value *x, double low, double high); // low <= x <= high
Value *node_cast(Node *n, Value *x, DType to); // to bool, everything but zero is true
Value *node_mean(Node *n, Value *x, const int64_t *axes, int n_axes, bool keep);

// The axes of a reduction (onnx_ops_reduce.c), from its attribute or operand; false after a report.
bool node_reduced(Node *n, bool *reduces, bool *keep);
double node_extreme(DType dtype, bool high); // the lowest value of a type, or the highest

// -- Lengths that depend on data (onnx_counted.c) ----------------------------------------------

const Counted *node_counted(const Node *n, const Value *v); // NULL: every length is fixed
bool node_count(Node *n, Value *v, int axis, Value *count); // false after a report
// Returns the smaller one of `most` and the --bound for this node.
int64_t node_bound(Node *n, int64_t most);
// Reads element `at` of v, in shape arithmetic; false if it is neither known nor a count.
bool node_length(const Node *n, const Value *v, int64_t at, Length *out);
// Whether two values are the same ops of the same values.
bool node_same(const Value *x, const Value *y);
// The indices of a NonZero as indices into its operand flattened.
typedef struct Selection {
  const Value *result, *x; // of the NonZero
  Value *index;
} Selection;
// Returns the NonZero that index tuples (n, components) come from; NULL: none.
const Selection *node_selection(const Node *n, const Value *tuples);
// Returns the operand of the reshapes that end in v.
const Value *node_unreshaped(const Value *v);
// The same as node_ints, of a list that may have one count: its bound, with *count and its place.
bool node_lengths(Node *n, int i, const char *what, Ints *out, Value **count, int *place);
// Returns v as a result with this count: a slice of it if the count is known.
Value *node_counted_result(Node *n, Value *v, int axis, Value *count);
// Whether elements of a tensor of type t are before the count, as a bool tensor of its dimensions.
Value *node_valid(Node *n, const Counted *c, const Type *t);
// Returns x with `by` in its padding; x itself if it has none.
Value *node_pad_with(Node *n, Value *x, double by);

// -- Lookup (onnx_ops_lookup.c) ----------------------------------------------------------------

// Indices of -n to -1 count from the end of `length`.
Value *node_not_negative(Node *n, Value *index, int64_t length);
// Returns whether an index from the start is out of range, or `outside` is true, which may be NULL.
Value *node_outside(Node *n, Value *outside, Value *index, int64_t length);
// Returns x with its dimensions from `batch` to before `end` as one: a table for each of the batch.
Value *node_tables(Node *n, Value *x, int batch, int end);

// The index tuples of operand 1, in its last dimension, as indices into dimensions `batch` to
// before `end` of operand 0, flattened.
typedef struct Tuples {
  int64_t batch; // the dimensions that both share; more, if a component counts along one
  int end;
  Value *flat;
} Tuples;
bool node_tuples(Node *n, Tuples *io_tuples); // given the batch; false after a report

static inline int64_t product(const int64_t *dim, int from, int to) {
  int64_t count = 1;
  for (int i = from; i < to; i++)
    count *= dim[i];
  return count;
}

#endif
