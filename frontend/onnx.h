// ONNX in and out.

#ifndef FRONTEND_ONNX_H
#define FRONTEND_ONNX_H

#include "ir/annotations.h"
#include "ir/op.h"

// The reason that a weight is trained or not.
typedef struct OnnxWeight {
  const char *label, *reason; // "PyTorch calls it a buffer"
  bool doubtful;              // the reason may be wrong
  bool trained;               // unless no gradient reaches it
} OnnxWeight;

// Findings in a model that its user should know before training it.
typedef struct OnnxFindings {
  Arena *arena; // the caller's, of the members below
  OnnxWeight *weights;
  int n_weights;
  // BatchNormalization in inference mode without evidence that this is intended: their number, and
  // the location of the first.
  int n_batch_norms;
  const Loc *batch_norm;
  // Likewise Dropouts of attention.
  int n_dropouts;
  const Loc *dropout;
  // Operators that round their inputs to 8 bits by definition, and here do not.
  int n_unrounded;
  const Loc *unrounded;
} OnnxFindings;

// An output with a length that depends on data.
typedef struct OnnxCount {
  const char *output, *count; // the label of the output, and of the one with its length
  int axis;                   // the dimension
} OnnxCount;
typedef struct OnnxCounts {
  Arena *arena; // the caller's
  OnnxCount *at;
  int n;
} OnnxCounts;

typedef struct OnnxOptions {
  int64_t batch;         // 0: not given
  const char *batch_dim; // NULL: the dim_param shared by all inputs' axis 0, else axis 0
  // The batch is dimension 0 in data: an input or output with the batch in another dimension gets
  // it first, and the model a transpose.
  bool batch_first;
  const char *const *dims; // "NAME=VALUE", n_dims of them
  int n_dims;
  const char *external_data_dir; // another folder for external data, or NULL
  bool keep_f64;                 // keep f64, f16 and bf16; otherwise they become f32
  bool train_mode;               // Dropout and BatchNormalization as in training
  bool unread;                   // weights are not read: files of external data may be missing
  // "NAME=N", n_bounds of them: bounds of lengths that depend on data, by the glob of a node or of
  // one of its results; the last match counts.
  const char *const *bounds;
  int n_bounds;
  OnnxCounts *counts; // or NULL
  // Multi-device annotations for this number of devices become those of the module, if there are
  // any; 0: they are ignored.
  int64_t devices;
  bool *annotated; // output: whether it has any, for any number of devices; or NULL
  // Globs of names; the last match wins: "w*" is frozen, "!w*" is trained, against the model's
  // metadata.
  const char *const *weights;
  int n_weights;
  OnnxFindings *findings; // or NULL
  // Files of test data (onnx_data.c), one for each input in order, or NULL: values of inputs that
  // are constant in practice.  They are used if an op must know a value computed from them at
  // compile time (axes, a shape, a condition).  They stay inputs.  An input has the free dimensions
  // of its file, a sequence the file's length.
  const char *const *hints;
  int n_hints;
  // Whether the loss depends on an output of the graph; NULL: no training step is made of the
  // model. After a problem, ops without a gradient are reported, too.
  bool (*makes_loss)(const void *of, Graph *g, const char *output);
  const void *makes_loss_of;
  // Globs of names, separated by commas: results of these nodes stop gradients.
  const char *const *detached;
  int n_detached;
  // The list of strings, if inputs and outputs may be tensors of strings: their elements are the
  // numbers of the strings in it (onnx_strings.h).  NULL: they are refused.
  struct OnnxStrings *strings;
  // The target whose kernels must compute the ops, or NULL: any element type.
  const Target *target;
} OnnxOptions;

// Reads the model into a module in PHASE_typed with one entry graph @main: inputs, weights, and an
// output per ONNX output.  All unsupported nodes are reported in one run, grouped by cause.
// Returns NULL after any error.
Module *onnx_import(const char *path, const OnnxOptions *o, Diag *d);
// Returns the module's name for a tensor of the file.
const char *onnx_value_name(Arena *a, const char *name);

// Returns the first node of the model that depends on `name`, a node or a value of its graph, and
// exists still according to `lasts`; NULL: none.  *known: whether the model has the name.
typedef bool OnnxLasts(const void *of, const char *node);
const char *onnx_follow(const char *path, const char *name, OnnxLasts *lasts, const void *of,
                        Arena *a, bool *known);

// The bytes of the model with every initializer in `labels` as inline raw data, and the ranges of
// these data: the executable needs them for --export.  Empty, with a warning, above 2 GiB.
typedef struct OnnxHole {
  const char *label;
  DType dtype;            // of the file
  int64_t offset, length; // in the skeleton
} OnnxHole;
typedef struct OnnxSkeleton {
  uint8_t *bytes; // holes are zero
  int64_t n;
  OnnxHole *holes;
  int n_holes;
} OnnxSkeleton;
// The first `n_must` labels must be initializers of the graph; other labels that are not, as those
// of a branch, have no hole.
bool onnx_skeleton(const char *path, const OnnxOptions *o, const char *const *labels, int n_labels,
                   int n_must, Arena *a, OnnxSkeleton *out, Diag *d);

// Returns the bytes of the model with these annotations instead of its own.  They will be written
// to the file `to`; weights in other files stay there.
bool onnx_annotate(const char *path, const Annotations *all, const char *to, Arena *a,
                   const uint8_t **bytes, int64_t *n, Diag *d);

#endif
