// The state of an import, for the files of the importer.  Import functions of ops use onnx_node.h
// instead.

#ifndef FRONTEND_ONNX_WALK_H
#define FRONTEND_ONNX_WALK_H

#include "base/problem.h"
#include "base/vec.h"
#include "frontend/onnx.h"
#include "frontend/onnx_names.h"
#include "frontend/onnx_node.h"
#include "frontend/onnx_read.h"
#include "frontend/onnx_strings.h"
#include "frontend/onnx_weights.h"
#include "ir/analysis/batch_dim.h"
#include "ir/analysis/gradient_path.h"

// The meaning of a name of the model.
typedef struct Binding {
  const char *name;
  Value *v;                      // NULL: a weight without readers so far, or an unavailable value
  const Onnx__TensorProto *init; // of an initializer
  const Sequence *sequence;      // instead of v
  int narrow;    // its element type in the model if onnx_narrow has it or it is STRING, else 0
  bool poisoned; // its producer has been reported
} Binding;

// The names of one graph: the model's, the branch of an If, the body of a function.
typedef struct Scope {
  const struct Scope *outer; // its names are visible too; NULL for the model and for functions
  NameMap names;             // to `bindings`
  Vec(Binding) bindings;
  NameMap read; // names with readers
  // In the body of a function, and in branches in it: the call, which has the attributes, and its
  // scope.
  const Onnx__NodeProto *call;
  const struct Scope *caller;
  const Onnx__FunctionProto *function;
  const char *prefix; // of node names: "/block.0", or ""
  size_t n_opsets;
  Onnx__OperatorSetIdProto **opsets;
} Scope;

// The contents of a value; data is NULL if they are unknown.  `hinted`: if the inputs have the
// values of the options.
typedef struct Known {
  Tensor tensor;
  bool hinted;
} Known;

// A glob of --detach; without a match so far, the name nearest to it.
typedef struct DetachGlob {
  const char *glob, *near;
  int distance;
  bool matched;
} DetachGlob;

typedef struct Import {
  const OnnxOptions *o;
  OnnxFile *file;
  Arena *a; // scratch, gone after the import
  Module *m;
  Graph *g;
  Diag *d;
  ProblemList problems;
  // Errors of op_new and of evaluation are caught, and reported with all other problems.
  Diag *caught;
  FILE *stream;
  char *text;
  size_t text_n, text_seen;
  Vec(Known) known;     // by value id
  Vec(Counted) counted; // by value id: onnx_counted.c
  Vec(Selection) selections;
  bool *bound_used; // of OnnxOptions.bounds
  Vec(DetachGlob) detach;
  Op *last;          // the last op that was evaluated
  const char *batch; // the symbol of the batch dimension, or NULL
  bool batch_moved;  // some input had the batch in another dimension than the first
  NameMap origins;   // to origin_text: see onnx_parameters.c
  const char **origin_text;
  bool has_origins;
  Vec(OnnxWhy) why;         // by weight id
  Vec(Value *) straight;    // by id of a quantized value: see onnx_ops_quantize.c; NULL of others
  NameMap functions;        // "domain:name" to onnx_model(file)->functions
  NameMap constant_weights; // results of Constant nodes that are weights: to the node
  int n_nodes, depth;
  int n_bodies; // bodies of functions, branches and loops imported so far
  // See onnx_stand_in.c.
  NameMap declared;        // names to indices of declared values
  NameMap symbols;         // bound symbols of dimensions, to sizes
  Vec(ValueLink) links;    // from operands of failed nodes to stand-ins for their results
  Vec(bool) stands_in;     // by value id
  struct Devices *devices; // NULL: annotations are not requested
  OnnxStrings *strings;
} Import;

// The function of the model that the node calls: an index of onnx_model(file)->functions, or -1.
int onnx_function(const Import *im, const Onnx__NodeProto *node);
enum { ONNX_INLINE_DEPTH = 64 }; // of functions and branches in one another
// onnx_expand.c: the number of nodes with all functions put in place.
int64_t onnx_expanded_nodes(Import *im);
// onnx_order.c: sets the indices of the nodes that the outputs depend on, in topological order;
// adds the names that they read to `read`.
bool onnx_order(Import *im, Onnx__NodeProto *const *node, size_t n, char *const *output,
                size_t n_output, Scope *scope, int **order, int *n_order);
// Returns the name of a node in messages: its own, or Gemm(y).
const char *onnx_node_name(Arena *a, const Scope *scope, const Onnx__NodeProto *node);

enum { ONNX_STRING = ONNX__TENSOR_PROTO__DATA_TYPE__STRING };

// onnx_strings.c: sets the number of a string, and reads a tensor of strings as i64.  False after a
// report.
bool onnx_string(OnnxStrings *s, ProtobufCBinaryData bytes, const Loc *loc, int64_t *out, Diag *d);
bool onnx_string_tensor(OnnxStrings *s, const Onnx__TensorProto *proto, Module *m, Arena *a,
                        const Loc *loc, Tensor *out, Diag *d);

// onnx_shape.c: the dimensions of all inputs, symbolic ones bound by the options.
typedef struct OnnxInput {
  const char *name;
  const Type *type; // NULL: unbound, which has been reported
  int narrow;       // as of a Binding
  int batch;        // the batch dimension; -1: none
  // Its type if that is a sequence or an optional, and there is a hint; `type` is NULL then.
  const Onnx__TypeProto *other;
} OnnxInput;
bool onnx_inputs(Import *im, OnnxInput *inputs, int *n_inputs);
// Returns the first dimension of an output's declared type that has the batch's symbol, or -1.
int onnx_declared_batch(const Import *im, const Onnx__ValueInfoProto *output, const Type *type);

// onnx_data.c: makes the parameters of such an input, with the types of the values in the file, and
// its binding.  False after a report.
bool onnx_other_input(Import *im, const OnnxInput *input, const char *path, Binding *out);

// onnx_batch_first.c, for OnnxOptions.batch_first: returns the value of a new parameter with the
// dimensions in the model's order; and an output's value with the batch in dimension 0, given its
// position in the model's value.
Value *onnx_input(Import *im, const OnnxInput *input);
Value *onnx_output(Import *im, const Onnx__ValueInfoProto *output, Value *v, BatchDim batch_at);

// onnx_constant_weights.c: weights in Constant nodes of the model's graph.
void onnx_find_constant_weights(Import *im);
// Returns the tensor of such a node; NULL for other nodes.
const Onnx__TensorProto *onnx_constant_weight(const Import *im, const Onnx__NodeProto *node);

// onnx_parameters.c: the class of an initializer, and its reason.
void onnx_read_origins(Import *im);
OnnxWhy onnx_why(Import *im, const char *name, const OnnxTensor *t, const Loc *loc);
bool onnx_is_constant(OnnxWhy why, const OnnxTensor *t);
void onnx_decide(Import *im, Value *v, OnnxWhy why);
OnnxWhy onnx_why_of(const Import *im, const Value *v);
// Whether the name of an initializer is one that an exporter made up.
bool onnx_is_made_up(const char *name);
// Freezes a weight that is trained only by default; ignores any other v.
void onnx_keep(Import *im, Value *v, OnnxWhy why);
// Called after all nodes have been imported.
void onnx_classify_weights(Import *im);

// onnx_torch.c: returns the PyTorch module of the node, "layer1.bn", or NULL.
const char *onnx_module_name(Arena *a, const Onnx__NodeProto *node);
// Whether BatchNormalizations of the model say that it was exported for inference, and no node says
// the opposite.
bool onnx_for_inference(const Import *im);

// onnx_ties.c: warns of weights that an exporter has split from one parameter, or merged into one.
void onnx_warn_of_ties(Import *im);

// onnx_devices.c: multi-device annotations.  A node's are read when it has been imported; all of
// them become the module's at the end.  False after a report.
bool onnx_devices_begin(Import *im);
void onnx_devices_input(Import *im, const Onnx__ValueInfoProto *input, const Type *type);
void onnx_devices_node(Import *im, const Scope *scope, const Onnx__NodeProto *proto,
                       const Loc *loc);
bool onnx_devices_end(Import *im);

// onnx_element_types.c: after the import, computes ops in types that have kernels, and adds those
// without one to the problems.  `whole`: no node has failed, and the graph is tidy.  False after an
// error of another kind.
bool onnx_element_types(Import *im, bool whole);

// onnx_report.c: adds a problem, of a node or of another part of the model.  hint NULL: none.
void onnx_problem(Import *im, ProblemKind kind, const Loc *loc, const char *cause,
                  const char *hint);
void onnx_node_problem(Import *im, ProblemKind kind, const Scope *scope,
                       const Onnx__NodeProto *node, const char *cause, const char *hint);
// Adds the operators without an import in the bodies of a node that has not been imported itself.
void onnx_survey(Import *im, const Scope *scope, const Onnx__NodeProto *node);

// onnx_stand_in.c: reads the declared types, and a symbol's size; returns a parameter in place of a
// result of a failed node, or NULL; whether a value depends on one; adds the ops that would need a
// gradient and have none.
void onnx_declare(Import *im);
void onnx_declare_symbol(Import *im, const char *symbol, int64_t size);
Value *onnx_stand_in(Import *im, const Scope *scope, const Onnx__NodeProto *node, size_t result);
bool onnx_after_stand_in(const Import *im, const Value *v);
void onnx_find_gradients(Import *im);

// onnx_known.c
bool onnx_is_known(const Import *im, const Value *v);
bool onnx_hint(Import *im, const Value *input, int i); // reads its value from the options
const char *onnx_hint_path(const Import *im, int i);   // NULL: there is none
void onnx_learn_hint(Import *im, const Value *input, Tensor t);
const Tensor *onnx_hinted(const Node *n, const Value *v); // known, or known by hints
void onnx_evaluate_new(Import *im, Node *n);              // reports errors of the node
void onnx_tidy(Import *im); // known values become constants; dead ops are erased

// onnx_detach.c: --detach.  Whether a glob matches the node, whose results then stop gradients;
// false after a report of globs that match no node.
void onnx_detach_begin(Import *im);
bool onnx_is_detached(Import *im, const Scope *scope, const Onnx__NodeProto *node);
void onnx_detach_results(Import *im, Scope *scope, const Onnx__NodeProto *node);
bool onnx_check_detached(Import *im);

// onnx_counted.c: the options --bound; false after a report.
bool onnx_check_bounds(Import *im);
bool onnx_check_bounds_used(Import *im);
// Before and after the import of a node: sets the count of its counted operands, if it has any, and
// their padding; then that of its results.  False after a report.
bool onnx_counted_before(Node *n, Counted *out);
bool onnx_counted_after(Node *n, const Counted *of);

// onnx_import.c: imports the nodes of a body, in topological order, in the given scope.
bool onnx_body(Import *im, Scope *scope, Onnx__NodeProto *const *node, size_t n,
               char *const *output, size_t n_output);
Scope *onnx_scope_new(Import *im, const Scope *outer);
// The scope of a function's body in a call.
Scope *onnx_call_scope(Import *im, const Scope *scope, const Onnx__NodeProto *node,
                       const Onnx__FunctionProto *f);
const Loc *onnx_node_loc(Import *im, const Scope *scope, const Onnx__NodeProto *node);
const char *onnx_domain(const char *domain); // "ai.onnx" and "" are one
// The meaning of a node's operator: its opset, and a function of the model or a row; neither: it
// has no import.
typedef struct Operator {
  const char *name, *domain;
  int64_t opset;
  const Onnx__FunctionProto *function;
  const struct Row *row;
} Operator;
Operator onnx_operator(Import *im, const Scope *scope, const Onnx__NodeProto *node);
void onnx_operator_problem(Import *im, const Scope *scope, const Onnx__NodeProto *node);
void onnx_bind(Import *im, Scope *scope, const char *name, Value *v, bool poisoned);
// Binds the name to the same value as another binding.
void onnx_bind_as(Import *im, Scope *scope, const char *name, const Binding *as);
// Returns NULL if there is no such name, here or outside.
Binding *onnx_lookup(const Scope *scope, const char *name);
bool onnx_initializers(Import *im, Scope *scope, const Onnx__GraphProto *g);
// Returns the IR value of a binding; creates the parameter or the constant of an initializer.
Value *onnx_binding_value(Import *im, Binding *b);

#endif
